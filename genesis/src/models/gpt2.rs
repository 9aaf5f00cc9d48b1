//! GPT-2: learned positions, layer norms, one product for queries, keys and values, and weights that are
//! stored as `[in, out]`, since the original wrote them as convolutions.
//!
//! # Source
//! Radford et al., 2019; the names and defaults of `transformers`.

use std::sync::Arc;

use super::attend::{Attend, Heads};
use super::blueprint::Blueprint;
use super::decoder::check_tokens;
use super::layer_checkpoints::LayerCheckpoints;
use super::paged::Ends;
use super::projection::Projection;
use super::residual::{Residual, watch_block};
use super::rotation::Rotation;
use super::settings::Settings;
use super::{CausalLm, KvShape, Pass};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::nn::{Embedding, LayerNorm, Module, Parameter, is_observed, watch};
use crate::ops::{Activation, Reduction};
use crate::tensor::Tensor;

/// `y = x W + b`, with a weight of `[in, out]`.
#[derive(Debug, Module)]
pub struct Transposed {
    /// `[in, out]`
    pub weight: Parameter,
    /// `[out]`
    pub bias: Parameter,
}

impl Transposed {
    fn new(plan: &Blueprint, inputs: usize, outputs: usize) -> Result<Transposed> {
        let (weight, bias) = (plan.parameter(&[inputs, outputs])?, plan.parameter(&[outputs])?);
        Ok(Transposed { weight, bias })
    }

    /// The product of the input and the weight, plus the bias.
    ///
    /// # Errors
    /// If the last extent is not that of the weight.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.matmul_bias(&self.weight, &self.bias))
    }
}

/// The attention of a layer.
#[derive(Debug, Module)]
pub struct Gpt2Attention {
    /// `[C, 3 C]`: queries, keys and values.
    pub c_attn: Transposed,
    /// `[C, C]`
    pub c_proj: Transposed,
    /// Heads of queries, keys and values.
    pub heads: usize,
    /// How queries look at keys.
    #[module(skip)]
    pub attend: Attend,
}

/// The feed-forward layer of a layer.
#[derive(Debug, Module)]
pub struct Gpt2Mlp {
    /// `[C, hidden]`
    pub c_fc: Transposed,
    /// `[hidden, C]`
    pub c_proj: Transposed,
    /// The function between them.
    #[module(skip)]
    pub activation: Activation,
}

/// A layer.
#[derive(Debug, Module)]
pub struct Gpt2Block {
    /// Before the attention.
    pub ln_1: LayerNorm,
    /// What looks at other tokens.
    pub attn: Gpt2Attention,
    /// Before the feed-forward layer.
    pub ln_2: LayerNorm,
    /// What each token does by itself.
    pub mlp: Gpt2Mlp,
}

/// Embeddings, layers and norm.
#[derive(Debug, Module)]
pub struct Gpt2Decoder {
    /// Tokens, `[V, C]`.
    pub wte: Embedding,
    /// Positions, `[P, C]`.
    pub wpe: Embedding,
    /// The layers in order.
    pub h: Vec<Gpt2Block>,
    /// Behind the last layer.
    pub ln_f: LayerNorm,
}

/// A GPT-2 with a head that gives logits.
#[derive(Debug, Module)]
pub struct Gpt2 {
    /// All but the head.
    pub transformer: Gpt2Decoder,
    /// `[V, C]`, the embedding's own where tied.
    pub lm_head: Projection,
}

impl Gpt2Attention {
    fn forward(
        &self,
        x: &Tensor,
        layer: usize,
        pass: (&Pass<'_>, Option<&Ends>),
    ) -> Result<Tensor> {
        watch(self, || {
            let joined = self.c_attn.forward(x)?; // [.., tokens, 3 C]
            let heads = joined.unflatten(-1, &[3, self.heads as i64, -1])?; // [.., 3, H, D]
            let part = |i| heads.select(-3, i); // [.., tokens, H, D]
            let (q, k, v) = (part(0)?, part(1)?, part(2)?);
            let seen = Heads { q: &q, k: &k, v: &v };
            self.c_proj.forward(&self.attend.run(seen, layer, pass)?)
        })
    }
}

impl Gpt2Block {
    fn forward(
        &self,
        x: Residual,
        layer: usize,
        (pass, ends): (&Pass<'_>, Option<&Ends>),
    ) -> Result<Residual> {
        watch_block(self, || {
            let (x, normed) = x.for_products(&self.ln_1)?;
            let seen = self.attn.forward(&normed, layer, (pass, ends))?;
            let x = match ends {
                Some(ends) => x.at_ends(ends)?,
                None => x,
            };
            let x = x.plus(seen)?;
            let (x, normed) = x.for_products(&self.ln_2)?;
            let hidden = self.mlp.activation.apply(&self.mlp.c_fc.forward(&normed)?)?;
            x.plus(self.mlp.c_proj.forward(&hidden)?)
        })
    }
}

impl Gpt2 {
    fn run(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        let model = &self.transformer;
        let positions = match pass {
            Pass::Whole => {
                let (length, most) = (tokens.dim(-1)?, self.max_positions());
                if length > most {
                    let message = format!("{length} tokens are over the {most} positions");
                    return Err(Error::op("gpt2", message));
                }
                model.wpe.weight.narrow(0, 0, length)?
            }
            Pass::Packed(packed) => model.wpe.forward(&packed.positions)?,
            Pass::Paged { batch, .. } => model.wpe.forward(&batch.positions)?,
        };
        watch(model, || {
            let checkpoints = LayerCheckpoints::of(pass, &Arc::from([]));
            // Who observes a layer is shown all tokens.
            let ends = pass.ends().filter(|_| !is_observed());
            let mut x = Residual::new(model.wte.forward(tokens)?.add(&positions)?);
            for (layer, block) in model.h.iter().enumerate() {
                x = match &checkpoints {
                    Some(checkpoints) => {
                        let first = |x: &Tensor| self.run_layer(layer, x, pass, &[]);
                        Residual::new(checkpoints.run(layer, &x.whole()?, first)?)
                    }
                    None => {
                        let ends = ends.filter(|_| layer + 1 == model.h.len());
                        block.forward(x, layer, (pass, ends))?
                    }
                };
            }
            x.normed(&model.ln_f)
        })
    }
}

impl CausalLm for Gpt2 {
    fn vocab_size(&self) -> usize {
        self.transformer.wte.weight.shape()[0]
    }

