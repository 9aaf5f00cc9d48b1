//! Products of rows on GPUs: tiles, and parts of K.
//!
//! The bits of a row depend on where K is cut, which follows from K alone. How many rows and outputs a tile has, and
//! whether parts of K are programs of their own or follow each other in one, follows from the number of rows. Rows
//! begin at an address that every form of loads suits, so that all calls are one form.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::{Arg, Device};
use kernels::linear_tiles as device;

use super::epilogue::{Additions, FEW_ROWS, Fusion, Scaling, shared_sums};
use super::{cast, config, constants, launch_as, pointer, reduce, turned, view_of};
use crate::error::Result;
use crate::tensor::Tensor;

/// What the length of a part is a multiple of: the longest step along K.
const STEP: usize = 128;
/// Elements of K from which on it is cut into parts, and how many.
pub(super) const CUT_K: usize = 2048;
pub(super) const PARTS: usize = 4;
/// Rows of the smallest tile.
const LEAST_ROWS: usize = 8;

/// The number of the argument that has the weights of the norm behind.
const GAIN: u32 = 6;

/// How a product is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Plan {
    /// Parts of K.
    parts: usize,
    /// Elements of K of all parts but the last.
    each: usize,
    /// Outputs of a tile, its rows, and elements of K of a step.
    tile: [usize; 3],
    warps: u32,
    stages: u32,
}

impl Plan {
    /// For `n` rows, `m` outputs and this K, of operands of so many bytes, on so many multiprocessors.
    fn of([n, m, k]: [usize; 3], bytes: usize, is_gated: bool, processors: usize) -> Plan {
        let parts = if k < CUT_K { 1 } else { PARTS };
        let each = k.div_ceil(parts).next_multiple_of(STEP);
        let is_few = n <= FEW_ROWS;
        // Tiles of 64 outputs for half of the multiprocessors or less: small ones read `x` more often, and each less
        // of the weight. A decode step of 64 rows of a small model takes 7 % less.
        let is_small = n <= 64 && 2 * parts * m.div_ceil(64) <= processors;
        // Of few rows all that a program reads of a weight should be under way at once. Multiply-adds of f32 take
        // smaller steps. Two accumulators of gates in several parts are as many registers as a thread has.
        let rows = tile_rows(n);
        let (tile, warps, stages) = match (bytes, rows) {
            (2, LEAST_ROWS) if is_gated && parts == 1 => ([64, rows, 128], 4, 6),
            (2, _) if is_few && is_gated => ([64, rows, 64], 4, 6),
            // Asynchronous products take 64 outputs: with 16 the sums of one wait for each other 33 clocks a step.
            (2, _) if is_few => ([64, rows, 128], 4, if parts == 1 { 7 } else { 6 }),
            (2, _) if is_small && !is_gated => ([16, rows, 128], 4, 4),
            (2, 128) if !is_gated => ([128, rows, 64], 8, 4),
            (2, 128) if parts == 1 => ([128, rows, 64], 8, 3),
            (2, _) if is_gated && rows < 128 => ([64, rows, 64], 4, 6),
            (2, _) => ([64, rows, 64], 4, 4),
            _ => ([64, rows, 16], 4, 3),
        };
        Plan { parts: k.div_ceil(each).max(1), each, tile, warps, stages }
    }

    /// Whether each part of a tile is a program of its own: of few rows in one part, and where there are tiles for
    /// less than half of the multiprocessors.
    fn is_split(&self, tiles: usize, on: Device) -> bool {
        match self.parts {
            1 => self.tile[0] < 64 || self.tile[1] <= FEW_ROWS,
            _ => 2 * tiles < config::multiprocessors(on) && tiles <= reduce::MAX_SHARED,
        }
    }
}

/// Rows of a tile.
pub(crate) fn tile_rows(n: usize) -> usize {
    [8, 16, 32, 64].into_iter().find(|&rows| n <= rows).unwrap_or(128)
}

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
    let plan = Plan::of([n, m, k], x.dtype().bytes(), gate.is_some(), config::multiprocessors(on));
    let [outs, rows, step] = plan.tile;
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
        ..LaunchOptions::default()
    };
    let mut consts = vec![outs as i64, rows as i64, step as i64];
    let mut args = vec![view_of(weight, false), turned(x, false), view_of(bias, false)];
    let each = Arg::Scalar(Scalar::int(DType::I64, plan.each as i64));
    let dtypes = [x.dtype(), bias.dtype()];
    let scaling = Scaling::of(fusion.norm, n, x)?;
    if let Some(gate) = gate {
        let is_one = plan.parts == 1 && n <= FEW_ROWS;
        consts.extend([plan.parts as i64, gate as i64, i64::from(is_one), scaling.kind]);
        args.extend(scaling.views);
        args.extend([turned(y, true), each, scaling.eps]);
        let kernel = &device::linear_tiles_gated::KERNEL;
        return launch_as(kernel, y, Grid::x(tiles), &dtypes, &consts, options, &args);
    }
    let is_split = plan.is_split(tiles, on);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_from_k_alone() {
        for k in [1, 100, 896, 2047, 2048, 2049, 4864, 14336] {
            let few = Plan::of([1, 896, k], 2, false, 132);
            for (n, m, bytes, is_gated) in [
                (2, 4864, 2, true),
                (17, 64, 2, false),
                (17, 9000, 2, false),
                (8192, 896, 2, true),
                (64, 896, 4, false),
            ] {
                let plan = Plan::of([n, m, k], bytes, is_gated, 132);
                assert_eq!((plan.parts, plan.each), (few.parts, few.each));
                assert!(plan.each.is_multiple_of(plan.tile[2]));
                assert!((plan.parts - 1) * plan.each < k && k <= plan.parts * plan.each);
            }
        }
    }
}
