//! The distance of every point of one set to every point of another.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use kernels::distance::NEAR;

use super::matmul::full_precision;
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, apply, composite, promote, wrong_dtype};
use crate::shape::{broadcast_shapes, product};
use crate::tensor::Tensor;

const NAME: &str = "cdist";
/// Differences of coordinates of two sets of points from which on products and what they need cost less.
const MANY: usize = 1 << 20;

/// In what autocast computes it.
pub(super) const AUTOCAST: Precisions = &[(NAME, Precision::Single)];

impl Tensor {
    /// The distance of order `p` of every point of one to every point of the other: 0 counts the coordinates that
    /// differ, infinity takes the largest difference. At a distance of 0 the gradient is 0.
    ///
    /// # Shapes
    /// `[.., P, D]` and `[.., R, D]` give `[.., P, R]`; leading axes broadcast.
    /// # Numerics
    /// Differences are summed as they are, in f32 for 16-bit dtypes: nothing cancels for points that are near each
    /// other and far from 0. Many points of f32 or f64 are multiplied about their mean (`|x|² + |y|² - 2 x y`) for order 2,
    /// and only those pairs summed so that are near: a quarter of `|x|² + |y|²` or less apart, squared.
    /// # Errors
    /// If the last extents differ, leading axes do not broadcast, the dtype is not a float, or `p` is negative.
    /// # Source
    /// Same conventions as `torch.cdist`.
    #[track_caller]
    pub fn cdist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        if self.rank() < 2 || other.rank() < 2 || self.dim(-1)? != other.dim(-1)? {
            let message =
                format!("points of {:?} and {:?} do not fit", self.shape(), other.shape());
            return Err(Error::op(NAME, message));
        }
        if p.is_nan() || p < 0.0 {
            return Err(Error::op(NAME, format!("p must not be negative, got {p}")));
        }
        if let Some(cast) = autocast::cast_inputs(NAME, &[self, other])? {
            return cast[0].cdist(&cast[1], p);
        }
        let (x, y) = promote::pair(self, other)?;
        if !x.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(NAME, "a float", x.dtype()));
        }
        let lead = |t: &Tensor| t.shape()[..t.rank() - 2].to_vec();
        let lead = broadcast_shapes(NAME, &[&lead(&x), &lead(&y)])?;
        let planes = |t: &Tensor| {
            let plane = &t.shape()[t.rank() - 2..];
            let whole = t.broadcast_to(&[&lead[..], plane].concat())?;
            whole.reshape(&[product(&lead), plane[0], plane[1]])
        };
        let distances = apply(Distances { p }, &[&planes(&x)?, &planes(&y)?])?;
        distances.reshape(&[&lead[..], &distances.shape()[1..]].concat())
    }
}

/// Of points `[B, P, D]` and `[B, R, D]`.
struct Distances {
    p: f64,
}

impl Distances {
    /// What the slope of each difference is multiplied by: `dy / z^(p - 1)`, and 0 at a distance of 0.
    fn weights(&self, z: &Tensor, dy: &Tensor) -> Result<Tensor> {
        let dtype = launch::accumulate_dtype(z.dtype());
        let (z, dy) = (z.to_dtype(dtype)?, dy.to_dtype(dtype)?);
        if self.p == 1.0 || self.p.is_infinite() {
            return Ok(dy);
        }
        let is_zero = z.eq_scalar(0.0)?;
        let power = z.masked_fill(&is_zero, 1.0)?.pow_scalar(self.p - 1.0)?;
        dy.div(&power)?.masked_fill(&is_zero, 0.0)
    }

    /// Whether distances are made of products of points, `[B, P, D]` and `[B, R, D]`.
    fn is_of_products(&self, x: &Tensor, y: &Tensor) -> bool {
        let is_wide = matches!(x.dtype(), DType::F32 | DType::F64);
        let work = product([x.shape()[1], y.shape()[1], x.shape()[2]]);
        self.p == 2.0 && is_wide && work >= MANY
    }

