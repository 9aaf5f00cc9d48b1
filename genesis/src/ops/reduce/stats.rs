//! Statistics along a dimension: medians, modes, quantiles, counts, reductions that leave NaN out.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use genesis_kernel::tuning::rows::step_of_row;

use super::fold::{Folded, NUMBERS, axes_of, has_kernels, over};
use super::sum::Dims;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{apply, composite};
use crate::shape;
use crate::tensor::Tensor;

impl Tensor {
    /// The smallest and the largest element over `dims`; NaN wins.
    ///
    /// # Errors
    /// As [`Tensor::min_dims`].
    #[track_caller]
    pub fn aminmax(&self, dims: &[i64], keep: bool) -> Result<(Tensor, Tensor)> {
        Ok((self.min_dims(dims, keep)?, self.max_dims(dims, keep)?))
    }

    /// How many elements over `dims` are not zero; i64.
    ///
    /// # Errors
    /// If there are no such dimensions or one is named twice.
    #[track_caller]
    pub fn count_nonzero(&self, dims: &[i64]) -> Result<Tensor> {
        self.to_bool()?.sum_dims(dims, false)
    }

    /// The sum over `dims` of what is not NaN.
    ///
    /// # Errors
    /// As [`Tensor::sum_dims`].
    #[track_caller]
    pub fn nansum(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.sum_dims(dims, keep);
        }
        if has_kernels(self) {
            let dims = Dims::new("sum", dims, keep, self.shape())?;
            return apply(Folded { row: &NUMBERS, dims, from: self.shape().to_vec() }, &[self]);
        }
        composite("nansum", &over(&[], dims, keep), [self], |[x], n| {
            let ([], keep, dims) = axes_of(n);
            x.detach().isnan()?.where_(&x.zeros_like()?, x)?.sum_dims(&dims, keep)
        })
    }

    /// The mean over `dims` of what is not NaN; NaN where there is nothing else.
    ///
    /// # Errors
    /// As [`Tensor::mean_dims`].
    #[track_caller]
    pub fn nanmean(&self, dims: &[i64], keep: bool) -> Result<Tensor> {
        if !self.dtype().is_arithmetic_float() {
            return self.mean_dims(dims, keep);
        }
        let wide = self.to_dtype(crate::launch::accumulate_dtype(self.dtype()))?;
        let count = wide.isnan()?.logical_not()?.sum_dims(dims, keep)?.to_dtype(wide.dtype())?;
        wide.nansum(dims, keep)?.div(&count)?.to_dtype(self.dtype())
    }

    /// The middle element along `dim` and where it stands, of an even number the lower one. NaN wins.
    ///
    /// # Errors
    /// If there is no such dimension, it is empty, or the dtype is bool.
    #[track_caller]
    pub fn median_dim(&self, dim: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        let n = self.extent_of("median", dim)?;
        self.ranked("median", (n.max(1) - 1) / 2, dim, keep, true)
    }

    /// The middle element of all, of an even number the lower one. NaN wins; it is NaN of none.
    ///
    /// # Errors
    /// If the dtype is bool, or an integer of which there are none.
    #[track_caller]
    pub fn median(&self) -> Result<Tensor> {
        if self.numel() == 0 && self.dtype().is_float() {
            return Tensor::full(&[], f64::NAN, (self.dtype(), self.device()));
        }
        Ok(self.ravel()?.median_dim(0, false)?.0)
    }

    /// [`Tensor::median_dim`] of what is not NaN; NaN where there is nothing else.
    ///
    /// # Errors
    /// As [`Tensor::median_dim`].
    #[track_caller]
    pub fn nanmedian_dim(&self, dim: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        const NAME: &str = "nanmedian";
        if !self.dtype().is_float() {
            return self.median_dim(dim, keep);
        }
        if self.extent_of(NAME, dim)? == 0 {
            let message = format!("has no value over no elements, shape {:?}", self.shape());
            return Err(Error::op(NAME, message));
        }
        let (x, axis) = self.with_axis(dim)?;
        let rank = composite(NAME, &[axis as f64], [&x.detach()], |[x], n| {
            let count = x.isnan()?.logical_not()?.sum_dims(&[n[0] as i64], true)?;
            count.sub_scalar(1.0)?.maximum_scalar(0.0)?.floor_divide_scalar(2.0)
        })?;
        let index = x.index_of_ranks(&rank, axis)?;
        self.picked(&x, axis, index, keep)
    }

    /// [`Tensor::median`] of what is not NaN; NaN where there is nothing else.
    ///
    /// # Errors
    /// As [`Tensor::median`].
    #[track_caller]
    pub fn nanmedian(&self) -> Result<Tensor> {
        if self.numel() == 0 {
            return self.median();
        }
        Ok(self.ravel()?.nanmedian_dim(0, false)?.0)
    }

    /// The `k`-th smallest element along `dim`, counted from 1, and where it stands. NaN counts as
    /// larger than all numbers.
    ///
    /// # Errors
    /// If there is no such dimension, it has no `k` elements, or the dtype is bool.
    #[track_caller]
    pub fn kthvalue(&self, k: usize, dim: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        let n = self.extent_of("kthvalue", dim)?;
        if k == 0 || k > n {
            let message = format!("has no {k} of {n} elements, shape {:?}", self.shape());
            return Err(Error::op("kthvalue", message));
        }
        self.ranked("kthvalue", k - 1, dim, keep, false)
    }

    /// The most frequent element along `dim`, of several the smallest, and where it stands last.
    ///
    /// # Errors
    /// If there is no such dimension or it is empty.
    #[track_caller]
    pub fn mode(&self, dim: i64, keep: bool) -> Result<(Tensor, Tensor)> {
        let n = self.extent_of("mode", dim)?;
        if n == 0 {
            let message = format!("has no value over no elements, shape {:?}", self.shape());
            return Err(Error::op("mode", message));
        }
        let (x, axis) = self.with_axis(dim)?;
        let (sorted, order) = x.detach().movedim(&[axis], &[-1])?.sort(-1, false)?;
        let index = last_of_longest_run(&sorted, &order)?.movedim(&[-1], &[axis])?;
        self.picked(&x, axis, index, keep)
    }

    /// The number below which a share `q` of the elements along `dim` lies, between two elements in
    /// proportion. NaN wins.
    ///
    /// # Errors
    /// If `q` is not in `[0, 1]`, there is no such dimension, it is empty, or the dtype is not f32 or f64.
    #[track_caller]
    pub fn quantile(&self, q: f64, dim: i64, keep: bool) -> Result<Tensor> {
        const NAME: &str = "quantile";
        if !(0.0..=1.0).contains(&q) {
            return Err(Error::op(NAME, format!("q must be in [0, 1], got {q}")));
        }
        if !matches!(self.dtype(), DType::F32 | DType::F64) {
            return Err(Error::op(NAME, format!("needs f32 or f64, got {}", self.dtype())));
        }
        let n = self.extent_of(NAME, dim)?;
        if n == 0 {
            let message = format!("has no value over no elements, shape {:?}", self.shape());
            return Err(Error::op(NAME, message));
        }
        let place = q * (n - 1) as f64;
        let below = self.ranked(NAME, place.floor() as usize, dim, keep, true)?.0;
        let above = self.ranked(NAME, place.ceil() as usize, dim, keep, true)?.0;
        let weight = Tensor::full(&[], place.fract(), (self.dtype(), self.device()))?;
        below.lerp(&above, &weight)
    }

    /// How many elements fall into each of `bins` ranges of one width between `low` and `high`; equal
    /// bounds mean the smallest and the largest element. Others, and NaN, are not counted.
    ///
    /// # Errors
    /// If there are no bins, the bounds are not finite or the wrong way round, or the dtype is no float.
    #[track_caller]
    pub fn histc(&self, bins: usize, low: f64, high: f64) -> Result<Tensor> {
        const NAME: &str = "histc";
        if !self.dtype().is_arithmetic_float() {
            return Err(crate::ops::wrong_dtype(NAME, "a float", self.dtype()));
        }
        let x = self.detach().ravel()?;
        let (mut low, mut high) = (low, high);
        if low == high && x.numel() > 0 {
            (low, high) = (x.min()?.item()?, x.max()?.item()?);
        }
        if low == high {
            (low, high) = (low - 1.0, high + 1.0);
        }
        if bins == 0 || !low.is_finite() || !high.is_finite() || low > high {
            let message = format!("{bins} bins from {low} to {high} hold nothing");
            return Err(Error::op(NAME, message));
        }
        let place = composite(NAME, &[low, high, bins as f64], [&x], |[x], n| {
            let wide = x.to_dtype(DType::F64)?;
            let inside = wide.ge_scalar(n[0])?.logical_and(&wide.le_scalar(n[1])?)?;
            let bin = wide.sub_scalar(n[0])?.mul_scalar(n[2])?.div_scalar(n[1] - n[0])?.floor()?;
            let bin = bin.minimum_scalar(n[2] - 1.0)?;
            // A place below 0 is written by nobody.
            inside.where_(&bin, &bin.zeros_like()?.sub_scalar(1.0)?)?.to_dtype(DType::I64)
        })?;
        let ones = Tensor::ones(place.shape(), (DType::I64, x.device()))?;
        crate::ops::index::add_at(&ones, &place, bins)?.to_dtype(self.dtype())
    }

    /// How often each integer from 0 to the largest occurs, or the sums of `weights` at them; at least
    /// `least` of them. Waits for the device.
    ///
    /// # Errors
    /// If this is no vector of integers, one is negative, or the weights are not as many.
    #[track_caller]
    pub fn bincount(&self, weights: Option<&Tensor>, least: usize) -> Result<Tensor> {
        const NAME: &str = "bincount";
        if self.rank() != 1 || !self.dtype().is_int() {
            let message = format!("needs a vector of integers, got {:?}", self.tensor_type());
            return Err(Error::op(NAME, message));
        }
        let index = self.detach().to_dtype(DType::I64)?;
        let ones = Tensor::ones(self.shape(), (DType::I64, self.device()))?;
        let weights = match weights {
            Some(weights) if weights.shape() != self.shape() => {
                let message = format!("{:?} weights for shape {:?}", weights.shape(), self.shape());
                return Err(Error::op(NAME, message));
            }
            // As in PyTorch all weights but f32 are added in f64.
            Some(w) if w.dtype() == DType::F32 => w.detach(),
            Some(w) => w.detach().to_dtype(DType::F64)?,
            None => ones,
        };
        if self.numel() == 0 {
            return Tensor::zeros(&[least], (DType::I64, self.device()));
        }
        let (low, high) = (index.min()?.item()?, index.max()?.item()?);
        if low < 0.0 {
            return Err(Error::op(NAME, format!("counts no negative numbers, got {low}")));
        }
        crate::ops::index::add_at(&weights, &index, (high as usize + 1).max(least))
    }

    /// The extent along `dim`, of a scalar 1.
    fn extent_of(&self, op: &str, dim: i64) -> Result<usize> {
        let axis = shape::axis_or_scalar(op, dim, self.shape())?;
        Ok(self.shape().get(axis).copied().unwrap_or(1))
    }

    /// This tensor, a scalar as a vector, and the axis of a dimension that is known to be there.
    #[track_caller]
    fn with_axis(&self, dim: i64) -> Result<(Tensor, i64)> {
        let x = if self.rank() == 0 { self.reshape(&[1])? } else { self.clone() };
        let axis = shape::axis("dim", dim, x.shape())? as i64;
        Ok((x, axis))
    }

    /// The element of this rank along `dim`, from 0; where `nan_wins` NaN, if there is one.
    #[track_caller]
    fn ranked(
        &self,
        op: &str,
        rank: usize,
        dim: i64,
        keep: bool,
        nan_wins: bool,
    ) -> Result<(Tensor, Tensor)> {
        if !self.dtype().is_number() {
            return Err(crate::ops::wrong_dtype(op, "a number", self.dtype()));
        }
        let (x, axis) = self.with_axis(dim)?;
        if x.dim(axis)? == 0 {
            let message = format!("has no value over no elements, shape {:?}", self.shape());
            return Err(Error::op(op, message));
        }
        let mut index = x.index_of_rank(rank, axis)?;
        if nan_wins && x.dtype().is_float() {
            // NaN is larger than all numbers there.
            let first = x.detach().argmax(axis)?.unsqueeze(axis)?;
            let top = x.detach().gather(axis, &first)?;
            index = composite("median", &[], [&top, &first, &index], |[top, first, index], _| {
                top.isnan()?.where_(first, index)
            })?;
        }
        self.picked(&x, axis, index.contiguous()?, keep)
    }

    /// The elements at an index of extent 1 along an axis, and the index, in the shape asked for.
    #[track_caller]
    fn picked(&self, x: &Tensor, axis: i64, index: Tensor, keep: bool) -> Result<(Tensor, Tensor)> {
        let value = x.gather(axis, &index)?;
        if keep && self.rank() > 0 {
            return Ok((value, index));
        }
        Ok((value.squeeze(axis)?, index.squeeze(axis)?))
    }
}

