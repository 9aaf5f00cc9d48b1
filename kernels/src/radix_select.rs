//! The smallest of rows by radix, without a sort.
//!
//! Values become keys as for a [sort](crate::radix). The largest key that is chosen, the *edge*, is found from its most
//! significant digit on: of the keys that begin as it does, how many have each digit.
//!
//! ```text
//! the 3 smallest of 31 12 30 11    digit 1: two 1s, two 3s, so it is 3, the first of these    digit 0: 0    edge 30
//! ```
//!
//! A row that fits into a tile is read once, and its edge found bit by bit ([`radix_select_rows_of_floats`]); longer ones
//! are cut into parts, of which each pass reads all. The CPU has no kernel for it: it keeps the best of a row so far.
//!
//! ```text
//! radix_select_count    how many keys of each digit a part has, of those that begin as the edge
//! radix_select_digit    the next digit of the edge, for each row
//!                       .. for each digit
//! radix_select_tally    how many keys below the edge a part has, and how many that equal it
//! exclusive_rows        where the first of each part goes
//! radix_select_write    the positions of what is chosen, in the order in which they stand
//! ```

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::radix::{order_of, share_of};

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &radix_select_rows_of_floats::KERNEL,
    &radix_select_rows_of_ints::KERNEL,
    &radix_select_count_floats::KERNEL,
    &radix_select_count_ints::KERNEL,
    &radix_select_digit::KERNEL,
    &radix_select_tally_floats::KERNEL,
    &radix_select_tally_ints::KERNEL,
    &radix_select_write_floats::KERNEL,
    &radix_select_write_ints::KERNEL,
];

/// 16 counters of 16 bits in four words.
#[device]
fn add_words(a: (u64, u64, u64, u64), b: (u64, u64, u64, u64)) -> (u64, u64, u64, u64) {
    (a.0 + b.0, a.1 + b.1, a.2 + b.2, a.3 + b.3)
}

/// A one in the counter of a digit, of 16 counters of 4 bits in one word.
#[device]
fn one_of<S: Shape>(digit: Tile<i32, S>) -> Tile<u64, S> {
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
fn words_of<S: Shape>(
    word: Tile<u64, S>,
) -> (Tile<u64, S>, Tile<u64, S>, Tile<u64, S>, Tile<u64, S>) {
    (widened(word), widened(word >> 16), widened(word >> 32), widened(word >> 48))
}

/// The counter of a digit, of 16 bits in four words.
#[device]
fn counter_of<S: Shape>(
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

macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// A program a row of at most `BLOCK` values. `wanted` says how many are chosen of each row, of equal ones the
        /// first; `edge` is where the largest of them stands, of equal ones the last. Their positions go into rows of
        /// `k`, if that is not 0.
        #[kernel]
        pub fn $name<T: $bound, K: Int, const BLOCK: usize>(
            x: Ptr<T>,
            wanted: Ptr<i64>,
            order: PtrMut<i64>,
            edge: PtrMut<i64>,
            n: i64,
            k: i64,
            zero: K,
            flip: K,
            bits: i64,
        ) {
            let row = program_id(0);
            let place = arange::<BLOCK>();
            let $x = load(x + (row * n + place), place < n);
            // With a sign, so that numbers with one are compared.
            let key = ($order - zero) ^ flip ^ K::MIN;
            let many = load(wanted + row);
            // The largest number below which there are less than are wanted.
            let mut found = 0;
            for step in range(0, bits, 1) {
                let next = found | (1 << (bits - 1 - step));
                let is_below = (place < n) & (key < (next.to::<K>() ^ K::MIN));
                let below = sum(is_below.to::<i32>(), 0).to::<i64>();
                found = where_(below < many, next, found);
            }
            let last = found.to::<K>() ^ K::MIN;
            let is_below = (place < n) & (key < last);
            let is_equal = (place < n) & (key == last);
            let left = many - sum(is_below.to::<i32>(), 0).to::<i64>();
            let equals = cumsum(is_equal.to::<i32>(), 0).to::<i64>();
            let is_chosen = is_below | (is_equal & (equals <= left));
            let to = cumsum(is_chosen.to::<i32>(), 0).to::<i64>() - 1;
            store(order + (row * k + to), place, is_chosen & (k > 0));
            store(edge + (row + place * 0), place, is_equal & (equals == left));
        }
    )*};
}

rows! {
    /// The positions of the smallest floats of each row, in the order in which they stand.
    radix_select_rows_of_floats: Float = |v| order_of::<T, K, _>(v);
    /// The positions of the smallest integers of each row, in the order in which they stand.
    radix_select_rows_of_ints: Int = |v| bitcast::<K>(v);
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// Of those keys of a part of a row whose higher digits are those of the edge, which the first number of its `state`
        /// has: `[row, digit, part]`. The digit is of the 4 bits from `shift`, and `known` has the bits above them that
        /// are known of the edge. A part has less than 2^16 keys.
        #[kernel]
        pub fn $name<T: $bound, K: Int, const LANES: usize>(
            x: Ptr<T>,
            state: Ptr<i64>,
            counts: PtrMut<i64>,
            n: i64,
            part: i64,
            zero: K,
            flip: K,
            shift: K,
            known: K,
        ) {
            let parts = cdiv(n, part);
            let (row, own, end) = share_of(n, part);
            let prefix = (load(state + row * 2) << 4).to::<K>();
            let mut a = zeros::<u64, LANES>();
            let mut b = zeros::<u64, LANES>();
            let mut c = zeros::<u64, LANES>();
            let mut d = zeros::<u64, LANES>();
            for first in range(own * part, end, LANES * 8) {
                let at = first + (arange::<LANES>() * 8).col() + arange::<8>().row();
                let $x = load(x + (row * n + at), at < end);
                let key = (($order - zero) ^ flip) >> shift;
                let is_kin = (at < end) & (((key ^ prefix) & known) == K::ZERO);
                let digit = key.to::<i32>() & 15;
                let (ta, tb, tc, td) = words_of(sum(where_(is_kin, one_of(digit), 0), 1));
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
    )*};
}

