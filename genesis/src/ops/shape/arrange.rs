//! Composite shape ops: splits by count, `unflatten` and `flatten`, diagonals, grids.

#[cfg(feature = "op-info")]
pub(super) mod info;

use genesis_kernel::ir::{DType, Scalar};

use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, apply, check_pair, promote};
use crate::shape::{self, Layout};
use crate::tensor::{Tensor, host};

/// Which operand of a grid its first axis belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GridOrder {
    /// The first, as the rows of a matrix.
    Ij,
    /// The second, as the height of a picture.
    Xy,
}

impl Tensor {
    /// `count` views along `dim` whose extents differ by at most one, the larger first.
    ///
    /// # Errors
    /// If there is no such dimension or `count` is 0.
    #[track_caller]
    pub fn tensor_split(&self, count: usize, dim: i64) -> Result<Vec<Tensor>> {
        let extent = self.shape()[shape::axis("tensor_split", dim, self.shape())?];
        if count == 0 {
            return Err(Error::op("tensor_split", "needs at least one part"));
        }
        host::check_views("tensor_split", count)?;
        let (least, larger) = (extent / count, extent % count);
        let sizes: Vec<usize> = (0..count).map(|i| least + usize::from(i < larger)).collect();
        self.split_sizes(&sizes, dim)
    }

