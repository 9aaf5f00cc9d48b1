//! The functions of the language, by their names.
//!
//! The ones that end in `_masked`, `_or` and `_reverse` are what their shorter names mean with more
//! arguments: a kernel says `load(ptr, mask, other)`.

use super::memory::{Mask, Pointers, Stored, WritablePointers};
use super::operators::{Same, Sides, Values};
use super::random::{Offsets, Seed};
use super::reduce::{Combine, HasAxis, Reducible, Scannable};
use super::shape::{
    Append, DropAxis, InsertAxis, Permute, RemoveUnit, SplitLast, Transpose, Wider,
};
use super::{
    Axis, Bool, Broadcast, Dim, Element, Float, Int, Logic, Number, Pair, Ptr, PtrMut, ScalarOf, Shape,
    Tile, tile, typed,
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

/// With other extents and as many elements: `reshape::<M, N>(x)`.
pub fn reshape<S: Shape, X: Values>(_x: X) -> Tile<X::Element, S> {
    typed()
}

/// With a unit axis before `axis`.
pub fn expand_dims<const AXIS: usize, X: Tiled>(
    _x: X,
) -> Tile<X::Item, <Axis<AXIS> as InsertAxis<X::Shape>>::Out>
where
    Axis<AXIS>: InsertAxis<X::Shape>,
{
    typed()
}

/// Without `axis`, which must be a unit axis.
pub fn squeeze<const AXIS: usize, X: Tiled>(
    _x: X,
) -> <<Axis<AXIS> as RemoveUnit<X::Shape>>::Out as Shape>::Of<X::Item>
where
    Axis<AXIS>: RemoveUnit<X::Shape>,
{
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
    tile::join(a, b)
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
    message = "`where_` chooses by a bool or a mask that fits the values, this is `{Self}`",
    label = "the values are `{V}`",
    note = "masks come from comparisons: `i < n`"
)]
pub trait Chooses<V> {
    /// The result.
    type Out;
}

impl<V> Chooses<V> for bool {
    type Out = V;
}
impl<T: Element, S: Shape> Chooses<T> for Tile<bool, S> {
    type Out = Tile<T, S>;
}
impl<T: Element, S: Broadcast<R>, R> Chooses<Tile<T, R>> for Tile<bool, S> {
    type Out = Tile<T, S::Out>;
}

/// `a` where the condition holds, else `b`, element by element.
pub fn where_<C: Chooses<Same<A, B>>, A: Pair<B>, B>(_cond: C, _a: A, _b: B) -> C::Out {
    typed()
}

// Memory.

/// The numbers that pointers point to.
pub fn load<P: Pointers>(_ptr: P) -> <P::Shape as Shape>::Of<P::Element> {
    typed()
}

/// The numbers that pointers point to, zero where the mask is false.
pub fn load_masked<P: Pointers, M: Mask<P::Shape>>(
    _ptr: P,
    _mask: M,
) -> <P::Shape as Shape>::Of<P::Element> {
    typed()
}

