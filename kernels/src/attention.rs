//! Attention: `softmax(q kᵀ scale) v`, a block of queries at a time, without the matrix of scores.
//!
//! The softmax is online: a row keeps the largest score it has seen, the sum of exponentials relative to
//! it, and the sum of values weighted by them; what it has is scaled when a larger score comes. Scores
//! are in base 2, so that an exponential is one instruction.
//!
//! The backward has the logarithm of each row's sum, and so makes the weights anew: one kernel adds up
//! gradients of keys and values, a block of keys a program, another those of queries. No sum is
//! shared by two programs, so that every run gives the same bits.
//!
//! Query `i` sees the keys `j` with `i - left <= j <= i + right`. `A` is what is computed in. Where the
//! constant of a feature is 0 its argument is not looked at:
//!
//! | constant | what it adds |
//! |---|---|
//! | `BIAS` | a tensor that is added to the scores |
//! | `CAP` | scores bounded softly: `cap tanh(score / cap)` |
//! | `DROP` | weights dropped with a probability, drawn again by the backward |
//! | `ALONE` | of the backward: the sum of `dy o` is not read, but made of the weights anew |
//! | `VARLEN` | sequences of their own lengths, one after the other in a batch of 1, whose blocks are listed |
//!
//! With `VARLEN` a block is an entry of the list that [`packed`](super::packed) describes, and the last query
//! stands where the last key does: what is before a query is counted from the end. A tile may hold rows of
//! the next sequence: their weights are 0, and they are not written.

use std::f64::consts::{LN_2, LOG2_E};

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use super::packed::block_at;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &attention::KERNEL,
    &attention_delta::KERNEL,
    &attention_keys::KERNEL,
    &attention_queries::KERNEL,
];

/// The first and last block of `B` that a range of positions touches, as its first position and the one
/// after its last, of `n`.
#[device]
pub fn span<const B: usize>(first: i64, last: i64, n: i64) -> (i64, i64) {
    (clamp(first, 0, n) / B * B, clamp(last + 1, 0, n))
}

/// The block of queries that is number `tile`: its batch, its head and its number among the head's `blocks`.
///
/// Blocks are counted in groups of 1, 2, 4 or 8 heads with at most 128 of them, about as many as a GPU
/// computes at the same time: keys and values of a group stay in the cache meanwhile. In every other group
/// the last queries come first: where queries look back only these have the most to do, and programs that
/// compute every n-th block have as much as each other. Packed sequences are in groups of 8, and so are
/// large blocks, whose kernel has no registers to spare. There are less than 2^31 blocks of all heads, so
/// that 32 bits hold every number.
#[device]
pub fn scheduled_tile<const BM: usize, const VARLEN: usize>(
    tile: i64,
    blocks: i64,
    heads: i64,
    batches: i64,
) -> (i64, i64, i64) {
    let (rows, heads) = (blocks.to::<u32>(), heads.to::<u32>());
    let (number, all) = (tile.to::<u32>(), heads * batches.to::<u32>());
    let mut bits = where_(rows > 64, 0_u32, where_(rows > 32, 1, where_(rows > 16, 2_u32, 3)));
    if VARLEN == 1 || BM >= 256 {
        bits = 3_u32;
    }
    let together = 1_u32 << bits;
    let group = number / (rows << bits);
    let within = number - group * (rows << bits);
    let size = minimum(all - (group << bits), together);
    let row = within / size;
    let line = (group << bits) + within - row * size;
    let is_last_first = (((all + together - 1) >> bits) - group) % 2 == 1;
    let row = where_(is_last_first, rows - 1 - row, row);
    let batch = line / heads;
    (batch.to::<i64>(), (line - batch * heads).to::<i64>(), row.to::<i64>())
}

/// A distance: what is 2^29 or further away is 2^29 away, so that the compiler sees 32 bits hold it.
#[device]
pub fn near(distance: i64) -> i64 {
    clamp(distance, -536870912, 536870912)
}

