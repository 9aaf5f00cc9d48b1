//! Reductions and writes at flat indices that need no order: extremes, writes no two of which meet, and sums for
//! which the order of the programs will do.
//!
//! The largest of several floats is found by integers of as many bits, whose order is theirs
//! ([`order_of`]): an atomic maximum has one result in whatever order writes come. The
//! smallest is the largest of the opposites.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::{indexed_origin, matrix_tile_origin};
use crate::radix::order_of;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &add_unordered::KERNEL,
    &add_rows_unordered::KERNEL,
    &add_along::KERNEL,
    &put_once::KERNEL,
    &keys_of_floats::KERNEL,
    &keys_of_ints::KERNEL,
    &forget_along::KERNEL,
    &float_extreme_along::KERNEL,
    &int_extreme_along::KERNEL,
    &floats_of_keys::KERNEL,
    &ints_of_keys::KERNEL,
];

/// `sums[at[i]] += values[i]`, in the order in which programs come.
#[kernel]
pub fn add_unordered<T: Float, A: Float, const BLOCK: usize>(
    at: View<i64, 1>,
    values: View<T, 1>,
    sums: PtrMut<A>,
    n: i64,
) {
    let first = program_id(0) * BLOCK;
    let place = at.load::<BLOCK>([first]);
    let inside = (first + arange::<BLOCK>() < at.dim(0)) & (place >= 0) & (place < n);
    atomic_add(sums + place, values.load::<BLOCK>([first]).to::<A>(), inside);
}

/// `sums[index[t], ..] += values[t, ..]` of `n` rows, in the order in which programs come.
#[kernel]
pub fn add_rows_unordered<T: Float, A: Float, const ROWS: usize, const COLS: usize>(
    index: View<i64, 1>,
    values: View<T, 2>,
    sums: PtrMut<A>,
    n: i64,
) {
    let (i, j) = matrix_tile_origin::<ROWS, COLS>(values.dim(1));
    let (t, col) = (i + arange::<ROWS>(), j + arange::<COLS>());
    let row = index.load::<ROWS>([i]);
    let is_row = (t < index.dim(0)) & (row >= 0) & (row < n);
    let place = (row * values.dim(1)).col() + col.row();
    let inside = is_row.col() & (col < values.dim(1)).row();
    atomic_add(sums + place, values.load::<ROWS, COLS>([i, j]).to::<A>(), inside);
}

/// Values are added at the places that an index names along an axis, as `index::take_along` reads, in the order in which
/// programs come. An index that is not there goes to `flag`, as by `index::resolve`.
#[kernel]
pub fn add_along<T: Number, A: Number, const ROWS: usize, const COLS: usize>(
    index: View<i64, 4>,
    values: View<T, 4>,
    sums: PtrMut<A>,
    s0: i64,
    s1: i64,
    s2: i64,
    s3: i64,
    n: i64,
    step: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (a, b, i, j) = indexed_origin::<ROWS, COLS>(index.dim(1), index.dim(2), index.dim(3), s2);
    let v = index.load::<1, 1, ROWS, COLS>([a, b, i, j]).squeeze(0).squeeze(0);
    let (row, col) = ((i + arange::<ROWS>()).col(), (j + arange::<COLS>()).row());
    let inside = (row < index.dim(2)) & (col < index.dim(3));
    let is_there = (v >= -n) & (v < n);
    if any(any(inside & !is_there, 1), 0) {
        atomic_max(flag, code);
        let wrong = where_(inside & !is_there, v, i64::MIN);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(max(wrong, 1), 0));
    }
    let place = a * s0 + b * s1 + row * s2 + col * s3 + where_(v < 0, v + n, v) * step;
    let more = values.load::<1, 1, ROWS, COLS>([a, b, i, j]).squeeze(0).squeeze(0);
    atomic_add(sums + place, more.to::<A>(), inside & is_there);
}

/// `y[at[i]] = values[i]`, where no two places are equal.
#[kernel]
pub fn put_once<T: Element, const BLOCK: usize>(
    at: View<i64, 1>,
    values: View<T, 1>,
    y: PtrMut<T>,
    n: i64,
) {
    let first = program_id(0) * BLOCK;
    let place = at.load::<BLOCK>([first]);
    let inside = (first + arange::<BLOCK>() < at.dim(0)) & (place >= 0) & (place < n);
    store(y + place, values.load::<BLOCK>([first]), inside);
}

/// `keys[i]` is the place of `sign * x[i]` in the order of floats.
#[kernel]
pub fn keys_of_floats<T: Float, A: Float, K: Int, const BLOCK: usize>(
    x: View<T, 1>,
    keys: ViewMut<K, 1>,
    sign: A,
) {
    let first = program_id(0) * BLOCK;
    let v = x.load::<BLOCK>([first]).to::<A>() * sign;
    keys.store([first], order_of::<A, K, _>(v));
}

