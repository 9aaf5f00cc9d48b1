//! Tensors of references: values in f64, and what references do with them.

/// A tensor of the reference: values in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// The values.
    pub data: Vec<f64>,
}

impl Dense {
    /// Values computed from coordinates.
    pub fn from_fn(shape: &[usize], mut f: impl FnMut(&[usize]) -> f64) -> Dense {
        let mut at = vec![0; shape.len()];
        let data = (0..crate::shape::product(shape.iter()))
            .map(|index: usize| {
                let mut rest = index;
                for (coordinate, &extent) in at.iter_mut().zip(shape).rev() {
                    *coordinate = rest % extent;
                    rest /= extent;
                }
                f(&at)
            })
            .collect();
        Dense { shape: shape.to_vec(), data }
    }

    /// The value at coordinates aligned at the last axis, where extents of 1 repeat.
    pub fn at(&self, coordinates: &[usize]) -> f64 {
        let skip = coordinates.len() - self.shape.len();
        let mut index = 0;
        for (&coordinate, &extent) in coordinates[skip..].iter().zip(&self.shape) {
            index = index * extent + if extent == 1 { 0 } else { coordinate };
        }
        self.data[index]
    }

    /// Row `i` of the last axis.
    pub(in crate::ops) fn row(&self, i: usize) -> &[f64] {
        let n = self.shape[self.shape.len() - 1];
        &self.data[i * n..(i + 1) * n]
    }
}

/// One number.
pub(in crate::ops) fn scalar(value: f64) -> Dense {
    Dense { shape: Vec::new(), data: vec![value] }
}

/// A vector of numbers.
pub(in crate::ops) fn vector(data: Vec<f64>) -> Dense {
    Dense { shape: vec![data.len()], data }
}

/// Each value by itself.
pub(in crate::ops) fn map(x: &Dense, f: impl Fn(f64) -> f64) -> Dense {
    Dense { shape: x.shape.clone(), data: x.data.iter().map(|&v| f(v)).collect() }
}

/// Pairs of values of one shape.
pub(in crate::ops) fn zip(x: &Dense, y: &Dense, f: impl Fn(f64, f64) -> f64) -> Dense {
    let data = x.data.iter().zip(&y.data).map(|(&a, &b)| f(a, b)).collect();
    Dense { shape: x.shape.clone(), data }
}

/// Pairs of values of shapes that broadcast.
pub(in crate::ops) fn broadcast(x: &Dense, y: &Dense, f: impl Fn(f64, f64) -> f64) -> Dense {
    let shape = crate::shape::broadcast_shapes("reference", &[&x.shape[..], &y.shape[..]]);
    Dense::from_fn(&shape.expect("samples broadcast"), |at| f(x.at(at), y.at(at)))
}

/// Each row of the last axis by itself.
pub(in crate::ops) fn by_row(x: &Dense, f: impl Fn(&[f64]) -> Vec<f64>) -> Dense {
    let n = x.shape.last().copied().unwrap_or(1);
    let data = if n == 0 { Vec::new() } else { x.data.chunks(n).flat_map(f).collect() };
    Dense { shape: x.shape.clone(), data }
}

/// Each column of a matrix by itself.
pub(in crate::ops) fn columns(x: &Dense, f: impl Fn(&[f64]) -> Vec<f64>) -> Dense {
    let (m, n) = (x.shape[0], x.shape[1]);
    let of = |j: usize| f(&(0..m).map(|i| x.at(&[i, j])).collect::<Vec<_>>());
    let columns: Vec<Vec<f64>> = (0..n).map(of).collect();
    Dense::from_fn(&[columns[0].len(), n], |at| columns[at[1]][at[0]])
}

/// One number for each column of a matrix.
pub(in crate::ops) fn folded(x: &Dense, f: impl Fn(&[f64]) -> f64) -> Dense {
    let table = columns(x, |column| vec![f(column)]);
    Dense { shape: vec![table.data.len()], data: table.data }
}

/// A fold of the values along `dims`, which stay with an extent of 1 where they are kept.
pub(in crate::ops) fn reduced(
    x: &Dense,
    dims: &[usize],
    keep: bool,
    fold: fn(&[f64]) -> f64,
) -> Dense {
    let kept: Vec<usize> =
        x.shape.iter().enumerate().map(|(a, &e)| if dims.contains(&a) { 1 } else { e }).collect();
    let mut groups = vec![Vec::new(); crate::shape::product(kept.iter())];
    let mut source = x.data.iter();
    Dense::from_fn(&x.shape, |at| {
        let group = at.iter().zip(&kept).fold(0, |i, (&c, &e)| i * e + if e == 1 { 0 } else { c });
        groups[group].push(*source.next().expect("one value for each coordinate"));
        0.0
    });
    let shape = if keep {
        kept
    } else {
        x.shape.iter().enumerate().filter(|(a, _)| !dims.contains(a)).map(|(_, &e)| e).collect()
    };
    Dense { shape, data: groups.iter().map(|g| fold(g)).collect() }
}

/// The sum of some values.
pub(in crate::ops) fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

/// Their mean.
pub(in crate::ops) fn mean(values: &[f64]) -> f64 {
    sum(values) / values.len() as f64
}

/// Their variance, with this much less than their number as the divisor.
pub(in crate::ops) fn variance(values: &[f64], correction: f64) -> f64 {
    let center = mean(values);
    let squares = values.iter().map(|v| (v - center) * (v - center));
    squares.sum::<f64>() / (values.len() as f64 - correction)
}

/// The largest.
pub(in crate::ops) fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The smallest.
pub(in crate::ops) fn smallest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// The values in order.
pub(in crate::ops) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