    /// The gradients by ops that have gradients themselves.
    fn differentiable(&self, [x, y, z]: [&Tensor; 3], dy: &Tensor) -> Result<[Tensor; 2]> {
        let off = x.unsqueeze(-2)?.sub(&y.unsqueeze(-3)?)?;
        let slope = match self.p {
            1.0 => off.sign()?,
            2.0 => off,
            f64::INFINITY => {
                off.sign()?.mul(&off.abs()?.eq(&z.unsqueeze(-1)?)?.to_dtype(off.dtype())?)?
            }
            p => {
                let is_zero = off.eq_scalar(0.0)?;
                let power = off.abs()?.masked_fill(&is_zero, 1.0)?.pow_scalar(p - 1.0)?;
                off.sign()?.mul(&power)?
            }
        };
        let each = self.weights(z, dy)?.unsqueeze(-1)?.mul(&slope)?;
        let (dx, other) = (each.sum_dims(&[-2], false)?, each.sum_dims(&[-3], false)?.neg()?);
        Ok([dx.to_dtype(x.dtype())?, other.to_dtype(y.dtype())?])
    }
}

/// Planes with their last two axes exchanged, and so in memory: points that are read together then lie together.
fn turned(t: &Tensor) -> Result<Tensor> {
    t.transpose(-1, -2)?.contiguous()
}

/// Planes with their last two axes exchanged, for a walk that takes so many steps: where there are few, strided reads take
/// less time than a launch.
fn turned_for(t: &Tensor, work: usize) -> Result<Tensor> {
    if work < MANY && t.device() != Device::Cpu { t.transpose(-1, -2) } else { turned(t) }
}

/// Both sets of points about the mean of the first: distances are those of the points, and fewer are near.
fn centered([x, y]: [&Tensor; 2]) -> Result<[Tensor; 2]> {
    let mean = x.mean_dims(&[1], true)?;
    Ok([x.sub(&mean)?, y.sub(&mean)?])
}

/// The squared lengths of points, `[B, P]`.
fn squares(x: &Tensor) -> Result<Tensor> {
    composite(NAME, &[], [x], |[x], _| x.square()?.sum_dims(&[-1], false))
}

/// The weights `w: [B, P, R]` of pairs whose distances `z` are far, and 0 for others.
fn far_weights(z: &Tensor, w: &Tensor, [x, y]: [&Tensor; 2]) -> Result<Tensor> {
    let (xx, yy) = (squares(x)?.unsqueeze(-1)?, squares(y)?.unsqueeze(-2)?);
    composite(NAME, &[NEAR], [z, w, &xx, &yy], |[z, w, xx, yy], n| {
        let is_far = z.square()?.ge(&xx.add(yy)?.mul_scalar(n[0])?)?;
        w.masked_fill(&is_far.logical_not()?, 0.0)
    })
}

/// The gradient of `x: [B, P, D]` of distances of order 2 to `y: [B, R, D]`, by weights `[B, P, R]`: of pairs that are far
/// `u sum(w) - w v` of the [`centered`] points, which does not cancel, and those that are near as they are.
fn by_products(
    [x, y]: [&Tensor; 2],
    [u, v]: [&Tensor; 2],
    [w, far]: [&Tensor; 2],
) -> Result<Tensor> {
    let others = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
    full_precision(far, v, &others)?;
    let sums = far.sum_dims(&[-1], true)?;
    let dx =
        composite(NAME, &[], [u, &sums, &others], |[u, sums, others], _| u.mul(sums)?.sub(others))?;
    let count = composite(NAME, &[], [w, far], |[w, far], _| {
        w.ne(far)?.to_dtype(w.dtype())?.sum_dims(&[-1], false)
    })?;
    let of = [x, y, &w.transpose(1, 2)?, &far.transpose(1, 2)?, &count];
    launch::distance::distances_near_bwd(of, &dx)?;
    Ok(dx)
}

