//! Which memory a strided view touches: how far it reaches, whether two of its coordinates share an
//! element, whether two views share one.
//!
//! All sums are exact or saturate, so that no extent or stride wraps around to something harmless.
//!
//! ```text
//! x: [4, 6], dense            a = x[.., 0..3]: dims [4, 3], strides [6, 1], from 0
//!   a a a b b b               b = x[.., 3..6]: dims [4, 3], strides [6, 1], from 3
//!   a a a b b b
//!   a a a b b b               ranges 0..21 and 3..24 overlap; modulo 6 a has 0..3 and b 3..6:
//!   a a a b b b               no element is in both
//! ```

use crate::ir::MAX_RANK;

/// The first and the last element of a view, counted from the one with all coordinates 0; none if the
/// view has no elements. Saturates.
pub(crate) fn reach(dims: &[i64], strides: &[i64]) -> Option<(i128, i128)> {
    let (mut low, mut high) = (0i128, 0i128);
    for (&dim, &stride) in dims.iter().zip(strides) {
        if dim <= 0 {
            return None;
        }
        // At most 2^126: a product of two words fits.
        let reach = i128::from(dim - 1) * i128::from(stride);
        match reach < 0 {
            true => low = low.saturating_add(reach),
            false => high = high.saturating_add(reach),
        }
    }
    Some((low, high))
}

/// Whether two coordinates of a view may be one element.
///
/// Axes are taken in the order of their strides. Each must step over all that those before it reach:
/// that holds for every dense, permuted, sliced, strided or flipped layout. It is conservative: a view whose
/// axes interleave, such as extents `[2, 3]` with strides `[3, 2]`, counts as overlapping even where it is not.
pub(crate) fn overlaps_itself(dims: &[i64], strides: &[i64]) -> bool {
    if dims.iter().any(|&dim| dim <= 0) {
        return false;
    }
    let mut axes = [(0u64, 0i64); MAX_RANK];
    let mut n = 0;
    for (&dim, &stride) in dims.iter().zip(strides).filter(|&(&dim, _)| dim > 1) {
        let Some(axis) = axes.get_mut(n) else { return true };
        *axis = (stride.unsigned_abs(), dim);
        n += 1;
    }
    let axes = &mut axes[..n];
    axes.sort_unstable();
    let mut reached = 0u128;
    for &(stride, dim) in axes.iter() {
        if u128::from(stride) <= reached {
            return true;
        }
        reached = reached.saturating_add(u128::from(stride) * (dim - 1) as u128);
    }
    false
}

/// Memory that an argument may touch: elements of `size` bytes, and how far each axis steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footing {
    /// The address of the first byte of the lowest element.
    low: i128,
    size: i128,
    /// Steps in bytes, made positive, and extents beyond 1; those in use come first.
    axes: [(i128, i128); MAX_RANK],
    n: usize,
}

impl Footing {
    /// What a view touches; none if that is nothing.
    pub(crate) fn of_view(
        address: u64,
        size: usize,
        dims: &[i64],
        strides: &[i64],
    ) -> Option<Footing> {
        let (low, _) = reach(dims, strides)?;
        let size = size as i128;
        let low = i128::from(address).saturating_add(low.saturating_mul(size));
        let mut footing = Footing { low, size, axes: [(0, 0); MAX_RANK], n: 0 };
        for (&dim, &stride) in dims.iter().zip(strides) {
            let step = i128::from(stride.unsigned_abs()).saturating_mul(size);
            if dim > 1 && step > 0 {
                footing.push((step, i128::from(dim)));
            }
        }
        Some(footing)
    }

    /// All bytes of a range; none if there are none.
    pub(crate) fn of_bytes(address: u64, bytes: u64) -> Option<Footing> {
        let size = i128::from(bytes);
        let low = i128::from(address);
        (bytes > 0).then_some(Footing { low, size, axes: [(0, 0); MAX_RANK], n: 0 })
    }

    fn push(&mut self, axis: (i128, i128)) {
        if let Some(slot) = self.axes.get_mut(self.n) {
            *slot = axis;
            self.n += 1;
        }
    }

    fn axes(&self) -> &[(i128, i128)] {
        &self.axes[..self.n]
    }

    /// Bytes from the first to the end of the last element.
    fn len(&self) -> i128 {
        let reach = |len: i128, &(step, dim): &(i128, i128)| {
            len.saturating_add(step.saturating_mul(dim - 1))
        };
        self.axes().iter().fold(self.size, reach)
    }

    /// The same shape elsewhere.
    fn at(mut self, low: i128) -> Footing {
        self.low = low;
        self
    }

    /// The part within one period: without the axes that step over whole periods.
    fn modulo(&self, period: i128) -> Footing {
        let mut part = *self;
        part.n = 0;
        self.axes().iter().filter(|(step, _)| step % period != 0).for_each(|&axis| part.push(axis));
        part
    }
}

