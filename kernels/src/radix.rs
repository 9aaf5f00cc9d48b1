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
//! A CPU has few threads and deep caches: a program takes a row and walks through it, with 256 counters
//! ([`radix_pass_in_order`]). On a GPU digits have 4 bits: the 16 counters of the 8 elements of a thread are 4 bits
//! each in one word of 64 bits, and 16 bits each in four words over all threads, so that the ranks of a tile are one scan
//! of words. A key of at most 32 bits and its position are a word that moves as one.
//!
//! Rows that fit into a tile are sorted by one program ([`radix_sort_rows_of_floats`]); longer ones are cut into parts:
//!
//! ```text
//! radix_count           how many of each digit a part has
//! exclusive_rows        where the first of each digit and part goes, for each row
//! radix_scatter_words   the others, by the scan; words are read and written once
//! ```

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
    &radix_sort_rows_of_floats::KERNEL,
    &radix_sort_rows_of_ints::KERNEL,
];

/// Four counters of one.
const ONES: u64 = 0x0001_0001_0001_0001;

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

/// 16 counters of 16 bits in four words.
#[device]
pub fn add_words(a: (u64, u64, u64, u64), b: (u64, u64, u64, u64)) -> (u64, u64, u64, u64) {
    (a.0 + b.0, a.1 + b.1, a.2 + b.2, a.3 + b.3)
}

/// A one in the counter of a digit, of 16 counters of 4 bits in one word.
#[device]
pub fn one_of<S: Shape>(digit: Tile<i32, S>) -> Tile<u64, S> {
    (digit * 0 + 1).to::<u64>() << (digit << 2).to::<u64>()
}

/// The four counters of 4 bits that a word begins with, as counters of 16 bits.
#[device]
fn widened<S: Shape>(word: Tile<u64, S>) -> Tile<u64, S> {
    let low = word & 0xffff;
    let bytes = (low | (low << 24)) & 0x0000_00ff_0000_00ff;
    (bytes | (bytes << 12)) & 0x000f_000f_000f_000f
}

/// 16 counters of 4 bits as 16 of 16 bits, in four words.
#[device]
pub fn words_of<S: Shape>(
    word: Tile<u64, S>,
) -> (Tile<u64, S>, Tile<u64, S>, Tile<u64, S>, Tile<u64, S>) {
    (widened(word), widened(word >> 16), widened(word >> 32), widened(word >> 48))
}

/// The counter of a digit, of 16 bits in four words.
#[device]
pub fn counter_of<S: Shape>(
    digit: Tile<i32, S>,
    a: Tile<u64, S>,
    b: Tile<u64, S>,
    c: Tile<u64, S>,
    d: Tile<u64, S>,
) -> Tile<i32, S> {
    let word = digit >> 2;
    let own = where_(word == 0, a, where_(word == 1, b, where_(word == 2, c, d)));
    (own >> ((digit & 3) << 4).to::<u64>()).to::<i32>() & 0xffff
}

/// The counter of a digit, of 4 bits.
#[device]
fn small_counter_of<S: Shape>(digit: Tile<i32, S>, word: Tile<u64, S>) -> Tile<i32, S> {
    (word >> (digit << 2).to::<u64>()).to::<i32>() & 15
}

/// The row of a program, which of its parts it has, and where that part ends in the row.
#[device]
pub fn share_of(n: i64, part: i64) -> (i64, i64, i64) {
    let parts = cdiv(n, part);
    let own = program_id(0) % parts;
    (program_id(0) / parts, own, minimum(own * part + part, n))
}