    /// Views along `dim` that begin at these indices, and one before the first; ends are brought into
    /// range as those of Python slices.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn tensor_split_at(&self, indices: &[i64], dim: i64) -> Result<Vec<Tensor>> {
        shape::axis("tensor_split", dim, self.shape())?;
        let ends = indices.iter().copied().map(Some).chain([None]);
        let starts = [None].into_iter().chain(indices.iter().copied().map(Some));
        starts.zip(ends).map(|(start, end)| self.slice_step(dim, start, end, 1)).collect()
    }

    /// Two axes exchanged; [`Tensor::transpose`] by another name.
    ///
    /// # Errors
    /// If there are no such axes.
    #[track_caller]
    pub fn swapaxes(&self, a: i64, b: i64) -> Result<Tensor> {
        self.transpose(a, b)
    }

    /// All axes joined to one.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn ravel(&self) -> Result<Tensor> {
        self.reshape(&[self.numel()])
    }

    /// An axis cut into axes of these extents, of which one may be -1.
    ///
    /// # Errors
    /// If there is no such axis or the extents do not multiply to its own.
    #[track_caller]
    pub fn unflatten(&self, dim: i64, sizes: &[i64]) -> Result<Tensor> {
        const NAME: &str = "unflatten";
        let axis = shape::axis(NAME, dim, self.shape())?;
        if sizes.is_empty() {
            return Err(Error::op(NAME, "needs at least one extent"));
        }
        let cut = shape::infer_shape(NAME, sizes, &self.shape()[axis..=axis])?;
        self.reshape(&[&self.shape()[..axis], &cut, &self.shape()[axis + 1..]].concat())
    }

    /// Views of the tensors in the shape that they broadcast to.
    ///
    /// # Errors
    /// If they do not broadcast.
    #[track_caller]
    pub fn broadcast_tensors(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
        let shapes: Vec<&[usize]> = tensors.iter().map(|t| t.shape()).collect();
        let common = shape::broadcast_shapes("broadcast_tensors", &shapes)?;
        tensors.iter().map(|t| t.broadcast_to(&common)).collect()
    }

    /// A view in the shape of another tensor.
    ///
    /// # Errors
    /// If this one does not broadcast to it.
    #[track_caller]
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        self.broadcast_to(other.shape())
    }

    /// The same elements in the shape of another tensor.
    ///
    /// # Errors
    /// If the number of elements differs.
    #[track_caller]
    pub fn reshape_as(&self, other: &Tensor) -> Result<Tensor> {
        self.reshape(other.shape())
    }

    /// The planes of two axes turned by quarters, from the first axis towards the second.
    ///
    /// # Errors
    /// If there are no such axes, or they are the same.
    #[track_caller]
    pub fn rot90(&self, quarters: i64, first: i64, second: i64) -> Result<Tensor> {
        let a = shape::axis("rot90", first, self.shape())?;
        let b = shape::axis("rot90", second, self.shape())?;
        if a == b {
            let message = format!("the dimensions must differ, got {first} and {second}");
            return Err(Error::op("rot90", message));
        }
        match quarters.rem_euclid(4) {
            1 => self.flip(&[second])?.transpose(first, second),
            2 => self.flip(&[first, second]),
            3 => self.flip(&[first])?.transpose(first, second),
            _ => Ok(self.clone()),
        }
    }

    /// Tensors side by side: along the second axis, or the first where they have no other.
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    #[track_caller]
    pub fn hstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let parts = at_least(tensors, 1)?;
        let dim = i64::from(parts.first().is_some_and(|t| t.rank() > 1));
        Tensor::cat(&parts.iter().collect::<Vec<_>>(), dim)
    }

    /// Tensors below each other: along the first axis; one without a second axis is a row.
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    #[track_caller]
    pub fn vstack(tensors: &[&Tensor]) -> Result<Tensor> {
        Tensor::cat(&at_least(tensors, 2)?.iter().collect::<Vec<_>>(), 0)
    }

    /// Tensors behind each other: along the third axis, which those of fewer axes get at the end.
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    #[track_caller]
    pub fn dstack(tensors: &[&Tensor]) -> Result<Tensor> {
        let deep = |t: &Tensor| match t.rank() {
            0 | 1 => t.reshape(&[1, t.numel(), 1]),
            2 => t.unsqueeze(2),
            _ => Ok(t.clone()),
        };
        let parts: Vec<Tensor> = tensors.iter().map(|t| deep(t)).collect::<Result<_>>()?;
        Tensor::cat(&parts.iter().collect::<Vec<_>>(), 2)
    }

    /// Vectors as the columns of a matrix, beside the matrices among the tensors.
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    #[track_caller]
    pub fn column_stack(tensors: &[&Tensor]) -> Result<Tensor> {
        let column = |t: &&Tensor| {
            if t.rank() < 2 { t.reshape(&[t.numel(), 1]) } else { Ok((*t).clone()) }
        };
        let parts: Vec<Tensor> = tensors.iter().map(column).collect::<Result<_>>()?;
        Tensor::cat(&parts.iter().collect::<Vec<_>>(), 1)
    }

    /// Matrices along the diagonal of one of zeros; a vector is a row, dtypes promote.
    ///
    /// # Errors
    /// If there is none, one has more than two axes, or devices differ.
    #[track_caller]
    pub fn block_diag(tensors: &[&Tensor]) -> Result<Tensor> {
        const NAME: &str = "block_diag";
        let parts = at_least(tensors, 2)?;
        if let Some(wrong) = parts.iter().find(|t| t.rank() > 2) {
            let message = format!("needs matrices, got shape {:?}", wrong.shape());
            return Err(Error::op(NAME, message));
        }
        let Some(first) = parts.first() else {
            return Err(Error::op(NAME, "needs at least one tensor"));
        };
        let width = parts.iter().try_fold(0usize, |sum, t| sum.checked_add(t.shape()[1]));
        let Some(width) = width else {
            return Err(Error::op(NAME, "the columns are more than can be counted"));
        };
        let height = parts.iter().try_fold(0usize, |sum, t| sum.checked_add(t.shape()[0]));
        let Some(height) = height else {
            return Err(Error::op(NAME, "the rows are more than can be counted"));
        };
        if let Some(other) = parts.iter().find(|t| t.device() != first.device()) {
            let message = format!("devices differ, {} and {}", first.device(), other.device());
            return Err(Error::op(NAME, message));
        }
        shape::numel(NAME, &[height, width])?;
        let dtype = promote::result_type(&parts.iter().collect::<Vec<_>>());
        let parts: Vec<Tensor> = parts.iter().map(|t| t.to_dtype(dtype)).collect::<Result<_>>()?;
        let shapes = parts.iter().map(|t| [t.shape()[0], t.shape()[1]]).collect();
        apply(Blocks { shapes, height, width }, &parts.iter().collect::<Vec<_>>())
    }

    /// A scalar as a vector; others as they are.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn atleast_1d(&self) -> Result<Tensor> {
        if self.rank() == 0 { self.reshape(&[1]) } else { Ok(self.clone()) }
    }

    /// A scalar or a vector as a matrix of one row; others as they are.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn atleast_2d(&self) -> Result<Tensor> {
        if self.rank() < 2 { self.reshape(&[1, self.numel()]) } else { Ok(self.clone()) }
    }

    /// Three axes at least: a vector is in the middle, a matrix in front.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn atleast_3d(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => self.reshape(&[1, self.numel(), 1]),
            2 => self.unsqueeze(2),
            _ => Ok(self.clone()),
        }
    }

    /// The order along the second axis reversed.
    ///
    /// # Errors
    /// If there is none.
    #[track_caller]
    pub fn fliplr(&self) -> Result<Tensor> {
        self.flip(&[1])
    }

    /// The order along the first axis reversed.
    ///
    /// # Errors
    /// If there is none.
    #[track_caller]
    pub fn flipud(&self) -> Result<Tensor> {
        self.flip(&[0])
    }

    /// Every choice of `count` elements of a vector, each taken once or with `again` any number of times, a
    /// row each.
    ///
    /// # Errors
    /// If it is no vector.
    #[track_caller]
    pub fn combinations(&self, count: usize, again: bool) -> Result<Tensor> {
        if self.rank() != 1 {
            let message = format!("needs a vector, got shape {:?}", self.shape());
            return Err(Error::op("combinations", message));
        }
        match count {
            0 => return Tensor::zeros(&[0], (self.dtype(), self.device())),
            1 => return self.reshape(&[self.numel(), 1])?.copy(),
            2 => {
                // Pairs of ascending places are those above the diagonal of a square.
                let (n, offset) = (self.numel(), i64::from(!again));
                let pairs = Tensor::triu_indices(n, n, offset, (DType::I64, self.device()))?;
                let places = pairs.t()?;
                return self.index_select(0, &places.ravel()?)?.reshape(places.shape());
            }
            _ => {}
        }
        let choices = choices("combinations", self.numel(), count, again)?;
        shape::numel("combinations", &[choices.len() / count, count])?;
        let index = Tensor::from_slice_on(&choices, &[choices.len()], self.device())?;
        self.index_select(0, &index)?.reshape(&[choices.len() / count, count])
    }

    /// The tensor as many times along each axis; fewer counts than axes are for the last ones.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn tile(&self, counts: &[usize]) -> Result<Tensor> {
        let missing = self.rank().saturating_sub(counts.len());
        self.repeat(&[&vec![1; missing], counts].concat())
    }

    /// The differences of neighbours along `dim`, `order` times; of bools whether they differ.
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn diff(&self, order: usize, dim: i64) -> Result<Tensor> {
        shape::axis("diff", dim, self.shape())?;
        let mut x = self.clone();
        if x.numel() == 0 {
            let left = x.dim(dim)?.saturating_sub(order);
            return x.narrow(dim, 0, left);
        }
        for _ in 0..order {
            let n = x.dim(dim)?;
            if n == 0 {
                break;
            }
            let (low, high) = (x.narrow(dim, 0, n - 1)?, x.narrow(dim, 1, n - 1)?);
            x = if x.dtype() == DType::Bool { high.logical_xor(&low)? } else { high.sub(&low)? };
        }
        Ok(x)
    }

    /// The sum of a matrix's diagonal. Integers give i64.
    ///
    /// # Errors
    /// If it is no matrix.
    #[track_caller]
    pub fn trace(&self) -> Result<Tensor> {
        if self.rank() != 2 {
            let message = format!("needs a matrix, got shape {:?}", self.shape());
            return Err(Error::op("trace", message));
        }
        self.diagonal(0, 0, 1)?.sum()
    }

    /// A vector as the diagonal of a matrix of zeros; of a matrix its diagonal.
    ///
    /// # Errors
    /// If the tensor has neither one axis nor two.
    #[track_caller]
    pub fn diag(&self, offset: i64) -> Result<Tensor> {
        match self.rank() {
            1 => self.diag_embed(offset, 0, 1),
            2 => self.diagonal(offset, 0, 1),
            _ => {
                let message = format!("needs a vector or a matrix, got shape {:?}", self.shape());
                Err(Error::op("diag", message))
            }
        }
    }

    /// The last axis as the diagonal of planes of zeros, whose axes are `dim1` and `dim2` of the result.
    ///
    /// # Errors
    /// If the result has no such axes, or they are the same.
    #[track_caller]
    pub fn diag_embed(&self, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
        const NAME: &str = "diag_embed";
        let n = self.dim(-1)?;
        let away = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
        let side = n.saturating_add(away);
        let lead = &self.shape()[..self.rank() - 1];
        let shape = [lead, &[side, side]].concat();
        shape::numel(NAME, &shape)?;
        let a = shape::axis(NAME, dim1, &shape)?;
        let b = shape::axis(NAME, dim2, &shape)?;
        if a == b {
            let message = format!("the dimensions must differ, got {dim1} and {dim2}");
            return Err(Error::op(NAME, message));
        }
        let lead = self.rank() - 1;
        let of = move |layout: &Layout| layout.diagonal(offset, lead, lead + 1);
        let planes = self.filled_in(NAME, &shape, 0.0, of)?;
        // Below the diagonal of swapped axes is what is above it.
        planes.movedim(&[-2, -1], &[dim1, dim2])
    }

    /// One tensor for each of these vectors, in the shape of their grid, constant along all axes but one.
    ///
    /// # Errors
    /// If there is none, or one has more than one axis, or dtypes differ.
    #[track_caller]
    pub fn meshgrid(vectors: &[&Tensor], order: GridOrder) -> Result<Vec<Tensor>> {
        const NAME: &str = "meshgrid";
        let Some(first) = vectors.first() else {
            return Err(Error::op(NAME, "needs at least one tensor"));
        };
        for vector in vectors {
            if vector.rank() > 1 {
                let message = format!("needs vectors, got shape {:?}", vector.shape());
                return Err(Error::op(NAME, message));
            }
            check_pair(NAME, first, vector)?;
        }
        let swap = order == GridOrder::Xy && vectors.len() > 1;
        let axis_of = |index: usize| if swap && index < 2 { 1 - index } else { index };
        let mut shape = vec![1; vectors.len()];
        for (index, vector) in vectors.iter().enumerate() {
            shape[axis_of(index)] = vector.numel();
        }
        let spread = |(index, vector): (usize, &&Tensor)| {
            let mut line = vec![1; vectors.len()];
            line[axis_of(index)] = vector.numel();
            vector.reshape(&line)?.broadcast_to(&shape)
        };
        vectors.iter().enumerate().map(spread).collect()
    }

    /// Every choice of one element of each of these vectors, a row each.
    ///
    /// # Errors
    /// As [`Tensor::meshgrid`].
    #[track_caller]
    pub fn cartesian_prod(vectors: &[&Tensor]) -> Result<Tensor> {
        if let [only] = vectors {
            return only.ravel();
        }
        let grid = Tensor::meshgrid(vectors, GridOrder::Ij)?;
        let columns: Vec<Tensor> = grid.iter().map(Tensor::ravel).collect::<Result<_>>()?;
        Tensor::stack(&columns.iter().collect::<Vec<_>>(), 1)
    }
}

