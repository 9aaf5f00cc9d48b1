//! Normalization over batches, groups of channels and several axes.

use genesis_kernel::ir::DType;

use super::channels::{self, Moments};
use super::groups;
use crate::autograd::no_grad;
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{PadMode, Window, composite};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions =
    &[("group_norm", Precision::Single), ("instance_norm", Precision::Single)];

/// What a batch norm keeps and does.
#[derive(Clone, Debug)]
pub struct BatchStats<'t> {
    /// The running mean and variance, `[C]` each.
    pub running: Option<(&'t Tensor, &'t Tensor)>,
    /// Whether the batch's own statistics are used, and the running ones moved towards them.
    pub training: bool,
    /// The share of the batch in the running statistics.
    pub momentum: f64,
    /// Added to the variance.
    pub eps: f64,
}

/// The weights of each channel, as tensors that broadcast.
#[track_caller]
fn affine(
    op: &str,
    y: Tensor,
    (weight, bias): (Option<&Tensor>, Option<&Tensor>),
    line: &[usize],
) -> Result<Tensor> {
    let fitted = |t: &Tensor| {
        if t.numel() != crate::shape::product(line.iter()) {
            let message = format!("weights of {:?} do not fit {line:?}", t.shape());
            return Err(Error::op(op, message));
        }
        t.to_dtype(y.dtype())?.reshape(line)
    };
    let y2 = match weight {
        Some(weight) => y.mul(&fitted(weight)?)?,
        None => y.clone(),
    };
    match bias {
        Some(bias) => y2.add(&fitted(bias)?),
        None => Ok(y2),
    }
}

fn check_float(op: &str, x: &Tensor) -> Result<()> {
    match x.dtype().is_float() {
        true => Ok(()),
        false => Err(Error::op(op, format!("needs a float dtype, got {}", x.dtype()))),
    }
}

impl Tensor {
    /// `x / (k + alpha * mean)^beta`, where the mean is of the squares of `size` channels around each;
    /// beyond the first and the last channel are zeros.
    ///
    /// # Shapes
    /// `[N, C, ..]`, with an axis behind the channels.
    /// # Numerics
    /// In f32 for 16-bit dtypes.
    /// # Errors
    /// If there are fewer than 3 axes, `size` is 0, or the dtype is not a float.
    /// # Source
    /// Krizhevsky et al., 2012; same conventions as `torch.nn.functional.local_response_norm`.
    #[track_caller]
    pub fn local_response_norm(
        &self,
        size: usize,
        alpha: f64,
        beta: f64,
        k: f64,
    ) -> Result<Tensor> {
        const NAME: &str = "local_response_norm";
        if self.rank() < 3 || size == 0 || !self.dtype().is_arithmetic_float() {
            let (shape, dtype) = (self.shape(), self.dtype());
            let message =
                format!("needs floats [N, C, ..] and a size, got {dtype} {shape:?}, {size}");
            return Err(Error::op(NAME, message));
        }
        if self.numel() == 0 {
            return self.copy();
        }
        let x = self.to_dtype(launch::accumulate_dtype(self.dtype()))?;
        // Channels as the rows of planes: neighbours are windows of one column.
        let (n, c) = (self.shape()[0], self.shape()[1]);
        let planes = x.square()?.reshape(&[n, c, self.numel() / (n * c)])?;
        let pads = [0, 0, (size / 2) as i64, ((size - 1) / 2) as i64];
        let windows = Window { stride: vec![1, 1], ..Window::new(&[size, 1]) };
        let means = planes.pad(&pads, PadMode::Constant(0.0))?.avg_pool(&windows, true, None)?;
        let of = [self, &means.reshape(self.shape())?];
        composite(NAME, &[alpha, beta, k], of, |[x, mean], n| {
            let factor = mean.mul_scalar(n[0])?.add_scalar(n[2])?.pow_scalar(n[1])?;
            x.to_dtype(mean.dtype())?.div(&factor)?.to_dtype(x.dtype())
        })
    }

