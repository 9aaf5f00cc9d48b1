//! Launches of pools and of resampling, which look by tables.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, KernelDef, LaunchOptions};
use genesis_kernel::launch_at_once;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::windows::WindowTile;
use kernels::pool as device;

use super::axis::Table;
use super::config::chip;
use super::{accumulate_dtype, launch_as, own_view, pointer, window_cpu};
use crate::dispatch::trace;
use crate::error::Result;
use crate::tensor::Tensor;

/// Elements of one launch, whose numbers have 32 bits.
const MOST: usize = 1 << 30;

/// Runs `launch` on parts of tensors `[outer, D, H, W]` along the first axis that are small enough.
fn in_parts(tensors: &[&Tensor], launch: impl Fn(&[Tensor]) -> Result<()>) -> Result<()> {
    let outer = tensors[0].shape()[0];
    let each = |t: &Tensor| crate::shape::product(t.shape()[1..].iter());
    let largest = tensors.iter().map(|t| each(t)).max().unwrap_or(1).max(1);
    let step = (MOST / largest).max(1);
    for first in (0..outer).step_by(step) {
        let cut = |t: &&Tensor| t.narrow(0, first, step.min(outer - first));
        let parts: Vec<Tensor> = tensors.iter().map(cut).collect::<Result<_>>()?;
        if parts[0].numel() > 0 {
            launch(&parts)?;
        }
    }
    Ok(())
}

/// Taps along the last axis, at most, that a kernel is compiled for.
const MOST_TAPS: usize = 4;

