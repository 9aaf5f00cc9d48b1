//! Reductions and scans made of others: running products, any and all, norms, logsumexp.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use kernels::{fold, product as device};

use super::scan::cumsum_from_end;
use super::sum::Dims;
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::dispatch::trace;
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

/// The kernels of `any` and `all`.
const ANY: launch::Fold = [
    &fold::any_rows::KERNEL,
    &fold::any_cols::KERNEL,
    &fold::any_rows_shared::KERNEL,
    &fold::any_cols_shared::KERNEL,
];
const ALL: launch::Fold = [
    &fold::all_rows::KERNEL,
    &fold::all_cols::KERNEL,
    &fold::all_rows_shared::KERNEL,
    &fold::all_cols_shared::KERNEL,
];

impl Tensor {
    /// Every axis, for the methods that reduce over some.
    pub(crate) fn all_dims(&self) -> Vec<i64> {
        (0..self.rank() as i64).collect()
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
        let dims = Dims::new("any", dims, keep, self.shape())?;
        self.truth(&dims, ANY, |x, dims, keep| x.to_bool()?.sum_dims(dims, keep)?.gt_scalar(0.0))
    }

    /// Whether every element over `dims` is not zero; bool, of u8 a u8. True of none.
    ///
    /// # Errors
    /// If there are no such dimensions or one is named twice.
    #[track_caller]
    pub fn all_dims_true(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        let dims = Dims::new("all", dims, keep, self.shape())?;
        self.truth(&dims, ALL, |x, dims, keep| {
            x.logical_not()?.sum_dims(dims, keep)?.eq_scalar(0.0)
        })
    }

