//! The functions of the language, by their names.
//!
//! The ones that end in `_masked`, `_or`, `_new`, `_between`, `_reverse` and `_kept` are what their shorter
//! names mean with more or fewer arguments: a kernel says `load(ptr, mask, other)`.

mod elementwise;
mod order;
mod products;
mod random;
mod views;

pub use elementwise::*;
pub use order::*;
pub use products::*;
pub use random::*;
pub use views::*;

use super::memory::{Mask, Pointers, Stored, WritablePointers};
use super::operators::{Same, Sides, Values};
use super::reduce::{Combine, HasAxis, Reducible, Scannable};
use super::shape::{Append, Expand, Permute, SplitLast, Squeeze, Transpose, Wider};
use super::{
    Bool, Broadcast, Dim, Element, Float, Int, Logic, Number, Pair, Ptr, PtrMut, ScalarOf, Shape,
    Tile, reshape, typed,
};

// Programs.

/// The index of this program along a grid axis.
pub fn program_id<const AXIS: usize>() -> i64 {
    typed()
}

/// The number of programs along a grid axis.
pub fn num_programs<const AXIS: usize>() -> i64 {
    typed()
}

/// Rows and columns of piece `index` of `rows * columns`, walked in groups of `group` rows so that
/// neighbours in time share what they read.
pub fn grouped<A: ScalarOf<i64>, B: ScalarOf<i64>, C: ScalarOf<i64>>(
    _index: A,
    _rows: B,
    _columns: C,
    _group: i64,
) -> (i64, i64) {
    typed()
}

// Making tiles.

/// `0, 1, .., N - 1`.
pub fn arange<const N: usize>() -> Tile<i64, (Dim<N>,)> {
    typed()
}

/// Zero everywhere: `zeros::<f32, BM, BN>()`.
pub fn zeros<T: Element, S: Shape>() -> Tile<T, S> {
    typed()
}

/// One everywhere: `ones::<f32, BM, BN>()`.
pub fn ones<T: Number, S: Shape>() -> Tile<T, S> {
    typed()
}

/// Zero in the dtype and shape of `x`.
pub fn zeros_like<X: Values>(x: X) -> X {
    x
}

/// One value in the dtype and shape of `x`.
pub fn full_like<X: Values, V: ScalarOf<X::Element>>(x: X, _value: V) -> X {
    x
}

/// One value everywhere: `full::<f32, BM>(1.0)`.
pub fn full<T: Element, S: Shape, V: ScalarOf<T>>(_value: V) -> Tile<T, S> {
    typed()
}

// Shapes and dtypes.

/// To another dtype: floats to integers saturate and NaN gives 0, integers wrap.
pub fn cast<U: Element, X: Values>(_x: X) -> X::With<U> {
    typed()
}

/// The same bits as another dtype of the same width: `bitcast::<i32>(x)`.
pub fn bitcast<U: Element, X: Values>(_x: X) -> X::With<U> {
    typed()
}

/// What can be broadcast to a shape.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not broadcast to `{S}`",
    note = "ranks must be equal, and extents equal or 1"
)]
pub trait BroadcastTo<S> {
    /// The dtype.
    type Element: Element;
}

impl<T: Element, S> BroadcastTo<S> for T {
    type Element = T;
}
#[diagnostic::do_not_recommend]
impl<T: Element, R: Wider<S>, S> BroadcastTo<S> for Tile<T, R> {
    type Element = T;
}

/// Repeated to a shape: `broadcast_to::<BM, BN>(x)`.
pub fn broadcast_to<S: Shape, X: BroadcastTo<S>>(_x: X) -> Tile<X::Element, S> {
    typed()
}

/// With other extents and as many elements: `reshape::<M, N>(x)`. Extents that are merged or split must be
/// powers of two, but for the first of those that belong together.
pub fn reshape<S: Shape, X: Values>(_x: X) -> Tile<X::Element, S> {
    typed()
}

/// With a unit axis before `axis`.
pub fn expand_dims<const AXIS: usize, X: Expand<AXIS, Out: Copy>>(_x: X) -> X::Out {
    typed()
}

/// Without `axis`, which must be a unit axis.
pub fn squeeze<const AXIS: usize, X: Squeeze<AXIS, Out: Copy>>(_x: X) -> X::Out {
    typed()
}

