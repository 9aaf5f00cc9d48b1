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

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::install;
use genesis_kernel::trace;
use pulp::NullaryFnOnce;
#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
use rayon::prelude::*;

use super::lines::{Lines, least, moved, sizes};
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
    let (mut y, mut which, x) = (y.elements_mut(), which.elements_mut(), x.elements());
    let planes = least(lines);
    let made = y.par_chunks_mut(planes * after).zip(which.par_chunks_mut(planes * after));
    let work = made.zip(x.par_chunks(planes * before));
    let shape = Shape { width, windows, plane: before };
    let task = |((y, which), x): ((&mut [f32], &mut [i64]), &[f32])| {
        loops.largest(shape, x, y, which);
    };
    install(|| work.for_each(task));
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
    let (mut dx, which, dy) = (dx.elements_mut(), which.elements(), dy.elements());
    let planes = least(lines);
    let made = dx.par_chunks_mut(planes * after).zip(which.par_chunks(planes * before));
    let work = made.zip(dy.par_chunks(planes * before));
    let shape = Shape { width, windows, plane: after };
    let task = |((dx, which), dy): ((&mut [f32], &[i64]), &[f32])| {
        loops.put(shape, dy, which, dx);
    };
    install(|| work.for_each(task));
    true
}

/// Planes one after the other: two lines for each line of windows, and perhaps one more.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Elements of a line: two for each of its windows, and perhaps one more.
    pub width: usize,
    /// Windows of a line, at least one.
    pub windows: usize,
    /// Elements of a plane.
    pub plane: usize,
}

impl Shape {
    /// Lines of windows of a plane.
    fn rows(self) -> usize {
        self.plane / self.width / 2
    }

    /// # Panics
    /// If these are not the elements and the windows of so many planes, or positions are no 32 bits.
    fn check(self, elements: usize, windows: usize) {
        let Shape { width, windows: n, plane } = self;
        assert!(n > 0 && width / 2 == n && plane.is_multiple_of(width), "lines have their windows");
        assert!(plane < u32::MAX as usize, "positions are of 32 bits");
        let planes = elements / plane;
        let all = planes * plane == elements && planes * self.rows() * n == windows;
        assert!(all, "planes have all of their elements and windows");
    }
}

/// The loops of one kind of processor.
#[derive(Clone, Copy)]
pub(super) enum Loops {
    /// Written for vectors of sixteen.
    #[cfg(target_arch = "x86_64")]
    Sixteen(V4),
    /// The plain ones, of which rustc makes vectors of eight.
    #[cfg(target_arch = "x86_64")]
    Eight(V3),
    Plain,
}

impl Loops {
    /// The fastest that the processor has which runs this.
    pub(super) fn here() -> Loops {
        #[cfg(target_arch = "x86_64")]
        if let Some(v4) = V4::try_new() {
            return Loops::Sixteen(v4);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = V3::try_new() {
            return Loops::Eight(v3);
        }
        Loops::Plain
    }

    /// The largest element of each window and its position in its plane: NaN wins, of equals the first.
    pub(super) fn largest(self, shape: Shape, x: &[f32], best: &mut [f32], which: &mut [i64]) {
        shape.check(x.len(), best.len());
        assert_eq!(which.len(), best.len(), "each window has a position");
        match self {
            #[cfg(target_arch = "x86_64")]
            Loops::Sixteen(v4) => v4.vectorize(x86::Largest { v4, shape, x, best, which }),
            #[cfg(target_arch = "x86_64")]
            Loops::Eight(v3) => v3.vectorize(Largest { shape, x, best, which }),
            Loops::Plain => largest(shape, x, best, which),
        }
    }

    /// Gives each window's gradient to the element that was the largest, zeros to the others.
    pub(super) fn put(self, shape: Shape, dy: &[f32], which: &[i64], dx: &mut [f32]) {
        shape.check(dx.len(), dy.len());
        assert_eq!(which.len(), dy.len(), "each window has a position");
        match self {
            #[cfg(target_arch = "x86_64")]
            Loops::Sixteen(v4) => v4.vectorize(x86::PutAll { v4, shape, dy, which, dx }),
            #[cfg(target_arch = "x86_64")]
            Loops::Eight(v3) => v3.vectorize(PutAll { shape, dy, which, dx }),
            Loops::Plain => put(shape, dy, which, dx),
        }
        // An element after the last window of a line belongs to none, and neither does a line after all.
        let Shape { width, windows, plane } = shape;
        if width == 2 * windows && plane == 2 * shape.rows() * width {
            return;
        }
        for plane in dx.chunks_exact_mut(plane) {
            let (seen, after) = plane.split_at_mut(2 * shape.rows() * width);
            seen.chunks_exact_mut(width).for_each(|line| line[2 * windows..].fill(0.0));
            after.fill(0.0);
        }
    }
}

/// [`largest`], as a function for wider vectors.
struct Largest<'l> {
    shape: Shape,
    x: &'l [f32],
    best: &'l mut [f32],
    which: &'l mut [i64],
}

