//! Layers, losses and containers.
//!
//! A layer is a plain struct with public fields. It says what it consists of in [`Module::visit`];
//! names, state, training mode and counts all follow from that.

mod activation;
mod dropout;
mod embedding;
pub mod init;
mod linear;
mod loss;
mod norm;
mod sequential;
mod visit;

use std::collections::BTreeMap;

use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub use activation::{Gelu, Relu, Sigmoid, Silu, Tanh};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use linear::Linear;
pub use loss::{CrossEntropyLoss, MseLoss};
pub use norm::{LayerNorm, RmsNorm};
pub use sequential::Sequential;
pub use visit::{Training, Visitor};

/// A part of a network.
pub trait Module: Send + Sync {
    /// The output for an input.
    ///
    /// # Errors
    /// If the input does not fit the layer.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// Shows the visitor every parameter, buffer, training flag and child, in a fixed order.
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>);

    /// Every parameter with its dotted name, a tied one once.
    fn named_parameters(&self) -> Vec<(String, Tensor)> {
        let mut found: Vec<(String, Tensor)> = Vec::new();
        self.visit(&mut Visitor::parameters(&mut |name, tensor| {
            if !found.iter().any(|(_, known)| known.is_same(tensor)) {
                found.push((name, tensor.clone()));
            }
        }));
        found
    }

    /// Every parameter, a tied one once.
    fn parameters(&self) -> Vec<Tensor> {
        self.named_parameters().into_iter().map(|(_, tensor)| tensor).collect()
    }

    /// Every buffer with its dotted name.
    fn named_buffers(&self) -> Vec<(String, Tensor)> {
        let mut found = Vec::new();
        self.visit(&mut Visitor::buffers(&mut |name, tensor| found.push((name, tensor.clone()))));
        found
    }

    /// The number of elements of all parameters.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Tensor::numel).sum()
    }

    /// Switches dropout and the like on or off.
    fn train(&self, on: bool) {
        self.visit(&mut Visitor::training(&mut |flag| flag.set(on)));
    }

    /// Switches dropout and the like off.
    fn eval(&self) {
        self.train(false);
    }

    /// Forgets all gradients.
    fn zero_grad(&self) {
        for parameter in self.parameters() {
            parameter.zero_grad();
        }
    }

    /// Every parameter and buffer by name.
    fn state_dict(&self) -> BTreeMap<String, Tensor> {
        let all = self.named_parameters().into_iter().chain(self.named_buffers());
        all.map(|(name, tensor)| (name, tensor.detach())).collect()
    }

    /// Copies values in by name. All names must be there on both sides.
    ///
    /// # Errors
    /// If a name is missing or unknown, or a shape differs: one error that names them all. Nothing
    /// is changed then.
    fn load_state_dict(&self, state: &BTreeMap<String, Tensor>) -> Result<()> {
        let own = self.state_dict();
        let mut problems = Vec::new();
        for (name, tensor) in &own {
            match state.get(name) {
                None => problems.push(format!("missing {name}")),
                Some(new) if new.shape() != tensor.shape() => problems.push(format!(
                    "{name} has shape {:?}, the module needs {:?}",
                    new.shape(),
                    tensor.shape()
                )),
                Some(_) => {}
            }
        }
        problems.extend(
            state
                .keys()
                .filter(|name| !own.contains_key(*name))
                .map(|name| format!("unknown {name}")),
        );
        if !problems.is_empty() {
            return Err(Error::op("load_state_dict", problems.join("; ")));
        }
        no_grad(|| own.iter().try_for_each(|(name, tensor)| tensor.copy_(&state[name])))
    }
}
