//! Activations made of other ops, with PyTorch's names, defaults and gradients.
//!
//! 16-bit inputs are computed in f32 and rounded once. Where two branches meet, the gradient is that of
//! PyTorch's formula; NaN stays NaN.

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::ops::{Op, Saves, apply, composite};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[("softplus", Precision::Single)];

/// SELU's constants.
/// Source: arXiv:1706.02515.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

/// Runs `f` in f32 or f64 and rounds its result to the dtype of `x`.
fn wide(x: &Tensor, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    Tensor::rounded_once([x], |[x]| f(&x))?.to_dtype(x.dtype())
}

/// One number as a tensor like `x`.
fn number(x: &Tensor, value: f64) -> Result<Tensor> {
    Tensor::full(&[], value, (x.dtype(), x.device()))
}

impl Tensor {
    /// `log(1 + exp(beta x)) / beta`, and x itself where `beta x` is over the threshold.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Tensor> {
        if let Some(cast) = autocast::cast_inputs("softplus", &[self])? {
            return cast[0].softplus(beta, threshold);
        }
        composite("softplus", &[beta, threshold], [self], |[x], n| {
            wide(x, |x| apply(Softplus { beta: n[0], threshold: n[1] }, &[x]))
        })
    }

    /// `log(1 / (1 + exp(-x)))`, which does not overflow.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn log_sigmoid(&self) -> Result<Tensor> {
        composite("log_sigmoid", &[], [self], |[x], _| {
            let softplus = Softplus { beta: 1.0, threshold: f64::INFINITY };
            wide(x, |x| apply(softplus, &[&x.neg()?])?.neg())
        })
    }

    /// x where it is positive, else `slope * x`; the gradient at 0 is `slope`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        composite("leaky_relu", &[slope], [self], |[x], n| {
            x.detach().gt_scalar(0.0)?.where_(x, &x.mul_scalar(n[0])?)
        })
    }

    /// x where it is positive, else `weight * x`, with one weight, or one a channel (axis 1).
    ///
    /// # Errors
    /// If the number of weights is neither 1 nor that of the channels.
    #[track_caller]
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        let channels = if self.rank() > 1 { self.shape()[1] } else { 1 };
        let mut line = vec![1; self.rank()];
        if weight.numel() != 1 {
            if weight.numel() != channels {
                let message = format!("{} weights for {channels} channels", weight.numel());
                return Err(Error::op("prelu", message));
            }
            line[1] = channels;
        }
        composite("prelu", &[], [self, &weight.reshape(&line)?], |[x, weight], _| {
            x.detach().gt_scalar(0.0)?.where_(x, &x.mul(weight)?)
        })
    }

    /// x where it is positive, else `alpha * (exp(x) - 1)`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        elu_of("elu", self, [alpha, 1.0, 1.0])
    }

    /// ELU with the constants that keep mean 0 and variance 1.
    ///
    /// # Errors
    /// If the dtype is not a float.
    /// # Source
    /// arXiv:1706.02515.
    #[track_caller]
    pub fn selu(&self) -> Result<Tensor> {
        elu_of("selu", self, [SELU_ALPHA * SELU_SCALE, SELU_SCALE, 1.0])
    }

    /// x where it is positive, else `alpha * (exp(x / alpha) - 1)`.
    ///
    /// # Errors
    /// If the dtype is not a float or `alpha` is 0.
    #[track_caller]
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        if alpha == 0.0 {
            return Err(Error::op("celu", "alpha is 0"));
        }
        elu_of("celu", self, [alpha, 1.0, 1.0 / alpha])
    }

    /// `x * clamp(x + 3, 0, 6) / 6`; NaN for minus infinity, as the formula and PyTorch say.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn hardswish(&self) -> Result<Tensor> {
        composite("hardswish", &[], [self], |[x], _| wide(x, bent_swish))
    }

    /// `clamp(x / 6 + 1 / 2, 0, 1)`
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn hardsigmoid(&self) -> Result<Tensor> {
        composite("hardsigmoid", &[], [self], |[x], _| {
            wide(x, |x| {
                let inner = x.add_scalar(3.0)?.mul_scalar(1.0 / 6.0)?;
                outside(x, -3.0, 3.0)?.where_(&inner.detach().clamp(0.0, 1.0)?, &inner)
            })
        })
    }

    /// x brought between `low` and `high`; the gradient is zero there and beyond.
    ///
    /// # Errors
    /// If the dtype is not a float or `low` is over `high`.
    #[track_caller]
    pub fn hardtanh(&self, low: f64, high: f64) -> Result<Tensor> {
        if low > high {
            return Err(Error::op("hardtanh", format!("{low} is over {high}")));
        }
        composite("hardtanh", &[low, high], [self], |[x], n| {
            outside(x, n[0], n[1])?.where_(&x.detach().clamp(n[0], n[1])?, x)
        })
    }

    /// x brought between 0 and 6.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn relu6(&self) -> Result<Tensor> {
        self.hardtanh(0.0, 6.0)
    }

    /// `x * tanh(log(1 + exp(x)))`
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn mish(&self) -> Result<Tensor> {
        composite("mish", &[], [self], |[x], _| wide(x, |x| apply(Mish, &[x])))
    }

    /// GELU by the hyperbolic tangent: `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Result<Tensor> {
        composite("gelu_tanh", &[], [self], |[x], _| {
            wide(x, |x| {
                // (1 + tanh(u)) / 2 is the logistic function of 2 u, which keeps its digits where that is small.
                let cube = x.square()?.mul(x)?.mul_scalar(0.044715)?;
                let twice = x.add(&cube)?.mul_scalar((8.0 / std::f64::consts::PI).sqrt())?;
                twice.sigmoid()?.mul(x)
            })
        })
    }

    /// `x / (1 + |x|)`
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn softsign(&self) -> Result<Tensor> {
        composite("softsign", &[], [self], |[x], _| wide(x, |x| x.div(&x.abs()?.add_scalar(1.0)?)))
    }

    /// `x - tanh(x)`
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn tanhshrink(&self) -> Result<Tensor> {
        composite("tanhshrink", &[], [self], |[x], _| wide(x, |x| x.sub(&x.tanh()?)))
    }

    /// 0 where x is between `-lambda` and `lambda`, else x.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn hardshrink(&self, lambda: f64) -> Result<Tensor> {
        composite("hardshrink", &[lambda], [self], |[x], n| {
            let is_inside =
                x.detach().ge_scalar(-n[0])?.logical_and(&x.detach().le_scalar(n[0])?)?;
            is_inside.where_(&number(x, 0.0)?, x)
        })
    }

    /// x moved towards 0 by `lambda`, at most to it.
    ///
    /// # Errors
    /// If the dtype is not a float or `lambda` is negative.
    #[track_caller]
    pub fn softshrink(&self, lambda: f64) -> Result<Tensor> {
        if lambda < 0.0 {
            return Err(Error::op("softshrink", format!("lambda is negative, {lambda}")));
        }
        composite("softshrink", &[lambda], [self], |[x], n| wide(x, |x| shrunk(x, n[0])))
    }

    /// x where it is over `threshold`, else `value`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    #[track_caller]
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        composite("threshold", &[threshold, value], [self], |[x], n| {
            x.detach().le_scalar(n[0])?.where_(&number(x, n[1])?, x)
        })
    }

    /// The first half along `dim`, each times the sigmoid of its place in the second half.
    ///
    /// # Errors
    /// If there is no such dimension, its extent is odd, or the dtype is not a float.
    #[track_caller]
    pub fn glu(&self, dim: i64) -> Result<Tensor> {
        let extent = self.dim(dim)?;
        if !extent.is_multiple_of(2) {
            let message = format!("dimension {dim} of {:?} is odd", self.shape());
            return Err(Error::op("glu", message));
        }
        let half = extent / 2;
        let halves = [&self.narrow(dim, 0, half)?, &self.narrow(dim, half, half)?];
        composite("glu", &[], halves, |[x, gate], _| {
            Tensor::rounded_once([x, gate], |[x, gate]| x.mul(&gate.sigmoid()?))?
                .to_dtype(x.dtype())
        })
    }

    /// The softmax of `-x` along `dim`.
    ///
    /// # Errors
    /// If there is no such dimension or the dtype is not a float.
    #[track_caller]
    pub fn softmin(&self, dim: i64) -> Result<Tensor> {
        self.neg()?.softmax(dim)
    }
}

