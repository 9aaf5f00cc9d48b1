//! What the last launch of a queue may write: what the next kernel must not ask for before it waits.
//!
//! Each kernel waits for the end of the one ahead before it lets the next one be set up (see
//! `machine::programmatic_dependent_launch`), so that all kernels before that one have ended, and only what the launch right ahead
//! writes may still change.

use cudarc::driver::sys;

use crate::runtime::{Arg, PtrArg};

/// Ranges of addresses that are kept; a launch that writes more may write anything.
const MOST: usize = 8;

/// The memory that a launch may write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes {
    /// The first address, and the one behind the last, of each argument.
    ranges: [(u64, u64); MOST],
    /// How many there are; none where it may be anything.
    count: Option<usize>,
}

impl Writes {
    /// Anything.
    pub(crate) const UNKNOWN: Writes = Writes { ranges: [(0, 0); MOST], count: None };

    /// What a launch with these arguments may write.
    #[inline]
    pub(crate) fn of(args: &[Arg]) -> Writes {
        let mut all = Writes { count: Some(0), ..Writes::UNKNOWN };
        for arg in args {
            match arg {
                Arg::Ptr(ptr) => all.add(ptr),
                // Rows may be turned: what lies before the first element counts too.
                Arg::View(view) if view.ptr.mutable && view.strides().iter().any(|&s| s < 0) => {
                    return Writes::UNKNOWN;
                }
                Arg::View(view) => all.add(&view.ptr),
                // Its views lie anywhere.
                Arg::Views(list) if list.ptr.mutable => return Writes::UNKNOWN,
                Arg::Views(_) => {}
                Arg::Scalar(_) => {}
            }
        }
        all
    }

    /// As [`Writes::of`], of memory that each operand has from its first address on.
    #[inline]
    pub(crate) fn of_operands(operands: &[PtrArg]) -> Writes {
        let mut all = Writes { count: Some(0), ..Writes::UNKNOWN };
        operands.iter().for_each(|operand| all.add(operand));
        all
    }

    #[inline]
    fn add(&mut self, ptr: &PtrArg) {
        if !ptr.mutable {
            return;
        }
        let Some(count) = self.count else { return };
        match self.ranges.get_mut(count) {
            Some(range) => {
                *range = (ptr.address, ptr.address.saturating_add(ptr.bytes));
                self.count = Some(count + 1);
            }
            None => self.count = None,
        }
    }

    /// Whether some byte of a range may be written.
    pub(super) fn touch(&self, address: u64, bytes: u64) -> bool {
        let Some(count) = self.count else { return true };
        let end = address.saturating_add(bytes);
        self.ranges[..count].iter().any(|&(from, to)| from < end && address < to)
    }
}

/// The last launch of a stream: the driver's queue that it was given to, and what it may write.
#[derive(Debug)]
pub(super) struct LastLaunch {
    queue: usize,
    writes: Writes,
}

impl Default for LastLaunch {
    fn default() -> LastLaunch {
        LastLaunch { queue: 0, writes: Writes::UNKNOWN }
    }
}

impl LastLaunch {
    /// Notes a launch.
    #[inline]
    pub(super) fn set(&mut self, queue: sys::CUstream, writes: &Writes) {
        *self = LastLaunch { queue: queue.addr(), writes: *writes };
    }

    /// Whether the launch that is right ahead of the next one on this queue may write to some byte of a range: so it
    /// is where it is not known, as the last launch went elsewhere.
    pub(super) fn may_write(&self, queue: sys::CUstream, address: u64, bytes: u64) -> bool {
        self.queue != queue.addr() || self.writes.touch(address, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::DType;
    use crate::runtime::Device;

    fn operand(address: u64, bytes: u64, mutable: bool) -> PtrArg {
        PtrArg { device: Device::Cuda(0), address, bytes, dtype: DType::F32, mutable }
    }

    #[test]
    fn what_is_written_is_known_by_its_bytes() {
        let writes = Writes::of_operands(&[operand(64, 64, true), operand(256, 64, false)]);
        let touched = [0, 32, 64, 127, 128, 256].map(|address| writes.touch(address, 33));
        assert_eq!(touched, [false, true, true, true, false, false]);
        assert!(Writes::UNKNOWN.touch(0, 1));
    }

    #[test]
    fn more_ranges_than_are_kept_may_be_anything() {
        let of = |count: u64| -> Vec<PtrArg> {
            (0..count).map(|i| operand(1 << 20 | i << 10, 4, true)).collect()
        };
        assert!(!Writes::of_operands(&of(8)).touch(0, 4));
        assert!(Writes::of_operands(&of(9)).touch(0, 4));
    }

    #[test]
    fn another_queue_is_not_known() {
        let queue = |number: usize| std::ptr::without_provenance_mut(number);
        let mut last = LastLaunch::default();
        assert!(last.may_write(queue(1), 0, 4));
        last.set(queue(1), &Writes::of_operands(&[operand(64, 64, true)]));
        assert!(!last.may_write(queue(1), 0, 4) && last.may_write(queue(1), 64, 4));
        assert!(last.may_write(queue(2), 0, 4));
    }
}
