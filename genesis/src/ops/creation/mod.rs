//! Tensors from values and back: creation, copies, moves between devices, text.

mod copy;
mod create;
mod fmt;
mod transfer;

#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] = &[create::info::INFOS, copy::info::INFOS];
