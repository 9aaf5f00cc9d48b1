//! Where the result of an elementwise op lies in memory.

use crate::dispatch::trace;
use crate::error::Result;
use crate::shape::{inverse, memory_order, reordered};
use crate::tensor::{Creation, Tensor};

/// Memory without gaps for an op on these operands, all of `shape`: its axes lie in the order in which those of the
/// operands do, as in PyTorch, so that all of them are walked in the order of memory.
///
/// # Errors
/// If memory runs out.
#[track_caller]
pub(in crate::ops) fn result_of(
    operands: &[&Tensor],
    shape: &[usize],
    at: impl Into<Creation>,
) -> Result<Tensor> {
    // What stands for a tensor is laid out by whoever stores it.
    if trace::is_on() || operands.iter().all(|t| t.is_contiguous()) {
        return Tensor::uninitialized(shape, at);
    }
    let along: Vec<&[i64]> = operands.iter().map(|t| t.strides()).collect();
    let Some(order) = memory_order(shape, &along) else {
        return Tensor::uninitialized(shape, at);
    };
    let dense = Tensor::uninitialized(&reordered(shape, &order), at)?;
    let layout = dense.layout().permute(&inverse(&order)).expect("an order names each axis once");
    Ok(Tensor::plain(dense.storage().clone(), layout, dense.dtype()))
}
