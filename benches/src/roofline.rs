//! What the machine can do at best, and how near a time comes to it.

use crate::name::CaseName;

/// What a case has to move and compute, whoever does it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Work {
    /// Bytes of operands and results, each once.
    pub(crate) bytes: f64,
    /// Floating-point operations of products; 0 where memory is all that counts.
    pub(crate) flops: f64,
}

/// Copying 4 GiB on an H200, in bytes a ms.
const BANDWIDTH: f64 = 4283e6;

/// The rate of products on an H200 in FLOP a ms: 16-bit as measured, the others by their share of the
/// data sheet's figures.
fn peak(precision: &str) -> f64 {
    match precision {
        "f16" | "bf16" => 790e9,
        "f8e4m3" | "f8e5m2" | "i8" => 1580e9,
        "tf32" => 395e9,
        "f64" => 64e9,
        _ => 53e9,
    }
}

impl Work {
    /// So many elements of the case's dtype, each moved once.
    pub(crate) fn elements(name: &CaseName, count: usize) -> Work {
        Work { bytes: (count * name.dtype().bytes()) as f64, flops: 0.0 }
    }

    /// A product `[m, k] x [k, n]`.
    pub(crate) fn product(name: &CaseName, m: usize, n: usize, k: usize) -> Work {
        let flops = 2.0 * m as f64 * n as f64 * k as f64;
        Work { flops, ..Work::elements(name, m * k + k * n + m * n) }
    }

    /// The shortest time in ms.
    pub(crate) fn ideal_ms(&self, precision: &str) -> f64 {
        (self.bytes / BANDWIDTH).max(self.flops / peak(precision))
    }

    /// Whether the product takes longer than the memory.
    pub(crate) fn is_compute_bound(&self, precision: &str) -> bool {
        self.flops / peak(precision) > self.bytes / BANDWIDTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_product_is_bound_by_its_arithmetic() {
        let name = CaseName::parse("matmul/bf16/4096/nn").unwrap();
        let work = Work::product(&name, 4096, 4096, 4096);
        assert!(work.is_compute_bound("bf16"));
        assert!((work.ideal_ms("bf16") - 0.174).abs() < 0.001);
        let thin = Work::product(&name, 1, 4096, 4096);
        assert!(!thin.is_compute_bound("bf16"));
    }
}
