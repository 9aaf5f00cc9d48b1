//! Matrix products.

use std::sync::atomic::{AtomicBool, Ordering};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::tensor_copies;
use crate::autograd::{SavedTensors, no_grad};
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Saves, apply, check_pair, composite, unbroadcast, wrong_dtype};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[("matmul", Precision::Half)];

/// What products of f32 are computed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MatmulPrecision {
    /// f32 throughout.
    #[default]
    Ieee,
    /// Operands rounded to tf32, which has 10 bits of mantissa, on GPUs that multiply it faster; the
    /// sum is f32.
    Tf32,
}

static TF32: AtomicBool = AtomicBool::new(false);

/// Sets what later products of f32 are computed with, in all threads.
pub fn set_matmul_precision(precision: MatmulPrecision) {
    TF32.store(precision == MatmulPrecision::Tf32, Ordering::Relaxed);
}

/// What products of f32 are computed with.
pub fn matmul_precision() -> MatmulPrecision {
    match TF32.load(Ordering::Relaxed) {
        true => MatmulPrecision::Tf32,
        false => MatmulPrecision::Ieee,
    }
}

impl Tensor {
    /// The matrix product over the last two axes; leading axes broadcast.
    ///
    /// # Shapes
    /// `[.., M, K]` and `[.., K, N]` give `[.., M, N]`; a vector `[K]` on either side is a row or a
    /// column whose axis the result drops.
    /// # Numerics
    /// f16 and bf16 are accumulated in f32; f32 is true f32, or tf32 where
    /// [`set_matmul_precision`] says so. Integers wrap.
    /// # Errors
    /// If inner extents or dtypes differ, leading axes do not broadcast, or an operand is a scalar.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || other.rank() == 0 {
            let message = format!(
                "needs at least 1 dimension(s), got {:?} and {:?}",
                self.shape(),
                other.shape()
            );
            return Err(Error::op("matmul", message));
        }
        if self.rank() == 1 {
            return self.unsqueeze(0)?.matmul(other)?.squeeze(if other.rank() == 1 {
                -1
            } else {
                -2
            });
        }
        if other.rank() == 1 {
            return self.matmul(&other.unsqueeze(-1)?)?.squeeze(-1);
        }
        // Integers have products too.
        check_extents("matmul", self, other)?;
        if !self.dtype().is_number() {
            let wants = if self.dtype().is_float() { "a float" } else { "a number" };
            return Err(wrong_dtype("matmul", wants, self.dtype()));
        }
        apply(MatMul { shapes: [self.shape().to_vec(), other.shape().to_vec()] }, &[self, other])
    }
}

/// Refuses operands that have no product; both have two axes or more.
pub(super) fn check_product(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    check_extents(op, a, b)?;
    if !a.dtype().is_arithmetic_float() {
        return Err(wrong_dtype(op, "a float", a.dtype()));
    }
    Ok(())
}

/// [`check_product`] whatever the dtype, as long as it is one.
fn check_extents(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    check_pair(op, a, b)?;
    if a.dim(-1)? != b.dim(-2)? {
        let message = format!("inner extents differ, {:?} and {:?}", a.shape(), b.shape());
        return Err(Error::op(op, message));
    }
    Ok(())
}

/// A batch of matrices times one matrix, as one product of all their rows; none where the rows do not
/// lie one after the other, or there is no batch.
#[track_caller]
fn as_one_product(a: &Tensor, b: &Tensor) -> Result<Option<(Tensor, Tensor)>> {
    if a.rank() <= 2 || b.rank() > a.rank() || !is_one_matrix(b) || !a.is_contiguous() {
        return Ok(None);
    }
    let (k, n) = (a.dim(-1)?, b.dim(-1)?);
    let rows = crate::shape::product(a.shape()[..a.rank() - 1].iter());
    Ok(Some((a.reshape(&[rows, k])?, b.reshape(&[k, n])?)))
}

/// How a product of tensors of rank 3 is written to a fresh one, which is not empty.
pub(super) type Run<'a> = &'a dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<()>;

