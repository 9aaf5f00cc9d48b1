//! Shapes of tiles: their short forms, and the methods that change them.

use super::shape::{Append, InsertAxis, Permute, RemoveUnit, Transpose, Wider};
use super::{Axis, Dim, Element, One, Shape, Tile, typed};

/// `[N]`
pub type Tile1<T, const N: usize> = Tile<T, (Dim<N>,)>;
/// `[M, N]`
pub type Tile2<T, const M: usize, const N: usize> = Tile<T, (Dim<M>, Dim<N>)>;
/// `[B, M, N]`
pub type Tile3<T, const B: usize, const M: usize, const N: usize> =
    Tile<T, (Dim<B>, Dim<M>, Dim<N>)>;
/// `[1, N]`
pub type Row<T, const N: usize> = Tile<T, (One, Dim<N>)>;
/// `[M, 1]`
pub type Col<T, const M: usize> = Tile<T, (Dim<M>, One)>;

impl<T, X> Tile<T, (X,)> {
    /// `[N]` to `[1, N]`.
    pub fn row(self) -> Tile<T, (One, X)> {
        typed()
    }

    /// `[M]` to `[M, 1]`.
    pub fn col(self) -> Tile<T, (X, One)> {
        typed()
    }
}

impl<T: Copy, S: Shape> Tile<T, S> {
    /// With a unit axis before `axis`.
    pub fn expand_dims<const AXIS: usize>(self) -> Tile<T, <Axis<AXIS> as InsertAxis<S>>::Out>
    where
        Axis<AXIS>: InsertAxis<S>,
    {
        typed()
    }

    /// Without `axis`, which must be a unit axis.
    pub fn squeeze<const AXIS: usize>(self) -> <<Axis<AXIS> as RemoveUnit<S>>::Out as Shape>::Of<T>
    where
        Axis<AXIS>: RemoveUnit<S>,
    {
        typed()
    }

    /// With the last two axes exchanged.
    pub fn trans(self) -> Tile<T, <S as Transpose>::Out>
    where
        S: Transpose,
    {
        typed()
    }

    /// With the axes in the given order.
    pub fn permute<O: Permute<S>>(self) -> Tile<T, O::Out> {
        typed()
    }

    /// With other extents and as many elements, which is checked where all extents are known. Extents that
    /// are merged or split must be powers of two, but for the first of those that belong together.
    pub fn reshape<R: Shape>(self) -> Tile<T, R> {
        typed()
    }

    /// With unit axes repeated to the extents given.
    pub fn broadcast_to<R: Shape>(self) -> Tile<T, R>
    where
        S: Wider<R>,
    {
        typed()
    }
}

impl<T: Element, S> Tile<T, S> {
    /// Converts: floats to integers saturate and NaN gives 0, integers wrap.
    pub fn to<U: Element>(self) -> Tile<U, S> {
        typed()
    }
}

/// The methods that scalars have, besides [`Element::to`].
pub trait Scalar: Element {
    /// A tile with this value everywhere.
    fn broadcast_to<S: Shape>(self) -> Tile<Self, S> {
        typed()
    }
}

impl<T: Element> Scalar for T {}

/// Two tiles of one shape to one with a new last axis of extent 2.
pub(super) fn join<T: Copy, S: Shape + Append>(
    _a: Tile<T, S>,
    _b: Tile<T, S>,
) -> Tile<T, <S as Append>::Out> {
    typed()
}
