//! Attention of sequences of different lengths, packed one after the other without padding.
//!
//! Rows `cu_seqlens[s]..cu_seqlens[s + 1]` are sequence `s`. A sequence sees its own keys only, and its
//! last query stands where its last key does: with `is_causal` and three keys for two queries the first
//! query sees two keys.
//!
//! The flash form is the same kernel as that of a batch; its programs find their sequence's rows on the
//! device, so that lengths never come to the host. The composed form reads them there.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::dot_product::{Attention, AttentionBackend, Call, WithLse};
use super::flash::{Flash, Packed};
use super::scores::{FAR, NAME};
use crate::dispatch::autocast;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::apply;
use crate::random::default_generator;
use crate::tensor::Tensor;

/// How sequences are packed; the names are PyTorch's.
#[derive(Clone, Copy, Debug)]
pub struct Varlen<'a> {
    /// 0, then where each sequence of queries ends: `[N + 1]` integers on the same device.
    pub cu_seqlens_q: &'a Tensor,
    /// The same of keys.
    pub cu_seqlens_k: &'a Tensor,
    /// The length of the longest sequence of queries. Queries past it give 0.
    pub max_seqlen_q: usize,
    /// The same of keys. Keys past it have no gradient.
    pub max_seqlen_k: usize,
}

impl Tensor {
    /// Attention of packed sequences: each sequence's queries see its own keys.
    ///
    /// # Shapes
    /// `q: [T, H, D]`, `k: [S, G, D]` and `v: [S, G, D]` give `[T, H, D]`; `G` divides `H`. Rows past the
    /// last sequence give 0. `groups` is taken for granted, masks are refused.
    /// # Numerics
    /// As of [`Tensor::scaled_dot_product_attention`]; what is not finite may be seen in the result
    /// of the sequence before.
    /// # Errors
    /// If shapes do not fit, or there is a mask.
    /// # Source
    /// `torch.nn.attention.varlen.varlen_attn` and `flash_attn_varlen_func`.
    /// # Examples
    /// ```
    /// use genesis::ops::{Attention, Varlen};
    /// use genesis::{DType, Device, Tensor};
    ///
    /// # fn main() -> genesis::Result<()> {
    /// let on = Device::Cpu;
    /// let x = Tensor::randn(&[5, 2, 8], on)?;
    /// let ends = Tensor::from_f64(&[0.0, 2.0, 5.0], &[3], (DType::I32, on))?;
    /// let lengths =
    ///     Varlen { cu_seqlens_q: &ends, cu_seqlens_k: &ends, max_seqlen_q: 3, max_seqlen_k: 3 };
    /// let options = Attention { is_causal: true, ..Attention::default() };
    /// let y = x.varlen_attn(&x, &x, &lengths, &options)?;
    /// // The first of each sequence sees itself only.
    /// let off = y.narrow(0, 2, 1)?.sub(&x.narrow(0, 2, 1)?)?.abs()?.max()?.item()?;
    /// assert!(off < 1e-5);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn varlen_attn(
        &self,
        k: &Tensor,
        v: &Tensor,
        lengths: &Varlen<'_>,
        options: &Attention,
    ) -> Result<Tensor> {
        Ok(packed(self, k, v, lengths, options)?.0)
    }

    /// [`Tensor::varlen_attn`] together with the logarithm of each row's sum of exponentials, `[H, T]`,
    /// which has no history and is 0 past the last sequence.
    ///
    /// # Errors
    /// As of that.
    #[track_caller]
    pub fn varlen_attn_with_lse(
        &self,
        k: &Tensor,
        v: &Tensor,
        lengths: &Varlen<'_>,
        options: &Attention,
    ) -> Result<(Tensor, Tensor)> {
        let (y, lse) = packed(self, k, v, lengths, options)?;
        Ok((y, lse.ok_or_else(|| Error::op(NAME, "gave no logarithms, which is a bug"))?))
    }
}

#[track_caller]
fn packed(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    lengths: &Varlen<'_>,
    options: &Attention,
) -> Result<WithLse> {
    if let Some(cast) = autocast::cast_inputs(NAME, &[q, k, v])? {
        return packed(&cast[0], &cast[1], &cast[2], lengths, options);
    }
    check(q, k, v, lengths, options)?;
    let options = &Attention { groups: true, ..options.clone() };
    // As a batch of one: [1, H, T, D].
    let lifted = |t: &Tensor| t.transpose(0, 1)?.unsqueeze(0);
    let (q, k, v) = (&lifted(q)?, &lifted(k)?, &lifted(v)?);
    let call = Call { q, k, v, options, place: 0 };
    let (y, lse) = match call.pick()?.0 {
        AttentionBackend::Flash => call.packed_flash(lengths)?,
        _ => call.packed_composed(lengths)?,
    };
    Ok((y.squeeze(0)?.transpose(0, 1)?, lse.map(|lse| lse.squeeze(0)).transpose()?))
}

fn check(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    lengths: &Varlen<'_>,
    options: &Attention,
) -> Result<()> {
    if [q, k, v].iter().any(|t| t.rank() != 3) {
        let message = format!("packed sequences are [T, H, D], got {:?}", q.shape());
        return Err(Error::op(NAME, message));
    }
    if options.mask.is_some() {
        return Err(Error::op(NAME, "packed sequences take no mask"));
    }
    let (ends_q, ends_k) = (lengths.cu_seqlens_q, lengths.cu_seqlens_k);
    for ends in [ends_q, ends_k] {
        if ends.rank() != 1 || ends.dtype().is_float() || ends.device() != q.device() {
            let message = "cu_seqlens are integers of one axis on the device of the queries";
            return Err(Error::op(NAME, message));
        }
    }
    if ends_q.numel() != ends_k.numel() || ends_q.numel() == 0 {
        let (m, n) = (ends_q.numel(), ends_k.numel());
        let message = format!("cu_seqlens have {m} and {n} numbers, not one more than sequences");
        return Err(Error::op(NAME, message));
    }
    Ok(())
}

