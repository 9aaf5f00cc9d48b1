//! Layers of transformers, and stacks of them, with PyTorch's names.

use super::{
    Attend, Dropout, LayerNorm, LayerNormOptions, Linear, Module, MultiheadAttention,
    MultiheadAttentionOptions, init, watch,
};
use crate::error::Result;
use crate::ops::Activation;
use crate::tensor::{Creation, Tensor};

/// What transformer layers are made with.
#[derive(Clone, Copy, Debug)]
pub struct TransformerOptions {
    /// The width of the feed-forward part.
    pub dim_feedforward: usize,
    /// The probability of dropout, in all its places.
    pub dropout: f64,
    /// The function between the two linear layers.
    pub activation: Activation,
    /// Added to variances in the norms.
    pub layer_norm_eps: f64,
    /// Whether tensors are `[N, L, E]` and not `[L, N, E]`.
    pub batch_first: bool,
    /// Whether norms stand before attention and feed-forward, and not after the sums.
    pub norm_first: bool,
    /// Whether linear layers and norms have biases.
    pub bias: bool,
}

impl Default for TransformerOptions {
    fn default() -> TransformerOptions {
        TransformerOptions {
            dim_feedforward: 2048,
            dropout: 0.1,
            activation: Activation::Relu,
            layer_norm_eps: 1e-5,
            batch_first: false,
            norm_first: false,
            bias: true,
        }
    }
}

impl TransformerOptions {
    fn attention(&self, d: usize, heads: usize, at: Creation) -> Result<MultiheadAttention> {
        let options = MultiheadAttentionOptions {
            dropout: self.dropout,
            bias: self.bias,
            batch_first: self.batch_first,
            ..MultiheadAttentionOptions::default()
        };
        MultiheadAttention::with(d, heads, options, at)
    }

    fn norm(&self, d: usize, at: Creation) -> Result<LayerNorm> {
        let options = LayerNormOptions {
            eps: self.layer_norm_eps,
            bias: self.bias,
            ..LayerNormOptions::default()
        };
        LayerNorm::with(d, options, at)
    }

    fn linear(&self, inputs: usize, outputs: usize, at: Creation) -> Result<Linear> {
        match self.bias {
            true => Linear::new(inputs, outputs, at),
            false => Linear::without_bias(inputs, outputs, at),
        }
    }
}

/// The masks of a sequence that attends to one; see [`Attend`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Masks<'t> {
    /// `[L, S]` or `[N * heads, L, S]`, true where a query does not look, or floats to add.
    pub mask: Option<&'t Tensor>,
    /// `[N, S]`, true where a key is padding, or floats to add.
    pub key_padding: Option<&'t Tensor>,
    /// Whether a query looks at the keys up to its own place only.
    pub is_causal: bool,
}

impl<'t> Masks<'t> {
    fn attend(&self) -> Attend<'t> {
        Attend {
            key_padding_mask: self.key_padding,
            attn_mask: self.mask,
            is_causal: self.is_causal,
            need_weights: false,
            average_attn_weights: false,
        }
    }
}

/// Self-attention and feed-forward, each with its residual and its norm.
#[derive(Debug, Module)]
pub struct TransformerEncoderLayer {
    /// The attention of the sequence to itself.
    pub self_attn: MultiheadAttention,
    /// The first linear layer of the feed-forward part.
    pub linear1: Linear,
    /// Between the linear layers.
    pub dropout: Dropout,
    /// The second linear layer of the feed-forward part.
    pub linear2: Linear,
    /// The norm of the attention.
    pub norm1: LayerNorm,
    /// The norm of the feed-forward part.
    pub norm2: LayerNorm,
    /// After the attention.
    pub dropout1: Dropout,
    /// After the feed-forward part.
    pub dropout2: Dropout,
    /// What it was made with.
    #[module(skip)]
    pub options: TransformerOptions,
}

impl TransformerEncoderLayer {
    /// A layer over `d_model` channels with `heads` heads.
    ///
    /// # Errors
    /// If the heads do not divide the channels, or memory runs out.
    pub fn new(
        d_model: usize,
        heads: usize,
        options: TransformerOptions,
        at: impl Into<Creation>,
    ) -> Result<TransformerEncoderLayer> {
        let (d, at) = (d_model, at.into());
        Ok(TransformerEncoderLayer {
            self_attn: options.attention(d, heads, at)?,
            linear1: options.linear(d, options.dim_feedforward, at)?,
            dropout: Dropout::new(options.dropout),
            linear2: options.linear(options.dim_feedforward, d, at)?,
            norm1: options.norm(d, at)?,
            norm2: options.norm(d, at)?,
            dropout1: Dropout::new(options.dropout),
            dropout2: Dropout::new(options.dropout),
            options,
        })
    }

