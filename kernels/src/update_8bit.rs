//! Adam with moments of 8 bits: dynamic quantization by blocks.
//!
//! A moment is `scale * value(code)`, where `scale` is the largest magnitude of a block of 256 neighbours, and values of
//! codes are 0, 1 and, in each of seven decades below 1, twice as many as in the one before, evenly spread: a code has
//! few digits of what is small and many of what is large. The first moment has a sign and a magnitude of 7 bits, the
//! second, which is never negative, 8 bits:
//!
//! ```text
//! decade        1e-7..1e-6   1e-6..1e-5   ..   0.1..1
//! signed        1 value      2            ..   64
//! unsigned      2            4            ..   128
//! ```
//!
//! Both are computed, not looked up: a decade is one multiply-add and a choice. What is positive keeps a positive code,
//! so that nothing is divided by a second moment that was rounded to 0.
//!
//! # Source
//! arXiv:2110.02861 (block-wise dynamic quantization); arXiv:1511.04561 (dynamic tree quantization).

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::many::{distance, share};
use crate::update::{counted, power, set_weight, weight_of};

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&adamw_8bit::KERNEL];

/// Neighbours that share a scale.
pub const SHARE: usize = 256;

/// The values of codes 0 to 128 of a magnitude of 7 bits: 0, seven decades, 1.
#[device]
pub fn signed_value<A: Float, const N: usize>(p: Tile1<A, N>) -> Tile1<A, N> {
    let mut y = zeros::<A, N>();
    y = where_(p >= A::from(1.0), fma(p, A::from(9e-07), A::from(-3.5e-07)), y);
    y = where_(p >= A::from(2.0), fma(p, A::from(4.5e-06), A::from(-5.75e-06)), y);
    y = where_(p >= A::from(4.0), fma(p, A::from(2.25e-05), A::from(-6.875e-05)), y);
    y = where_(p >= A::from(8.0), fma(p, A::from(0.0001125), A::from(-0.00074375)), y);
    y = where_(p >= A::from(16.0), fma(p, A::from(0.0005625), A::from(-0.00771875)), y);
    y = where_(p >= A::from(32.0), fma(p, A::from(0.0028125), A::from(-0.07859375)), y);
    y = where_(p >= A::from(64.0), fma(p, A::from(0.0140625), A::from(-0.79296875)), y);
    where_(p >= A::from(128.0), A::ONE, y)
}

/// The codes whose values are nearest to `y`, from 0 to 1.
#[device]
pub fn signed_code<A: Float, const N: usize>(y: Tile1<A, N>) -> Tile1<A, N> {
    let mut p = zeros::<A, N>();
    p = where_(
        y >= A::from(2.75e-07),
        clamp(floor(fma(y, A::from(1111111.11), A::from(-0.111111111))), A::ZERO, A::from(0.0))
            + A::from(1.0),
        p,
    );
    p = where_(
        y >= A::from(1.9e-06),
        clamp(floor(fma(y, A::from(222222.222), A::from(-0.222222222))), A::ZERO, A::from(1.0))
            + A::from(2.0),
        p,
    );
    p = where_(
        y >= A::from(1.45e-05),
        clamp(floor(fma(y, A::from(44444.4444), A::from(-0.444444444))), A::ZERO, A::from(3.0))
            + A::from(4.0),
        p,
    );
    p = where_(
        y >= A::from(0.0001225),
        clamp(floor(fma(y, A::from(8888.88889), A::from(-0.888888889))), A::ZERO, A::from(7.0))
            + A::from(8.0),
        p,
    );
    p = where_(
        y >= A::from(0.0011125),
        clamp(floor(fma(y, A::from(1777.77778), A::from(-1.77777778))), A::ZERO, A::from(15.0))
            + A::from(16.0),
        p,
    );
    p = where_(
        y >= A::from(0.0105625),
        clamp(floor(fma(y, A::from(355.555556), A::from(-3.55555556))), A::ZERO, A::from(31.0))
            + A::from(32.0),
        p,
    );
    p = where_(
        y >= A::from(0.1028125),
        clamp(floor(fma(y, A::from(71.1111111), A::from(-7.11111111))), A::ZERO, A::from(63.0))
            + A::from(64.0),
        p,
    );
    where_(y >= A::from(0.996484375), A::from(128.0), p)
}

