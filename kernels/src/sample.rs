//! Token sampling from rows of logits: penalties, temperature, top-k, top-p, min-p, in this order.
//!
//! A row is cut into chunks of `GROUPS * SIZE` tokens, a program has one of them, and what chunks leave for each
//! other stands in `work`. There are three launches whatever the rows ask for, since what they ask for is known on the
//! device only:
//!
//! ```text
//! sample_groups     largest logit, sum of exponentials, largest score of each group
//! sample_weights    joins them; a temperature of 0 is done; sums of weights; the last program draws
//! sample_filtered   rows with top-k or top-p only: the threshold, sums of what is kept, the draw
//! ```
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
//! The draw is by the running sum of weights, from 64 bits that depend on the row's seed and position only:
//! first over chunks, then inside of one.
//!
//! **Nothing is sorted.** A filter is a threshold among keys, which order tokens by score, then by place, and
//! of which no two are equal. A histogram of the distance to the largest score, of `BINS` bins for 32,
//! says in which bin the threshold is, and only the tokens of that bin (for top-k and those above) are
//! compared with each other, by the last program of the row. Scores 28 and more below the largest have the
//! weight 0, so no filter has to tell them apart.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&sample_groups::KERNEL, &sample_weights::KERNEL, &sample_filtered::KERNEL];

/// What a row has in `work` before its histogram: how many programs of each of two launches are done, how many
/// tokens are listed, the bin of the threshold, and what is wanted of that bin.
pub const HEAD: i64 = 8;
/// Numbers that a row has in `work` for each group: the key of the largest logit, that of the largest score, the
/// sum of exponentials. For each chunk there is one more, the sum of weights.
pub const PER_GROUP: usize = 3;

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

/// A score and its token as one number: the larger score has the larger key, of equal ones the first token.
#[device]
pub fn key_of<const COLS: usize>(x: Tile1<f32, COLS>, at: Tile1<i64, COLS>) -> Tile1<i64, COLS> {
    (order_of::<COLS>(x) << 24) | (0xff_ffff - at)
}

/// The scores of keys.
#[device]
pub fn scores_of_keys<const N: usize>(key: Tile1<i64, N>) -> Tile1<f32, N> {
    let bits = ((key >> 24) - 0x8000_0000).to::<i32>();
    bitcast::<f32>(bits ^ ((bits >> 31) & 0x7fff_ffff))
}

/// The score of a key.
#[device]
pub fn score_of(key: i64) -> f32 {
    let bits = ((key >> 24) - 0x8000_0000).to::<i32>();
    bitcast::<f32>(bits ^ ((bits >> 31) & 0x7fff_ffff))
}

/// How far below the largest a score is, in bins of which there are `BINS` for 32. From `end_of_bins` on scores
/// have the weight 0.
#[device]
pub fn bin_of<const COLS: usize, const BINS: usize>(
    x: Tile1<f32, COLS>,
    top: f32,
) -> Tile1<i64, COLS> {
    let distance = minimum(where_(x == top, 0.0, top - x), 31.5);
    (distance * (BINS as f32 / 32.0)).to::<i32>().to::<i64>()
}

/// The bin of scores 28 below the largest.
#[device]
pub fn end_of_bins<const BINS: usize>() -> i64 {
    BINS / 8 * 7
}

/// The logits of a row from token `j` on; -infinity for NaN and past the end.
#[device]
pub fn logits_of<T: Float, const COLS: usize>(
    logits: View<T, 2>,
    row: i64,
    j: i64,
) -> Tile1<f32, COLS> {
    let v = logits.load::<1, COLS>([row, j]).reshape::<COLS>().to::<f32>();
    where_((j + arange::<COLS>() < logits.dim(1)) & (v == v), v, f32::NEG_INFINITY)
}

/// A number of a row.
#[device]
pub fn of_row<T: Number>(numbers: View<T, 1>, row: i64) -> T {
    sum(numbers.load::<1>([row]), 0)
}

/// What logits are divided by.
#[device]
pub fn divisor_of(temperature: f32) -> f32 {
    where_(temperature > 0.0, temperature, 1.0)
}

