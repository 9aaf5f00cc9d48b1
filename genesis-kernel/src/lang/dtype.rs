//! Dtypes as Rust types, and the bounds a kernel's type parameter may have.

use super::{bf16, f8e4m3, f8e5m2, f16, typed};
use crate::runtime::HostElement;

/// Any dtype: `bool`, the integers, the floats.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dtype",
    note = "dtypes are bool, i8 to i64, u8 to u64, f8e4m3, f8e5m2, f16, bf16, f32 and f64"
)]
pub trait Element: HostElement + 'static {
    /// Converts: floats to integers saturate and NaN gives 0, integers wrap.
    fn to<U: Element>(self) -> U
    where
        Self: Sized,
    {
        typed()
    }
}

/// A dtype that numbers have: the integers and the floats.
#[diagnostic::on_unimplemented(
    message = "this needs numbers, `{Self}` is none",
    note = "masks combine with `&`, `|` and `!`; a parameter of a kernel needs the bound `Number`, `Float` or `Int`",
    note = "floats of 8 bits are for storage: convert with `.to::<f32>()`"
)]
pub trait Number: Element {
    /// The dtype in which sums of this one are kept: f32, f64 for f64, i32 for integers of 8 and 16 bits, and other
    /// integers themselves.
    type Acc: Number<Acc = Self::Acc>;
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// The smallest finite value.
    const MIN: Self;
    /// The largest finite value.
    const MAX: Self;
}

/// `f16`, `bf16`, `f32` or `f64`.
#[diagnostic::on_unimplemented(
    message = "this needs a float dtype, `{Self}` is none",
    note = "convert with `.to::<f32>()`; a parameter of a kernel needs the bound `Float`"
)]
pub trait Float: Number<Acc = <Self as Float>::FloatAcc> + Factor<Sum = f32> + Accumulator {
    /// [`Number::Acc`], which is a float.
    #[doc(hidden)]
    type FloatAcc: Float<FloatAcc = Self::FloatAcc>;
    /// Infinity.
    const INFINITY: Self;
    /// Minus infinity.
    const NEG_INFINITY: Self;
    /// Not a number.
    const NAN: Self;
    /// The gap between 1 and the next larger number.
    const EPSILON: Self;
    /// The smallest positive normal number.
    const MIN_POSITIVE: Self;
}

/// `f8e4m3` or `f8e5m2`: to load, store, compare, convert, and to multiply by `dot`.
#[diagnostic::on_unimplemented(
    message = "this needs a float of 8 bits, `{Self}` is none",
    note = "these are `f8e4m3` and `f8e5m2`; a parameter of a kernel needs the bound `Float8`"
)]
pub trait Float8: Element + Factor<Sum = f32> {
    /// The dtype in which sums of this one are kept: f32.
    type Acc: Float<FloatAcc = Self::Acc>;
}

/// What `dot_scaled` multiplies: floats of 8 bits, and `u8` for two of 4 bits.
#[diagnostic::on_unimplemented(
    message = "`dot_scaled` multiplies floats of 8 bits, and floats of 4 bits two to a `u8`, not `{Self}`",
    note = "these are `f8e4m3`, `f8e5m2` and `u8`; a parameter of a kernel needs the bound `Float8`"
)]
pub trait Microscaled: Element {}

#[diagnostic::do_not_recommend]
impl<T: Float8> Microscaled for T {}
#[diagnostic::do_not_recommend]
impl Microscaled for u8 {}

/// What `dot` multiplies: every float, those of 8 bits too, and integers of 8 bits.
#[diagnostic::on_unimplemented(
    message = "`dot` multiplies floats and integers of 8 bits, `{Self}` is neither",
    note = "convert with `.to::<f32>()`; a parameter of a kernel needs the bound `Float`, `Float8` or `Int8`"
)]
pub trait Factor: Element {
    /// In what products are added where no accumulator is given.
    type Sum: Accumulator;
}

/// What `dot` adds products to: a float, or `i32` for products of integers.
#[diagnostic::on_unimplemented(
    message = "`dot` adds to floats or to i32, and not to `{Self}`",
    note = "the accumulator of floats is f32, that of integers i32"
)]
pub trait Accumulator: Number {}

#[diagnostic::do_not_recommend]
impl Accumulator for i32 {}

/// `i8` or `u8`: integers that `dot` multiplies, and adds up as `i32`.
#[diagnostic::on_unimplemented(
    message = "this needs an integer of 8 bits, `{Self}` is none",
    note = "these are `i8` and `u8`; a parameter of a kernel needs the bound `Int8`"
)]
pub trait Int8: Int<IntAcc = i32> + Factor<Sum = i32> {}

