//! Optimizer steps: one launch for all parameters of a kind, see [`mod@crate::many`].
//!
//! What the kernels have in common:
//!
//! * Operands 0, 1 and 2 of a row are the parameter, its gradient and, with `MASTER` 1, the parameter in
//!   `A`, which is then what is stepped; the state, all in `A`, comes after them.
//! * With `SKIPS` 1 nothing is written where `skip[0]` is not 0, and `skipped[0]` of the steps so far did
//!   not count. So a step with gradients that overflowed is left out, and the host need not know.
//! * `sign` is -1 where the objective is maximized, else 1.
//! * Numbers that end in `_rest` are 1 minus the number, rounded once.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::many::{distance, number_of, share};
use crate::random::words;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &sgd::KERNEL,
    &adam::KERNEL,
    &rmsprop::KERNEL,
    &adagrad::KERNEL,
    &lion::KERNEL,
    &lamb::KERNEL,
    &lamb_trust::KERNEL,
    &lamb_apply::KERNEL,
    &next_scale::KERNEL,
];

/// `base` to the power of `n`, for `n` below 2^31.
#[device]
pub fn power(base: f64, n: i64) -> f64 {
    let mut result = 1.0f64;
    let mut square = base;
    for bit in range(0, 31) {
        result = where_(((n >> bit) & 1) == 1, result * square, result);
        square = square * square;
    }
    result
}

/// The first step of all that counted is number 1: this one's number, and the end of the elements that
/// it changes.
#[device]
pub fn counted<const SKIPS: usize>(
    step: i64,
    first: i64,
    end: i64,
    skip: Ptr<i32>,
    skipped: Ptr<i64>,
) -> (i64, i64) {
    let mut at = step;
    let mut until = end;
    if SKIPS == 1 {
        at = step - load(skipped);
        until = where_(load(skip) != 0, first, end);
    }
    (at, until)
}

/// The weights at places `i`: those in `A`, where there are such.
#[device]
pub fn weight_of<T: Float, A: Float, const BLOCK: usize, const MASTER: usize>(
    ws: PtrMut<T>,
    masters: PtrMut<A>,
    i: Tile1<i64, BLOCK>,
    inside: Tile1<bool, BLOCK>,
) -> Tile1<A, BLOCK> {
    if MASTER == 1 { load(masters + i, inside) } else { load(ws + i, inside).to::<A>() }
}

/// Writes the weights at places `i`.
#[device]
pub fn set_weight<T: Float, A: Float, const BLOCK: usize, const MASTER: usize>(
    ws: PtrMut<T>,
    masters: PtrMut<A>,
    i: Tile1<i64, BLOCK>,
    inside: Tile1<bool, BLOCK>,
    x: Tile1<A, BLOCK>,
) {
    if MASTER == 1 {
        store(masters + i, x, inside);
    }
    store(ws + i, x.to::<T>(), inside);
}

/// `x` as `S`. With `STOCHASTIC` 1, where `S` is bf16, it is rounded stochastically: the lower 16 of random `bits` are added to
/// the 16 that bf16 drops, and what they carry over counts, so that the mean is `x`.
#[device]
pub fn rounded<A: Float, S: Float, const BLOCK: usize, const STOCHASTIC: usize>(
    x: Tile1<A, BLOCK>,
    bits: Tile1<u32, BLOCK>,
) -> Tile1<S, BLOCK> {
    if STOCHASTIC == 1 {
        let wide = x.to::<f32>();
        let up = (bitcast::<u32>(wide) + (bits & 0xFFFF_u32)) & 0xFFFF_0000_u32;
        // A carry would make another number of NaN.
        where_(wide == wide, bitcast::<f32>(up), wide).to::<S>()
    } else {
        x.to::<S>()
    }
}

/// SGD. `m` is the momentum, which begins as the first gradient; with `MOMENTUM` 0 there is none.
///
/// `m = momentum * m + (1 - dampening) * g`, then `w -= lr * m`, or with Nesterov's form
/// `w -= lr * (g + momentum * m)`.
#[kernel]
pub fn sgd<
    T: Float,
    A: Float,
    const BLOCK: usize,
    const WIDTH: usize,
    const MASTER: usize,
    const SKIPS: usize,
    const MOMENTUM: usize,
