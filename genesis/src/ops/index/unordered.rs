//! Writes and reductions at places that need no order: extremes, writes no two of which meet, and sums where
//! [`use_deterministic_algorithms`] is off.

use std::sync::atomic::{AtomicBool, Ordering};

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::sorting::{INDEXED, UNORDERED_COLUMNS, UNORDERED_ROWS};
use kernels::unordered as device;

use super::flag;
use crate::error::Result;
use crate::launch;
use crate::tensor::Tensor;

static IS_DETERMINISTIC: AtomicBool = AtomicBool::new(true);

/// Whether sums at indices are added up in a fixed order, which is so from the start.
///
/// Off, `scatter_add`, `index_add`, `index_put` with `accumulate`, `put`, `scatter_reduce` by sums and means, and the
/// gradients of reads by an index may add floats on a GPU by atomics: without a sort, and rounded in another order
/// each time. Many long rows are sorted all the same, which takes less time. What is off is off for all threads.
///
/// # Examples
/// ```
/// genesis::use_deterministic_algorithms(false);
/// assert!(!genesis::are_deterministic_algorithms_enabled());
/// # genesis::use_deterministic_algorithms(true);
/// ```
pub fn use_deterministic_algorithms(mode: bool) {
    IS_DETERMINISTIC.store(mode, Ordering::Relaxed);
}

/// What [`use_deterministic_algorithms`] was last called with; true before.
pub fn are_deterministic_algorithms_enabled() -> bool {
    IS_DETERMINISTIC.load(Ordering::Relaxed)
}

/// Whether sums of values are added up in any order.
pub(super) fn is_unordered(values: &Tensor) -> bool {
    let is_float = values.dtype().is_arithmetic_float();
    is_float && values.device() != Device::Cpu && !are_deterministic_algorithms_enabled()
}

/// Launches a kernel that has a program for each [`INDEXED`] elements of a vector.
fn launch_of(
    kernel: &'static KernelDef,
    count: usize,
    out: &Tensor,
    dtypes: &[DType],
    args: &[Arg],
) -> Result<()> {
    let grid = Grid::x(count.div_ceil(INDEXED));
    launch::warped(kernel, out, grid, dtypes, &[INDEXED as i64], None, args)
}

fn number(value: usize) -> Arg {
    launch::number(DType::I64, value as f64)
}

/// Sums of `n` places in any order; values and places are dense vectors.
#[track_caller]
pub(super) fn add_at(values: &Tensor, places: &Tensor, n: usize) -> Result<Tensor> {
    let wide = launch::accumulate_dtype(values.dtype());
    let sums = Tensor::zeros(&[n], (wide, values.device()))?;
    if values.numel() > 0 && n > 0 {
        let args = [
            launch::view_of(places, false),
            launch::view_of(values, false),
            launch::pointer(&sums, true),
            number(n),
        ];
        let dtypes = [values.dtype(), wide];
        launch_of(&device::add_unordered::KERNEL, values.numel(), &sums, &dtypes, &args)?;
    }
    sums.to_dtype(values.dtype())
}

/// Rows `[N, C]` added to those of `[n, C]` that an index names, in any order.
#[track_caller]
pub(super) fn add_rows(index: &Tensor, rows: &Tensor, n: usize) -> Result<Tensor> {
    let wide = launch::accumulate_dtype(rows.dtype());
    let [count, columns] = [rows.shape()[0], rows.shape()[1]];
    let sums = Tensor::zeros(&[n, columns], (wide, rows.device()))?;
    if rows.numel() > 0 && n > 0 {
        let args = [
            launch::view_of(index, false),
            launch::view_of(rows, false),
            launch::pointer(&sums, true),
            number(n),
        ];
        let tiles = count.div_ceil(UNORDERED_ROWS) * columns.div_ceil(UNORDERED_COLUMNS);
        let consts = [UNORDERED_ROWS as i64, UNORDERED_COLUMNS as i64];
        let (kernel, dtypes) = (&device::add_rows_unordered::KERNEL, [rows.dtype(), wide]);
        launch::warped(kernel, &sums, Grid::x(tiles), &dtypes, &consts, None, &args)?;
    }
    sums.to_dtype(rows.dtype())
}

/// A vector of `n` zeros with values written at places, no two of which are equal.
#[track_caller]
pub(super) fn written_once(values: &Tensor, places: &Tensor, n: usize) -> Result<Tensor> {
    let (values, places) = (values.ravel()?.contiguous()?, places.ravel()?.contiguous()?);
    let y = Tensor::zeros(&[n], (values.dtype(), values.device()))?;
    if values.numel() > 0 && n > 0 {
        let args = [
            launch::view_of(&places, false),
            launch::view_of(&values, false),
            launch::pointer(&y, true),
            number(n),
        ];
        launch_of(&device::put_once::KERNEL, values.numel(), &y, &[values.dtype()], &args)?;
    }
    Ok(y)
}

