//! Triangles of matrices, diagonals of ones, and where the elements of a triangle stand.

use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::runtime::Arg;
use kernels::triangle as device;

use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, apply};
use crate::shape;
use crate::tensor::{Creation, Tensor};

impl Tensor {
    /// The part on and below a diagonal, zero elsewhere, over the last two axes.
    ///
    /// # Errors
    /// If there are fewer than two.
    #[track_caller]
    pub fn tril(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("tril", diagonal, Side::Lower)
    }

    /// [`Tensor::tril`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn tril_(&self, diagonal: i64) -> Result<()> {
        self.replace("tril_", &[], |x| x.tril(diagonal))
    }

    /// The part on and above a diagonal, zero elsewhere, over the last two axes.
    ///
    /// # Errors
    /// If there are fewer than two.
    #[track_caller]
    pub fn triu(&self, diagonal: i64) -> Result<Tensor> {
        self.triangle("triu", diagonal, Side::Upper)
    }

    /// [`Tensor::triu`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn triu_(&self, diagonal: i64) -> Result<()> {
        self.replace("triu_", &[], |x| x.triu(diagonal))
    }

    #[track_caller]
    fn triangle(&self, name: &'static str, diagonal: i64, side: Side) -> Result<Tensor> {
        if self.rank() < 2 {
            let message = format!("needs at least 2 dimension(s), got shape {:?}", self.shape());
            return Err(Error::op(name, message));
        }
        if self.numel() == 0 {
            return Ok(self.clone());
        }
        apply(Triangle { name, diagonal, side }, &[self])
    }

    /// Ones on the diagonal, zeros elsewhere.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn eye(n: usize, m: usize, at: impl Into<Creation>) -> Result<Tensor> {
        let at = at.into();
        if shape::numel("eye", &[n, m])? == 0 {
            return Tensor::zeros(&[n, m], at);
        }
        let y = Tensor::uninitialized(&[n, m], at)?;
        let kernel = &device::diagonal::KERNEL;
        launch::tiled(kernel, [1, n, m], &[y.dtype()], &[], &[(&y, true)], &[])?;
        Ok(y)
    }

    /// The places on and below a diagonal of a matrix: i64, a row of rows and a row of columns.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn tril_indices(
        rows: usize,
        cols: usize,
        offset: i64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        triangle_indices("tril_indices", [rows, cols], offset, Side::Lower, at.into())
    }

    /// The places on and above a diagonal of a matrix: i64, a row of rows and a row of columns.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn triu_indices(
        rows: usize,
        cols: usize,
        offset: i64,
        at: impl Into<Creation>,
    ) -> Result<Tensor> {
        triangle_indices("triu_indices", [rows, cols], offset, Side::Upper, at.into())
    }
}

/// A side of a diagonal, which is part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Lower,
    Upper,
}

/// A number argument that is exact.
fn whole(value: i64) -> Arg {
    Arg::Scalar(Scalar::int(DType::I64, value))
}

/// Matrices with what is on the other side of a diagonal left out.
struct Triangle {
    name: &'static str,
    diagonal: i64,
    side: Side,
}

impl Op for Triangle {
    fn name(&self) -> &'static str {
        self.name
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        let (m, n) = (x.dim(-2)?, x.dim(-1)?);
        let shape = [x.numel() / (m * n), m, n];
        let y = Tensor::uninitialized(&shape, (x.dtype(), x.device()))?;
        // Beyond the corners all diagonals are alike.
        let diagonal = self.diagonal.clamp(-(m as i64), n as i64);
        let (tensors, side) = ([(&x.reshape(&shape)?, false), (&y, true)], self.side);
        let flags = [i64::from(side == Side::Upper)];
        let (kernel, dtypes) = (&device::triangle::KERNEL, [x.dtype()]);
        launch::tiled(kernel, shape, &dtypes, &flags, &tensors, &[whole(diagonal)])?;
        y.reshape(x.shape())
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(dy.triangle(self.name, self.diagonal, self.side)?)])
    }
}

/// Places on one side of a diagonal of a matrix by row, then column; integers of the dtype asked for, i64
/// where that is a float.
#[track_caller]
fn triangle_indices(
    op: &'static str,
    [rows, cols]: [usize; 2],
    offset: i64,
    side: Side,
    at: Creation,
) -> Result<Tensor> {
    let [rows, cols, offset] = [rows as i128, cols as i128, i128::from(offset)];
    // The rows that have places, the first column that some row has and how many there are from there, and how many
    // places the first and the last of the rows would have were the matrix wide enough: from row to row it is one more,
    // or one less.
    let (listed, [first_col, n], [first, last]) = match side {
        Side::Lower => {
            let start = (-offset).clamp(0, rows);
            (start..rows, [0, cols.min(rows + offset)], [start + offset + 1, rows + offset])
        }
        Side::Upper => {
            let (end, left) = ((cols - offset).clamp(0, rows), offset.max(0));
            (0..end, [left, cols - left], [cols - offset - end + 1, cols - offset])
        }
    };
    let is_empty = cols == 0 || listed.is_empty();
    let count = if is_empty { 0 } else { widths(first, last, cols) };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let dtype = if at.dtype.is_int() { at.dtype } else { DType::I64 };
    shape::numel(op, &[2, count])?;
    let y = Tensor::uninitialized(&[2, count], (dtype, at.device))?;
    if count == 0 {
        return Ok(y);
    }
    // Columns before the diagonal in the first row that is listed, of those that are.
    let before = match side {
        Side::Lower => listed.start + offset + 1,
        Side::Upper => offset - first_col,
    };
    let numbers = [listed.end - listed.start, n, before, listed.start, first_col];
    let numbers = numbers.map(|number| whole(number as i64));
    let extents = [1, (listed.end - listed.start) as usize, n as usize];
    let flags = [i64::from(side == Side::Upper)];
    let kernel = &device::triangle_indices::KERNEL;
    launch::tiled(kernel, extents, &[dtype], &flags, &[(&y, true)], &numbers)?;
    Ok(y)
}

/// The sum of `min(width, most)` over the widths from `first` to `last`.
fn widths(first: i128, last: i128, most: i128) -> i128 {
    let growing = (last.min(most) - first + 1).max(0);
    let sum = growing.saturating_mul(first + first + growing - 1) / 2;
    sum.saturating_add((last - first + 1 - growing).saturating_mul(most))
}
