//! The largest of windows of 2x2 that lie side by side, of f32: what most networks pool by.
//!
//! A line of windows is made of two lines of the input. With AVX-512 they are read sixteen windows at a
//! time and taken apart into the four places of a window, which are compared in their order:
//!
//! ```text
//! a0 b0 a1 b1 a2 b2 ..        a0 a1 a2 ..     b0 b1 b2 ..
//! c0 d0 c1 d1 c2 d2 ..   ->   c0 c1 c2 ..     d0 d1 d2 ..
//! ```
//!
//! Other processors run a plain loop, which rustc makes vectors of.

use std::sync::OnceLock;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::install;
use genesis_kernel::trace;
use rayon::prelude::*;

use super::super::slices::{elements, elements_mut};
use super::{Lines, least, moved, sizes};
use crate::tensor::Tensor;

/// [`super::max_pool`], where it is of such windows; whether it was.
pub(super) fn max_pool(lines: &[Lines; 3], x: &Tensor, y: &Tensor, which: &Tensor) -> bool {
    let [depth, down, across] = lines;
    let is_flat = depth.inputs == 1 && depth.outputs == 1 && depth.seen(0) == [0];
    let fits = is_flat && down.is_pairs() && across.is_pairs();
    if !fits || x.dtype() != DType::F32 {
        return false;
    }
    let _kernel = trace::host_kernel("max_pool", || moved(&[x, y, which]));
    let (before, after) = sizes(lines);
    let (width, windows, loops) = (across.inputs, across.outputs, Loops::here());
    let planes = elements_mut::<f32>(y).par_chunks_mut(after).with_min_len(least(lines));
    let which = elements_mut::<i64>(which).par_chunks_mut(after);
    let work = planes.zip(which).zip(elements::<f32>(x).par_chunks(before));
    let plane = |((y, which), x): ((&mut [f32], &mut [i64]), &[f32])| {
        let rows = y.chunks_mut(windows).zip(which.chunks_mut(windows));
        for (row, ((best, which), seen)) in rows.zip(x.chunks_exact(2 * width)).enumerate() {
            let (top, bottom) = seen.split_at(width);
            loops.largest(&Line { top, bottom, first: 2 * row * width }, best, which);
        }
    };
    install(|| work.for_each(plane));
    true
}

/// [`super::max_pool_bwd`], where it is of such windows; whether it was.
pub(super) fn max_pool_bwd(lines: &[Lines; 3], dy: &Tensor, which: &Tensor, dx: &Tensor) -> bool {
    let [depth, down, across] = lines;
    let is_flat = depth.inputs == 1 && depth.outputs == 1 && depth.seen(0) == [0];
    let fits = is_flat && down.is_turned_pairs() && across.is_turned_pairs();
    let (before, after) = sizes(lines);
    if !fits || dx.dtype() != DType::F32 || after >= u32::MAX as usize {
        return false;
    }
    let _kernel = trace::host_kernel("max_pool backward", || moved(&[dy, which, dx]));
    let (width, windows, loops) = (across.outputs, across.inputs, Loops::here());
    let planes = elements_mut::<f32>(dx).par_chunks_mut(after).with_min_len(least(lines));
    let which = elements::<i64>(which).par_chunks(before);
    let work = planes.zip(which).zip(elements::<f32>(dy).par_chunks(before));
    let plane = |((dx, which), dy): ((&mut [f32], &[i64]), &[f32])| {
        let rows = dy.chunks(windows).zip(which.chunks(windows));
        let mut pairs = dx.chunks_exact_mut(2 * width);
        for (row, ((dy, which), to)) in rows.zip(&mut pairs).enumerate() {
            let (top, bottom) = to.split_at_mut(width);
            loops.put(dy, which, &mut Put { top, bottom, first: 2 * row * width });
        }
        // A line after the last windows belongs to none.
        pairs.into_remainder().fill(0.0);
    };
    install(|| work.for_each(plane));
    true
}

