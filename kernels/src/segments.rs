//! Sums and products at indices in a fixed order, without atomics: a GPU sorts what is added by its place, and adds up
//! each run of equal places.
//!
//! What is sorted are words: a place in the upper 32 bits, below it the position of the value. The sort is stable, so
//! that the values of a place stand in their own order. A segmented scan of a block adds up the runs that end in it:
//!
//! ```text
//! places  7 2 7 2 | 2 9 2 7     words by place and position  2.1 2.3 2.4 2.6 | 7.0 7.2 7.7 9.5
//! ```
//!
//! Few values are compared each with each instead, by many programs in one launch ([`mod@add_few`]). Of many each block is
//! a program ([`mod@add_segments`]); of a run that goes on behind its block the parts are left in memory, and the block in
//! which it begins joins them ([`mod@join_sums`]). Work grows with the number of values alone, however many a place has.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &place_words::KERNEL,
    &add_few::KERNEL,
    &multiply_few::KERNEL,
    &add_segments::KERNEL,
    &multiply_segments::KERNEL,
    &join_sums::KERNEL,
    &join_products::KERNEL,
];

/// The place of value `t`, whose index is `v`: `v` counts along an axis of `n` with `inner` elements behind it, and `span`
/// values have the same coordinates before it; `ALONE` says that there is no other axis. To an index below 0 `wrap` is
/// added; -1 where there is no such element.
#[device]
fn place_of<const ALONE: bool, S: Shape>(
    v: Tile<i64, S>,
    t: Tile<i64, S>,
    n: i64,
    wrap: i64,
    inner: i64,
    span: i64,
) -> Tile<i64, S> {
    let at = where_(v < 0, v + wrap, v);
    let is_there = (at >= 0) & (at < n);
    let mut place = at;
    if !ALONE {
        // Positions are below 2^31: 64-bit division is slow.
        let own = t.to::<u32>();
        let before = own / span.to::<u32>();
        let behind = own - own / inner.to::<u32>() * inner.to::<u32>();
        place = before.to::<i64>() * (n * inner) + at * inner + behind.to::<i64>();
    }
    where_(is_there, place, -1)
}

/// The word of value `t` at a place. One without a place stands at the last, with a position that is none: it adds no bit
/// to what is sorted by.
#[device]
fn word_of<S: Shape>(place: Tile<i64, S>, t: Tile<i64, S>, last: i64) -> Tile<i64, S> {
    where_(place >= 0, (place << 32) | t, (last << 32) | t | 0x8000_0000)
}

/// Words of `count` values that are not sorted yet. An index that is not there is left in `flag`, as by `index::resolve`,
/// unless `code` is 0. `last` is the last place of all.
#[kernel]
pub fn place_words<const BLOCK: usize>(
    index: Ptr<i64>,
    words: PtrMut<i64>,
    count: i64,
    n: i64,
    wrap: i64,
    inner: i64,
    span: i64,
    last: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let t = program_id(0) * BLOCK + arange::<BLOCK>();
    let v = load(index + t, t < count);
    let place = place_of::<false, _>(v, t, n, wrap, inner, span);
    let is_wrong = (t < count) & (place < 0);
    if (code != 0) & any(is_wrong, 0) {
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(where_(is_wrong, v, i64::MIN), 0));
    }
    store(words + t, word_of(place, t, last), t < count);
}

/// Sums that begin anew at the first of each run.
#[device]
fn run_sum<A: Number>(a: (i32, A), b: (i32, A)) -> (i32, A) {
    (a.0 | b.0, where_(b.0 == 0, a.1 + b.1, b.1))
}

/// Products that begin anew at the first of each run.
#[device]
fn run_product<A: Number>(a: (i32, A), b: (i32, A)) -> (i32, A) {
    (a.0 | b.0, where_(b.0 == 0, a.1 * b.1, b.1))
}

