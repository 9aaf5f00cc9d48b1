//! Products of matrices of 8-bit floats, with a scale for each matrix.
//!
//! Tensor cores of Hopper take both operands with K contiguous, `b` as a view of its transpose, at twice
//! the speed of 16-bit floats; other views, and other GPUs, are right and slower.

use genesis_kernel::autotune::{Problem, Unit, Work};
use genesis_kernel::kernel::{KernelDef, LaunchOptions};
use genesis_kernel::knobs;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&matmul_f8::KERNEL, &matmul_f8_fast::KERNEL];

/// `c = scale_a scale_b a b` with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`.
///
/// What is multiplied in one step of `BK` is added by the tensor cores, which keep 13 bits; the steps are
/// added in f32.
#[autotune(
    key = { batch: c.dim(0), m: c.dim(1), n: c.dim(2), k: a.dim(2) },
    space = [
        { BM: [64, 128], BN: [64, 128], BK: 128, num_warps: [4, 8], num_stages: [4, 5, 6] },
        { BM: [64, 128], BN: [64, 128], BK: [32, 64], num_warps: [4, 8], num_stages: [2, 3, 4] },
    ],
    grid = |t| Grid::x(batch * m.div_ceil(t.BM) * n.div_ceil(t.BN)),
    example = { a: [batch, m, k], b: [batch, k, n], scale_a: [1], scale_b: [1], c: [batch, m, n] },
    prune = fits,
    heuristic = pick,
)]
#[kernel]
pub fn matmul_f8<T: Float8, O: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    scale_a: View<f32, 1>,
    scale_b: View<f32, 1>,
    c: ViewMut<O, 3>,
) {
    let (m, n, k) = (c.dim(1), c.dim(2), a.dim(2));
    let (rows, columns) = (cdiv(m, BM), cdiv(n, BN));
    for tile in persistent(c.dim(0) * rows * columns) {
        let batch = tile / (rows * columns);
        let (i, j) = grouped(tile % (rows * columns), rows, columns, 16);
        let mut acc = zeros::<f32, BM, BN>();
        for p in range(0, k, BK) {
            let u = a.load::<1, BM, BK>([batch, i * BM, p]).squeeze(0);
            let v = b.load::<1, BK, BN>([batch, p, j * BN]).squeeze(0);
            acc = dot(u, v, acc);
        }
        let scale = (scale_a.load::<1>([0]) * scale_b.load::<1>([0])).row(); // [1, 1]
        c.store([batch, i * BM, j * BN], (acc * scale).to::<O>().expand_dims(0));
    }
}

/// [`matmul_f8`] with all sums as tensor cores add them: see [`fast::dot`].
#[autotune(
    key = { batch: c.dim(0), m: c.dim(1), n: c.dim(2), k: a.dim(2) },
    space = [
        { BM: 64, BN: [16, 32, 64, 128, 256], BK: 128, num_warps: 4, num_stages: [4, 5, 6, 7] },
        { BM: 128, BN: [64, 128, 256], BK: 128, num_warps: 8, num_stages: [3, 4, 5, 6] },
        { BM: [64, 128], BN: [64, 128], BK: [32, 64], num_warps: [4, 8], num_stages: [2, 3, 4] },
    ],
    grid = |t| Grid::x(batch * m.div_ceil(t.BM) * n.div_ceil(t.BN)),
    example = { a: [batch, m, k], b: [batch, k, n], scale_a: [1], scale_b: [1], c: [batch, m, n] },
    prune = fits_fast,
    heuristic = pick_fast,
    // Sums of 13 bits in another order.
    tolerance = 1e-2,
)]
#[kernel]
pub fn matmul_f8_fast<T: Float8, O: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    scale_a: View<f32, 1>,
    scale_b: View<f32, 1>,
    c: ViewMut<O, 3>,
) {
    let (m, n, k) = (c.dim(1), c.dim(2), a.dim(2));
    let (rows, columns) = (cdiv(m, BM), cdiv(n, BN));
    for tile in persistent(c.dim(0) * rows * columns) {
        let batch = tile / (rows * columns);
        let (i, j) = grouped(tile % (rows * columns), rows, columns, 16);
        let mut acc = zeros::<f32, BM, BN>();
        for p in range(0, k, BK) {
            let u = a.load::<1, BM, BK>([batch, i * BM, p]).squeeze(0);
            let v = b.load::<1, BK, BN>([batch, p, j * BN]).squeeze(0);
            acc = fast::dot(u, v, acc);
        }
        let scale = (scale_a.load::<1>([0]) * scale_b.load::<1>([0])).row(); // [1, 1]
        c.store([batch, i * BM, j * BN], (acc * scale).to::<O>().expand_dims(0));
    }
}

/// Extents of a tile, the warps that multiply, and stages.
type Tile = ([usize; 3], u32, u32);

