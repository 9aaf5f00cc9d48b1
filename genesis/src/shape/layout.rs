//! Strided layouts: offset, extents and strides.
//!
//! Safe code reads and writes memory through these numbers, so that they are never merely computed. Every
//! layout is checked by [`Layout::new`] or follows from one that was, and holds:
//!
//! - The extents, an extent of 0 counted as 1, have a product that fits `isize`. So do strides of dense
//!   tensors, also of empty ones, and products of some of the extents.
//! - Each stride times its extent fits `i64`.
//! - The first place that an element lies at is not below 0; [`Layout::end`] is beyond the last.
//!
//! What remains is to compare [`Layout::end`] with the length of the storage, which the one function that
//! makes a tensor does.

use super::{Axes, collapse_strides, count};

/// Where the elements of a tensor lie in its storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    shape: Axes<usize>,
    strides: Axes<i64>,
    offset: usize,
    numel: usize,
    is_contiguous: bool,
    start: usize,
    end: usize,
}

impl Layout {
    /// A layout of these parts, if its numbers can be counted with. Each other way to make one that is no
    /// copy comes here, or is one of the few that change nothing of what is checked here.
    pub(crate) fn new(shape: Axes<usize>, strides: Axes<i64>, offset: usize) -> Option<Layout> {
        if shape.len() != strides.len() {
            return None;
        }
        let first = i64::try_from(offset).ok()?;
        let (mut low, mut high, mut counted) = (first, first, 1i64);
        let (mut is_empty, mut is_dense) = (false, true);
        for (&extent, &stride) in shape.iter().zip(&strides).rev() {
            let filled = i64::try_from(extent.max(1)).ok()?;
            is_dense &= extent == 1 || stride == counted;
            is_empty |= extent == 0;
            counted = counted.checked_mul(filled)?;
            let reach = stride.checked_abs()?.checked_mul(filled)? - stride.abs();
            match stride < 0 {
                true => low = low.checked_sub(reach)?,
                false => high = high.checked_add(reach)?,
            }
        }
        if is_empty {
            (low, high) = (first, first - 1);
        }
        Some(Layout {
            shape,
            strides,
            offset,
            numel: if is_empty { 0 } else { counted as usize },
            is_contiguous: is_empty || is_dense,
            start: usize::try_from(low).ok()?,
            end: high.checked_add(1)? as usize,
        })
    }

    /// Row-major without gaps, from the start of the storage.
    pub(crate) fn contiguous(shape: &[usize]) -> Option<Layout> {
        Layout::dense(shape, 0)
    }

    fn dense(shape: &[usize], offset: usize) -> Option<Layout> {
        Layout::new(shape.into(), dense_strides(shape)?, offset)
    }

    /// Extents, outermost first.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Steps between neighbours along each axis, in elements.
    #[inline]
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// The first element's place in the storage, in elements.
    #[inline]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.numel
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Whether the elements lie in row-major order without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// Whether two elements may lie in one place: whether a step along some axis is not beyond the reach of
    /// all smaller steps together.
    pub(crate) fn may_overlap(&self) -> bool {
        let axes = self.strides().iter().zip(self.shape()).filter(|&(_, &extent)| extent > 1);
        let mut steps: Vec<(i64, i64)> = axes.map(|(s, &e)| (s.abs(), e as i64 - 1)).collect();
        steps.sort_unstable();
        let mut reach = 0;
        for (stride, count) in steps {
            if stride <= reach {
                return true;
            }
            // Fits as each layout reaches at most what can be counted.
            reach += stride * count;
        }
        false
    }

    /// The lowest place of an element: below the offset where a stride is negative. The offset if there
    /// are no elements.
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// One beyond the highest place of an element; the offset if there are no elements.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// The same steps from another first element.
    pub(crate) fn at(&self, offset: usize) -> Option<Layout> {
        Layout::new(self.shape.clone(), self.strides.clone(), offset)
    }

    /// The same steps, where the lowest place is 0.
    pub(crate) fn lowest_at_zero(&self) -> Layout {
        let (offset, end) = (self.offset - self.start, self.end - self.start);
        Layout { offset, start: 0, end, ..self.clone() }
    }

    /// The layout with its axes permuted: axis `i` of the result is axis `perm[i]`. None where `perm`
    /// does not name each axis once.
    pub(crate) fn permute(&self, perm: &[usize]) -> Option<Layout> {
        let is_twice = |(at, axis)| perm[..at].contains(axis);
        if perm.len() != self.rank() || perm.iter().enumerate().any(is_twice) {
            return None;
        }
        let shape = perm.iter().map(|&p| self.shape.get(p).copied()).collect::<Option<_>>()?;
        Layout::new(shape, perm.iter().map(|&p| self.strides[p]).collect(), self.offset)
    }

    /// The layout of a batch of this alone.
    pub(crate) fn batch(&self) -> Layout {
        let step = if self.is_contiguous { self.numel as i64 } else { 0 };
        Layout {
            shape: std::iter::once(1).chain(self.shape.iter().copied()).collect(),
            strides: std::iter::once(step).chain(self.strides.iter().copied()).collect(),
            ..*self
        }
    }