/// How far before and after its number a query sees; the last of packed ones stands where the last key does.
#[device]
pub fn reach<const VARLEN: usize>(left: i64, right: i64, m: i64, n: i64) -> (i64, i64) {
    let ahead = if VARLEN == 1 { n - m } else { 0 };
    (near(left - ahead), near(right + ahead))
}

/// The positions of a block that begins with number `first`.
#[device]
pub fn positions<const N: usize>(first: i64) -> Tile1<i32, N> {
    first.to::<i32>() + arange::<N>().to::<i32>()
}

/// Whether each query of a block sees each key of one that begins with number `j`. The first query sees
/// the keys from `first` to `last`, the next one those after these, and so on; there are `n`.
#[device]
pub fn in_sight<const M: usize, const N: usize>(
    j: i64,
    n: i64,
    first: i64,
    last: i64,
) -> Tile2<bool, M, N> {
    let key = positions::<N>(j).row();
    let last = minimum(positions::<M>(last), (n - 1).to::<i32>());
    (key >= positions::<M>(first).col()) & (key <= last.col())
}

/// Whether each key of a block is seen by each query of one that begins with number `i`, likewise: the
/// queries from `first` to `last` see the first key. Of those past the end of a tensor nothing is said.
#[device]
pub fn seen_by<const N: usize, const M: usize, const VARLEN: usize>(
    i: i64,
    m: i64,
    first: i64,
    last: i64,
) -> Tile2<bool, N, M> {
    let query = positions::<M>(i).row();
    let mut last = positions::<N>(last);
    if VARLEN == 1 {
        last = minimum(last, (m - 1).to::<i32>());
    }
    (query >= positions::<N>(first).col()) & (query <= last.col())
}

/// Scores in base 2 from products.
#[device]
pub fn capped<A: Float, const M: usize, const N: usize, const CAP: usize>(
    s: Tile2<A, M, N>,
    scale: A,
    cap: A,
) -> Tile2<A, M, N> {
    if CAP == 1 {
        fast::tanh(s * (scale / cap)) * (cap * A::from(LOG2_E))
    } else {
        s * (scale * A::from(LOG2_E))
    }
}

/// Writes rows of a head from row `start` of its `len` on; nothing past the end of the sequence.
#[device]
pub fn put<T: Float, const M: usize, const D: usize, const VARLEN: usize>(
    to: ViewMut<T, 4>,
    batch: i64,
    head: i64,
    first: i64,
    start: i64,
    len: i64,
    rows: Tile2<T, M, D>,
) {
    if VARLEN == 1 {
        let (i, c) = (start + arange::<M>(), arange::<D>());
        let at = to.ptr()
            + (head * to.stride(1) + ((first + i) * to.stride(2)).col())
            + (c * to.stride(3)).row();
        store(at, rows, (i < len).col() & (c < to.dim(3)).row());
    } else {
        to.store([batch, head, start, 0], rows.reshape::<1, 1, M, D>());
    }
}

/// The gradient of products from that of scores in base e, and the scores in base 2.
#[device]
pub fn uncapped<A: Float, const M: usize, const N: usize, const CAP: usize>(
    ds: Tile2<A, M, N>,
    s: Tile2<A, M, N>,
    cap: A,
) -> Tile2<A, M, N> {
    if CAP == 1 {
        let part = s / (cap * A::from(LOG2_E));
        ds * (A::ONE - part * part)
    } else {
        ds
    }
}

/// Attention of each query of `q: [b, h, m, d]` to keys of `k: [b, g, n, d]` with values `v: [b, g, n, e]`,
/// `g` a divisor of `h`; `lse` gets the logarithm of each row's sum of exponentials.
#[kernel]
pub fn attention<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const BIAS: usize,
    const CAP: usize,
    const DROP: usize,
    const VARLEN: usize,
