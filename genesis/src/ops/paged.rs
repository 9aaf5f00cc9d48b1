//! Paged attention: the KV cache of generation in pages, as in vLLM.
//!
//! The new tokens of several sequences stand one after the other, one of each where all decode, many where
//! a prompt is read. One kernel computes both. **A token's result is the same bits** whatever other sequences
//! are in the batch, however a prompt is cut into passes, and whichever pages hold the keys: see
//! [`kernels::paged_attention`] for how.

mod attend;
mod cache;
mod decode;
mod rotate;

pub use rotate::{CacheSlots, Rotation};

use genesis_kernel::ir::DType;

use self::attend::{Call, MAX_KEYS, Paged};
use super::elementwise::check_pair;
use super::{Op, apply, wrong_dtype};
use crate::autograd::{SavedTensors, is_grad_enabled};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

const NAME: &str = "paged_attention";

/// Where the new tokens and the keys of each sequence are; every tensor is of i64.
#[derive(Clone, Copy, Debug)]
pub struct PagedLayout<'a> {
    /// 0, then where the new tokens of each sequence end: `[S + 1]`.
    pub query_starts: &'a Tensor,
    /// Keys of each sequence, those of the new tokens included: `[S]`.
    pub key_lengths: &'a Tensor,
    /// The pages of each sequence in order: `[S, P]`. What a sequence has no keys in is not looked at.
    pub pages: &'a Tensor,
    /// The most new tokens of a sequence; what a sequence has more is not computed.
    pub max_queries: usize,
    /// The most keys of a sequence; keys past them are not seen.
    pub max_keys: usize,
}

/// What [`Tensor::paged_attention`] can be asked for.
#[derive(Clone, Debug, Default)]
pub struct PagedAttention {
    /// Factor of the scores, `1 / sqrt(D)` where absent.
    pub scale: Option<f64>,
    /// A token sees so many keys at most, the last of which is its own.
    pub window: Option<usize>,
    /// Scores are bounded softly: `cap tanh(score / cap)`.
    pub softcap: Option<f64>,
    /// A score for each head that takes its share of the softmax and has no value: `[H]`.
    pub sinks: Option<Tensor>,
}

/// The longest heads.
const MAX_HEAD: usize = 256;

impl Tensor {
    /// Attention of new tokens to the keys and values of their sequences in a cache in pages.
    ///
    /// A sequence's last new token is its last key; each token sees the keys up to its own.
    ///
    /// # Shapes
    /// `q: [N, H, D]`, `keys` and `values: [pages, page_size, G, D]` give `[N, H, D]`; `G` divides `H`. Rows
    /// past the last sequence give 0, and so does a token that sees no key.
    /// # Numerics
    /// Scores and sums are in f32 for 16-bit dtypes. A cache may hold floats of 8 bits, which are computed with as the
    /// dtype of the queries. A token's result has the same bits whatever the batch
    /// around it, the number of new tokens and the place of the pages. For a page that is out of range some
    /// other stands. A cache that is not dense is copied.
    /// # Errors
    /// If shapes, dtypes or devices do not fit, heads are longer than 256, or a gradient would be recorded.
    /// # Source
    /// arXiv:2309.06180, arXiv:2307.08691; windows as of `sliding_window` in Hugging Face's models.
    /// # Examples
    /// ```
    /// use genesis::ops::{PagedAttention, PagedLayout};
    /// use genesis::{DType, Device, Tensor};
    ///
    /// # fn main() -> genesis::Result<()> {
    /// let on = Device::Cpu;
    /// let q = Tensor::randn(&[2, 4, 16], on)?;
    /// // Four pages of 8 keys of two heads; one sequence of 10 keys in pages 3 and 1, two of them new.
    /// let cache = Tensor::randn(&[4, 8, 2, 16], on)?;
    /// let whole = |values: &[f64], shape: &[usize]| Tensor::from_f64(values, shape, (DType::I64, on));
    /// let (starts, lengths) = (whole(&[0.0, 2.0], &[2])?, whole(&[10.0], &[1])?);
    /// let layout = PagedLayout {
    ///     query_starts: &starts,
    ///     key_lengths: &lengths,
    ///     pages: &whole(&[3.0, 1.0], &[1, 2])?,
    ///     max_queries: 2,
    ///     max_keys: 10,
    /// };
    /// let y = q.paged_attention(&cache, &cache, &layout, &PagedAttention::default())?;
    /// assert_eq!(y.shape(), [2, 4, 16]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn paged_attention(
        &self,
        keys: &Tensor,
        values: &Tensor,
        layout: &PagedLayout<'_>,
        options: &PagedAttention,
    ) -> Result<Tensor> {
        let op = Paged::new(self, [keys, values], layout, options)?;
        apply(op, &[self, keys, values])
    }
}

/// The largest number of a cache's dtype of 8 bits, which larger ones are kept as; 0 for any other.
pub(crate) fn limit_of(dtype: DType) -> i64 {
    match dtype {
        DType::F8E4M3 => 448,
        DType::F8E5M2 => 57344,
        _ => 0,
    }
}

/// A cache has the dtype of what is computed, or one of 8 bits.
fn check_cache(name: &'static str, q: &Tensor, cache: &Tensor) -> Result<()> {
    if limit_of(cache.dtype()) > 0 && cache.device() == q.device() {
        return Ok(());
    }
    check_pair(name, q, cache)
}

