//! What a run is asked to do, as a file of configuration has it.

use std::path::PathBuf;

use genesis_kernel::ir::DType;
use serde::{Deserialize, Serialize};

use super::encoder::LossOn;
use super::schedule::{Curve, LearningRate};
use crate::distributed::FullyShardOptions;
use crate::error::{Error, Result};
use crate::models::WeightForm;
use crate::nn::LoraOptions;

/// What the model computes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Weights and products in f32.
    #[default]
    F32,
    /// Weights in f32, products in bf16 by [`autocast`](crate::amp::autocast); frozen weights in bf16.
    Bf16,
}

/// What the frozen weights of adapters are kept as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BaseWeights {
    /// Tensors.
    #[default]
    Whole,
    /// What the files have: blocks of GGUF stay as they are.
    Stored,
    /// 8 bits.
    Int8,
    /// 4 bits.
    Int4,
}

/// What is kept of a layer until its backward; the rest is computed again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKeeps {
    /// The hidden states in front of it.
    Block,
    /// The results of products too.
    Products,
}

/// What steps the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimizerKind {
    /// [`AdamW`](crate::optim::AdamW)
    #[default]
    AdamW,
    /// [`AdamW8bit`](crate::optim::AdamW8bit): moments of 8 bits.
    AdamW8bit,
}

impl OptimizerKind {
    fn is_usual(&self) -> bool {
        *self == OptimizerKind::AdamW
    }
}

/// What an exported model is saved in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SaveDtype {
    /// bf16
    Bf16,
    /// f16
    F16,
    /// f32
    F32,
}

/// How strongly answers are preferred.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DpoOptions {
    /// How much a model that goes away from the reference loses for it.
    pub beta: f64,
    /// The probability that a pair's answers are the wrong way round.
    pub label_smoothing: f64,
}

/// A training run of a language model. A key of a file of configuration is the name of a field.
///
/// # Examples
/// ```
/// use genesis::train::language::Options;
///
/// let file: toml::Table = "epochs = 2\nlearning_rate = 1e-5".parse().expect("it is TOML");
/// let flags: toml::Table = "epochs = 5".parse().expect("it is TOML");
/// let options = Options::sft().with(&file)?.with(&flags)?;
/// assert_eq!((options.epochs, options.learning_rate), (5, 1e-5));
/// let typo: toml::Table = "epoch = 2".parse().expect("it is TOML");
/// assert!(options.with(&typo).is_err());
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// A model folder, a GGUF file or a name on the hub; to begin from nothing a `config.json` or a preset.
    pub model: String,
    /// The folder of the tokenizer; the model's own without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<PathBuf>,
    /// A file with the chat template; the tokenizer's own without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<PathBuf>,
    /// Files of training data.
    pub data: Vec<PathBuf>,
    /// Files that the model is evaluated on.
    pub eval_data: Vec<PathBuf>,
    /// Where metrics, checkpoints and the model go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<PathBuf>,
    /// Passes over the training data.
    pub epochs: usize,
    /// Stop after so many steps in all; more than `epochs` hold are made of more epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// Rows of a forward and backward.
    pub batch_size: usize,
    /// Batches of a step: their gradients are those of one batch that is so many times as large.
    pub accumulate: usize,
    /// Tokens of a row.
    pub sequence_length: usize,
    /// Whether samples share rows.
    pub packing: bool,
    /// What of a conversation is learned.
    pub loss_on: LossOn,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// The last learning rate, as a share of the highest.
    pub min_learning_rate: f64,
    /// How it falls.
    pub schedule: Curve,
    /// Steps until the highest rate; a twentieth of the run without it, at most 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup: Option<usize>,
    /// Steps of the decay of `wsd`; a fifth of the run without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decay: Option<usize>,
    /// What steps the parameters.
    #[serde(default, skip_serializing_if = "OptimizerKind::is_usual")]
    pub optimizer: OptimizerKind,
    /// Decay of matrices; vectors have none.
    pub weight_decay: f64,
    /// AdamW's decay of the mean of gradients.
    pub beta1: f64,
    /// AdamW's decay of the mean of their squares.
    pub beta2: f64,
    /// The largest joint norm of the gradients of a step; 0 clips nothing.
    pub clip: f64,
    /// What is computed in.
    pub dtype: Precision,
    /// The seed of the order, of new weights and of dropout.
    pub seed: u64,
    /// The rank of low-rank adapters; without it all weights are trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_rank: Option<usize>,
    /// Updates of adapters are multiplied by `lora_alpha / lora_rank`.
    pub lora_alpha: f64,
    /// The probability with which an input of an adapter is dropped.
    pub lora_dropout: f64,
    /// The products that have adapters.
    pub lora_targets: Vec<String>,
    /// What the weights beside adapters are kept as (*QLoRA*).
    pub lora_base: BaseWeights,
    /// Whether adapters train the lengths of rows apart from their directions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dora: bool,
    /// What is kept of a layer until its backward, which computes the rest again; all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<LayerKeeps>,
    /// The bytes of products that are kept by `checkpoint = products`; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_budget: Option<usize>,
    /// Whether what is kept for a backward waits in pinned memory of the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offload: bool,
    /// Pairs of answers are learned, not texts (*DPO*): how much a model that goes away from the first one loses for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta: Option<f64>,
    /// The probability that a pair's answers are the wrong way round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_smoothing: Option<f64>,
    /// Steps between evaluations; an epoch without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval_every: Option<usize>,
    /// Steps between checkpoints; an epoch without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_every: Option<usize>,
    /// Checkpoints that stay.
    pub keep: usize,
    /// Prompts that the model goes on with at each evaluation.
    pub prompts: Vec<String>,
    /// The most tokens of what it writes.
    pub prompt_tokens: usize,
    /// What the model is saved in; as it was trained without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save_dtype: Option<SaveDtype>,
    /// Whether metrics are written as TensorBoard reads them too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tensorboard: bool,
    /// Ranks that take other batches, each with the whole of what the others keys leave it; what is left over without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dp: Option<usize>,
    /// Ranks that take other batches and have a part of each parameter, gradient and state (ZeRO-3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsdp: Option<usize>,
    /// Whether ranks that take other batches share out the optimizer's state, a whole parameter's to each (ZeRO-1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zero1: bool,
    /// What `fsdp` ranks gather parameters in and compute with; `dtype` without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_dtype: Option<Precision>,
    /// What `fsdp` ranks add up gradients in; that of the gathered parameters without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce_dtype: Option<Precision>,
    /// Whether `fsdp` ranks give gathered parameters up after a forward (ZeRO-3), or after the backward (ZeRO-2).
    pub reshard: bool,
    /// Ranks that have some of the heads, of the hidden channels and of the vocabulary each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tp: Option<usize>,
    /// Ranks that have a part of each sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cp: Option<usize>,
    /// Ranks that have some of the layers each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pp: Option<usize>,
    /// Whether each of the `tp` ranks norms its part of the tokens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sequence_parallel: bool,
    /// Whether ranks add in their order, so that sums have the same bits as on one rank that is told so too: an audit, which
    /// moves more bytes. Products of the same inputs are then not joined, on one rank either: those of parts never are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ordered_reductions: bool,
}

