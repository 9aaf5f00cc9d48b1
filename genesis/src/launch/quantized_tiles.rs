//! Launches of products of 16-bit rows and a quantized weight on GPUs.
//!
//! The weight, K and the device decide how K is cut into steps and parts, and with them the bits of a row; the number
//! of rows decides the tile's rows, and whether a part is a program of its own.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::{Arg, Device};
use kernels::quantized_tiles as device;

use super::epilogue::{Additions, FEW_ROWS, Fusion, Scaling, shared_sums};
use super::linear_rows::aligned;
use super::linear_tiles::{CUT_K, PARTS};
use super::planes::{BM, Planes};
use super::{config, constants, launch_as, own_view, pointer, reduce, turned, view};
use crate::error::Result;
use crate::tensor::Tensor;

/// Programs for each multiprocessor: what their registers leave room for.
const PROGRAMS: usize = 2;
/// Shared memory of each of them, slots up to which it grows, and a slot's bytes at most.
const SHARED_BYTES: usize = 104 << 10;
const SLOTS: usize = 8;
const SLOT_BYTES: usize = 48 << 10;
/// The number of the argument that has the weights of the norm behind.
const GAIN: u32 = 5;

/// How tensor cores go along K: what follows from the weight alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Steps {
    /// Elements of a half of K in a step.
    step: usize,
    /// Scales in a step.
    groups: usize,
    /// Elements of a half of K that have one scale; 0 for a row.
    span: usize,
}

impl Steps {
    /// For 16-bit rows on a GPU, and groups that steps are made of.
    pub(crate) fn of(x: DType, w: &Planes<'_>) -> Option<Steps> {
        let lanes = w.lanes();
        if w.codes.device() == Device::Cpu || x.bytes() != 2 || !lanes.is_power_of_two() {
            return None;
        }
        let [bits, has_mins] = w.form();
        if w.is_by_row && has_mins == 0 {
            return Some(Steps { step: 128, groups: 1, span: 0 });
        }
        if lanes >= 64 && has_mins == 0 {
            return Some(Steps { step: lanes.min(128), groups: 1, span: lanes });
        }
        // Scales and minimums of a step stay in registers.
        let step = if bits == 4 || has_mins == 1 { 64 } else { 128 };
        Some(Steps { step, groups: (step / lanes).max(1), span: lanes })
    }
}

/// Which programs have what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    /// Parts of K.
    parts: usize,
    /// Steps of all parts but the last.
    each: usize,
    /// Rows of a tile.
    rows: usize,
    /// Tiles of all results and rows.
    tiles: usize,
    /// Slots of a program's ring.
    slots: usize,
    /// Whether a part is a program of its own.
    is_split: bool,
}

/// A product's extents.
#[derive(Clone, Copy, Debug)]
struct Extents {
    /// Rows.
    n: usize,
    /// Outputs of the weight.
    m: usize,
    /// Elements of K of each half.
    k: usize,
    halves: usize,
    /// Whether half of the outputs are gates.
    is_gated: bool,
}

impl Cut {
    /// Parts so that tiles of few rows are `wanted` programs, up to [`PARTS`]: each costs the last program of a tile
    /// more than it spares the others (a decode step of a small model took 10 % longer with 7 to 13).
    fn of(wanted: usize, Extents { n, m, k, halves, is_gated }: Extents, step: usize) -> Cut {
        let (across, steps) = (m.div_ceil(BM).max(1), k.div_ceil(step).max(1));
        let most = if halves * k < CUT_K { 1 } else { PARTS.min(steps) };
        let each = steps.div_ceil((wanted / across).clamp(1, most));
        let parts = steps.div_ceil(each);
        let slot = |rows: usize| BM * step + 2 * halves * rows * step;
        // A tile of gates stays in registers beside the sums of what it lets through, and those beside the parts'.
        let widest = if is_gated && parts > 1 { 64 / halves } else { 128 };
        let fits = |rows: &usize| *rows <= widest && slot(*rows) <= SLOT_BYTES;
        let most = [128, 64, 32, 16].into_iter().find(fits).unwrap_or(8);
        let rows =
            [8, 16, 32, 64].into_iter().find(|&rows| n <= rows).map_or(most, |r| r.min(most));
        let down = n.div_ceil(rows);
        let slots = (SHARED_BYTES / slot(rows)).clamp(2, SLOTS);
        let tiles = down * if is_gated { (m / 2).div_ceil(BM) } else { across };
        // One part of few rows is a program that asks for what follows the product ahead of it. Gates in one part are
        // its too: the last program of a tile would wait longer for memory than this one computes (a decode step of a
        // small model takes 5 % less). Else gates and what they let through are programs of their own.
        let is_few = n <= FEW_ROWS;
        let is_split = match parts {
            1 if !is_gated || is_few => is_few && !is_gated,
            _ => across * down < wanted && tiles <= reduce::MAX_SHARED,
        };
        Cut { parts, each, rows, tiles, slots, is_split }
    }
}