/// How values of a dtype become keys, the largest of which is sought.
struct Keys {
    dtype: DType,
    /// What floats are computed in; none of integers.
    float: Option<DType>,
    /// The sign of floats, or the bits of integers that are turned around.
    turn: Arg,
}

impl Keys {
    fn of(dtype: DType, is_max: bool) -> Keys {
        if dtype.is_float() {
            let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
            let key = if wide == DType::F64 { DType::I64 } else { DType::I32 };
            let turn = launch::number(wide, if is_max { 1.0 } else { -1.0 });
            return Keys { dtype: key, float: Some(wide), turn };
        }
        let is_long = matches!(dtype, DType::U32 | DType::I64 | DType::U64);
        let key = if is_long { DType::I64 } else { DType::I32 };
        let sign = if dtype == DType::U64 { i64::MIN } else { 0 };
        let flip = if is_max { sign } else { !sign };
        Keys { dtype: key, float: None, turn: Arg::Scalar(Scalar::int(key, flip)) }
    }

    /// The dtypes of a kernel on values of one.
    fn dtypes(&self, dtype: DType) -> Vec<DType> {
        [Some(dtype), self.float, Some(self.dtype)].into_iter().flatten().collect()
    }

    /// One of a kernel of floats and one of integers.
    fn pick(&self, float: &'static KernelDef, int: &'static KernelDef) -> &'static KernelDef {
        if self.float.is_some() { float } else { int }
    }
}

/// Where values meet those of a tensor: at an index of its rank along an axis, of at most four axes.
pub(super) struct Meeting<'t> {
    pub(super) op: &'static str,
    pub(super) axis: usize,
    pub(super) index: &'t Tensor,
    pub(super) values: &'t Tensor,
}

/// Adds the values that meet each element of dense `sums` to it, whose dtype is that of their sums, in any order; false where
/// there are too many axes for a launch.
#[track_caller]
pub(super) fn add_along(sums: &Tensor, at: &Meeting<'_>) -> Result<bool> {
    if at.values.numel() == 0 || sums.numel() == 0 {
        return Ok(true);
    }
    let flag = flag::args(at.op, sums.device(), sums.shape()[at.axis])?;
    let kernel = (&device::add_along::KERNEL, &[at.values.dtype(), sums.dtype()][..]);
    let met = (at.index, Some(at.values));
    let is_done = launch::along::changed_along(kernel, sums, at.axis, met, &flag)?;
    flag::refuse(sums.device())?;
    Ok(is_done)
}

/// The largest or smallest of the values that meet each element of `x`, which counts too unless `include_self` is false
/// and there is a value; NaN before all.
#[track_caller]
pub(super) fn extreme(
    x: &Tensor,
    at: &Meeting<'_>,
    is_max: bool,
    include_self: bool,
) -> Result<Tensor> {
    if x.dtype() == DType::Bool {
        let values = &at.values.to_dtype(DType::U8)?;
        let y = extreme(&x.to_dtype(DType::U8)?, &Meeting { values, ..*at }, is_max, include_self);
        return y?.to_dtype(DType::Bool);
    }
    let flat = x.contiguous()?.reshape(&[x.numel()])?;
    let (n, how) = (x.numel(), Keys::of(x.dtype(), is_max));
    let dtypes = how.dtypes(x.dtype());
    let keys = Tensor::uninitialized(x.shape(), (how.dtype, x.device()))?;
    let y = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
    if n == 0 {
        return Ok(y);
    }
    let line = keys.reshape(&[n])?;
    let args = [launch::view_of(&flat, false), launch::view_of(&line, true), how.turn];
    let kernel = how.pick(&device::keys_of_floats::KERNEL, &device::keys_of_ints::KERNEL);
    launch_of(kernel, n, &keys, &dtypes, &args)?;
    if at.values.numel() > 0 {
        let [words, code] = flag::args(at.op, x.device(), x.shape()[at.axis])?;
        if !include_self {
            let kernel = (&device::forget_along::KERNEL, &[how.dtype][..]);
            let last = [words, code];
            launch::along::changed_along(kernel, &keys, at.axis, (at.index, None), &last)?;
        }
        let kernel =
            how.pick(&device::float_extreme_along::KERNEL, &device::int_extreme_along::KERNEL);
        let (met, last) = ((at.index, Some(at.values)), [how.turn, words, code]);
        launch::along::changed_along((kernel, &dtypes), &keys, at.axis, met, &last)?;
        flag::refuse(x.device())?;
    }
    let out = y.reshape(&[n])?;
    let args = [launch::view_of(&line, false), launch::view_of(&out, true), how.turn];
    let kernel = how.pick(&device::floats_of_keys::KERNEL, &device::ints_of_keys::KERNEL);
    launch_of(kernel, n, &y, &dtypes, &args)?;
    Ok(y)
}
