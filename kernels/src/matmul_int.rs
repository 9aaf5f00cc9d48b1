//! Products of matrices of integers, whose sums wrap.
//!
//! Tensor cores multiply integers of 8 bits and add them up as i32. Those of Hopper take both operands with K
//! contiguous, `b` as a view of its transpose; `mma.sync` reads any view, and other than such ones byte by byte.
//! Wider integers are multiplied and added by each thread.

use genesis_kernel::autotune::Problem;
use genesis_kernel::ir::DotPrecision;
use genesis_kernel::kernel::{KernelDef, LaunchOptions};
use genesis_kernel::prelude::*;

use crate::matmul::scheduled_tile;
use crate::tiles;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&matmul_int8::KERNEL, &matmul_int::KERNEL];

/// `c = a b` of i8 or u8 with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`, accumulated in i32, of
/// which an `O` of fewer bits keeps the low ones.
#[autotune(
    key = { batch: c.dim(0), m: c.dim(1), n: c.dim(2), k: a.dim(2) },
    space = [
        // Tensor cores of Hopper: 128 bytes of K in a step.
        { BM: 64, BN: [16, 32, 64, 128, 256], BK: 128, num_warps: 4, num_stages: [4, 5, 6, 7] },
        { BM: 128, BN: [64, 128, 256], BK: 128, num_warps: 8, num_stages: [3, 4, 5, 6] },
        // The same by four warps and four more that take turns at tiles.
        { BM: 128, BN: 128, BK: 128, num_warps: 4, num_stages: [5, 6] },
        // Two blocks that bring the right operand for each other.
        { BM: 256, BN: 128, BK: 128, num_warps: [4, 8], num_stages: [5, 6], cluster: 2 },
        { BM: 256, BN: 256, BK: 128, num_warps: 8, num_stages: [3, 4], cluster: 2 },
        // Tensor cores of Ampere.
        { BM: [64, 128], BN: [64, 128], BK: [32, 64, 128], num_warps: [4, 8], num_stages: [2, 3, 4] },
        // The processor.
        { BM: 32, BN: 32, BK: 16, num_warps: 4, num_stages: 2 },
    ],
    grid = |t| Grid::x(batch * m.div_ceil(t.BM) * n.div_ceil(t.BN)),
    example = { a: [batch, m, k], b: [batch, k, n], c: [batch, m, n] },
    prune = fits,
    heuristic = pick,
    // Whole numbers have no other result.
    tolerance = 0.0,
)]
#[kernel]
pub fn matmul_int8<T: Int8, O: Int, const BM: usize, const BN: usize, const BK: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    c: ViewMut<O, 3>,
) {
    let (m, n, k) = (c.dim(1), c.dim(2), a.dim(2));
    for tile in persistent(c.dim(0) * cdiv(m, BM) * cdiv(n, BN)) {
        let (batch, row, column) = scheduled_tile::<BM, BN>(tile, m, n);
        let mut acc = zeros::<i32, BM, BN>();
        for p in range(0, k, BK) {
            let u = a.load::<1, BM, BK>([batch, row, p]).squeeze(0);
            let v = b.load::<1, BK, BN>([batch, p, column]).squeeze(0);
            acc = dot(u, v, acc);
        }
        c.store([batch, row, column], acc.to::<O>().expand_dims(0));
    }
}

/// `c = a b` with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`, accumulated in `A`, of which
/// the low bits are kept.
#[kernel]
pub fn matmul_int<T: Int, A: Int, const BM: usize, const BN: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    c: ViewMut<T, 3>,
) {
    let (batch, row, column) = scheduled_tile::<BM, BN>(program_id(0), c.dim(1), c.dim(2));
    let mut acc = zeros::<A, BM, BN>();
    for p in range(0, a.dim(2), 1) {
        let u = a.load::<1, BM, 1>([batch, row, p]).squeeze(0).to::<A>();
        let v = b.load::<1, 1, BN>([batch, p, column]).squeeze(0).to::<A>();
        acc = acc + u * v;
    }
    c.store([batch, row, column], acc.to::<T>().expand_dims(0));
}

fn pick(problem: &Problem<'_>) -> (matmul_int8::Consts, LaunchOptions) {
    let ([m, n, k], options) = tiles::tile(problem, DotPrecision::Ieee);
    (matmul_int8::Consts { BM: m, BN: n, BK: k }, options)
}

fn fits(consts: matmul_int8::Consts, options: LaunchOptions, problem: &Problem<'_>) -> bool {
    let matmul_int8::Consts { BM, BN, BK } = consts;
    tiles::is_legal([BM, BN, BK], options, problem, DotPrecision::Ieee)
}