/// Whether no byte is in both.
///
/// Ranges of addresses decide most cases. Where they overlap, the strides of both are tried as periods: modulo
/// one, an axis that steps over whole periods is a point, and what is left may lie apart. It is exact for
/// parts of one tensor that `narrow`, `select` and steps make; where it can't tell it says no.
pub(crate) fn are_disjoint(a: &Footing, b: &Footing) -> bool {
    if a.low >= b.low.saturating_add(b.len()) || b.low >= a.low.saturating_add(a.len()) {
        return true;
    }
    let steps = || a.axes().iter().chain(b.axes()).map(|&(step, _)| step);
    let common = steps().fold(0, gcd);
    steps().chain([common]).filter(|&period| period > 0).any(|period| {
        let (part_a, part_b) = (a.modulo(period), b.modulo(period));
        let ahead = b.low.saturating_sub(a.low).rem_euclid(period);
        let behind = if ahead == 0 { 0 } else { period - ahead };
        let (len_a, len_b) = (part_a.len(), part_b.len());
        if ahead >= len_a && period - ahead >= len_b {
            return true;
        }
        // Both lie in one window of a period: they meet where their parts in it do.
        if part_a.n == a.n && part_b.n == b.n {
            return false;
        }
        (len_a <= period
            && ahead + len_b <= period
            && are_disjoint(&part_a.at(0), &part_b.at(ahead)))
            || (len_b <= period
                && behind + len_a <= period
                && are_disjoint(&part_a.at(behind), &part_b.at(0)))
    })
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nothing_wraps() {
        let (most, least) = (i64::MAX, i64::MIN);
        assert_eq!(reach(&[3, 4], &[4, 1]), Some((0, 11)));
        assert_eq!(reach(&[3, 4], &[-4, 1]), Some((-8, 3)));
        assert_eq!(reach(&[3, 0], &[most, most]), None);
        assert_eq!(reach(&[], &[]), Some((0, 0)));
        let (low, high) = reach(&[most; 5], &[most, least, least, most, most]).unwrap();
        assert!(low < i128::from(least) && high == i128::MAX);
        assert!(!overlaps_itself(&[2, 2], &[least, most]));
        assert!(overlaps_itself(&[most, most], &[least, least]));
    }

    /// Every element of a small view, by brute force.
    fn elements(start: i64, dims: &[i64], strides: &[i64]) -> Vec<i64> {
        dims.iter().zip(strides).fold(vec![start], |all, (&dim, &stride)| {
            all.iter().flat_map(|&at| (0..dim).map(move |i| at + i * stride)).collect()
        })
    }

    #[test]
    fn what_counts_as_apart_is_apart() {
        let mut rng = fastrand(7);
        let (mut apart, mut of_all) = (0, 0);
        for _ in 0..20_000 {
            let mut view = || {
                let rank = rng(3) as usize + 1;
                let dims: Vec<i64> = (0..rank).map(|_| rng(4) + 1).collect();
                let strides: Vec<i64> = (0..rank).map(|_| rng(15) - 7).collect();
                (rng(20), dims, strides)
            };
            let ((a, a_dims, a_strides), (b, b_dims, b_strides)) = (view(), view());
            let all = elements(a, &a_dims, &a_strides);
            let distinct: BTreeSet<i64> = all.iter().copied().collect();
            if !overlaps_itself(&a_dims, &a_strides) {
                assert_eq!(distinct.len(), all.len(), "{a_dims:?} {a_strides:?}");
            }
            let other: BTreeSet<i64> = elements(b, &b_dims, &b_strides).into_iter().collect();
            let of = |start: i64, dims: &[i64], strides: &[i64]| {
                Footing::of_view((1000 + 4 * start) as u64, 4, dims, strides).unwrap()
            };
            let (x, y) = (of(a, &a_dims, &a_strides), of(b, &b_dims, &b_strides));
            let is_apart = distinct.is_disjoint(&other);
            if are_disjoint(&x, &y) {
                assert!(is_apart, "{a} {a_dims:?} {a_strides:?}, {b} {b_dims:?} {b_strides:?}");
                apart += 1;
            }
            of_all += usize::from(is_apart);
        }
        assert!(apart * 10 > of_all * 5, "{apart} of {of_all} are told");
    }

    fn fastrand(seed: u64) -> impl FnMut(u64) -> i64 {
        let mut state = seed;
        move |below| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % below) as i64
        }
    }

    #[test]
    fn parts_of_one_tensor_are_told_apart() {
        let of = |from: u64, dims: &[i64], strides: &[i64]| {
            Footing::of_view(4096 + 4 * from, 4, dims, strides).unwrap()
        };
        let check = |a: &Footing, b: &Footing| are_disjoint(a, b) && are_disjoint(b, a);
        // Halves of the columns, single columns, even and odd columns, rows that take turns.
        assert!(check(&of(0, &[4, 3], &[6, 1]), &of(3, &[4, 3], &[6, 1])));
        assert!(check(&of(0, &[4], &[6]), &of(1, &[4], &[6])));
        assert!(check(&of(0, &[4, 3], &[5, 2]), &of(1, &[4, 2], &[5, 2])));
        assert!(check(&of(0, &[2, 6], &[12, 1]), &of(6, &[2, 6], &[12, 1])));
        assert!(check(&of(0, &[4, 3], &[6, 1]), &of(23, &[4, 3], &[-6, -1])));
        // The middle of the columns in a tensor of three axes.
        assert!(check(&of(0, &[2, 4, 2], &[24, 6, 1]), &of(2, &[2, 4, 4], &[24, 6, 1])));
        // One element in common.
        assert!(!check(&of(0, &[4, 4], &[6, 1]), &of(3, &[4, 3], &[6, 1])));
        assert!(!check(&of(0, &[4], &[6]), &of(12, &[2], &[1])));
        assert!(!check(&of(0, &[3], &[2]), &of(0, &[3], &[2])));
        // Elements of two bytes inside those of four.
        let halves = Footing::of_view(4098, 2, &[4], &[2]).unwrap();
        assert!(!check(&of(0, &[4], &[1]), &halves));
        let bytes = Footing::of_bytes(4096, 8).unwrap();
        assert!(!check(&bytes, &of(1, &[1], &[1])) && check(&bytes, &of(2, &[1], &[1])));
    }
}