/// The values of codes 0 to 255 of of 8 bits: 0, seven decades, 1.
#[device]
pub fn unsigned_value<A: Float, const N: usize>(p: Tile1<A, N>) -> Tile1<A, N> {
    let mut y = zeros::<A, N>();
    y = where_(p >= A::from(1.0), fma(p, A::from(4.5e-07), A::from(-1.25e-07)), y);
    y = where_(p >= A::from(3.0), fma(p, A::from(2.25e-06), A::from(-4.625e-06)), y);
    y = where_(p >= A::from(7.0), fma(p, A::from(1.125e-05), A::from(-6.3125e-05)), y);
    y = where_(p >= A::from(15.0), fma(p, A::from(5.625e-05), A::from(-0.000715625)), y);
    y = where_(p >= A::from(31.0), fma(p, A::from(0.00028125), A::from(-0.007578125)), y);
    y = where_(p >= A::from(63.0), fma(p, A::from(0.00140625), A::from(-0.077890625)), y);
    y = where_(p >= A::from(127.0), fma(p, A::from(0.00703125), A::from(-0.789453125)), y);
    where_(p >= A::from(255.0), A::ONE, y)
}

/// The codes whose values are nearest to `y`, from 0 to 1.
#[device]
pub fn unsigned_code<A: Float, const N: usize>(y: Tile1<A, N>) -> Tile1<A, N> {
    let mut p = zeros::<A, N>();
    p = where_(
        y >= A::from(1.625e-07),
        clamp(floor(fma(y, A::from(2222222.22), A::from(-0.222222222))), A::ZERO, A::from(1.0))
            + A::from(1.0),
        p,
    );
    p = where_(
        y >= A::from(1.45e-06),
        clamp(floor(fma(y, A::from(444444.444), A::from(-0.444444444))), A::ZERO, A::from(3.0))
            + A::from(3.0),
        p,
    );
    p = where_(
        y >= A::from(1.225e-05),
        clamp(floor(fma(y, A::from(88888.8889), A::from(-0.888888889))), A::ZERO, A::from(7.0))
            + A::from(7.0),
        p,
    );
    p = where_(
        y >= A::from(0.00011125),
        clamp(floor(fma(y, A::from(17777.7778), A::from(-1.77777778))), A::ZERO, A::from(15.0))
            + A::from(15.0),
        p,
    );
    p = where_(
        y >= A::from(0.00105625),
        clamp(floor(fma(y, A::from(3555.55556), A::from(-3.55555556))), A::ZERO, A::from(31.0))
            + A::from(31.0),
        p,
    );
    p = where_(
        y >= A::from(0.01028125),
        clamp(floor(fma(y, A::from(711.111111), A::from(-7.11111111))), A::ZERO, A::from(63.0))
            + A::from(63.0),
        p,
    );
    p = where_(
        y >= A::from(0.10140625),
        clamp(floor(fma(y, A::from(142.222222), A::from(-14.2222222))), A::ZERO, A::from(127.0))
            + A::from(127.0),
        p,
    );
    where_(y >= A::from(0.998242188), A::from(255.0), p)
}

/// A number for each of the elements of blocks of 256.
#[device]
pub fn of_each<A: Float, const N: usize, const ROWS: usize>(x: Tile1<A, ROWS>) -> Tile1<A, N> {
    reshape::<N>(x.expand_dims(1).broadcast_to::<ROWS, 256>())
}

/// The largest of each block of 256, none of which is negative.
#[device]
pub fn largest<A: Float, const N: usize, const ROWS: usize>(x: Tile1<A, N>) -> Tile1<A, ROWS> {
    max(reshape::<ROWS, 256>(x), 1)
}

/// What numbers are multiplied by so that the largest is 1; 0 where all are 0.
#[device]
pub fn inverse<A: Float, const ROWS: usize>(x: Tile1<A, ROWS>) -> Tile1<A, ROWS> {
    where_(x > 0.0, A::ONE / x, x)
}

