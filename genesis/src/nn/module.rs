//! The trait of everything that has parameters, and the walk through a module: who is where, under which name.
//!
//! A module hands its fields to the visitor with their names ([`Visitor::part`]); the visitor keeps the
//! dotted path. What `state_dict`, `train`, `to_device` and the rest do follows from this one walk.

use std::any::Any;
use std::collections::BTreeMap;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::calls::Identity;
use super::kind::short_name;
use super::state::{self, LoadReport, Saved};
use super::summary::{self, Summary, SummaryRow, Walked};
use super::training::Training;
use super::weight::Weight;
use crate::error::{Error, Result};
use crate::parameter::{Buffer, Parameter};
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
        short_name(std::any::type_name::<Self>())
    }

    /// Every parameter with its dotted name; a tied one once, by its first name.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let all = handles(self.as_module()).into_iter();
        all.map(|(name, parameter)| (name, parameter.tensor().clone())).collect()
    }

    /// Every parameter, a tied one once.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// Every buffer with its dotted name, a shared one once.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        let all = buffers(self.as_module()).into_iter();
        all.map(|(name, buffer)| (name, buffer.tensor().clone())).collect()
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
        state::of(saved(self.as_module()))
    }

    /// Copies values in by name, converted to each tensor's own dtype. A tied parameter may be given
    /// by any of its names.
    ///
    /// # Errors
    /// If a name is missing or unexpected, or a shape differs: one error that names them, and the
    /// nearest name where one is near. Nothing is changed then.
    fn load_state_dict(&self, state: &BTreeMap<String, Tensor>) -> Result<()> {
        state::load(&saved(self.as_module()), state, true).map(drop)
    }

    /// [`Module::load_state_dict`] for what is there on both sides; the report names the rest.
    ///
    /// # Errors
    /// If a shape differs, as in PyTorch. Nothing is changed then.
    fn load_state_dict_loose(&self, state: &BTreeMap<String, Tensor>) -> Result<LoadReport> {
        state::load(&saved(self.as_module()), state, false)
    }

    /// What [`Module::load_state_dict`] would find, without changing anything.
    fn check_state_dict(&self, state: &BTreeMap<String, Tensor>) -> LoadReport {
        state::check(&saved(self.as_module()), state)
    }

    /// A table of this module's layers, from one run of `run`, in which layers of it are called.
    ///
    /// `run` is called without gradients and with `train(false)`; flags are restored after it.
    /// [`Layer::summary`](super::Layer::summary) is the short form for one input.
    ///
    /// # Errors
    /// Those of `run`.
    fn summary_of(&self, run: &mut dyn FnMut() -> Result<()>) -> Result<Summary> {
        let module = self.as_module();
        summary::of(walked(module), &mut || {
            module.eval();
            run()
        })
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
    let mut seen_by_walk = 0_usize;
    Visitor::walk(module.as_module(), &mut |_, seen| {
        seen_by_walk += usize::from(matches!(seen, Seen::Parameter(_) | Seen::Buffer(_)));
        let (tensor, trained) = match seen {
            Seen::Parameter(parameter) => (parameter.tensor(), true),
            Seen::Buffer(buffer) if tables || buffer.is_persistent() => (buffer.tensor(), false),
            _ => return,
        };
        if !old.iter().any(|(known, _)| known.is_same(tensor)) {
            old.push((tensor.clone(), trained));
        }
    });
    let mut within_reach = 0_usize;
    module.visit_mut(&mut VisitorMut::new(&mut |_, seen| {
        within_reach += usize::from(!matches!(seen, SeenMut::Weight(_))); // a weight is shown again as what it is
    }));
    if within_reach != seen_by_walk {
        let message = "others hold a part of the module too, as a `SharedModel` says: convert it before it is shared";
        return Err(Error::op("Module", message));
    }
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

/// Every tensor of a module that is saved.
pub(crate) fn saved(module: &dyn Module) -> Vec<Saved> {
    let mut all: Vec<Saved> = Vec::new();
    Visitor::walk(module, &mut |name, seen| {
        let tensor = match seen {
            Seen::Parameter(parameter) => parameter.tensor(),
            Seen::Buffer(buffer) if buffer.is_persistent() => buffer.tensor(),
            _ => return,
        };
        match all.iter_mut().find(|saved| saved.tensor.is_same(tensor)) {
            Some(saved) => saved.names.push(name.to_owned()),
            None => all.push(Saved { tensor: tensor.clone(), names: vec![name.to_owned()] }),
        }
    });
    all
}

/// What a walk finds for a summary.
fn walked(module: &dyn Module) -> Walked<'_> {
    let (mut rows, mut open): (Vec<SummaryRow>, Vec<usize>) = (Vec::new(), Vec::new());
    let (mut names, mut flags) = (Vec::new(), Vec::new());
    let mut known: Vec<&Tensor> = Vec::new();
    Visitor::walk(module, &mut |path, seen| {
        let (tensor, trained) = match seen {
            Seen::Module(module) => {
                open.push(rows.len());
                let (path, kind) = (path.to_owned(), module.kind());
                names.push((identity(module), path.clone(), kind.clone()));
                return rows.push(SummaryRow { path, kind, ..SummaryRow::default() });
            }
            Seen::End(_) => {
                open.pop();
                return;
            }
            Seen::Training(flag) => return flags.push(flag),
            Seen::Weight(_) => return,
            Seen::Parameter(parameter) => (parameter.tensor(), true),
            Seen::Buffer(buffer) => (buffer.tensor(), false),
        };
        if let Some(&row) = open.last()
            && !known.iter().any(|other| other.is_same(tensor))
        {
            known.push(tensor);
            rows[row].parameters += if trained { tensor.numel() } else { 0 };
            rows[row].state_bytes += tensor.numel() * tensor.dtype().bytes();
        }
    });
    Walked { rows, names, flags, parameters: module.parameters() }
}

