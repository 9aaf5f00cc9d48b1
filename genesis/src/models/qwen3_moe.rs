//! Qwen3 with experts: each token goes through a few of many feed-forward layers, those that a router likes
//! best, and their outputs are added by its shares.
//!
//! ```text
//! shares = softmax(gate(x))                     over all experts, in f32
//! top    = the k largest, divided by their sum where norm_topk_prob is set
//! y      = sum over the top of share * expert(x)
//! ```
//!
//! Tokens are put in order of their experts, so that each expert multiplies its tokens at once; which token
//! goes where is read on the host.
//!
//! # Source
//! arXiv:2505.09388; the names and defaults of `transformers`.

use genesis_kernel::ir::DType;

use super::blueprint::Blueprint;
use super::decoder::{
    DecoderLm, DecoderOptions, FeedForwardLayer, PreNormBlock, silu, windowed_layers,
};
use super::llama::pre_norm;
use super::mlp::GatedMlp;
use super::norm::Norm;
use super::normed::Normed;
use super::projection::Projection;
use super::qwen2::QWEN2;
use super::qwen3::normed_attention;
use super::residual::Residual;
use super::rope::RopeSettings;
use super::settings::Settings;
use super::sizes::Sizes;
use super::tensor_parallel::TensorParallel;
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::nn::{Layer, Module, Visitor, VisitorMut, watch};
use crate::ops::Activation;
use crate::tensor::Tensor;

/// A decoder some of whose feed-forward layers have experts.
pub type Qwen3Moe = DecoderLm<PreNormBlock<FeedForward>>;

/// What holds where a configuration says nothing.
const QWEN3_MOE: Sizes = Sizes { channels: 2048, hidden: 6144, layers: 24, kv_heads: 4, ..QWEN2 };

/// Feed-forward layers of which each token goes through a few.
#[derive(Debug, Module)]
pub struct Experts {
    /// The router, `[E, C]`.
    pub gate: Projection,
    /// The feed-forward layers.
    pub experts: Vec<GatedMlp>,
    /// How many a token goes through.
    pub top: usize,
    /// Whether their shares are divided by their sum.
    pub normalized: bool,
}

/// The feed-forward layer of a block: one, or experts.
#[derive(Debug)]
pub enum FeedForward {
    /// Every token goes through it.
    Dense(GatedMlp),
    /// A router chooses.
    Sparse(Experts),
}

impl Module for FeedForward {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        match self {
            FeedForward::Dense(mlp) => mlp.visit(visitor),
            FeedForward::Sparse(experts) => experts.visit(visitor),
        }
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        match self {
            FeedForward::Dense(mlp) => mlp.visit_mut(visitor),
            FeedForward::Sparse(experts) => experts.visit_mut(visitor),
        }
    }

    fn as_module(&self) -> &dyn Module {
        self
    }
}

impl Layer for FeedForward {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self {
            FeedForward::Dense(mlp) => mlp.forward(x),
            FeedForward::Sparse(experts) => experts.forward(x),
        }
    }
}

impl FeedForwardLayer for FeedForward {
    fn onto(&self, x: &Normed<'_>, residual: Residual, next: Option<&Norm>) -> Result<Residual> {
        match self {
            FeedForward::Dense(mlp) => mlp.onto(x, residual, next),
            FeedForward::Sparse(experts) => residual.plus(experts.forward(x.tensor()?)?),
        }
    }

    fn defers_norm(&self) -> bool {
        matches!(self, FeedForward::Dense(mlp) if mlp.defers_norm())
    }

    fn pack(&mut self) -> Result<()> {
        match self {
            FeedForward::Dense(mlp) => mlp.pack(),
            FeedForward::Sparse(experts) => experts.experts.iter_mut().try_for_each(GatedMlp::pack),
        }
    }

    fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<()> {
        match self {
            FeedForward::Dense(mlp) => mlp.tensor_parallel(by),
            FeedForward::Sparse(_) => {
                Err(Error::op("tensor_parallel", "layers with experts are not cut"))
            }
        }
    }
}

impl Experts {
    /// The shares of each token's experts, `[N, k]`, and which these are.
    fn routed(&self, x: &Tensor) -> Result<(Tensor, Vec<usize>)> {
        let shares = self.gate.forward(x)?.to_dtype(accumulate_dtype(x.dtype()))?.softmax(-1)?; // [N, E]
        let (mut top, index) = shares.topk(self.top, -1, true)?; // [N, k]
        if self.normalized {
            top = top.div(&top.sum_dims(&[-1], true)?)?;
        }
        let index = index.to_dtype(DType::I64)?.to_vec::<i64>()?;
        Ok((top.to_dtype(x.dtype())?, index.into_iter().map(|expert| expert as usize).collect()))
    }