>(
    w: PtrMut<T>,
    g: Ptr<T>,
    master: PtrMut<A>,
    m: PtrMut<A>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    skip: Ptr<i32>,
    skipped: Ptr<i64>,
    step: i64,
    sign: A,
    lr: A,
    decay: A,
    momentum: A,
    dampening_rest: A,
    nesterov: i64,
) {
    let (row, first, all) = share::<WIDTH>(chunks, rows, chunk);
    let (number, end) = counted::<SKIPS>(step, first, all, skip, skipped);
    let ws = w + distance::<WIDTH>(rows, row, 0);
    let gs = g + distance::<WIDTH>(rows, row, 1);
    let masters = master + distance::<WIDTH>(rows, row, 2);
    let ms = m + distance::<WIDTH>(rows, row, 3);
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let inside = i < end;
        let x = weight_of::<T, A, BLOCK, MASTER>(ws, masters, i, inside);
        let d = load(gs + i, inside).to::<A>() * sign + x * decay;
        let mut move_by = d;
        if MOMENTUM == 1 {
            let rest = load(ms + i, inside) * momentum + d * dampening_rest;
            let next = where_(number == 1, d, rest);
            store(ms + i, next, inside);
            move_by = where_(nesterov == 1, d + next * momentum, next);
        }
        set_weight::<T, A, BLOCK, MASTER>(ws, masters, i, inside, x - move_by * lr);
    }
}

/// Adam and, with `DECOUPLED` 1, AdamW; with `AMSGRAD` 1 by the largest second moment so far.
///
/// A root and a quotient that are off by an ulp each leave the rate of memory the limit: exact ones were half of the 440
/// instructions of 8 elements. A root of less than `2^-126` is 0, which `eps` hides.
///
/// The moments are of `S`. With `STOCHASTIC` 1 they and the weights are in bf16 alone and rounded stochastically: most steps
/// are less than half of a weight's last bit, and most changes of `v` less than half of its, which rounding to the nearest
/// would lose all of. The bits follow from the step, the tensor's number in the table and the element's alone, whatever else
/// is in the launch.
///
/// The corrections of a step come ready made, `step_size = lr / (1 - beta1^t)` and
/// `spread = 1 / sqrt(1 - beta2^t)`; where steps may not count they are computed here.
#[kernel]
pub fn adam<
    T: Float,
    A: Float,
    S: Float,
    const BLOCK: usize,
    const WIDTH: usize,
    const MASTER: usize,
    const SKIPS: usize,
    const DECOUPLED: usize,
    const AMSGRAD: usize,
    const STOCHASTIC: usize,
>(
    w: PtrMut<T>,
    g: Ptr<T>,
    master: PtrMut<A>,
    m: PtrMut<S>,
    v: PtrMut<S>,
    top: PtrMut<S>,
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
    let vs = v + distance::<WIDTH>(rows, row, 4);
    let tops = top + distance::<WIDTH>(rows, row, 5);
    let (keep1, keep2) = (A::from(beta1), A::from(beta2));
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let inside = i < end;
        let mut x = weight_of::<T, A, BLOCK, MASTER>(ws, masters, i, inside);
        let mut d = load(gs + i, inside).to::<A>() * sign;
        let (m0, v0) = (load(ms + i, inside).to::<A>(), load(vs + i, inside).to::<A>());
        let mut bits = zeros::<u32, BLOCK>();
        if STOCHASTIC == 1 {
            bits = words::<BLOCK>(number.to::<u64>(), number_of(rows, row, 6) << 40, at);
        }
        if DECOUPLED == 1 {
            x = x - x * (lr * decay);
        } else {
            d = d + x * decay;
        }
        let m1 = m0 * keep1 + d * beta1_rest;
        let v1 = v0 * keep2 + d * d * beta2_rest;
        store(ms + i, rounded::<A, S, BLOCK, STOCHASTIC>(m1, bits), inside);
        store(vs + i, rounded::<A, S, BLOCK, STOCHASTIC>(v1, bits >> 8), inside);
        let mut second = v1;
        if AMSGRAD == 1 {
            second = maximum(load(tops + i, inside).to::<A>(), v1);
            store(tops + i, rounded::<A, S, BLOCK, STOCHASTIC>(second, bits >> 4), inside);
        }
        let next = x - m1 * size * fast::recip(fast::sqrt(second) * wide + eps);
        if STOCHASTIC == 1 {
            store(ws + i, rounded::<A, T, BLOCK, 1>(next, bits >> 16), inside);
        } else {
            set_weight::<T, A, BLOCK, MASTER>(ws, masters, i, inside, next);
        }
    }
}

