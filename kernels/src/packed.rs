//! Variable-length sequences packed in a batch of 1, without padding: the list of their blocks.
//!
//! Where a sequence begins and how long it is stands on the device. So a kernel makes a list of blocks of
//! rows first, and the programs of attention read their entry of it, at the latency of one load. There is
//! an entry for each block that can be, and few are empty: a sequence has one more than its rows fill, at
//! most.
//!
//! | number of an entry | |
//! |---|---|
//! | 0 | the block's first row in its sequence; how many rows that has where the block is empty |
//! | 1, 2 | the sequence's first row, and how many it has |
//! | 3, 4 | the same on the other side: of the keys where blocks are of queries |
//! | 5 | the sequence's first place in a line of numbers that each query has one of |
//!
//! In such a line each sequence begins at a multiple of 4, as the copy engine needs it.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&attention_blocks::KERNEL, &attention_unlisted::KERNEL];

/// Numbers of an entry of the list.
pub const ENTRY: usize = 8;
/// Multiples of which many numbers a sequence of a line begins at.
pub const ALIGNED: usize = 4;

/// How many blocks of `block` rows the list has for `sequences` with `rows` in all.
pub fn blocks(rows: usize, block: usize, sequences: usize) -> usize {
    if sequences == 0 { 0 } else { rows / block + sequences }
}

/// How many numbers a line has for `sequences` with `rows` in all.
pub fn line(rows: usize, sequences: usize) -> usize {
    (rows + ALIGNED * sequences).next_multiple_of(ALIGNED)
}

/// The most sequences that are put in order.
pub const ORDERED: usize = 128;

/// Makes the list: `count` entries for blocks of `ROWS` rows of sequences that end at `ends`, of whose rows
/// only the first `longest` are in blocks. `others` are the ends on the other side, that of the queries
/// where `KEYS` is 1.
///
/// A block of a long sequence takes the most time. So where there are no more than `MOST` sequences the
/// longest come first, and short ones fill up the end; of queries the last ones come first, which see the
/// most where they look back. More sequences stay as they are: the blocks of one begin at number
/// `first / ROWS` and as many more as there are sequences before it, so that each has enough for its rows
/// and where it begins needs no sum.
#[kernel]
pub fn attention_blocks<
    const BLOCK: usize,
    const ROWS: usize,
    const KEYS: usize,
    const MOST: usize,
>(
    ends: Ptr<i64>,
    others: Ptr<i64>,
    list: PtrMut<i64>,
    count: i64,
    sequences: i64,
    rows: i64,
    other_rows: i64,
    longest: i64,
) {
    let number = program_id(0) * BLOCK + arange::<BLOCK>();
    let mut of = zeros::<i64, BLOCK>();
    // Where no block begins: the entry is empty.
    let mut start = longest + zeros::<i64, BLOCK>();
    if MOST > 0 {
        let t = arange::<MOST>();
        let firsts = clamp(load(ends + t, t < sequences, rows), 0, rows);
        let lens = clamp(load(ends + (t + 1), t < sequences, rows), firsts, rows) - firsts;
        let blocks = cdiv(minimum(lens, longest), ROWS);
        for s in range(0, sequences, 1) {
            let first = clamp(load(ends + s), 0, rows);
            let len = clamp(load(ends + (s + 1)), first, rows) - first;
            let is_before = (lens > len) | ((lens == len) & (t < s));
            let at = sum(where_(is_before, blocks, 0), 0);
            let end = at + cdiv(minimum(len, longest), ROWS);
            let is_in = (number >= at) & (number < end);
            of = where_(is_in, s, of);
            let block = if KEYS == 1 { number - at } else { end - 1 - number };
            start = where_(is_in, block * ROWS, start);
        }
    } else {
        for s in range(0, sequences, 1) {
            let at = clamp(load(ends + s), 0, rows) / ROWS + s;
            of = where_(number >= at, s, of);
            start = where_(number >= at, (number - at) * ROWS, start);
        }
    }
    let first = clamp(load(ends + of), 0, rows);
    let len = clamp(load(ends + (of + 1)), first, rows) - first;
    let other = clamp(load(others + of), 0, other_rows);
    let other_len = clamp(load(others + (of + 1)), other, other_rows) - other;
    let is_full = start < minimum(len, longest);
    let queries = if KEYS == 1 { other } else { first };
    let (at, exists) = (list + number * 8, number < count);
    store(at, where_(is_full, start, len), exists);
    store(at + 1, first, exists);
    store(at + 2, len, exists);
    store(at + 3, other, exists);
    store(at + 4, other_len, exists);
    store(at + 5, (queries + 4 * of) / 4 * 4, exists);
}

/// Writes zeros to the rows of `y: [rows, cols]` that are in no block: those of no sequence, and those of
/// a sequence behind its first `longest`, a multiple of the rows of a block.
#[kernel]
pub fn attention_unlisted<T: Element, const ROWS: usize, const COLS: usize>(
    y: ViewMut<T, 2>,
    ends: Ptr<i64>,
    sequences: i64,
    longest: i64,
) {
    let (rows, cols) = (y.dim(0), y.dim(1));
    let i = program_id(0) * ROWS + arange::<ROWS>();
    let mut is_free = i < rows;
    for s in range(0, sequences, 1) {
        let first = clamp(load(ends + s), 0, rows);
        let end = minimum(clamp(load(ends + (s + 1)), first, rows), first + longest);
        is_free = is_free & ((i < first) | (i >= end));
    }
    if any(is_free, 0) {
        for c in range(0, cols, COLS) {
            let at = c + arange::<COLS>();
            let to = y.ptr() + ((i * y.stride(0)).col() + (at * y.stride(1)).row());
            store(to, zeros::<T, ROWS, COLS>(), is_free.col() & (at < cols).row());
        }
    }
}

/// Entry `number` of the list, where there is one: the block's first row, the sequence's first row and how
/// many it has, the same on the other side, and its place in a line. Of a batch the block of `B` rows
/// with this number; `own` and `other` are the rows on both sides.
#[device]
pub fn block_at<const B: usize, const VARLEN: usize>(
    list: Ptr<i64>,
    number: i64,
    own: i64,
    other: i64,
) -> (i64, i64, i64, i64, i64, i64) {
    if VARLEN == 1 {
        // In bounds that let the compiler know that 32 bits hold them.
        let at = list + number * 8;
        let rows = clamp(load(at + 2), 0, own);
        let line = multiple_of(clamp(load(at + 5), 0, 1073741820), 4);
        (
            clamp(load(at), 0, rows),
            clamp(load(at + 1), 0, own),
            rows,
            clamp(load(at + 3), 0, other),
            clamp(load(at + 4), 0, other),
            line,
        )
    } else {
        (minimum(number * B, own), 0, own, 0, other, 0)
    }
}
