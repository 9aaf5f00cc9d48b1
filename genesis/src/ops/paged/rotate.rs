//! Norms of heads, rotation by position and the write to a cache, between a layer's first product and its
//! attention.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::Grid;
use kernels::rotate as device;

use super::{check_cache, limit_of};
use crate::autograd::is_grad_enabled;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::elementwise::check_pair;
use crate::ops::wrong_dtype;
use crate::tensor::Tensor;

const NAME: &str = "rotate_and_cache";

/// How queries and keys are turned; tensors are on the device of the queries.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// The position of each token: `[N]`, i64.
    pub positions: &'a Tensor,
    /// The angle of each pair of channels for one position: `[R / 2]`, f32. Channels from `R` on stay.
    pub inv_freq: &'a Tensor,
    /// Factor of cosines and sines, 1 but for scaled embeddings such as yarn.
    pub scale: f64,
    /// Weights of the RMS norms of queries and of keys before they are turned, `[D]` each, and what is added
    /// to the mean of squares.
    pub norm: Option<(&'a Tensor, &'a Tensor, f64)>,
}

/// Where keys and values of new tokens go.
#[derive(Clone, Copy, Debug)]
pub struct CacheSlots<'a> {
    /// `[pages, page_size, G, D]`
    pub keys: &'a Tensor,
    /// As of `keys`.
    pub values: &'a Tensor,
    /// The slot of each token, `page * page_size + offset`: `[N]`, i64. One that is not there is skipped.
    pub slots: &'a Tensor,
}

/// Heads of a program: of few tokens, and where there are programs of as many for all multiprocessors four times over.
const FEW_HEADS: usize = 8;
const HEADS: usize = 32;

impl Tensor {
    /// Turns queries and keys by their positions, after a norm of each head where there is one; gives the
    /// queries, and writes keys and values to a cache: one launch.
    ///
    /// Channel `c < R / 2` is turned together with channel `c + R / 2`, as Hugging Face's models do.
    ///
    /// # Shapes
    /// `q: [N, H, D]` gives `[N, H, D]`; `k` and `v: [N, G, D]`. They may be parts of one product.
    /// # Numerics
    /// In f32, rounded once; angles up to 2^22 keep their digits.
    /// # Errors
    /// If shapes, dtypes or devices do not fit, or a gradient would be recorded.
    /// # Source
    /// arXiv:2104.09864; `apply_rotary_pos_emb` of Hugging Face's models.
    #[track_caller]
    pub fn rotate_and_cache(
        &self,
        k: &Tensor,
        v: &Tensor,
        rotation: &Rotation<'_>,
        cache: &CacheSlots<'_>,
    ) -> Result<Tensor> {
        check_all([self, k, v], rotation, cache)?;
        let (keys, values) = (cache.keys, cache.values);
        let &[n, h, d] = self.shape() else { return Err(Error::op(NAME, "needs 3 axes")) };
        let y = Tensor::uninitialized(self.shape(), (self.dtype(), self.device()))?;
        if n > 0 {
            // Any line of channels stands where no weights are.
            let none = self.select(0, 0)?.select(0, 0)?.detach();
            let (q_weight, k_weight, eps) = match rotation.norm {
                Some((q, k, eps)) => (q.detach(), k.detach(), eps),
                None => (none.clone(), none, 0.0),
            };
            let operands = [self, k, v].map(Tensor::detach);
            let [q, k, v] = operands.each_ref();
            let tensors = [
                (q, false),
                (k, false),
                (v, false),
                (&q_weight, false),
                (&k_weight, false),
                (rotation.inv_freq, false),
                (rotation.positions, false),
                (cache.slots, false),
                (&y, true),
                (keys, true),
                (values, true),
            ];
            let pairs = d.div_ceil(2).next_power_of_two().max(16);
            let is_normed = usize::from(rotation.norm.is_some());
            let is_whole = d == 2 * pairs && rotation.inv_freq.numel() == pairs;
            // A thread has a vector of 16 bytes where channels are neighbours: of 8,192 tokens with 14 and 2 heads of 64
            // channels that takes 34 us instead of 47 (H200).
            let all = n * (h + 2 * k.shape()[1]);
            let is_many = all >= 4 * HEADS * launch::config::multiprocessors(self.device());
            let heads = if is_many { HEADS } else { FEW_HEADS };
            let threads = heads * pairs * self.dtype().bytes() / 16;
            let warps = if is_whole { (threads / 32).clamp(1, 8) as u32 } else { 4 };
            let mut consts = [heads, pairs, keys.shape()[1], is_normed].map(|n| n as i64).to_vec();
            consts.extend([limit_of(keys.dtype()), i64::from(is_whole)]);
            let numbers =
                [launch::number(DType::F32, rotation.scale), launch::number(DType::F32, eps)];
            launch::warped_views(
                &device::rotate_and_cache::KERNEL,
                Grid::x(all.div_ceil(heads)),
                &[self.dtype(), keys.dtype()],
                &consts,
                Some(warps),
                &tensors,
                &numbers,
            )?;
        }
        keys.storage().bump_version();
        values.storage().bump_version();
        Ok(y)
    }
}

