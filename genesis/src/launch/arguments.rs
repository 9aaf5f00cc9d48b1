//! Tensors and numbers as arguments of kernels.

use genesis_kernel::ir::{DType, MAX_RANK, Scalar};
use genesis_kernel::runtime::{Arg, Device, PtrArg, ViewArg};

use crate::dispatch::capture;
use crate::tensor::Tensor;

pub(super) fn scalar(dtype: DType, value: f64) -> Arg {
    Arg::Scalar(if dtype.is_float() {
        Scalar::float(dtype, value)
    } else {
        Scalar::int(dtype, value as i64)
    })
}

/// A tensor as a view argument with other extents and strides over the same first element.
pub(super) fn view(t: &Tensor, shape: &[usize], strides: &[i64], mutable: bool) -> Arg {
    let mut dims = [0; MAX_RANK];
    dims.iter_mut().zip(shape).for_each(|(dim, &extent)| *dim = extent as i64);
    let view = ViewArg::new(base(t, mutable), &dims[..shape.len().min(MAX_RANK)], strides);
    Arg::View(view.expect("views here have at most as many axes as kernels take"))
}

/// The first element of a tensor.
pub(super) fn base(t: &Tensor, mutable: bool) -> PtrArg {
    t.storage().note_use();
    capture::hold(t.storage());
    let skipped = (t.layout().offset() * t.dtype().bytes()) as u64;
    let bytes = (t.storage().bytes() as u64).saturating_sub(skipped);
    PtrArg { device: t.device(), address: t.address(), bytes, dtype: t.dtype(), mutable }
}

/// A pointer argument.
pub(crate) fn pointer(t: &Tensor, mutable: bool) -> Arg {
    Arg::Ptr(base(t, mutable))
}

/// A dense matrix with its axes exchanged.
pub(super) fn turned(t: &Tensor, mutable: bool) -> Arg {
    let [rows, columns] = [0, 1].map(|axis| t.shape()[axis]);
    view(t, &[columns, rows], &[1, columns as i64], mutable)
}

/// A pointer argument that the kernel does not follow.
pub(crate) fn no_pointer(device: Device, dtype: DType) -> Arg {
    Arg::Ptr(PtrArg { device, address: 0, bytes: 0, dtype, mutable: false })
}

pub(crate) fn own_view(t: &Tensor, mutable: bool) -> Arg {
    view(t, t.shape(), t.strides(), mutable)
}

pub(super) fn flat_view(t: &Tensor, mutable: bool) -> Arg {
    Arg::View(ViewArg::flat(base(t, mutable), t.numel()))
}
