//! Dense tensors on the CPU as slices, for loops that are written in Rust.

use crate::tensor::Tensor;

/// The elements of a dense tensor on the CPU, whose dtype is that of `T`.
pub(super) fn elements<T>(t: &Tensor) -> &[T] {
    check::<T>(t);
    // SAFETY: a dense CPU tensor of this dtype has so many elements from its address on, and the borrow
    // keeps its storage alive.
    unsafe { std::slice::from_raw_parts(t.address() as *const T, t.numel()) }
}

/// The elements of a dense tensor on the CPU that was just made and that no one else has.
#[allow(clippy::mut_from_ref, reason = "a tensor is a handle: what it points to is shared anyway")]
pub(super) fn elements_mut<T>(t: &Tensor) -> &mut [T] {
    check::<T>(t);
    // SAFETY: as above, and the tensor is fresh: nothing else reads or writes it.
    unsafe { std::slice::from_raw_parts_mut(t.address() as *mut T, t.numel()) }
}

fn check<T>(t: &Tensor) {
    let fits = t.is_contiguous() && !t.device().is_cuda() && t.dtype().bytes() == size_of::<T>();
    assert!(fits && t.numel() > 0, "a dense CPU tensor is wanted, this is a bug in Genesis");
}
