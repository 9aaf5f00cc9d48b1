//! Typed device memory for programs that launch kernels themselves.
//!
//! ```
//! use genesis_kernel::{Array, Device};
//!
//! let stream = Device::Cpu.stream();
//! let x = stream.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! assert_eq!(x.view([2, 3])?.strides(), [3, 1]);
//! assert_eq!(x.to_vec()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
//! # Ok::<(), genesis_kernel::Error>(())
//! ```

use std::marker::PhantomData;

use super::arg::ViewArg;
use super::args::{AsPtr, AsPtrMut, AsView, AsViewMut, CheckedArg};
use super::buffer::Buffer;
use super::element::{self, HostElement};
use super::stream::Stream;
use crate::diag::Error;

/// A one-dimensional array on a device.
#[derive(Debug)]
pub struct Array<T> {
    buffer: Buffer,
    len: usize,
    element: PhantomData<T>,
}

/// A tensor over an array's memory, to read.
#[derive(Debug)]
pub struct ArrayView<'a, T, const RANK: usize> {
    arg: CheckedArg<'a>,
    array: PhantomData<&'a Array<T>>,
}

/// A tensor over an array's memory, to read and write.
#[derive(Debug)]
pub struct ArrayViewMut<'a, T, const RANK: usize> {
    arg: CheckedArg<'a>,
    array: PhantomData<&'a mut Array<T>>,
}

impl<T: HostElement> Array<T> {
    /// `len` zeros.
    pub fn zeros(stream: &Stream, len: usize) -> Result<Array<T>, Error> {
        let buffer = Buffer::zeroed(stream, byte_len::<T>(len)?)?;
        Ok(Array { buffer, len, element: PhantomData })
    }

    /// A copy of host memory.
    pub fn from_slice(stream: &Stream, values: &[T]) -> Result<Array<T>, Error> {
        let buffer = Buffer::from_bytes(stream, element::bytes_of(values))?;
        Ok(Array { buffer, len: values.len(), element: PhantomData })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The stream it lives on.
    pub fn stream(&self) -> &Stream {
        self.buffer.stream()
    }

    /// A copy on the host; waits for what was queued before.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        Ok(element::from_bytes(self.buffer.to_bytes()?))
    }

    /// Overwrites all elements from the host.
    ///
    /// # Errors
    /// If the lengths differ.
    pub fn write(&mut self, values: &[T]) -> Result<(), Error> {
        if values.len() != self.len {
            return Err(Error::launch(format!(
                "array: {} elements written to {}",
                values.len(),
                self.len
            )));
        }
        self.buffer.write(0, element::bytes_of(values))
    }

