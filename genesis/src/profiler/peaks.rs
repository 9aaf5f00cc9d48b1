//! Rooflines: the peak bandwidth and arithmetic of a device.

use std::sync::OnceLock;
use std::time::Instant;

use genesis_kernel::autotune::{Machine, Unit};
use genesis_kernel::runtime::Event;
use genesis_kernel::trace::Kernel;

use crate::error::Result;
use crate::tensor::Tensor;
use crate::{DType, Device, no_grad};

/// What a device can do at best, in bytes and floating-point operations a nanosecond, which are GB/s and
/// GFLOP/s.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Peaks {
    /// Bytes of its memory.
    pub bytes: f64,
    /// Arithmetic outside of matrix products.
    pub flops: f64,
    /// Matrix products of 8- and 16-bit floats.
    pub half_products: f64,
    /// Matrix products of f32.
    pub single_products: f64,
    /// Matrix products of f64.
    pub double_products: f64,
}

/// Bytes that are copied to measure memory, several times what a cache holds.
const COPIED: usize = 64 << 20;

impl Peaks {
    /// A GPU by its data sheet; the processor as it is measured, once in a process.
    ///
    /// # Errors
    /// If the device can't be used.
    pub fn of(device: Device) -> Result<Peaks> {
        static PROCESSOR: OnceLock<Peaks> = OnceLock::new();
        if device.is_cuda() {
            return Peaks::of_data_sheet(device);
        }
        match PROCESSOR.get() {
            Some(peaks) => Ok(*peaks),
            None => {
                let measured = Peaks::measured(device)?;
                Ok(*PROCESSOR.get_or_init(|| measured))
            }
        }
    }

    /// The figures of the data sheet, at the clock that a long run holds.
    ///
    /// # Errors
    /// If the device can't be used.
    pub fn of_data_sheet(device: Device) -> Result<Peaks> {
        let machine = Machine::of(device)?;
        let per_ns = f64::from(machine.multiprocessors) * machine.clocks_per_us / 1e3;
        let flops = |unit| machine.flops_per_clock(unit) * per_ns;
        Ok(Peaks {
            bytes: machine.bytes_per_us / 1e3,
            flops: flops(Unit::Single),
            half_products: flops(Unit::Half),
            single_products: flops(Unit::Single),
            double_products: flops(Unit::Double),
        })
    }

    /// The figures of copies and products that are run for this, the best of three each. They are those of
    /// a machine that does nothing else meanwhile.
    ///
    /// # Errors
    /// If memory runs out or a launch fails.
    pub fn measured(device: Device) -> Result<Peaks> {
        no_grad(|| {
            let bytes = Tensor::zeros(&[COPIED / 4], device)?;
            let memory = 2.0 * COPIED as f64 / best_ns(device, || bytes.copy().map(drop))?;
            let n = if device.is_cuda() { 4096 } else { 512 };
            let product = |dtype| -> Result<f64> {
                let x = Tensor::zeros(&[n, n], (dtype, device))?;
                let ns = best_ns(device, || x.matmul(&x).map(drop))?;
                Ok(2.0 * (n * n * n) as f64 / ns)
            };
            let single = product(DType::F32)?;
            let is_cuda = device.is_cuda();
            Ok(Peaks {
                bytes: memory,
                flops: single,
                // The processor computes them in f32.
                half_products: if is_cuda { product(DType::BF16)? } else { single },
                single_products: single,
                double_products: product(DType::F64)?,
            })
        })
    }

    /// The shortest time for some work, in nanoseconds.
    pub fn ideal_ns(&self, work: &Kernel) -> f64 {
        let rate = match work.dtype {
            Some(DType::F64) => self.double_products,
            Some(DType::F32) | None => self.single_products,
            Some(_) => self.half_products,
        };
        let products = work.product_flops as f64 / rate;
        let others = work.flops.saturating_sub(work.product_flops) as f64 / self.flops;
        (work.bytes as f64 / self.bytes).max(products).max(others)
    }
}

/// The best of three times, after one that is not counted, in nanoseconds.
fn best_ns(device: Device, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    work()?;
    let stream = device.stream();
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let (start, begun) = (Event::record(&stream)?, Instant::now());
        work()?;
        let ns = match device {
            Device::Cpu => begun.elapsed().as_nanos() as f64,
            Device::Cuda(_) => Event::record(&stream)?.elapsed_ms(&start)? * 1e6,
        };
        best = best.min(ns.max(1.0));
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEAKS: Peaks = Peaks {
        bytes: 100.0,
        flops: 10.0,
        half_products: 1000.0,
        single_products: 50.0,
        double_products: 5.0,
    };

    #[test]
    fn the_slowest_resource_decides() {
        let work = Kernel { bytes: 1000, flops: 50, ..Kernel::default() };
        assert_eq!(PEAKS.ideal_ns(&work), 10.0);
        assert_eq!(PEAKS.ideal_ns(&Kernel { flops: 500, ..work }), 50.0);
        let product =
            |dtype| Kernel { flops: 10_000, product_flops: 10_000, dtype: Some(dtype), ..work };
        let times = [DType::BF16, DType::F32, DType::F64].map(|d| PEAKS.ideal_ns(&product(d)));
        assert_eq!(times, [10.0, 200.0, 2000.0]);
    }
}
