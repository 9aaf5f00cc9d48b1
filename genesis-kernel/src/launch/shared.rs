//! Two arguments over the same memory, of which a kernel writes one: refused by safe launches.
//!
//! A `ViewMut` is the only access to its elements during a launch. Rust's borrows say so of arrays; tensors
//! share memory as they like, so that the launch looks itself; of a list each view counts as an argument of its own.
//! A launch that is `unsafe` is not checked: what works in place, element by element, promises to.

use crate::diag::Error;
use crate::front::ast::{FnAst, PatternAst, TypeAst};
use crate::runtime::CheckedArg;
use crate::runtime::overlap::share_elements;

/// Refuses arguments that share elements where the kernel writes one of them.
pub(crate) fn check(ast: &FnAst, args: &[CheckedArg<'_>]) -> Result<(), Error> {
    for (i, written) in args.iter().enumerate().filter(|&(i, _)| is_written(ast, i)) {
        for (j, other) in args.iter().enumerate() {
            // Of two that are written the pair is looked at once.
            let is_next = j > i || (j < i && !is_written(ast, j));
            if is_next && any_shared(written, other) {
                return Err(Error::launch(format!(
                    "{}: arguments `{}` and `{}` share memory, and the kernel writes `{}`",
                    ast.name,
                    name(ast, i.min(j)),
                    name(ast, i.max(j)),
                    name(ast, i)
                )));
            }
        }
    }
    Ok(())
}

/// Whether a part of one argument shares elements with a part of the other.
#[inline]
fn any_shared(a: &CheckedArg<'_>, b: &CheckedArg<'_>) -> bool {
    let is_shared = |a: &CheckedArg<'_>| {
        let a = a.arg();
        b.parts().iter().any(|b| share_elements(&a, &b.arg()))
    };
    a.parts().iter().any(is_shared)
}

fn is_written(ast: &FnAst, index: usize) -> bool {
    let ty = ast.params.get(index).map(|param| &param.ty);
    matches!(
        ty,
        Some(
            TypeAst::View { mutable: true, .. }
                | TypeAst::Views { mutable: true, .. }
                | TypeAst::Ptr { mutable: true, .. }
        )
    )
}

fn name(ast: &FnAst, index: usize) -> &'static str {
    match ast.params.get(index).map(|param| param.pattern) {
        Some(PatternAst::Name(name)) => name,
        _ => "_",
    }
}
