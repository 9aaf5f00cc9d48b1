//! The smallest keys of rows on the CPU, in one pass over each row.
//!
//! A key that is below the largest of the best so far goes into a buffer beside them. Where that is full, a selection in
//! linear time leaves as many as are wanted, and the largest of those is what later keys are compared with. Most keys of a
//! long row are so compared once, and nothing else:
//!
//! ```text
//! 2 wanted of 5 3 9 1 7 2, a buffer of 4     5 3 9 1 -> 1 3     7 is not below 3     1 3 2 -> 1 2
//! ```

use bytemuck::Pod;
use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{HostElement, install};
use genesis_kernel::trace;
use rayon::prelude::*;

use crate::tensor::Tensor;

/// Keys of a task, at least.
const TASK: usize = 1 << 14;
/// Room for keys beside those that are wanted, at least.
const BESIDE: usize = 64;

/// Keys of rows `[rows, n]`, how many of each row are wanted, `[rows]` of i64, and which of their bits count.
pub(crate) struct Wanted<'t> {
    pub(crate) keys: &'t Tensor,
    pub(crate) counts: &'t Tensor,
    pub(crate) mask: u64,
}

/// A key with its position below it, so that of equal keys the first is the smaller one.
trait Word: Copy + Ord + Send {
    fn of(key: u64, at: usize) -> Self;
    fn key(self) -> u64;
    fn at(self) -> usize;
}

impl Word for u64 {
    fn of(key: u64, at: usize) -> u64 {
        (key << 32) | at as u64
    }

    fn key(self) -> u64 {
        self >> 32
    }

    fn at(self) -> usize {
        (self & 0xffff_ffff) as usize
    }
}

impl Word for u128 {
    fn of(key: u64, at: usize) -> u128 {
        (u128::from(key) << 64) | at as u128
    }

    fn key(self) -> u64 {
        (self >> 64) as u64
    }

    fn at(self) -> usize {
        self as u64 as usize
    }
}

/// Writes where the wanted keys of each row stand, in that order, to rows of `k` of `order` unless that is 0; and where the
/// largest of them stands, of equals the last, to `edge: [rows]`. All of i64.
pub(crate) fn smallest(wanted: &Wanted<'_>, k: usize, order: &Tensor, edge: &Tensor) {
    let is_short = wanted.keys.shape()[1] <= u32::MAX as usize;
    match (wanted.keys.dtype(), is_short) {
        (DType::I8, true) => of_rows::<i8, u64>(wanted, k, order, edge, |key| key as u64),
        (DType::I16, true) => of_rows::<i16, u64>(wanted, k, order, edge, |key| key as u64),
        (DType::I32, true) => of_rows::<i32, u64>(wanted, k, order, edge, |key| key as u64),
        (DType::I8, false) => of_rows::<i8, u128>(wanted, k, order, edge, |key| key as u64),
        (DType::I16, false) => of_rows::<i16, u128>(wanted, k, order, edge, |key| key as u64),
        (DType::I32, false) => of_rows::<i32, u128>(wanted, k, order, edge, |key| key as u64),
        _ => of_rows::<i64, u128>(wanted, k, order, edge, |key| key as u64),
    }
}

/// Writes the positions of the rows of keys `[rows, n]` in the order of their elements to `order: [rows]` of i64; equal rows
/// keep theirs. `mask` has the bits of a key that count.
pub(crate) fn rows_in_order(keys: &Tensor, mask: u64, order: &Tensor) {
    match keys.dtype() {
        DType::I8 => sort_rows::<i8>(keys, order, |key| key as u64 & mask),
        DType::I16 => sort_rows::<i16>(keys, order, |key| key as u64 & mask),
        DType::I32 => sort_rows::<i32>(keys, order, |key| key as u64 & mask),
        _ => sort_rows::<i64>(keys, order, |key| key as u64 & mask),
    }
}

