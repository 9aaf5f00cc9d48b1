//! Scaled dot-product attention: what it may look at, and which of two forms computes it.
//!
//! The *flash* form is one kernel that never holds the matrix of scores (`kernels::attention`); its
//! backward makes the weights anew. The *composed* form is products and a softmax, takes every shape, and is
//! what the second derivative is made of.

use std::sync::OnceLock;

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::runtime::{Arg, Device};
use kernels::attention as device;

use super::elementwise::check_pair;
use super::random::{dropout_from, fixed_args, state_args};
use super::{Op, Saves, apply, launch};
use crate::amp;
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::{Error, Result};
use crate::random::{RngState, default_generator};
use crate::tensor::Tensor;

const NAME: &str = "scaled_dot_product_attention";

/// What [`Tensor::scaled_dot_product_attention`] can be asked for.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    /// Where to look (bool), or what is added to the scores.
    pub mask: Option<Tensor>,
    /// Each query looks at the keys up to its own place.
    pub is_causal: bool,
    /// Probability with which a weight is dropped.
    pub dropout: f64,
    /// Factor of the scores.
    pub scale: Option<f64>,
    /// Whether keys and values have fewer heads, each for a group of queries.
    pub groups: bool,
    /// Query `i` looks at keys from `i - window.0` to `i + window.1`.
    pub window: Option<(usize, usize)>,
    /// Scores are bounded softly: `cap tanh(score / cap)`.
    pub softcap: Option<f64>,
    /// Which form computes it.
    pub backend: AttentionBackend,
}

/// How attention is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AttentionBackend {
    /// The flash form on GPUs for 16-bit dtypes, where it can; else the composed one.
    #[default]
    Auto,
    /// One kernel, without the matrix of scores; refused where it can't.
    Flash,
    /// Products and a softmax.
    Composed,
}

/// The largest distance of a key from its query: more than any tensor is long.
const FAR: i64 = 1 << 40;

/// The most scores of a matrix that is small.
const SMALL: usize = 1 << 18;
/// Heads longer than this are left to the composed form.
const MAX_HEAD: usize = 256;

/// A call whose operands were checked.
struct Call<'a> {
    q: &'a Tensor,
    k: &'a Tensor,
    v: &'a Tensor,
    options: &'a Attention,
}

impl Tensor {
    /// Attention: `softmax(q k' * scale + mask) v`, computed in f32 for 16-bit dtypes.
    ///
    /// # Shapes
    /// `q: [.., L, D]`, `k: [.., S, D]`, `v: [.., S, E]` give `[.., L, E]`. With `groups` the heads
    /// (axis -3) of `k` and `v` are repeated to those of `q`. A mask of bool says where to look, one of
    /// floats is added. The default scale is `1 / sqrt(D)`. A row that may look nowhere gives 0.
    /// # Numerics
    /// The same seed drops the same weights in both forms.
    /// # Errors
    /// If shapes do not fit, or the flash form is asked for where it can't be used.
    /// # Source
    /// arXiv:1706.03762, arXiv:2307.08691; same conventions as
    /// `torch.nn.functional.scaled_dot_product_attention`.
    #[track_caller]
    pub fn scaled_dot_product_attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        options: &Attention,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::cast_inputs(NAME, &[self, k, v])? {
            return cast[0].scaled_dot_product_attention(&cast[1], &cast[2], options);
        }
        let call = Call { q: self, k, v, options };
        match call.pick()? {
            (AttentionBackend::Flash, _) => call.flash(),
            _ => call.composed(),
        }
    }

    /// Which form [`Tensor::scaled_dot_product_attention`] computes a call by, and why.
    ///
    /// # Errors
    /// As of that.
    pub fn attention_backend(
        &self,
        k: &Tensor,
        v: &Tensor,
        options: &Attention,
    ) -> Result<(AttentionBackend, String)> {
        Call { q: self, k, v, options }.pick()
    }
}

