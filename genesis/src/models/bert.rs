//! BERT with its head for masked tokens: an encoder, in which each token sees all.
//!
//! # Source
//! arXiv:1810.04805; the names and defaults of `transformers`.

use super::blueprint::Blueprint;
use super::encoder::{Dense, EncoderPlan, PostNormBlock};
use super::settings::Settings;
use crate::error::{Error, Result};
use crate::nn::{Embedding, LayerNorm, Linear, Module, Parameter, watch};
use crate::ops::Activation;
use crate::tensor::Tensor;

/// Sums of what a token, its position and its segment are, normed.
#[derive(Debug, Module)]
pub struct BertEmbeddings {
    /// `[V, C]`
    pub word_embeddings: Embedding,
    /// `[P, C]`
    pub position_embeddings: Embedding,
    /// `[segments, C]`
    pub token_type_embeddings: Embedding,
    /// Behind the sum.
    #[module(name = "LayerNorm")]
    pub norm: LayerNorm,
}

/// The layers, under their published name.
#[derive(Debug, Module)]
pub struct BertEncoder {
    /// In order.
    pub layer: Vec<PostNormBlock>,
}

/// Embeddings and layers.
#[derive(Debug, Module)]
pub struct BertModel {
    /// Before the layers.
    pub embeddings: BertEmbeddings,
    /// The layers.
    pub encoder: BertEncoder,
    /// What makes one vector of a text, where the file has it.
    pub pooler: Option<Dense>,
}

/// What the head does before its product.
#[derive(Debug, Module)]
pub struct BertTransform {
    /// `[C, C]`
    pub dense: Linear,
    /// Behind the activation.
    #[module(name = "LayerNorm")]
    pub norm: LayerNorm,
}

/// The head for masked tokens.
#[derive(Debug, Module)]
pub struct BertPredictions {
    /// Before the product.
    pub transform: BertTransform,
    /// `[V, C]`, the embedding's own, and `[V]`.
    pub decoder: Linear,
    /// The decoder's bias by the name under which it is published.
    pub bias: Parameter,
}

/// Heads, under their published name.
#[derive(Debug, Module)]
pub struct BertHeads {
    /// For masked tokens.
    pub predictions: BertPredictions,
}

/// A BERT with its head for masked tokens.
#[derive(Debug, Module)]
pub struct Bert {
    /// All but the head.
    pub bert: BertModel,
    /// The head.
    pub cls: BertHeads,
    /// The function of feed-forward layers and of the head.
    #[module(skip)]
    pub activation: Activation,
}

impl Bert {
    /// The hidden states behind the last layer.
    ///
    /// `kinds` are the segments of tokens, all 0 where absent; where `mask` is 0, nobody looks.
    ///
    /// # Shapes
    /// `tokens`, `kinds` and `mask` are `[B, T]` and give `[B, T, C]`.
    /// # Errors
    /// If a token or a segment is out of range, or there are more tokens than positions.
    pub fn hidden(
        &self,
        tokens: &Tensor,
        kinds: Option<&Tensor>,
        mask: Option<&Tensor>,
    ) -> Result<Tensor> {
        let embeddings = &self.bert.embeddings;
        let (length, positions) = (tokens.dim(-1)?, &embeddings.position_embeddings.weight);
        if tokens.rank() != 2 || length > positions.shape()[0] {
            let (shape, most) = (tokens.shape(), positions.shape()[0]);
            return Err(Error::op("bert", format!("tokens {shape:?} are not [B, at most {most}]")));
        }
        watch(&self.bert, || {
            let kinds = match kinds {
                Some(kinds) => embeddings.token_type_embeddings.forward(kinds)?,
                None => embeddings.token_type_embeddings.weight.narrow(0, 0, 1)?,
            };
            let x = embeddings.word_embeddings.forward(tokens)?.add(&kinds)?;
            let x = x.add(&positions.narrow(0, 0, length)?)?;
            let mut x = embeddings.norm.forward(&x)?;
            let mask = mask.map(|mask| mask.to_bool()?.unflatten(0, &[-1, 1, 1])).transpose()?;
            for block in &self.bert.encoder.layer {
                x = block.forward(&x, mask.as_ref())?;
            }
            Ok(x)
        })
    }

    /// Logits of hidden states, `[.., C]` to `[.., V]`.
    ///
    /// # Errors
    /// If the channels are others.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let head = &self.cls.predictions;
        let x = self.activation.apply(&head.transform.dense.forward(hidden)?)?;
        head.decoder.forward(&head.transform.norm.forward(&x)?)
    }

    /// One vector of each text, `[B, T, C]` to `[B, C]`.
    ///
    /// # Errors
    /// If the file had no pooler.
    pub fn pooled(&self, hidden: &Tensor) -> Result<Tensor> {
        let missing = || Error::op("bert", "the model has no pooler");
        self.bert.pooler.as_ref().ok_or_else(missing)?.dense.forward(&hidden.select(1, 0)?)?.tanh()
    }
}

/// A BERT by its configuration.
pub(super) fn bert(settings: &mut Settings, plan: &Blueprint) -> Result<Bert> {
    let of = EncoderPlan::read(settings)?;
    settings.only("is_decoder", false)?;
    settings.only("add_cross_attention", false)?;
    settings.only("position_embedding_type", "absolute")?;
    settings.only("tie_word_embeddings", true)?;
    let vocabulary = settings.size("vocab_size", 30_522)?;
    let positions = settings.size("max_position_embeddings", 512)?;
    let segments = settings.size("type_vocab_size", 2)?;
    let embeddings = BertEmbeddings {
        word_embeddings: plan.embedding(vocabulary, of.channels)?,
        position_embeddings: plan.embedding(positions, of.channels)?,
        token_type_embeddings: plan.embedding(segments, of.channels)?,
        norm: plan.layer_norm(of.channels, of.eps)?,
    };
    let layer = (0..of.layers).map(|_| of.post_norm(plan)).collect::<Result<_>>()?;
    let pooler = plan.has("pooler.dense.weight").then(|| of.dense(plan)).transpose()?;
    let bias = plan.parameter(&[vocabulary])?;
    let decoder =
        Linear { weight: embeddings.word_embeddings.weight.clone(), bias: Some(bias.clone()) };
    let transform = BertTransform {
        dense: plan.linear([of.channels, of.channels], true)?,
        norm: plan.layer_norm(of.channels, of.eps)?,
    };
    let predictions = BertPredictions { transform, decoder, bias };
    let bert = BertModel { embeddings, encoder: BertEncoder { layer }, pooler };
    Ok(Bert { bert, cls: BertHeads { predictions }, activation: of.activation })
}