>(
    q: View<T, 4>,
    k: View<T, 4>,
    v: View<T, 4>,
    bias: View<T, 4>,
    o: ViewMut<T, 4>,
    lse: ViewMut<A, 3>,
    list: Ptr<i64>,
    listed: i64,
    scale: A,
    left: i64,
    right: i64,
    cap: A,
    seed: u64,
    offset: i64,
    p: f32,
) {
    let heads = q.dim(1);
    let (batches, blocks) = if VARLEN == 1 { (1, listed) } else { (q.dim(0), cdiv(q.dim(2), BM)) };
    for tile in persistent(clamp(batches * heads * blocks, 0, 1073741824)) {
        let (batch, head, number) = scheduled_tile::<BM, VARLEN>(tile, blocks, heads, batches);
        let own = head * k.dim(1) / heads;
        let (start, q0, m, k0, n, _) = block_at::<BM, VARLEN>(list, number, q.dim(2), k.dim(2));
        let (left, right) = reach::<VARLEN>(left, right, m, n);
        // An empty block sees nothing.
        let seen = if VARLEN == 1 { minimum(n, maximum(m - start, 0) * n) } else { n };
        let (first, end) = span::<BN>(start - left, start + (BM - 1) + right, seen);
        // Whether some query does not see the first key of its block.
        let is_cut = first < start + (BM - 1) - left;
        let i = start + arange::<BM>();
        let rows = q.load::<1, 1, BM, D>([batch, head, q0 + start, 0]).reshape::<BM, D>();
        let mut acc = zeros::<A, BM, D>();
        let mut top = full::<A, BM>(A::MIN);
        let mut total = zeros::<A, BM>();
        for j in range(first, end, BN) {
            let keys = k.load::<1, 1, BN, D>([batch, own, k0 + j, 0]).reshape::<BN, D>();
            let at = j + arange::<BN>();
            let mut s = dot(rows, keys.trans(), zeros::<A, BM, BN>());
            // Scores in base 2 are `s * by`: a multiplication that the exponent's addition takes along.
            let mut by = scale * A::from(LOG2_E);
            if CAP == 1 {
                s = capped::<A, BM, BN, CAP>(s, scale, cap);
                by = A::ONE;
            }
            if BIAS == 1 {
                let b = bias.load::<1, 1, BM, BN>([batch, head, start, j]).reshape::<BM, BN>();
                s = s * by + b.to::<A>() * A::from(LOG2_E);
                by = A::ONE;
            }
            let is_early = is_cut & (j < start + (BM - 1) - left);
            if (j + BN > n) | is_early | (j + (BN - 1) > start + right) {
                let seen = in_sight::<BM, BN>(j, n, start - left, start + right);
                s = where_(seen, s, A::NEG_INFINITY);
            }
            // Weights are relative to the largest score so far: the largest one is 1, which 16 bits hold
            // exactly. A top that may be exceeded for a while spares most of the scaling, which makes this
            // 1 to 4 % faster, and the error 2 to 5 % larger.
            let higher = maximum(top, max(s, 1) * by);
            let shrink = fast::exp2(top - higher);
            // Ahead of the exponentials, beside which its multiplications cost next to nothing.
            acc = acc * shrink.col();
            let mut w = fast::exp2(fma(s, by, -higher.col()));
            total = fma(total, shrink, sum(w, 1));
            if DROP == 1 {
                let row = ((batch * heads + head) * q.dim(2) + (q0 + i.col())) * k.dim(2);
                w = where_(
                    rand(seed, offset + row + at.row()) >= p,
                    w * A::from(1.0 / (1.0 - p)),
                    A::ZERO,
                );
            }
            let values = v.load::<1, 1, BN, D>([batch, own, k0 + j, 0]).reshape::<BN, D>();
            acc = dot(w.to::<T>(), values, acc);
            top = higher;
        }
        // A row that sees nothing has 0 weights, not 0 / 0.
        let share = A::ONE / where_(total == A::ZERO, A::ONE, total);
        put::<T, BM, D, VARLEN>(o, batch, head, q0, start, m, (acc * share.col()).to::<T>());
        let sums = (top + log2(total)) * A::from(LN_2);
        if VARLEN == 1 {
            let at = lse.ptr() + (head * lse.stride(1) + (q0 + i) * lse.stride(2));
            store(at, sums, i < m);
        } else {
            lse.store([batch, head, start], sums.reshape::<1, 1, BM>());
        }
    }
}