/// With the last two axes exchanged.
pub fn trans<X: Tiled<Shape: Transpose>>(_x: X) -> Tile<X::Item, <X::Shape as Transpose>::Out> {
    typed()
}

/// With the axes in another order: axis `i` of the result is axis `order[i]`.
pub fn permute<O: Permute<X::Shape>, X: Tiled>(_x: X) -> Tile<X::Item, O::Out> {
    typed()
}

/// A tile, taken apart.
#[diagnostic::on_unimplemented(message = "this needs a tile, not `{Self}`")]
pub trait Tiled {
    /// What one element is.
    type Item: Copy;
    /// The shape.
    type Shape: Shape;
}

impl<T: Copy, S: Shape> Tiled for Tile<T, S> {
    type Item = T;
    type Shape = S;
}

/// Two tiles of one shape to one with a new last axis of extent 2.
pub fn join<T: Element, S: Shape + Append>(
    a: Tile<T, S>,
    b: Tile<T, S>,
) -> Tile<T, <S as Append>::Out> {
    reshape::join(a, b)
}

/// The reverse of [`join`].
#[allow(clippy::type_complexity, reason = "the two halves have the one type")]
pub fn split<X: Tiled<Shape: SplitLast>>(
    _x: X,
) -> (
    <<X::Shape as SplitLast>::Out as Shape>::Of<X::Item>,
    <<X::Shape as SplitLast>::Out as Shape>::Of<X::Item>,
) {
    typed()
}

// Choosing.

/// What chooses between values: a bool, or a mask whose shape broadcasts with theirs.
#[diagnostic::on_unimplemented(
    message = "`where_` chooses by a bool or a mask, this is `{Self}`",
    note = "masks come from comparisons: `i < n`"
)]
pub trait Chooses<V> {
    /// The result.
    type Out;
}

impl<V> Chooses<V> for bool {
    type Out = V;
}
impl<U: Element + Bool, S: Broadcast<V::Shape>, V: Values> Chooses<V> for Tile<U, S> {
    type Out = Tile<V::Element, S::Out>;
}

/// `a` where the condition holds, else `b`, element by element.
pub fn where_<C: Chooses<Same<A, B>>, A: Pair<B>, B>(_: Sides<C, Sides<A, B>>) -> C::Out {
    typed()
}

// Memory.

/// The numbers that pointers point to.
pub fn load<P: Pointers<Value: Copy>>(_ptr: P) -> P::Value {
    typed()
}

/// The numbers that pointers point to, zero where the mask is false.
pub fn load_masked<P: Pointers, M: Mask<P::Shape>>(_ptr: P, _mask: M) -> P::Value {
    typed()
}

/// The numbers that pointers point to, `other` where the mask is false.
pub fn load_or<P: Pointers, M: Mask<P::Shape>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _mask: M,
    _other: V,
) -> P::Value {
    typed()
}

/// Writes numbers.
pub fn store<P: WritablePointers, V: Stored<P::Element, P::Shape>>(_ptr: P, _value: V) {}

/// Writes numbers where the mask is true.
pub fn store_masked<P, V, M>(_ptr: P, _value: V, _mask: M)
where
    P: WritablePointers,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
}

