//! Comparisons and choice element by element.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::KernelDef;
use kernels::compare as device;

use super::elementwise::check_pair;
use super::promote;
use super::{Op, Saves, apply, unbroadcast, wrong_dtype};
use crate::autograd::SavedTensors;
use crate::error::{Error, Result};
use crate::launch;
use crate::shape::broadcast_shapes;
use crate::tensor::Tensor;

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Shapes
                /// The operands broadcast, aligned at the last axis; dtypes promote.
                /// # Errors
                /// If shapes do not broadcast, or devices differ.
                #[track_caller]
                pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                    compare(stringify!($name), &device::$name::KERNEL, self, other)
                }

                $(#[$doc])*
                ///
                /// # Errors
                /// If the dtype is for storage only.
                #[track_caller]
                pub fn $scalar(&self, c: f64) -> Result<Tensor> {
                    let other = self.number_to_compare(c)?;
                    compare(stringify!($name), &device::$name::KERNEL, self, &other)
                }
            )*
        }
    };
}

comparisons! {
    /// Where the operands are equal; bool.
    eq, eq_scalar;
    /// Where the operands differ; bool, true for NaN.
    ne, ne_scalar;
    /// Where the first operand is less; bool.
    lt, lt_scalar;
    /// Where the first operand is less or equal; bool.
    le, le_scalar;
    /// Where the first operand is greater; bool.
    gt, gt_scalar;
    /// Where the first operand is greater or equal; bool.
    ge, ge_scalar;
}

#[track_caller]
fn compare(
    name: &'static str,
    kernel: &'static KernelDef,
    x: &Tensor,
    y: &Tensor,
) -> Result<Tensor> {
    let (x, y) = promote::pair(&x.detach(), &y.detach())?;
    let (x, y) = match x.dtype() {
        DType::Bool => (x.as_bytes(), y.as_bytes()),
        _ => (x, y),
    };
    check_pair(name, &x, &y)?;
    if !x.dtype().is_number() {
        return Err(wrong_dtype(name, "a number", x.dtype()));
    }
    let shape = broadcast_shapes(name, &[x.shape(), y.shape()])?;
    let z = Tensor::uninitialized(&shape, (DType::Bool, x.device()))?;
    let (x, y) = (x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
    launch::strided(kernel, &[x.dtype()], &[&x, &y], &z, &[])?;
    Ok(z)
}

impl Tensor {
    /// `x` where this bool tensor is true, `y` elsewhere; all three broadcast, the dtypes of the two
    /// promote.
    ///
    /// # Errors
    /// If this is not bool, shapes do not broadcast, or devices differ.
    #[track_caller]
    pub fn where_(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let (x, y) = promote::pair(x, y)?;
        let shapes = [x.shape().to_vec(), y.shape().to_vec()];
        apply(Where { shapes }, &[self, &x, &y])
    }
}

struct Where {
    shapes: [Vec<usize>; 2],
}

impl Op for Where {
    fn name(&self) -> &'static str {
        "where"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (cond, x, y) = (inputs[0], inputs[1], inputs[2]);
        if cond.dtype() != DType::Bool {
            return Err(Error::op(
                "where",
                format!("the condition must be bool, got {}", cond.dtype()),
            ));
        }
        check_pair("where", x, y)?;
        if cond.device() != x.device() {
            let message = format!("devices differ, {} and {}", cond.device(), x.device());
            return Err(Error::op("where", message));
        }
        let shape = broadcast_shapes("where", &[cond.shape(), x.shape(), y.shape()])?;
        let z = Tensor::uninitialized(&shape, (x.dtype(), x.device()))?;
        let (c, x, y) =
            (cond.broadcast_to(&shape)?, x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
        launch::strided(
            &kernels::select::where_cond::KERNEL,
            &[x.dtype()],
            &[&c, &x, &y],
            &z,
            &[],
        )?;
        Ok(z)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(1)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let cond = saved.input(0);
        let zero = Tensor::zeros(&[], (dy.dtype(), dy.device()))?;
        let dx = unbroadcast(&cond.where_(dy, &zero)?, &self.shapes[0])?;
        let dy = unbroadcast(&cond.where_(&zero, dy)?, &self.shapes[1])?;
        Ok(vec![None, Some(dx), Some(dy)])
    }
}
