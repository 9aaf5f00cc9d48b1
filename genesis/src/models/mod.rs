//! Language models as they are published, one readable file each, and what they are made of.
//!
//! A model is a [`Module`] whose names are those of its published weights. The same layers run in two ways,
//! told apart by the [`Pass`] that is handed down: *whole* sequences, as rows `[B, T]` or [`Packed`] one after the
//! other, which is what training and scoring do, and a *paged* batch of new tokens, which is what generation does.
//! A paged batch is packed too: the
//! new tokens of several sequences stand one after the other, however many each has, and all older keys and
//! values are in a [`KvCache`].
//!
//! ```text
//! sequence 0: 5 tokens cached, 1 new      tokens     t5 | u0 u1 u2          [N] = [4]
//! sequence 1: 3 new ones                  positions   5 |  0  1  2
//!                                         slots      37 | 64 65 66          page * page_size + offset
//!                                         query_starts 0, 1, 4              [S + 1]
//!                                         key_lengths  6, 3                 [S]
//!                                         pages      [[1, 2], [4, _]]       [S, P]
//! ```
//!
//! | `model_type` | file | what is its own |
//! |---|---|---|
//! | llama, mistral | `llama.rs` | biases; a window |
//! | qwen2 | `qwen2.rs` | biases of queries, keys, values; windows in later layers |
//! | qwen3 | `qwen3.rs` | norms of heads |
//! | qwen3_moe | `qwen3_moe.rs` | experts |
//! | gemma2 | `gemma2.rs` | four norms a layer, every other layer with a window, soft caps |
//! | gemma3_text, gemma3 | `gemma3.rs` | norms of heads, two bases of rotary positions |
//! | gpt2 | `gpt2.rs` | learned positions, transposed weights |
//! | bert, vit | `bert.rs`, `vit.rs` | encoders, which generate nothing |
//!
//! [`load`] reads all of them from a folder of Hugging Face or a GGUF file. A setting of `config.json` is used,
//! or known not to matter, or refused by its name.

mod adapter;
mod attend;
mod attention;
pub mod bert;
mod blueprint;
mod decoder;
pub mod encoder;
mod fix;
mod gemma2;
mod gemma3;
mod gguf;
pub mod gpt2;
mod initial;
mod layer_checkpoints;
mod llama;
mod load;
mod loading;
mod mlp;
mod naming;
mod norm;
mod normed;
mod packed;
mod paged;
mod projection;
mod qwen2;
mod qwen3;
mod qwen3_moe;
mod residual;
mod rope;
mod rotation;
mod save;
mod save_gguf;
mod settings;
mod shards;
mod shared;
mod sizes;
mod stream_norm;
mod tensor_parallel;
pub mod vit;
mod weight_form;

pub use adapter::{load_adapter, save_adapter};
pub use attend::Attend;
pub use attention::{Context, SelfAttention};
pub use bert::Bert;
pub use decoder::{Block, Decoder, DecoderLm, DecoderOptions, FeedForwardLayer, PreNormBlock};
pub use gemma2::{Gemma, SandwichBlock};
pub use gpt2::Gpt2;
pub use initial::{initialize, outline_of};
pub use layer_checkpoints::checkpoint_layers;
pub use llama::Llama;
pub use load::{LoadOptions, Loaded, ModelConfig, load, load_bert, load_vit, outline};
pub use mlp::GatedMlp;
pub use norm::Norm;
pub use normed::Normed;
pub use packed::{ContextParts, Packed};
pub use paged::{Batch, Ends, KvCache, KvShape, Pass};
pub use projection::Projection;
pub use qwen3_moe::{Experts, FeedForward, Qwen3Moe};
pub use residual::Residual;
pub use rope::{Rope, RopeKind, RopeSettings, Yarn};
pub use rotation::Rotation;
pub use save::save;
pub(crate) use save::save_by;
pub use save_gguf::save_gguf;
pub use shared::SharedModel;
pub use tensor_parallel::TensorParallel;
pub use vit::Vit;
pub use weight_form::WeightForm;

use std::sync::Arc;

use crate::distributed::Sharding;
use crate::error::{Error, Result};
use crate::nn::Module;
use crate::ops::Reduction;
use crate::tensor::Tensor;

/// One of the stages that the layers of a model are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Its number.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl Stage {
    /// Whether it embeds tokens.
    pub fn is_first(self) -> bool {
        self.index == 0
    }

    /// Whether it has the head.
    pub fn is_last(self) -> bool {
        self.index + 1 == self.count
    }
}

/// A decoder-only language model that generation can drive.
pub trait CausalLm: Module {
    /// The number of tokens that logits are over, padding of the embedding included.
    fn vocab_size(&self) -> usize;

