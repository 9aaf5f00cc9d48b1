//! Broadcasting and promotion of operands, and their adjoints for gradients.

use genesis_kernel::ir::DType;

use crate::dispatch::autocast;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// What an op says of a dtype that it does not take.
pub(crate) fn wrong_dtype(op: &str, wants: &str, dtype: DType) -> Error {
    let hint =
        if dtype.is_f8() { ", which is for storage: convert it with `to_dtype`" } else { "" };
    Error::op(op, format!("needs {wants} dtype, got {dtype}{hint}"))
}

/// Both operands of one dtype on one device.
pub(super) fn check_pair(op: &str, x: &Tensor, y: &Tensor) -> Result<()> {
    if x.dtype() != y.dtype() && !autocast::unifies(op, x, y) {
        let message =
            format!("dtypes differ, {} and {}; convert one with to_dtype", x.dtype(), y.dtype());
        return Err(Error::op(op, message));
    }
    if x.device() != y.device() {
        let message =
            format!("devices differ, {} and {}; move one with to_device", x.device(), y.device());
        return Err(Error::op(op, message));
    }
    Ok(())
}

/// Sums `dy` over the axes that broadcasting added, back to `shape`.
#[track_caller]
pub(super) fn unbroadcast(dy: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if dy.shape() == shape {
        return Ok(dy.clone());
    }
    let new = dy.rank() - shape.len();
    let is_broadcast =
        |(axis, &extent): (usize, &usize)| axis < new || (shape[axis - new] == 1 && extent != 1);
    let axes: Vec<i64> =
        dy.shape().iter().enumerate().filter(|&a| is_broadcast(a)).map(|(a, _)| a as i64).collect();
    dy.sum_dims(&axes, true)?.reshape(shape)
}