macro_rules! hinted {
    ($($(#[$doc:meta])* $load:ident $load_masked:ident $load_or:ident
        $store:ident $store_masked:ident)*) => {$(
        $(#[$doc])*
        pub fn $load<P: Pointers<Value: Copy>>(_ptr: P) -> P::Value {
            typed()
        }

        $(#[$doc])*
        pub fn $load_masked<P: Pointers, M: Mask<P::Shape>>(_ptr: P, _mask: M) -> P::Value {
            typed()
        }

        $(#[$doc])*
        pub fn $load_or<P: Pointers, M: Mask<P::Shape>, V: Stored<P::Element, P::Shape>>(
            _ptr: P,
            _mask: M,
            _other: V,
        ) -> P::Value {
            typed()
        }

        $(#[$doc])*
        pub fn $store<P: WritablePointers, V: Stored<P::Element, P::Shape>>(_ptr: P, _value: V) {}

        $(#[$doc])*
        pub fn $store_masked<P, V, M>(_ptr: P, _value: V, _mask: M)
        where
            P: WritablePointers,
            V: Stored<P::Element, P::Shape>,
            M: Mask<P::Shape>,
        {
        }
    )*};
}

hinted! {
    /// As without `_once`; the numbers are not used again soon, so that caches give them up first. Only
    /// speed may change.
    load_once load_once_masked load_once_or store_once store_once_masked
    /// As without `_kept`; the numbers are used again and again, so that caches give them up last. Only
    /// speed may change.
    load_kept load_kept_masked load_kept_or store_kept store_kept_masked
}

/// Adds in memory; gives the old value.
///
/// Where the old value is used, this orders programs, as every atomic does: whoever meets a later one
/// on the same address sees all that this program did before it. So the last of `n` programs to come
/// knows that the others are done:
/// ```text
/// store(partial + program_id(0), own);
/// if atomic_add(done, 1) == n - 1 { .. } // every program's partial is there
/// ```
/// Where it is not used, nothing else is ordered, which is faster.
pub fn atomic_add<P: WritablePointers<Element: Number>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _value: V,
) -> P::Value {
    typed()
}

/// [`atomic_add`] where the mask is true; elsewhere nothing happens and the result is zero.
pub fn atomic_add_masked<P, V, M>(_ptr: P, _value: V, _mask: M) -> P::Value
where
    P: WritablePointers<Element: Number>,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
    typed()
}

/// The larger in memory; gives the old value.
pub fn atomic_max<P: WritablePointers<Element: Number>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _value: V,
) -> P::Value {
    typed()
}

/// [`atomic_max`] where the mask is true; elsewhere nothing happens and the result is zero.
pub fn atomic_max_masked<P, V, M>(_ptr: P, _value: V, _mask: M) -> P::Value
where
    P: WritablePointers<Element: Number>,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
    typed()
}

/// The smaller in memory; gives the old value.
pub fn atomic_min<P: WritablePointers<Element: Number>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _value: V,
) -> P::Value {
    typed()
}

/// [`atomic_min`] where the mask is true; elsewhere nothing happens and the result is zero.
pub fn atomic_min_masked<P, V, M>(_ptr: P, _value: V, _mask: M) -> P::Value
where
    P: WritablePointers<Element: Number>,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
    typed()
}

/// `&` in memory; gives the old value.
pub fn atomic_and<P: WritablePointers<Element: Int>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _value: V,
) -> P::Value {
    typed()
}

/// [`atomic_and`] where the mask is true; elsewhere nothing happens and the result is zero.
pub fn atomic_and_masked<P, V, M>(_ptr: P, _value: V, _mask: M) -> P::Value
where
    P: WritablePointers<Element: Int>,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
    typed()
}

/// `|` in memory; gives the old value.
pub fn atomic_or<P: WritablePointers<Element: Int>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _value: V,
) -> P::Value {
    typed()
}

/// [`atomic_or`] where the mask is true; elsewhere nothing happens and the result is zero.
pub fn atomic_or_masked<P, V, M>(_ptr: P, _value: V, _mask: M) -> P::Value
where
    P: WritablePointers<Element: Int>,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
    typed()
}

/// `^` in memory; gives the old value.
pub fn atomic_xor<P: WritablePointers<Element: Int>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _value: V,
) -> P::Value {
    typed()
}

/// [`atomic_xor`] where the mask is true; elsewhere nothing happens and the result is zero.
pub fn atomic_xor_masked<P, V, M>(_ptr: P, _value: V, _mask: M) -> P::Value
where
    P: WritablePointers<Element: Int>,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
    typed()
}

/// Exchanges with memory; gives the old value.
pub fn atomic_xchg<P: WritablePointers<Element: Number>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _value: V,
) -> P::Value {
    typed()
}

/// [`atomic_xchg`] where the mask is true; elsewhere nothing happens and the result is zero.
pub fn atomic_xchg_masked<P, V, M>(_ptr: P, _value: V, _mask: M) -> P::Value
where
    P: WritablePointers<Element: Number>,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
    typed()
}

