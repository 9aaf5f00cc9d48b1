//! Stream compaction: the flat indices of nonzero elements, in order.
//!
//! Three launches whatever the size: each program counts those of its chunk, one program makes the counts
//! places ([`exclusive_rows`](crate::scan::exclusive_rows)), and each program writes its own.
//!
//! ```text
//! x 0 7 7 0 | 7 0 0 0 | 0 0 7 7    counts 2 1 2    offsets 0 2 3    places 1 2 | 4 | 10 11
//! ```

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&count_found::KERNEL, &found_places::KERNEL, &coordinates::KERNEL];

/// `counts[p]` is how many elements of chunk `p` of `x` are not zero.
#[kernel]
pub fn count_found<T: Element, const BLOCK: usize>(x: View<T, 1>, counts: PtrMut<i64>, chunk: i64) {
    let begin = program_id(0) * chunk;
    let mut many = zeros::<i32, BLOCK>();
    for first in range(begin, minimum(begin + chunk, x.dim(0)), BLOCK) {
        many = many + x.load::<BLOCK>([first]).to::<bool>().to::<i32>();
    }
    store(counts + program_id(0), sum(many, 0).to::<i64>());
}

/// The places of the elements of `x` that are not zero, those of chunk `p` from `offsets[p]`.
#[kernel]
pub fn found_places<T: Element, const BLOCK: usize>(
    x: View<T, 1>,
    offsets: Ptr<i64>,
    places: PtrMut<i64>,
    chunk: i64,
) {
    let begin = program_id(0) * chunk;
    let mut next = load(offsets + program_id(0));
    for first in range(begin, minimum(begin + chunk, x.dim(0)), BLOCK) {
        let is_found = x.load::<BLOCK>([first]).to::<bool>();
        let number = cumsum(is_found.to::<i32>(), 0);
        store(places + (next + number.to::<i64>() - 1), first + arange::<BLOCK>(), is_found);
        next = next + sum(is_found.to::<i32>(), 0).to::<i64>();
    }
}

/// `y[i, axis] = places[i] / stride % extent`: one coordinate of each place.
#[kernel]
pub fn coordinates<const BLOCK: usize>(
    places: View<i64, 1>,
    y: PtrMut<i64>,
    axis: i64,
    rank: i64,
    stride: i64,
    extent: i64,
) {
    let first = program_id(0) * BLOCK;
    let i = first + arange::<BLOCK>();
    let at = places.load::<BLOCK>([first]) / stride % extent;
    store(y + (i * rank + axis), at, i < places.dim(0));
}
