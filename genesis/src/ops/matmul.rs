//! Matrix products.

use std::sync::atomic::{AtomicBool, Ordering};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::elementwise::check_pair;
use super::{Op, Saves, apply, launch, unbroadcast, wrong_dtype};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

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
    /// [`set_matmul_precision`] says so.
    /// # Errors
    /// If inner extents or dtypes differ, leading axes do not broadcast, or an operand is a scalar.
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
        check_pair("matmul", self, other)?;
        if !self.dtype().is_arithmetic_float() {
            return Err(wrong_dtype("matmul", "a float", self.dtype()));
        }
        if self.dim(-1)? != other.dim(-2)? {
            let message =
                format!("inner extents differ, {:?} and {:?}", self.shape(), other.shape());
            return Err(Error::op("matmul", message));
        }
        apply(MatMul { shapes: [self.shape().to_vec(), other.shape().to_vec()] }, &[self, other])
    }
}

/// A batch of matrices times one matrix, as one product of all their rows; none where the rows do not
/// lie one after the other, or there is no batch.
fn as_one_product(a: &Tensor, b: &Tensor) -> Result<Option<(Tensor, Tensor)>> {
    let is_one = b.shape()[..b.rank() - 2].iter().all(|&extent| extent == 1);
    if a.rank() <= 2 || b.rank() > a.rank() || !is_one || !a.is_contiguous() {
        return Ok(None);
    }
    let (k, n) = (a.dim(-1)?, b.dim(-1)?);
    let rows = a.shape()[..a.rank() - 1].iter().product();
    Ok(Some((a.reshape(&[rows, k])?, b.reshape(&[k, n])?)))
}

/// Whether tf32 operands are worth a copy in which K is the last axis: the tensor cores of Hopper take
/// no other, and twice as fast as those that take any.
fn wants_k_last(device: Device, [m, n, k]: [usize; 3]) -> bool {
    let is_large = m * n * k >= 1 << 24 && m.min(n) >= 64 && k % 4 == 0;
    is_large && device.gpu_info().is_ok_and(|info| info.target.specific)
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
        let (m, k, n) = (a.dim(-2)?, a.dim(-1)?, b.dim(-1)?);
        let lead = |t: &Tensor| t.shape()[..t.rank() - 2].to_vec();
        let batch = broadcast_shapes("matmul", &[&lead(a), &lead(b)])?;
        let shape = [&batch[..], &[m, n]].concat();
        let batches: usize = batch.iter().product();
        if let Some((rows, b)) = as_one_product(a, b)? {
            let c = MatMul { shapes: [rows.shape().to_vec(), b.shape().to_vec()] };
            return c.forward(&[&rows, &b])?.reshape(&shape);
        }
        let wide = |t: &Tensor, rows: usize, cols: usize| {
            t.broadcast_to(&[&batch[..], &[rows, cols]].concat())?.reshape(&[batches, rows, cols])
        };
        if m * n * batches == 0 {
            return Tensor::uninitialized(&shape, (a.dtype(), a.device()));
        }
        if k == 0 {
            return Tensor::zeros(&shape, (a.dtype(), a.device()));
        }
        let c = Tensor::uninitialized(&[batches, m, n], (a.dtype(), a.device()))?;
        let tf32 = matmul_precision() == MatmulPrecision::Tf32 && a.dtype() == DType::F32;
        let (a, b) = match tf32 && wants_k_last(a.device(), [m, n, k]) {
            true => (&a.contiguous()?, &b.t()?.contiguous()?.t()?),
            false => (a, b),
        };
        let (a, b) = (wide(a, m, k)?, wide(b, k, n)?);
        match a.device() {
            Device::Cpu => launch::matmul_cpu(&a, &b, &c)?,
            Device::Cuda(_) => launch::matmul(&a, &b, &c, tf32)?,
        }
        c.reshape(&shape)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let da = match saved.wanted[0] {
            true => Some(unbroadcast(&dy.matmul(&saved.input(1).t()?)?, &self.shapes[0])?),
            false => None,
        };
        let db = match saved.wanted[1] {
            true => Some(unbroadcast(&saved.input(0).t()?.matmul(dy)?, &self.shapes[1])?),
            false => None,
        };
        Ok(vec![da, db])
    }
}
