//! What the runtime does by itself, as events of a trace.

use super::event::{RangeKind, Transfer};
use super::{active, lane};
use crate::runtime::observe::{Activity, Observed};

/// A copy or wait; it ends when this is dropped.
struct Transferring(Option<Transfer>);

impl Drop for Transferring {
    fn drop(&mut self) {
        if let Some(transfer) = self.0.take() {
            lane::end_transfer(transfer);
        }
    }
}

/// A replay, as the range of this token.
struct Replaying(u64);

impl Drop for Replaying {
    fn drop(&mut self) {
        lane::close(self.0);
    }
}

/// Something begins; it ends when what this gives is dropped.
#[inline]
pub(super) fn observe(activity: Activity) -> Observed {
    if active::is_on() { note(activity) } else { None }
}

#[inline(never)]
fn note(activity: Activity) -> Observed {
    match activity {
        Activity::Transfer { kind, device, bytes } => {
            let transfer = lane::begin_transfer(kind, device, bytes)?;
            Some(Box::new(Transferring(Some(transfer))))
        }
        Activity::Replay => {
            let token = lane::open(RangeKind::User, "graph replay", &String::new);
            (token != 0).then(|| -> Box<dyn std::any::Any> { Box::new(Replaying(token)) })
        }
    }
}
