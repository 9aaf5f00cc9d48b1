//! Shapes as types, and what can be done with them: broadcast, drop an axis, add one.
//!
//! The unit extent is a type of its own, so that the implementations of [`Broadcast`] don't overlap.
//! Messages name extents as a person writes them: the check of two extents ends in a trait whose
//! parameters are the extents themselves, which rustc prints as `BM` or `128`.

use super::Tile;

/// An extent known at compile time.
#[derive(Clone, Copy, Debug)]
pub struct Dim<const N: usize>;

/// The unit extent, which broadcasts.
#[derive(Clone, Copy, Debug)]
pub struct One;

/// An axis, counted from 0 on the left.
#[derive(Clone, Copy, Debug)]
pub struct Axis<const N: usize>;

/// [`Dim<N>`](Dim) or [`One`].
pub trait Extent:
    Copy + 'static + Broadcast1<Self, Out = Self> + Broadcast1<One, Out = Self> + Wider1<Self>
{
}

impl<const N: usize> Extent for Dim<N> {}
impl Extent for One {}

/// A tuple of extents, outermost first.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    note = "a shape is a tuple of up to 5 extents: `(Dim<BM>, One)`"
)]
pub trait Shape:
    Copy + 'static + Broadcast<Self, Out = Self> + Broadcast<(), Out = Self> + Wider<Self>
{
    /// What has this shape: a tile, or the number itself where there are no axes.
    type Of<T: Copy>;
}

/// Shapes of one rank whose extents are equal or 1.
#[diagnostic::on_unimplemented(
    message = "tiles of shapes `{Self}` and `{R}` do not broadcast together",
    label = "the left side has shape `{Self}`, the right side `{R}`",
    note = "ranks must be equal, and extents equal or 1; `.row()`, `.col()` and `.expand_dims(axis)` add a unit axis"
)]
pub trait Broadcast<R> {
    /// The shape of both together.
    type Out: Shape;
}

/// Extents that are equal or 1.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the extents `{Self}` and `{R}` do not broadcast together",
    note = "extents must be equal or 1; `.row()`, `.col()` and `.expand_dims(axis)` add a unit axis"
)]
pub trait Broadcast1<R> {
    /// The extent of both together.
    type Out: Extent;
}

impl<const N: usize> Broadcast1<Dim<N>> for Dim<N> {
    type Out = Dim<N>;
}
impl<const N: usize> Broadcast1<One> for Dim<N> {
    type Out = Dim<N>;
}
impl<const N: usize> Broadcast1<Dim<N>> for One {
    type Out = Dim<N>;
}
impl Broadcast1<One> for One {
    type Out = One;
}

#[diagnostic::do_not_recommend]
impl Shape for () {
    type Of<T: Copy> = T;
}
#[diagnostic::do_not_recommend]
impl Broadcast<()> for () {
    type Out = ();
}

macro_rules! shapes {
    ($(($($x:ident $y:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($x: Extent),+> Shape for ($($x,)+) {
            type Of<T: Copy> = Tile<T, ($($x,)+)>;
        }
        #[diagnostic::do_not_recommend]
        impl<$($x: Extent),+> Broadcast<()> for ($($x,)+) {
            type Out = ($($x,)+);
        }
        #[diagnostic::do_not_recommend]
        impl<$($x: Broadcast1<$y>, $y),+> Broadcast<($($y,)+)> for ($($x,)+) {
            type Out = ($($x::Out,)+);
        }
    )*};
}
shapes! {
    (A F)
    (A F, B G)
    (A F, B G, C H)
    (A F, B G, C H, D I)
    (A F, B G, C H, D I, E J)
}

/// A shape that broadcasts to `R` and does not change it.
#[diagnostic::on_unimplemented(
    message = "a tile of shape `{Self}` does not fit `{R}`",
    note = "ranks must be equal, and extents equal or 1; `.row()`, `.col()` and `.expand_dims(axis)` add a unit axis"
)]
pub trait Wider<R> {}

/// An extent that is equal to `R`, or 1.
#[doc(hidden)]
pub trait Wider1<R> {}

#[diagnostic::do_not_recommend]
impl<const N: usize> Wider1<Dim<N>> for Dim<N> {}
#[diagnostic::do_not_recommend]
impl<R> Wider1<R> for One {}

