//! Products of matrices of integers.
//!
//! Sums are i32, or as wide as the dtype where that is wider, and wrap, so that those of a narrow dtype are
//! their low bits: what adding in that dtype would give.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use kernels::matmul_int::matmul_int;

use super::tensor_copies;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{check_pair, wrong_dtype};
use crate::tensor::Tensor;

const NAME: &str = "int_mm";

/// Rows and columns of a program's tile.
const TILE: usize = 32;

impl Tensor {
    /// The product of two matrices of integers of 8 bits, as i32.
    ///
    /// Not differentiable: such tensors never want gradients.
    ///
    /// # Shapes
    /// `[M, K]` and `[K, N]` give `[M, N]`.
    /// # Numerics
    /// Exact; sums beyond i32, of 131072 products or more of i8, wrap.
    /// # Errors
    /// If the operands are not two matrices of i8 or of u8, or inner extents or devices differ.
    /// # Cost
    /// Tensor cores read operands whose rows along K are contiguous and multiples of 16 bytes, `other` as the
    /// transpose of a matrix `[N, K]`; others are copied so first.
    /// # Source
    /// `torch._int_mm`, which takes i8 alone.
    /// # Examples
    /// ```
    /// # use genesis::{DType, Tensor};
    /// let a = Tensor::from_slice(&[100i8, 100, -3, 4], &[2, 2])?;
    /// let y = a.int_mm(&a.t()?)?;
    /// assert_eq!((y.dtype(), y.to_vec::<i32>()?), (DType::I32, vec![20000, 100, 100, 25]));
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn int_mm(&self, other: &Tensor) -> Result<Tensor> {
        check_pair(NAME, self, other)?;
        if !is_int8(self.dtype()) {
            return Err(wrong_dtype(NAME, "an integer of 8 bits", self.dtype()));
        }
        let is_product =
            self.rank() == 2 && other.rank() == 2 && self.shape()[1] == other.shape()[0];
        if !is_product {
            let (a, b) = (self.shape(), other.shape());
            return Err(Error::op(NAME, format!("needs [M, K] and [K, N], got {a:?} and {b:?}")));
        }
        let (m, n) = (self.shape()[0], other.shape()[1]);
        let at = (DType::I32, self.device());
        if self.shape()[1] == 0 || m * n == 0 {
            return Tensor::zeros(&[m, n], at);
        }
        let c = Tensor::uninitialized(&[1, m, n], at)?;
        matmul(&self.detach().unsqueeze(0)?, &other.detach().unsqueeze(0)?, &c)?;
        c.reshape(&[m, n])
    }
}

fn is_int8(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

/// `c = a b` of tensors of rank 3; `c` has the operands' dtype, or is i32.
pub(super) fn matmul(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    if is_int8(a.dtype()) {
        return tensor_copies::matmul_int8(a, b, c);
    }
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

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Family, OpInfo, cpu};
    use crate::ops::linalg::reference::product_of;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "int_mm",
        Family::Exact,
        |x| x[0].int_mm(&x[1]),
        |x| product_of(&x[0], &x[1]),
        &[
            &[&[1, 1], &[1, 1]],
            &[&[3, 4], &[4, 5]],
            &[&[70, 144], &[144, 80]],
            &[&[129, 127], &[127, 130]],
            &[&[0, 4], &[4, 5]],
            &[&[2, 0], &[0, 3]],
        ],
    )
    .peer("torch._int_mm(x[0], x[1])")
    .of(&[DType::I8, DType::U8])
    .flat()
    .refusing(&[
        (
            || cpu(&[2, 2], DType::I32)?.int_mm(&cpu(&[2, 2], DType::I32)?),
            "int_mm: needs an integer of 8 bits dtype, got i32",
        ),
        (
            || cpu(&[2, 3], DType::I8)?.int_mm(&cpu(&[2, 2], DType::I8)?),
            "int_mm: needs [M, K] and [K, N], got [2, 3] and [2, 2]",
        ),
    ])];
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
        assert_eq!(a.int_mm(&b)?.to_vec::<i32>()?, [300, 100, 2, 3]);
        Ok(())
    }

    #[test]
    fn sums_of_many_wrap_as_i32() -> Result<()> {
        let n = 33_100;
        let a = Tensor::from_slice_on(&vec![255u8; n], &[1, n], Device::Cpu)?;
        let sum = n as i64 * 255 * 255;
        assert!(sum > i64::from(i32::MAX));
        assert_eq!(a.int_mm(&a.t()?)?.to_vec::<i32>()?, [sum as i32]);
        assert_eq!(a.matmul(&a.t()?)?.to_vec::<u8>()?, [sum as u8]);
        Ok(())
    }
}
