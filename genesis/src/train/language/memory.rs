//! The memory estimate of a run, from shapes alone.
//!
//! What a step holds at a time is one of these, whichever is the most:
//!
//! ```text
//! loss          weights, optimizer, all that the forward saved, logits of a chunk of tokens, the gradient of the head
//! last layer    weights, optimizer, all that the forward saved, gradients of the feed-forward layer and of the head
//! first layer   weights, optimizer, gradients of all parameters behind it, what it saved
//! update        weights, optimizer, gradients of all parameters, one more of the embedding
//! ```
//!
//! With checkpoints of layers that is, of each layer, what is kept of it, and beside it in the backward all that the layer
//! at work saves.
//!
//! A layer saves of N tokens, C channels, I of the feed-forward layer, H heads of D and G of keys, T tokens a sample:
//!
//! ```text
//! norms, residual stream     5 N C
//! gate, up, product     3 N I
//! queries, keys and values as they are multiplied, and what is seen     3 N H D + N G D
//! scores and weights of attention, where it is made of ops     2 H T^2 + T^2 / 4 for each sample
//! ```
//!
//! A checkpoint keeps the N C in front of it, and of products N (H D + 2 G D + C + 2 I); the last product of a layer is not
//! read again.
//!
//! The samples of the batches of an epoch are known, so that the largest batch is.

mod of_ranks;

use std::path::Path;

use genesis_kernel::runtime::Device;
use genesis_kernel::tuning::Chip;
use genesis_kernel::tuning::logits::logit_rows;

pub use of_ranks::plan_memory_of_ranks;

use super::batch::{Rows, Sharing, TokenBatch};
use super::encoder::Encoder;
use super::lesson::{Lesson, Source};
use super::options::{BaseWeights, LayerKeeps, OptimizerKind, Options, Precision};
use super::preference::PairBatch;
use super::start::Start;
use crate::error::{Error, Result};
use crate::models::CausalLm;
use crate::nn::{LoraOptions, adapt, adapters};
use crate::optim::AdamW8bitOptions;
use crate::tensor::Tensor;

/// What a run will need, in bytes.
///
/// # Numerics
/// Within 5 % of the peak that is measured on the CPU, of Llama, Mistral, Qwen2 and Qwen3, with all weights trained or
/// adapters in f32, with DoRA or without, and with checkpoints of layers in f32; an estimate elsewhere. What evaluations, prompts and dropout take is not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryPlan {
    /// The weights, those of adapters included.
    pub weights: usize,
    /// The gradients of all that is trained.
    pub gradients: usize,
    /// The optimizer's state.
    pub optimizer: usize,
    /// The most that a forward and backward holds beside weights and optimizer.
    pub activations: usize,
    /// Of what a forward saves, what waits in the memory of the host.
    pub offloaded: usize,
    /// The most at a time.
    pub peak: usize,
}

/// Computes the memory of a run of these options; `path` is as in [`Start::open`]. The data is read, the weights are not.
///
/// None where it is not known: of models of other kinds, and of quantized weights.
///
/// # Errors
/// If options or files can't be used.
pub fn plan_memory(
    options: &Options,
    path: Option<&Path>,
    device: Device,
) -> Result<Option<MemoryPlan>> {
    let Some((model, batches)) = known(options, path, device)? else { return Ok(None) };
    let plans = batches.iter().map(|batch| model.plan(batch, options));
    Ok(plans.max_by_key(|plan| plan.peak))
}

/// The shapes of the model and the batches of its data; none where it is not known what memory they take.
fn known(
    options: &Options,
    path: Option<&Path>,
    device: Device,
) -> Result<Option<(Shapes, Vec<Extents>)>> {
    let start = Start::outline(options, path)?;
    let is_known = KNOWN.contains(&start.config.model_type.as_str());
    if !is_known || options.lora_base != BaseWeights::Whole {
        return Ok(None);
    }
    let batches = match options.beta {
        None => batches::<TokenBatch>(&start, options)?,
        Some(_) => batches::<PairBatch>(&start, options)?,
    };
    Ok(Some((Shapes::of(start, options, device)?, batches)))
}

/// Models whose layers are as it is told above.
const KNOWN: [&str; 4] = ["llama", "mistral", "qwen2", "qwen3"];

/// The extents of a batch.
#[derive(Clone)]
struct Extents {
    /// Inputs with padding.
    tokens: usize,
    learned: usize,
    /// The lengths of the samples.
    lengths: Vec<usize>,
}

