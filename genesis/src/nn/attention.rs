//! Attention with several heads, with PyTorch's parameters and masks.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::watch::watch_as;
use super::{Linear, Module, Parameter, Training, count_flops, flops, init};
use crate::error::{Error, Result};
use crate::ops::Attention;
use crate::tensor::{Creation, Tensor};

/// What a [`MultiheadAttention`] is made with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MultiheadAttentionOptions {
    /// The probability with which a weight is dropped in training.
    pub dropout: f64,
    /// Whether projections have biases.
    pub bias: bool,
    /// Whether a key and a value that are learned stand behind the others.
    pub add_bias_kv: bool,
    /// Whether a key and a value of zeros stand behind the others.
    pub add_zero_attn: bool,
    /// The channels of keys; those of queries where absent.
    pub kdim: Option<usize>,
    /// The channels of values; those of queries where absent.
    pub vdim: Option<usize>,
    /// Whether tensors are `[N, L, E]` and not `[L, N, E]`.
    pub batch_first: bool,
}

impl Default for MultiheadAttentionOptions {
    fn default() -> MultiheadAttentionOptions {
        MultiheadAttentionOptions {
            dropout: 0.0,
            bias: true,
            add_bias_kv: false,
            add_zero_attn: false,
            kdim: None,
            vdim: None,
            batch_first: false,
        }
    }
}

/// What a call of [`MultiheadAttention::forward`] is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Attend<'t> {
    /// Keys that no query looks at: `[N, S]`, true where a key is padding, or floats to add.
    pub key_padding_mask: Option<&'t Tensor>,
    /// Keys that a query does not look at: `[L, S]` or `[N * heads, L, S]`, true where it does **not**
    /// look, or floats to add.
    pub attn_mask: Option<&'t Tensor>,
    /// Whether a query looks at the keys up to its own place only.
    pub is_causal: bool,
    /// Whether the weights are given back.
    pub need_weights: bool,
    /// Whether the weights given back are the means over the heads.
    pub average_attn_weights: bool,
}

impl Default for Attend<'_> {
    fn default() -> Self {
        Attend {
            key_padding_mask: None,
            attn_mask: None,
            is_causal: false,
            need_weights: true,
            average_attn_weights: true,
        }
    }
}

/// Attention with several heads.
///
/// A mask of bool is true where a query does **not** look, as in PyTorch; that is the opposite of
/// [`Tensor::scaled_dot_product_attention`], in PyTorch too. A query that may look nowhere gives 0 where
/// masks are bool.
///
/// # Shapes
/// `query: [L, N, E]`, `key: [S, N, kdim]`, `value: [S, N, vdim]` -> `[L, N, E]` and weights `[N, L, S]`;
/// with `batch_first` `N` is the first axis; without a batch there is no `N`.
#[derive(Debug, Module)]
pub struct MultiheadAttention {
    /// `[3 E, E]`: the projections of queries, keys and values, where all have `E` channels.
    pub in_proj_weight: Option<Parameter>,
    /// `[E, E]`, where there is no `in_proj_weight`.
    pub q_proj_weight: Option<Parameter>,
    /// `[E, kdim]`, where there is no `in_proj_weight`.
    pub k_proj_weight: Option<Parameter>,
    /// `[E, vdim]`, where there is no `in_proj_weight`.
    pub v_proj_weight: Option<Parameter>,
    /// `[3 E]`
    pub in_proj_bias: Option<Parameter>,
    /// `[1, 1, E]`: a key that is learned.
    pub bias_k: Option<Parameter>,
    /// `[1, 1, E]`: a value that is learned.
    pub bias_v: Option<Parameter>,
    /// What makes one output of all heads.
    pub out_proj: Linear,
    /// The number of channels of queries and of the output.
    pub embed_dim: usize,
    /// The number of heads.
    pub num_heads: usize,
    /// What it was made with.
    #[module(skip)]
    pub options: MultiheadAttentionOptions,
    /// Whether it is training.
    pub training: Training,
}

impl MultiheadAttention {
    /// Attention over `embed_dim` channels in `num_heads` heads.
    ///
    /// # Errors
    /// If the heads do not divide the channels, or memory runs out.
    pub fn new(
        embed_dim: usize,
        num_heads: usize,
        at: impl Into<Creation>,
    ) -> Result<MultiheadAttention> {
        MultiheadAttention::with(embed_dim, num_heads, MultiheadAttentionOptions::default(), at)
    }

