//! Launches of batch-invariant products of 16-bit rows and a quantized weight on GPUs.
//!
//! The weight, K and the device decide how K is cut into steps and parts, and with them the bits of a row; the number
//! of rows decides the tile's rows, and whether a part is a program of its own.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::linear::{OUTPUTS, QuantizedExtents, QuantizedSteps, QuantizedTile};
use kernels::quantized_tiles as device;

use super::config::chip;
use super::epilogue::{Additions, Fusion, Gate, PairedTile, Scaling, shared_sums};
use super::linear_rows::aligned;
use super::planes::Planes;
use super::{constants, launch_as, own_view, pointer, turned, view};
use crate::error::Result;
use crate::tensor::Tensor;

/// The number of the argument that has the weights of the norm behind.
const GAIN: u32 = 5;

/// The steps of 16-bit rows on a GPU, where they are made of whole groups.
pub(crate) fn steps(x: DType, w: &Planes<'_>) -> Option<QuantizedSteps> {
    if w.codes.device() == Device::Cpu || x.bytes() != 2 {
        return None;
    }
    let [bits, has_mins] = w.form();
    QuantizedSteps::of(w.lanes(), w.is_by_row, bits, has_mins == 1)
}

/// `y = x W^T + bias` and what is fused with it, with 16-bit `x: [n, k]`, dense, on a GPU, `bias: [m]` or empty,
/// `y: [n, m]`, or of half as many outputs behind a gate.
pub(crate) fn quantized_tiles(
    x: &Tensor,
    (w, steps): (&Planes<'_>, QuantizedSteps),
    bias: &Tensor,
    y: &Tensor,
    fusion: Fusion<'_>,
) -> Result<()> {
    let (n, m, on) = (x.shape()[0], w.codes.shape()[0], y.device());
    let (halves, k, gate) = (w.parts(), w.groups() * w.lanes(), fusion.then.gate());
    let extents = QuantizedExtents { n, m, k, halves, is_gated: gate.is_some() };
    let QuantizedSteps { step, groups, span } = steps;
    let cut = QuantizedTile::of(&chip(on), extents, step);
    if let Some(gate) = gate.filter(|_| cut.is_paired && span == 0) {
        return paired(x, (w, &cut, step), bias, y, (fusion, gate));
    }
    let shares = if cut.is_split { cut.parts * if gate.is_some() { 2 } else { 1 } } else { 1 };
    let x = aligned(x)?.reshape(&[n, halves, k])?;
    let mins = w.mins.unwrap_or(w.scales);
    let [bits, has_mins] = w.form();
    let shape = [OUTPUTS, cut.rows, step, groups, step / groups, span].map(|c| c as i64);
    let form = [bits, w.zero.into(), has_mins, cut.parts as i64, cut.is_split.into()];
    let mut consts = [&shape[..], &form].concat();
    let mut args = vec![
        own_view(&x, false),
        view(w.codes, &[m, k], &[k as i64, 1], false),
        own_view(w.scales, false),
        own_view(mins, false),
        own_view(bias, false),
    ];
    let mut constant = constants(&[(1, w.codes), (2, w.scales), (3, mins), (4, bias)]);
    let [sums, done] = shared_sums(on, shares, cut.tiles, OUTPUTS * cut.rows)?;
    let (sums, done) = (pointer(&sums, true), pointer(&done, true));
    let each = Arg::Scalar(Scalar::int(DType::I64, (cut.each * step) as i64));
    let scaling = Scaling::of(fusion.norm, n, &x)?;
    let kernel = match gate {
        Some(gate) => {
            consts.extend([gate as i64, scaling.kind]);
            args.extend(scaling.views);
            args.extend([turned(y, true), sums, done, each, scaling.eps]);
            &device::quantized_tiles_of_codes_gated::KERNEL
        }
        None => {
            let Additions { kinds: [is_added, has_next], added, gain, next, offset } =
                Additions::of(&fusion, &x, y);
            constant |= fusion.next.map_or(0, |(gain, _)| constants(&[(GAIN, gain.weight)]));
            consts.extend([is_added, scaling.kind, has_next]);
            args.extend([gain, added]);
            args.extend(scaling.views);
            args.extend([turned(y, true), next, sums, done, each, scaling.eps, offset]);
            &device::quantized_tiles_of_codes::KERNEL
        }
    };
    let options = options_of(&cut, constant);
    let dtypes = [x.dtype(), w.scales.dtype(), bias.dtype()];
    launch_as(kernel, y, Grid::x(shares * cut.tiles), &dtypes, &consts, options, &args)
}

/// Gates of few rows, by a weight whose rows have one scale each.
fn paired(
    x: &Tensor,
    (w, cut, step): (&Planes<'_>, &QuantizedTile, usize),
    bias: &Tensor,
    y: &Tensor,
    (fusion, gate): (Fusion<'_>, Gate),
) -> Result<()> {
    let (n, m) = (x.shape()[0], w.codes.shape()[0] / 2);
    let (halves, k) = (w.parts(), w.groups() * w.lanes());
    let x = aligned(x)?.reshape(&[n, halves, k])?;
    let scaling = Scaling::of(fusion.norm, n, &x)?;
    let tile = PairedTile::of(OUTPUTS, m, k);
    let consts = [tile.bands, tile.half, OUTPUTS, cut.rows, step].map(|c| c as i64);
    let form = [w.form()[0], w.zero.into(), cut.parts as i64, gate as i64, scaling.kind];
    let codes = view(w.codes, &tile.shape, &tile.strides, false);
    let mut args = vec![own_view(&x, false), codes];
    args.extend([w.scales, bias].map(|t| own_view(t, false)));
    args.extend(scaling.views);
    let each = Arg::Scalar(Scalar::int(DType::I64, (cut.each * step) as i64));
    args.extend([turned(y, true), each, scaling.eps]);
    let options = options_of(cut, constants(&[(1, w.codes), (2, w.scales), (3, bias)]));
    let grid = Grid::x(m.div_ceil(tile.half) * n.div_ceil(cut.rows));
    let dtypes = [x.dtype(), w.scales.dtype(), bias.dtype()];
    let kernel = &device::quantized_tiles_of_codes_paired::KERNEL;
    launch_as(kernel, y, grid, &dtypes, &[&consts[..], &form].concat(), options, &args)
}

fn options_of(cut: &QuantizedTile, constant: u32) -> LaunchOptions {
    let (num_warps, num_stages) = (Some(4), Some(cut.stages as u32));
    LaunchOptions { num_warps, num_stages, constant, ..LaunchOptions::default() }
}
