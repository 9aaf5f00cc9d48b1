//! Reductions that give more, or keep their axis; sorting, and tiles put together.

use super::super::operators::Values;
use super::super::reduce::{HasAxis, Scannable};
use super::super::shape::DropAxis;
use super::super::{Axis, Bool, Dim, Element, Int, Logic, Number, One, Rank, Shape, Tile, typed};

macro_rules! kept {
    ($($(#[$doc:meta])* $name:ident: $bound:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<const AXIS: usize, X: HasAxis<AXIS, Element: $bound>>(
            _x: X,
        ) -> X::Set<One, X::Element> {
            typed()
        }
    )*};
}

kept! {
    /// [`sum`](super::sum) that keeps the axis, with extent 1: `sum(x, 1, true)`.
    sum_kept: Number;
    /// [`prod`](super::prod) that keeps the axis, with extent 1.
    prod_kept: Number;
    /// [`max`](super::max) that keeps the axis, with extent 1.
    max_kept: Number;
    /// [`min`](super::min) that keeps the axis, with extent 1.
    min_kept: Number;
    /// [`max_num`](super::max_num) that keeps the axis, with extent 1.
    max_num_kept: Number;
    /// [`min_num`](super::min_num) that keeps the axis, with extent 1.
    min_num_kept: Number;
    /// [`xor_sum`](super::xor_sum) that keeps the axis, with extent 1.
    xor_sum_kept: Logic;
    /// [`any`](super::any) that keeps the axis, with extent 1.
    any_kept: Bool;
    /// [`all`](super::all) that keeps the axis, with extent 1.
    all_kept: Bool;
}

/// [`argmax`](super::argmax) that keeps the axis, with extent 1.
pub fn argmax_kept<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(
    _x: X,
) -> X::Set<One, i64> {
    typed()
}

/// [`argmin`](super::argmin) that keeps the axis, with extent 1.
pub fn argmin_kept<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(
    _x: X,
) -> X::Set<One, i64> {
    typed()
}

/// The largest along an axis and its index: of equal ones the first, NaN before all.
pub fn max_with_index<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(
    _x: X,
) -> (X::Without<X::Element>, X::Without<i64>) {
    typed()
}

/// The smallest along an axis and its index: of equal ones the first, NaN before all.
pub fn min_with_index<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(
    _x: X,
) -> (X::Without<X::Element>, X::Without<i64>) {
    typed()
}

/// With the elements along an axis, whose extent is a power of two, in the reverse order.
pub fn flip<const AXIS: usize, X: Scannable<AXIS, Element: Number>>(x: X) -> X {
    x
}

/// In order along an axis, whose extent is a power of two: the smallest first, NaN last; with the flag
/// `descending` the reverse. -0 comes before 0.
pub fn sort<const AXIS: usize, X: Scannable<AXIS, Element: Number>>(x: X) -> X {
    x
}

/// The indices that [`sort`] takes elements from, as i64; of equal ones the earlier first, also where
/// descending.
pub fn argsort<const AXIS: usize, X: Scannable<AXIS, Element: Number> + Values>(
    _x: X,
) -> <X as Values>::With<i64> {
    typed()
}

/// The `K` largest along an axis, the largest first, NaN before all, and their indices; of equal ones the earlier
/// first. `K` and the extent are powers of two: `topk::<8>(x, 1)`.
#[allow(clippy::type_complexity, reason = "the values and their indices")]
pub fn topk<const K: usize, const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(
    _x: X,
) -> (X::Set<Dim<K>, X::Element>, X::Set<Dim<K>, i64>) {
    typed()
}

/// How many elements of `x` are 0, 1, .., `BINS - 1`; others count nowhere: `histogram::<256>(x)`.
pub fn histogram<const BINS: usize, X: Values<Element: Int>>(_x: X) -> Tile<i32, (Dim<BINS>,)> {
    typed()
}

/// Of each element of `x` how many equal ones come before it, in row-major order, and the histogram of `x`; what has no
/// bin has rank 0: `histogram_with_ranks::<256>(x)`.
#[allow(clippy::type_complexity, reason = "the ranks and the counts")]
pub fn histogram_with_ranks<const BINS: usize, X: Values<Element: Int>>(
    _x: X,
) -> (X::With<i32>, Tile<i32, (Dim<BINS>,)>) {
    typed()
}

/// What says where a `gather` takes elements of a tile from: integers, in a shape that differs along the axis only.
#[diagnostic::on_unimplemented(
    message = "`{I}` does not say where to gather from `{Self}` along axis {AXIS}",
    label = "this tile",
    note = "the index is a tile of integers with the extents of the tile, but along the axis"
)]
pub trait GatheredBy<I, const AXIS: usize> {}

#[diagnostic::do_not_recommend]
impl<T: Element, U: Int, S, R, O, const AXIS: usize> GatheredBy<Tile<U, R>, AXIS> for Tile<T, S> where
    Axis<AXIS>: DropAxis<S, Out = O> + DropAxis<R, Out = O>
{
}

/// For each element of the index the element of `x` that is there along an axis, at the same coordinates along the
/// others: `gather(x, index, 1)`. Zero where there is none. Extents differ along the axis only.
pub fn gather<const AXIS: usize, X: Values + GatheredBy<I, AXIS>, I: Values>(
    _x: X,
    _index: I,
) -> I::With<X::Element> {
    typed()
}

/// The tile whose element at an index along an axis is that of `x` where the index stands: `scatter(x, index, 1)`. Along
/// the axis, whose extent is a power of two, the index has every place once; else what the result holds is not specified.
pub fn scatter<const AXIS: usize, X: Scannable<AXIS> + Values, I: Values<Element: Int>>(
    x: X,
    _index: I,
) -> X {
    x
}

/// A tile whose axes are as many as there are coordinates.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no element at {RANK} coordinates",
    note = "write one for each axis of a tile: `element(x, [i, j])`"
)]
pub trait HasElement<const RANK: usize> {
    /// Its dtype.
    type Element: Element;
}

#[diagnostic::do_not_recommend]
impl<T: Element, S: Rank<RANK>, const RANK: usize> HasElement<RANK> for Tile<T, S> {
    type Element = T;
}

/// The element of a tile at coordinates that may be computed, as a scalar: `element(x, [i, j])`. Zero where there is
/// none.
pub fn element<X: HasElement<RANK>, const RANK: usize>(
    _x: X,
    _coordinates: [i64; RANK],
) -> X::Element {
    typed()
}

/// Two tiles of one shape, one behind the other along the axis that the result has twice as long:
/// `cat::<M, N>(a, b)`. That extent of the tiles is a power of two.
pub fn cat<S: Shape, A: Values, B: Values<Element = A::Element>>(
    _first: A,
    _second: B,
) -> Tile<A::Element, S> {
    typed()
}

/// Elements of two tiles of one shape in turns along the last axis: `interleave::<M, N>(a, b)`.
pub fn interleave<S: Shape, A: Values, B: Values<Element = A::Element>>(
    _first: A,
    _second: B,
) -> Tile<A::Element, S> {
    typed()
}
