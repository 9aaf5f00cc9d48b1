//! Which tile a matrix product is computed in, where nothing was measured.
//!
//! Each program computes one tile, so that a tile decides how many programs there are, how often an
//! operand is loaded, and what shared memory holds. On an H200 with bf16 (TFLOP/s):
//!
//! ```text
//!     n   64x128  64x256  128x128  128x256      what decides
//!  1024      386     284      284      169      tiles for all 132 multiprocessors
//!  2048      632     720      724      717
//!  4096      641     691      750      792      loads: a tile of 128x256 needs 3/8 of those of 64x64
//!  8192      655     694      755      804
//! ```
//!
//! The model of [`genesis_kernel::autotune::Work`] reproduces that order, and so picks for any shape.
//! What it adds for Hopper is the end of a tile, in which its warps multiply nothing, unless another set
//! of warps takes turns with them. Sustained, against cuBLAS in the same run:
//!
//! ```text
//! m, n, k             128x256   128x128 by turns
//! 2048 2048  2048        1.02               1.03
//! 8192 4864   896        1.03               1.13
//! 8192  896  4864        1.01               1.00      a wave more is not whole
//! 4096 4096  4096        1.01               1.03
//! 8192 8192  8192        1.02               1.04
//! 16384 16384 16384      1.01               0.96      rows of tiles leave the cache before their next use
//! ```

use genesis_kernel::autotune::{Problem, Unit, Work};
use genesis_kernel::ir::{DType, DotPrecision};
use genesis_kernel::kernel::LaunchOptions;
use genesis_kernel::knobs;

/// A tile and how its programs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tile {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    warps: u32,
    stages: u32,
}

/// Tiles for tensor cores of Hopper, with K in units of 128 bytes and as many stages as shared memory
/// holds. Of two that are equally good the first is taken.
const HOPPER: [Tile; 8] = [
    Tile { m: 128, n: 128, k: 1, warps: 4, stages: 6 },
    Tile { m: 128, n: 256, k: 1, warps: 8, stages: 4 },
    Tile { m: 128, n: 128, k: 1, warps: 8, stages: 6 },
    Tile { m: 64, n: 256, k: 1, warps: 4, stages: 4 },
    Tile { m: 64, n: 128, k: 1, warps: 4, stages: 7 },
    Tile { m: 64, n: 64, k: 1, warps: 4, stages: 7 },
    Tile { m: 64, n: 32, k: 1, warps: 4, stages: 7 },
    Tile { m: 64, n: 16, k: 1, warps: 4, stages: 7 },
];

/// Clocks at the end of a tile for each sum of a thread: rounding, storing, and what the first loads of
/// the next tile do not hide.
const CLOCKS_OF_A_SUM: f64 = 24.0;

/// Bytes of the rows of A that tiles which are computed at the same time read: beyond it those that
/// come next do not find them in the cache of an H200.
const CACHED_ROWS: usize = 40 << 20;

/// Rows of tiles that are computed at the same time; see [`crate::matmul::place`].
const GROUP: usize = 16;

/// Tiles whose operands the threads themselves copy to shared memory, some steps ahead: for tensor cores
/// of Ampere with elements of 16 bits (K is twice as much with those of 8), with tf32, and for multiply-adds. A thread has 64 or 128 sums. Steps of 32
/// along K, against 16, spare multiply-adds a twentieth of other instructions and barriers: 0.89 of
/// cuBLAS at 4096 on an H200 instead of 0.85.
const HALF: [Tile; 3] = [
    Tile { m: 128, n: 128, k: 32, warps: 4, stages: 4 },
    Tile { m: 64, n: 128, k: 32, warps: 4, stages: 4 },
    Tile { m: 64, n: 64, k: 32, warps: 4, stages: 4 },
];
const TF32: [Tile; 2] = [
    Tile { m: 128, n: 128, k: 32, warps: 8, stages: 3 },
    Tile { m: 64, n: 64, k: 16, warps: 4, stages: 4 },
];
const SINGLE: [Tile; 3] = [
    Tile { m: 128, n: 128, k: 32, warps: 8, stages: 3 },
    Tile { m: 64, n: 64, k: 16, warps: 4, stages: 3 },
    Tile { m: 32, n: 32, k: 16, warps: 4, stages: 2 },
];

/// The same for tensor cores with f64. A warp has a tile of 32 by 32, whose sums are 64 registers of a thread.
const DOUBLE: [Tile; 3] = [
    Tile { m: 128, n: 64, k: 16, warps: 8, stages: 4 },
    Tile { m: 64, n: 64, k: 16, warps: 4, stages: 4 },
    Tile { m: 32, n: 32, k: 16, warps: 4, stages: 4 },
];