/// Which module it is.
pub(super) fn identity<M: Module + ?Sized>(module: &M) -> Identity {
    (std::ptr::from_ref(module).cast::<()>() as usize, module.type_id())
}

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

/// What a walk meets.
pub(super) enum Seen<'a> {
    Parameter(&'a Parameter),
    Buffer(&'a Buffer),
    Training(&'a Training),
    /// The weight of a product begins: what comes next is its parameter, or the module that it is.
    Weight(&'a Weight),
    /// A module begins: all until its end belongs to it.
    Module(&'a dyn Module),
    /// A module ends.
    End(&'a dyn Module),
}

/// Every parameter with its first name; one that occurs twice once.
pub(crate) fn handles(module: &dyn Module) -> Vec<(String, Parameter)> {
    let mut all: Vec<(String, Parameter)> = Vec::new();
    Visitor::walk(module, &mut |name, seen| {
        if let Seen::Parameter(parameter) = seen
            && !all.iter().any(|(_, known)| known.is_same(parameter))
        {
            all.push((name.to_owned(), parameter.clone()));
        }
    });
    all
}

/// Every buffer with its first name; one that occurs twice once.
pub(crate) fn buffers(module: &dyn Module) -> Vec<(String, Buffer)> {
    let mut all: Vec<(String, Buffer)> = Vec::new();
    Visitor::walk(module, &mut |name, seen| {
        if let Seen::Buffer(buffer) = seen
            && !all.iter().any(|(_, known)| known.is_same(buffer))
        {
            all.push((name.to_owned(), buffer.clone()));
        }
    });
    all
}

/// Walks a module; a module shows it each of its parts in a fixed order.
pub struct Visitor<'a, 'f> {
    path: Path,
    see: &'f mut dyn FnMut(&str, Seen<'a>),
}

impl<'a, 'f> Visitor<'a, 'f> {
    /// Walks `root`, whose own name is empty.
    pub(super) fn walk(root: &'a dyn Module, see: &'f mut dyn FnMut(&str, Seen<'a>)) {
        Visitor { path: Path::default(), see }.module(root);
    }

    /// A field, with its name.
    pub fn part<P: Part + ?Sized>(&mut self, name: &str, part: &'a P) {
        let outer = self.path.enter(name);
        part.show(self);
        self.path.leave(outer);
    }

    pub(super) fn parameter(&mut self, parameter: &'a Parameter) {
        (self.see)(&self.path.0, Seen::Parameter(parameter));
    }

    pub(super) fn buffer(&mut self, buffer: &'a Buffer) {
        (self.see)(&self.path.0, Seen::Buffer(buffer));
    }

    pub(super) fn training(&mut self, flag: &'a Training) {
        (self.see)(&self.path.0, Seen::Training(flag));
    }

    pub(super) fn weight(&mut self, weight: &'a Weight) {
        (self.see)(&self.path.0, Seen::Weight(weight));
    }

    pub(super) fn module(&mut self, module: &'a dyn Module) {
        (self.see)(&self.path.0, Seen::Module(module));
        module.visit(self);
        (self.see)(&self.path.0, Seen::End(module));
    }
}

/// What a walk that changes things meets.
pub(super) enum SeenMut<'a> {
    Parameter(&'a mut Parameter),
    Buffer(&'a mut Buffer),
    /// As of [`Seen::Weight`]; what it holds is shown once this has been.
    Weight(&'a mut Weight),
}

/// Walks a module and may replace its tensors.
pub struct VisitorMut<'f> {
    path: Path,
    see: &'f mut dyn FnMut(&str, SeenMut<'_>),
}

impl<'f> VisitorMut<'f> {
    pub(super) fn new(see: &'f mut dyn FnMut(&str, SeenMut<'_>)) -> VisitorMut<'f> {
        VisitorMut { path: Path::default(), see }
    }

    /// A field, with its name.
    pub fn part<P: Part + ?Sized>(&mut self, name: &str, part: &mut P) {
        let outer = self.path.enter(name);
        part.show_mut(self);
        self.path.leave(outer);
    }

    pub(super) fn parameter(&mut self, parameter: &mut Parameter) {
        (self.see)(&self.path.0, SeenMut::Parameter(parameter));
    }

    pub(super) fn buffer(&mut self, buffer: &mut Buffer) {
        (self.see)(&self.path.0, SeenMut::Buffer(buffer));
    }

    pub(super) fn weight(&mut self, weight: &mut Weight) {
        (self.see)(&self.path.0, SeenMut::Weight(weight));
    }
}

/// A walk through a module of a known type, of either kind: what `#[derive(Module)]` takes apart.
pub enum Walk<'a, 'w, 'f, M> {
    /// One that looks.
    Shared(&'a M, &'w mut Visitor<'a, 'f>),
    /// One that may replace tensors.
    Unique(&'w mut M, &'w mut VisitorMut<'f>),
}

/// Names joined by dots.
#[derive(Default)]
struct Path(String);

impl Path {
    /// Goes one name further; gives what `leave` needs to come back.
    fn enter(&mut self, name: &str) -> usize {
        let outer = self.0.len();
        if outer > 0 && !name.is_empty() {
            self.0.push('.');
        }
        self.0.push_str(name);
        outer
    }

    fn leave(&mut self, outer: usize) {
        self.0.truncate(outer);
    }
}
