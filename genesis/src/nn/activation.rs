//! Activations as layers, for [`Sequential`](super::Sequential).

use super::{Module, Visitor};
use crate::error::Result;
use crate::tensor::Tensor;

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Module for $name {
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method()
            }

            fn visit<'a>(&'a self, _: &mut Visitor<'a, '_>) {}
        }
    )*};
}

activations! {
    /// The larger of x and 0.
    Relu = relu;
    /// Exact GELU.
    Gelu = gelu;
    /// `x * sigmoid(x)`
    Silu = silu;
    /// The hyperbolic tangent.
    Tanh = tanh;
    /// `1 / (1 + exp(-x))`
    Sigmoid = sigmoid;
}
