//! Ops on windows over the last axes: convolutions, pools, resizing, sampling of grids.

mod convolution;
mod corners;
mod grid_options;
mod grid_sample;
mod interpolate;
mod patches;
mod pool;
#[cfg(feature = "op-info")]
mod reference;
mod window;

use crate::dispatch::autocast::Precisions;
#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub use convolution::Conv;
pub use grid_options::{GridMode, GridPadding, GridSample};
pub use interpolate::{Interpolation, Resize};
pub use window::Window;

/// In what autocast computes the ops of this folder.
pub(super) const AUTOCAST: &[Precisions] = &[convolution::AUTOCAST];

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] = &[
    convolution::info::INFOS,
    pool::info::INFOS,
    interpolate::info::INFOS,
    patches::info::INFOS,
    grid_sample::info::INFOS,
];