impl Call<'_> {
    fn check(&self) -> Result<()> {
        let Call { q, k, v, options } = self;
        check_pair(NAME, q, k)?;
        check_pair(NAME, q, v)?;
        if q.rank() < 2 || k.rank() < 2 || v.rank() < 2 {
            let message = format!("needs at least 2 dimension(s), got shape {:?}", q.shape());
            return Err(Error::op(NAME, message));
        }
        if options.groups && q.rank() > 2 {
            let heads = q.dim(-3)?;
            for t in [k, v] {
                let own = if t.rank() > 2 { t.dim(-3)? } else { 1 };
                if own == 0 || heads % own != 0 {
                    let message = format!("{heads} heads are no multiple of {own}");
                    return Err(Error::op(NAME, message));
                }
            }
        }
        if !(0.0..=1.0).contains(&options.dropout) {
            let message = format!("dropout must be in [0, 1], got {}", options.dropout);
            return Err(Error::op(NAME, message));
        }
        let positive = |cap: f64| cap > 0.0 && cap.is_finite();
        if options.softcap.is_some_and(|cap| !positive(cap)) {
            return Err(Error::op(NAME, "softcap must be a positive number"));
        }
        Ok(())
    }

    fn pick(&self) -> Result<(AttentionBackend, String)> {
        self.check()?;
        let problem = self.flash_problem();
        let half = matches!(self.q.dtype(), DType::F16 | DType::BF16);
        match (self.options.backend, problem) {
            (AttentionBackend::Composed, _) => {
                Ok((AttentionBackend::Composed, "it was asked for".to_owned()))
            }
            (AttentionBackend::Flash, None) => {
                Ok((AttentionBackend::Flash, "it was asked for".to_owned()))
            }
            (AttentionBackend::Flash, Some(problem)) => {
                Err(Error::op(NAME, format!("the flash form can't be used: {problem}")))
            }
            (AttentionBackend::Auto, Some(problem)) => Ok((AttentionBackend::Composed, problem)),
            (AttentionBackend::Auto, None) if self.q.device() == Device::Cpu => {
                Ok((AttentionBackend::Composed, "on the CPU products are a library's".to_owned()))
            }
            (AttentionBackend::Auto, None) if !half => {
                let why = format!("tensor cores multiply 16-bit floats, not {}", self.q.dtype());
                Ok((AttentionBackend::Composed, why))
            }
            (AttentionBackend::Auto, None) if self.is_small() => {
                let why = "a small matrix without heads is computed in f32 throughout";
                Ok((AttentionBackend::Composed, why.to_owned()))
            }
            (AttentionBackend::Auto, None) => {
                Ok((AttentionBackend::Flash, "16-bit floats on a GPU".to_owned()))
            }
        }
    }

    /// Whether this is one matrix of few scores: a kernel gains nothing there, and rounds weights for
    /// tensor cores, which PyTorch does for tensors of 4 axes only.
    fn is_small(&self) -> bool {
        self.q.rank() == 2 && self.q.shape()[0] * self.k.shape()[0] <= SMALL
    }

    /// Why the flash form can't compute this.
    fn flash_problem(&self) -> Option<String> {
        let Call { q, k, v, options } = self;
        let rank = q.rank();
        if rank > 4 || k.rank() != rank || v.rank() != rank {
            return Some("it takes tensors of equal rank, 4 at most".to_owned());
        }
        let [d, e] = [q, v].map(|t| t.shape()[rank - 1]);
        if d != e || k.shape()[rank - 1] != d || d > MAX_HEAD {
            return Some(format!(
                "heads of {d} and {e} elements are not equal and {MAX_HEAD} at most"
            ));
        }
        let lead = |t: &Tensor, n: usize| t.shape()[..n].to_vec();
        let apart = if options.groups && rank > 2 { 3 } else { 2 };
        let n = rank - apart;
        if lead(k, n) != lead(q, n) || lead(v, rank - 1) != lead(k, rank - 1) {
            return Some("batches and heads are not equal".to_owned());
        }
        if q.numel() * k.numel() == 0 {
            return Some("there is nothing to look at".to_owned());
        }
        if !q.dtype().is_arithmetic_float() {
            return Some(format!("{} is not a dtype to compute in", q.dtype()));
        }
        if !(self.scale() > 0.0) {
            return Some("the scale is not above 0".to_owned());
        }
        let mask = options.mask.as_ref()?;
        if mask.requires_grad() && is_grad_enabled() {
            return Some("the mask wants a gradient".to_owned());
        }
        (mask.rank() > 4).then(|| "the mask has more than 4 axes".to_owned())
    }

    fn scale(&self) -> f64 {
        let d = self.q.shape()[self.q.rank() - 1];
        self.options.scale.unwrap_or(1.0 / (d as f64).sqrt())
    }

    /// How far before and after its own place a query looks.
    fn reach(&self) -> [i64; 2] {
        let far = |n: usize| i64::try_from(n).map_or(FAR, |n| n.min(FAR));
        let [left, right] = self.options.window.map_or([FAR; 2], |(l, r)| [far(l), far(r)]);
        [left, if self.options.is_causal { 0 } else { right }]
    }

    #[track_caller]
    fn flash(&self) -> Result<Tensor> {
        let Call { q, k, v, options } = self;
        let rank = q.rank();
        let lifted = |t: &Tensor| (rank..4).try_fold((*t).clone(), |t, _| t.unsqueeze(0));
        let (q, k, v) = (lifted(q)?, lifted(k)?, lifted(v)?);
        let shape = [q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]];
        let bias =
            options.mask.as_ref().map(|mask| as_bias(mask, q.dtype(), &shape)).transpose()?;
        let drop = (options.dropout > 0.0)
            .then(|| (options.dropout, default_generator().take(shape.iter().product())));
        let flash = Flash {
            scale: self.scale(),
            reach: self.reach(),
            cap: options.softcap,
            bias,
            drop,
            lse: OnceLock::new(),
        };
        let y = apply(flash, &[&q, &k, &v])?;
        (rank..4).try_fold(y, |y, _| y.squeeze(0))
    }

    #[track_caller]
    fn composed(&self) -> Result<Tensor> {
        let Call { q, k, v, options } = self;
        let wide = |t: &Tensor| t.to_dtype(launch::accumulate_dtype(t.dtype()));
        let (q, mut k, mut v) = (wide(q)?, wide(k)?, wide(v)?);
        if options.groups && q.rank() > 2 {
            let heads = q.dim(-3)?;
            let repeated = |t: &Tensor| t.repeat_interleave(heads / t.dim(-3)?, -3);
            (k, v) = (repeated(&k)?, repeated(&v)?);
        }
        let mut scores = capped(&q.mul_scalar(self.scale())?.matmul(&k.t()?)?, options.softcap)?;
        let mut seen = in_reach(self.reach(), q.dim(-2)?, k.dim(-2)?, q.device())?;
        match &options.mask {
            Some(mask) if !mask.dtype().is_float() => {
                seen = Some(match seen {
                    Some(near) => near.logical_and(mask)?,
                    None => mask.to_bool()?,
                });
            }
            Some(mask) => scores = scores.add(&mask.to_dtype(scores.dtype())?)?,
            None => {}
        }
        let mut weights = weights(&scores, seen.as_ref())?;
        if options.dropout > 0.0 {
            weights = weights.dropout(options.dropout)?;
        }
        weights.matmul(&v)?.to_dtype(self.q.dtype())
    }
}

