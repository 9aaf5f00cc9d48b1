//! Passes over tile IR, and the order in which they run.
//!
//! A pass is a name and a function that changes a [`Func`] in place; each is one file with its tests.
//! Only `expand_math`, and `contract` where a kernel asks for it, decide what the bits of a result
//! are, and `defer_reductions` reassociates sums; no other pass changes any: constants fold by the same functions that the interpreter computes
//! with, and transcendental functions are never folded, only expanded.

pub(crate) mod aggregate_atomics;
pub(crate) mod clone;
pub mod contract;
pub mod cse;
pub mod dce;
pub mod defer_reductions;
pub(crate) mod demanded_precision;
pub mod expand_math;
pub mod fold;
pub mod fold_select;
pub mod index_set_split;
pub mod inline_asm;
pub mod licm;
pub(crate) mod math;
pub mod pad;
mod pass;
pub mod peel;
pub(crate) mod rebuild;
pub(crate) mod rewrite;
pub mod software_pipeline;
pub mod tma;
pub mod unroll;
pub mod version;
pub mod views;
pub mod widen;

use crate::ir::{Func, print, verify};
pub use contract::CONTRACT;
pub use cse::CSE;
pub use dce::DCE;
pub use expand_math::{EXPAND_MATH, EXPAND_MATH_NVPTX, MathTarget, expand_math};
pub use fold::FOLD;
pub use fold_select::FOLD_SELECT;
pub use index_set_split::INDEX_SET_SPLIT;
pub use inline_asm::{ASM_TEXT, ASM_VALUES};
pub use licm::LICM;
pub use pass::Pass;
pub use peel::PEEL;
pub use unroll::UNROLL;
pub use version::VERSION;
pub use widen::WIDEN;

/// What every function goes through first, whatever runs it.
pub static PIPELINE: &[Pass] = &[CONTRACT, FOLD, CSE, FOLD, CSE, LICM, DCE];

/// What the interpreter's functions go through: only what decides their bits.
pub static INTERPRETER: &[Pass] = &[ASM_VALUES, CONTRACT, EXPAND_MATH];

/// What follows [`PIPELINE`] on the CPU.
pub static EXACT: &[Pass] = &[ASM_VALUES, UNROLL, EXPAND_MATH, FOLD, CSE, LICM, DCE];

/// What follows [`PIPELINE`] on an NVIDIA GPU.
pub static NVPTX: &[Pass] = &[
    ASM_TEXT,
    WIDEN,
    VERSION,
    PEEL,
    INDEX_SET_SPLIT,
    UNROLL,
    FOLD_SELECT,
    EXPAND_MATH_NVPTX,
    FOLD,
    CSE,
    LICM,
    DCE,
];

/// Runs passes in order; debug builds verify the function after each.
///
/// # Panics
/// If a pass leaves a function that does not verify, which is a bug of the pass: the message has the
/// function as it was before. Only in debug builds.
pub fn run(func: &mut Func, passes: &[Pass]) {
    for pass in passes {
        let before = cfg!(debug_assertions).then(|| func.clone());
        (pass.run)(func);
        if let Some(before) = before
            && let Err(error) = verify::verify(func)
        {
            let (name, text) = (pass.name, print::print(&before));
            panic!("a bug in Genesis: pass `{name}` broke this function: {error}\n{text}");
        }
    }
}

#[cfg(test)]
mod random_tests;
#[cfg(test)]
pub(crate) mod tests {
    use super::Pass;
    use crate::interp::run_func;
    use crate::ir::{InterpArg, parse, print, verify};

    /// Runs a function before and after a pass: both leave the same in memory.
    pub(crate) fn check_meaning(pass: &Pass, text: &str, grid: [u32; 3], args: Vec<InterpArg>) {
        let before = parse::parse(text).expect("the test's text is tile IR");
        let mut after = before.clone();
        super::run(&mut after, std::slice::from_ref(pass));
        let of = |func| run_func(func, grid, args.clone()).expect("nothing is wrong with it");
        assert_eq!(of(&before), of(&after), "{args:?}");
    }

    /// Compares a function after a pass with what is expected.
    pub(crate) fn check(pass: &Pass, before: &str, after: expect_test::Expect) {
        let mut func = parse::parse(before).expect("the test's text is tile IR");
        verify::verify(&func).expect("the test's text verifies");
        super::run(&mut func, std::slice::from_ref(pass));
        let text = print::print(&func);
        parse::parse(&text).expect("what a pass leaves reads back");
        after.assert_eq(&text);
    }
}
