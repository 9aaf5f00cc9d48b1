//! What the model knows about a device.

use std::fmt::Write;

use crate::diag::Error;
use crate::ir::{DType, DotPrecision};
use crate::runtime::Device;
use crate::target::{GpuTarget, Product, Rates, Target};

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

/// A processor, of which the model asks for an order of configurations only.
const CPU: Product = Product { name: "cpu", multiprocessors: 8, clock_mhz: 3000, memory_gbps: 20 };
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
    /// The machine of a device.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn of(device: Device) -> Result<Machine, Error> {
        if !device.is_cuda() {
            let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
            return Ok(Machine { multiprocessors: threads, ..Machine::of_target(&Target::Cpu) });
        }
        let info = device.gpu_info()?;
        let gpu = Machine::of_target(&Target::Gpu(info.target));
        Ok(Machine {
            bytes_per_us: memory_rate(&info.name).unwrap_or(gpu.bytes_per_us),
            name: info.name,
            driver: info.driver_version / 1000,
            multiprocessors: info.multiprocessors,
            ..gpu
        })
    }

    /// The usual machine of a target: an H200 for sm_90a, an A100 for sm_80.
    pub fn of_target(target: &Target) -> Machine {
        let Product { name, multiprocessors, clock_mhz, memory_gbps } = match target {
            Target::Cpu => CPU,
            Target::Gpu(gpu) => gpu.features.product,
        };
        Machine {
            name: name.to_owned(),
            driver: 0,
            target: target.clone(),
            multiprocessors,
            clocks_per_us: f64::from(clock_mhz),
            bytes_per_us: 1e3 * f64::from(memory_gbps),
            // Measured on an H200: products of 64 by 128 tiles reach 0.81 of those of 128 by 256.
            cache_bytes_per_clock: 80.0,
        }
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
        let rates = self.gpu().map_or(CPU_RATES, |gpu| gpu.features.rates);
        f64::from(match unit {
            Unit::Half => rates.half,
            Unit::Tf32 => rates.tf32,
            Unit::Single => rates.single,
            Unit::Double => rates.double,
        })
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

/// Bytes in a microsecond, by the product's name.
fn memory_rate(name: &str) -> Option<f64> {
    let known = [
        ("H200", 4.8e6),
        ("H100", 3.35e6),
        ("GH200", 4.9e6),
        ("A100", 2.0e6),
        ("B200", 8.0e6),
        ("RTX 5090", 1.79e6),
    ];
    known.iter().find(|(part, _)| name.contains(part)).map(|&(_, rate)| rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_a_machine_too() {
        let cpu = Machine::of(Device::Cpu).unwrap();
        assert_eq!((cpu.key().as_str(), cpu.gpu().is_none(), cpu.driver), ("cpu", true, 0));
        assert!(cpu.flops_per_clock(Unit::Single) > 0.0);
    }

    #[test]
    fn boards_of_one_chip_share_a_key() {
        let h200 = Machine::of_target(&Target::sm_90a());
        let board = Machine { name: "NVIDIA H200 141GB".to_owned(), ..h200.clone() };
        assert_eq!((h200.key(), board.key()), ("NVIDIA H200".into(), "NVIDIA H200".into()));
    }
}
