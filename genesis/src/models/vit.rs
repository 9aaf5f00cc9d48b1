//! ViT with a classifier: a picture is cut into squares, which are the tokens of an encoder.
//!
//! # Source
//! arXiv:2010.11929; the names and defaults of `transformers`.

use serde_json::Value;

use super::blueprint::Blueprint;
use super::encoder::{Dense, EncoderAttention, EncoderPlan};
use super::residual::{Residual, watch_block};
use super::settings::Settings;
use crate::error::{Error, Result};
use crate::nn::{LayerNorm, Linear, Module, Parameter, watch};
use crate::ops::{Activation, Conv};
use crate::tensor::Tensor;

/// A product of each square's pixels.
#[derive(Debug, Module)]
pub struct PatchProjection {
    /// `[C, colours, rows, columns]`
    pub weight: Parameter,
    /// `[C]`
    pub bias: Parameter,
}

/// Squares as vectors, under their published name.
#[derive(Debug, Module)]
pub struct PatchEmbeddings {
    /// The product.
    pub projection: PatchProjection,
}

/// What stands before the layers.
#[derive(Debug, Module)]
pub struct VitEmbeddings {
    /// The token before the squares, `[1, 1, C]`.
    pub cls_token: Parameter,
    /// `[1, squares + 1, C]`
    pub position_embeddings: Parameter,
    /// The squares.
    pub patch_embeddings: PatchEmbeddings,
}

/// Attention and the product behind it, as ViT names them.
#[derive(Debug, Module)]
pub struct VitAttention {
    /// What each token sees.
    pub attention: EncoderAttention,
    /// Behind it.
    pub output: Dense,
}

/// Norm, attention, add; norm, feed-forward layer, add.
#[derive(Debug, Module)]
pub struct VitBlock {
    /// What looks at other tokens.
    pub attention: VitAttention,
    /// The first product of the feed-forward layer.
    pub intermediate: Dense,
    /// The second one.
    pub output: Dense,
    /// Before the attention.
    pub layernorm_before: LayerNorm,
    /// Before the feed-forward layer.
    pub layernorm_after: LayerNorm,
}

/// The layers, under their published name.
#[derive(Debug, Module)]
pub struct VitEncoder {
    /// In order.
    pub layer: Vec<VitBlock>,
}

/// Embeddings, layers and norm.
#[derive(Debug, Module)]
pub struct VitModel {
    /// Before the layers.
    pub embeddings: VitEmbeddings,
    /// The layers.
    pub encoder: VitEncoder,
    /// Behind the last layer.
    pub layernorm: LayerNorm,
    /// What makes one vector of a picture, where the file has it; the classifier goes without.
    pub pooler: Option<Dense>,
}

/// A ViT with a classifier.
#[derive(Debug, Module)]
pub struct Vit {
    /// All but the classifier.
    pub vit: VitModel,
    /// `[classes, C]`
    pub classifier: Linear,
    /// The function of feed-forward layers.
    #[module(skip)]
    pub activation: Activation,
    /// Rows and columns of pictures.
    pub image_size: [usize; 2],
}

impl Vit {
    /// The hidden states behind the last norm; the first is that of the picture.
    ///
    /// # Shapes
    /// `pixels: [B, colours, rows, columns]` gives `[B, squares + 1, C]`.
    /// # Errors
    /// If the picture has another size.
    pub fn hidden(&self, pixels: &Tensor) -> Result<Tensor> {
        let embeddings = &self.vit.embeddings;
        let PatchProjection { weight, bias } = &embeddings.patch_embeddings.projection;
        if pixels.rank() != 4 || pixels.shape()[2..] != self.image_size {
            let (shape, [rows, columns]) = (pixels.shape(), self.image_size);
            let message = format!("pixels {shape:?} are not [B, colours, {rows}, {columns}]");
            return Err(Error::op("vit", message));
        }
        watch(&self.vit, || {
            let cut = Conv { stride: weight.shape()[2..].to_vec(), ..Conv::new(2) };
            let squares = pixels.conv(weight, Some(bias), &cut)?; // [B, C, rows, columns]
            let squares = squares.flatten(2, -1)?.transpose(1, 2)?; // [B, squares, C]
            let shape = [squares.dim(0)?, 1, squares.dim(2)?];
            let first = embeddings.cls_token.broadcast_to(&shape)?;
            let x = Tensor::cat(&[&first, &squares], 1)?;
            let mut x = Residual::new(x.add(&embeddings.position_embeddings)?);
            for block in &self.vit.encoder.layer {
                x = block.forward(x, self.activation)?;
            }
            x.normed(&self.vit.layernorm)
        })
    }

