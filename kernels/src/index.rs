//! Gather, scatter and scatter-add at flat indices of a dense tensor.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::{indexed_origin, tile_origin};

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &take::KERNEL,
    &last_write::KERNEL,
    &last_along::KERNEL,
    &put::KERNEL,
    &kept_writes::KERNEL,
    &put_in_order::KERNEL,
    &add_at::KERNEL,
    &resolve::KERNEL,
    &sum_at::KERNEL,
    &prod_at::KERNEL,
    &prod_in_order::KERNEL,
    &count::KERNEL,
    &take_along::KERNEL,
    &fill_along::KERNEL,
    &take_slices::KERNEL,
    &put_slices::KERNEL,
    &add_slices_in_order::KERNEL,
    &add_named_slices_in_order::KERNEL,
    &extreme_slices_in_order::KERNEL,
    &add_in_order::KERNEL,
];

/// `y[i] = x[at[i]]`; zero where there is no such place.
#[kernel]
pub fn take<T: Element, const BLOCK: usize>(x: Ptr<T>, at: View<i64, 1>, y: ViewMut<T, 1>, n: i64) {
    let first = program_id(0) * BLOCK;
    let place = at.load::<BLOCK>([first]);
    y.store([first], load(x + place, (place >= 0) & (place < n)));
}

/// `winner[at[i]] = max(i)`: which of several writes to one place stays. To an index below 0 `wrap` is added; one that is
/// not in `0..n` goes nowhere, and is left in `flag` as by [`mod@resolve`] unless `code` is 0.
#[kernel]
pub fn last_write<const BLOCK: usize>(
    at: View<i64, 1>,
    winner: PtrMut<i64>,
    n: i64,
    wrap: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let first = program_id(0) * BLOCK;
    let i = first + arange::<BLOCK>();
    let v = at.load::<BLOCK>([first]);
    let place = where_(v < 0, v + wrap, v);
    let is_there = (place >= 0) & (place < n);
    let inside = i < at.dim(0);
    if (code != 0) & any(inside & !is_there, 0) {
        atomic_max(flag, code);
        let wrong = where_(inside & !is_there, v, i64::MIN);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(wrong, 0));
    }
    atomic_max(winner + place, i, inside & is_there);
}

/// `y[i]` is the place of write `i`, or -1 where it did not stay; after [`mod@last_write`].
#[kernel]
pub fn kept_writes<const BLOCK: usize>(
    at: View<i64, 1>,
    winner: Ptr<i64>,
    y: ViewMut<i64, 1>,
    n: i64,
    wrap: i64,
) {
    let first = program_id(0) * BLOCK;
    let v = at.load::<BLOCK>([first]);
    let place = where_(v < 0, v + wrap, v);
    let is_there = (place >= 0) & (place < n) & (first + arange::<BLOCK>() < at.dim(0));
    let stays = load(winner + place, is_there, -1) == first + arange::<BLOCK>();
    y.store([first], where_(stays, place, -1));
}

/// `y[p] = values[winner[p]]` where some write went to `p`, else `x[p]`.
#[kernel]
pub fn put<T: Element, W: Int, const BLOCK: usize>(
    x: View<T, 1>,
    winner: View<W, 1>,
    values: Ptr<T>,
    y: ViewMut<T, 1>,
) {
    let first = program_id(0) * BLOCK;
    let from = winner.load::<BLOCK>([first]).to::<i64>();
    let inside = first + arange::<BLOCK>() < x.dim(0);
    let old = x.load::<BLOCK>([first]);
    y.store([first], where_(from >= 0, load(values + from, (from >= 0) & inside), old));
}

/// `y[at[i]] = values[i]`, one after the other, by one program.
#[kernel]
pub fn put_in_order<T: Element>(at: View<i64, 1>, values: Ptr<T>, y: PtrMut<T>, n: i64) {
    for i in range(0, at.dim(0)) {
        let place = load(at.ptr() + i * at.stride(0));
        if (place >= 0) & (place < n) {
            store(y + place, load(values + i));
        }
    }
}