fn check(q: &Tensor, keys: &Tensor, values: &Tensor) -> Result<()> {
    check_cache(NAME, q, keys)?;
    check_cache(NAME, q, values)?;
    if keys.dtype() != values.dtype() {
        return Err(wrong_dtype(NAME, "values of the dtype of keys", values.dtype()));
    }
    if !q.dtype().is_arithmetic_float() {
        return Err(wrong_dtype(NAME, "a float", q.dtype()));
    }
    let (&[_, h, d], &[pages, size, g, e]) = (q.shape(), keys.shape()) else {
        let (q, keys) = (q.shape(), keys.shape());
        let message =
            format!("needs [N, H, D] and [pages, page_size, G, D], got {q:?} and {keys:?}");
        return Err(Error::op(NAME, message));
    };
    if values.shape() != keys.shape() {
        let (keys, values) = (keys.shape(), values.shape());
        return Err(Error::op(NAME, format!("keys are {keys:?} and values {values:?}")));
    }
    if d != e || d == 0 || d > MAX_HEAD {
        let message = format!("heads of {d} and {e} channels are not equal and 1 to {MAX_HEAD}");
        return Err(Error::op(NAME, message));
    }
    if g == 0 || h % g != 0 {
        return Err(Error::op(NAME, format!("{h} heads are no multiple of {g}")));
    }
    if pages * size == 0 {
        return Err(Error::op(
            NAME,
            format!("the cache has no room, its shape is {:?}", keys.shape()),
        ));
    }
    Ok(())
}

fn check_layout(q: &Tensor, layout: &PagedLayout<'_>) -> Result<()> {
    let all = [
        ("query_starts", layout.query_starts),
        ("key_lengths", layout.key_lengths),
        ("pages", layout.pages),
    ];
    for (name, t) in all {
        if t.dtype() != DType::I64 || t.device() != q.device() {
            let message = format!(
                "{name} must be i64 on {}, got {} on {}",
                q.device(),
                t.dtype(),
                t.device()
            );
            return Err(Error::op(NAME, message));
        }
    }
    let [starts, lengths, pages] = all.map(|(_, t)| t.shape());
    match (starts, lengths, pages) {
        (&[ends], &[n], &[rows, _]) if ends == n + 1 && rows == n => Ok(()),
        _ => {
            let message = format!(
                "query_starts [S + 1], key_lengths [S] and pages [S, P] are {starts:?}, {lengths:?} and {pages:?}"
            );
            Err(Error::op(NAME, message))
        }
    }
}

fn check_options(q: &Tensor, options: &PagedAttention) -> Result<()> {
    let is_positive = |x: f64| x > 0.0 && x.is_finite();
    if options.scale.is_some_and(|scale| !is_positive(scale)) {
        return Err(Error::op(NAME, "scale must be a positive number"));
    }
    if options.softcap.is_some_and(|cap| !is_positive(cap)) {
        return Err(Error::op(NAME, "softcap must be a positive number"));
    }
    if options.window == Some(0) {
        return Err(Error::op(NAME, "a window has at least one key, the token's own"));
    }
    let Some(sinks) = &options.sinks else { return Ok(()) };
    if sinks.shape() != [q.shape()[1]] || sinks.device() != q.device() {
        let message =
            format!("sinks {:?} are not one of each of {} heads", sinks.shape(), q.shape()[1]);
        return Err(Error::op(NAME, message));
    }
    Ok(())
}

impl Paged {
    /// The op of a call that is right.
    #[track_caller]
    fn new(
        q: &Tensor,
        [keys, values]: [&Tensor; 2],
        layout: &PagedLayout<'_>,
        options: &PagedAttention,
    ) -> Result<Paged> {
        check(q, keys, values)?;
        check_layout(q, layout)?;
        check_options(q, options)?;
        if is_grad_enabled() && [q, keys, values].iter().any(|t| t.requires_grad()) {
            let message = "has no gradient; call it inside of no_grad, or use varlen_attn";
            return Err(Error::op(NAME, message));
        }
        let sinks = options.sinks.as_ref().map(|t| t.detach().to_dtype(q.dtype())).transpose()?;
        Ok(Paged {
            starts: layout.query_starts.contiguous()?,
            lengths: layout.key_lengths.contiguous()?,
            table: layout.pages.contiguous()?,
            most: [layout.max_queries, layout.max_keys],
            scale: options.scale.unwrap_or(1.0 / (q.shape()[2] as f64).sqrt()),
            window: options.window.unwrap_or(MAX_KEYS).min(MAX_KEYS),
            cap: options.softcap,
            sinks,
        })
    }

    /// Writes what queries see to `y`.
    fn fill(&self, [q, keys, values]: [&Tensor; 3], y: &Tensor) -> Result<()> {
        if y.numel() == 0 || self.lengths.numel() == 0 {
            return y.zero_();
        }
        let (keys, values) = (&keys.contiguous()?, &values.contiguous()?);
        self.attend(&Call { q, keys, values, y })
    }
}

impl Op for Paged {
    fn name(&self) -> &'static str {
        NAME
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let q = inputs[0];
        let y = Tensor::uninitialized(q.shape(), (q.dtype(), q.device()))?;
        self.fill([q, inputs[1], inputs[2]], &y)?;
        Ok(y)
    }

    fn backward(&self, _: &SavedTensors, _: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Err(Error::op(NAME, "has no gradient"))
    }
}