/// What the backward needs of each row: `delta`, the sum of `dy o`, and `norm`, what products less it are
/// logarithms of weights when they are scaled. A row that sees nothing has a norm of 0.
///
/// Of packed sequences `PARTS` programs share a block of the list; 0 is for a batch. Both results are lines
/// then.
#[kernel]
pub fn attention_delta<T: Float, A: Float, const BM: usize, const D: usize, const PARTS: usize>(
    o: View<T, 4>,
    dy: View<T, 4>,
    lse: View<A, 3>,
    delta: ViewMut<A, 3>,
    norm: ViewMut<A, 3>,
    list: Ptr<i64>,
    scale: A,
) {
    let (number, head, batch) = (program_id(0), program_id(1), program_id(2));
    let (mut start, mut first, mut len, mut line) = (number * BM, 0, 0, 0);
    if PARTS > 0 {
        let (begin, row, rows, _, _, at) =
            block_at::<BM, 1>(list, number / PARTS, o.dim(2), o.dim(2));
        (start, first, len, line) = (begin + number % PARTS * BM, row, rows, at);
    }
    let rows = o.load::<1, 1, BM, D>([batch, head, first + start, 0]).to::<A>();
    let dys = dy.load::<1, 1, BM, D>([batch, head, first + start, 0]).to::<A>();
    let both = sum(rows * dys, 3);
    let sums = lse.load::<1, 1, BM>([batch, head, first + start]);
    let sums = where_(sums == A::NEG_INFINITY, A::ZERO, sums / scale);
    if PARTS > 0 {
        let i = start + arange::<BM>();
        store(delta.ptr() + head * delta.stride(1) + (line + i), both.reshape::<BM>(), i < len);
        store(norm.ptr() + head * norm.stride(1) + (line + i), sums.reshape::<BM>(), i < len);
    } else {
        delta.store([batch, head, start], both);
        norm.store([batch, head, start], sums);
    }
}

/// Sums of weights to divide by; a row that sees nothing has 0 weights, not 0 / 0.
#[device]
fn whole<A: Float, const M: usize>(sums: Tile1<A, M>) -> Tile1<A, M> {
    where_(sums == A::ZERO, A::ONE, sums)
}

/// The gradients of keys and values of each block of keys.
///
/// `ONLY` 0 makes both, 1 those of keys and 2 those of values: where registers hold the sums of one of them only, two
/// programs make the weights, each for itself.
///
/// `norm` and `delta` are what [`attention_delta`] makes. With `ALONE` a block holds all keys, and the mean
/// of `dw` that `delta` stands for is taken of the weights at hand, which add up to 1: `delta` is of outputs that were
/// rounded, which the gradients of a few keys with large weights show. That of scores of one key is 0 exactly.
#[kernel]
pub unsafe fn attention_keys<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const ALONE: usize,
    const ONLY: usize,
    const BIAS: usize,
    const CAP: usize,
    const DROP: usize,
    const VARLEN: usize,