/// Matrices of these shapes along the diagonal of one of zeros.
struct Blocks {
    shapes: Vec<[usize; 2]>,
    height: usize,
    width: usize,
}

impl Blocks {
    /// Where each block begins.
    fn starts(&self) -> impl Iterator<Item = [usize; 2]> {
        self.shapes.iter().scan([0; 2], |next, [m, n]| {
            let [i, j] = *next;
            *next = [i + m, j + n];
            Some([i, j])
        })
    }
}

impl Op for Blocks {
    fn name(&self) -> &'static str {
        "block_diag"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (dtype, device) = (inputs[0].dtype(), inputs[0].device());
        let result = Tensor::uninitialized(&[self.height, self.width], (dtype, device))?;
        let part = |i: usize, m: usize, j: usize, n: usize| {
            result.narrow(0, i, m)?.narrow(1, j, n).map(|part| part.detach())
        };
        let mut parts = Vec::with_capacity(3 * inputs.len());
        for ((&input, [i, j]), &[m, n]) in inputs.iter().zip(self.starts()).zip(&self.shapes) {
            parts.push((None, part(i, m, 0, j)?));
            parts.push((Some(input.clone()), part(i, m, j, n)?));
            parts.push((None, part(i, m, j + n, self.width - j - n)?));
        }
        launch::join::copies(&parts, Scalar::int(dtype, 0))?;
        Ok(result)
    }

    fn backward(&self, _: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let block = |([i, j], &[m, n]): ([usize; 2], &[usize; 2])| {
            dy.narrow(0, i, m)?.narrow(1, j, n).map(Some)
        };
        self.starts().zip(&self.shapes).map(block).collect()
    }
}

