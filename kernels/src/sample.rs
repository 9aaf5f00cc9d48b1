//! Drawing a token of each row of logits: penalties, temperature, top-k, top-p, min-p, in this order.
//!
//! One program has a row and the host learns nothing before the token. Nothing is sorted. A filter is a
//! threshold and a place: what is above the threshold stays, and of what equals it the first elements up to
//! the place. A threshold is found two bits at a time, from counts or sums of what is not below three
//! candidates.
//!
//! **Weights are integers**, `round(2^38 exp(x - max))`, so that their sums are exact in every order, and
//! what a filter keeps is what a sort of the same weights would keep:
//!
//! ```text
//! x          2.0  1.0  2.0  0.0      top-k of 3 keeps 0, 1, 2
//! weight / W .40  .15  .40  .05      top-p of 0.5: .40 alone is not enough, so 0 and 2 stay
//!                                    top-p of 0.4: of the two that are equal the first is enough
//! ```
//!
//! The draw is by the running sum of weights, from 64 bits that depend on the row's seed and position only.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&sample_tokens::KERNEL];

/// A float's place in the order of all, from 0 to 2^32; zeros are equal.
#[device]
pub fn order_of<const COLS: usize>(x: Tile1<f32, COLS>) -> Tile1<i64, COLS> {
    let bits = bitcast::<i32>(x + 0.0);
    (bits ^ ((bits >> 31) & 0x7fff_ffff)).to::<i64>() + 0x8000_0000
}

/// `2^38 exp(x - top)`, rounded. The largest is 2^38 also where it is not finite.
#[device]
pub fn weight_of<const COLS: usize>(x: Tile1<f32, COLS>, top: f32) -> Tile1<i64, COLS> {
    let share = where_(x == top, 1.0, exp(x - top));
    round(share * 274877906944.0).to::<i64>()
}

/// Which elements a threshold and a place keep.
#[device]
pub fn is_kept<const COLS: usize>(
    order: Tile1<i64, COLS>,
    index: Tile1<i64, COLS>,
    least: i64,
    end: i64,
) -> Tile1<bool, COLS> {
    (order > least) | ((order == least) & (index < end))
}

/// What an element counts: its weight where `WEIGHED`, else 1.
#[device]
pub fn measure_of<const COLS: usize, const WEIGHED: usize>(
    x: Tile1<f32, COLS>,
    top: f32,
) -> Tile1<i64, COLS> {
    if WEIGHED == 1 { weight_of::<COLS>(x, top) } else { ones::<i64, COLS>() }
}

/// Of the elements that `least` and `end` keep, those that come first in order of value, then of place, until
/// they measure `target`: as a new threshold and place.
#[device]
pub fn narrowed<const COLS: usize, const WEIGHED: usize>(
    x: PtrMut<f32>,
    n: i64,
    top: f32,
    least: i64,
    end: i64,
    target: i64,
) -> (i64, i64) {
    let mut low = 0_i64;
    for round in range(0, 16, 1) {
        let step = 1_i64 << (30 - 2 * round);
        let mut one = zeros::<i64, COLS>();
        let mut two = zeros::<i64, COLS>();
        let mut three = zeros::<i64, COLS>();
        for j in range(0, n, COLS) {
            let at = j + arange::<COLS>();
            let v = load(x + at, at < n);
            let order = order_of::<COLS>(v);
            let is_in = is_kept::<COLS>(order, at, least, end) & (at < n);
            let measure = where_(is_in, measure_of::<COLS, WEIGHED>(v, top), 0);
            one = one + where_(order >= low + step, measure, 0);
            two = two + where_(order >= low + step * 2, measure, 0);
            three = three + where_(order >= low + step * 3, measure, 0);
        }
        let mut steps = where_(sum(one, 0) >= target, 1_i64, 0);
        steps = where_(sum(two, 0) >= target, 2, steps);
        steps = where_(sum(three, 0) >= target, 3, steps);
        low = low + step * steps;
    }
    // What is above counts whole; of what equals the threshold as many as are still missing.
    let mut above = zeros::<i64, COLS>();
    for j in range(0, n, COLS) {
        let at = j + arange::<COLS>();
        let v = load(x + at, at < n);
        let order = order_of::<COLS>(v);
        let is_in = is_kept::<COLS>(order, at, least, end) & (at < n) & (order > low);
        above = above + where_(is_in, measure_of::<COLS, WEIGHED>(v, top), 0);
    }
    let missing = target - sum(above, 0);
    let mut seen = 0_i64;
    let mut place = n;
    for j in range(0, n, COLS) {
        let at = j + arange::<COLS>();
        let v = load(x + at, at < n);
        let order = order_of::<COLS>(v);
        let is_in = is_kept::<COLS>(order, at, least, end) & (at < n) & (order == low);
        let measure = where_(is_in, measure_of::<COLS, WEIGHED>(v, top), 0);
        let all = sum(measure, 0);
        if (seen < missing) & (seen + all >= missing) {
            let is_enough = is_in & (seen + cumsum(measure, 0) >= missing);
            place = min(where_(is_enough, at, n), 0) + 1;
        }
        seen = seen + all;
    }
    (low, place)
}

