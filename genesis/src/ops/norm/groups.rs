//! The norm of groups of channels, as an op of its own.
//!
//! `[N, G, K, S]`: statistics of a sample's group are over `K` channels and `S`. They are computed in one pass, and the two
//! sums of the backward by channel in another, from which the gradients of the weights follow as well:
//!
//! ```text
//! g = dy weight        dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps)
//! sum(g) = sum over K of weight sum(dy)        dbias = sum over N of sum(dy)
//! ```

use std::sync::OnceLock;

use genesis_kernel::ir::DType;

use super::channels::{self, Moments, row_sums, wide};
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::trace;
use crate::error::Result;
use crate::ops::{Op, Saves, apply, composite};
use crate::tensor::Tensor;

const NAME: &str = "group_norm";
const BACKWARD: &str = "group_norm_backward";

/// Whether a tensor is normalized in this way.
pub(super) fn takes(x: &Tensor) -> bool {
    !trace::is_on() && x.numel() > 0 && x.dtype().is_arithmetic_float()
}

/// Groups of `x: [N, G, K, S]` brought to zero mean and unit variance, then scaled and shifted by `[G, K, 1]`.
#[track_caller]
pub(super) fn normalized(
    x: &Tensor,
    (weight, bias): (Option<&Tensor>, Option<&Tensor>),
    eps: f64,
) -> Result<Tensor> {
    let operands: Vec<&Tensor> = [Some(x), weight, bias].into_iter().flatten().collect();
    let (has_weight, bias) = (weight.is_some(), bias.map(Tensor::dtype));
    apply(GroupNorm { has_weight, bias, eps, moments: OnceLock::new() }, &operands)
}

/// The statistics of the groups, `[N, G, 1, 1]`.
#[track_caller]
fn moments(x: &Tensor) -> Result<Moments> {
    let [n, g] = [0, 1].map(|axis| x.shape()[axis]);
    let rows = x.reshape(&[1, n * g, x.numel() / (n * g)])?.contiguous()?;
    let Moments { mean, var } = channels::moments(&rows)?;
    let shape = [n, g, 1, 1];
    Ok(Moments { mean: mean.reshape(&shape)?, var: var.reshape(&shape)? })
}

struct GroupNorm {
    has_weight: bool,
    /// The dtype of the bias, where there is one.
    bias: Option<DType>,
    eps: f64,
    /// The statistics, for the backward.
    moments: OnceLock<Moments>,
}

impl GroupNorm {
    /// The gradients of `x`, the weight and the bias: of ops with gradients.
    #[track_caller]
    fn of_ops(&self, x: &Tensor, weight: Option<&Tensor>, dy: &Tensor) -> Result<[Tensor; 3]> {
        let (own, dims) = (wide(x)?, [2, 3]);
        let distance = own.sub(&own.mean_dims(&dims, true)?)?;
        let scale = distance.square()?.mean_dims(&dims, true)?.add_scalar(self.eps)?.rsqrt()?;
        let (hat, dy) = (distance.mul(&scale)?, wide(dy)?);
        let g = match weight {
            Some(weight) => dy.mul(&weight.to_dtype(dy.dtype())?)?,
            None => dy.clone(),
        };
        let along = hat.mul(&g.mul(&hat)?.mean_dims(&dims, true)?)?;
        let dx = g.sub(&g.mean_dims(&dims, true)?)?.sub(&along)?.mul(&scale)?;
        let lead = |t: &Tensor| t.sum_dims(&[0, 3], false);
        Ok([dx.to_dtype(x.dtype())?, lead(&dy.mul(&hat)?)?, lead(&dy)?])
    }

    /// The same in four launches; none where rows are too few.
    #[track_caller]
    fn of_sums(
        &self,
        x: &Tensor,
        weight: Option<&Tensor>,
        dy: &Tensor,
    ) -> Result<Option<[Tensor; 3]>> {
        let [n, g, k, each] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
        let (mean, var) = match self.moments.get() {
            Some(Moments { mean, var }) => (mean.clone(), var.clone()),
            None => moments(x).map(|Moments { mean, var }| (mean, var))?,
        };
        let scale =
            composite(BACKWARD, &[self.eps], [&var], |[var], n| var.add_scalar(n[0])?.rsqrt())?;
        let Some(sums) = row_sums([dy, x], [&mean, &scale], k)? else { return Ok(None) };
        let sums = sums.reshape(&[2, n, g, k])?;
        let of_groups = match weight {
            Some(weight) => {
                let weight = weight.reshape(&[g, k])?;
                composite(BACKWARD, &[], [&sums, &weight], |[sums, weight], _| {
                    sums.mul(&weight.to_dtype(sums.dtype())?)?.sum_dims(&[-1], false)
                })?
            }
            None => sums.sum_dims(&[-1], false)?,
        };
        let of = |number| of_groups.select(0, number)?.reshape(&[n, g, 1, 1]);
        let (plain, along, count) = (of(0)?, of(1)?, [(k * each) as f64]);
        let operands = [x, &mean, &scale, dy, &plain, &along];
        let dx = match weight {
            Some(weight) => {
                let [x, mean, scale, dy, plain, along] = operands;
                let operands = [x, mean, scale, dy, plain, along, weight];
                composite(
                    BACKWARD,
                    &count,
                    operands,
                    |[x, mean, scale, dy, plain, along, w], n| {
                        let dy = wide(dy)?;
                        let g = dy.mul(&w.to_dtype(dy.dtype())?)?;
                        channels::bent([x, mean, scale, &g, plain, along], n)?.to_dtype(x.dtype())
                    },
                )?
            }
            None => composite(BACKWARD, &count, operands, |operands, n| {
                channels::bent(operands, n)?.to_dtype(operands[0].dtype())
            })?,
        };
        let of_channels = if n == 1 { sums } else { sums.sum_dims(&[1], true)? };
        let of = |number| of_channels.select(0, number)?.reshape(&[g, k]);
        Ok(Some([dx, of(1)?, of(0)?]))
    }
}

impl Op for GroupNorm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let weight = self.has_weight.then(|| inputs[1]);
        let bias = self.bias.map(|_| inputs[1 + usize::from(self.has_weight)]);
        let moments = moments(inputs[0])?;
        let y = channels::standardized(inputs[0], &moments, (weight, bias), self.eps)?;
        self.moments.get_or_init(|| moments);
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(if self.has_weight { 3 } else { 1 })
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        let weight = self.has_weight.then(|| saved.input(1));
        let fast = match is_grad_enabled() || trace::is_on() {
            true => None,
            false => self.of_sums(x, weight, dy)?,
        };
        let [dx, dw, db] = fast.map_or_else(|| self.of_ops(x, weight, dy), Ok)?;
        let line = [x.shape()[1], x.shape()[2], 1];
        let mut slopes = vec![Some(dx)];
        if let Some(weight) = weight {
            slopes.push(Some(dw.to_dtype(weight.dtype())?.reshape(&line)?));
        }
        if let Some(dtype) = self.bias {
            slopes.push(Some(db.to_dtype(dtype)?.reshape(&line)?));
        }
        Ok(slopes)
    }
}