/// Where the longest run of each sorted row ended before the sort, `[.., 1]`.
#[track_caller]
fn last_of_longest_run(sorted: &Tensor, order: &Tensor) -> Result<Tensor> {
    let n = sorted.dim(-1)?;
    let sorted = match sorted.dtype() {
        DType::Bool => sorted.as_bytes(),
        dtype if dtype.is_f8() => sorted.to_dtype(DType::F32)?,
        _ => sorted.clone(),
    };
    let mut shape = sorted.shape().to_vec();
    shape.pop();
    shape.push(1);
    let m = shape::product(shape.iter());
    let at = Tensor::uninitialized(&[m], (DType::I64, sorted.device()))?;
    if m > 0 {
        let (rows, order) = (sorted.reshape(&[m, n])?, order.reshape(&[m, n])?);
        let tensors = [(&rows, false), (&order, false), (&at, true)];
        let (grid, consts) = (Grid::x(m), [step_of_row(n) as i64]);
        let kernel = &kernels::mode::longest_run::KERNEL;
        launch::views(kernel, grid, &[rows.dtype()], &consts, &tensors, &[])?;
    }
    at.reshape(&shape)
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{
        Family, OpInfo, WIDE, columns, cpu, folded, largest, scalar, smallest, sorted, variance,
        vector,
    };

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "median_dim",
            Family::Exact,
            |x| Ok(x[0].median_dim(0, false)?.0),
            |x| folded(&x[0], |c| sorted(c)[(c.len() - 1) / 2]),
            &[&[&[8, 3]]],
        )
        .peer("torch.median(x[0], 0)[0]")
        .refusing(&[(
            || Ok(cpu(&[2, 0], DType::F32)?.median_dim(1, false)?.0),
            "median: has no value over no elements, shape [2, 0]",
        )]),
        OpInfo::new(
            "nanmedian",
            Family::Exact,
            |x| Ok(x[0].nanmedian_dim(0, false)?.0),
            |x| folded(&x[0], |c| sorted(c)[(c.len() - 1) / 2]),
            &[&[&[8, 3]]],
        )
        .peer("torch.nanmedian(x[0], 0)[0]")
        .of(WIDE),
        OpInfo::new(
            "kthvalue",
            Family::Exact,
            |x| Ok(x[0].kthvalue(2, 0, true)?.0),
            |x| columns(&x[0], |c| vec![sorted(c)[1]]),
            &[&[&[7, 3]]],
        )
        .peer("torch.kthvalue(x[0], 2, 0, True)[0]")
        .refusing(&[(
            || Ok(cpu(&[2], DType::F32)?.kthvalue(3, 0, false)?.0),
            "kthvalue: has no 3 of 2 elements, shape [2]",
        )]),
        OpInfo::new(
            "mode",
            Family::Exact,
            |x| Ok(x[0].mode(0, false)?.0),
            |x| {
                folded(&x[0], |c| {
                    let count = |v: f64| c.iter().filter(|w| w.floor() == v).count();
                    let mut best = f64::NAN;
                    for v in sorted(c).iter().map(|v| v.floor()) {
                        if best.is_nan() || count(v) > count(best) {
                            best = v;
                        }
                    }
                    best
                })
            },
            &[&[&[9, 3]]],
        )
        .peer("torch.mode(x[0], 0)[0]")
        .whole()
        .of(&[DType::F32, DType::I64])
        .flat(),
        OpInfo::new(
            "quantile",
            Family::Softmax,
            |x| x[0].quantile(0.3, 0, false),
            |x| {
                folded(&x[0], |c| {
                    let (order, place) = (sorted(c), 0.3 * (c.len() - 1) as f64);
                    let (low, high) = (order[place.floor() as usize], order[place.ceil() as usize]);
                    low + (high - low) * place.fract()
                })
            },
            &[&[&[8, 3]]],
        )
        .peer("torch.quantile(x[0], 0.3, 0)")
        .of(WIDE),
        OpInfo::new(
            "count_nonzero",
            Family::Exact,
            |x| x[0].count_nonzero(&[0]),
            |x| folded(&x[0], |c| c.iter().filter(|v| v.floor() != 0.0).count() as f64),
            &[&[&[9, 3]]],
        )
        .peer("torch.count_nonzero(x[0], 0)")
        .whole()
        .flat(),
        OpInfo::new(
            "nansum",
            Family::Sum,
            |x| x[0].log()?.nansum(&[0], false),
            |x| folded(&x[0], |c| c.iter().filter(|v| **v > 0.0).map(|v| v.ln()).sum()),
            &[&[&[9, 3]]],
        )
        .peer("torch.nansum(x[0].log(), 0)")
        .within(-1.0, 3.0)
        .of(WIDE)
        .flat(),
        OpInfo::new(
            "nanmean",
            Family::Softmax,
            |x| x[0].nanmean(&[0], false),
            |x| folded(&x[0], |c| c.iter().sum::<f64>() / c.len() as f64),
            &[&[&[9, 3]]],
        )
        .peer("torch.nanmean(x[0], 0)"),
        OpInfo::new(
            "histc",
            Family::Exact,
            |x| x[0].histc(4, 0.0, 4.0),
            |x| {
                vector(
                    (0..4)
                        .map(|bin| {
                            x[0].data.iter().filter(|v| v.floor() == f64::from(bin)).count() as f64
                        })
                        .collect(),
                )
            },
            &[&[&[30]]],
        )
        .peer("torch.histc(x[0], 4, 0.0, 4.0)")
        .of(WIDE)
        .flat(),
        OpInfo::new(
            "bincount",
            Family::Exact,
            |x| x[0].bincount(None, 6),
            |x| {
                vector(
                    (0..6)
                        .map(|n| x[0].data.iter().filter(|v| **v == f64::from(n)).count() as f64)
                        .collect(),
                )
            },
            &[&[&[30]]],
        )
        .peer("torch.bincount(x[0], None, 6)")
        .of(&[DType::I64, DType::U8])
        .flat()
        .refusing(&[
            (
                || cpu(&[2], DType::F32)?.bincount(None, 0),
                "bincount: needs a vector of integers, got TensorType { shape: [2], dtype: F32 }",
            ),
            (
                || cpu(&[2], DType::I64)?.sub_scalar(1.0)?.bincount(None, 0),
                "bincount: counts no negative numbers, got -1",
            ),
        ]),
        OpInfo::new(
            "std_mean",
            Family::Softmax,
            |x| x[0].std_mean(&[0], 0.0, false)?.0.add(&x[0].var_mean(&[0], 0.0, false)?.1),
            |x| {
                folded(&x[0], |c| {
                    let mean = c.iter().sum::<f64>() / c.len() as f64;
                    let var = c.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / c.len() as f64;
                    var.sqrt() + mean
                })
            },
            &[&[&[9, 3]]],
        )
        .peer(
            "torch.std_mean(x[0], 0, correction=0)[0] + torch.var_mean(x[0], 0, \
             correction=0)[1]",
        )
        .of(WIDE),
        OpInfo::new(
            "var_mean",
            Family::Softmax,
            |x| Ok(x[0].var_mean(&[0], 1.0, false)?.0),
            |x| folded(&x[0], |c| variance(c, 1.0)),
            &[&[&[9, 3]]],
        )
        .peer("torch.var_mean(x[0], 0)[0]")
        .of(WIDE),
        OpInfo::new(
            "aminmax",
            Family::Exact,
            |x| {
                let (low, high) = x[0].aminmax(&[0], false)?;
                high.sub(&low)
            },
            |x| folded(&x[0], |c| largest(c) - smallest(c)),
            &[&[&[9, 3]]],
        )
        .peer("torch.sub(*torch.aminmax(x[0], dim=0)[::-1])")
        .of(&[DType::F32, DType::F64, DType::I64]),
        OpInfo::new(
            "median",
            Family::Exact,
            |x| x[0].median(),
            |x| scalar(sorted(&x[0].data)[7]),
            &[&[&[4, 4]]],
        ),
        OpInfo::new(
            "nanmedian/all",
            Family::Exact,
            |x| x[0].nanmedian(),
            |x| scalar(sorted(&x[0].data)[7]),
            &[&[&[4, 4]]],
        )
        .peer("torch.nanmedian(x[0])")
        .of(WIDE),
    ];
}
