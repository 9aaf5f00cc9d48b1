//! The trait of everything that has parameters, and what all modules can do.

use std::any::Any;
use std::collections::BTreeMap;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::state::{self, LoadReport};
use super::summary::{self, Summary};
use super::visit::{Seen, SeenMut};
use super::{Buffer, Parameter, Visitor, VisitorMut, watch};
use crate::error::Result;
use crate::tensor::Tensor;

/// A part of a network: a struct of parameters, buffers, flags and other modules.
///
/// `#[derive(Module)]` writes the required methods from the fields; their types say what they are
/// (see [`Part`](super::Part)). What a module computes is a method of its own, of any signature;
/// one that takes a tensor to a tensor is a [`Layer`](super::Layer).
///
/// # Examples
/// ```
/// use genesis::nn::{Dropout, Linear, Module};
/// use genesis::{Device, Result, Tensor};
///
/// #[derive(Module)]
/// struct Net {
///     fc1: Linear,
///     dropout: Dropout,
///     fc2: Linear,
/// }
///
/// impl Net {
///     fn forward(&self, x: &Tensor) -> Result<Tensor> {
///         let h = self.fc1.forward(x)?.relu()?;
///         self.fc2.forward(&self.dropout.forward(&h)?)
///     }
/// }
///
/// let on = Device::Cpu;
/// let net = Net { fc1: Linear::new(4, 8, on)?, dropout: Dropout::new(0.1), fc2: Linear::new(8, 2, on)? };
/// let names: Vec<String> = net.named_parameters().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
/// # Ok::<(), genesis::Error>(())
/// ```
pub trait Module: Any + Send + Sync {
    /// Shows the visitor every field with its name, in a fixed order.
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>);

    /// [`Module::visit`] for a visitor that may replace tensors.
    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>);

    /// This module as an object: `self`, where the module is not a box around another.
    fn as_module(&self) -> &dyn Module;

    /// What it is called in tables: its type, `Linear`.
    fn kind(&self) -> String {
        watch::short_name(std::any::type_name::<Self>())
    }

    /// Every parameter with its dotted name; a tied one once, by its first name.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let mut found: Vec<(String, Tensor)> = Vec::new();
        Visitor::walk(self.as_module(), &mut |name, seen| {
            if let Seen::Parameter(parameter) = seen
                && !found.iter().any(|(_, known)| known.is_same(parameter))
            {
                found.push((name.to_owned(), parameter.tensor().clone()));
            }
        });
        found
    }

    /// Every parameter, a tied one once.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// Every buffer with its dotted name, a shared one once.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        let mut found: Vec<(String, Tensor)> = Vec::new();
        Visitor::walk(self.as_module(), &mut |name, seen| {
            if let Seen::Buffer(buffer) = seen
                && !found.iter().any(|(_, known)| known.is_same(buffer))
            {
                found.push((name.to_owned(), buffer.tensor().clone()));
            }
        });
        found
    }

    /// This module, under the empty name, and every one inside it with its dotted name, each before
    /// those inside it.
    fn named_modules(&self) -> Vec<(String, &dyn Module)> {
        let mut found = Vec::new();
        Visitor::walk(self.as_module(), &mut |name, seen| {
            if let Seen::Module(module) = seen {
                found.push((name.to_owned(), module));
            }
        });
        found
    }

    /// The modules directly inside this one, with their names.
    fn named_children(&self) -> Vec<(String, &dyn Module)> {
        let (mut found, mut depth) = (Vec::new(), 0);
        Visitor::walk(self.as_module(), &mut |name, seen| match seen {
            Seen::Module(module) => {
                if depth == 1 {
                    found.push((name.to_owned(), module));
                }
                depth += 1;
            }
            Seen::End(_) => depth -= 1,
            _ => {}
        });
        found
    }

    /// Calls `f` with every module, each after those inside it, this one last.
    ///
    /// # Examples
    /// ```
    /// # use genesis::nn::{Linear, Module, Relu, Sequential, init};
    /// # use genesis::Device;
    /// let net = Sequential::new().with(Linear::new(2, 3, Device::Cpu)?).with(Relu);
    /// net.apply(&mut |module| match module.downcast_ref::<Linear>() {
    ///     Some(linear) => init::ones_(&linear.weight),
    ///     None => Ok(()),
    /// })?;
    /// # Ok::<(), genesis::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first error of `f`, which is not called again then.
    fn apply(&self, f: &mut dyn FnMut(&dyn Module) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        Visitor::walk(self.as_module(), &mut |_, seen| {
            if let Seen::End(module) = seen
                && result.is_ok()
            {
                result = f(module);
            }
        });
        result
    }

    /// The number of elements of all parameters, tied ones once.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }

    /// Switches dropout and the like on or off.
    fn train(&self, on: bool) {
        Visitor::walk(self.as_module(), &mut |_, seen| {
            if let Seen::Training(flag) = seen {
                flag.set(on);
            }
        });
    }

    /// Switches dropout and the like off.
    fn eval(&self) {
        self.train(false);
    }

    /// Asks for gradients of every parameter, or freezes them all.
    ///
    /// # Errors
    /// If a parameter's dtype is not a float.
    fn requires_grad_(&self, on: bool) -> Result<()> {
        self.parameters().into_iter().try_for_each(|p| p.requires_grad_(on).map(drop))
    }

    /// Forgets all gradients.
    fn zero_grad(&self) {
        for parameter in self.parameters() {
            parameter.zero_grad();
        }
    }

    /// Moves every parameter, with its gradient, and every buffer to a device. Tied ones stay tied.
    ///
    /// What moves becomes another tensor: make optimizers afterwards.
    ///
    /// # Errors
    /// If there is no such device or its memory runs out; the module is as it was then.
    fn to_device(&mut self, device: Device) -> Result<()> {
        convert(self, true, &|tensor| tensor.to_device(device))
    }

    /// Converts every parameter and saved buffer of floats to another dtype of floats. Tied ones stay
    /// tied; buffers that are not saved are tables, which keep their precision.
    ///
    /// What is converted becomes another tensor: make optimizers afterwards.
    ///
    /// # Errors
    /// If `dtype` is not a float or memory runs out; the module is as it was then.
    fn to_dtype(&mut self, dtype: DType) -> Result<()> {
        if !dtype.is_arithmetic_float() {
            return Err(crate::ops::wrong_dtype("to_dtype", "a float", dtype));
        }
        convert(self, false, &|tensor| match tensor.dtype().is_arithmetic_float() {
            true => tensor.to_dtype(dtype),
            false => Ok(tensor.clone()),
        })
    }

    /// Every parameter and every buffer that is saved, by name; a tied one once, by its first name.
    fn state_dict(&self) -> BTreeMap<String, Tensor> {
        state::of(self.as_module())
    }

    /// Copies values in by name, converted to each tensor's own dtype. A tied parameter may be given
    /// by any of its names.
    ///
    /// # Errors
    /// If a name is missing or unexpected, or a shape differs: one error that names them, and the
    /// nearest name where one is near. Nothing is changed then.
    fn load_state_dict(&self, state: &BTreeMap<String, Tensor>) -> Result<()> {
        state::load(self.as_module(), state, true).map(drop)
    }

    /// [`Module::load_state_dict`] for what is there on both sides; the report names the rest.
    ///
    /// # Errors
    /// If a shape differs, as in PyTorch. Nothing is changed then.
    fn load_state_dict_loose(&self, state: &BTreeMap<String, Tensor>) -> Result<LoadReport> {
        state::load(self.as_module(), state, false)
    }

    /// What [`Module::load_state_dict`] would find, without changing anything.
    fn check_state_dict(&self, state: &BTreeMap<String, Tensor>) -> LoadReport {
        state::check(self.as_module(), state)
    }

    /// A table of this module's layers, from one run of `run`, in which layers of it are called.
    ///
    /// `run` is called without gradients and with `train(false)`; flags are restored after it.
    /// [`Layer::summary`](super::Layer::summary) is the short form for one input.
    ///
    /// # Errors
    /// Those of `run`.
    fn summary_of(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Summary> {
        summary::of(self.as_module(), run)
    }
}

