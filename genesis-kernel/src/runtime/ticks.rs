//! The host's time, read often.
//!
//! A recording reads the time four times for an op. The system's clock takes 25 ns each time, the
//! processor's own counter 10 ns: between two readings of the clock that are a millisecond apart at most the
//! counter goes on from the first, at the rate that it had so far.
//!
//! ```text
//! clock    0 ns ........ 1 000 000 ns
//! counter       + + + +               + + +
//! ```

use std::time::{Duration, Instant};

/// How long the counter may go on alone.
const ALONE: Duration = Duration::from_millis(1);

/// A thread's clock, of nanoseconds since a point of time.
#[derive(Debug)]
pub(crate) struct HostClock {
    began: Instant,
    /// What the counter said at the first reading, and how many ns after the beginning that was.
    first: (u64, u64),
    /// The same at the last one.
    last: (u64, u64),
    /// 2^32 times the ns of one count.
    rate: u64,
    /// Counts after which the clock is read again; 0 while the rate is not known.
    limit: u64,
}

impl HostClock {
    pub(crate) fn new(began: Instant) -> HostClock {
        let now = both(began);
        HostClock { began, first: now, last: now, rate: 0, limit: 0 }
    }

    /// Nanoseconds since the beginning; never less than before.
    #[inline]
    pub(crate) fn now(&mut self) -> u64 {
        let passed = ticks().wrapping_sub(self.last.0);
        if passed >= self.limit {
            return self.read();
        }
        self.last.1 + ((passed * self.rate) >> 32)
    }

    /// Reads the system's clock.
    #[inline(never)]
    pub(crate) fn read(&mut self) -> u64 {
        let (counted, ns) = both(self.began);
        let alone_for = self.limit.min(counted.wrapping_sub(self.last.0));
        let before = self.last.1 + ((alone_for * self.rate) >> 32);
        let ns = ns.max(before);
        self.last = (counted, ns);
        let (counts, passed) = (counted.wrapping_sub(self.first.0), ns - self.first.1);
        let alone = ALONE.as_nanos() as u64;
        let is_known = counts > 0 && counts >> 63 == 0 && passed >= alone && is_constant();
        let per_count = if is_known { (u128::from(passed) << 32) / u128::from(counts) } else { 0 };
        // A counter of less than 1 MHz or more than 1000 GHz is none.
        let fits = (1 << 22..1 << 42).contains(&per_count);
        self.rate = if fits { per_count as u64 } else { 0 };
        self.limit = if fits { ((u128::from(alone) << 32) / per_count) as u64 } else { 0 };
        ns
    }
}

/// What the counter and the clock say at one time.
///
/// A thread that loses its processor between the two would go on from a time that the counter never had, and is
/// ahead of the clock by a slice of time for as long as it goes on alone. So the counter is read on both sides, and
/// the two that lie closest together of a few are taken.
fn both(began: Instant) -> (u64, u64) {
    /// Counts, of some microseconds, that a reading may take.
    const CLOSE: u64 = 1 << 14;
    const TRIES: usize = 4;
    let (mut least, mut closest) = (u64::MAX, (0, 0));
    for _ in 0..TRIES {
        let before = ticks();
        let ns = began.elapsed().as_nanos() as u64;
        let took = ticks().wrapping_sub(before);
        if took < least {
            (least, closest) = (took, (before, ns));
        }
        if took < CLOSE {
            break;
        }
    }
    closest
}

/// The processor's counter; 0 where there is none.
#[inline]
fn ticks() -> u64 {
    // SAFETY: every processor of 64 bits has the counter.
    #[cfg(target_arch = "x86_64")]
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Whether the counter is one of a constant rate.
#[cfg(target_arch = "x86_64")]
fn is_constant() -> bool {
    use std::arch::x86_64::__cpuid;

    /// The leaf whose word `edx` has the bit of a counter that never changes its rate, and that bit.
    const LEAF: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    static IS_CONSTANT: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
        __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).edx & INVARIANT != 0
    });
    *IS_CONSTANT
}

#[cfg(not(target_arch = "x86_64"))]
fn is_constant() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_the_clock_of_the_system() {
        let began = Instant::now();
        let mut clock = HostClock::new(began);
        let mut last = 0;
        while began.elapsed() < 20 * ALONE {
            let earliest = began.elapsed().as_nanos() as u64;
            let now = clock.now();
            let latest = began.elapsed().as_nanos() as u64;
            assert!(last <= now, "{last} before {now}");
            let slack = 20_000;
            assert!(earliest <= now + slack && now <= latest + slack, "{earliest} {now} {latest}");
            last = now;
        }
    }
}
