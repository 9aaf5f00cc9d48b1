//! Views that kernels make.

use super::super::typed;
use super::super::view::ViewOf;

/// A view of the memory from a pointer on, of these extents and strides in elements: a [`View`](super::super::View) of a
/// `Ptr`, a [`ViewMut`](super::super::ViewMut) of a `PtrMut`. Along an axis of a negative extent it has no elements.
///
/// What it says is there must be there: the launch of a kernel that has the pointer is `unsafe`.
pub fn view_of<P: ViewOf<RANK>, const RANK: usize>(
    _ptr: P,
    _extents: [i64; RANK],
    _strides: [i64; RANK],
) -> P::View {
    typed()
}