/// The numbers that pointers point to, `other` where the mask is false.
pub fn load_or<P: Pointers, M: Mask<P::Shape>, V: Stored<P::Element, P::Shape>>(
    _ptr: P,
    _mask: M,
    _other: V,
) -> <P::Shape as Shape>::Of<P::Element> {
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

macro_rules! atomics {
    ($($name:ident $masked:ident $bound:ident $doc:literal;)*) => {$(
        #[doc = $doc]
        pub fn $name<P: WritablePointers<Element: $bound>, V: Stored<P::Element, P::Shape>>(
            _ptr: P,
            _value: V,
        ) -> <P::Shape as Shape>::Of<P::Element> {
            typed()
        }

        #[doc = $doc]
        ///
        /// Where the mask is false nothing happens and the result is zero.
        pub fn $masked<P, V, M>(
            _ptr: P,
            _value: V,
            _mask: M,
        ) -> <P::Shape as Shape>::Of<P::Element>
        where
            P: WritablePointers<Element: $bound>,
            V: Stored<P::Element, P::Shape>,
            M: Mask<P::Shape>,
        {
            typed()
        }
    )*};
}
atomics! {
    atomic_add atomic_add_masked Number "Adds in memory; gives the old value.";
    atomic_max atomic_max_masked Number "The larger in memory; gives the old value.";
    atomic_min atomic_min_masked Number "The smaller in memory; gives the old value.";
    atomic_and atomic_and_masked Int "`&` in memory; gives the old value.";
    atomic_or atomic_or_masked Int "`|` in memory; gives the old value.";
    atomic_xor atomic_xor_masked Int "`^` in memory; gives the old value.";
    atomic_xchg atomic_xchg_masked Number "Exchanges with memory; gives the old value.";
}

/// Writes `value` where memory holds `expected`; gives the old value.
pub fn atomic_cas<P, E, V>(_ptr: P, _expected: E, _value: V) -> <P::Shape as Shape>::Of<P::Element>
where
    P: WritablePointers<Element: Number>,
    E: Stored<P::Element, P::Shape>,
    V: Stored<P::Element, P::Shape>,
{
    typed()
}

// Products.

macro_rules! dots {
    ($($name:ident $new:ident $bound:ident $doc:literal;)*) => {$(
        #[doc = $doc]
        pub fn $name<T: $bound, M: super::Extent, K: super::Extent, N: super::Extent>(
            _x: Tile<T, (M, K)>,
            _y: Tile<T, (K, N)>,
            accumulator: Tile<f32, (M, N)>,
        ) -> Tile<f32, (M, N)> {
            accumulator
        }

        #[doc = $doc]
        ///
        /// The accumulator starts at zero.
        pub fn $new<T: $bound, M: super::Extent, K: super::Extent, N: super::Extent>(
            _x: Tile<T, (M, K)>,
            _y: Tile<T, (K, N)>,
        ) -> Tile<f32, (M, N)> {
            typed()
        }
    )*};
}
dots! {
    dot dot_new Float "`accumulator + x y`, summed in f32: `x` is `[M, K]`, `y` is `[K, N]`.";
    dot_tf32 dot_tf32_new Float "[`dot`] of f32 tiles whose elements are rounded to tf32 first.";
}

// Reductions and scans.

macro_rules! reductions {
    ($($name:ident $bound:ident, $out:ty, $doc:literal;)*) => {$(
        #[doc = $doc]
        pub fn $name<const AXIS: usize, X: HasAxis<AXIS>>(_x: X) -> X::Without<$out>
        where
            X::Element: $bound,
        {
            typed()
        }
    )*};
}
reductions! {
    sum Number, X::Element, "The sum along an axis.";
    prod Number, X::Element, "The product along an axis.";
    max Number, X::Element, "The largest along an axis; NaN if there is one.";
    min Number, X::Element, "The smallest along an axis; NaN if there is one.";
    max_num Number, X::Element, "The largest number along an axis; NaN only if there is nothing else.";
    min_num Number, X::Element, "The smallest number along an axis; NaN only if there is nothing else.";
    argmax Number, i64, "The index of the largest along an axis; the first of equal ones, NaN before all.";
    argmin Number, i64, "The index of the smallest along an axis; the first of equal ones, NaN before all.";
    xor_sum Logic, X::Element, "The exclusive or of all elements along an axis.";
    any Bool, bool, "Whether any holds along an axis.";
    all Bool, bool, "Whether all hold along an axis.";
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

macro_rules! running {
    ($($name:ident $reverse:ident $doc:literal;)*) => {$(
        #[doc = $doc]
        pub fn $name<const AXIS: usize, X: Scannable<AXIS, Element: Number>>(x: X) -> X {
            x
        }

        #[doc = $doc]
        ///
        /// From the last element to the first where `reverse` is true.
        pub fn $reverse<const AXIS: usize, X: Scannable<AXIS, Element: Number>>(
            x: X,
            _reverse: bool,
        ) -> X {
            x
        }
    )*};
}
running! {
    cumsum cumsum_reverse "The running sum along an axis.";
    cumprod cumprod_reverse "The running product along an axis.";
}

// Elementwise.

macro_rules! unary {
    ($($name:ident $bound:ident $doc:literal;)*) => {$(
        #[doc = $doc]
        pub fn $name<X: Values<Element: $bound>>(x: X) -> X {
            x
        }
    )*};
}
unary! {
    exp Float "e to the power of x.";
    exp2 Float "2 to the power of x.";
    log Float "The natural logarithm.";
    log2 Float "The logarithm to base 2.";
    sqrt Float "The square root, correctly rounded.";
    rsqrt Float "1 over the square root.";
    sin Float "The sine of x in radians.";
    cos Float "The cosine of x in radians.";
    tanh Float "The hyperbolic tangent.";
    erf Float "The error function.";
    sigmoid Float "1 / (1 + exp(-x)).";
    abs Number "The absolute value; the smallest integer stays as it is.";
    floor Float "Rounded down to an integer.";
    ceil Float "Rounded up to an integer.";
    round Float "Rounded to the nearest integer, ties to even.";
    trunc Float "Rounded towards zero.";
}

macro_rules! classes {
    ($($name:ident $doc:literal;)*) => {$(
        #[doc = $doc]
        pub fn $name<X: Values<Element: Float>>(_x: X) -> X::With<bool> {
            typed()
        }
    )*};
}
classes! {
    is_nan "Whether x is not a number.";
    is_inf "Whether x is infinite.";
    is_finite "Whether x is neither infinite nor NaN.";
}

macro_rules! binary {
    ($($name:ident $bound:ident $doc:literal;)*) => {$(
        #[doc = $doc]
        pub fn $name<A: Pair<B>, B>(_: Sides<A, B>) -> Same<A, B>
        where
            A::Element: $bound,
        {
            typed()
        }
    )*};
}
binary! {
    minimum Number "The smaller; NaN if one is NaN.";
    maximum Number "The larger; NaN if one is NaN.";
    minimum_num Number "The smaller; the other one if one is NaN.";
    maximum_num Number "The larger; the other one if one is NaN.";
    cdiv Int "a / b rounded up, for b > 0.";
    umulhi Int "The upper half of the full product.";
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

// Random numbers.

/// Uniform in 0..1, as f32: number `offset` of the sequence of `seed`.
pub fn rand<S: Seed, O: Offsets>(_seed: S, _offset: O) -> O::With<f32> {
    typed()
}

/// Normal with mean 0 and deviation 1, as f32: number `offset` of the sequence of `seed`.
pub fn randn<S: Seed, O: Offsets>(_seed: S, _offset: O) -> O::With<f32> {
    typed()
}

/// Uniform in `low..high`, as i64: number `offset` of the sequence of `seed`.
pub fn randint<S: Seed, O: Offsets, L: ScalarOf<i64>, H: ScalarOf<i64>>(
    _seed: S,
    _offset: O,
    _low: L,
    _high: H,
) -> O::With<i64> {
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
