//! Shapes, strides and what follows from them: broadcasting, views, collapsing of axes.
//!
//! A [`Layout`] is plain data and every function here is pure, so that views are tested without a
//! tensor. Strides count elements and may be zero (a broadcast axis) or negative (a flipped one).
//!
//! Products of extents are made here alone: by [`count`] and [`numel`] of what a caller gives, by
//! [`product`] of what a tensor has.

mod axes;
mod collapse;
mod count;
mod layout;
mod order;

use crate::error::{Error, Result};

pub(crate) use axes::Axes;
pub(crate) use collapse::collapse_strides;
pub(crate) use count::{count, numel, product, uncountable};
pub(crate) use layout::Layout;
pub(crate) use order::{inverse, memory_order, reordered};

/// Strides of a dense row-major tensor of some of the extents of a tensor.
pub(crate) fn contiguous_strides(shape: &[usize]) -> Vec<i64> {
    layout::dense_strides(shape).expect("extents of a tensor can be counted").to_vec()
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
    numel(op, &result)?;
    Ok(result)
}

/// Joins neighbouring axes that every layout walks as one, and drops axes of extent 1.
///
/// All layouts have one shape. Gives the joined shape and the strides of each layout.
pub(crate) fn collapse(layouts: &[&Layout]) -> (Vec<usize>, Vec<Vec<i64>>) {
    let strides: Axes<&[i64]> = layouts.iter().map(|layout| layout.strides()).collect();
    collapse_strides(layouts[0].shape(), &strides)
}

/// [`collapse`] of the axes in the order in which those of the last layout lie in memory: for what treats all elements
/// alike, and writes that one.
pub(crate) fn collapse_for_last(layouts: &[&Layout]) -> (Vec<usize>, Vec<Vec<i64>>) {
    let result = layouts[layouts.len() - 1];
    if result.is_contiguous() {
        return collapse(layouts);
    }
    let Some(order) = memory_order(result.shape(), &[result.strides()]) else {
        return collapse(layouts);
    };
    let strides: Vec<Vec<i64>> =
        layouts.iter().map(|layout| reordered(layout.strides(), &order)).collect();
    let along: Vec<&[i64]> = strides.iter().map(|strides| &strides[..]).collect();
    collapse_strides(&reordered(result.shape(), &order), &along)
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

/// The shape with a single -1 replaced by what is left of the elements of `from`.
pub(crate) fn infer_shape(op: &str, dims: &[i64], from: &[usize]) -> Result<Vec<usize>> {
    let refuse = || Error::op(op, format!("can't view shape {from:?} as {dims:?}"));
    let total = numel(op, from)?;
    let given: Axes<usize> =
        dims.iter().filter(|&&d| d != -1).map(|&d| d.max(0) as usize).collect();
    if dims.iter().any(|&d| d < -1) || dims.len() - given.len() > 1 {
        return Err(refuse());
    }
    // What can't be counted is more than `from` has.
    let known = count(&given).ok_or_else(refuse)?;
    let left = if known > 0 && total.is_multiple_of(known) { total / known } else { 0 };
    let shape: Vec<usize> = dims.iter().map(|&d| if d == -1 { left } else { d as usize }).collect();
    if count(&shape) == Some(total) && (known > 0 || !dims.contains(&-1)) {
        Ok(shape)
    } else {
        Err(refuse())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collapses_dense_axes_to_one() {
        let layout = Layout::contiguous(&[2, 3, 4]).expect("24 elements");
        assert_eq!(collapse(&[&layout]), (vec![24], vec![vec![1]]));
    }

    #[test]
    fn keeps_axes_that_one_layout_broadcasts() {
        let full = Layout::contiguous(&[2, 3]).expect("6 elements");
        let row = Layout::contiguous(&[3]).expect("3 elements");
        let row = row.broadcast_to(&[2, 3]).expect("[3] goes to [2, 3]");
        assert_eq!(collapse(&[&full, &row]), (vec![2, 3], vec![vec![3, 1], vec![0, 1]]));
    }

    #[test]
    fn products_beyond_what_can_be_counted_are_no_numbers() {
        const HUGE: usize = 1 << 62;
        assert_eq!(count(&[]), Some(1));
        assert_eq!(count(&[HUGE, 0]), Some(0));
        for extents in
            [&[HUGE, 2][..], &[HUGE, 0, 2], &[0, usize::MAX], &[HUGE + 1, 4], &[HUGE; 100]]
        {
            assert_eq!(count(extents), None, "{extents:?}");
        }
    }

    #[test]
    fn a_view_has_as_many_elements_as_it_had() {
        let check = |dims: &[i64], from: &[usize], want: Option<&[usize]>| {
            let got = infer_shape("view", dims, from).ok();
            assert_eq!(got.as_deref(), want, "{from:?} as {dims:?}");
        };
        check(&[-1, 2], &[2, 3], Some(&[3, 2]));
        check(&[-1], &[0], Some(&[0]));
        check(&[0, 5], &[0], Some(&[0, 5]));
        check(&[5, -1], &[0], Some(&[5, 0]));
        check(&[], &[1], Some(&[]));
        check(&[-1], &[], Some(&[1]));
        check(&[0, -1], &[0], None);
        check(&[-1, -1], &[4], None);
        check(&[-2], &[4], None);
        check(&[i64::MIN], &[4], None);
        check(&[(1 << 62) + 1, 4], &[4], None);
        check(&[1 << 62, 4, 0], &[0], None);
        check(&[1 << 32, 1 << 32, -1], &[0], None);
    }

    #[test]
    fn broadcasting_names_both_shapes() {
        let error = broadcast_shapes("add", &[&[2, 3], &[4]]).expect_err("3 and 4 differ");
        assert_eq!(error.to_string(), "add: shapes do not broadcast, [2, 3] and [4]");
    }
}
