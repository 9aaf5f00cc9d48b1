//! Launches of products with quantized weights: shapes of programs as in [`linear_rows`](super::linear_rows).
//! GPUs take 16-bit rows to [`quantized_tiles`](super::quantized_tiles).

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::Device;
use genesis_kernel::tuning::linear::{
    ANY_QUANTIZED_STEP, CPU_OUTPUTS_OF_A_QUANTIZED_ROW, OUTPUTS, cpu_groups, cpu_outputs, cpu_rows,
    tile_rows,
};
use kernels::quantized as device;

use super::epilogue::{Epilogue, Fusion};
use super::linear_rows::aligned;
use super::planes::Planes;
use super::quantized_tiles::{quantized_tiles, steps};
use super::{launch_as, number, own_view, views};
use crate::error::Result;
use crate::tensor::Tensor;

/// Groups of `lanes` that a processor takes at once: as many as it may that divide all.
fn whole_groups(groups: usize, lanes: usize) -> usize {
    let most = cpu_groups(groups, lanes);
    (1..=most).rev().find(|&at_once| groups.is_multiple_of(at_once)).unwrap_or(1)
}

/// Lanes of a processor's sums: half of a group, of which both halves are added first, or a group that is one
/// vector.
fn vector(lanes: usize) -> usize {
    if lanes.is_multiple_of(32) { lanes / 2 } else { lanes }
}

/// `y = x W^T + bias` with `x: [n, k]`, dense, `bias: [m]` or empty, `y: [n, m]`.
pub(crate) fn linear(x: &Tensor, w: &Planes<'_>, bias: &Tensor, y: &Tensor) -> Result<()> {
    let [n, m] = [0, 1].map(|axis| y.shape()[axis]);
    let (parts, groups, lanes) = (w.parts(), w.groups(), w.lanes());
    let mins = w.mins.unwrap_or(w.scales);
    let dtypes = [x.dtype(), w.scales.dtype(), bias.dtype()];
    let zero = [number(DType::F32, f64::from(w.zero))];
    let [bits, has_mins] = w.form();
    if y.device() == Device::Cpu {
        let rows = cpu_rows(n);
        let outs = if rows == 1 { CPU_OUTPUTS_OF_A_QUANTIZED_ROW } else { cpu_outputs(rows) };
        let shape = [rows, outs, whole_groups(groups, lanes * parts), lanes, vector(lanes)];
        let consts = [&shape.map(|c| c as i64)[..], &[bits, has_mins]].concat();
        let x = x.reshape(&[n, parts, groups, lanes])?;
        let grid = Grid::x(n.div_ceil(rows) * m.div_ceil(outs));
        let tensors = [
            (&x, false),
            (w.codes, false),
            (w.scales, false),
            (mins, false),
            (bias, false),
            (y, true),
        ];
        return views(&device::quantized_rows::KERNEL, grid, &dtypes, &consts, &tensors, &zero);
    }
    if let Some(steps) = steps(x.dtype(), w) {
        return quantized_tiles(x, (w, steps), bias, y, Fusion::of(Epilogue::Nothing));
    }
    let x = aligned(x)?.reshape(&[n, parts, groups * lanes])?;
    let (rows, at_once) = (tile_rows(n), (ANY_QUANTIZED_STEP / lanes).max(1));
    let consts = [OUTPUTS, rows, at_once * lanes, at_once, lanes].map(|c| c as i64);
    let consts = [&consts[..], &[bits, has_mins]].concat();
    let tensors = [&x, w.codes, w.scales, mins, bias];
    let mut args: Vec<_> = tensors.into_iter().map(|t| own_view(t, false)).collect();
    args.extend([own_view(y, true), zero[0]]);
    let grid = Grid::x(n.div_ceil(rows) * m.div_ceil(OUTPUTS));
    let options =
        LaunchOptions { num_warps: Some(4), num_stages: Some(3), ..LaunchOptions::default() };
    launch_as(&device::quantized_tiles::KERNEL, y, grid, &dtypes, &consts, options, &args)
}

/// The weights themselves: `y: [m, k]`, dense.
pub(crate) fn dequantize(w: &Planes<'_>, y: &Tensor) -> Result<()> {
    let (m, parts, groups, lanes) = (y.shape()[0], w.parts(), w.groups(), w.lanes());
    let mins = w.mins.unwrap_or(w.scales);
    let y = y.reshape(&[m, parts, groups, lanes])?;
    let at_once = (512 / lanes).next_power_of_two();
    let grid = Grid::xy(m, groups.div_ceil(at_once));
    let consts = [1, at_once as i64, lanes as i64];
    let consts = [&consts[..], &w.form()].concat();
    let tensors = [(w.codes, false), (w.scales, false), (mins, false), (&y, true)];
    let dtypes = [w.scales.dtype(), y.dtype()];
    let zero = [number(DType::F32, f64::from(w.zero))];
    views(&device::dequantize::KERNEL, grid, &dtypes, &consts, &tensors, &zero)
}
