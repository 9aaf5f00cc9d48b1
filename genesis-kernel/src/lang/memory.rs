//! Pointers, and what can be read and written through them.

use std::marker::PhantomData;

use super::shape::Wider;
use super::{Bool, Element, Float, FloatLiteral, IntLiteral, Number, OneDType, Shape, Tile};

/// A pointer to numbers that the kernel reads.
pub struct Ptr<T>(PhantomData<T>);

/// A pointer to numbers that the kernel reads and writes. While the kernel runs nothing else does.
pub struct PtrMut<T>(PhantomData<T>);

macro_rules! copies {
    ($($ty:ident),*) => {$(
        impl<T> Clone for $ty<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $ty<T> {}
    )*};
}
copies!(Ptr, PtrMut);

/// A pointer or a tile of pointers.
#[diagnostic::on_unimplemented(
    message = "this needs a pointer or a tile of pointers, not `{Self}`",
    note = "add offsets to a parameter of type `Ptr<T>` or `PtrMut<T>`: `x + i`"
)]
pub trait Pointers: Copy {
    /// The dtype of what it points to.
    type Element: Element;
    /// The shape; `()` for one pointer.
    type Shape: Shape;
    /// The numbers there.
    type Value;
}

/// A pointer or a tile of pointers that may be written through.
#[diagnostic::on_unimplemented(
    message = "this needs a `PtrMut` or a tile of them, not `{Self}`",
    note = "a kernel writes through parameters of type `PtrMut<T>`"
)]
pub trait WritablePointers: Pointers {}

/// [`Ptr`] or [`PtrMut`].
#[doc(hidden)]
pub trait Pointer: Copy {
    /// The dtype of what it points to.
    type Element: Element;
}

impl<T: Element> Pointer for Ptr<T> {
    type Element = T;
}
impl<T: Element> Pointer for PtrMut<T> {
    type Element = T;
}

macro_rules! pointers {
    ($($ptr:ident),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: Element> Pointers for $ptr<T> {
            type Element = T;
            type Shape = ();
            type Value = T;
        }
    )*};
}
pointers!(Ptr, PtrMut);

#[diagnostic::do_not_recommend]
impl<P: Pointer, S: Shape> Pointers for Tile<P, S> {
    type Element = P::Element;
    type Shape = S;
    type Value = Tile<P::Element, S>;
}

#[diagnostic::do_not_recommend]
impl<T: Element> WritablePointers for PtrMut<T> {}
#[diagnostic::do_not_recommend]
impl<T: Element, S: Shape> WritablePointers for Tile<PtrMut<T>, S> {}

/// A mask for pointers of shape `S`.
#[diagnostic::on_unimplemented(
    message = "a mask is of dtype bool and fits the pointers, this is `{Self}`",
    note = "masks come from comparisons: `i < n`; the pointers have shape `{S}`, extents must be equal or 1"
)]
pub trait Mask<S> {}

#[diagnostic::do_not_recommend]
impl<S> Mask<S> for bool {}
impl<U: Element + Bool, S, M: Wider<S>> Mask<S> for Tile<U, M> {}

/// Numbers of dtype `T` that fit pointers of shape `S`: a tile, a scalar or a literal.
#[diagnostic::on_unimplemented(
    message = "values of dtype `{T}` that fit the pointers are needed, this is `{Self}`",
    note = "convert with `.to::<{T}>()`; the pointers have shape `{S}`, extents must be equal or 1"
)]
pub trait Stored<T, S> {}

#[diagnostic::do_not_recommend]
impl<T: Element, S> Stored<T, S> for T {}
#[diagnostic::do_not_recommend]
impl<T: Number, S> Stored<T, S> for IntLiteral {}
#[diagnostic::do_not_recommend]
impl<T: Float, S> Stored<T, S> for FloatLiteral {}
impl<T, U: Element + OneDType<T>, S, R: Wider<S>> Stored<T, S> for Tile<U, R> {}
