//! Batch-invariant linear layers for inference: the bits of a row do not depend on the rows beside it.
//!
//! A row's bits depend on the row and the weight, and on nothing else: not on how many rows stand beside it,
//! nor on where it stands. So a sequence gets the same logits alone, in a batch and in chunks. How that is
//! so is told in [`launch::linear_rows`].
//!
//! ```
//! use genesis::{Device, Tensor};
//!
//! let weight = Tensor::from_slice_on(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2], Device::Cpu)?;
//! let x = Tensor::from_slice_on(&[1.0f32, -1.0], &[1, 2], Device::Cpu)?;
//! assert_eq!(x.linear_rows(&weight, None)?.to_vec::<f32>()?, [-1.0, -1.0, -1.0]);
//! # Ok::<(), genesis::Error>(())
//! ```

use genesis_kernel::ir::DType;

use super::{Op, apply, wrong_dtype};
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast;
use crate::error::{Error, Result};
use crate::launch;
use crate::tensor::Tensor;

const NAME: &str = "linear_rows";

impl Tensor {
    /// `x W^T + b` with the same bits for a row in any batch.
    ///
    /// # Shapes
    /// `[.., K]`, `weight: [M, K]` and `bias: [M]` give `[.., M]`.
    /// # Numerics
    /// Operands of f32, f16 and bf16, of one dtype or two; sums in f32, in an order that K, M and the device
    /// set; the result has this tensor's dtype. Where a gradient is recorded this is
    /// [`matmul`](Tensor::matmul) of the weight in this tensor's dtype, whose order may be another. GPUs
    /// make f32 of operands of two dtypes first.
    /// # Errors
    /// If shapes do not fit, devices differ or a dtype is another.
    /// # Cost
    /// Of few rows: one read of the weight.
    #[track_caller]
    pub fn linear_rows(&self, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let Some(&k) = self.shape().last().filter(|_| weight.rank() == 2) else {
            let (x, w) = (self.shape(), weight.shape());
            return Err(Error::op(NAME, format!("needs [.., K] and [M, K], got {x:?} and {w:?}")));
        };
        let m = weight.shape()[0];
        if weight.shape()[1] != k {
            let (x, w) = (self.shape(), weight.shape());
            return Err(Error::op(NAME, format!("inner extents differ, {x:?} and {w:?}")));
        }
        check_rows(NAME, self, weight, bias.map(|bias| (bias, m)))?;
        let is_recorded = |t: &Tensor| is_grad_enabled() && t.requires_grad();
        if is_recorded(self) || is_recorded(weight) || bias.is_some_and(is_recorded) {
            // Autocast keeps a weight that it has cast, for as long as its region lasts.
            let like_x = |t: &Tensor| match autocast::unifies("matmul", self, t) {
                true => Ok(t.clone()),
                false => t.to_dtype(self.dtype()),
            };
            let weight = like_x(weight)?.t()?;
            return match bias {
                Some(bias) => self.matmul_bias(&weight, &like_x(bias)?),
                None => self.matmul(&weight),
            };
        }
        let rows = crate::shape::product(self.shape()[..self.rank() - 1].iter());
        let x = self.reshape(&[rows, k])?.contiguous()?;
        let weight = weight.contiguous()?;
        let bias = or_none(bias, self)?;
        let y = apply(LinearRows, &[&x, &weight, &bias])?;
        y.reshape(&[&self.shape()[..self.rank() - 1], &[m]].concat())
    }
}

/// The bias, or an empty one.
pub(super) fn or_none(bias: Option<&Tensor>, x: &Tensor) -> Result<Tensor> {
    match bias {
        Some(bias) => bias.contiguous(),
        None => Tensor::uninitialized(&[0], (x.dtype(), x.device())),
    }
}

/// Refuses dtypes and devices that a product of rows does not take, and a bias of another extent.
pub(super) fn check_rows(
    op: &'static str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<(&Tensor, usize)>,
) -> Result<()> {
    let is_taken = |t: &Tensor| matches!(t.dtype(), DType::F32 | DType::F16 | DType::BF16);
    for t in [x, weight].into_iter().chain(bias.map(|(bias, _)| bias)) {
        if !is_taken(t) {
            return Err(wrong_dtype(op, "f32, f16 or bf16", t.dtype()));
        }
        if t.device() != x.device() {
            let message = format!("devices differ, {} and {}", x.device(), t.device());
            return Err(Error::op(op, message));
        }
    }
    match bias {
        Some((bias, m)) if bias.shape() != [m] => {
            let message = format!("the bias must be [{m}], got {:?}", bias.shape());
            Err(Error::op(op, message))
        }
        _ => Ok(()),
    }
}

struct LinearRows;

impl Op for LinearRows {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, weight, bias) = (inputs[0], inputs[1], inputs[2]);
        let shape = [x.shape()[0], weight.shape()[0]];
        let y = Tensor::uninitialized(&shape, (x.dtype(), x.device()))?;
        if y.numel() > 0 {
            launch::linear_rows::linear_rows(x, weight, bias, &y)?;
        }
        Ok(y)
    }

    fn backward(&self, _: &SavedTensors, _: &Tensor) -> Result<Vec<Option<Tensor>>> {
        // Recorded products are those of `matmul`.
        Ok(vec![None, None, None])
    }
}
