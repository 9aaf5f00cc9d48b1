//! Kernels composed at run time: one kernel that does what several elementwise kernels would do one
//! after the other, with what is between them in registers, and perhaps a sum or an extreme of the
//! rows at the end.
//!
//! The maths comes from the kernels themselves: their syntax is in the program, as a static, and its
//! loads and stores are taken off (`body`). What is written around is a kernel of the language like any
//! other: it is specialised, compiled, cached on disk, inspected and launched as those are.
//!
//! ```text
//! let x0 = x0.load::<BLOCK>([at]);
//! let s0 = mul(x0, 2.0);          the body of `mul_scalar`
//! let s1 = tanh(s0);              the body of `tanh`
//! y0.store([at], s1.broadcast_to::<BLOCK>());
//! ```

mod body;
mod forms;
mod indirect;
mod recipe;
mod write;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::diag::Error;
use crate::kernel::KernelDef;

pub use indirect::indirect;
pub use recipe::{Access, Fold, Form, Leaf, Recipe, Source, Step, StepKind};

/// The kernel of a recipe: made at its first use, the same one afterwards. It takes views of the leaves,
/// then of the results, then what its form says.
///
/// # Errors
/// If a kernel among the steps is not elementwise.
pub fn compose(recipe: &Recipe) -> Result<&'static KernelDef, Error> {
    static KNOWN: Mutex<BTreeMap<String, &'static KernelDef>> = Mutex::new(BTreeMap::new());
    let key = format!("{recipe:?}");
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(def) = known.get(&key) {
        return Ok(def);
    }
    let ast = forms::kernel(recipe)?;
    let def: &'static KernelDef = Box::leak(Box::new(KernelDef::new(ast)));
    known.insert(key, def);
    Ok(def)
}
