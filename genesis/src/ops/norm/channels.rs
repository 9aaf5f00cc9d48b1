//! The norm of a batch's channels, by the batch's own statistics, as an op of its own.
//!
//! `[N, C, S]`: statistics are over `N` and `S`. Forward each row of `S` elements is read once for its mean and its
//! squared deviations, which are joined over `N`, and once more to be normalized; backward likewise for two sums.
//!
//! ```text
//! xhat = (x - mean) / sqrt(var + eps)          g = dy weight
//! dx = (g - mean(g) - xhat mean(g xhat)) / sqrt(var + eps)
//! ```

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::trace;
use crate::error::Result;
use crate::launch;
use crate::ops::{Op, Saves, apply, composite};
use crate::tensor::Tensor;

/// Mean and biased variance of each channel, `[1, C, 1]`, as wide as they are computed.
pub(super) struct Moments {
    pub(super) mean: Tensor,
    pub(super) var: Tensor,
}

/// The statistics of `x: [N, C, S]`.
#[track_caller]
pub(super) fn moments(x: &Tensor) -> Result<Moments> {
    let [n, c, each] = [0, 1, 2].map(|axis| x.shape()[axis]);
    let wide = launch::accumulate_dtype(x.dtype());
    // Squared deviations and means over the middle axis.
    let of = |x: &Tensor, divisor: usize| -> Result<[Tensor; 2]> {
        let make = || Tensor::uninitialized(&[x.shape()[0], x.shape()[2]], (wide, x.device()));
        let (squares, mean) = (make()?, make()?);
        launch::variance(x, [&squares, &mean], divisor as f64, false)?;
        Ok([squares, mean])
    };
    let shaped = |[var, mean]: [Tensor; 2]| {
        Ok(Moments { mean: mean.reshape(&[1, c, 1])?, var: var.reshape(&[1, c, 1])? })
    };
    if each == 1 {
        return shaped(of(&x.reshape(&[1, n, c])?, n)?);
    }
    let [var, mean] = of(&x.reshape(&[n * c, each, 1])?, each)?;
    if n == 1 {
        return shaped([var, mean]);
    }
    let joint = || Tensor::uninitialized(&[c], (wide, x.device()));
    let joint = [joint()?, joint()?];
    let parts = [var.reshape(&[n, c])?, mean.reshape(&[n, c])?];
    if launch::join_moments([&parts[0], &parts[1]], [&joint[0], &joint[1]])? {
        return shaped(joint);
    }
    // Rows of one length: their variance is the mean of their variances and the variance of their means.
    let [between, mean] = of(&mean.reshape(&[1, n, c])?, n)?;
    let within = var.reshape(&[n, c])?.mean_dims(&[0], false)?;
    shaped([within.add(&between.reshape(&[c])?)?, mean])
}

/// `x: [N, C, S]` by the statistics of its channels, then scaled and shifted by what broadcasts to it.
#[track_caller]
pub(super) fn normalized(
    x: &Tensor,
    moments: Moments,
    (weight, bias): (Option<&Tensor>, Option<&Tensor>),
    eps: f64,
) -> Result<Tensor> {
    let has = [weight.is_some(), bias.is_some()];
    let operands: Vec<&Tensor> = [Some(x), weight, bias].into_iter().flatten().collect();
    apply(BatchNorm { moments, has, eps }, &operands)
}

/// [`normalized`] by any statistics, which are tensors as others.
#[track_caller]
pub(super) fn standardized(
    x: &Tensor,
    Moments { mean, var }: &Moments,
    affine: (Option<&Tensor>, Option<&Tensor>),
    eps: f64,
) -> Result<Tensor> {
    const NAME: &str = "batch_norm";
    match affine {
        (Some(w), Some(b)) => {
            composite(NAME, &[eps], [x, mean, var, w, b], |[x, mean, var, w, b], n| {
                let y = hat(x, mean, var, n[0])?;
                y.mul(&w.to_dtype(y.dtype())?)?.add(&b.to_dtype(y.dtype())?)?.to_dtype(x.dtype())
            })
        }
        (Some(w), None) => composite(NAME, &[eps], [x, mean, var, w], |[x, mean, var, w], n| {
            let y = hat(x, mean, var, n[0])?;
            y.mul(&w.to_dtype(y.dtype())?)?.to_dtype(x.dtype())
        }),
        (None, Some(b)) => composite(NAME, &[eps], [x, mean, var, b], |[x, mean, var, b], n| {
            let y = hat(x, mean, var, n[0])?;
            y.add(&b.to_dtype(y.dtype())?)?.to_dtype(x.dtype())
        }),
        (None, None) => composite(NAME, &[eps], [x, mean, var], |[x, mean, var], n| {
            hat(x, mean, var, n[0])?.to_dtype(x.dtype())
        }),
    }
}

