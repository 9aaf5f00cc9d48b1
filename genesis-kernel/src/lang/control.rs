//! Control flow, assertions and printing.

use super::{Element, Ptr, PtrMut, Tile, typed};

/// The condition of an `if` or a `while`.
#[diagnostic::on_unimplemented(
    message = "a condition needs a scalar `bool`, this is `{Self}`",
    note = "choose element by element with `where_(cond, a, b)`; `any(mask, 0)` and `all(mask, 0)` make a scalar of a mask"
)]
pub trait Condition {}

#[diagnostic::do_not_recommend]
impl Condition for bool {}

/// The condition of an `if` or a `while`.
#[doc(hidden)]
pub fn condition<C: Condition>(_cond: C) -> bool {
    typed()
}

/// What a `for` runs over.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Range;

impl Iterator for Range {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        typed()
    }
}

/// `start..end` by `step`: up to but without `end`, or down to but without it where the step is negative. A
/// step of 0 is refused: when the kernel is compiled or, where it is not known then, as a failed
/// `device_assert!`.
#[doc(hidden)]
pub fn range(_start: i64, _end: i64, _step: i64) -> Range {
    typed()
}

/// This program's share of `0..total`.
#[doc(hidden)]
pub fn persistent(_total: i64) -> Range {
    typed()
}

/// `static_assert!`
#[doc(hidden)]
pub fn static_assert<C: Condition>(_cond: C) {}

/// What `device_assert!` checks: a bool, or a tile of bools that must all hold.
#[diagnostic::on_unimplemented(
    message = "`device_assert!` needs a bool or a mask, this is `{Self}`",
    note = "conditions come from comparisons: `i < n`"
)]
pub trait Assertion {}

impl Assertion for bool {}
impl<S> Assertion for Tile<bool, S> {}

/// `device_assert!`
#[doc(hidden)]
pub fn device_assert<C: Assertion>(_cond: C) {}

/// What `device_print!` can print.
#[diagnostic::on_unimplemented(
    message = "`device_print!` can't print `{Self}`",
    note = "it prints scalars, tiles and pointers"
)]
pub trait Print {}

impl<T: Element> Print for T {}
impl<T, S> Print for Tile<T, S> {}
impl<T> Print for Ptr<T> {}
impl<T> Print for PtrMut<T> {}

/// One value of `device_print!`. On the CPU a tile is printed whole, on a GPU an element a line with its
/// coordinates; what can't be written, as when stdout is closed, is lost.
#[doc(hidden)]
pub fn print<X: Print>(_x: X) {}
