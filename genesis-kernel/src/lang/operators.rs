//! The operators, as functions: what `a + b` in a kernel is typed by.
//!
//! Rust's own operator traits can't be implemented for a `T` on the left of a tile of `T`, and its
//! comparisons can't give tiles.

use super::{
    Broadcast, Element, Float, FloatLiteral, Int, IntLiteral, Logic, Number, OneDType, Ptr, PtrMut,
    Tile, typed,
};

/// Two operands of one dtype whose shapes broadcast: tiles, scalars and literals.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{R}` do not go together",
    label = "the left side is `{Self}`, the right side `{R}`",
    note = "both operands need one dtype: convert one with `.to::<..>()`"
)]
pub trait Pair<R> {
    /// The dtype of both.
    type Element: Element;
    /// Numbers of another dtype in the shape of both together.
    type With<U: Element>;
}

#[diagnostic::do_not_recommend]
impl<T: Element> Pair<T> for T {
    type Element = T;
    type With<V: Element> = V;
}
#[diagnostic::do_not_recommend]
impl<T: Element, S> Pair<T> for Tile<T, S> {
    type Element = T;
    type With<V: Element> = Tile<V, S>;
}
#[diagnostic::do_not_recommend]
impl<T: Element, S> Pair<Tile<T, S>> for T {
    type Element = T;
    type With<V: Element> = Tile<V, S>;
}
impl<T, U, S, R> Pair<Tile<U, R>> for Tile<T, S>
where
    T: Element + OneDType<U>,
    U: Element,
    S: Broadcast<R>,
{
    type Element = T;
    type With<V: Element> = Tile<V, S::Out>;
}

macro_rules! literal_pairs {
    ($($literal:ident $bound:ident),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: $bound> Pair<$literal> for T {
            type Element = T;
            type With<U: Element> = U;
        }
        #[diagnostic::do_not_recommend]
        impl<T: $bound> Pair<T> for $literal {
            type Element = T;
            type With<U: Element> = U;
        }
        #[diagnostic::do_not_recommend]
        impl<T: $bound, S> Pair<$literal> for Tile<T, S> {
            type Element = T;
            type With<U: Element> = Tile<U, S>;
        }
        #[diagnostic::do_not_recommend]
        impl<T: $bound, S> Pair<Tile<T, S>> for $literal {
            type Element = T;
            type With<U: Element> = Tile<U, S>;
        }
    )*};
}
literal_pairs!(IntLiteral Number, FloatLiteral Float);

/// The result of an operator that keeps the dtype.
pub type Same<A, B> = <A as Pair<B>>::With<<A as Pair<B>>::Element>;

/// What `+` takes besides numbers: a pointer and a number of elements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` and `{R}` do not go together",
    label = "the left side is `{Self}`, the right side `{R}`",
    note = "numbers need one dtype: convert with `.to::<..>()`; a pointer takes `i64` offsets, written on its right"
)]
pub trait PairOrPtr<R> {
    /// The result.
    type Out;
}

impl<A: Pair<B, Element: Number>, B> PairOrPtr<B> for A {
    type Out = Same<A, B>;
}

macro_rules! pointers {
    ($($ptr:ident),*) => {$(
        #[diagnostic::do_not_recommend]
        impl<T: Element> PairOrPtr<i64> for $ptr<T> {
            type Out = Self;
        }
        #[diagnostic::do_not_recommend]
        impl<T: Element> PairOrPtr<IntLiteral> for $ptr<T> {
            type Out = Self;
        }
        #[diagnostic::do_not_recommend]
        impl<T: Element, S> PairOrPtr<Tile<i64, S>> for $ptr<T> {
            type Out = Tile<$ptr<T>, S>;
        }
        #[diagnostic::do_not_recommend]
        impl<T: Element, S> PairOrPtr<i64> for Tile<$ptr<T>, S> {
            type Out = Self;
        }
        #[diagnostic::do_not_recommend]
        impl<T: Element, S> PairOrPtr<IntLiteral> for Tile<$ptr<T>, S> {
            type Out = Self;
        }
        #[diagnostic::do_not_recommend]
        impl<T: Element, S: Broadcast<R>, R> PairOrPtr<Tile<i64, R>> for Tile<$ptr<T>, S> {
            type Out = Tile<$ptr<T>, S::Out>;
        }
    )*};
}
pointers!(Ptr, PtrMut);