/// The batches of an epoch, or of the whole run where that is shorter.
fn batches<L: Lesson>(start: &Start, options: &Options) -> Result<Vec<Extents>> {
    let rows = Rows {
        length: options.sequence_length,
        batch: options.batch_size,
        packing: options.packing,
        seed: Some(options.seed),
        device: Device::Cpu,
        sharing: Sharing::default(),
    };
    let encoder = Encoder::new(start.text.clone(), options.loss_on);
    let source = Source { start, options, encoder: &encoder, is_outlined: true };
    let loader = L::read(&source, &options.data, rows)?.loader;
    let most = options.steps.map_or(usize::MAX, |steps| steps.saturating_mul(options.accumulate));
    let mut all = Vec::new();
    for batch in loader.iter()?.take(most) {
        let batch = batch?;
        let tokens = batch.tokens();
        let starts = tokens.packed.starts.to_vec::<i64>()?;
        let lengths = starts.windows(2).map(|pair| (pair[1] - pair[0]).max(0) as usize).collect();
        let (learned, tokens) = (tokens.learned(), tokens.tokens.numel());
        all.push(Extents { tokens, learned, lengths });
    }
    Ok(all)
}

/// What the memory of a model follows from.
#[derive(Clone)]
struct Shapes {
    layers: usize,
    vocabulary: usize,
    channels: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Whether heads of queries and keys are normed.
    has_head_norms: bool,
    /// Bytes of all weights, and of those that are trained.
    weights: usize,
    trained: usize,
    /// Bytes of gradients of what is trained and shorter than what has moments of 8 bits.
    short: usize,
    /// Bytes of copies of matrices in 16 bits, which autocast keeps for the backward.
    copies: usize,
    /// Bytes of the largest matrix, of the gradients of a layer, of the head and of an embedding of its own.
    largest: usize,
    layer: usize,
    head: usize,
    embedding: usize,
    adapters: Option<AdapterShapes>,
    is_half: bool,
    is_cpu: bool,
    /// Whether attention keeps no scores.
    is_flash: bool,
    /// Batches that went forward and not yet backward.
    in_flight: usize,
    /// Ranks that share out the optimizer's state.
    state_ranks: usize,
    /// Bytes that other ranks' parts of parameters take while a layer computes.
    gathered: usize,
}

/// What adapters add.
#[derive(Clone, Copy)]
struct AdapterShapes {
    /// Of all products: the ranks, and the outputs where rows have magnitudes.
    ranks: usize,
    outputs: usize,
    turned: usize,
}

impl Shapes {
    fn of(start: Start, options: &Options, device: Device) -> Result<Shapes> {
        let mut model = start.model;
        let (kv, vocabulary) = (model.kv_shape(), model.vocab_size());
        let named = model.named_parameters();
        let shape = |name: &str| -> Result<[usize; 2]> {
            let found = named.iter().find(|(own, _)| own == name).map(|(_, tensor)| tensor.shape());
            match found {
                Some(&[rows, columns]) => Ok([rows, columns]),
                _ => Err(Error::op("train", format!("the model has no {name}"))),
            }
        };
        let [hidden, channels] = shape("model.layers.0.mlp.up_proj.weight")?;
        let [queries, _] = shape("model.layers.0.self_attn.q_proj.weight")?;
        let (is_half, is_adapted) = (options.dtype == Precision::Bf16, options.lora_rank.is_some());
        let wide = if is_half && is_adapted { 2 } else { 4 };
        let count = |of: &dyn Fn(&str, &Tensor) -> bool| -> usize {
            named.iter().filter(|(name, p)| of(name, p)).map(|(_, p)| p.numel()).sum()
        };
        let whole = count(&|_, _| true) * wide;
        let is_tied = !named.iter().any(|(name, _)| name == "lm_head.weight");
        let is_product =
            |name: &str, p: &Tensor| p.rank() == 2 && (is_tied || !name.contains("embed_tokens"));
        let copies = if is_half && !is_adapted { 2 * count(&is_product) } else { 0 };
        let largest = named.iter().map(|(_, p)| p.numel()).max().unwrap_or(0) * 4;
        let layer = 4 * count(&|name, _| name.starts_with("model.layers.0."));
        let head = if is_adapted { 0 } else { 4 * vocabulary * channels };
        let has_head_norms = named.iter().any(|(name, _)| name.ends_with("q_norm.weight"));
        let (mut trained, mut own) = (whole, None);
        drop(named);
        if let Some(lora) = options.lora() {
            let unique = std::sync::Arc::get_mut(&mut model);
            let unique =
                unique.ok_or_else(|| Error::op("train", "the model is in use elsewhere"))?;
            // Lengths of rows are not known yet, their number is.
            adapt(unique, &LoraOptions { dora: false, ..lora })?;
            let (shapes, bytes) = AdapterShapes::of(&*model, options.dora);
            (trained, own) = (bytes, Some(shapes));
        }
        let least = AdamW8bitOptions::default().least as usize;
        let is_short = |p: &&Tensor| p.requires_grad() && p.numel() < least;
        let parameters = model.parameters();
        let short: usize = 4 * parameters.iter().filter(is_short).map(Tensor::numel).sum::<usize>();
        drop(parameters);
        Ok(Shapes {
            layers: kv.layers,
            vocabulary,
            channels,
            hidden,
            heads: queries / kv.head_dim.max(1),
            kv_heads: kv.heads,
            head_dim: kv.head_dim,
            has_head_norms,
            weights: whole + if is_adapted { trained } else { 0 },
            trained,
            short,
            copies,
            largest,
            layer: if is_adapted { trained / kv.layers.max(1) } else { layer },
            head,
            embedding: if is_tied { 0 } else { head },
            adapters: own,
            is_half,
            is_cpu: device == Device::Cpu,
            is_flash: is_half && device.is_cuda(),
            in_flight: 1,
            state_ranks: 1,
            gathered: 0,
        })
    }

