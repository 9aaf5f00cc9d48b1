//! Random numbers by generators, and tokens drawn from logits.

mod draw;
mod in_place;
mod sample_tokens;

#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub(in crate::ops) use draw::{dropout_from, fixed_args, state_args};
pub use sample_tokens::{Penalties, SampleTokens};

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] = &[];