/// RMSprop: `v` is the running mean of the square; with `CENTERED` 1 `mean` is that of the gradient, and
/// with `MOMENTUM` 1 `m` is the running step.
#[kernel]
pub fn rmsprop<
    T: Float,
    A: Float,
    const BLOCK: usize,
    const WIDTH: usize,
    const MASTER: usize,
    const SKIPS: usize,
    const CENTERED: usize,
    const MOMENTUM: usize,
>(
    w: PtrMut<T>,
    g: Ptr<T>,
    master: PtrMut<A>,
    v: PtrMut<A>,
    mean: PtrMut<A>,
    m: PtrMut<A>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    skip: Ptr<i32>,
    skipped: Ptr<i64>,
    step: i64,
    sign: A,
    lr: A,
    decay: A,
    alpha: A,
    alpha_rest: A,
    eps: A,
    momentum: A,
) {
    let (row, first, all) = share::<WIDTH>(chunks, rows, chunk);
    let (_, end) = counted::<SKIPS>(step, first, all, skip, skipped);
    let ws = w + distance::<WIDTH>(rows, row, 0);
    let gs = g + distance::<WIDTH>(rows, row, 1);
    let masters = master + distance::<WIDTH>(rows, row, 2);
    let vs = v + distance::<WIDTH>(rows, row, 3);
    let means = mean + distance::<WIDTH>(rows, row, 4);
    let ms = m + distance::<WIDTH>(rows, row, 5);
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let inside = i < end;
        let x = weight_of::<T, A, BLOCK, MASTER>(ws, masters, i, inside);
        let d = load(gs + i, inside).to::<A>() * sign + x * decay;
        let v1 = load(vs + i, inside) * alpha + d * d * alpha_rest;
        store(vs + i, v1, inside);
        let mut variance = v1;
        if CENTERED == 1 {
            let mean0 = load(means + i, inside);
            let mean1 = mean0 + (d - mean0) * alpha_rest;
            store(means + i, mean1, inside);
            variance = v1 - mean1 * mean1;
        }
        let mut move_by = d / (sqrt(variance) + eps);
        if MOMENTUM == 1 {
            move_by = load(ms + i, inside) * momentum + move_by;
            store(ms + i, move_by, inside);
        }
        set_weight::<T, A, BLOCK, MASTER>(ws, masters, i, inside, x - move_by * lr);
    }
}

/// Adagrad: `total` is the sum of the squares; the rate falls as `lr / (1 + (t - 1) * lr_decay)`.
#[kernel]
pub fn adagrad<
    T: Float,
    A: Float,
    const BLOCK: usize,
    const WIDTH: usize,
    const MASTER: usize,
    const SKIPS: usize,
>(
    w: PtrMut<T>,
    g: Ptr<T>,
    master: PtrMut<A>,
    total: PtrMut<A>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    skip: Ptr<i32>,
    skipped: Ptr<i64>,
    step: i64,
    lr: f64,
    lr_decay: f64,
    sign: A,
    decay: A,
    eps: A,
) {
    let (row, first, all) = share::<WIDTH>(chunks, rows, chunk);
    let (number, end) = counted::<SKIPS>(step, first, all, skip, skipped);
    let rate = A::from(lr / (1.0 + (number - 1).to::<f64>() * lr_decay));
    let ws = w + distance::<WIDTH>(rows, row, 0);
    let gs = g + distance::<WIDTH>(rows, row, 1);
    let masters = master + distance::<WIDTH>(rows, row, 2);
    let totals = total + distance::<WIDTH>(rows, row, 3);
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let inside = i < end;
        let x = weight_of::<T, A, BLOCK, MASTER>(ws, masters, i, inside);
        let d = load(gs + i, inside).to::<A>() * sign + x * decay;
        let next = load(totals + i, inside) + d * d;
        store(totals + i, next, inside);
        set_weight::<T, A, BLOCK, MASTER>(
            ws,
            masters,
            i,
            inside,
            x - d * rate / (sqrt(next) + eps),
        );
    }
}

