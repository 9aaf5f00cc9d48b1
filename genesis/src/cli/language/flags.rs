//! The flags of `genesis sft`, `genesis pretrain` and `genesis dpo`.

use std::path::PathBuf;

use serde::Serialize;

use crate::cli::values::{bytes, positive};

/// Flags of a run; a key of --config has the name of a flag.
#[derive(clap::Args, Serialize)]
pub(super) struct Flags {
    /// Files to learn from: .jsonl with messages, with prompt and completion, or with text; others are texts. `genesis
    /// dpo` learns from .jsonl with prompt, chosen and rejected, which are texts or lists of messages.
    #[arg(long, num_args = 1..)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) data: Vec<PathBuf>,
    /// Files to be evaluated on.
    #[arg(long, num_args = 1..)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) eval_data: Vec<PathBuf>,
    /// Where metrics, checkpoints and the model go.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) out: Option<PathBuf>,
    /// A file of TOML with values of these flags.
    #[arg(long)]
    #[serde(skip)]
    pub(super) config: Option<PathBuf>,
    /// The folder of the tokenizer; the model's own without it.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tokenizer: Option<PathBuf>,
    /// A file with the chat template; the model's own without it.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) chat_template: Option<PathBuf>,
    /// Passes over the data.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) epochs: Option<usize>,
    /// Steps in all, instead of epochs.
    #[arg(long, alias = "max-steps", value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) steps: Option<usize>,
    /// Rows of a forward and backward.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) batch_size: Option<usize>,
    /// Batches of a step.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) accumulate: Option<usize>,
    /// Tokens of a row.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sequence_length: Option<usize>,
    /// Whether samples share rows.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packing: Option<bool>,
    /// What of a conversation is learned: assistant or all.
    #[arg(long, value_parser = ["assistant", "all"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss_on: Option<String>,
    /// The highest learning rate.
    #[arg(long, alias = "lr")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) learning_rate: Option<f64>,
    /// The last learning rate, as a share of the highest.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_learning_rate: Option<f64>,
    /// How the learning rate falls.
    #[arg(long, value_parser = ["cosine", "linear", "wsd", "constant"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schedule: Option<String>,
    /// Steps until the highest learning rate.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warmup: Option<usize>,
    /// Steps of the decay of wsd.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decay: Option<usize>,
    /// What steps the parameters: adamw, or adamw8bit, whose state takes a quarter of the memory.
    #[arg(long, value_parser = ["adamw", "adamw8bit"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) optimizer: Option<String>,
    /// Decay of matrices.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weight_decay: Option<f64>,
    /// The largest joint norm of gradients; 0 clips nothing.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clip: Option<f64>,
    /// What is computed in; bf16 on a GPU, f32 on the CPU without it.
    #[arg(long, value_parser = ["bf16", "f32"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dtype: Option<String>,
    /// The seed of order, new weights and dropout.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seed: Option<u32>,
    /// Train low-rank adapters of this rank, and nothing else.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lora_rank: Option<usize>,
    /// Their updates are multiplied by alpha / rank.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lora_alpha: Option<f64>,
    /// The probability with which an input of an adapter is dropped.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lora_dropout: Option<f64>,
    /// The products with adapters, such as q_proj,v_proj; all but the head without it.
    #[arg(long, value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) lora_targets: Vec<String>,
    /// What the weights beside adapters are kept as: whole, stored as the files have them, int8 or int4.
    #[arg(long, value_parser = ["whole", "stored", "int8", "int4"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lora_base: Option<String>,
    /// Train the lengths of rows apart from their directions: DoRA, of adapters.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) dora: bool,
    /// Keep the input of each layer until its backward (block), or its products too, and compute the rest again.
    #[arg(long, value_parser = ["block", "products"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) checkpoint: Option<String>,
    /// The bytes of products that --checkpoint products keeps, such as 512MiB; all of them without it.
    #[arg(long, value_parser = bytes)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) checkpoint_budget: Option<usize>,
    /// Let what is kept for a backward wait in pinned memory of the host.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) offload: bool,
    /// Steps between evaluations; an epoch without it.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) eval_every: Option<usize>,
    /// Steps between checkpoints; an epoch without it.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) save_every: Option<usize>,
    /// Checkpoints that stay.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) keep: Option<usize>,
    /// A prompt that the model goes on with at each evaluation; may be given several times.
    #[arg(long = "prompt")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) prompts: Vec<String>,
    /// The most tokens of what it writes.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_tokens: Option<usize>,
    /// What the model is saved in; as it was trained without it.
    #[arg(long, value_parser = ["bf16", "f16", "f32"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) save_dtype: Option<String>,
    /// Write metrics for TensorBoard too, to --out.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) tensorboard: bool,
    /// Ranks that take other batches; what is left over of those that were started without it.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dp: Option<usize>,
    /// Ranks that take other batches, and have a part of each parameter, gradient and state (ZeRO-3).
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fsdp: Option<usize>,
    /// Let ranks that take other batches share out the optimizer's state (ZeRO-1).
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) zero1: bool,
    /// What --fsdp ranks gather parameters in and compute with; --dtype without it.
    #[arg(long, value_parser = ["f32", "bf16"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) param_dtype: Option<String>,
    /// What --fsdp ranks add up gradients in; that of the gathered parameters without it.
    #[arg(long, value_parser = ["f32", "bf16"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reduce_dtype: Option<String>,
    /// Whether --fsdp ranks give gathered parameters up after a forward (ZeRO-3), or after the backward (ZeRO-2); true
    /// without it.
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reshard: Option<bool>,
    /// Ranks that have some of the heads, of the hidden channels and of the vocabulary each (tensor parallel).
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tp: Option<usize>,
    /// Ranks that have a part of each sequence (context parallel).
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cp: Option<usize>,
    /// Ranks that have some of the layers each (pipeline parallel); batches of --accumulate go through one after the other.
    #[arg(long, value_parser = positive)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pp: Option<usize>,
    /// Let each of the --tp ranks norm its part of the tokens.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) sequence_parallel: bool,
    /// Add in the order of ranks, so that sums have the bits of one rank: an audit, which moves more bytes.
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) ordered_reductions: bool,
    /// `cpu`, `cuda` or `cuda:1`; a GPU where there is one.
    #[arg(long)]
    #[serde(skip)]
    pub(super) device: Option<String>,
    /// Go on from the newest checkpoint in --out.
    #[arg(long)]
    #[serde(skip)]
    pub(super) resume: bool,
    /// Delete what an earlier run wrote to --out; without this or --resume such a folder is refused.
    #[arg(long, conflicts_with = "resume")]
    #[serde(skip)]
    pub(super) overwrite: bool,
    /// Print the configuration and what memory a run will need, and end. The data is read, the weights are not.
    #[arg(long)]
    #[serde(skip)]
    pub(super) dry_run: bool,
    /// One JSON value at the end instead of lines.
    #[arg(long)]
    #[serde(skip)]
    pub(super) json: bool,
}
