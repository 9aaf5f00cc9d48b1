//! The attention of a decode step in one launch: norms of heads, rotation by position, the write of the new key and
//! value to the cache, and attention to all keys.
//!
//! It gives the bits that [`mod@crate::rotate`] and [`mod@crate::paged_attention`] give one after the other: the new key and
//! value stand in their place of the last block of keys, in registers.
//!
//! Nothing but queries, keys and values of the new token comes from the product right ahead. So the program asks for
//! all else before these, and on Hopper before it waits for the kernel ahead:
//!
//! ```text
//! the length, the pages, older keys and values of the first block; cosines and sines
//! griddepcontrol.wait
//! the new token's queries, key and value
//! block after block: scores, weights, weighted values; meanwhile the next block
//! ```

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::paged_attention::{hides, joined, mean, pages_of, weighted};
use crate::rotate::{kept, sin_cos, sums_in_pairs};

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&paged_decode::KERNEL];

/// How channels are turned: the factor of each, that of its partner, and the partner.
#[device]
fn turns<const D: usize>(
    inv_freq: View<f32, 1>,
    position: f32,
    scale: f32,
) -> (Tile1<f32, D>, Tile1<f32, D>, Tile1<i64, D>) {
    let (c, half) = (arange::<D>(), inv_freq.dim(0));
    let (is_first, is_turned) = (c < half, c < 2 * half);
    let pair = where_(is_first, c, c - half);
    let freq = load(inv_freq.ptr() + pair * inv_freq.stride(0), is_turned);
    let (sine, cosine) = sin_cos(freq * position);
    let (sine, cosine) = (sine * scale, cosine * scale);
    let own = where_(is_turned, cosine, 1.0);
    let other = where_(is_turned, where_(is_first, -sine, sine), 0.0);
    let partner = where_(is_turned, where_(is_first, c + half, c - half), c);
    (own, other, partner)
}

/// Heads of a token, turned, after a norm of each where `NORM`; `partner` of channels that stay is themselves.
#[device]
fn turned<T: Float, const M: usize, const D: usize, const NORM: usize>(
    x: View<T, 3>,
    weight: View<T, 1>,
    at: (i64, Tile1<i64, M>, Tile1<bool, M>),
    turn: (Tile1<f32, D>, Tile1<f32, D>, Tile1<i64, D>),
    half: i64,
    eps: f32,
) -> Tile2<T, M, D> {
    let ((token, head, is_own), (own, other, partner)) = (at, turn);
    let (c, d) = (arange::<D>(), x.dim(2));
    let from = (x.ptr() + token * x.stride(0)) + (head * x.stride(1)).col();
    let is_there = is_own.col() & (c < d).row();
    let mut a = load(from + (c * x.stride(2)).row(), is_there).to::<f32>();
    let mut b = load(from + (partner * x.stride(2)).row(), is_there).to::<f32>();
    if NORM == 1 {
        // Those of pairs, in the order in which pairs are added up elsewhere.
        let pair = cdiv(d, 2);
        let mate = where_(c < half, c + half, c + pair);
        let far = load(from + (mate * x.stride(2)).row(), is_own.col() & (mate < d).row());
        let near = where_(c < half, c, c + half);
        let near = load(from + (near * x.stride(2)).row(), is_own.col() & (near < d).row());
        let (near, far) = (near.to::<f32>(), far.to::<f32>());
        let squares = where_((c < pair).row(), near * near + far * far, 0.0);
        let rstd = rsqrt(sums_in_pairs::<M, D>(squares) / d.to::<f32>() + eps).col();
        let w = load(weight.ptr() + c * weight.stride(0), c < d).to::<f32>();
        let of_partner = load(weight.ptr() + partner * weight.stride(0), c < d).to::<f32>();
        a = a * rstd * w.row();
        b = b * rstd * of_partner.row();
    }
    where_((c < 2 * half).row(), a * own.row() + b * other.row(), a).to::<T>()
}

/// The keys and values of block `j` that come before the new one; what follows is 0.
#[device]
fn older<C: Element, const BN: usize, const D: usize, const PAGE: usize, const ROW: usize>(
    cache: (View<C, 4>, View<C, 4>),
    pages: Ptr<i64>,
    own: i64,
    j: i64,
    last: i64,
) -> (Tile2<C, BN, D>, Tile2<C, BN, D>) {
    let (keys, values) = cache;
    let (c, d) = (arange::<D>(), keys.dim(3));
    let is_old = j * BN + arange::<BN>() < last;
    let (page, offset) = pages_of::<BN, PAGE, ROW>(pages, j * BN, is_old, keys.dim(0));
    let offset = own * d + (offset.col() + c.row());
    let is_there = is_old.col() & (c < d).row();
    (
        load(keys.ptr() + offset + page.col(), is_there),
        load(values.ptr() + offset + page.col(), is_there),
    )
}

/// Puts one row of a head into a slot of the cache; a slot that the cache does not have is skipped.
#[device]
fn put<C: Element, const D: usize, const PAGE: usize>(
    cache: ViewMut<C, 4>,
    head: i64,
    slot: i64,
    row: Tile1<C, D>,
) {
    let (page, offset, c) = (slot / PAGE, slot % PAGE, arange::<D>());
    let is_there = (slot >= 0) & (page < cache.dim(0));
    let place = page * cache.stride(0) + offset * cache.stride(1) + head * cache.stride(2);
    store(cache.ptr() + (place + c * cache.stride(3)), row, is_there & (c < cache.dim(3)));
}

