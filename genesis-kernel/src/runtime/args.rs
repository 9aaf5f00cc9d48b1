//! Arguments of a launch.
//!
//! There are two kinds, as there are references and raw pointers in Rust. A [`CheckedArg`] borrows the buffer
//! that it is about and lies inside it: only its constructors make one, and a safe launch takes nothing else.
//! An [`Arg`] is plain data, an address and what its maker says of it; a launch that takes one is `unsafe`.
//!
//! What a list of views has is one argument of the kind that borrows many buffers.
//!
//! The typed launch that `#[kernel]` writes takes anything that converts to a `CheckedArg`: `&Array<T>` for
//! `Ptr<T>`, `&mut Array<T>` for `PtrMut<T>`, views for `View` and `ViewMut`, numbers for scalars. The traits
//! may be implemented for any type: what they give is checked already.

use super::arg::{Arg, PtrArg, ViewArg};
use super::buffer::Buffer;
use super::element::HostElement;
use super::reach;
use super::stream::Stream;
use crate::diag::Error;
use crate::ir::{DType, MAX_RANK, Scalar};

/// One argument of a safe launch: a number, or memory of a buffer that it borrows.
#[derive(Clone, Copy, Debug)]
pub struct CheckedArg<'a> {
    arg: Arg,
    of: Owner<'a>,
}

/// What the memory of an argument belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner<'a> {
    /// There is none: a number, or nothing.
    Nobody,
    Buffer(&'a Buffer),
    /// Each view of a list to its own. The table, which is the next argument, is the list's.
    Views {
        views: &'a [CheckedArg<'a>],
        table: &'a ViewArg,
    },
}