/// `cap tanh(s / cap)`, or `s`.
#[track_caller]
fn capped(s: &Tensor, cap: Option<f64>) -> Result<Tensor> {
    match cap {
        Some(cap) => s.mul_scalar(1.0 / cap)?.tanh()?.mul_scalar(cap),
        None => Ok(s.clone()),
    }
}

/// Which of `n` keys each of `m` queries reaches; none if all.
#[track_caller]
fn in_reach([left, right]: [i64; 2], m: usize, n: usize, on: Device) -> Result<Option<Tensor>> {
    if left >= FAR && right >= FAR {
        return Ok(None);
    }
    let ones = || Tensor::ones(&[m, n], (DType::I64, on));
    let before = ones()?.tril(right.min(n as i64))?.to_bool()?;
    let after = ones()?.triu(-left.min(m as i64))?.to_bool()?;
    before.logical_and(&after).map(Some)
}

/// Softmax of scores over the keys that are seen; a row that sees none has zeros.
#[track_caller]
fn weights(scores: &Tensor, seen: Option<&Tensor>) -> Result<Tensor> {
    let Some(seen) = seen else { return scores.softmax(-1) };
    let never = Tensor::full(&[], f64::NEG_INFINITY, (scores.dtype(), scores.device()))?;
    let scores = seen.where_(scores, &never)?;
    let none = scores.detach().eq_scalar(f64::NEG_INFINITY)?.all_dims_true(&[-1], true)?;
    scores.softmax(-1)?.masked_fill(&none, 0.0)
}