const NAME: &str = "train";

impl Options {
    /// What is usual for fine-tuning on conversations.
    pub fn sft() -> Options {
        Options {
            model: String::new(),
            tokenizer: None,
            chat_template: None,
            data: Vec::new(),
            eval_data: Vec::new(),
            out: None,
            epochs: 1,
            steps: None,
            batch_size: 8,
            accumulate: 1,
            sequence_length: 1024,
            packing: true,
            loss_on: LossOn::Assistant,
            learning_rate: 2e-5,
            min_learning_rate: 0.0,
            schedule: Curve::Cosine,
            warmup: None,
            decay: None,
            optimizer: OptimizerKind::AdamW,
            weight_decay: 0.0,
            beta1: 0.9,
            beta2: 0.999,
            clip: 1.0,
            dtype: Precision::F32,
            seed: 0,
            lora_rank: None,
            lora_alpha: 16.0,
            lora_dropout: 0.0,
            lora_targets: LoraOptions::default().targets,
            lora_base: BaseWeights::Whole,
            dora: false,
            checkpoint: None,
            checkpoint_budget: None,
            offload: false,
            beta: None,
            label_smoothing: None,
            eval_every: None,
            save_every: None,
            keep: 2,
            prompts: Vec::new(),
            prompt_tokens: 64,
            save_dtype: None,
            tensorboard: false,
            dp: None,
            fsdp: None,
            zero1: false,
            param_dtype: None,
            reduce_dtype: None,
            reshard: true,
            tp: None,
            cp: None,
            pp: None,
            sequence_parallel: false,
            ordered_reductions: false,
        }
    }

    /// What is usual for learning from pairs of answers.
    pub fn dpo() -> Options {
        Options {
            beta: Some(0.1),
            label_smoothing: Some(0.0),
            learning_rate: 1e-6,
            ..Options::sft()
        }
    }

    /// What is usual for training on texts.
    pub fn pretrain() -> Options {
        Options {
            learning_rate: 6e-4,
            min_learning_rate: 0.1,
            weight_decay: 0.1,
            beta2: 0.95,
            ..Options::sft()
        }
    }

    /// The same with the values of a table, which comes from a file or from flags; `-` in a key is `_`.
    ///
    /// # Errors
    /// If a key is unknown or its value of another kind.
    pub fn with(&self, table: &toml::Table) -> Result<Options> {
        let problem =
            |error: &dyn std::fmt::Display| Error::io(error.to_string().trim().to_owned());
        let mut all = toml::Table::try_from(self).map_err(|error| problem(&error))?;
        for (key, value) in table {
            all.insert(key.replace('-', "_"), value.clone());
        }
        all.try_into().map_err(|error: toml::de::Error| problem(&error.message()))
    }