/// Scores of a row from token `j` on, from its logits.
#[device]
pub fn scores_of<const COLS: usize, const PENALTY: usize>(
    v: Tile1<f32, COLS>,
    prompt: View<i32, 2>,
    output: View<i32, 2>,
    repetitions: View<f32, 1>,
    presences: View<f32, 1>,
    frequencies: View<f32, 1>,
    row: i64,
    j: i64,
    divisor: f32,
) -> Tile1<f32, COLS> {
    let mut x = v;
    if PENALTY == 1 {
        let before = prompt.load::<1, COLS>([row, j]).reshape::<COLS>();
        let after = output.load::<1, COLS>([row, j]).reshape::<COLS>();
        let (repetition, presence) = (of_row(repetitions, row), of_row(presences, row));
        let frequency = of_row(frequencies, row);
        x = penalized::<COLS>(x, before, after, repetition, presence, frequency);
    }
    x = x / divisor;
    where_(x == x, x, f32::NEG_INFINITY)
}

/// Scores of tokens of a row, wherever they are.
#[device]
pub fn scores_at<T: Float, const COLS: usize, const PENALTY: usize>(
    logits: View<T, 2>,
    prompt: View<i32, 2>,
    output: View<i32, 2>,
    repetitions: View<f32, 1>,
    presences: View<f32, 1>,
    frequencies: View<f32, 1>,
    row: i64,
    at: Tile1<i64, COLS>,
    mask: Tile1<bool, COLS>,
    divisor: f32,
) -> Tile1<f32, COLS> {
    let line = logits.ptr() + row * logits.stride(0);
    let v = load(line + at * logits.stride(1), mask).to::<f32>();
    let mut x = where_(v == v, v, f32::NEG_INFINITY);
    if PENALTY == 1 {
        let before = prompt.ptr() + row * prompt.stride(0);
        let after = output.ptr() + row * output.stride(0);
        let before = load(before + at * prompt.stride(1), mask);
        let after = load(after + at * output.stride(1), mask);
        let (repetition, presence) = (of_row(repetitions, row), of_row(presences, row));
        let frequency = of_row(frequencies, row);
        x = penalized::<COLS>(x, before, after, repetition, presence, frequency);
    }
    x = x / divisor;
    where_(x == x, x, f32::NEG_INFINITY)
}

/// The largest of the keys of a row's groups.
#[device]
pub fn largest<const KEYS: usize>(keys: PtrMut<i64>, groups: i64) -> i64 {
    let mut most = zeros::<i64, KEYS>();
    for g in range(0, groups, KEYS) {
        let at = g + arange::<KEYS>();
        most = maximum(most, load(keys + at, at < groups));
    }
    max(most, 0)
}

/// The largest score of a row.
#[device]
pub fn top_of<const KEYS: usize, const PENALTY: usize>(
    keys: PtrMut<i64>,
    groups: i64,
    divisor: f32,
) -> f32 {
    if PENALTY == 1 {
        score_of(largest::<KEYS>(keys + groups, groups))
    } else {
        // Division keeps the order.
        let x = score_of(largest::<KEYS>(keys, groups)) / divisor;
        where_(x == x, x, f32::NEG_INFINITY)
    }
}

/// The last bin that the `k` largest scores of a row can be in, rounded up: where `k` groups have their largest
/// score at or above it.
#[device]
pub fn last_bin_of<const KEYS: usize, const BINS: usize, const PENALTY: usize>(
    keys: PtrMut<i64>,
    groups: i64,
    divisor: f32,
    top: f32,
    k: i64,
) -> i64 {
    let mut last = 0_i64;
    for round in range(0, 4, 1) {
        let step = BINS >> (2 + 2 * round);
        let mut one = zeros::<i64, KEYS>();
        let mut two = zeros::<i64, KEYS>();
        let mut three = zeros::<i64, KEYS>();
        for g in range(0, groups, KEYS) {
            let at = g + arange::<KEYS>();
            let mut key = load(keys + at, at < groups);
            let mut x = scores_of_keys::<KEYS>(key) / divisor;
            if PENALTY == 1 {
                key = load(keys + (groups + at), at < groups);
                x = scores_of_keys::<KEYS>(key);
            }
            let bin = where_(key > 0, bin_of::<KEYS, BINS>(x, top), BINS);
            one = one + (bin < last + step).to::<i64>();
            two = two + (bin < last + step * 2).to::<i64>();
            three = three + (bin < last + step * 3).to::<i64>();
        }
        // Three counts at once: none has more than 20 bits.
        let counts = sum(one + (two << 20) + (three << 40), 0);
        let mut steps = where_((counts & 0xf_ffff) < k, 1_i64, 0);
        steps = where_(((counts >> 20) & 0xf_ffff) < k, 2, steps);
        steps = where_((counts >> 40) < k, 3, steps);
        last = last + step * steps;
    }
    last + maximum(BINS >> 8, 1) - 1
}