/// A line of windows in the two lines of the plane that they see.
pub(super) struct Line<'x> {
    /// The lines, of as many elements.
    pub top: &'x [f32],
    pub bottom: &'x [f32],
    /// Where the first begins in its plane; all positions are below 2^32.
    pub first: usize,
}

/// The lines of the gradient of what [`Line`] sees.
pub(super) struct Put<'x> {
    pub top: &'x mut [f32],
    pub bottom: &'x mut [f32],
    /// As of [`Line`].
    pub first: usize,
}

/// The loops of one kind of processor.
///
/// Each wants at least twice as many elements in the lines as there are windows, and as many gradients or
/// maxima as positions.
pub(super) struct Loops {
    largest: unsafe fn(&Line<'_>, &mut [f32], &mut [i64]),
    put: unsafe fn(&[f32], &[i64], &mut Put<'_>),
}

impl Loops {
    /// The fastest that the processor has which runs this.
    pub(super) fn here() -> &'static Loops {
        &Loops::all()[0]
    }

    /// All that the processor has which runs this, the fastest first.
    fn all() -> &'static [Loops] {
        static LOOPS: OnceLock<Vec<Loops>> = OnceLock::new();
        LOOPS.get_or_init(|| {
            let mut all = Vec::new();
            #[cfg(target_arch = "x86_64")]
            {
                if is_x86_feature_detected!("avx512f") {
                    all.push(Loops { largest: x86::largest, put: x86::put });
                }
                if is_x86_feature_detected!("avx2") {
                    all.push(Loops { largest: x86::largest_of_8, put: x86::put_of_8 });
                }
            }
            all.push(Loops { largest, put });
            all
        })
    }

    /// The largest element of each window and its position: NaN wins, of equals the first.
    pub(super) fn largest(&self, line: &Line<'_>, best: &mut [f32], which: &mut [i64]) {
        let n = best.len();
        assert!(which.len() == n && line.top.len() >= 2 * n, "a line has all of its windows");
        assert!(line.bottom.len() == line.top.len(), "lines of a plane are of one length");
        // SAFETY: the processor has these instructions, and the lengths are as they want.
        unsafe { (self.largest)(line, best, which) }
    }

    /// Gives each window's gradient to the element that was the largest, zeros to the others.
    pub(super) fn put(&self, dy: &[f32], which: &[i64], to: &mut Put<'_>) {
        let n = dy.len();
        assert!(which.len() == n && to.top.len() >= 2 * n, "a line has all of its windows");
        assert!(to.bottom.len() == to.top.len(), "lines of a plane are of one length");
        // SAFETY: the processor has these instructions, and the lengths are as they want.
        unsafe { (self.put)(dy, which, to) }
        // An element after the last window belongs to none.
        to.top[2 * n..].fill(0.0);
        to.bottom[2 * n..].fill(0.0);
    }
}

#[inline(always)]
fn largest(line: &Line<'_>, best: &mut [f32], which: &mut [i64]) {
    let (width, n) = (line.top.len(), best.len());
    let (top, bottom) = (&line.top[..2 * n], &line.bottom[..2 * n]);
    for (o, (best, which)) in best.iter_mut().zip(which).enumerate() {
        let (mut most, mut at) = (top[2 * o], 0);
        let others = [(top[2 * o + 1], 1), (bottom[2 * o], width), (bottom[2 * o + 1], width + 1)];
        for (v, place) in others {
            let won = (v > most) | v.is_nan();
            (most, at) = if won { (v, place) } else { (most, at) };
        }
        (*best, *which) = (most, (line.first + 2 * o + at) as i64);
    }
}