    /// The sum of what each token's experts give, by their shares.
    ///
    /// # Errors
    /// If the channels are others, or a launch fails.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let channels = x.dim(-1)?;
            let rows = x.reshape(&[x.numel() / channels.max(1), channels])?; // [N, C]
            let (shares, chosen) = self.routed(&rows)?;
            if chosen.is_empty() {
                return Ok(x.clone());
            }
            let (sorted, outputs) = self.each(&rows, &chosen)?;
            // Where the output of each token's each choice stands.
            let mut place = vec![0i64; chosen.len()];
            sorted.iter().enumerate().for_each(|(at, &choice)| place[choice] = at as i64);
            let place = Tensor::from_slice_on(&place, &[place.len()], x.device())?;
            let by_token = outputs.index_select(0, &place)?; // [N * k, C]
            let by_token = by_token.reshape(&[rows.dim(0)?, self.top, channels])?;
            let y = by_token.mul(&shares.unsqueeze(-1)?)?.sum_dims(&[1], false)?; // [N, C]
            y.reshape(x.shape())
        })
    }

    /// Choices in order of their experts, and what the experts give for them in that order.
    fn each(&self, rows: &Tensor, chosen: &[usize]) -> Result<(Vec<usize>, Tensor)> {
        let mut sorted: Vec<usize> = (0..chosen.len()).collect();
        sorted.sort_by_key(|&choice| chosen[choice]);
        let of_one = sorted.chunk_by(|&a, &b| chosen[a] == chosen[b]);
        let outputs: Vec<Tensor> = of_one
            .map(|choices| {
                let tokens: Vec<i64> = choices.iter().map(|&c| (c / self.top) as i64).collect();
                let tokens = Tensor::from_slice_on(&tokens, &[tokens.len()], rows.device())?;
                self.experts[chosen[choices[0]]].forward(&rows.index_select(0, &tokens)?)
            })
            .collect::<Result<_>>()?;
        let outputs = Tensor::cat(&outputs.iter().collect::<Vec<_>>(), 0)?;
        Ok((sorted, outputs))
    }
}

/// How many experts there are, and which layers have them.
struct Routing {
    experts: usize,
    top: usize,
    hidden: usize,
    normalized: bool,
    /// Every so many layers have experts.
    step: usize,
    /// But these.
    dense: Vec<f64>,
}

impl Routing {
    fn read(settings: &mut Settings) -> Result<Routing> {
        let own = settings.count("num_experts")?;
        let experts = settings.count("num_local_experts")?.or(own).unwrap_or(128);
        let routing = Routing {
            experts,
            top: settings.size("num_experts_per_tok", 8)?,
            hidden: settings.size("moe_intermediate_size", 768)?,
            normalized: settings.flag("norm_topk_prob", false)?,
            step: settings.size("decoder_sparse_step", 1)?,
            dense: settings.numbers_if("mlp_only_layers")?.unwrap_or_default(),
        };
        if experts > 0 && routing.top > experts {
            let what = format!("num_experts_per_tok is {}, of {experts} experts", routing.top);
            return Err(settings.refusal(what));
        }
        Ok(routing)
    }

    fn is_sparse(&self, layer: usize) -> bool {
        let is_dense = self.dense.contains(&(layer as f64));
        self.experts > 0 && (layer + 1).is_multiple_of(self.step) && !is_dense
    }

    fn layer(&self, plan: &Blueprint, channels: usize, activation: Activation) -> Result<Experts> {
        let expert = |_| GatedMlp::new(plan, [channels, self.hidden], activation, false);
        Ok(Experts {
            gate: plan.projection([channels, self.experts], false)?,
            experts: (0..self.experts).map(expert).collect::<Result<_>>()?,
            top: self.top,
            normalized: self.normalized,
        })
    }
}

/// A Qwen3 with experts by its configuration.
pub(super) fn qwen3_moe(settings: &mut Settings, plan: &Blueprint) -> Result<Qwen3Moe> {
    let sizes = Sizes::read(settings, &QWEN3_MOE)?;
    let routing = Routing::read(settings)?;
    let activation = silu(settings)?;
    let bias = settings.flag("attention_bias", false)?;
    let is_used = settings.flag("use_sliding_window", false)?;
    let window = settings.size_if("sliding_window")?.or(Some(4096)).filter(|_| is_used);
    settings.count("max_window_layers")?; // all layers have the window here
    let windowed = windowed_layers(settings, sizes.layers, |_| window.is_some())?;
    let rope = RopeSettings::read(settings, sizes.rotated(), 10_000.0)?;
    let layer = |(layer, is_windowed): (usize, &bool)| {
        let window = window.filter(|_| *is_windowed);
        let mlp = match routing.is_sparse(layer) {
            true => FeedForward::Sparse(routing.layer(plan, sizes.channels, activation)?),
            false => {
                let extents = [sizes.channels, sizes.hidden];
                FeedForward::Dense(GatedMlp::new(plan, extents, activation, false)?)
            }
        };
        pre_norm(plan, &sizes, normed_attention(plan, &sizes, window, bias)?, mlp)
    };
    let layers = windowed.iter().enumerate().map(layer).collect::<Result<_>>()?;
    let norm = Norm::new(plan, sizes.channels, sizes.eps)?;
    DecoderLm::new(plan, &sizes, (layers, norm), vec![rope], DecoderOptions::default())
}