/// `y[p % copies, at[i]] += values[i]` by program `p`, of integers, whose order of additions does not matter: programs
/// that add to other copies do not wait for each other.
#[kernel]
pub fn add_at<T: Int, const BLOCK: usize>(
    at: View<i64, 1>,
    values: View<T, 1>,
    y: PtrMut<T>,
    n: i64,
    copies: i64,
) {
    let first = program_id(0) * BLOCK;
    let place = at.load::<BLOCK>([first]);
    let inside = (first + arange::<BLOCK>() < at.dim(0)) & (place >= 0) & (place < n);
    let own = y + program_id(0) % copies * n;
    atomic_add(own + place, values.load::<BLOCK>([first]), inside);
}

/// `y = step * index`, where an index below 0 counts from `n`.
///
/// One that is not in `low..n` becomes a place so far below 0 that no other axis brings it back. It is
/// left in `flag` for who reads from the device next: the first word says which launch found one, by
/// `code`, of which the first launch has the largest; the word of the launch says the index.
#[kernel]
pub fn resolve<const ROWS: usize, const COLS: usize>(
    index: View<i64, 4>,
    y: ViewMut<i64, 4>,
    n: i64,
    low: i64,
    step: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
    let at = index.load::<1, 1, ROWS, COLS>([a, b, i, j]);
    let is_there = (at >= low) & (at < n);
    let place = where_(at < 0, at + n, at) * step;
    y.store([a, b, i, j], where_(is_there, place, -0x2000_0000_0000_0000));
    let wrong = (!is_there).to::<i32>().squeeze(0).squeeze(0);
    if max(max(wrong, 1), 0) > 0 {
        let seen = where_(is_there, i64::MIN, at).squeeze(0).squeeze(0);
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(max(seen, 1), 0));
    }
}

/// `y[v] = sum of values[t] over the t with index[t] == v`, of places sorted as for the gradient of an embedding: `keys`
/// are `index * scale + t` in order, `starts` where those of each place begin. A lane has a place: few values each.
#[kernel]
pub fn sum_at<T: Number, A: Number, const BLOCK: usize>(
    keys: Ptr<i64>,
    starts: Ptr<i64>,
    values: Ptr<T>,
    y: ViewMut<T, 1>,
    scale: i64,
) {
    let first = program_id(0) * BLOCK;
    let v = first + arange::<BLOCK>();
    let start = load(starts + v, v < y.dim(0));
    let end = load(starts + (v + 1), v < y.dim(0));
    let mut acc = zeros::<A, BLOCK>();
    for step in range(0, max(end - start, 0), 1) {
        let is_own = start + step < end;
        let t = load(keys + (start + step), is_own) & (scale - 1);
        acc = acc + load(values + t, is_own).to::<A>();
    }
    y.store([first], acc.to::<T>());
}

/// The product instead of the sum of [`sum_at`].
#[kernel]
pub fn prod_at<T: Number, A: Number, const BLOCK: usize>(
    keys: Ptr<i64>,
    starts: Ptr<i64>,
    values: Ptr<T>,
    y: ViewMut<T, 1>,
    scale: i64,
) {
    let first = program_id(0) * BLOCK;
    let v = first + arange::<BLOCK>();
    let start = load(starts + v, v < y.dim(0));
    let end = load(starts + (v + 1), v < y.dim(0));
    let mut acc = ones::<A, BLOCK>();
    for step in range(0, max(end - start, 0), 1) {
        let is_own = start + step < end;
        let t = load(keys + (start + step), is_own) & (scale - 1);
        acc = acc * load(values + t, is_own, T::ONE).to::<A>();
    }
    y.store([first], acc.to::<T>());
}

/// `products[at[i]] *= values[i]`, one after the other, by one program.
#[kernel]
pub fn prod_in_order<T: Number, A: Number>(
    at: View<i64, 1>,
    values: Ptr<T>,
    products: PtrMut<A>,
    n: i64,
) {
    for i in range(0, at.dim(0)) {
        let place = load(at.ptr() + i * at.stride(0));
        if (place >= 0) & (place < n) {
            let own = products + place;
            store(own, load(own) * load(values + i).to::<A>());
        }
    }
}

