//! What elementwise code is for, and the types that it is written with.

use super::super::llvm::{Emitter, Ty, Val};
use crate::ir::DType;

/// What the code is for, where that decides how an op is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The processor that runs this program.
    Host,
    /// An NVIDIA GPU.
    Nvptx,
}

pub(super) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The element type `ty` with as many lanes as `x` has.
pub(super) fn with_lanes_of(e: &Emitter, ty: Ty, x: Val) -> Ty {
    e.vec(ty, e.lanes(e.type_of(x)))
}
