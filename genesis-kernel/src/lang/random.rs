//! Random numbers: functions of a seed and an offset.

use super::{Element, Int, IntLiteral, Tile};

/// Which numbers of a random sequence: an `i64`, or a tile of it.
#[diagnostic::on_unimplemented(
    message = "offsets into a random sequence are `i64`, this is `{Self}`",
    note = "number the elements: `program_id(0) * BLOCK + arange::<BLOCK>()`"
)]
pub trait Offsets {
    /// Numbers of a dtype, one for each offset.
    type With<U: Element>;
}

impl Offsets for i64 {
    type With<U: Element> = U;
}
impl<S> Offsets for Tile<i64, S> {
    type With<U: Element> = Tile<U, S>;
}

/// What chooses a random sequence: an integer.
#[diagnostic::on_unimplemented(
    message = "a seed is an integer scalar, this is `{Self}`",
    note = "take it as a parameter: `seed: u64`"
)]
pub trait Seed {}

impl<T: Int> Seed for T {}
impl Seed for IntLiteral {}
