//! Ops described in a few words each.

use genesis_kernel::ir::DType;

use super::sample::{Dense, FLOATS, Family, OpInfo, Refusal, Sample};
use crate::error::Result;
use crate::tensor::Tensor;

/// An op in short; what most ops share is in [`Case::new`].
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) family: Family,
    pub(super) call: fn(&[Tensor]) -> Result<Tensor>,
    pub(super) reference: fn(&[Dense]) -> Dense,
    /// One shape an input.
    pub(super) shapes: &'static [&'static [usize]],
    pub(super) range: (f64, f64),
    /// Inputs that are indices, with their bound.
    pub(super) indices: &'static [(usize, usize)],
    pub(super) dtypes: &'static [DType],
    pub(super) is_differentiable: bool,
    pub(super) refused: fn() -> Vec<Refusal>,
}

/// Dtypes of ops that move elements or compare them.
pub(super) const MOVED: &[DType] = &[DType::F32, DType::BF16, DType::F64, DType::I64, DType::U8];
/// Dtypes of ops whose backward is tested elsewhere, and that round.
pub(super) const WIDE: &[DType] = &[DType::F32, DType::F64];

impl Case {
    pub(super) const fn new(
        name: &'static str,
        family: Family,
        call: fn(&[Tensor]) -> Result<Tensor>,
        reference: fn(&[Dense]) -> Dense,
        shapes: &'static [&'static [usize]],
    ) -> Case {
        Case {
            name,
            family,
            call,
            reference,
            shapes,
            range: (0.1, 5.0),
            indices: &[],
            dtypes: if matches!(family, Family::Exact) { MOVED } else { &FLOATS },
            is_differentiable: true,
            refused: Vec::new,
        }
    }

    /// Values from this range.
    pub(super) const fn within(self, low: f64, high: f64) -> Case {
        Case { range: (low, high), ..self }
    }

    /// Input `input` is an index below `bound`.
    pub(super) const fn index(self, indices: &'static [(usize, usize)]) -> Case {
        Case { indices, ..self }
    }

    /// For these dtypes.
    pub(super) const fn of(self, dtypes: &'static [DType]) -> Case {
        Case { dtypes, ..self }
    }

    /// Without a gradient.
    pub(super) const fn flat(self) -> Case {
        Case { is_differentiable: false, ..self }
    }

    /// With calls that are refused.
    pub(super) const fn refusing(self, refused: fn() -> Vec<Refusal>) -> Case {
        Case { refused, ..self }
    }
}

/// The op in full.
pub(super) fn info(case: &'static Case) -> OpInfo {
    OpInfo {
        name: case.name.to_owned(),
        family: case.family,
        dtypes: case.dtypes.to_vec(),
        index_inputs: case.indices.to_vec(),
        is_differentiable: case.is_differentiable,
        call: Box::new(case.call),
        reference: Box::new(case.reference),
        samples: vec![Sample {
            shapes: case.shapes.iter().map(|shape| shape.to_vec()).collect(),
            range: case.range,
        }],
        refused: (case.refused)(),
    }
}

/// Each value by itself.
pub(super) fn map(x: &Dense, f: impl Fn(f64) -> f64) -> Dense {
    Dense { shape: x.shape.clone(), data: x.data.iter().map(|&v| f(v)).collect() }
}

/// Pairs of values of one shape.
pub(super) fn zip(x: &Dense, y: &Dense, f: impl Fn(f64, f64) -> f64) -> Dense {
    let data = x.data.iter().zip(&y.data).map(|(&a, &b)| f(a, b)).collect();
    Dense { shape: x.shape.clone(), data }
}

/// A vector of numbers.
pub(super) fn vector(data: Vec<f64>) -> Dense {
    Dense { shape: vec![data.len()], data }
}

/// Each column of a matrix by itself.
pub(super) fn columns(x: &Dense, f: impl Fn(&[f64]) -> Vec<f64>) -> Dense {
    let (m, n) = (x.shape[0], x.shape[1]);
    let of = |j: usize| f(&(0..m).map(|i| x.at(&[i, j])).collect::<Vec<_>>());
    let columns: Vec<Vec<f64>> = (0..n).map(of).collect();
    Dense::from_fn(&[columns[0].len(), n], |at| columns[at[1]][at[0]])
}

/// One number for each column of a matrix.
pub(super) fn folded(x: &Dense, f: impl Fn(&[f64]) -> f64) -> Dense {
    let table = columns(x, |column| vec![f(column)]);
    Dense { shape: vec![table.data.len()], data: table.data }
}

/// The values in order.
pub(super) fn sorted(column: &[f64]) -> Vec<f64> {
    let mut sorted = column.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
