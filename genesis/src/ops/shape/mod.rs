//! Views, and ops that move elements.

mod adjacent;
mod arrange;
mod join;
mod pad;
mod strided;
mod triangle;
mod view;

use crate::dispatch::autocast::Precisions;
#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub use arrange::GridOrder;
pub use pad::PadMode;

/// In what autocast computes the ops of this folder.
pub(super) const AUTOCAST: &[Precisions] = &[join::AUTOCAST];

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] = &[
    view::info::INFOS,
    strided::info::INFOS,
    join::info::INFOS,
    pad::info::INFOS,
    arrange::info::INFOS,
];