/// `y[i] = i * step`
#[kernel]
pub fn count<const BLOCK: usize>(y: ViewMut<i64, 1>, step: i64) {
    let first = program_id(0) * BLOCK;
    y.store([first], (first + arange::<BLOCK>()) * step);
}

/// `y[..i..] = x[place]`, where the place is the sum of coordinates times steps, but along one axis, whose step is
/// 0 here, of the index times `step`.
///
/// An index below 0 counts from `n`. One that is not there gives zero and is left in `flag`, as by
/// [`mod@resolve`].
#[kernel]
pub fn take_along<T: Element, const ROWS: usize, const COLS: usize>(
    x: Ptr<T>,
    index: View<i64, 4>,
    y: ViewMut<T, 4>,
    s0: i64,
    s1: i64,
    s2: i64,
    s3: i64,
    n: i64,
    step: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (a, b, i, j) = indexed_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3), s2);
    let v = index.load::<1, 1, ROWS, COLS>([a, b, i, j]).squeeze(0).squeeze(0);
    let (row, col) = ((i + arange::<ROWS>()).col(), (j + arange::<COLS>()).row());
    let inside = (row < y.dim(2)) & (col < y.dim(3));
    let is_there = (v >= -n) & (v < n);
    if any(any(inside & !is_there, 1), 0) {
        atomic_max(flag, code);
        let wrong = where_(inside & !is_there, v, i64::MIN);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(max(wrong, 1), 0));
    }
    let place = a * s0 + b * s1 + row * s2 + col * s3 + where_(v < 0, v + n, v) * step;
    let taken = load(x + place, inside & is_there);
    y.store([a, b, i, j], taken.expand_dims(0).expand_dims(0));
}

/// `winner[place] = max(i)` of the row-major positions `i` in the index, of places as [`mod@take_along`] reads: which of
/// several writes to one place stays.
#[kernel]
pub fn last_along<W: Int, const ROWS: usize, const COLS: usize>(
    index: View<i64, 4>,
    winner: PtrMut<W>,
    s0: i64,
    s1: i64,
    s2: i64,
    s3: i64,
    n: i64,
    step: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (a, b, i, j) = indexed_origin::<ROWS, COLS>(index.dim(1), index.dim(2), index.dim(3), s2);
    let v = index.load::<1, 1, ROWS, COLS>([a, b, i, j]).squeeze(0).squeeze(0);
    let (row, col) = ((i + arange::<ROWS>()).col(), (j + arange::<COLS>()).row());
    let inside = (row < index.dim(2)) & (col < index.dim(3));
    let is_there = (v >= -n) & (v < n);
    if any(any(inside & !is_there, 1), 0) {
        atomic_max(flag, code);
        let wrong = where_(inside & !is_there, v, i64::MIN);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(max(wrong, 1), 0));
    }
    let place = a * s0 + b * s1 + row * s2 + col * s3 + where_(v < 0, v + n, v) * step;
    let own = ((a * index.dim(1) + b) * index.dim(2) + row) * index.dim(3) + col;
    atomic_max(winner + place, own.to::<W>(), inside & is_there);
}

/// `y[place] = value`, of places as [`mod@take_along`] reads: all that are written to one place are equal.
#[kernel]
pub fn fill_along<T: Element, const ROWS: usize, const COLS: usize>(
    index: View<i64, 4>,
    y: PtrMut<T>,
    s0: i64,
    s1: i64,
    s2: i64,
    s3: i64,
    n: i64,
    step: i64,
    value: T,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (a, b, i, j) = indexed_origin::<ROWS, COLS>(index.dim(1), index.dim(2), index.dim(3), s2);
    let v = index.load::<1, 1, ROWS, COLS>([a, b, i, j]).squeeze(0).squeeze(0);
    let (row, col) = ((i + arange::<ROWS>()).col(), (j + arange::<COLS>()).row());
    let inside = (row < index.dim(2)) & (col < index.dim(3));
    let is_there = (v >= -n) & (v < n);
    if any(any(inside & !is_there, 1), 0) {
        atomic_max(flag, code);
        let wrong = where_(inside & !is_there, v, i64::MIN);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(max(wrong, 1), 0));
    }
    let place = a * s0 + b * s1 + row * s2 + col * s3 + where_(v < 0, v + n, v) * step;
    store(y + place, full::<T, ROWS, COLS>(value), inside & is_there);
}

