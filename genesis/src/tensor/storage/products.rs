//! Products of matrices in slices, by the `gemm` crate, which takes addresses and checks nothing.
//!
//! What is multiplied lies inside of a slice, at any steps. What is made is dense memory that one has for
//! oneself, and that is cut into parts of which each is as much one's own:
//!
//! ```text
//! cut at row 2     a a a a     cut at column 3    a a a | b
//!                  a a a a                        a a a | b
//!                  -------                        a a a | b
//!                  b b b b                        a a a | b
//! ```

use std::marker::PhantomData;
use std::ptr::NonNull;

use bytemuck::Pod;
use gemm::Parallelism;
use genesis_kernel::runtime::HostElement;

/// What `gemm` multiplies.
///
/// # Safety
/// `gemm` has loops for it.
pub(crate) unsafe trait Real: HostElement + Pod {
    const ZERO: Self;
    const ONE: Self;
}

// SAFETY: it is a type that `gemm` knows.
unsafe impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
}

// SAFETY: as above.
unsafe impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
}

/// A matrix in a slice.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'m, T> {
    elements: &'m [T],
    /// Where row 0 and column 0 meet.
    first: usize,
    /// Of rows and columns: how many, and how far neighbours are apart.
    extents: [usize; 2],
    strides: [isize; 2],
}

impl<'m, T> Matrix<'m, T> {
    /// # Panics
    /// If an element would lie outside of the slice.
    pub(crate) fn new(
        elements: &'m [T],
        first: usize,
        extents: [usize; 2],
        strides: [isize; 2],
    ) -> Matrix<'m, T> {
        let (mut low, mut high) = (first as i128, first as i128);
        for (extent, stride) in extents.into_iter().zip(strides) {
            let reach = (extent as i128 - 1).max(0) * stride as i128;
            (low, high) = (low + reach.min(0), high + reach.max(0));
        }
        let is_inside = low >= 0 && high < elements.len() as i128;
        assert!(is_inside || extents.contains(&0), "a matrix leaves its slice: a bug in Genesis");
        Matrix { elements, first, extents, strides }
    }

    /// So many rows (axis 0) or columns (axis 1) from one on.
    ///
    /// # Panics
    /// If there are not as many.
    pub(crate) fn part(&self, axis: usize, from: usize, count: usize) -> Matrix<'m, T> {
        assert!(from + count <= self.extents[axis], "a part is of its matrix");
        let mut extents = self.extents;
        extents[axis] = count;
        let first = self.first as isize + from as isize * self.strides[axis];
        Matrix::new(self.elements, first as usize, extents, self.strides)
    }

    fn at(&self) -> *const T {
        // An empty matrix begins anywhere.
        self.elements.get(self.first).map_or(self.elements.as_ptr(), |first| first)
    }
}

/// A matrix that is made: memory that nothing else names.
pub(crate) struct MatrixMut<'m, T> {
    first: NonNull<T>,
    extents: [usize; 2],
    /// How far rows are apart; the elements of a row are neighbours.
    row: usize,
    _own: PhantomData<&'m mut [T]>,
}

// SAFETY: it is as a slice that can be written, which may go to another thread.
unsafe impl<T: Send> Send for MatrixMut<'_, T> {}

impl<'m, T> MatrixMut<'m, T> {
    /// A slice as rows of so many elements.
    ///
    /// # Panics
    /// If it is not of whole rows.
    pub(crate) fn of(elements: &'m mut [T], columns: usize) -> MatrixMut<'m, T> {
        let rows = elements.len() / columns.max(1);
        assert_eq!(rows * columns, elements.len(), "a slice is of whole rows");
        let first = NonNull::from(elements).cast();
        MatrixMut { first, extents: [rows, columns], row: columns, _own: PhantomData }
    }

    /// The first so many rows (axis 0) or columns (axis 1), and the rest.
    ///
    /// # Panics
    /// If there are not as many.
    pub(crate) fn cut(self, axis: usize, count: usize) -> (MatrixMut<'m, T>, MatrixMut<'m, T>) {
        let MatrixMut { first, mut extents, row, _own } = self;
        let rest = extents[axis].checked_sub(count).expect("a matrix has the rows of its parts");
        let skipped = count * if axis == 0 { row } else { 1 };
        let second = match rest {
            // What is behind the last element is no one's.
            0 => NonNull::dangling(),
            // SAFETY: the first element of the rest is one of the matrix.
            _ => unsafe { first.add(skipped) },
        };
        extents[axis] = rest;
        let rest = MatrixMut { first: second, extents, row, _own };
        extents[axis] = count;
        (MatrixMut { first, extents, row, _own }, rest)
    }
}

/// What becomes of what a matrix holds that a product is written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Previous {
    Replaced,
    Kept,
}

