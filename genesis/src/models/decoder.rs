//! The decoder that all rotary models here are: embedding, layers, norm, and a head that gives logits.
//!
//! What models differ in is their layers, so that is the type parameter, and a few numbers of
//! [`DecoderOptions`]. Names are those of published weights: `model.embed_tokens.weight`,
//! `model.layers.0...`, `model.norm.weight`, `lm_head.weight`.

use super::attention::{Context, SelfAttention};
use super::blueprint::Blueprint;
use super::layer_checkpoints::LayerCheckpoints;
use super::norm::Norm;
use super::normed::Normed;
use super::projection::Projection;
use super::residual::{Residual, watch_block};
use super::rope::{Rope, RopeSettings};
use super::rotation::Rotation;
use super::settings::Settings;
use super::sizes::Sizes;
use super::tensor_parallel::TensorParallel;
use super::{Batch, CausalLm, KvShape, Packed, Pass, Stage};
use std::ops::Range;
use std::sync::Arc;

use crate::autograd::no_grad;
use crate::distributed::{FullyShard, FullyShardOptions, Parallel, Sharding};
use crate::error::{Error, Result};
use crate::nn::{
    Embedding, Layer, Module, Parameter, Replacement, Weight, handles, is_observed, replace, watch,
};
use crate::ops::{Activation, Reduction};
use crate::tensor::{Creation, Tensor};

/// A layer of a decoder.
pub trait Block: Module {
    /// The hidden states behind this layer.
    ///
    /// # Errors
    /// If shapes do not fit, or a launch fails.
    fn forward(&self, x: Residual, context: &Context<'_>) -> Result<Residual>;

    /// The norm that a layer begins with, where its products defer it.
    fn deferred_norm(&self) -> Option<&Norm> {
        None
    }

    /// Lays weights out, see [`CausalLm::pack`].
    ///
    /// # Errors
    /// If memory runs out.
    fn pack(&mut self) -> Result<()> {
        Ok(())
    }

    /// Keeps this rank's part; gives the parameters that are whole and that each rank uses for its part only.
    ///
    /// # Errors
    /// As [`CausalLm::tensor_parallel`].
    fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<Vec<Tensor>> {
        let _ = by;
        Err(Error::op("tensor_parallel", format!("is not built for {}", self.kind())))
    }
}

/// What stands between the two norms of a layer, and lays its weights out.
pub trait FeedForwardLayer: Layer {
    /// Adds what the layer makes of `x` to the residual stream. `next` is the norm behind, where the products behind
    /// defer it.
    ///
    /// # Errors
    /// If shapes do not fit, or a launch fails.
    fn onto(&self, x: &Normed<'_>, residual: Residual, next: Option<&Norm>) -> Result<Residual>;

    /// Whether the norm in front is left to the layer's products.
    fn defers_norm(&self) -> bool;

    /// As [`Block::pack`].
    ///
    /// # Errors
    /// If memory runs out.
    fn pack(&mut self) -> Result<()>;

    /// Keeps this rank's hidden channels.
    ///
    /// # Errors
    /// As [`CausalLm::tensor_parallel`].
    fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<()>;
}

/// Norm, attention, add; norm, feed-forward layer, add: the layer of Llama, Mistral and Qwen.
#[derive(Debug, Module)]
pub struct PreNormBlock<F> {
    /// What looks at other tokens.
    pub self_attn: SelfAttention,
    /// What each token does by itself.
    pub mlp: F,
    /// Before the attention.
    pub input_layernorm: Norm,
    /// Before the feed-forward layer.
    pub post_attention_layernorm: Norm,
}

impl<F: FeedForwardLayer> Block for PreNormBlock<F> {
    fn forward(&self, x: Residual, context: &Context<'_>) -> Result<Residual> {
        watch_block(self, || {
            let (first, second) = (&self.input_layernorm, &self.post_attention_layernorm);
            let is_deferred = self.mlp.defers_norm();
            let (x, normed) = x.before(first, self.self_attn.defers_norm())?;
            let x = self.self_attn.onto(&normed, context, x, is_deferred.then_some(second))?;
            let (x, normed) = x.before(second, is_deferred)?;
            self.mlp.onto(&normed, x, context.next)
        })
    }

    fn deferred_norm(&self) -> Option<&Norm> {
        self.self_attn.defers_norm().then_some(&self.input_layernorm)
    }

    fn pack(&mut self) -> Result<()> {
        self.self_attn.pack()?;
        self.mlp.pack()
    }

    fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<Vec<Tensor>> {
        self.mlp.tensor_parallel(by)?;
        self.self_attn.tensor_parallel(by)
    }
}

/// Which layers have a window.
pub(super) fn windowed_layers(
    settings: &mut Settings,
    layers: usize,
    usual: impl Fn(usize) -> bool,
) -> Result<Vec<bool>> {
    let Some(names) = settings.texts_if("layer_types")? else {
        return windows_of(settings, layers, usual);
    };
    if names.len() != layers {
        let what = format!("layer_types names {} layers of {layers}", names.len());
        return Err(settings.refusal(what));
    }
    let windowed = |name: String| match name.as_str() {
        "sliding_attention" => Ok(true),
        "full_attention" => Ok(false),
        _ => Err(settings.unsupported("layer_types", &name.into())),
    };
    names.into_iter().map(windowed).collect()
}

/// [`windowed_layers`] by a rule; a hostile count of layers is not what memory is spent on.
fn windows_of(
    settings: &Settings,
    layers: usize,
    usual: impl Fn(usize) -> bool,
) -> Result<Vec<bool>> {
    const MOST: usize = 1 << 16;
    match layers <= MOST {
        true => Ok((0..layers).map(usual).collect()),
        false => Err(settings.refusal(format!("num_hidden_layers is {layers}, over {MOST}"))),
    }
}

/// What decoders differ in besides their layers.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct DecoderOptions {
    /// Factor of the embedded tokens.
    pub embed_scale: Option<f64>,
    /// Logits are bounded softly: `cap tanh(logit / cap)`.
    pub logit_softcap: Option<f64>,
}

/// Embedding, layers and norm.
#[derive(Debug, Module)]
pub struct Decoder<B> {
    /// `[V, C]`
    pub embed_tokens: Embedding,
    /// The layers in order.
    pub layers: Vec<B>,
    /// Behind the last layer.
    pub norm: Norm,
    /// Rotary positions, by the number that layers name.
    pub ropes: Vec<Rope>,
}

/// A decoder with a head that gives logits.
#[derive(Debug, Module)]
pub struct DecoderLm<B> {
    /// All but the head.
    pub model: Decoder<B>,
    /// `[V, C]`, the embedding's own where tied.
    pub lm_head: Projection,
    /// What is cached.
    #[module(skip)]
    pub kv_shape: KvShape,
    /// The rest.
    #[module(skip)]
    pub options: DecoderOptions,
    /// Tokens that logits are over.
    pub vocabulary: usize,
    /// The ranks that have parts of its layers.
    #[module(skip)]
    pub parallel: Option<TensorParallel>,
    /// The stage that it is, where other ranks have the other layers.
    #[module(skip)]
    pub stage: Option<Stage>,
}

impl<B: Block> DecoderLm<B> {
    /// A model of these layers around which the rest is made.
    pub(super) fn new(
        plan: &Blueprint,
        sizes: &Sizes,
        (layers, norm): (Vec<B>, Norm),
        ropes: Vec<RopeSettings>,
        options: DecoderOptions,
    ) -> Result<DecoderLm<B>> {
        let embed_tokens = plan.embedding(sizes.vocabulary, sizes.channels)?;
        let lm_head = match sizes.tied {
            true => Projection { weight: embed_tokens.weight.clone().into(), bias: None },
            false => plan.projection([sizes.channels, sizes.vocabulary], false)?,
        };
        let kv_shape =
            KvShape { layers: layers.len(), heads: sizes.kv_heads, head_dim: sizes.head_dim };
        let at: Creation = embed_tokens.weight.device().into();
        let ropes = ropes.into_iter().map(|rope| Rope::new(rope, at)).collect::<Result<_>>()?;
        let model = Decoder { embed_tokens, layers, norm, ropes };
        let vocabulary = sizes.vocabulary;
        let (parallel, stage) = (None, None);
        Ok(DecoderLm { model, lm_head, kv_shape, options, vocabulary, parallel, stage })
    }

    fn embedded(&self, tokens: &Tensor) -> Result<Tensor> {
        let table = &self.model.embed_tokens;
        let x = match &self.parallel {
            Some(parallel) => parallel.embedded(&table.weight, tokens)?,
            None => table.forward(tokens)?,
        };
        match self.options.embed_scale {
            // As a tensor, since the factor is rounded to the dtype as the weights are.
            Some(scale) => x.mul(&Tensor::scalar(scale, (x.dtype(), x.device()))?),
            None => Ok(x),
        }
    }

