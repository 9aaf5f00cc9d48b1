//! Norms that read a residual stream: those of decoders, and layer norm.

use crate::error::Result;
use crate::nn::LayerNorm;
use crate::tensor::Tensor;

/// A norm that reads the residual stream.
pub(super) trait StreamNorm {
    /// The stream with a term added where there is one, and its norm; which only products read, or not.
    ///
    /// # Errors
    /// If shapes differ, or the channels are not those of the norm.
    fn of_stream(
        &self,
        x: &Tensor,
        added: Option<&Tensor>,
        is_for_products: bool,
    ) -> Result<(Tensor, Tensor)>;
}

impl StreamNorm for LayerNorm {
    fn of_stream(
        &self,
        x: &Tensor,
        added: Option<&Tensor>,
        is_for_products: bool,
    ) -> Result<(Tensor, Tensor)> {
        match (is_for_products, added) {
            (true, _) => self.for_products(x, added),
            (false, Some(added)) => self.after_add(x, added),
            (false, None) => Ok((x.clone(), self.forward(x)?)),
        }
    }
}
