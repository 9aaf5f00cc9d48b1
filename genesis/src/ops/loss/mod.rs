//! Losses and distances.

mod classes;
mod cross_entropy;
mod ctc;
mod ctc_frames;
mod ctc_places;
mod distances;
mod linear_cross_entropy;
mod margins;
mod multi_margin;
mod nll;

use crate::dispatch::autocast::Precisions;
#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub use classes::Classes;
pub use cross_entropy::Reduction;
pub use ctc::Ctc;
pub use distances::Triplet;
pub use linear_cross_entropy::LinearCrossEntropy;
pub use margins::MultiMargin;

/// In what autocast computes the ops of this folder.
pub(super) const AUTOCAST: &[Precisions] = &[
    distances::AUTOCAST,
    cross_entropy::AUTOCAST,
    linear_cross_entropy::AUTOCAST,
    classes::AUTOCAST,
    margins::AUTOCAST,
];

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] = &[
    cross_entropy::info::INFOS,
    classes::info::INFOS,
    distances::info::INFOS,
    linear_cross_entropy::info::INFOS,
    ctc::info::INFOS,
    margins::info::INFOS,
];
