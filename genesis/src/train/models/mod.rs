//! The models of the samples, written to be read and copied.

mod cnn;
mod gpt;
mod transformer;
mod vae;
mod vit;

use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::nn::{Dropout, Flatten, Linear, Relu, Sequential};

pub use cnn::Cnn;
pub use gpt::{Gpt, GptOptions};
pub use transformer::{Block, SelfAttention};
pub use vae::Vae;
pub use vit::Vit;

/// 784 - 256 - 128 - 10 with ReLU and dropout, for images of 28x28.
///
/// # Errors
/// If memory runs out.
pub fn mlp(device: Device) -> Result<Sequential> {
    Ok(Sequential::new()
        .with(Flatten::new())
        .with(Linear::new(784, 256, device)?)
        .with(Relu)
        .with(Dropout::new(0.1))
        .with(Linear::new(256, 128, device)?)
        .with(Relu)
        .with(Linear::new(128, 10, device)?))
}