    fn max_positions(&self) -> usize {
        self.transformer.wpe.weight.shape()[0]
    }

    fn kv_shape(&self) -> KvShape {
        let heads = self.transformer.h.first().map_or(1, |block| block.attn.heads);
        let channels = self.transformer.wte.weight.shape()[1];
        KvShape { layers: self.transformer.h.len(), heads, head_dim: channels / heads }
    }

    fn hidden(&self, tokens: &Tensor, pass: &Pass<'_>) -> Result<Tensor> {
        check_tokens(tokens, pass)?;
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
        _rotations: &[Rotation],
    ) -> Result<Tensor> {
        let missing = || Error::op("run_layer", format!("there is no layer {layer}"));
        let block = self.transformer.h.get(layer).ok_or_else(missing)?;
        block.forward(Residual::new(x.clone()), layer, (pass, None))?.whole()
    }

    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.lm_head.forward(hidden)
    }

    fn cross_entropy(
        &self,
        hidden: &Tensor,
        targets: &Tensor,
        reduction: Reduction,
    ) -> Result<Option<Tensor>> {
        self.lm_head.cross_entropy(hidden, targets, (reduction, None))
    }
}

/// What a configuration says of the layers.
struct Plan {
    channels: usize,
    heads: usize,
    hidden: usize,
    eps: f64,
    activation: Activation,
    is_scaled: bool,
    is_scaled_by_layer: bool,
}

impl Plan {
    fn read(settings: &mut Settings) -> Result<Plan> {
        let channels = settings.size("n_embd", 768)?;
        let heads = settings.size("n_head", 12)?;
        if !channels.is_multiple_of(heads) {
            let what = format!("n_embd {channels} is no multiple of n_head {heads}");
            return Err(settings.refusal(what));
        }
        Ok(Plan {
            channels,
            heads,
            hidden: settings.size_if("n_inner")?.unwrap_or(4 * channels),
            eps: settings.epsilon("layer_norm_epsilon", 1e-5)?,
            activation: settings.activation("activation_function", "gelu_new")?,
            is_scaled: settings.flag("scale_attn_weights", true)?,
            is_scaled_by_layer: settings.flag("scale_attn_by_inverse_layer_idx", false)?,
        })
    }

    fn block(&self, plan: &Blueprint, layer: usize) -> Result<Gpt2Block> {
        let c = self.channels;
        let usual = ((c / self.heads) as f64).sqrt();
        let divisor = if self.is_scaled { usual } else { 1.0 };
        let divisor = if self.is_scaled_by_layer { divisor * (layer + 1) as f64 } else { divisor };
        Ok(Gpt2Block {
            ln_1: plan.layer_norm(c, self.eps)?,
            attn: Gpt2Attention {
                c_attn: Transposed::new(plan, c, 3 * c)?,
                c_proj: Transposed::new(plan, c, c)?,
                heads: self.heads,
                attend: Attend { scale: 1.0 / divisor, window: None, softcap: None },
            },
            ln_2: plan.layer_norm(c, self.eps)?,
            mlp: Gpt2Mlp {
                c_fc: Transposed::new(plan, c, self.hidden)?,
                c_proj: Transposed::new(plan, self.hidden, c)?,
                activation: self.activation,
            },
        })
    }
}

/// A GPT-2 by its configuration.
pub(super) fn gpt2(settings: &mut Settings, plan: &Blueprint) -> Result<Gpt2> {
    settings.only("add_cross_attention", false)?;
    settings.take("n_ctx"); // what n_positions says, of older files
    let layers = settings.size("n_layer", 12)?;
    let vocabulary = settings.size("vocab_size", 50_257)?;
    let positions = settings.size("n_positions", 1024)?;
    let is_tied = settings.flag("tie_word_embeddings", true)?;
    let of = Plan::read(settings)?;
    let transformer = Gpt2Decoder {
        wte: plan.embedding(vocabulary, of.channels)?,
        wpe: plan.embedding(positions, of.channels)?,
        h: (0..layers).map(|layer| of.block(plan, layer)).collect::<Result<_>>()?,
        ln_f: plan.layer_norm(of.channels, of.eps)?,
    };
    let lm_head = match is_tied {
        true => Projection { weight: transformer.wte.weight.clone().into(), bias: None },
        false => plan.projection([of.channels, vocabulary], false)?,
    };
    Ok(Gpt2 { transformer, lm_head })
}
