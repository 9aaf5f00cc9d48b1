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

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::{Adapted, Buffer, Module, Parameter, Part, Training, Visitor, VisitorMut, Weight};
use crate::ops::{PadMode, Reduction};

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

impl Part for Parameter {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.parameter(self);
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        visitor.parameter(self);
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

impl Part for Weight {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.weight(self);
        match self {
            Weight::Whole(weight) => weight.show(visitor),
            Weight::Quantized(weight) => weight.show(visitor),
            Weight::Adapted(adapted) => adapted.show(visitor),
        }
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        visitor.weight(self);
        match self {
            Weight::Whole(weight) => weight.show_mut(visitor),
            Weight::Quantized(weight) => weight.show_mut(visitor),
            Weight::Adapted(adapted) => adapted.show_mut(visitor),
        }
    }
}

/// The weight is shown under the name that it has without an adapter, so that names of a state do not change.
impl Part for Adapted {
    fn show<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        match &self.base {
            Weight::Whole(weight) => weight.show(visitor),
            Weight::Quantized(weight) => weight.show(visitor),
            Weight::Adapted(adapted) => adapted.show(visitor),
        }
        visitor.part("lora_A", &self.lora_a);
        visitor.part("lora_B", &self.lora_b);
        visitor.part("lora_magnitude_vector", &self.magnitude);
        visitor.part("", &self.training);
    }

    fn show_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        match &mut self.base {
            Weight::Whole(weight) => weight.show_mut(visitor),
            Weight::Quantized(weight) => weight.show_mut(visitor),
            Weight::Adapted(adapted) => adapted.show_mut(visitor),
        }
        visitor.part("lora_A", &mut self.lora_a);
        visitor.part("lora_B", &mut self.lora_b);
        visitor.part("lora_magnitude_vector", &mut self.magnitude);
    }
}
