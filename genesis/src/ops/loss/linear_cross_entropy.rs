//! Cross entropy of logits that are never all in memory: a product and its loss, chunk by chunk.
//!
//! ```text
//! for rows of x, as many as the budget of bytes allows:
//!     z = x W^T + b              one buffer for all chunks
//!     loss, z = loss(z), dz      one kernel, which overwrites logits by their gradients
//!     dx = z W
//!     dW += z^T x
//!     db += sum(z)
//! ```
//!
//! Gradients are made in the forward, where they are wanted and the losses become one, so that logits are computed once; the
//! backward only scales them. Without a reduction it is the backward that makes them, of logits that it computes again. A
//! gradient that is to be differentiated again is made of ops, with all logits in memory.

mod check;
mod chunks;
#[cfg(feature = "op-info")]
pub(super) mod info;
mod options;

use std::sync::{Mutex, PoisonError};

use genesis_kernel::ir::DType;

use self::chunks::{Chunks, Gradients, Operands};
pub use self::options::LinearCrossEntropy;
use self::options::{LossOptions, NAME};
use super::cross_entropy::Reduction;
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::Result;
use crate::launch::accumulate_dtype;
use crate::ops::{Op, Saves, apply};
use crate::shape::product;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[(NAME, Precision::Half)];

impl Tensor {
    /// The cross entropy of the logits `x W^T + b` of these rows against class indices, without all logits in memory.
    ///
    /// As [`cross_entropy_loss`](Tensor::cross_entropy_loss) of a linear layer's output, with a soft cap and a loss of `L^2`
    /// where they are asked for. The mean is over the weights of the targets that count.
    ///
    /// # Shapes
    /// `[.., D]`, `weight: [V, D]`, `bias: [V]` and `target: [..]` give `[]`, or `[..]` without a reduction.
    /// # Numerics
    /// A weight and a bias of another dtype are converted to this tensor's. Logits have that dtype, statistics and losses are f32 for 16-bit dtypes. The result has this tensor's dtype,
    /// or under autocast f32. The gradient of the weight is summed over chunks in the dtype that it goes back in, which is
    /// f32 for an f32 weight under autocast; processors sum in f32.
    /// # Errors
    /// If shapes, dtypes or devices do not fit, the target is not i64, an option is out of range, or a class is outside of
    /// `0..V` and does not say that its row does not count. On a GPU that is told at the next read.
    /// # Cost
    /// `2 N V D` FLOP, three times as many with gradients, four times without a reduction. On a GPU 192 MiB for logits,
    /// beside the gradients.
    /// # Source
    /// The words are those of `torch.nn.functional.linear_cross_entropy` and Liger's `LigerFusedLinearCrossEntropyLoss`;
    /// arXiv:2410.10989.
    /// # Examples
    /// ```
    /// use genesis::Tensor;
    /// use genesis::ops::LinearCrossEntropy;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0], &[2, 2])?;
    /// let weight = Tensor::from_slice(&[1.0f32, 0.0, 0.0, 1.0, 0.0, 0.0], &[3, 2])?;
    /// let target = Tensor::from_slice(&[0i64, -100], &[2])?;
    /// let loss = x.linear_cross_entropy(&weight, None, &target, &LinearCrossEntropy::default())?;
    /// let e = 1f64.exp();
    /// assert!((loss.item()? - ((e + 2.0) / e).ln()).abs() < 1e-6);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn linear_cross_entropy(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        target: &Tensor,
        options: &LinearCrossEntropy,
    ) -> Result<Tensor> {
        check::operands(self, weight, bias, target)?;
        check::options(options, weight)?;
        let result = autocast::dtype_of("cross_entropy", self);
        let given: Vec<&Tensor> = [self, weight].into_iter().chain(bias).collect();
        let own = match autocast::cast_inputs(NAME, &given)? {
            Some(cast) => cast,
            None => given.iter().map(|t| t.to_dtype(self.dtype())).collect::<Result<Vec<_>>>()?,
        };
        let lead = &self.shape()[..self.rank() - 1];
        let x = own[0].reshape(&[product(lead), weight.shape()[1]])?;
        let target = target.detach().reshape(&[x.shape()[0]])?.contiguous()?;
        check::targets(&target, weight.shape()[0], options.classes.ignore_index)?;
        let inputs: Vec<&Tensor> = [&x, &own[1], &target].into_iter().chain(own.get(2)).collect();
        let wants = |t: &Tensor| is_grad_enabled() && t.requires_grad();
        let op = LinearLoss {
            options: LossOptions::of(options, accumulate_dtype(x.dtype()))?,
            wants: [wants(&x), wants(&own[1]), own.get(2).is_some_and(wants)],
            weight_dtype: weight.dtype(),
            gradients: Mutex::new(None),
        };
        let reduction = options.classes.reduction;
        let loss = apply(op, &inputs)?;
        let loss = if reduction == Reduction::None { loss.reshape(lead)? } else { loss };
        loss.to_dtype(result)
    }
}