    /// What a layer saves in a forward of a batch, in bytes.
    fn saved(&self, batch: &Extents) -> usize {
        let Shapes { channels, hidden, heads, kv_heads, head_dim, .. } = *self;
        let (n, used) = (batch.tokens, batch.lengths.iter().sum::<usize>());
        let (queries, keys) = (n * heads * head_dim, n * kv_heads * head_dim);
        // In elements that are f32 whatever products are of, and in those of products.
        let (mut wide, mut narrow) = match self.is_half {
            false => (5 * n * channels, 3 * n * hidden + keys),
            true => (2 * n * channels, 2 * n * channels + 3 * n * hidden + 2 * (queries + keys)),
        };
        let scores: usize = batch.lengths.iter().map(|t| heads * t * t).sum();
        let masks: usize = batch.lengths.iter().map(|t| t * t + heads * t).sum();
        let mut bytes = 0;
        match self.is_flash {
            true => narrow += queries + keys,
            false => {
                narrow += 3 * used * heads * head_dim + scores;
                wide += scores;
                bytes += masks;
            }
        }
        if self.has_head_norms {
            narrow += queries + keys;
            wide += n * (heads + kv_heads);
        }
        if let Some(AdapterShapes { ranks, turned, .. }) = self.adapters {
            narrow += n * (ranks + turned) / self.layers.max(1);
        }
        bytes + 4 * (wide + 2 * n) + self.width() * narrow
    }

    /// What is saved of all layers by the end of a forward, in bytes; what of the last of them; and what of that the layer
    /// saves itself.
    fn kept(&self, batch: &Extents, options: &Options) -> [usize; 3] {
        let saved = self.saved(batch);
        let Some(keeps) = options.checkpoint else { return [self.layers * saved, saved, saved] };
        let input = 4 * batch.tokens * self.channels;
        let mut kept = [self.layers * input, input, input];
        if keeps == LayerKeeps::Block {
            return kept;
        }
        let of_layer = self.width() * batch.tokens;
        let shared = match &self.adapters {
            // Gates and what they open; behind adapters there are sums.
            None => of_layer * (self.kv_heads * self.head_dim + 2 * self.hidden),
            Some(adapters) => of_layer * adapters.ranks / self.layers.max(1),
        };
        let mut left = options.checkpoint_budget.unwrap_or(usize::MAX);
        let products = self.products(batch);
        for layer in 0..self.layers {
            let before = left;
            for bytes in &products {
                left = left.checked_sub(*bytes).unwrap_or(left);
            }
            let own = before - left;
            kept[0] += own;
            if layer + 1 == self.layers {
                kept[1] += own;
                kept[2] += own.min(shared);
            }
        }
        kept
    }