    /// All elements as a row-major tensor.
    ///
    /// # Errors
    /// If the extents do not multiply to the length.
    pub fn view<const RANK: usize>(
        &self,
        dims: [usize; RANK],
    ) -> Result<ArrayView<'_, T, RANK>, Error> {
        let arg = self.contiguous_arg(dims, false)?;
        Ok(ArrayView { arg, array: PhantomData })
    }

    /// All elements as a row-major tensor to write.
    ///
    /// # Errors
    /// If the extents do not multiply to the length.
    pub fn view_mut<const RANK: usize>(
        &mut self,
        dims: [usize; RANK],
    ) -> Result<ArrayViewMut<'_, T, RANK>, Error> {
        let arg = self.contiguous_arg(dims, true)?;
        Ok(ArrayViewMut { arg, array: PhantomData })
    }

    /// A tensor with strides of its own, in elements, that starts at element `offset`.
    ///
    /// # Errors
    /// If an element of it lies outside the array.
    pub fn strided<const RANK: usize>(
        &self,
        offset: usize,
        dims: [usize; RANK],
        strides: [i64; RANK],
    ) -> Result<ArrayView<'_, T, RANK>, Error> {
        let arg = self.strided_arg(offset, dims, strides, false)?;
        Ok(ArrayView { arg, array: PhantomData })
    }

    /// A tensor to write with strides of its own, in elements, that starts at element `offset`.
    ///
    /// # Errors
    /// If an element of it lies outside the array, or two coordinates may be one element; see
    /// [`CheckedArg::view`].
    pub fn strided_mut<const RANK: usize>(
        &mut self,
        offset: usize,
        dims: [usize; RANK],
        strides: [i64; RANK],
    ) -> Result<ArrayViewMut<'_, T, RANK>, Error> {
        let arg = self.strided_arg(offset, dims, strides, true)?;
        Ok(ArrayViewMut { arg, array: PhantomData })
    }

    /// A pointer to the first element.
    #[inline]
    pub(super) fn all(&self, mutable: bool) -> CheckedArg<'_> {
        CheckedArg::whole(&self.buffer, T::DTYPE, mutable)
    }

    /// A view of one axis.
    #[inline]
    pub(super) fn as_line(&self, mutable: bool) -> CheckedArg<'_> {
        CheckedArg::line(&self.buffer, self.len, T::DTYPE, mutable)
    }

    fn contiguous_arg<const RANK: usize>(
        &self,
        dims: [usize; RANK],
        mutable: bool,
    ) -> Result<CheckedArg<'_>, Error> {
        // A product with a 0 in it is 0, whatever the other extents multiply to.
        let numel = match dims.contains(&0) {
            true => Some(0),
            false => dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)),
        };
        if numel != Some(self.len) {
            return Err(Error::launch(format!(
                "view {dims:?} of an array of {} elements",
                self.len
            )));
        }
        let mut strides = [1i64; RANK];
        for axis in (1..RANK).rev() {
            // Of no elements a stride says nothing: it need not be exact.
            let extent = i64::try_from(dims[axis]).unwrap_or(i64::MAX);
            strides[axis - 1] = strides[axis].saturating_mul(extent);
        }
        self.strided_arg(0, dims, strides, mutable)
    }

    fn strided_arg<const RANK: usize>(
        &self,
        offset: usize,
        dims: [usize; RANK],
        strides: [i64; RANK],
        mutable: bool,
    ) -> Result<CheckedArg<'_>, Error> {
        let dims = dims.map(|dim| i64::try_from(dim).unwrap_or(i64::MAX));
        CheckedArg::view(&self.buffer, offset, T::DTYPE, (&dims, &strides), mutable)
    }
}

fn byte_len<T>(len: usize) -> Result<usize, Error> {
    len.checked_mul(size_of::<T>())
        .ok_or_else(|| Error::out_of_memory(format!("{len} elements do not fit into any memory")))
}

macro_rules! view_methods {
    ($view:ident) => {
        impl<T: HostElement, const RANK: usize> $view<'_, T, RANK> {
            /// The extents, outermost first.
            pub fn dims(&self) -> &[i64] {
                self.arg.as_view().map_or(&[], ViewArg::dims)
            }

            /// The strides in elements.
            pub fn strides(&self) -> &[i64] {
                self.arg.as_view().map_or(&[], ViewArg::strides)
            }

            #[inline]
            pub(super) fn checked_arg(&self) -> CheckedArg<'_> {
                self.arg
            }
        }
    };
}
view_methods!(ArrayView);
view_methods!(ArrayViewMut);

impl Stream {
    /// A copy of host memory on this stream's device.
    pub fn upload<T: HostElement>(&self, values: &[T]) -> Result<Array<T>, Error> {
        Array::from_slice(self, values)
    }
}

impl<T: HostElement> AsPtr<T> for &Array<T> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.all(false)
    }
}

impl<T: HostElement> AsPtr<T> for &mut Array<T> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.all(false)
    }
}

impl<T: HostElement> AsPtrMut<T> for &mut Array<T> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.all(true)
    }
}

impl<T: HostElement, const RANK: usize> AsView<T, RANK> for ArrayView<'_, T, RANK> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.checked_arg()
    }
}

impl<T: HostElement, const RANK: usize> AsView<T, RANK> for &ArrayView<'_, T, RANK> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.checked_arg()
    }
}

impl<T: HostElement, const RANK: usize> AsViewMut<T, RANK> for ArrayViewMut<'_, T, RANK> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.checked_arg()
    }
}

impl<T: HostElement, const RANK: usize> AsViewMut<T, RANK> for &mut ArrayViewMut<'_, T, RANK> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.checked_arg()
    }
}

/// An array is a view of one axis.
impl<T: HostElement> AsView<T, 1> for &Array<T> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.as_line(false)
    }
}

