//! Stable radix sort of rows, least significant digit first.
//!
//! Values become keys: integers of as many bits, whose order without a sign is the order of the values. With
//! each key goes its position. A pass moves both to where their digit belongs, behind those of the same digit
//! that stood before them:
//!
//! ```text
//! keys 31 12 30 11    digit 0 of each: 1 2 0 1    sorted by it: 30 31 11 12    then by digit 1: 11 12 30 31
//! ```
//!
//! Digits have 8 bits. A CPU has few threads and deep caches: a program takes a row and walks through it, with 256
//! counters ([`radix_pass_in_order`]). On a GPU the ranks of a tile come from a histogram in shared memory
//! ([`histogram_with_ranks`]). A key of at most 32 bits and its position are a word that moves as one.
//!
//! Rows that fit into a tile are sorted by one program ([`radix_sort_rows_of_floats`]); longer ones are cut into parts:
//!
//! ```text
//! radix_count           how many of each digit a part has
//! exclusive_rows        where the first of each part goes behind the first of its digit, and of each digit in its row
//! radix_scatter_words   the others, by their ranks; words are read and written once
//! ```
//!
//! A part is walked tile by tile, of which the next is under way while one is put in order.
//!
//! Where only the values are wanted they move by themselves, without positions ([`radix_scatter_floats`]): half the bytes
//! or less, for keys are made of them on the way.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::matrix_tile_origin;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &radix_keys_of_floats::KERNEL,
    &radix_keys_of_ints::KERNEL,
    &radix_pass_in_order::KERNEL,
    &radix_words_of_floats::KERNEL,
    &radix_words_of_ints::KERNEL,
    &radix_count::KERNEL,
    &radix_scatter_words::KERNEL,
    &radix_scatter::KERNEL,
    &radix_count_floats::KERNEL,
    &radix_scatter_floats::KERNEL,
    &radix_count_ints::KERNEL,
    &radix_scatter_ints::KERNEL,
    &radix_sort_rows_of_floats::KERNEL,
    &radix_sort_rows_of_ints::KERNEL,
];

/// Floats as integers in their order: -0 equals 0, NaN comes after all numbers.
#[device]
pub fn order_of<T: Float, K: Int, S: Shape>(x: Tile<T, S>) -> Tile<K, S> {
    let bits = bitcast::<K>(x);
    let order = where_(bits < K::ZERO, K::MIN - bits, bits);
    where_(is_nan(x), K::MAX, order)
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// `zero` is taken from the order, and bits are turned by `flip`, which makes its sign a bit like others or
        /// turns it around. `at` becomes the position in the row.
        #[kernel]
        pub fn $name<T: $bound, K: Int, I: Int, const ROWS: usize, const COLS: usize>(
            x: View<T, 2>,
            keys: ViewMut<K, 2>,
            at: ViewMut<I, 2>,
            zero: K,
            flip: K,
        ) {
            let (i, j) = matrix_tile_origin::<ROWS, COLS>(x.dim(1));
            let $x = x.load::<ROWS, COLS>([i, j]);
            keys.store([i, j], ($order - zero) ^ flip);
            let column = (j + arange::<COLS>()).to::<I>();
            at.store([i, j], column.row().broadcast_to::<ROWS, COLS>());
        }
    )*};
}

keys! {
    /// The keys of floats, of as many bits.
    radix_keys_of_floats: Float = |v| order_of::<T, K, _>(v);
    /// The keys of integers, of as many bits.
    radix_keys_of_ints: Int = |v| bitcast::<K>(v);
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// `zero` is taken from the order, and bits are turned by `flip`, as for keys that stand apart.
        #[kernel]
        pub fn $name<T: $bound, K: Int, const ROWS: usize, const COLS: usize>(
            x: View<T, 2>,
            words: ViewMut<i64, 2>,
            zero: K,
            flip: K,
        ) {
            let (i, j) = matrix_tile_origin::<ROWS, COLS>(x.dim(1));
            let $x = x.load::<ROWS, COLS>([i, j]);
            let key = (($order - zero) ^ flip).to::<i64>();
            words.store([i, j], (key << 32) | (j + arange::<COLS>()).row());
        }
    )*};
}

words! {
    /// Words of the keys of floats of at most 32 bits, in the upper half, and their positions.
    radix_words_of_floats: Float = |v| order_of::<T, K, _>(v);
    /// Words of the keys of integers of at most 32 bits, in the upper half, and their positions.
    radix_words_of_ints: Int = |v| bitcast::<K>(v);
}

