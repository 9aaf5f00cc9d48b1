//! Self-attention of decoders: projections, norms of heads, rotation, and what [`Attend`] does.

use super::Pass;
use super::attend::{Attend, Heads};
use super::blueprint::Blueprint;
use super::norm::Norm;
use super::normed::Normed;
use super::paged::Ends;
use super::projection::Projection;
use super::residual::Residual;
use super::rotation::Rotation;
use super::sizes::Sizes;
use super::tensor_parallel::TensorParallel;
use crate::error::Result;
use crate::nn::{Module, is_observed, watch, watch_as};
use crate::tensor::Tensor;

/// What the layers of a decoder share in a pass.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The pass.
    pub pass: &'a Pass<'a>,
    /// The rotation of its tokens by each [`Rope`](super::rope::Rope) of the model.
    pub rotations: &'a [Rotation],
    /// The number of the layer.
    pub layer: usize,
    /// The norm that the next layer begins with, where its products defer it.
    pub next: Option<&'a Norm>,
    /// The tokens that go on behind the layer's keys and values, where these are not all.
    pub ends: Option<&'a Ends>,
}

impl Context<'_> {
    /// The residual stream of the tokens that go on.
    pub(super) fn going_on(&self, residual: Residual) -> Result<Residual> {
        match self.ends {
            Some(ends) => residual.at_ends(ends),
            None => Ok(residual),
        }
    }
}

/// Sizes and kinds of the attention of a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttentionPlan {
    pub(super) channels: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) head_dim: usize,
    /// Whether queries, keys and values have biases.
    pub(super) qkv_bias: bool,
    /// Whether the output has one.
    pub(super) out_bias: bool,
    pub(super) attend: Attend,
    /// Which rope of the model.
    pub(super) rope: usize,
}

impl AttentionPlan {
    /// The plain one: no biases, no window, the usual scale, the first rope.
    pub(super) fn of(sizes: &Sizes) -> AttentionPlan {
        AttentionPlan {
            channels: sizes.channels,
            heads: sizes.heads,
            kv_heads: sizes.kv_heads,
            head_dim: sizes.head_dim,
            qkv_bias: false,
            out_bias: false,
            attend: Attend { scale: sizes.scale(), window: None, softcap: None },
            rope: 0,
        }
    }
}

/// Causal self-attention with rotary positions.
///
/// # Shapes
/// `[.., tokens, C]` -> the same.
#[derive(Debug, Module)]
pub struct SelfAttention {
    /// `[H * D, C]`
    pub q_proj: Projection,
    /// `[G * D, C]`
    pub k_proj: Projection,
    /// `[G * D, C]`
    pub v_proj: Projection,
    /// `[C, H * D]`
    pub o_proj: Projection,
    /// A norm of each head of queries, `[D]`.
    pub q_norm: Option<Norm>,
    /// A norm of each head of keys, `[D]`.
    pub k_norm: Option<Norm>,
    /// Channels of a head.
    pub head_dim: usize,
    /// How queries look at keys.
    #[module(skip)]
    pub attend: Attend,
    /// Which rope of the model turns queries and keys.
    pub rope: usize,
    /// The ranks that have some of the heads each.
    #[module(skip)]
    pub parallel: Option<TensorParallel>,
}

impl SelfAttention {
    pub(super) fn new(plan: &Blueprint, of: AttentionPlan) -> Result<SelfAttention> {
        let (queries, keys) = (of.heads * of.head_dim, of.kv_heads * of.head_dim);
        Ok(SelfAttention {
            q_proj: plan.projection([of.channels, queries], of.qkv_bias)?,
            k_proj: plan.projection([of.channels, keys], of.qkv_bias)?,
            v_proj: plan.projection([of.channels, keys], of.qkv_bias)?,
            o_proj: plan.projection([queries, of.channels], of.out_bias)?,
            q_norm: None,
            k_norm: None,
            head_dim: of.head_dim,
            attend: of.attend,
            rope: of.rope,
            parallel: None,
        })
    }

    /// With norms of the heads of queries and keys.
    pub(super) fn with_head_norms(
        self,
        norm: impl Fn(usize) -> Result<Norm>,
    ) -> Result<SelfAttention> {
        let (q_norm, k_norm) = (Some(norm(self.head_dim)?), Some(norm(self.head_dim)?));
        Ok(SelfAttention { q_norm, k_norm, ..self })
    }

