//! Reductions along one axis of a tensor seen as `[outer, n, inner]`.
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
    &max_rows::KERNEL,
    &max_cols::KERNEL,
    &min_rows::KERNEL,
    &min_cols::KERNEL,
    &argmax_rows::KERNEL,
    &argmin_rows::KERNEL,
];

/// `y[i] = scale * sum(x[i, ..])`, of `x: [m, n]`.
#[kernel]
pub fn sum_rows<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 1>,
    scale: A,
) {
    let i = program_id(0) * ROWS;
    let mut acc = zeros::<A, ROWS, COLS>();
    for j in range(0, x.dim(1), COLS) {
        acc = acc + x.load::<ROWS, COLS>([i, j]).to::<A>();
    }
    y.store([i], (sum(acc, 1) * scale).to::<T>());
}

/// `y[o, j] = scale * sum(x[o, .., j])`, of `x: [outer, n, inner]`.
#[kernel]
pub fn sum_cols<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    x: View<T, 3>,
    y: ViewMut<T, 2>,
    scale: A,
) {
    let o = program_id(1);
    let j = program_id(0) * COLS;
    let mut acc = zeros::<A, ROWS, COLS>();
    for i in range(0, x.dim(1), ROWS) {
        acc = acc + x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0).to::<A>();
    }
    y.store([o, j], (sum(acc, 0) * scale).to::<T>().expand_dims(0));
}

macro_rules! extreme {
    ($($(#[$doc:meta])* $rows:ident, $cols:ident = $reduce:ident, $pair:ident;)*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $rows<T: Number, const ROWS: usize, const COLS: usize>(x: View<T, 2>, y: ViewMut<T, 1>) {
            let i = program_id(0) * ROWS;
            // Past the edge stands the row's first element, which changes nothing.
            let first = x.load::<ROWS, 1>([i, 0]).squeeze(1).col();
            let mut acc = first.broadcast_to::<ROWS, COLS>();
            for j in range(0, x.dim(1), COLS) {
                let inside = (j + arange::<COLS>()).row() < x.dim(1);
                acc = $pair(acc, where_(inside, x.load::<ROWS, COLS>([i, j]), first));
            }
            y.store([i], $reduce(acc, 1));
        }

        $(#[$doc])*
        #[kernel]
        pub fn $cols<T: Number, const ROWS: usize, const COLS: usize>(x: View<T, 3>, y: ViewMut<T, 2>) {
            let o = program_id(1);
            let j = program_id(0) * COLS;
            let first = x.load::<1, 1, COLS>([o, 0, j]).squeeze(0).squeeze(0).row();
            let mut acc = first.broadcast_to::<ROWS, COLS>();
            for i in range(0, x.dim(1), ROWS) {
                let inside = (i + arange::<ROWS>()).col() < x.dim(1);
                let v = x.load::<1, ROWS, COLS>([o, i, j]).squeeze(0);
                acc = $pair(acc, where_(inside, v, first));
            }
            y.store([o, j], $reduce(acc, 0).expand_dims(0));
        }
    )*};
}

extreme! {
    /// The largest element; NaN wins.
    max_rows, max_cols = max, maximum;
    /// The smallest element; NaN wins.
    min_rows, min_cols = min, minimum;
}

/// The larger of two (value, index) pairs; NaN wins over numbers, the smaller index wins a tie.
#[device]
pub fn larger<T: Number>(a: (T, i64), b: (T, i64)) -> (T, i64) {
    if b.0 > a.0
        || (b.0 != b.0 && a.0 == a.0)
        || ((b.0 == a.0 || (b.0 != b.0 && a.0 != a.0)) && b.1 < a.1)
    {
        b
    } else {
        a
    }
}

/// The smaller of two (value, index) pairs; NaN wins over numbers, the smaller index wins a tie.
#[device]
pub fn smaller<T: Number>(a: (T, i64), b: (T, i64)) -> (T, i64) {
    if b.0 < a.0
        || (b.0 != b.0 && a.0 == a.0)
        || ((b.0 == a.0 || (b.0 != b.0 && a.0 != a.0)) && b.1 < a.1)
    {
        b
    } else {
        a
    }
}

macro_rules! arg_extreme {
    ($($(#[$doc:meta])* $name:ident = $better:ident;)*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Number, const COLS: usize>(x: View<T, 2>, y: ViewMut<i64, 1>) {
            let i = program_id(0);
            let n = x.dim(1);
            // Past the edge stands the first element with an index that loses every tie.
            let first = x.load::<1, 1>([i, 0]).reshape::<1>();
            let mut best = max(first, 0);
            let mut at = n;
            for j in range(0, n, COLS) {
                let col = j + arange::<COLS>();
                let v = where_(col < n, x.load::<1, COLS>([i, j]).squeeze(0), max(first, 0));
                let (value, index) = reduce((v, where_(col < n, col, n)), 0, $better);
                let (b, a) = $better((best, at), (value, index));
                best = b;
                at = a;
            }
            y.store([i], full::<i64, 1>(at));
        }
    )*};
}

arg_extreme! {
    /// Where the largest element of each row stands; the first of equals, NaN before numbers.
    argmax_rows = larger;
    /// Where the smallest element of each row stands; the first of equals, NaN before numbers.
    argmin_rows = smaller;
}
