//! Passes over tile IR, and the order in which they run.
//!
//! A pass is a name and a function that changes a [`Func`] in place; each is one file with its tests.
//! None of them changes a single bit of any result: constants fold by the same functions that the
//! interpreter computes with, and transcendental functions are never folded, only expanded.

pub mod expand_math;
pub(crate) mod math;
pub mod pad;
pub(crate) mod rebuild;
pub(crate) mod rewrite;
pub mod views;

use crate::ir::Func;
pub use expand_math::{EXPAND_MATH, EXPAND_MATH_NVPTX, MathTarget, expand_math};

/// One step of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// Its name, as dumps and errors print it.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&mut Func),
}

/// What every function goes through first, whatever runs it.
pub static PIPELINE: &[Pass] = &[];

/// What follows [`PIPELINE`] on the interpreter and the CPU.
pub static EXACT: &[Pass] = &[EXPAND_MATH];

/// What follows [`PIPELINE`] on an NVIDIA GPU.
pub static NVPTX: &[Pass] = &[EXPAND_MATH_NVPTX];

/// Runs passes in order.
pub fn run(func: &mut Func, passes: &[Pass]) {
    for pass in passes {
        (pass.run)(func);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Pass;
    use crate::ir::{parse, print};

    /// Compares a function after a pass with what is expected.
    pub(crate) fn check(pass: &Pass, before: &str, after: expect_test::Expect) {
        let mut func = parse::parse(before).expect("the test's text is tile IR");
        (pass.run)(&mut func);
        let text = print::print(&func);
        parse::parse(&text).expect("what a pass leaves reads back");
        after.assert_eq(&text);
    }
}