>(
    q: View<T, 4>,
    k: View<T, 4>,
    v: View<T, 4>,
    bias: View<T, 4>,
    dy: View<T, 4>,
    norm: View<A, 3>,
    delta: View<A, 3>,
    dk: ViewMut<T, 4>,
    dv: ViewMut<T, 4>,
    list: Ptr<i64>,
    scale: A,
    left: i64,
    right: i64,
    cap: A,
    seed: u64,
    offset: i64,
    p: f32,
) {
    let (own, batch) = (program_id(1), program_id(2));
    let (start, k0, n, q0, m, line) =
        block_at::<BN, VARLEN>(list, program_id(0), k.dim(2), q.dim(2));
    let (left, right) = reach::<VARLEN>(left, right, m, n);
    let each = q.dim(1) / k.dim(1);
    let seen = if VARLEN == 1 { minimum(m, maximum(n - start, 0) * m) } else { m };
    let (first, end) = span::<BM>(start - right, start + (BN - 1) + left, seen);
    let at = start + arange::<BN>();
    let keys = k.load::<1, 1, BN, D>([batch, own, k0 + start, 0]).reshape::<BN, D>();
    let values = v.load::<1, 1, BN, D>([batch, own, k0 + start, 0]).reshape::<BN, D>();
    let mut sum_k = zeros::<A, BN, D>();
    let mut sum_v = zeros::<A, BN, D>();
    for h in range(0, each, 1) {
        let head = own * each + h;
        for r in range(first, end, BM) {
            let i = r + arange::<BM>();
            let rows = q.load::<1, 1, BM, D>([batch, head, q0 + r, 0]).reshape::<BM, D>();
            let dys = dy.load::<1, 1, BM, D>([batch, head, q0 + r, 0]).reshape::<BM, D>();
            let less = norm.load::<1, 1, BM>([batch, head, line + r]).reshape::<BM>();
            let below = delta.load::<1, 1, BM>([batch, head, line + r]).reshape::<BM>();
            // Transposed: keys by queries, as the products below take their left operands.
            // Where nothing comes between, sums of products begin with what is subtracted from them.
            let mut begin = zeros::<A, BN, BM>();
            if (CAP == 0) & (BIAS == 0) {
                begin = begin - less.row();
            }
            let mut s = dot(keys, rows.trans(), begin);
            let mut dw = dot(values, dys.trans(), zeros::<A, BN, BM>());
            let mut by = scale * A::from(LOG2_E);
            if CAP == 1 {
                s = capped::<A, BN, BM, CAP>(s, scale, cap);
                by = A::ONE;
            }
            let scores = s;
            if BIAS == 1 {
                let b = bias.load::<1, 1, BM, BN>([batch, head, r, start]).reshape::<BM, BN>();
                s = s * by + b.trans().to::<A>() * A::from(LOG2_E);
                by = A::ONE;
            }
            s = if (CAP == 0) & (BIAS == 0) {
                s * by
            } else {
                fma(s, by, -(less * (scale * A::from(LOG2_E))).row())
            };
            // Queries past the end of a tensor are 0 and add nothing, those of the next sequence would;
            // what keys past the end gather is not written.
            let is_cut = (VARLEN == 1) & (r + BM > m);
            if is_cut | (r < start + (BN - 1) - right) | (r + (BM - 1) > start + left) {
                let seen = seen_by::<BN, BM, VARLEN>(r, m, start - right, start + left);
                s = where_(seen, s, A::NEG_INFINITY);
            }
            let mut w = fast::exp2(s);
            if ALONE == 1 {
                // Keys past the end have weights, which no mask made 0.
                w = where_((at < n).col(), w, A::ZERO);
                w = w / whole::<A, BM>(sum(w, 0)).row();
            }
            let mut kept = w;
            if DROP == 1 {
                let row = ((batch * q.dim(1) + head) * q.dim(2) + (q0 + i.row())) * k.dim(2);
                let keep = rand(seed, offset + row + at.col()) >= p;
                kept = where_(keep, w * A::from(1.0 / (1.0 - p)), A::ZERO);
                dw = where_(keep, dw * A::from(1.0 / (1.0 - p)), A::ZERO);
            }
            if ONLY != 1 {
                sum_v = dot(kept.to::<T>(), dys, sum_v);
            }
            if ONLY != 2 {
                let mean = if ALONE == 1 { sum(w * dw, 0) } else { below };
                let ds = uncapped::<A, BN, BM, CAP>(w * (dw - mean.row()), scores, cap);
                sum_k = dot(ds.to::<T>(), rows, sum_k);
            }
        }
    }
    if ONLY != 2 {
        put::<T, BN, D, VARLEN>(dk, batch, own, k0, start, n, (sum_k * scale).to::<T>());
    }
    if ONLY != 1 {
        put::<T, BN, D, VARLEN>(dv, batch, own, k0, start, n, sum_v.to::<T>());
    }
}