/// The two sides of an operator.
#[doc(hidden)]
pub struct Sides<A, B>(std::marker::PhantomData<(A, B)>);

/// The two sides of an operator, as one value: rustc then points at both of them.
#[doc(hidden)]
pub fn sides<A, B>(_left: A, _right: B) -> Sides<A, B> {
    typed()
}

/// `a * b`
pub fn mul<A: Pair<B, Element: Number>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// `a / b`; integers truncate, by zero gives 0.
pub fn div<A: Pair<B, Element: Number>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// `a % b`; has the sign of `a`, by zero gives `a`.
pub fn rem<A: Pair<B, Element: Number>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// `a & b`
pub fn bit_and<A: Pair<B, Element: Logic>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// `a | b`
pub fn bit_or<A: Pair<B, Element: Logic>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// `a ^ b`
pub fn bit_xor<A: Pair<B, Element: Logic>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// `a << b`; the amount is taken modulo the width.
pub fn shl<A: Pair<B, Element: Int>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// `a >> b`; the amount is taken modulo the width.
pub fn shr<A: Pair<B, Element: Int>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// `a + b`
pub fn add<A: PairOrPtr<B>, B>(_: Sides<A, B>) -> A::Out {
    typed()
}

/// `a - b`
pub fn sub<A: PairOrPtr<B>, B>(_: Sides<A, B>) -> A::Out {
    typed()
}

/// `a == b`
pub fn eq<A: Pair<B>, B>(_: Sides<A, B>) -> A::With<bool> {
    typed()
}

/// `a != b`
pub fn ne<A: Pair<B>, B>(_: Sides<A, B>) -> A::With<bool> {
    typed()
}

/// `a < b`
pub fn lt<A: Pair<B>, B>(_: Sides<A, B>) -> A::With<bool> {
    typed()
}

/// `a <= b`
pub fn le<A: Pair<B>, B>(_: Sides<A, B>) -> A::With<bool> {
    typed()
}

/// `a > b`
pub fn gt<A: Pair<B>, B>(_: Sides<A, B>) -> A::With<bool> {
    typed()
}

/// `a >= b`
pub fn ge<A: Pair<B>, B>(_: Sides<A, B>) -> A::With<bool> {
    typed()
}

/// A scalar or a tile, and its dtype.
#[diagnostic::on_unimplemented(
    message = "this needs a number or a tile of numbers, not `{Self}`",
    note = "read memory with `load` first"
)]
pub trait Values: Copy {
    /// The dtype.
    type Element: Element;
    /// Numbers of another dtype in the same shape.
    type With<U: Element>;
    /// The shape; `()` for a scalar.
    type Shape;
}

#[diagnostic::do_not_recommend]
impl<T: Element> Values for T {
    type Element = T;
    type Shape = ();
    type With<U: Element> = U;
}
impl<T: Element, S> Values for Tile<T, S> {
    type Element = T;
    type Shape = S;
    type With<U: Element> = Tile<U, S>;
}

/// `-x`
pub fn neg<X: Values<Element: Number>>(x: X) -> X {
    x
}

/// `!x`
pub fn not<X: Values<Element: Logic>>(x: X) -> X {
    x
}

/// An operand of `&&` and `||`.
#[diagnostic::on_unimplemented(
    message = "`&&` and `||` need a scalar, this is `{Self}`",
    note = "combine masks with `&` and `|`"
)]
pub trait LogicOperand {}

#[diagnostic::do_not_recommend]
impl LogicOperand for bool {}

/// An operand of `&&` and `||`.
pub fn logic<X: LogicOperand>(_x: X) -> bool {
    typed()
}