/// An array is a view of one axis.
impl<T: HostElement> AsViewMut<T, 1> for &mut Array<T> {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        self.as_line(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Device;

    #[test]
    fn values_come_back() {
        let stream = Device::Cpu.stream();
        let mut x = stream.upload(&[true, false, true]).unwrap();
        assert_eq!(x.to_vec().unwrap(), [true, false, true]);
        x.write(&[false; 3]).unwrap();
        assert_eq!(x.to_vec().unwrap(), [false; 3]);
        assert_eq!(Array::<f64>::zeros(&stream, 2).unwrap().to_vec().unwrap(), [0.0, 0.0]);
    }

    #[test]
    fn an_empty_array_is_fine() {
        let x = Device::Cpu.stream().upload::<i32>(&[]).unwrap();
        assert!(x.is_empty() && x.to_vec().unwrap().is_empty());
        assert_eq!(x.view([0, 4]).unwrap().dims(), [0, 4]);
    }

    #[test]
    fn a_view_stays_inside_its_array() {
        let x = Device::Cpu.stream().upload(&[0i16; 12]).unwrap();
        assert_eq!(x.view([3, 4]).unwrap().strides(), [4, 1]);
        assert!(x.view([3, 5]).is_err());
        assert!(x.strided(0, [3, 4], [4, 1]).is_ok());
        assert!(x.strided(11, [3], [-4]).is_ok());
        assert!(x.strided(7, [3], [-4]).is_err());
        let error = x.strided(1, [3, 4], [4, 1]).unwrap_err().to_string();
        assert_eq!(
            error,
            "view [3, 4] with strides [4, 1] from element 1: outside the array of 12 elements"
        );
    }

    #[test]
    fn no_extent_or_stride_wraps_around() {
        let x = Device::Cpu.stream().upload(&[0i16; 12]).unwrap();
        let (half, most, least) = (1 << 62, i64::MAX, i64::MIN);
        // Sums of reaches that are small modulo 2^64 or 2^128.
        assert!(x.strided(0, [5, 5], [half, -half]).is_err());
        assert!(x.strided(0, [usize::MAX, 2], [1, 1]).is_err());
        assert!(x.strided(0, [usize::MAX; 4], [most, most, least, most]).is_err());
        assert!(x.strided(0, [1 << 63, 1 << 63, 1 << 63, 1 << 63], [least; 4]).is_err());
        assert!(x.strided(usize::MAX, [1], [1]).is_err());
        assert!(x.strided(usize::MAX, [2], [least]).is_err());
        assert!(x.strided(usize::MAX, [0], [least]).is_ok());
        // The product of the extents is 0, those of some of them are not to be counted.
        let none = Device::Cpu.stream().upload::<i16>(&[]).unwrap();
        assert_eq!(none.view([1 << 62, 0, 1 << 62, 1 << 62]).unwrap().dims()[1], 0);
        assert!(none.view([1 << 62, 4, 1 << 2]).is_err());
    }

    #[test]
    fn what_is_written_has_each_element_once() {
        let mut x = Device::Cpu.stream().upload(&[0i16; 12]).unwrap();
        let mut check = |offset, dims: [usize; 2], strides| {
            assert!(x.strided(offset, dims, strides).is_ok());
            x.strided_mut(offset, dims, strides).is_ok()
        };
        // Dense, in columns, sliced, with steps, flipped; an axis of extent 1 may have any stride.
        assert!(check(0, [3, 4], [4, 1]) && check(0, [4, 3], [1, 4]) && check(1, [3, 2], [4, 1]));
        assert!(
            check(0, [3, 2], [4, 2]) && check(11, [3, 4], [-4, -1]) && check(0, [1, 12], [0, 1])
        );
        assert!(
            !check(0, [3, 4], [0, 1]) && !check(0, [3, 4], [4, 0]) && !check(0, [3, 4], [2, 1])
        );
        assert!(!check(0, [3, 3], [1, 1]) && !check(2, [3, 3], [1, -1]));
        let error = x.strided_mut(0, [2], [0]).unwrap_err().to_string();
        assert!(
            error.ends_with("several coordinates may be one element, which is not for writing")
        );
    }
}
