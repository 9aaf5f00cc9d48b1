//! Attention scores, op by op: soft cap, causal and window masks, softmax.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::error::Result;
use crate::tensor::Tensor;

/// The name in errors.
pub(super) const NAME: &str = "scaled_dot_product_attention";
/// The largest distance of a key from its query: more than any tensor is long.
pub(super) const FAR: i64 = 1 << 40;

/// `cap tanh(s / cap)`, or `s`.
#[track_caller]
pub(super) fn capped(s: &Tensor, cap: Option<f64>) -> Result<Tensor> {
    match cap {
        Some(cap) => s.mul_scalar(1.0 / cap)?.tanh()?.mul_scalar(cap),
        None => Ok(s.clone()),
    }
}

/// Which of `n` keys each of `m` queries reaches; none if all.
#[track_caller]
pub(super) fn in_reach(
    [left, right]: [i64; 2],
    m: usize,
    n: usize,
    on: Device,
) -> Result<Option<Tensor>> {
    if left >= FAR && right >= FAR {
        return Ok(None);
    }
    let ones = || Tensor::ones(&[m, n], (DType::I64, on));
    let (m, n) = (m as i64, n as i64);
    let before = ones()?.tril(right.clamp(-m, n))?.to_bool()?;
    let after = ones()?.triu((-left).clamp(-m, n))?.to_bool()?;
    before.logical_and(&after).map(Some)
}

/// Softmax of scores over the keys that are seen; a row that sees none has zeros.
#[track_caller]
pub(super) fn weights(scores: &Tensor, seen: Option<&Tensor>) -> Result<Tensor> {
    let Some(seen) = seen else { return scores.softmax(-1) };
    let never = Tensor::full(&[], f64::NEG_INFINITY, (scores.dtype(), scores.device()))?;
    let scores = seen.where_(scores, &never)?;
    let none = scores.detach().eq_scalar(f64::NEG_INFINITY)?.all_dims_true(&[-1], true)?;
    scores.softmax(-1)?.masked_fill(&none, 0.0)
}

/// The logarithm of each row's sum of exponentials over the keys that are seen.
pub(super) fn logarithms(scores: &Tensor, seen: Option<&Tensor>) -> Result<Tensor> {
    let Some(seen) = seen else { return scores.logsumexp(&[-1], false) };
    let never = Tensor::full(&[], f64::NEG_INFINITY, (scores.dtype(), scores.device()))?;
    seen.where_(scores, &never)?.logsumexp(&[-1], false)
}
