//! Attention of new tokens to keys and values in pages, for generation: prefill, decode and both at once.
//!
//! A program has a block of the rows that share a head of keys: those are a sequence's new tokens, and of
//! each token the heads of the group. So one load of keys serves the whole group, and a decode step of 7
//! heads a group is a block of 7 rows.
//!
//! **The bits of a row depend on its own sequence only.** Keys are cut into blocks of `BN`, counted from
//! the start of the sequence. Each block is a softmax of its own ([`weighted`]), and blocks are joined one
//! after the other by [`joined`]. Whether one program walks all blocks, or many programs have some each and
//! [`mod@paged_attention_join`] joins what they leave, the same numbers meet in the same order. Blocks that
//! a row does not see change nothing: its largest score stays, what it has is multiplied by 1, and 0 is
//! added.
//!
//! ```text
//! 300 keys, BN = 128         block 0: keys 0..128    block 1: 128..256    block 2: 256..300
//! one program                ((block 0 + block 1) + block 2)
//! three programs             each leaves its block: the largest score, the sum, the weighted values
//! the join                   ((block 0 + block 1) + block 2)
//! ```
//!
//! Where a sequence has many new tokens, [`mod@paged_gather`] brings its pages into a row, and
//! [`mod@paged_prefill`] computes the same numbers on tiles that the copy engine brings.
//!
//! Lengths and pages stand on the device. Whatever they are, nothing outside of the cache is read: they are
//! brought into range first.

use std::f64::consts::LOG2_E;

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use super::attention::capped;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &paged_attention::KERNEL,
    &paged_attention_join::KERNEL,
    &paged_gather::KERNEL,
    &paged_prefill::KERNEL,
];

/// The sequence of a tile of `ROWS` rows, or of a token where `TILED` is 0: how many sequences end at it or
/// before. It is the number of sequences where the tile or the token is behind the last one.
///
/// The tiles of a sequence that begins with row `r` have numbers from `r / ROWS` and as many more as there
/// are sequences before it, so that each has enough for its rows, and where it begins needs no sum.
#[device]
pub fn sequence_of<const ROWS: usize, const TILED: usize>(
    starts: Ptr<i64>,
    sequences: i64,
    number: i64,
    each: i64,
    tokens: i64,
) -> i64 {
    let mut before = zeros::<i64, 64>();
    for s in range(0, sequences, 64) {
        let k = s + 1 + arange::<64>();
        let mut begin = clamp(load(starts + k, k <= sequences), 0, tokens);
        if TILED == 1 {
            begin = begin * each / ROWS + k;
        }
        before = before + ((k <= sequences) & (begin <= number)).to::<i64>();
    }
    sum(before, 0)
}

/// The sequence of a tile of `ROWS` rows with one load for each bit of the number of sequences, all of them
/// scalars: `top` is the highest of these bits, `bits` how many there are.
#[device]
pub fn sequence_at<const ROWS: usize>(
    starts: Ptr<i64>,
    sequences: i64,
    number: i64,
    tokens: i64,
    top: i64,
    bits: i64,
) -> i64 {
    let mut s = number - number;
    let mut bit = top;
    for _ in range(0, bits, 1) {
        let t = s + bit;
        let begin = clamp(load(starts + minimum(t, sequences)), 0, tokens) / ROWS + t;
        s = where_((t <= sequences) & (begin <= number), t, s);
        bit = bit / 2;
    }
    s
}

/// The first new token of a sequence, how many it has, and how many keys, no more than `most`. What is
/// behind the last sequence has no keys.
#[device]
pub fn extent_of(
    starts: Ptr<i64>,
    lengths: Ptr<i64>,
    sequences: i64,
    s: i64,
    tokens: i64,
    most: i64,
) -> (i64, i64, i64) {
    let first = clamp(load(starts + s), 0, tokens);
    let end = clamp(load(starts + (s + 1), s < sequences, tokens), first, tokens);
    (first, end - first, clamp(load(lengths + s, s < sequences), 0, most))
}