/// A mask as what is added to scores of this shape.
#[track_caller]
fn as_bias(mask: &Tensor, dtype: DType, shape: &[usize; 4]) -> Result<Tensor> {
    let bias = match mask.dtype().is_float() {
        true => mask.to_dtype(dtype)?,
        false => {
            let at = |value: f64| Tensor::full(&[], value, (dtype, mask.device()));
            mask.to_bool()?.where_(&at(0.0)?, &at(f64::NEG_INFINITY)?)?
        }
    };
    bias.detach().broadcast_to(shape)
}

/// Attention by one kernel, of `q: [B, H, L, D]`, `k` and `v: [B, G, S, D]`.
struct Flash {
    scale: f64,
    /// How far before and after its own place a query looks.
    reach: [i64; 2],
    cap: Option<f64>,
    /// What is added to the scores, `[B, H, L, S]`.
    bias: Option<Tensor>,
    /// The probability of weights to be dropped, and where their draws begin.
    drop: Option<(f64, RngState)>,
    /// The logarithm of each row's sum of exponentials, `[B, H, L]`.
    lse: OnceLock<Tensor>,
}

/// Queries and keys of a tile, and warps.
#[derive(Clone, Copy)]
struct Tile(i64, i64, u32);

/// The kernels of attention.
#[derive(Clone, Copy)]
enum Part {
    Forward,
    Keys,
    Queries,
}

/// The tile of a kernel, as large as registers allow without spills.
fn tile(part: Part, device: Device, dtype: DType, head: usize) -> Tile {
    if device == Device::Cpu {
        return Tile(32, 32, 4);
    }
    let half = dtype.bytes() == 2;
    match (part, half, head) {
        (Part::Forward, true, ..=128) => Tile(128, 128, 8),
        (Part::Forward, true, _) => Tile(64, 64, 8),
        (Part::Keys, true, ..=64) => Tile(64, 128, 8),
        (Part::Keys, true, ..=128) => Tile(64, 64, 8),
        (Part::Keys, true, _) => Tile(32, 32, 8),
        (Part::Queries, true, ..=64) => Tile(64, 64, 4),
        (Part::Queries, true, ..=128) => Tile(128, 64, 8),
        (Part::Queries, true, _) => Tile(64, 32, 8),
        (_, false, _) if dtype.bytes() == 8 => Tile(16, 32, 8),
        (_, false, ..=64) => Tile(64, 64, 8),
        (_, false, ..=128) => Tile(32, 64, 8),
        (_, false, _) => Tile(32, 32, 8),
    }
}

