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
//! ([`radix_pass_in_order`]). A GPU cuts rows into parts. Digits have 4 bits there, so that the 16 counters of an
//! element fit into four words of 64 bits, and counting those of a tile is one scan of words:
//!
//! ```text
//! radix_count      how many of each digit a part has
//! exclusive_rows   where the first of each digit and part goes, for each row
//! radix_scatter    the others, by the scan; both arrays are read and written once
//! ```

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::matrix_tile_origin;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &radix_keys_of_floats::KERNEL,
    &radix_keys_of_ints::KERNEL,
    &radix_pass_in_order::KERNEL,
    &radix_select_in_order::KERNEL,
    &radix_count::KERNEL,
    &radix_scatter::KERNEL,
];

/// Floats as integers in their order: -0 equals 0, NaN comes after all numbers.
#[device]
fn order_of<T: Float, K: Int, S: Shape>(x: Tile<T, S>) -> Tile<K, S> {
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

/// The positions of the `k` smallest of each row of `n` keys, in the order in which they stand; of equal ones the first.
/// `edge` is where the largest of them stands, of equal ones the last.
///
/// Digit by digit from the most significant, of `passes` of 8 bits: how many keys that begin as the largest of them
/// does have each digit. A program a row, one element after the other; `counts` has 256 numbers for each row. `mask`
/// has the bits of all digits.
#[kernel]
pub fn radix_select_in_order<K: Int>(
    keys: Ptr<K>,
    counts: PtrMut<i64>,
    order: PtrMut<i64>,
    edge: PtrMut<i64>,
    n: i64,
    k: i64,
    passes: i64,
    mask: i64,
) {
    let first = program_id(0) * n;
    let own = counts + program_id(0) * 256;
    let mut prefix = 0;
    let mut wanted = k;
    for pass in range(0, passes) {
        let shift = (passes - 1 - pass) * 8;
        // The bits of the digits that are known, of which the first pass has none: a key may have its sign before them.
        let known = (1 << (pass * 8)) - 1;
        store(own + arange::<256>(), zeros::<i64, 256>());
        for i in range(first, first + n) {
            let key = load(keys + i).to::<i64>() & mask;
            if ((key >> (shift + 8)) & known) == (prefix & known) {
                let digit = (key >> shift) & 255;
                store(own + digit, load(own + digit) + 1);
            }
        }
        let mut digit = 0;
        let mut before = 0;
        let mut so_far = 0;
        for bin in range(0, 256) {
            so_far = so_far + load(own + bin);
            let is_below = so_far < wanted;
            digit = where_(is_below, bin + 1, digit);
            before = where_(is_below, so_far, before);
        }
        wanted = wanted - before;
        prefix = (prefix << 8) | digit;
    }
    // Compared without a sign: of 64 bits the highest is turned.
    let threshold = (prefix & mask) ^ i64::MIN;
    let mut to = program_id(0) * k;
    let mut last = 0;
    for i in range(0, n) {
        let key = (load(keys + (first + i)).to::<i64>() & mask) ^ i64::MIN;
        if key <= threshold {
            let is_edge = key == threshold;
            if !is_edge | (wanted > 0) {
                store(order + to, i);
                to = to + 1;
            }
            last = where_(is_edge & (wanted > 0), i, last);
            wanted = where_(is_edge, wanted - 1, wanted);
        }
    }
    store(edge + program_id(0), last);
}

/// 16 counters of 16 bits in four words.
#[device]
fn add_words(a: (u64, u64, u64, u64), b: (u64, u64, u64, u64)) -> (u64, u64, u64, u64) {
    (a.0 + b.0, a.1 + b.1, a.2 + b.2, a.3 + b.3)
}

/// One of the words of an element: a one in the counter of its digit, if that is in the word.
#[device]
fn word_of<S: Shape>(digit: Tile<i32, S>, number: i32) -> Tile<u64, S> {
    let one = (digit * 0 + 1).to::<u64>() << ((digit & 3) << 4).to::<u64>();
    where_((digit >> 2) == number, one, 0)
}

/// The counter of a digit.
#[device]
fn counter_of<S: Shape>(
    digit: Tile<i32, S>,
    a: Tile<u64, S>,
    b: Tile<u64, S>,
    c: Tile<u64, S>,
    d: Tile<u64, S>,
) -> Tile<i64, S> {
    let word = digit >> 2;
    let own = where_(word == 0, a, where_(word == 1, b, where_(word == 2, c, d)));
    ((own >> ((digit & 3) << 4).to::<u64>()) & 0xffff).to::<i64>()
}

/// The row of a program, which of its parts it has, and where that part ends in the row.
#[device]
fn share_of(n: i64, part: i64) -> (i64, i64, i64) {
    let parts = cdiv(n, part);
    let own = program_id(0) % parts;
    (program_id(0) / parts, own, minimum(own * part + part, n))
}

/// How many keys of each part of a row have each digit, of the 4 bits from `shift`: `[row, digit, part]`. A part
/// has less than 2^16 keys.
#[kernel]
pub fn radix_count<K: Int, const LANES: usize, const WIDTH: usize>(
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
    for first in range(own * part, end, LANES * WIDTH) {
        let at = first + (arange::<LANES>() * WIDTH).col() + arange::<WIDTH>().row();
        let key = load(keys + (row * n + at), at < end);
        // Past the end no counter is met.
        let digit = where_(at < end, (key >> shift).to::<i32>() & 15, 64);
        a = a + sum(word_of(digit, 0), 1);
        b = b + sum(word_of(digit, 1), 1);
        c = c + sum(word_of(digit, 2), 1);
        d = d + sum(word_of(digit, 3), 1);
    }
    let (wa, wb, wc, wd) = reduce((a, b, c, d), 0, add_words);
    let bin = arange::<16>();
    let none = zeros::<u64, 16>();
    let many = counter_of(bin.to::<i32>(), none + wa, none + wb, none + wc, none + wd);
    store(counts + ((row * 16 + bin) * parts + own), many);
}

/// Moves the keys of each part of a row, and their positions, by the same digit, to the places that `offsets` names:
/// `[row, digit, part]`, from the row's first.
#[kernel]
pub fn radix_scatter<K: Int, I: Int, O: Int, const LANES: usize, const WIDTH: usize>(
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
    for first in range(own * part, end, LANES * WIDTH) {
        let place = first + (arange::<LANES>() * WIDTH).col() + arange::<WIDTH>().row();
        let inside = place < end;
        let key = load(keys + (row * n + place), inside);
        let digit = where_(inside, (key >> shift).to::<i32>() & 15, 64);
        let words = (word_of(digit, 0), word_of(digit, 1), word_of(digit, 2), word_of(digit, 3));
        // Within a line of the tile, then over lines: most of it is in registers.
        let (la, lb, lc, ld) = associative_scan(words, 1, add_words);
        let (ta, tb, tc, td) = reduce(words, 1, add_words);
        let (sa, sb, sc, sd) = associative_scan((ta, tb, tc, td), 0, add_words);
        let rank = counter_of(
            digit,
            la + (sa - ta + a).col(),
            lb + (sb - tb + b).col(),
            lc + (sc - tc + c).col(),
            ld + (sd - td + d).col(),
        );
        let start = load(offsets + ((row * 16 + digit.to::<i64>()) * parts + own), inside);
        let to = row * n + start + rank - 1;
        store(sorted + to, key, inside);
        store(sorted_at + to, load(at + (row * n + place), inside).to::<O>(), inside);
        let (na, nb, nc, nd) = reduce((ta, tb, tc, td), 0, add_words);
        a = a + na;
        b = b + nb;
        c = c + nc;
        d = d + nd;
    }
}