/// What is known of rows over some keys, with what is known of them over the next: the largest score, in
/// base 2, the sum of exponentials relative to it, and the values weighted by them.
///
/// Over no keys the largest score is the least finite number, and its exponential 0 beside any other.
#[device]
pub fn joined<A: Float, const M: usize, const D: usize>(
    top: Tile1<A, M>,
    total: Tile1<A, M>,
    acc: Tile2<A, M, D>,
    next_top: Tile1<A, M>,
    next_total: Tile1<A, M>,
    next_acc: Tile2<A, M, D>,
) -> (Tile1<A, M>, Tile1<A, M>, Tile2<A, M, D>) {
    let higher = maximum(top, next_top);
    let old = fast::exp2(top - higher);
    let new = fast::exp2(next_top - higher);
    (higher, fma(total, old, next_total * new), fma(acc, old.col(), next_acc * new.col()))
}

/// The mean of values from their weighted sum. With `SINKS` a score that has no value takes its share. A row
/// that sees nothing gives 0.
#[device]
pub fn mean<A: Float, const M: usize, const D: usize, const SINKS: usize>(
    top: Tile1<A, M>,
    total: Tile1<A, M>,
    acc: Tile2<A, M, D>,
    sink: Tile1<A, M>,
) -> Tile2<A, M, D> {
    if SINKS == 1 {
        let sink = sink * A::from(LOG2_E);
        let higher = maximum(top, sink);
        let shrink = fast::exp2(top - higher);
        let total = fma(total, shrink, fast::exp2(sink - higher));
        acc * (shrink / total).col()
    } else {
        acc * (A::ONE / where_(total == A::ZERO, A::ONE, total)).col()
    }
}

/// The sum of each row.
///
/// Wide rows are added up in one order, however warps share the columns of a product: those of one lane
/// that are 32 apart, then those that are 8 apart, then those of the four lanes of a row.
#[device]
pub fn row_sums<A: Float, const M: usize, const N: usize>(w: Tile2<A, M, N>) -> Tile1<A, M> {
    if N == 128 {
        let w = sum(w.reshape::<M, 16, 4, 2>(), 3).reshape::<M, 4, 4, 4>();
        sum(sum(sum(w, 1), 1), 1)
    } else if N == 64 {
        let w = sum(w.reshape::<M, 8, 4, 2>(), 3).reshape::<M, 2, 4, 4>();
        sum(sum(sum(w, 1), 1), 1)
    } else {
        sum(w, 1)
    }
}

/// What is known of rows over one block of keys, from their products: the largest score, in base 2, the sum
/// of exponentials relative to it, and the exponentials.
///
/// A row sees the keys from `oldest` to `last`; where no key `is_hidden`, all rows see all keys.
#[device]
pub fn weighted<A: Float, const M: usize, const N: usize, const CAP: usize>(
    products: Tile2<A, M, N>,
    key: Tile1<i32, N>,
    oldest: Tile1<i32, M>,
    last: Tile1<i32, M>,
    is_hidden: bool,
    scale: A,
    cap: A,
) -> (Tile1<A, M>, Tile1<A, M>, Tile2<A, M, N>) {
    let mut x = products;
    let mut by = scale * A::from(LOG2_E);
    if CAP == 1 {
        x = capped::<A, M, N, CAP>(x, scale, cap);
        by = A::ONE;
    }
    if is_hidden {
        let key = key.row();
        x = where_((key <= last.col()) & (key >= oldest.col()), x, A::NEG_INFINITY);
    }
    let top = maximum(full::<A, M>(A::MIN), max(x, 1) * by);
    let w = fast::exp2(fma(x, by, -top.col()));
    (top, row_sums::<A, M, N>(w), w)
}

/// Whether some row does not see some key of block `j`: the first of rows stands at key `place`, the last at
/// `end`.
#[device]
pub fn hides<const BN: usize>(j: i64, place: i64, end: i64, window: i64) -> bool {
    (j * BN + (BN - 1) > place) | (j * BN < end - (window - 1))
}