impl Flash {
    /// Launches a kernel on its tensors, `bias` among them after `q`, `k` and `v`.
    fn launch(&self, part: Part, [q, k, v]: [&Tensor; 3], more: &[(&Tensor, bool)]) -> Result<()> {
        let wide = launch::accumulate_dtype(q.dtype());
        let d = q.shape()[3];
        let Tile(queries, keys, warps) = tile(part, q.device(), q.dtype(), d);
        let kernel: &KernelDef = match part {
            Part::Forward => &device::attention::KERNEL,
            Part::Keys => &device::attention_keys::KERNEL,
            Part::Queries => &device::attention_queries::KERNEL,
        };
        let (along, heads, block) = match part {
            Part::Keys => (k.shape()[2], k.shape()[1], keys),
            Part::Forward | Part::Queries => (q.shape()[2], q.shape()[1], queries),
        };
        let flag = |is_on: bool| i64::from(is_on);
        let flags = [self.bias.is_some(), self.cap.is_some(), self.drop.is_some()].map(flag);
        let head = d.next_power_of_two().max(16) as i64;
        let consts = [&[queries, keys, head], &flags[..]].concat();
        // Without a bias any tensor of four axes stands in its place.
        let mut tensors = vec![(q, false), (k, false), (v, false)];
        tensors.push((self.bias.as_ref().unwrap_or(q), false));
        tensors.extend_from_slice(more);
        let place = |n: i64| Arg::Scalar(genesis_kernel::Scalar::int(DType::I64, n));
        let (p, state) = self.drop.unwrap_or((0.0, RngState { seed: 0, offset: 0 }));
        let [seed, offset] = match self.drop {
            Some(_) => state_args(state)?,
            None => fixed_args(state),
        };
        let numbers = [
            launch::number(wide, self.scale),
            place(self.reach[0]),
            place(self.reach[1]),
            launch::number(wide, self.cap.unwrap_or(1.0)),
            seed,
            offset,
            launch::number(DType::F32, p),
        ];
        let (blocks, batches) = (along.div_ceil(block as usize), q.shape()[0]);
        let grid = match part {
            Part::Forward => Grid::x(blocks * heads * batches),
            Part::Keys | Part::Queries => Grid::xyz(blocks, heads, batches),
        };
        let dtypes = [q.dtype(), wide];
        launch::warped_views(kernel, grid, &dtypes, &consts, Some(warps), &tensors, &numbers)
    }

    /// The gradients by kernels.
    fn by_kernels(&self, saved: &SavedTensors, lse: &Tensor, dy: &Tensor) -> Result<[Tensor; 3]> {
        let inputs = [saved.input(0), saved.input(1), saved.input(2)];
        let wide = |t: &Tensor| t.to_dtype(lse.dtype());
        let delta = wide(dy)?.mul(&wide(saved.output())?)?.sum_dims(&[-1], false)?;
        let like = |t: &Tensor| Tensor::uninitialized(t.shape(), (t.dtype(), t.device()));
        let (dq, dk, dv) = (like(inputs[0])?, like(inputs[1])?, like(inputs[2])?);
        let read = [(dy, false), (lse, false), (&delta, false)];
        self.launch(Part::Keys, inputs, &[&read[..], &[(&dk, true), (&dv, true)]].concat())?;
        self.launch(Part::Queries, inputs, &[&read[..], &[(&dq, true)]].concat())?;
        Ok([dq, dk, dv])
    }

    /// The gradients by ops, which have gradients themselves.
    #[track_caller]
    fn by_ops(&self, saved: &SavedTensors, dy: &Tensor) -> Result<[Tensor; 3]> {
        let dtype = dy.dtype();
        let wide = |t: &Tensor| t.to_dtype(launch::accumulate_dtype(dtype));
        let (q, dy) = (wide(saved.input(0))?, wide(dy)?);
        let [b, h, m, d] = [0, 1, 2, 3].map(|axis| q.shape()[axis]);
        let (g, n) = (saved.input(1).shape()[1], saved.input(1).shape()[2]);
        let heads = |t: &Tensor| wide(t)?.repeat_interleave(h / g, 1);
        let (k, v) = (heads(saved.input(1))?, heads(saved.input(2))?);
        let s = capped(&q.matmul(&k.t()?)?.mul_scalar(self.scale)?, self.cap)?;
        let biased = match &self.bias {
            Some(bias) => s.add(&wide(bias)?)?,
            None => s.clone(),
        };
        let seen = match (in_reach(self.reach, m, n, q.device())?, &self.bias) {
            // What is -infinity everywhere in a row must not become NaN.
            (None, Some(bias)) => Some(bias.gt_scalar(f64::NEG_INFINITY)?),
            (Some(near), Some(bias)) => {
                Some(near.logical_and(&bias.gt_scalar(f64::NEG_INFINITY)?)?)
            }
            (near, None) => near,
        };
        let w = weights(&biased, seen.as_ref())?;
        let dropped = |t: &Tensor| match self.drop {
            Some((p, state)) => dropout_from(t, p, state),
            None => Ok(t.clone()),
        };
        let dv = dropped(&w)?.t()?.matmul(&dy)?;
        let dw = dropped(&dy.matmul(&v.t()?)?)?;
        let mut ds = w.mul(&dw.sub(&w.mul(&dw)?.sum_dims(&[-1], true)?)?)?;
        if let Some(cap) = self.cap {
            let part = s.mul_scalar(1.0 / cap)?;
            ds = ds.mul(&part.mul(&part)?.neg()?.add_scalar(1.0)?)?;
        }
        let ds = ds.mul_scalar(self.scale)?;
        let summed = |t: &Tensor| t.reshape(&[b, g, h / g, n, d])?.sum_dims(&[2], false);
        let (dq, dk, dv) = (ds.matmul(&k)?, summed(&ds.t()?.matmul(&q)?)?, summed(&dv)?);
        Ok([dq.to_dtype(dtype)?, dk.to_dtype(dtype)?, dv.to_dtype(dtype)?])
    }
}

