//! Vectors of the processor.

/// A vector of numbers.
///
/// # Safety
/// The processor has the instructions that its functions are made of, wherever they are called, and the
/// addresses are of [`Lanes::N`] numbers.
pub(super) unsafe trait Lanes: Copy {
    /// One number.
    type Of: Copy;
    /// Which of the numbers are meant.
    type Mask: Copy;
    /// How many there are.
    const N: usize;
    unsafe fn splat(value: Self::Of) -> Self;
    unsafe fn load(from: *const Self::Of) -> Self;
    unsafe fn store(self, to: *mut Self::Of);
    /// `self + a * b`
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
    /// Numbers `first..first + n`.
    unsafe fn mask(first: usize, n: usize) -> Self::Mask;
    /// Only numbers of the mask, zeros for the others; nothing else is read.
    unsafe fn load_some(from: *const Self::Of, mask: Self::Mask) -> Self;
    /// Only numbers of the mask; nothing else is written.
    unsafe fn store_some(self, to: *mut Self::Of, mask: Self::Mask);

    /// Reads as many rows as columns, so far apart, and writes the columns as rows.
    #[inline(always)]
    unsafe fn turn(from: *const Self::Of, row: isize, to: *mut Self::Of, column: usize) {
        for r in 0..Self::N {
            for c in 0..Self::N {
                // SAFETY: all of them are live memory, says the caller.
                unsafe { *to.add(c * column + r) = *from.offset(r as isize * row).add(c) };
            }
        }
    }
}

/// Four numbers, for processors without wider vectors that we know.
#[derive(Clone, Copy)]
pub(super) struct Plain<T>([T; 4]);