/// The description of `hardswish`.
fn bent_swish(x: &Tensor) -> Result<Tensor> {
    let (low, is_inner) = (x.detach().le_scalar(-3.0)?, x.detach().lt_scalar(3.0)?);
    // Infinity and NaN must not reach the slope of a branch that is not taken.
    let bent = is_inner.logical_and(&low.logical_not()?)?.where_(x, &number(x, 0.0)?)?;
    let inner = bent.mul(&bent.add_scalar(3.0)?)?.mul_scalar(1.0 / 6.0)?;
    low.where_(&x.detach().mul_scalar(0.0)?, &is_inner.where_(&inner, x)?)
}

/// The description of `softshrink`.
fn shrunk(x: &Tensor, lambda: f64) -> Result<Tensor> {
    let detached = x.detach();
    let (above, below) = (detached.gt_scalar(lambda)?, detached.lt_scalar(-lambda)?);
    // Zero in the middle, NaN for NaN; the gradient is zero there.
    let middle = detached.mul_scalar(0.0)?;
    let low = below.where_(&x.add_scalar(lambda)?, &middle)?;
    above.where_(&x.sub_scalar(lambda)?, &low)
}

/// [`scaled_elu`] as an op, by its three numbers.
fn elu_of(name: &'static str, x: &Tensor, numbers: [f64; 3]) -> Result<Tensor> {
    composite(name, &numbers, [x], |[x], n| wide(x, |x| scaled_elu(x, n[0], n[1], n[2])))
}