impl Op for Flash {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let q = inputs[0];
        let y = Tensor::uninitialized(q.shape(), (q.dtype(), q.device()))?;
        let wide = launch::accumulate_dtype(q.dtype());
        let lse = Tensor::uninitialized(&q.shape()[..3], (wide, q.device()))?;
        let operands = [inputs[0], inputs[1], inputs[2]];
        self.launch(Part::Forward, operands, &[(&y, true), (&lse, true)])?;
        self.lse.get_or_init(|| lse);
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves { inputs: 0b111, output: true }
    }

    /// With `w` the weights and `dw = dy v'`: `dv = w' dy`, `ds = w (dw - sum(dy y))`, `dq = scale ds k`,
    /// `dk = scale ds' q`.
    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let grads = match self.lse.get() {
            Some(lse) if !is_grad_enabled() => self.by_kernels(saved, lse, dy)?,
            _ => self.by_ops(saved, dy)?,
        };
        Ok(grads.map(Some).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    /// Attention with dropped weights, in its definition's words.
    fn dropped(inputs: [&Tensor; 3], scale: f64, p: f64, state: RngState) -> Result<Tensor> {
        let [q, k, v] = inputs;
        let weights = q.matmul(&k.t()?)?.mul_scalar(scale)?.softmax(-1)?;
        dropout_from(&weights, p, state)?.matmul(v)
    }

    #[test]
    fn both_forms_drop_the_same_weights() -> Result<()> {
        let random = Generator::new(7);
        let at = (DType::F64, Device::Cpu);
        let draw = || random.randn(&[2, 2, 37, 8], at)?.requires_grad_(true);
        let inputs = [draw()?, draw()?, draw()?];
        let operands = [&inputs[0], &inputs[1], &inputs[2]];
        let (p, state) = (0.3, RngState { seed: 5, offset: 11 });
        let flash = Flash {
            scale: 0.4,
            reach: [FAR; 2],
            cap: None,
            bias: None,
            drop: Some((p, state)),
            lse: OnceLock::new(),
        };
        let ours = apply(flash, &operands)?;
        let theirs = dropped(operands, 0.4, p, state)?;
        let dy = random.randn(&[2, 2, 37, 8], at)?;
        let grads = |y: &Tensor| -> Result<Vec<Vec<f64>>> {
            inputs.iter().for_each(Tensor::zero_grad);
            y.backward_with(Some(&dy), crate::autograd::BackwardOptions::default())?;
            inputs.iter().map(|t| t.grad().expect("it was asked for").to_vec()).collect()
        };
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close(&ours.to_vec()?, &theirs.to_vec()?));
        for (a, b) in grads(&ours)?.iter().zip(&grads(&theirs)?) {
            assert!(close(a, b), "{a:?}\n{b:?}");
        }
        Ok(())
    }
}
