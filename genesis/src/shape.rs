//! Shapes, strides and what follows from them: broadcasting, views, collapsing of axes.
//!
//! A [`Layout`] is plain data and every function here is pure, so that views are tested without a
//! tensor. Strides count elements and may be zero (a broadcast axis) or negative (a flipped one).

mod axes;

use crate::error::{Error, Result};

pub(crate) use axes::Axes;

/// Where the elements of a tensor lie in its storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Extents, outermost first.
    pub shape: Axes<usize>,
    /// Steps between neighbours along each axis, in elements.
    pub strides: Axes<i64>,
    /// The first element's place in the storage, in elements.
    pub offset: usize,
}

impl Layout {
    /// Row-major without gaps, from the start of the storage.
    pub fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: shape.into(), strides: dense_strides(shape), offset: 0 }
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        // Extents beside a zero may be so large that their product is no number.
        let (mut numel, mut is_empty) = (1usize, false);
        for &extent in &self.shape {
            numel = numel.wrapping_mul(extent);
            is_empty |= extent == 0;
        }
        if is_empty { 0 } else { numel }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for (&extent, &stride) in self.shape.iter().zip(&self.strides).rev() {
            if extent != 1 && stride != expected {
                return self.numel() == 0;
            }
            expected = i64::wrapping_mul(expected, extent as i64);
        }
        true
    }

    /// The layout with its axes permuted: axis `i` of the result is axis `perm[i]`.
    pub fn permute(&self, perm: &[usize]) -> Layout {
        Layout {
            shape: perm.iter().map(|&p| self.shape[p]).collect(),
            strides: perm.iter().map(|&p| self.strides[p]).collect(),
            offset: self.offset,
        }
    }

    /// The layout of a batch of this alone.
    pub fn batch(&self) -> Layout {
        let step = if self.is_contiguous() { self.numel() as i64 } else { 0 };
        Layout {
            shape: std::iter::once(1).chain(self.shape.iter().copied()).collect(),
            strides: std::iter::once(step).chain(self.strides.iter().copied()).collect(),
            offset: self.offset,
        }
    }

    /// The layout seen as `shape`: new leading axes and axes of extent 1 get stride 0.
    pub fn broadcast_to(&self, shape: &[usize]) -> Option<Layout> {
        let new = shape.len().checked_sub(self.rank())?;
        let mut strides: Axes<i64> = std::iter::repeat_n(0, new).collect();
        for ((&have, &stride), &want) in self.shape.iter().zip(&self.strides).zip(&shape[new..]) {
            match have {
                _ if have == want => strides.push(stride),
                1 => strides.push(0),
                _ => return None,
            }
        }
        Some(Layout { shape: shape.into(), strides, offset: self.offset })
    }

    /// The layout of elements `start`, `start + step`, .. (`len` of them) along `axis`.
    pub fn slice(&self, axis: usize, start: usize, step: i64, len: usize) -> Layout {
        let mut result = self.clone();
        result.offset = (self.offset as i64 + start as i64 * self.strides[axis]) as usize;
        result.shape[axis] = len;
        // A step that overflows passes every other element, so that none is reached by it.
        result.strides[axis] = self.strides[axis].wrapping_mul(step);
        result
    }

    /// The layout of the same elements in another shape, if no copy is needed for it.
    pub fn reshape(&self, shape: &[usize]) -> Option<Layout> {
        if self.numel() == 0 || self.is_contiguous() {
            let strides = dense_strides(shape);
            return Some(Layout { shape: shape.into(), strides, offset: self.offset });
        }
        let strides = reshaped_strides(self, shape)?.into();
        Some(Layout { shape: shape.into(), strides, offset: self.offset })
    }
}

/// Strides of a reshape that walks both shapes group by group from the last axis; a group of old
/// axes that is dense in itself may be cut into new axes at will.
fn reshaped_strides(old: &Layout, shape: &[usize]) -> Option<Vec<i64>> {
    let groups = collapse(&[old]).0;
    let (old_shape, old_strides) = (&groups, collapse(&[old]).1.remove(0));
    let mut strides = vec![0i64; shape.len()];
    let mut axis = shape.len();
    for (&extent, &stride) in old_shape.iter().zip(&old_strides).rev() {
        let (mut left, mut step) = (extent, stride);
        while left > 1 {
            axis = axis.checked_sub(1)?;
            if left % shape[axis] != 0 {
                return None;
            }
            strides[axis] = step;
            step *= shape[axis] as i64;
            left /= shape[axis];
        }
    }
    shape[..axis].iter().all(|&extent| extent == 1).then_some(strides)
}

/// Strides of a dense row-major tensor.
pub(crate) fn contiguous_strides(shape: &[usize]) -> Vec<i64> {
    dense_strides(shape).to_vec()
}

fn dense_strides(shape: &[usize]) -> Axes<i64> {
    if shape.len() == 1 {
        return Axes::from(&[1][..]);
    }
    let mut strides: Axes<i64> = shape.iter().map(|_| 1).collect();
    for axis in (1..shape.len()).rev() {
        // Only a tensor of no elements has extents that overflow; it uses no strides.
        strides[axis - 1] = strides[axis].wrapping_mul(shape[axis].max(1) as i64);
    }
    strides
}

/// Whether two shapes are equal; without a call, for shapes are short.
#[inline]
pub(crate) fn is_same(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

/// The shape that all shapes broadcast to, aligned at the last axis.
pub(crate) fn broadcast_shapes(op: &str, shapes: &[&[usize]]) -> Result<Axes<usize>> {
    if shapes.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(shapes.first().copied().unwrap_or_default().into());
    }
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut result: Axes<usize> = std::iter::repeat_n(1, rank).collect();
    for shape in shapes {
        for (have, &want) in result[rank - shape.len()..].iter_mut().zip(*shape) {
            match (*have, want) {
                (a, b) if a == b || b == 1 => {}
                (1, b) => *have = b,
                _ => {
                    let names: Vec<String> = shapes.iter().map(|s| format!("{s:?}")).collect();
                    let message = format!("shapes do not broadcast, {}", names.join(" and "));
                    return Err(Error::op(op, message));
                }
            }
        }
    }
    check_numel(op, &result)?;
    Ok(result)
}