    /// All of them as a file has them.
    ///
    /// # Errors
    /// If a path is not UTF-8.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|error| Error::io(format!("configuration: {error}")))
    }

    /// Refuses what can't be meant.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::op(NAME, what));
        for (name, value) in [
            ("batch_size", self.batch_size),
            ("accumulate", self.accumulate),
            ("epochs", self.epochs),
            ("sequence_length", self.sequence_length),
            ("steps", self.steps.unwrap_or(1)),
            ("eval_every", self.eval_every.unwrap_or(1)),
            ("save_every", self.save_every.unwrap_or(1)),
        ] {
            if value == 0 {
                return refuse(format!("{name} is 0, there must be at least 1"));
            }
        }
        for (name, value) in [
            ("learning_rate", self.learning_rate),
            ("min_learning_rate", self.min_learning_rate),
            ("weight_decay", self.weight_decay),
            ("clip", self.clip),
        ] {
            if !(value.is_finite() && value >= 0.0) {
                return refuse(format!("{name} is {value}, it must be a number from 0"));
            }
        }
        for (name, value) in [("beta1", self.beta1), ("beta2", self.beta2)] {
            if !(0.0..1.0).contains(&value) {
                return refuse(format!("{name} is {value}, it must be from 0 and below 1"));
            }
        }
        self.check_adapters()?;
        self.check_preferences()?;
        match self.data.is_empty() {
            true => refuse("no data is named".to_owned()),
            false => Ok(()),
        }
    }

    fn check_adapters(&self) -> Result<()> {
        let what = match self.lora_rank {
            Some(_) => return Ok(()),
            None if self.lora_base != BaseWeights::Whole => {
                "quantized weights can't be trained; give adapters a lora_rank"
            }
            None if self.dora => "dora is a kind of adapters; give them a lora_rank",
            None => return Ok(()),
        };
        Err(Error::op(NAME, what))
    }

    fn check_preferences(&self) -> Result<()> {
        if let Some(beta) = self.beta.filter(|beta| !(beta.is_finite() && *beta > 0.0)) {
            return Err(Error::op(NAME, format!("beta is {beta}, it must be a number above 0")));
        }
        let smoothing = self.label_smoothing.unwrap_or(0.0);
        if !(0.0..0.5).contains(&smoothing) {
            let what = format!("label_smoothing is {smoothing}, it must be from 0 and below 0.5");
            return Err(Error::op(NAME, what));
        }
        match self.beta.is_none() && smoothing > 0.0 {
            true => {
                Err(Error::op(NAME, "label_smoothing is of pairs, which are learned with a beta"))
            }
            false => Ok(()),
        }
    }

    /// How pairs of answers are learned, where they are.
    pub(super) fn dpo_options(&self) -> Option<DpoOptions> {
        let label_smoothing = self.label_smoothing.unwrap_or(0.0);
        self.beta.map(|beta| DpoOptions { beta, label_smoothing })
    }

    /// What the model computes in where that is not the dtype of its weights.
    pub(super) fn autocast(&self) -> Option<DType> {
        (self.dtype == Precision::Bf16).then_some(DType::BF16)
    }

    /// How parameters in parts travel.
    pub(super) fn sharding(&self) -> FullyShardOptions {
        let gathered = self.param_dtype.unwrap_or(self.dtype);
        FullyShardOptions {
            reshard_after_forward: self.reshard,
            param_dtype: (gathered == Precision::Bf16).then_some(DType::BF16),
            reduce_dtype: self.reduce_dtype.map(Precision::dtype),
        }
    }

    /// The adapters, where there are some.
    pub(super) fn lora(&self) -> Option<LoraOptions> {
        self.lora_rank.map(|rank| LoraOptions {
            rank,
            alpha: self.lora_alpha,
            dropout: self.lora_dropout,
            targets: self.lora_targets.clone(),
            dora: self.dora,
        })
    }

    pub(super) fn learning_rates(&self, steps: usize) -> LearningRate {
        LearningRate {
            curve: self.schedule,
            highest: self.learning_rate,
            lowest_share: self.min_learning_rate,
            warmup: self.warmup.unwrap_or((steps / 20).min(100)).min(steps),
            decay: self.decay.unwrap_or(steps / 5),
            steps,
        }
    }
}

impl Precision {
    fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
        }
    }
}

impl BaseWeights {
    /// How they are loaded.
    pub(super) fn form(self) -> WeightForm {
        match self {
            BaseWeights::Whole => WeightForm::Whole,
            BaseWeights::Stored => WeightForm::Stored,
            BaseWeights::Int8 => WeightForm::Int8,
            BaseWeights::Int4 => WeightForm::Int4,
        }
    }
}

impl SaveDtype {
    pub(super) fn dtype(self) -> DType {
        match self {
            SaveDtype::Bf16 => DType::BF16,
            SaveDtype::F16 => DType::F16,
            SaveDtype::F32 => DType::F32,
        }
    }
}