    /// The sequence after the layer, of the same shape.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(&self, x: &Tensor, masks: &Masks<'_>) -> Result<Tensor> {
        watch(self, || {
            let attend = |x: &Tensor| {
                let (y, _) = self.self_attn.forward(x, x, x, &masks.attend())?;
                self.dropout1.forward(&y)
            };
            let feed = |x: &Tensor| {
                let h = self.linear1.forward_with(x, self.options.activation)?;
                self.dropout2.forward(&self.linear2.forward(&self.dropout.forward(&h)?)?)
            };
            let first = self.options.norm_first;
            with_norms(x, first, &[(&self.norm1, &attend), (&self.norm2, &feed)])
        })
    }
}

/// A part of a layer and its norm.
type Part<'a> = (&'a LayerNorm, &'a dyn Fn(&Tensor) -> Result<Tensor>);

/// The parts one after the other: `x = x + f(norm(x))`, or `x = norm(x + f(x))`. A sum and the norm behind it are one launch.
fn with_norms(x: &Tensor, is_first: bool, parts: &[Part<'_>]) -> Result<Tensor> {
    let mut x = x.clone();
    if !is_first {
        for (norm, part) in parts {
            x = norm.after_add(&x, &part(&x)?)?.1;
        }
        return Ok(x);
    }
    let mut added: Option<Tensor> = None;
    for (norm, part) in parts {
        let (sum, y) = norm.for_products(&x, added.as_ref())?;
        (x, added) = (sum, Some(part(&y)?));
    }
    added.map_or(Ok(x.clone()), |added| x.add(&added))
}

/// Self-attention, attention to an encoder's output, and feed-forward, each with its residual and its
/// norm.
#[derive(Debug, Module)]
pub struct TransformerDecoderLayer {
    /// The attention of the sequence to itself.
    pub self_attn: MultiheadAttention,
    /// The attention to the encoder's output.
    pub multihead_attn: MultiheadAttention,
    /// The first linear layer of the feed-forward part.
    pub linear1: Linear,
    /// Between the linear layers.
    pub dropout: Dropout,
    /// The second linear layer of the feed-forward part.
    pub linear2: Linear,
    /// The norm of the self-attention.
    pub norm1: LayerNorm,
    /// The norm of the attention to the encoder's output.
    pub norm2: LayerNorm,
    /// The norm of the feed-forward part.
    pub norm3: LayerNorm,
    /// After the self-attention.
    pub dropout1: Dropout,
    /// After the attention to the encoder's output.
    pub dropout2: Dropout,
    /// After the feed-forward part.
    pub dropout3: Dropout,
    /// What it was made with.
    #[module(skip)]
    pub options: TransformerOptions,
}

impl TransformerDecoderLayer {
    /// A layer over `d_model` channels with `heads` heads.
    ///
    /// # Errors
    /// If the heads do not divide the channels, or memory runs out.
    pub fn new(
        d_model: usize,
        heads: usize,
        options: TransformerOptions,
        at: impl Into<Creation>,
    ) -> Result<TransformerDecoderLayer> {
        let (d, at) = (d_model, at.into());
        let dropout = || Dropout::new(options.dropout);
        Ok(TransformerDecoderLayer {
            self_attn: options.attention(d, heads, at)?,
            multihead_attn: options.attention(d, heads, at)?,
            linear1: options.linear(d, options.dim_feedforward, at)?,
            dropout: dropout(),
            linear2: options.linear(options.dim_feedforward, d, at)?,
            norm1: options.norm(d, at)?,
            norm2: options.norm(d, at)?,
            norm3: options.norm(d, at)?,
            dropout1: dropout(),
            dropout2: dropout(),
            dropout3: dropout(),
            options,
        })
    }

    /// The sequence after the layer, of the same shape; `memory` is the encoder's output.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        masks: &Masks<'_>,
        memory_masks: &Masks<'_>,
    ) -> Result<Tensor> {
        watch(self, || {
            let attend = |x: &Tensor| {
                let (y, _) = self.self_attn.forward(x, x, x, &masks.attend())?;
                self.dropout1.forward(&y)
            };
            let cross = |x: &Tensor| {
                let attend = memory_masks.attend();
                let (y, _) = self.multihead_attn.forward(x, memory, memory, &attend)?;
                self.dropout2.forward(&y)
            };
            let feed = |x: &Tensor| {
                let h = self.linear1.forward_with(x, self.options.activation)?;
                self.dropout3.forward(&self.linear2.forward(&self.dropout.forward(&h)?)?)
            };
            let first = self.options.norm_first;
            let (norm1, norm2, norm3) = (&self.norm1, &self.norm2, &self.norm3);
            with_norms(x, first, &[(norm1, &attend), (norm2, &cross), (norm3, &feed)])
        })
    }
}