impl NullaryFnOnce for Largest<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        largest(self.shape, self.x, self.best, self.which);
    }
}

/// [`put`], as a function for wider vectors.
struct PutAll<'l> {
    shape: Shape,
    dy: &'l [f32],
    which: &'l [i64],
    dx: &'l mut [f32],
}

impl NullaryFnOnce for PutAll<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        put(self.shape, self.dy, self.which, self.dx);
    }
}

#[inline(always)]
fn largest(shape: Shape, x: &[f32], best: &mut [f32], which: &mut [i64]) {
    let Shape { width, windows: n, plane } = shape;
    let made = best.chunks_exact_mut(n).zip(which.chunks_exact_mut(n));
    let seen = x.chunks_exact(plane).flat_map(|plane| plane.chunks_exact(2 * width).enumerate());
    for ((row, seen), (best, which)) in seen.zip(made) {
        let (top, bottom) = seen.split_at(width);
        let (top, bottom) = (&top[..2 * n], &bottom[..2 * n]);
        for (o, (best, which)) in best.iter_mut().zip(which).enumerate() {
            let (mut most, mut at) = (top[2 * o], 0);
            let others =
                [(top[2 * o + 1], 1), (bottom[2 * o], width), (bottom[2 * o + 1], width + 1)];
            for (v, place) in others {
                let won = (v > most) | v.is_nan();
                (most, at) = if won { (v, place) } else { (most, at) };
            }
            (*best, *which) = (most, (2 * row * width + 2 * o + at) as i64);
        }
    }
}

