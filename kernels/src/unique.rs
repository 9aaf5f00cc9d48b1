//! Runs of equal elements: the first of each, where it begins, and which run each element is of. Of sorted elements they
//! are the distinct ones.
//!
//! A run begins where an element differs from the one before it, so that each NaN is one of its own. Runs are compacted
//! as [`compact`](crate::compact) does: counted by chunks, then written.
//!
//! Rows are sorted for that by comparing them: pieces of rows each with each ([`mod@rank_rows`]), which are then merged
//! ([`mod@merge_rows`]). Two rows are read as far as they are equal.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::compact::first_of_chunk;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &count_runs::KERNEL,
    &runs::KERNEL,
    &run_lengths::KERNEL,
    &rank_rows::KERNEL,
    &merge_rows::KERNEL,
];

/// Whether a run of `x`, of `n` elements, begins at each `i`.
#[device]
fn begins<T: Number, S: Shape>(x: Ptr<T>, i: Tile<i64, S>, n: i64) -> Tile<bool, S> {
    let (own, before) = (load(x + i, i < n), load(x + (i - 1), (i > 0) & (i < n)));
    ((i == 0) | (own != before)) & (i < n)
}

/// `counts[p]` is how many runs begin in chunk `p`.
#[kernel]
pub fn count_runs<T: Number, const BLOCK: usize>(
    x: Ptr<T>,
    counts: PtrMut<i64>,
    n: i64,
    chunk: i64,
) {
    let begin = program_id(0) * chunk;
    let mut many = zeros::<i32, BLOCK>();
    for first in range(begin, minimum(begin + chunk, n), BLOCK) {
        many = many + begins(x, first + arange::<BLOCK>(), n).to::<i32>();
    }
    store(counts + program_id(0), sum(many, 0).to::<i64>());
}

/// The first element of each run, those of chunk `p` from `offsets[p]`; where they end goes to `ends[p]`.
///
/// With `FIRSTS` where each run begins goes to `firsts`. With `INVERSE` the run of element `i` goes to place `i` of
/// `groups`, with an `INVERSE` of 2 to place `order[i]`.
#[kernel]
pub fn runs<T: Number, const FIRSTS: bool, const INVERSE: usize, const BLOCK: usize>(
    x: Ptr<T>,
    offsets: Ptr<i64>,
    y: PtrMut<T>,
    ends: PtrMut<i64>,
    firsts: PtrMut<i64>,
    order: Ptr<i64>,
    groups: PtrMut<i64>,
    n: i64,
    chunk: i64,
) {
    let begin = program_id(0) * chunk;
    let mut next = first_of_chunk(offsets);
    for first in range(begin, minimum(begin + chunk, n), BLOCK) {
        let i = first + arange::<BLOCK>();
        let is_first = begins(x, i, n);
        let run = next + cumsum(is_first.to::<i32>(), 0).to::<i64>() - 1;
        store(y + run, load(x + i, is_first), is_first);
        if FIRSTS {
            store(firsts + run, i, is_first);
        }
        if INVERSE == 1 {
            store(groups + i, run, i < n);
        }
        if INVERSE == 2 {
            store(groups + load(order + i, i < n), run, i < n);
        }
        next = next + sum(is_first.to::<i32>(), 0).to::<i64>();
    }
    store(ends + program_id(0), next);
}

/// `y[k]` is how long run `k` is: to where the next begins, the last to `n`.
#[kernel]
pub fn run_lengths<const BLOCK: usize>(firsts: Ptr<i64>, y: ViewMut<i64, 1>, n: i64) {
    let first = program_id(0) * BLOCK;
    let k = first + arange::<BLOCK>();
    let end = where_(k + 1 < y.dim(0), load(firsts + (k + 1), k + 1 < y.dim(0)), n);
    y.store([first], end - load(firsts + k, k < y.dim(0)));
}