impl Op for Distances {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, y) = (inputs[0], inputs[1]);
        let shape = [x.shape()[0], x.shape()[1], y.shape()[1]];
        if x.shape()[2] == 0 {
            return Tensor::zeros(&shape, (x.dtype(), x.device()));
        }
        let z = Tensor::uninitialized(&shape, (x.dtype(), x.device()))?;
        if self.is_of_products(x, y) {
            let [u, v] = centered([x, y])?;
            full_precision(&u, &v.t()?, &z)?;
            let of = [&turned(x)?, &turned(y)?, &squares(&u)?, &squares(&v)?];
            launch::distance::distances_of_products(of, &z)?;
        } else if z.numel() > 0 {
            let work = product([z.numel(), x.shape()[2]]);
            launch::distance::distances(&turned_for(x, work)?, &turned_for(y, work)?, &z, self.p)?;
        }
        Ok(z)
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 3, output: true }
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (x, y, z) = (saved.input(0), saved.input(1), saved.output());
        let is_flat = self.p == 0.0 || x.numel() == 0 || y.numel() == 0;
        if is_flat {
            return Ok(vec![Some(x.zeros_like()?), Some(y.zeros_like()?)]);
        }
        if is_grad_enabled() {
            return Ok(self.differentiable([x, y, z], dy)?.map(Some).into());
        }
        let w = self.weights(z, dy)?.contiguous()?;
        if self.is_of_products(x, y) {
            let [u, v] = centered([x, y])?;
            let far = far_weights(z, &w, [&u, &v])?;
            let dx = saved.wanted[0].then(|| by_products([x, y], [&u, &v], [&w, &far]));
            let (w, far) = (w.transpose(1, 2)?, far.transpose(1, 2)?);
            let dy = saved.wanted[1].then(|| by_products([y, x], [&v, &u], [&w, &far]));
            let (dx, dy) = (dx.transpose()?, dy.transpose()?);
            return Ok(vec![dx, dy]);
        }
        let gradient = |points: &Tensor, others: &Tensor, w: &Tensor, z: &Tensor| -> Result<_> {
            let dx = Tensor::uninitialized(points.shape(), (points.dtype(), points.device()))?;
            launch::distance::distances_bwd([points, others, w, z], &dx, self.p)?;
            Ok(Some(dx))
        };
        let work = product([z.numel(), x.shape()[2]]);
        let dx = match saved.wanted[0] {
            true => gradient(x, y, &turned_for(&w, work)?, &turned_for(z, work)?)?,
            false => None,
        };
        let other = match saved.wanted[1] {
            true => gradient(y, x, &w, z)?,
            false => None,
        };
        Ok(vec![dx, other])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::info::{Dense, Family, OpInfo, WIDE, cpu};
    use genesis_kernel::ir::DType;

    /// The distances of `[3, 4]` and `[2, 4]` points, each of the sizes of four differences.
    fn of_each(x: &[Dense], length: fn([f64; 4]) -> f64) -> Dense {
        let off = |at: &[usize], d: usize| (x[0].at(&[at[0], d]) - x[1].at(&[at[1], d])).abs();
        Dense::from_fn(&[3, 2], |at| length([0, 1, 2, 3].map(|d| off(at, d))))
    }

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "cdist/2",
            Family::Softmax,
            |x| x[0].cdist(&x[1], 2.0),
            |x| of_each(x, |off| off.map(|v| v * v).iter().sum::<f64>().sqrt()),
            &[&[&[3, 4], &[2, 4]]],
        )
        .computing(|x, y| 3.0 * y * x[0][1] as f64)
        .peer("torch.cdist(x[0], x[1])")
        .of(WIDE)
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.cdist(&cpu(&[2, 3], DType::F32)?, -1.0),
            "cdist: p must not be negative, got -1",
        )]),
        OpInfo::new(
            "cdist/1",
            Family::Softmax,
            |x| x[0].cdist(&x[1], 1.0),
            |x| of_each(x, |off| off.iter().sum()),
            &[&[&[3, 4], &[2, 4]]],
        )
        .computing(|x, y| 3.0 * y * x[0][1] as f64)
        .peer("torch.cdist(x[0], x[1], p=1.0)")
        .of(WIDE),
        OpInfo::new(
            "cdist/1.5",
            Family::Softmax,
            |x| x[0].cdist(&x[1], 1.5),
            |x| of_each(x, |off| off.map(|v| v.powf(1.5)).iter().sum::<f64>().powf(1.0 / 1.5)),
            &[&[&[3, 4], &[2, 4]]],
        )
        .computing(|x, y| 3.0 * y * x[0][1] as f64)
        .peer("torch.cdist(x[0], x[1], p=1.5)")
        .of(WIDE),
        OpInfo::new(
            "cdist/inf",
            Family::Softmax,
            |x| x[0].cdist(&x[1], f64::INFINITY),
            |x| of_each(x, |off| off.into_iter().fold(0.0, f64::max)),
            &[&[&[3, 4], &[2, 4]]],
        )
        .computing(|x, y| 3.0 * y * x[0][1] as f64)
        .peer("torch.cdist(x[0], x[1], p=1e999)")
        .of(WIDE),
    ];
}