#[inline(always)]
fn put(shape: Shape, dy: &[f32], which: &[i64], dx: &mut [f32]) {
    let Shape { width, windows: n, plane } = shape;
    let given = dy.chunks_exact(n).zip(which.chunks_exact(n));
    let all = dx.chunks_exact_mut(plane);
    let made = all.flat_map(|plane| plane.chunks_exact_mut(2 * width).enumerate());
    for ((row, to), (dy, which)) in made.zip(given) {
        let (top, bottom) = to.split_at_mut(width);
        let (top, bottom) = (&mut top[..2 * n], &mut bottom[..2 * n]);
        for (o, (&dy, &which)) in dy.iter().zip(which).enumerate() {
            let at = which.wrapping_sub((2 * row * width + 2 * o) as i64);
            // A sum from zero on, which has no zero below zero.
            let own = |place: usize| if at == place as i64 { dy + 0.0 } else { 0.0 };
            (top[2 * o], top[2 * o + 1]) = (own(0), own(1));
            (bottom[2 * o], bottom[2 * o + 1]) = (own(width), own(width + 1));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m512, __m512i, _CMP_GT_OQ, _CMP_UNORD_Q};

    use pulp::x86::V4;
    use pulp::{NullaryFnOnce, Simd};

    use super::Shape;

    /// Windows of a vector.
    const N: usize = 16;

    /// The first sixteen numbers of a slice, or all and zeros.
    #[inline(always)]
    fn load(v4: V4, from: &[f32]) -> __m512 {
        match from.first_chunk::<N>() {
            Some(all) => bytemuck::cast(*all),
            None => bytemuck::cast(v4.partial_load_f32s(from)),
        }
    }

    /// Writes as many numbers as the slice has, sixteen at most.
    #[inline(always)]
    fn store(v4: V4, to: &mut [f32], numbers: __m512) {
        match to.first_chunk_mut::<N>() {
            Some(all) => *all = bytemuck::cast(numbers),
            None => v4.partial_store_f32s(to, bytemuck::cast(numbers)),
        }
    }

    /// The first eight positions of a slice, or all and zeros.
    #[inline(always)]
    fn load_positions(v4: V4, from: &[i64]) -> __m512i {
        match from.first_chunk::<8>() {
            Some(all) => bytemuck::cast(*all),
            None => bytemuck::cast(v4.partial_load_i64s(from)),
        }
    }

    /// Writes as many positions as the slice has, eight at most.
    #[inline(always)]
    fn store_positions(v4: V4, to: &mut [i64], positions: __m512i) {
        match to.first_chunk_mut::<8>() {
            Some(all) => *all = bytemuck::cast(positions),
            None => v4.partial_store_i64s(to, bytemuck::cast(positions)),
        }
    }

    /// 0, 2, 4 and so on, from `start`.
    #[inline(always)]
    fn evens(v4: V4, start: i32) -> __m512i {
        let evens = [0i32, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];
        v4.avx512f._mm512_add_epi32(bytemuck::cast(evens), v4.avx512f._mm512_set1_epi32(start))
    }

    /// Up to sixteen pairs, all that a slice has: the first of each, and the second.
    #[inline(always)]
    fn load_pairs(v4: V4, from: &[f32]) -> [__m512; 2] {
        let (low, high) = (load(v4, from), load(v4, from.get(N..).unwrap_or_default()));
        let [first, second] = [evens(v4, 0), evens(v4, 1)];
        [
            v4.avx512f._mm512_permutex2var_ps(low, first, high),
            v4.avx512f._mm512_permutex2var_ps(low, second, high),
        ]
    }

    /// Writes up to sixteen pairs, as many as the slice has.
    #[inline(always)]
    fn store_pairs(v4: V4, to: &mut [f32], [a, b]: [__m512; 2]) {
        let low = [0i32, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23];
        let low = bytemuck::cast(low);
        let high = v4.avx512f._mm512_add_epi32(low, v4.avx512f._mm512_set1_epi32(8));
        store(v4, to, v4.avx512f._mm512_permutex2var_ps(a, low, b));
        if let Some(to) = to.get_mut(N..) {
            store(v4, to, v4.avx512f._mm512_permutex2var_ps(a, high, b));
        }
    }

    /// The four places of a window, as distances from its first.
    #[inline(always)]
    fn places(width: usize) -> [__m512i; 4] {
        [0, 1, width, width + 1].map(|place| bytemuck::cast([place as i32; N]))
    }

    /// [`super::largest`], sixteen windows at a time.
    ///
    /// What a vector has beyond its line is of the lines that follow, which are made after it; where no line
    /// follows it has less.
    pub(super) struct Largest<'l> {
        pub(super) v4: V4,
        pub(super) shape: Shape,
        pub(super) x: &'l [f32],
        pub(super) best: &'l mut [f32],
        pub(super) which: &'l mut [i64],
    }

    impl NullaryFnOnce for Largest<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Largest { v4, shape, x, best, which } = self;
            let Shape { width, windows, plane } = shape;
            let (places, rows) = (places(width), shape.rows());
            for line in 0..best.len() / windows {
                let (begin, row) = (line / rows * plane, line % rows);
                for o in (0..windows).step_by(N) {
                    let (first, window) = (2 * row * width + 2 * o, line * windows + o);
                    let [a, b] = load_pairs(v4, &x[begin + first..]);
                    let [c, d] = load_pairs(v4, &x[begin + first + width..]);
                    let (mut most, mut at) = (a, places[0]);
                    for (v, place) in [(b, places[1]), (c, places[2]), (d, places[3])] {
                        let above = v4.avx512f._mm512_cmp_ps_mask::<_CMP_GT_OQ>(v, most);
                        let won = above | v4.avx512f._mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
                        most = v4.avx512f._mm512_mask_mov_ps(most, won, v);
                        at = v4.avx512f._mm512_mask_mov_epi32(at, won, place);
                    }
                    let at = v4.avx512f._mm512_add_epi32(at, evens(v4, first as i32));
                    let low = v4.avx512f._mm512_castsi512_si256(at);
                    let high = v4.avx512f._mm512_extracti64x4_epi64::<1>(at);
                    let which = &mut which[window..];
                    store(v4, &mut best[window..], most);
                    store_positions(v4, which, v4.avx512f._mm512_cvtepu32_epi64(low));
                    if let Some(which) = which.get_mut(8..) {
                        store_positions(v4, which, v4.avx512f._mm512_cvtepu32_epi64(high));
                    }
                }
            }
        }
    }

    /// [`super::put`], sixteen windows at a time, as [`Largest`].
    pub(super) struct PutAll<'l> {
        pub(super) v4: V4,
        pub(super) shape: Shape,
        pub(super) dy: &'l [f32],
        pub(super) which: &'l [i64],
        pub(super) dx: &'l mut [f32],
    }

    impl NullaryFnOnce for PutAll<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let PutAll { v4, shape, dy, which, dx } = self;
            let Shape { width, windows, plane } = shape;
            let (places, rows) = (places(width), shape.rows());
            // Top and bottom lines in two passes: what a vector has beyond a top line is of the bottom line,
            // and that is made before the vectors of later windows of the top line.
            for line in 0..dy.len() / windows {
                let (begin, row) = (line / rows * plane, line % rows);
                for half in [0, 1] {
                    for o in (0..windows).step_by(N) {
                        let (first, window) = (2 * row * width + 2 * o, line * windows + o);
                        // A sum from zero on, which has no zero below zero.
                        let zero = v4.avx512f._mm512_setzero_ps();
                        let dy = v4.avx512f._mm512_add_ps(load(v4, &dy[window..]), zero);
                        let which = &which[window..];
                        let low = load_positions(v4, which);
                        let high = load_positions(v4, which.get(8..).unwrap_or_default());
                        let low = v4.avx512f._mm512_cvtepi64_epi32(low);
                        let at = v4.avx512f._mm512_inserti64x4::<1>(
                            v4.avx512f._mm512_castsi256_si512(low),
                            v4.avx512f._mm512_cvtepi64_epi32(high),
                        );
                        let at = v4.avx512f._mm512_sub_epi32(at, evens(v4, first as i32));
                        let [a, b] = [places[2 * half], places[2 * half + 1]];
                        let is_a = v4.avx512f._mm512_cmpeq_epi32_mask(at, a);
                        let is_b = v4.avx512f._mm512_cmpeq_epi32_mask(at, b);
                        let pairs = [
                            v4.avx512f._mm512_maskz_mov_ps(is_a, dy),
                            v4.avx512f._mm512_maskz_mov_ps(is_b, dy),
                        ];
                        store_pairs(v4, &mut dx[begin + first + half * width..], pairs);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that the processor has which runs this.
    fn all() -> Vec<Loops> {
        let mut all = vec![Loops::Plain];
        #[cfg(target_arch = "x86_64")]
        all.extend(V3::try_new().map(Loops::Eight));
        #[cfg(target_arch = "x86_64")]
        all.extend(V4::try_new().map(Loops::Sixteen));
        all
    }

    /// Two planes of three lines of `n` windows, `more` elements after each line and a line after all.
    fn shape(n: usize, more: usize) -> Shape {
        let width = 2 * n + more;
        Shape { width, windows: n, plane: (6 + more) * width }
    }

    /// Their elements: small numbers that are often equal, NaN and zeros of both signs.
    fn planes(shape: Shape) -> Vec<f32> {
        let of = |k: usize| match k % 11 {
            0 => f32::NAN,
            1 => -0.0,
            2 => f32::NEG_INFINITY,
            k => (k % 4) as f32 - 1.0,
        };
        (0..2 * shape.plane).map(|i| of(i * (i + 3))).collect()
    }

    /// The plane of a window and where it begins there.
    fn first(shape: Shape, window: usize) -> (usize, usize) {
        let (line, o) = (window / shape.windows, window % shape.windows);
        (line / 3, line % 3 * 2 * shape.width + 2 * o)
    }

    fn bits(all: &[f32]) -> Vec<u32> {
        all.iter().map(|v| v.to_bits()).collect()
    }

    #[test]
    fn every_processor_finds_the_same() {
        for (n, more) in [1, 2, 7, 8, 9, 14, 15, 16, 17, 33].iter().flat_map(|&n| [(n, 0), (n, 1)])
        {
            let shape = shape(n, more);
            let x = planes(shape);
            let (mut best, mut which) = (vec![0.0; 6 * n], vec![0; 6 * n]);
            Loops::Plain.largest(shape, &x, &mut best, &mut which);
            for (window, (&best, &at)) in best.iter().zip(&which).enumerate() {
                let (plane, first) = first(shape, window);
                let x = &x[plane * shape.plane..];
                let places = [0, 1, shape.width, shape.width + 1].map(|place| first + place);
                assert!(places.contains(&(at as usize)));
                assert_eq!(x[at as usize].to_bits(), best.to_bits());
                assert!(best.is_nan() || places.iter().all(|&place| x[place] <= best));
            }
            for loops in all() {
                let (mut own, mut at) = (vec![0.0; 6 * n], vec![0; 6 * n]);
                loops.largest(shape, &x, &mut own, &mut at);
                assert_eq!((bits(&own), at), (bits(&best), which.clone()));
            }
        }
    }

    #[test]
    fn gradients_go_where_the_largest_was() {
        for (n, more) in [1, 7, 8, 14, 16, 21, 33].iter().flat_map(|&n| [(n, 0), (n, 1)]) {
            let shape = shape(n, more);
            let place = |o: usize| first(shape, o).1 + [0, 1, shape.width, shape.width + 1][o % 4];
            let which: Vec<i64> = (0..6 * n).map(|o| place(o) as i64).collect();
            let dy: Vec<f32> = (0..6 * n).map(|o| if o == 0 { -0.0 } else { o as f32 }).collect();
            let mut expected = vec![0.0; 2 * shape.plane];
            for (o, &dy) in dy.iter().enumerate() {
                expected[first(shape, o).0 * shape.plane + place(o)] += dy;
            }
            for loops in all() {
                let mut dx = vec![1.0; expected.len()];
                loops.put(shape, &dy, &which, &mut dx);
                assert_eq!(bits(&dx), bits(&expected));
            }
        }
    }
}
