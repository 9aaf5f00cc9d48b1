//! What may stand in a field of a module: parameters, buffers, training flags, other modules, lists of
//! these, and plain values that are none of the module's state.
//!
//! The type of a field says what it is, so a struct reads as what it consists of:
//!
//! ```
//! use genesis::nn::{Buffer, Linear, Module, Parameter, Training};
//!
//! #[derive(Module)]
//! struct Whitened {
//!     inner: Linear,            // a child: `inner.weight`, `inner.bias`
//!     scale: Option<Parameter>, // trained and saved: `scale`, where it is there
//!     mean: Buffer,             // saved, not trained: `mean`
//!     training: Training,       // switched by `train` and `eval`
//!     eps: f64,                 // plain data: no state
//! }
//! ```
//!
//! A clone of a [`Parameter`] is the same tensor. Modules that hold clones of one parameter are tied:
//! it is trained once, saved once, and stays one when the module moves to another dtype or device.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::{Module, Visitor, VisitorMut};
use crate::error::Result;
use crate::ops::{PadMode, Reduction};
use crate::tensor::Tensor;

/// A field of a module: shows the visitor what it holds, under the name that the visitor is at.
///
/// [`Parameter`], [`Buffer`], [`Training`] and modules are parts; so are `Option`, `Vec`, arrays, tuples
/// and maps of parts, and plain values such as numbers and strings, which show nothing.
#[diagnostic::on_unimplemented(
    message = "a module can't have a field of type `{Self}`",
    label = "neither a module nor a part of one",
    note = "write `Parameter` for a tensor that is trained, `Buffer` for one that is only saved, `#[derive(Module)]` on a struct of layers, or `#[module(skip)]` on a field that is no state"
)]
pub trait Part {
    /// Shows the visitor what this holds.
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>);

    /// [`Part::show`] for a visitor that may replace tensors.
    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>);
}

// An error about a field should not advise to make a number a module.
#[diagnostic::do_not_recommend]
impl<M: Module> Part for M {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.module(self.as_module());
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.visit_mut(visitor);
    }
}

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

    /// Puts another tensor in its place, for this owner only. [`Module::to_dtype`] and
    /// [`Module::to_device`] keep tied parameters tied.
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

impl Part for Parameter {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.parameter(self);
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        visitor.parameter(self);
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

impl Part for Buffer {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.buffer(self);
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        visitor.buffer(self);
    }
}

/// Whether a layer behaves as in training; on at first.
#[derive(Debug)]
pub struct Training(AtomicBool);

impl Default for Training {
    fn default() -> Training {
        Training(AtomicBool::new(true))
    }
}

impl Clone for Training {
    fn clone(&self) -> Training {
        Training(AtomicBool::new(self.is_on()))
    }
}

impl Training {
    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Switches it.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }
}

impl Part for Training {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.training(self);
    }

    fn show_mut(&mut self, _: &mut VisitorMut<'_>) {}
}

impl<P: Part> Part for Option<P> {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        if let Some(part) = self {
            part.show(visitor);
        }
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        if let Some(part) = self {
            part.show_mut(visitor);
        }
    }
}

/// The parts of a list are named by their numbers.
impl<P: Part> Part for [P] {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        for (index, part) in self.iter().enumerate() {
            visitor.part(&index.to_string(), part);
        }
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        for (index, part) in self.iter_mut().enumerate() {
            visitor.part(&index.to_string(), part);
        }
    }
}

impl<P: Part> Part for Vec<P> {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.as_slice().show(visitor);
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.as_mut_slice().show_mut(visitor);
    }
}

impl<P: Part, const N: usize> Part for [P; N] {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.as_slice().show(visitor);
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.as_mut_slice().show_mut(visitor);
    }
}

/// The parts of a map are named by their keys.
impl<P: Part> Part for BTreeMap<String, P> {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        for (name, part) in self {
            visitor.part(name, part);
        }
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        for (name, part) in self {
            visitor.part(name, part);
        }
    }
}

macro_rules! tuples {
    ($($($name:ident $index:tt),+;)*) => {$(
        /// The parts of a tuple are named by their numbers.
        impl<$($name: Part),+> Part for ($($name,)+) {
            fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
                $(visitor.part(stringify!($index), &self.$index);)+
            }

            fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
                $(visitor.part(stringify!($index), &mut self.$index);)+
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}

macro_rules! plain {
    ($($name:ty),+ $(,)?) => {$(
        impl Part for $name {
            fn show<'a>(&'a self, _: &mut Visitor<'a, '_>) {}

            fn show_mut(&mut self, _: &mut VisitorMut<'_>) {}
        }
    )+};
}

plain!(
    bool,
    char,
    u8,
    u16,
    u32,
    u64,
    usize,
    i8,
    i16,
    i32,
    i64,
    isize,
    f32,
    f64,
    String,
    &'static str,
    (),
    DType,
    Device,
    Reduction,
    PadMode,
);

impl<T> Part for PhantomData<T> {
    fn show<'a>(&'a self, _: &mut Visitor<'a, '_>) {}

    fn show_mut(&mut self, _: &mut VisitorMut<'_>) {}
}
