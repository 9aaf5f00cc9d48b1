//! Layers one after another.

use super::{Module, Visitor};
use crate::error::Result;
use crate::tensor::Tensor;

/// Modules applied in order; their names are their numbers.
#[derive(Default)]
pub struct Sequential {
    layers: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// No layers yet.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// With one more layer at the end.
    pub fn with(mut self, layer: impl Module + 'static) -> Sequential {
        self.layers.push(Box::new(layer));
        self
    }
}

impl Module for Sequential {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))
    }

    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        for (index, layer) in self.layers.iter().enumerate() {
            visitor.child(&index.to_string(), layer.as_ref());
        }
    }
}