/// Writes a row's token, and the logarithm of its share of the softmax of the row as it is.
#[device]
pub fn answer<T: Float, const KEYS: usize>(
    logits: View<T, 2>,
    keys: PtrMut<i64>,
    groups: i64,
    row: i64,
    chosen: i64,
    token: ViewMut<i64, 1>,
    logprob: ViewMut<f32, 1>,
) {
    let raw = score_of(largest::<KEYS>(keys, groups));
    let mut totals = zeros::<f32, KEYS>();
    for g in range(0, groups, KEYS) {
        let at = g + arange::<KEYS>();
        let key = load(keys + at, at < groups);
        let own = scores_of_keys::<KEYS>(key);
        let total = bitcast::<f32>(load(keys + (2 * groups + at), at < groups).to::<i32>());
        let share = total * where_(own == raw, 1.0, exp(own - raw));
        // Groups past the end have no key.
        totals = totals + where_(key > 0, share, 0.0);
    }
    let v = load(logits.ptr() + (row * logits.stride(0) + chosen * logits.stride(1))).to::<f32>();
    let v = where_(v == v, v, f32::NEG_INFINITY);
    let is_finite = (raw > f32::NEG_INFINITY) & (raw < f32::INFINITY);
    token.store([row], where_(is_finite, chosen, -1) + zeros::<i64, 1>());
    let own = where_(v == raw, 0.0, v - raw);
    logprob.store([row], own - log(sum(totals, 0)) + zeros::<f32, 1>());
}

/// The least weight that min-p keeps.
#[device]
pub fn floor_of(min_p: f32) -> i64 {
    minimum(ceil(min_p.to::<f64>() * 274877906944.0).to::<i64>(), 274877906944)
}

/// The least sum that top-p keeps.
#[device]
pub fn share_of(total: i64, top_p: f32) -> i64 {
    clamp(ceil(total.to::<f64>() * top_p.to::<f64>()).to::<i64>(), 1, total)
}

/// The chunk where the running sum of `sums` passes what the row draws, and how much of that is left there.
#[device]
pub fn drawn_chunk<const LANES: usize>(
    sums: PtrMut<i64>,
    chunks: i64,
    seed: i64,
    position: i64,
) -> (i64, i64) {
    let mut totals = zeros::<i64, LANES>();
    for c in range(0, chunks, LANES) {
        let at = c + arange::<LANES>();
        totals = totals + load(sums + at, at < chunks);
    }
    let high = randint(seed, position * 2).to::<u64>() << 32;
    let word = high | randint(seed, position * 2 + 1).to::<u64>();
    let below = umulhi(word, sum(totals, 0).to::<u64>()).to::<i64>();
    let (mut seen, mut chunk, mut left) = (0_i64, 0_i64, below);
    for c in range(0, chunks, LANES) {
        let at = c + arange::<LANES>();
        let own = load(sums + at, at < chunks);
        let all = sum(own, 0);
        if (seen <= below) & (seen + all > below) {
            chunk = min(where_(seen + cumsum(own, 0) > below, at, chunks), 0);
            left = below - seen - sum(where_(at < chunk, own, 0), 0);
        }
        seen = seen + all;
    }
    (chunk, left)
}

/// The first launch: what is known of each group alone of chunk `program_id(0) % chunks` of row
/// `program_id(0) / chunks`. A chunk has `COLS` tokens, in `GROUPS` groups of `SIZE`: a warp's, so that no
/// warp waits for another.
///
/// Counts and penalties are looked at where `PENALTY` is 1.
/// `work: [rows, HEAD + BINS + PER_GROUP * groups + chunks]`
#[kernel]
pub fn sample_groups<
    T: Float,
    const COLS: usize,
    const GROUPS: usize,
    const SIZE: usize,
    const BINS: usize,
    const PENALTY: usize,
