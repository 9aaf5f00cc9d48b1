//! Random tensors. Element `i` of a tensor depends on the seed, the offset and `i` only, and the functions
//! used here are the same on every device to the bit, so that the CPU and every GPU draw the same.
//!
//! That leaves out the exponential in f32, which GPUs approximate: it is taken in f64. Sums are of
//! integers, whose order does not matter.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::lang::library::lgamma_right;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &uniform::KERNEL,
    &uniform_wide::KERNEL,
    &normal::KERNEL,
    &log_normal::KERNEL,
    &truncated_normal::KERNEL,
    &exponential::KERNEL,
    &cauchy::KERNEL,
    &geometric::KERNEL,
    &gamma::KERNEL,
    &poisson::KERNEL,
    &bernoulli::KERNEL,
    &integers::KERNEL,
    &long_integers::KERNEL,
    &race::KERNEL,
    &weights::KERNEL,
    &pick::KERNEL,
    &dropout::KERNEL,
    &dropout_by_element::KERNEL,
];

/// 32 random bits for each of `BLOCK` elements, of which the first has number `first`, a multiple of 4. Four elements
/// share a computation, which the compiler does once where a thread has all of them.
#[device]
pub fn words<const BLOCK: usize>(seed: u64, offset: i64, first: i64) -> Tile1<u32, BLOCK> {
    let i = first + arange::<BLOCK>();
    let (a, b, c, d) = randint4x(seed, offset + (i >> 2));
    let place = i & 3;
    where_(place < 2, where_(place == 0, a, b), where_(place == 2, c, d))
}

/// The same as f32 uniform in `0..1`: multiples of 2^-24.
#[device]
pub fn units<const BLOCK: usize>(seed: u64, offset: i64, first: i64) -> Tile1<f32, BLOCK> {
    (words::<BLOCK>(seed, offset, first) >> 8).to::<f32>() * 0.000000059604644775390625
}

/// Normal numbers, two of each two words: Box and Muller's cosine and sine.
#[device]
pub fn normals<const BLOCK: usize>(seed: u64, offset: i64, first: i64) -> Tile1<f32, BLOCK> {
    let i = first + arange::<BLOCK>();
    let (a, b, c, d) = randint4x(seed, offset + (i >> 2));
    let is_low = (i & 2) == 0;
    let (u, v) = (where_(is_low, a, c), where_(is_low, b, d));
    let u = ((u >> 8) + 1).to::<f32>() * 0.000000059604644775390625;
    let angle = (v >> 8).to::<f32>() * 0.000000374507028;
    sqrt(log(u) * -2.0) * where_((i & 1) == 0, cos(angle), sin(angle))
}

/// [`open_unit`] of [`words`].
#[device]
pub fn open_units<const BLOCK: usize>(seed: u64, offset: i64, first: i64) -> Tile1<f32, BLOCK> {
    let word = words::<BLOCK>(seed, offset, first) >> 9;
    (word * 2 + 1).to::<f32>() * 0.000000059604644775390625
}

/// Uniform in (0, 1), both ends left out: odd multiples of 2^-24.
#[device]
pub fn open_unit<const BLOCK: usize>(seed: u64, index: Tile1<i64, BLOCK>) -> Tile1<f32, BLOCK> {
    let word = randint(seed, index) >> 9;
    (word * 2 + 1).to::<f32>() * 0.000000059604644775390625
}

/// `y` uniform in `[low, high)`. `mask` has the bits of the fraction that `T` can hold, so that no number
/// is rounded up to 1.
#[kernel]
pub fn uniform<T: Float, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    low: f32,
    high: f32,
    mask: u32,
) {
    let i = program_id(0) * BLOCK;
    let u = units::<BLOCK>(seed, offset, i);
    let u = bitcast::<f32>(bitcast::<u32>(u) & mask);
    let v = (low + u * (high - low)).to::<T>();
    y.store([i], where_(v.to::<f32>() < high, v, full::<f32, BLOCK>(low).to::<T>()));
}

