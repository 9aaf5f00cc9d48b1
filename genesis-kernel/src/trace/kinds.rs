//! Kinds of launches: the same code on the same grid with operands of the same sizes.
//!
//! Where a kernel's loops depend on numbers that it is given, launches with others of these numbers have
//! other work to do: they are variants of one kind, which share its time. Numbers that no loop depends on,
//! such as a seed or the count of steps, tell no launches apart.
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
use super::options::DeviceTimes;
use crate::kernel::Launch;
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

/// What tells kinds apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    /// Of code, grid and sizes.
    pub(super) hash: u64,
    /// The arguments, whose numbers may tell variants apart.
    pub(super) args: &'a [Arg],
}

impl Key<'_> {
    /// The hash with that of the numbers among some arguments.
    #[inline]
    pub(super) fn variant(self, of: Args) -> u64 {
        let mut hash = self.hash;
        let mut rest = of.0;
        while rest != 0 {
            let index = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let last = if index == LAST { self.args.len() } else { index + 1 };
            for arg in self.args.get(index..last).unwrap_or_default() {
                if let Arg::Scalar(scalar) = arg {
                    hash = mix(hash, scalar.bits);
                }
            }
        }
        hash
    }
}

/// The bit of arguments that have none of their own.
const LAST: usize = 63;

/// Some of a kernel's arguments, a bit each; those from the 64th on have one bit between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Args(u64);

impl Args {
    pub(super) const NONE: Args = Args(0);

    /// The argument at an index.
    pub(super) fn one(index: usize) -> Args {
        Args(1 << index.min(LAST))
    }

    /// These and others.
    pub(super) fn and(self, others: Args) -> Args {
        Args(self.0 | others.0)
    }
}

/// How often a kind was launched and timed.
#[derive(Clone, Copy, Debug)]
struct Count {
    launches: u32,
    /// The launch that is timed next.
    next: u32,
}

/// What launches of a hash are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    hash: u64,
    /// The numbers that tell variants of it apart.
    follows: Args,
    pub(super) number: u32,
    /// The number of the kind that it is a variant of, else its own.
    of: u32,
}

impl Found {
    const NOBODY: Found = Found { hash: 0, follows: Args::NONE, number: NOBODY, of: NOBODY };
}

/// The kinds of a thread.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    kinds: Vec<(Found, Kind)>,
    counts: Vec<Count>,
    numbers: BTreeMap<u64, u32>,
    /// Some by the last bits of their hash: what nearly all launches are found by.
    places: Vec<Found>,
    launches: u64,
    timed: u64,
}

impl Kinds {
    /// A launch's kind; `make` describes it, and says what numbers its work depends on.
    #[inline]
    pub(super) fn find(&mut self, key: Key<'_>, make: &dyn Fn() -> (Kind, Args)) -> Found {
        let found = self.lookup(key.hash, None, make);
        if found.follows == Args::NONE {
            return found;
        }
        self.lookup(key.variant(found.follows), Some(found.number), make)
    }

    #[inline]
    fn lookup(&mut self, hash: u64, of: Option<u32>, make: &dyn Fn() -> (Kind, Args)) -> Found {
        let place = hash as usize % PLACES;
        for place in [place, place ^ 1] {
            if let Some(&found) = self.places.get(place)
                && found.hash == hash
                && found.number != NOBODY
            {
                return found;
            }
        }
        self.search(hash, of, make)
    }

    #[cold]
    fn search(&mut self, hash: u64, of: Option<u32>, make: &dyn Fn() -> (Kind, Args)) -> Found {
        let number = *self.numbers.entry(hash).or_insert_with(|| {
            let (kind, follows) = make();
            let number = self.kinds.len() as u32;
            // A variant has none of its own.
            let follows = if of.is_none() { follows } else { Args::NONE };
            self.kinds.push((Found { hash, follows, number, of: of.unwrap_or(number) }, kind));
            self.counts.push(Count { launches: 0, next: 1 });
            number
        });
        let found = self.kinds[number as usize].0;
        self.places.resize(PLACES, Found::NOBODY);
        let place = hash as usize % PLACES;
        let is_taken = self.places[place].number != NOBODY;
        self.places[if is_taken { place ^ 1 } else { place }] = found;
        found
    }

    /// The hash of the kind that a number is of, and what launches of the number have in common.
    pub(super) fn get(&self, number: u32) -> Option<(u64, &Kind)> {
        let (found, kind) = self.kinds.get(number as usize)?;
        Some((self.kinds.get(found.of as usize)?.0.hash, kind))
    }

    /// Counts a launch on a GPU; whether it is to be timed.
    #[inline]
    pub(super) fn is_due(&mut self, found: Found, times: DeviceTimes) -> bool {
        self.launches += 1;
        let may_be_more = self.timed * SHARE <= self.launches;
        let Some(count) = self.counts.get_mut(found.of as usize) else { return false };
        count.launches = count.launches.saturating_add(1);
        match times {
            DeviceTimes::Off => false,
            DeviceTimes::All => true,
            DeviceTimes::Sampled => {
                count.launches >= count.next && (count.launches <= FIRST || may_be_more)
            }
        }
    }

    /// A launch of the kind was timed.
    pub(super) fn set_timed(&mut self, found: Found) {
        self.timed += 1;
        if let Some(count) = self.counts.get_mut(found.of as usize) {
            let n = count.launches;
            // Ever further away, and not in step with anything.
            let jitter =
                (self.timed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32 % (n / 2 + 1);
            count.next = n.saturating_add(if n < FIRST { 1 } else { n + jitter });
        }
    }

    /// Begins to count anew.
    pub(super) fn restart(&mut self) {
        self.counts.iter_mut().for_each(|count| (count.launches, count.next) = (0, 1));
        (self.launches, self.timed) = (0, 0);
    }
}

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    product as u64 ^ (product >> 64) as u64
}