/// Writes `value` where memory holds `expected`; gives the old value.
pub fn atomic_cas<P, E, V>(_ptr: P, _expected: E, _value: V) -> P::Value
where
    P: WritablePointers<Element: Number>,
    E: Stored<P::Element, P::Shape>,
    V: Stored<P::Element, P::Shape>,
{
    typed()
}

/// [`atomic_cas`] where the mask is true; elsewhere nothing happens and the result is zero.
pub fn atomic_cas_masked<P, E, V, M>(_ptr: P, _expected: E, _value: V, _mask: M) -> P::Value
where
    P: WritablePointers<Element: Number>,
    E: Stored<P::Element, P::Shape>,
    V: Stored<P::Element, P::Shape>,
    M: Mask<P::Shape>,
{
    typed()
}

// Reductions and scans.

/// The sum along an axis.
pub fn sum<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(_x: X) -> X::Without<X::Element> {
    typed()
}

/// The product along an axis.
pub fn prod<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(_x: X) -> X::Without<X::Element> {
    typed()
}

/// The largest along an axis; NaN if there is one.
pub fn max<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(_x: X) -> X::Without<X::Element> {
    typed()
}

/// The smallest along an axis; NaN if there is one.
pub fn min<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(_x: X) -> X::Without<X::Element> {
    typed()
}

/// The largest number along an axis; NaN only if there is nothing else.
pub fn max_num<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(
    _x: X,
) -> X::Without<X::Element> {
    typed()
}

/// The smallest number along an axis; NaN only if there is nothing else.
pub fn min_num<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(
    _x: X,
) -> X::Without<X::Element> {
    typed()
}

/// The index of the largest along an axis; the first of equal ones, NaN before all.
pub fn argmax<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(_x: X) -> X::Without<i64> {
    typed()
}

/// The index of the smallest along an axis; the first of equal ones, NaN before all.
pub fn argmin<const AXIS: usize, X: HasAxis<AXIS, Element: Number>>(_x: X) -> X::Without<i64> {
    typed()
}

/// The exclusive or of all elements along an axis.
pub fn xor_sum<const AXIS: usize, X: HasAxis<AXIS, Element: Logic>>(
    _x: X,
) -> X::Without<X::Element> {
    typed()
}

/// Whether any holds along an axis.
pub fn any<const AXIS: usize, X: HasAxis<AXIS, Element: Bool>>(_x: X) -> X::Without<bool> {
    typed()
}

/// Whether all hold along an axis.
pub fn all<const AXIS: usize, X: HasAxis<AXIS, Element: Bool>>(_x: X) -> X::Without<bool> {
    typed()
}

/// Combines the elements along an axis with a device function, which must be associative.
pub fn reduce<const AXIS: usize, X: Reducible<AXIS>, F: Combine<X::Element>>(
    _x: X,
    _function: F,
) -> X::Out {
    typed()
}

/// The running combination along an axis with a device function, which must be associative.
pub fn associative_scan<const AXIS: usize, X: Scannable<AXIS>, F: Combine<X::Element>>(
    x: X,
    _function: F,
) -> X {
    x
}

/// [`associative_scan`], from the last element to the first where `reverse` is true.
pub fn associative_scan_reverse<const AXIS: usize, X: Scannable<AXIS>, F: Combine<X::Element>>(
    x: X,
    _function: F,
    _reverse: bool,
) -> X {
    x
}

/// The running sum along an axis.
pub fn cumsum<const AXIS: usize, X: Scannable<AXIS, Element: Number>>(x: X) -> X {
    x
}

/// [`cumsum`], from the last element to the first where `reverse` is true.
pub fn cumsum_reverse<const AXIS: usize, X: Scannable<AXIS, Element: Number>>(
    x: X,
    _reverse: bool,
) -> X {
    x
}

/// The running product along an axis.
pub fn cumprod<const AXIS: usize, X: Scannable<AXIS, Element: Number>>(x: X) -> X {
    x
}

/// [`cumprod`], from the last element to the first where `reverse` is true.
pub fn cumprod_reverse<const AXIS: usize, X: Scannable<AXIS, Element: Number>>(
    x: X,
    _reverse: bool,
) -> X {
    x
}

/// `exp(x)` of each element over their sum along an axis; the largest element is subtracted first.
pub fn softmax<const AXIS: usize, X: Scannable<AXIS, Element: Float>>(x: X) -> X {
    x
}