/// Where `N` keys from `begin` on are in a dense cache with `ROW` elements of each key: where each one's page begins,
/// and how far into the page it is. That of the keys that `is_key`; others are somewhere in the cache. `pages` are the
/// numbers of the sequence's pages.
#[device]
pub fn pages_of<const N: usize, const PAGE: usize, const ROW: usize>(
    pages: Ptr<i64>,
    begin: i64,
    is_key: Tile1<bool, N>,
    count: i64,
) -> (Tile1<i64, N>, Tile1<i64, N>) {
    let i = arange::<N>();
    // Where blocks are whole pages no index is divided while the kernel runs, and a loop over blocks does not change
    // how far into their pages the keys are.
    let (number, offset) = if N % PAGE == 0 {
        (begin / N * (N / PAGE) + i / PAGE, i % PAGE)
    } else {
        ((begin + i) / PAGE, (begin + i) % PAGE)
    };
    let page = load(pages + number, is_key).to::<i32>();
    let page = clamp(page, 0, (count - 1).to::<i32>());
    (page.to::<i64>() * (PAGE * ROW), offset * ROW)
}

/// Attention of `q: [n, h, d]` to dense `keys` and `values: [pages, PAGE, g, d]`, `h` being `g * EACH` and
/// `ROW` being `g * d`. What the cache holds as `C` is computed with as `T`.
///
/// Sequence `s` has the new tokens `starts[s]..starts[s + 1]` and `lengths[s]` keys, the last of which is that
/// of its last new token; key `i` is at `i % PAGE` of page `table[s, i / PAGE]`. A token sees keys up to its
/// own, the last `window` of them.
///
/// With `ONE` a sequence has no more than one tile of rows, and the tile has its number; what has more than
/// `limit` rows is left to another kernel. Programs are numbered by tile and head of keys. With `SPLIT` the grid is
/// heads of keys, parts and tiles; a program has `span` blocks of keys, and writes each to `sums: [n, h, blocks, 2]`
/// and `parts: [n, h, blocks, D]`.
#[kernel]
pub fn paged_attention<
    T: Float,
    C: Element,
    A: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const EACH: usize,
    const PAGE: usize,
    const ROW: usize,
    const CAP: usize,
    const SINKS: usize,
    const SPLIT: usize,
    const ONE: usize,