    /// What kernels say of the elements over some dimensions, as in PyTorch of u8 a u8, else a bool; where there are
    /// none, or the launch is written down to be fused, what `made` of other ops says.
    #[track_caller]
    fn truth(
        &self,
        dims: &Dims,
        kernels: launch::Fold,
        made: impl Fn(&Tensor, &[i64], bool) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let x = self.detach();
        let truth = if x.numel() == 0 || trace::is_on() {
            made(&x, &dims.numbers(), dims.keeps())?
        } else {
            dims.reduced(&x, |x| {
                let shape = [x.shape()[0], x.shape()[2]];
                let y = Tensor::uninitialized(&shape, (DType::Bool, x.device()))?;
                launch::fold(kernels, &[x.dtype()], DType::U8, x, &y)?;
                Ok(y)
            })?
        };
        Ok(if self.dtype() == DType::U8 { truth.as_bytes() } else { truth })
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
        // Two descriptions, so that the first ends in its reduction and is one pass.
        let folded = match p {
            2.0 if has_kernels(self) => {
                let dims = Dims::new("sum", dims, keep, self.shape())?;
                apply(Folded { row: &SQUARES, dims, from: self.shape().to_vec() }, &[self])?
            }
            _ => composite("norm", &over(&[p], dims, keep), [self], |[x], n| folded(x, n))?,
        };
        if matches!(p, 0.0 | 1.0 | f64::INFINITY | f64::NEG_INFINITY) {
            return folded.to_dtype(self.dtype());
        }
        let narrow = WIDTHS.iter().position(|&dtype| dtype == self.dtype());
        match narrow {
            Some(at) if folded.device().is_cuda() => {
                composite("norm", &[p, at as f64], [&folded], |[y], n| {
                    rooted(y, n[0])?.to_dtype(WIDTHS[n[1] as usize])
                })
            }
            _ => {
                composite("norm", &[p], [&folded], |[y], n| rooted(y, n[0]))?.to_dtype(self.dtype())
            }
        }
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
        if axes.count(x.shape()) == 0 {
            let wide = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
            return wide.exp()?.sum_dims(dims, keep)?.log()?.to_dtype(x.dtype());
        }
        if is_grad_enabled() && x.requires_grad() {
            let numbers = over(&[], dims, keep);
            return apply(LogSumExp { axes, numbers }, &[&x])?.to_dtype(x.dtype());
        }
        composite("logsumexp", &over(&[], dims, keep), [&x], |[x], n| {
            log_of_sum(x, n)?.to_dtype(x.dtype())
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

/// The logarithm of the sum of exponentials over some dimensions, as wide as it is summed.
fn log_of_sum(x: &Tensor, numbers: &[f64]) -> Result<Tensor> {
    let ([], keep, dims) = axes_of(numbers);
    let wide = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
    let top = wide.detach().max_dims(&dims, true)?;
    // Where all is minus infinity, or some is infinite, the shift would be NaN.
    let top = top.isfinite()?.where_(&top, &top.zeros_like()?)?;
    let sum = wide.sub(&top)?.exp()?.sum_dims(&dims, keep)?;
    sum.log()?.add(&top.reshape(sum.shape())?)
}

/// [`log_of_sum`] whose gradient needs no more than its result: `dy exp(x - y)`.
struct LogSumExp {
    axes: Dims,
    numbers: Vec<f64>,
}

impl Op for LogSumExp {
    fn name(&self) -> &'static str {
        "logsumexp"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        composite("logsumexp", &self.numbers, [inputs[0]], |[x], n| log_of_sum(x, n))
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 1, output: true }
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        let kept = self.axes.kept(x.shape());
        let (y, dy) = (saved.output().reshape(&kept)?, dy.reshape(&kept)?);
        let dx = composite("logsumexp", &[], [x, &y, &dy], |[x, y, dy], _| {
            dy.mul(&x.to_dtype(y.dtype())?.sub(y)?.exp()?)?.to_dtype(x.dtype())
        })?;
        Ok(vec![Some(dx)])
    }
}

/// The numbers of an op over some dimensions: its own, whether the dimensions stay, and which they are.
pub(super) fn over(own: &[f64], dims: &[i64], keep: bool) -> Vec<f64> {
    let dims = dims.iter().map(|&dim| dim as f64);
    own.iter().copied().chain([f64::from(keep)]).chain(dims).collect()
}

/// What [`over`] put together, with as many numbers of the op's own.
pub(super) fn axes_of<const N: usize>(numbers: &[f64]) -> ([f64; N], bool, Vec<i64>) {
    let own = std::array::from_fn(|i| numbers[i]);
    let dims = numbers[N + 1..].iter().map(|&dim| dim as i64).collect();
    (own, numbers[N] > 0.0, dims)
}

/// Dtypes that a norm is given in.
const WIDTHS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// Whether the sums of what elements are made into have kernels of their own: on a GPU, where a composed kernel sums along
/// the last axes alone, and stores what it would sum along others.
pub(super) fn has_kernels(x: &Tensor) -> bool {
    x.device().is_cuda() && !trace::is_on() && x.numel() > 0 && x.dtype().is_arithmetic_float()
}

/// A sum of what elements are made into.
pub(super) struct FoldRow {
    name: &'static str,
    kernels: launch::Fold,
    /// Whether the result has the dtype of sums.
    is_wide: bool,
    /// The gradient of the elements, by them and what reaches each of their sums.
    grad: fn([&Tensor; 2], &[f64]) -> Result<Tensor>,
}

/// Squares.
static SQUARES: FoldRow = FoldRow {
    name: "norm",
    kernels: [
        &fold::squares_rows::KERNEL,
        &fold::squares_cols::KERNEL,
        &fold::squares_rows_shared::KERNEL,
        &fold::squares_cols_shared::KERNEL,
    ],
    is_wide: true,
    grad: |[x, dy], _| dy.mul(&x.to_dtype(dy.dtype())?)?.mul_scalar(2.0)?.to_dtype(x.dtype()),
};

/// Numbers as they are, and nothing for NaN.
pub(super) static NUMBERS: FoldRow = FoldRow {
    name: "nansum",
    kernels: [
        &fold::numbers_rows::KERNEL,
        &fold::numbers_cols::KERNEL,
        &fold::numbers_rows_shared::KERNEL,
        &fold::numbers_cols_shared::KERNEL,
    ],
    is_wide: false,
    grad: |[x, dy], _| x.isnan()?.where_(&dy.zeros_like()?, dy),
};

/// The sum of a row over some dimensions.
pub(super) struct Folded {
    pub(super) row: &'static FoldRow,
    pub(super) dims: Dims,
    /// The operand's shape.
    pub(super) from: Vec<usize>,
}

impl Op for Folded {
    fn name(&self) -> &'static str {
        self.row.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (dtype, device) = (inputs[0].dtype(), inputs[0].device());
        let wide = launch::accumulate_dtype(dtype);
        let result = if self.row.is_wide { wide } else { dtype };
        self.dims.reduced(inputs[0], |x| {
            let y = Tensor::uninitialized(&[x.shape()[0], x.shape()[2]], (result, device))?;
            launch::fold(self.row.kernels, &[dtype, wide], wide, x, &y)?;
            Ok(y)
        })
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dy = dy.reshape(&self.dims.kept(&self.from))?.broadcast_to(&self.from)?;
        Ok(vec![Some(composite(self.row.name, &[], [saved.input(0), &dy], self.row.grad)?)])
    }
}

/// What a norm of some order takes the root of.
fn folded(x: &Tensor, numbers: &[f64]) -> Result<Tensor> {
    let ([p], keep, dims) = axes_of(numbers);
    let x = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
    match p {
        0.0 => x.ne_scalar(0.0)?.to_dtype(x.dtype())?.sum_dims(&dims, keep),
        1.0 => x.abs()?.sum_dims(&dims, keep),
        2.0 => x.square()?.sum_dims(&dims, keep),
        f64::INFINITY => x.abs()?.max_dims(&dims, keep),
        f64::NEG_INFINITY => x.abs()?.min_dims(&dims, keep),
        _ => x.abs()?.pow_scalar(p)?.sum_dims(&dims, keep),
    }
}

/// The root of what [`folded`] gives.
fn rooted(y: &Tensor, p: f64) -> Result<Tensor> {
    match p {
        2.0 => root(y),
        _ => y.pow_scalar(1.0 / p),
    }
}

/// The square root, whose gradient at 0 is 0.
#[track_caller]
pub(super) fn root(x: &Tensor) -> Result<Tensor> {
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
    const NAME: &str = "cumprod";
    let zeros =
        composite(NAME, &[], [x], |[x], _| x.eq_scalar(0.0)?.to_dtype(DType::I64))?.cumsum(-1)?;
    let without = composite(NAME, &[], [x, &zeros], |[x, zeros], _| {
        let one = Tensor::ones(&[], (x.dtype(), x.device()))?;
        is_first(x, zeros)?.where_(&one, x)
    })?;
    let usual = cumsum_from_end(&dy.mul(y)?)?;
    let at_zero = cumsum_from_end(&dy.mul(&without.cumprod(-1)?)?)?;
    composite(NAME, &[], [x, &zeros, &usual, &at_zero], |[x, zeros, usual, at_zero], _| {
        let one = Tensor::ones(&[], (x.dtype(), x.device()))?;
        let zero = Tensor::zeros(&[], (x.dtype(), x.device()))?;
        let usual = usual.div(&x.eq_scalar(0.0)?.where_(&one, x)?)?;
        let usual = zeros.eq_scalar(0.0)?.where_(&usual, &zero)?;
        is_first(x, zeros)?.where_(at_zero, &usual)
    })
}

/// Whether an element is the first zero of its row, by how many there are up to it.
#[track_caller]
fn is_first(x: &Tensor, zeros: &Tensor) -> Result<Tensor> {
    x.eq_scalar(0.0)?.logical_and(&zeros.eq_scalar(1.0)?)
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