/// Lion: `w -= lr * (sign(beta1 * m + (1 - beta1) * g) + decay * w)`, then
/// `m = beta2 * m + (1 - beta2) * g`.
#[kernel]
pub fn lion<
    T: Float,
    A: Float,
    const BLOCK: usize,
    const WIDTH: usize,
    const MASTER: usize,
    const SKIPS: usize,
>(
    w: PtrMut<T>,
    g: Ptr<T>,
    master: PtrMut<A>,
    m: PtrMut<A>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    skip: Ptr<i32>,
    skipped: Ptr<i64>,
    step: i64,
    sign: A,
    lr: A,
    decay: A,
    beta1: A,
    beta1_rest: A,
    beta2: A,
    beta2_rest: A,
) {
    let (row, first, all) = share::<WIDTH>(chunks, rows, chunk);
    let (_, end) = counted::<SKIPS>(step, first, all, skip, skipped);
    let ws = w + distance::<WIDTH>(rows, row, 0);
    let gs = g + distance::<WIDTH>(rows, row, 1);
    let masters = master + distance::<WIDTH>(rows, row, 2);
    let ms = m + distance::<WIDTH>(rows, row, 3);
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let inside = i < end;
        let x = weight_of::<T, A, BLOCK, MASTER>(ws, masters, i, inside);
        let d = load(gs + i, inside).to::<A>() * sign;
        let m0 = load(ms + i, inside);
        let mixed = m0 * beta1 + d * beta1_rest;
        // NaN stays NaN, zero stays zero.
        let up = where_(mixed > 0.0, A::ONE, mixed);
        let direction = where_(mixed < 0.0, A::ZERO - A::ONE, up);
        store(ms + i, m0 * beta2 + d * beta2_rest, inside);
        set_weight::<T, A, BLOCK, MASTER>(ws, masters, i, inside, x - (direction + x * decay) * lr);
    }
}

/// The first part of LAMB: Adam's direction, with `decay * w` added, goes to `u`;
/// `sums[program]` is the sum of the squares of the program's weights, `sums[programs + program]` that
/// of its `u`.
#[kernel]
pub fn lamb<
    T: Float,
    A: Float,
    const BLOCK: usize,
    const WIDTH: usize,
    const MASTER: usize,
    const SKIPS: usize,
>(
    w: PtrMut<T>,
    g: Ptr<T>,
    master: PtrMut<A>,
    m: PtrMut<A>,
    v: PtrMut<A>,
    u: PtrMut<A>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    skip: Ptr<i32>,
    skipped: Ptr<i64>,
    step: i64,
    beta1: f64,
    beta2: f64,
    sign: A,
    decay: A,
    beta1_rest: A,
    beta2_rest: A,
    eps: A,
    sums: PtrMut<A>,
    programs: i64,
) {
    let (row, first, all) = share::<WIDTH>(chunks, rows, chunk);
    let (number, end) = counted::<SKIPS>(step, first, all, skip, skipped);
    let correct1 = A::from(1.0 / (1.0 - power(beta1, number)));
    let correct2 = A::from(1.0 / (1.0 - power(beta2, number)));
    let ws = w + distance::<WIDTH>(rows, row, 0);
    let gs = g + distance::<WIDTH>(rows, row, 1);
    let masters = master + distance::<WIDTH>(rows, row, 2);
    let ms = m + distance::<WIDTH>(rows, row, 3);
    let vs = v + distance::<WIDTH>(rows, row, 4);
    let us = u + distance::<WIDTH>(rows, row, 5);
    let (keep1, keep2) = (A::from(beta1), A::from(beta2));
    let mut weights = zeros::<A, BLOCK>();
    let mut moves = zeros::<A, BLOCK>();
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let inside = i < end;
        let x = weight_of::<T, A, BLOCK, MASTER>(ws, masters, i, inside);
        let d = load(gs + i, inside).to::<A>() * sign;
        let m1 = load(ms + i, inside) * keep1 + d * beta1_rest;
        let v1 = load(vs + i, inside) * keep2 + d * d * beta2_rest;
        store(ms + i, m1, inside);
        store(vs + i, v1, inside);
        let next = m1 * correct1 / (sqrt(v1 * correct2) + eps) + x * decay;
        store(us + i, next, inside);
        weights = weights + x * x;
        // Past the end `next` is 0 / eps, which is no number where eps is 0.
        moves = moves + where_(inside, next * next, A::ZERO);
    }
    store(sums + program_id(0), sum(weights, 0));
    store(sums + (programs + program_id(0)), sum(moves, 0));
}

