//! Softmax and its logarithm along the last axis.
//!
//! Statistics are in `A` (f32 for 16-bit dtypes). A row that fits the registers of a block, or of a
//! cluster of blocks, is read once; a longer one is read twice, the second time from its end, where the
//! cache still has it.
//!
//! The long form is online: each of `LANES` places keeps the largest value it has seen and the sum
//! of exponentials relative to it, of `WIDTH` neighbours at a time. They become one number a row
//! only after the loop, so that no step of it waits for other threads.
//!
//! Rows of an odd length begin anywhere in a vector of 16 bytes. Where they lie dense, the unaligned form walks vectors of the
//! whole tensor, of which the first and the last belong to two rows:
//!
//! ```text
//! vectors     |........|........|........|........|
//! row               |~~~~~~~~~~~~~~~~~~~~~~~|
//! loads       |########|########|########|########|    what is of other rows counts as minus infinity
//! stores            |##|########|########|###|         whole vectors but for both ends
//! ```

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &softmax::KERNEL,
    &softmax_long::KERNEL,
    &softmax_unaligned::KERNEL,
    &softmax_bwd::KERNEL,
    &log_softmax::KERNEL,
    &log_softmax_long::KERNEL,
    &log_softmax_unaligned::KERNEL,
    &log_softmax_bwd::KERNEL,
];

/// Softmax of each row of `x: [m, n]` with `n <= COLS`, `ROWS` of them a program.
#[kernel]
pub fn softmax<T: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let inside = (arange::<COLS>() < x.dim(1)).row();
    let v = where_(inside, x.load::<ROWS, COLS>([i, 0]), T::NEG_INFINITY).to::<A>();
    let e = fast::exp(v - max(v, 1).col());
    // One division a row, not one an element.
    let scale = full::<A, ROWS>(A::ONE) / sum(e, 1);
    y.store([i, 0], (e * scale.col()).to::<T>());
}

/// Log-softmax of each row of `x: [m, n]` with `n <= COLS`, `ROWS` of them a program.
#[kernel]
pub fn log_softmax<T: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    y: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let inside = (arange::<COLS>() < x.dim(1)).row();
    let v = where_(inside, x.load::<ROWS, COLS>([i, 0]), T::NEG_INFINITY).to::<A>();
    let d = v - max(v, 1).col();
    y.store([i, 0], (d - log(sum(fast::exp(d), 1)).col()).to::<T>());
}

/// Two sums, which cross the threads of a row together.
#[device]
fn both_sums<A: Float>(a: (A, A), b: (A, A)) -> (A, A) {
    (a.0 + b.0, a.1 + b.1)
}

/// `dx = y (dy - sum(y dy) / sum(y))` of each row of `[m, n]` with `n <= COLS`, `ROWS` of them a program.
///
/// The sum of `y` is 1 but for its rounding to 16 bits, which the quotient takes out of the mean of `dy`; it is less
/// where `y` is too small for its dtype.
#[kernel]
pub fn softmax_bwd<T: Float, A: Float, const ROWS: usize, const COLS: usize>(
    y: View<T, 2>,
    dy: View<T, 2>,
    dx: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let v = y.load::<ROWS, COLS>([i, 0]).to::<A>();
    let product = v * dy.load::<ROWS, COLS>([i, 0]).to::<A>();
    let (dot, total) = reduce((product, v), 1, both_sums);
    dx.store([i, 0], (product - v * (dot / maximum(total, 0.5)).col()).to::<T>());
}

/// `dx = dy - exp(y) sum(dy)` of each row of `[m, n]` with `n <= COLS`, `ROWS` of them a program.
#[kernel]
pub fn log_softmax_bwd<T: Float, A: Float, const ROWS: usize, const COLS: usize>(
    y: View<T, 2>,
    dy: View<T, 2>,
    dx: ViewMut<T, 2>,
) {
    let i = program_id(0) * ROWS;
    let v = y.load::<ROWS, COLS>([i, 0]).to::<A>();
    let d = dy.load::<ROWS, COLS>([i, 0]).to::<A>();
    dx.store([i, 0], (d - fast::exp(v) * sum(d, 1).col()).to::<T>());
}