/// One pass over rows of `n` keys by the 8 bits from `shift`, a program a row, one element after the other.
///
/// `counts` has 256 numbers for each row.
#[kernel]
pub fn radix_pass_in_order<K: Int, I: Int, O: Int>(
    keys: Ptr<K>,
    at: Ptr<I>,
    sorted: PtrMut<K>,
    sorted_at: PtrMut<O>,
    counts: PtrMut<i64>,
    n: i64,
    shift: K,
) {
    let first = program_id(0) * n;
    let own = counts + program_id(0) * 256;
    let bin = arange::<256>();
    store(own + bin, zeros::<i64, 256>());
    for i in range(first, first + n) {
        let digit = (load(keys + i) >> shift).to::<i64>() & 255;
        store(own + digit, load(own + digit) + 1);
    }
    let many = load(own + bin);
    store(own + bin, cumsum(many, 0) - many + first);
    for i in range(first, first + n) {
        let key = load(keys + i);
        let digit = (key >> shift).to::<i64>() & 255;
        let to = load(own + digit);
        store(own + digit, to + 1);
        store(sorted + to, key);
        store(sorted_at + to, load(at + i).to::<O>());
    }
}

/// The row of a program, which of its parts it has, and where that part ends in the row.
#[device]
pub fn share_of(n: i64, part: i64) -> (i64, i64, i64) {
    let parts = cdiv(n, part);
    let own = program_id(0) % parts;
    (program_id(0) / parts, own, minimum(own * part + part, n))
}

/// How many keys of each part of a row have each digit, of the 8 bits from `shift`: `[row, digit, part]`.
#[kernel]
pub fn radix_count<K: Int, const BLOCK: usize>(
    keys: Ptr<K>,
    counts: PtrMut<i64>,
    n: i64,
    part: i64,
    shift: K,
) {
    let parts = cdiv(n, part);
    let (row, own, end) = share_of(n, part);
    let mut many = zeros::<i32, 256>();
    for first in range(own * part, end, BLOCK) {
        let at = first + arange::<BLOCK>();
        let key = load(keys + (row * n + at), at < end);
        let digit = (key >> shift).to::<i32>() & 255;
        many = many + histogram::<256>(where_(at < end, digit, -1));
    }
    store(counts + ((row * 256 + arange::<256>()) * parts + own), many.to::<i64>());
}

/// The digit in the low 8 bits. What lies past the end comes last: behind equals, for sorts are stable.
#[device]
pub fn digit_of<K: Int, S: Shape>(key: Tile<K, S>, inside: Tile<bool, S>) -> Tile<i32, S> {
    where_(inside, key.to::<i32>() & 255, 255)
}

/// Where elements of a tile go in it by their digits, how many elements come before each digit, and how many each has.
///
/// Elements are put in order in shared memory first, so that neighbours go to neighbouring addresses: stores of single
/// elements to 256 places each took 3 times as long.
#[device]
pub fn places_in_tile<const BLOCK: usize>(
    digit: Tile1<i32, BLOCK>,
) -> (Tile1<i32, BLOCK>, Tile1<i32, 256>, Tile1<i32, 256>) {
    let (rank, many) = histogram_with_ranks::<256>(digit);
    let before = cumsum(many, 0) - many;
    (gather(before, digit, 0) + rank, before, many)
}

/// Moves the words of each part of a row, of a key in the upper 32 bits and its position, to the places that `starts` and
/// `offsets` name for their digits, of the 8 bits from `shift`: `starts` of a digit in its row, `[row, digit]`, `offsets`
/// of a part behind that, `[row, digit, part]`. What `keep` has no bit of is dropped. Rows have less than 2^31 words,
/// so that places in them have 32 bits: half the registers.
#[kernel]
pub fn radix_scatter_words<const BLOCK: usize>(
    words: Ptr<i64>,
    sorted: PtrMut<i64>,
    starts: Ptr<i64>,
    offsets: Ptr<i64>,
    n: i64,
    part: i64,
    shift: i64,
    keep: i64,
) {
    let parts = cdiv(n, part);
    let (row, own, end) = share_of(n, part);
    let bin = row * 256 + arange::<256>();
    let mut next = (load(starts + bin) + load(offsets + (bin * parts + own))).to::<i32>();
    let at = arange::<BLOCK>();
    let begin = own * part;
    let mut ahead = load(words + (row * n + begin) + at, begin + at < end);
    for first in range(begin, end, BLOCK) {
        let (left, later) = ((end - first).to::<i32>(), (end - first - BLOCK).to::<i32>());
        let (inside, read) = (at.to::<i32>() < left, ahead);
        ahead = load(words + (row * n + first + BLOCK) + at, at.to::<i32>() < later);
        let (place, before, many) = places_in_tile(digit_of(read >> shift, inside));
        let word = scatter(read, place, 0);
        let to = gather(next - before, (word >> shift).to::<i32>() & 255, 0) + at.to::<i32>();
        store(sorted + row * n + to.to::<i64>(), word & keep, inside);
        next = next + many;
    }
}