#[inline(always)]
fn put(dy: &[f32], which: &[i64], to: &mut Put<'_>) {
    let (width, n) = (to.top.len(), dy.len());
    let (top, bottom) = (&mut to.top[..2 * n], &mut to.bottom[..2 * n]);
    for (o, (&dy, &which)) in dy.iter().zip(which).enumerate() {
        let at = which.wrapping_sub((to.first + 2 * o) as i64);
        // A sum from zero on, which has no zero below zero.
        let own = |place: usize| if at == place as i64 { dy + 0.0 } else { 0.0 };
        (top[2 * o], top[2 * o + 1]) = (own(0), own(1));
        (bottom[2 * o], bottom[2 * o + 1]) = (own(width), own(width + 1));
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Line, Put};

    /// Windows of a vector.
    const N: usize = 16;

    #[target_feature(enable = "avx2")]
    pub(super) fn largest_of_8(line: &Line<'_>, best: &mut [f32], which: &mut [i64]) {
        super::largest(line, best, which);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn put_of_8(dy: &[f32], which: &[i64], to: &mut Put<'_>) {
        super::put(dy, which, to);
    }

    /// The first `n` of sixteen.
    fn first(n: usize) -> u16 {
        if n >= N { u16::MAX } else { (1 << n) - 1 }
    }

    /// 0, 2, 4 and so on, from `start`.
    #[target_feature(enable = "avx512f")]
    fn evens(start: i32) -> __m512i {
        let evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        _mm512_add_epi32(evens, _mm512_set1_epi32(start))
    }

    /// `n` pairs from an address on: the first of each, and the second.
    ///
    /// # Safety
    /// They are live memory.
    #[target_feature(enable = "avx512f")]
    unsafe fn load(from: *const f32, n: usize) -> [__m512; 2] {
        let masks = [first(2 * n), first((2 * n).saturating_sub(N))];
        // SAFETY: of the elements only those are read which the masks name.
        let [low, high] = unsafe {
            let second = from.wrapping_add(N);
            [_mm512_maskz_loadu_ps(masks[0], from), _mm512_maskz_loadu_ps(masks[1], second)]
        };
        [0, 1].map(|start| _mm512_permutex2var_ps(low, evens(start), high))
    }

    /// Writes `n` pairs.
    ///
    /// # Safety
    /// As of [`load`].
    #[target_feature(enable = "avx512f")]
    unsafe fn store(to: *mut f32, n: usize, [a, b]: [__m512; 2]) {
        let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        // SAFETY: of the elements only those are written which the masks name.
        unsafe {
            _mm512_mask_storeu_ps(to, first(2 * n), _mm512_permutex2var_ps(a, low, b));
            let (to, rest) = (to.wrapping_add(N), first((2 * n).saturating_sub(N)));
            _mm512_mask_storeu_ps(to, rest, _mm512_permutex2var_ps(a, high, b));
        }
    }

    /// The four places of a window, as distances from its first.
    #[target_feature(enable = "avx512f")]
    fn places(width: usize) -> [__m512i; 4] {
        [0, 1, width as i32, width as i32 + 1].map(|place| _mm512_set1_epi32(place))
    }

    /// # Safety
    /// The lines have at least twice as many elements as there are windows, as many as each other; there
    /// are as many positions as windows.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn largest(line: &Line<'_>, best: &mut [f32], which: &mut [i64]) {
        let places = places(line.top.len());
        for o in (0..best.len()).step_by(N) {
            let n = (best.len() - o).min(N);
            // SAFETY: windows `o..o + n` are of the line, and their pairs of its two lines.
            unsafe {
                let [a, b] = load(line.top.as_ptr().add(2 * o), n);
                let [c, d] = load(line.bottom.as_ptr().add(2 * o), n);
                let (mut most, mut at) = (a, places[0]);
                for (v, place) in [b, c, d].into_iter().zip(&places[1..]) {
                    let above = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(v, most);
                    let won = above | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
                    most = _mm512_mask_mov_ps(most, won, v);
                    at = _mm512_mask_mov_epi32(at, won, *place);
                }
                let at = _mm512_add_epi32(at, evens((line.first + 2 * o) as i32));
                let low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(at));
                let high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(at));
                let (mask, which) = (first(n), which.as_mut_ptr().add(o));
                _mm512_mask_storeu_ps(best.as_mut_ptr().add(o), mask, most);
                _mm512_mask_storeu_epi64(which, mask as u8, low);
                _mm512_mask_storeu_epi64(which.wrapping_add(8), (mask >> 8) as u8, high);
            }
        }
    }

    /// # Safety
    /// As of [`largest`].
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn put(dy: &[f32], which: &[i64], to: &mut Put<'_>) {
        let places = places(to.top.len());
        for o in (0..dy.len()).step_by(N) {
            let n = (dy.len() - o).min(N);
            let mask = first(n);
            // SAFETY: windows `o..o + n` are of the line, and their pairs of its two lines.
            unsafe {
                let (dy, which) = (dy.as_ptr().add(o), which.as_ptr().add(o));
                // A sum from zero on, which has no zero below zero.
                let dy = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, dy), _mm512_setzero_ps());
                let low = _mm512_maskz_loadu_epi64(mask as u8, which);
                let high = _mm512_maskz_loadu_epi64((mask >> 8) as u8, which.wrapping_add(8));
                let at = _mm512_inserti64x4::<1>(
                    _mm512_castsi256_si512(_mm512_cvtepi64_epi32(low)),
                    _mm512_cvtepi64_epi32(high),
                );
                let at = _mm512_sub_epi32(at, evens((to.first + 2 * o) as i32));
                let [a, b, c, d] =
                    places.map(|place| _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(at, place), dy));
                store(to.top.as_mut_ptr().add(2 * o), n, [a, b]);
                store(to.bottom.as_mut_ptr().add(2 * o), n, [c, d]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of 2 * n + more elements: small numbers that are often equal, NaN and zeros of both signs.
    fn lines(n: usize, more: usize) -> [Vec<f32>; 2] {
        let of = |k: usize| match k % 11 {
            0 => f32::NAN,
            1 => -0.0,
            2 => f32::NEG_INFINITY,
            k => (k % 4) as f32 - 1.0,
        };
        [0, 1].map(|line| (0..2 * n + more).map(|i| of((i + 7 * line) * (i + 3))).collect())
    }

    #[test]
    fn every_processor_finds_the_same() {
        for n in [1, 2, 7, 8, 9, 14, 15, 16, 17, 33] {
            for more in [0, 1] {
                let [top, bottom] = lines(n, more);
                let line = Line { top: &top, bottom: &bottom, first: 100 };
                let (mut best, mut which) = (vec![0.0; n], vec![0; n]);
                largest(&line, &mut best, &mut which);
                for loops in Loops::all() {
                    let (mut own, mut at) = (vec![0.0; n], vec![0; n]);
                    loops.largest(&line, &mut own, &mut at);
                    let bits = |all: &[f32]| all.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&own), bits(&best));
                    assert_eq!(at, which);
                }
            }
        }
    }

    #[test]
    fn gradients_go_where_the_largest_was() {
        for n in [1, 7, 14, 16, 21] {
            for more in [0, 1] {
                let width = 2 * n + more;
                let place = |o: usize| [0, 1, width, width + 1][o % 4];
                let which: Vec<i64> = (0..n).map(|o| (50 + 2 * o + place(o)) as i64).collect();
                let dy: Vec<f32> = (0..n).map(|o| if o == 0 { -0.0 } else { o as f32 }).collect();
                let mut expected = vec![0.0; 2 * width];
                which.iter().zip(&dy).for_each(|(&at, &dy)| expected[at as usize - 50] += dy);
                for loops in Loops::all() {
                    let (mut top, mut bottom) = (vec![1.0; width], vec![1.0; width]);
                    let mut to = Put { top: &mut top, bottom: &mut bottom, first: 50 };
                    loops.put(&dy, &which, &mut to);
                    let bits = |v: &f32| v.to_bits();
                    let own = top.iter().chain(&bottom).map(bits).collect::<Vec<_>>();
                    assert_eq!(own, expected.iter().map(bits).collect::<Vec<_>>());
                }
            }
        }
    }
}
