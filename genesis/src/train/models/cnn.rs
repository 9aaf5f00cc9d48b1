//! A small network of convolutions.

use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::nn::{Conv2d, ConvOptions, ConvPadding, Dropout, Layer, Linear, Module};
use crate::ops::Window;
use crate::tensor::Tensor;

/// Two convolutions with pooling, then two fully connected layers: 28x28 images to 10 classes.
#[derive(Module)]
pub struct Cnn {
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    dropout: Dropout,
    fc2: Linear,
}

impl Cnn {
    /// A network with random weights.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(device: Device) -> Result<Cnn> {
        // Windows of 3x3 that keep the size.
        let options = ConvOptions { padding: ConvPadding::Same, ..ConvOptions::default() };
        Ok(Cnn {
            conv1: Conv2d::with([1, 32], 3, options, device)?,
            conv2: Conv2d::with([32, 64], 3, options, device)?,
            fc1: Linear::new(64 * 7 * 7, 128, device)?,
            dropout: Dropout::new(0.25),
            fc2: Linear::new(128, 10, device)?,
        })
    }
}

impl Layer for Cnn {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pool = |x: Tensor| Ok::<_, crate::Error>(x.max_pool(&Window::new(&[2, 2]))?.0);
        let h = pool(self.conv1.forward(x)?.relu()?)?; // [B, 32, 14, 14]
        let h = pool(self.conv2.forward(&h)?.relu()?)?; // [B, 64, 7, 7]
        let h = self.fc1.forward(&h.flatten(1, -1)?)?.relu()?; // [B, 128]
        self.fc2.forward(&self.dropout.forward(&h)?) // [B, 10]
    }
}