/// Encoder layers in a row, and perhaps a norm.
#[derive(Debug, Module)]
pub struct TransformerEncoder {
    /// The layers.
    pub layers: Vec<TransformerEncoderLayer>,
    /// After the last layer.
    pub norm: Option<LayerNorm>,
}

impl TransformerEncoder {
    /// `count` layers, each started by itself, without a norm at the end.
    ///
    /// # Errors
    /// As [`TransformerEncoderLayer::new`].
    pub fn new(
        count: usize,
        d_model: usize,
        heads: usize,
        options: TransformerOptions,
        at: impl Into<Creation>,
    ) -> Result<TransformerEncoder> {
        let at = at.into();
        init::check_layers("transformer_encoder", count)?;
        let layer = |_| TransformerEncoderLayer::new(d_model, heads, options, at);
        Ok(TransformerEncoder { layers: (0..count).map(layer).collect::<Result<_>>()?, norm: None })
    }

    /// The sequence after all layers.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(&self, x: &Tensor, masks: &Masks<'_>) -> Result<Tensor> {
        watch(self, || {
            let x = self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x, masks))?;
            self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
        })
    }
}

/// Decoder layers in a row, and perhaps a norm.
#[derive(Debug, Module)]
pub struct TransformerDecoder {
    /// The layers.
    pub layers: Vec<TransformerDecoderLayer>,
    /// After the last layer.
    pub norm: Option<LayerNorm>,
}

impl TransformerDecoder {
    /// `count` layers, each started by itself, without a norm at the end.
    ///
    /// # Errors
    /// As [`TransformerDecoderLayer::new`].
    pub fn new(
        count: usize,
        d_model: usize,
        heads: usize,
        options: TransformerOptions,
        at: impl Into<Creation>,
    ) -> Result<TransformerDecoder> {
        let at = at.into();
        init::check_layers("transformer_decoder", count)?;
        let layer = |_| TransformerDecoderLayer::new(d_model, heads, options, at);
        Ok(TransformerDecoder { layers: (0..count).map(layer).collect::<Result<_>>()?, norm: None })
    }

    /// The sequence after all layers.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(
        &self,
        x: &Tensor,
        memory: &Tensor,
        masks: &Masks<'_>,
        memory_masks: &Masks<'_>,
    ) -> Result<Tensor> {
        watch(self, || {
            let step = |x: Tensor, layer: &TransformerDecoderLayer| {
                layer.forward(&x, memory, masks, memory_masks)
            };
            let x = self.layers.iter().try_fold(x.clone(), step)?;
            self.norm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x))
        })
    }
}

/// An encoder and a decoder that looks at its output.
///
/// # Source
/// arXiv:1706.03762; same convention as `torch.nn.Transformer`.
#[derive(Debug, Module)]
pub struct Transformer {
    /// Reads the source.
    pub encoder: TransformerEncoder,
    /// Writes the target.
    pub decoder: TransformerDecoder,
}

impl Transformer {
    /// `counts` layers of the encoder and the decoder, each stack with a norm at its end, and Glorot's
    /// rule for every matrix.
    ///
    /// # Errors
    /// As [`TransformerEncoderLayer::new`].
    pub fn new(
        counts: [usize; 2],
        d_model: usize,
        heads: usize,
        options: TransformerOptions,
        at: impl Into<Creation>,
    ) -> Result<Transformer> {
        let at = at.into();
        let mut encoder = TransformerEncoder::new(counts[0], d_model, heads, options, at)?;
        let mut decoder = TransformerDecoder::new(counts[1], d_model, heads, options, at)?;
        encoder.norm = Some(options.norm(d_model, at)?);
        decoder.norm = Some(options.norm(d_model, at)?);
        let transformer = Transformer { encoder, decoder };
        for parameter in transformer.parameters() {
            if parameter.rank() > 1 {
                init::xavier_uniform_(&parameter, 1.0)?;
            }
        }
        Ok(transformer)
    }

    /// The target after all layers; the padding of the source is that of `masks[0]`.
    ///
    /// `masks` are those of the source to itself, the target to itself, and the target to the source.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(
        &self,
        source: &Tensor,
        target: &Tensor,
        masks: &[Masks<'_>; 3],
    ) -> Result<Tensor> {
        watch(self, || {
            let memory = self.encoder.forward(source, &masks[0])?;
            self.decoder.forward(target, &memory, &masks[1], &masks[2])
        })
    }

    /// The mask of a causal sequence: 0 up to the diagonal, minus infinity above it.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn generate_square_subsequent_mask(n: usize, at: impl Into<Creation>) -> Result<Tensor> {
        Tensor::full(&[n, n], f64::NEG_INFINITY, at)?.triu(1)
    }
}
