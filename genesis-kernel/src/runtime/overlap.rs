//! Whether two arguments share memory. It compares elements, not ranges: columns of one tensor that take turns in memory
//! are apart.

use super::arg::Arg;
use super::reach::{Footing, are_disjoint};

/// Whether an element of one argument may be one of the other.
#[inline]
pub(crate) fn share_elements(a: &Arg, b: &Arg) -> bool {
    !are_apart(a, b) && may_meet(a, b)
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
        // Its views are arguments of their own.
        Arg::Views(_) => Some((0, 0)),
    };
    let (Some((a, a_bytes)), Some((b, b_bytes))) = (range(a), range(b)) else { return false };
    a_bytes == 0 || b_bytes == 0 || a.saturating_add(a_bytes) <= b || b.saturating_add(b_bytes) <= a
}

#[cold]
fn may_meet(a: &Arg, b: &Arg) -> bool {
    let (Some(a), Some(b)) = (footing(a), footing(b)) else { return false };
    !are_disjoint(&a, &b)
}

fn footing(arg: &Arg) -> Option<Footing> {
    match arg {
        Arg::Scalar(_) | Arg::Views(_) => None,
        Arg::Ptr(ptr) => Footing::of_bytes(ptr.address, ptr.bytes),
        Arg::View(view) => {
            let (ptr, size) = (&view.ptr, view.ptr.dtype.bytes());
            Footing::of_view(ptr.address, size, view.dims(), view.strides())
        }
    }
}