/// The sums over the last axis of `dy`, and of `dy xhat`, `[2, rows]`, in one launch; each of the statistics serves `per`
/// rows. None where they are sums of their own.
#[track_caller]
pub(super) fn row_sums(
    of: [&Tensor; 2],
    [mean, scale]: [&Tensor; 2],
    per: usize,
) -> Result<Option<Tensor>> {
    let each = of[1].dim(-1)?;
    if of[1].numel() == 0 {
        return Ok(None);
    }
    let m = of[1].numel() / each;
    let rows = |t: &Tensor| t.reshape(&[m, each])?.contiguous();
    let line = |t: &Tensor| t.reshape(&[t.numel()])?.contiguous();
    let (dy, x, mean, scale) = (rows(of[0])?, rows(of[1])?, line(mean)?, line(scale)?);
    let sums = Tensor::uninitialized(&[2, m], (mean.dtype(), mean.device()))?;
    Ok(launch::slope_sums([&dy, &x], [&mean, &scale], &sums, per)?.then_some(sums))
}

/// As wide as a tensor is computed.
#[track_caller]
pub(super) fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(launch::accumulate_dtype(x.dtype()))
}

/// `(x - mean) / sqrt(var + eps)`
#[track_caller]
fn hat(x: &Tensor, mean: &Tensor, var: &Tensor, eps: f64) -> Result<Tensor> {
    let mean = mean.to_dtype(launch::accumulate_dtype(x.dtype()))?;
    let scale = var.to_dtype(mean.dtype())?.add_scalar(eps)?.rsqrt()?;
    wide(x)?.sub(&mean)?.mul(&scale)
}

struct BatchNorm {
    moments: Moments,
    /// Whether there is a weight, and a bias.
    has: [bool; 2],
    eps: f64,
}