/// The score of tokens that occurred: repeated ones are scaled towards less, then lowered by `presence` and
/// by `frequency` for each time the output has them.
#[device]
pub fn penalized<const COLS: usize>(
    x: Tile1<f32, COLS>,
    prompt: Tile1<i32, COLS>,
    output: Tile1<i32, COLS>,
    repetition: f32,
    presence: f32,
    frequency: f32,
) -> Tile1<f32, COLS> {
    let scaled = where_(x > 0.0, x / repetition, x * repetition);
    let x = where_((prompt > 0) | (output > 0), scaled, x);
    x - output.to::<f32>() * frequency - where_(output > 0, presence, 0.0)
}

/// The token of row `program_id(0)` of `logits`, and the logarithm of its share of the softmax of the row as
/// it is.
///
/// A temperature of 0 takes the largest, the first of equal ones. NaN counts as -infinity; a row whose largest
/// logit is infinite gives -1. `scores: [rows, n]`
/// is for what logits become. Counts and penalties are looked at where `PENALTY` is 1.
#[kernel]
pub fn sample_tokens<T: Float, const COLS: usize, const PENALTY: usize>(
    logits: View<T, 2>,
    prompt: View<i32, 2>,
    output: View<i32, 2>,
    temperatures: View<f32, 1>,
    top_ps: View<f32, 1>,
    min_ps: View<f32, 1>,
    repetitions: View<f32, 1>,
    presences: View<f32, 1>,
    frequencies: View<f32, 1>,
    top_ks: View<i64, 1>,
    seeds: View<i64, 1>,
    positions: View<i64, 1>,
    scores: PtrMut<f32>,
    token: ViewMut<i64, 1>,
    logprob: ViewMut<f32, 1>,
) {
    let row = program_id(0);
    let n = logits.dim(1);
    let temperature = sum(temperatures.load::<1>([row]), 0);
    let is_draw = temperature > 0.0;
    let divisor = where_(is_draw, temperature, 1.0);
    let own = scores + row * n;
    let mut tops = full::<f32, COLS>(f32::NEG_INFINITY);
    let mut bests = full::<f32, COLS>(f32::NEG_INFINITY);
    let mut places = arange::<COLS>();
    for j in range(0, n, COLS) {
        let at = j + arange::<COLS>();
        let v = logits.load::<1, COLS>([row, j]).reshape::<COLS>().to::<f32>();
        let v = where_((at < n) & (v == v), v, f32::NEG_INFINITY);
        tops = maximum(tops, v);
        let mut x = v;
        if PENALTY == 1 {
            let before = prompt.load::<1, COLS>([row, j]).reshape::<COLS>();
            let after = output.load::<1, COLS>([row, j]).reshape::<COLS>();
            let repetition = sum(repetitions.load::<1>([row]), 0);
            let presence = sum(presences.load::<1>([row]), 0);
            let frequency = sum(frequencies.load::<1>([row]), 0);
            x = penalized::<COLS>(v, before, after, repetition, presence, frequency);
        }
        x = x / divisor;
        x = where_(x == x, x, f32::NEG_INFINITY);
        let is_better = x > bests;
        places = where_(is_better, at, places);
        bests = where_(is_better, x, bests);
        store(own + at, x, at < n);
    }
    let raw = max(tops, 0);
    let top = max(bests, 0);
    let first = minimum(min(where_(bests == top, places, n), 0), n - 1);
    let mut totals = zeros::<f32, COLS>();
    for j in range(0, n, COLS) {
        let at = j + arange::<COLS>();
        let v = logits.load::<1, COLS>([row, j]).reshape::<COLS>().to::<f32>();
        let v = where_((at < n) & (v == v), v, f32::NEG_INFINITY);
        totals = totals + where_(at < n, where_(v == raw, 1.0, exp(v - raw)), 0.0);
    }
    let log_total = log(sum(totals, 0));
    let mut chosen = first;
    if is_draw {
        let top_k = sum(top_ks.load::<1>([row]), 0);
        let top_p = sum(top_ps.load::<1>([row]), 0);
        let min_p = sum(min_ps.load::<1>([row]), 0);
        let seed = sum(seeds.load::<1>([row]), 0);
        let position = sum(positions.load::<1>([row]), 0);
        let x = own;
        let (mut least, mut end) = (0_i64, n);
        if (top_k > 0) & (top_k < n) {
            let (a, b) = narrowed::<COLS, 0>(x, n, top, least, end, top_k);
            least = a;
            end = b;
        }
        if top_p < 1.0 {
            let mut sums = zeros::<i64, COLS>();
            for j in range(0, n, COLS) {
                let at = j + arange::<COLS>();
                let v = load(x + at, at < n);
                let is_in = is_kept::<COLS>(order_of::<COLS>(v), at, least, end) & (at < n);
                sums = sums + where_(is_in, weight_of::<COLS>(v, top), 0);
            }
            let all = sum(sums, 0);
            let share = ceil(all.to::<f64>() * top_p.to::<f64>()).to::<i64>();
            let (a, b) = narrowed::<COLS, 1>(x, n, top, least, end, clamp(share, 1, all));
            least = a;
            end = b;
        }
        let floor = ceil(min_p.to::<f64>() * 274877906944.0).to::<i64>();
        let floor = minimum(floor, 274877906944);
        let mut sums = zeros::<i64, COLS>();
        for j in range(0, n, COLS) {
            let at = j + arange::<COLS>();
            let v = load(x + at, at < n);
            let is_in = is_kept::<COLS>(order_of::<COLS>(v), at, least, end) & (at < n);
            let weight = weight_of::<COLS>(v, top);
            sums = sums + where_(is_in & (weight >= floor), weight, 0);
        }
        let high = randint(seed, position * 2).to::<u64>() << 32;
        let word = high | randint(seed, position * 2 + 1).to::<u64>();
        let below = umulhi(word, sum(sums, 0).to::<u64>()).to::<i64>();
        let mut seen = 0_i64;
        for j in range(0, n, COLS) {
            let at = j + arange::<COLS>();
            let v = load(x + at, at < n);
            let is_in = is_kept::<COLS>(order_of::<COLS>(v), at, least, end) & (at < n);
            let weight = weight_of::<COLS>(v, top);
            let weight = where_(is_in & (weight >= floor), weight, 0);
            let all = sum(weight, 0);
            if (seen <= below) & (seen + all > below) {
                let is_past = seen + cumsum(weight, 0) > below;
                chosen = min(where_(is_past, at, n), 0);
            }
            seen = seen + all;
        }
    }
    let is_finite = (raw > f32::NEG_INFINITY) & (raw < f32::INFINITY);
    let v = load(logits.ptr() + (row * logits.stride(0) + chosen * logits.stride(1))).to::<f32>();
    let v = where_(v == v, v, f32::NEG_INFINITY);
    token.store([row], where_(is_finite, chosen, -1) + zeros::<i64, 1>());
    logprob.store([row], where_(v == raw, 0.0, v - raw) - log_total + zeros::<f32, 1>());
}
