//! Stream compaction: the flat indices of nonzero elements, in order.
//!
//! Three launches: each program counts those of its chunk, one program makes the counts places
//! ([`exclusive_rows`](crate::scan::exclusive_rows)), and each program writes its own. What one chunk has is written
//! without a count: it begins at 0, and says itself how many there are.
//!
//! ```text
//! x 0 7 7 0 | 7 0 0 0 | 0 0 7 7    counts 2 1 2    offsets 0 2 3    places 1 2 | 4 | 10 11
//! ```

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &count_found::KERNEL,
    &found_places::KERNEL,
    &found_coordinates::KERNEL,
    &found_values::KERNEL,
    &spread_found::KERNEL,
    &replace_found::KERNEL,
];

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

/// Where what chunk `p` has begins: `offsets[p]`, of the first at 0.
#[device]
pub fn first_of_chunk(offsets: Ptr<i64>) -> i64 {
    load(offsets + program_id(0), program_id(0) > 0)
}

/// The places of the elements of `x` that are not zero, those of chunk `p` from `offsets[p]`; where they end goes to
/// `ends[p]`.
#[kernel]
pub fn found_places<T: Element, const BLOCK: usize>(
    x: View<T, 1>,
    offsets: Ptr<i64>,
    places: PtrMut<i64>,
    ends: PtrMut<i64>,
    chunk: i64,
) {
    let begin = program_id(0) * chunk;
    let mut next = first_of_chunk(offsets);
    for first in range(begin, minimum(begin + chunk, x.dim(0)), BLOCK) {
        let is_found = x.load::<BLOCK>([first]).to::<bool>();
        let number = cumsum(is_found.to::<i32>(), 0);
        store(places + (next + number.to::<i64>() - 1), first + arange::<BLOCK>(), is_found);
        next = next + sum(is_found.to::<i32>(), 0).to::<i64>();
    }
    store(ends + program_id(0), next);
}

/// [`mod@found_places`] with `AXES` coordinates for each place, of `x` whose extents behind the first are `d1`, `d2` and
/// `d3`.
#[kernel]
pub fn found_coordinates<T: Element, const AXES: usize, const BLOCK: usize>(
    x: View<T, 1>,
    offsets: Ptr<i64>,
    y: PtrMut<i64>,
    ends: PtrMut<i64>,
    chunk: i64,
    d1: i64,
    d2: i64,
    d3: i64,
) {
    let begin = program_id(0) * chunk;
    let mut next = first_of_chunk(offsets);
    for first in range(begin, minimum(begin + chunk, x.dim(0)), BLOCK) {
        let is_found = x.load::<BLOCK>([first]).to::<bool>();
        let number = cumsum(is_found.to::<i32>(), 0);
        let to = y + (next + number.to::<i64>() - 1) * AXES as i64;
        let mut rest = first + arange::<BLOCK>();
        if AXES > 3 {
            let line = rest / d3;
            store(to + 3, rest - line * d3, is_found);
            rest = line;
        }
        if AXES > 2 {
            let line = rest / d2;
            store(to + 2, rest - line * d2, is_found);
            rest = line;
        }
        let line = rest / d1;
        store(to + 1, rest - line * d1, is_found);
        store(to, line, is_found);
        next = next + sum(is_found.to::<i32>(), 0).to::<i64>();
    }
    store(ends + program_id(0), next);
}

/// The elements of `x` where `mask` is true, those of chunk `p` from `offsets[p]`; where they end goes to `ends[p]`.
#[kernel]
pub fn found_values<T: Element, const BLOCK: usize>(
    mask: View<bool, 1>,
    x: View<T, 1>,
    offsets: Ptr<i64>,
    y: PtrMut<T>,
    ends: PtrMut<i64>,
    chunk: i64,
) {
    let begin = program_id(0) * chunk;
    let mut next = first_of_chunk(offsets);
    for first in range(begin, minimum(begin + chunk, mask.dim(0)), BLOCK) {
        let is_found = mask.load::<BLOCK>([first]);
        let number = cumsum(is_found.to::<i32>(), 0);
        store(y + (next + number.to::<i64>() - 1), x.load::<BLOCK>([first]), is_found);
        next = next + sum(is_found.to::<i32>(), 0).to::<i64>();
    }
    store(ends + program_id(0), next);
}

/// What [`mod@found_values`] found, where it was; zeros elsewhere. What is found in chunk `p` is from `offsets[p]`.
#[kernel]
pub fn spread_found<T: Element, const BLOCK: usize>(
    mask: View<bool, 1>,
    found: Ptr<T>,
    offsets: Ptr<i64>,
    y: ViewMut<T, 1>,
    chunk: i64,
) {
    let begin = program_id(0) * chunk;
    let mut next = first_of_chunk(offsets);
    for first in range(begin, minimum(begin + chunk, mask.dim(0)), BLOCK) {
        let is_found = mask.load::<BLOCK>([first]);
        let number = cumsum(is_found.to::<i32>(), 0);
        y.store([first], load(found + (next + number.to::<i64>() - 1), is_found));
        next = next + sum(is_found.to::<i32>(), 0).to::<i64>();
    }
}

/// [`mod@spread_found`] with the elements of `x` where nothing was found.
#[kernel]
pub fn replace_found<T: Element, const BLOCK: usize>(
    mask: View<bool, 1>,
    x: View<T, 1>,
    found: Ptr<T>,
    offsets: Ptr<i64>,
    y: ViewMut<T, 1>,
    chunk: i64,
) {
    let begin = program_id(0) * chunk;
    let mut next = first_of_chunk(offsets);
    for first in range(begin, minimum(begin + chunk, mask.dim(0)), BLOCK) {
        let is_found = mask.load::<BLOCK>([first]);
        let number = cumsum(is_found.to::<i32>(), 0);
        let own = load(found + (next + number.to::<i64>() - 1), is_found);
        y.store([first], where_(is_found, own, x.load::<BLOCK>([first])));
        next = next + sum(is_found.to::<i32>(), 0).to::<i64>();
    }
}
