//! Products of matrices of 8-bit floats, with a scale for each matrix.
//!
//! Tensor cores of Hopper take both operands with K contiguous, `b` as a view of its transpose, at twice
//! the speed of 16-bit floats; other views, and other GPUs, are right and slower.

use genesis_kernel::autotune::Problem;
use genesis_kernel::kernel::{KernelDef, LaunchOptions};
use genesis_kernel::prelude::*;
use genesis_kernel::tuning::products::F8Sums;

use crate::tiles;

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

fn pick(problem: &Problem<'_>) -> (matmul_f8::Consts, LaunchOptions) {
    let ([m, n, k], options) = tiles::tile_f8(problem, F8Sums::Promoted);
    (matmul_f8::Consts { BM: m, BN: n, BK: k }, options)
}

fn pick_fast(problem: &Problem<'_>) -> (matmul_f8_fast::Consts, LaunchOptions) {
    let ([m, n, k], options) = tiles::tile_f8(problem, F8Sums::Fast);
    (matmul_f8_fast::Consts { BM: m, BN: n, BK: k }, options)
}

fn fits(consts: matmul_f8::Consts, options: LaunchOptions, problem: &Problem<'_>) -> bool {
    let matmul_f8::Consts { BM, BN, BK } = consts;
    tiles::is_legal_f8([BM, BN, BK], options, problem, F8Sums::Promoted)
}

fn fits_fast(
    consts: matmul_f8_fast::Consts,
    options: LaunchOptions,
    problem: &Problem<'_>,
) -> bool {
    let matmul_f8_fast::Consts { BM, BN, BK } = consts;
    tiles::is_legal_f8([BM, BN, BK], options, problem, F8Sums::Fast)
}