/// As [`radix_scatter_words`], of keys of any size and positions apart.
#[kernel]
pub fn radix_scatter<K: Int, I: Int, O: Int, const BLOCK: usize>(
    keys: Ptr<K>,
    at: Ptr<I>,
    sorted: PtrMut<K>,
    sorted_at: PtrMut<O>,
    starts: Ptr<i64>,
    offsets: Ptr<i64>,
    n: i64,
    part: i64,
    shift: K,
) {
    let parts = cdiv(n, part);
    let (row, own, end) = share_of(n, part);
    let bin = row * 256 + arange::<256>();
    let mut next = row * n + load(starts + bin) + load(offsets + (bin * parts + own));
    for first in range(own * part, end, BLOCK) {
        let place = first + arange::<BLOCK>();
        let inside = place < end;
        let read = load(keys + (row * n + place), inside);
        let (local, before, many) = places_in_tile(digit_of(read >> shift, inside));
        let key = scatter(read, local, 0);
        let digit = (key >> shift).to::<i32>() & 255;
        let to = gather(next - before.to::<i64>(), digit, 0) + arange::<BLOCK>();
        store(sorted + to, key, inside);
        let position = scatter(load(at + (row * n + place), inside).to::<O>(), local, 0);
        store(sorted_at + to, position, inside);
        next = next + many.to::<i64>();
    }
}

macro_rules! values {
    ($($count:ident, $scatter:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        /// [`mod@radix_count`] of values, whose keys are `zero` taken from their order, with the bits of `flip` turned.
        #[kernel]
        pub fn $count<T: $bound, K: Int, const BLOCK: usize>(
            x: Ptr<T>,
            counts: PtrMut<i64>,
            n: i64,
            part: i64,
            zero: K,
            flip: K,
            shift: K,
        ) {
            let parts = cdiv(n, part);
            let (row, own, end) = share_of(n, part);
            let mut many = zeros::<i32, 256>();
            for first in range(own * part, end, BLOCK) {
                let at = first + arange::<BLOCK>();
                let $x = load(x + (row * n + at), at < end);
                let digit = ((($order - zero) ^ flip) >> shift).to::<i32>() & 255;
                many = many + histogram::<256>(where_(at < end, digit, -1));
            }
            store(counts + ((row * 256 + arange::<256>()) * parts + own), many.to::<i64>());
        }

        /// Moves the values of each part of a row, as [`mod@radix_scatter_words`] does words.
        #[kernel]
        pub fn $scatter<T: $bound, K: Int, const BLOCK: usize>(
            x: Ptr<T>,
            sorted: PtrMut<T>,
            starts: Ptr<i64>,
            offsets: Ptr<i64>,
            n: i64,
            part: i64,
            zero: K,
            flip: K,
            shift: K,
        ) {
            let parts = cdiv(n, part);
            let (row, own, end) = share_of(n, part);
            let bin = row * 256 + arange::<256>();
            let mut next = (load(starts + bin) + load(offsets + (bin * parts + own))).to::<i32>();
            let at = arange::<BLOCK>();
            let begin = own * part;
            let mut ahead = load(x + (row * n + begin) + at, begin + at < end);
            for first in range(begin, end, BLOCK) {
                let (left, later) = ((end - first).to::<i32>(), (end - first - BLOCK).to::<i32>());
                let (inside, $x) = (at.to::<i32>() < left, ahead);
                ahead = load(x + (row * n + first + BLOCK) + at, at.to::<i32>() < later);
                let read = ($order - zero) ^ flip;
                let (place, before, many) = places_in_tile(digit_of(read >> shift, inside));
                let $x = scatter($x, place, 0);
                let key = ($order - zero) ^ flip;
                let to = gather(next - before, (key >> shift).to::<i32>() & 255, 0);
                let to = to + at.to::<i32>();
                store(sorted + row * n + to.to::<i64>(), $x, inside);
                next = next + many;
            }
        }
    )*};
}

values! {
    radix_count_floats, radix_scatter_floats: Float = |v| order_of::<T, K, _>(v);
    radix_count_ints, radix_scatter_ints: Int = |v| bitcast::<K>(v);
}

macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// All passes of a row of at most `BLOCK` values in one program, which keeps words, of a key of `K` in the
        /// upper 32 bits and its position, in registers. Keys are as [`radix_words_of_floats`] makes them.
        #[kernel]
        pub fn $name<T: $bound, K: Int, const BLOCK: usize>(
            x: Ptr<T>,
            order: PtrMut<i64>,
            n: i64,
            zero: K,
            flip: K,
            passes: i64,
        ) {
            let row = program_id(0) * n;
            let place = arange::<BLOCK>();
            let $x = load(x + (row + place), place < n);
            // What lies past the end comes last: behind equals, for the sort is stable.
            let key = where_(place < n, (($order - zero) ^ flip).to::<i64>(), -1);
            let mut word = (key << 32) | place;
            for pass in range(0, passes, 1) {
                let digit = (word >> (pass * 8 + 32)).to::<i32>() & 255;
                word = scatter(word, places_in_tile(digit).0, 0);
            }
            store(order + (row + place), word & 0xffff_ffff, place < n);
        }
    )*};
}

rows! {
    /// The positions of the floats of each row in order.
    radix_sort_rows_of_floats: Float = |v| order_of::<T, K, _>(v);
    /// The positions of the integers of each row in order.
    radix_sort_rows_of_ints: Int = |v| bitcast::<K>(v);
}
