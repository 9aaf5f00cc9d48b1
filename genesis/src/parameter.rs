//! The tensors that a module owns: parameters, which are trained, and buffers, which are not.

use std::ops::Deref;
use std::sync::Arc;

use crate::error::Result;
use crate::tensor::Tensor;

/// A tensor that is trained. A clone is the same parameter.
#[derive(Clone, Debug)]
pub struct Parameter {
    tensor: Tensor,
    shard: Option<Arc<Shard>>,
}

/// Which part of a larger tensor a parameter is, where several ranks have one each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shard {
    /// The shape of the whole.
    pub whole: Vec<usize>,
    /// How it is cut.
    pub cut: Cut,
    /// The number of this part.
    pub index: usize,
    /// The number of parts.
    pub count: usize,
    /// Which part of a still larger tensor the whole is.
    pub outer: Option<Arc<Shard>>,
}

/// How a tensor is cut into parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Into equal parts along an axis.
    Axis(usize),
    /// Its elements in row-major order, into parts of one length; zeros follow the last element.
    Flat,
}

impl Parameter {
    /// A leaf with these values, that requires a gradient.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn new(values: Tensor) -> Result<Parameter> {
        let leaf = if values.is_leaf() { values } else { values.detach() };
        Ok(Parameter { tensor: leaf.requires_grad_(true)?, shard: None })
    }

    /// A tensor that asks for no gradient.
    pub(crate) fn frozen(tensor: Tensor) -> Parameter {
        Parameter { tensor, shard: None }
    }

    /// A tensor as it is, with its history.
    pub(crate) fn shared(tensor: Tensor) -> Parameter {
        Parameter { tensor, shard: None }
    }

    /// Copies of parameters that differ in their first extent alone, each beginning in memory where the one before ends, so
    /// that [`Tensor::joined`] is all of them. Those that are trained are leaves again. None where only some are, or dtypes
    /// differ.
    ///
    /// # Errors
    /// If memory runs out.
    pub(crate) fn packed(parts: &[&Parameter]) -> Result<Option<Vec<Parameter>>> {
        let Some(first) = parts.first() else { return Ok(None) };
        let (dtype, is_trained) = (first.dtype(), first.requires_grad());
        if parts.iter().any(|part| (part.dtype(), part.requires_grad()) != (dtype, is_trained)) {
            return Ok(None);
        }
        let tensors: Vec<&Tensor> = parts.iter().map(|part| part.tensor()).collect();
        let packed = match is_trained {
            true => Tensor::pack_apart(&tensors)?,
            false => Tensor::pack(&tensors)?,
        };
        let packed = packed.into_iter().zip(parts).map(|(packed, part)| {
            let tensor = packed.requires_grad_(is_trained)?;
            Ok(Parameter { tensor, shard: part.shard.clone() })
        });
        packed.collect::<Result<_>>().map(Some)
    }

    /// The same parameter, known to be a part of a larger one.
    pub(crate) fn with_shard(self, shard: Shard) -> Parameter {
        Parameter { shard: Some(Arc::new(shard)), ..self }
    }

    /// Which part of a larger tensor it is; none of a parameter that is whole.
    pub fn shard(&self) -> Option<&Arc<Shard>> {
        self.shard.as_ref()
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Puts another tensor in its place, for this owner only. [`Module::to_dtype`](crate::nn::Module::to_dtype) and
    /// [`Module::to_device`](crate::nn::Module::to_device) keep tied parameters tied.
    pub fn replace(&mut self, tensor: Tensor) {
        self.tensor = tensor;
    }

    /// Asks for gradients, or freezes the parameter.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn set_requires_grad(&self, on: bool) -> Result<()> {
        self.tensor.clone().requires_grad_(on).map(drop)
    }
}

impl Deref for Parameter {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.tensor
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
