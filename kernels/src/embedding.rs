//! Embedding: rows of a table by index, and the gradient of the table.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &embedding::KERNEL,
    &embedding_bag::KERNEL,
    &embedding_pieces::KERNEL,
    &embedding_merge::KERNEL,
    &embedding_starts::KERNEL,
    &embedding_bwd::KERNEL,
    &embedding_bwd_small::KERNEL,
    &embedding_bag_bwd::KERNEL,
    &embedding_bag_dots::KERNEL,
];

/// `y[t, ..] = table[index[t], ..]`
///
/// An index that no row has gives zeros, and is left in `flag` as by `index::resolve`.
#[kernel]
pub fn embedding<T: Element, const COLS: usize>(
    table: View<T, 2>,
    index: View<i64, 1>,
    y: ViewMut<T, 2>,
    flag: PtrMut<i64>,
    code: i64,
) {
    let t = program_id(0);
    let j = program_id(1) * COLS;
    let row = sum(index.load::<1>([t]), 0);
    if (row < 0) | (row >= table.dim(0)) {
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), row);
    }
    y.store([t, j], table.load::<1, COLS>([row, j]));
}

/// `y[b, ..]` is the sum of `table[index[t], ..]` over the `t` of bag `b`, or with a `mean` of 1 their mean; zeros where a bag
/// is empty.
///
/// Bag `b` has `length` indices, or where that is 0 those from `offsets[b]` to the next of `of` offsets, the last of them to
/// `n`. Row `padding` is left out. With `WEIGHTED` each row has a weight. An index that no row has is left out too, and
/// goes to `flag` as by `index::resolve`.
#[kernel]
pub fn embedding_bag<
    T: Float,
    A: Float,
    const WEIGHTED: bool,
    const TOKENS: usize,
    const COLS: usize,
>(
    table: View<T, 2>,
    index: Ptr<i64>,
    offsets: Ptr<i64>,
    weights: Ptr<A>,
    y: ViewMut<T, 2>,
    n: i64,
    length: i64,
    of: i64,
    padding: i64,
    mean: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (b, j) = (program_id(0), program_id(1) * COLS);
    let mut begin = b * length;
    let mut end = begin + length;
    if length == 0 {
        begin = maximum(load(offsets + b), 0);
        end = minimum(load(offsets + (b + 1), b + 1 < of, n), n);
    }
    let col = j + arange::<COLS>();
    let mut acc = zeros::<A, TOKENS, COLS>();
    let mut many = 0_i64;
    for t in range(begin, end, TOKENS) {
        let at = t + arange::<TOKENS>();
        let row = load(index + at, at < end);
        let is_row = (row >= 0) & (row < table.dim(0));
        let is_wrong = (at < end) & !is_row;
        if any(is_wrong, 0) {
            atomic_max(flag, code);
            atomic_max(flag + (((code >> 4) & 1023) + 1), max(where_(is_wrong, row, i64::MIN), 0));
        }
        let is_own = (at < end) & is_row & (row != padding);
        let from = table.ptr() + (row * table.stride(0)).col() + (col * table.stride(1)).row();
        let v = load(from, is_own.col() & (col < table.dim(1)).row()).to::<A>();
        if WEIGHTED {
            acc = acc + v * load(weights + at, is_own).col();
        } else {
            acc = acc + v;
        }
        many = many + sum(is_own.to::<i64>(), 0);
    }
    let total = sum(acc, 0);
    let scale = where_((mean != 0) & (many > 1), many, 1).to::<A>();
    y.store([b, j], (total / scale).to::<T>().row());
}

/// One number that says where a token belongs: by row, then by position. Indices that no row of the
/// table has belong behind all rows, what is no token behind everything.
#[device]
pub fn key_of<S: Shape>(
    row: Tile<i64, S>,
    token: Tile<i64, S>,
    is_token: Tile<bool, S>,
    n_rows: i64,
    scale: i64,
) -> Tile<i64, S> {
    let row = where_((row >= 0) & (row < n_rows), row, n_rows);
    where_(is_token, row * scale + token, i64::MAX)
}

/// Lists tokens by row of the table, those of one row in their own order: the first step of a merge
/// sort. Each `PIECE` keys are in order, a key being `row * scale + token`.
#[kernel]
pub fn embedding_pieces<const TOKENS: usize, const PIECE: usize>(
    index: View<i64, 1>,
    keys: PtrMut<i64>,
    n_rows: i64,
    scale: i64,
) {
    let n = index.dim(0);
    let first = program_id(0) * TOKENS;
    let t = first + arange::<TOKENS>();
    let piece = first / PIECE * PIECE;
    let s = piece + arange::<PIECE>();
    let own = key_of(index.load::<TOKENS>([first]), t, t < n, n_rows, scale);
    let theirs = key_of(index.load::<PIECE>([piece]), s, s < n, n_rows, scale);
    let rank = sum((theirs.row() < own.col()).to::<i64>(), 1);
    store(keys + (piece + rank), own, t < n);
}