    /// Every channel (axis 1) brought to zero mean and unit variance over the others, then scaled and
    /// shifted.
    ///
    /// # Numerics
    /// Statistics in f32 for 16-bit dtypes; the biased variance normalizes, the unbiased one runs.
    /// # Errors
    /// If weights or running statistics are not `[C]`, statistics are neither there nor computed, or in
    /// training a channel has one value only.
    #[track_caller]
    pub fn batch_norm(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        stats: &BatchStats<'_>,
    ) -> Result<Tensor> {
        const NAME: &str = "batch_norm";
        check_float(NAME, self)?;
        if self.rank() == 0 {
            return Err(Error::op(NAME, "needs at least 1 dimension(s), got shape []"));
        }
        if self.numel() == 0 && self.rank() == 1 {
            return self.add_scalar(0.0);
        }
        let axis = usize::from(self.rank() > 1);
        let mut line = vec![1; self.rank()];
        line[axis] = self.shape()[axis];
        if stats.training && self.rank() > 1 && self.numel() == line[axis] && line[axis] > 0 {
            let message =
                format!("training needs more than one value a channel, got {:?}", self.shape());
            return Err(Error::op(NAME, message));
        }
        if self.numel() == 0 || trace::is_on() {
            return self.batch_norm_of_ops((weight, bias), stats, &line);
        }
        let c = line[axis];
        let rows = if axis == 0 { 1 } else { self.shape()[0] };
        // What lies across is turned once, and not for each time it is read.
        let x = self.reshape(&[rows, c, self.numel() / (rows * c)])?.contiguous()?;
        let wide = launch::accumulate_dtype(self.dtype());
        let fitted = |t: Option<&Tensor>| {
            t.map(|t| match t.numel() == c {
                true => t.to_dtype(wide)?.reshape(&[c, 1]),
                false => {
                    let message = format!("weights of {:?} do not fit {line:?}", t.shape());
                    Err(Error::op(NAME, message))
                }
            })
            .transpose()
        };
        let (weight, bias) = (fitted(weight)?, fitted(bias)?);
        let affine = (weight.as_ref(), bias.as_ref());
        let y = match (stats.training, stats.running) {
            (true, running) => {
                let moments = no_grad(|| channels::moments(&x))?;
                if let Some((running_mean, running_var)) = running {
                    let n = (self.numel() / c) as f64;
                    let scale = n / (n - 1.0).max(1.0);
                    no_grad(|| {
                        move_towards(running_mean, &moments.mean, stats.momentum)?;
                        move_towards(running_var, &moments.var.mul_scalar(scale)?, stats.momentum)
                    })?;
                }
                channels::normalized(&x, moments, affine, stats.eps)?
            }
            (false, Some((mean, var))) => {
                let fitted = |t: &Tensor| t.to_dtype(wide)?.reshape(&[1, c, 1]);
                let moments = Moments { mean: fitted(mean)?, var: fitted(var)? };
                channels::standardized(&x, &moments, affine, stats.eps)?
            }
            (false, None) => {
                return Err(Error::op(NAME, "needs running statistics outside of training"));
            }
        };
        y.reshape(self.shape())
    }

    /// [`Tensor::batch_norm`] made of other ops, with statistics of `line`.
    #[track_caller]
    fn batch_norm_of_ops(
        &self,
        affine_by: (Option<&Tensor>, Option<&Tensor>),
        stats: &BatchStats<'_>,
        line: &[usize],
    ) -> Result<Tensor> {
        const NAME: &str = "batch_norm";
        let axis = usize::from(self.rank() > 1);
        let x = self.to_dtype(launch::accumulate_dtype(self.dtype()))?;
        let dims: Vec<i64> = (0..self.rank()).filter(|&a| a != axis).map(|a| a as i64).collect();
        let (mean, var) = match (stats.training, stats.running) {
            (true, running) => {
                let n = self.numel() / line[axis].max(1);
                let mean = x.mean_dims(&dims, true)?;
                let var = x.sub(&mean)?.square()?.mean_dims(&dims, true)?;
                if let Some((running_mean, running_var)) = running {
                    let scale = n as f64 / (n as f64 - 1.0).max(1.0);
                    no_grad(|| {
                        move_towards(running_mean, &mean, stats.momentum)?;
                        move_towards(running_var, &var.mul_scalar(scale)?, stats.momentum)
                    })?;
                }
                (mean, var)
            }
            (false, Some((mean, var))) => {
                let fitted = |t: &Tensor| t.to_dtype(x.dtype())?.reshape(line);
                (fitted(mean)?, fitted(var)?)
            }
            (false, None) => {
                return Err(Error::op(NAME, "needs running statistics outside of training"));
            }
        };
        let y = x.sub(&mean)?.mul(&var.add_scalar(stats.eps)?.rsqrt()?)?;
        affine(NAME, y, affine_by, line)?.to_dtype(self.dtype())
    }

