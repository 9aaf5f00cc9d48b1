//! Activations as layers, for [`Sequential`](super::Sequential).
//!
//! Each is the tensor's method of the same name; those with numbers hold them as fields, which start at
//! PyTorch's defaults.

use std::any::Any;

use super::layer::layers;
use super::{Layer, Module, Parameter, init, watch};
use crate::error::Result;
use crate::ops::Activation;
use crate::tensor::{Creation, Tensor};

/// The function that a layer is, if a product may compute it on its sums.
pub(super) fn of_layer(layer: &dyn Layer) -> Option<Activation> {
    let layer: &dyn Any = layer;
    let of = |is: bool, activation: Activation| is.then_some(activation);
    of(layer.is::<Relu>(), Activation::Relu)
        .or(of(layer.is::<Gelu>(), Activation::Gelu))
        .or(of(layer.is::<Silu>(), Activation::Silu))
}

macro_rules! activations {
    ($($(#[$doc:meta])* $name:ident = $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Module)]
        pub struct $name;

        impl $name {
            /// The function of each element.
            ///
            /// # Errors
            /// If the dtype is not a float.
            pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
                watch(self, || x.$method())
            }
        }

        layers!($name);
    )*};
}

activations! {
    /// The larger of x and 0.
    Relu = relu;
    /// x brought between 0 and 6.
    Relu6 = relu6;
    /// Exact GELU, `x * Phi(x)`.
    Gelu = gelu;
    /// GELU by the hyperbolic tangent: PyTorch's `GELU(approximate="tanh")`.
    GeluTanh = gelu_tanh;
    /// `x * sigmoid(x)`
    Silu = silu;
    /// `x * tanh(log(1 + exp(x)))`
    Mish = mish;
    /// ELU with the constants that keep mean 0 and variance 1.
    Selu = selu;
    /// The hyperbolic tangent.
    Tanh = tanh;
    /// `1 / (1 + exp(-x))`
    Sigmoid = sigmoid;
    /// `log(sigmoid(x))`
    LogSigmoid = log_sigmoid;
    /// `x * clamp(x + 3, 0, 6) / 6`
    Hardswish = hardswish;
    /// `clamp(x / 6 + 1 / 2, 0, 1)`
    Hardsigmoid = hardsigmoid;
    /// `x / (1 + |x|)`
    Softsign = softsign;
    /// `x - tanh(x)`
    Tanhshrink = tanhshrink;
}

macro_rules! activations_with {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr),* } = $method:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug, Module)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default),* }
            }
        }

        impl $name {
            /// The function of each element.
            ///
            /// # Errors
            /// If the dtype is not a float or a number makes no sense.
            pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
                watch(self, || x.$method($(self.$field),*))
            }
        }

        layers!($name);
    )*};
}

activations_with! {
    /// x where it is positive, else `negative_slope * x`.
    LeakyRelu {
        /// The slope below 0.
        negative_slope: f64 = 0.01
    } = leaky_relu;
    /// x where it is positive, else `alpha * (exp(x) - 1)`.
    Elu {
        /// The limit far below 0, negated.
        alpha: f64 = 1.0
    } = elu;
    /// x where it is positive, else `alpha * (exp(x / alpha) - 1)`.
    Celu {
        /// The limit far below 0, negated.
        alpha: f64 = 1.0
    } = celu;
    /// `log(1 + exp(beta x)) / beta`, and x itself where `beta x` is over the threshold.
    Softplus {
        /// How sharp the bend is.
        beta: f64 = 1.0,
        /// Where x itself is given.
        threshold: f64 = 20.0
    } = softplus;
    /// x brought between two bounds.
    Hardtanh {
        /// The lower bound.
        min_val: f64 = -1.0,
        /// The upper bound.
        max_val: f64 = 1.0
    } = hardtanh;
    /// 0 where x is between `-lambda` and `lambda`, else x.
    Hardshrink {
        /// The half width of the gap.
        lambda: f64 = 0.5
    } = hardshrink;
    /// x moved towards 0 by `lambda`, at most to it.
    Softshrink {
        /// How far.
        lambda: f64 = 0.5
    } = softshrink;
    /// x where it is over `threshold`, else `value`.
    Threshold {
        /// What x must be over.
        threshold: f64 = 0.0,
        /// What stands elsewhere.
        value: f64 = 0.0
    } = threshold;
    /// The first half along `dim`, each times the sigmoid of its place in the second half.
    Glu {
        /// The axis that is halved.
        dim: i64 = -1
    } = glu;
    /// The softmax along `dim`.
    Softmax {
        /// The axis whose values add up to 1.
        dim: i64 = -1
    } = softmax;
    /// The softmax of `-x` along `dim`.
    Softmin {
        /// The axis whose values add up to 1.
        dim: i64 = -1
    } = softmin;
    /// The logarithm of the softmax along `dim`.
    LogSoftmax {
        /// The axis whose exponentials add up to 1.
        dim: i64 = -1
    } = log_softmax;
}

/// x where it is positive, else `weight * x`, with a weight that is learned.
#[derive(Debug, Module)]
pub struct PRelu {
    /// `[1]`, or one a channel (axis 1).
    pub weight: Parameter,
}

impl PRelu {
    /// A layer of so many weights that start at 0.25.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(weights: usize, at: impl Into<Creation>) -> Result<PRelu> {
        Ok(PRelu { weight: init::constant(&[weights], 0.25, at)? })
    }

    /// The function of each element.
    ///
    /// # Errors
    /// If the number of weights is neither 1 nor that of the channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.prelu(&self.weight))
    }
}

layers!(PRelu);
