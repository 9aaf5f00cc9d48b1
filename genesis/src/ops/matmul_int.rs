//! Products of matrices of integers, which PyTorch has on the CPU only.
//!
//! Sums are i64, or i32 on GPUs where that is as wide as the dtype, and wrap, so that those of a narrow
//! dtype are their low bits: what adding in that dtype would give.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::Device;
use kernels::matmul_int::matmul_int;

use super::launch;
use crate::error::Result;
use crate::tensor::Tensor;

/// `c = a b` of tensors of rank 3.
pub(super) fn matmul(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    if c.device() != Device::Cpu {
        return by_kernel(a, b, c);
    }
    let wide = |t: &Tensor| t.to_dtype(DType::I64)?.to_vec::<i64>();
    let (a, b, extents) = (wide(a)?, wide(b)?, [a.shape()[1], a.shape()[2], b.shape()[2]]);
    let sums = products(&a, &b, c.shape()[0], extents);
    launch::cast(&Tensor::from_slice_on(&sums, c.shape(), Device::Cpu)?, c)
}

/// Rows and columns of a program's tile.
const TILE: usize = 32;

fn by_kernel(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    let wide = match c.dtype() {
        DType::I64 | DType::U64 => c.dtype(),
        _ => DType::I32,
    };
    let [batches, m, n] = [0, 1, 2].map(|axis| c.shape()[axis]);
    let grid = Grid::x(batches * m.div_ceil(TILE) * n.div_ceil(TILE));
    let tensors = [(a, false), (b, false), (c, true)];
    let consts = [TILE as i64; 2];
    launch::views(&matmul_int::KERNEL, grid, &[c.dtype(), wide], &consts, &tensors, &[])
}

/// The products of a batch, row by row, so that the inner loop runs along rows of `b` and of the sums.
fn products(a: &[i64], b: &[i64], batches: usize, [m, k, n]: [usize; 3]) -> Vec<i64> {
    let mut sums = vec![0i64; batches * m * n];
    for batch in 0..batches {
        for i in 0..m {
            let row = &mut sums[(batch * m + i) * n..][..n];
            for p in 0..k {
                let factor = a[(batch * m + i) * k + p];
                let line = &b[(batch * k + p) * n..][..n];
                for (sum, &value) in row.iter_mut().zip(line) {
                    *sum = sum.wrapping_add(factor.wrapping_mul(value));
                }
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_sums_wrap() -> Result<()> {
        let a = Tensor::from_slice_on(&[100i8, 100, 3, -4], &[2, 2], Device::Cpu)?;
        let b = Tensor::from_slice_on(&[2i8, 1, 1, 0], &[2, 2], Device::Cpu)?;
        assert_eq!(a.matmul(&b)?.to_vec::<i8>()?, [300i64 as i8, 100, 2, 3]);
        Ok(())
    }
}
