//! Reductions and scans made of others: products, any and all, variance, norms, logsumexp.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use kernels::product as device;

use super::sum::Dims;
use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, apply, composite};
use crate::shape;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[
    ("cumprod", Precision::Single),
    ("logsumexp", Precision::Single),
    ("norm", Precision::Single),
    ("prod", Precision::Single),
    ("std", Precision::Single),
    ("var", Precision::Single),
];

impl Tensor {
    /// Every axis, for the methods that reduce over some.
    pub(crate) fn all_dims(&self) -> Vec<i64> {
        (0..self.rank() as i64).collect()
    }

    /// The product along `dim`; `keep` keeps it as extent 1. Integers give i64.
    ///
    /// # Numerics
    /// Of floats in f64, rounded once.
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn prod_dim(&self, dim: i64, keep: bool) -> Result<Tensor> {
        let axis = shape::axis_or_scalar("prod", dim, self.shape())?;
        let x = if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::I64)? };
        if self.rank() == 0 {
            return Ok(x);
        }
        let axis = axis as i64;
        let y = apply(Product, &[&x.transpose(axis, -1)?])?.transpose(axis, -1)?;
        if keep { Ok(y) } else { y.squeeze(axis) }
    }

    /// The product of all elements. Integers give i64.
    ///
    /// # Numerics
    /// Of floats in f64, rounded once.
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn prod(&self) -> Result<Tensor> {
        self.reshape(&[self.numel()])?.prod_dim(0, false)
    }

    /// The running product along `dim`. Integers give i64.
    ///
    /// # Numerics
    /// Of floats in f64, each result rounded once.
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn cumprod(&self, dim: i64) -> Result<Tensor> {
        let axis = shape::axis_or_scalar("cumprod", dim, self.shape())? as i64;
        let x = if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::I64)? };
        if self.rank() == 0 {
            return Ok(x);
        }
        apply(Cumprod, &[&x.transpose(axis, -1)?])?.transpose(axis, -1)
    }

    /// Whether some element over `dims` is not zero; bool, of u8 a u8. False of none.
    ///
    /// # Errors
    /// If there are no such dimensions or one is named twice.
    #[track_caller]
    pub fn any_dims(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        let numbers = over(&[], dims, keep);
        let found = composite("any", &numbers, [&self.detach()], |[x], n| {
            let ([], keep, dims) = axes_of(n);
            x.to_bool()?.sum_dims(&dims, keep)?.gt_scalar(0.0)
        })?;
        Ok(self.as_truth(found))
    }

    /// Whether every element over `dims` is not zero; bool, of u8 a u8. True of none.
    ///
    /// # Errors
    /// If there are no such dimensions or one is named twice.
    #[track_caller]
    pub fn all_dims_true(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        let numbers = over(&[], dims, keep);
        let holds = composite("all", &numbers, [&self.detach()], |[x], n| {
            let ([], keep, dims) = axes_of(n);
            x.logical_not()?.sum_dims(&dims, keep)?.eq_scalar(0.0)
        })?;
        Ok(self.as_truth(holds))
    }

    /// What is true of this tensor: as in PyTorch of u8 a u8, else a bool.
    fn as_truth(&self, truth: Tensor) -> Tensor {
        if self.dtype() == DType::U8 { truth.as_bytes() } else { truth }
    }

    /// Whether some element is not zero; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn any(&self) -> Result<Tensor> {
        self.any_dims(&self.all_dims(), false)
    }

    /// Whether every element is not zero; bool.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn all(&self) -> Result<Tensor> {
        self.all_dims_true(&self.all_dims(), false)
    }

    /// The mean of squared distances from the mean over `dims`, with the divisor `n - correction`:
    /// 1 for the unbiased estimate, 0 for the biased one.
    ///
    /// # Errors
    /// If there are no such dimensions, one is named twice, or the dtype is not a float.
    #[track_caller]
    pub fn var_dims(&self, dims: &[i64], correction: f64, keep: bool) -> Result<Tensor> {
        if let Some(cast) = autocast::cast_inputs("var", &[self])? {
            return cast[0].var_dims(dims, correction, keep);
        }
        let axes = Dims::new("var", dims, keep, self.shape())?;
        let divisor = (axes.count(self.shape()) as f64 - correction).max(0.0);
        composite("var", &over(&[divisor], dims, keep), [self], variance)
    }

    /// The square root of [`Tensor::var_dims`]; the gradient at 0 is 0.
    ///
    /// # Errors
    /// As [`Tensor::var_dims`].
    #[track_caller]
    pub fn std_dims(&self, dims: &[i64], correction: f64, keep: bool) -> Result<Tensor> {
        if let Some(cast) = autocast::cast_inputs("std", &[self])? {
            return cast[0].std_dims(dims, correction, keep);
        }
        let axes = Dims::new("std", dims, keep, self.shape())?;
        let divisor = (axes.count(self.shape()) as f64 - correction).max(0.0);
        composite("std", &over(&[divisor], dims, keep), [self], |[x], n| {
            let wide = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
            root(&variance([&wide], n)?)?.to_dtype(x.dtype())
        })
    }

    /// The norm of order `p` over `dims`: `sum(|x|^p)^(1/p)`; the largest magnitude for infinity, the
    /// smallest for minus infinity, the count of what is not zero for 0.
    ///
    /// # Errors
    /// If there are no such dimensions, one is named twice, the dtype is not a float, or an infinite
    /// order has no element.
    #[track_caller]
    pub fn vector_norm(&self, p: f64, dims: &[i64], keep: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            let message = format!("needs a float dtype, got {}", self.dtype());
            return Err(Error::op("norm", message));
        }
        if let Some(cast) = autocast::cast_inputs("norm", &[self])? {
            return cast[0].vector_norm(p, dims, keep);
        }
        composite("norm", &over(&[p], dims, keep), [self], |[x], n| norm(x, n)?.to_dtype(x.dtype()))
    }

    /// The logarithm of the sum of exponentials over `dims`, which does not overflow.
    ///
    /// # Errors
    /// If there are no such dimensions, one is named twice, or the dtype is not a float.
    #[track_caller]
    pub fn logsumexp(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        if let Some(cast) = autocast::cast_inputs("logsumexp", &[self])? {
            return cast[0].logsumexp(dims, keep);
        }
        let x = self.as_float()?;
        let axes = Dims::new("logsumexp", dims, keep, x.shape())?;
        let wide = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
        if axes.count(x.shape()) == 0 {
            return wide.exp()?.sum_dims(dims, keep)?.log()?.to_dtype(x.dtype());
        }
        composite("logsumexp", &over(&[], dims, keep), [&x], |[x], n| {
            let ([], keep, dims) = axes_of(n);
            let wide = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
            let top = wide.detach().max_dims(&dims, true)?;
            // Where all is minus infinity, or some is infinite, the shift would be NaN.
            let top = top.isfinite()?.where_(&top, &top.zeros_like()?)?;
            let sum = wide.sub(&top)?.exp()?.sum_dims(&dims, keep)?;
            sum.log()?.add(&top.reshape(sum.shape())?)?.to_dtype(x.dtype())
        })
    }

    /// Where the largest element stands in row-major order, i64.
    ///
    /// # Errors
    /// If there is none.
    #[track_caller]
    pub fn argmax_all(&self) -> Result<Tensor> {
        self.reshape(&[self.numel()])?.argmax(0)
    }

    /// Where the smallest element stands in row-major order, i64.
    ///
    /// # Errors
    /// If there is none.
    #[track_caller]
    pub fn argmin_all(&self) -> Result<Tensor> {
        self.reshape(&[self.numel()])?.argmin(0)
    }
}

