//! A table of vectors.

use super::{Module, Visitor, init};
use crate::error::Result;
use crate::tensor::{Creation, Tensor};

/// Rows of a table by index.
///
/// # Shapes
/// i64 `[..]` -> `[.., C]`, with `weight: [V, C]`.
#[derive(Debug)]
pub struct Embedding {
    /// `[V, C]`
    pub weight: Tensor,
}

impl Embedding {
    /// A table that starts standard normal.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(vocabulary: usize, channels: usize, at: impl Into<Creation>) -> Result<Embedding> {
        Ok(Embedding { weight: init::normal(&[vocabulary, channels], 0.0, 1.0, at)? })
    }
}

impl Module for Embedding {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.weight.embedding(x)
    }

    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.parameter("weight", &self.weight);
    }
}