/// A kernel for results `on`: `many`, a program of which has some of them and which takes numbers first, or where there is one
/// and windows are wide `wide`, which has one.
fn go(
    (many, first): (&'static KernelDef, &[i64]),
    wide: Option<&'static KernelDef>,
    tables: &[Table; 3],
    dtypes: &[DType],
    on: &Tensor,
    args: &[Arg],
) -> Result<()> {
    let (chip, width) = (chip(on.device()), on.shape()[3]);
    let lines = on.numel() / width;
    let wide = wide.and_then(|kernel| {
        let taps = [0, 1, 2].map(|axis| tables[axis].taps);
        Some((kernel, on.numel(), WindowTile::of_window(&chip, on.numel(), taps)?))
    });
    let ((kernel, first), grid, WindowTile { rows, cols, warps }) = match wide {
        Some((kernel, grid, tile)) => ((kernel, &[][..]), grid, tile),
        None => {
            let tile = match first {
                [1] => WindowTile::of_elements(&chip, lines, width),
                _ => WindowTile::of_results(&chip, lines, width),
            };
            ((many, first), lines.div_ceil(tile.rows) * width.div_ceil(tile.cols), tile)
        }
    };
    let options = LaunchOptions { num_warps: Some(warps), ..LaunchOptions::default() };
    let consts = [first, &[rows as i64, cols as i64]].concat();
    launch_as(kernel, on, Grid::x(grid), dtypes, &consts, options, args)
}

/// Whether these have elements, on the CPU.
fn is_on_cpu(tensors: &[&Tensor]) -> bool {
    tensors.iter().all(|t| !t.device().is_cuda() && t.numel() > 0 && !trace::records(t))
}

/// `y` of `x` by tables with weights, both dense `[outer, D, H, W]`.
pub(crate) fn resample(tables: &[Table; 3], x: &Tensor, y: &Tensor) -> Result<()> {
    if is_on_cpu(&[x, y]) && window_cpu::resample(tables, x, y) {
        return Ok(());
    }
    let dtypes = [y.dtype(), accumulate_dtype(y.dtype())];
    let mut more = places(tables, y.device())?;
    for table in tables {
        more.push(sent(Content::Weights(dtypes[1]), table, y.device())?);
    }
    in_parts(&[y, x], |parts| {
        let mut args = vec![own_view(&parts[1], false), own_view(&parts[0], true)];
        args.extend(more.iter().map(|table| own_view(table, false)));
        let wide = Some(&device::resample_wide::KERNEL);
        let taps = tables[2].taps;
        let taps = [if taps <= MOST_TAPS { taps as i64 } else { 0 }];
        go((&device::resample::KERNEL, &taps), wide, tables, &dtypes, &parts[0], &args)
    })
}

/// The largest elements of windows, and where they stand; all dense `[outer, D, H, W]`.
pub(crate) fn max_pool(tables: &[Table; 3], x: &Tensor, y: &Tensor, which: &Tensor) -> Result<()> {
    if is_on_cpu(&[x, y]) && window_cpu::max_pool(tables, x, y, which) {
        return Ok(());
    }
    let more = places(tables, y.device())?;
    in_parts(&[y, x, which], |parts| {
        let [y, x, which] = [&parts[0], &parts[1], &parts[2]];
        let mut args = vec![own_view(x, false), own_view(y, true), pointer(which, true)];
        args.extend(more.iter().map(|table| own_view(table, false)));
        args.push(Arg::Scalar(lowest(y.dtype())));
        let wide = Some(&device::max_pool_wide::KERNEL);
        go((&device::max_pool::KERNEL, &[]), wide, tables, &[y.dtype()], y, &args)
    })
}

/// What is below every number.
fn lowest(dtype: DType) -> Scalar {
    match dtype {
        _ if dtype.is_float() => Scalar::float(dtype, f64::NEG_INFINITY),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => Scalar::int(dtype, 0),
        _ => Scalar::int(dtype, i64::MIN >> (64 - dtype.bits())),
    }
}

/// The gradient of [`max_pool`], by turned tables.
pub(crate) fn max_pool_bwd(
    tables: &[Table; 3],
    dy: &Tensor,
    which: &Tensor,
    dx: &Tensor,
) -> Result<()> {
    if is_on_cpu(&[dy, dx]) && window_cpu::max_pool_bwd(tables, dy, which, dx) {
        return Ok(());
    }
    let more = places(tables, dx.device())?;
    let dtypes = [dx.dtype(), accumulate_dtype(dx.dtype())];
    in_parts(&[dx, dy, which], |parts| {
        let [dx, dy, which] = [&parts[0], &parts[1], &parts[2]];
        let mut args = vec![own_view(dy, false), pointer(which, false), own_view(dx, true)];
        args.extend(more.iter().map(|table| own_view(table, false)));
        go((&device::max_pool_bwd::KERNEL, &[]), None, tables, &dtypes, dx, &args)
    })
}

/// Where tables look, on a device.
pub(super) fn places(tables: &[Table; 3], device: Device) -> Result<Vec<Tensor>> {
    tables.iter().map(|table| sent(Content::Places, table, device)).collect()
}

/// What of a table is sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Places,
    Weights(DType),
}

/// Tables that stay on devices, at most.
const MOST_SENT: usize = 512;

/// What was sent, by device, content, extents and values.
type Sent = BTreeMap<(String, Content, [usize; 2], Vec<i32>, Vec<u64>), Tensor>;

/// A part of a table on a device. Windows are the same in every step of a training, so that what was sent
/// once stays there.
fn sent(content: Content, table: &Table, device: Device) -> Result<Tensor> {
    static SENT: Mutex<Sent> = Mutex::new(BTreeMap::new());
    let shape = [table.outputs, table.taps];
    let (index, weights) = match content {
        Content::Places => (table.index.clone(), Vec::new()),
        Content::Weights(_) => (Vec::new(), table.weight.iter().map(|w| w.to_bits()).collect()),
    };
    let key = (device.to_string(), content, shape, index, weights);
    let mut sent = SENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = sent.get(&key) {
        return Ok(known.clone());
    }
    let fresh = launch_at_once(|| match content {
        Content::Places => Tensor::from_slice_on(&table.index, &shape, device),
        Content::Weights(dtype) => Tensor::from_f64(&table.weight, &shape, (dtype, device)),
    })?;
    if sent.len() >= MOST_SENT {
        sent.clear();
    }
    sent.insert(key, fresh.clone());
    Ok(fresh)
}