/// How many keys of each part of a row have each digit, of the 4 bits from `shift`: `[row, digit, part]`. A part
/// has less than 2^16 keys.
#[kernel]
pub fn radix_count<K: Int, const LANES: usize>(
    keys: Ptr<K>,
    counts: PtrMut<i64>,
    n: i64,
    part: i64,
    shift: K,
) {
    let parts = cdiv(n, part);
    let (row, own, end) = share_of(n, part);
    let mut a = zeros::<u64, LANES>();
    let mut b = zeros::<u64, LANES>();
    let mut c = zeros::<u64, LANES>();
    let mut d = zeros::<u64, LANES>();
    for first in range(own * part, end, LANES * 8) {
        let at = first + (arange::<LANES>() * 8).col() + arange::<8>().row();
        let key = load(keys + (row * n + at), at < end);
        let digit = (key >> shift).to::<i32>() & 15;
        let (ta, tb, tc, td) = words_of(sum(where_(at < end, one_of(digit), 0), 1));
        a = a + ta;
        b = b + tb;
        c = c + tc;
        d = d + td;
    }
    let (wa, wb, wc, wd) = reduce((a, b, c, d), 0, add_words);
    let bin = arange::<16>();
    let none = zeros::<u64, 16>();
    let many = counter_of(bin.to::<i32>(), none + wa, none + wb, none + wc, none + wd);
    store(counts + ((row * 16 + bin) * parts + own), many.to::<i64>());
}

/// Moves the words of each part of a row, of a key in the upper 32 bits and its position, to the places that `offsets`
/// names for their digits, of the 4 bits from `shift`: `[row, digit, part]`, from the row's first. What `keep` has no
/// bit of is dropped. Rows have less than 2^31 words and a tile, so that places in them have 32 bits: half the registers.
#[kernel]
pub fn radix_scatter_words<const LANES: usize>(
    words: Ptr<i64>,
    sorted: PtrMut<i64>,
    offsets: Ptr<i64>,
    n: i64,
    part: i64,
    shift: i64,
    keep: i64,
) {
    let parts = cdiv(n, part);
    let (row, own, end) = share_of(n, part);
    let mut a = zeros::<u64, 1>();
    let mut b = zeros::<u64, 1>();
    let mut c = zeros::<u64, 1>();
    let mut d = zeros::<u64, 1>();
    for first in range(own * part, end, LANES * 8) {
        let at = (arange::<LANES>() * 8).col() + arange::<8>().row();
        let place = (first + at).to::<i32>();
        let inside = place < end.to::<i32>();
        let word = load(words + (row * n + first) + at, inside);
        let digit = (word >> shift).to::<i32>() & 15;
        // Within a line of the tile, which is in registers, then over lines.
        let one = where_(inside, one_of(digit), 0);
        let line = cumsum(one, 1);
        let (ta, tb, tc, td) = words_of(sum(one, 1));
        let (sa, sb, sc, sd) = associative_scan((ta, tb, tc, td), 0, add_words);
        let before = counter_of(
            digit,
            (sa - ta + a).col().broadcast_to::<LANES, 8>(),
            (sb - tb + b).col().broadcast_to::<LANES, 8>(),
            (sc - tc + c).col().broadcast_to::<LANES, 8>(),
            (sd - td + d).col().broadcast_to::<LANES, 8>(),
        );
        let rank = before + small_counter_of(digit, line) - 1;
        let starts = offsets + (row * 16 * parts + own);
        let start = load(starts + digit.to::<i64>() * parts, inside).to::<i32>();
        store(sorted + row * n + (start + rank).to::<i64>(), word & keep, inside);
        let (na, nb, nc, nd) = reduce((ta, tb, tc, td), 0, add_words);
        a = a + na;
        b = b + nb;
        c = c + nc;
        d = d + nd;
    }
}