/// Every choice of `count` numbers below `n` in ascending order, one after the other.
fn choices(op: &str, n: usize, count: usize, again: bool) -> Result<Vec<i64>> {
    // A multiset of `count` is a set of `count` out of `count - 1` more.
    let of = if again { n.saturating_add(count - 1) } else { n };
    if n == 0 || count > of {
        return Ok(Vec::new());
    }
    let many =
        || Error::op(op, format!("{count} of {n} elements are more choices than memory holds"));
    let (mut rows, few) = (1u128, count.min(of - count));
    for i in 0..few {
        // Each step divides without a rest: what is left is a number of choices itself.
        rows = rows.checked_mul((of - i) as u128).ok_or_else(many)? / (i as u128 + 1);
        if rows > isize::MAX as u128 {
            return Err(many());
        }
    }
    let total = (rows as usize).checked_mul(count).ok_or_else(many)?;
    let mut all = host::reserve(op, total)?;
    let first = |i: usize| if again { 0 } else { i as i64 };
    let last = |i: usize| if again { n as i64 - 1 } else { (n - count + i) as i64 };
    let mut row = host::reserve(op, count)?;
    row.extend((0..count).map(first));
    loop {
        all.extend_from_slice(&row);
        let Some(at) = (0..count).rev().find(|&i| row[i] < last(i)) else { return Ok(all) };
        let next = row[at] + 1;
        for (i, place) in row.iter_mut().enumerate().skip(at) {
            *place = next + if again { 0 } else { (i - at) as i64 };
        }
    }
}

/// The tensors with new leading axes, so that each has `rank` at least.
#[track_caller]
fn at_least(tensors: &[&Tensor], rank: usize) -> Result<Vec<Tensor>> {
    let padded = |t: &&Tensor| {
        let new = rank.saturating_sub(t.rank());
        t.reshape(&[&vec![1; new], t.shape()].concat())
    };
    tensors.iter().map(padded).collect()
}