/// Refuses shapes with more elements than can be counted; views that repeat elements reach them.
pub(crate) fn check_numel(op: &str, shape: &[usize]) -> Result<()> {
    let product =
        shape.iter().try_fold(1isize, |n, &extent| n.checked_mul(extent.try_into().ok()?));
    if product.is_some() || shape.contains(&0) {
        return Ok(());
    }
    Err(Error::op(op, format!("shape {shape:?} has more elements than can be counted")))
}

/// Joins neighbouring axes that every layout walks as one, and drops axes of extent 1.
///
/// All layouts have one shape. Gives the joined shape and the strides of each layout.
pub(crate) fn collapse(layouts: &[&Layout]) -> (Vec<usize>, Vec<Vec<i64>>) {
    let mut shape: Vec<usize> = Vec::new();
    let mut strides: Vec<Vec<i64>> = vec![Vec::new(); layouts.len()];
    for axis in 0..layouts[0].rank() {
        let extent = layouts[0].shape[axis];
        if extent == 1 {
            continue;
        }
        let joins = !shape.is_empty()
            && layouts
                .iter()
                .zip(&strides)
                .all(|(l, s)| s[s.len() - 1] == l.strides[axis].wrapping_mul(extent as i64));
        if joins {
            // Only a tensor of no elements has extents whose product overflows.
            let last = shape.last_mut().expect("joins only where an axis is there");
            *last = last.wrapping_mul(extent);
        } else {
            shape.push(extent);
        }
        for (layout, strides) in layouts.iter().zip(&mut strides) {
            if joins {
                strides.pop();
            }
            strides.push(layout.strides[axis]);
        }
    }
    (shape, strides)
}

/// The axis that `dim` names, where negative numbers count from the end.
pub(crate) fn axis(op: &str, dim: i64, shape: &[usize]) -> Result<usize> {
    let rank = shape.len() as i64;
    if (-rank..rank).contains(&dim) {
        return Ok(dim.rem_euclid(rank) as usize);
    }
    Err(Error::op(op, format!("dimension {dim} is out of range for shape {shape:?}")))
}

/// [`axis`], where a scalar has one axis for this purpose, as in PyTorch.
pub(crate) fn axis_or_scalar(op: &str, dim: i64, shape: &[usize]) -> Result<usize> {
    if shape.is_empty() && (-1..=0).contains(&dim) { Ok(0) } else { axis(op, dim, shape) }
}

/// The shape with a single -1 replaced by what is left of `numel`.
pub(crate) fn infer_shape(op: &str, dims: &[i64], from: &[usize]) -> Result<Vec<usize>> {
    let numel: usize = from.iter().product();
    let refuse = || Error::op(op, format!("can't view shape {from:?} as {dims:?}"));
    let known: usize = dims.iter().filter(|&&d| d >= 0).map(|&d| d as usize).product();
    let shape: Option<Vec<usize>> = dims
        .iter()
        .map(|&d| match d {
            -1 if known > 0 && numel.is_multiple_of(known) => Some(numel / known),
            d if d >= 0 => Some(d as usize),
            _ => None,
        })
        .collect();
    let shape = shape.ok_or_else(refuse)?;
    let one_inferred = dims.iter().filter(|&&d| d < 0).count() <= 1;
    if one_inferred && shape.iter().product::<usize>() == numel { Ok(shape) } else { Err(refuse()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collapses_dense_axes_to_one() {
        let layout = Layout::contiguous(&[2, 3, 4]);
        assert_eq!(collapse(&[&layout]), (vec![24], vec![vec![1]]));
    }

    #[test]
    fn keeps_axes_that_one_layout_broadcasts() {
        let full = Layout::contiguous(&[2, 3]);
        let row = Layout::contiguous(&[3]).broadcast_to(&[2, 3]).expect("[3] goes to [2, 3]");
        assert_eq!(collapse(&[&full, &row]), (vec![2, 3], vec![vec![3, 1], vec![0, 1]]));
    }

    #[test]
    fn reshapes_a_transposed_layout_only_where_no_copy_is_needed() {
        let transposed = Layout::contiguous(&[2, 3]).permute(&[1, 0]);
        assert_eq!(transposed.reshape(&[6]), None);
        let split = transposed.reshape(&[3, 1, 2]).expect("only a unit axis is new");
        assert_eq!(split.strides[0], 1);
        assert_eq!(split.strides[2], 3);
        let rows = Layout { shape: vec![4, 6].into(), strides: vec![10, 1].into(), offset: 0 };
        assert_eq!(rows.reshape(&[2, 2, 3, 2]).expect("cuts dense groups").strides, [20, 10, 2, 1]);
    }

    #[test]
    fn a_batch_of_one_is_another_leading_axis() {
        let dense = Layout::contiguous(&[2, 3]);
        assert_eq!(Some(dense.batch()), dense.reshape(&[1, 2, 3]));
        let turned = dense.permute(&[1, 0]);
        assert_eq!(Some(turned.batch()), turned.reshape(&[1, 3, 2]));
    }

    #[test]
    fn broadcasting_names_both_shapes() {
        let error = broadcast_shapes("add", &[&[2, 3], &[4]]).expect_err("3 and 4 differ");
        assert_eq!(error.to_string(), "add: shapes do not broadcast, [2, 3] and [4]");
    }
}
