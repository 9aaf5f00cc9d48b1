//! The ops: each described once, in one file or one row of a table.
//!
//! An [`Op`] says what it makes (`infer`), how (`forward`) and where gradients go (`backward`).
//! Beside it stand its rows of `info`, where the feature `op-info` brings them: an f64 reference, sample inputs
//! and the calls it refuses with their exact text. Tests, docs and benchmark rows come from those.

pub(crate) mod argument;
mod attention;
mod composite;
mod conv;
mod creation;
mod elementwise;
mod in_place;
mod index;
#[cfg(feature = "op-info")]
pub mod info;
mod linalg;
mod linear_rows;
mod loss;
mod norm;
mod operands;
mod order;
mod paged;
pub(crate) mod promote;
mod quantized;
mod random;
mod reduce;
mod result;
mod shape;

pub(crate) use crate::autograd::apply;
pub use crate::autograd::op::{Op, Saves};
use crate::dispatch::autocast::Precisions;
pub use crate::launch::epilogue::Gate;
pub(crate) use attention::part_gradients;
pub use attention::{Attention, AttentionBackend, Varlen};
use composite::{Differentiated, composite, composite_ending, gradients};
pub use conv::{Conv, GridMode, GridPadding, GridSample, Interpolation, Resize, Window};
pub use elementwise::{RoundingMode, Tolerance};
pub use index::{
    BagMode, Bags, Index, ScatterReduce, are_deterministic_algorithms_enabled,
    use_deterministic_algorithms,
};
pub(crate) use linalg::fused_product;
pub use linalg::{
    Activation, MatmulPrecision, ScaledMatmul, matmul_precision, set_matmul_precision,
};
pub use loss::{Classes, Ctc, LinearCrossEntropy, MultiMargin, Reduction, Triplet};
pub use norm::BatchStats;
pub(crate) use norm::{RowNormOf, move_towards};
pub(crate) use operands::wrong_dtype;
use operands::{check_pair, unbroadcast};
pub use order::Unique;
pub(crate) use paged::limit_of;
pub use paged::{CacheSlots, PagedAttention, PagedLayout, Rotation};
pub use quantized::{BlockType, QuantScheme, QuantizedWeight};
pub use random::{Penalties, SampleTokens};
use result::{result_in, result_of};
pub use shape::{GridOrder, PadMode};

/// In what autocast computes ops, by folder and file; what is not here runs in the dtype of its operands.
pub(crate) const AUTOCAST: &[&[Precisions]] = &[
    attention::AUTOCAST,
    conv::AUTOCAST,
    elementwise::AUTOCAST,
    linalg::AUTOCAST,
    loss::AUTOCAST,
    norm::AUTOCAST,
    reduce::AUTOCAST,
    shape::AUTOCAST,
];