>(
    logits: View<T, 2>,
    prompt: View<i32, 2>,
    output: View<i32, 2>,
    temperatures: View<f32, 1>,
    top_ps: View<f32, 1>,
    repetitions: View<f32, 1>,
    presences: View<f32, 1>,
    frequencies: View<f32, 1>,
    top_ks: View<i64, 1>,
    work: ViewMut<i64, 2>,
) {
    static_assert!(COLS == GROUPS * SIZE, "a chunk is its groups");
    let n = logits.dim(1);
    let chunks = cdiv(n, COLS);
    let (row, chunk) = (program_id(0) / chunks, program_id(0) % chunks);
    let head = work.ptr() + row * work.stride(0);
    let own = head + (HEAD + BINS + chunk * GROUPS + arange::<GROUPS>());
    let groups = chunks * GROUPS;
    let j = chunk * COLS;
    let at = j + arange::<COLS>();
    let v = logits_of::<T, COLS>(logits, row, j);
    let key = where_(at < n, key_of::<COLS>(v, at), 0);
    let key = max(key.reshape::<GROUPS, SIZE>(), 1);
    let raw = scores_of_keys::<GROUPS>(key).col();
    let v2 = v.reshape::<GROUPS, SIZE>();
    let e = where_(v2 == raw, 1.0, exp(v2 - raw));
    let total = sum(where_((at < n).reshape::<GROUPS, SIZE>(), e, 0.0), 1);
    store(own, key);
    store(own + 2 * groups, bitcast::<i32>(total).to::<i64>());
    let temperature = of_row(temperatures, row);
    if PENALTY == 1 {
        let x = scores_of::<COLS, PENALTY>(
            v,
            prompt,
            output,
            repetitions,
            presences,
            frequencies,
            row,
            j,
            divisor_of(temperature),
        );
        let key = where_(at < n, key_of::<COLS>(x, at), 0);
        store(own + groups, max(key.reshape::<GROUPS, SIZE>(), 1));
    }
    if chunk == 0 {
        store(head + arange::<8>(), zeros::<i64, 8>());
        let top_k = of_row(top_ks, row);
        let is_filtered = ((top_k > 0) & (top_k < n)) | (of_row(top_ps, row) < 1.0);
        if (temperature > 0.0) & is_filtered {
            store(head + (HEAD + arange::<BINS>()), zeros::<i64, BINS>());
        }
    }
}

/// The second launch: rows of temperature 0 are done, of others the weights of a chunk are added up; the last
/// program of a row draws, or finds the bin of the threshold of top-k, or else of top-p.
#[kernel]
pub fn sample_weights<
    T: Float,
    const COLS: usize,
    const GROUPS: usize,
    const KEYS: usize,
    const LANES: usize,
    const BINS: usize,
    const PENALTY: usize,