/// The losses of rows, or what they are reduced to, in the wide dtype, of `x`, the weight, targets and perhaps a bias.
struct LinearLoss {
    options: LossOptions,
    /// Whether a gradient of `x`, the weight and the bias is wanted.
    wants: [bool; 3],
    /// What the gradient of the weight is summed in, where it is wider than the weight.
    weight_dtype: DType,
    /// Gradients of the sum of losses, from the forward to the first backward.
    gradients: Mutex<Option<Gradients>>,
}

impl LinearLoss {
    fn chunks(&self, wants: [bool; 3]) -> Chunks<'_> {
        Chunks { options: &self.options, wants, weight_dtype: self.weight_dtype }
    }

    /// Gradients made of ops, so that they can be differentiated again.
    fn composed(&self, of: &Operands<'_>, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let options = &self.options;
        let wide = accumulate_dtype(of.x.dtype());
        let (x, weight) = (of.x.to_dtype(wide)?, of.weight.to_dtype(wide)?);
        let mut logits = x.matmul(&weight.t()?)?; // [N, V]
        if let Some(bias) = of.bias {
            logits = logits.add(&bias.to_dtype(wide)?)?;
        }
        let bounded = options.softcap.map(|cap| logits.div_scalar(cap)?.tanh()).transpose()?;
        let y = match (&bounded, options.softcap) {
            (Some(bounded), Some(cap)) => bounded.mul_scalar(cap)?,
            _ => logits,
        };
        let v = y.shape()[1];
        let logsum = y.logsumexp(&[-1], true)?; // [N, 1]
        let classes = Tensor::arange(0.0, v as f64, 1.0, (DType::I64, y.device()))?;
        let hot = classes.eq(&of.target.unsqueeze(-1)?)?.to_dtype(wide)?;
        let counts = of.target.ne_scalar(options.ignore as f64)?.to_dtype(wide)?.unsqueeze(-1)?;
        let (smoothing, share) = (options.smoothing, options.smoothing / v as f64);
        let hard = options.counts(of.target, wide)?.mul_scalar(1.0 - smoothing)?.unsqueeze(-1)?;
        let weights = match &options.weight {
            Some(weight) => weight.clone(),
            None => Tensor::ones(&[v], (wide, y.device()))?,
        };
        let soft = weights.mul_scalar(share)?; // [V]
        let factor = hard.add(&soft.sum()?)?.add(&logsum.mul_scalar(2.0 * options.z_loss)?)?;
        let mut d = y.sub(&logsum)?.exp()?.mul(&factor)?.sub(&hot.mul(&hard)?)?.sub(&soft)?;
        if let Some(bounded) = &bounded {
            d = d.mul(&bounded.square()?.neg()?.add_scalar(1.0)?)?;
        }
        let slope = options.slope(of.target, dy)?;
        let slope = if slope.rank() == 0 { slope } else { slope.unsqueeze(-1)? };
        let d = d.mul(&counts)?.mul(&slope)?; // [N, V]
        let dx = d.matmul(&weight)?.to_dtype(of.x.dtype())?;
        let dw = d.t()?.matmul(&x)?.to_dtype(self.weight_dtype)?;
        let db = of.bias.map(|bias| d.sum_dims(&[0], false)?.to_dtype(bias.dtype())).transpose()?;
        Ok(vec![Some(dx), Some(dw), None, db])
    }
}

impl Op for LinearLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let of = Operands::new(inputs[0], inputs[1], inputs[2], inputs.get(3).copied());
        let reduction = self.options.reduction;
        let wants = if reduction == Reduction::None { [false; 3] } else { self.wants };
        let (losses, gradients) = self.chunks(wants).run(&of, None)?;
        if wants.contains(&true) {
            *self.gradients.lock().unwrap_or_else(PoisonError::into_inner) = Some(gradients);
        }
        match reduction {
            Reduction::None => Ok(losses),
            Reduction::Sum => losses.sum(),
            Reduction::Mean => losses.sum()?.div(&self.options.divisor(of.target, losses.dtype())?),
        }
    }

    fn saves(&self) -> Saves {
        Saves::inputs(15)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let bias = (saved.wanted.len() > 3).then(|| saved.input(3));
        let of = Operands::new(saved.input(0), saved.input(1), saved.input(2), bias);
        if is_grad_enabled() {
            return self.composed(&of, dy);
        }
        let wants = [0, 1, 3].map(|input| saved.wanted.get(input).copied().unwrap_or(false));
        let slope = self.options.slope(of.target, dy)?;
        let gradients = match self.options.reduction {
            Reduction::None => self.chunks(wants).run(&of, Some(&slope))?.1,
            _ => {
                let known = self.gradients.lock().unwrap_or_else(PoisonError::into_inner).take();
                let gradients = match known {
                    Some(gradients) => gradients,
                    // A second backward of the same graph.
                    None => self.chunks(wants).run(&of, None)?.1,
                };
                gradients.scale(&slope)?;
                gradients
            }
        };
        let Gradients { x, weight, bias } = gradients.rounded(&of, self.weight_dtype)?;
        Ok(vec![x, weight, None, bias])
    }
}