    /// The layout seen as `shape`: new leading axes and axes of extent 1 get stride 0. None where `shape`
    /// has other extents or more elements than can be counted.
    pub(crate) fn broadcast_to(&self, shape: &[usize]) -> Option<Layout> {
        let new = shape.len().checked_sub(self.rank())?;
        let mut strides: Axes<i64> = std::iter::repeat_n(0, new).collect();
        for ((&have, &stride), &want) in self.shape.iter().zip(&self.strides).zip(&shape[new..]) {
            match have {
                _ if have == want => strides.push(stride),
                1 => strides.push(0),
                _ => return None,
            }
        }
        Layout::new(shape.into(), strides, self.offset)
    }

    /// The layout of elements `start`, `start + step`, .. (`len` of them) along `axis`. None where they are
    /// not all there; no elements are at any `start` up to the extent.
    pub(crate) fn slice(&self, axis: usize, start: usize, step: i64, len: usize) -> Option<Layout> {
        let (&extent, &stride) = (self.shape.get(axis)?, self.strides.get(axis)?);
        let is_inside = |at: i64| (0..extent as i64).contains(&at);
        let first = i64::try_from(start).ok()?;
        let mut offset = self.offset;
        if len > 0 {
            let last = i64::try_from(len - 1).ok()?.checked_mul(step)?.checked_add(first)?;
            if !is_inside(first) || !is_inside(last) {
                return None;
            }
        } else if start > extent {
            return None;
        }
        if len > 0 && self.numel > 0 {
            offset = (offset as i64 + first * stride) as usize;
        }
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        shape[axis] = len;
        // A step that overflows passes every other element, so that none is reached by it.
        let apart = stride.checked_mul(step).filter(|apart| apart.checked_abs().is_some());
        strides[axis] = apart.unwrap_or(stride);
        Layout::new(shape, strides, offset)
    }

    /// The layout of windows of `size` elements along `axis`, `step` apart, each along a new last axis. None
    /// where not one fits, or they have more elements together than can be counted.
    pub(crate) fn windows(&self, axis: usize, size: usize, step: usize) -> Option<Layout> {
        let (&extent, &stride) = (self.shape.get(axis)?, self.strides.get(axis)?);
        let count = extent.checked_sub(size)?.checked_div(step)? + 1;
        let mut result = (self.shape.clone(), self.strides.clone());
        result.0[axis] = count;
        let apart = i64::try_from(step).ok().and_then(|step| stride.checked_mul(step));
        // As in `slice`: a step that overflows is taken by no window.
        result.1[axis] = apart.unwrap_or(stride);
        result.0.push(size);
        result.1.push(stride);
        Layout::new(result.0, result.1, self.offset)
    }

    /// The layout of the diagonals of the planes of two axes, as a new last axis; above the main one for a
    /// positive `offset`, below it for a negative one. None where the axes are the same or not there.
    pub(crate) fn diagonal(&self, offset: i64, a: usize, b: usize) -> Option<Layout> {
        if a == b || a.max(b) >= self.rank() {
            return None;
        }
        let skipped = usize::try_from(offset.unsigned_abs()).ok()?;
        let (down, right) = if offset < 0 { (skipped, 0) } else { (0, skipped) };
        let rows = self.shape[a].saturating_sub(down);
        let len = rows.min(self.shape[b].saturating_sub(right));
        let mut first = self.offset;
        if len > 0 && self.numel > 0 {
            let skipped = down as i64 * self.strides[a] + right as i64 * self.strides[b];
            first = (first as i64 + skipped) as usize;
        }
        let others = || (0..self.rank()).filter(|&axis| axis != a && axis != b);
        let mut shape: Axes<usize> = others().map(|axis| self.shape[axis]).collect();
        let mut strides: Axes<i64> = others().map(|axis| self.strides[axis]).collect();
        shape.push(len);
        strides.push(self.strides[a].checked_add(self.strides[b])?);
        Layout::new(shape, strides, first)
    }

    /// The layout of the same elements in another shape, if no copy is needed for it. None too where
    /// `shape` has another number of elements.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Option<Layout> {
        if count(shape)? != self.numel {
            return None;
        }
        if self.is_contiguous {
            return Layout::dense(shape, self.offset);
        }
        Layout::new(shape.into(), self.reshaped_strides(shape)?, self.offset)
    }

    /// Strides of a reshape that walks both shapes group by group from the last axis; a group of old
    /// axes that is dense in itself may be cut into new axes at will.
    fn reshaped_strides(&self, shape: &[usize]) -> Option<Axes<i64>> {
        let (groups, mut strides_of) = collapse_strides(self.shape(), &[self.strides()]);
        let old_strides = strides_of.remove(0);
        let mut strides: Axes<i64> = shape.iter().map(|_| 0).collect();
        let mut axis = shape.len();
        for (&extent, &stride) in groups.iter().zip(&old_strides).rev() {
            let (mut left, mut step) = (extent, stride);
            while left > 1 {
                axis = axis.checked_sub(1)?;
                if !left.is_multiple_of(shape[axis]) {
                    return None;
                }
                strides[axis] = step;
                step *= shape[axis] as i64;
                left /= shape[axis];
            }
        }
        shape[..axis].iter().all(|&extent| extent == 1).then_some(strides)
    }
}