macro_rules! wider {
    ($(($($x:ident $y:ident),*))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($x: Wider1<$y>, $y),*> Wider<($($y,)*)> for ($($x,)*) {}
    )*};
}
wider! {
    ()
    (A F)
    (A F, B G)
    (A F, B G, C H)
    (A F, B G, C H, D I)
    (A F, B G, C H, D I, E J)
}

/// An axis that a shape has, and the shape without it.
#[diagnostic::on_unimplemented(
    message = "a tile of shape `{S}` has no such axis",
    label = "there is no axis {Self}",
    note = "axes count from 0: of a tile [M, N], 0 is M and 1 is N"
)]
pub trait DropAxis<S> {
    /// The shape without the axis.
    type Out: Shape;
}

/// An axis that a shape has, and the shape with another extent there.
#[diagnostic::on_unimplemented(
    message = "a tile of shape `{S}` has no such axis",
    label = "there is no axis {Self}",
    note = "axes count from 0: of a tile [M, N], 0 is M and 1 is N"
)]
pub trait SetAxis<S> {
    /// The shape with this extent.
    type Out<E: Extent>: Shape;
}

/// A unit axis of a shape, and the shape without it.
#[diagnostic::on_unimplemented(
    message = "a tile of shape `{S}` has no unit axis there",
    label = "{Self} is not of extent 1",
    note = "`squeeze` drops an axis that was loaded or made with extent 1"
)]
pub trait RemoveUnit<S> {
    /// The shape without the axis.
    type Out: Shape;
}

/// A place for a new unit axis.
#[diagnostic::on_unimplemented(
    message = "a tile of shape `{S}` can't get an axis there",
    label = "there is no place {Self}",
    note = "a tile has at most 5 axes, and a new one can stand from 0 to the rank"
)]
pub trait InsertAxis<S> {
    /// The shape with the axis.
    type Out: Shape;
}

/// The extent of an axis.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a tile of shape `{S}` has no such axis",
    label = "there is no axis {Self}"
)]
pub trait At<S> {
    /// The extent.
    type Extent: Extent;
}

macro_rules! axes {
    ($(($($before:ident),*) $x:ident ($($after:ident),*) $axis:literal;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($before: Extent,)* $x: Extent, $($after: Extent),*>
            DropAxis<($($before,)* $x, $($after,)*)> for Axis<$axis>
        {
            type Out = ($($before,)* $($after,)*);
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Extent,)* $x: Extent, $($after: Extent),*>
            SetAxis<($($before,)* $x, $($after,)*)> for Axis<$axis>
        {
            type Out<Z: Extent> = ($($before,)* Z, $($after,)*);
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Extent,)* $($after: Extent),*>
            RemoveUnit<($($before,)* One, $($after,)*)> for Axis<$axis>
        {
            type Out = ($($before,)* $($after,)*);
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Extent,)* $($after: Extent),*>
            InsertAxis<($($before,)* $($after,)*)> for Axis<$axis>
        {
            type Out = ($($before,)* One, $($after,)*);
        }
        #[diagnostic::do_not_recommend]
        impl<$($before: Extent,)* $x: Extent, $($after: Extent),*>
            At<($($before,)* $x, $($after,)*)> for Axis<$axis>
        {
            type Extent = $x;
        }
    )*};
}
axes! {
    () A () 0;
    () A (B) 0; (A) B () 1;
    () A (B, C) 0; (A) B (C) 1; (A, B) C () 2;
    () A (B, C, D) 0; (A) B (C, D) 1; (A, B) C (D) 2; (A, B, C) D () 3;
    () A (B, C, D, E) 0; (A) B (C, D, E) 1; (A, B) C (D, E) 2; (A, B, C) D (E) 3; (A, B, C, D) E () 4;
}

/// A shape with the last two axes exchanged.
#[diagnostic::on_unimplemented(
    message = "`trans` needs at least two axes, this has shape `{Self}`",
    note = "`.row()` or `.col()` makes two axes of one"
)]
pub trait Transpose {
    /// The result.
    type Out: Shape;
}

#[diagnostic::do_not_recommend]
impl<A: Extent, B: Extent> Transpose for (A, B) {
    type Out = (B, A);
}
#[diagnostic::do_not_recommend]
impl<A: Extent, B: Extent, C: Extent> Transpose for (A, B, C) {
    type Out = (A, C, B);
}
#[diagnostic::do_not_recommend]
impl<A: Extent, B: Extent, C: Extent, D: Extent> Transpose for (A, B, C, D) {
    type Out = (A, B, D, C);
}
#[diagnostic::do_not_recommend]
impl<A: Extent, B: Extent, C: Extent, D: Extent, E: Extent> Transpose for (A, B, C, D, E) {
    type Out = (A, B, C, E, D);
}

