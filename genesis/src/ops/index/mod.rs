//! Indexing: gathers, scatters and scatter-adds.

mod along;
mod bag_slopes;
mod bags;
mod compact;
mod embedding;
mod fill;
pub(super) mod flag;
mod gather;
mod masks;
mod parts;
mod places;
mod put;
mod scatter;
mod segments;
mod slice_scatter;
mod slices;
mod unordered;

#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub(super) use along::take_distinct_along;
pub(in crate::ops) use bag_slopes::BagSlopes;
pub use bags::{BagMode, Bags};
pub(super) use compact::{Chunks, exclusive};
pub use parts::Index;
pub(super) use places::{add_at, places_of_layout};
pub use scatter::ScatterReduce;
pub use unordered::{are_deterministic_algorithms_enabled, use_deterministic_algorithms};

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] =
    &[gather::info::INFOS, scatter::info::INFOS, embedding::info::INFOS, bags::info::INFOS];
