//! The products of a model with its weights: one type for all of them.
//!
//! Every product of a decoder with a weight goes through [`Projection::forward`], so that how it is computed,
//! from which form of the weight, is decided in one place: a row has the same bits alone, in any batch and in
//! chunks ([`Weight::product`]), so that a prompt has the same answer whatever runs beside it.

use crate::error::Result;
use crate::nn::{Layer, Module, Parameter, Weight, count_flops, watch};
use crate::tensor::Tensor;

/// `y = x W^T + b`
///
/// # Shapes
/// `[.., in]` -> `[.., out]`, with `weight: [out, in]` and `bias: [out]`.
#[derive(Debug, Module)]
pub struct Projection {
    /// `[out, in]`
    pub weight: Weight,
    /// `[out]`
    pub bias: Option<Parameter>,
}

impl Projection {
    /// The product of the input and the weight, plus the bias.
    ///
    /// # Errors
    /// If the last extent is not that of the weight, or dtypes or devices differ.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let y = self.weight.product(x, self.bias.as_deref())?; // [.., out]
            count_flops(|| 2 * (y.numel() as u64).saturating_mul(self.weight.shape()[1] as u64));
            Ok(y)
        })
    }
}

impl Layer for Projection {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Projection::forward(self, x)
    }
}
