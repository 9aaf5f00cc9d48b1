//! Products of all elements, and along a dimension.

use genesis_kernel::ir::DType;
use kernels::fold as device;

use super::sum::Dims;
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::dispatch::trace;
use crate::error::Result;
use crate::launch;
use crate::ops::{Op, Saves, apply, composite};
use crate::shape;
use crate::tensor::Tensor;

/// The kernels of a product, and of one of what is not zero.
const PRODUCT: launch::Fold = [
    &device::prod_rows::KERNEL,
    &device::prod_cols::KERNEL,
    &device::prod_rows_shared::KERNEL,
    &device::prod_cols_shared::KERNEL,
];
const NONZERO: launch::Fold = [
    &device::prod_nonzero_rows::KERNEL,
    &device::prod_nonzero_cols::KERNEL,
    &device::prod_nonzero_rows_shared::KERNEL,
    &device::prod_nonzero_cols_shared::KERNEL,
];

impl Tensor {
    /// The product along `dim`; `keep` keeps it as extent 1. Integers give i64.
    ///
    /// # Numerics
    /// Of floats in f64, rounded once.
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn prod_dim(&self, dim: i64, keep: bool) -> Result<Tensor> {
        let axis = shape::axis_or_scalar("prod", dim, self.shape())?;
        let x = if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::I64)? };
        if self.rank() == 0 {
            return Ok(x);
        }
        let axis = axis as i64;
        let y = apply(Product { axis }, &[&x])?;
        if keep { Ok(y) } else { y.squeeze(axis) }
    }

    /// The product of all elements. Integers give i64.
    ///
    /// # Numerics
    /// Of floats in f64, rounded once.
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn prod(&self) -> Result<Tensor> {
        // In the order of memory, where that has all elements.
        let order = self.memory_order()?;
        order.reshape(&[order.numel()])?.prod_dim(0, false)
    }

    /// The same elements, with the axes in the order of memory where that makes the tensor dense.
    #[track_caller]
    fn memory_order(&self) -> Result<Tensor> {
        let mut order: Vec<usize> = (0..self.rank()).collect();
        order.sort_by_key(|&axis| std::cmp::Reverse(self.strides()[axis]));
        let permuted = self.permute(&order.iter().map(|&axis| axis as i64).collect::<Vec<_>>())?;
        Ok(if permuted.is_contiguous() { permuted } else { self.clone() })
    }
}

/// What kernels make of an axis, of this dtype; the axis stays as extent 1.
#[track_caller]
fn along(kernels: launch::Fold, x: &Tensor, axis: i64, dtype: DType) -> Result<Tensor> {
    // Each factor's rounding stays in a product: factors that repeat, as of an expanded tensor, round alike.
    let wide = if x.dtype().is_float() { DType::F64 } else { x.dtype() };
    Dims::new("prod", &[axis], true, x.shape())?.reduced(x, |x| {
        let y = Tensor::uninitialized(&[x.shape()[0], x.shape()[2]], (dtype, x.device()))?;
        launch::fold(kernels, &[x.dtype(), wide], wide, x, &y)?;
        Ok(y)
    })
}

/// The product along an axis, which stays as extent 1.
struct Product {
    axis: i64,
}

impl Op for Product {
    fn name(&self) -> &'static str {
        "prod"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let x = inputs[0];
        if x.numel() == 0 {
            let shape = Dims::new("prod", &[self.axis], true, x.shape())?.kept(x.shape());
            return Tensor::ones(&shape, (x.dtype(), x.device()));
        }
        along(PRODUCT, x, self.axis, x.dtype())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let x = saved.input(0);
        if x.numel() == 0 {
            return Ok(vec![Some(x.zeros_like()?)]);
        }
        let dx = match is_grad_enabled() || trace::is_on() {
            true => dy.mul(&others(x, self.axis)?)?,
            false => slope(x, dy, self.axis)?,
        };
        Ok(vec![Some(dx)])
    }
}

/// For each element the product of all others, made of ops with gradients: that of those before times that of those
/// after.
#[track_caller]
fn others(x: &Tensor, axis: i64) -> Result<Tensor> {
    let x = x.transpose(axis, -1)?;
    let n = x.dim(-1)?;
    let one = Tensor::ones(&[], (x.dtype(), x.device()))?;
    let one = one.broadcast_to(&[&x.shape()[..x.rank() - 1], &[1]].concat())?;
    let before = |x: &Tensor| Tensor::cat(&[&one, &x.cumprod(-1)?.narrow(-1, 0, n - 1)?], -1);
    let after = before(&x.flip(&[-1])?)?.flip(&[-1])?;
    before(&x)?.mul(&after)?.transpose(axis, -1)
}

/// `dy` times the product of all others. No zero is divided by: of a row with one zero that alone has a slope, of one
/// with several none.
#[track_caller]
fn slope(x: &Tensor, dy: &Tensor, axis: i64) -> Result<Tensor> {
    let product = along(NONZERO, x, axis, DType::F64)?;
    let zeros = x.eq_scalar(0.0)?.sum_dims(&[axis], true)?;
    composite("prod_backward", &[], [x, dy, &product, &zeros], |[x, dy, product, zeros], _| {
        let wide = x.to_dtype(DType::F64)?;
        let is_zero = wide.eq_scalar(0.0)?;
        let divisor = is_zero.where_(&Tensor::ones(&[], (DType::F64, x.device()))?, &wide)?;
        // How many zeros are among the others.
        let left = zeros.sub(&is_zero.to_dtype(DType::I64)?)?;
        let none = Tensor::zeros(&[], (DType::F64, x.device()))?;
        let others = left.eq_scalar(0.0)?.where_(&product.div(&divisor)?, &none)?;
        dy.to_dtype(DType::F64)?.mul(&others)?.to_dtype(x.dtype())
    })
}
