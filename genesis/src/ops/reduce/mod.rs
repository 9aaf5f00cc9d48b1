//! Reductions and scans.

mod fold;
mod product;
mod scan;
mod stats;
mod sum;
mod variance;

use crate::dispatch::autocast::Precisions;
#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
/// In what autocast computes the ops of this folder.
pub(super) const AUTOCAST: &[Precisions] = &[fold::AUTOCAST, scan::AUTOCAST, sum::AUTOCAST];

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] =
    &[sum::info::INFOS, fold::info::INFOS, stats::info::INFOS, scan::info::INFOS];