/// `y = x W^T + bias` and what is fused with it, with 16-bit `x: [n, k]`, dense, on a GPU, `bias: [m]` or empty,
/// `y: [n, m]`, or of half as many outputs behind a gate.
pub(crate) fn quantized_tiles(
    x: &Tensor,
    (w, Steps { step, groups, span }): (&Planes<'_>, Steps),
    bias: &Tensor,
    y: &Tensor,
    fusion: Fusion<'_>,
) -> Result<()> {
    let (n, m, on) = (x.shape()[0], w.codes.shape()[0], y.device());
    let (halves, k, gate) = (w.parts(), w.groups() * w.lanes(), fusion.then.gate());
    let extents = Extents { n, m, k, halves, is_gated: gate.is_some() };
    let cut = Cut::of(PROGRAMS * config::multiprocessors(on), extents, step);
    let shares = if cut.is_split { cut.parts * if gate.is_some() { 2 } else { 1 } } else { 1 };
    let x = aligned(x)?.reshape(&[n, halves, k])?;
    let mins = w.mins.unwrap_or(w.scales);
    let [bits, has_mins] = w.form();
    let shape = [BM, cut.rows, step, groups, step / groups, span].map(|c| c as i64);
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
    let [sums, done] = shared_sums(on, shares, cut.tiles, BM * cut.rows)?;
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
    let (num_warps, num_stages) = (Some(4), Some(cut.slots as u32));
    let options = LaunchOptions { num_warps, num_stages, constant, ..LaunchOptions::default() };
    let dtypes = [x.dtype(), w.scales.dtype(), bias.dtype()];
    launch_as(kernel, y, Grid::x(shares * cut.tiles), &dtypes, &consts, options, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(extents: Extents) -> Cut {
        Cut::of(264, extents, 128)
    }

    #[test]
    fn parts_do_not_depend_on_rows_and_gates() {
        for (m, k, halves) in [(1152, 896, 1), (896, 4864, 1), (4096, 7168, 2), (151_936, 896, 1)] {
            let few = cut(Extents { n: 1, m, k, halves, is_gated: false });
            assert!((few.parts - 1) * few.each * 128 < k && k <= few.parts * few.each * 128);
            for n in [2, 8, 9, 64, 100, 8192] {
                for is_gated in [false, true] {
                    let cut = cut(Extents { n, m, k, halves, is_gated });
                    assert_eq!((cut.parts, cut.each), (few.parts, few.each));
                }
            }
        }
    }

    #[test]
    fn a_row_occupies_multiprocessors_where_the_weight_is_large() {
        let programs = |m, k, halves, is_gated| {
            let cut = cut(Extents { n: 1, m, k, halves, is_gated });
            let shares = cut.parts * if is_gated { 2 } else { 1 };
            (cut.tiles * if cut.is_split { shares } else { 1 }, cut.each)
        };
        assert_eq!(programs(4096, 7168, 2, false), (256, 14));
        assert_eq!(programs(896, 4864, 1, false), (56, 10));
        assert_eq!(programs(896, 896, 1, false), (14, 7));
        assert_eq!(programs(9728, 896, 1, true), (76, 7));
        // Enough tiles of gates: the outputs that one lets through are the same program's.
        assert_eq!(programs(28_672, 4096, 1, true), (224, 32));
        // 8192 rows are computed part after part.
        let many = Extents { n: 8192, m: 896, k: 4864, halves: 1, is_gated: false };
        assert!(!cut(many).is_split);
    }
}
