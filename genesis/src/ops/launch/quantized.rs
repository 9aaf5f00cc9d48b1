//! Launches of products with quantized weights: shapes of programs as in [`linear_rows`](super::linear_rows).
//!
//! On a GPU the weight, K and the device decide how K is cut into steps and parts, and with them the bits of a row;
//! the number of rows decides the tile's rows, and whether a part is a program of its own.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::{Arg, Device, PtrArg};
use kernels::quantized as device;

use super::linear_rows::{aligned, groups_at_once, outs_at_once, rows_at_once, tile_rows};
use super::{config, constants, launch_as, number, own_view, pointer, reduce, view, views};
use crate::error::Result;
use crate::tensor::Tensor;

/// A quantized weight's tensors.
#[derive(Clone, Copy)]
pub(crate) struct Planes<'t> {
    pub(crate) codes: &'t Tensor,
    pub(crate) scales: &'t Tensor,
    pub(crate) mins: Option<&'t Tensor>,
    pub(crate) zero: u8,
    /// Whether all groups of a row have one scale.
    pub(crate) is_by_row: bool,
}

/// Outputs of a program of a processor with one row: of weights that no cache holds, 8 bits at K = 576, 16
/// outputs take 36 GMAC/s on 2 cores of Zen 5, 8 take 19.
const OUTS_OF_A_ROW: usize = 16;
/// Outputs of a tile on a GPU.
const BM: usize = 64;
/// Elements of K of a step on a GPU, where groups are no longer.
const BK: usize = 64;
/// Programs for each multiprocessor: what their registers leave room for.
const PROGRAMS: usize = 2;
/// Shared memory of each of them, slots up to which it grows, and a slot's bytes at most.
const SHARED_BYTES: usize = 104 << 10;
const SLOTS: usize = 6;
const SLOT_BYTES: usize = 48 << 10;

impl Planes<'_> {
    fn parts(&self) -> usize {
        self.scales.shape()[1]
    }

    fn groups(&self) -> usize {
        self.codes.shape()[1]
    }

    fn lanes(&self) -> usize {
        self.codes.shape()[2]
    }

    /// Constants that say what codes are: bits, and whether there are minimums.
    fn form(&self) -> [i64; 2] {
        [if self.parts() == 2 { 4 } else { 8 }, i64::from(self.mins.is_some())]
    }
}

/// Groups of `lanes` that a processor takes at once: as many as it may that divide all.
fn whole_groups(groups: usize, lanes: usize) -> usize {
    let most = groups_at_once(groups, lanes);
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
        let rows = rows_at_once(n);
        let outs = if rows == 1 { OUTS_OF_A_ROW } else { outs_at_once(rows) };
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
    let x = aligned(x)?.reshape(&[n, parts, groups * lanes])?;
    if let Some(steps) = Steps::of(x.dtype(), w) {
        return by_codes(&x, w, steps, bias, y);
    }
    let (rows, at_once) = (tile_rows(n), (BK / lanes).max(1));
    let consts = [BM, rows, at_once * lanes, at_once, lanes].map(|c| c as i64);
    let consts = [&consts[..], &[bits, has_mins]].concat();
    let tensors = [&x, w.codes, w.scales, mins, bias];
    let mut args: Vec<_> = tensors.into_iter().map(|t| own_view(t, false)).collect();
    args.extend([own_view(y, true), zero[0]]);
    let grid = Grid::x(n.div_ceil(rows) * m.div_ceil(BM));
    let options =
        LaunchOptions { num_warps: Some(4), num_stages: Some(3), ..LaunchOptions::default() };
    launch_as(&device::quantized_tiles::KERNEL, y, grid, &dtypes, &consts, options, &args)
}

/// How tensor cores go along K: what follows from the weight alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Steps {
    /// Elements of a half of K in a step.
    step: usize,
    /// Scales in a step.
    groups: usize,
    /// Elements of a half of K that have one scale; 0 for a row.
    span: usize,
}

