//! Ops that move elements: broadcast, transpose, join, split. Tiles are row-major.

use crate::ir::Shape;

/// Row-major strides, in elements.
pub(super) fn strides(shape: Shape) -> Vec<usize> {
    let mut strides = vec![1; shape.rank()];
    for axis in (1..shape.rank()).rev() {
        strides[axis - 1] = strides[axis] * shape.extent(axis);
    }
    strides
}

/// The elements in the order of a shape's coordinates, each axis moving by its own stride.
pub(super) fn gather(x: &[u64], shape: Shape, strides: &[usize]) -> Vec<u64> {
    let mut out = Vec::with_capacity(shape.numel());
    for_each_index(shape, |coords| {
        let at: usize = coords.iter().zip(strides).map(|(c, s)| c * s).sum();
        out.push(x[at]);
    });
    out
}

/// For each element of an index, the element of `x` that is there along an axis; zero where there is none.
pub(super) fn gather_along(
    x: &[u64],
    from: Shape,
    (index, to): (&[i64], Shape),
    axis: usize,
) -> Vec<u64> {
    let moves = strides(from);
    let mut wanted = index.iter();
    let mut out = Vec::with_capacity(index.len());
    for_each_index(to, |coords| {
        let others = coords.iter().zip(&moves).enumerate().filter(|&(i, _)| i != axis);
        let line: usize = others.map(|(_, (c, s))| c * s).sum();
        let place = wanted.next().and_then(|&at| usize::try_from(at).ok());
        let place = place.filter(|&at| at < from.extent(axis));
        out.push(place.map_or(0, |at| x[line + at * moves[axis]]));
    });
    out
}

/// The tile whose element at an index along an axis is that of `x` where the index stands; none where the indices are not
/// all places along the axis, each once.
pub(super) fn scatter_along(
    x: &[u64],
    shape: Shape,
    index: &[i64],
    axis: usize,
) -> Option<Vec<u64>> {
    let moves = strides(shape);
    let mut elements = x.iter().zip(index);
    let mut out = vec![None; x.len()];
    for_each_index(shape, |coords| {
        let others = coords.iter().zip(&moves).enumerate().filter(|&(i, _)| i != axis);
        let line: usize = others.map(|(_, (c, s))| c * s).sum();
        let Some((&bits, &at)) = elements.next() else { return };
        let at = usize::try_from(at).ok().filter(|&at| at < shape.extent(axis));
        if let Some(at) = at {
            out[line + at * moves[axis]] = Some(bits);
        }
    });
    out.into_iter().collect()
}

/// Calls `f` with each coordinate of a shape, the last axis fastest.
pub(super) fn for_each_index(shape: Shape, mut f: impl FnMut(&[usize])) {
    let extents = shape.extents();
    let mut coords = vec![0; extents.len()];
    for _ in 0..shape.numel() {
        f(&coords);
        for axis in (0..extents.len()).rev() {
            coords[axis] += 1;
            if coords[axis] < extents[axis] {
                break;
            }
            coords[axis] = 0;
        }
    }
}

pub(super) fn broadcast(x: &[u64], from: Shape, to: Shape) -> Vec<u64> {
    if x.len() == 1 {
        return vec![x[0]; to.numel()];
    }
    let mut moves = strides(from);
    for (axis, stride) in moves.iter_mut().enumerate() {
        if from.extent(axis) == 1 {
            *stride = 0;
        }
    }
    gather(x, to, &moves)
}

pub(super) fn transpose(x: &[u64], from: Shape, to: Shape, perm: &[u8]) -> Vec<u64> {
    let old = strides(from);
    let moves: Vec<usize> = perm.iter().map(|&p| old[p as usize]).collect();
    gather(x, to, &moves)
}

pub(super) fn join(a: &[u64], b: &[u64]) -> Vec<u64> {
    a.iter().zip(b).flat_map(|(&a, &b)| [a, b]).collect()
}

pub(super) fn split(x: &[u64]) -> [Vec<u64>; 2] {
    [0, 1].map(|half| x.iter().skip(half).step_by(2).copied().collect())
}

/// A tile seen from one axis: element `k` of a line is at `start + k * inner`.
pub(super) struct Lines {
    pub(super) outer: usize,
    pub(super) n: usize,
    pub(super) inner: usize,
}

impl Lines {
    pub(super) fn new(shape: Shape, axis: usize) -> Lines {
        let extents = shape.extents();
        Lines {
            outer: extents[..axis].iter().product(),
            n: extents[axis],
            inner: extents[axis + 1..].iter().product(),
        }
    }

    /// Where each line starts, in the order of the shape without the axis.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        let (n, inner) = (self.n, self.inner);
        (0..self.outer).flat_map(move |o| (0..inner).map(move |i| o * n * inner + i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposes_by_the_permutation() {
        let (from, to) = (Shape::new(&[2, 3]), Shape::new(&[3, 2]));
        assert_eq!(transpose(&[0, 1, 2, 3, 4, 5], from, to, &[1, 0]), [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn broadcasts_unit_axes() {
        let (from, to) = (Shape::new(&[2, 1]), Shape::new(&[2, 3]));
        assert_eq!(broadcast(&[7, 8], from, to), [7, 7, 7, 8, 8, 8]);
    }

    #[test]
    fn gathers_along_an_axis_and_gives_zero_past_it() {
        let (from, to) = (Shape::new(&[2, 3]), Shape::new(&[2, 2]));
        let x = [10, 11, 12, 20, 21, 22];
        assert_eq!(gather_along(&x, from, (&[2, 0, -1, 1], to), 1), [12, 10, 0, 21]);
        let to = Shape::new(&[1, 3]);
        assert_eq!(gather_along(&x, from, (&[1, 0, 2], to), 0), [20, 11, 0]);
        assert_eq!(
            scatter_along(&[1, 2, 3, 4], Shape::new(&[2, 2]), &[1, 0, 0, 1], 1),
            Some(vec![2, 1, 3, 4])
        );
        assert_eq!(
            scatter_along(&[1, 2, 3, 4], Shape::new(&[2, 2]), &[1, 0, 0, 1], 0),
            Some(vec![3, 2, 1, 4])
        );
        assert_eq!(scatter_along(&[1, 2], Shape::new(&[2]), &[1, 1], 0), None);
        assert_eq!(scatter_along(&[1, 2], Shape::new(&[2]), &[0, 2], 0), None);
    }

    #[test]
    fn lines_of_the_middle_axis() {
        let lines = Lines::new(Shape::new(&[2, 3, 2]), 1);
        assert_eq!((lines.n, lines.inner), (3, 2));
        assert_eq!(lines.starts().collect::<Vec<_>>(), [0, 1, 6, 7]);
    }
}
