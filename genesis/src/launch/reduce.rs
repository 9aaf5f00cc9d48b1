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
use kernels::{reduce as device, scan as device_scan};

use super::config::multiprocessors;
use super::{accumulate_dtype, launch, launch_with, own_view, pointer, scalar, view};
use crate::dispatch::trace;
use crate::error::Result;
use crate::shape::contiguous_strides;
use crate::tensor::Tensor;

/// How the middle axis is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cut {
    /// Rows of a tile: of results where `inner` is 1, else of what is reduced.
    pub(super) rows: usize,
    /// Columns of a tile.
    pub(super) cols: usize,
    /// Programs that share one tile of results.
    pub(super) parts: usize,
    /// Warps of a program; the compiler chooses where absent.
    pub(super) warps: Option<u32>,
}

/// The most programs that share a sum: the last one adds up as many at once.
const MAX_PARTS: usize = 1024;
/// The most tiles of results that are shared; each needs a counter.
pub(super) const MAX_SHARED: usize = 4096;

/// Warps of a program that adds up neighbouring columns, and the bytes that it reads at once: eight
/// vectors of 16 bytes a thread. Of 8192 x 8192 bf16 half as many bytes, or twice the warps for as
/// many, reach 0.96 and 0.88 of that.
const WARPS_OF_COLUMNS: u32 = 4;
const BYTES_OF_COLUMNS: usize = 16 << 10;

impl Cut {
    pub(super) fn of(on: Device, outer: usize, n: usize, inner: usize, bytes: usize) -> Cut {
        // Enough for four programs of 256 threads on every multiprocessor.
        let wanted = 4 * multiprocessors(on);
        if inner == 1 {
            let cols = n.next_power_of_two().clamp(16, 4096);
            let rows = (4096 / cols).min(outer.next_power_of_two()).min(64);
            let parts = shares(wanted, outer.div_ceil(rows), n.div_ceil(cols));
            // A row of two steps is read at once.
            let is_double = parts == 1 && n.next_power_of_two() == 8192 && on != Device::Cpu;
            let cols = if is_double { 8192 } else { cols };
            let rows = if parts > 1 { 1 } else { rows };
            return Cut { rows, cols, parts, warps: None };
        }
        let cols = inner.next_power_of_two().clamp(16, 128);
        let is_cpu = on == Device::Cpu;
        let most = if is_cpu { 32 } else { BYTES_OF_COLUMNS / (128 * bytes) };
        let rows = n.next_power_of_two().min(most);
        let tiles = inner.div_ceil(cols) * outer;
        let parts = shares(wanted, tiles, n.div_ceil(rows)).min(64);
        let is_full = !is_cpu && rows * cols * bytes == BYTES_OF_COLUMNS;
        Cut { rows, cols, parts, warps: is_full.then_some(WARPS_OF_COLUMNS) }
    }
}

/// Programs for each of `tiles` so that there are about `wanted`, none without one of `steps`.
fn shares(wanted: usize, tiles: usize, steps: usize) -> usize {
    if tiles == 0 || tiles > MAX_SHARED || 2 * tiles > wanted || steps < 2 {
        return 1;
    }
    (wanted / tiles).min(steps).min(MAX_PARTS)
}

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
    let cut = Cut::of(x.device(), outer, n, inner, x.dtype().bytes());
    if cut.parts == 1 {
        let kernels = (&device::sum_rows::KERNEL, &device::sum_cols::KERNEL);
        return alone(kernels, cut, &dtypes, x, y, &[number]);
    }
    let tiles = outer * if inner == 1 { 1 } else { inner.div_ceil(cut.cols) };
    let done = counters(x.device(), tiles)?;
    let done = pointer(&done, true);
    let most = cut.parts.next_power_of_two() as i64;
    if inner == 1 {
        let partial = Tensor::uninitialized(&[outer, cut.parts], (wide, x.device()))?;
        let args = [line(x), own_view(&partial, true), done, results(y), number];
        let grid = Grid::xy(cut.parts, outer);
        let consts = [cut.cols as i64, most];
        return launch(&device::sum_rows_shared::KERNEL, y, grid, &dtypes, &consts, &args);
    }
    let partial = Tensor::uninitialized(&[outer, cut.parts, inner], (wide, x.device()))?;
    let args = [own_view(x, false), own_view(&partial, true), done, table(y, outer, inner), number];
    let grid = Grid::xyz(inner.div_ceil(cut.cols), outer, cut.parts);
    let consts = [cut.rows as i64, cut.cols as i64, most];
    launch_with(&device::sum_cols_shared::KERNEL, y, grid, &dtypes, &consts, cut.warps, &args)
}

