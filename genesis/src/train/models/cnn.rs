//! A small network of convolutions.

use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::nn::{Dropout, Layer, Linear, Module, Parameter, init};
use crate::ops::{Conv, Window};
use crate::tensor::Tensor;

/// A convolution of 3x3 that keeps the size.
#[derive(Module)]
struct Conv3x3 {
    weight: Parameter,
    bias: Parameter,
}

impl Conv3x3 {
    fn new(inputs: usize, outputs: usize, device: Device) -> Result<Conv3x3> {
        let bound = 1.0 / ((inputs * 9) as f64).sqrt();
        Ok(Conv3x3 {
            weight: init::uniform(&[outputs, inputs, 3, 3], -bound, bound, device)?,
            bias: init::uniform(&[outputs], -bound, bound, device)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let conv = Conv { padding: vec![[1, 1]; 2], ..Conv::new(2) };
        x.conv(&self.weight, Some(&self.bias), &conv)
    }
}

/// Two convolutions with pooling, then two fully connected layers: 28x28 images to 10 classes.
#[derive(Module)]
pub struct Cnn {
    conv1: Conv3x3,
    conv2: Conv3x3,
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
        Ok(Cnn {
            conv1: Conv3x3::new(1, 32, device)?,
            conv2: Conv3x3::new(32, 64, device)?,
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