/// `y[a, i, b] = x[a, index[i], b]`. To an index below 0 `wrap` is added; one that is not there gives zeros, and is left
/// in `flag` as by [`mod@resolve`] unless `code` is 0.
#[kernel]
pub fn take_slices<T: Element, const ROWS: usize, const COLS: usize>(
    x: View<T, 3>,
    index: View<i64, 1>,
    y: ViewMut<T, 3>,
    wrap: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (down, across) = (cdiv(y.dim(1), ROWS), cdiv(y.dim(2), COLS));
    let (line, j) = (program_id(0) / across, program_id(0) % across * COLS);
    let (a, i) = (line / down, line % down * ROWS);
    let v = index.load::<ROWS>([i]);
    let at = where_(v < 0, v + wrap, v);
    let col = j + arange::<COLS>();
    let from = x.ptr() + a * x.stride(0) + (at * x.stride(1)).col() + (col * x.stride(2)).row();
    let is_there = (at >= 0) & (at < x.dim(1));
    let is_wrong = (i + arange::<ROWS>() < y.dim(1)) & !is_there;
    if (code != 0) & any(is_wrong, 0) {
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(where_(is_wrong, v, i64::MIN), 0));
    }
    let taken = load(from, is_there.col() & (col < x.dim(2)).row());
    y.store([a, i, j], taken.expand_dims(0));
}

/// `y[a, d, b] = source[a, last[d], b]`, or `x[a, d, b]` where `last[d]` is below 0.
#[kernel]
pub fn put_slices<T: Element, const ROWS: usize, const COLS: usize>(
    x: View<T, 3>,
    last: View<i64, 1>,
    source: View<T, 3>,
    y: ViewMut<T, 3>,
) {
    let (down, across) = (cdiv(y.dim(1), ROWS), cdiv(y.dim(2), COLS));
    let (line, j) = (program_id(0) / across, program_id(0) % across * COLS);
    let (a, i) = (line / down, line % down * ROWS);
    let at = last.load::<ROWS>([i]);
    let col = j + arange::<COLS>();
    let (row_step, col_step) = (source.stride(1), source.stride(2));
    let from = source.ptr() + a * source.stride(0) + (at * row_step).col() + (col * col_step).row();
    let row = i + arange::<ROWS>();
    let inside = (row < y.dim(1)).col() & (col < y.dim(2)).row();
    let is_written = (at >= 0).col().broadcast_to::<ROWS, COLS>();
    let written = load(from, is_written & inside);
    let kept = x.ptr() + a * x.stride(0) + (row * x.stride(1)).col() + (col * x.stride(2)).row();
    let old = load(kept, !is_written & inside);
    y.store([a, i, j], where_(is_written, written, old).expand_dims(0));
}

/// `sums[a, index[t], b] += values[a, t, b]`, one `t` after the other; a program has `COLS` of the last axis. An
/// index that is not there is left out.
#[kernel]
pub fn add_slices_in_order<T: Number, A: Number, const COLS: usize>(
    index: View<i64, 1>,
    values: View<T, 3>,
    sums: ViewMut<A, 3>,
) {
    let across = cdiv(sums.dim(2), COLS);
    let (a, j) = (program_id(0) / across, program_id(0) % across * COLS);
    for t in range(0, index.dim(0)) {
        let row = load(index.ptr() + t * index.stride(0));
        if (row >= 0) & (row < sums.dim(1)) {
            let more = values.load::<1, 1, COLS>([a, t, j]).to::<A>();
            sums.store([a, row, j], sums.load::<1, 1, COLS>([a, row, j]) + more);
        }
    }
}