/// Attention of the new token of each sequence to its keys in pages, and to its own, which is the last:
/// `q: [n, h, d]`, `k` and `v: [n, g, d]` give `o: [n, h, d]`, `h` being `g * EACH`. A program has the heads of a
/// sequence that share keys.
///
/// Queries and keys are turned as in [`mod@crate::rotate`]; `new_keys` and `new_values` are `keys` and `values`,
/// dense and `[pages, PAGE, g, d]`, for writing. The rest is as of [`mod@crate::paged_attention`].
#[kernel]
pub fn paged_decode<
    T: Float,
    C: Element,
    A: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const EACH: usize,
    const PAGE: usize,
    const ROW: usize,
    const CAP: usize,
    const SINKS: usize,
    const NORM: usize,
    const LIMIT: usize,
>(
    q: View<T, 3>,
    k: View<T, 3>,
    v: View<T, 3>,
    q_weight: View<T, 1>,
    k_weight: View<T, 1>,
    inv_freq: View<f32, 1>,
    positions: View<i64, 1>,
    slots: View<i64, 1>,
    keys: View<C, 4>,
    values: View<C, 4>,
    sinks: View<T, 1>,
    lengths: Ptr<i64>,
    table: Ptr<i64>,
    o: ViewMut<T, 3>,
    new_keys: ViewMut<C, 4>,
    new_values: ViewMut<C, 4>,
    columns: i64,
    most: i64,
    window: i64,
    scale: A,
    cap: A,
    factor: f32,
    eps: f32,
) {
    let (s, own) = (program_id(0), program_id(1));
    let len = clamp(load(lengths + s), 0, most);
    let last = len - 1;
    let (first, end) = (maximum(last - (window - 1), 0) / BN, cdiv(len, BN));
    let (cache, pages) = ((keys, values), table + s * columns);
    let (mut next_k, mut next_v) = older::<C, BN, D, PAGE, ROW>(cache, pages, own, first, last);
    let (r, c, half) = (arange::<BM>(), arange::<D>(), inv_freq.dim(0));
    let head = own * EACH + r;
    let sink = load(sinks.ptr() + head * sinks.stride(0), (r < EACH) & (SINKS == 1));
    let slot = load(slots.ptr() + s * slots.stride(0));
    let position = load(positions.ptr() + s * positions.stride(0)).to::<f32>();
    let turn = turns::<D>(inv_freq, position, factor);

    // From here on what the kernel ahead wrote.
    let at = (s, head, r < EACH);
    let rows = turned::<T, BM, D, NORM>(q, q_weight, at, turn, half, eps);
    let one = own + arange::<1>();
    let at = (s, one, arange::<1>() == 0);
    let new_k = turned::<T, 1, D, NORM>(k, k_weight, at, turn, half, eps);
    let new_k = kept::<T, C, 1, D, LIMIT>(new_k).reshape::<D>();
    let from = v.ptr() + s * v.stride(0) + ((one * v.stride(1)).col() + (c * v.stride(2)).row());
    let new_v = load(from, (c < v.dim(2)).row());
    let new_v = kept::<T, C, 1, D, LIMIT>(new_v).reshape::<D>();
    put::<C, D, PAGE>(new_keys, own, slot, new_k);
    put::<C, D, PAGE>(new_values, own, slot, new_v);

    let mut acc = zeros::<A, BM, D>();
    let mut top = full::<A, BM>(A::MIN);
    let mut total = zeros::<A, BM>();
    let newest = full::<i32, BM>(last.to::<i32>());
    let oldest = newest - (window - 1).to::<i32>();
    for j in range(first, end, 1) {
        let key = (j * BN).to::<i32>() + arange::<BN>().to::<i32>();
        let is_new = (key == last.to::<i32>()).col();
        let k = where_(is_new, new_k.row(), next_k).to::<T>();
        let v = where_(is_new, new_v.row(), next_v).to::<T>();
        // Those of the next block are under way meanwhile; behind the last block there are none.
        let (ahead_k, ahead_v) = older::<C, BN, D, PAGE, ROW>(cache, pages, own, j + 1, last);
        next_k = ahead_k;
        next_v = ahead_v;
        let x = dot(rows, k.trans(), zeros::<A, BM, BN>());
        let is_hidden = hides::<BN>(j, last, last, window);
        let (own_top, own_total, w) =
            weighted::<A, BM, BN, CAP>(x, key, oldest, newest, is_hidden, scale, cap);
        let own_acc = dot(w.to::<T>(), v, zeros::<A, BM, D>());
        let (t, l, a) = joined::<A, BM, D>(top, total, acc, own_top, own_total, own_acc);
        top = t;
        total = l;
        acc = a;
    }
    let y = mean::<A, BM, D, SINKS>(top, total, acc, sink.to::<A>());
    let to = (s * o.stride(0) + head * o.stride(1)).col() + (c * o.stride(2)).row();
    store(o.ptr() + to, y.to::<T>(), (r < EACH).col() & (c < o.dim(2)).row());
}