/// Warps that load for those that multiply, where the copy engine does.
const LOADERS: u32 = 4;

/// Shared memory that a program needs beside its stages, in bytes: barriers and alignment.
const MARGIN: usize = 2048;

/// The operands' dtype and what multiplies it.
fn unit(problem: &Problem<'_>, precision: DotPrecision) -> (DType, Unit) {
    let dtype = problem.dtypes.first().copied().unwrap_or(DType::F32);
    (dtype, Unit::of(dtype, precision))
}

/// Whether the copy engine and the tensor cores of Hopper can take the operands: every address and
/// stride is a multiple of 16 bytes, and what has not 16 bits follows each other along K.
fn is_for_hopper(problem: &Problem<'_>, unit: Unit) -> bool {
    let forms = problem.forms();
    let operands = forms.get(..2).unwrap_or("x");
    let is_half = problem.dtypes.first().is_some_and(|dtype| dtype.bytes() == 2);
    let suits = match unit {
        Unit::Half if is_half => !operands.contains('x'),
        Unit::Half | Unit::Tf32 => operands == "rc",
        Unit::Single | Unit::Double => false,
    };
    suits && problem.machine.gpu().is_some_and(|gpu| gpu.features.tma_feeds_mma())
}

/// Whether the compiler makes use of them.
fn runs_on_hopper(problem: &Problem<'_>, unit: Unit) -> bool {
    knobs::get().tma && is_for_hopper(problem, unit)
}

/// The tile that a product is expected to be fastest in.
pub(crate) fn tile(problem: &Problem<'_>, precision: DotPrecision) -> (Tile, LaunchOptions) {
    let (dtype, unit) = unit(problem, precision);
    if runs_on_hopper(problem, unit) {
        return hopper_tile(problem, dtype.bytes(), unit);
    }
    let bytes = HALF.map(|tile| Tile { k: 2 * tile.k, ..tile });
    let tiles: &[Tile] = match unit {
        // The processor takes any tile, and no options.
        _ if problem.machine.gpu().is_none() => &[],
        Unit::Half if dtype.bytes() == 1 => &bytes,
        Unit::Half => &HALF,
        Unit::Tf32 => &TF32,
        Unit::Single => &SINGLE,
        Unit::Double => &DOUBLE,
    };
    let small = Tile { m: 32, n: 32, k: 16, warps: 4, stages: 2 };
    best(tiles, problem, dtype.bytes(), unit, 0).unwrap_or((small, LaunchOptions::default()))
}

/// Whether two sets of warps take turns at tiles; see [`genesis_kernel::layout::turns`].
fn takes_turns((m, n): (usize, usize), warps: u32) -> bool {
    warps == 4 && m * n >= 128 * 128
}

fn hopper_tile(problem: &Problem<'_>, bytes: usize, unit: Unit) -> (Tile, LaunchOptions) {
    let k = problem.sizes.get(3).map_or(1, |&k| k.max(1) as usize);
    // Tiles by turns are smaller, and so load more.
    // With tf32 they are slower: 0.83 of cuBLAS at 4096, where the others reach 0.94.
    let suits = |tile: &Tile| unit == Unit::Half && GROUP * tile.m * k * bytes <= CACHED_ROWS;
    let tiles =
        HOPPER.iter().filter(|tile| suits(tile) || !takes_turns((tile.m, tile.n), tile.warps));
    let tiles: Vec<Tile> = tiles.map(|tile| Tile { k: tile.k * 128 / bytes, ..*tile }).collect();
    let found = best(&tiles, problem, bytes, unit, LOADERS);
    found.expect("some tiles take no turns")
}

/// What tensor cores could do while a tile is rounded and stored.
fn idle_flops(tile: &Tile, problem: &Problem<'_>, unit: Unit) -> f64 {
    if takes_turns((tile.m, tile.n), tile.warps) {
        return 0.0;
    }
    let sums = (tile.m * tile.n) as f64 / f64::from(32 * tile.warps);
    sums * CLOCKS_OF_A_SUM * problem.machine.flops_per_clock(unit)
}