/// The numbers of an op over some dimensions: its own, whether the dimensions stay, and which they are.
fn over(own: &[f64], dims: &[i64], keep: bool) -> Vec<f64> {
    let dims = dims.iter().map(|&dim| dim as f64);
    own.iter().copied().chain([f64::from(keep)]).chain(dims).collect()
}

/// What [`over`] put together, with as many numbers of the op's own.
fn axes_of<const N: usize>(numbers: &[f64]) -> ([f64; N], bool, Vec<i64>) {
    let own = std::array::from_fn(|i| numbers[i]);
    let dims = numbers[N + 1..].iter().map(|&dim| dim as i64).collect();
    (own, numbers[N] > 0.0, dims)
}

/// The description of `var`, by its divisor.
fn variance([x]: [&Tensor; 1], numbers: &[f64]) -> Result<Tensor> {
    let ([divisor], keep, dims) = axes_of(numbers);
    // The mean of 16-bit floats is kept in f32, so that distances from it are not those from a rounded one.
    let wide = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
    let distance = wide.sub(&wide.mean_dims(&dims, true)?)?;
    let sum = distance.square()?.sum_dims(&dims, keep)?;
    let divisor = Tensor::full(&[], divisor, (sum.dtype(), sum.device()))?;
    sum.div(&divisor)?.to_dtype(x.dtype())
}

