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
//!
//! A thread holds both channels of a pair, and one angle for each. What stays is in pairs too: 4 and 5.
//!
//! Heads of queries, of keys and of values are numbered one after the other, those of the first token, then those of the
//! next, and loaded with a mask each: nothing waits for the position, and no program for a branch.

use std::f32::consts::FRAC_2_PI;

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&rotate_and_cache::KERNEL];

/// The sines and cosines of angles up to 2^22, to 2 ULP of the angle.
///
/// The angle loses its nearest multiple of pi/2, which is taken in three parts by fused multiply-adds: the
/// first step is exact. Polynomials as of `sin` and `cos`, which are for any angle and take three times as
/// long.
#[device]
pub fn sin_cos<S: Shape>(angle: Tile<f32, S>) -> (Tile<f32, S>, Tile<f32, S>) {
    let turns = floor(fma(angle, FRAC_2_PI, 0.5));
    let r = fma(turns, -1.570_796_4, angle);
    let r = fma(turns, 4.371_139e-8, r);
    let r = fma(turns, 1.715_124_5e-15, r);
    let t = r * r;
    let sine = fma(fma(t, -1.950_569_8e-4, 8.332_096e-3), t, -1.666_665_3e-1);
    let sine = r * fma(sine, t, 1.0);
    let cosine = fma(fma(t, 2.441_425_5e-5, -1.388_714_1e-3), t, 4.166_664e-2);
    let cosine = fma(fma(cosine, t, -0.5), t, 1.0);
    let quadrant = turns.to::<i32>();
    let is_odd = (quadrant & 1) == 1;
    let (s, c) = (where_(is_odd, cosine, sine), where_(is_odd, sine, cosine));
    let is_negative = ((quadrant + 1) & 2) == 2;
    (where_((quadrant & 2) == 2, -s, s), where_(is_negative, -c, c))
}

/// Channels of some heads of tokens: those that `is_own` and that are there.
#[device]
pub fn channels<T: Float, const HEADS: usize, const PAIRS: usize>(
    x: View<T, 3>,
    token: Tile1<i64, HEADS>,
    head: Tile1<i64, HEADS>,
    is_own: Tile1<bool, HEADS>,
    channel: (Tile1<i64, PAIRS>, Tile1<bool, PAIRS>),
) -> Tile2<f32, HEADS, PAIRS> {
    let (channel, is_there) = channel;
    let from = token * x.stride(0) + head * x.stride(1);
    let at = from.col() + (channel * x.stride(2)).row();
    load(x.ptr() + at, is_own.col() & is_there.row()).to::<f32>()
}

/// The weights of channels of the heads of queries and of keys.
#[device]
pub fn weights<T: Float, const HEADS: usize, const PAIRS: usize>(
    of_queries: View<T, 1>,
    of_keys: View<T, 1>,
    is_query: Tile1<bool, HEADS>,
    channel: Tile1<i64, PAIRS>,
) -> Tile2<f32, HEADS, PAIRS> {
    let is_there = channel < of_queries.dim(0);
    let a = load(of_queries.ptr() + channel * of_queries.stride(0), is_there).to::<f32>();
    let b = load(of_keys.ptr() + channel * of_keys.stride(0), is_there).to::<f32>();
    where_(is_query.col(), a.row(), b.row())
}

/// The sum of each row, of 16 to 256 columns: neighbours, then neighbours of these sums, and so on, which no layout and
/// no tile changes.
#[device]
pub fn sums_in_pairs<const M: usize, const N: usize>(x: Tile2<f32, M, N>) -> Tile1<f32, M> {
    if N == 256 {
        sums_of_64::<M>(sum(sum(x.reshape::<M, 128, 2>(), 2).reshape::<M, 64, 2>(), 2))
    } else if N == 128 {
        sums_of_64::<M>(sum(x.reshape::<M, 64, 2>(), 2))
    } else if N == 64 {
        sums_of_64::<M>(x.reshape::<M, 64>())
    } else if N == 32 {
        sums_of_32::<M>(x.reshape::<M, 32>())
    } else if N == 16 {
        sums_of_16::<M>(x.reshape::<M, 16>())
    } else {
        sum(x, 1)
    }
}

#[device]
fn sums_of_64<const M: usize>(x: Tile2<f32, M, 64>) -> Tile1<f32, M> {
    sums_of_32::<M>(sum(x.reshape::<M, 32, 2>(), 2))
}

#[device]
fn sums_of_32<const M: usize>(x: Tile2<f32, M, 32>) -> Tile1<f32, M> {
    sums_of_16::<M>(sum(x.reshape::<M, 16, 2>(), 2))
}

#[device]
fn sums_of_16<const M: usize>(x: Tile2<f32, M, 16>) -> Tile1<f32, M> {
    let s = sum(x.reshape::<M, 8, 2>(), 2);
    let s = sum(s.reshape::<M, 4, 2>(), 2);
    let s = sum(s.reshape::<M, 2, 2>(), 2);
    sum(s, 1)
}

/// Numbers as a cache of another dtype keeps them; `LIMIT` is the largest that one of 8 bits has, and 0 for any
/// other.
#[device]
pub fn kept<T: Float, C: Element, const M: usize, const N: usize, const LIMIT: usize>(
    x: Tile2<T, M, N>,
) -> Tile2<C, M, N> {
    if LIMIT > 0 {
        let most = if LIMIT == 448 { 448.0_f32 } else { 57344.0_f32 };
        clamp(x.to::<f32>(), 0.0 - most, most).to::<C>()
    } else {
        x.to::<C>()
    }
}