// SAFETY: plain Rust, which every processor runs.
unsafe impl<T: Copy + Default + std::ops::Mul<Output = T> + std::ops::Add<Output = T>> Lanes
    for Plain<T>
{
    type Of = T;
    /// The first and the one after the last.
    type Mask = [usize; 2];
    const N: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Plain([value; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: there are four numbers at the address, says the caller; of any alignment.
        Plain(unsafe { from.cast::<[T; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[T; 4]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        Plain([0, 1, 2, 3].map(|i| self.0[i] + a.0[i] * b.0[i]))
    }

    #[inline(always)]
    unsafe fn mask(first: usize, n: usize) -> [usize; 2] {
        [first, first + n]
    }

    #[inline(always)]
    unsafe fn load_some(from: *const T, [first, end]: [usize; 2]) -> Self {
        let mut numbers = [T::default(); 4];
        for (i, number) in numbers.iter_mut().enumerate().take(end).skip(first) {
            // SAFETY: numbers of the mask are there, says the caller.
            *number = unsafe { *from.wrapping_add(i) };
        }
        Plain(numbers)
    }

    #[inline(always)]
    unsafe fn store_some(self, to: *mut T, [first, end]: [usize; 2]) {
        for (i, &number) in self.0.iter().enumerate().take(end).skip(first) {
            // SAFETY: as in `load_some`.
            unsafe { *to.wrapping_add(i) = number };
        }
    }
}

/// One vector type of x86: its width, its instructions, and what is not alike for all of them.
#[cfg(target_arch = "x86_64")]
macro_rules! lanes {
    ($vector:ident, $of:ty, $n:literal, $splat:ident, $load:ident, $store:ident, $fma:ident,
     $($more:tt)*) => {
        // SAFETY: these instructions are of the feature that the loops are chosen by.
        unsafe impl Lanes for $vector {
            type Of = $of;
            const N: usize = $n;

            #[inline(always)]
            unsafe fn splat(value: $of) -> Self {
                // SAFETY: the caller checked the processor.
                unsafe { $splat(value) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $of) -> Self {
                // SAFETY: so many numbers are at the address, says the caller, who checked the processor.
                unsafe { $load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $of) {
                // SAFETY: as in `load`.
                unsafe { $store(to, self) }
            }

            #[inline(always)]
            unsafe fn add_product(self, a: Self, b: Self) -> Self {
                // SAFETY: the caller checked the processor.
                unsafe { $fma(a, b, self) }
            }

            $($more)*
        }
    };
}

/// Masks of vectors of 512 bits, which are registers of their own.
#[cfg(target_arch = "x86_64")]
macro_rules! masks_of_512 {
    ($of:ty, $mask:ty, $load:ident, $store:ident) => {
        type Mask = $mask;

        #[inline(always)]
        unsafe fn mask(first: usize, n: usize) -> $mask {
            (((1_u32 << n) - 1) << first) as $mask
        }

        #[inline(always)]
        unsafe fn load_some(from: *const $of, mask: $mask) -> Self {
            // SAFETY: the numbers of the mask are there, says the caller, who checked the processor.
            unsafe { $load(mask, from) }
        }

        #[inline(always)]
        unsafe fn store_some(self, to: *mut $of, mask: $mask) {
            // SAFETY: as in `load_some`.
            unsafe { $store(to, mask, self) }
        }
    };
}

/// Masks of vectors of 256 bits, which are integers of the numbers' size.
#[cfg(target_arch = "x86_64")]
macro_rules! masks_of_256 {
    ($of:ty, $int:ty, $splat:ident, $above:ident, $load:ident, $store:ident, $lanes:expr) => {
        type Mask = __m256i;

        #[inline(always)]
        unsafe fn mask(first: usize, n: usize) -> __m256i {
            // SAFETY: the caller checked the processor.
            unsafe {
                let after = $above($lanes, $splat(first as $int - 1));
                _mm256_and_si256(after, $above($splat((first + n) as $int), $lanes))
            }
        }

        #[inline(always)]
        unsafe fn load_some(from: *const $of, mask: __m256i) -> Self {
            // SAFETY: the numbers of the mask are there, says the caller, who checked the processor.
            unsafe { $load(from, mask) }
        }

        #[inline(always)]
        unsafe fn store_some(self, to: *mut $of, mask: __m256i) {
            // SAFETY: as in `load_some`.
            unsafe { $store(to, mask, self) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Lanes;

    lanes! {
        __m512, f32, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps,
        masks_of_512!(f32, u16, _mm512_maskz_loadu_ps, _mm512_mask_storeu_ps);

        #[inline(always)]
        unsafe fn turn(from: *const f32, row: isize, to: *mut f32, column: usize) {
            // SAFETY: the caller's promise is the same, and it checked the processor.
            unsafe {
                let mut rows = [_mm512_setzero_ps(); 16];
                for (r, to) in rows.iter_mut().enumerate() {
                    *to = _mm512_loadu_ps(from.offset(r as isize * row));
                }
                for by in [1, 2, 4, 8] {
                    exchange(&mut rows, by);
                }
                for (c, own) in rows.iter().enumerate() {
                    _mm512_storeu_ps(to.add(c * column), *own);
                }
            }
        }
    }
    lanes! {
        __m512d, f64, 8, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd,
        masks_of_512!(f64, u8, _mm512_maskz_loadu_pd, _mm512_mask_storeu_pd);
    }
    lanes! {
        __m256, f32, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps,
        masks_of_256!(
            f32, i32, _mm256_set1_epi32, _mm256_cmpgt_epi32, _mm256_maskload_ps,
            _mm256_maskstore_ps, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
        );
    }
    lanes! {
        __m256d, f64, 4, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_fmadd_pd,
        masks_of_256!(
            f64, i64, _mm256_set1_epi64x, _mm256_cmpgt_epi64, _mm256_maskload_pd,
            _mm256_maskstore_pd, _mm256_setr_epi64x(0, 1, 2, 3)
        );
    }

    /// One of the four steps that turn a matrix of 16 by 16: in each pair of rows that are `by` apart,
    /// exchanges the second half of every `2 * by` numbers of the one with the first of the other.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[inline(always)]
    unsafe fn exchange(rows: &mut [__m512; 16], by: usize) {
        let which: [[i32; 16]; 2] = [0, by].map(|own| {
            std::array::from_fn(|lane| match lane & by {
                0 => (lane ^ own) as i32,
                _ => 16 + (lane ^ own ^ by) as i32,
            })
        });
        for first in (0..16).filter(|row| row & by == 0) {
            let (a, b) = (rows[first], rows[first | by]);
            // SAFETY: the indices have the bytes of a vector, and the caller checked the processor.
            unsafe {
                let [low, high] = which.map(|which| _mm512_loadu_si512(which.as_ptr().cast()));
                rows[first] = _mm512_permutex2var_ps(a, low, b);
                rows[first | by] = _mm512_permutex2var_ps(a, high, b);
            }
        }
    }
}
