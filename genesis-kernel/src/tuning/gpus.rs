//! The table of GPUs: how many of everything a product has, and how fast it is, by its data sheet.
//!
//! ```text
//!             multiprocessors  MHz   GB/s   L2      FLOP a clock and multiprocessor: 16 bits  tf32  f32  f64
//! A100        108              1410  2000   40 MB   2048   1024   128   128
//! H200        132              1755  4800   50 MB   4096   2048   256   256
//! B200        148              1850  8000   126 MB  2048   1024   256   128      by mma.sync
//! RTX 5090    170              2400  1790   96 MB    512    256   256     4
//! ```
//!
//! The driver says how many multiprocessors a device has; the rest is found by its name.

use crate::target::GpuTarget;

/// Floating-point operations of one multiprocessor in a clock, by the data sheet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rates {
    /// Tensor cores on 16-bit floats, by [`GpuFeatures::mma`](crate::target::GpuFeatures::mma).
    pub half: u32,
    /// The same on tf32.
    pub tf32: u32,
    /// The ordinary units on f32.
    pub single: u32,
    /// Tensor cores on f64, of GPUs for computing twice as fast as the ordinary units.
    pub double: u32,
}

/// A product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gpu {
    /// Its name, as the driver says it; empty where it only stands for an architecture.
    pub name: &'static str,
    /// The architectures that it stands for, where a choice is made without a device.
    pub targets: &'static [&'static str],
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// The clock that a long run holds, in MHz.
    pub clock_mhz: u32,
    /// What memory moves, in GB/s.
    pub memory_gbps: u32,
    /// Bytes of the second-level cache that a kernel's operands may count on.
    pub cache_bytes: usize,
    /// Arithmetic of a multiprocessor.
    pub rates: Rates,
}

const AMPERE: Rates = Rates { half: 2048, tf32: 1024, single: 128, double: 128 };
const HOPPER: Rates = Rates { half: 4096, tf32: 2048, single: 256, double: 256 };
/// `mma.sync` of Blackwell is taken to be as fast as that of an A100.
const BLACKWELL: Rates = Rates { half: 2048, tf32: 1024, single: 256, double: 128 };

/// Of the second-level cache of an H200, that a kernel reads from as long as its operands are no larger; the others were
/// not measured.
const CACHE_BYTES: usize = 40 << 20;

/// Every product. One whose name contains another's comes first.
pub const GPUS: [Gpu; 7] = [
    Gpu {
        name: "NVIDIA A100",
        targets: &["sm_80"],
        multiprocessors: 108,
        clock_mhz: 1410,
        memory_gbps: 2000,
        cache_bytes: CACHE_BYTES,
        rates: AMPERE,
    },
    Gpu {
        name: "",
        targets: &["sm_86", "sm_89"],
        multiprocessors: 84,
        clock_mhz: 1700,
        memory_gbps: 900,
        cache_bytes: CACHE_BYTES,
        rates: Rates { half: 1024, tf32: 512, single: 256, double: 4 },
    },
    Gpu { name: "NVIDIA GH200", targets: &[], memory_gbps: 4900, ..H200 },
    H200,
    Gpu { name: "NVIDIA H100", targets: &[], memory_gbps: 3350, ..H200 },
    Gpu {
        name: "NVIDIA B200",
        targets: &["sm_100", "sm_100a"],
        multiprocessors: 148,
        clock_mhz: 1850,
        memory_gbps: 8000,
        cache_bytes: CACHE_BYTES,
        rates: BLACKWELL,
    },
    Gpu {
        name: "NVIDIA GeForce RTX 5090",
        targets: &["sm_120", "sm_120a"],
        multiprocessors: 170,
        clock_mhz: 2400,
        memory_gbps: 1790,
        cache_bytes: CACHE_BYTES,
        rates: Rates { half: 512, tf32: 256, single: 256, double: 4 },
    },
];

const H200: Gpu = Gpu {
    name: "NVIDIA H200",
    targets: &["sm_90", "sm_90a"],
    multiprocessors: 132,
    clock_mhz: 1755,
    memory_gbps: 4800,
    cache_bytes: CACHE_BYTES,
    rates: HOPPER,
};

/// The product that stands for an architecture.
pub fn of_target(gpu: &GpuTarget) -> &'static Gpu {
    let found = GPUS.iter().find(|product| product.targets.contains(&gpu.name()));
    found.expect("every row of `GpuTarget::ALL` is in the table, which a test looks at")
}

/// The product with this name, as the driver says it.
pub fn named(name: &str) -> Option<&'static Gpu> {
    let is_part = |gpu: &&Gpu| {
        let model = gpu.name.rsplit("NVIDIA ").next().unwrap_or_default();
        let model = model.trim_start_matches("GeForce ");
        !model.is_empty() && name.contains(model)
    };
    GPUS.iter().find(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_a_product() {
        for gpu in GpuTarget::ALL {
            let product = of_target(&gpu);
            assert!(product.targets.contains(&gpu.name()) && product.multiprocessors > 0);
        }
    }

    #[test]
    fn products_are_found_by_what_the_driver_says() {
        let bandwidth = |name| named(name).map(|gpu| gpu.memory_gbps);
        assert_eq!(bandwidth("NVIDIA H200 141GB"), Some(4800));
        assert_eq!(bandwidth("NVIDIA GH200 480GB"), Some(4900));
        assert_eq!(bandwidth("NVIDIA H100 80GB HBM3"), Some(3350));
        assert_eq!(bandwidth("NVIDIA A100-SXM4-40GB"), Some(2000));
        assert_eq!(bandwidth("NVIDIA GeForce RTX 5090"), Some(1790));
        assert_eq!(bandwidth("NVIDIA T4"), None);
    }
}
