//! The type of a tile.

use std::marker::PhantomData;

/// A block of numbers, or of pointers, that one program works on at once.
///
/// `T` is the dtype and `S` the shape, a tuple of extents: `Tile<f32, (Dim<BM>, One)>`. The short
/// forms [`Tile1`](super::Tile1), [`Tile2`](super::Tile2), [`Tile3`](super::Tile3), [`Row`](super::Row) and
/// [`Col`](super::Col) are for signatures.
pub struct Tile<T, S>(PhantomData<(T, S)>);

impl<T, S> Clone for Tile<T, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, S> Copy for Tile<T, S> {}
