//! Batch-invariant products on GPUs: tiles, and split K.
//!
//! The bits of a row depend on where K is cut, which follows from K alone. How many rows and outputs a tile has, and
//! whether parts of K are programs of their own or follow each other in one, follows from the number of rows. Rows
//! begin at an address that every form of loads suits, so that all calls are one form.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::Arg;
use genesis_kernel::tuning::linear::{FEW_ROWS, LEAST_ROWS, LinearTile};
use kernels::linear_tiles as device;

use super::config::chip;
use super::epilogue::{Additions, Fusion, PairedTile, Scaling, shared_sums};
use super::{cast, constants, launch_as, pointer, turned, view, view_of};
use crate::error::Result;
use crate::tensor::Tensor;

/// The number of the argument that has the weights of the norm behind.
const GAIN: u32 = 6;

/// A dense tensor at an address that is a multiple of 16 bytes: itself, or a copy.
pub(crate) fn aligned(x: &Tensor) -> Result<Tensor> {
    if x.address().is_multiple_of(16) {
        return Ok(x.clone());
    }
    let copy = Tensor::uninitialized(x.shape(), (x.dtype(), x.device()))?;
    cast(x, &copy)?;
    Ok(copy)
}

/// `y = x W^T + bias` and what is fused with it, with `x: [n, k]`, `weight: [m, k]`, both dense, `bias: [m]` or empty,
/// `y: [n, m]`, or of half as many outputs behind a gate.
pub(crate) fn linear_tiles(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    y: &Tensor,
    fusion: Fusion<'_>,
) -> Result<()> {
    let dtype = if x.dtype() == weight.dtype() { x.dtype() } else { DType::F32 };
    let (x, weight) = (aligned(&x.to_dtype(dtype)?)?, aligned(&weight.to_dtype(dtype)?)?);
    // Results of the dtype that is computed in; another one is rounded to afterwards.
    if y.dtype() == dtype {
        return launch(&x, &weight, bias, y, fusion);
    }
    let own = Tensor::uninitialized(y.shape(), (dtype, y.device()))?;
    launch(&x, &weight, bias, &own, fusion)?;
    cast(&own, y)
}

fn launch(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    y: &Tensor,
    fusion: Fusion<'_>,
) -> Result<()> {
    let ([n, m], k) = ([0, 1].map(|axis| y.shape()[axis]), weight.shape()[1]);
    let (gate, on) = (fusion.then.gate(), y.device());
    let chip = &chip(on);
    let plan = LinearTile::of(chip, [n, m, k], x.dtype().bytes(), gate.is_some());
    let LinearTile { outputs: outs, rows, step, .. } = plan;
    let tiles = m.div_ceil(outs) * n.div_ceil(rows);
    let options = LaunchOptions {
        constant: match gate {
            // Blocks that have a multiprocessor for themselves settle where those of the kernel behind have no
            // room: of few rows that costs more than it saves (a decode step of one row takes 4 % longer).
            Some(_) if n <= LEAST_ROWS => 0,
            _ => {
                let gain = fusion.next.map_or(0, |(gain, _)| constants(&[(GAIN, gain.weight)]));
                constants(&[(0, weight), (2, bias)]) | gain
            }
        },
        num_warps: Some(plan.warps),
        num_stages: Some(plan.stages),
        cluster: (plan.blocks > 1).then_some(plan.blocks),
        ..LaunchOptions::default()
    };
    let mut consts = vec![outs as i64, rows as i64, step as i64];
    let mut args = vec![view_of(weight, false), turned(x, false), view_of(bias, false)];
    let each = Arg::Scalar(Scalar::int(DType::I64, plan.each as i64));
    let dtypes = [x.dtype(), bias.dtype()];
    let scaling = Scaling::of(fusion.norm, n, x)?;
    if let Some(gate) = gate
        && plan.is_paired
    {
        let tile = PairedTile::of(outs, m, k);
        consts = [tile.bands, tile.half, outs, rows, step, plan.parts].map(|n| n as i64).to_vec();
        consts.extend([gate as i64, scaling.kind]);
        args[0] = view(weight, &tile.shape, &tile.strides, false);
        args.extend(scaling.views);
        args.extend([turned(y, true), each, scaling.eps]);
        let options = LaunchOptions { constant: constants(&[(0, weight), (2, bias)]), ..options };
        let grid = Grid::x(m.div_ceil(tile.half) * n.div_ceil(rows));
        let kernel = &device::linear_tiles_paired::KERNEL;
        return launch_as(kernel, y, grid, &dtypes, &consts, options, &args);
    }
    if let Some(gate) = gate {
        let is_one = plan.parts == 1 && n <= FEW_ROWS;
        consts.extend([plan.parts as i64, gate as i64, i64::from(is_one), scaling.kind]);
        args.extend(scaling.views);
        args.extend([turned(y, true), each, scaling.eps]);
        let kernel = &device::linear_tiles_gated::KERNEL;
        return launch_as(kernel, y, Grid::x(tiles), &dtypes, &consts, options, &args);
    }
    let is_split = plan.is_split(chip, tiles);
    let shares = if is_split { plan.parts } else { 1 };
    let Additions { kinds: [is_added, has_next], added, gain, next, offset } =
        Additions::of(&fusion, x, y);
    consts.extend([plan.parts as i64, i64::from(is_split), is_added, scaling.kind, has_next]);
    let [sums, done] = shared_sums(on, shares, tiles, outs * rows)?;
    let (sums, done) = (pointer(&sums, true), pointer(&done, true));
    args.push(added);
    args.extend(scaling.views);
    args.extend([gain, turned(y, true), next, sums, done, each, scaling.eps, offset]);
    let grid = Grid::x(shares * tiles);
    launch_as(&device::linear_tiles::KERNEL, y, grid, &dtypes, &consts, options, &args)
}
