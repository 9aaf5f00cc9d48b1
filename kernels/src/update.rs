//! Optimizer steps: one pass over parameter, gradient and state.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&sgd::KERNEL, &sgd_momentum::KERNEL, &adam::KERNEL];

/// `w -= lr * (g + decay * w)`
#[kernel]
pub fn sgd<T: Float, A: Float, const BLOCK: usize>(
    w: ViewMut<T, 1>,
    g: View<T, 1>,
    lr: A,
    decay: A,
) {
    let i = program_id(0) * BLOCK;
    let v = w.load::<BLOCK>([i]).to::<A>();
    let d = g.load::<BLOCK>([i]).to::<A>() + v * decay;
    w.store([i], (v - d * lr).to::<T>());
}

/// SGD with momentum; `first` is 1 in the first step, which starts the buffer from the gradient.
///
/// `m = momentum * m + (1 - dampening) * g`, then `w -= lr * m`, or with Nesterov's form
/// `w -= lr * (g + momentum * m)`.
#[kernel]
pub fn sgd_momentum<T: Float, A: Float, const BLOCK: usize, const NESTEROV: usize>(
    w: ViewMut<T, 1>,
    g: View<T, 1>,
    m: ViewMut<A, 1>,
    lr: A,
    decay: A,
    momentum: A,
    dampening: A,
    first: i64,
) {
    let i = program_id(0) * BLOCK;
    let v = w.load::<BLOCK>([i]).to::<A>();
    let d = g.load::<BLOCK>([i]).to::<A>() + v * decay;
    let rest = m.load::<BLOCK>([i]) * momentum + d * (A::ONE - dampening);
    let next = where_(first != 0, d, rest);
    m.store([i], next);
    let mut step = next;
    if NESTEROV == 1 {
        step = d + next * momentum;
    }
    w.store([i], (v - step * lr).to::<T>());
}

/// Adam and, with `DECOUPLED` 1, AdamW.
///
/// The corrections of step `t` come ready made: `step_size = lr / (1 - beta1^t)` and
/// `spread = 1 / sqrt(1 - beta2^t)`. All four streams are read before anything is computed.
#[kernel]
pub fn adam<T: Float, A: Float, const BLOCK: usize, const DECOUPLED: usize>(
    w: ViewMut<T, 1>,
    g: View<T, 1>,
    m: ViewMut<A, 1>,
    v: ViewMut<A, 1>,
    lr: A,
    beta1: A,
    beta2: A,
    eps: A,
    decay: A,
    step_size: A,
    spread: A,
) {
    let i = program_id(0) * BLOCK;
    let mut x = w.load::<BLOCK>([i]).to::<A>();
    let mut d = g.load::<BLOCK>([i]).to::<A>();
    let (m0, v0) = (m.load::<BLOCK>([i]), v.load::<BLOCK>([i]));
    if DECOUPLED == 1 {
        x = x - x * (lr * decay);
    } else {
        d = d + x * decay;
    }
    let m1 = m0 * beta1 + d * (A::ONE - beta1);
    let v1 = v0 * beta2 + d * d * (A::ONE - beta2);
    m.store([i], m1);
    v.store([i], v1);
    w.store([i], (x - m1 * step_size / (sqrt(v1) * spread + eps)).to::<T>());
}
