//! Modules from one tensor to one tensor, which can stand in a row.

use super::Module;
use super::summary::Summary;
use crate::error::Result;
use crate::tensor::Tensor;

/// A module that gives a tensor for a tensor, so that it can stand in a
/// [`Sequential`](super::Sequential).
///
/// Layers of this library also have `forward` as a method of their own: this trait needs no import to
/// call it. Modules of other signatures, such as attention, have only that.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer: it does not give a tensor for a tensor",
    note = "write `impl Layer for {Self}` with `fn forward(&self, x: &Tensor) -> Result<Tensor>`"
)]
pub trait Layer: Module {
    /// The output for an input.
    ///
    /// # Errors
    /// If the input does not fit the layer.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// A table of this layer for an input of zeros of a shape, of the dtype and on the device of its
    /// first parameter.
    ///
    /// # Examples
    /// ```
    /// use genesis::nn::{Layer, Linear, Relu, Sequential};
    /// use genesis::Device;
    ///
    /// let net = Sequential::new()
    ///     .with(Linear::new(784, 256, Device::Cpu)?)
    ///     .with(Relu)
    ///     .with(Linear::new(256, 10, Device::Cpu)?);
    /// let summary = net.summary(&[32, 784])?;
    /// assert_eq!(summary.parameters, 784 * 256 + 256 + 256 * 10 + 10);
    /// assert_eq!(summary.rows[1].output, Some(vec![32, 256]));
    /// println!("{summary}");
    /// # Ok::<(), genesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input does not fit the layer.
    fn summary(&self, input: &[usize]) -> Result<Summary> {
        let parameters = self.parameters();
        let x = match parameters.first() {
            Some(first) => Tensor::zeros(input, (first.dtype(), first.device()))?,
            None => Tensor::zeros(input, ())?,
        };
        self.summary_of(&mut || self.forward(&x).map(drop))
    }
}

impl<L: Layer + ?Sized> Layer for Box<L> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (**self).forward(x)
    }
}

/// Makes modules layers by their own `forward`.
macro_rules! layers {
    ($($name:ty),+ $(,)?) => {$(
        impl $crate::nn::Layer for $name {
            fn forward(&self, x: &$crate::Tensor) -> $crate::Result<$crate::Tensor> {
                <$name>::forward(self, x)
            }
        }
    )+};
}
pub(super) use layers;