    /// Groups of channels (axis 1) brought to zero mean and unit variance, each sample by itself, then
    /// scaled and shifted by channel.
    ///
    /// # Errors
    /// If the groups do not divide the channels, or weights are not `[C]`.
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        const NAME: &str = "group_norm";
        check_float(NAME, self)?;
        if self.rank() < 2 || groups == 0 || !self.shape()[1].is_multiple_of(groups) {
            let message = format!("{groups} groups do not fit shape {:?}", self.shape());
            return Err(Error::op(NAME, message));
        }
        if self.shape()[1] == 0 {
            return Err(Error::op(NAME, format!("shape {:?} has no channels", self.shape())));
        }
        if let Some(cast) = autocast::cast_inputs("group_norm", &[self])? {
            return cast[0].group_norm(groups, weight, bias, eps);
        }
        let (n, c) = (self.shape()[0], self.shape()[1]);
        let each = crate::shape::product(self.shape()[1..].iter()) / c;
        // Channels of a group behind one another, so that each is a row of what is scaled.
        let x = self.reshape(&[n, groups, c / groups, each])?;
        let fitted = |t: Option<&Tensor>| {
            t.map(|t| match t.numel() == c {
                true => t.reshape(&[groups, c / groups, 1]),
                false => {
                    let message = format!("weights of {:?} do not fit {c} channels", t.shape());
                    Err(Error::op(NAME, message))
                }
            })
            .transpose()
        };
        if groups::takes(&x) {
            let (weight, bias) = (fitted(weight)?, fitted(bias)?);
            let y = groups::normalized(&x, (weight.as_ref(), bias.as_ref()), eps)?;
            return y.reshape(self.shape());
        }
        let y = match (fitted(weight)?, fitted(bias)?) {
            (Some(w), Some(b)) => composite(NAME, &[eps], [&x, &w, &b], |[x, w, b], n| {
                let y = standardized(x, n[0])?;
                y.mul(&w.to_dtype(y.dtype())?)?.add(&b.to_dtype(y.dtype())?)?.to_dtype(x.dtype())
            }),
            (Some(w), None) => composite(NAME, &[eps], [&x, &w], |[x, w], n| {
                let y = standardized(x, n[0])?;
                y.mul(&w.to_dtype(y.dtype())?)?.to_dtype(x.dtype())
            }),
            (None, Some(b)) => composite(NAME, &[eps], [&x, &b], |[x, b], n| {
                let y = standardized(x, n[0])?;
                y.add(&b.to_dtype(y.dtype())?)?.to_dtype(x.dtype())
            }),
            (None, None) => {
                composite(NAME, &[eps], [&x], |[x], n| standardized(x, n[0])?.to_dtype(x.dtype()))
            }
        };
        y?.reshape(self.shape())
    }

    /// The last axes, of these extents, brought to zero mean and unit variance, then scaled and shifted.
    ///
    /// # Errors
    /// If the tensor does not end in these extents or weights have others.
    #[track_caller]
    pub fn layer_norm_over(
        &self,
        extents: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let (x, count) = last_axes("layer_norm", self, extents)?;
        let of = |t: Option<&Tensor>, value: f64| match t {
            Some(t) if t.shape() != extents => {
                let message = format!("weights are {:?}, not {extents:?}", t.shape());
                Err(Error::op("layer_norm", message))
            }
            Some(t) => t.reshape(&[count]),
            None => Tensor::full(&[count], value, (self.dtype(), self.device())),
        };
        x.layer_norm(&of(weight, 1.0)?, &of(bias, 0.0)?, eps)?.reshape(self.shape())
    }

    /// The last axes, of these extents, divided by the root of their mean square, then scaled. The
    /// default `eps` is the distance from 1 to the next number of the dtype.
    ///
    /// # Errors
    /// If the tensor does not end in these extents or the weight has others.
    #[track_caller]
    pub fn rms_norm_over(
        &self,
        extents: &[usize],
        weight: Option<&Tensor>,
        eps: Option<f64>,
    ) -> Result<Tensor> {
        let (x, count) = last_axes("rms_norm", self, extents)?;
        let eps = eps.unwrap_or(match launch::accumulate_dtype(self.dtype()) {
            DType::F64 => f64::EPSILON,
            _ => f64::from(f32::EPSILON),
        });
        let weight = match weight {
            Some(t) if t.shape() != extents => {
                let message = format!("the weight is {:?}, not {extents:?}", t.shape());
                return Err(Error::op("rms_norm", message));
            }
            Some(t) => t.reshape(&[count])?,
            None => Tensor::ones(&[count], (self.dtype(), self.device()))?,
        };
        x.rms_norm(&weight, eps)?.reshape(self.shape())
    }
}

/// The last two axes brought to zero mean and unit variance, in f32 for 16-bit dtypes.
fn standardized(x: &Tensor, eps: f64) -> Result<Tensor> {
    let x = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
    let distance = x.sub(&x.mean_dims(&[-2, -1], true)?)?;
    let var = distance.square()?.mean_dims(&[-2, -1], true)?;
    distance.mul(&var.add_scalar(eps)?.rsqrt()?)
}

