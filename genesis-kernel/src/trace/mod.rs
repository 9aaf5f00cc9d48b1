//! What a program does while somebody looks: ranges of host time, launches, copies and waits.
//!
//! A [`Session`] records one thread, or all of them. Off, each hook is one relaxed load of a counter. On, it
//! reads the clock twice, and a launch on a GPU is put between two events of a pool, which are read when
//! they have long passed: nothing waits for the device until [`Session::take`].
//!
//! ```text
//! range "step" ------------------------------------------------
//!   range "matmul" -------------      range "relu" ----------
//!     launch matmul --                  launch relu_flat --
//!                       GPU: matmul ------------- relu_flat ---
//! ```

mod cost;
mod event;
mod record;
mod session;

use std::borrow::Cow;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use self::event::{Kernel, Launch, Memory, Range, RangeKind, Trace, Transfer, TransferKind};
use self::record::{Cost, Open, Recorder};
pub use self::session::{Options, Session};
use crate::kernel::{Hints, KernelDef};
use crate::launch as way;
use crate::runtime::{Device, EnteredOrigin, Origin, enter, origin};

/// Recorders at work in the process: hooks look at nothing else while there is none.
static ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Whether anything is recorded, by any thread.
#[inline]
pub fn is_on() -> bool {
    ACTIVE.load(Ordering::Relaxed) != 0
}

/// A piece of host time; it ends when this is dropped.
#[derive(Debug)]
pub struct Scope {
    _open: Option<Box<OpenRange>>,
    _origin: Option<EnteredOrigin>,
}

/// A range under way.
#[derive(Debug)]
struct OpenRange {
    recorder: Arc<Recorder>,
    open: Open,
}

impl Drop for OpenRange {
    fn drop(&mut self) {
        self.recorder.close(&mut self.open);
    }
}

#[cold]
fn open(
    kind: RangeKind,
    name: Cow<'static, str>,
    inputs: &dyn Fn() -> String,
) -> Option<Box<OpenRange>> {
    let recorder = record::current()?;
    let open = recorder.open(kind, name, inputs);
    Some(Box::new(OpenRange { recorder, open }))
}

/// An op of the framework that begins here. Launches until its end are for it, in profiles and in errors
/// of a GPU; `inputs` describes what goes in, where that is recorded.
#[inline]
pub fn op(
    name: &'static str,
    place: &'static Location<'static>,
    inputs: impl Fn() -> String,
) -> Scope {
    let outer = origin();
    // An op that is made of others keeps the line that called it.
    let place = outer.place.or(Some(place));
    let origin = enter(Origin { op: name, is_backward: outer.is_backward, place });
    let open = match is_on() {
        true => open(RangeKind::Op, Cow::Borrowed(name), &inputs),
        false => None,
    };
    Scope { _open: open, _origin: Some(origin) }
}

/// The gradient of an op that begins here.
#[inline]
pub fn backward(name: &'static str) -> Scope {
    let origin = enter(Origin { op: name, is_backward: true, place: origin().place });
    let open = match is_on() {
        true => open(RangeKind::Backward, Cow::Borrowed(name), &String::new),
        false => None,
    };
    Scope { _open: open, _origin: Some(origin) }
}

/// A part of the framework's or the user's program that begins here.
#[inline]
pub fn range(name: impl Into<Cow<'static, str>>) -> Scope {
    let open = match is_on() {
        true => open(RangeKind::User, name.into(), &String::new),
        false => None,
    };
    Scope { _open: open, _origin: None }
}

/// A part of the framework that begins here and launches; errors of a GPU name it, and the line that called
/// it.
#[inline]
pub fn range_at(name: &'static str, place: &'static Location<'static>) -> Scope {
    let place = origin().place.or(Some(place));
    let origin = enter(Origin { op: name, is_backward: false, place });
    Scope { _origin: Some(origin), ..range(name) }
}

/// A call of a library on the CPU that begins here, such as a matrix product, with the bytes that it moves
/// and its floating-point operations.
#[inline]
pub fn host_kernel(name: &'static str, work: impl Fn() -> Kernel) -> HostKernel {
    HostKernel(if is_on() { begin_host_kernel(name, &work) } else { None })
}

#[cold]
fn begin_host_kernel(name: &'static str, work: &dyn Fn() -> Kernel) -> Option<Box<Launching>> {
    let recorder = record::current()?;
    let begun = recorder.begin_launch(name, Device::Cpu, [1, 1, 1], Cost::Known(work()), None);
    Some(Box::new(Launching { recorder, begun }))
}

/// A library's work on the CPU; it ends when this is dropped.
#[derive(Debug)]
pub struct HostKernel(Option<Box<Launching>>);

impl Drop for HostKernel {
    fn drop(&mut self) {
        if let Some(launching) = self.0.take() {
            launching.end(true);
        }
    }
}

/// A launch under way.
#[derive(Debug)]
pub(crate) struct Launching {
    recorder: Arc<Recorder>,
    begun: record::Begun,
}

impl Launching {
    /// The launch returned.
    pub(crate) fn end(self, is_done: bool) {
        let Launching { recorder, begun } = self;
        recorder.end_launch(begun, is_done);
    }
}

/// A launch that begins here, if anybody looks. `code` tells the kernel's specialisations apart.
#[inline]
pub(crate) fn launching(
    def: &KernelDef,
    code: usize,
    launch: &way::Launch<'_>,
    grid: [u32; 3],
    hints: impl Fn() -> Hints,
) -> Option<Box<Launching>> {
    if is_on() { begin_launch(def, code, launch, grid, &hints) } else { None }
}

#[cold]
fn begin_launch(
    def: &KernelDef,
    code: usize,
    launch: &way::Launch<'_>,
    grid: [u32; 3],
    hints: &dyn Fn() -> Hints,
) -> Option<Box<Launching>> {
    let recorder = record::current()?;
    let cost = Cost::Counted { def, code, launch, hints };
    let device = launch.stream.device();
    let begun = recorder.begin_launch(def.ast.name, device, grid, cost, Some(launch.stream));
    Some(Box::new(Launching { recorder, begun }))
}

/// A copy between devices, or a wait for one, that begins here.
#[inline]
pub(crate) fn transfer(kind: TransferKind, device: Device, bytes: usize) -> Transferring {
    Transferring(if is_on() { begin_transfer(kind, device, bytes) } else { None })
}

#[cold]
fn begin_transfer(
    kind: TransferKind,
    device: Device,
    bytes: usize,
) -> Option<Box<(Arc<Recorder>, Transfer)>> {
    let recorder = record::current()?;
    let transfer = recorder.begin_transfer(kind, device, bytes);
    Some(Box::new((recorder, transfer)))
}

/// A copy or wait; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Transferring(Option<Box<(Arc<Recorder>, Transfer)>>);

impl Drop for Transferring {
    fn drop(&mut self) {
        if let Some(begun) = self.0.take() {
            let (recorder, transfer) = *begun;
            recorder.end_transfer(transfer);
        }
    }
}