/// The description of `norm`, by its order.
fn norm(x: &Tensor, numbers: &[f64]) -> Result<Tensor> {
    let ([p], keep, dims) = axes_of(numbers);
    let x = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
    match p {
        0.0 => x.ne_scalar(0.0)?.to_dtype(x.dtype())?.sum_dims(&dims, keep),
        1.0 => x.abs()?.sum_dims(&dims, keep),
        2.0 => root(&x.square()?.sum_dims(&dims, keep)?),
        f64::INFINITY => x.abs()?.max_dims(&dims, keep),
        f64::NEG_INFINITY => x.abs()?.min_dims(&dims, keep),
        _ => x.abs()?.pow_scalar(p)?.sum_dims(&dims, keep)?.pow_scalar(1.0 / p),
    }
}

/// The square root, whose gradient at 0 is 0.
#[track_caller]
fn root(x: &Tensor) -> Result<Tensor> {
    let is_zero = x.eq_scalar(0.0)?;
    let one = Tensor::ones(&[], (x.dtype(), x.device()))?;
    let root = is_zero.where_(&one, x)?.sqrt()?;
    is_zero.where_(&x.mul_scalar(0.0)?, &root)
}

fn rows(kernel: &'static KernelDef, x: &Tensor, y: &Tensor) -> Result<()> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    let cols = n.next_power_of_two().clamp(16, 1024);
    let rows = (1024 / cols).min(16);
    // Each factor's rounding stays in a product: factors that repeat, as of an expanded tensor, round alike.
    let wide = if x.dtype().is_float() { DType::F64 } else { x.dtype() };
    let dtypes = [x.dtype(), wide];
    let grid = Grid::x(m.div_ceil(rows));
    launch::views(kernel, grid, &dtypes, &[rows as i64, cols as i64], &[(x, false), (y, true)], &[])
}

/// The product along the last axis, which stays as extent 1.
struct Product;

impl Op for Product {
    fn name(&self) -> &'static str {
        "prod"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let n = x.shape()[x.rank() - 1];
        let mut shape = x.shape().to_vec();
        shape[x.rank() - 1] = 1;
        if x.numel() == 0 {
            return Tensor::ones(&shape, (x.dtype(), x.device()));
        }
        let y = Tensor::uninitialized(&[x.numel() / n], (x.dtype(), x.device()))?;
        rows(&device::prod_rows::KERNEL, &x.reshape(&[x.numel() / n, n])?, &y)?;
        y.reshape(&shape)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    /// The product of all others, which is that of those before times that of those after: no zero is
    /// divided by.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        let n = x.dim(-1)?;
        if x.numel() == 0 {
            return Ok(vec![Some(x.zeros_like()?)]);
        }
        let one = Tensor::ones(&[], (x.dtype(), x.device()))?;
        let one = one.broadcast_to(&[&x.shape()[..x.rank() - 1], &[1]].concat())?;
        let before = |x: &Tensor| Tensor::cat(&[&one, &x.cumprod(-1)?.narrow(-1, 0, n - 1)?], -1);
        let after = before(&x.flip(&[-1])?)?.flip(&[-1])?;
        Ok(vec![Some(dy.mul(&before(x)?.mul(&after)?)?)])
    }
}