impl BatchNorm {
    /// The weight among the operands, as it was saved.
    fn weight<'s>(&self, saved: &'s SavedTensors) -> Option<&'s Tensor> {
        self.has[0].then(|| saved.input(1))
    }

    /// The sums over a batch of `dy`, and of `dy xhat`: `[1, C, 1]`, wide.
    #[track_caller]
    fn sums(&self, x: &Tensor, scale: &Tensor, dy: &Tensor) -> Result<[Tensor; 2]> {
        const NAME: &str = "batch_norm_backward";
        let mean = &self.moments.mean;
        let whole = |rows: Tensor| rows.sum_dims(&[0], true)?.unsqueeze(-1);
        if x.shape()[2] == 1 {
            // No rows to add up first.
            let along = composite(NAME, &[], [dy, x, mean, scale], |[dy, x, mean, scale], _| {
                wide(dy)?.mul(&wide(x)?.sub(mean)?.mul(scale)?)
            })?;
            return Ok([wide(dy)?.sum_dims(&[0], true)?, along.sum_dims(&[0], true)?]);
        }
        if let Some(sums) = row_sums([dy, x], [mean, scale], 1)? {
            let [n, c] = [0, 1].map(|axis| x.shape()[axis]);
            let sums = sums.reshape(&[2, n, c])?;
            let sums = if n == 1 { sums } else { sums.sum_dims(&[1], true)? };
            let of = |number| sums.select(0, number)?.reshape(&[1, c, 1]);
            return Ok([of(0)?, of(1)?]);
        }
        let plain = composite(NAME, &[], [dy], |[dy], _| wide(dy)?.sum_dims(&[-1], false))?;
        let along = composite(NAME, &[], [dy, x, mean, scale], |[dy, x, mean, scale], _| {
            wide(dy)?.mul(&wide(x)?.sub(mean)?.mul(scale)?)?.sum_dims(&[-1], false)
        })?;
        Ok([whole(plain)?, whole(along)?])
    }

    /// The gradient of `x`, by the sums over the batch.
    #[track_caller]
    fn slope(
        &self,
        (x, scale): (&Tensor, &Tensor),
        weight: Option<&Tensor>,
        dy: &Tensor,
        [plain, along]: &[Tensor; 2],
    ) -> Result<Tensor> {
        const NAME: &str = "batch_norm_backward";
        let numbers = [(x.shape()[0] * x.shape()[2]) as f64];
        let operands = [x, &self.moments.mean, scale, dy, plain, along];
        let Some(weight) = weight else {
            return composite(NAME, &numbers, operands, |operands, n| {
                bent(operands, n)?.to_dtype(operands[0].dtype())
            });
        };
        let [x, mean, scale, dy, plain, along] = operands;
        let operands = [x, mean, scale, dy, plain, along, weight];
        composite(NAME, &numbers, operands, |[x, mean, scale, dy, plain, along, weight], n| {
            let dx = bent([x, mean, scale, dy, plain, along], n)?;
            dx.mul(&weight.to_dtype(dx.dtype())?)?.to_dtype(x.dtype())
        })
    }

    /// The gradients of `x` and the weight, made of ops with gradients.
    #[track_caller]
    fn of_ops(&self, saved: &SavedTensors, dy: &Tensor) -> Result<[Tensor; 2]> {
        let (x, dims) = (wide(saved.input(0))?, [0, 2]);
        let distance = x.sub(&x.mean_dims(&dims, true)?)?;
        let scale = distance.square()?.mean_dims(&dims, true)?.add_scalar(self.eps)?.rsqrt()?;
        let (hat, dy) = (distance.mul(&scale)?, wide(dy)?);
        let g = match self.weight(saved) {
            Some(weight) => dy.mul(&weight.to_dtype(dy.dtype())?)?,
            None => dy.clone(),
        };
        let along = hat.mul(&g.mul(&hat)?.mean_dims(&dims, true)?)?;
        let dx = g.sub(&g.mean_dims(&dims, true)?)?.sub(&along)?.mul(&scale)?;
        Ok([dx.to_dtype(saved.input(0).dtype())?, dy.mul(&hat)?.sum_dims(&dims, true)?])
    }
}

/// `dx` of a weight of one, by the number of elements of a channel.
#[track_caller]
pub(super) fn bent([x, mean, scale, dy, plain, along]: [&Tensor; 6], n: &[f64]) -> Result<Tensor> {
    let hat = wide(x)?.sub(mean)?.mul(scale)?;
    let along = hat.mul(&along.div_scalar(n[0])?)?;
    wide(dy)?.sub(&plain.div_scalar(n[0])?)?.sub(&along)?.mul(scale)
}

impl Op for BatchNorm {
    fn name(&self) -> &'static str {
        "batch_norm"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let weight = self.has[0].then(|| inputs[1]);
        let bias = self.has[1].then(|| inputs[1 + usize::from(self.has[0])]);
        standardized(inputs[0], &self.moments, (weight, bias), self.eps)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(if self.has[0] { 3 } else { 1 })
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (x, wanted) = (saved.input(0), &saved.wanted);
        let weight = self.weight(saved);
        let (dx, dw, db) = match is_grad_enabled() || trace::is_on() {
            true => {
                let [dx, dw] = self.of_ops(saved, dy)?;
                (Some(dx), dw, wide(dy)?.sum_dims(&[0, 2], true)?)
            }
            false => {
                let eps = [self.eps];
                let scale =
                    composite("batch_norm_backward", &eps, [&self.moments.var], |[var], n| {
                        var.add_scalar(n[0])?.rsqrt()
                    })?;
                let sums = self.sums(x, &scale, dy)?;
                let slope = || self.slope((x, &scale), weight, dy, &sums);
                let dx = wanted[0].then(slope).transpose()?;
                let [plain, along] = sums;
                (dx, along, plain)
            }
        };
        let mut slopes = vec![dx];
        if let Some(weight) = weight {
            slopes.push(Some(dw.to_dtype(weight.dtype())?.reshape(weight.shape())?));
        }
        if self.has[1] {
            // The bias has the dtype of the result's gradient, or was brought to it.
            slopes.push(Some(db.to_dtype(self.moments.mean.dtype())?.reshape(&[db.numel(), 1])?));
        }
        Ok(slopes)
    }
}