/// `y` uniform in `[low, high)` with 53 random bits: two draws an element.
#[kernel]
pub fn uniform_wide<const BLOCK: usize>(
    y: ViewMut<f64, 1>,
    seed: u64,
    offset: i64,
    low: f64,
    high: f64,
) {
    let i = program_id(0) * BLOCK;
    let at = offset + (i + arange::<BLOCK>()) * 2;
    let top = randint(seed, at).to::<u64>() << 21;
    let bits = top | (randint(seed, at + 1).to::<u64>() >> 11);
    let u = bits.to::<f64>() * 0.00000000000000011102230246251565404236316680908203125;
    let v = low + u * (high - low);
    y.store([i], where_(v < high, v, low));
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
    let z = normals::<BLOCK>(seed, offset, i);
    y.store([i], (mean + z * std).to::<T>());
}

/// `y` is e to the power of a normal number.
#[kernel]
pub fn log_normal<T: Float, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    mean: f32,
    std: f32,
) {
    let i = program_id(0) * BLOCK;
    let z = mean + normals::<BLOCK>(seed, offset, i) * std;
    y.store([i], exp(z.to::<f64>()).to::<T>());
}

/// The inverse of the error function, for -1 < x < 1, within 5e-7 of the result.
///
/// Source: M. Giles, Approximating the erfinv function (GPU Computing Gems, 2011), single precision.
#[device]
pub fn erfinv_of<const BLOCK: usize>(x: Tile1<f32, BLOCK>) -> Tile1<f32, BLOCK> {
    let w = 0.0 - log((1.0 - x) * (1.0 + x));
    let a = w - 2.5;
    let mut p = full::<f32, BLOCK>(2.81022636e-08);
    p = p * a + 3.43273939e-07;
    p = p * a - 3.5233877e-06;
    p = p * a - 4.39150654e-06;
    p = p * a + 0.00021858087;
    p = p * a - 0.00125372503;
    p = p * a - 0.00417768164;
    p = p * a + 0.246640727;
    p = p * a + 1.50140941;
    let b = sqrt(maximum(w, 0.0)) - 3.0;
    let mut q = full::<f32, BLOCK>(-0.000200214257);
    q = q * b + 0.000100950558;
    q = q * b + 0.00134934322;
    q = q * b - 0.00367342844;
    q = q * b + 0.00573950773;
    q = q * b - 0.0076224613;
    q = q * b + 0.00943887047;
    q = q * b + 1.00167406;
    q = q * b + 2.83297682;
    where_(w < 5.0, p, q) * x
}

/// `y` normal, of what lies in `low..=high`: by the inverse of the distribution, which is `first..last`
/// there, as twice the probability less 1.
#[kernel]
pub fn truncated_normal<T: Float, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    mean: f32,
    std: f32,
    low: f32,
    high: f32,
    first: f32,
    last: f32,
) {
    let i = program_id(0) * BLOCK;
    let u = open_units::<BLOCK>(seed, offset, i);
    let z = erfinv_of::<BLOCK>(first + u * (last - first)) * 1.41421356;
    y.store([i], clamp(mean + z * std, low, high).to::<T>());
}

/// `y` exponential with this rate; never 0.
#[kernel]
pub fn exponential<T: Float, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    rate: f32,
) {
    let i = program_id(0) * BLOCK;
    let u = open_units::<BLOCK>(seed, offset, i);
    y.store([i], ((0.0 - log(u)) / rate).to::<T>());
}

/// `y` of Cauchy's distribution.
#[kernel]
pub fn cauchy<T: Float, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    median: f32,
    sigma: f32,
) {
    let i = program_id(0) * BLOCK;
    let u = open_units::<BLOCK>(seed, offset, i);
    let angle = (u - 0.5) * 3.14159265;
    y.store([i], (median + sin(angle) / cos(angle) * sigma).to::<T>());
}

/// `y` is the number of trials until one succeeds, from 1; `log_failure` is the logarithm of the
/// probability that one does not.
#[kernel]
pub fn geometric<T: Number, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
    log_failure: f32,
) {
    let i = program_id(0) * BLOCK;
    let u = open_units::<BLOCK>(seed, offset, i);
    y.store([i], maximum(ceil(log(u) / log_failure), 1.0).to::<T>());
}