/// The product of tensors of two axes or more, K not 0, by `run`, in their dtype.
#[track_caller]
pub(super) fn product(a: &Tensor, b: &Tensor, run: Run<'_>) -> Result<Tensor> {
    product_in(a.dtype(), a, b, run)
}

/// [`product`] in a dtype.
#[track_caller]
fn product_in(dtype: DType, a: &Tensor, b: &Tensor, run: Run<'_>) -> Result<Tensor> {
    let (m, k, n) = (a.dim(-2)?, a.dim(-1)?, b.dim(-1)?);
    if a.rank() == 2 && b.rank() == 2 {
        let c = Tensor::uninitialized(&[m, n], (dtype, a.device()))?;
        if m * n > 0 {
            run(&a.as_batch(), &b.as_batch(), &c.as_batch())?;
        }
        return Ok(c);
    }
    let lead = |t: &Tensor| t.shape()[..t.rank() - 2].to_vec();
    let batch = broadcast_shapes("matmul", &[&lead(a), &lead(b)])?;
    let shape = [&batch[..], &[m, n]].concat();
    let batches: usize = crate::shape::product(batch.iter());
    if let Some((rows, b)) = as_one_product(a, b)? {
        return product_in(dtype, &rows, &b, run)?.reshape(&shape);
    }
    let wide = |t: &Tensor, rows: usize, cols: usize| {
        t.broadcast_to(&[&batch[..], &[rows, cols]].concat())?.reshape(&[batches, rows, cols])
    };
    if crate::shape::numel("matmul", &shape)? == 0 {
        return Tensor::uninitialized(&shape, (dtype, a.device()));
    }
    let c = Tensor::uninitialized(&[batches, m, n], (dtype, a.device()))?;
    run(&wide(a, m, k)?, &wide(b, k, n)?, &c)?;
    c.reshape(&shape)
}

/// A product of rank 3 and one batch, K cut into parts of `each` and what is left: a batch of them, with sums as wide as
/// they are added, and their sum, which is the same each time.
fn in_parts(a: &Tensor, b: &Tensor, c: &Tensor, (parts, each): (usize, usize)) -> Result<()> {
    let (m, k, n) = (a.dim(1)?, a.dim(2)?, b.dim(2)?);
    let (whole, rest) = (parts * each, k - parts * each);
    let wide = launch::accumulate_dtype(c.dtype());
    let all = parts + usize::from(rest > 0);
    let sums = Tensor::uninitialized(&[all, m, n], (wide, c.device()))?;
    let run = |a: &Tensor, b: &Tensor, sums: &Tensor| match c.device() {
        Device::Cpu => launch::matmul_cpu(a, b, sums),
        Device::Cuda(_) => tensor_copies::matmul(a, b, sums, false),
    };
    let in_order = a.narrow(2, 0, whole)?.unflatten(2, &[parts as i64, each as i64])?;
    let columns = in_order.squeeze_dims(&[0])?.transpose(0, 1)?; // [parts, m, each]
    let rows =
        b.narrow(1, 0, whole)?.squeeze_dims(&[0])?.unflatten(0, &[parts as i64, each as i64])?;
    run(&columns, &rows, &sums.narrow(0, 0, parts)?)?;
    if rest > 0 {
        let last = sums.narrow(0, parts, 1)?;
        run(&a.narrow(2, whole, rest)?, &b.narrow(1, whole, rest)?, &last)?;
    }
    launch::cast(&sums.sum_dims(&[0], true)?, c)
}

/// Whether a product on a GPU is of a row or a column that no tensor core multiplies: then it is products of
/// elements, summed as they are read, at the speed of memory.
fn is_of_vector(a: &Tensor, b: &Tensor) -> Result<bool> {
    let is_scalar = matches!(a.dtype(), DType::F32 | DType::F64);
    Ok(is_scalar && (a.dim(-2)? == 1 || b.dim(-1)? == 1))
}

