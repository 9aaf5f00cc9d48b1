//! Control flow, assertions and printing.

use super::operators::Values;
use super::{Element, Number, Ptr, PtrMut, Tile, typed};

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
/// `device_assert!`. A kernel may leave out the step, which is 1 then, and add `.stages(n)`: iterations of
/// loads that run ahead.
pub fn range(_start: i64, _end: i64, _step: i64) -> Range {
    typed()
}

/// [`range`] over constants, unrolled: the index is a constant in each copy of the body.
pub fn static_range(start: i64, end: i64, step: i64) -> Range {
    range(start, end, step)
}

/// This program's share of `0..total`: from `program_id(0)` in steps of `num_programs(0)`.
pub fn persistent(_total: i64) -> Range {
    typed()
}

/// `static_assert!(cond, "message")`: refuses a specialisation where the condition, over constants, does not
/// hold.
pub fn static_assert<C: Condition>(_cond: C) {}

/// What `device_assert!` checks: a bool, or a tile of bools that must all hold.
#[diagnostic::on_unimplemented(
    message = "`device_assert!` needs a bool or a mask, this is `{Self}`",
    note = "conditions come from comparisons: `i < n`"
)]
pub trait Assertion {}

impl Assertion for bool {}
impl<S> Assertion for Tile<bool, S> {}

/// `device_assert!(cond, "message")`: stops the program where the condition does not hold.
pub fn device_assert<C: Assertion>(_cond: C) {}

/// The inputs of `inline_asm!`: numbers, each a scalar or a tile.
#[diagnostic::on_unimplemented(
    message = "`inline_asm!` takes numbers and tiles of them, at most 8, these are `{Self}`",
    note = "read memory with `load` first"
)]
pub trait AsmInputs {}

macro_rules! asm_inputs {
    ($(($($x:ident),*))*) => {$(
        impl<$($x: Values),*> AsmInputs for ($($x,)*) {}
    )*};
}
asm_inputs! {
    () (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
}

/// What `inline_asm!` gives: numbers of one dtype, or of several in one shape.
#[diagnostic::on_unimplemented(
    message = "`inline_asm!` gives numbers and tiles of them, at most 8 of one shape, and not `{Self}`",
    note = "what the CPU computes stands last: a value, or a tuple of them for several results"
)]
pub trait AsmResults {}

#[diagnostic::do_not_recommend]
impl<T: Number> AsmResults for T {}
#[diagnostic::do_not_recommend]
impl<T: Number, S> AsmResults for Tile<T, S> {}

macro_rules! asm_results {
    ($(($($x:ident),*))*) => {$(
        #[diagnostic::do_not_recommend]
        impl<A, $($x),*> AsmResults for (A, $($x,)*)
        where
            A: Values<Element: Number>,
            $($x: Values<Element: Number, Shape = A::Shape>,)*
        {
        }
    )*};
}
asm_results! {
    (B) (B, C) (B, C, D) (B, C, D, E) (B, C, D, E, F) (B, C, D, E, F, G) (B, C, D, E, F, G, H)
}

/// `inline_asm!("text", "constraints", x, y, value)`: PTX for each element of the inputs, where `$0` is the result and
/// `$1` the first input. The CPU and the interpreter compute the last argument instead, whose type is that of the
/// result; a tuple of values is several results. With `pack = 4` behind it the text is of 4 elements (2 or 8), and
/// registers hold as many as they have room for. The text has no effect but its results, and is the same function of
/// each element of its inputs.
///
/// ```text
/// inline_asm!("lop3.b32 $0, $1, $2, $3, 0x96;", "=r,r,r,r", x, y, z, x ^ y ^ z)
/// inline_asm!("add.u32 $0, $2, $3; sub.u32 $1, $2, $3;", "=r,=r,r,r", x, y, (x + y, x - y))
/// inline_asm!("vadd4.u32.u32.u32 $0, $1, $2, 0;", "=r,r,r", x, y, x + y, pack = 4)     u8
/// ```
///
/// Constraints are those of LLVM, the results' first: `h`, `r` and `l` for 16, 32 and 64 bits, `f` for f32 and `d` for
/// f64.
pub fn inline_asm<X: AsmInputs, V: AsmResults>(_inputs: X, value: V) -> V {
    value
}

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

/// One value of `device_print!("x = {}", x)`. On the CPU a tile is printed whole, on a GPU an element a line with its
/// coordinates; what can't be written, as when stdout is closed, is lost.
pub fn print<X: Print>(_x: X) {}
