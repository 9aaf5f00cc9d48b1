//! Sums, and where extremes stand, along one axis of a tensor seen as `[outer, n, inner]`.
//!
//! Where `inner` is 1 the axis lies dense and a program takes `ROWS` rows (`*_rows`); else it takes
//! `COLS` neighbouring columns (`*_cols`). Sums are kept as a tile of partial sums until the end, so
//! the order of additions depends on the extents and block sizes only.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &sum_rows::KERNEL,
    &sum_cols::KERNEL,
    &sum_rows_shared::KERNEL,
    &sum_cols_shared::KERNEL,
    &argmax_rows::KERNEL,
    &argmax_cols::KERNEL,
    &argmax_cols_shared::KERNEL,
    &argmin_rows::KERNEL,
    &argmin_cols::KERNEL,
    &argmin_cols_shared::KERNEL,
];

/// `y[i] = scale * sum(x[i, ..])`, of `x: [m, n]`.
#[kernel]
pub fn sum_rows<T: Number, A: Number, U: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<U, 1>,
    scale: A,
) {
    let i = program_id(0) * ROWS;
    let mut acc = zeros::<A, ROWS, COLS>();
    for j in range(0, x.dim(1), COLS) {
        acc = acc + x.load::<ROWS, COLS>([i, j]).to::<A>();
    }
    y.store([i], (sum(acc, 1) * scale).to::<U>());
}

/// `y[o, j] = scale * sum(x[o, .., j])`, of `x: [outer, n, inner]`.
#[kernel]
pub fn sum_cols<T: Number, A: Number, U: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 3>,
    y: ViewMut<U, 2>,
    scale: A,
) {
    let o = program_id(1);
    let j = program_id(0) * COLS;
    let mut acc = zeros::<A, ROWS, COLS>();
    for i in range(0, x.dim(1), ROWS) {
        acc = acc + x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0).to::<A>();
    }
    y.store([o, j], (sum(acc, 0) * scale).to::<U>().row());
}

/// [`mod@sum_rows`] where there are few rows: `num_programs(0)` programs share one, and the last of
/// them to finish adds up what each left in `partial`, always in the same order.
///
/// `done` holds a zero for each row, before and after.
#[kernel]
pub fn sum_rows_shared<T: Number, A: Number, U: Number, const COLS: usize, const PARTS: usize>(
    x: View<T, 2>,
    partial: ViewMut<A, 2>,
    done: PtrMut<i32>,
    y: ViewMut<U, 1>,
    scale: A,
) {
    let (part, i) = (program_id(0), program_id(1));
    let parts = num_programs(0);
    let mut acc = zeros::<A, 1, COLS>();
    for j in range(part * COLS, x.dim(1), parts * COLS) {
        acc = acc + x.load::<1, COLS>([i, j]).to::<A>();
    }
    partial.store([i, part], sum(acc, 1).col());
    if atomic_add(done + i, 1).to::<i64>() == parts - 1 {
        let total = sum(partial.load::<1, PARTS>([i, 0]), 1);
        y.store([i], (total * scale).to::<U>());
        atomic_xchg(done + i, 0);
    }
}

/// [`mod@sum_cols`] where there are few columns, shared as in [`mod@sum_rows_shared`].
#[kernel]
pub fn sum_cols_shared<
    T: Number,
    A: Number,
    U: Number,
    const ROWS: usize,
    const COLS: usize,
    const PARTS: usize,
>(
    x: View<T, 3>,
    partial: ViewMut<A, 3>,
    done: PtrMut<i32>,
    y: ViewMut<U, 2>,
    scale: A,
) {
    let (o, part, j) = (program_id(1), program_id(2), program_id(0) * COLS);
    let parts = num_programs(2);
    let mut acc = zeros::<A, ROWS, COLS>();
    for i in range(part * ROWS, x.dim(1), parts * ROWS) {
        acc = acc + x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0).to::<A>();
    }
    partial.store([o, part, j], sum(acc, 0).row().expand_dims(0));
    let own = o * num_programs(0) + program_id(0);
    if atomic_add(done + own, 1).to::<i64>() == parts - 1 {
        let total = sum(partial.load::<1, PARTS, COLS>([o, 0, j]).squeeze(0), 0);
        y.store([o, j], (total * scale).to::<U>().row());
        atomic_xchg(done + own, 0);
    }
}