    /// Attention with other options.
    ///
    /// # Errors
    /// If the heads do not divide the channels, or memory runs out.
    pub fn with(
        embed_dim: usize,
        num_heads: usize,
        options: MultiheadAttentionOptions,
        at: impl Into<Creation>,
    ) -> Result<MultiheadAttention> {
        let (e, at) = (embed_dim, at.into());
        if num_heads == 0 || !e.is_multiple_of(num_heads) {
            let message = format!("{num_heads} heads do not divide {e} channels");
            return Err(Error::op("multihead_attention", message));
        }
        let three = init::extent("multihead_attention", &[3, e])?;
        let (kdim, vdim) = (options.kdim.unwrap_or(e), options.vdim.unwrap_or(e));
        let one = kdim == e && vdim == e;
        let weight = |wanted: bool, shape: [usize; 2]| -> Result<Option<Parameter>> {
            if !wanted {
                return Ok(None);
            }
            let weight = Parameter::new(Tensor::zeros(&shape, at)?)?;
            init::xavier_uniform_(&weight, 1.0)?;
            Ok(Some(weight))
        };
        let learned = || -> Result<Option<Parameter>> {
            if !options.add_bias_kv {
                return Ok(None);
            }
            let row = Parameter::new(Tensor::zeros(&[1, 1, e], at)?)?;
            init::xavier_normal_(&row, 1.0)?;
            Ok(Some(row))
        };
        let bias = || options.bias.then(|| init::constant(&[three], 0.0, at)).transpose();
        let mut out_proj = Linear::without_bias(e, e, at)?;
        if options.bias {
            out_proj.bias = Some(init::constant(&[e], 0.0, at)?);
        }
        Ok(MultiheadAttention {
            in_proj_weight: weight(one, [three, e])?,
            q_proj_weight: weight(!one, [e, e])?,
            k_proj_weight: weight(!one, [e, kdim])?,
            v_proj_weight: weight(!one, [e, vdim])?,
            in_proj_bias: bias()?,
            bias_k: learned()?,
            bias_v: learned()?,
            out_proj,
            embed_dim,
            num_heads,
            options,
            training: Training::default(),
        })
    }

