//! Rows of a table by index, and the gradient of the table.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &embedding::KERNEL,
    &embedding_order::KERNEL,
    &embedding_bwd::KERNEL,
    &embedding_bwd_small::KERNEL,
];

/// `y[t, ..] = table[index[t], ..]`
#[kernel]
pub fn embedding<T: Element, const COLS: usize>(
    table: View<T, 2>,
    index: View<i64, 1>,
    y: ViewMut<T, 2>,
) {
    let t = program_id(0);
    let j = program_id(1) * COLS;
    let row = sum(index.load::<1>([t]), 0);
    y.store([t, j], table.load::<1, COLS>([row, j]));
}

/// Lists the tokens by index, those of one index in their own order: a stable sort by counting how
/// many come before each.
///
/// `rows` gets the indices in that order and `order` the tokens they are of. Indices that no row of
/// the table has count as `n_rows`.
#[kernel]
pub fn embedding_order<const TOKENS: usize, const BLOCK: usize>(
    index: View<i64, 1>,
    rows: PtrMut<i64>,
    order: PtrMut<i64>,
    n_rows: i64,
) {
    let n = index.dim(0);
    let t = program_id(0) * TOKENS + arange::<TOKENS>();
    let own = index.load::<TOKENS>([program_id(0) * TOKENS]);
    let row = where_((own >= 0) & (own < n_rows), own, n_rows);
    let mut before = zeros::<i32, TOKENS, BLOCK>();
    for s in range(0, n, BLOCK) {
        let other = s + arange::<BLOCK>();
        let theirs = index.load::<BLOCK>([s]);
        let theirs = where_((theirs >= 0) & (theirs < n_rows), theirs, n_rows);
        // One number says where a token belongs: by row, then by position.
        let key = where_(other < n, theirs * n + other, i64::MAX);
        before = before + (key.row() < (row * n + t).col()).to::<i32>();
    }
    let rank = sum(before, 1).to::<i64>();
    store(rows + rank, row, t < n);
    store(order + rank, t, t < n);
}

/// `dtable[v, ..] = sum of dy[t, ..] over the t with index[t] == v`, in the order of t, for each v
/// that is there; other rows are left as they are.
///
/// One program a place in the order that [`mod@embedding_order`] made: where a row's tokens begin, it
/// adds them all, `TOKENS` at a time. So the order of additions is fixed.
#[kernel]
pub fn embedding_bwd<T: Float, A: Float, const TOKENS: usize, const COLS: usize>(
    rows: Ptr<i64>,
    order: Ptr<i64>,
    dy: View<T, 2>,
    dtable: ViewMut<T, 2>,
) {
    let p = program_id(0);
    let n = dy.dim(0);
    let row = load(rows + p);
    let before = load(rows + (p - 1), p > 0, -1);
    if before != row && row < dtable.dim(0) {
        let col = program_id(1) * COLS + arange::<COLS>();
        let mut acc = zeros::<A, TOKENS, COLS>();
        let mut at = p;
        while at < n {
            let place = at + arange::<TOKENS>();
            let is_own = load(rows + place, place < n, -1) == row;
            let t = load(order + place, is_own);
            let from = dy.ptr() + (t * dy.stride(0)).col() + (col * dy.stride(1)).row();
            acc = acc + load(from, is_own.col() & (col < dy.dim(1)).row()).to::<A>();
            at = at + TOKENS;
            if !all(is_own, 0) {
                at = n;
            }
        }
        dtable.store([row, program_id(1) * COLS], sum(acc, 0).to::<T>().row());
    }
}

/// [`mod@embedding_bwd`] for tables of few rows, without an order, and every row written.
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
