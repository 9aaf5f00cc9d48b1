//! Matrix products, batched, of any strides: a transposed operand is a view.
//!
//! The constants, warps and stages of a launch come from what `#[autotune]` declares: a table of
//! measurements (`tuned/h200.jsonl`), else [`crate::tiles`].

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::tiles;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&matmul::KERNEL, &matmul_tf32::KERNEL];

/// `c = a b` with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`, accumulated in `A`.
///
/// Programs share the tiles of `BM` by `BN` of all batches, in groups of 16 tile rows, so that those
/// that run at the same time share operands in the cache: with tiles of 128 by 256 the 132
/// multiprocessors of an H200 are nearly at a square of `c`. As many programs as tiles are right, and
/// fewer too: where the GPU runs one program a multiprocessor, the loads of its next tile overlap
/// the store of its last.
#[autotune(
    key = { batch: c.dim(0), m: c.dim(1), n: c.dim(2), k: a.dim(2) },
    space = [
        // Tensor cores of Hopper: 128 bytes of K in a step, four or eight warps that multiply.
        { BM: 64, BN: [16, 32, 64, 128, 256], BK: [64, 128], num_warps: 4, num_stages: [4, 5, 6, 7] },
        { BM: 128, BN: [64, 128, 256], BK: 64, num_warps: 8, num_stages: [3, 4, 5, 6] },
        // Tensor cores of Ampere.
        { BM: [64, 128], BN: [64, 128], BK: [32, 64], num_warps: [4, 8], num_stages: [2, 3, 4] },
        // Multiply-adds of f32 and f64.
        { BM: [32, 64, 128], BN: [32, 64, 128, 256], BK: [8, 16, 32], num_warps: [4, 8], num_stages: [2, 3] },
    ],
    grid = |t| Grid::x(batch * m.div_ceil(t.BM) * n.div_ceil(t.BN)),
    example = { a: [batch, m, k], b: [batch, k, n], c: [batch, m, n] },
    prune = tiles::fits,
    heuristic = tiles::pick,
    table = include_str!("../tuned/h200.jsonl"),
)]
#[kernel]
pub fn matmul<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: View<T, 3>,
    b: View<T, 3>,
    c: ViewMut<T, 3>,
) {
    let (m, n, k) = (c.dim(1), c.dim(2), a.dim(2));
    let (rows, columns) = (cdiv(m, BM), cdiv(n, BN));
    for tile in persistent(c.dim(0) * rows * columns) {
        let batch = tile / (rows * columns);
        let (i, j) = grouped(tile % (rows * columns), rows, columns, 16);
        let mut acc = zeros::<A, BM, BN>();
        for p in range(0, k, BK) {
            let u = a.load::<1, BM, BK>([batch, i * BM, p]).squeeze(0);
            let v = b.load::<1, BK, BN>([batch, p, j * BN]).squeeze(0);
            acc = dot(u, v, acc);
        }
        c.store([batch, i * BM, j * BN], acc.to::<T>().expand_dims(0));
    }
}

/// [`matmul`] of f32 by tensor cores, which round the operands to tf32: 10 bits of mantissa.
#[autotune(
    key = { batch: c.dim(0), m: c.dim(1), n: c.dim(2), k: a.dim(2) },
    space = [
        { BM: 64, BN: [16, 32, 64, 128, 256], BK: [32, 64], num_warps: 4, num_stages: [4, 5, 6, 7] },
        { BM: 128, BN: [64, 128, 256], BK: 32, num_warps: 8, num_stages: [3, 4, 5, 6] },
        { BM: [64, 128], BN: [64, 128], BK: [16, 32], num_warps: [4, 8], num_stages: [2, 3, 4] },
    ],
    grid = |t| Grid::x(batch * m.div_ceil(t.BM) * n.div_ceil(t.BN)),
    example = { a: [batch, m, k], b: [batch, k, n], c: [batch, m, n] },
    prune = tiles::fits_tf32,
    heuristic = tiles::pick_tf32,
    table = include_str!("../tuned/h200.jsonl"),
    // Tensor cores may round where the CPU cuts.
    tolerance = 4e-3,
)]
#[kernel]
pub fn matmul_tf32<const BM: usize, const BN: usize, const BK: usize>(
    a: View<f32, 3>,
    b: View<f32, 3>,
    c: ViewMut<f32, 3>,
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
            acc = dot_tf32(u, v, acc);
        }
        c.store([batch, i * BM, j * BN], acc.expand_dims(0));
    }
}
