//! From a layer's first product to what its tokens see: rotation, the write to the cache, attention. One launch
//! where each sequence has one new token, as in a decode step.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::{Arg, Device};
use kernels::paged_decode as device;

use super::attend::{Call, consts, whole};
use super::rotate::{self, CacheSlots, Rotation};
use super::{Paged, PagedAttention, PagedLayout, limit_of};
use crate::error::Result;
use crate::launch;
use crate::tensor::Tensor;

/// Queries, keys and values of new tokens, as the product gives them.
#[derive(Clone, Copy)]
struct New<'t> {
    q: &'t Tensor,
    k: &'t Tensor,
    v: &'t Tensor,
}

impl Tensor {
    /// [`Tensor::rotate_and_cache`], then [`Tensor::paged_attention`] to the same cache: what new tokens see, with
    /// the same bits. Where each sequence has one new token, and not very many keys, it is one launch.
    ///
    /// # Shapes
    /// `q: [N, H, D]`, `k` and `v: [N, G, D]` give `[N, H, D]`.
    /// # Numerics
    /// As of the two.
    /// # Errors
    /// Those of the two. The slot of a token has to be that of its sequence's key; where it is another one, which key
    /// the token sees is not said.
    #[track_caller]
    pub fn rotate_and_attend(
        &self,
        k: &Tensor,
        v: &Tensor,
        rotation: &Rotation<'_>,
        cache: &CacheSlots<'_>,
        layout: &PagedLayout<'_>,
        options: &PagedAttention,
    ) -> Result<Tensor> {
        rotate::check_all([self, k, v], rotation, cache)?;
        let paged = Paged::new(self, [cache.keys, cache.values], layout, options)?;
        let y = Tensor::uninitialized(self.shape(), (self.dtype(), self.device()))?;
        let operands = [self, k, v].map(Tensor::detach);
        let [q, k, v] = operands.each_ref();
        let call = Call { q, keys: cache.keys, values: cache.values, y: &y };
        if !paged.is_decode(&call) {
            let q = q.rotate_and_cache(k, v, rotation, cache)?;
            paged.fill([&q, cache.keys, cache.values], &y)?;
            return Ok(y);
        }
        paged.decode(&call, New { q, k, v }, rotation, cache)?;
        cache.keys.storage().bump_version();
        cache.values.storage().bump_version();
        Ok(y)
    }
}

impl Paged {
    /// Whether each sequence has one new token, whose heads are a tile, and one program walks its keys.
    fn is_decode(&self, call: &Call<'_>) -> bool {
        let tokens = call.q.shape()[0];
        let is_dense = call.keys.is_contiguous() && call.values.is_contiguous();
        let share = self.share(call, None);
        call.q.device() != Device::Cpu
            && tokens > 0
            && is_dense
            && self.most[0] == 1
            && self.lengths.numel() == tokens
            && call.each() <= share.rows
            && share.programs == 1
    }

    fn decode(
        &self,
        call: &Call<'_>,
        New { q, k, v }: New<'_>,
        rotation: &Rotation<'_>,
        cache: &CacheSlots<'_>,
    ) -> Result<()> {
        let share = self.share(call, None);
        let none = q.select(0, 0)?.select(0, 0)?;
        let (q_weight, k_weight, eps) = match rotation.norm {
            Some((q, k, eps)) => (q.detach(), k.detach(), eps),
            None => (none.clone(), none.clone(), 0.0),
        };
        let sinks = self.sinks_or_any(call)?;
        // In the order of the kernel's arguments; what the product right ahead writes is not among those that may
        // be read before it ends.
        let read = [q, k, v, &q_weight, &k_weight, rotation.inv_freq, rotation.positions];
        let read = read.into_iter().chain([cache.slots, cache.keys, cache.values, &sinks]);
        let read: Vec<&Tensor> = read.collect();
        let all: Vec<&Tensor> = read.iter().copied().chain([&self.lengths, &self.table]).collect();
        let mut args: Vec<Arg> = read.iter().map(|t| launch::own_view(t, false)).collect();
        args.extend([&self.lengths, &self.table].map(|t| launch::pointer(t, false)));
        args.extend([call.y, cache.keys, cache.values].map(|t| launch::own_view(t, true)));
        args.extend([self.table.shape()[1], self.most(call), self.window].map(whole));
        args.extend(self.scales(call));
        args.extend([rotation.scale, eps].map(|x| launch::number(DType::F32, x)));
        let sizes = [share.rows, share.keys, call.width(), call.each(), call.page(), call.row()];
        let flags = [self.cap.is_some(), self.sinks.is_some(), rotation.norm.is_some()];
        let mut consts = consts(&sizes, &flags);
        consts.push(limit_of(cache.keys.dtype()));
        let options = LaunchOptions {
            num_warps: Some(share.warps),
            constant: launch::settled(&all),
            ..LaunchOptions::default()
        };
        let grid = Grid::xy(q.shape()[0], call.groups());
        let kernel = &device::paged_decode::KERNEL;
        launch::launch_as(kernel, q, grid, &call.dtypes(), &consts, options, &args)
    }
}