    /// The output, and the weights of the attention where they are asked for.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn forward(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        attend: &Attend<'_>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        watch_as(
            self,
            |(output, _)| output,
            || match query.rank() {
                3 => self.batched([query, key, value], attend),
                2 => {
                    let axis = if self.options.batch_first { 0 } else { 1 };
                    let [q, k, v] = distinct([query, key, value], |t| t.unsqueeze(axis))?;
                    let padding =
                        attend.key_padding_mask.map(|mask| mask.unsqueeze(0)).transpose()?;
                    let attend = Attend { key_padding_mask: padding.as_ref(), ..*attend };
                    let (output, weights) = self.batched([&q, &k, &v], &attend)?;
                    let weights = weights.map(|weights| weights.squeeze(0)).transpose()?;
                    Ok((output.squeeze(axis)?, weights))
                }
                _ => Err(self.refuse([query, key, value])),
            },
        )
    }

    fn refuse(&self, inputs: [&Tensor; 3]) -> Error {
        let [q, k, v] = inputs.map(Tensor::shape);
        let e = self.embed_dim;
        let message = format!("{q:?}, {k:?} and {v:?} do not fit attention over {e} channels");
        Error::op("multihead_attention", message)
    }

    fn batched(
        &self,
        inputs: [&Tensor; 3],
        attend: &Attend<'_>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let turned =
            |t: &Tensor| if self.options.batch_first { Ok(t.clone()) } else { t.transpose(0, 1) };
        if inputs.iter().any(|t| t.rank() != 3) {
            return Err(self.refuse(inputs));
        }
        let turned_inputs = distinct(inputs, turned)?; // [N, L, E]
        let [q, k, v] = &turned_inputs;
        let (n, l, s) = (q.shape()[0], q.shape()[1], k.shape()[1]);
        let fits =
            q.shape()[2] == self.embed_dim && k.shape()[0] == n && v.shape()[..2] == k.shape()[..2];
        if !fits {
            return Err(self.refuse(inputs));
        }
        let [q, k, v] = self.project([q, k, v])?;
        let (k, v, added) = self.lengthened(&k, &v)?;
        let mask = Mask::new(attend, [n, self.num_heads, l, s], added, q.device())?;
        let heads = |t: &Tensor| {
            let (len, d) = (t.shape()[1], self.embed_dim / self.num_heads);
            t.reshape(&[n, len, self.num_heads, d])?.transpose(1, 2) // [N, H, L, D]
        };
        let (q, k, v) = (heads(&q)?, heads(&k)?, heads(&v)?);
        count_flops(|| flops(&[4, n, l, s.saturating_add(added), self.embed_dim]));
        let dropout = if self.training.is_on() { self.options.dropout } else { 0.0 };
        let (y, weights) = if attend.need_weights {
            let (y, weights) = explicit([&q, &k, &v], &mask, dropout)?;
            let weights =
                if attend.average_attn_weights { weights.mean_dims(&[1], false)? } else { weights };
            (y, Some(weights))
        } else {
            let options =
                Attention { mask: mask.for_attention()?, dropout, ..Attention::default() };
            (q.scaled_dot_product_attention(&k, &v, &options)?, None)
        };
        let y = y.transpose(1, 2)?.reshape(&[n, l, self.embed_dim])?;
        Ok((turned(&self.out_proj.forward(&y)?)?, weights))
    }

    /// Queries, keys and values, `[N, L, E]` each. Inputs that are one tensor are projected at once.
    fn project(&self, [q, k, v]: [&Tensor; 3]) -> Result<[Tensor; 3]> {
        let e = self.embed_dim;
        let Some(weight) = &self.in_proj_weight else {
            let (Some(wq), Some(wk), Some(wv)) =
                (&self.q_proj_weight, &self.k_proj_weight, &self.v_proj_weight)
            else {
                return Err(Error::op("multihead_attention", "there are no projections"));
            };
            let one = |x: &Tensor, weight: &Tensor, at: usize| self.part(x, weight, at * e, e);
            return Ok([one(q, wq, 0)?, one(k, wk, 1)?, one(v, wv, 2)?]);
        };
        let part = |x: &Tensor, from: usize, parts: usize| {
            self.part(x, &weight.narrow(0, from * e, parts * e)?, from * e, parts * e)
        };
        let cut = |t: &Tensor, at: usize| t.narrow(-1, at * e, e);
        if q.is_same(k) && k.is_same(v) {
            let all = part(q, 0, 3)?; // [N, L, 3 E]
            return Ok([cut(&all, 0)?, cut(&all, 1)?, cut(&all, 2)?]);
        }
        if k.is_same(v) {
            let both = part(k, 1, 2)?;
            return Ok([part(q, 0, 1)?, cut(&both, 0)?, cut(&both, 1)?]);
        }
        Ok([part(q, 0, 1)?, part(k, 1, 1)?, part(v, 2, 1)?])
    }

    /// `x W^T + b`, with `len` biases from `start`.
    fn part(&self, x: &Tensor, weight: &Tensor, start: usize, len: usize) -> Result<Tensor> {
        count_flops(|| flops(&[2, x.numel(), weight.shape()[0]]));
        match &self.in_proj_bias {
            Some(bias) => x.matmul_bias(&weight.t()?, &bias.narrow(0, start, len)?),
            None => x.matmul(&weight.t()?),
        }
    }

    /// Keys and values with the learned ones and zeros behind, and how many these are.
    fn lengthened(&self, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor, usize)> {
        let (mut k, mut v, mut added) = (k.clone(), v.clone(), 0);
        let shape = [k.shape()[0], 1, self.embed_dim];
        if let (Some(bias_k), Some(bias_v)) = (&self.bias_k, &self.bias_v) {
            k = Tensor::cat(&[&k, &bias_k.broadcast_to(&shape)?], 1)?;
            v = Tensor::cat(&[&v, &bias_v.broadcast_to(&shape)?], 1)?;
            added += 1;
        }
        if self.options.add_zero_attn {
            let zeros = Tensor::zeros(&shape, (k.dtype(), k.device()))?;
            k = Tensor::cat(&[&k, &zeros], 1)?;
            v = Tensor::cat(&[&v, &zeros], 1)?;
            added += 1;
        }
        Ok((k, v, added))
    }
}