/// The largest value `top` and the sum of `exp(x - top)`, with more values taken in.
///
/// `top` starts from the least finite number, not from an infinity, whose difference with itself
/// is not a number.
#[device]
pub fn online<A: Float, const LANES: usize, const WIDTH: usize>(
    top: Tile1<A, LANES>,
    total: Tile1<A, LANES>,
    v: Tile2<A, LANES, WIDTH>,
) -> (Tile1<A, LANES>, Tile1<A, LANES>) {
    let higher = maximum(top, max(v, 1));
    (higher, total * fast::exp(top - higher) + sum(fast::exp(v - higher.col()), 1))
}

macro_rules! long {
    ($($(#[$doc:meta])* $name:ident = |$v:ident, $top:ident, $log_total:ident, $scale:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Float, A: Float, const COLS: usize, const LANES: usize, const WIDTH: usize>(
            x: View<T, 2>,
            y: ViewMut<T, 2>,
        ) {
            let i = program_id(0);
            let n = x.dim(1);
            let mut tops = full::<A, LANES>(A::MIN);
            let mut totals = zeros::<A, LANES>();
            for j in range(0, n, COLS) {
                let inside = (j + arange::<COLS>()).row() < n;
                let v = where_(inside, x.load::<1, COLS>([i, j]).to::<A>(), A::NEG_INFINITY);
                let (top, total) = online(tops, totals, v.reshape::<LANES, WIDTH>());
                tops = top;
                totals = total;
            }
            let $top = max(tops, 0);
            let total = sum(totals * fast::exp(tops - $top), 0);
            let $scale = A::ONE / total;
            let $log_total = log(total);
            let chunks = cdiv(n, COLS);
            for k in range(0, chunks, 1) {
                let j = (chunks - 1 - k) * COLS;
                let $v = x.load::<1, COLS>([i, j]).to::<A>();
                y.store([i, j], ($($body)*).to::<T>());
            }
        }
    )*};
}

long! {
    /// Softmax of each row of `x: [m, n]`, any `n`.
    softmax_long = |v, top, _log_total, scale| { fast::exp(v - top) * scale }
    /// Log-softmax of each row of `x: [m, n]`, any `n`.
    log_softmax_long = |v, top, log_total, _scale| { v - top - log_total }
}

macro_rules! unaligned {
    ($($(#[$doc:meta])* $name:ident = |$v:ident, $top:ident, $log_total:ident, $scale:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<
            T: Float,
            A: Float,
            const COLS: usize,
            const LANES: usize,
            const WIDTH: usize,
            const VECTOR: usize,
        >(
            x: View<T, 1>,
            y: ViewMut<T, 1>,
            n: i64,
        ) {
            let start = program_id(0) * n;
            let end = minimum(start + n, x.dim(0));
            let first = multiple_of(start / VECTOR * VECTOR, VECTOR);
            let chunks = cdiv(end - first, COLS);
            let mut tops = full::<A, LANES>(A::MIN);
            let mut totals = zeros::<A, LANES>();
            for k in range(0, chunks, 1) {
                let j = first + k * COLS;
                let place = j + arange::<COLS>();
                let inside = (place >= start) & (place < end);
                let v = where_(inside, x.load::<COLS>([j]).to::<A>(), A::NEG_INFINITY);
                let (top, total) = online(tops, totals, v.reshape::<LANES, WIDTH>());
                tops = top;
                totals = total;
            }
            let $top = max(tops, 0);
            let total = sum(totals * fast::exp(tops - $top), 0);
            let $scale = A::ONE / total;
            let $log_total = log(total);
            for k in range(0, chunks, 1) {
                let j = first + (chunks - 1 - k) * COLS;
                let $v = x.load::<COLS>([j]).to::<A>();
                let all = ($($body)*).to::<T>();
                if (j >= start) & (j + COLS <= end) {
                    y.store([j], all);
                } else {
                    let place = j + arange::<COLS>();
                    store(y.ptr() + place, all, (place >= start) & (place < end));
                }
            }
        }
    )*};
}

unaligned! {
    /// Softmax of dense rows of `n` elements, any `n`: `x` and `y: [m n]`.
    softmax_unaligned = |v, top, _log_total, scale| { fast::exp(v - top) * scale }
    /// Log-softmax of dense rows of `n` elements, any `n`: `x` and `y: [m n]`.
    log_softmax_unaligned = |v, top, log_total, _scale| { v - top - log_total }
}
