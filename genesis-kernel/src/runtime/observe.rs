//! Who hears of what the runtime does by itself: copies, waits, replays of graphs.
//!
//! An observer stands above the runtime, and is told at the beginning; what it gives is dropped at the end.

use std::any::Any;
use std::sync::OnceLock;

use super::device::Device;

/// Which way bytes went.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TransferKind {
    /// To a GPU.
    HostToDevice,
    /// From a GPU; the host waits for what was given to the GPU before.
    DeviceToHost,
    /// The host waits for the GPU, and nothing is copied.
    Wait,
}

/// What begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Activity {
    /// A copy, or a wait.
    Transfer {
        /// Which way.
        kind: TransferKind,
        /// The GPU.
        device: Device,
        /// Bytes copied.
        bytes: usize,
    },
    /// A graph is given to its stream.
    Replay,
}

/// What ends an activity when it is dropped; none where nobody looks.
pub(crate) type Observed = Option<Box<dyn Any>>;

static OBSERVER: OnceLock<fn(Activity) -> Observed> = OnceLock::new();

/// Has a function called whenever something begins, from now on. The first one stays.
pub(crate) fn set_observer(observer: fn(Activity) -> Observed) {
    OBSERVER.get_or_init(|| observer);
}

/// Tells the observer, if there is one.
#[inline]
pub(crate) fn begin(activity: Activity) -> Observed {
    OBSERVER.get().and_then(|observer| observer(activity))
}

/// [`begin`] of a copy or a wait.
#[inline]
pub(crate) fn transfer(kind: TransferKind, device: Device, bytes: usize) -> Observed {
    begin(Activity::Transfer { kind, device, bytes })
}