/// Whether `a` comes before `b`; NaN comes after all numbers.
#[device]
fn is_less<T: Number, S: Shape>(a: Tile<T, S>, b: Tile<T, S>) -> Tile<bool, S> {
    (a < b) | ((b != b) & (a == a))
}

/// The positions of the rows of each `PIECE` rows of `x` in the order of their elements, the first of them before all; equals
/// keep their order. A program places `OWN` rows: it goes along the columns until each differs from all others.
#[kernel]
pub fn rank_rows<T: Number, const OWN: usize, const PIECE: usize>(
    x: View<T, 2>,
    order: PtrMut<i64>,
) {
    let (first, n) = (program_id(0) * OWN, x.dim(0));
    let piece = first / PIECE * PIECE;
    let own_at = (first + arange::<OWN>()).col().broadcast_to::<OWN, PIECE>();
    let at = (piece + arange::<PIECE>()).row().broadcast_to::<OWN, PIECE>();
    let mut is_before = at < 0;
    let mut is_equal = (at < n) & (own_at < n);
    let mut is_open = true;
    let mut j = 0_i64;
    while is_open & (j < x.dim(1)) {
        let own = x.load::<OWN, 1>([first, j]).broadcast_to::<OWN, PIECE>();
        let theirs = x.load::<PIECE, 1>([piece, j]).trans().broadcast_to::<OWN, PIECE>();
        is_before = is_before | (is_equal & is_less(theirs, own));
        is_equal = is_equal & !is_less(theirs, own) & !is_less(own, theirs);
        is_open = any(any(is_equal & (at != own_at), 1), 0);
        j = j + 1;
    }
    let rank = sum((is_before | (is_equal & (at < own_at))).to::<i64>(), 1);
    store(order + (piece + rank), first + arange::<OWN>(), first + arange::<OWN>() < n);
}

/// One more step of a sort of rows: `FAN` pieces of `len` positions, each in order, become one.
///
/// How many rows of a piece come before one of another is found by halving, `steps` times, which is for the longest piece.
/// Of equal rows those of the piece ahead come first.
#[kernel]
pub fn merge_rows<T: Number, const TOKENS: usize, const FAN: usize>(
    x: View<T, 2>,
    order: Ptr<i64>,
    merged: PtrMut<i64>,
    len: i64,
    steps: i64,
) {
    let n = x.dim(0);
    let first = program_id(0) * TOKENS;
    let at = first + arange::<TOKENS>();
    let row = load(order + at, at < n);
    let place = at.col().broadcast_to::<TOKENS, FAN>();
    let group = first / (len * FAN) * (len * FAN);
    let begin = (group + arange::<FAN>() * len).row().broadcast_to::<TOKENS, FAN>();
    let is_ahead = begin + len <= place;
    let is_own = (begin <= place) & !is_ahead;
    let mut low = where_(is_own, minimum(place, n), minimum(begin, n));
    let mut high = where_(is_own, minimum(place, n), minimum(begin + len, n));
    let begin = minimum(begin, n);
    for _ in range(0, steps) {
        let middle = (low + high) >> 1;
        let is_sought = (low < high) & (place < n);
        let other = load(order + middle, is_sought);
        let mut is_before = place < 0;
        let mut is_equal = is_sought;
        let mut is_open = true;
        let mut j = 0_i64;
        while is_open & (j < x.dim(1)) {
            let column = x.ptr() + j * x.stride(1);
            let theirs = load(column + other * x.stride(0), is_equal);
            let own = load(column + row * x.stride(0), at < n).col().broadcast_to::<TOKENS, FAN>();
            is_before = is_before | (is_equal & is_less(theirs, own));
            is_equal = is_equal & !is_less(theirs, own) & !is_less(own, theirs);
            is_open = any(any(is_equal, 1), 0);
            j = j + 1;
        }
        let is_behind = is_before | (is_equal & is_ahead);
        low = where_(is_sought & is_behind, middle + 1, low);
        high = where_(is_sought & !is_behind, middle, high);
    }
    store(merged + (group + sum(low - begin, 1)), row, at < n);
}
