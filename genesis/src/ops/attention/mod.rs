//! Attention: of tensors of one length, of sequences packed one after the other, and over a part of the keys; and the
//! rotary positions of queries and keys.

mod dot_product;
mod few;
mod flash;
mod part;
mod rotary;
mod scores;
mod varlen;

use crate::dispatch::autocast::Precisions;
#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub use dot_product::{Attention, AttentionBackend};
pub(crate) use part::part_gradients;
pub use varlen::Varlen;

/// In what autocast computes the ops of this folder.
pub(super) const AUTOCAST: &[Precisions] = &[dot_product::AUTOCAST];

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] = &[dot_product::info::INFOS, rotary::info::INFOS];