/// Where x is at or beyond one of the bounds.
fn outside(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    let x = x.detach();
    x.le_scalar(low)?.logical_or(&x.ge_scalar(high)?)
}

/// `below * (exp(rate * x) - 1)` where x is at most 0, else `above * x`, NaN's slope too.
fn scaled_elu(x: &Tensor, below: f64, above: f64, rate: f64) -> Result<Tensor> {
    let is_low = x.detach().le_scalar(0.0)?;
    // The exponential must not overflow where it is not used: 0 times infinity would be its gradient.
    let low = is_low.where_(x, &number(x, 0.0)?)?.mul_scalar(rate)?.expm1()?;
    is_low.where_(&low.mul_scalar(below)?, &x.mul_scalar(above)?)
}

/// `log(1 + exp(beta x)) / beta`. Made of maxima and magnitudes, whose slopes at 0 would add up to 0
/// where this one's is a half: so its gradient is an own one.
struct Softplus {
    beta: f64,
    threshold: f64,
}

impl Op for Softplus {
    fn name(&self) -> &'static str {
        "softplus"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        // A division costs as much as the rest; its reciprocal may have no number.
        let is_one = self.beta == 1.0;
        let over = 1.0 / self.beta;
        let is_plain = (1e-30..1e30).contains(&over.abs());
        let scaled = if is_one { x.clone() } else { x.mul_scalar(self.beta)? };
        let rest = scaled.abs()?.neg()?.exp()?.log1p()?;
        let y = scaled.relu()?.add(&rest)?;
        let y = match (is_one, is_plain) {
            (true, _) => y,
            (false, true) => y.mul_scalar(over)?,
            (false, false) => y.div_scalar(self.beta)?,
        };
        match self.threshold {
            f64::INFINITY => Ok(y),
            threshold => scaled.gt_scalar(threshold)?.where_(x, &y),
        }
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let scaled = saved.input(0).mul_scalar(self.beta)?;
        let dx = dy.mul(&scaled.sigmoid()?)?;
        Ok(vec![Some(match self.threshold {
            f64::INFINITY => dx,
            threshold => scaled.detach().gt_scalar(threshold)?.where_(dy, &dx)?,
        })])
    }
}

/// `x tanh(log(1 + e))` with `e = exp(x)`: the hyperbolic tangent is `n / (n + 2)` with `n = e (e + 2)`, in which nothing
/// cancels.
struct Mish;

impl Mish {
    /// `e` and `n`. From 20 on the quotient is 1, and the square would overflow.
    fn parts(x: &Tensor) -> Result<(Tensor, Tensor)> {
        let e = x.minimum_scalar(20.0)?.exp()?;
        let n = e.mul(&e.add_scalar(2.0)?)?;
        Ok((e, n))
    }
}