/// Whether a call is right, and records no gradient.
pub(super) fn check_all(
    new: [&Tensor; 3],
    rotation: &Rotation<'_>,
    cache: &CacheSlots<'_>,
) -> Result<()> {
    check(new, rotation, cache)?;
    let (keys, values) = (cache.keys, cache.values);
    keys.check_in_place(NAME)?;
    values.check_in_place(NAME)?;
    let [q, k, v] = new;
    if is_grad_enabled() && [q, k, v, keys, values].iter().any(|t| t.requires_grad()) {
        return Err(Error::op(NAME, "has no gradient; call it inside of no_grad"));
    }
    Ok(())
}

fn check([q, k, v]: [&Tensor; 3], rotation: &Rotation<'_>, cache: &CacheSlots<'_>) -> Result<()> {
    for other in [k, v] {
        check_pair(NAME, q, other)?;
    }
    for cache in [cache.keys, cache.values] {
        check_cache(NAME, q, cache)?;
    }
    if cache.keys.dtype() != cache.values.dtype() {
        return Err(wrong_dtype(NAME, "values of the dtype of keys", cache.values.dtype()));
    }
    if !matches!(q.dtype(), DType::F32 | DType::F16 | DType::BF16) {
        return Err(wrong_dtype(NAME, "a float of 16 or 32 bits", q.dtype()));
    }
    let (&[n, _, d], &[m, g, e], &[_, size, heads, width]) =
        (q.shape(), k.shape(), cache.keys.shape())
    else {
        let (q, k, cache) = (q.shape(), k.shape(), cache.keys.shape());
        let message = format!(
            "needs [N, H, D], [N, G, D] and a cache of 4 axes, got {q:?}, {k:?} and {cache:?}"
        );
        return Err(Error::op(NAME, message));
    };
    let is_cache = (heads, width) == (g, d) && size > 0;
    if (n, d) != (m, e) || v.shape() != k.shape() || !is_cache || d == 0 {
        let (q, k, v) = (q.shape(), k.shape(), v.shape());
        let message = format!(
            "queries {q:?}, keys {k:?}, values {v:?} and a cache of [{heads}, {width}] do not fit"
        );
        return Err(Error::op(NAME, message));
    }
    if cache.values.shape() != cache.keys.shape() {
        return Err(Error::op(NAME, "the caches of keys and of values have different shapes"));
    }
    check_numbers(q, rotation, cache)
}

/// What belongs to tokens and to channels.
fn check_numbers(q: &Tensor, rotation: &Rotation<'_>, cache: &CacheSlots<'_>) -> Result<()> {
    let (n, d, on) = (q.shape()[0], q.shape()[2], q.device());
    for (name, t) in [("positions", rotation.positions), ("slots", cache.slots)] {
        if t.dtype() != DType::I64 || t.shape() != [n] || t.device() != on {
            let (dtype, shape, at) = (t.dtype(), t.shape(), t.device());
            let message =
                format!("{name} must be i64 [{n}] on {on}, got {dtype} {shape:?} on {at}");
            return Err(Error::op(NAME, message));
        }
    }
    let freq = rotation.inv_freq;
    let fits = freq.rank() == 1 && 2 * freq.numel() <= d;
    if freq.dtype() != DType::F32 || !fits || freq.device() != on {
        let (dtype, shape) = (freq.dtype(), freq.shape());
        let message = format!("inv_freq must be f32, at most [{}], got {dtype} {shape:?}", d / 2);
        return Err(Error::op(NAME, message));
    }
    let Some((a, b, _)) = rotation.norm else { return Ok(()) };
    for weight in [a, b] {
        check_pair(NAME, q, weight)?;
        if weight.shape() != [d] {
            let message = format!("norm weights must be [{d}], got {:?}", weight.shape());
            return Err(Error::op(NAME, message));
        }
    }
    Ok(())
}
