//! A variational autoencoder: images through a few numbers and back.
//!
//! # Source
//! arXiv:1312.6114.

use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::nn::{Linear, Module};
use crate::tensor::Tensor;

/// Images of 28x28 as 16 numbers, each with a spread, and images of such numbers.
#[derive(Module)]
pub struct Vae {
    encoder: Linear,
    mean: Linear,
    log_variance: Linear,
    decoder1: Linear,
    decoder2: Linear,
}

/// Where an image lies among the codes: `[B, 16]` each.
pub struct Code {
    /// The middle.
    pub mean: Tensor,
    /// The logarithm of the squared spread.
    pub log_variance: Tensor,
}

impl Vae {
    /// Numbers of a code.
    pub const CODE: usize = 16;

    /// A network with random weights.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(device: Device) -> Result<Vae> {
        Ok(Vae {
            encoder: Linear::new(784, 400, device)?,
            mean: Linear::new(400, Vae::CODE, device)?,
            log_variance: Linear::new(400, Vae::CODE, device)?,
            decoder1: Linear::new(Vae::CODE, 400, device)?,
            decoder2: Linear::new(400, 784, device)?,
        })
    }

    /// Where images `[B, 1, 28, 28]` lie.
    ///
    /// # Errors
    /// If the shape is another.
    pub fn encode(&self, images: &Tensor) -> Result<Code> {
        let h = self.encoder.forward(&images.flatten(1, -1)?)?.relu()?; // [B, 400]
        Ok(Code { mean: self.mean.forward(&h)?, log_variance: self.log_variance.forward(&h)? })
    }

    /// The logits of the pixels `[B, 784]` of codes `[B, 16]`.
    ///
    /// # Errors
    /// If the shape is another.
    pub fn decode(&self, code: &Tensor) -> Result<Tensor> {
        self.decoder2.forward(&self.decoder1.forward(code)?.relu()?)
    }

    /// The negative evidence bound of images, in nats an image: what their pixels cost given a code
    /// that is drawn, and what the code costs.
    ///
    /// # Errors
    /// If the shape is another.
    pub fn loss(&self, images: &Tensor) -> Result<Tensor> {
        let Code { mean, log_variance } = self.encode(images)?;
        let spread = log_variance.mul_scalar(0.5)?.exp()?;
        let noise = Tensor::randn(mean.shape(), mean.device())?;
        let logits = self.decode(&mean.add(&spread.mul(&noise)?)?)?; // [B, 784]
        let pixels = images.flatten(1, -1)?;
        // -log p: softplus(l) - x * l for a pixel that is on with probability sigmoid(l).
        let cost = logits.softplus(1.0, 20.0)?.sub(&pixels.mul(&logits)?)?.sum()?;
        let code = mean.square()?.add(&log_variance.exp()?)?.sub(&log_variance)?.sub_scalar(1.0)?;
        cost.add(&code.sum()?.mul_scalar(0.5)?)?.div_scalar(images.dim(0)? as f64)
    }
}
