//! What the model of time knows about a device.

use std::fmt::Write;

use super::gpus::{self, Rates};
use crate::ir::{DType, DotPrecision};
use crate::target::{GpuTarget, Target};

/// A device as the tuner sees it. Rates are those of the data sheet at the clock that a long run holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// The product's name; `cpu` for the processor.
    pub name: String,
    /// The driver's major CUDA version; 0 for the processor.
    pub driver: u32,
    /// What code is compiled for.
    pub target: Target,
    /// Multiprocessors; threads of the processor.
    pub multiprocessors: u32,
    /// Clocks in a microsecond.
    pub clocks_per_us: f64,
    /// Bytes that memory moves in a microsecond.
    pub bytes_per_us: f64,
    /// Bytes that one multiprocessor gets out of the cache in a clock.
    pub cache_bytes_per_clock: f64,
}

/// Bytes that one multiprocessor gets out of the cache in a clock. Measured on an H200: products of 64 by 128 tiles reach
/// 0.81 of those of 128 by 256.
const CACHE_BYTES_PER_CLOCK: f64 = 80.0;

/// A processor, of which the model asks for an order of configurations only.
const CPU_THREADS: u32 = 8;
const CPU_CLOCK_MHZ: u32 = 3000;
const CPU_MEMORY_GBPS: u32 = 20;
const CPU_RATES: Rates = Rates { half: 32, tf32: 32, single: 32, double: 16 };

/// What a matrix product is computed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Tensor cores on elements of 1 or 2 bytes.
    Half,
    /// Tensor cores on tf32.
    Tf32,
    /// Multiply-adds of the ordinary units.
    Single,
    /// Tensor cores on f64.
    Double,
}

impl Unit {
    /// The unit that multiplies elements of a dtype.
    pub fn of(dtype: DType, precision: DotPrecision) -> Unit {
        match (dtype, precision) {
            (DType::F64, _) => Unit::Double,
            (DType::F32, DotPrecision::Tf32) => Unit::Tf32,
            (DType::F32, DotPrecision::Ieee) => Unit::Single,
            _ => Unit::Half,
        }
    }
}

impl Machine {
    /// The usual machine of a target: an H200 for sm_90a, an A100 for sm_80.
    pub fn of_target(target: &Target) -> Machine {
        let (name, multiprocessors, clock_mhz, memory_gbps) = match target {
            Target::Cpu => ("cpu", CPU_THREADS, CPU_CLOCK_MHZ, CPU_MEMORY_GBPS),
            Target::Gpu(gpu) => {
                let gpu = gpus::of_target(gpu);
                (gpu.name, gpu.multiprocessors, gpu.clock_mhz, gpu.memory_gbps)
            }
        };
        Machine {
            name: name.to_owned(),
            driver: 0,
            target: target.clone(),
            multiprocessors,
            clocks_per_us: f64::from(clock_mhz),
            bytes_per_us: bytes_per_us(memory_gbps),
            cache_bytes_per_clock: CACHE_BYTES_PER_CLOCK,
        }
    }

    /// A GPU as its driver describes it, with the rates of its row in the table of products, or of its architecture.
    pub fn of_gpu(name: String, driver: u32, target: GpuTarget, multiprocessors: u32) -> Machine {
        let usual = Machine::of_target(&Target::Gpu(target));
        let known = gpus::named(&name).map(|gpu| bytes_per_us(gpu.memory_gbps));
        let bytes_per_us = known.unwrap_or(usual.bytes_per_us);
        Machine { name, driver, multiprocessors, bytes_per_us, ..usual }
    }

    /// The processor with so many threads.
    pub fn of_cpu(threads: u32) -> Machine {
        Machine { multiprocessors: threads, ..Machine::of_target(&Target::Cpu) }
    }

    /// The GPU target, if it is one.
    pub fn gpu(&self) -> Option<&GpuTarget> {
        match &self.target {
            Target::Gpu(gpu) => Some(gpu),
            Target::Cpu => None,
        }
    }

    /// Floating-point operations of one multiprocessor in a clock.
    pub fn flops_per_clock(&self, unit: Unit) -> f64 {
        let rates = self.gpu().map_or(CPU_RATES, |gpu| gpus::of_target(gpu).rates);
        f64::from(match unit {
            Unit::Half => rates.half,
            Unit::Tf32 => rates.tf32,
            Unit::Single => rates.single,
            Unit::Double => rates.double,
        })
    }

    /// Bytes of the second-level cache; all there are of the processor.
    pub fn cache_bytes(&self) -> usize {
        self.gpu().map_or(usize::MAX, |gpu| gpus::of_target(gpu).cache_bytes)
    }

    /// The device's name in keys: without what differs between boards of one chip.
    pub fn key(&self) -> String {
        let mut key = String::new();
        for word in self.name.split_whitespace().filter(|word| !word.ends_with("GB")) {
            let _ = write!(key, "{word} ");
        }
        key.trim_end().to_owned()
    }
}

/// GB/s in bytes a microsecond.
fn bytes_per_us(gbps: u32) -> f64 {
    1e3 * f64::from(gbps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boards_of_one_chip_share_a_key() {
        let h200 = Machine::of_target(&Target::sm_90a());
        let board = Machine { name: "NVIDIA H200 141GB".to_owned(), ..h200.clone() };
        assert_eq!((h200.key(), board.key()), ("NVIDIA H200".into(), "NVIDIA H200".into()));
    }

    #[test]
    fn a_gpu_has_the_bandwidth_of_its_name() {
        let of = |name: &str| Machine::of_gpu(name.to_owned(), 12, GpuTarget::SM_90A, 114);
        assert_eq!(of("NVIDIA H100 PCIe").bytes_per_us, 3.35e6);
        assert_eq!(of("NVIDIA H800").bytes_per_us, 4.8e6);
        assert_eq!(of("NVIDIA H800").multiprocessors, 114);
    }
}
