//! Products of vectors and matrices, and what runs in the same launch.

mod affine;
pub(crate) mod fused_product;
mod gated;
pub(in crate::ops) mod into;
mod linear;

mod matmul;
mod matmul_f8;
mod matmul_int;
mod pairwise;
mod products;
#[cfg(feature = "op-info")]
mod reference;
mod spectral;
mod tensor_copies;

use crate::dispatch::autocast::Precisions;
#[cfg(feature = "op-info")]
use crate::ops::info::OpInfo;
pub use affine::Activation;
pub use matmul::{MatmulPrecision, matmul_precision, set_matmul_precision};
pub use matmul_f8::ScaledMatmul;

/// In what autocast computes the ops of this folder.
pub(super) const AUTOCAST: &[Precisions] =
    &[products::AUTOCAST, linear::AUTOCAST, matmul::AUTOCAST, affine::AUTOCAST, pairwise::AUTOCAST];

/// The rows of this folder.
#[cfg(feature = "op-info")]
pub(super) static INFOS: &[&[OpInfo]] = &[
    matmul::info::INFOS,
    affine::info::INFOS,
    matmul_f8::info::INFOS,
    matmul_int::info::INFOS,
    products::info::INFOS,
    linear::info::INFOS,
    pairwise::info::INFOS,
    gated::info::INFOS,
    spectral::info::INFOS,
];
