//! The eight kernels the language was designed by, for the tests of every layer.

use crate::prelude::*;

/// `out = x + y`, elementwise. One program a block.
#[kernel]
pub(crate) fn add<T: Number, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i64) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    let mask = i < n;
    store(out + i, load(x + i, mask) + load(y + i, mask), mask);
}

/// Softmax of each row of `x: [n_rows, n_cols]`. One program a row; `BLOCK >= n_cols`.
#[kernel]
pub(crate) fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n_cols: i64) {
    let row = program_id(0) * n_cols;
    let col = arange::<BLOCK>();
    let mask = col < n_cols;
    let v = load(x + row + col, mask, T::NEG_INFINITY).to::<f32>();
    let e = exp(v - max(v, 0));
    store(y + row + col, (e / sum(e, 0)).to::<T>(), mask);
}

/// Layer norm forward; mean and reciprocal deviation are kept for the backward.
#[kernel]
pub(crate) fn layer_norm<T: Float, const BLOCK: usize>(
    x: View<T, 2>,
    weight: View<T, 1>,
    bias: View<T, 1>,
    y: ViewMut<T, 2>,
    stats: ViewMut<f32, 2>,
    eps: f32,
) {
    let row = program_id(0);
    let n = x.dim(1);
    let v = x.load::<1, BLOCK>([row, 0]).to::<f32>(); // [1, BLOCK], zero past the edge
    let mean = sum(v, 1) / n as f32; // [1]
    let d = where_(arange::<BLOCK>().row() < n, v - mean.col(), 0.0);
    let rstd = rsqrt(sum(d * d, 1) / n as f32 + eps);
    let (w, b) = (weight.load::<BLOCK>([0]).to::<f32>(), bias.load::<BLOCK>([0]).to::<f32>());
    y.store([row, 0], (d * rstd.col() * w.row() + b.row()).to::<T>());
    stats.store([row, 0], join(mean, rstd));
}

/// `C = A B`, any strides. Nothing here names a layout, shared memory, a barrier or an instruction.
#[kernel]
pub(crate) fn matmul<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: View<T, 2>,
    b: View<T, 2>,
    c: ViewMut<T, 2>,
) {
    let (m, n, k) = (a.dim(0), b.dim(1), a.dim(1));
    for tile in persistent(cdiv(m, BM) * cdiv(n, BN)) {
        let (i, j) = grouped(tile, cdiv(m, BM), cdiv(n, BN), 8);
        let mut acc = zeros::<f32, BM, BN>();
        for p in range(0, k, BK) {
            acc = dot(a.load::<BM, BK>([i * BM, p]), b.load::<BK, BN>([p, j * BN]), acc);
        }
        c.store([i * BM, j * BN], acc.to::<T>());
    }
}

/// Exact GELU; a piece of any kernel, and of fused ones built at run time.
#[device]
pub(crate) fn gelu<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    0.5 * x * (1.0 + erf(x * FRAC_1_SQRT_2))
}

/// GELU of every element.
#[kernel]
pub(crate) fn gelu_all<T: Float, const BLOCK: usize>(x: Ptr<T>, y: PtrMut<T>, n: i64) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    store(y + i, gelu(load(x + i, i < n).to::<f32>()).to::<T>(), i < n);
}

/// The larger of two (value, index) pairs; the smaller index wins a tie, NaN wins over numbers.
#[device]
fn larger(a: (f32, i64), b: (f32, i64)) -> (f32, i64) {
    if b.0 > a.0 || (is_nan(b.0) && !is_nan(a.0)) || (b.0 == a.0 && b.1 < a.1) { b } else { a }
}

/// The index of the largest element of a row, by a reduction over pairs.
#[kernel]
pub(crate) fn largest<const BLOCK: usize>(x: Ptr<f32>, at: PtrMut<i64>, n: i64) {
    let col = arange::<BLOCK>();
    let v = load(x + program_id(0) * n + col, col < n, f32::NEG_INFINITY);
    let (_best, index) = reduce((v, col), 0, larger);
    store(at + program_id(0), index);
}

/// Inverted dropout. The mask is a function of (seed, element), so the backward draws it again.
#[kernel]
pub(crate) fn dropout<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    y: PtrMut<T>,
    n: i64,
    p: f32,
    seed: u64,
) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    let keep = rand(seed, i) >= p;
    store(y + i, where_(keep, load(x + i, i < n) * T::from(1.0 / (1.0 - p)), T::ZERO), i < n);
}

/// Counts of values in 0..256.
#[kernel]
pub(crate) fn histogram<const BLOCK: usize>(x: Ptr<u8>, counts: PtrMut<i32>, n: i64) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    atomic_add(counts + load(x + i, i < n).to::<i64>(), 1, i < n);
}

/// Attention forward of one block of queries (head size D), causal. Reads like the paper.
#[kernel]
pub(crate) fn attention<T: Float, const M: usize, const N: usize, const D: usize>(
    q: View<T, 3>,
    k: View<T, 3>,
    v: View<T, 3>,
    o: ViewMut<T, 3>,
    lse: ViewMut<f32, 2>,
    scale: f32,
) {
    let (head, start) = (program_id(1), program_id(0) * M);
    let qs = q.load::<1, M, D>([head, start, 0]).squeeze(0);
    let (mut acc, mut m, mut l) =
        (zeros::<f32, M, D>(), full::<f32, M>(f32::NEG_INFINITY), zeros::<f32, M>());
    for j in range(0, start + M, N) {
        let keys = k.load::<1, N, D>([head, j, 0]).squeeze(0);
        let s = dot(qs, keys.trans(), zeros::<f32, M, N>()) * scale;
        let s = where_(
            (start + arange::<M>()).col() >= (j + arange::<N>()).row(),
            s,
            f32::NEG_INFINITY,
        );
        let m_new = maximum(m, max(s, 1));
        let p = exp(s - m_new.col());
        let alpha = exp(m - m_new);
        l = l * alpha + sum(p, 1);
        acc = dot(p.to::<T>(), v.load::<1, N, D>([head, j, 0]).squeeze(0), acc * alpha.col());
        m = m_new;
    }
    o.store([head, start, 0], (acc / l.col()).to::<T>().expand_dims(0));
    lse.store([head, start], (m + log(l)).expand_dims(0));
}

#[test]
fn kernels_are_described() {
    assert_eq!(add::AST.name, "add");
    assert_eq!(add::AST.consts, ["BLOCK"]);
    assert_eq!(add::AST.params.len(), 4);
    assert_eq!(add::AST.body.stmts.len(), 3);
    assert!(add::AST.file.ends_with("eight.rs"));
    assert_eq!(gelu.ast().name, "gelu");
    assert_eq!(larger.ast().params.len(), 2);
}