fn sort_rows<K: HostElement + Pod>(keys: &Tensor, order: &Tensor, word: impl Fn(K) -> u64 + Sync) {
    let bytes = (keys.numel() * keys.dtype().bytes()) as u64;
    let _kernel =
        trace::host_kernel("sort rows", || trace::Kernel { bytes, ..trace::Kernel::default() });
    let columns = keys.shape()[1];
    let (keys, mut order) = (keys.elements::<K>(), order.elements_mut::<i64>());
    let (keys, order) = (&keys[..], &mut order[..]);
    order.iter_mut().zip(0..).for_each(|(to, row)| *to = row);
    let row = |at: i64| keys[at as usize * columns..][..columns].iter().map(|&key| word(key));
    install(|| order.par_sort_by(|&a, &b| row(a).cmp(row(b))));
}

fn of_rows<K: HostElement + Pod, W: Word>(
    wanted: &Wanted<'_>,
    k: usize,
    order: &Tensor,
    edge: &Tensor,
    widen: impl Fn(K) -> u64 + Sync,
) {
    let n = wanted.keys.shape()[1];
    let mut edge = edge.elements_mut::<i64>();
    if n == 0 {
        return edge.fill(0);
    }
    let bytes = wanted.keys.numel() * wanted.keys.dtype().bytes();
    let work = || trace::Kernel { bytes: bytes as u64, ..trace::Kernel::default() };
    let _kernel = trace::host_kernel("select", work);
    let (keys, counts) = (wanted.keys.elements::<K>(), wanted.counts.elements::<i64>());
    let mask = wanted.mask;
    let row = |best: &mut Vec<W>, (keys, &count): (&[K], &i64)| {
        let key = |&key: &K| widen(key) & mask;
        choose(best, keys.iter().map(key), usize::try_from(count).unwrap_or(0).min(n));
        best.iter().max().map_or(0, |word| word.at() as i64)
    };
    let least = TASK.div_ceil(n);
    let rows = keys.par_chunks(n).zip(&counts[..]).with_min_len(least);
    if k == 0 {
        let work = rows.zip(&mut edge[..]);
        return install(|| work.for_each_init(Vec::new, |best, (of, edge)| *edge = row(best, of)));
    }
    let mut order = order.elements_mut::<i64>();
    let work = rows.zip(&mut edge[..]).zip(order.par_chunks_mut(k));
    install(|| {
        work.for_each_init(Vec::new, |best, ((of, edge), order)| {
            *edge = row(best, of);
            best.sort_unstable_by_key(|word| word.at());
            order.iter_mut().zip(&*best).for_each(|(to, word)| *to = word.at() as i64);
        });
    });
}

/// Leaves the `wanted` smallest of some keys in `best`, in any order.
fn choose<W: Word>(best: &mut Vec<W>, keys: impl Iterator<Item = u64>, wanted: usize) {
    best.clear();
    if wanted == 0 {
        return;
    }
    let room = wanted + wanted.max(BESIDE);
    let mut limit = None;
    for (at, key) in keys.enumerate() {
        if limit.is_some_and(|limit| key >= limit) {
            continue;
        }
        best.push(W::of(key, at));
        if best.len() == room {
            limit = Some(cut(best, wanted));
        }
    }
    if best.len() > wanted {
        cut(best, wanted);
    }
}

/// Leaves the `wanted` smallest, and gives the key of the largest of them.
fn cut<W: Word>(best: &mut Vec<W>, wanted: usize) -> u64 {
    let (_, &mut last, _) = best.select_nth_unstable(wanted - 1);
    best.truncate(wanted);
    last.key()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_are_those_of_a_sort_that_keeps_the_order_of_equals() {
        let keys: Vec<u64> = (0..5000).map(|i: u64| i * i % 613).collect();
        let mut sorted: Vec<(u64, usize)> = keys.iter().copied().zip(0..).collect();
        sorted.sort();
        let (mut short, mut long) = (Vec::<u64>::new(), Vec::<u128>::new());
        for wanted in [0, 1, 2, 63, 64, 65, 700, 2500, 4999, 5000] {
            choose(&mut short, keys.iter().copied(), wanted);
            choose(&mut long, keys.iter().copied(), wanted);
            let of = |at: Vec<usize>| {
                let mut at = at;
                at.sort();
                at
            };
            let expected = of(sorted[..wanted].iter().map(|&(_, at)| at).collect());
            assert_eq!(of(short.iter().map(|word| word.at()).collect()), expected);
            assert_eq!(of(long.iter().map(|word| word.at()).collect()), expected);
        }
    }
}
