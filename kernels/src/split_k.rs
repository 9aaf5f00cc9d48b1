//! Split-K: matrix products whose tiles do not come out even, so that multiprocessors would idle in the last wave.
//!
//! The last `split` tiles are cut along K in `parts` of `each` steps; the others are whole, a multiple of the number of
//! multiprocessors. A part is a unit of work like a whole tile:
//!
//! ```text
//! 448 tiles of 76 steps on 132 multiprocessors: 396 whole tiles in 3 waves, 52 in 2 parts of 38 steps in half a wave
//! unit   0 ..  51    tiles 396 .. 447, steps  0 .. 38     their sums go to slots   0 ..  51 of `sums`
//! unit  52 .. 103    tiles 396 .. 447, steps 38 .. 76                            52 .. 103
//! unit 104 .. 499    tiles   0 .. 395                     go to `c`
//! ```
//!
//! Units that run at the same time have the same steps of K, so that they share operands in the cache. Stream-K
//! (arXiv:2301.03598), whose shares begin anywhere, balances better and loads more: 640 by 2048 by 128256 took it 829 us on an
//! H200, even parts 430. [`split_k_sum`] adds up the parts of a tile in the order of K in a launch of its own, for programs of
//! a ping-pong schedule have no barrier in common; results do not depend on what runs when.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::matmul::{product, scheduled_tile, start_of};

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &split_k::KERNEL,
    &split_k_wide::KERNEL,
    &split_k_add::KERNEL,
    &split_k_add_wide::KERNEL,
    &split_k_sum::KERNEL,
    &split_k_sum_wide::KERNEL,
];

/// Unit `unit` of the work: its tile, and the steps of K from and to.
#[device]
pub fn work_unit(
    unit: i64,
    steps: i64,
    (whole, split, parts, each): (i64, i64, i64, i64),
) -> (i64, i64, i64) {
    let (number, wide) = (unit.to::<u32>(), split.to::<u32>());
    let shared = wide * parts.to::<u32>();
    let part = number / wide;
    let mut tile = whole + (number - part * wide).to::<i64>();
    let mut first = part.to::<i64>() * each;
    let mut end = minimum(first + each, steps);
    if number >= shared {
        tile = (number - shared).to::<i64>();
        first = 0;
        end = steps;
    }
    (tile, first, end)
}

macro_rules! split_k {
    ($($(#[$doc:meta])* $name:ident -> $out:ident $(, adds $adds:literal)?;)*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
            a: View<T, 3>,
            b: View<T, 3>,
            c: ViewMut<$out, 3>,
            sums: ViewMut<A, 3>,
            split: i64,
            parts: i64,
            each: i64,
        ) {
            let (m, n) = (c.dim(1), c.dim(2));
            let steps = cdiv(a.dim(2), BK);
            let whole = c.dim(0) * cdiv(m, BM) * cdiv(n, BN) - split;
            for unit in persistent(split * parts + whole) {
                let (tile, first, end) = work_unit(unit, steps, (whole, split, parts, each));
                let (batch, row, column) = scheduled_tile::<BM, BN>(tile, m, n);
                let at = (batch, row, column);
                let adds = 0 $(+ where_(first == 0, $adds, 0))?;
                let start = start_of::<$out, A, BM, BN>(c, at, adds);
                let acc = product::<T, A, BM, BN, BK>(a, b, start, at, (first * BK, end * BK));
                if unit < split * parts {
                    sums.store([unit, 0, 0], acc.expand_dims(0));
                } else {
                    c.store([batch, row, column], acc.to::<$out>().expand_dims(0));
                }
            }
        }
    )*};
}

split_k! {
    /// `c = a b` with `a: [batch, m, k]`, `b: [batch, k, n]`, `c: [batch, m, n]`, accumulated in `A`, but for the last `split`
    /// tiles, one or more, whose sums go to `sums: [parts split, BM, BN]`, part by part. The last part has a step at least.
    split_k -> T;

    /// [`split_k`] with the sums as they are.
    split_k_wide -> A;

    /// [`split_k`] plus what is in `c`, with which the first part of a tile begins.
    split_k_add -> T, adds 1_i64;

    /// [`split_k_add`] where `c` is as wide as the sums.
    split_k_add_wide -> A, adds 1_i64;
}

macro_rules! sums_of_parts {
    ($($(#[$doc:meta])* $name:ident -> $out:ident)*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Float, A: Float, const BM: usize, const BN: usize, const ROWS: usize>(
            sums: View<A, 3>,
            c: ViewMut<$out, 3>,
            split: i64,
            parts: i64,
        ) {
            let (m, n) = (c.dim(1), c.dim(2));
            let bands = BM / ROWS;
            let own = program_id(0) / bands;
            let below = (program_id(0) - own * bands) * ROWS;
            let mut total = zeros::<A, ROWS, BN>();
            for part in range(0, parts, 1) {
                let slot = part * split + own;
                total = total + sums.load::<1, ROWS, BN>([slot, below, 0]).squeeze(0);
            }
            let tile = c.dim(0) * cdiv(m, BM) * cdiv(n, BN) - split + own;
            let (batch, row, column) = scheduled_tile::<BM, BN>(tile, m, n);
            c.store([batch, row + below, column], total.to::<$out>().expand_dims(0));
        }
    )*};
}

sums_of_parts! {
    /// The tiles of `c` whose sums [`split_k`] left in parts: a program for each `ROWS` rows of each of `split` tiles.
    split_k_sum -> T

    /// The same where `c` is as wide as the sums.
    split_k_sum_wide -> A
}
