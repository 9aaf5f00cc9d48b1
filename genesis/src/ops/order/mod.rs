//! Sorting, selection, searching and distinct elements.

mod radix;
mod search;
mod smallest;
mod sort;
mod unique;

#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub(super) use radix::{order_of_places, words_in_order};
pub use unique::Unique;

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] =
    &[sort::info::INFOS, search::info::INFOS, unique::info::INFOS];