impl Op for Mish {
    fn name(&self) -> &'static str {
        "mish"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let (_, n) = Mish::parts(x)?;
        x.mul(&n.div(&n.add_scalar(2.0)?)?)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    /// The quotient grows by `4 e (e + 1) / (n + 2)^2`.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        let (e, n) = Mish::parts(x)?;
        let over = n.add_scalar(2.0)?.reciprocal()?;
        let slope = e.mul(&e.add_scalar(1.0)?)?.mul(&over.square()?)?.mul_scalar(4.0)?;
        // Beyond 20 it is 0, and no number where x is infinite, as in PyTorch.
        let slope = slope.masked_fill(&x.detach().gt_scalar(20.0)?, 0.0)?;
        Ok(vec![Some(dy.mul(&n.mul(&over)?.add(&x.mul(&slope)?)?)?)])
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, cpu, map};

    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "softplus",
            Family::Softmax,
            |x| x[0].softplus(2.0, 20.0),
            |x| map(&x[0], |v| (2.0 * v).exp().ln_1p() / 2.0),
            &[&[&[3, 5]]],
        )
        .peer("F.softplus(x[0], 2.0, 20.0)"),
        OpInfo::new(
            "log_sigmoid",
            Family::Softmax,
            |x| x[0].log_sigmoid(),
            |x| map(&x[0], |v| sigmoid(v).ln()),
            &[&[&[3, 5]]],
        )
        .peer("F.logsigmoid(x[0])")
        .within(-3.0, 3.0),
        OpInfo::new(
            "leaky_relu",
            Family::Arithmetic,
            |x| x[0].sub_scalar(2.0)?.leaky_relu(0.5),
            |x| map(&x[0], |v| if v > 2.0 { v - 2.0 } else { 0.5 * (v - 2.0) }),
            &[&[&[3, 5]]],
        )
        .peer("F.leaky_relu(x[0] - 2.0, 0.5)"),
        OpInfo::new(
            "prelu",
            Family::Softmax,
            |x| x[0].prelu(&x[1]),
            |x| {
                Dense::from_fn(&x[0].shape, |at| {
                    let v = x[0].at(at);
                    if v > 0.0 { v } else { v * x[1].at(&at[1..2]) }
                })
            },
            &[&[&[2, 3, 2], &[3]]],
        )
        .peer("F.prelu(x[0], x[1])")
        .within(-3.0, 3.0)
        .refusing(&[(
            || cpu(&[2, 3], DType::F32)?.prelu(&cpu(&[4], DType::F32)?),
            "prelu: 4 weights for 3 channels",
        )]),
        OpInfo::new(
            "elu",
            Family::Softmax,
            |x| x[0].neg()?.elu(1.5),
            |x| map(&x[0], |v| 1.5 * (-v).exp_m1()),
            &[&[&[3, 5]]],
        )
        .peer("F.elu(-x[0], 1.5)"),
        OpInfo::new(
            "selu",
            Family::Softmax,
            |x| x[0].selu(),
            |x| {
                let below = |v: f64| 1.673_263_242_354_377_2 * v.exp_m1();
                map(&x[0], |v| 1.050_700_987_355_480_5 * if v > 0.0 { v } else { below(v) })
            },
            &[&[&[3, 5]]],
        )
        .peer("F.selu(x[0])")
        .within(-3.0, 3.0),
        OpInfo::new(
            "celu",
            Family::Softmax,
            |x| x[0].celu(1.5),
            |x| map(&x[0], |v| if v > 0.0 { v } else { 1.5 * (v / 1.5).exp_m1() }),
            &[&[&[3, 5]]],
        )
        .peer("F.celu(x[0], 1.5)")
        .within(-3.0, 3.0)
        .refusing(&[(|| cpu(&[2], DType::F32)?.celu(0.0), "celu: alpha is 0")]),
        OpInfo::new(
            "hardswish",
            Family::Softmax,
            |x| x[0].hardswish(),
            |x| map(&x[0], |v| v * (v + 3.0).clamp(0.0, 6.0) / 6.0),
            &[&[&[3, 5]]],
        )
        .peer("F.hardswish(x[0])"),
        OpInfo::new(
            "hardsigmoid",
            Family::Softmax,
            |x| x[0].hardsigmoid(),
            |x| map(&x[0], |v| (v / 6.0 + 0.5).clamp(0.0, 1.0)),
            &[&[&[3, 5]]],
        )
        .peer("F.hardsigmoid(x[0])")
        .within(-5.0, 5.0),
        OpInfo::new(
            "hardtanh",
            Family::Softmax,
            |x| x[0].hardtanh(-1.0, 2.0),
            |x| map(&x[0], |v| v.clamp(-1.0, 2.0)),
            &[&[&[3, 5]]],
        )
        .peer("F.hardtanh(x[0], -1.0, 2.0)")
        .within(-3.0, 3.0)
        .refusing(&[(|| cpu(&[2], DType::F32)?.hardtanh(1.0, 0.0), "hardtanh: 1 is over 0")]),
        OpInfo::new(
            "relu6",
            Family::Softmax,
            |x| x[0].relu6(),
            |x| map(&x[0], |v| v.clamp(0.0, 6.0)),
            &[&[&[3, 5]]],
        )
        .peer("F.relu6(x[0])")
        .within(-3.0, 9.0),
        OpInfo::new(
            "mish",
            Family::Softmax,
            |x| x[0].mish(),
            |x| map(&x[0], |v| v * v.exp().ln_1p().tanh()),
            &[&[&[3, 5]]],
        )
        .peer("F.mish(x[0])"),
        OpInfo::new(
            "gelu_tanh",
            Family::Softmax,
            |x| x[0].gelu_tanh(),
            |x| {
                map(&x[0], |v| {
                    let inner = (2.0 / std::f64::consts::PI).sqrt() * (v + 0.044715 * v * v * v);
                    0.5 * v * (1.0 + inner.tanh())
                })
            },
            &[&[&[3, 5]]],
        )
        .peer("F.gelu(x[0], approximate='tanh')"),
        OpInfo::new(
            "softsign",
            Family::Softmax,
            |x| x[0].softsign(),
            |x| map(&x[0], |v| v / (1.0 + v.abs())),
            &[&[&[3, 5]]],
        )
        .peer("F.softsign(x[0])")
        .within(-3.0, 3.0),
        OpInfo::new(
            "tanhshrink",
            Family::Softmax,
            |x| x[0].tanhshrink(),
            |x| map(&x[0], |v| v - v.tanh()),
            &[&[&[3, 5]]],
        )
        .peer("F.tanhshrink(x[0])")
        .within(-3.0, 3.0),
        OpInfo::new(
            "hardshrink",
            Family::Softmax,
            |x| x[0].hardshrink(0.5),
            |x| map(&x[0], |v| if v.abs() <= 0.5 { 0.0 } else { v }),
            &[&[&[3, 5]]],
        )
        .peer("F.hardshrink(x[0], 0.5)")
        .within(-1.0, 1.0),
        OpInfo::new(
            "softshrink",
            Family::Softmax,
            |x| x[0].softshrink(0.5),
            |x| map(&x[0], |v| v.signum() * (v.abs() - 0.5).max(0.0)),
            &[&[&[3, 5]]],
        )
        .peer("F.softshrink(x[0], 0.5)")
        .within(-1.0, 1.0)
        .refusing(&[(
            || cpu(&[2], DType::F32)?.softshrink(-1.0),
            "softshrink: lambda is negative, -1",
        )]),
        OpInfo::new(
            "threshold",
            Family::Softmax,
            |x| x[0].threshold(0.25, -7.0),
            |x| map(&x[0], |v| if v > 0.25 { v } else { -7.0 }),
            &[&[&[3, 5]]],
        )
        .peer("F.threshold(x[0], 0.25, -7.0)")
        .within(-1.0, 1.0),
        OpInfo::new(
            "glu",
            Family::Softmax,
            |x| x[0].glu(1),
            |x| {
                Dense::from_fn(&[2, 3, 2], |at| {
                    x[0].at(at) * sigmoid(x[0].at(&[at[0], at[1] + 3, at[2]]))
                })
            },
            &[&[&[2, 6, 2]]],
        )
        .peer("F.glu(x[0], 1)")
        .within(-3.0, 3.0)
        .refusing(&[(|| cpu(&[2, 3], DType::F32)?.glu(-1), "glu: dimension -1 of [2, 3] is odd")]),
        OpInfo::new(
            "softmin",
            Family::Softmax,
            |x| x[0].softmin(-1),
            |x| {
                Dense::from_fn(&x[0].shape, |at| {
                    let total: f64 =
                        (0..x[0].shape[1]).map(|i| (-x[0].at(&[at[0], i])).exp()).sum();
                    (-x[0].at(at)).exp() / total
                })
            },
            &[&[&[3, 5]]],
        )
        .peer("F.softmin(x[0], -1)")
        .within(-3.0, 3.0),
    ];
}
