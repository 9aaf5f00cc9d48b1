//! The ops: each described once, in one file or one row of a table.
//!
//! An [`Op`] says what it makes (`infer`), how (`forward`) and where gradients go (`backward`).
//! Beside it stands its `OpInfo`: an f64 reference, sample inputs and the calls it
//! refuses with their exact text. Tests, docs and benchmark rows come from the table in `info`, which the feature `op-info` brings.

pub mod elementwise;
mod embedding;
#[cfg(feature = "op-info")]
pub mod info;
pub(crate) mod launch;
mod loss;
mod matmul;
mod matmul_f8;
mod norm;
mod random;
mod reduce;
mod scan;
mod select;
mod softmax;
pub(crate) mod update;

use std::sync::Arc;

use genesis_kernel::ir::DType;

use crate::autograd::{GradMeta, Node, Saved, SavedTensors, is_grad_enabled, no_grad};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub use loss::Reduction;
pub use matmul::{MatmulPrecision, matmul_precision, set_matmul_precision};
pub use matmul_f8::ScaledMatmul;

/// Which tensors an op's backward reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Saves {
    /// One bit per input, the first in bit 0.
    pub inputs: u32,
    /// The result.
    pub output: bool,
}

impl Saves {
    /// Nothing: the backward needs only `dy`.
    pub const NOTHING: Saves = Saves { inputs: 0, output: false };
    /// The inputs with these bits.
    pub const fn inputs(bits: u32) -> Saves {
        Saves { inputs: bits, output: false }
    }
    /// The result.
    pub const OUTPUT: Saves = Saves { inputs: 0, output: true };
}

/// An operation on tensors.
pub trait Op: Send + Sync + 'static {
    /// The name users know it by.
    fn name(&self) -> &'static str;

    /// Computes the result, or refuses.
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor>;

    /// What [`backward`](Op::backward) reads.
    fn saves(&self) -> Saves {
        Saves::NOTHING
    }

    /// The gradient of each input, made of differentiable ops; `None` where there is none.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>>;
}

/// Runs an op and records it where gradients are wanted.
pub(crate) fn apply(op: impl Op, inputs: &[&Tensor]) -> Result<Tensor> {
    let result = no_grad(|| op.forward(inputs))?;
    let wanted = is_grad_enabled() && result.dtype().is_arithmetic_float();
    if !wanted || !inputs.iter().any(|input| input.requires_grad()) {
        return Ok(result);
    }
    let edges = inputs.iter().map(|i| i.requires_grad().then(|| i.meta().clone())).collect();
    let saves = op.saves();
    let is_saved = |index: usize| saves.inputs >> index & 1 == 1;
    let saved = inputs.iter().enumerate().map(|(i, t)| is_saved(i).then(|| Saved::input(t)));
    let output = saves.output.then(|| Saved::output(&result));
    let node = Node::new(Arc::new(op), edges, saved.collect(), output);
    let (storage, layout) = (result.storage().clone(), result.layout().clone());
    Ok(Tensor::from_parts(storage, layout, result.dtype(), GradMeta::of_node(node)))
}

/// What an op says of a dtype that it does not take.
pub(crate) fn wrong_dtype(op: &str, wants: &str, dtype: DType) -> Error {
    let hint =
        if dtype.is_f8() { ", which is for storage: convert it with `to_dtype`" } else { "" };
    Error::op(op, format!("needs {wants} dtype, got {dtype}{hint}"))
}

/// Sums `dy` over the axes that broadcasting added, back to `shape`.
pub(crate) fn unbroadcast(dy: &Tensor, shape: &[usize]) -> Result<Tensor> {
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