/// Strides of a dense row-major tensor, if its elements can be counted.
#[inline]
pub(super) fn dense_strides(shape: &[usize]) -> Option<Axes<i64>> {
    if shape.len() == 1 {
        return Some(Axes::from(&[1][..]));
    }
    let mut strides: Axes<i64> = shape.iter().map(|_| 1).collect();
    for axis in (1..shape.len()).rev() {
        let extent = i64::try_from(shape[axis].max(1)).ok()?;
        strides[axis - 1] = strides[axis].checked_mul(extent)?;
    }
    Some(strides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(shape: &[usize]) -> Layout {
        Layout::contiguous(shape).expect("these elements can be counted")
    }

    #[test]
    fn reshapes_a_transposed_layout_only_where_no_copy_is_needed() {
        let transposed = dense(&[2, 3]).permute(&[1, 0]).expect("both axes");
        assert_eq!(transposed.reshape(&[6]), None);
        let split = transposed.reshape(&[3, 1, 2]).expect("only a unit axis is new");
        assert_eq!(split.strides[0], 1);
        assert_eq!(split.strides[2], 3);
        let rows = Layout::new(vec![4, 6].into(), vec![10, 1].into(), 0).expect("rows with gaps");
        assert_eq!(rows.reshape(&[2, 2, 3, 2]).expect("cuts dense groups").strides, [20, 10, 2, 1]);
    }

    #[test]
    fn a_batch_of_one_is_another_leading_axis() {
        let dense = dense(&[2, 3]);
        assert_eq!(Some(dense.batch()), dense.reshape(&[1, 2, 3]));
        let turned = dense.permute(&[1, 0]).expect("both axes");
        assert_eq!(Some(turned.batch()), turned.reshape(&[1, 3, 2]));
    }

    #[test]
    fn what_can_not_be_counted_is_no_layout() {
        const HUGE: usize = 1 << 62;
        for shape in
            [&[HUGE + 1, 4][..], &[usize::MAX], &[HUGE, 2], &[HUGE, 0, 4], &[0, usize::MAX]]
        {
            assert_eq!(Layout::contiguous(shape), None, "{shape:?}");
        }
        let one = dense(&[1]);
        assert_eq!(one.broadcast_to(&[HUGE, 2]), None);
        assert!(one.broadcast_to(&[HUGE]).is_some());
        let of = |strides: &[i64]| Layout::new([2, 0].as_slice().into(), strides.into(), 0);
        assert!(of(&[1 << 61, 1 << 61]).is_some());
        assert_eq!(of(&[i64::MIN, 1]), None);
        assert_eq!(of(&[i64::MAX, 1]), None);
        let back = Layout::new([3].as_slice().into(), [-1].as_slice().into(), 1);
        assert_eq!(back, None, "the last lies at -1");
    }

    #[test]
    fn slices_windows_and_diagonals_stay_inside() {
        let x = dense(&[4, 5]);
        assert_eq!(x.slice(0, 1, 2, 2).map(|l| (l.start(), l.end())), Some((5, 20)));
        assert_eq!(
            x.slice(0, 3, -1, 4).map(|l| (l.offset(), l.start(), l.end())),
            Some((15, 0, 20))
        );
        for (start, step, len) in [(1, 2, 3), (4, 1, 1), (5, 1, 0), (0, -1, 2), (1, i64::MIN, 2)] {
            assert_eq!(x.slice(0, start, step, len), None, "{start} {step} {len}");
        }
        assert_eq!(x.slice(1, 5, 1, 0).map(|l| l.numel()), Some(0));
        for step in [i64::MAX, i64::MIN, 0] {
            assert_eq!(x.slice(0, 0, step, 1).map(|l| l.end()), Some(5));
        }
        assert_eq!(x.windows(1, 2, usize::MAX).map(|l| (l.numel(), l.end())), Some((8, 17)));
        assert_eq!(x.windows(1, 6, 1), None);
        assert_eq!(x.windows(1, 2, 0), None);
        assert_eq!(x.diagonal(-1, 0, 1).map(|l| (l.offset(), l.end())), Some((5, 18)));
        assert_eq!(x.diagonal(i64::MIN, 0, 1).map(|l| l.numel()), Some(0));
        assert_eq!(x.permute(&[0, 0]), None);
    }

    #[test]
    fn a_flipped_layout_from_zero_starts_at_its_lowest_place() {
        let back = dense(&[7]).slice(0, 5, -1, 3).expect("5, 4, 3");
        let moved = back.lowest_at_zero();
        assert_eq!((moved.offset(), moved.start(), moved.end()), (2, 0, 3));
        assert_eq!(moved.at(5).as_ref(), Some(&back));
    }
}