/// One more step of the sort: `FAN` pieces of `len` keys, each in order, become one.
///
/// How many keys of a piece come before one of another is found by halving, `steps` times, which is
/// for the longest piece; no two keys are equal.
#[kernel]
pub fn embedding_merge<const TOKENS: usize, const FAN: usize>(
    keys: Ptr<i64>,
    merged: PtrMut<i64>,
    n: i64,
    len: i64,
    steps: i64,
) {
    let first = program_id(0) * TOKENS;
    let p = first + arange::<TOKENS>();
    let key = load(keys + p, p < n, i64::MAX);
    let group = first / (len * FAN) * (len * FAN);
    let begin = (group + arange::<FAN>() * len).row();
    let mut low = minimum(begin, n).broadcast_to::<TOKENS, FAN>();
    let mut high = minimum(begin + len, n).broadcast_to::<TOKENS, FAN>();
    let begin = low;
    for _ in range(0, steps) {
        let middle = (low + high) >> 1;
        let is_before = load(keys + middle, low < high, i64::MAX) < key.col();
        low = where_(is_before, middle + 1, low);
        high = where_(is_before, high, middle);
    }
    store(merged + (group + sum(low - begin, 1)), key, p < n);
}

/// `starts[v]` is how many of the sorted keys are of rows before `v`, for `v` to `n_rows` inclusive.
#[kernel]
pub fn embedding_starts<const ROWS: usize>(
    keys: Ptr<i64>,
    starts: PtrMut<i64>,
    n: i64,
    n_rows: i64,
    scale: i64,
    steps: i64,
) {
    let v = program_id(0) * ROWS + arange::<ROWS>();
    let mut low = zeros::<i64, ROWS>();
    let mut high = low + n;
    for _ in range(0, steps) {
        let middle = (low + high) >> 1;
        let is_before = load(keys + middle, low < high, i64::MAX) < v * scale;
        low = where_(is_before, middle + 1, low);
        high = where_(is_before, high, middle);
    }
    store(starts + v, low, v <= n_rows);
}

/// `dtable[v, ..] = sum of dy[t, ..] over the t with index[t] == v`, in the order of t, for each v.
///
/// A program takes `ROWS` rows of the table. Where none has more than one token, which is so of most,
/// all are gathered at once; else row by row, of each `TOKENS` at a time, so that the order of additions
/// is fixed.
#[kernel]
pub fn embedding_bwd<
    T: Number,
    A: Number,
    const ROWS: usize,
    const TOKENS: usize,
    const COLS: usize,
>(
    keys: Ptr<i64>,
    starts: Ptr<i64>,
    dy: View<T, 2>,
    dtable: ViewMut<T, 2>,
    scale: i64,
) {
    let first = program_id(0) * ROWS;
    let n_rows = dtable.dim(0);
    let j = program_id(1) * COLS;
    let col = j + arange::<COLS>();
    let row = first + arange::<ROWS>();
    let start = load(starts + row, row < n_rows);
    let end = load(starts + (row + 1), row < n_rows);
    if max(end - start, 0) < 2 {
        let has = start < end;
        let t = load(keys + start, has) & (scale - 1);
        let from = dy.ptr() + (t * dy.stride(0)).col() + (col * dy.stride(1)).row();
        dtable.store([first, j], load(from, has.col() & (col < dy.dim(1)).row()));
    } else {
        for v in range(first, minimum(first + ROWS, n_rows)) {
            // That no row has more tokens than there are keeps tests for a wrapping index out of the loop.
            let end = minimum(load(starts + (v + 1)), dy.dim(0));
            let mut acc = zeros::<A, TOKENS, COLS>();
            for at in range(load(starts + v), end, TOKENS) {
                let place = at + arange::<TOKENS>();
                let t = load(keys + place, place < end) & (scale - 1);
                let from = dy.ptr() + (t * dy.stride(0)).col() + (col * dy.stride(1)).row();
                let is_own = (place < end).col() & (col < dy.dim(1)).row();
                acc = acc + load(from, is_own).to::<A>();
            }
            dtable.store([v, j], sum(acc, 0).to::<T>().row());
        }
    }
}

