//! Two arguments over the same memory, of which a kernel writes one: refused by safe launches.
//!
//! A `ViewMut` is the only access to its elements during a launch. Rust's borrows say so of arrays; tensors
//! share memory as they like, so that the launch looks itself. It compares elements, not ranges: columns of
//! one tensor that take turns in memory are apart. A launch that is `unsafe` is not checked: what works in
//! place, element by element, promises to.

use crate::diag::Error;
use crate::front::ast::{FnAst, PatternAst, TypeAst};
use crate::runtime::Arg;
use crate::runtime::reach::{Footing, are_disjoint};

/// Refuses arguments that share elements where the kernel writes one of them.
pub(crate) fn check(ast: &FnAst, args: &[Arg]) -> Result<(), Error> {
    for (i, written) in args.iter().enumerate().filter(|&(i, _)| is_written(ast, i)) {
        for (j, other) in args.iter().enumerate() {
            // Of two that are written the pair is looked at once.
            let is_next = j > i || (j < i && !is_written(ast, j));
            if is_next && !are_apart(written, other) && share_elements(written, other) {
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

/// Whether the memory of two arguments lies apart, as that of two buffers does: this is all that most
/// launches pay for. A view that steps backwards reaches before its address, and is never told.
#[inline]
fn are_apart(a: &Arg, b: &Arg) -> bool {
    let range = |arg: &Arg| match arg {
        Arg::Scalar(_) => Some((0, 0)),
        Arg::Ptr(ptr) => Some((ptr.address, ptr.bytes)),
        Arg::View(view) if view.strides().iter().any(|&stride| stride < 0) => None,
        Arg::View(view) => Some((view.ptr.address, view.ptr.bytes)),
    };
    let (Some((a, a_bytes)), Some((b, b_bytes))) = (range(a), range(b)) else { return false };
    a_bytes == 0 || b_bytes == 0 || a.saturating_add(a_bytes) <= b || b.saturating_add(b_bytes) <= a
}

#[cold]
fn share_elements(a: &Arg, b: &Arg) -> bool {
    let (Some(a), Some(b)) = (footing(a), footing(b)) else { return false };
    !are_disjoint(&a, &b)
}

fn is_written(ast: &FnAst, index: usize) -> bool {
    let ty = ast.params.get(index).map(|param| &param.ty);
    matches!(ty, Some(TypeAst::View { mutable: true, .. } | TypeAst::Ptr { mutable: true, .. }))
}

fn footing(arg: &Arg) -> Option<Footing> {
    match arg {
        Arg::Scalar(_) => None,
        Arg::Ptr(ptr) => Footing::of_bytes(ptr.address, ptr.bytes),
        Arg::View(view) => {
            let (ptr, size) = (&view.ptr, view.ptr.dtype.bytes());
            Footing::of_view(ptr.address, size, view.dims(), view.strides())
        }
    }
}

fn name(ast: &FnAst, index: usize) -> &'static str {
    match ast.params.get(index).map(|param| param.pattern) {
        Some(PatternAst::Name(name)) => name,
        _ => "_",
    }
}