/// `c = a b`, or `c += a b` where the previous is kept, by this thread or by as many as there are.
///
/// # Panics
/// If the extents do not fit or one of them is 0.
pub(crate) fn multiply<T: Real>(
    a: Matrix<T>,
    b: Matrix<T>,
    (c, previous): (MatrixMut<T>, Previous),
    by: Parallelism,
) {
    let ([m, n], k) = (c.extents, a.extents[1]);
    assert_eq!([a.extents, b.extents], [[m, k], [k, n]], "extents of a product fit");
    assert!(m * n * k > 0, "a product has elements");
    // SAFETY: all elements of `a` and `b` are in their slices, which are borrowed and so not written: `new`
    // looked. Those of `c` are live, no two of them the same, and no one else's, as long as it lives.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.first.as_ptr(),
            1,
            c.row as isize,
            previous == Previous::Kept,
            a.at(),
            a.strides[1],
            a.strides[0],
            b.at(),
            b.strides[1],
            b.strides[0],
            if previous == Previous::Kept { T::ONE } else { T::ZERO },
            T::ONE,
            false,
            false,
            false,
            by,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn matrices_stay_inside() {
        let numbers = [0.0f32; 12];
        let fits =
            |first, strides| catch_unwind(|| Matrix::new(&numbers, first, [3, 4], strides)).is_ok();
        assert!(fits(0, [4, 1]) && fits(0, [1, 3]) && fits(11, [-4, -1]) && fits(8, [-4, 1]));
        assert!(fits(0, [0, 0]) && fits(8, [0, 1]));
        assert!(!fits(1, [4, 1]) && !fits(0, [5, 1]) && !fits(10, [-4, -1]) && !fits(7, [-4, 1]));
        assert!(!fits(9, [0, 1]) && !fits(0, [isize::MAX, isize::MAX]));
        let whole = Matrix::new(&numbers, 0, [3, 4], [4, 1]);
        assert!(catch_unwind(|| whole.part(0, 2, 2)).is_err(), "there are three rows");
        assert!(catch_unwind(|| Matrix::new(&numbers[..0], 0, [3, 4], [0, 0])).is_err());
    }

    #[test]
    fn parts_are_of_the_whole() {
        let a: Vec<f64> = (0..12).map(f64::from).collect();
        let b: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 5)).collect();
        // a^T lies column by column.
        let (a, b) = (Matrix::new(&a, 0, [3, 4], [1, 3]), Matrix::new(&b, 0, [4, 5], [5, 1]));
        let mut whole = [0.0; 15];
        multiply(a, b, (MatrixMut::of(&mut whole, 5), Previous::Replaced), Parallelism::None);
        let sum: i32 = (0..4).map(|k| (1 + 3 * k) * ((5 * k + 1) * 7 % 5)).sum();
        assert_eq!(whole[6], f64::from(sum));
        for axis in [0, 1] {
            let mut parts = [0.0; 15];
            let (first, second) = MatrixMut::of(&mut parts, 5).cut(axis, 2);
            let own = |from, count| match axis {
                0 => (a.part(0, from, count), b),
                _ => (a, b.part(1, from, count)),
            };
            let rest = second.extents[axis];
            for (c, (a, b)) in [(second, own(2, rest)), (first, own(0, 2))] {
                multiply(a, b, (c, Previous::Replaced), Parallelism::None);
            }
            assert_eq!(parts, whole);
            multiply(a, b, (MatrixMut::of(&mut parts, 5), Previous::Kept), Parallelism::None);
            assert_eq!(parts, whole.map(|sum| 2.0 * sum));
        }
        let (all, none) = MatrixMut::of(&mut whole, 5).cut(0, 3);
        assert_eq!((all.extents, none.extents), ([3, 5], [0, 5]));
    }
}