/// Tiles for tensor cores of Hopper where each step's sums are apart from the rest, as many again.
const EXACT: [Tile; 3] = [([128, 128, 128], 8, 6), ([64, 128, 128], 4, 6), ([64, 64, 128], 4, 7)];
/// The same where they are not.
const FAST: [Tile; 5] = [
    ([128, 256, 128], 8, 4),
    ([128, 128, 128], 8, 6),
    ([64, 128, 128], 4, 7),
    ([64, 64, 128], 4, 7),
    ([64, 16, 128], 4, 7),
];
/// Tiles whose operands become f16 in registers on their way to the tensor cores of Ampere.
const WIDENED: [Tile; 2] = [([128, 128, 32], 8, 3), ([64, 64, 32], 4, 3)];

/// Warps that load for those that multiply, where the copy engine does.
const LOADERS: u32 = 4;

fn pick(problem: &Problem<'_>) -> (matmul_f8::Consts, LaunchOptions) {
    let ([m, n, k], options) = best(&EXACT, problem);
    (matmul_f8::Consts { BM: m, BN: n, BK: k }, options)
}

fn pick_fast(problem: &Problem<'_>) -> (matmul_f8_fast::Consts, LaunchOptions) {
    let ([m, n, k], options) = best(&FAST, problem);
    (matmul_f8_fast::Consts { BM: m, BN: n, BK: k }, options)
}

/// Whether the copy engine brings the operands to tensor cores that read 8-bit floats.
fn runs_on_hopper(problem: &Problem<'_>) -> bool {
    let feeds = problem.machine.gpu().is_some_and(|gpu| gpu.features.tma_feeds_mma());
    knobs::get().tma && feeds && problem.forms().starts_with("rc")
}

/// The first of the tiles that the model of [`Work`] expects to be fastest.
fn best(hopper: &[Tile], problem: &Problem<'_>) -> ([usize; 3], LaunchOptions) {
    if problem.machine.gpu().is_none() {
        return ([32, 32, 16], LaunchOptions::default());
    }
    let (tiles, loaders) = match runs_on_hopper(problem) {
        true => (hopper, LOADERS),
        false => (&WIDENED[..], 0),
    };
    let us = |tile: &Tile| work(tile, problem.sizes, loaders).estimate_us(problem.machine);
    let best = tiles.iter().min_by(|a, b| us(a).total_cmp(&us(b)));
    let &(extents, num_warps, num_stages) = best.expect("the tables of tiles are not empty");
    let options = LaunchOptions {
        num_warps: Some(num_warps),
        num_stages: Some(num_stages),
        ..LaunchOptions::default()
    };
    (extents, options)
}

/// What a product in these tiles does; the sizes are batch, m, n, k.
fn work(&([m, n, k], num_warps, stages): &Tile, sizes: &[i64], loaders: u32) -> Work {
    let [batch, rows, columns, depth] =
        [0, 1, 2, 3].map(|i| sizes.get(i).map_or(1.0, |&size| size as f64));
    let [tm, tn, tk] = [m, n, k].map(|extent| extent as f64);
    let padded = (depth / tk).ceil() * tk;
    Work {
        programs: batch * (rows / tm).ceil() * (columns / tn).ceil(),
        flops: 2.0 * tm * tn * padded,
        bytes: (tm + tn) * padded,
        argument_bytes: batch * (rows * depth + depth * columns + rows * columns),
        unit: Unit::Half,
        shared_bytes: Some((stages as usize * (m + n) * k) as u32),
        num_warps: num_warps + loaders,
    }
}

fn fits(consts: matmul_f8::Consts, options: LaunchOptions, problem: &Problem<'_>) -> bool {
    let matmul_f8::Consts { BM, BN, BK } = consts;
    is_legal([BM, BN, BK], options, problem, 64)
}

fn fits_fast(
    consts: matmul_f8_fast::Consts,
    options: LaunchOptions,
    problem: &Problem<'_>,
) -> bool {
    let matmul_f8_fast::Consts { BM, BN, BK } = consts;
    is_legal([BM, BN, BK], options, problem, 128)
}

/// Whether a tile runs, with at most so many sums of a thread on Hopper.
fn is_legal(
    [m, n, k]: [usize; 3],
    options: LaunchOptions,
    problem: &Problem<'_>,
    most_sums: usize,
) -> bool {
    let (warps, stages) = (options.num_warps.unwrap_or(4), options.num_stages.unwrap_or(2));
    let Some(gpu) = problem.machine.gpu() else {
        return k == 32 && m == 64 && n == 64 && warps == 4 && stages == 2;
    };
    let sums = m * n / (32 * warps as usize);
    let bytes = |stages: u32| stages as usize * (m + n) * k + 2048;
    let fits = |stages| bytes(stages) <= gpu.features.max_shared_bytes as usize;
    match runs_on_hopper(problem) {
        true => {
            let is_full = stages >= 5 || !fits(stages + 2);
            k == 128 && m / 16 == warps as usize && sums <= most_sums && fits(stages) && is_full
        }
        // Operands are widened in registers and lie in shared memory as f16.
        false => {
            k <= 64
                && stages <= 4
                && sums <= 64
                && bytes(2 * stages) <= gpu.features.max_shared_bytes as usize
        }
    }
}