    /// The results of the products of a layer that checkpoints keep, in bytes, in the order in which they are computed.
    fn products(&self, batch: &Extents) -> Vec<usize> {
        let Shapes { channels, hidden, heads, kv_heads, head_dim, .. } = *self;
        let (queries, keys) = (heads * head_dim, kv_heads * head_dim);
        let outputs = [queries, keys, keys, channels, hidden, hidden];
        let one = |output: usize| self.width() * batch.tokens * output;
        match self.adapters {
            None => outputs.map(one).into(),
            // The product, and both of the update, of each that is adapted.
            Some(AdapterShapes { outputs: adapted, ranks, .. }) => {
                let updates = (adapted + ranks) / self.layers.max(1);
                outputs.into_iter().chain([updates]).map(one).collect()
            }
        }
    }

    /// Bytes of an element of a product.
    fn width(&self) -> usize {
        if self.is_half { 2 } else { 4 }
    }

    /// What the loss of so many tokens takes: logits of a chunk, gradients of what they are made of, and on processors,
    /// which compute it in f32, copies of those.
    fn of_loss(&self, m: usize) -> usize {
        let (v, channels) = (self.vocabulary, self.channels);
        let (chip, width) = match self.is_cpu {
            true => (Chip::Cpu, 4),
            false => (Chip::unknown_gpu(), self.width()),
        };
        let rows = logit_rows(&chip, m, v, width).min(m);
        let copies = if self.is_cpu && self.is_half { 4 * channels * (v + m) } else { 0 };
        width * (rows * v + m * channels) + self.head + copies
    }

    fn plan(&self, batch: &Extents, options: &Options) -> MemoryPlan {
        let Shapes { weights, trained: gradients, channels, .. } = *self;
        let optimizer = match options.optimizer {
            OptimizerKind::AdamW => 2 * gradients,
            // Codes, and a scale for 256 of them, of what is long.
            OptimizerKind::AdamW8bit => 2 * (self.short + (gradients - self.short) / 4 * 65 / 64),
        };
        let (n, m, width) = (batch.tokens, batch.learned, self.width());
        let (saved, accumulate) = (self.saved(batch), options.accumulate);
        let optimizer = optimizer.div_ceil(self.state_ranks);
        let [kept, kept_of_one, shared] = self.kept(batch, options);
        let kept = kept * self.in_flight;
        // Embedded tokens, chosen rows in front of the head, cosines and sines.
        let first = if self.adapters.is_some() { 0 } else { 4 * n * channels };
        let rest = first + width * m * channels + 4 * n * self.head_dim;
        // A layer that runs again casts its matrices again, which nobody keeps.
        let (copies, copies_of_one) = match options.checkpoint {
            None => (self.copies, self.copies),
            Some(_) => (self.copies, self.copies / self.layers.max(1)),
        };
        let offloaded = match options.offload && !self.is_cpu {
            true => kept.saturating_sub(2 * kept_of_one),
            false => 0,
        };
        let all = kept - offloaded + rest + copies;
        let last = kept - offloaded + rest + copies_of_one + saved - shared;
        let backward = width * n * self.hidden * 2;
        let earlier = if accumulate > 1 { gradients } else { 0 };
        let at_loss = all + earlier + self.of_loss(m);
        let at_last = last + earlier + backward + self.head;
        let others = gradients.saturating_sub(self.layer + self.embedding);
        let at_first = others + saved + rest + copies_of_one + backward;
        let at_norms = match &self.adapters {
            // The weight with its update, beside what both are made of.
            Some(AdapterShapes { turned: 1.., .. }) => last + 3 * self.largest,
            _ => 0,
        };
        let activations = [at_loss, at_last, at_first, at_norms].into_iter().max();
        let activations = activations.unwrap_or(0) + self.gathered;
        let at_update = gradients + self.head;
        // Tokens, positions, places and targets, i64.
        let data = accumulate * 16 * (n + m);
        let peak = weights + optimizer + data + activations.max(at_update);
        MemoryPlan { weights, gradients, optimizer, activations, offloaded, peak }
    }
}

impl AdapterShapes {
    /// Those of a model, and the bytes that they are.
    fn of(model: &dyn CausalLm, dora: bool) -> (AdapterShapes, usize) {
        let found = adapters(model.as_module());
        let extent = |tensor: &Tensor| tensor.shape().first().copied().unwrap_or(0);
        let ranks: usize = found.iter().map(|(_, own)| extent(&own.lora_a)).sum();
        let outputs: usize = found.iter().map(|(_, own)| extent(&own.lora_b)).sum();
        let turned = if dora { outputs } else { 0 };
        let elements: usize =
            found.iter().map(|(_, own)| own.lora_a.numel() + own.lora_b.numel()).sum();
        (AdapterShapes { ranks, outputs, turned }, 4 * (elements + turned))
    }
}
