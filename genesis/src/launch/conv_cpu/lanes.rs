//! Vectors of the processor.
//!
//! A value of [`Lanes`] is the proof that the processor has its instructions: `pulp` makes one where it found
//! them, and lets a function have them by [`Lanes::run`]. What such a function calls must become a part of it,
//! which `#[inline(always)]` sees to, and closures are none of it.

use bytemuck::Pod;
use genesis_kernel::runtime::HostElement;
use pulp::NullaryFnOnce;

/// A number that there are vectors of.
pub(super) trait Element: HostElement + Pod + std::ops::AddAssign {
    const ZERO: Self;

    /// Whether it is neither infinite nor NaN.
    fn is_finite(self) -> bool;
}

impl Element for f32 {
    const ZERO: f32 = 0.0;

    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }
}

impl Element for f64 {
    const ZERO: f64 = 0.0;

    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }
}

/// The instructions of one kind of processor for vectors of one type of numbers.
pub(super) trait Lanes<T: Element>: Copy + Send + Sync + 'static {
    /// So many numbers.
    type Vector: Pod;
    /// Numbers of a vector.
    const N: usize = size_of::<Self::Vector>() / size_of::<T>();
    /// Whether an instruction moves numbers to other lanes.
    const SKIPS: bool = false;
    /// Registers for vectors.
    const REGISTERS: usize;

    /// Runs what may use these instructions.
    fn run<F: NullaryFnOnce>(self, job: F) -> F::Output;
    fn splat(self, value: T) -> Self::Vector;
    /// `sum + a * b`
    fn add_product(self, sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// The numbers of a vector from one on, and anything after them, where `SKIPS` says so.
    #[inline(always)]
    fn skip(self, vector: Self::Vector, _: usize) -> Self::Vector {
        vector
    }

    /// Reads as many rows as columns, so far apart, and writes the columns as rows.
    #[inline(always)]
    fn turn(self, from: Lines<'_, T>, to: &mut [T], column: usize) {
        for r in 0..Self::N {
            for (to, &number) in to[r..].iter_mut().step_by(column).zip(from.row(r, Self::N)) {
                *to = number;
            }
        }
    }
}

/// Lines of neighbours in a slice.
#[derive(Clone, Copy)]
pub(super) struct Lines<'t, T> {
    pub elements: &'t [T],
    /// Where the first begins, and how far others are apart; no line that is looked at leaves the slice.
    pub first: isize,
    pub apart: isize,
}

impl<'t, T> Lines<'t, T> {
    /// The first `n` of a line.
    #[inline(always)]
    pub(super) fn row(&self, row: usize, n: usize) -> &'t [T] {
        // What lies before the slice is beyond its end as an unsigned number.
        &self.elements[(self.first + row as isize * self.apart) as usize..][..n]
    }

    /// The same from later lines and elements on.
    #[inline(always)]
    pub(super) fn from(&self, row: usize, element: usize) -> Lines<'t, T> {
        let first = self.first + row as isize * self.apart + element as isize;
        Lines { first, ..*self }
    }
}

/// The vector of the numbers of a slice, which are as many.
#[inline(always)]
pub(super) fn load<T: Pod, V: Pod>(from: &[T]) -> V {
    bytemuck::pod_read_unaligned(bytemuck::cast_slice(from))
}

/// Writes a vector to a slice of as many numbers.
#[inline(always)]
pub(super) fn store<T: Pod, V: Pod>(to: &mut [T], vector: V) {
    bytemuck::cast_slice_mut::<T, u8>(to).copy_from_slice(bytemuck::bytes_of(&vector));
}

/// Copies to a slice of the same length, mostly of a few numbers.
#[inline(always)]
pub(super) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "copies are as long");
    match from.len() {
        16.. => {
            for (to, from) in to.as_chunks_mut::<16>().0.iter_mut().zip(from.as_chunks::<16>().0) {
                *to = *from;
            }
            copy_ends::<T, 16>(from, to);
        }
        8.. => copy_ends::<T, 8>(from, to),
        4.. => copy_ends::<T, 4>(from, to),
        2.. => copy_ends::<T, 2>(from, to),
        _ => copy_ends::<T, 1>(from, to),
    }
}

/// Copies the first `N` and the last.
#[inline(always)]
fn copy_ends<T: Copy, const N: usize>(from: &[T], to: &mut [T]) {
    if let (Some(from), Some(to)) = (from.first_chunk::<N>(), to.first_chunk_mut()) {
        *to = *from;
    }
    if let (Some(from), Some(to)) = (from.last_chunk::<N>(), to.last_chunk_mut()) {
        *to = *from;
    }
}

/// Vectors of four numbers, for processors without wider ones that we know.
#[derive(Clone, Copy)]
pub(super) struct Plain;

