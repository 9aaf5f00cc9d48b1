//! Products of matrices of 8-bit floats: the only arithmetic that these dtypes have.

use genesis_kernel::ir::DType;

use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{check_pair, wrong_dtype};
use crate::tensor::Tensor;

const NAME: &str = "scaled_matmul";

/// How [`Tensor::scaled_matmul`] multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScaledMatmul {
    /// The dtype of the result: f16, bf16 or f32.
    pub dtype: DType,
    /// Whether the tensor cores of a Hopper GPU may add everything by themselves, with 13 bits of fraction,
    /// instead of 128 products at a time.
    pub fast: bool,
}

impl Default for ScaledMatmul {
    fn default() -> ScaledMatmul {
        ScaledMatmul { dtype: DType::BF16, fast: false }
    }
}

impl Tensor {
    /// The product of two matrices of 8-bit floats, times the scale of each.
    ///
    /// Not differentiable: such tensors never want gradients.
    ///
    /// # Shapes
    /// `[M, K]` and `[K, N]` give `[M, N]`; each scale has one element.
    /// # Numerics
    /// Sums are f32, on Hopper GPUs of 128 products that were added with 13 bits of fraction.
    /// # Errors
    /// If dtypes are not one of 8 bits and a result of f16, bf16 or f32, a scale is not one f32, or shapes
    /// or devices do not fit.
    /// # Cost
    /// Tensor cores of Hopper read the operands as they are where both have K contiguous, `other` as the
    /// transpose of a matrix `[N, K]`; elsewhere they are widened to f16 first.
    /// # Examples
    /// ```
    /// # use genesis::{DType, Tensor};
    /// # use genesis::ops::ScaledMatmul;
    /// let (a, w) = (Tensor::randn(&[4, 32], ())?, Tensor::randn(&[8, 32], ())?);
    /// let scale = a.abs()?.max()?.mul_scalar(1.0 / 448.0)?;
    /// let a8 = a.div(&scale)?.to_dtype(DType::F8E4M3)?;
    /// let one = Tensor::ones(&[1], ())?;
    /// let w8 = w.to_dtype(DType::F8E4M3)?;
    /// let y = a8.scaled_matmul(&w8.t()?, &scale, &one, ScaledMatmul::default())?;
    /// assert_eq!((y.shape(), y.dtype()), (&[4, 8][..], DType::BF16));
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn scaled_matmul(
        &self,
        other: &Tensor,
        scale: &Tensor,
        other_scale: &Tensor,
        options: ScaledMatmul,
    ) -> Result<Tensor> {
        check(self, other, [scale, other_scale], options)?;
        let (m, n) = (self.shape()[0], other.shape()[1]);
        let at = (options.dtype, self.device());
        if [m, n].contains(&0) {
            return Tensor::uninitialized(&[m, n], at);
        }
        if self.shape()[1] == 0 {
            return Tensor::zeros(&[m, n], at);
        }
        let c = Tensor::uninitialized(&[1, m, n], at)?;
        let scales = [scale, other_scale].map(|scale| scale.detach().reshape(&[1]));
        let [scale, other_scale] = scales;
        let operands = [&self.unsqueeze(0)?, &other.unsqueeze(0)?, &scale?, &other_scale?];
        launch::scaled_matmul(operands, &c, options.fast)?;
        c.reshape(&[m, n])
    }
}

fn check(a: &Tensor, b: &Tensor, scales: [&Tensor; 2], options: ScaledMatmul) -> Result<()> {
    check_pair(NAME, a, b)?;
    if !a.dtype().is_f8() {
        return Err(wrong_dtype(NAME, "an 8-bit float", a.dtype()));
    }
    if !matches!(options.dtype, DType::F16 | DType::BF16 | DType::F32) {
        let message = format!("gives f16, bf16 or f32, not {}", options.dtype);
        return Err(Error::op(NAME, message));
    }
    let is_product = a.rank() == 2 && b.rank() == 2 && a.shape()[1] == b.shape()[0];
    if !is_product {
        let message = format!("needs [M, K] and [K, N], got {:?} and {:?}", a.shape(), b.shape());
        return Err(Error::op(NAME, message));
    }
    for scale in scales {
        if scale.numel() != 1 || scale.dtype() != DType::F32 || scale.device() != a.device() {
            let (shape, dtype, device) = (scale.shape(), scale.dtype(), scale.device());
            let message =
                format!("a scale is one f32 beside the operands, got {shape:?} {dtype} {device}");
            return Err(Error::op(NAME, message));
        }
    }
    Ok(())
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::error::Result;
    use crate::ops::ScaledMatmul;
    use crate::ops::info::{Family, OpInfo, cpu};
    use crate::ops::linalg::reference::product_of;
    use crate::tensor::Tensor;

    fn product(x: &[Tensor], fast: bool) -> Result<Tensor> {
        let scale = |value: f64| Tensor::full(&[1], value, (DType::F32, x[0].device()));
        let options = ScaledMatmul { dtype: DType::F32, fast };
        x[0].scaled_matmul(&x[1], &scale(0.5)?, &scale(2.0)?, options)
    }

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "scaled_matmul",
        Family::MatMul,
        |x| product(x, x[0].numel() % 2 == 0),
        |x| product_of(&x[0], &x[1]),
        &[
            &[&[1, 1], &[1, 1]],
            &[&[3, 4], &[4, 5]],
            &[&[70, 144], &[144, 80]],
            &[&[65, 256], &[256, 128]],
            &[&[0, 4], &[4, 5]],
            &[&[2, 0], &[0, 3]],
        ],
    )
    .without_peer("torch._scaled_mm takes no second operand by rows")
    .within(-2.0, 2.0)
    .of(&[DType::F8E4M3, DType::F8E5M2])
    .flat()
    .refusing(&[
        (
            || product(&[cpu(&[2, 2], DType::BF16)?, cpu(&[2, 2], DType::BF16)?], false),
            "scaled_matmul: needs an 8-bit float dtype, got bf16",
        ),
        (
            || product(&[cpu(&[2, 3], DType::F8E4M3)?, cpu(&[2, 2], DType::F8E4M3)?], false),
            "scaled_matmul: needs [M, K] and [K, N], got [2, 3] and [2, 2]",
        ),
        (
            || {
                let [x, scale] = [cpu(&[2, 2], DType::F8E5M2)?, cpu(&[2], DType::F32)?];
                x.scaled_matmul(&x, &scale, &scale, ScaledMatmul::default())
            },
            "scaled_matmul: a scale is one f32 beside the operands, got [2] f32 cpu",
        ),
    ])];
}
