//! Launches of sums and extremes over the middle axis of `[outer, n, inner]`.
//!
//! Where there are fewer results than keep a GPU busy, several programs share one sum, and the last
//! of them to finish adds their partial sums up in a fixed order: one launch, the same bits always.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::launch_at_once;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::multiprocessor::MAX_GRID_YZ;
use genesis_kernel::tuning::reductions::{MAX_SHARED, Reduction, RowTile};
use kernels::{moments, reduce as device, scan as device_scan};

use super::config::chip;
use super::upright::upright;
use super::{accumulate_dtype, launch_with, number, own_view, pointer, scalar, view};
use crate::dispatch::trace;
use crate::error::Result;
use crate::shape::contiguous_strides;
use crate::tensor::Tensor;

/// `y = scale * sum(x)` over the middle axis of `x: [outer, n, inner]`, with a dense `y: [outer, inner]`
/// of any dtype.
pub(crate) fn sum(x: &Tensor, y: &Tensor, scale: f64) -> Result<()> {
    if trace::records(y) {
        return trace::sum(x, y, scale);
    }
    // Small integers are added as wide as their sum is.
    let wide = if x.dtype().is_float() { accumulate_dtype(x.dtype()) } else { y.dtype() };
    let dtypes = [x.dtype(), wide, y.dtype()];
    let number = scalar(wide, scale);
    let (outer, n, inner) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    if outer * inner == 0 {
        return Ok(());
    }
    let cut = Reduction::of(&chip(x.device()), [outer, n, inner], x.dtype().bytes());
    if cut.parts == 1 {
        let kernels = (&device::sum_rows::KERNEL, &device::sum_cols::KERNEL);
        return alone(kernels, cut, &dtypes, x, y, &[number]);
    }
    let kernels = [&device::sum_rows_shared::KERNEL, &device::sum_cols_shared::KERNEL];
    shared(kernels, cut, &dtypes, wide, x, y, &[number])
}