/// A product whose rows or columns are one, in its shape, or of a row with the last two axes swapped.
///
/// The matrix is turned so that the axis which is summed is the last: then product and sum are one kernel, which reads rows
/// that lie one after the other, or beside one another, as they do.
#[track_caller]
fn of_vector(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (matrix, vector) = match b.dim(-1)? {
        1 => (a.clone(), b.t()?),
        _ => (b.t()?, a.clone()),
    };
    no_grad(|| {
        composite("matmul", &[], [&matrix, &vector], |[x, y], _| {
            x.mul(y)?.sum_dims(&[-1], true) // [.., M or N, 1]
        })
    })
}

/// [`of_vector`] to a tensor that there is.
#[track_caller]
fn of_vector_into(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    launch::cast(&of_vector(a, b)?.reshape(c.shape())?, c)
}

/// Whether products of this dtype are computed in tf32.
pub(super) fn is_tf32(dtype: DType) -> bool {
    matmul_precision() == MatmulPrecision::Tf32 && dtype == DType::F32
}

/// The dtype that a gradient of an operand is summed in, where it is to come in that.
pub(super) fn wide_gradient(saved: &SavedTensors, input: usize, dy: &Tensor) -> Option<DType> {
    let sums = launch::accumulate_dtype(dy.dtype());
    saved.wide(input).filter(|&wide| wide == sums && wide != dy.dtype())
}

/// A product of 16-bit floats, or their sums as they are; nobody differentiates those.
#[track_caller]
fn product_or_sums(a: &Tensor, b: &Tensor, wide: Option<DType>) -> Result<Tensor> {
    match wide {
        None => a.matmul(b),
        Some(wide) if a.dim(-1)? == 0 => a.to_dtype(wide)?.matmul(&b.to_dtype(wide)?),
        Some(wide) => product_in(wide, a, b, &full_precision),
    }
}

/// The gradients of a product's operands, of those that are `asked` for and wanted.
#[track_caller]
pub(super) fn gradients(
    saved: &SavedTensors,
    asked: [bool; 2],
    dy: &Tensor,
    shapes: &[Vec<usize>; 2],
) -> Result<[Option<Tensor>; 2]> {
    let da = match asked[0] && saved.wanted[0] {
        true => {
            let (a, b) = (saved.input(0), saved.input(1));
            let wide = wide_gradient(saved, 0, dy);
            let da = match is_one_matrix(a) && !is_one_matrix(b) {
                true => over_all_rows(&b.t()?, &dy.t()?, wide)?.t()?,
                false => product_or_sums(dy, &b.t()?, wide)?,
            };
            Some(shaped(&da, &shapes[0])?)
        }
        false => None,
    };
    let db = match asked[1] && saved.wanted[1] {
        true => {
            let (a, b) = (saved.input(0), saved.input(1));
            let wide = wide_gradient(saved, 1, dy);
            // A weight that was turned gets its gradient turned, so that it is dense when turned back.
            let db = match is_turned(b) && dy.rank() == a.rank() {
                true => over_all_rows(dy, a, wide)?.t()?,
                false if is_one_matrix(b) && !is_one_matrix(a) => over_all_rows(a, dy, wide)?,
                false => product_or_sums(&a.t()?, dy, wide)?,
            };
            Some(shaped(&db, &shapes[1])?)
        }
        false => None,
    };
    Ok([da, db])
}

/// [`gradients`] with that of the left operand added to `onto`, in the product's own launch where that is possible.
#[track_caller]
pub(super) fn gradients_onto(
    saved: &SavedTensors,
    dy: &Tensor,
    shapes: &[Vec<usize>; 2],
    onto: &Tensor,
) -> Result<[Option<Tensor>; 2]> {
    let is_added = add_left_gradient(saved.input(1), dy, onto)?;
    let [da, db] = gradients(saved, [!is_added, true], dy, shapes)?;
    match da {
        Some(da) => Ok([Some(onto.add(&da)?), db]),
        None => Ok([Some(onto.clone()), db]),
    }
}