>(
    q: View<T, 3>,
    keys: View<C, 4>,
    values: View<C, 4>,
    sinks: View<T, 1>,
    o: ViewMut<T, 3>,
    sums: ViewMut<A, 4>,
    parts: ViewMut<A, 4>,
    starts: Ptr<i64>,
    lengths: Ptr<i64>,
    table: Ptr<i64>,
    sequences: i64,
    columns: i64,
    most: i64,
    window: i64,
    span: i64,
    limit: i64,
    scale: A,
    cap: A,
) {
    // Tiles are the slowest axis: those without rows, of which no host knows, come behind all others, and no
    // multiprocessor has two programs while another has one of those.
    let (mut own, part, mut number) = (program_id(0), program_id(1), program_id(2));
    if SPLIT == 0 {
        let (program, heads) = (program_id(0).to::<i32>(), keys.dim(2).to::<i32>());
        number = (program / heads).to::<i64>();
        own = (program % heads).to::<i64>();
    }
    let tokens = q.dim(0);
    let mut s = minimum(number, sequences);
    let mut block = number - s;
    if ONE == 0 {
        s = sequence_of::<BM, 1>(starts, sequences, number, EACH, tokens);
        block = number - (clamp(load(starts + s), 0, tokens) * EACH / BM + s);
    }
    let (first, n, len) = extent_of(starts, lengths, sequences, s, tokens, most);
    let row = block * BM;
    if (row < n * EACH) & ((n * EACH <= limit) | (s == sequences)) {
        let r = row + arange::<BM>();
        let token = r / EACH;
        let head = own * EACH + (r - token * EACH);
        let token = first + token;
        let is_row = r < n * EACH;
        let c = arange::<D>();
        let is_in = is_row.col() & (c < q.dim(2)).row();
        let from = (token * q.stride(0) + head * q.stride(1)).col() + (c * q.stride(2)).row();
        let rows = load(q.ptr() + from, is_in);
        // The last key that a row sees, and the first.
        let last = (r / EACH + (len - n)).to::<i32>();
        let oldest = last - (window - 1).to::<i32>();
        let first_place = len - n + row / EACH;
        let last_place = len - n + minimum((row + (BM - 1)) / EACH, n - 1);
        let (begin, end) = (maximum(first_place - (window - 1), 0), last_place + 1);
        let mut first_block = begin / BN;
        let mut end_block = cdiv(maximum(end, 0), BN);
        if SPLIT == 1 {
            first_block = maximum(first_block, part * span);
            end_block = minimum(end_block, (part + 1) * span);
        }
        let mut acc = zeros::<A, BM, D>();
        let mut top = full::<A, BM>(A::MIN);
        let mut total = zeros::<A, BM>();
        for j in range(first_block, end_block, 1) {
            let key = (j * BN).to::<i32>() + arange::<BN>().to::<i32>();
            let is_key = key < len.to::<i32>();
            let pages = table + s * columns;
            let (page, offset) = pages_of::<BN, PAGE, ROW>(pages, j * BN, is_key, keys.dim(0));
            let offset = own * q.dim(2) + (offset.col() + c.row());
            let is_channel = (c < q.dim(2)).row();
            // Scores of what is no key are hidden. Its values are zeros: 0 times what memory held may be NaN.
            let k = load(keys.ptr() + offset + page.col(), is_channel).to::<T>();
            let is_there = is_key.col() & is_channel;
            let v = load(values.ptr() + offset + page.col(), is_there).to::<T>();
            let x = dot(rows, k.trans(), zeros::<A, BM, BN>());
            let is_hidden = hides::<BN>(j, first_place, last_place, window);
            let (next_top, next_total, w) =
                weighted::<A, BM, BN, CAP>(x, key, oldest, last, is_hidden, scale, cap);
            let next_acc = dot(w.to::<T>(), v, zeros::<A, BM, D>());
            if SPLIT == 1 {
                let at = token * sums.stride(0) + head * sums.stride(1) + j * sums.stride(2);
                store(sums.ptr() + at, next_top, is_row);
                store(sums.ptr() + (at + 1), next_total, is_row);
                let at = token * parts.stride(0) + head * parts.stride(1) + j * parts.stride(2);
                store(parts.ptr() + (at.col() + c.row()), next_acc, is_row.col());
            } else {
                let (t, l, a) = joined::<A, BM, D>(top, total, acc, next_top, next_total, next_acc);
                top = t;
                total = l;
                acc = a;
            }
        }
        if SPLIT == 0 {
            let sink = load(sinks.ptr() + head * sinks.stride(0), is_row & (SINKS == 1));
            let y = mean::<A, BM, D, SINKS>(top, total, acc, sink.to::<A>());
            let to = (token * o.stride(0) + head * o.stride(1)).col() + (c * o.stride(2)).row();
            store(o.ptr() + to, y.to::<T>(), is_in);
        }
    }
}

/// Joins what [`mod@paged_attention`] left of each block of `BN` keys, `HEADS` heads of a token a program. What
/// has more than `limit` tokens is left to another kernel.
#[kernel]
pub fn paged_attention_join<
    T: Float,
    A: Float,
    const HEADS: usize,
    const D: usize,
    const BN: usize,
    const SINKS: usize,