/// The same function of three tensors, once for those that are one.
fn distinct([a, b, c]: [&Tensor; 3], f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<[Tensor; 3]> {
    let fa = f(a)?;
    let fb = if b.is_same(a) { fa.clone() } else { f(b)? };
    let fc = match c {
        c if c.is_same(a) => fa.clone(),
        c if c.is_same(b) => fb.clone(),
        c => f(c)?,
    };
    Ok([fa, fb, fc])
}

/// Attention whose weights are seen.
fn explicit([q, k, v]: [&Tensor; 3], mask: &Mask, dropout: f64) -> Result<(Tensor, Tensor)> {
    let wide = |t: &Tensor| t.to_dtype(crate::launch::accumulate_dtype(t.dtype()));
    let scale = 1.0 / (q.dim(-1)? as f64).sqrt();
    let scores = wide(q)?.mul_scalar(scale)?.matmul(&wide(k)?.t()?)?;
    let weights = mask.softmax(&scores)?;
    let weights = if dropout > 0.0 { weights.dropout(dropout)? } else { weights };
    Ok((weights.matmul(&wide(v)?)?.to_dtype(q.dtype())?, weights.to_dtype(q.dtype())?))
}

/// All masks of a call in one: where not to look, and what to add to the scores.
struct Mask {
    /// Broadcasts to `[N, H, L, S]`, true where not to look.
    hidden: Option<Tensor>,
    /// Broadcasts to `[N, H, L, S]`.
    added: Option<Tensor>,
}

impl Mask {
    /// From masks of `S` keys, to `added` more keys, which are always seen.
    fn new(
        attend: &Attend<'_>,
        [n, h, l, s]: [usize; 4],
        added: usize,
        device: Device,
    ) -> Result<Mask> {
        let mut mask = Mask { hidden: None, added: None };
        let refuse = |what: &str, shape: &[usize]| {
            let message =
                format!("{what} of {shape:?} does not fit {n} times {l} queries, {s} keys");
            Error::op("multihead_attention", message)
        };
        if let Some(padding) = attend.key_padding_mask {
            if padding.shape() != [n, s] {
                return Err(refuse("a key padding mask", padding.shape()));
            }
            mask.join(&padding.reshape(&[n, 1, 1, s])?, added)?;
        }
        if let Some(attn) = attend.attn_mask {
            let shape = match *attn.shape() {
                [a, b] if [a, b] == [l, s] => [1, 1, l, s],
                [a, b, c] if [a, b, c] == [n * h, l, s] => [n, h, l, s],
                _ => return Err(refuse("an attention mask", attn.shape())),
            };
            mask.join(&attn.reshape(&shape)?, added)?;
        }
        if attend.is_causal {
            let ones = Tensor::ones(&[l, s], (DType::I64, device))?;
            mask.join(&ones.triu(1)?.to_bool()?.reshape(&[1, 1, l, s])?, added)?;
        }
        Ok(mask)
    }

    fn join(&mut self, new: &Tensor, more: usize) -> Result<()> {
        use crate::ops::PadMode;
        let is_float = new.dtype().is_float();
        let new = if is_float { new.clone() } else { new.to_bool()? };
        let new = if more > 0 { new.pad(&[0, more as i64], PadMode::Constant(0.0))? } else { new };
        let place = if is_float { &mut self.added } else { &mut self.hidden };
        *place = Some(match (place.take(), is_float) {
            (None, _) => new,
            (Some(old), true) => old.add(&new)?,
            (Some(old), false) => old.logical_or(&new)?,
        });
        Ok(())
    }

    /// As [`Tensor::scaled_dot_product_attention`] wants it: true where to look, or floats to add.
    fn for_attention(&self) -> Result<Option<Tensor>> {
        match (&self.hidden, &self.added) {
            (None, None) => Ok(None),
            (Some(hidden), None) => hidden.logical_not().map(Some),
            (None, Some(added)) => Ok(Some(added.clone())),
            (Some(hidden), Some(added)) => {
                let never = Tensor::full(&[], f64::NEG_INFINITY, (added.dtype(), added.device()))?;
                hidden.where_(&never, added).map(Some)
            }
        }
    }

    /// The weights of scores `[N, H, L, S]`.
    fn softmax(&self, scores: &Tensor) -> Result<Tensor> {
        let mut scores = scores.clone();
        if let Some(added) = &self.added {
            scores = scores.add(&added.to_dtype(scores.dtype())?)?;
        }
        let Some(hidden) = &self.hidden else { return scores.softmax(-1) };
        let never = Tensor::full(&[], f64::NEG_INFINITY, (scores.dtype(), scores.device()))?;
        let scores = hidden.where_(&never, &scores)?;
        let nowhere = scores.detach().eq_scalar(f64::NEG_INFINITY)?.all_dims_true(&[-1], true)?;
        // The row is made finite before its softmax, so that its gradient is 0 and not NaN.
        let zero = Tensor::zeros(&[], (scores.dtype(), scores.device()))?;
        nowhere.where_(&zero, &scores)?.softmax(-1)?.masked_fill(&nowhere, 0.0)
    }
}
