//! Containers: `Sequential`, `ModuleList`, `ModuleDict`.

use std::any::Any;
use std::ops::{Deref, DerefMut};

use super::layer::layers;
use super::{Layer, Linear, Module, Part, Visitor, VisitorMut, activation, watch};
use crate::error::Result;
use crate::tensor::Tensor;

/// Layers applied in order; their names are their numbers.
///
/// # Examples
/// ```
/// use genesis::nn::{Linear, Relu, Sequential};
/// use genesis::{Device, Tensor};
///
/// let net = Sequential::new().with(Linear::new(4, 8, Device::Cpu)?).with(Relu);
/// assert_eq!(net.forward(&Tensor::ones(&[2, 4], Device::Cpu)?)?.shape(), [2, 8]);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Layer>>,
}

impl Sequential {
    /// No layers yet.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// With one more layer at the end.
    pub fn with(mut self, layer: impl Layer + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }

    /// Adds a layer at the end.
    pub fn push(&mut self, layer: impl Layer + 'static) {
        self.layers.push(Box::new(layer));
    }

    /// The layers.
    pub fn layers(&self) -> &[Box<dyn Layer>] {
        &self.layers
    }

    /// The output of the last layer, where each gets that of the one before it.
    ///
    /// A [`Linear`] and the [`Relu`](super::Relu), [`Gelu`](super::Gelu) or [`Silu`](super::Silu) after it
    /// run as [`Linear::forward_with`] does. Layers in a [`Hooked`](super::Hooked) run by themselves.
    ///
    /// # Errors
    /// If a layer refuses what it gets.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let (mut x, mut layers) = (x.clone(), &self.layers[..]);
            while let [layer, rest @ ..] = layers {
                (x, layers) = match joined(&x, &**layer, rest)? {
                    Some(both) => (both, &rest[1..]),
                    None => (layer.forward(&x)?, rest),
                };
            }
            Ok(x)
        })
    }
}

/// A layer and the next one in one kernel; none where two are right.
fn joined(x: &Tensor, layer: &dyn Layer, rest: &[Box<dyn Layer>]) -> Result<Option<Tensor>> {
    let linear = (layer as &dyn Any).downcast_ref::<Linear>();
    let activation = rest.first().and_then(|next| activation::of_layer(&**next));
    match linear.zip(activation) {
        Some((linear, activation)) => linear.joined(x, activation),
        None => Ok(None),
    }
}

impl Module for Sequential {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.layers.show(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.layers.show_mut(visitor);
    }

    fn as_module(&self) -> &dyn Module {
        self
    }
}

layers!(Sequential);

/// Modules of one type, named by their numbers; a `Vec` in all else.
///
/// A `Vec` in a field is as good; this is one that is a module itself.
#[derive(Debug)]
pub struct ModuleList<M>(pub Vec<M>);

impl<M> Default for ModuleList<M> {
    fn default() -> ModuleList<M> {
        ModuleList(Vec::new())
    }
}

impl<M> FromIterator<M> for ModuleList<M> {
    fn from_iter<I: IntoIterator<Item = M>>(modules: I) -> ModuleList<M> {
        ModuleList(modules.into_iter().collect())
    }
}

impl<M> Deref for ModuleList<M> {
    type Target = Vec<M>;

    fn deref(&self) -> &Vec<M> {
        &self.0
    }
}

impl<M> DerefMut for ModuleList<M> {
    fn deref_mut(&mut self) -> &mut Vec<M> {
        &mut self.0
    }
}

impl<M: Module> Module for ModuleList<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.0.show(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.0.show_mut(visitor);
    }

    fn as_module(&self) -> &dyn Module {
        self
    }
}

/// Modules of one type by name, in the order in which they were put in.
#[derive(Debug)]
pub struct ModuleDict<M> {
    entries: Vec<(String, M)>,
}

impl<M> Default for ModuleDict<M> {
    fn default() -> ModuleDict<M> {
        ModuleDict { entries: Vec::new() }
    }
}

impl<M> ModuleDict<M> {
    /// No modules yet.
    pub fn new() -> ModuleDict<M> {
        ModuleDict::default()
    }

    /// With one more module, or another one under a name that is there.
    pub fn with(mut self, name: &str, module: M) -> ModuleDict<M> {
        self.insert(name, module);
        self
    }

    /// Puts a module under a name; gives the one that was there.
    pub fn insert(&mut self, name: &str, module: M) -> Option<M> {
        match self.get_mut(name) {
            Some(place) => Some(std::mem::replace(place, module)),
            None => {
                self.entries.push((name.to_owned(), module));
                None
            }
        }
    }

    /// The module of a name.
    pub fn get(&self, name: &str) -> Option<&M> {
        self.entries.iter().find(|(own, _)| own == name).map(|(_, module)| module)
    }

    /// The module of a name, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut M> {
        self.entries.iter_mut().find(|(own, _)| own == name).map(|(_, module)| module)
    }

    /// Names and modules in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &M)> {
        self.entries.iter().map(|(name, module)| (name.as_str(), module))
    }

    /// The number of modules.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<M: Module> Module for ModuleDict<M> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        for (name, module) in &self.entries {
            visitor.part(name, module);
        }
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        for (name, module) in &mut self.entries {
            visitor.part(name, module);
        }
    }

    fn as_module(&self) -> &dyn Module {
        self
    }
}

/// `x + inner(x)`
#[derive(Debug, Module)]
pub struct Residual<L> {
    /// What is added to the input.
    #[module(name = "fn")]
    pub inner: L,
}

impl<L: Layer> Residual<L> {
    /// The sum of the identity and `inner`.
    pub fn new(inner: L) -> Residual<L> {
        Residual { inner }
    }

    /// The input and what the inner layer makes of it, added.
    ///
    /// # Errors
    /// If the inner layer refuses or its output has another shape.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.add(&self.inner.forward(x)?))
    }
}

impl<L: Layer> Layer for Residual<L> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Residual::forward(self, x)
    }
}