/// The first of the tiles that the model expects to be fastest.
fn best(
    tiles: &[Tile],
    problem: &Problem<'_>,
    bytes: usize,
    unit: Unit,
    loaders: u32,
) -> Option<(Tile, LaunchOptions)> {
    let us = |tile: &Tile| {
        let work = work(tile, problem.sizes, bytes, unit);
        let idle = if loaders > 0 { idle_flops(tile, problem, unit) } else { 0.0 };
        let num_warps = tile.warps + loaders;
        Work { num_warps, flops: work.flops + idle, ..work }.estimate_us(problem.machine)
    };
    let best = *tiles.iter().min_by(|a, b| us(a).total_cmp(&us(b)))?;
    let options = LaunchOptions {
        num_warps: Some(best.warps),
        num_stages: Some(best.stages),
        ..LaunchOptions::default()
    };
    Some((best, options))
}

/// What a product in these tiles does; the sizes are batch, m, n, k.
fn work(tile: &Tile, sizes: &[i64], bytes: usize, unit: Unit) -> Work {
    let [batch, m, n, k] = [0, 1, 2, 3].map(|i| sizes.get(i).map_or(1.0, |&size| size as f64));
    let (tm, tn, tk) = (tile.m as f64, tile.n as f64, tile.k as f64);
    let padded = (k / tk).ceil() * tk;
    let bytes_of = |elements: f64| bytes as f64 * elements;
    Work {
        programs: batch * (m / tm).ceil() * (n / tn).ceil(),
        flops: 2.0 * tm * tn * padded,
        bytes: bytes_of((tm + tn) * padded),
        argument_bytes: bytes_of(batch * (m * k + k * n + m * n)),
        unit,
        shared_bytes: u32::try_from(shared_bytes((tile.m, tile.n, tile.k), tile.stages, bytes))
            .ok(),
        num_warps: tile.warps,
    }
}

/// Shared memory of one program.
fn shared_bytes((m, n, k): (usize, usize, usize), stages: u32, bytes: usize) -> usize {
    stages as usize * (m + n) * k * bytes + MARGIN
}