    fn run(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let model = &self.model;
        let rotations: Arc<[Rotation]> =
            model.ropes.iter().map(|rope| rope.of(tokens, pass)).collect::<Result<_>>()?;
        let checkpoints = LayerCheckpoints::of(pass, &rotations);
        watch(model, || {
            let (is_first, is_last) = self.ends();
            // Who observes a layer is shown all tokens.
            let ends = pass.ends().filter(|_| is_last && !is_observed());
            let last = self.own_layers().last();
            let mut x = Residual::new(match is_first {
                true => self.embedded(tokens)?,
                false => tokens.clone(),
            });
            for layer in self.own_layers() {
                if let Some(checkpoints) = &checkpoints {
                    let first = |x: &Tensor| self.run_layer(layer, x, pass, &rotations);
                    x = Residual::new(checkpoints.run(layer, &x.whole()?, first)?);
                    continue;
                }
                let block = &model.layers[layer];
                let next = model.layers.get(layer + 1).and_then(Block::deferred_norm);
                let ends = ends.filter(|_| last == Some(layer));
                x = block
                    .forward(x, &Context { pass, rotations: &rotations, layer, next, ends })?;
            }
            if !is_last {
                return x.whole();
            }
            let y = x.normed(&model.norm)?;
            match &self.parallel {
                Some(parallel) => parallel.enter(&y),
                None => Ok(y),
            }
        })
    }

    /// Whether the head has the embedding's weight.
    fn is_tied(&self) -> bool {
        let table = &self.model.embed_tokens.weight;
        matches!(&self.lm_head.weight, Weight::Whole(head) if head.is_same(table))
    }

    /// Whether it embeds tokens, and whether it has the head.
    fn ends(&self) -> (bool, bool) {
        self.stage.map_or((true, true), |stage| (stage.is_first(), stage.is_last()))
    }

    /// The layers of the stage; all where there are no stages.
    fn own_layers(&self) -> Range<usize> {
        let all = self.model.layers.len();
        let Some(Stage { index, count }) = self.stage else { return 0..all };
        all * index / count..all * (index + 1) / count
    }
}

impl<B: Block> CausalLm for DecoderLm<B> {
    fn vocab_size(&self) -> usize {
        self.vocabulary
    }

    fn max_positions(&self) -> usize {
        self.model.ropes.iter().map(Rope::max_positions).min().unwrap_or(0)
    }

    fn kv_shape(&self) -> KvShape {
        self.kv_shape
    }

    fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        if self.ends().0 {
            check_tokens(tokens, pass)?;
        }
        match pass {
            Pass::Whole | Pass::Packed(_) => self.run(tokens, pass),
            Pass::Paged { .. } => no_grad(|| self.run(tokens, pass)),
        }
    }

    fn has_layers(&self) -> bool {
        true
    }

    fn run_layer(
        &self,
        layer: usize,
        x: &Tensor,
        pass: &Pass<'_>,
        rotations: &[Rotation],
    ) -> Result<Tensor> {
        let missing = || Error::op("run_layer", format!("there is no layer {layer}"));
        let block = self.model.layers.get(layer).ok_or_else(missing)?;
        let context = Context { pass, rotations, layer, next: None, ends: None };
        block.forward(Residual::new(x.clone()), &context)?.whole()
    }

    fn pack(&mut self) -> Result<()> {
        self.model.layers.iter_mut().try_for_each(Block::pack)
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let logits = self.lm_head.forward(hidden)?;
        match self.options.logit_softcap {
            Some(cap) => logits.div_scalar(cap)?.tanh()?.mul_scalar(cap),
            None => Ok(logits),
        }
    }

    fn cross_entropy(
        &self,
        hidden: &Tensor,
        targets: &Tensor,
        reduction: Reduction,
    ) -> Result<Option<Tensor>> {
        let cap = self.options.logit_softcap;
        if let Some(parallel) = &self.parallel {
            let of = (reduction, cap);
            return parallel.cross_entropy(&self.lm_head, (hidden, targets), of).map(Some);
        }
        self.lm_head.cross_entropy(hidden, targets, (reduction, cap))
    }

    fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<Vec<String>> {
        by.check("tokens of the vocabulary", self.vocabulary)?;
        let mut partial = Vec::new();
        for block in &mut self.model.layers {
            partial.extend(block.tensor_parallel(by)?);
        }
        let is_tied = self.is_tied();
        let table = by.cut_rows(&self.model.embed_tokens.weight)?;
        match is_tied {
            true => self.lm_head.weight = table.clone().into(),
            false => by.cut_outputs(&mut self.lm_head)?,
        }
        self.model.embed_tokens.weight = table;
        self.parallel = Some(by.clone());
        let is_partial = |parameter: &Parameter| {
            // Each rank has another part of the tokens.
            let is_sequence = by.between != Parallel::Tensor && parameter.shard().is_none();
            is_sequence || partial.iter().any(|own| own.is_same(parameter))
        };
        let all = handles(&*self).into_iter().filter(|(_, parameter)| is_partial(parameter));
        Ok(all.map(|(name, _)| name).collect())
    }

    fn take_stage(&mut self, stage: Stage) -> Result<Vec<String>> {
        let (all, count) = (self.model.layers.len(), stage.count);
        if count > all {
            return Err(Error::op("take_stage", format!("{all} layers are not in {count} stages")));
        }
        self.stage = Some(stage);
        let (own, is_tied) = (self.own_layers(), self.is_tied() && count > 1);
        let table = &self.model.embed_tokens.weight;
        let shared = handles(&*self).into_iter().filter(|(_, p)| is_tied && p.is_same(table));
        let shared = shared.map(|(name, _)| name).collect();
        let mut left: Vec<&dyn Module> = Vec::new();
        let others = self.model.layers.iter().enumerate().filter(|(layer, _)| !own.contains(layer));
        left.extend(others.map(|(_, block)| block.as_module()));
        let keeps_embedding = stage.is_first() || is_tied && stage.is_last();
        if !keeps_embedding {
            left.push(&self.model.embed_tokens);
        }
        if !stage.is_last() {
            left.push(&self.model.norm);
            if !is_tied {
                left.push(&self.lm_head);
            }
        }
        let empty = |(_, parameter): (String, Parameter)| {
            let none = Tensor::empty(&[0], (parameter.dtype(), parameter.device()))?;
            let (old, whole) = (parameter.tensor().clone(), Some(none.requires_grad_(false)?));
            Ok(Replacement { old, whole, quantized: None })
        };
        let out = left.into_iter().flat_map(handles).map(empty).collect::<Result<Vec<_>>>()?;
        replace(self, &out);
        Ok(shared)
    }

    fn fully_shard(self: Arc<Self>, by: &Sharding) -> Result<Arc<dyn CausalLm>> {
        let own = Arc::try_unwrap(self)
            .map_err(|_| Error::op("fully_shard", "the model is in use elsewhere"))?;
        let DecoderLm { model, lm_head, kv_shape, options, vocabulary, parallel, stage } = own;
        let Decoder { embed_tokens, layers, norm, ropes } = model;
        let layers = layers.into_iter().map(|block| FullyShard::of(block, by));
        let layers = layers.collect::<Result<Vec<FullyShard<B>>>>()?;
        layers.windows(2).for_each(|pair| pair[0].prefetch(&pair[1]));
        let model = Decoder { embed_tokens, layers, norm, ropes };
        let rest = DecoderLm { model, lm_head, kv_shape, options, vocabulary, parallel, stage };
        // The head's backward comes right after its forward, but where other parts of a batch come between.
        let reshard_after_forward = by.options.reshard_after_forward && stage.is_some();
        let options = FullyShardOptions { reshard_after_forward, ..by.options };
        Ok(Arc::new(FullyShard::of(rest, &Sharding { options, ..by.clone() })?))
    }
}

/// Refuses tokens whose axes are not those of the pass.
pub(super) fn check_tokens(tokens: &Tensor, pass: &Pass<'_>) -> Result<()> {
    let (fits, wanted) = match pass {
        Pass::Whole => (tokens.rank() == 2, "[B, T]".to_owned()),
        Pass::Packed(Packed { positions, .. })
        | Pass::Paged { batch: Batch { positions, .. }, .. } => {
            (tokens.shape() == positions.shape(), format!("{:?}", positions.shape()))
        }
    };
    match fits {
        true => Ok(()),
        false => Err(Error::op("hidden", format!("tokens are {:?}, not {wanted}", tokens.shape()))),
    }
}

/// Reads the activation of feed-forward layers.
pub(super) fn silu(settings: &mut Settings) -> Result<Activation> {
    settings.activation("hidden_act", "silu")
}
