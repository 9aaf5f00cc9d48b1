//! Few queries against many keys, as in a step of generation: programs share the keys of a head.
//!
//! A head of keys is a sequence of [paged attention](crate::ops::PagedLayout) with one new token, whose heads are all
//! queries that look at it: `[B, G * E, L, D]` are `B * G` tokens of `E * L` heads.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;
use genesis_kernel::tuning::attention::FEW_ROWS;

use super::dot_product::Call;
use crate::autograd::is_grad_enabled;
use crate::error::Result;
use crate::ops::{PagedAttention, PagedLayout};
use crate::tensor::Tensor;

/// Keys from which on programs that share them gain more than joining what they found costs.
const MANY: usize = 512;

impl Call<'_> {
    /// Whether few queries look at all of many keys, and no gradient is asked for.
    pub(super) fn is_of_few_queries(&self) -> bool {
        let Call { q, k, v, options, .. } = self;
        let [length, keys] = [q, k].map(|t| t.shape()[t.rank() - 2]);
        let each = q.numel() / k.numel().checked_div(keys).unwrap_or(1).max(1);
        let [before, behind] = self.reach();
        let sees_all = before >= length as i64 - 1 && behind >= keys as i64 - 1;
        let is_recorded = is_grad_enabled() && [q, k, v].iter().any(|t| t.requires_grad());
        q.device() != Device::Cpu
            && matches!(q.dtype(), DType::F16 | DType::BF16)
            && options.mask.is_none()
            && options.dropout == 0.0
            && keys >= MANY
            && each <= FEW_ROWS
            && sees_all
            && !is_recorded
            && k.is_contiguous()
            && v.is_contiguous()
    }

    /// What these queries see.
    pub(super) fn over_shared_keys(&self) -> Result<Tensor> {
        let Call { q, k, v, options, .. } = self;
        let (rank, on) = (q.rank(), (DType::I64, q.device()));
        let [keys, d] = [rank - 2, rank - 1].map(|axis| k.shape()[axis]);
        let heads = k.numel() / (keys * d);
        // A page is as large as it can be for blocks of keys to be whole pages.
        let page = 1 << keys.trailing_zeros().min(4);
        let places = Tensor::arange(0.0, (heads * keys / page).max(heads + 1) as f64, 1.0, on)?;
        let pages = heads * keys / page;
        let layout = PagedLayout {
            query_starts: &places.narrow(0, 0, heads + 1)?,
            key_lengths: &Tensor::full(&[heads], keys as f64, on)?,
            pages: &places.narrow(0, 0, pages)?.reshape(&[heads, pages / heads])?,
            max_queries: 1,
            max_keys: keys,
        };
        let cache = |t: &Tensor| t.detach().reshape(&[pages, page, 1, d]);
        let tokens = q.detach().reshape(&[heads, q.numel() / (heads * d), d])?;
        let asked = PagedAttention {
            scale: Some(self.scale()),
            softcap: options.softcap,
            ..PagedAttention::default()
        };
        tokens.paged_attention(&cache(k)?, &cache(v)?, &layout, &asked)?.reshape(q.shape())
    }
}