impl dyn Module {
    /// This module as its own type, if it is a `T`.
    pub fn downcast_ref<T: Module>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A box is the module inside it.
impl<M: Module + ?Sized> Module for Box<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        (**self).visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        (**self).visit_mut(visitor);
    }

    fn as_module(&self) -> &dyn Module {
        (**self).as_module()
    }

    fn kind(&self) -> String {
        (**self).kind()
    }
}

/// Replaces every tensor by what `f` makes of it, one that occurs twice by one; all or none. `tables` are
/// the buffers that are not saved.
fn convert<M: Module + ?Sized>(
    module: &mut M,
    tables: bool,
    f: &dyn Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let mut old: Vec<(Tensor, bool)> = Vec::new();
    Visitor::walk(module.as_module(), &mut |_, seen| {
        let (tensor, trained) = match seen {
            Seen::Parameter(parameter) => (parameter.tensor(), true),
            Seen::Buffer(buffer) if tables || buffer.is_persistent() => (buffer.tensor(), false),
            _ => return,
        };
        if !old.iter().any(|(known, _)| known.is_same(tensor)) {
            old.push((tensor.clone(), trained));
        }
    });
    let mut new: Vec<(Tensor, Tensor)> = Vec::new();
    for (old, trained) in old {
        let tensor = if trained { converted(&old, f)? } else { f(&old)? };
        new.push((old, tensor));
    }
    let find = |old: &Tensor| new.iter().find(|(known, _)| known.is_same(old));
    module.visit_mut(&mut VisitorMut::new(&mut |_, seen| match seen {
        SeenMut::Parameter(parameter) => {
            let pair = find(parameter);
            replace(parameter, pair, Parameter::replace);
        }
        SeenMut::Buffer(buffer) => {
            let pair = find(buffer);
            replace(buffer, pair, Buffer::replace);
        }
        SeenMut::Weight(_) => {}
    }));
    Ok(())
}

/// Puts the new tensor in, unless the conversion left the old one as it was.
fn replace<P>(part: &mut P, pair: Option<&(Tensor, Tensor)>, put: fn(&mut P, Tensor)) {
    if let Some((old, new)) = pair
        && !old.is_same(new)
    {
        put(part, new.clone());
    }
}

/// A leaf made of another, with its gradient.
fn converted(old: &Tensor, f: &dyn Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let new = crate::autograd::no_grad(|| f(old))?;
    if new.is_same(old) {
        return Ok(new);
    }
    let new = new.detach().requires_grad_(old.requires_grad())?;
    if let Some(grad) = old.grad() {
        new.set_grad(Some(f(&grad.detach())?));
    }
    Ok(new)
}
