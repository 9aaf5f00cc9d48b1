//! Sorting of rows.
//!
//! Values of at most 32 bits become keys: an integer in the order of the values, then the position, so
//! that no two are equal and the sort is stable. Each program finds the places of a few keys of a piece
//! by counting those before them; pieces are merged many at a time. A row that is one piece is sorted in
//! one launch.
//!
//! Values of 64 bits go through a network: every step compares pairs at one distance and is one launch.
//! A row has a power of two of places, those past its end last in order. With its values go their
//! positions, which decide between equals.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &sort_begin::KERNEL,
    &sort_step::KERNEL,
    &sort_floats::KERNEL,
    &sort_ints::KERNEL,
    &sort_merge::KERNEL,
];

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
        /// Each program places `OWN` elements of a row of `x` among the `PIECE` elements that they are
        /// with. With `is_whole` a row is one piece, and positions are stored instead of keys.
        #[kernel]
        pub fn $name<T: $bound, const OWN: usize, const PIECE: usize>(
            x: View<T, 2>,
            keys: PtrMut<i64>,
            $zero: i64,
            descending: i64,
            is_whole: i64,
        ) {
            let n = x.dim(1);
            let parts = cdiv(n, OWN);
            let row = program_id(0) / parts;
            let first = program_id(0) % parts * OWN;
            let piece = first / PIECE * PIECE;
            let own_at = first + arange::<OWN>();
            let $x = x.load::<1, OWN>([row, first]).squeeze(0);
            let own = key_of_order($($body)*, own_at, n, descending);
            let $x = x.load::<1, PIECE>([row, piece]).squeeze(0);
            let theirs = key_of_order($($body)*, piece + arange::<PIECE>(), n, descending);
            let rank = sum((theirs.row() < own.col()).to::<i32>(), 1).to::<i64>();
            let stored = where_(is_whole != 0, own & 0xffff_ffff, own);
            store(keys + (row * n + piece + rank), stored, own_at < n);
        }
    )*};
}

pieces! {
    /// Pieces of rows of floats of at most 32 bits.
    sort_floats: Float = |v, _zero| { order_of_floats(v) }
    /// Pieces of rows of integers of at most 32 bits, after `zero` is taken from them.
    sort_ints: Int = |v, zero| { v.to::<i64>() - zero }
}

/// One more step of the sort: `FAN` pieces of `len` keys, each in order, become one, in each row of `n`.
///
/// How many keys of a piece come before one of another is found by halving, `steps` times. With `is_last`
/// positions are stored instead of keys.
#[kernel]
pub fn sort_merge<const OWN: usize, const FAN: usize>(
    keys: Ptr<i64>,
    merged: PtrMut<i64>,
    n: i64,
    len: i64,
    steps: i64,
    is_last: i64,
) {
    let parts = cdiv(n, OWN);
    let row = program_id(0) / parts * n;
    let first = program_id(0) % parts * OWN;
    let at = first + arange::<OWN>();
    let key = load(keys + (row + at), at < n, i64::MAX);
    let group = first / (len * FAN) * (len * FAN);
    let begin = (group + arange::<FAN>() * len).row();
    let mut low = minimum(begin, n).broadcast_to::<OWN, FAN>();
    let mut high = minimum(begin + len, n).broadcast_to::<OWN, FAN>();
    let begin = low;
    for _ in range(0, steps) {
        let middle = (low + high) >> 1;
        let is_before = load(keys + (row + middle), low < high, i64::MAX) < key.col();
        low = where_(is_before, middle + 1, low);
        high = where_(is_before, high, middle);
    }
    let stored = where_(is_last != 0, key & 0xffff_ffff, key);
    store(merged + (row + group + sum(low - begin, 1)), stored, at < n);
}

/// Copies rows of `n` values to rows of `places` and numbers the places.
///
/// Past the end stands position `i64::MAX`, which comes after every other.
#[kernel]
pub fn sort_begin<T: Number, const BLOCK: usize>(
    x: View<T, 2>,
    keys: PtrMut<T>,
    at: PtrMut<i64>,
    places: i64,
) {
    let row = program_id(1);
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    let v = x.load::<1, BLOCK>([row, program_id(0) * BLOCK]).squeeze(0);
    store(keys + (row * places + i), v, i < places);
    store(at + (row * places + i), where_(i < x.dim(1), i, i64::MAX), i < places);
}

/// Orders each pair of places that are `distance` apart, up or down by the bit `run` of the place.
///
/// Of two pairs (value, position) the one with the smaller value comes first, NaN after all numbers;
/// with `descending` the larger, NaN before all numbers. The smaller position comes first among equals.
#[kernel]
pub fn sort_step<T: Number, const BLOCK: usize>(
    keys: PtrMut<T>,
    at: PtrMut<i64>,
    pairs: i64,
    run: i64,
    distance: i64,
    descending: i64,
) {
    let pair = program_id(0) * BLOCK + arange::<BLOCK>();
    let inside = pair < pairs;
    let low = (pair / distance) * distance * 2 + pair % distance;
    let high = low + distance;
    let (a, b) = (load(keys + low, inside), load(keys + high, inside));
    let (i, j) = (load(at + low, inside, 0), load(at + high, inside, 0));
    let before =
        where_(descending != 0, (b > a) | ((b != b) & (a == a)), (b < a) | ((a != a) & (b == b)));
    let is_same = (a == b) | ((a != a) & (b != b));
    let ends = (i == i64::MAX) | (j == i64::MAX);
    let swap = where_(ends | is_same, j < i, before);
    let is_up = (low & run) == 0;
    let swap = inside & (swap == is_up) & (i != j);
    store(keys + low, b, swap);
    store(keys + high, a, swap);
    store(at + low, j, swap);
    store(at + high, i, swap);
}