    /// What the tokens that go on see, projected.
    ///
    /// # Errors
    /// If shapes do not fit, or a launch fails.
    pub fn forward(&self, x: &Normed<'_>, context: &Context<'_>) -> Result<Tensor> {
        watch(self, || {
            let seen = self.seen(x, context)?;
            match &self.parallel {
                Some(parallel) => parallel.product(&self.o_proj, &seen),
                None => self.o_proj.forward(&seen),
            }
        })
    }

    /// Keeps this rank's heads; gives the parameters that each rank uses for its heads only.
    pub(super) fn tensor_parallel(&mut self, by: &TensorParallel) -> Result<Vec<Tensor>> {
        by.check("heads of queries", self.q_proj.weight.shape()[0] / self.head_dim.max(1))?;
        by.check("heads of keys", self.k_proj.weight.shape()[0] / self.head_dim.max(1))?;
        for product in [&mut self.q_proj, &mut self.k_proj, &mut self.v_proj] {
            by.cut_outputs(product)?;
        }
        by.cut_inputs(&mut self.o_proj)?;
        self.parallel = Some(by.clone());
        let norms = self.q_norm.iter().chain(&self.k_norm);
        Ok(norms.map(|norm| norm.weight.tensor().clone()).collect())
    }

    /// Whether the norm in front is left to the products.
    pub(super) fn defers_norm(&self) -> bool {
        Projection::defer_norms(&[&self.q_proj, &self.k_proj, &self.v_proj])
    }

    /// Adds what the tokens see, projected, to the residual stream; `next` as in [`Residual::plus_product`].
    ///
    /// # Errors
    /// If shapes do not fit, or a launch fails.
    pub(super) fn onto(
        &self,
        x: &Normed<'_>,
        context: &Context<'_>,
        residual: Residual,
        next: Option<&Norm>,
    ) -> Result<Residual> {
        let residual = context.going_on(residual)?;
        if is_observed() || self.parallel.is_some() {
            return residual.plus(self.forward(x, context)?);
        }
        let run = || residual.plus_product(&self.o_proj, &self.seen(x, context)?, next);
        watch_as(self, Residual::sum, run)
    }

    /// The values that the tokens that go on see, `[.., tokens, H * D]`.
    fn seen(&self, x: &Normed<'_>, context: &Context<'_>) -> Result<Tensor> {
        let [q, k, v] = self.products(x)?;
        let (rotation, layer) = (&context.rotations[self.rope], context.layer);
        let heads = Heads { q: &q, k: &k, v: &v };
        let norms = (self.q_norm.as_ref(), self.k_norm.as_ref());
        if let Pass::Paged { batch, cache } = context.pass
            && let Some(y) =
                rotation.seen(heads, norms, &self.attend, layer, (batch, cache, context.ends))?
        {
            return y.flatten(-2, -1);
        }
        let normed = |t: &Tensor, norm: Option<&Norm>| match norm {
            Some(norm) => norm.forward(t),
            None => Ok(t.clone()),
        };
        let q = rotation.apply(&normed(&q, norms.0)?)?;
        let k = rotation.apply(&normed(&k, norms.1)?)?;
        self.attend.run(Heads { q: &q, k: &k, v: &v }, layer, (context.pass, context.ends))
    }

    /// Queries `[.., tokens, H, D]`, keys and values `[.., tokens, G, D]`: parts of one product where weights are
    /// packed.
    fn products(&self, x: &Normed<'_>) -> Result<[Tensor; 3]> {
        let heads = |t: Tensor| t.unflatten(-1, &[-1, self.head_dim as i64]);
        let parts = [&self.q_proj, &self.k_proj, &self.v_proj];
        if let Some(parallel) = &self.parallel {
            let x = parallel.enter(x.tensor()?)?;
            let [q, k, v] = parts.map(|part| heads(part.forward(&x)?));
            return Ok([q?, k?, v?]);
        }
        let Some(joined) = Projection::joined(&parts)? else {
            let x = x.tensor()?;
            let [q, k, v] = parts.map(|part| heads(part.forward(x)?));
            return Ok([q?, k?, v?]);
        };
        let all = heads(joined.of_normed(x)?)?; // [.., tokens, H + 2 G, D]
        let [q, k, v] = parts.map(|part| part.weight.shape()[0] / self.head_dim);
        let part = |start, heads| all.narrow(-2, start, heads);
        Ok([part(0, q)?, part(q, k)?, part(q + k, v)?])
    }

    /// Lays weights out so that queries, keys and values are one product.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn pack(&mut self) -> Result<()> {
        Projection::pack(&mut [&mut self.q_proj, &mut self.k_proj, &mut self.v_proj])
    }
}
