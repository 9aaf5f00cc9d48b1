//! Numbers without a suffix, constants, and what a number of one dtype can be made of.

use super::{Element, Float, Number, Tile, typed};

/// An integer without a suffix, beside something of any number dtype.
#[derive(Clone, Copy, Debug)]
pub struct IntLiteral;

/// A float without a suffix, beside something of any float dtype.
#[derive(Clone, Copy, Debug)]
pub struct FloatLiteral;

/// A scalar of dtype `T`, or a literal that becomes one.
#[diagnostic::on_unimplemented(
    message = "expected a scalar of dtype `{T}`, this is `{Self}`",
    note = "convert with `{T}::from(x)` or `x.to::<{T}>()`"
)]
pub trait ScalarOf<T> {}

#[diagnostic::do_not_recommend]
impl<T: Element> ScalarOf<T> for T {}
#[diagnostic::do_not_recommend]
impl<T: Number> ScalarOf<T> for IntLiteral {}
#[diagnostic::do_not_recommend]
impl<T: Float> ScalarOf<T> for FloatLiteral {}

/// What a device function takes where it says `T`, a scalar.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the device function takes a scalar of dtype `{T}` here, this is `{Self}`",
    note = "a function of tiles and scalars says so: `fn f<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S>`; to another dtype convert with `.to::<{T}>()`"
)]
pub trait Argument<T> {}

#[diagnostic::do_not_recommend]
impl<T: Element> Argument<T> for T {}

/// What a device function takes where it says `Tile<T, S>` and `S` is any shape: a tile, or a scalar, whose shape is
/// `()`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "the device function takes `Tile<{T}, {S}>` here, this is `{Self}`",
    note = "arguments of one shape `S` are all tiles of one shape, or all scalars; to another dtype convert with `.to::<{T}>()`"
)]
pub trait OfShape<T, S> {}

#[diagnostic::do_not_recommend]
impl<T: Element> OfShape<T, ()> for T {}
#[diagnostic::do_not_recommend]
impl<T: Element, S> OfShape<T, S> for Tile<T, S> {}

/// What `T::from(x)` takes: a scalar or a literal.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`from` converts scalars, this is a `{Self}`",
    note = "convert a tile with `.to::<f32>()`"
)]
pub trait FromSource {}

#[diagnostic::do_not_recommend]
impl<T: Element> FromSource for T {}
impl FromSource for IntLiteral {}
impl FromSource for FloatLiteral {}

/// `T::from(x)`.
#[doc(hidden)]
pub fn from<T: Element, X: FromSource>(_x: X) -> T {
    typed()
}

/// A const parameter where it stands in an expression.
#[doc(hidden)]
pub fn constant(n: usize) -> i64 {
    n as i64
}

/// A Rust constant named in a kernel: lengths become indices, all else is itself.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a kernel can't use a constant of type `{Self}`",
    note = "constants are bools, numbers and `usize`, which is an `i64` in a kernel"
)]
pub trait Constant {
    /// Its type in a kernel.
    type Value;
}

macro_rules! constants {
    ($($ty:ty => $value:ty),*) => {$(
        impl Constant for $ty {
            type Value = $value;
        }
    )*};
}
constants!(
    usize => i64, bool => bool, i8 => i8, i16 => i16, i32 => i32, i64 => i64, u8 => u8, u16 => u16,
    u32 => u32, u64 => u64, f32 => f32, f64 => f64
);

/// A Rust constant named in a kernel.
#[doc(hidden)]
pub fn rust_constant<C: Constant>(_value: C) -> C::Value {
    typed()
}
