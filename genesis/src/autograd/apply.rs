//! Dispatch of an op: autocast, checks, the kernel, and the tape.

use std::panic::Location;

use genesis_kernel::trace as profiled;

use super::anomaly;
use super::op::Op;
use super::record::record;
use super::saved;
use crate::dispatch::{autocast, trace};
use crate::error::Result;
use crate::memory;
use crate::mode::{is_grad_enabled, no_grad};
use crate::tensor::Tensor;

/// Runs an op and records it where gradients are wanted.
#[track_caller]
pub(crate) fn apply(op: impl Op, inputs: &[&Tensor]) -> Result<Tensor> {
    if let Some(cast) = autocast::cast_inputs(op.name(), inputs)? {
        return apply(op, &cast.iter().collect::<Vec<_>>());
    }
    for input in inputs {
        input.storage().wait_arrived()?;
    }
    // Ops that an op is made of are no ops of a checkpoint's part.
    let is_counted = is_grad_enabled();
    let recalled = if is_counted { saved::recalled(op.name(), inputs)? } else { None };
    let caller = Location::caller();
    let is_known = recalled.is_some();
    let _op = (!is_known).then(|| profiled::op(op.name(), caller, || describe(inputs)));
    let forward = || no_grad(|| autocast::without_autocast(|| op.forward(inputs)));
    let mut result = match recalled {
        Some(result) => result,
        None => {
            let outer = trace::enter(op.name());
            let made = memory::made_at(caller, forward);
            trace::leave(outer);
            made?
        }
    };
    if is_counted && !is_known {
        saved::made(op.name(), inputs, &result)?;
    }
    if anomaly::is_on() && !trace::is_on() {
        anomaly::check_forward(op.name(), inputs, &result)?;
    }
    let wanted = is_grad_enabled() && result.dtype().is_arithmetic_float();
    if wanted && inputs.iter().any(|input| input.requires_grad()) {
        result = record(op, inputs, result)?;
    }
    if let Some(parent) = inputs.first() {
        result.note_view(parent);
    }
    Ok(result)
}

/// Runs what several ops compute in one launch, which the caller records as those ops. `name` is what a profile shows.
///
/// Neither autocast nor [`detect_anomaly`](super::detect_anomaly) has a say in it, nor a checkpoint: its ops are none that one
/// keeps.
#[track_caller]
pub(crate) fn apply_joined<T>(
    name: &'static str,
    inputs: &[&Tensor],
    forward: impl FnOnce() -> Result<T>,
) -> Result<T> {
    for input in inputs {
        input.storage().wait_arrived()?;
    }
    let caller = Location::caller();
    let _op = profiled::op(name, caller, || describe(inputs));
    memory::made_at(caller, || no_grad(|| autocast::without_autocast(forward)))
}

/// Dtypes and shapes, as a profile shows them: `f32[64, 784], f32[784, 256]`.
pub(crate) fn describe(inputs: &[&Tensor]) -> String {
    let one = |input: &&Tensor| format!("{}{:?}", input.dtype(), input.shape());
    inputs.iter().map(one).collect::<Vec<_>>().join(", ")
}