/// Adds `dy b^T` to `onto`, rounded once, where that is one product on a GPU, over memory that nobody else has. On a processor a
/// product would add to it in parts.
#[track_caller]
fn add_left_gradient(b: &Tensor, dy: &Tensor, onto: &Tensor) -> Result<bool> {
    let is_own = onto.is_sole_owner() && onto.is_contiguous() && onto.numel() > 0;
    let is_one = dy.rank() >= 2 && is_one_matrix(b) && dy.rank() == onto.rank();
    let is_one = is_one && dy.shape()[..dy.rank() - 1] == onto.shape()[..dy.rank() - 1];
    let is_one_dtype = dy.dtype() == onto.dtype() && dy.dtype().is_arithmetic_float();
    if !(onto.device().is_cuda() && is_own && is_one && is_one_dtype && dy.numel() > 0) {
        return Ok(false);
    }
    let rows = crate::shape::product(onto.shape()[..onto.rank() - 1].iter());
    let (k, n) = (b.dim(-2)?, b.dim(-1)?);
    let (dy, b) = (dy.reshape(&[1, rows, n])?, b.reshape(&[1, k, n])?.t()?);
    let sum = onto.reshape(&[1, rows, k])?;
    let tf32 = is_tf32(dy.dtype());
    // What is cut along K, or multiplied by no tensor core, has sums of its own.
    if !tf32 && (is_of_vector(&dy, &b)? || launch::parts(&dy, &sum).0 > 1) {
        return Ok(false);
    }
    tensor_copies::matmul_add(&dy, &b, &sum, tf32)?;
    Ok(true)
}

/// Whether there is one matrix, whatever its rank.
fn is_one_matrix(t: &Tensor) -> bool {
    t.shape()[..t.rank() - 2].iter().all(|&extent| extent == 1)
}

/// The gradient of one matrix that multiplied a batch: one product over the rows of all of it, rounded once, in place
/// of one for each and their sum.
#[track_caller]
fn over_all_rows(x: &Tensor, dy: &Tensor, wide: Option<DType>) -> Result<Tensor> {
    let flat = |t: &Tensor| {
        let (rows, columns) = t.shape().split_at(t.rank() - 1);
        t.reshape(&[crate::shape::product(rows), columns[0]])
    };
    product_or_sums(&flat(x)?.t()?, &flat(dy)?, wide)
}

/// A gradient in the shape of its operand: summed where that was broadcast.
#[track_caller]
fn shaped(gradient: &Tensor, shape: &[usize]) -> Result<Tensor> {
    match gradient.rank() < shape.len() {
        true => gradient.reshape(shape),
        false => unbroadcast(gradient, shape),
    }
}

/// Whether a matrix lies in memory column by column.
fn is_turned(t: &Tensor) -> bool {
    matches!((t.shape(), t.strides()), (&[m, n], &[1, step]) if m > 1 && n > 1 && step > 1)
}

/// The product of floats of rank 3, K not 0, in the precision of their dtype whatever `set_matmul_precision` allows.
#[track_caller]
pub(super) fn full_precision(a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    match a.device() {
        Device::Cpu => launch::matmul_cpu(a, b, c),
        Device::Cuda(_) if is_of_vector(a, b)? => of_vector_into(a, b, c),
        Device::Cuda(_) => match launch::parts(a, c) {
            (1, _) => tensor_copies::matmul(a, b, c, false),
            parts => in_parts(a, b, c, parts),
        },
    }
}

struct MatMul {
    shapes: [Vec<usize>; 2],
}