counts! {
    /// How many floats have each digit.
    radix_select_count_floats: Float = |v| order_of::<T, K, _>(v);
    /// How many integers have each digit.
    radix_select_count_ints: Int = |v| bitcast::<K>(v);
}

/// The next digit of the edge of each row, from `counts` of `parts` parts: `[row, digit, part]`. A row's `state` is what is
/// known of the edge, and how many are wanted of the keys that begin so.
#[kernel]
pub fn radix_select_digit<const PARTS: usize>(counts: Ptr<i64>, state: PtrMut<i64>, parts: i64) {
    let row = program_id(0);
    let bin = arange::<16>();
    let mut many = zeros::<i64, 16>();
    for first in range(0, parts, PARTS) {
        let part = first + arange::<PARTS>();
        let at = ((row * 16 + bin) * parts).col() + part.row();
        many = many + sum(load(counts + at, (part < parts).row()), 1);
    }
    let (prefix, wanted) = (load(state + row * 2), load(state + (row * 2 + 1)));
    let so_far = cumsum(many, 0);
    let is_below = so_far < wanted;
    let digit = sum(is_below.to::<i64>(), 0);
    let before = sum(where_(is_below, many, 0), 0);
    store(state + row * 2, (prefix << 4) | digit);
    store(state + (row * 2 + 1), wanted - before);
}

macro_rules! tallies {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// Of each part of each row, first those of all rows that are below: `[2, row, part]`. The edge is the first number of
        /// a row's `state`.
        #[kernel]
        pub fn $name<T: $bound, K: Int, const BLOCK: usize>(
            x: Ptr<T>,
            state: Ptr<i64>,
            counts: PtrMut<i64>,
            n: i64,
            part: i64,
            rows: i64,
            zero: K,
            flip: K,
        ) {
            let parts = cdiv(n, part);
            let (row, own, end) = share_of(n, part);
            let last = load(state + row * 2).to::<K>() ^ K::MIN;
            let mut below = zeros::<i32, BLOCK>();
            let mut equal = zeros::<i32, BLOCK>();
            for first in range(own * part, end, BLOCK) {
                let at = first + arange::<BLOCK>();
                let $x = load(x + (row * n + at), at < end);
                let key = ($order - zero) ^ flip ^ K::MIN;
                below = below + ((at < end) & (key < last)).to::<i32>();
                equal = equal + ((at < end) & (key == last)).to::<i32>();
            }
            let to = counts + (row * parts + own);
            store(to, sum(below, 0).to::<i64>());
            store(to + rows * parts, sum(equal, 0).to::<i64>());
        }
    )*};
}

tallies! {
    /// How many floats are below the edge, and equal to it.
    radix_select_tally_floats: Float = |v| order_of::<T, K, _>(v);
    /// How many integers are below the edge, and equal to it.
    radix_select_tally_ints: Int = |v| bitcast::<K>(v);
}

macro_rules! writes {
    ($($(#[$doc:meta])* $name:ident: $bound:ident = |$x:ident| $order:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// `offsets` is how many keys before each part are below the edge, and equal to it: `[2, row, part]`. A row's `state`
        /// is the edge, and how many keys that equal it are chosen; `edge` is where the last of these stands. The positions
        /// of what is chosen go into rows of `k`, if that is not 0.
        #[kernel]
        pub fn $name<T: $bound, K: Int, const BLOCK: usize>(
            x: Ptr<T>,
            state: Ptr<i64>,
            offsets: Ptr<i64>,
            order: PtrMut<i64>,
            edge: PtrMut<i64>,
            n: i64,
            part: i64,
            rows: i64,
            k: i64,
            zero: K,
            flip: K,
        ) {
            let parts = cdiv(n, part);
            let (row, own, end) = share_of(n, part);
            let last = load(state + row * 2).to::<K>() ^ K::MIN;
            let left = load(state + (row * 2 + 1));
            let from = offsets + (row * parts + own);
            let mut equal = load(from + rows * parts);
            let mut to = row * k + load(from) + minimum(equal, left);
            for first in range(own * part, end, BLOCK) {
                let at = first + arange::<BLOCK>();
                let $x = load(x + (row * n + at), at < end);
                let key = ($order - zero) ^ flip ^ K::MIN;
                let is_equal = (at < end) & (key == last);
                let equals = equal + cumsum(is_equal.to::<i32>(), 0).to::<i64>();
                let is_chosen = ((at < end) & (key < last)) | (is_equal & (equals <= left));
                let number = cumsum(is_chosen.to::<i32>(), 0).to::<i64>();
                store(order + (to + number - 1), at, is_chosen & (k > 0));
                store(edge + (row + at * 0), at, is_equal & (equals == left));
                equal = equal + sum(is_equal.to::<i32>(), 0).to::<i64>();
                to = to + sum(is_chosen.to::<i32>(), 0).to::<i64>();
            }
        }
    )*};
}

writes! {
    /// The positions of the smallest floats of parts of rows, in the order in which they stand.
    radix_select_write_floats: Float = |v| order_of::<T, K, _>(v);
    /// The positions of the smallest integers of parts of rows, in the order in which they stand.
    radix_select_write_ints: Int = |v| bitcast::<K>(v);
}
