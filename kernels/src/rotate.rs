//! From the joined product of queries, keys and values to attention: norms of heads, rotation by position,
//! and the write of keys and values to a cache in pages, in one launch.
//!
//! Rotary embeddings turn channel `c` of a head together with channel `c + r / 2`, where the first `r`
//! channels are turned at all, by the angle `position * inv_freq[c]`. The angles are computed here: a table
//! of all positions is read at random and as large as a layer where contexts are long.
//!
//! ```text
//! r = 4 of d = 6:  y0 = x0 cos a0 - x2 sin a0     y2 = x2 cos a0 + x0 sin a0     y4 = x4
//!                  y1 = x1 cos a1 - x3 sin a1     y3 = x3 cos a1 + x1 sin a1     y5 = x5
//! ```

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&rotate_and_cache::KERNEL];

/// `HEADS` heads of a token from head `h` on, normalized where `NORM` and turned by their position.
#[device]
pub fn turned<T: Float, const HEADS: usize, const D: usize, const NORM: usize>(
    x: View<T, 3>,
    weight: View<T, 1>,
    eps: f32,
    token: i64,
    h: i64,
    cos_of: Tile1<f32, D>,
    sin_of: Tile1<f32, D>,
    half: i64,
) -> Tile2<T, HEADS, D> {
    let (head, c) = (h + arange::<HEADS>(), arange::<D>());
    let other = where_(c < half, c + half, c - half);
    let other = where_(c < half * 2, other, c);
    let mask = (head < x.dim(1)).col() & (c < x.dim(2)).row();
    let from = x.ptr() + token * x.stride(0);
    let rows = (head * x.stride(1)).col();
    let mut own = load(from + (rows + (c * x.stride(2)).row()), mask).to::<f32>();
    let mut pair = load(from + (rows + (other * x.stride(2)).row()), mask).to::<f32>();
    if NORM == 1 {
        let rstd = rsqrt(sum(own * own, 1) / x.dim(2).to::<f32>() + eps).col();
        let near = load(weight.ptr() + c * weight.stride(0), c < weight.dim(0));
        let far = load(weight.ptr() + other * weight.stride(0), c < weight.dim(0));
        own = own * rstd * near.to::<f32>().row();
        pair = pair * rstd * far.to::<f32>().row();
    }
    (own * cos_of.row() + pair * sin_of.row()).to::<T>()
}

/// Writes `y = turned(q)` of each token, and puts `turned(k)` and `v` in their slot of the cache.
///
/// A program has `HEADS` heads of a token: its second number goes through the blocks of `q`, of `k`, and of
/// `v`. `scale` is a factor of cosines and sines. A slot that the cache does not have is skipped.
#[kernel]
pub fn rotate_and_cache<T: Float, const HEADS: usize, const D: usize, const NORM: usize>(
    q: View<T, 3>,
    k: View<T, 3>,
    v: View<T, 3>,
    q_weight: View<T, 1>,
    k_weight: View<T, 1>,
    inv_freq: View<f32, 1>,
    positions: View<i64, 1>,
    slots: View<i64, 1>,
    y: ViewMut<T, 3>,
    keys: ViewMut<T, 4>,
    values: ViewMut<T, 4>,
    scale: f32,
    eps: f32,
) {
    let (token, block) = (program_id(0), program_id(1));
    let (q_blocks, k_blocks) = (cdiv(q.dim(1), HEADS), cdiv(k.dim(1), HEADS));
    let c = arange::<D>();
    let half = inv_freq.dim(0);
    let channel = where_(c < half, c, c - half);
    let is_turned = c < half * 2;
    let position = sum(positions.load::<1>([token]), 0).to::<f32>();
    let freq = load(inv_freq.ptr() + channel * inv_freq.stride(0), is_turned);
    let angle = freq * position;
    let cos_of = where_(is_turned, cos(angle) * scale, 1.0);
    let sin_of = sin(angle) * scale;
    let sin_of = where_(is_turned, where_(c < half, -sin_of, sin_of), 0.0);
    if block < q_blocks {
        let h = block * HEADS;
        let rows = turned::<T, HEADS, D, NORM>(q, q_weight, eps, token, h, cos_of, sin_of, half);
        y.store([token, h, 0], rows.reshape::<1, HEADS, D>());
    } else {
        let slot = sum(slots.load::<1>([token]), 0);
        if (slot >= 0) & (slot < keys.dim(0) * keys.dim(1)) {
            let (page, offset) = (slot / keys.dim(1), slot % keys.dim(1));
            let h = (block - q_blocks) * HEADS;
            if block < q_blocks + k_blocks {
                let rows =
                    turned::<T, HEADS, D, NORM>(k, k_weight, eps, token, h, cos_of, sin_of, half);
                keys.store([page, offset, h, 0], rows.reshape::<1, 1, HEADS, D>());
            } else {
                let h = h - k_blocks * HEADS;
                let rows = v.load::<1, HEADS, D>([token, h, 0]);
                values.store([page, offset, h, 0], rows.reshape::<1, 1, HEADS, D>());
            }
        }
    }
}