macro_rules! plain {
    ($of:ty) => {
        impl Lanes<$of> for Plain {
            type Vector = [$of; 4];
            const REGISTERS: usize = 16;

            #[inline(always)]
            fn run<F: NullaryFnOnce>(self, job: F) -> F::Output {
                job.call()
            }

            #[inline(always)]
            fn splat(self, value: $of) -> [$of; 4] {
                [value; 4]
            }

            #[inline(always)]
            fn add_product(self, sum: [$of; 4], a: [$of; 4], b: [$of; 4]) -> [$of; 4] {
                [0, 1, 2, 3].map(|i| sum[i] + a[i] * b[i])
            }
        }
    };
}

plain!(f32);
plain!(f64);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d, __m512i};

    use pulp::NullaryFnOnce;
    use pulp::x86::{V3, V4};

    use super::{Lanes, Lines, load, store};

    /// Lines of the cache.
    #[repr(align(64))]
    struct Aligned([[i32; 16]; 16]);

    /// For each number of lanes those from it on.
    static FROM: Aligned = {
        let (mut from, mut i) = ([[0; 16]; 16], 0);
        while i < 256 {
            from[i / 16][i % 16] = (i / 16 + i % 16) as i32;
            i += 1;
        }
        Aligned(from)
    };

    /// One vector type of x86: its instructions, and what is not alike for all of them.
    macro_rules! lanes {
        ($processor:ty: $of:ty, $vector:ty, $registers:literal,
         $splat_of:ident.$splat:ident, $fma_of:ident.$fma:ident, $($more:tt)*) => {
            impl Lanes<$of> for $processor {
                type Vector = $vector;
                const REGISTERS: usize = $registers;

                #[inline(always)]
                fn run<F: NullaryFnOnce>(self, job: F) -> F::Output {
                    self.vectorize(job)
                }

                #[inline(always)]
                fn splat(self, value: $of) -> $vector {
                    self.$splat_of.$splat(value)
                }

                #[inline(always)]
                fn add_product(self, sum: $vector, a: $vector, b: $vector) -> $vector {
                    self.$fma_of.$fma(a, b, sum)
                }

                $($more)*
            }
        };
    }

    lanes! {
        V4: f32, __m512, 32, avx512f._mm512_set1_ps, avx512f._mm512_fmadd_ps,

        const SKIPS: bool = true;
        #[inline(always)]
        fn skip(self, vector: __m512, lanes: usize) -> __m512 {
            self.avx512f._mm512_permutexvar_ps(load(&FROM.0[lanes]), vector)
        }

        #[inline(always)]
        fn turn(self, from: Lines<'_, f32>, to: &mut [f32], column: usize) {
            let mut rows = [self.avx512f._mm512_setzero_ps(); 16];
            for (r, own) in rows.iter_mut().enumerate() {
                *own = load(from.row(r, 16));
            }
            for by in [1, 2, 4, 8] {
                exchange(self, &mut rows, by);
            }
            for (c, own) in rows.iter().enumerate() {
                store(&mut to[c * column..][..16], *own);
            }
        }
    }
    lanes! {
        V4: f64, __m512d, 32, avx512f._mm512_set1_pd, avx512f._mm512_fmadd_pd,

        const SKIPS: bool = true;
        #[inline(always)]
        fn skip(self, vector: __m512d, lanes: usize) -> __m512d {
            let which = self.avx512f._mm512_cvtepi32_epi64(load(&FROM.0[lanes][..8]));
            self.avx512f._mm512_permutexvar_pd(which, vector)
        }
    }
    lanes! {
        V3: f32, __m256, 16, avx._mm256_set1_ps, fma._mm256_fmadd_ps,

        const SKIPS: bool = true;
        #[inline(always)]
        fn skip(self, vector: __m256, lanes: usize) -> __m256 {
            self.avx2._mm256_permutevar8x32_ps(vector, load(&FROM.0[lanes][..8]))
        }
    }
    lanes! { V3: f64, __m256d, 16, avx._mm256_set1_pd, fma._mm256_fmadd_pd, }

    /// One of the four steps that turn a matrix of 16 by 16: in each pair of rows that are `by` apart,
    /// exchanges the second half of every `2 * by` numbers of the one with the first of the other.
    #[inline(always)]
    fn exchange(v4: V4, rows: &mut [__m512; 16], by: usize) {
        let mut which = [[0i32; 16]; 2];
        for (which, own) in which.iter_mut().zip([0, by]) {
            for (lane, which) in which.iter_mut().enumerate() {
                *which = match lane & by {
                    0 => (lane ^ own) as i32,
                    _ => 16 + (lane ^ own ^ by) as i32,
                };
            }
        }
        let [low, high]: [__m512i; 2] = [bytemuck::cast(which[0]), bytemuck::cast(which[1])];
        for first in 0..16 {
            if first & by == 0 {
                let (a, b) = (rows[first], rows[first | by]);
                rows[first] = v4.avx512f._mm512_permutex2var_ps(a, low, b);
                rows[first | by] = v4.avx512f._mm512_permutex2var_ps(a, high, b);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_any_length() {
        let from: Vec<u32> = (1..100).collect();
        for n in 0..from.len() {
            let mut to = vec![0; n];
            copy(&from[..n], &mut to);
            assert_eq!(to, from[..n]);
        }
    }
}