/// The second part of LAMB, one program a tensor: `trust = |w| / |u|`, or 1 where one of them is 0.
///
/// The sums of tensor `t` are those of programs `starts[t]` to `starts[t + 1]`.
#[kernel]
pub fn lamb_trust<A: Float, const LANES: usize>(
    sums: Ptr<A>,
    starts: Ptr<i64>,
    trust: PtrMut<A>,
    programs: i64,
) {
    let at = starts + program_id(0);
    let (first, end) = (load(at), load(at + 1));
    let mut weights = zeros::<A, LANES>();
    let mut moves = zeros::<A, LANES>();
    for from in range(first, end, LANES) {
        let i = from + arange::<LANES>();
        weights = weights + load(sums + i, i < end);
        moves = moves + load(sums + (programs + i), i < end);
    }
    let (weight, moved) = (sqrt(sum(weights, 0)), sqrt(sum(moves, 0)));
    let ratio = where_((weight > 0.0) & (moved > 0.0), weight / moved, A::ONE);
    store(trust + program_id(0), ratio);
}

/// The third part of LAMB: `w -= lr * trust * u`. Operands are the parameter, its copy in `A` and `u`; tensors come in
/// the order that they have in [`mod@lamb`].
#[kernel]
pub fn lamb_apply<
    T: Float,
    A: Float,
    const BLOCK: usize,
    const WIDTH: usize,
    const MASTER: usize,
    const SKIPS: usize,
>(
    w: PtrMut<T>,
    master: PtrMut<A>,
    u: PtrMut<A>,
    chunks: Ptr<i64>,
    rows: Ptr<i64>,
    chunk: i64,
    skip: Ptr<i32>,
    skipped: Ptr<i64>,
    step: i64,
    lr: A,
    trust: Ptr<A>,
) {
    let (row, first, all) = share::<WIDTH>(chunks, rows, chunk);
    let (_, end) = counted::<SKIPS>(step, first, all, skip, skipped);
    let ws = w + distance::<WIDTH>(rows, row, 0);
    let masters = master + distance::<WIDTH>(rows, row, 1);
    let us = u + distance::<WIDTH>(rows, row, 2);
    let by = lr * load(trust + row / 8);
    for at in range(first, end, BLOCK) {
        let i = at + arange::<BLOCK>();
        let inside = i < end;
        let x = weight_of::<T, A, BLOCK, MASTER>(ws, masters, i, inside);
        set_weight::<T, A, BLOCK, MASTER>(ws, masters, i, inside, x - load(us + i, inside) * by);
    }
}

/// The next scale of losses in f16: smaller where a gradient overflowed, larger after `interval` steps
/// without that, unless it would be infinite.
#[kernel]
pub fn next_scale(
    scale: PtrMut<f32>,
    tracker: PtrMut<i64>,
    found: Ptr<i32>,
    growth: f32,
    backoff: f32,
    interval: i64,
) {
    let (now, calm) = (load(scale), load(tracker) + 1);
    let is_bad = load(found) != 0;
    let is_due = calm >= interval;
    let larger = where_(is_finite(now * growth), now * growth, now);
    let kept = where_(is_due, larger, now);
    store(scale, where_(is_bad, now * backoff, kept));
    store(tracker, where_(is_bad | is_due, 0, calm));
}
