//! The tensors that a module owns: parameters, which are trained, and buffers, which are not.

use std::ops::Deref;

use crate::error::Result;
use crate::tensor::Tensor;

/// A tensor that is trained. A clone is the same parameter.
#[derive(Clone, Debug)]
pub struct Parameter(Tensor);

impl Parameter {
    /// A leaf with these values, that requires a gradient.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn new(values: Tensor) -> Result<Parameter> {
        let leaf = if values.is_leaf() { values } else { values.detach() };
        Ok(Parameter(leaf.requires_grad_(true)?))
    }

    /// A tensor that asks for no gradient.
    pub(crate) fn frozen(tensor: Tensor) -> Parameter {
        Parameter(tensor)
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }

    /// Puts another tensor in its place, for this owner only. [`Module::to_dtype`](crate::nn::Module::to_dtype) and
    /// [`Module::to_device`](crate::nn::Module::to_device) keep tied parameters tied.
    pub fn replace(&mut self, tensor: Tensor) {
        self.0 = tensor;
    }

    /// Asks for gradients, or freezes the parameter.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn set_requires_grad(&self, on: bool) -> Result<()> {
        self.0.clone().requires_grad_(on).map(drop)
    }
}

impl Deref for Parameter {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.0
    }
}

/// A tensor that belongs to a module and is not trained, such as running statistics.
#[derive(Clone, Debug)]
pub struct Buffer {
    tensor: Tensor,
    persistent: bool,
}

impl Buffer {
    /// A buffer that is saved with the module.
    pub fn new(tensor: Tensor) -> Buffer {
        Buffer { tensor: tensor.detach(), persistent: true }
    }

    /// A buffer that is not saved, such as a table that can be computed. It moves with the module from
    /// device to device and keeps its dtype.
    pub fn transient(tensor: Tensor) -> Buffer {
        Buffer { persistent: false, ..Buffer::new(tensor) }
    }

    /// Whether it is saved.
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Puts another tensor in its place.
    pub fn replace(&mut self, tensor: Tensor) {
        self.tensor = tensor.detach();
    }
}

impl Deref for Buffer {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}
