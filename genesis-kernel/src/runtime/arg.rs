//! Arguments of a launch as plain data.

use super::device::Device;
use crate::ir::{DType, MAX_RANK, Scalar};

/// One argument of a launch as plain data: nothing says that the memory is there, or still there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arg {
    /// For `Ptr` and `PtrMut`.
    Ptr(PtrArg),
    /// For a scalar.
    Scalar(Scalar),
    /// For `View` and `ViewMut`.
    View(ViewArg),
    /// For the first of the two parameters that `Views` and `ViewsMut` are: what all views of a list have in common. An
    /// extent or a stride has the bits of all of them, so that it is a multiple of what they all are, and as large; a
    /// stride of 0 or 1 is that of each. The address is what the table counts from, and no view's is a multiple of less;
    /// the bytes are those of all views together.
    Views(ViewArg),
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

impl PtrArg {
    /// What is passed for an argument that is not there.
    pub(crate) fn nothing(dtype: DType, mutable: bool) -> PtrArg {
        PtrArg { device: Device::Cpu, address: 0, bytes: 0, dtype, mutable }
    }

    /// Whether there is no memory that it could be about.
    pub(crate) fn is_nothing(&self) -> bool {
        self.address == 0 && self.bytes == 0
    }
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
    /// A view of nothing, for an argument that is not there.
    pub(crate) fn nothing(ptr: PtrArg, rank: u8) -> ViewArg {
        let (dims, strides) = ([0; MAX_RANK], [0; MAX_RANK]);
        ViewArg { ptr, rank: rank.min(MAX_RANK as u8), dims, strides }
    }

    /// Whether it is one: a view of no elements has strides.
    pub(crate) fn is_nothing(&self) -> bool {
        self.ptr.is_nothing() && self.strides == [0; MAX_RANK] && self.dims == [0; MAX_RANK]
    }

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