impl Steps {
    /// For 16-bit rows and groups that steps are made of.
    fn of(x: DType, w: &Planes<'_>) -> Option<Steps> {
        let lanes = w.lanes();
        if x.bytes() != 2 || !lanes.is_power_of_two() {
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
    /// Tiles of all outputs and rows.
    tiles: usize,
    /// Slots of a program's ring.
    slots: usize,
    /// Whether a part is a program of its own.
    is_split: bool,
}

impl Cut {
    /// For `n` rows, `m` outputs and `k` elements of each of `halves`: parts so that tiles of few rows are
    /// `wanted` programs.
    fn of(wanted: usize, [n, m, k]: [usize; 3], halves: usize, step: usize) -> Cut {
        let (across, steps) = (m.div_ceil(BM).max(1), k.div_ceil(step).max(1));
        let each = steps.div_ceil((wanted / across).clamp(1, steps));
        let parts = steps.div_ceil(each);
        let slot = |rows: usize| BM * step + 2 * halves * rows * step;
        let most =
            [128, 64, 32, 16].into_iter().find(|&rows| slot(rows) <= SLOT_BYTES).unwrap_or(8);
        let rows =
            [8, 16, 32, 64].into_iter().find(|&rows| n <= rows).map_or(most, |r| r.min(most));
        let tiles = across * n.div_ceil(rows);
        let slots = (SHARED_BYTES / slot(rows)).clamp(2, SLOTS);
        let is_split = parts > 1 && tiles < wanted && tiles <= reduce::MAX_SHARED;
        Cut { parts, each, rows, tiles, slots, is_split }
    }
}

/// [`linear`] of 16-bit rows on a GPU: `x: [n, halves, k]`.
fn by_codes(x: &Tensor, w: &Planes<'_>, steps: Steps, bias: &Tensor, y: &Tensor) -> Result<()> {
    let ([n, m], on) = ([0, 1].map(|axis| y.shape()[axis]), y.device());
    let (halves, k) = (w.parts(), w.groups() * w.lanes());
    let cut = Cut::of(PROGRAMS * config::multiprocessors(on), [n, m, k], halves, steps.step);
    // Both live until the launch.
    let shared = match cut.is_split {
        true => {
            let numbers = cut.parts * cut.tiles * BM * cut.rows;
            let sums = Tensor::uninitialized(&[numbers], (DType::F32, on))?;
            Some((sums, reduce::counters(on, cut.tiles)?))
        }
        false => None,
    };
    let (sums, done) = match &shared {
        Some((sums, done)) => (pointer(sums, true), pointer(done, true)),
        None => (nowhere(on, DType::F32), nowhere(on, DType::I32)),
    };
    let args = [
        own_view(x, false),
        view(w.codes, &[m, k], &[k as i64, 1], false),
        own_view(w.scales, false),
        own_view(w.mins.unwrap_or(w.scales), false),
        own_view(bias, false),
        view(y, &[m, n], &[1, m as i64], true),
        sums,
        done,
        Arg::Scalar(Scalar::int(DType::I64, cut.each as i64)),
    ];
    let Steps { step, groups, span } = steps;
    let shape = [BM, cut.rows, step, groups, step / groups, span].map(|c| c as i64);
    let [bits, has_mins] = w.form();
    let rest = [bits, w.zero.into(), has_mins, cut.parts as i64, cut.is_split.into()];
    let consts = [&shape[..], &rest].concat();
    let dtypes = [x.dtype(), w.scales.dtype(), bias.dtype()];
    let options = LaunchOptions {
        num_warps: Some(4),
        num_stages: Some(cut.slots as u32),
        constant: constants(&[
            (1, w.codes),
            (2, w.scales),
            (3, w.mins.unwrap_or(w.scales)),
            (4, bias),
        ]),
        ..LaunchOptions::default()
    };
    let grid = Grid::x(cut.tiles * if cut.is_split { cut.parts } else { 1 });
    launch_as(&device::quantized_tiles_of_codes::KERNEL, y, grid, &dtypes, &consts, options, &args)
}

/// A pointer to what the kernel could write to, and does not.
fn nowhere(device: Device, dtype: DType) -> Arg {
    Arg::Ptr(PtrArg { device, address: 0, bytes: 0, dtype, mutable: true })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_depend_on_rows() {
        for (m, k, halves) in [(1152, 896, 1), (896, 4864, 1), (4096, 7168, 2), (151_936, 896, 1)] {
            let few = Cut::of(264, [1, m, k], halves, 128);
            assert!((few.parts - 1) * few.each * 128 < k && k <= few.parts * few.each * 128);
            for n in [2, 8, 9, 64, 100, 8192] {
                let cut = Cut::of(264, [n, m, k], halves, 128);
                assert_eq!((cut.parts, cut.each), (few.parts, few.each));
            }
        }
    }

    #[test]
    fn a_row_occupies_most_multiprocessors() {
        let programs = |m, k, halves| {
            let cut = Cut::of(264, [1, m, k], halves, 128);
            (cut.tiles * if cut.is_split { cut.parts } else { 1 }, cut.each)
        };
        assert_eq!(programs(4096, 7168, 2), (256, 14));
        assert_eq!(programs(896, 4864, 1), (182, 3));
        assert_eq!(programs(896, 896, 1), (98, 1));
        // 8192 rows are computed part after part.
        assert!(!Cut::of(264, [8192, 896, 4864], 1, 128).is_split);
    }
}
