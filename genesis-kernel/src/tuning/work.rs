//! How long a configuration takes, before anything is compiled or run: enough to know which dozen of
//! a hundred to try.
//!
//! ```text
//! cycles of a program = max(FLOPs / rate, bytes / cache rate) + a tenth of the smaller
//! time = max(waves * programs on one multiprocessor * cycles, bytes of the arguments / memory rate)
//!        + a tenth of the smaller + 2.5 us
//! ```
//!
//! Worked on an H200, bf16, 1024^3: tiles of 64 by 128 are 128 programs, one wave of 16 steps of 307
//! clocks of loads, 2.8 us and the constant: 5.5 us measured. Tiles of 128 by 256 are 32 programs that
//! leave 100 multiprocessors idle: 16 steps of 1024 clocks, 9.3 us and the constant.

use super::multiprocessor::resident_blocks;
use super::{Machine, Unit};

/// What a launch does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// Programs of the grid.
    pub programs: f64,
    /// Floating-point operations of one program.
    pub flops: f64,
    /// Bytes that one program loads and stores.
    pub bytes: f64,
    /// Bytes of all arguments: what memory moves at least.
    pub argument_bytes: f64,
    /// What does most of the operations.
    pub unit: Unit,
    /// Shared memory of one program in bytes, if it is known.
    pub shared_bytes: Option<u32>,
    /// Warps of one program.
    pub num_warps: u32,
}

/// A launch that does nothing, and the first loads and last stores of one that does, in microseconds.
const CONSTANT_US: f64 = 2.5;

/// The share of the data sheet's memory rate that copies reach.
const MEMORY_SHARE: f64 = 0.9;

impl Work {
    /// The time that the model expects, in microseconds.
    pub fn estimate_us(&self, machine: &Machine) -> f64 {
        let sms = f64::from(machine.multiprocessors.max(1));
        let resident = f64::from(self.resident(machine)).min((self.programs / sms).ceil()).max(1.0);
        let waves = (self.programs / (sms * resident)).ceil();
        self.us_of_waves(machine, waves * resident)
    }

    /// The time of so many programs one after the other on each multiprocessor, of which the last may be a part.
    pub fn us_of_waves(&self, machine: &Machine, waves: f64) -> f64 {
        let compute = self.flops / machine.flops_per_clock(self.unit);
        let loads = self.bytes / machine.cache_bytes_per_clock;
        let cycles = compute.max(loads) + 0.1 * compute.min(loads);
        let on_chip = waves * cycles / machine.clocks_per_us;
        let memory = self.memory_us(machine) / MEMORY_SHARE;
        on_chip.max(memory) + 0.1 * on_chip.min(memory) + CONSTANT_US
    }

    /// The time below which no configuration can be, in microseconds: all operations at the unit's
    /// rate, or all arguments at memory's.
    pub fn bound_us(&self, machine: &Machine) -> f64 {
        let sms = f64::from(machine.multiprocessors.max(1));
        let rate = machine.flops_per_clock(self.unit) * machine.clocks_per_us * sms;
        (self.programs * self.flops / rate).max(self.memory_us(machine))
    }

    /// Whether memory, and not arithmetic, bounds it.
    pub fn is_memory_bound(&self, machine: &Machine) -> bool {
        self.bound_us(machine) <= self.memory_us(machine)
    }

    fn memory_us(&self, machine: &Machine) -> f64 {
        self.argument_bytes / machine.bytes_per_us
    }

    /// Programs that one multiprocessor holds at once.
    fn resident(&self, machine: &Machine) -> u32 {
        match machine.gpu() {
            None => 1,
            // Tiles for tensor cores are made as large as shared memory allows.
            Some(_) if self.shared_bytes.is_none() && self.unit != Unit::Single => 1,
            Some(gpu) => resident_blocks(&gpu.features, self.num_warps, self.shared_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    /// A product of bf16 matrices of `n` by `n` in tiles of `bm` by `bn`.
    fn product(n: f64, bm: f64, bn: f64) -> Work {
        Work {
            programs: (n / bm).ceil() * (n / bn).ceil(),
            flops: 2.0 * bm * bn * n,
            bytes: 2.0 * (bm + bn) * n,
            argument_bytes: 6.0 * n * n,
            unit: Unit::Half,
            shared_bytes: Some(200 << 10),
            num_warps: 8,
        }
    }

    #[test]
    fn the_order_is_what_was_measured_on_an_h200() {
        let machine = Machine::of_target(&Target::sm_90a());
        let us = |n, bm, bn| product(n, bm, bn).estimate_us(&machine);
        assert!(us(1024.0, 64.0, 128.0) < us(1024.0, 128.0, 128.0));
        assert!(us(1024.0, 128.0, 128.0) < us(1024.0, 128.0, 256.0));
        assert!(us(4096.0, 128.0, 256.0) < us(4096.0, 128.0, 128.0));
        assert!(us(4096.0, 128.0, 128.0) < us(4096.0, 64.0, 128.0));
        // 173 us were measured in a short run.
        assert!((150.0..180.0).contains(&us(4096.0, 128.0, 256.0)));
    }

    #[test]
    fn no_estimate_is_below_the_bound() {
        let machine = Machine::of_target(&Target::sm_90a());
        for n in [64.0, 1000.0, 8192.0] {
            let work = product(n, 128.0, 256.0);
            assert!(work.estimate_us(&machine) > work.bound_us(&machine));
        }
        assert!(!product(8192.0, 128.0, 256.0).is_memory_bound(&machine));
        assert!(Work { flops: 0.0, ..product(8192.0, 128.0, 256.0) }.is_memory_bound(&machine));
    }
}