>(
    sums: View<A, 4>,
    parts: View<A, 4>,
    sinks: View<T, 1>,
    o: ViewMut<T, 3>,
    starts: Ptr<i64>,
    lengths: Ptr<i64>,
    sequences: i64,
    most: i64,
    window: i64,
    limit: i64,
) {
    let (token, h) = (program_id(0), program_id(1) * HEADS);
    let tokens = o.dim(0);
    // Where sequences have one token each, the token has the number of its own.
    let mut s = minimum(token, sequences);
    let is_one =
        (load(starts + s) == token) & (load(starts + (s + 1), s < sequences, token) == token + 1);
    if !is_one {
        s = sequence_of::<1, 0>(starts, sequences, token, 1, tokens);
    }
    let (first, n, len) = extent_of(starts, lengths, sequences, s, tokens, most);
    if (n <= limit) | (s == sequences) {
        let last = len - n + (token - first);
        let mut acc = zeros::<A, HEADS, D>();
        let mut top = full::<A, HEADS>(A::MIN);
        let mut total = zeros::<A, HEADS>();
        let (head, c) = (h + arange::<HEADS>(), arange::<D>());
        let is_head = head < o.dim(1);
        let end = cdiv(maximum(last + 1, 0), BN);
        for start in range(maximum(last - (window - 1), 0) / BN, end, 16) {
            // Unrolled: all loads begin before the first join waits for its own.
            for i in 0..16 {
                let j = start + i;
                let is_there = is_head & (j < end);
                let at = token * sums.stride(0) + head * sums.stride(1) + j * sums.stride(2);
                let next_top = load(sums.ptr() + at, is_there, A::MIN);
                let next_total = load(sums.ptr() + (at + 1), is_there);
                let at = token * parts.stride(0) + head * parts.stride(1) + j * parts.stride(2);
                let next_acc = load(parts.ptr() + (at.col() + c.row()), is_there.col());
                let (t, l, a) =
                    joined::<A, HEADS, D>(top, total, acc, next_top, next_total, next_acc);
                top = t;
                total = l;
                acc = a;
            }
        }
        let sink = load(sinks.ptr() + head * sinks.stride(0), is_head & (SINKS == 1));
        let y = mean::<A, HEADS, D, SINKS>(top, total, acc, sink.to::<A>());
        o.store([token, h, 0], y.to::<T>().reshape::<1, HEADS, D>());
    }
}

/// Brings the keys and values of sequences with more than `limit` rows into a row of their own each:
/// `to_keys` and `to_values: [sequences, .., g, d]`, `ROWS` keys of a head a program. What follows the last
/// key in its block of `BN` is 0.
#[kernel]
pub fn paged_gather<
    T: Float,
    C: Element,
    const ROWS: usize,
    const BN: usize,
    const D: usize,
    const EACH: usize,
    const PAGE: usize,
    const ROW: usize,
>(
    keys: View<C, 4>,
    values: View<C, 4>,
    to_keys: ViewMut<T, 4>,
    to_values: ViewMut<T, 4>,
    starts: Ptr<i64>,
    lengths: Ptr<i64>,
    table: Ptr<i64>,
    sequences: i64,
    columns: i64,
    tokens: i64,
    most: i64,
    window: i64,
    limit: i64,
) {
    let (own, s, begin) = (program_id(1), program_id(2), program_id(0) * ROWS);
    let at = begin + arange::<ROWS>();
    let (is_known, pages) = (at / PAGE < columns, table + s * columns);
    let (page, offset) = pages_of::<ROWS, PAGE, ROW>(pages, begin, is_known, keys.dim(0));
    let (_, n, len) = extent_of(starts, lengths, sequences, s, tokens, most);
    // Of a block with a key that is seen all values are there: 0 times what memory held may be NaN.
    let is_seen = begin / BN * BN + (BN - 1) >= len - n - (window - 1);
    if (n * EACH > limit) & is_seen & (begin < cdiv(len, BN) * BN) {
        let c = arange::<D>();
        let is_key = (at < len).col() & (c < keys.dim(3)).row();
        let offset = own * keys.dim(3) + (offset.col() + c.row());
        let k = load(keys.ptr() + offset + page.col(), is_key).to::<T>();
        let v = load(values.ptr() + offset + page.col(), is_key).to::<T>();
        to_keys.store([s, begin, own, 0], k.reshape::<1, ROWS, 1, D>());
        to_values.store([s, begin, own, 0], v.reshape::<1, ROWS, 1, D>());
    }
}

