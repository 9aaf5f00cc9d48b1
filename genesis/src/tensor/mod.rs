//! The tensor: run-time dtype, shape, strides and device over shared storage.
//!
//! A clone is cheap and is the same tensor: it shares storage and gradient. A view is another tensor
//! over the same storage. Memory and gradient bookkeeping are apart ([`Storage`], [`AutogradMeta`]), so
//! that a graph that only needs to know where gradients go keeps no memory alive.

mod creation;
pub(crate) mod host;
mod storage;

use std::any::Any;
use std::sync::{Arc, OnceLock, Weak};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::shape::Layout;

pub use creation::Creation;
pub(crate) use storage::{Storage, products};

/// An n-dimensional array with an optional gradient.
#[derive(Clone)]
pub struct Tensor(Arc<Inner>);

/// What autograd keeps with a tensor; it alone knows what that is.
pub(crate) type AutogradMeta = dyn Any + Send + Sync;

/// A tensor that is only kept alive by others.
#[derive(Clone)]
pub(crate) struct WeakTensor(Weak<Inner>);

impl WeakTensor {
    /// The tensor, if it is still there.
    pub(crate) fn upgrade(&self) -> Option<Tensor> {
        self.0.upgrade().map(Tensor)
    }
}

struct Inner {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    /// Made when it is first asked for: most tensors want no gradient.
    autograd: OnceLock<Arc<AutogradMeta>>,
}

/// What a tensor is apart from its values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorType {
    /// Extents, outermost first.
    pub shape: Vec<usize>,
    /// The dtype of the elements.
    pub dtype: DType,
}

impl TensorType {
    /// A type from its parts.
    pub fn new(shape: &[usize], dtype: DType) -> TensorType {
        TensorType { shape: shape.to_vec(), dtype }
    }
}

impl Tensor {
    /// A tensor over storage, without history; for ops. The one place where a tensor is made.
    ///
    /// Everything that reads or writes memory trusts that the elements of a tensor lie in its storage, so that
    /// it is looked at here, whoever asks.
    #[inline]
    pub(crate) fn plain(storage: Arc<Storage>, layout: Layout, dtype: DType) -> Tensor {
        assert!(
            storage.holds(&layout, dtype),
            "{layout:?} of {dtype} leaves its storage of {} bytes, which is a bug in Genesis",
            storage.bytes()
        );
        Tensor(Arc::new(Inner { storage, layout, dtype, autograd: OnceLock::new() }))
    }

    /// Extents, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        self.0.layout.shape()
    }

    /// Steps between neighbours along each axis, in elements.
    pub fn strides(&self) -> &[i64] {
        self.0.layout.strides()
    }

    /// Where the elements lie in the storage.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Shape and dtype together.
    pub fn tensor_type(&self) -> TensorType {
        TensorType::new(self.shape(), self.dtype())
    }

    /// Where the elements are.
    pub fn device(&self) -> Device {
        self.0.storage.device()
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The extent along `dim`, which may count from the end.
    ///
    /// # Errors
    /// If there is no such dimension.
    pub fn dim(&self, dim: i64) -> crate::Result<usize> {
        Ok(self.shape()[crate::shape::axis("dim", dim, self.shape())?])
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.0.layout.numel()
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.0.layout.is_contiguous()
    }

    /// The memory below, shared with every view of it.
    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.0.storage
    }

    /// Where autograd keeps what it knows of the tensor. While it is empty, the tensor is a leaf that wants no
    /// gradient.
    pub(crate) fn autograd_meta(&self) -> &OnceLock<Arc<AutogradMeta>> {
        &self.0.autograd
    }

    /// The address of the first element.
    pub(crate) fn address(&self) -> u64 {
        self.0.storage.address() + (self.0.layout.offset() * self.dtype().bytes()) as u64
    }

    /// Whether both are the same tensor, not merely equal.
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A handle that does not keep the tensor alive.
    pub(crate) fn downgrade(&self) -> WeakTensor {
        WeakTensor(Arc::downgrade(&self.0))
    }

    /// Whether there is no other handle of this tensor.
    pub(crate) fn is_sole_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Whether nothing else reads or writes the memory below.
    pub(crate) fn is_sole_owner(&self) -> bool {
        self.is_sole_handle() && Arc::strong_count(&self.0.storage) == 1
    }

    /// The same elements without history: a view that requires no gradient.
    pub fn detach(&self) -> Tensor {
        let inner = &self.0;
        Tensor::plain(inner.storage.clone(), inner.layout.clone(), inner.dtype)
    }

    /// The number of in-place writes to the storage so far, through this tensor or any view.
    pub fn version(&self) -> u64 {
        self.0.storage.version()
    }
}
