//! The ops: each described once, in one file or one row of a table.
//!
//! An [`Op`] says what it makes (`infer`), how (`forward`) and where gradients go (`backward`).
//! Beside it stands its `OpInfo`: an f64 reference, sample inputs and the calls it
//! refuses with their exact text. Tests, docs and benchmark rows come from the table in `info`, which the feature `op-info` brings.

mod activation;
mod adjacent;
mod affine;
pub(crate) mod argument;
mod arith;
mod arrange;
mod attention;
mod bags;
mod conv;
mod create;
mod ctc;
mod data;
mod distances;
pub mod elementwise;
mod embedding;
mod fmt;
mod fold;
pub(crate) mod fused_product;
mod gated;
mod index;
pub(crate) mod index_flag;
#[cfg(feature = "op-info")]
pub mod info;
mod inplace;
mod inplace_ops;
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
mod operators;
mod order;
mod pad;
mod paged;
mod patches;
mod pool;
mod products;
pub(crate) mod promote;
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
mod strided;
mod transfer;
mod unique;
mod view;
mod window;

use genesis_kernel::ir::DType;

use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub(crate) use crate::autograd::apply;
pub use crate::autograd::op::{Op, Saves};
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
