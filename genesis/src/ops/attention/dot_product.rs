//! Scaled dot-product attention: what it may look at, and which of two forms computes it.
//!
//! The *flash* form is one kernel that never holds the matrix of scores (`kernels::attention`); its
//! backward makes the weights anew. Few queries against many keys have kernels of their own (`few`). The *composed*
//! form is products and a softmax, takes every shape, and is what the second derivative is made of.

#[cfg(feature = "op-info")]
pub(super) mod info;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::flash::Flash;
use super::scores::{FAR, NAME, capped, in_reach, logarithms, weights};
use crate::autograd::{is_grad_enabled, no_grad};
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::random::dropout_from;
use crate::ops::{apply, check_pair};
use crate::random::default_generator;
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions =
    &[("attention", Precision::Half), ("scaled_dot_product_attention", Precision::Half)];

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
    /// Kernels that never hold the matrix of scores; refused where they can't be used.
    Flash,
    /// Products and a softmax.
    Composed,
}

/// The most scores of a matrix that is small.
const SMALL: usize = 1 << 18;
/// Sequences longer than this are left to the composed form: kernels count positions in 32 bits.
const MAX_LENGTH: usize = 1 << 30;
/// Heads longer than this are left to the composed form.
const MAX_HEAD: usize = 256;

/// A call whose operands were checked.
pub(super) struct Call<'a> {
    pub(super) q: &'a Tensor,
    pub(super) k: &'a Tensor,
    pub(super) v: &'a Tensor,
    pub(super) options: &'a Attention,
    /// Where the first query stands among the keys.
    pub(super) place: i64,
}

/// What attention gives, and the logarithm of each row's sum of exponentials where it was asked for.
pub(super) type WithLse = (Tensor, Option<Tensor>);

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
        Ok(Call { q: self, k, v, options, place: 0 }.run(false)?.0)
    }

    /// [`Tensor::scaled_dot_product_attention`] together with the logarithm of each row's sum of
    /// exponentials of scores, by which results over parts of the keys can be joined.
    ///
    /// # Shapes
    /// As of that, and `[.., L]`.
    /// # Numerics
    /// The logarithms are in f32 for 16-bit dtypes, -infinity where a row may look nowhere, and have no
    /// history.
    /// # Errors
    /// As of that.
    /// # Source
    /// `torch.ops.aten._scaled_dot_product_flash_attention`, whose second result it is.
    #[track_caller]
    pub fn attention_with_lse(
        &self,
        k: &Tensor,
        v: &Tensor,
        options: &Attention,
    ) -> Result<(Tensor, Tensor)> {
        let (y, lse) = Call { q: self, k, v, options, place: 0 }.run(true)?;
        Ok((y, lse.ok_or_else(|| Error::op(NAME, "gave no logarithms, which is a bug"))?))
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
        Call { q: self, k, v, options, place: 0 }.pick()
    }
}

impl Call<'_> {
    #[track_caller]
    fn run(&self, with_lse: bool) -> Result<WithLse> {
        if let Some(cast) = autocast::cast_inputs(NAME, &[self.q, self.k, self.v])? {
            let [q, k, v] = [&cast[0], &cast[1], &cast[2]];
            return Call { q, k, v, ..*self }.run(with_lse);
        }
        match self.pick()? {
            (AttentionBackend::Flash, _) if !with_lse && self.is_of_few_queries() => {
                Ok((self.over_shared_keys()?, None))
            }
            (AttentionBackend::Flash, _) => self.flash(with_lse),
            _ => self.composed(with_lse),
        }
    }

    fn check(&self) -> Result<()> {
        let Call { q, k, v, options, .. } = self;
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

    pub(super) fn pick(&self) -> Result<(AttentionBackend, String)> {
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
        let Call { q, k, v, options, .. } = self;
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
        if [q, k].iter().any(|t| t.shape()[rank - 2] > MAX_LENGTH) {
            return Some(format!("sequences have more than {MAX_LENGTH} positions"));
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
        if self.scale() <= 0.0 || !self.scale().is_finite() {
            return Some("the scale is not a positive number".to_owned());
        }
        let mask = options.mask.as_ref()?;
        if mask.requires_grad() && is_grad_enabled() {
            return Some("the mask wants a gradient".to_owned());
        }
        (mask.rank() > 4).then(|| "the mask has more than 4 axes".to_owned())
    }

    pub(super) fn scale(&self) -> f64 {
        let d = self.q.shape()[self.q.rank() - 1];
        self.options.scale.unwrap_or(1.0 / (d as f64).sqrt())
    }

    /// How far before and after its own place a query looks.
    pub(super) fn reach(&self) -> [i64; 2] {
        let far = |n: usize| i64::try_from(n).map_or(FAR, |n| n.min(FAR));
        let [left, right] = self.options.window.map_or([FAR; 2], |(l, r)| [far(l), far(r)]);
        let right = if self.options.is_causal { 0 } else { right };
        let moved = |n: i64, by: i64| if n < FAR { n + by } else { n };
        [moved(left, -self.place), moved(right, self.place)]
    }

    #[track_caller]
    fn flash(&self, with_lse: bool) -> Result<WithLse> {
        let Call { q, k, v, options, .. } = self;
        let rank = q.rank();
        let lifted = |t: &Tensor| (rank..4).try_fold((*t).clone(), |t, _| t.unsqueeze(0));
        let (q, k, v) = (lifted(q)?, lifted(k)?, lifted(v)?);
        let shape = [q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]];
        let bias =
            options.mask.as_ref().map(|mask| as_bias(mask, q.dtype(), &shape)).transpose()?;
        let drop = (options.dropout > 0.0).then(|| {
            (options.dropout, default_generator().take(crate::shape::product(shape.iter())))
        });
        let flash = Flash {
            scale: self.scale(),
            reach: self.reach(),
            cap: options.softcap,
            bias,
            drop,
            ..Flash::default()
        };
        let lse = flash.lse.clone();
        let y = apply(flash, &[&q, &k, &v])?;
        let lowered = |t: Tensor| (rank..4).try_fold(t, |t, _| t.squeeze(0));
        let lse = lse.get().filter(|_| with_lse).cloned().map(lowered).transpose()?;
        Ok((lowered(y)?, lse))
    }

    #[track_caller]
    pub(super) fn composed(&self, with_lse: bool) -> Result<WithLse> {
        let Call { q, k, v, options, .. } = self;
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
        let lse = with_lse.then(|| no_grad(|| logarithms(&scores, seen.as_ref()))).transpose()?;
        let mut weights = weights(&scores, seen.as_ref())?;
        if options.dropout > 0.0 {
            let state = default_generator().take(weights.numel());
            weights = dropout_from(&weights, options.dropout, state)?;
        }
        Ok((weights.matmul(&v)?.to_dtype(self.q.dtype())?, lse))
    }
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