/// Whether a product can be computed in such a tile, and may be fast.
pub(crate) fn is_legal(
    tile: (usize, usize, usize),
    options: LaunchOptions,
    problem: &Problem<'_>,
    precision: DotPrecision,
) -> bool {
    let (m, n, k) = tile;
    let (dtype, unit) = unit(problem, precision);
    let Some(gpu) = problem.machine.gpu() else {
        // Warps and stages mean nothing to the processor: one of each tile is enough.
        return k == 16
            && m <= 64
            && n <= 64
            && options.num_warps == Some(4)
            && options.num_stages == Some(2);
    };
    let (warps, stages) = (options.num_warps.unwrap_or(4), options.num_stages.unwrap_or(2));
    // What a block has of the rows.
    let blocks = options.cluster.unwrap_or(1) as usize;
    let (m, whole) = (m / blocks, m);
    let tile = (m, n, k);
    let row_bytes = k * dtype.bytes();
    let threads = 32 * warps as usize;
    // A thread has 255 registers, and needs a quarter of them for addresses and operands.
    let fits_registers = m * n / threads * dtype.bytes().max(4) / 4 <= 192;
    let fits = |stages| {
        shared_bytes(tile, stages, dtype.bytes()) <= gpu.features.max_shared_bytes as usize
    };
    let fits_memory = fits(stages);
    // Fewer stages than could be are worth a try only where they are one fewer.
    let fills_memory = stages >= 5 || !fits(stages + 2);
    // More rows or columns than the problem has, beyond the smallest tile, are work for nothing.
    let extent = |i: usize| problem.sizes.get(i).map_or(1, |&size| size.max(1) as usize);
    let is_useful = (whole <= 64 || whole < 2 * extent(1)) && (n <= 64 || n < 2 * extent(2));
    let suits = match unit {
        _ if runs_on_hopper(problem, unit) => {
            let by_turns = m == 128 && takes_turns((m, n), warps);
            let is_shared_out = m % 64 == 0 && (m / 16 == warps as usize || by_turns);
            row_bytes >= 128 && is_shared_out && fills_memory
        }
        _ if blocks > 1 => false,
        Unit::Half | Unit::Tf32 => {
            let is_step = (32..=128).contains(&row_bytes) && k >= 16;
            m >= 64 && n >= 64 && is_step && stages <= 4
        }
        Unit::Single => k <= 32 && stages <= 3 && m * n / threads <= 128,
        Unit::Double => k <= 32 && stages <= 4 && m * n / threads <= 64,
    };
    fits_registers && fits_memory && is_useful && suits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matmul::matmul;
    use genesis_kernel::autotune::Machine;
    use genesis_kernel::runtime::{Arg, Device, PtrArg, ViewArg};
    use genesis_kernel::target::Target;

    fn view(dims: [i64; 3], dtype: DType) -> Arg {
        let device = Device::Cuda(0);
        let ptr = PtrArg { device, address: 256, bytes: 1 << 40, dtype, mutable: true };
        let strides = [dims[1] * dims[2], dims[2], 1];
        Arg::View(ViewArg::new(ptr, &dims, &strides).expect("three axes are under the limit"))
    }

    /// The tile for a product on a target: `BMxBNxBK warps stages`.
    fn picked(target: &Target, dtype: DType, [m, n, k]: [i64; 3]) -> String {
        let machine = Machine::of_target(target);
        let args = [view([1, m, k], dtype), view([1, k, n], dtype), view([1, m, n], dtype)];
        let sizes = [1, m, n, k];
        let dtypes = [dtype, DType::F32];
        let problem = Problem { machine: &machine, dtypes: &dtypes, sizes: &sizes, args: &args };
        let (_, unit) = unit(&problem, DotPrecision::Ieee);
        let (tile, options) = match is_for_hopper(&problem, unit) {
            true => hopper_tile(&problem, dtype.bytes(), unit),
            false => tile(&problem, DotPrecision::Ieee),
        };
        let warps = options.num_warps.map_or("-".to_owned(), |n| n.to_string());
        let stages = options.num_stages.map_or("-".to_owned(), |n| n.to_string());
        format!("{}x{}x{} {warps} {stages}", tile.m, tile.n, tile.k)
    }

    #[test]
    fn an_h200_gets_what_was_fastest_on_it() {
        let of = |n| picked(&Target::sm_90a(), DType::BF16, [n; 3]);
        assert_eq!(of(512), "64x32x64 4 7");
        assert_eq!(of(1024), "64x128x64 4 7");
        assert_eq!(of(2048), "128x128x64 4 6");
        assert_eq!(of(4096), "128x128x64 4 6");
        assert_eq!(of(8192), "128x128x64 4 6");
        assert_eq!(of(16384), "128x256x64 8 4");
    }

    #[test]
    fn a_row_of_outputs_is_computed_as_a_column() {
        // The framework swaps the operands, so that the long axis is the one of the rows.
        let of = |n, k| picked(&Target::sm_90a(), DType::BF16, [n, 1, k]);
        assert_eq!(of(14336, 4096), "64x16x64 4 7");
        assert_eq!(of(151936, 896), "64x16x64 4 7");
    }

    #[test]
    fn what_the_copy_engine_cannot_take_is_copied_by_the_threads() {
        let h200 = Target::sm_90a();
        assert_eq!(picked(&h200, DType::BF16, [1024, 1023, 1024]), "64x128x32 4 4");
        assert_eq!(picked(&h200, DType::F32, [4096; 3]), "128x128x32 8 3");
        assert_eq!(picked(&h200, DType::F32, [256; 3]), "32x32x16 4 2");
        assert_eq!(picked(&Target::sm_80(), DType::F16, [4096; 3]), "128x128x32 4 4");
        assert_eq!(picked(&Target::Cpu, DType::F32, [64; 3]), "32x32x16 - -");
    }

    #[test]
    fn integers_and_f64_get_tiles_of_tensor_cores() {
        // The right operand has its rows along K nowhere here, which Hopper's would want of bytes.
        assert_eq!(picked(&Target::sm_90a(), DType::I8, [4096; 3]), "64x128x64 4 4");
        assert_eq!(picked(&Target::sm_80(), DType::U8, [256; 3]), "64x64x64 4 4");
        assert_eq!(picked(&Target::sm_90a(), DType::F64, [4096; 3]), "128x64x16 8 4");
        assert_eq!(picked(&Target::sm_80(), DType::F64, [256; 3]), "32x32x16 4 4");
    }

    #[test]
    fn every_target_has_configurations() {
        for (target, dtype, at_least) in [
            (Target::sm_90a(), DType::BF16, 10),
            (Target::sm_90a(), DType::F32, 10),
            (Target::sm_80(), DType::F16, 10),
            (Target::Cpu, DType::F32, 2),
        ] {
            let machine = Machine::of_target(&target);
            let args = [[1, 4096, 4096]; 3].map(|dims| view(dims, dtype));
            let (sizes, dtypes) = ([1, 4096, 4096, 4096], [dtype, DType::F32]);
            let problem =
                Problem { machine: &machine, dtypes: &dtypes, sizes: &sizes, args: &args };
            let tuning = matmul::KERNEL.tuning().expect("it has #[autotune]");
            let configs = tuning.configs(matmul::KERNEL.ast);
            let n = configs.iter().filter(|config| tuning.allows(config, &problem)).count();
            assert!(n >= at_least, "{target} {dtype}: {n} of {}", configs.len());
        }
    }
}
