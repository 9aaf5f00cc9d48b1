//! Tensors of a GGUF file.

use super::ty::GgmlType;
use crate::shape::product;

/// What a GGUF file says of a tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GgufTensor {
    /// How its elements are stored.
    pub ty: GgmlType,
    /// Its extents, the outermost first.
    pub shape: Vec<usize>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl GgufTensor {
    /// The number of its elements.
    pub fn numel(&self) -> usize {
        product(&self.shape)
    }
}