/// The tensor with its last axes, which must have these extents, as one; and their number of elements.
#[track_caller]
fn last_axes(op: &str, x: &Tensor, extents: &[usize]) -> Result<(Tensor, usize)> {
    check_float(op, x)?;
    if extents.is_empty() || !x.shape().ends_with(extents) {
        let message = format!("shape {:?} does not end in {extents:?}", x.shape());
        return Err(Error::op(op, message));
    }
    let lead = &x.shape()[..x.rank() - extents.len()];
    let count = crate::shape::product(extents.iter());
    Ok((x.reshape(&[lead, &[count]].concat())?, count))
}

/// Moves running statistics a share of the way to new ones.
pub(crate) fn move_towards(running: &Tensor, new: &Tensor, share: f64) -> Result<()> {
    let new = new.detach().reshape(running.shape())?.to_dtype(running.dtype())?;
    let moved = running.detach().mul_scalar(1.0 - share)?.add(&new.mul_scalar(share)?)?;
    running.detach().copy_(&moved)
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::BatchStats;
    use crate::ops::info::{Dense, Family, OpInfo, WIDE};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "group_norm",
            Family::Softmax,
            |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5),
            |x| {
                Dense::from_fn(&[2, 4, 3], |at| {
                    let group = at[1] / 2 * 2;
                    let all: Vec<f64> =
                        (0..6).map(|i| x[0].at(&[at[0], group + i / 3, i % 3])).collect();
                    let mean = all.iter().sum::<f64>() / 6.0;
                    let var = all.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 6.0;
                    (x[0].at(at) - mean) / (var + 1e-5).sqrt() * x[1].data[at[1]] + x[2].data[at[1]]
                })
            },
            &[&[&[2, 4, 3], &[4], &[4]]],
        )
        .peer("F.group_norm(x[0], 2, x[1], x[2])"),
        OpInfo::new(
            "batch_norm",
            Family::Softmax,
            |x| {
                let stats = BatchStats { running: None, training: true, momentum: 0.1, eps: 1e-5 };
                x[0].batch_norm(Some(&x[1]), None, &stats)
            },
            |x| {
                Dense::from_fn(&[5, 3], |at| {
                    let all: Vec<f64> = (0..5).map(|i| x[0].at(&[i, at[1]])).collect();
                    let mean = all.iter().sum::<f64>() / 5.0;
                    let var = all.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 5.0;
                    (x[0].at(at) - mean) / (var + 1e-5).sqrt() * x[1].data[at[1]]
                })
            },
            &[&[&[5, 3], &[3]]],
        )
        .peer("F.batch_norm(x[0], None, None, x[1], None, True)"),
        OpInfo::new(
            "layer_norm_over",
            Family::Softmax,
            |x| x[0].layer_norm_over(x[1].shape(), Some(&x[1]), None, 1e-5),
            |x| {
                let mean_of = |b: usize| (0..12).map(|i| x[0].data[b * 12 + i]).sum::<f64>() / 12.0;
                Dense::from_fn(&[2, 3, 4], |at| {
                    let mean = mean_of(at[0]);
                    let var =
                        (0..12).map(|i| (x[0].data[at[0] * 12 + i] - mean).powi(2)).sum::<f64>()
                            / 12.0;
                    (x[0].at(at) - mean) / (var + 1e-5).sqrt() * x[1].at(&at[1..])
                })
            },
            &[&[&[2, 3, 4], &[3, 4]]],
        )
        .peer("F.layer_norm(x[0], x[1].shape, x[1])"),
        OpInfo::new(
            "rms_norm_over",
            Family::Softmax,
            |x| x[0].rms_norm_over(x[1].shape(), Some(&x[1]), Some(1e-5)),
            |x| {
                Dense::from_fn(&[2, 3, 4], |at| {
                    let square =
                        (0..12).map(|i| x[0].data[at[0] * 12 + i].powi(2)).sum::<f64>() / 12.0;
                    x[0].at(at) / (square + 1e-5).sqrt() * x[1].at(&at[1..])
                })
            },
            &[&[&[2, 3, 4], &[3, 4]]],
        )
        .peer("F.rms_norm(x[0], x[1].shape, x[1], 1e-5)"),
        OpInfo::new(
            "local_response_norm",
            Family::Softmax,
            |x| x[0].local_response_norm(3, 0.5, 0.75, 1.0),
            |x| {
                Dense::from_fn(&[2, 4, 3], |at| {
                    let near = at[1].saturating_sub(1)..(at[1] + 2).min(4);
                    let squares: f64 = near.map(|c| x[0].at(&[at[0], c, at[2]]).powi(2)).sum();
                    x[0].at(at) / (1.0 + 0.5 * squares / 3.0).powf(0.75)
                })
            },
            &[&[&[2, 4, 3]]],
        )
        .peer("F.local_response_norm(x[0], 3, 0.5, 0.75, 1.0)")
        .of(WIDE),
    ];
}
