//! Reductions and scans along an axis.

use super::shape::{DropAxis, SetAxis};
use super::{Axis, Element, Extent, Shape, Tile};

/// A device function that combines two elements into one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not combine two elements of type `{A}`",
    note = "write a `#[device]` function that takes two values of this type and gives one"
)]
pub trait Combine<A> {}

/// Tiles of one shape that are reduced together, along an axis.
#[diagnostic::on_unimplemented(
    message = "this can't be reduced along axis {AXIS}",
    label = "there is no axis {AXIS}, or this is no tile and no tuple of 2 to 8 tiles of one shape",
    note = "axes count from 0"
)]
pub trait Reducible<const AXIS: usize> {
    /// One element of each.
    type Element;
    /// What is left.
    type Out;
}

/// A tile that has this axis.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no axis {AXIS}",
    label = "there is no axis {AXIS}",
    note = "axes count from 0: of a tile [M, N], 0 is M and 1 is N; of any shape, `S: Shape`, none is known"
)]
pub trait HasAxis<const AXIS: usize> {
    /// The dtype.
    type Element: Element;
    /// Numbers of a dtype without the axis.
    type Without<U: Element>;
    /// Numbers of a dtype with another extent along the axis.
    type Set<E: Extent, U: Element>: Copy;
}

#[diagnostic::do_not_recommend]
impl<T: Element, S, const AXIS: usize> HasAxis<AXIS> for Tile<T, S>
where
    Axis<AXIS>: DropAxis<S> + SetAxis<S>,
{
    type Element = T;
    type Set<E: Extent, U: Element> = Tile<U, <Axis<AXIS> as SetAxis<S>>::Out<E>>;
    type Without<U: Element> = <<Axis<AXIS> as DropAxis<S>>::Out as Shape>::Of<U>;
}

#[diagnostic::do_not_recommend]
impl<T: Element, S, const AXIS: usize> Reducible<AXIS> for Tile<T, S>
where
    Axis<AXIS>: DropAxis<S>,
{
    type Element = T;
    type Out = <<Axis<AXIS> as DropAxis<S>>::Out as Shape>::Of<T>;
}

/// Tiles of one shape that are scanned together.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be scanned along this axis",
    note = "a scan takes a tile, or a tuple of 2 to 8 tiles of one shape"
)]
pub trait Scannable<const AXIS: usize> {
    /// One element of each.
    type Element;
}

#[diagnostic::do_not_recommend]
impl<T: Element, S, const AXIS: usize> Scannable<AXIS> for Tile<T, S>
where
    Axis<AXIS>: DropAxis<S>,
{
    type Element = T;
}

macro_rules! tuples {
    ($(($($x:ident),+))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($x: Element,)+ S, const AXIS: usize> Reducible<AXIS> for ($(Tile<$x, S>,)+)
        where
            Axis<AXIS>: DropAxis<S>,
        {
            type Element = ($($x,)+);
            type Out = ($(<<Axis<AXIS> as DropAxis<S>>::Out as Shape>::Of<$x>,)+);
        }
        #[diagnostic::do_not_recommend]
        impl<$($x: Element,)+ S, const AXIS: usize> Scannable<AXIS> for ($(Tile<$x, S>,)+)
        where
            Axis<AXIS>: DropAxis<S>,
        {
            type Element = ($($x,)+);
        }
    )*};
}
tuples! {
    (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
}