/// The kernels of a reduction: of rows, of columns, and those whose programs share a result.
pub(crate) type Fold = [&'static KernelDef; 4];

/// What `fold` makes of the middle axis of `x: [outer, n, inner]`, with a dense `y: [outer, inner]`; `dtypes` are those
/// of the kernels, and `wide` is the one that parts of a result are kept in.
pub(crate) fn fold(
    fold: Fold,
    dtypes: &[DType],
    wide: DType,
    x: &Tensor,
    y: &Tensor,
) -> Result<()> {
    if y.numel() == 0 {
        return Ok(());
    }
    let [rows, cols, rows_shared, cols_shared] = fold;
    let bytes = x.dtype().bytes().max(wide.bytes()).max(2);
    let shape = [0, 1, 2].map(|axis| x.shape()[axis]);
    let cut = Reduction::of(&chip(x.device()), shape, bytes);
    if cut.parts == 1 {
        return alone((rows, cols), cut, dtypes, x, y, &[]);
    }
    shared([rows_shared, cols_shared], cut, dtypes, wide, x, y, &[])
}

/// The extreme over the middle axis of `x: [outer, n, inner]`, with `y: [outer, inner]`.
pub(crate) fn extreme(kernels: Fold, x: &Tensor, y: &Tensor) -> Result<()> {
    if trace::records(y) {
        return trace::extreme(kernels, x, y);
    }
    fold(kernels, &[x.dtype()], x.dtype(), x, y)
}

/// Results that several programs share, by kernels for rows and for columns.
fn shared(
    [rows, cols]: [&'static KernelDef; 2],
    cut: Reduction,
    dtypes: &[DType],
    wide: DType,
    x: &Tensor,
    y: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    let (outer, inner) = (x.shape()[0], x.shape()[2]);
    let done = counters(x.device(), cut.tiles(outer, inner))?;
    let done = pointer(&done, true);
    let most = cut.parts.next_power_of_two() as i64;
    let partial = Tensor::uninitialized(&cut.of_parts(outer, inner), (wide, x.device()))?;
    let partial = own_view(&partial, true);
    let run = |kernel, grid, consts: &[i64], ends: [Arg; 2]| {
        let args = [&[ends[0], partial, done, ends[1]], numbers].concat();
        launch_with(kernel, y, grid, dtypes, consts, cut.warps, &args)
    };
    if inner == 1 {
        let consts = [cut.cols as i64, most];
        return run(rows, Grid::xy(cut.parts, outer), &consts, [line(x), results(y)]);
    }
    let grid = Grid::xyz(inner.div_ceil(cut.cols), outer, cut.parts);
    let consts = [cut.rows as i64, cut.cols as i64, most];
    run(cols, grid, &consts, [own_view(x, false), table(y, outer, inner)])
}

/// The kernels of variances: of rows, of columns, and those whose programs share a result.
const VARIANCE: Fold = [
    &moments::var_rows::KERNEL,
    &moments::var_cols::KERNEL,
    &moments::var_rows_shared::KERNEL,
    &moments::var_cols_shared::KERNEL,
];

/// Squared deviations from the mean over the middle axis of `x: [outer, n, inner]`, divided by `divisor`, with `root`
/// the square root of that, and the mean; both dense, `[outer, inner]`.
pub(crate) fn variance(
    x: &Tensor,
    [var, mean]: [&Tensor; 2],
    divisor: f64,
    root: bool,
) -> Result<()> {
    let (outer, n, inner) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    if outer * inner == 0 {
        return Ok(());
    }
    let wide = accumulate_dtype(x.dtype());
    let dtypes = [x.dtype(), wide, var.dtype()];
    // Two numbers are kept for each element of a tile.
    let mut cut = Reduction::of(&chip(x.device()), [outer, n, inner], 2 * wide.bytes());
    if inner == 1 && cut.cols * cut.rows > 4096 {
        cut.cols = 4096;
    }
    let (number, root) = (scalar(wide, divisor), i64::from(root));
    let [rows, cols, rows_shared, cols_shared] = VARIANCE;
    let is_rows = inner == 1;
    if cut.parts == 1 {
        let consts = [cut.rows as i64, cut.cols as i64, root];
        if is_rows {
            let args = [line(x), results(var), results(mean), number];
            let grid = Grid::x(outer.div_ceil(cut.rows));
            return launch_with(rows, var, grid, &dtypes, &consts, cut.warps, &args);
        }
        return by_planes(x, [var, mean], |x, made| {
            let outer = x.shape()[0];
            let [var, mean] = made.map(|t| table(t, outer, inner));
            let grid = Grid::xy(inner.div_ceil(cut.cols), outer);
            let args = [own_view(x, false), var, mean, number];
            launch_with(cols, made[0], grid, &dtypes, &consts, cut.warps, &args)
        });
    }
    let of = |t| if is_rows { results(t) } else { table(t, outer, inner) };
    let (from, var_arg, mean_arg) =
        (if is_rows { line(x) } else { own_view(x, false) }, of(var), of(mean));
    let done = counters(x.device(), cut.tiles(outer, inner))?;
    let parts = || Tensor::uninitialized(&cut.of_parts(outer, inner), (wide, x.device()));
    let (means, deviations) = (parts()?, parts()?);
    let [means, deviations] = [&means, &deviations].map(|t| own_view(t, true));
    let args = [from, means, deviations, pointer(&done, true), var_arg, mean_arg, number];
    let (kernel, grid, consts) = match is_rows {
        true => {
            let consts = [cut.cols as i64, cut.parts.next_power_of_two() as i64, root];
            (rows_shared, Grid::xy(cut.parts, outer), consts)
        }
        false => {
            let grid = Grid::xyz(inner.div_ceil(cut.cols), outer, cut.parts);
            (cols_shared, grid, [cut.rows as i64, cut.cols as i64, root])
        }
    };
    launch_with(kernel, var, grid, &dtypes, &consts, cut.warps, &args)
}

/// Rows and columns of a tile of moments that are joined.
const ROWS_OF_MOMENTS: usize = 64;
const COLS_OF_MOMENTS: usize = 32;

/// Variance and mean, `[m]`, of parts of one length by those of each, `[n, m]`: see [`moments::join_moments`]. False on the
/// CPU.
pub(crate) fn join_moments(parts: [&Tensor; 2], joint: [&Tensor; 2]) -> Result<bool> {
    let [var, mean] = parts;
    if !var.device().is_cuda() || var.numel() == 0 {
        return Ok(false);
    }
    let (n, m) = (var.shape()[0], var.shape()[1]);
    let rows = n.next_power_of_two().min(ROWS_OF_MOMENTS);
    let args = [
        own_view(var, false),
        own_view(mean, false),
        own_view(joint[0], true),
        own_view(joint[1], true),
    ];
    let (kernel, grid) = (&moments::join_moments::KERNEL, Grid::x(m.div_ceil(COLS_OF_MOMENTS)));
    let consts = [rows as i64, COLS_OF_MOMENTS as i64];
    launch_with(kernel, joint[0], grid, &[var.dtype()], &consts, None, &args)?;
    Ok(true)
}

/// The most columns of a tile of two tensors.
const COLS_OF_TWO: usize = 4096;

/// The sums over the rows of `dy` and `x: [m, n]`, both dense, that the gradient of a norm is made of, `[2, m]`: see
/// [`moments::slope_sums`]. Each of the dense statistics serves `per` rows. False where rows are too few for a GPU, a
/// program each.
pub(crate) fn slope_sums(
    [dy, x]: [&Tensor; 2],
    [mean, scale]: [&Tensor; 2],
    sums: &Tensor,
    per: usize,
) -> Result<bool> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    let bytes = x.dtype().bytes().max(mean.dtype().bytes());
    let cut = Reduction::of(&chip(x.device()), [m, n, 1], bytes);
    let is_busy = cut.parts == 1 || x.device() == Device::Cpu;
    if dy.dtype() != x.dtype() || !is_busy || m >= 1 << 31 || m * n == 0 {
        return Ok(false);
    }
    let cols = cut.cols.min(COLS_OF_TWO);
    let args = [
        own_view(dy, false),
        own_view(x, false),
        own_view(mean, false),
        own_view(scale, false),
        own_view(sums, true),
        number(DType::I64, per as f64),
    ];
    let (dtypes, consts) = ([x.dtype(), mean.dtype()], [cut.rows as i64, cols as i64]);
    let (kernel, grid) = (&moments::slope_sums::KERNEL, Grid::x(m.div_ceil(cut.rows)));
    launch_with(kernel, sums, grid, &dtypes, &consts, cut.warps, &args)?;
    Ok(true)
}

/// The index of the extreme over the middle axis of `x: [outer, n, inner]`, with a dense `y: [outer, inner]`, by kernels
/// for columns and for shared ones.
pub(crate) fn arg_cols(
    [cols, cols_shared]: [&'static KernelDef; 2],
    x: &Tensor,
    y: &Tensor,
) -> Result<()> {
    let (outer, n, inner) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    // A value and its index for each element of a tile, and what is read.
    let cut = Reduction::of(&chip(x.device()), [outer, n, inner], 2 * x.dtype().bytes().max(4));
    let consts = [cut.rows as i64, cut.cols as i64];
    if cut.parts == 1 {
        return by_planes(x, [y], |x, [y]| {
            let outer = x.shape()[0];
            let args = [own_view(x, false), table(y, outer, inner)];
            let grid = Grid::xy(inner.div_ceil(cut.cols), outer);
            launch_with(cols, y, grid, &[x.dtype()], &consts, cut.warps, &args)
        });
    }
    let (from, to) = (own_view(x, false), table(y, outer, inner));
    let done = counters(x.device(), cut.tiles(outer, inner))?;
    let parts = |dtype| Tensor::uninitialized(&cut.of_parts(outer, inner), (dtype, x.device()));
    let (tops, places) = (parts(x.dtype())?, parts(DType::I32)?);
    let [tops, places] = [&tops, &places].map(|t| own_view(t, true));
    let args = [from, tops, places, pointer(&done, true), to];
    let grid = Grid::xyz(inner.div_ceil(cut.cols), outer, cut.parts);
    let consts = [&consts[..], &[8]].concat();
    launch_with(cols_shared, y, grid, &[x.dtype()], &consts, cut.warps, &args)
}

/// The index of the extreme of each row of `x: [m, n]`.
pub(crate) fn arg_rows(kernel: &'static KernelDef, x: &Tensor, y: &Tensor) -> Result<()> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    let RowTile { rows, cols, warps } =
        RowTile::of_indices(&chip(x.device()), m, n, x.dtype().bytes());
    let copy = upright(x)?;
    let args = [own_view(copy.as_ref().unwrap_or(x), false), results(y)];
    let consts = [rows as i64, cols as i64];
    launch_with(kernel, y, Grid::x(m.div_ceil(rows)), &[x.dtype()], &consts, warps, &args)
}

/// Running sums of the rows of `x: [m, n]`, from the end where `reverse`.
pub(crate) fn cumsum(x: &Tensor, y: &Tensor, reverse: bool) -> Result<()> {
    let kernel = match reverse {
        false => &device_scan::cumsum_rows::KERNEL,
        true => &device_scan::cumsum_rows_reverse::KERNEL,
    };
    // The CPU adds one after the other, where a GPU adds pairs: in f32 that would lose digits.
    let wide = match (x.device(), x.dtype()) {
        (Device::Cpu, DType::F32) => DType::F64,
        (_, dtype) => accumulate_dtype(dtype),
    };
    match parts_of_rows(x) {
        1 => scan(kernel, &[x.dtype(), wide], (x, None), y),
        parts => cumsum_by_parts(x, y, reverse, wide, parts),
    }
}

/// Programs that keep a GPU busy with rows.
const BUSY: usize = 512;
/// Elements of a part of a row, at least.
const PART: usize = 16_384;

/// Into how many parts each row of `x: [m, n]` is cut for a scan: into some where the rows are too few for a GPU.
fn parts_of_rows(x: &Tensor) -> usize {
    let [m, n] = [x.shape()[0], x.shape()[1]];
    if x.device() == Device::Cpu { 1 } else { (n / PART).min(BUSY / m.max(1)).max(1) }
}

/// Running sums of rows in parts: their sums, the running sums of those, and each part from there on.
fn cumsum_by_parts(x: &Tensor, y: &Tensor, reverse: bool, wide: DType, parts: usize) -> Result<()> {
    let [m, n] = [x.shape()[0], x.shape()[1]];
    let cols = 256 * (16 / x.dtype().bytes());
    let part = n.div_ceil(parts).next_multiple_of(cols);
    let parts = n.div_ceil(part);
    let (grid, consts, dtypes) = (Grid::x(m * parts), [cols as i64], [x.dtype(), wide]);
    let length = number(DType::I64, part as f64);
    let sums = Tensor::uninitialized(&[m, parts], (wide, x.device()))?;
    let args = [own_view(x, false), pointer(&sums, true), length];
    launch_with(&device_scan::sum_parts::KERNEL, y, grid, &dtypes, &consts, Some(8), &args)?;
    let before = Tensor::uninitialized(&[m, parts], (wide, x.device()))?;
    cumsum(&sums, &before, reverse)?;
    let kernel = match reverse {
        false => &device_scan::cumsum_parts::KERNEL,
        true => &device_scan::cumsum_parts_reverse::KERNEL,
    };
    let args = [own_view(x, false), own_view(y, true), pointer(&before, false), length];
    launch_with(kernel, y, grid, &dtypes, &consts, Some(8), &args)
}

/// A scan of the rows of `x: [m, n]`, and of another tensor of the same shape where the kernel reads one.
pub(crate) fn scan(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    (x, other): (&Tensor, Option<&Tensor>),
    y: &Tensor,
) -> Result<()> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    let RowTile { rows, cols, warps } =
        RowTile::of_scans(&chip(x.device()), m, n, x.dtype().bytes());
    let consts = [rows as i64, cols as i64];
    let (x_copy, other_copy) = (upright(x)?, other.map(upright).transpose()?.flatten());
    let mut args = vec![own_view(x_copy.as_ref().unwrap_or(x), false), own_view(y, true)];
    args.extend(other_copy.as_ref().or(other).map(|other| own_view(other, false)));
    launch_with(kernel, y, Grid::x(m.div_ceil(rows)), dtypes, &consts, warps, &args)
}

/// One program for each tile of results.
fn alone(
    (rows, cols): (&'static KernelDef, &'static KernelDef),
    cut: Reduction,
    dtypes: &[DType],
    x: &Tensor,
    y: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    let (outer, inner) = (x.shape()[0], x.shape()[2]);
    let consts = [cut.rows as i64, cut.cols as i64];
    if inner == 1 {
        let args = [&[line(x), results(y)], numbers].concat();
        let grid = Grid::x(outer.div_ceil(cut.rows));
        return launch_with(rows, y, grid, dtypes, &consts, cut.warps, &args);
    }
    by_planes(x, [y], |x, [y]| {
        let outer = x.shape()[0];
        let args = [&[own_view(x, false), table(y, outer, inner)], numbers].concat();
        let grid = Grid::xy(inner.div_ceil(cut.cols), outer);
        launch_with(cols, y, grid, dtypes, &consts, cut.warps, &args)
    })
}

/// Launches with `x: [outer, n, inner]` and dense results of `[outer, inner]`, of which a program has one along y: with as
/// many at a time as a grid has there.
fn by_planes<const N: usize>(
    x: &Tensor,
    results: [&Tensor; N],
    launch: impl Fn(&Tensor, [&Tensor; N]) -> Result<()>,
) -> Result<()> {
    let (outer, inner) = (x.shape()[0], x.shape()[2]);
    if outer <= MAX_GRID_YZ {
        return launch(x, results);
    }
    for first in (0..outer).step_by(MAX_GRID_YZ) {
        let planes = MAX_GRID_YZ.min(outer - first);
        let part = |t: &Tensor| t.reshape(&[outer, inner])?.narrow(0, first, planes);
        let parts: Vec<Tensor> = results.into_iter().map(part).collect::<Result<_>>()?;
        launch(&x.narrow(0, first, planes)?, std::array::from_fn(|i| &parts[i]))?;
    }
    Ok(())
}

/// `[outer, n, 1]` as rows.
fn line(x: &Tensor) -> Arg {
    view(x, &x.shape()[..2], &x.strides()[..2], false)
}

fn results(y: &Tensor) -> Arg {
    view(y, &[y.numel()], &[1], true)
}

fn table(y: &Tensor, outer: usize, inner: usize) -> Arg {
    view(y, &[outer, inner], &contiguous_strides(&[outer, inner]), true)
}

/// At least `n` zeros to count finished programs with.
///
/// Kernels leave zeros behind, and those of one GPU follow each other on its stream, so that one
/// array serves all of a GPU's. On the CPU several threads may launch at a time.
pub(crate) fn counters(on: Device, n: usize) -> Result<Tensor> {
    static KEPT: Mutex<BTreeMap<Device, Tensor>> = Mutex::new(BTreeMap::new());
    if on == Device::Cpu {
        return Tensor::zeros(&[n], (DType::I32, on));
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(zeros) = kept.get(&on) {
        return Ok(zeros.clone());
    }
    let zeros = launch_at_once(|| Tensor::zeros(&[MAX_SHARED], (DType::I32, on)))?;
    kept.insert(on, zeros.clone());
    Ok(zeros)
}