impl<'a> CheckedArg<'a> {
    /// A number.
    #[inline]
    pub fn scalar(scalar: Scalar) -> CheckedArg<'a> {
        CheckedArg { arg: Arg::Scalar(scalar), of: Owner::Nobody }
    }

    /// A pointer to element `offset` of a buffer of such elements. What may be accessed goes on to its end.
    ///
    /// # Errors
    /// If the element lies behind the end.
    pub fn ptr(
        buffer: &'a Buffer,
        offset: usize,
        dtype: DType,
        mutable: bool,
    ) -> Result<CheckedArg<'a>, Error> {
        let ptr = ptr_at(buffer, offset, dtype, mutable).ok_or_else(|| {
            let bytes = buffer.bytes();
            Error::launch(format!("element {offset} of {dtype} lies outside of {bytes} bytes"))
        })?;
        Ok(CheckedArg { arg: Arg::Ptr(ptr), of: Owner::Buffer(buffer) })
    }

    /// A pointer to the first byte of a buffer.
    #[inline]
    pub(super) fn whole(buffer: &'a Buffer, dtype: DType, mutable: bool) -> CheckedArg<'a> {
        CheckedArg { arg: Arg::Ptr(start_of(buffer, dtype, mutable)), of: Owner::Buffer(buffer) }
    }

    /// A view of the elements that a buffer was made for, one after the other.
    ///
    /// # Panics
    /// If the buffer does not hold as many.
    #[inline]
    pub(super) fn line(
        buffer: &'a Buffer,
        elements: usize,
        dtype: DType,
        mutable: bool,
    ) -> CheckedArg<'a> {
        assert!(elements <= buffer.bytes() / dtype.bytes(), "the buffer holds fewer elements");
        let view = ViewArg::flat(start_of(buffer, dtype, mutable), elements);
        CheckedArg { arg: Arg::View(view), of: Owner::Buffer(buffer) }
    }

    /// A view of a buffer's elements: `offset` is that of the element with all coordinates 0, strides count
    /// elements.
    ///
    /// # Errors
    /// If an element lies outside the buffer, an extent is negative, the extents and strides differ in
    /// number or are over [`MAX_RANK`]; if it is `mutable` and two coordinates may be one element. The last
    /// is refused wherever the axes, in the order of their strides, do not each step over what those before
    /// reach: dense, permuted, sliced and flipped layouts all do.
    pub fn view(
        buffer: &'a Buffer,
        offset: usize,
        dtype: DType,
        (dims, strides): (&[i64], &[i64]),
        mutable: bool,
    ) -> Result<CheckedArg<'a>, Error> {
        let refuse = |why: String| {
            Error::launch(format!(
                "view {dims:?} with strides {strides:?} from element {offset}: {why}"
            ))
        };
        if dims.iter().any(|&dim| dim < 0) {
            return Err(refuse("no extent may be negative".to_owned()));
        }
        let outside = || {
            let elements = buffer.bytes() / dtype.bytes();
            refuse(format!("outside the array of {elements} elements"))
        };
        let (start, end) = (offset as i128, (buffer.bytes() / dtype.bytes()) as i128);
        let reach = reach::reach(dims, strides);
        let is_inside = |&(low, high): &(i128, i128)| {
            start.saturating_add(low) >= 0 && start.saturating_add(high) < end
        };
        let ptr = match reach {
            Some(reach) if is_inside(&reach) => ptr_at(buffer, offset, dtype, mutable),
            Some(_) => None,
            // Of no elements: where it starts is of no matter.
            None => ptr_at(buffer, offset.min(end as usize), dtype, mutable),
        };
        if mutable && reach::overlaps_itself(dims, strides) {
            return Err(refuse(
                "several coordinates may be one element, which is not for writing".to_owned(),
            ));
        }
        let view = ViewArg::new(ptr.ok_or_else(outside)?, dims, strides).ok_or_else(|| {
            refuse(format!("a view has at most {MAX_RANK} axes, each with a stride"))
        })?;
        Ok(CheckedArg { arg: Arg::View(view), of: Owner::Buffer(buffer) })
    }

    /// A pointer to nothing, for an argument that is not there.
    pub(super) fn no_ptr(dtype: DType, mutable: bool) -> CheckedArg<'a> {
        CheckedArg { arg: Arg::Ptr(PtrArg::nothing(dtype, mutable)), of: Owner::Nobody }
    }

    /// A view of nothing, for an argument that is not there.
    pub(super) fn no_view(dtype: DType, rank: usize, mutable: bool) -> CheckedArg<'a> {
        let view = ViewArg::nothing(PtrArg::nothing(dtype, mutable), rank.min(MAX_RANK) as u8);
        CheckedArg { arg: Arg::View(view), of: Owner::Nobody }
    }

    /// What the views of a list have in common, whose table is this view.
    pub(super) fn list(
        all: ViewArg,
        views: &'a [CheckedArg<'a>],
        table: &'a ViewArg,
    ) -> CheckedArg<'a> {
        CheckedArg { arg: Arg::Views(all), of: Owner::Views { views, table } }
    }

    /// Whether the argument behind this one is what it has to be: behind a list's views their own table, from which a
    /// kernel reads where in memory they are.
    #[inline]
    pub(crate) fn fits_next(&self, next: Option<&CheckedArg<'_>>) -> bool {
        match self.of {
            Owner::Nobody | Owner::Buffer(_) => true,
            Owner::Views { table, .. } => next.is_some_and(|next| next.arg == Arg::View(*table)),
        }
    }

    /// The arguments whose memory this one is about: itself, or each view of a list.
    #[inline]
    pub(crate) fn parts(&self) -> &[CheckedArg<'a>] {
        match self.of {
            Owner::Views { views, .. } => views,
            Owner::Nobody | Owner::Buffer(_) => std::slice::from_ref(self),
        }
    }

    /// The argument as plain data.
    #[inline]
    pub fn arg(&self) -> Arg {
        self.arg
    }

    /// A view as a pointer to its element with all coordinates 0; anything else as it is.
    pub fn as_ptr(&self) -> CheckedArg<'a> {
        match self.arg {
            Arg::View(view) => CheckedArg { arg: Arg::Ptr(view.ptr), ..*self },
            Arg::Ptr(_) | Arg::Scalar(_) | Arg::Views(_) => *self,
        }
    }

    /// The view, if it is one.
    pub(super) fn as_view(&self) -> Option<&ViewArg> {
        match &self.arg {
            Arg::View(view) => Some(view),
            Arg::Ptr(_) | Arg::Scalar(_) | Arg::Views(_) => None,
        }
    }

    /// Lets work of a stream use the memory: it is there until the work is done, and has arrived.
    #[inline]
    pub(crate) fn lend(&self, stream: &Stream) -> Result<(), Error> {
        match self.of {
            Owner::Nobody => Ok(()),
            Owner::Buffer(buffer) => {
                buffer.lend(stream);
                buffer.wait_arrived()
            }
            Owner::Views { views, .. } => views.iter().try_for_each(|view| view.lend(stream)),
        }
    }
}

