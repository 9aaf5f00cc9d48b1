//! Normalizations: of rows, channels and groups, and softmax.

mod batch_norm;
mod channels;
mod groups;
mod layer_norm;
mod of_sum;
mod rows;
mod softmax;

use crate::dispatch::autocast::Precisions;
#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub use batch_norm::BatchStats;
pub(crate) use batch_norm::move_towards;
pub(crate) use of_sum::RowNormOf;
#[cfg(feature = "op-info")]
pub(super) use softmax::info::log_softmax as log_softmax_reference;

/// In what autocast computes the ops of this folder.
pub(super) const AUTOCAST: &[Precisions] =
    &[batch_norm::AUTOCAST, layer_norm::AUTOCAST, softmax::AUTOCAST];

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] =
    &[softmax::info::INFOS, layer_norm::info::INFOS, of_sum::info::INFOS, batch_norm::info::INFOS];