>(
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
    work: ViewMut<i64, 2>,
    token: ViewMut<i64, 1>,
    logprob: ViewMut<f32, 1>,
) {
    let n = logits.dim(1);
    let chunks = cdiv(n, COLS);
    let (row, chunk) = (program_id(0) / chunks, program_id(0) % chunks);
    let head = work.ptr() + row * work.stride(0);
    let keys = head + (HEAD + BINS);
    let groups = chunks * GROUPS;
    let sums = keys + 3 * groups;
    let temperature = of_row(temperatures, row);
    let divisor = divisor_of(temperature);
    if temperature > 0.0 {
        let top = top_of::<KEYS, PENALTY>(keys, groups, divisor);
        let (top_k, top_p) = (of_row(top_ks, row), of_row(top_ps, row));
        let by_k = (top_k > 0) & (top_k < n);
        let is_filtered = by_k | (top_p < 1.0);
        let floor = floor_of(of_row(min_ps, row));
        let j = chunk * COLS;
        let at = j + arange::<COLS>();
        let v = logits_of::<T, COLS>(logits, row, j);
        let x = scores_of::<COLS, PENALTY>(
            v,
            prompt,
            output,
            repetitions,
            presences,
            frequencies,
            row,
            j,
            divisor,
        );
        let weight = where_(at < n, weight_of::<COLS>(x, top), 0);
        if is_filtered {
            let bin = bin_of::<COLS, BINS>(x, top);
            let measure = where_(by_k, ones::<i64, COLS>(), weight);
            let mut last = end_of_bins::<BINS>() - 1;
            if by_k {
                let most = last_bin_of::<KEYS, BINS, PENALTY>(keys, groups, divisor, top, top_k);
                last = minimum(last, most);
            }
            let is_counted = (at < n) & (bin <= last);
            atomic_add(head + (HEAD + bin), measure, is_counted);
        } else {
            store(sums + chunk, sum(where_(weight >= floor, weight, 0), 0));
        }
        if atomic_add(head, 1) == chunks - 1 {
            if is_filtered {
                let bins = arange::<BINS>();
                let own = load(head + (HEAD + bins));
                let target = where_(by_k, top_k, share_of(sum(own, 0), top_p));
                let bin = min(where_(cumsum(own, 0) >= target, bins, BINS), 0);
                store(head + 3, bin);
                store(head + 4, target - sum(where_(bins < bin, own, 0), 0));
            } else {
                let (seed, position) = (of_row(seeds, row), of_row(positions, row));
                let (found, left) = drawn_chunk::<LANES>(sums, chunks, seed, position);
                let j = found * COLS;
                let at = j + arange::<COLS>();
                let v = logits_of::<T, COLS>(logits, row, j);
                let x = scores_of::<COLS, PENALTY>(
                    v,
                    prompt,
                    output,
                    repetitions,
                    presences,
                    frequencies,
                    row,
                    j,
                    divisor,
                );
                let weight = weight_of::<COLS>(x, top);
                let weight = where_((at < n) & (weight >= floor), weight, 0);
                let chosen = min(where_(cumsum(weight, 0) > left, at, n - 1), 0);
                answer::<T, KEYS>(logits, keys, groups, row, chosen, token, logprob);
            }
        }
    } else if chunk == 0 {
        let mut best = keys;
        if PENALTY == 1 {
            best = keys + groups;
        }
        let chosen = 0xff_ffff - (largest::<KEYS>(best, groups) & 0xff_ffff);
        answer::<T, KEYS>(logits, keys, groups, row, chosen, token, logprob);
    }
}

/// Keys and weights of what the threshold is looked for among: tokens that are listed or, where there were
/// too many, those of the row. Others have the key and the weight 0.
#[device]
pub fn candidates<T: Float, const COLS: usize, const BINS: usize, const PENALTY: usize>(
    logits: View<T, 2>,
    prompt: View<i32, 2>,
    output: View<i32, 2>,
    repetitions: View<f32, 1>,
    presences: View<f32, 1>,
    frequencies: View<f32, 1>,
    row: i64,
    divisor: f32,
    top: f32,
    list: PtrMut<i32>,
    is_listed: bool,
    first: i64,
    end: i64,
    least_bin: i64,
    bin: i64,
) -> (Tile1<i64, COLS>, Tile1<i64, COLS>) {
    let slot = first + arange::<COLS>();
    let listed = load(list + slot, is_listed & (slot < end)).to::<i64>();
    let at = where_(is_listed, listed, slot);
    let x = scores_at::<T, COLS, PENALTY>(
        logits,
        prompt,
        output,
        repetitions,
        presences,
        frequencies,
        row,
        at,
        slot < end,
        divisor,
    );
    let bins = bin_of::<COLS, BINS>(x, top);
    let is_in = (slot < end) & (bins >= least_bin) & (bins <= bin) & (bins < end_of_bins::<BINS>());
    (where_(is_in, key_of::<COLS>(x, at), 0), where_(is_in, weight_of::<COLS>(x, top), 0))
}

/// What keys from `low` on count: 1 each, or their weights.
#[device]
pub fn measure_of<const COLS: usize>(
    key: Tile1<i64, COLS>,
    weight: Tile1<i64, COLS>,
    low: i64,
    by_weight: bool,
) -> Tile1<i64, COLS> {
    where_(key >= low, where_(by_weight, weight, ones::<i64, COLS>()), 0)
}

