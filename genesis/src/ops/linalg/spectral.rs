//! Singular values, computed on the host in f64 by one-sided Jacobi rotations.
//!
//! Columns are turned in pairs until all are orthogonal; then their lengths are the singular values, and
//! the columns themselves, at length 1, times the rotations are `U V'`, the gradient of their sum.

use std::sync::OnceLock;

use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::{Error, Result};
use crate::ops::{Op, apply};
use crate::tensor::Tensor;

impl Tensor {
    /// The sum of the singular values of a matrix; `keep` gives it two axes of extent 1. Waits for the
    /// device.
    ///
    /// # Errors
    /// If it is no matrix of floats, or its gradient is differentiated again.
    #[track_caller]
    pub fn nuclear_norm(&self, keep: bool) -> Result<Tensor> {
        if self.rank() != 2 || !self.dtype().is_float() {
            let message = format!("needs a matrix of floats, got {:?}", self.tensor_type());
            return Err(Error::op("nuclear_norm", message));
        }
        let norm = apply(Nuclear::default(), &[self])?;
        if keep { norm.reshape(&[1, 1]) } else { Ok(norm) }
    }
}

#[derive(Default)]
struct Nuclear {
    /// `U V'`, for the backward.
    rotation: OnceLock<Tensor>,
}

impl Op for Nuclear {
    fn name(&self) -> &'static str {
        "nuclear_norm"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let (m, n) = (x.shape()[0], x.shape()[1]);
        let (sum, rotation) = nuclear(&x.to_f64_vec()?, m, n);
        let rotation = Tensor::from_f64(&rotation, &[m, n], (x.dtype(), x.device()))?;
        self.rotation.get_or_init(|| rotation);
        Tensor::full(&[], sum, (x.dtype(), x.device()))
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        if is_grad_enabled() {
            return Err(Error::op("nuclear_norm", "its gradient can't be differentiated again"));
        }
        let rotation =
            self.rotation.get().ok_or_else(|| Error::op("nuclear_norm", "ran no forward"))?;
        Ok(vec![Some(rotation.mul(dy)?)])
    }
}

/// The sum of the singular values of a row-major matrix, and `U V'`.
fn nuclear(a: &[f64], m: usize, n: usize) -> (f64, Vec<f64>) {
    let mut columns: Vec<Vec<f64>> =
        (0..n).map(|j| (0..m).map(|i| a[i * n + j]).collect()).collect();
    let mut turns: Vec<Vec<f64>> =
        (0..n).map(|j| (0..n).map(|i| f64::from(u8::from(i == j))).collect()).collect();
    let inner = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    for _ in 0..60 {
        let mut is_done = true;
        for p in 0..n {
            for q in p + 1..n {
                let (pp, qq) = (inner(&columns[p], &columns[p]), inner(&columns[q], &columns[q]));
                let pq = inner(&columns[p], &columns[q]);
                // Also ends where something is not a number.
                if pq == 0.0 || pq.abs() <= 1e-15 * (pp * qq).sqrt() || !pq.is_finite() {
                    continue;
                }
                is_done = false;
                let zeta = (qq - pp) / (2.0 * pq);
                let t = zeta.signum() / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
                let cos = 1.0 / (1.0 + t * t).sqrt();
                for set in [&mut columns, &mut turns] {
                    let (low, high) = set.split_at_mut(q);
                    for (x, y) in low[p].iter_mut().zip(&mut high[0]) {
                        (*x, *y) = (cos * (*x - t * *y), cos * (t * *x + *y));
                    }
                }
            }
        }
        if is_done {
            break;
        }
    }
    let values: Vec<f64> = columns.iter().map(|c| inner(c, c).sqrt()).collect();
    let top = values.iter().copied().fold(0.0, f64::max);
    let mut rotation = vec![0.0; m * n];
    for ((column, turn), &value) in columns.iter().zip(&turns).zip(&values) {
        if value > top * 1e-14 {
            for (i, u) in column.iter().enumerate() {
                for (j, v) in turn.iter().enumerate() {
                    rotation[i * n + j] += u / value * v;
                }
            }
        }
    }
    (values.iter().sum(), rotation)
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::info::{Family, OpInfo, WIDE, map, numel, scalar, sum};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "nuclear_norm",
        Family::Softmax,
        |x| x[0].nuclear_norm(false),
        |x| {
            let at = |i: usize, j: usize| x[0].at(&[i, j]);
            let squares = sum(&map(&x[0], |v| v * v).data);
            let det = at(0, 0) * at(1, 1) - at(0, 1) * at(1, 0);
            scalar((squares + 2.0 * det.abs()).sqrt())
        },
        &[&[&[2, 2]]],
    )
    .computing(|x, _| 100.0 * numel(&x[0]).powf(1.5))
    .peer("torch.linalg.matrix_norm(x[0], 'nuc')")
    .of(WIDE)
    .flat()];
}

#[cfg(test)]
mod tests {
    use super::nuclear;

    #[test]
    fn of_a_diagonal_matrix_the_magnitudes_add_up() {
        let (sum, rotation) = nuclear(&[3.0, 0.0, 0.0, -4.0, 0.0, 0.0], 3, 2);
        assert_eq!((sum, rotation), (7.0, vec![1.0, 0.0, 0.0, -1.0, 0.0, 0.0]));
    }
}
