//! Tensors in memory with extents and strides, loaded and stored by coordinates.

use std::marker::PhantomData;

use super::shape::Rank;
use super::{
    Element, Float, FloatLiteral, IntLiteral, Mask, Number, OneDType, Ptr, PtrMut, Tile, typed,
};

/// A tensor of `RANK` axes that the kernel reads.
pub struct View<T, const RANK: usize>(PhantomData<T>);

/// A tensor of `RANK` axes that the kernel reads and writes. While the kernel runs nothing else does.
pub struct ViewMut<T, const RANK: usize>(PhantomData<T>);

/// A view that has this axis.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no axis {AXIS}",
    label = "there is no axis {AXIS}",
    note = "axes count from 0"
)]
pub trait ViewAxis<const AXIS: usize> {}

macro_rules! view_axes {
    ($($rank:literal: $($axis:literal)*;)*) => {$($(
        #[diagnostic::do_not_recommend]
        impl<T> ViewAxis<$axis> for View<T, $rank> {}
        #[diagnostic::do_not_recommend]
        impl<T> ViewAxis<$axis> for ViewMut<T, $rank> {}
    )*)*};
}
view_axes! {
    1: 0;
    2: 0 1;
    3: 0 1 2;
    4: 0 1 2 3;
    5: 0 1 2 3 4;
}

/// `view.dim(axis)`
#[doc(hidden)]
pub fn dim<const AXIS: usize, V: ViewAxis<AXIS>>(_view: V) -> i64 {
    typed()
}

/// `view.stride(axis)`
#[doc(hidden)]
pub fn stride<const AXIS: usize, V: ViewAxis<AXIS>>(_view: V) -> i64 {
    typed()
}

impl<T, const RANK: usize> Clone for View<T, RANK> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const RANK: usize> Copy for View<T, RANK> {}

impl<T, const RANK: usize> Clone for ViewMut<T, RANK> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const RANK: usize> Copy for ViewMut<T, RANK> {}

/// Gives methods to views of both kinds. They are the macro's input, so that rustc's messages about them point at them
/// and not at a macro.
macro_rules! of_both {
    ($methods:tt) => {
        impl<T: Element, const RANK: usize> View<T, RANK> $methods

        impl<T: Element, const RANK: usize> ViewMut<T, RANK> $methods
    };
}

of_both! {{
    /// The extent along an axis, in elements.
    pub fn dim(self, _axis: i64) -> i64 {
        typed()
    }

    /// The distance of neighbours along an axis, in elements.
    pub fn stride(self, _axis: i64) -> i64 {
        typed()
    }

    /// The tile whose first element is at these coordinates; zero past the edge.
    pub fn load<S: Rank<RANK>>(self, _coordinates: [i64; RANK]) -> Tile<T, S> {
        typed()
    }

    /// As `load`, of elements that are not read again soon: caches give them up first. Only speed may
    /// change.
    pub fn load_once<S: Rank<RANK>>(self, _coordinates: [i64; RANK]) -> Tile<T, S> {
        typed()
    }

    /// As `load`, of elements that are read again and again: caches give them up last. Only speed may
    /// change.
    pub fn load_kept<S: Rank<RANK>>(self, _coordinates: [i64; RANK]) -> Tile<T, S> {
        typed()
    }

    /// The view of the elements from these coordinates on, so many along each axis, as far as there are any; of none
    /// along an axis whose coordinate lies outside.
    pub fn subview(self, _coordinates: [i64; RANK], _extents: [i64; RANK]) -> Self {
        self
    }

    /// [`subview`](Self::subview) of every second element, or as far apart as the steps along each axis say; of none
    /// where a step is below 1.
    pub fn subview_by(
        self,
        _coordinates: [i64; RANK],
        _extents: [i64; RANK],
        _steps: [i64; RANK],
    ) -> Self {
        self
    }
}}

impl<T: Element, const RANK: usize> View<T, RANK> {
    /// A pointer to the element with all coordinates 0.
    pub fn ptr(self) -> Ptr<T> {
        typed()
    }
}

impl<T: Element, const RANK: usize> ViewMut<T, RANK> {
    /// A pointer to the element with all coordinates 0.
    pub fn ptr(self) -> PtrMut<T> {
        typed()
    }

    /// Writes a tile at these coordinates; nothing past the edge.
    pub fn store<V: TileOf<T, RANK>>(self, _coordinates: [i64; RANK], _value: V) {}

    /// `store` of the elements where the mask is true.
    pub fn store_masked<V, M>(self, _coordinates: [i64; RANK], _value: V, _mask: M)
    where
        V: TileOf<T, RANK>,
        M: Mask<V::Shape>,
    {
    }

    /// As `store`, of elements that are not used again soon: caches give them up first. Only speed may
    /// change.
    pub fn store_once<V: TileOf<T, RANK>>(self, _coordinates: [i64; RANK], _value: V) {}

    /// `store_once` of the elements where the mask is true.
    pub fn store_once_masked<V, M>(self, _coordinates: [i64; RANK], _value: V, _mask: M)
    where
        V: TileOf<T, RANK>,
        M: Mask<V::Shape>,
    {
    }

    /// As `store`, of elements that are used again and again: caches give them up last. Only speed may
    /// change.
    pub fn store_kept<V: TileOf<T, RANK>>(self, _coordinates: [i64; RANK], _value: V) {}

    /// `store_kept` of the elements where the mask is true.
    pub fn store_kept_masked<V, M>(self, _coordinates: [i64; RANK], _value: V, _mask: M)
    where
        V: TileOf<T, RANK>,
        M: Mask<V::Shape>,
    {
    }
}

/// One pointer, and the view that [`view_of`](super::functions::view_of) makes of it.
#[diagnostic::on_unimplemented(
    message = "a view is made of one pointer, not of `{Self}`",
    note = "give it a parameter of type `Ptr<T>` or `PtrMut<T>`, or `view.ptr()`"
)]
pub trait ViewOf<const RANK: usize> {
    /// The view.
    type View;
}

impl<T: Element, const RANK: usize> ViewOf<RANK> for Ptr<T> {
    type View = View<T, RANK>;
}
impl<T: Element, const RANK: usize> ViewOf<RANK> for PtrMut<T> {
    type View = ViewMut<T, RANK>;
}

/// A tile that a view of `RANK` axes of dtype `T` can store.
#[diagnostic::on_unimplemented(
    message = "a view of {RANK} axes of dtype `{T}` can't store `{Self}`",
    note = "convert with `.to::<{T}>()`; `.expand_dims(axis)`, `.row()` and `.col()` add a unit axis"
)]
pub trait TileOf<T, const RANK: usize> {
    /// The shape, which a mask fits; `()` of a number.
    type Shape;
}

impl<T, U, S, const RANK: usize> TileOf<T, RANK> for Tile<U, S>
where
    U: Element + OneDType<T>,
    S: Rank<RANK>,
{
    type Shape = S;
}

/// A number stored by a view is a tile of extents 1.
#[diagnostic::do_not_recommend]
impl<T: Element, const RANK: usize> TileOf<T, RANK> for T {
    type Shape = ();
}
#[diagnostic::do_not_recommend]
impl<T: Number, const RANK: usize> TileOf<T, RANK> for IntLiteral {
    type Shape = ();
}
#[diagnostic::do_not_recommend]
impl<T: Float, const RANK: usize> TileOf<T, RANK> for FloatLiteral {
    type Shape = ();
}