/// The third launch, of rows with top-k or top-p: lists the tokens of the bin that has the threshold, for top-k
/// those above too, and adds up weights that are above it. The last program of a row finds the
/// threshold, adds the weights that are kept of those listed, and draws.
///
/// The threshold is found two bits at a time, from what keys count that are not below three candidates, and no
/// further than the kept ones depend on it.
#[kernel]
pub fn sample_filtered<
    T: Float,
    const COLS: usize,
    const GROUPS: usize,
    const KEYS: usize,
    const LANES: usize,
    const BINS: usize,
    const PENALTY: usize,
>(
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
    work: ViewMut<i64, 2>,
    listed: ViewMut<i32, 2>,
    token: ViewMut<i64, 1>,
    logprob: ViewMut<f32, 1>,
) {
    let n = logits.dim(1);
    let chunks = cdiv(n, COLS);
    let (row, chunk) = (program_id(0) / chunks, program_id(0) % chunks);
    let temperature = of_row(temperatures, row);
    let (top_k, top_p) = (of_row(top_ks, row), of_row(top_ps, row));
    let by_k = (top_k > 0) & (top_k < n);
    if (temperature > 0.0) & (by_k | (top_p < 1.0)) {
        let head = work.ptr() + row * work.stride(0);
        let keys = head + (HEAD + BINS);
        let groups = chunks * GROUPS;
        let sums = keys + 3 * groups;
        let list = listed.ptr() + row * listed.stride(0);
        let divisor = divisor_of(temperature);
        let top = top_of::<KEYS, PENALTY>(keys, groups, divisor);
        let floor = floor_of(of_row(min_ps, row));
        let bin = load(head + 3);
        let least_bin = where_(by_k, 0_i64, bin);
        let j = chunk * COLS;
        let at = j + arange::<COLS>();
        let v = logits_of::<T, COLS>(logits, row, j);
        let x = scores_of::<COLS, PENALTY>(
            v,
            prompt,
            output,
            repetitions,
            presences,
            frequencies,
            row,
            j,
            divisor,
        );
        let bins = bin_of::<COLS, BINS>(x, top);
        let weight = weight_of::<COLS>(x, top);
        let is_above = (at < n) & (bins < least_bin) & (weight >= floor);
        store(sums + chunk, sum(where_(is_above, weight, 0), 0));
        let is_in = (at < n) & (bins >= least_bin) & (bins <= bin) & (bins < end_of_bins::<BINS>());
        let count = sum(is_in.to::<i64>(), 0);
        if count > 0 {
            let slot = atomic_add(head + 2, count) + cumsum(is_in.to::<i64>(), 0) - 1;
            store(list + slot, at.to::<i32>(), is_in & (slot < listed.dim(1)));
        }
        if atomic_add(head + 1, 1) == chunks - 1 {
            let found = load(head + 2);
            let is_listed = found <= listed.dim(1);
            let end = where_(is_listed, found, n);
            let (first_key, first_weight) = candidates::<T, COLS, BINS, PENALTY>(
                logits,
                prompt,
                output,
                repetitions,
                presences,
                frequencies,
                row,
                divisor,
                top,
                list,
                is_listed,
                0,
                end,
                least_bin,
                bin,
            );
            let mut least = 1_i64;
            // By top-k, then by top-p.
            for filter in range(0, 2, 1) {
                let by_weight = filter == 1;
                if (by_weight & (top_p < 1.0)) | (!by_weight & by_k) {
                    let mut all = measure_of::<COLS>(first_key, first_weight, least, by_weight);
                    let mut highs = first_key;
                    let mut lows = where_(first_key >= least, first_key, 1_i64 << 60);
                    for slot in range(COLS, end, COLS) {
                        let (key, weight) = candidates::<T, COLS, BINS, PENALTY>(
                            logits,
                            prompt,
                            output,
                            repetitions,
                            presences,
                            frequencies,
                            row,
                            divisor,
                            top,
                            list,
                            is_listed,
                            slot,
                            end,
                            least_bin,
                            bin,
                        );
                        all = all + measure_of::<COLS>(key, weight, least, by_weight);
                        highs = maximum(highs, key);
                        lows = minimum(lows, where_(key >= least, key, 1_i64 << 60));
                    }
                    let mut reached = sum(all, 0);
                    let lowest = min(lows, 0);
                    let differing = max(highs, 0) ^ lowest;
                    let share = where_(by_k, share_of(reached, top_p), load(head + 4));
                    let target = where_(by_weight, share, top_k);
                    let mut low = 0_i64;
                    let mut step = 1_i64 << 54;
                    while step > 0 {
                        // Where less than one more key counts is too much, all from `low` on stay.
                        let x = score_of(low);
                        let weight = round(exp(x - top) * 274877906944.0).to::<i64>();
                        let one = where_(by_weight, weight - (weight >> 16), 1);
                        if reached - target < one {
                            step = 0;
                        } else if differing < step {
                            low = low | (lowest & (step * 3));
                        } else {
                            let (a, b) =
                                (maximum(low + step, least), maximum(low + step * 2, least));
                            let c = maximum(low + step * 3, least);
                            let (key, weight) = (first_key, first_weight);
                            let mut all_a = measure_of::<COLS>(key, weight, a, by_weight);
                            let mut all_b = measure_of::<COLS>(key, weight, b, by_weight);
                            let mut all_c = measure_of::<COLS>(key, weight, c, by_weight);
                            for slot in range(COLS, end, COLS) {
                                let (key, weight) = candidates::<T, COLS, BINS, PENALTY>(
                                    logits,
                                    prompt,
                                    output,
                                    repetitions,
                                    presences,
                                    frequencies,
                                    row,
                                    divisor,
                                    top,
                                    list,
                                    is_listed,
                                    slot,
                                    end,
                                    least_bin,
                                    bin,
                                );
                                all_a = all_a + measure_of::<COLS>(key, weight, a, by_weight);
                                all_b = all_b + measure_of::<COLS>(key, weight, b, by_weight);
                                all_c = all_c + measure_of::<COLS>(key, weight, c, by_weight);
                            }
                            let (sum_a, sum_b) = (sum(all_a, 0), sum(all_b, 0));
                            let sum_c = sum(all_c, 0);
                            if sum_c >= target {
                                low = low + step * 3;
                                reached = sum_c;
                            } else if sum_b >= target {
                                low = low + step * 2;
                                reached = sum_b;
                            } else if sum_a >= target {
                                low = low + step;
                                reached = sum_a;
                            }
                        }
                        step = step >> 2;
                    }
                    least = maximum(low, lowest);
                }
            }
            let keeps = (first_key >= least) & (first_weight >= floor);
            let own = (0xff_ffff - (first_key & 0xff_ffff)) / COLS;
            atomic_add(sums + own, first_weight, keeps);
            for slot in range(COLS, end, COLS) {
                let (key, weight) = candidates::<T, COLS, BINS, PENALTY>(
                    logits,
                    prompt,
                    output,
                    repetitions,
                    presences,
                    frequencies,
                    row,
                    divisor,
                    top,
                    list,
                    is_listed,
                    slot,
                    end,
                    least_bin,
                    bin,
                );
                let own = (0xff_ffff - (key & 0xff_ffff)) / COLS;
                atomic_add(sums + own, weight, (key >= least) & (weight >= floor));
            }
            let (seed, position) = (of_row(seeds, row), of_row(positions, row));
            let (found, left) = drawn_chunk::<LANES>(sums, chunks, seed, position);
            let j = found * COLS;
            let at = j + arange::<COLS>();
            let v = logits_of::<T, COLS>(logits, row, j);
            let x = scores_of::<COLS, PENALTY>(
                v,
                prompt,
                output,
                repetitions,
                presences,
                frequencies,
                row,
                j,
                divisor,
            );
            let weight = weight_of::<COLS>(x, top);
            let is_kept = (at < n) & (key_of::<COLS>(x, at) >= least) & (weight >= floor);
            let weight = where_(is_kept, weight, 0);
            let chosen = min(where_(cumsum(weight, 0) > left, at, n - 1), 0);
            answer::<T, KEYS>(logits, keys, groups, row, chosen, token, logprob);
        }
    }
}