/// AdamW, as [`mod@crate::update::adam`] is with `DECOUPLED` 1, with moments as codes: `m`, `v` and a scale for each 256
/// of either. `ROWS` is `BLOCK / 256`.
#[kernel]
pub fn adamw_8bit<
    T: Float,
    A: Float,
    const BLOCK: usize,
    const WIDTH: usize,
    const MASTER: usize,
    const SKIPS: usize,
    const ROWS: usize,
>(
    w: PtrMut<T>,
    g: Ptr<T>,
    master: PtrMut<A>,
    m: PtrMut<u8>,
    m_scale: PtrMut<A>,
    v: PtrMut<u8>,
    v_scale: PtrMut<A>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    skip: Ptr<i32>,
    skipped: Ptr<i64>,
    step: i64,
    beta1: f64,
    beta2: f64,
    sign: A,
    lr: A,
    decay: A,
    beta1_rest: A,
    beta2_rest: A,
    eps: A,
    step_size: A,
    spread: A,
) {
    let (row, first, all) = share::<WIDTH>(chunks, rows, chunk);
    let (number, end) = counted::<SKIPS>(step, first, all, skip, skipped);
    let mut size = step_size;
    let mut wide = spread;
    if SKIPS == 1 {
        size = lr / A::from(1.0 - power(beta1, number));
        wide = A::ONE / sqrt(A::from(1.0 - power(beta2, number)));
    }
    let ws = w + distance::<WIDTH>(rows, row, 0);
    let gs = g + distance::<WIDTH>(rows, row, 1);
    let masters = master + distance::<WIDTH>(rows, row, 2);
    let ms = m + distance::<WIDTH>(rows, row, 3);
    let m_scales = m_scale + distance::<WIDTH>(rows, row, 4);
    let vs = v + distance::<WIDTH>(rows, row, 5);
    let v_scales = v_scale + distance::<WIDTH>(rows, row, 6);
    let (keep1, keep2) = (A::from(beta1), A::from(beta2));
    let blocks = (end + 255) >> 8;
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let inside = i < end;
        let j = (at >> 8) + arange::<ROWS>();
        let known = j < blocks;
        let x = weight_of::<T, A, BLOCK, MASTER>(ws, masters, i, inside);
        let d = load(gs + i, inside).to::<A>() * sign;
        let zero = A::from(127.0);
        let code = load(ms + i, inside).to::<i32>().to::<A>() - zero;
        let value = signed_value::<A, BLOCK>(abs(code));
        let m0 = where_(code < 0.0, A::ZERO - value, value)
            * of_each::<A, BLOCK, ROWS>(load(m_scales + j, known));
        let v0 = unsigned_value::<A, BLOCK>(load(vs + i, inside).to::<i32>().to::<A>())
            * of_each::<A, BLOCK, ROWS>(load(v_scales + j, known));
        let m1 = where_(inside, m0 * keep1 + d * beta1_rest, A::ZERO);
        let v1 = where_(inside, v0 * keep2 + d * d * beta2_rest, A::ZERO);
        let m_most = largest::<A, BLOCK, ROWS>(abs(m1));
        let v_most = largest::<A, BLOCK, ROWS>(v1);
        store(m_scales + j, m_most, known);
        store(v_scales + j, v_most, known);
        let y = abs(m1) * of_each::<A, BLOCK, ROWS>(inverse::<A, ROWS>(m_most));
        let p = signed_code::<A, BLOCK>(y);
        // There is no code for -1.
        let q = where_(m1 < 0.0, zero - minimum(p, zero), p + zero);
        store(ms + i, q.to::<i32>().to::<u8>(), inside);
        let z = v1 * of_each::<A, BLOCK, ROWS>(inverse::<A, ROWS>(v_most));
        let u = where_(v1 > 0.0, maximum(unsigned_code::<A, BLOCK>(z), A::ONE), A::ZERO);
        store(vs + i, u.to::<i32>().to::<u8>(), inside);
        let x = x - x * (lr * decay);
        set_weight::<T, A, BLOCK, MASTER>(
            ws,
            masters,
            i,
            inside,
            x - m1 * size / (sqrt(v1) * wide + eps),
        );
    }
}