/// `y` of the gamma distribution of each shape `alpha`, with rate 1: by rejection, which fails in at most
/// one round of twenty; 31 rounds leave nothing that f64 could tell. 64 draws an element.
///
/// Source: G. Marsaglia and W. Tsang, A simple method for generating gamma variables (2000).
#[kernel]
pub fn gamma<T: Float, const LANES: usize>(
    alpha: View<T, 1>,
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
) {
    let i = program_id(0) * LANES;
    let shape = alpha.load::<LANES>([i]).to::<f64>();
    let at = offset + (i + arange::<LANES>()) * 64;
    let is_small = shape < 1.0;
    let d = where_(is_small, shape + 1.0, shape) - 0.3333333333333333;
    let c = 1.0 / sqrt(d * 9.0);
    let mut found = zeros::<f64, LANES>();
    for round in range(0, 31, 1) {
        if max((found == 0.0).to::<i32>(), 0) > 0 {
            let x = randn(seed, at + round * 2).to::<f64>();
            let u = open_unit::<LANES>(seed, at + (round * 2 + 1)).to::<f64>();
            let t = x * c + 1.0;
            let v = where_(t > 0.0, t * t * t, 1.0);
            let is_in = log(u) < x * x * 0.5 + d - d * v + d * log(v);
            found = where_((found == 0.0) & (t > 0.0) & is_in, v, found);
        }
    }
    let u = open_unit::<LANES>(seed, at + 63).to::<f64>();
    let share = where_(is_small, exp(log(u) / shape), 1.0);
    y.store([i], (d * found * share).to::<T>());
}

/// `y` of the Poisson distribution of each rate; NaN for a negative one. Below 10 the first number whose
/// running probability is above a draw, else by rejection. 64 draws an element.
///
/// Source: W. Hormann, The transformed rejection method for generating Poisson random variables (1993).
#[kernel]
pub fn poisson<T: Float, const LANES: usize>(
    rate: View<T, 1>,
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
) {
    let i = program_id(0) * LANES;
    let rate = rate.load::<LANES>([i]).to::<f64>();
    let at = offset + (i + arange::<LANES>()) * 64;
    let is_low = rate < 10.0;
    let bits =
        (randint(seed, at + 62).to::<u64>() << 21) | (randint(seed, at + 63).to::<u64>() >> 11);
    let u = bits.to::<f64>() * 0.00000000000000011102230246251565404236316680908203125;
    let low = where_(is_low, rate, 0.0);
    let mut p = exp(-low);
    let mut total = p;
    let mut count = zeros::<f64, LANES>();
    for step in range(0, 64, 1) {
        count = where_(u >= total, count + 1.0, count);
        p = p * low / (step + 1) as f64;
        total = total + p;
    }
    let mu = where_(is_low, 10.0, rate);
    let b = sqrt(mu) * 2.53 + 0.931;
    let a = b * 0.02483 - 0.059;
    let inverse = 1.1328 / (b - 3.4) + 1.1239;
    let quick = 0.9277 - 3.6224 / (b - 2.0);
    let log_mu = log(mu);
    let mut found = where_(is_low, 0.0, zeros::<f64, LANES>() - 1.0);
    for round in range(0, 31, 1) {
        if max((found < 0.0).to::<i32>(), 0) > 0 {
            let u = open_unit::<LANES>(seed, at + round * 2).to::<f64>() - 0.5;
            let v = open_unit::<LANES>(seed, at + (round * 2 + 1)).to::<f64>();
            let us = 0.5 - abs(u);
            let k = floor((a * 2.0 / us + b) * u + mu + 0.43);
            let is_out = (k < 0.0) | ((us < 0.013) & (v > us));
            let left = log(v * inverse / (a / (us * us) + b));
            let right = k * log_mu - mu - lgamma_right(maximum(k, 0.0) + 1.0);
            let is_in = ((us >= 0.07) & (v <= quick)) | (!is_out & (left <= right));
            found = where_((found < 0.0) & is_in, k, found);
        }
    }
    let drawn = where_(is_low, count, found);
    y.store([i], where_(rate >= 0.0, drawn, (rate - rate) / (rate - rate)).to::<T>());
}

