//! A transformer over the patches of an image.
//!
//! # Source
//! arXiv:2010.11929, with the mean of all patches instead of a class token.

use genesis_kernel::runtime::Device;

use super::Block;
use crate::error::Result;
use crate::nn::{Layer, LayerNorm, Linear, Module, ModuleList, Parameter, init};
use crate::tensor::Tensor;

/// Images of 28x28 to 10 classes, by 49 patches of 4x4.
#[derive(Module)]
pub struct Vit {
    embed: Linear,
    position: Parameter,
    blocks: ModuleList<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Vit {
    /// Pixels of an edge of a patch.
    const PATCH: usize = 4;
    /// Patches along an edge of the image.
    const GRID: usize = 28 / Vit::PATCH;
    const CHANNELS: usize = 64;

    /// A network of 4 blocks with random weights.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(device: Device) -> Result<Vit> {
        let (c, patches) = (Vit::CHANNELS, Vit::GRID * Vit::GRID);
        let block = |_| Block::new(c, 4, false, 0.0, device);
        Ok(Vit {
            embed: Linear::new(Vit::PATCH * Vit::PATCH, c, device)?,
            position: init::normal(&[patches, c], 0.0, 0.02, device)?,
            blocks: ModuleList((0..4).map(block).collect::<Result<_>>()?),
            norm: LayerNorm::new(c, device)?,
            head: Linear::new(c, 10, device)?,
        })
    }
}

impl Layer for Vit {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (b, grid, patch) = (x.dim(0)?, Vit::GRID, Vit::PATCH);
        let patches = x.reshape(&[b, grid, patch, grid, patch])?.transpose(2, 3)?;
        let patches = patches.reshape(&[b, grid * grid, patch * patch])?; // [B, T, 16]
        let mut h = self.embed.forward(&patches)?.add(&self.position)?; // [B, T, C]
        for block in &self.blocks.0 {
            h = block.forward(&h)?;
        }
        let mean = self.norm.forward(&h)?.mean_dims(&[1], false)?; // [B, C]
        self.head.forward(&mean) // [B, 10]
    }
}