/// [`mod@paged_attention`] of sequences with more than `limit` rows to what [`mod@paged_gather`] gathered, a
/// head of `BM` tokens a program; with a limit of 0 also of the rows behind the last sequence.
///
/// A block's weighted values are joined an iteration later, so that tensor cores have two products at a
/// time: those of the next block's scores beside them.
#[kernel]
pub fn paged_prefill<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const EACH: usize,
    const CAP: usize,
    const SINKS: usize,
>(
    q: View<T, 3>,
    keys: View<T, 4>,
    values: View<T, 4>,
    sinks: View<T, 1>,
    o: ViewMut<T, 3>,
    starts: Ptr<i64>,
    lengths: Ptr<i64>,
    sequences: i64,
    top_bit: i64,
    bits: i64,
    most: i64,
    window: i64,
    limit: i64,
    scale: A,
    cap: A,
) {
    // The last tokens have the most to do and come first, those of all heads together.
    let (h, number) = (program_id(0), num_programs(1) - 1 - program_id(1));
    let tokens = q.dim(0);
    let s = sequence_at::<BM>(starts, sequences, number, tokens, top_bit, bits);
    let row = (number - (clamp(load(starts + s), 0, tokens) / BM + s)) * BM;
    let (first, n, len) = extent_of(starts, lengths, sequences, s, tokens, most);
    if (row < n) & (n * EACH > limit) & ((s < sequences) | (limit == 0)) {
        let own = h / EACH;
        let rows = q.load::<BM, 1, D>([first + row, h, 0]).reshape::<BM, D>();
        let r = row + arange::<BM>();
        let last = (r + (len - n)).to::<i32>();
        let oldest = last - (window - 1).to::<i32>();
        let first_place = len - n + row;
        let last_place = len - n + minimum(row + (BM - 1), n - 1);
        let begin = maximum(first_place - (window - 1), 0) / BN;
        let mut acc = zeros::<A, BM, D>();
        let mut top = full::<A, BM>(A::MIN);
        let mut total = zeros::<A, BM>();
        let mut next_acc = zeros::<A, BM, D>();
        let mut next_top = full::<A, BM>(A::MIN);
        let mut next_total = zeros::<A, BM>();
        for j in range(begin, cdiv(maximum(last_place + 1, 0), BN), 1) {
            let k = keys.load::<1, BN, 1, D>([s, j * BN, own, 0]).reshape::<BN, D>();
            let x = dot(rows, k.trans(), zeros::<A, BM, BN>());
            let key = (j * BN + arange::<BN>()).to::<i32>();
            let is_hidden = hides::<BN>(j, first_place, last_place, window);
            let (own_top, own_total, w) =
                weighted::<A, BM, BN, CAP>(x, key, oldest, last, is_hidden, scale, cap);
            let (t, l, a) = joined::<A, BM, D>(top, total, acc, next_top, next_total, next_acc);
            top = t;
            total = l;
            acc = a;
            next_top = own_top;
            next_total = own_total;
            let v = values.load::<1, BN, 1, D>([s, j * BN, own, 0]).reshape::<BN, D>();
            next_acc = dot(w.to::<T>(), v, zeros::<A, BM, D>());
        }
        let (top, total, acc) = joined::<A, BM, D>(top, total, acc, next_top, next_total, next_acc);
        let sink = load(sinks.ptr() + h * sinks.stride(0), SINKS == 1);
        let sink = full::<A, BM>(A::ONE) * sink.to::<A>();
        let y = mean::<A, BM, D, SINKS>(top, total, acc, sink);
        let c = arange::<D>();
        let to = ((first + r) * o.stride(0)).col() + (c * o.stride(2)).row();
        let is_in = (r < n).col() & (c < o.dim(2)).row();
        store(o.ptr() + (h * o.stride(1) + to), y.to::<T>(), is_in);
    }
}