macro_rules! folds {
    ($($few:ident, $segments:ident, $join:ident = $op:tt, $scan:ident, $fold:ident, $unit:ident;)*) => {$(
        /// Folds `count` values into `y` at their places, without a sort: each value of a program is compared with all, and
        /// the first of a place folds them. A thread has some columns of what it compares with, so that the order is
        /// the same each time. Arguments are as for [`mod@place_words`].
        #[kernel]
        pub fn $few<
            T: Number,
            A: Number,
            const ALONE: bool,
            const OWN: usize,
            const COLS: usize,
        >(
            index: Ptr<i64>,
            values: Ptr<T>,
            y: PtrMut<T>,
            count: i64,
            n: i64,
            wrap: i64,
            inner: i64,
            span: i64,
            flag: PtrMut<i64>,
            code: i64,
        ) {
            let t = program_id(0) * OWN + arange::<OWN>();
            let v = load(index + t, t < count);
            let place = where_(t < count, place_of::<ALONE, _>(v, t, n, wrap, inner, span), -1);
            let is_wrong = (t < count) & (place < 0);
            if (code != 0) & any(is_wrong, 0) {
                atomic_max(flag, code);
                atomic_max(flag + (((code >> 4) & 1023) + 1), max(where_(is_wrong, v, i64::MIN), 0));
            }
            // Places are below 2^31.
            let (own, number) = (place.to::<i32>(), t.to::<i32>());
            let mut folded = full::<A, OWN, COLS>(A::$unit);
            let mut earlier = zeros::<i32, OWN, COLS>();
            for first in range(0, count, COLS) {
                let u = first + arange::<COLS>();
                let v = load(index + u, u < count);
                let at = place_of::<ALONE, _>(v, u, n, wrap, inner, span).to::<i32>();
                let value = load(values + u, u < count, T::$unit).to::<A>();
                let is_same = (where_(u < count, at, -2)).row() == own.col();
                folded = folded $op where_(is_same, value.row(), A::$unit);
                earlier = earlier | (is_same & (u.to::<i32>().row() < number.col())).to::<i32>();
            }
            let is_first = (place >= 0) & (max(earlier, 1) == 0);
            let old = load(y + place, is_first, T::$unit).to::<A>();
            store(y + place, (old $op $fold(folded, 1)).to::<T>(), is_first);
        }

        /// Folds the runs of sorted words that begin and end in one block into `y`. Of others `heads` of a block gets what
        /// the run that comes from before has in it, `tails` what the run that goes on behind it has.
        #[kernel]
        pub fn $segments<T: Number, A: Number, const BLOCK: usize>(
            words: Ptr<i64>,
            values: Ptr<T>,
            y: PtrMut<T>,
            heads: PtrMut<A>,
            tails: PtrMut<A>,
            count: i64,
        ) {
            let k = arange::<BLOCK>();
            let i = program_id(0) * BLOCK + k;
            let word = load(words + i, i < count, -1);
            let own = word >> 32;
            let is_first = (i == 0) | (load(words + (i - 1), (i > 0) & (i < count), -1) >> 32 != own);
            let is_last = load(words + (i + 1), i + 1 < count, -1) >> 32 != own;
            let from = word & 0xffff_ffff;
            let value = load(values + from, (own >= 0) & (from < 0x8000_0000), T::$unit).to::<A>();
            let (is_own, total) = associative_scan((is_first.to::<i32>(), value), 0, $scan);
            let is_end = is_last & (is_own != 0) & (own >= 0);
            let old = load(y + own, is_end, T::$unit).to::<A>();
            store(y + own, (old $op total).to::<T>(), is_end);
            let is_behind = k == BLOCK - 1;
            let block = program_id(0) + k * 0;
            store(heads + block, total, (is_own == 0) & (own >= 0) & (is_last | is_behind));
            store(tails + block, total, (is_own != 0) & (own >= 0) & !is_last & is_behind);
        }

        /// Folds what the blocks of `of` words have of a run that begins in the block of a program and ends behind it
        /// into `y`, `LANES` blocks at a time.
        #[kernel]
        pub fn $join<T: Number, A: Number, const LANES: usize>(
            words: Ptr<i64>,
            y: PtrMut<T>,
            heads: Ptr<A>,
            tails: Ptr<A>,
            count: i64,
            of: i64,
        ) {
            let next = (program_id(0) + 1) * of;
            let own = load(words + (next - 1), next < count, -1) >> 32;
            let behind = load(words + next, next < count, -1) >> 32;
            let before = load(words + (next - of - 1), (next > of) & (next < count), -1) >> 32;
            let is_begun = (own != before) | (load(words + (next - of), next < count, -1) >> 32 != own);
            if (own >= 0) & (own == behind) & is_begun {
                let mut total = full::<A, LANES>(A::$unit);
                let mut block = program_id(0) + 1;
                let mut is_whole = true;
                while is_whole {
                    let q = block + arange::<LANES>();
                    let is_own = load(words + q * of, q * of < count, -1) >> 32 == own;
                    total = total $op load(heads + q, is_own, A::$unit);
                    is_whole = all(is_own, 0);
                    block = block + LANES;
                }
                let rest = load(tails + program_id(0)) $op $fold(total, 0);
                store(y + own, (load(y + own).to::<A>() $op rest).to::<T>());
            }
        }
    )*};
}

folds! {
    add_few, add_segments, join_sums = +, run_sum, sum, ZERO;
    multiply_few, multiply_segments, join_products = *, run_product, prod, ONE;
}
