//! What a program does while somebody looks: ranges of host time, launches, copies and waits.
//!
//! A [`Session`] records one thread, or all of them. Off, each hook is one relaxed load of a counter. On, it
//! reads the clock twice and writes a small record; what a name or a sum takes is done at the end. Some
//! launches on a GPU ([`DeviceTimes`]) are put between two events of a pool, which are read when
//! they have long passed: nothing waits for the device until [`Session::take`].
//!
//! ```text
//! range "step" ------------------------------------------------
//!   range "matmul" -------------      range "relu" ----------
//!     launch matmul --                  launch relu_flat --
//!                       GPU: matmul ------------- relu_flat ---
//! ```

mod active;
mod cost;
mod estimate;
mod event;
mod gpu;
mod kinds;
mod lane;
mod log;
mod observe;
mod options;
mod record;
mod recorder;
mod session;

use std::borrow::Cow;
use std::panic::Location;

pub use self::active::is_on;
pub use self::event::{Kernel, Launch, Memory, Range, RangeKind, Trace, Transfer, TransferKind};
use self::kinds::{Args, Kind};
pub use self::options::{DeviceTimes, Options};
pub use self::session::Session;
use crate::front::Hints;
use crate::kernel as way;
use crate::kernel::KernelDef;
use crate::runtime::{Device, EnteredOrigin, Origin, enter, origin};

/// A piece of host time; it ends when this is dropped.
#[derive(Debug)]
pub struct Scope {
    open: OpenRange,
    _origin: Option<EnteredOrigin>,
}

/// A range under way; 0 where nobody records.
#[derive(Debug)]
struct OpenRange(u64);

impl Drop for OpenRange {
    #[inline]
    fn drop(&mut self) {
        if self.0 != 0 {
            close(self.0);
        }
    }
}

#[inline(never)]
fn close(token: u64) {
    lane::close(token);
}

#[inline(never)]
fn open(kind: RangeKind, name: &'static str, inputs: &dyn Fn() -> String) -> OpenRange {
    OpenRange(lane::open(kind, name, inputs))
}

#[cold]
fn open_named(name: String) -> OpenRange {
    OpenRange(lane::open_named(name))
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
        true => open(RangeKind::Op, name, &inputs),
        false => OpenRange(0),
    };
    Scope { open, _origin: Some(origin) }
}

/// The gradient of an op that begins here.
#[inline]
pub fn backward(name: &'static str) -> Scope {
    let origin = enter(Origin { op: name, is_backward: true, place: origin().place });
    let open = match is_on() {
        true => open(RangeKind::Backward, name, &String::new),
        false => OpenRange(0),
    };
    Scope { open, _origin: Some(origin) }
}

/// A part of the framework's or the user's program that begins here.
#[inline]
pub fn range(name: impl Into<Cow<'static, str>>) -> Scope {
    let open = match is_on() {
        true => match name.into() {
            Cow::Borrowed(name) => open(RangeKind::User, name, &String::new),
            Cow::Owned(name) => open_named(name),
        },
        false => OpenRange(0),
    };
    Scope { open, _origin: None }
}

/// A part of the framework that begins here and launches; errors of a GPU name it, and the line that called
/// it.
#[inline]
pub fn range_at(name: &'static str, place: &'static Location<'static>) -> Scope {
    let place = origin().place.or(Some(place));
    let origin = enter(Origin { op: name, is_backward: false, place });
    Scope { open: range(name).open, _origin: Some(origin) }
}

/// A call of a library on the CPU that begins here, such as a matrix product, with the bytes that it moves
/// and its floating-point operations.
#[inline]
pub fn host_kernel(name: &'static str, work: impl Fn() -> Kernel) -> HostKernel {
    HostKernel(if is_on() { begin_host_kernel(name, &work) } else { None })
}

#[inline(never)]
fn begin_host_kernel(name: &'static str, work: &dyn Fn() -> Kernel) -> Option<Launching> {
    let work = work();
    let make = |_| (Kind { kernel: name, device: Device::Cpu, grid: [1, 1, 1], work }, Args::NONE);
    lane::begin_launch(kinds::key_of_work(name, &work), &make, None).map(Launching)
}

/// A library's work on the CPU; it ends when this is dropped.
#[derive(Debug)]
pub struct HostKernel(Option<Launching>);

impl Drop for HostKernel {
    #[inline]
    fn drop(&mut self) {
        if let Some(launching) = self.0.take() {
            launching.end(true);
        }
    }
}

/// A launch under way.
#[derive(Debug)]
pub(crate) struct Launching(lane::Begun);

impl Launching {
    /// The launch returned.
    #[inline(never)]
    pub(crate) fn end(self, is_done: bool) {
        lane::end_launch(self.0, is_done);
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
) -> Option<Launching> {
    if is_on() { begin_launch(def, code, launch, grid, &hints) } else { None }
}

#[inline(never)]
fn begin_launch(
    def: &KernelDef,
    code: usize,
    launch: &way::Launch<'_>,
    grid: [u32; 3],
    hints: &dyn Fn() -> Hints,
) -> Option<Launching> {
    let key = kinds::key(code, grid, launch);
    let make = |counts_work: bool| {
        let count = || cost::count(key, (def, code), (launch, grid), hints);
        let (work, follows) = if counts_work { count() } else { (Kernel::default(), Args::NONE) };
        (Kind { kernel: def.ast.name, device: launch.stream.device(), grid, work }, follows)
    };
    lane::begin_launch(key, &make, Some(launch.stream)).map(Launching)
}