macro_rules! arg_extreme {
    ($($(#[$doc:meta])* $rows:ident, $cols:ident, $shared:ident = $reduce:ident, $better:tt;)*) => {$(
        $(#[$doc])*
        ///
        /// Of each row.
        #[kernel]
        pub fn $rows<T: Number, const ROWS: usize, const COLS: usize>(x: View<T, 2>, y: ViewMut<i64, 1>) {
            let i = program_id(0) * ROWS;
            let n = x.dim(1);
            // Each place of the block keeps its own best: no step of the loop waits for others.
            let mut best = x.load::<ROWS, 1>([i, 0]).broadcast_to::<ROWS, COLS>();
            let mut at = zeros::<i32, ROWS, COLS>();
            for j in range(0, n, COLS) {
                let col = (j + arange::<COLS>()).row();
                let v = x.load::<ROWS, COLS>([i, j]);
                let wins = (v $better best) | ((v != v) & (best == best));
                let wins = wins & (col < n);
                best = where_(wins, v, best);
                at = where_(wins, col.to::<i32>(), at);
            }
            let top = $reduce(best, 1).col();
            let is_top = (best == top) | (best != best);
            y.store([i], min(where_(is_top, at, i32::MAX), 1).to::<i64>());
        }

        $(#[$doc])*
        ///
        /// Of each column of `x: [outer, n, inner]`.
        #[kernel]
        pub fn $cols<T: Number, const ROWS: usize, const COLS: usize>(x: View<T, 3>, y: ViewMut<i64, 2>) {
            let (o, j) = (program_id(1), program_id(0) * COLS);
            let n = x.dim(1);
            let first = x.load::<1, 1, COLS>([o, 0, j]).squeeze(0).squeeze(0).row();
            let mut best = first.broadcast_to::<ROWS, COLS>();
            let mut at = zeros::<i32, ROWS, COLS>();
            for i in range(0, n, ROWS) {
                let row = (i + arange::<ROWS>()).col();
                let v = x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0);
                let wins = (v $better best) | ((v != v) & (best == best));
                let wins = wins & (row < n);
                best = where_(wins, v, best);
                at = where_(wins, row.to::<i32>(), at);
            }
            let top = $reduce(best, 0).row();
            let is_top = (best == top) | (best != best);
            y.store([o, j], min(where_(is_top, at, i32::MAX), 0).to::<i64>().row());
        }

        $(#[$doc])*
        ///
        /// Of each column of `x: [outer, n, inner]`, by several programs as [`mod@sum_cols_shared`].
        #[kernel]
        pub fn $shared<T: Number, const ROWS: usize, const COLS: usize, const STEP: usize>(
            x: View<T, 3>,
            tops: ViewMut<T, 3>,
            places: ViewMut<i32, 3>,
            done: PtrMut<i32>,
            y: ViewMut<i64, 2>,
        ) {
            let (o, part, j) = (program_id(1), program_id(2), program_id(0) * COLS);
            let (n, parts) = (x.dim(1), num_programs(2));
            let first = x.load::<1, 1, COLS>([o, 0, j]).squeeze(0).squeeze(0).row();
            let mut best = first.broadcast_to::<ROWS, COLS>();
            let mut at = zeros::<i32, ROWS, COLS>();
            for i in range(part * ROWS, n, parts * ROWS) {
                let row = (i + arange::<ROWS>()).col();
                let v = x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0);
                let wins = (v $better best) | ((v != v) & (best == best));
                let wins = wins & (row < n);
                best = where_(wins, v, best);
                at = where_(wins, row.to::<i32>(), at);
            }
            let top = $reduce(best, 0).row();
            let is_top = (best == top) | (best != best);
            tops.store([o, part, j], top.expand_dims(0));
            places.store([o, part, j], min(where_(is_top, at, i32::MAX), 0).row().expand_dims(0));
            let own = o * num_programs(0) + program_id(0);
            if atomic_add(done + own, 1).to::<i64>() == parts - 1 {
                // Of equals the first: parts are not in the order of their rows.
                let mut best = first.broadcast_to::<STEP, COLS>();
                let mut at = zeros::<i32, STEP, COLS>();
                for p in range(0, parts, STEP) {
                    let v = tops.load::<1, STEP, COLS>([o, p, j]).squeeze(0);
                    let place = places.load::<1, STEP, COLS>([o, p, j]).squeeze(0);
                    let is_same = (v == best) | ((v != v) & (best != best));
                    let wins = (v $better best) | ((v != v) & (best == best)) | (is_same & (place < at));
                    let wins = wins & ((p + arange::<STEP>()).col() < parts);
                    best = where_(wins, v, best);
                    at = where_(wins, place, at);
                }
                let top = $reduce(best, 0).row();
                let is_top = (best == top) | (best != best);
                y.store([o, j], min(where_(is_top, at, i32::MAX), 0).to::<i64>().row());
                atomic_xchg(done + own, 0);
            }
        }
    )*};
}

arg_extreme! {
    /// Where the largest element stands; the first of equals, NaN before numbers.
    argmax_rows, argmax_cols, argmax_cols_shared = max, >;
    /// Where the smallest element stands; the first of equals, NaN before numbers.
    argmin_rows, argmin_cols, argmin_cols_shared = min, <;
}