/// The running product along the last axis.
struct Cumprod;

impl Op for Cumprod {
    fn name(&self) -> &'static str {
        "cumprod"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
        if x.numel() > 0 {
            let n = x.shape()[x.rank() - 1];
            let shape = [x.numel() / n, n];
            rows(&device::cumprod_rows::KERNEL, &x.reshape(&shape)?, &y.reshape(&shape)?)?;
        }
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 1, output: true }
    }

    /// `dx_k = sum over j >= k of dy_j y_j / x_k`. Up to the first zero of a row that can be divided;
    /// at it the products are those of the row with a one in its place; after it all are zero.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        // Sums that nearly cancel are added in f64, as PyTorch adds them.
        if x.dtype() == DType::F32 {
            let wide = |t: &Tensor| t.to_dtype(DType::F64);
            let x = wide(x)?;
            let dx = cumprod_slopes(&x, &x.cumprod(-1)?, &wide(dy)?)?;
            return Ok(vec![Some(dx.to_dtype(DType::F32)?)]);
        }
        Ok(vec![Some(cumprod_slopes(x, saved.output(), dy)?)])
    }
}

/// The gradient of the running product `y` of `x`.
#[track_caller]
fn cumprod_slopes(x: &Tensor, y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let from_end = |t: &Tensor| t.flip(&[-1])?.cumsum(-1)?.flip(&[-1]);
    let is_zero = x.eq_scalar(0.0)?;
    let zeros = is_zero.to_dtype(DType::I64)?.cumsum(-1)?;
    let is_first = is_zero.logical_and(&zeros.eq_scalar(1.0)?)?;
    let one = Tensor::ones(&[], (x.dtype(), x.device()))?;
    let zero = Tensor::zeros(&[], (x.dtype(), x.device()))?;
    let usual = from_end(&dy.mul(y)?)?.div(&is_zero.where_(&one, x)?)?;
    let without = is_first.where_(&one, x)?.cumprod(-1)?;
    let at_zero = from_end(&dy.mul(&without)?)?;
    let usual = zeros.eq_scalar(0.0)?.where_(&usual, &zero)?;
    is_first.where_(&at_zero, &usual)
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::info::{Family, OpInfo, columns, folded, largest, scalar, smallest, variance};

    pub(in crate::ops) static INFOS: &[OpInfo] =
        &[
            OpInfo::new(
                "prod",
                Family::Transcendental,
                |x| x[0].prod_dim(0, false),
                |x| folded(&x[0], |c| c.iter().product::<f64>()),
                &[&[&[5, 3]]],
            )
            .peer("torch.prod(x[0], 0)"),
            OpInfo::new(
                "cumprod",
                Family::Transcendental,
                |x| x[0].cumprod(0),
                |x| {
                    columns(&x[0], |c| {
                        c.iter()
                            .scan(1.0, |p, v| {
                                *p *= v;
                                Some(*p)
                            })
                            .collect()
                    })
                },
                &[&[&[5, 3]]],
            )
            .peer("torch.cumprod(x[0], 0)"),
            OpInfo::new(
                "var",
                Family::Softmax,
                |x| x[0].var_dims(&[0], 1.0, false),
                |x| folded(&x[0], |c| variance(c, 1.0)),
                &[&[&[9, 3]]],
            )
            .peer("torch.var(x[0], 0)"),
            OpInfo::new(
                "std",
                Family::Softmax,
                |x| x[0].std_dims(&[0], 1.0, false),
                |x| folded(&x[0], |c| variance(c, 1.0).sqrt()),
                &[&[&[9, 3]]],
            )
            .peer("torch.std(x[0], 0)"),
            OpInfo::new(
                "norm/2",
                Family::Softmax,
                |x| x[0].vector_norm(2.0, &[0], false),
                |x| folded(&x[0], |c| c.iter().map(|v| v * v).sum::<f64>().sqrt()),
                &[&[&[9, 3]]],
            )
            .peer("torch.linalg.vector_norm(x[0], 2.0, 0)"),
            OpInfo::new(
                "norm/3",
                Family::Softmax,
                |x| x[0].vector_norm(3.0, &[0], false),
                |x| folded(&x[0], |c| c.iter().map(|v| v * v * v).sum::<f64>().cbrt()),
                &[&[&[9, 3]]],
            )
            .peer("torch.linalg.vector_norm(x[0], 3.0, 0)"),
            OpInfo::new(
                "logsumexp",
                Family::Softmax,
                |x| x[0].logsumexp(&[0], false),
                |x| folded(&x[0], |c| c.iter().map(|v| v.exp()).sum::<f64>().ln()),
                &[&[&[9, 3]]],
            )
            .peer("torch.logsumexp(x[0], 0)"),
            OpInfo::new(
                "prod/all",
                Family::Transcendental,
                |x| x[0].prod(),
                |x| scalar(x[0].data.iter().product::<f64>()),
                &[&[&[3, 2]]],
            )
            .peer("torch.prod(x[0])"),
            OpInfo::new(
                "any",
                Family::Exact,
                |x| x[0].any(),
                |x| scalar(f64::from(u8::from(x[0].data.iter().any(|v| *v >= 1.0)))),
                &[&[&[3, 2]], &[&[0]]],
            )
            .peer("torch.any(x[0])")
            .whole()
            .within(0.0, 1.2)
            .flat(),
            OpInfo::new(
                "all",
                Family::Exact,
                |x| x[0].all(),
                |x| scalar(f64::from(u8::from(x[0].data.iter().all(|v| *v >= 1.0)))),
                &[&[&[3, 2]], &[&[0]]],
            )
            .peer("torch.all(x[0])")
            .whole()
            .within(0.9, 3.0)
            .flat(),
            OpInfo::new(
                "any_dims",
                Family::Exact,
                |x| x[0].any_dims(&[0], false),
                |x| folded(&x[0], |c| f64::from(u8::from(c.iter().any(|v| *v >= 1.0)))),
                &[&[&[3, 9]]],
            )
            .peer("torch.any(x[0], 0)")
            .whole()
            .within(0.0, 1.5)
            .flat(),
            OpInfo::new(
                "all_dims_true",
                Family::Exact,
                |x| x[0].all_dims_true(&[0], false),
                |x| folded(&x[0], |c| f64::from(u8::from(c.iter().all(|v| *v >= 1.0)))),
                &[&[&[3, 9]]],
            )
            .peer("torch.all(x[0], 0)")
            .whole()
            .within(0.5, 3.0)
            .flat(),
            OpInfo::new(
                "argmax_all",
                Family::Exact,
                |x| x[0].argmax_all(),
                |x| {
                    scalar(x[0].data.iter().position(|&v| v == largest(&x[0].data)).unwrap_or(0)
                        as f64)
                },
                &[&[&[3, 70]]],
            )
            .peer("torch.argmax(x[0])")
            .flat(),
            OpInfo::new(
                "argmin_all",
                Family::Exact,
                |x| x[0].argmin_all(),
                |x| {
                    scalar(x[0].data.iter().position(|&v| v == smallest(&x[0].data)).unwrap_or(0)
                        as f64)
                },
                &[&[&[3, 70]]],
            )
            .peer("torch.argmin(x[0])")
            .flat(),
        ];
}
