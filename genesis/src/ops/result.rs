//! Where the result of an elementwise op lies in memory.

use std::sync::Arc;

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
    let at = at.into();
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

/// The memory of `into`, where an elementwise op on these operands may write its result over it: an element that is
/// read is then written by the program that read it. Else [`result_of`].
///
/// # Errors
/// If memory runs out.
#[track_caller]
pub(in crate::ops) fn result_in(
    into: Option<&Tensor>,
    operands: &[&Tensor],
    shape: &[usize],
    at: impl Into<Creation>,
) -> Result<Tensor> {
    let at = at.into();
    match into {
        Some(into) if may_write_over(into, operands, shape, at) => Ok(into.clone()),
        _ => result_of(operands, shape, at),
    }
}

fn may_write_over(into: &Tensor, operands: &[&Tensor], shape: &[usize], at: Creation) -> bool {
    let fits = into.shape() == shape && (into.dtype(), into.device()) == (at.dtype, at.device);
    let bytes = |t: &Tensor| {
        let first = t.storage().address();
        first..first + t.storage().bytes() as u64
    };
    let (own, is_apart) =
        (bytes(into), |other: std::ops::Range<u64>, own: &std::ops::Range<u64>| {
            other.end <= own.start || own.end <= other.start
        });
    let is_itself = |t: &Tensor| {
        Arc::ptr_eq(t.storage(), into.storage())
            && t.layout() == into.layout()
            && t.dtype() == into.dtype()
    };
    fits && !trace::is_on() && operands.iter().all(|t| is_itself(t) || is_apart(bytes(t), &own))
}
