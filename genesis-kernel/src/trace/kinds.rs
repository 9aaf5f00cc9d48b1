//! Kinds of launches: the same code on the same grid with operands of the same sizes.
//!
//! A training step launches the same kinds again and again. What a launch has to move and compute is known
//! from its kind, and so is about how long a GPU takes for it: two time stamps of a GPU cost the host more
//! than all else that is recorded of a launch, so that only some launches of a kind get them.
//!
//! ```text
//! launches of a kind   1 2 3 4 5 6 .. 11 .. 26 ..
//! timed                x x . . x ..    x ..  x      and at most one in 64 after the second
//! ```

use std::collections::BTreeMap;

use super::event::Kernel;
use super::session::DeviceTimes;
use crate::launch::Launch;
use crate::runtime::{Arg, Device};

/// Launches of a kind, from the first on, that are timed in any case.
const FIRST: u32 = 2;

/// Of so many launches at most one more is timed.
const SHARE: u64 = 64;

/// Places of the table that is looked at first; a power of two.
const PLACES: usize = 512;

/// The number in a place that is empty.
const NOBODY: u32 = u32::MAX;

/// What launches have in common.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) kernel: &'static str,
    pub(super) device: Device,
    pub(super) grid: [u32; 3],
    pub(super) work: Kernel,
}

/// How often a kind was launched and timed.
#[derive(Clone, Copy, Debug)]
struct Count {
    launches: u32,
    /// The launch that is timed next.
    next: u32,
}

const NEW: Count = Count { launches: 0, next: 1 };

/// The kinds of a thread.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    kinds: Vec<(u64, Kind)>,
    counts: Vec<Count>,
    numbers: BTreeMap<u64, u32>,
    /// Hashes and numbers by the last bits of the hash: what nearly all launches are found by.
    places: Vec<(u64, u32)>,
    launches: u64,
    timed: u64,
}

impl Kinds {
    /// The number of the kind with this hash.
    #[inline]
    pub(super) fn find(&mut self, hash: u64, make: impl FnOnce() -> Kind) -> u32 {
        match self.places.get(hash as usize % PLACES) {
            Some(&(known, number)) if known == hash && number != NOBODY => number,
            _ => self.search(hash, make),
        }
    }

    #[cold]
    fn search(&mut self, hash: u64, make: impl FnOnce() -> Kind) -> u32 {
        let number = *self.numbers.entry(hash).or_insert_with(|| {
            self.kinds.push((hash, make()));
            self.counts.push(NEW);
            self.kinds.len() as u32 - 1
        });
        self.places.resize(PLACES, (0, NOBODY));
        self.places[hash as usize % PLACES] = (hash, number);
        number
    }

    /// The hash that a number stands for, and what launches of it have in common.
    pub(super) fn get(&self, number: u32) -> Option<(u64, &Kind)> {
        self.kinds.get(number as usize).map(|(hash, kind)| (*hash, kind))
    }

    /// Counts a launch on a GPU; whether it is to be timed.
    #[inline]
    pub(super) fn is_due(&mut self, number: u32, times: DeviceTimes) -> bool {
        let Some(count) = self.counts.get_mut(number as usize) else { return false };
        count.launches = count.launches.saturating_add(1);
        self.launches += 1;
        match times {
            DeviceTimes::Off => false,
            DeviceTimes::All => true,
            DeviceTimes::Sampled => {
                count.launches >= count.next
                    && (count.launches <= FIRST || self.timed * SHARE <= self.launches)
            }
        }
    }

    /// A launch of the kind was timed.
    pub(super) fn set_timed(&mut self, number: u32) {
        self.timed += 1;
        if let Some(count) = self.counts.get_mut(number as usize) {
            let n = count.launches;
            // Ever further away, and not in step with anything.
            let jitter =
                (self.timed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % (n / 2 + 1);
            count.next = n.saturating_add(if n < FIRST { 1 } else { n + jitter });
        }
    }

    /// Begins to count anew.
    pub(super) fn restart(&mut self) {
        self.counts.fill(NEW);
        (self.launches, self.timed) = (0, 0);
    }
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

/// The hash of a launch's kind: of its code, and of what loops and sizes may follow from.
pub(super) fn hash(code: usize, grid: [u32; 3], launch: &Launch<'_>) -> u64 {
    let [x, y, z] = grid.map(u64::from);
    let mut hash = mix(mix(code as u64, x), y << 32 | z);
    for arg in launch.args {
        match arg {
            Arg::Scalar(scalar) if !scalar.dtype.is_float() => hash = mix(hash, scalar.bits),
            Arg::Ptr(ptr) => hash = mix(hash, ptr.bytes),
            Arg::Scalar(_) => {}
            Arg::View(view) => {
                for (&dim, &stride) in view.dims().iter().zip(view.strides()) {
                    hash = mix(hash, dim as u64 ^ (stride as u64).rotate_left(32));
                }
            }
        }
    }
    hash
}

/// The same of a library's work on the CPU.
pub(super) fn hash_of_work(name: &'static str, work: &Kernel) -> u64 {
    let dtype = work.dtype.map_or(0, |dtype| dtype as u64 + 1);
    let words = [name.len() as u64, work.bytes, work.flops, work.product_flops, dtype];
    words.into_iter().fold(name.as_ptr() as u64, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of so many launches of a kind are timed, if `others` of other kinds come between.
    fn timed(times: DeviceTimes, launches: u32, others: u32) -> Vec<u32> {
        let mut kinds = Kinds::default();
        let kind = |kernel| {
            move || Kind { kernel, device: Device::Cuda(0), grid: [1; 3], work: Kernel::default() }
        };
        let number = kinds.find(7, kind("add"));
        let other = kinds.find(8, kind("mul"));
        assert_eq!((number, kinds.find(7, kind("add")), other), (0, 0, 1));
        let mut all = Vec::new();
        for launch in 1..=launches {
            if kinds.is_due(number, times) {
                kinds.set_timed(number);
                all.push(launch);
            }
            for _ in 0..others {
                assert!(!kinds.is_due(other, DeviceTimes::Off));
            }
        }
        all
    }

    #[test]
    fn the_first_are_timed_and_then_ever_fewer() {
        let all = timed(DeviceTimes::Sampled, 10_000, 20);
        assert_eq!(all[..2], [1, 2]);
        assert!((8..16).contains(&all.len()), "{all:?}");
        assert!(all[2..].windows(2).all(|pair| pair[1] >= pair[0] * 2), "{all:?}");
    }

    #[test]
    fn few_launches_are_timed_beyond_the_first() {
        let all = timed(DeviceTimes::Sampled, 100, 0);
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn all_or_none_are_timed_where_wished() {
        assert_eq!(timed(DeviceTimes::All, 3, 0), [1, 2, 3]);
        assert_eq!(timed(DeviceTimes::Off, 3, 0), [0; 0]);
    }
}