/// `y` is 1 with probability `p`, each its own, else 0.
#[kernel]
pub fn bernoulli<T: Float, const BLOCK: usize>(
    p: View<T, 1>,
    y: ViewMut<T, 1>,
    seed: u64,
    offset: i64,
) {
    let i = program_id(0) * BLOCK;
    let is_one = units::<BLOCK>(seed, offset, i) < p.load::<BLOCK>([i]).to::<f32>();
    y.store([i], where_(is_one, T::ONE, T::ZERO));
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
    let word = words::<BLOCK>(seed, offset, i).to::<u64>();
    let scaled = (word * (high - low) as u64) >> 32;
    y.store([i], (scaled.to::<i64>() + low).to::<T>());
}

/// `y` uniform among all i64 of 0 and more: two draws an element.
#[kernel]
pub fn long_integers<const BLOCK: usize>(y: ViewMut<i64, 1>, seed: u64, offset: i64) {
    let i = program_id(0) * BLOCK;
    let at = offset + (i + arange::<BLOCK>()) * 2;
    let top = randint(seed, at).to::<i64>() << 31;
    y.store([i], top ^ randint(seed, at + 1).to::<i64>());
}

/// `y` is the weight over an exponential number. The `k` largest of a row are `k` draws without
/// replacement.
///
/// Source: P. Efraimidis and P. Spirakis, Weighted random sampling with a reservoir (2006).
#[kernel]
pub fn race<T: Float, const BLOCK: usize>(
    weight: View<T, 1>,
    y: ViewMut<f32, 1>,
    seed: u64,
    offset: i64,
) {
    let i = program_id(0) * BLOCK;
    let u = open_units::<BLOCK>(seed, offset, i);
    y.store([i], weight.load::<BLOCK>([i]).to::<f32>() / (0.0 - log(u)));
}

/// Weights as integers, the largest of a row as 2^38, so that their sums are exact in any order.
#[kernel]
pub fn weights<T: Float, const ROWS: usize, const COLS: usize>(
    weight: View<T, 2>,
    top: View<T, 2>,
    y: ViewMut<i64, 2>,
) {
    let (i, j) = (program_id(0) * ROWS, program_id(1) * COLS);
    let w = weight.load::<ROWS, COLS>([i, j]).to::<f64>();
    let share = w / top.load::<ROWS, 1>([i, 0]).to::<f64>();
    y.store([i, j], round(share * 274877906944.0).to::<i64>());
}

/// `y[i, ..]` are categories drawn by the running sums of row `i`: for each the first whose sum is above a
/// number below the total.
#[kernel]
pub fn pick<const BLOCK: usize>(
    sums: Ptr<i64>,
    y: ViewMut<i64, 2>,
    seed: u64,
    offset: i64,
    n: i64,
    steps: i64,
) {
    let (row, j) = (program_id(0), program_id(1) * BLOCK);
    let own = sums + row * n;
    let total = load(own + (n - 1));
    let at = offset + (row * y.dim(1) + j + arange::<BLOCK>()) * 2;
    let top = randint(seed, at).to::<u64>() << 32;
    let word = top | randint(seed, at + 1).to::<u64>();
    let below = umulhi(word, total as u64).to::<i64>();
    let mut low = zeros::<i64, BLOCK>();
    let mut high = low + (n - 1);
    for _ in range(0, steps) {
        let middle = (low + high) >> 1;
        let is_after = load(own + middle) <= below;
        low = where_(is_after & (low < high), middle + 1, low);
        high = where_(is_after, high, middle);
    }
    y.store([row, j], low.row());
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
    let keep = units::<BLOCK>(seed, offset, i) >= p;
    let v = x.load::<BLOCK>([i]).to::<A>() * A::from(1.0 / (1.0 - p));
    y.store([i], where_(keep, v, A::ZERO).to::<T>());
}

/// [`mod@dropout`] by the draws of attention's kernels, where a thread has elements of several rows: one computation for each.
#[kernel]
pub fn dropout_by_element<T: Float, A: Float, const BLOCK: usize>(
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
