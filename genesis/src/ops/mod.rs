//! The ops: each described once, in one file or one row of a table.
//!
//! An [`Op`] says what it makes (`infer`), how (`forward`) and where gradients go (`backward`).
//! Beside it stands its `OpInfo`: an f64 reference, sample inputs and the calls it
//! refuses with their exact text. Tests, docs and benchmark rows come from the table in `info`, which the feature `op-info` brings.

mod activation;
mod affine;
mod arith;
mod arrange;
mod attention;
mod bags;
mod conv;
mod ctc;
mod distances;
pub mod elementwise;
mod embedding;
mod fold;
pub(crate) mod fused_product;
mod gated;
mod index;
pub(crate) mod index_flag;
#[cfg(feature = "op-info")]
pub mod info;
#[cfg(feature = "op-info")]
mod info_arith;
#[cfg(feature = "op-info")]
mod info_case;
#[cfg(feature = "op-info")]
mod info_math;
#[cfg(feature = "op-info")]
mod info_more;
#[cfg(feature = "op-info")]
mod info_nn;
#[cfg(feature = "op-info")]
mod info_places;
#[cfg(feature = "op-info")]
mod info_shapes;
#[cfg(feature = "op-info")]
mod info_stats;
#[cfg(feature = "op-info")]
mod info_window;
mod interpolate;
mod join;
mod linear;
mod linear_rows;
mod logic;
mod loss;
mod losses;
mod margins;
pub mod math;
mod matmul;
mod matmul_f8;
mod matmul_int;
mod norm;
mod norms;
mod order;
mod pad;
mod paged;
mod patches;
mod pool;
mod products;
mod quantized;
mod random;
mod random_inplace;
mod reduce;
mod sample_tokens;
mod sampling;
mod scan;
mod scatter;
mod search;
mod select;
mod softmax;
pub mod special;
mod spectral;
mod stats;
mod unique;
mod window;

use std::panic::Location;

use genesis_kernel::ir::DType;
use genesis_kernel::trace as profiled;

use crate::autograd::{SavedTensors, anomaly, is_grad_enabled, no_grad, record};
use crate::dispatch::autocast;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::memory;
use crate::tensor::Tensor;

pub use crate::launch::epilogue::Gate;
pub use affine::Activation;
pub use arith::{RoundingMode, Tolerance};
pub use arrange::GridOrder;
pub use attention::{Attention, AttentionBackend, Varlen};
pub use bags::{BagMode, Bags};
pub use conv::Conv;
pub use ctc::Ctc;
pub use distances::Triplet;
pub use index::Index;
pub(crate) use index::{add_at, places_of_layout};
pub use interpolate::{Interpolation, Resize};
pub use loss::Reduction;
pub use losses::Classes;
pub use margins::MultiMargin;
pub use matmul::{MatmulPrecision, matmul_precision, set_matmul_precision};
pub use matmul_f8::ScaledMatmul;
pub use norms::BatchStats;
pub(crate) use norms::move_towards;
pub use pad::PadMode;
pub(crate) use paged::limit_of;
pub use paged::{CacheSlots, PagedAttention, PagedLayout, Rotation};
pub use quantized::{BlockType, QuantScheme, QuantizedWeight};
pub use sample_tokens::{Penalties, SampleTokens};
pub use sampling::{GridMode, GridPadding, GridSample};
pub use scatter::ScatterReduce;
pub use unique::Unique;
pub use window::Window;

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
#[track_caller]
pub(crate) fn apply(op: impl Op, inputs: &[&Tensor]) -> Result<Tensor> {
    if let Some(cast) = autocast::cast_inputs(op.name(), inputs)? {
        return apply(op, &cast.iter().collect::<Vec<_>>());
    }
    for input in inputs {
        input.storage().wait_arrived()?;
    }
    let caller = Location::caller();
    let _op = profiled::op(op.name(), caller, || describe(inputs));
    let forward = || no_grad(|| autocast::without_autocast(|| op.forward(inputs)));
    let outer = trace::enter(op.name());
    let made = memory::made_at(caller, forward);
    trace::leave(outer);
    let mut result = made?;
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

/// Dtypes and shapes, as a profile shows them: `f32[64, 784], f32[784, 256]`.
pub(crate) fn describe(inputs: &[&Tensor]) -> String {
    let one = |input: &&Tensor| format!("{}{:?}", input.dtype(), input.shape());
    inputs.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What an op says of a dtype that it does not take.
pub(crate) fn wrong_dtype(op: &str, wants: &str, dtype: DType) -> Error {
    let hint =
        if dtype.is_f8() { ", which is for storage: convert it with `to_dtype`" } else { "" };
    Error::op(op, format!("needs {wants} dtype, got {dtype}{hint}"))
}

/// Sums `dy` over the axes that broadcasting added, back to `shape`.
#[track_caller]
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