impl Op for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (a, b) = (inputs[0], inputs[1]);
        if a.dim(-1)? == 0 {
            let shape = product(a, b, &|_, _, _| Ok(()))?.shape().to_vec();
            return Tensor::zeros(&shape, (a.dtype(), a.device()));
        }
        if a.dtype().is_int() {
            return product(a, b, &super::matmul_int::matmul);
        }
        let tf32 = is_tf32(a.dtype());
        let (m, n) = (a.dim(-2)?, b.dim(-1)?);
        let is_flat = a.rank() == 2 && b.rank() == 2 && m * n > 0;
        if is_flat && !tf32 && a.device().is_cuda() && is_of_vector(a, b)? {
            return of_vector(a, b)?.reshape(&[m, n]);
        }
        product(a, b, &|a, b, c| match a.device() {
            Device::Cuda(_) if tf32 => tensor_copies::matmul(a, b, c, tf32),
            _ => full_precision(a, b, c),
        })
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(gradients(saved, [true; 2], dy, &self.shapes)?.into())
    }

    fn widens(&self, _: usize) -> bool {
        true
    }

    fn adds_to(&self) -> Option<usize> {
        Some(0)
    }

    fn backward_onto(
        &self,
        saved: &SavedTensors,
        dy: &Tensor,
        onto: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        Ok(gradients_onto(saved, dy, &self.shapes, onto)?.into())
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::info::{Dense, Family, OpInfo, cpu};
    use crate::ops::linalg::reference::product_of;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "matmul",
            Family::MatMul,
            |x| x[0].matmul(&x[1]),
            |x| product_of(&x[0], &x[1]),
            &[
                &[&[1, 1], &[1, 1]],
                &[&[3, 4], &[4, 5]],
                &[&[2, 17, 33], &[33, 9]],
                &[&[3, 1, 4, 5], &[2, 5, 6]],
                &[&[70, 100], &[100, 65]],
                &[&[0, 4], &[4, 5]],
                &[&[2, 0], &[0, 3]],
            ],
        )
        .within(-2.0, 2.0)
        .refusing(&[
            (
                || cpu(&[4, 8], DType::F32)?.matmul(&cpu(&[6, 2], DType::F32)?),
                "matmul: inner extents differ, [4, 8] and [6, 2]",
            ),
            (
                || cpu(&[], DType::F32)?.matmul(&cpu(&[2], DType::F32)?),
                "matmul: needs at least 1 dimension(s), got [] and [2]",
            ),
            (
                || cpu(&[2, 2], DType::Bool)?.matmul(&cpu(&[2, 2], DType::Bool)?),
                "matmul: needs a number dtype, got bool",
            ),
            (
                || cpu(&[2, 2], DType::F8E4M3)?.matmul(&cpu(&[2, 2], DType::F8E4M3)?),
                "matmul: needs a float dtype, got f8e4m3, which is for storage: convert it with \
         `to_dtype`",
            ),
        ]),
        OpInfo::new(
            "matmul/ints",
            Family::Exact,
            |x| x[0].matmul(&x[1]),
            |x| {
                Dense::from_fn(&[3, 5], |at| {
                    (0..4).map(|k| x[0].at(&[at[0], k]) * x[1].at(&[k, at[1]])).sum()
                })
            },
            &[&[&[3, 4], &[4, 5]]],
        )
        .of(&[DType::I8, DType::U8, DType::I16, DType::I32, DType::I64])
        .flat(),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers, so that every sum is exact.
    #[track_caller]
    fn whole(shape: &[usize], step: usize) -> Result<Tensor> {
        let n: usize = crate::shape::product(shape.iter());
        let values: Vec<f64> = (0..n).map(|i| (i * step % 7) as f64 - 3.0).collect();
        Tensor::from_f64(&values, shape, (DType::BF16, Device::Cpu))
    }

    #[test]
    fn parts_add_up() -> Result<()> {
        for turned in [false, true] {
            let a = match turned {
                true => whole(&[1, 64, 3], 5)?.t()?, // [1, 3, 64]
                false => whole(&[1, 3, 64], 5)?,
            };
            let b = whole(&[1, 64, 5], 3)?;
            let want = a.matmul(&b)?;
            for parts in [(1, 8), (2, 4), (8, 1), (2, 3), (5, 1)] {
                let c = Tensor::uninitialized(&[1, 3, 5], (DType::BF16, Device::Cpu))?;
                in_parts(&a, &b, &c, parts)?;
                assert_eq!(c.to_f64_vec()?, want.to_f64_vec()?, "{parts:?} parts");
            }
        }
        Ok(())
    }
}