/// [`mod@embedding_bwd`] for tables of few rows, without an order.
///
/// One program a row of the table: it looks through the indices, `TOKENS` at a time, and reads
/// gradients only where one is its own.
#[kernel]
pub fn embedding_bwd_small<T: Float, A: Float, const TOKENS: usize, const COLS: usize>(
    index: View<i64, 1>,
    dy: View<T, 2>,
    dtable: ViewMut<T, 2>,
) {
    let v = program_id(0);
    let j = program_id(1) * COLS;
    let n = dy.dim(0);
    let mut acc = zeros::<A, COLS>();
    for t in range(0, n, TOKENS) {
        let at = t + arange::<TOKENS>();
        let mine = (index.load::<TOKENS>([t]) == v) & (at < n);
        if max(mine.to::<i64>(), 0) > 0 {
            let rows = dy.load::<TOKENS, COLS>([t, j]).to::<A>();
            acc = acc + sum(where_(mine.col(), rows, A::ZERO), 0);
        }
    }
    dtable.store([v, j], acc.to::<T>().row());
}

/// The bag of each token: `bag[t]`, or with bags of `length` tokens `t / length`.
#[device]
fn bag_of<const N: usize>(
    bag: Ptr<i64>,
    t: Tile1<i64, N>,
    is_token: Tile1<bool, N>,
    length: i64,
) -> Tile1<i64, N> {
    let listed = load(bag + t, is_token & (length == 0), -1);
    where_(length > 0, t / maximum(length, 1), listed)
}

/// `dtable[v, ..] = sum of dy[bag of t, ..] over the t with index[t] == v`, in the order of t, for each v; with `WEIGHTED`
/// each is multiplied by `weights[t]`. What has no bag in `dy` adds nothing.
///
/// The rows of `dy` are read where they are: there may be many more tokens than bags. Keys and `starts` are those of
/// [`mod@embedding_bwd`], of `n` tokens.
#[kernel]
pub fn embedding_bag_bwd<
    T: Float,
    A: Float,
    const WEIGHTED: bool,
    const ROWS: usize,
    const TOKENS: usize,
    const COLS: usize,
>(
    keys: Ptr<i64>,
    starts: Ptr<i64>,
    bag: Ptr<i64>,
    weights: Ptr<A>,
    dy: View<A, 2>,
    dtable: ViewMut<T, 2>,
    scale: i64,
    n: i64,
    length: i64,
) {
    let first = program_id(0) * ROWS;
    let j = program_id(1) * COLS;
    let col = j + arange::<COLS>();
    for v in range(first, minimum(first + ROWS, dtable.dim(0))) {
        // That no row has more tokens than there are keeps tests for a wrapping index out of the loop.
        let end = minimum(load(starts + (v + 1)), n);
        let mut acc = zeros::<A, TOKENS, COLS>();
        for at in range(load(starts + v), end, TOKENS) {
            let place = at + arange::<TOKENS>();
            let is_token = place < end;
            let t = load(keys + place, is_token) & (scale - 1);
            let b = bag_of(bag, t, is_token, length);
            let is_own = is_token & (b >= 0) & (b < dy.dim(0));
            let from = dy.ptr() + (b * dy.stride(0)).col() + (col * dy.stride(1)).row();
            let slope = load(from, is_own.col() & (col < dy.dim(1)).row());
            if WEIGHTED {
                acc = acc + slope * load(weights + t, is_own).col();
            } else {
                acc = acc + slope;
            }
        }
        dtable.store([v, j], sum(acc, 0).to::<T>().row());
    }
}

/// `dweights[t] = sum(table[index[t], ..] * dy[bag of t, ..])`, which is 0 where either is not there.
#[kernel]
pub fn embedding_bag_dots<T: Float, A: Float, const TOKENS: usize, const COLS: usize>(
    table: View<T, 2>,
    index: Ptr<i64>,
    bag: Ptr<i64>,
    dy: View<A, 2>,
    dweights: PtrMut<A>,
    n: i64,
    length: i64,
) {
    let t = program_id(0) * TOKENS + arange::<TOKENS>();
    let is_token = t < n;
    let row = load(index + t, is_token, -1);
    let b = bag_of(bag, t, is_token, length);
    let is_own = is_token & (row >= 0) & (row < table.dim(0)) & (b >= 0) & (b < dy.dim(0));
    let rows = table.ptr() + (row * table.stride(0)).col();
    let slopes = dy.ptr() + (b * dy.stride(0)).col();
    let mut acc = zeros::<A, TOKENS, COLS>();
    for j in range(0, dy.dim(1), COLS) {
        let col = j + arange::<COLS>();
        let is_here = is_own.col() & (col < dy.dim(1)).row();
        let v = load(rows + (col * table.stride(1)).row(), is_here).to::<A>();
        acc = acc + v * load(slopes + (col * dy.stride(1)).row(), is_here);
    }
    store(dweights + t, sum(acc, 1), is_token);
}