/// `i8` to `i64`, `u8` to `u64`.
#[diagnostic::on_unimplemented(
    message = "this needs an integer dtype, `{Self}` is none",
    note = "convert with `.to::<i64>()`; a parameter of a kernel needs the bound `Int`"
)]
pub trait Int: Number<Acc = <Self as Int>::IntAcc> + Logic {
    /// [`Number::Acc`], which is an integer.
    #[doc(hidden)]
    type IntAcc: Int<IntAcc = Self::IntAcc>;
}

/// A dtype with `&`, `|` and `^`: `bool` and the integers.
#[diagnostic::on_unimplemented(
    message = "`&`, `|`, `^` and `!` need bool or integers, `{Self}` is neither",
    note = "masks come from comparisons: `i < n`"
)]
pub trait Logic: Element {}

/// `bool`
#[diagnostic::on_unimplemented(
    message = "this needs a mask, of dtype bool and not `{Self}`",
    note = "masks come from comparisons: `x > 0.0`"
)]
pub trait Bool: Element {}

#[diagnostic::do_not_recommend]
impl Element for bool {}
#[diagnostic::do_not_recommend]
impl Logic for bool {}
#[diagnostic::do_not_recommend]
impl Bool for bool {}

macro_rules! ints {
    ($($ty:ident: $acc:ident),*) => {$(
        #[diagnostic::do_not_recommend]
        impl Element for $ty {}
        #[diagnostic::do_not_recommend]
        impl Logic for $ty {}
        #[diagnostic::do_not_recommend]
        impl Int for $ty {
            type IntAcc = $acc;
        }
        #[diagnostic::do_not_recommend]
        impl Number for $ty {
            type Acc = $acc;
            const ZERO: $ty = 0;
            const ONE: $ty = 1;
            const MIN: $ty = $ty::MIN;
            const MAX: $ty = $ty::MAX;
        }
    )*};
}
ints!(i8: i32, i16: i32, i32: i32, i64: i64, u8: i32, u16: i32, u32: u32, u64: u64);

macro_rules! ints8 {
    ($($ty:ident),*) => {$(
        #[diagnostic::do_not_recommend]
        impl Factor for $ty {
            type Sum = i32;
        }
        #[diagnostic::do_not_recommend]
        impl Int8 for $ty {}
    )*};
}
ints8!(i8, u8);

macro_rules! floats {
    ($($ty:ident: $acc:ident, $zero:expr, $one:expr);*) => {$(
        #[diagnostic::do_not_recommend]
        impl Element for $ty {}
        #[diagnostic::do_not_recommend]
        impl Factor for $ty {
            type Sum = f32;
        }
        #[diagnostic::do_not_recommend]
        impl Accumulator for $ty {}
        #[diagnostic::do_not_recommend]
        impl Float for $ty {
            type FloatAcc = $acc;
            const INFINITY: $ty = $ty::INFINITY;
            const NEG_INFINITY: $ty = $ty::NEG_INFINITY;
            const NAN: $ty = $ty::NAN;
            const EPSILON: $ty = $ty::EPSILON;
            const MIN_POSITIVE: $ty = $ty::MIN_POSITIVE;
        }
        #[diagnostic::do_not_recommend]
        impl Number for $ty {
            type Acc = $acc;
            const ZERO: $ty = $zero;
            const ONE: $ty = $one;
            const MIN: $ty = $ty::MIN;
            const MAX: $ty = $ty::MAX;
        }
    )*};
}
floats!(
    f16: f32, f16::ZERO, f16::ONE;
    bf16: f32, bf16::ZERO, bf16::ONE;
    f32: f32, 0.0, 1.0;
    f64: f64, 0.0, 1.0
);

macro_rules! floats8 {
    ($($ty:ident),*) => {$(
        #[diagnostic::do_not_recommend]
        impl Element for $ty {}
        #[diagnostic::do_not_recommend]
        impl Factor for $ty {
            type Sum = f32;
        }
        #[diagnostic::do_not_recommend]
        impl Float8 for $ty {
            type Acc = f32;
        }
    )*};
}
floats8!(f8e4m3, f8e5m2);

/// The same dtype.
#[diagnostic::on_unimplemented(
    message = "one dtype is needed here, these are `{Self}` and `{U}`",
    label = "dtypes `{Self}` and `{U}`",
    note = "convert one of them: `.to::<{U}>()` or `.to::<{Self}>()`"
)]
pub trait OneDType<U> {}

impl<T> OneDType<T> for T {}

/// What `as` converts: a scalar.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`as` converts scalars, this is a `{Self}`",
    note = "convert a tile with `.to::<f32>()`"
)]
pub trait As {}

impl<T: Element> As for T {}

/// `x as U`.
#[doc(hidden)]
pub fn as_<U: Element, X: As>(_x: X) -> U {
    typed()
}