    /// The most positions that the model was made for.
    fn max_positions(&self) -> usize;

    /// The keys and values that each layer caches.
    fn kv_shape(&self) -> KvShape;

    /// The hidden states behind the last norm.
    ///
    /// # Shapes
    /// Whole: `tokens: [B, T]` gives `[B, T, C]`. Packed: `tokens: [N]` gives `[N, C]`. Paged: `tokens: [N]` gives `[N, C]`, and keys and values
    /// of the tokens are written to the cache. Where [`Batch::ends`] are given it may give those of the `S` last tokens
    /// alone, `[S, C]`.
    /// A later stage takes hidden states in the place of tokens, and all stages but the last give those behind their last
    /// layer.
    /// # Errors
    /// If a token or a position is out of range, or a launch fails.
    fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor>;

    /// Lays weights out so that products of the same inputs are one: those of queries, keys and values one after the other,
    /// and those of a gate and what it lets through. Names and values stay, and what is trained is trained part by part;
    /// [`load`] and [`initialize`] do it. Where parts are moved, converted, adapted, cut or observed by themselves, or only
    /// some are trained, they are products of their own again.
    ///
    /// # Errors
    /// If memory runs out.
    fn pack(&mut self) -> Result<()> {
        Ok(())
    }

    /// Logits of hidden states, `[.., C]` to `[.., V]`.
    ///
    /// # Errors
    /// If the channels are others, or a launch fails.
    fn logits(&self, hidden: &Tensor) -> Result<Tensor>;

    /// The cross entropy of the logits of hidden states against tokens, without all logits in memory; none where the head
    /// is no product with a tensor, or somebody observes it.
    ///
    /// # Shapes
    /// `hidden: [N, C]` and `targets: [N]` give `[]`, or `[N]` without a reduction.
    /// # Errors
    /// As [`Tensor::linear_cross_entropy`].
    fn cross_entropy(
        &self,
        hidden: &Tensor,
        targets: &Tensor,
        reduction: Reduction,
    ) -> Result<Option<Tensor>> {
        let _ = (hidden, targets, reduction);
        Ok(None)
    }

    /// [`CausalLm::cross_entropy`] of the hidden states at some places, `[M]`, where computing both at once saves something;
    /// none where it does not.
    ///
    /// # Errors
    /// As of both.
    fn losses(
        &self,
        (tokens, pass): (&Tensor, &Pass<'_>),
        (places, targets): (&Tensor, &Tensor),
        reduction: Reduction,
    ) -> Result<Option<Tensor>> {
        let _ = (tokens, pass, places, targets, reduction);
        Ok(None)
    }

    /// Whether its layers run one by one, so that [`checkpoint_layers`] has an effect.
    fn has_layers(&self) -> bool {
        false
    }

    /// The hidden states behind a layer, of those in front of it: `[.., tokens, C]` both.
    ///
    /// # Errors
    /// If there is no such layer, the model is of a kind whose layers do not run by themselves, or as [`CausalLm::hidden`].
    fn run_layer(
        &self,
        layer: usize,
        x: &Tensor,
        pass: &Pass<'_>,
        rotations: &[Rotation],
    ) -> Result<Tensor> {
        let _ = (layer, x, pass, rotations);
        Err(not_built("run_layer", &self.kind()))
    }

    /// Keeps this rank's heads, hidden channels and part of the vocabulary. Gives the names of parameters that are
    /// whole on each rank and of which each computes a part of the gradient: those are to be added up.
    ///
    /// # Errors
    /// If something is not in equal parts, or the model is of a kind that is not cut.
    fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<Vec<String>> {
        let _ = by;
        Err(not_built("tensor_parallel", &self.kind()))
    }

    /// Keeps the layers of a stage; other parameters have no elements then. Gives the names of parameters that the first and
    /// the last stage have both: their gradients are to be added up.
    ///
    /// # Errors
    /// If there are fewer layers than stages, or the model is of a kind without stages.
    fn take_stage(&mut self, stage: Stage) -> Result<Vec<String>> {
        let _ = stage;
        Err(not_built("take_stage", &self.kind()))
    }

    /// The same model with its parameters in parts on ranks, those of a layer being whole while it computes.
    ///
    /// # Errors
    /// If somebody else holds the model, memory runs out, or the model is of a kind that is not cut.
    fn fully_shard(self: Arc<Self>, by: &Sharding) -> Result<Arc<dyn CausalLm>> {
        let _ = by;
        Err(not_built("fully_shard", &self.kind()))
    }
}

fn not_built(name: &'static str, kind: &str) -> Error {
    Error::op(name, format!("is not built for {kind}"))
}