impl Call<'_> {
    #[track_caller]
    fn packed_flash(&self, lengths: &Varlen<'_>) -> Result<WithLse> {
        let Call { q, k, v, options, .. } = self;
        let draws = || default_generator().take(q.shape()[1] * q.shape()[2] * k.shape()[2]);
        let ends = |t: &Tensor| t.to_dtype(DType::I64)?.contiguous();
        let flash = Flash {
            scale: self.scale(),
            reach: self.reach(),
            cap: options.softcap,
            drop: (options.dropout > 0.0).then(|| (options.dropout, draws())),
            packed: Some(Packed {
                ends: [ends(lengths.cu_seqlens_q)?, ends(lengths.cu_seqlens_k)?],
                longest: [
                    lengths.max_seqlen_q.min(q.shape()[2]),
                    lengths.max_seqlen_k.min(k.shape()[2]),
                ],
            }),
            ..Flash::default()
        };
        let lse = flash.lse.clone();
        let y = apply(flash, &[q, k, v])?;
        Ok((y, lse.get().cloned()))
    }

    /// One sequence after the other.
    #[track_caller]
    fn packed_composed(&self, lengths: &Varlen<'_>) -> Result<WithLse> {
        let Call { q, k, v, options, .. } = self;
        let of_q = ranges(lengths.cu_seqlens_q, q.shape()[2])?;
        let of_k = ranges(lengths.cu_seqlens_k, k.shape()[2])?;
        let (mut parts, mut sums) = (Vec::new(), Vec::new());
        for (rows, keys) in of_q.iter().zip(&of_k) {
            let part = |t: &Tensor, &(first, len): &(usize, usize)| t.narrow(2, first, len);
            let (q, k, v) = (&part(q, rows)?, &part(k, keys)?, &part(v, keys)?);
            let place = keys.1 as i64 - rows.1 as i64;
            let (y, lse) = Call { q, k, v, options, place }.composed(true)?;
            parts.push(y);
            sums.extend(lse);
        }
        let wide = launch::accumulate_dtype(q.dtype());
        let y = joined(parts, &of_q, (q.shape(), q.dtype()), q.device())?;
        Ok((y, Some(joined(sums, &of_q, (&q.shape()[..3], wide), q.device())?)))
    }
}

/// Parts of sequences one after the other along axis 2 of a shape, zeros where there is no sequence.
fn joined(
    parts: Vec<Tensor>,
    ranges: &[(usize, usize)],
    (shape, dtype): (&[usize], DType),
    on: Device,
) -> Result<Tensor> {
    let zeros = |len: usize| {
        let mut shape = shape.to_vec();
        shape[2] = len;
        Tensor::zeros(&shape, (dtype, on))
    };
    let (before, end) = match ranges {
        [first, .., last] => (first.0, last.0 + last.1),
        [only] => (only.0, only.0 + only.1),
        [] => (0, 0),
    };
    let (before, after) = (zeros(before)?, zeros(shape[2].saturating_sub(end))?);
    let all: Vec<&Tensor> = std::iter::once(&before).chain(&parts).chain([&after]).collect();
    Tensor::cat(&all, 2)
}

/// First row and length of each sequence, inside `len` rows.
fn ranges(ends: &Tensor, len: usize) -> Result<Vec<(usize, usize)>> {
    let ends: Vec<usize> = ends
        .to_dtype(DType::I64)?
        .to_vec::<i64>()?
        .iter()
        .map(|&end| (end.max(0) as usize).min(len))
        .collect();
    Ok(ends.windows(2).map(|pair| (pair[0], pair[1].saturating_sub(pair[0]))).collect())
}

impl Packed {
    /// The gradients by ops, one sequence after the other.
    #[track_caller]
    pub(super) fn gradients(
        &self,
        flash: &Flash,
        inputs: [&Tensor; 3],
        dy: &Tensor,
    ) -> Result<[Tensor; 3]> {
        let of_q = ranges(&self.ends[0], inputs[0].shape()[2])?;
        let of_k = ranges(&self.ends[1], inputs[1].shape()[2])?;
        let mut grads = [Vec::new(), Vec::new(), Vec::new()];
        for (&(row, m), &(key, n)) in of_q.iter().zip(&of_k) {
            let [q, k, v] = inputs;
            let (q, dy) = (q.narrow(2, row, m)?, dy.narrow(2, row, m)?);
            let (k, v) = (k.narrow(2, key, n)?, v.narrow(2, key, n)?);
            let apart = n as i64 - m as i64;
            let moved = |reach: i64, by: i64| if reach < FAR { reach + by } else { reach };
            let reach = [moved(flash.reach[0], -apart), moved(flash.reach[1], apart)];
            let one = Flash { reach, packed: None, ..flash.clone() };
            for (all, part) in grads.iter_mut().zip(one.composed([&q, &k, &v], &dy)?) {
                all.push(part);
            }
        }
        let whole = |parts: Vec<Tensor>, ranges: &[(usize, usize)], like: &Tensor| {
            joined(parts, ranges, (like.shape(), like.dtype()), like.device())
        };
        let [dq, dk, dv] = grads;
        let dq = whole(dq, &of_q, inputs[0])?;
        Ok([dq, whole(dk, &of_k, inputs[1])?, whole(dv, &of_k, inputs[2])?])
    }
}