/// `sums[a, index[t], b] += values[a, from[t], b]`, as [`mod@add_slices_in_order`]: values of which several `t` take one
/// are not repeated in memory.
#[kernel]
pub fn add_named_slices_in_order<T: Number, A: Number, const COLS: usize>(
    index: View<i64, 1>,
    from: View<i64, 1>,
    values: View<T, 3>,
    sums: ViewMut<A, 3>,
) {
    let across = cdiv(sums.dim(2), COLS);
    let (a, j) = (program_id(0) / across, program_id(0) % across * COLS);
    for t in range(0, index.dim(0)) {
        let row = load(index.ptr() + t * index.stride(0));
        let own = load(from.ptr() + t * from.stride(0));
        let is_there = (own >= 0) & (own < values.dim(1));
        if (row >= 0) & (row < sums.dim(1)) & is_there {
            let more = values.load::<1, 1, COLS>([a, own, j]).to::<A>();
            sums.store([a, row, j], sums.load::<1, 1, COLS>([a, row, j]) + more);
        }
    }
}

/// `y[a, index[t], b] = max(y[a, index[t], b], values[a, t, b])`, or the smaller one; NaN wins. With `FORGET` what `y` holds
/// where there is a value does not count: it becomes `worst` first. As [`mod@add_slices_in_order`] else.
#[kernel]
pub fn extreme_slices_in_order<
    T: Number,
    const MAX: bool,
    const FORGET: bool,
    const COLS: usize,
>(
    index: View<i64, 1>,
    values: View<T, 3>,
    y: ViewMut<T, 3>,
    worst: T,
) {
    let across = cdiv(y.dim(2), COLS);
    let (a, j) = (program_id(0) / across, program_id(0) % across * COLS);
    if FORGET {
        for t in range(0, index.dim(0)) {
            let row = load(index.ptr() + t * index.stride(0));
            if (row >= 0) & (row < y.dim(1)) {
                y.store([a, row, j], full::<T, 1, 1, COLS>(worst));
            }
        }
    }
    for t in range(0, index.dim(0)) {
        let row = load(index.ptr() + t * index.stride(0));
        if (row >= 0) & (row < y.dim(1)) {
            let old = y.load::<1, 1, COLS>([a, row, j]);
            let new = values.load::<1, 1, COLS>([a, t, j]);
            y.store([a, row, j], if MAX { maximum(old, new) } else { minimum(old, new) });
        }
    }
}

/// Adds values to `sums` at places, one after the other in row-major order.
///
/// The place of `values[p, r, c]` is the sum of coordinates times steps and `step` times the index. A program has
/// `rows` by `cols` of them; who launches sees to it that no two programs meet. To an index below 0 `wrap` is added;
/// one that is not in `0..n` goes nowhere, and is left in `flag` as by [`mod@resolve`] unless `code` is 0.
#[kernel]
pub fn add_in_order<T: Number, A: Number>(
    index: View<i64, 3>,
    values: View<T, 3>,
    sums: PtrMut<A>,
    s0: i64,
    s1: i64,
    s2: i64,
    n: i64,
    wrap: i64,
    step: i64,
    rows: i64,
    cols: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (down, across) = (cdiv(index.dim(1), rows), cdiv(index.dim(2), cols));
    let (line, part) = (program_id(0) / across, program_id(0) % across);
    let p = line / down;
    let (i, j) = (line % down * rows, part * cols);
    for r in range(i, minimum(i + rows, index.dim(1))) {
        let from = index.ptr() + p * index.stride(0) + r * index.stride(1);
        let value = values.ptr() + p * values.stride(0) + r * values.stride(1);
        let to = sums + p * s0 + r * s1;
        for c in range(j, minimum(j + cols, index.dim(2))) {
            let v = load(from + c * index.stride(2));
            let at = where_(v < 0, v + wrap, v);
            if (at >= 0) & (at < n) {
                let own = to + c * s2 + at * step;
                store(own, load(own) + load(value + c * values.stride(2)).to::<A>());
            } else if code != 0 {
                atomic_max(flag, code);
                atomic_max(flag + (((code >> 4) & 1023) + 1), v);
            }
        }
    }
}
