//! Arguments of a launch.
//!
//! An [`Arg`] carries what the launch checks: device, dtype and whether the kernel may write. The
//! typed launch that `#[kernel]` writes takes anything that converts: `&Array<T>` for `Ptr<T>`,
//! `&mut Array<T>` for `PtrMut<T>`, views for `View` and `ViewMut`, numbers for scalars.

use super::array::{Array, ArrayView, ArrayViewMut};
use super::device::Device;
use super::element::HostElement;
use crate::ir::{DType, MAX_RANK, Scalar};

/// One argument of a launch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arg {
    /// For `Ptr` and `PtrMut`.
    Ptr(PtrArg),
    /// For a scalar.
    Scalar(Scalar),
    /// For `View` and `ViewMut`.
    View(ViewArg),
}

/// An address on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PtrArg {
    /// Where the memory is.
    pub device: Device,
    /// The address of the first element.
    pub address: u64,
    /// The bytes that may be accessed from there on.
    pub bytes: u64,
    /// The dtype of the elements.
    pub dtype: DType,
    /// Whether the kernel may write.
    pub mutable: bool,
}

/// A tensor on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ViewArg {
    /// Where its memory is; `address` is that of the element with all coordinates 0, and `bytes`
    /// count from there.
    pub ptr: PtrArg,
    /// The number of axes.
    pub rank: u8,
    /// Extents, outermost first; 0 past the rank.
    pub dims: [i64; MAX_RANK],
    /// Strides in elements; 0 past the rank.
    pub strides: [i64; MAX_RANK],
}

impl ViewArg {
    /// A view with these extents and strides.
    ///
    /// Returns none if the lengths differ or are over [`MAX_RANK`].
    pub fn new(ptr: PtrArg, dims: &[i64], strides: &[i64]) -> Option<ViewArg> {
        if dims.len() != strides.len() || dims.len() > MAX_RANK {
            return None;
        }
        let rank = dims.len() as u8;
        let mut view = ViewArg { ptr, rank, dims: [0; MAX_RANK], strides: [0; MAX_RANK] };
        view.dims[..dims.len()].copy_from_slice(dims);
        view.strides[..strides.len()].copy_from_slice(strides);
        Some(view)
    }

    /// A view of so many elements that follow each other.
    #[inline]
    pub fn flat(ptr: PtrArg, elements: usize) -> ViewArg {
        let mut view = ViewArg { ptr, rank: 1, dims: [0; MAX_RANK], strides: [0; MAX_RANK] };
        (view.dims[0], view.strides[0]) = (elements as i64, 1);
        view
    }

    /// The extents.
    #[inline]
    pub fn dims(&self) -> &[i64] {
        &self.dims[..self.rank as usize]
    }

    /// The strides in elements.
    #[inline]
    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.rank as usize]
    }
}

/// What can be passed for a parameter `Ptr<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `Ptr<{T}>`",
    label = "expected `&Array<{T}>`"
)]
pub trait AsPtr<T: HostElement> {
    /// The argument.
    fn as_arg(&self) -> Arg;
}

/// What can be passed for a parameter `PtrMut<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `PtrMut<{T}>`",
    label = "expected `&mut Array<{T}>`"
)]
pub trait AsPtrMut<T: HostElement> {
    /// The argument.
    fn as_arg(&self) -> Arg;
}

/// What can be passed for a parameter `View<T, RANK>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `View<{T}, {RANK}>`",
    label = "expected a view of {RANK} axes: `array.view([..])`"
)]
pub trait AsView<T: HostElement, const RANK: usize> {
    /// The argument.
    fn as_arg(&self) -> Arg;
}

/// What can be passed for a parameter `ViewMut<T, RANK>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `ViewMut<{T}, {RANK}>`",
    label = "expected a mutable view of {RANK} axes: `array.view_mut([..])`"
)]
pub trait AsViewMut<T: HostElement, const RANK: usize> {
    /// The argument.
    fn as_arg(&self) -> Arg;
}

/// What can be passed for a scalar parameter of type `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a scalar `{T}`",
    label = "expected `{T}`"
)]
pub trait AsScalar<T: HostElement> {
    /// The argument.
    fn as_arg(&self) -> Arg;
}

impl<T: HostElement> AsPtr<T> for &Array<T> {
    fn as_arg(&self) -> Arg {
        Arg::Ptr(self.ptr_arg(false))
    }
}

impl<T: HostElement> AsPtr<T> for &mut Array<T> {
    fn as_arg(&self) -> Arg {
        Arg::Ptr(self.ptr_arg(false))
    }
}

impl<T: HostElement> AsPtrMut<T> for &mut Array<T> {
    fn as_arg(&self) -> Arg {
        Arg::Ptr(self.ptr_arg(true))
    }
}

impl<T: HostElement, const RANK: usize> AsView<T, RANK> for ArrayView<'_, T, RANK> {
    fn as_arg(&self) -> Arg {
        Arg::View(self.view_arg())
    }
}

impl<T: HostElement, const RANK: usize> AsView<T, RANK> for &ArrayView<'_, T, RANK> {
    fn as_arg(&self) -> Arg {
        Arg::View(self.view_arg())
    }
}

impl<T: HostElement, const RANK: usize> AsViewMut<T, RANK> for ArrayViewMut<'_, T, RANK> {
    fn as_arg(&self) -> Arg {
        Arg::View(self.view_arg())
    }
}

impl<T: HostElement, const RANK: usize> AsViewMut<T, RANK> for &mut ArrayViewMut<'_, T, RANK> {
    fn as_arg(&self) -> Arg {
        Arg::View(self.view_arg())
    }
}

/// An array is a view of one axis.
impl<T: HostElement> AsView<T, 1> for &Array<T> {
    fn as_arg(&self) -> Arg {
        let dims = [self.len() as i64];
        Arg::View(
            ViewArg::new(self.ptr_arg(false), &dims, &[1]).expect("one axis is under the limit"),
        )
    }
}

/// An array is a view of one axis.
impl<T: HostElement> AsViewMut<T, 1> for &mut Array<T> {
    fn as_arg(&self) -> Arg {
        let dims = [self.len() as i64];
        Arg::View(
            ViewArg::new(self.ptr_arg(true), &dims, &[1]).expect("one axis is under the limit"),
        )
    }
}

impl<T: HostElement> AsScalar<T> for T {
    fn as_arg(&self) -> Arg {
        Arg::Scalar(self.to_scalar())
    }
}

macro_rules! index_scalar {
    ($($ty:ty),*) => {$(
        /// An index: lengths and counts are passed as they are.
        impl AsScalar<i64> for $ty {
            fn as_arg(&self) -> Arg {
                // No length of anything in memory is over i64::MAX.
                Arg::Scalar(i64::try_from(*self).unwrap_or(i64::MAX).to_scalar())
            }
        }
    )*};
}
index_scalar!(i32, u32, usize);
