//! Random tensors. Element `i` of a tensor depends on the seed, the stream and `i` only, so that the
//! CPU and every GPU draw the same bits.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&uniform::KERNEL, &normal::KERNEL, &integers::KERNEL, &dropout::KERNEL];

/// `y` uniform in `[low, high)`.
#[kernel]
pub fn uniform<T: Float, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    low: f32,
    high: f32,
) {
    let i = program_id(0) * BLOCK;
    let u = rand(seed, offset + i + arange::<BLOCK>());
    y.store([i], (low + u * (high - low)).to::<T>());
}

/// `y` normal with this mean and standard deviation.
#[kernel]
pub fn normal<T: Float, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    mean: f32,
    std: f32,
) {
    let i = program_id(0) * BLOCK;
    let z = randn(seed, offset + i + arange::<BLOCK>());
    y.store([i], (mean + z * std).to::<T>());
}

/// `y` uniform among the integers `low..high`, at most 2^32 of them: the upper half of a 32-bit word
/// times their number.
#[kernel]
pub fn integers<T: Number, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    low: i64,
    high: i64,
) {
    let i = program_id(0) * BLOCK;
    let word = randint(seed, offset + i + arange::<BLOCK>()).to::<u64>();
    let scaled = (word * (high - low) as u64) >> 32;
    y.store([i], (scaled.to::<i64>() + low).to::<T>());
}

/// `y = x / (1 - p)` where a draw is at least `p`, else 0. The same seed and offset draw the same
/// mask, so the backward is the same kernel on `dy`.
#[kernel]
pub fn dropout<T: Float, A: Float, const BLOCK: usize>(
    x: View<T, 1>,
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    p: f32,
) {
    let i = program_id(0) * BLOCK;
    let keep = rand(seed, offset + i + arange::<BLOCK>()) >= p;
    let v = x.load::<BLOCK>([i]).to::<A>() * A::from(1.0 / (1.0 - p));
    y.store([i], where_(keep, v, A::ZERO).to::<T>());
}