#[inline]
fn start_of(buffer: &Buffer, dtype: DType, mutable: bool) -> PtrArg {
    let (address, bytes) = (buffer.address(), buffer.bytes() as u64);
    PtrArg { device: buffer.device(), address, bytes, dtype, mutable }
}

/// Element `offset` of a buffer, if it or the end of the buffer is there.
fn ptr_at(buffer: &Buffer, offset: usize, dtype: DType, mutable: bool) -> Option<PtrArg> {
    let skipped = offset.checked_mul(dtype.bytes()).filter(|&skipped| skipped <= buffer.bytes())?;
    let (address, bytes) = (buffer.address() + skipped as u64, (buffer.bytes() - skipped) as u64);
    Some(PtrArg { device: buffer.device(), address, bytes, dtype, mutable })
}

/// What can be passed for a parameter `Ptr<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `Ptr<{T}>`",
    label = "expected `&Array<{T}>`"
)]
pub trait AsPtr<T: HostElement> {
    /// The argument.
    fn as_arg(&self) -> CheckedArg<'_>;
}

/// What can be passed for a parameter `PtrMut<T>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `PtrMut<{T}>`",
    label = "expected `&mut Array<{T}>`"
)]
pub trait AsPtrMut<T: HostElement> {
    /// The argument.
    fn as_arg(&self) -> CheckedArg<'_>;
}

/// What can be passed for a parameter `View<T, RANK>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `View<{T}, {RANK}>`",
    label = "expected a view of {RANK} axes: `array.view([..])`"
)]
pub trait AsView<T: HostElement, const RANK: usize> {
    /// The argument.
    fn as_arg(&self) -> CheckedArg<'_>;
}

/// What can be passed for a parameter `ViewMut<T, RANK>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `ViewMut<{T}, {RANK}>`",
    label = "expected a mutable view of {RANK} axes: `array.view_mut([..])`"
)]
pub trait AsViewMut<T: HostElement, const RANK: usize> {
    /// The argument.
    fn as_arg(&self) -> CheckedArg<'_>;
}

/// What can be passed for a scalar parameter of type `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a scalar `{T}`",
    label = "expected `{T}`"
)]
pub trait AsScalar<T: HostElement> {
    /// The argument.
    fn as_arg(&self) -> CheckedArg<'_>;
}

/// What can be passed for a parameter that is a struct `P`: `#[derive(KernelParam)]` makes it, a struct of the same
/// fields whose name has `Arg` behind it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be passed for a `{P}`",
    label = "expected the arguments of its fields, as in `{P}Arg {{ .. }}`"
)]
pub trait AsParam<P> {
    /// Adds the argument of each field, in order.
    fn add_to<'arg>(&'arg self, args: &mut Vec<CheckedArg<'arg>>);

    /// Adds whether each optional field is given, in order.
    fn presences(&self, _there: &mut Vec<bool>) {}

    /// The arguments as plain data, for a launch that takes such.
    fn args(&self) -> Vec<Arg> {
        let mut args = Vec::new();
        self.add_to(&mut args);
        args.iter().map(CheckedArg::arg).collect()
    }
}

impl<T: HostElement> AsScalar<T> for T {
    #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
        CheckedArg::scalar(self.to_scalar())
    }
}

macro_rules! index_scalar {
    ($($ty:ty),*) => {$(
        /// An index: lengths and counts are passed as they are.
        impl AsScalar<i64> for $ty {
            #[inline]
    fn as_arg(&self) -> CheckedArg<'_> {
                // No length of anything in memory is over i64::MAX.
                CheckedArg::scalar(i64::try_from(*self).unwrap_or(i64::MAX).to_scalar())
            }
        }
    )*};
}
index_scalar!(i32, u32, usize);
