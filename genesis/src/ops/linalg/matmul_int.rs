//! Products of matrices of integers, which PyTorch has on the CPU only.
//!
//! Sums are i32, or as wide as the dtype where that is wider, and wrap, so that those of a narrow dtype are
//! their low bits: what adding in that dtype would give.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use kernels::matmul_int::matmul_int;

use crate::error::Result;
use crate::launch;
use crate::tensor::Tensor;

/// Rows and columns of a program's tile.
const TILE: usize = 32;

/// `c = a b` of tensors of rank 3.
pub(super) fn matmul(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::*;

    #[test]
    fn narrow_sums_wrap() -> Result<()> {
        let a = Tensor::from_slice_on(&[100i8, 100, 3, -4], &[2, 2], Device::Cpu)?;
        let b = Tensor::from_slice_on(&[2i8, 1, 1, 0], &[2, 2], Device::Cpu)?;
        assert_eq!(a.matmul(&b)?.to_vec::<i8>()?, [300i64 as i8, 100, 2, 3]);
        Ok(())
    }
}