/// Writes `y = turned(q)` of each token, and puts `turned(k)` and `v` in their slot of the cache; heads are
/// normalized first where `NORM`.
///
/// A program has `HEADS` heads, of as many tokens as it takes, `PAIRS` pairs of channels each. `scale` is a factor of cosines and
/// sines. A slot that the cache does not have is skipped. `LIMIT` as of [`kept`]. With `WHOLE` there are `2 PAIRS`
/// channels, and all of them are turned.
#[kernel]
pub fn rotate_and_cache<
    T: Float,
    C: Element,
    const HEADS: usize,
    const PAIRS: usize,
    const PAGE: usize,
    const NORM: usize,
    const LIMIT: usize,
    const WHOLE: usize,
>(
    q: View<T, 3>,
    k: View<T, 3>,
    v: View<T, 3>,
    q_weight: View<T, 1>,
    k_weight: View<T, 1>,
    inv_freq: View<f32, 1>,
    positions: View<i64, 1>,
    slots: View<i64, 1>,
    y: ViewMut<T, 3>,
    keys: ViewMut<C, 4>,
    values: ViewMut<C, 4>,
    scale: f32,
    eps: f32,
) {
    let (number, c) = (program_id(0) * HEADS + arange::<HEADS>(), arange::<PAIRS>());
    let heads = q.dim(1) + 2 * k.dim(1);
    let (token, head) = (number / heads, number % heads);
    let exists = token < q.dim(0);
    let position = load(positions.ptr() + token * positions.stride(0), exists).to::<f32>();
    let slot = load(slots.ptr() + token * slots.stride(0), exists);
    let (d, half) = (q.dim(2), inv_freq.dim(0));
    // The two channels of a pair, and which of them there are.
    let mut is_turned = c < half;
    let mut a = where_(is_turned, c, c + half);
    let mut b = where_(is_turned, c + half, c + cdiv(d, 2));
    let mut is_pair = c < cdiv(d, 2);
    let mut has_b = b < d;
    if WHOLE == 1 {
        // Neighbours in memory: what tells apart where they are would hide that.
        a = c;
        b = c + PAIRS;
        is_pair = c < PAIRS;
        has_b = is_pair;
        is_turned = is_pair;
    }
    let freq = load(inv_freq.ptr() + c * inv_freq.stride(0), is_turned);
    let (near_at, far_at) = ((a, is_pair), (b, is_pair & has_b));
    let (key, value) = (head - q.dim(1), head - q.dim(1) - k.dim(1));
    let (is_query, is_value) = (exists & (head < q.dim(1)), exists & (value >= 0));
    let is_key = exists & (key >= 0) & (value < 0);
    let mut first = channels::<T, HEADS, PAIRS>(q, token, head, is_query, near_at)
        + channels::<T, HEADS, PAIRS>(k, token, key, is_key, near_at);
    let mut second = channels::<T, HEADS, PAIRS>(q, token, head, is_query, far_at)
        + channels::<T, HEADS, PAIRS>(k, token, key, is_key, far_at);
    let first_value = channels::<T, HEADS, PAIRS>(v, token, value, is_value, near_at);
    let second_value = channels::<T, HEADS, PAIRS>(v, token, value, is_value, far_at);
    if NORM == 1 {
        let squares = where_(is_pair.row(), first * first + second * second, 0.0);
        let rstd = rsqrt(sums_in_pairs::<HEADS, PAIRS>(squares) / d.to::<f32>() + eps).col();
        first = first * rstd * weights::<T, HEADS, PAIRS>(q_weight, k_weight, is_query, a);
        second = second * rstd * weights::<T, HEADS, PAIRS>(q_weight, k_weight, is_query, b);
    }
    let (s, c) = sin_cos(freq.row() * position.col());
    let is_turned = is_turned.row();
    let (s, c) = (where_(is_turned, s * scale, 0.0), where_(is_turned, c * scale, 1.0));
    let is_value = is_value.col();
    let near = where_(is_value, first_value, first * c - second * s).to::<T>();
    let far = where_(is_value, second_value, second * c + first * s).to::<T>();
    let is_near = is_pair.row();
    let is_far = is_near & has_b.row();
    let to = y.ptr() + (token * y.stride(0) + head * y.stride(1)).col();
    store(to + (a * y.stride(2)).row(), near, is_query.col() & is_near);
    store(to + (b * y.stride(2)).row(), far, is_query.col() & is_far);
    let near = kept::<T, C, HEADS, PAIRS, LIMIT>(near);
    let far = kept::<T, C, HEADS, PAIRS, LIMIT>(far);
    let (page, offset) = (slot / PAGE, slot % PAGE);
    let is_there = (slot >= 0) & (page < keys.dim(0));
    let place = page * keys.stride(0) + offset * keys.stride(1);
    let to = keys.ptr() + (place + key * keys.stride(2)).col();
    let is_key = (is_key & is_there).col();
    store(to + (a * keys.stride(3)).row(), near, is_key & is_near);
    store(to + (b * keys.stride(3)).row(), far, is_key & is_far);
    let place = page * values.stride(0) + offset * values.stride(1);
    let to = values.ptr() + (place + value * values.stride(2)).col();
    let is_value = is_value & is_there.col();
    store(to + (a * values.stride(3)).row(), near, is_value & is_near);
    store(to + (b * values.stride(3)).row(), far, is_value & is_far);
}