/// `keys[i]` is `x[i]` with the bits of `flip` turned around.
#[kernel]
pub fn keys_of_ints<T: Int, K: Int, const BLOCK: usize>(
    x: View<T, 1>,
    keys: ViewMut<K, 1>,
    flip: K,
) {
    let first = program_id(0) * BLOCK;
    keys.store([first], x.load::<BLOCK>([first]).to::<K>() ^ flip);
}

/// Keys at the places that an index names along an axis, as `index::take_along` reads, become the smallest key. An index
/// that is not there goes to `flag`, as by `index::resolve`.
#[kernel]
pub fn forget_along<K: Int, const ROWS: usize, const COLS: usize>(
    index: View<i64, 4>,
    keys: PtrMut<K>,
    s0: i64,
    s1: i64,
    s2: i64,
    s3: i64,
    n: i64,
    step: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (a, b, i, j) = indexed_origin::<ROWS, COLS>(index.dim(1), index.dim(2), index.dim(3), s2);
    let v = index.load::<1, 1, ROWS, COLS>([a, b, i, j]).squeeze(0).squeeze(0);
    let (row, col) = ((i + arange::<ROWS>()).col(), (j + arange::<COLS>()).row());
    let inside = (row < index.dim(2)) & (col < index.dim(3));
    let is_there = (v >= -n) & (v < n);
    if any(any(inside & !is_there, 1), 0) {
        atomic_max(flag, code);
        let wrong = where_(inside & !is_there, v, i64::MIN);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(max(wrong, 1), 0));
    }
    let place = a * s0 + b * s1 + row * s2 + col * s3 + where_(v < 0, v + n, v) * step;
    atomic_min(keys + place, full::<K, ROWS, COLS>(K::MIN), inside & is_there);
}

macro_rules! extremes {
    ($($(#[$doc:meta])* $name:ident<$bound:ident $(, $wide:ident: $float:ident)?>($turn:ident: $of:ident) = |$v:ident| $key:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// Places are those that an index names along an axis, as `index::take_along` reads. An index that is not there
        /// goes to `flag`, as by `index::resolve`.
        #[kernel]
        pub fn $name<T: $bound, $($wide: $float,)? K: Int, const ROWS: usize, const COLS: usize>(
            index: View<i64, 4>,
            values: View<T, 4>,
            keys: PtrMut<K>,
            s0: i64,
            s1: i64,
            s2: i64,
            s3: i64,
            n: i64,
            step: i64,
            $turn: $of,
            flag: PtrMut<i64>,
            code: i64,
        ) {
            let (a, b, i, j) =
                indexed_origin::<ROWS, COLS>(index.dim(1), index.dim(2), index.dim(3), s2);
            let v = index.load::<1, 1, ROWS, COLS>([a, b, i, j]).squeeze(0).squeeze(0);
            let (row, col) = ((i + arange::<ROWS>()).col(), (j + arange::<COLS>()).row());
            let inside = (row < index.dim(2)) & (col < index.dim(3));
            let is_there = (v >= -n) & (v < n);
            if any(any(inside & !is_there, 1), 0) {
                atomic_max(flag, code);
                let wrong = where_(inside & !is_there, v, i64::MIN);
                atomic_max(flag + (((code >> 4) & 1023) + 1), max(max(wrong, 1), 0));
            }
            let place = a * s0 + b * s1 + row * s2 + col * s3 + where_(v < 0, v + n, v) * step;
            let $v = values.load::<1, 1, ROWS, COLS>([a, b, i, j]).squeeze(0).squeeze(0);
            atomic_max(keys + place, $key, inside & is_there);
        }
    )*};
}

extremes! {
    /// Keys become the keys of values at their places where those are larger; of floats, which are multiplied by `sign`.
    float_extreme_along<Float, A: Float>(sign: A) = |v| order_of::<A, K, _>(v.to::<A>() * sign);
    /// Keys become the keys of values at their places where those are larger; of integers, whose bits are turned by `flip`.
    int_extreme_along<Int>(flip: K) = |v| v.to::<K>() ^ flip;
}

/// What [`mod@keys_of_floats`] makes keys of; zeros lose their sign.
#[kernel]
pub fn floats_of_keys<T: Float, A: Float, K: Int, const BLOCK: usize>(
    keys: View<K, 1>,
    y: ViewMut<T, 1>,
    sign: A,
) {
    let first = program_id(0) * BLOCK;
    let key = keys.load::<BLOCK>([first]);
    let bits = where_(key < K::ZERO, K::MIN - key, key);
    y.store([first], (bitcast::<A>(bits) * sign + A::ZERO).to::<T>());
}

/// What [`mod@keys_of_ints`] makes keys of.
#[kernel]
pub fn ints_of_keys<T: Int, K: Int, const BLOCK: usize>(
    keys: View<K, 1>,
    y: ViewMut<T, 1>,
    flip: K,
) {
    let first = program_id(0) * BLOCK;
    y.store([first], (keys.load::<BLOCK>([first]) ^ flip).to::<T>());
}
