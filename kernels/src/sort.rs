//! Sorting of short rows, in one launch.
//!
//! Values of at most 32 bits become keys: an integer in the order of the values, then the position, so that no two
//! are equal and the sort is stable. Each program finds the places of a few keys of a row by counting those before
//! them. Longer rows are sorted by [`radix`](crate::radix).

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&sort_floats::KERNEL, &sort_ints::KERNEL];

/// Floats as integers in their order: -0 equals 0, NaN comes after all numbers.
#[device]
pub fn order_of_floats<T: Float, S: Shape>(x: Tile<T, S>) -> Tile<i64, S> {
    let v = x.to::<f32>();
    let bits = bitcast::<i32>(v).to::<i64>();
    let order = where_(bits < 0, -(bits & 0x7fff_ffff), bits);
    where_(is_nan(v), 0x7fff_ffff, order)
}

/// A key of 64 bits: the order, or its opposite, and the position; past the end of a row the largest.
#[device]
pub fn key_of_order<S: Shape>(
    order: Tile<i64, S>,
    at: Tile<i64, S>,
    n: i64,
    descending: i64,
) -> Tile<i64, S> {
    let order = where_(descending != 0, -1 - order, order);
    where_(at < n, order * 0x1_0000_0000 + at, i64::MAX)
}

macro_rules! pieces {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident, $zero:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        ///
        /// Each program places `OWN` elements of a row of `x`, which has `PIECE` at most, and stores their positions.
        #[kernel]
        pub fn $name<T: $bound, const OWN: usize, const PIECE: usize>(
            x: View<T, 2>,
            order: PtrMut<i64>,
            $zero: i64,
            descending: i64,
        ) {
            let n = x.dim(1);
            let parts = cdiv(n, OWN);
            let row = program_id(0) / parts;
            let first = program_id(0) % parts * OWN;
            let own_at = first + arange::<OWN>();
            let $x = x.load::<1, OWN>([row, first]).squeeze(0);
            let own = key_of_order($($body)*, own_at, n, descending);
            let $x = x.load::<1, PIECE>([row, 0]).squeeze(0);
            let theirs = key_of_order($($body)*, arange::<PIECE>(), n, descending);
            let rank = sum((theirs.row() < own.col()).to::<i32>(), 1).to::<i64>();
            store(order + (row * n + rank), own & 0xffff_ffff, own_at < n);
        }
    )*};
}

pieces! {
    /// Rows of floats of at most 32 bits.
    sort_floats: Float = |v, _zero| { order_of_floats(v) }
    /// Rows of integers of at most 32 bits, after `zero` is taken from them.
    sort_ints: Int = |v, zero| { v.to::<i64>() - zero }
}