    /// Logits of hidden states, `[B, squares + 1, C]` to `[B, classes]`.
    ///
    /// # Errors
    /// If the channels are others.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.classifier.forward(&hidden.select(1, 0)?)
    }
}

impl VitBlock {
    fn forward(&self, x: Residual, activation: Activation) -> Result<Residual> {
        watch_block(self, || {
            let (x, normed) = x.for_products(&self.layernorm_before)?;
            let seen = self.attention.attention.forward(&normed, None)?;
            let x = x.plus(self.attention.output.dense.forward(&seen)?)?;
            let (x, normed) = x.for_products(&self.layernorm_after)?;
            let hidden = activation.apply(&self.intermediate.dense.forward(&normed)?)?;
            x.plus(self.output.dense.forward(&hidden)?)
        })
    }

    fn new(plan: &Blueprint, of: &EncoderPlan, bias: bool) -> Result<VitBlock> {
        Ok(VitBlock {
            attention: VitAttention {
                attention: of.attention(plan, bias)?,
                output: of.dense(plan)?,
            },
            intermediate: Dense { dense: plan.linear([of.channels, of.hidden], true)? },
            output: Dense { dense: plan.linear([of.hidden, of.channels], true)? },
            layernorm_before: plan.layer_norm(of.channels, of.eps)?,
            layernorm_after: plan.layer_norm(of.channels, of.eps)?,
        })
    }
}

/// A ViT by its configuration.
pub(super) fn vit(settings: &mut Settings, plan: &Blueprint) -> Result<Vit> {
    let of = EncoderPlan::read(settings)?;
    let colours = settings.size("num_channels", 3)?;
    let (image, patch) =
        (extents(settings, "image_size", 224)?, extents(settings, "patch_size", 16)?);
    let bias = settings.flag("qkv_bias", true)?;
    let classes = match (settings.peek("id2label"), settings.peek("num_labels")) {
        (Some(Value::Object(labels)), _) => labels.len(),
        (_, Some(count)) => count.as_u64().unwrap_or(2) as usize,
        _ => 2,
    };
    // The pooler's; the classifier goes without.
    settings.take("pooler_act");
    settings.take("pooler_output_size");
    let squares = (image[0] / patch[0]).saturating_mul(image[1] / patch[1]);
    let weight = plan.parameter(&[of.channels, colours, patch[0], patch[1]])?;
    let projection = PatchProjection { weight, bias: plan.parameter(&[of.channels])? };
    let embeddings = VitEmbeddings {
        cls_token: plan.parameter(&[1, 1, of.channels])?,
        position_embeddings: plan.parameter(&[1, squares.saturating_add(1), of.channels])?,
        patch_embeddings: PatchEmbeddings { projection },
    };
    let layer = (0..of.layers).map(|_| VitBlock::new(plan, &of, bias)).collect::<Result<_>>()?;
    let vit = VitModel {
        embeddings,
        encoder: VitEncoder { layer },
        layernorm: plan.layer_norm(of.channels, of.eps)?,
        pooler: plan.has("pooler.dense.weight").then(|| of.dense(plan)).transpose()?,
    };
    let classifier = plan.linear([of.channels, classes], true)?;
    Ok(Vit { vit, classifier, activation: of.activation, image_size: image })
}

/// An extent of both axes, or one each.
fn extents(settings: &mut Settings, key: &str, usual: usize) -> Result<[usize; 2]> {
    if !settings.peek(key).is_some_and(Value::is_array) {
        return settings.size(key, usual).map(|extent| [extent; 2]);
    }
    match settings.numbers_if(key)?.as_deref() {
        Some(&[rows, columns]) if rows >= 1.0 && columns >= 1.0 => {
            Ok([rows as usize, columns as usize])
        }
        _ => Err(settings.refusal(format!("{key} must be one extent or two"))),
    }
}