/// An order of the axes of a shape: axis `i` of the result is axis `order[i]`.
#[diagnostic::on_unimplemented(
    message = "this order does not fit a tile of shape `{S}`",
    note = "name each axis once, counted from 0"
)]
pub trait Permute<S> {
    /// The result.
    type Out: Shape;
}

macro_rules! orders {
    ($($shape:ty: $($x:ident $axis:ident),+;)*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$(const $axis: usize,)+ $($x: Extent),+> Permute<$shape> for ($(Axis<$axis>,)+)
        where
            $(Axis<$axis>: At<$shape>,)+
        {
            type Out = ($(<Axis<$axis> as At<$shape>>::Extent,)+);
        }
    )*};
}
orders! {
    (A,): A V;
    (A, B): A V, B W;
    (A, B, C): A V, B W, C X;
    (A, B, C, D): A V, B W, C X, D Y;
    (A, B, C, D, E): A V, B W, C X, D Y, E Z;
}

/// A shape that can get a last axis of extent 2.
#[diagnostic::on_unimplemented(message = "a tile of shape `{Self}` can't be joined")]
pub trait Append {
    /// The result.
    type Out: Shape;
}

/// A shape whose last axis has extent 2.
#[diagnostic::on_unimplemented(
    message = "`split` needs a last axis of extent 2, this has shape `{Self}`"
)]
pub trait SplitLast {
    /// The shape without it.
    type Out: Shape;
}

macro_rules! pairs {
    ($(($($x:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($x: Extent),+> Append for ($($x,)+) {
            type Out = ($($x,)+ Dim<2>);
        }
        #[diagnostic::do_not_recommend]
        impl<$($x: Extent),+> SplitLast for ($($x,)+ Dim<2>) {
            type Out = ($($x,)+);
        }
    )*};
}
pairs! { (A) (A, B) (A, B, C) (A, B, C, D) }

#[diagnostic::do_not_recommend]
impl SplitLast for (Dim<2>,) {
    type Out = ();
}

/// Shapes with this many axes.
#[diagnostic::on_unimplemented(
    message = "a tile of shape `{Self}` does not fit a view of {RANK} axes",
    note = "write one extent for each axis of the view, 1 where only one index is taken"
)]
pub trait Rank<const RANK: usize>: Shape {}

#[diagnostic::do_not_recommend]
impl<A: Extent> Rank<1> for (A,) {}
#[diagnostic::do_not_recommend]
impl<A: Extent, B: Extent> Rank<2> for (A, B) {}
#[diagnostic::do_not_recommend]
impl<A: Extent, B: Extent, C: Extent> Rank<3> for (A, B, C) {}
#[diagnostic::do_not_recommend]
impl<A: Extent, B: Extent, C: Extent, D: Extent> Rank<4> for (A, B, C, D) {}
#[diagnostic::do_not_recommend]
impl<A: Extent, B: Extent, C: Extent, D: Extent, E: Extent> Rank<5> for (A, B, C, D, E) {}

/// A tile that can get a unit axis before this one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't get an axis at {AXIS}",
    label = "there is no place {AXIS}",
    note = "a tile has at most 5 axes, and a new one stands from 0 to the rank"
)]
pub trait Expand<const AXIS: usize> {
    /// The tile with the axis.
    type Out;
}

#[diagnostic::do_not_recommend]
impl<T, S, const AXIS: usize> Expand<AXIS> for Tile<T, S>
where
    Axis<AXIS>: InsertAxis<S>,
{
    type Out = Tile<T, <Axis<AXIS> as InsertAxis<S>>::Out>;
}

/// A tile whose axis has extent 1.
#[diagnostic::on_unimplemented(
    message = "axis {AXIS} of `{Self}` is no unit axis",
    label = "axis {AXIS} is not of extent 1",
    note = "`squeeze` drops an axis that was loaded or made with extent 1"
)]
pub trait Squeeze<const AXIS: usize> {
    /// The tile without the axis.
    type Out;
}

#[diagnostic::do_not_recommend]
impl<T: Copy, S, const AXIS: usize> Squeeze<AXIS> for Tile<T, S>
where
    Axis<AXIS>: RemoveUnit<S>,
{
    type Out = <<Axis<AXIS> as RemoveUnit<S>>::Out as Shape>::Of<T>;
}