/// The gradients of queries of each block of them; operands as of [`attention_keys`].
#[kernel]
pub unsafe fn attention_queries<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const ALONE: usize,
    const BIAS: usize,
    const CAP: usize,
    const DROP: usize,
    const VARLEN: usize,
>(
    q: View<T, 4>,
    k: View<T, 4>,
    v: View<T, 4>,
    bias: View<T, 4>,
    dy: View<T, 4>,
    norm: View<A, 3>,
    delta: View<A, 3>,
    dq: ViewMut<T, 4>,
    list: Ptr<i64>,
    scale: A,
    left: i64,
    right: i64,
    cap: A,
    seed: u64,
    offset: i64,
    p: f32,
) {
    // Of a list the longest sequences come first.
    let block = if VARLEN == 1 { program_id(0) } else { num_programs(0) - 1 - program_id(0) };
    let (head, batch) = (program_id(1), program_id(2));
    let own = head * k.dim(1) / q.dim(1);
    let (start, q0, m, k0, n, line) = block_at::<BM, VARLEN>(list, block, q.dim(2), k.dim(2));
    let (left, right) = reach::<VARLEN>(left, right, m, n);
    // An empty block sees nothing.
    let seen = if VARLEN == 1 { minimum(n, maximum(m - start, 0) * n) } else { n };
    let (first, end) = span::<BN>(start - left, start + (BM - 1) + right, seen);
    let i = start + arange::<BM>();
    let rows = q.load::<1, 1, BM, D>([batch, head, q0 + start, 0]).reshape::<BM, D>();
    let dys = dy.load::<1, 1, BM, D>([batch, head, q0 + start, 0]).reshape::<BM, D>();
    let less = norm.load::<1, 1, BM>([batch, head, line + start]).reshape::<BM>();
    let below = delta.load::<1, 1, BM>([batch, head, line + start]).reshape::<BM>();
    let mut acc = zeros::<A, BM, D>();
    for j in range(first, end, BN) {
        let keys = k.load::<1, 1, BN, D>([batch, own, k0 + j, 0]).reshape::<BN, D>();
        let values = v.load::<1, 1, BN, D>([batch, own, k0 + j, 0]).reshape::<BN, D>();
        let at = j + arange::<BN>();
        let mut s = dot(rows, keys.trans(), zeros::<A, BM, BN>());
        let mut dw = dot(dys, values.trans(), zeros::<A, BM, BN>());
        let mut by = scale * A::from(LOG2_E);
        if CAP == 1 {
            s = capped::<A, BM, BN, CAP>(s, scale, cap);
            by = A::ONE;
        }
        let scores = s;
        if BIAS == 1 {
            let b = bias.load::<1, 1, BM, BN>([batch, head, start, j]).reshape::<BM, BN>();
            s = s * by + b.to::<A>() * A::from(LOG2_E);
            by = A::ONE;
        }
        s = fma(s, by, -(less * (scale * A::from(LOG2_E))).col());
        if (j + BN > n) | (j < start + (BM - 1) - left) | (j + (BN - 1) > start + right) {
            let seen = in_sight::<BM, BN>(j, n, start - left, start + right);
            s = where_(seen, s, A::NEG_INFINITY);
        }
        let mut w = fast::exp2(s);
        if ALONE == 1 {
            w = w / whole::<A, BM>(sum(w, 1)).col();
        }
        if DROP == 1 {
            let row = ((batch * q.dim(1) + head) * q.dim(2) + (q0 + i.col())) * k.dim(2);
            let keep = rand(seed, offset + row + at.row()) >= p;
            dw = where_(keep, dw * A::from(1.0 / (1.0 - p)), A::ZERO);
        }
        let mean = if ALONE == 1 { sum(w * dw, 1) } else { below };
        let ds = uncapped::<A, BM, BN, CAP>(w * (dw - mean.col()), scores, cap);
        acc = dot(ds.to::<T>(), keys, acc);
    }
    put::<T, BM, D, VARLEN>(dq, batch, head, q0, start, m, (acc * scale).to::<T>());
}

#[cfg(test)]
mod tests;