// Elementwise.

/// e to the power of x.
pub fn exp<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// See [`fast::exp`](super::fast::exp).
#[doc(hidden)]
pub fn fast_exp<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// See [`fast::exp2`](super::fast::exp2).
#[doc(hidden)]
pub fn fast_exp2<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// See [`fast::recip`](super::fast::recip).
#[doc(hidden)]
pub fn fast_recip<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// See [`fast::sqrt`](super::fast::sqrt).
#[doc(hidden)]
pub fn fast_sqrt<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// See [`fast::log2`](super::fast::log2).
#[doc(hidden)]
pub fn fast_log2<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// See [`fast::demanded`](super::fast::demanded).
#[doc(hidden)]
pub fn fast_demanded<A: Pair<B, Element: Float>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// See [`fast::sigmoid`](super::fast::sigmoid).
#[doc(hidden)]
pub fn fast_sigmoid<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// See [`fast::tanh`](super::fast::tanh).
#[doc(hidden)]
pub fn fast_tanh<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// 2 to the power of x.
pub fn exp2<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The natural logarithm.
pub fn log<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The logarithm to base 2.
pub fn log2<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The square root, correctly rounded.
pub fn sqrt<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// 1 over the square root.
pub fn rsqrt<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The sine of x in radians.
pub fn sin<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The cosine of x in radians.
pub fn cos<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The hyperbolic tangent.
pub fn tanh<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The error function.
pub fn erf<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// 1 / (1 + exp(-x)).
pub fn sigmoid<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The absolute value; the smallest integer stays as it is.
pub fn abs<X: Values<Element: Number>>(x: X) -> X {
    x
}

/// Rounded down to an integer.
pub fn floor<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// Rounded up to an integer.
pub fn ceil<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// Rounded to the nearest integer, ties to even.
pub fn round<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// Rounded towards zero.
pub fn trunc<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// Whether x is not a number.
pub fn is_nan<X: Values<Element: Float>>(_x: X) -> X::With<bool> {
    typed()
}

/// Whether x is infinite.
pub fn is_inf<X: Values<Element: Float>>(_x: X) -> X::With<bool> {
    typed()
}

/// Whether x is neither infinite nor NaN.
pub fn is_finite<X: Values<Element: Float>>(_x: X) -> X::With<bool> {
    typed()
}

/// The smaller; NaN if one is NaN.
pub fn minimum<A: Pair<B, Element: Number>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// The larger; NaN if one is NaN.
pub fn maximum<A: Pair<B, Element: Number>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// The smaller; the other one if one is NaN.
pub fn minimum_num<A: Pair<B, Element: Number>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// The larger; the other one if one is NaN.
pub fn maximum_num<A: Pair<B, Element: Number>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// a / b rounded up, for b > 0.
pub fn cdiv<A: Pair<B, Element: Int>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// The upper half of the full product.
pub fn umulhi<A: Pair<B, Element: Int>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// Three operands of one dtype whose shapes broadcast.
pub type Same3<A, B, C> = Same<Same<A, B>, C>;

/// `a * b + c`, rounded once.
pub fn fma<A, B, C>(_a: A, _b: B, _c: C) -> Same3<A, B, C>
where
    A: Pair<B, Element: Float>,
    Same<A, B>: Pair<C>,
{
    typed()
}

/// x limited to `low..=high`; NaN stays NaN.
pub fn clamp<A, B, C>(_x: A, _low: B, _high: C) -> Same3<A, B, C>
where
    A: Pair<B, Element: Number>,
    Same<A, B>: Pair<C>,
{
    typed()
}

// Promises.

/// What can be known to be a multiple of something: integers and pointers.
#[diagnostic::on_unimplemented(
    message = "`multiple_of` is about integers and pointers, this is `{Self}`"
)]
pub trait Divisible {}

impl<T: Int> Divisible for T {}
impl<T: Divisible, S> Divisible for Tile<T, S> {}
impl<T> Divisible for Ptr<T> {}
impl<T> Divisible for PtrMut<T> {}

/// Promises that x is a multiple of `n`, for pointers in elements, which may make accesses wider.
pub fn multiple_of<X: Divisible>(x: X, _n: i64) -> X {
    x
}