/// The key of a launch's kind: of its code, and of what loops and sizes may follow from.
pub(super) fn key<'a>(code: usize, grid: [u32; 3], launch: &Launch<'a>) -> Key<'a> {
    let [x, y, z] = grid.map(u64::from);
    let mut hash = mix(mix(code as u64, x), y << 32 | z);
    for arg in launch.args {
        match arg {
            Arg::Ptr(ptr) => hash = mix(hash, ptr.bytes),
            Arg::Scalar(_) => {}
            Arg::View(view) | Arg::Views(view) => {
                for (&dim, &stride) in view.dims().iter().zip(view.strides()) {
                    hash = mix(hash, dim as u64 ^ (stride as u64).rotate_left(32));
                }
            }
        }
    }
    Key { hash, args: launch.args }
}

/// The same of a library's work on the CPU.
pub(super) fn key_of_work(name: &'static str, work: &Kernel) -> Key<'static> {
    let dtype = work.dtype.map_or(0, |dtype| dtype as u64 + 1);
    let words = [name.len() as u64, work.bytes, work.flops, work.product_flops, dtype];
    Key { hash: words.into_iter().fold(name.as_ptr() as u64, mix), args: &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{DType, Scalar};

    fn key(hash: u64, args: &[Arg]) -> Key<'_> {
        Key { hash, args }
    }

    fn numbers<const N: usize>(numbers: [i64; N]) -> [Arg; N] {
        numbers.map(|number| Arg::Scalar(Scalar::int(DType::I64, number)))
    }

    fn kind(follows: Args) -> (Kind, Args) {
        let (device, work) = (Device::Cuda(0), Kernel::default());
        (Kind { kernel: "add", device, grid: [1; 3], work }, follows)
    }

    /// Which of so many launches of a kind are timed, if `others` of other kinds come between.
    fn timed(times: DeviceTimes, launches: u32, others: u32) -> Vec<u32> {
        let mut kinds = Kinds::default();
        let number = kinds.find(key(7, &[]), &|| kind(Args::NONE));
        let other = kinds.find(key(8, &[]), &|| kind(Args::NONE));
        let again = kinds.find(key(7, &[]), &|| kind(Args::one(0)));
        assert_eq!([number, again, other].map(|found| found.number), [0, 0, 1]);
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
    fn variants_share_the_times_of_their_kind() {
        let mut kinds = Kinds::default();
        let bounds = [1, 2, 1].map(|n| kinds.find(key(7, &numbers([n])), &|| kind(Args::one(0))));
        assert_eq!(bounds.map(|found| found.number), [1, 2, 1]);
        let mut is_due = |found: Found| {
            let is_due = kinds.is_due(found, DeviceTimes::Sampled);
            is_due.then(|| kinds.set_timed(found)).is_some()
        };
        assert_eq!(bounds.map(&mut is_due), [true, true, false]);
        // Whichever comes, further ones are ever further away.
        let all: Vec<u32> = (4..10_000).filter(|n| is_due(bounds[*n as usize % 2])).collect();
        assert!(all.len() > 3 && all.windows(2).all(|pair| pair[1] >= pair[0] * 2), "{all:?}");
        assert_eq!(kinds.get(1).map(|(hash, _)| hash), Some(7));
    }

    #[test]
    fn only_numbers_that_loops_follow_make_variants() {
        let mut kinds = Kinds::default();
        let mut find = |seed: i64, bound: i64, follows: Args| {
            kinds.find(key(7 + follows.0, &numbers([seed, bound])), &|| kind(follows)).number
        };
        let bound = Args::one(1);
        let found = [(1, 5), (2, 5), (3, 6), (4, 5)].map(|(seed, n)| find(seed, n, bound));
        assert_eq!(found, [1, 1, 2, 1]);
        let found = [(1, 5), (2, 5), (3, 6)].map(|(seed, n)| find(seed, n, Args::NONE));
        assert_eq!(found, [3, 3, 3]);
    }

    #[test]
    fn arguments_past_the_last_bit_count_together() {
        let last = Args::one(70);
        assert_eq!(last, Args::one(63));
        let mut args = vec![Arg::Scalar(Scalar::int(DType::I64, 0)); 80];
        let before = key(7, &args).variant(last);
        args[62] = numbers([1])[0];
        assert_eq!(key(7, &args).variant(last), before);
        args[79] = numbers([1])[0];
        assert_ne!(key(7, &args).variant(last), before);
    }

    #[test]
    fn kinds_whose_hashes_end_alike_are_told_apart() {
        let mut kinds = Kinds::default();
        let hashes = [0, 1, 2, 3].map(|n| 5 + n * PLACES as u64);
        for _ in 0..3 {
            let find = |hash| kinds.find(key(hash, &[]), &|| kind(Args::NONE)).number;
            let numbers = hashes.map(find);
            assert_eq!(numbers, [0, 1, 2, 3]);
        }
    }

    #[test]
    fn all_or_none_are_timed_where_wished() {
        assert_eq!(timed(DeviceTimes::All, 3, 0), [1, 2, 3]);
        assert_eq!(timed(DeviceTimes::Off, 3, 0), [0; 0]);
    }
}
