//! Connectionist temporal classification: the probability of a labeling over all its alignments, a program a labeling.
//!
//! The places of an alignment are blanks before, between and behind the labels. A frame goes from a place to itself, to the
//! next, or, between different labels, over the blank:
//!
//! ```text
//! labels a b    places _ a _ b _    alpha'[s] = log_prob[class of s] + logsumexp(alpha[s], alpha[s - 1], alpha[s - 2])
//! ```
//!
//! A program keeps the numbers of all places, and walks the frames: no frame is a launch. What can't be has a large
//! negative number in the place of minus infinity, which has no difference with itself.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&ctc_alphas::KERNEL, &ctc_slopes::KERNEL];

/// `log(exp(a) + exp(b) + exp(c))` of finite numbers, no less than what can't be.
#[device]
fn sum_of_three<A: Float, const PLACES: usize>(
    a: Tile1<A, PLACES>,
    b: Tile1<A, PLACES>,
    c: Tile1<A, PLACES>,
) -> Tile1<A, PLACES> {
    let top = maximum(maximum(a, b), c);
    let total = exp(a - top) + exp(b - top) + exp(c - top);
    maximum(log(total) + top, A::from(-1e30))
}

/// The numbers of the places `by` behind each, where these are there.
#[device]
fn behind<A: Float, const PLACES: usize>(
    x: Tile1<A, PLACES>,
    by: i64,
    is_there: Tile1<bool, PLACES>,
) -> Tile1<A, PLACES> {
    let from = clamp(arange::<PLACES>() + by, 0, PLACES - 1).to::<i32>();
    where_(is_there, gather(x, from, 0), A::from(-1e30))
}

/// The class of each of the places `s` of `labels` labels from `first` on: the odd ones are labels.
#[device]
fn class_of<const PLACES: usize>(
    targets: Ptr<i64>,
    s: Tile1<i64, PLACES>,
    first: i64,
    labels: i64,
    blank: i64,
) -> Tile1<i64, PLACES> {
    let is_label = (s >= 0) & (s < 2 * labels) & ((s & 1) == 1);
    load(targets + (first + (s >> 1)), is_label, blank)
}

/// `alphas[n, t, s]`, the logarithm of the probability of all ways through the first frames to `t` that end at place `s`,
/// the class of each place, and the negative logarithm of the labeling's probability.
///
/// `log_probs: [T, N, C]`. `lengths: [3, N]` has where the labels of each labeling begin in `targets`, how many there
/// are, and how many frames. `width` is the places of the longest labeling, at most `PLACES`. A class that is not
/// there is left out, and goes to `flag` as by `index::resolve`.
#[kernel]
pub fn ctc_alphas<A: Float, const PLACES: usize>(
    log_probs: View<A, 3>,
    targets: Ptr<i64>,
    lengths: View<i64, 2>,
    alphas: PtrMut<A>,
    classes: PtrMut<i64>,
    losses: PtrMut<A>,
    width: i64,
    blank: i64,
    flag: PtrMut<i64>,
    code: i64,
) {
    let (n, s) = (program_id(0), arange::<PLACES>());
    let of = lengths.ptr() + n;
    let (first, labels) = (load(of), load(of + lengths.dim(1)));
    let frames = load(of + 2 * lengths.dim(1));
    let class = class_of(targets, s, first, labels, blank);
    let is_class = (class >= 0) & (class < log_probs.dim(2));
    if any(!is_class, 0) {
        atomic_max(flag, code);
        atomic_max(flag + (((code >> 4) & 1023) + 1), max(where_(is_class, i64::MIN, class), 0));
    }
    store(classes + (n * width + s), where_(is_class, class, blank), s < width);
    let is_place = (s < 2 * labels + 1) & is_class;
    let skips = is_place & (s >= 2) & (class != blank);
    let skips = skips & (class != class_of(targets, s - 2, first, labels, blank));
    let mut alpha = where_(s == 0, A::ZERO, A::from(-1e30));
    for t in range(0, frames, 1) {
        let line = log_probs.ptr() + (t * log_probs.stride(0) + n * log_probs.stride(1));
        let emitted = load(line + class * log_probs.stride(2), is_place, A::from(-1e30));
        let (one, two) = (behind(alpha, -1, s >= 1), behind(alpha, -2, skips));
        alpha = maximum(sum_of_three(alpha, one, two) + emitted, A::from(-1e30));
        store(alphas + ((n * log_probs.dim(0) + t) * width + s), alpha, s < width);
    }
    let is_end = (s == 2 * labels) | (s == 2 * labels - 1);
    let ends = where_(is_end, alpha, A::from(-1e30));
    let top = max(ends, 0);
    let total = sum(where_(is_end, exp(ends - top), A::ZERO), 0);
    store(losses + n, A::ZERO - (log(total) + top));
}

/// What each place gets of the gradient of the losses at each frame, `slopes[t, n, s]`: the probability that an alignment of
/// the labeling is there, negative, times `dlosses[n]`. Of a labeling that can't be nothing.
#[kernel]
pub fn ctc_slopes<A: Float, const PLACES: usize>(
    log_probs: View<A, 3>,
    lengths: View<i64, 2>,
    alphas: Ptr<A>,
    classes: Ptr<i64>,
    losses: Ptr<A>,
    dlosses: Ptr<A>,
    slopes: PtrMut<A>,
    width: i64,
    blank: i64,
) {
    let (n, s) = (program_id(0), arange::<PLACES>());
    let of = lengths.ptr() + n;
    let labels = load(of + lengths.dim(1));
    let frames = load(of + 2 * lengths.dim(1));
    let is_place = s < 2 * labels + 1;
    let own = classes + (n * width + s);
    let class = load(own, is_place, blank);
    let next = load(own + 2, s + 2 < 2 * labels + 1, blank);
    let skips = (s + 2 < 2 * labels + 1) & (next != blank) & (next != class);
    let loss = load(losses + n);
    let weight = where_(loss > A::from(5e29), A::ZERO, load(dlosses + n));
    let is_end = (s == 2 * labels) | (s == 2 * labels - 1);
    let mut beta = where_(is_end, A::ZERO, A::from(-1e30));
    for k in range(0, log_probs.dim(0), 1) {
        let t = log_probs.dim(0) - 1 - k;
        let is_there = is_place & (t < frames);
        let alpha =
            load(alphas + ((n * log_probs.dim(0) + t) * width + s), is_there, A::from(-1e30));
        let share = exp(minimum(alpha + beta + loss, A::ZERO)) * weight;
        let to = slopes + ((t * log_probs.dim(1) + n) * width + s);
        store(to, where_(is_there, -share, A::ZERO), s < width);
        let line = log_probs.ptr() + (t * log_probs.stride(0) + n * log_probs.stride(1));
        let emitted = load(line + class * log_probs.stride(2), is_there, A::from(-1e30));
        let reach = maximum(beta + emitted, A::from(-1e30));
        let one = behind(reach, 1, s + 1 < 2 * labels + 1);
        let further = sum_of_three(reach, one, behind(reach, 2, skips));
        beta = where_(is_place & (t < frames), further, beta);
    }
}