/// The extreme over the middle axis of `x: [outer, n, inner]`, with `y: [outer, inner]`.
pub(crate) fn extreme(
    rows: &'static KernelDef,
    cols: &'static KernelDef,
    x: &Tensor,
    y: &Tensor,
) -> Result<()> {
    if trace::records(y) {
        return trace::extreme((rows, cols), x, y);
    }
    if y.numel() == 0 {
        return Ok(());
    }
    let (device, bytes) = (x.device(), x.dtype().bytes());
    let cut = Cut::of(device, x.shape()[0], x.shape()[1], x.shape()[2], bytes);
    alone((rows, cols), cut, &[x.dtype()], x, y, &[])
}

/// The index of the extreme of each row of `x: [m, n]`.
pub(crate) fn arg_rows(kernel: &'static KernelDef, x: &Tensor, y: &Tensor) -> Result<()> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    // Two vectors a thread and step: what a thread keeps is wide.
    let most = if x.device() == Device::Cpu { 4096 } else { 512 * (16 / x.dtype().bytes()) };
    let cols = n.next_power_of_two().clamp(16, most);
    let rows = (most / cols).min(m.next_power_of_two()).min(16);
    let args = [own_view(x, false), results(y)];
    let consts = [rows as i64, cols as i64];
    let warps = (rows * cols == most && x.device() != Device::Cpu).then_some(8);
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
    scan(kernel, &[x.dtype(), wide], x, y)
}

/// A scan of the rows of `x: [m, n]`.
pub(crate) fn scan(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    x: &Tensor,
    y: &Tensor,
) -> Result<()> {
    let (m, n) = (x.shape()[0], x.shape()[1]);
    // One vector a thread and step: then a thread's elements are neighbours, and the scan needs no
    // other layout than the loads.
    let most = if x.device() == Device::Cpu { 4096 } else { 256 * (16 / x.dtype().bytes()) };
    let cols = n.next_power_of_two().clamp(16, most);
    let rows = (most / cols).min(m.next_power_of_two()).min(16);
    let consts = [rows as i64, cols as i64];
    let args = [own_view(x, false), own_view(y, true)];
    let warps = (rows * cols == most && x.device() != Device::Cpu).then_some(8);
    launch_with(kernel, y, Grid::x(m.div_ceil(rows)), dtypes, &consts, warps, &args)
}

/// One program for each tile of results.
fn alone(
    (rows, cols): (&'static KernelDef, &'static KernelDef),
    cut: Cut,
    dtypes: &[DType],
    x: &Tensor,
    y: &Tensor,
    numbers: &[Arg],
) -> Result<()> {
    let (outer, inner) = (x.shape()[0], x.shape()[2]);
    let (kernel, grid, mut args) = if inner == 1 {
        (rows, Grid::x(outer.div_ceil(cut.rows)), vec![line(x), results(y)])
    } else {
        let args = vec![own_view(x, false), table(y, outer, inner)];
        (cols, Grid::xy(inner.div_ceil(cut.cols), outer), args)
    };
    args.extend_from_slice(numbers);
    let consts = [cut.rows as i64, cut.cols as i64];
    launch_with(kernel, y, grid, dtypes, &consts, cut.warps, &args)
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
pub(super) fn counters(on: Device, n: usize) -> Result<Tensor> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_results_are_shared_among_programs() {
        let parts = |outer, n, inner| Cut::of(Device::Cuda(0), outer, n, inner, 4).parts;
        assert_eq!(parts(8192, 8192, 1), 1);
        assert!(parts(1, 8192 * 8192, 1) >= 400);
        assert!(parts(1, 2048, 896) > 32);
        assert!(parts(1, 8192, 8192) > 4);
        assert_eq!(parts(1, 100, 1), 1);
    }

    #[test]
    fn columns_are_read_in_as_many_bytes_for_any_dtype() {
        let tile = |device, bytes| {
            let Cut { rows, cols, parts, warps } = Cut::of(device, 1, 8192, 8192, bytes);
            (rows, cols, parts, warps)
        };
        assert_eq!(tile(Device::Cuda(0), 4), (32, 128, 8, Some(4)));
        assert_eq!(tile(Device::Cuda(0), 2), (64, 128, 8, Some(4)));
        assert_eq!(tile(Device::Cpu, 2).3, None);
    }
}