/// As [`radix_scatter_words`], of keys of any size and positions apart.
#[kernel]
pub fn radix_scatter<K: Int, I: Int, O: Int, const LANES: usize>(
    keys: Ptr<K>,
    at: Ptr<I>,
    sorted: PtrMut<K>,
    sorted_at: PtrMut<O>,
    offsets: Ptr<i64>,
    n: i64,
    part: i64,
    shift: K,
) {
    let parts = cdiv(n, part);
    let (row, own, end) = share_of(n, part);
    let mut a = zeros::<u64, 1>();
    let mut b = zeros::<u64, 1>();
    let mut c = zeros::<u64, 1>();
    let mut d = zeros::<u64, 1>();
    for first in range(own * part, end, LANES * 8) {
        let place = first + (arange::<LANES>() * 8).col() + arange::<8>().row();
        let inside = place < end;
        let key = load(keys + (row * n + place), inside);
        let digit = (key >> shift).to::<i32>() & 15;
        let one = where_(inside, one_of(digit), 0);
        let line = cumsum(one, 1);
        let (ta, tb, tc, td) = words_of(sum(one, 1));
        let (sa, sb, sc, sd) = associative_scan((ta, tb, tc, td), 0, add_words);
        let before = counter_of(
            digit,
            (sa - ta + a).col().broadcast_to::<LANES, 8>(),
            (sb - tb + b).col().broadcast_to::<LANES, 8>(),
            (sc - tc + c).col().broadcast_to::<LANES, 8>(),
            (sd - td + d).col().broadcast_to::<LANES, 8>(),
        );
        let rank = (before + small_counter_of(digit, line) - 1).to::<i64>();
        let start = load(offsets + ((row * 16 + digit.to::<i64>()) * parts + own), inside);
        let to = row * n + start + rank;
        store(sorted + to, key, inside);
        store(sorted_at + to, load(at + (row * n + place), inside).to::<O>(), inside);
        let (na, nb, nc, nd) = reduce((ta, tb, tc, td), 0, add_words);
        a = a + na;
        b = b + nb;
        c = c + nc;
        d = d + nd;
    }
}

macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// All passes of a row of at most `8 * LANES` values in one program, which keeps words, of a key of `K` in the
        /// upper 32 bits and its position, in its part of `words`. Keys are as [`radix_words_of_floats`] makes them.
        #[kernel]
        pub fn $name<T: $bound, K: Int, const LANES: usize>(
            x: Ptr<T>,
            words: PtrMut<i64>,
            order: PtrMut<i64>,
            n: i64,
            zero: K,
            flip: K,
            passes: i64,
        ) {
            let row = program_id(0) * n;
            let own = words + program_id(0) * (LANES * 8);
            let place = (arange::<LANES>() * 8).col() + arange::<8>().row();
            let $x = load(x + (row + place), place < n);
            // What lies past the end comes last: behind equals, for the sort is stable.
            let key = where_(place < n, (($order - zero) ^ flip).to::<i64>(), -1);
            let mut word = (key << 32) | place;
            for pass in range(0, passes, 1) {
                let digit = (word >> (pass * 4 + 32)).to::<i32>() & 15;
                let one = one_of(digit);
                let line = cumsum(one, 1);
                let (ta, tb, tc, td) = words_of(sum(one, 1));
                let (sa, sb, sc, sd) = associative_scan((ta, tb, tc, td), 0, add_words);
                let (wa, wb, wc, wd) = reduce((ta, tb, tc, td), 0, add_words);
                // A product with four ones adds up the counters before each, and that itself.
                let (ia, ib, ic, id) = (wa * ONES, wb * ONES, wc * ONES, wd * ONES);
                let (to_b, to_c) = (ia >> 48, (ia >> 48) + (ib >> 48));
                let to_d = to_c + (ic >> 48);
                let before = counter_of(
                    digit,
                    (sa - ta + (ia - wa)).col().broadcast_to::<LANES, 8>(),
                    (sb - tb + (ib - wb + to_b * ONES)).col().broadcast_to::<LANES, 8>(),
                    (sc - tc + (ic - wc + to_c * ONES)).col().broadcast_to::<LANES, 8>(),
                    (sd - td + (id - wd + to_d * ONES)).col().broadcast_to::<LANES, 8>(),
                );
                let rank = before + small_counter_of(digit, line) - 1;
                store(own + rank.to::<i64>(), word);
                word = load(own + place);
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
