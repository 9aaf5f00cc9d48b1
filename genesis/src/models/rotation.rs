//! Queries and keys turned by the positions of their tokens.

use std::sync::OnceLock;

use genesis_kernel::ir::DType;

use super::attend::{Attend, Heads};
use super::norm::Norm;
use super::paged::Ends;
use super::{Batch, KvCache};
use crate::error::{Error, Result};
use crate::ops::{self, CacheSlots};
use crate::tensor::Tensor;

/// How the tokens of a pass are turned.
#[derive(Debug)]
pub struct Rotation {
    /// `[tokens]`, f32 or i64
    positions: Tensor,
    /// `[R / 2]`, f32
    inv_freq: Tensor,
    /// The factor of cosine and sine.
    factor: f64,
    /// Cosines and sines, `[tokens, 1, R / 2]` each, f32, once somebody needs them.
    angles: OnceLock<[Tensor; 2]>,
}

impl Rotation {
    /// The rotation of tokens at these positions.
    pub(super) fn new(positions: &Tensor, inv_freq: &Tensor, factor: f64) -> Rotation {
        let (positions, inv_freq) = (positions.clone(), inv_freq.clone());
        Rotation { positions, inv_freq, factor, angles: OnceLock::new() }
    }

    fn angles(&self) -> Result<&[Tensor; 2]> {
        if let Some(angles) = self.angles.get() {
            return Ok(angles);
        }
        let positions = self.positions.to_dtype(DType::F32)?;
        let angles = positions.reshape(&[positions.numel(), 1, 1])?.mul(&self.inv_freq)?;
        let scaled = |t: Tensor| match self.factor {
            1.0 => Ok(t),
            factor => t.mul_scalar(factor),
        };
        let both = [scaled(angles.cos()?)?, scaled(angles.sin()?)?];
        Ok(self.angles.get_or_init(|| both))
    }

    /// Queries or keys `[.., tokens, heads, D]` with the first R channels of each head turned.
    ///
    /// # Numerics
    /// In f32 for 16-bit dtypes, rounded once.
    /// # Errors
    /// If there are fewer channels, or other tokens.
    pub fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let (half, channels) = (self.inv_freq.numel(), x.dim(-1)?);
        if channels < 2 * half {
            let message = format!("{channels} channels are fewer than the {} to turn", 2 * half);
            return Err(Error::op("rope", message));
        }
        let [cos, sin] = self.angles()?;
        match x.dtype() {
            DType::F64 => x.rotary(&cos.to_dtype(DType::F64)?, &sin.to_dtype(DType::F64)?),
            _ => x.rotary(cos, sin),
        }
    }

    /// What the queries of new tokens, or of `ends` alone, see in the cache of a layer, `[N, H, D]`: norms of heads,
    /// rotation, the write of keys and values, and attention. None where there is no such kernel: f64, norms whose weights have an offset.
    pub(super) fn seen(
        &self,
        Heads { q, k, v }: Heads<'_>,
        norms: (Option<&Norm>, Option<&Norm>),
        attend: &Attend,
        layer: usize,
        (batch, cache, ends): (&Batch, &KvCache, Option<&Ends>),
    ) -> Result<Option<Tensor>> {
        let (keys, values) = cache.layer(layer)?;
        let norm = match norms {
            (None, None) => None,
            (Some(q), Some(k)) if q.eps == k.eps && q.offset == 0.0 && k.offset == 0.0 => {
                Some((q.weight.tensor(), k.weight.tensor(), q.eps))
            }
            _ => return Ok(None),
        };
        let has_kernel = matches!(q.dtype(), DType::F32 | DType::F16 | DType::BF16);
        if !has_kernel || (keys.dtype() != q.dtype() && ops::limit_of(keys.dtype()) == 0) {
            return Ok(None);
        }
        let (positions, inv_freq) = (&batch.positions, &self.inv_freq);
        let rotation = ops::Rotation { positions, inv_freq, scale: self.factor, norm };
        let slots = CacheSlots { keys, values, slots: &batch.slots };
        let options = attend.paged_options();
        let Some(ends) = ends else {
            let layout = batch.layout();
            return q.rotate_and_attend(k, v, &rotation, &slots, &layout, &options).map(Some);
        };
        let q = ends.of(&q.rotate_and_cache(k, v, &rotation, &slots)?)?;
        q.paged_attention(keys, values, &batch.layout_of(ends), &options).map(Some)
    }
}
