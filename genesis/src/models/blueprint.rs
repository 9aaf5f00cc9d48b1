//! Parameters that have a shape and no memory, so that a model is built before its weights are read.
//!
//! Such a parameter is one zero, seen at every index by strides of 0. Loading puts the tensor of a file in its
//! place, so that a model in memory is its weights once and never random numbers first.
//!
//! ```text
//! Blueprint::parameter([151936, 896])   2 bytes in bf16, strides [0, 0]
//! load                                  272 MB in its place
//! ```

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::nn::{Embedding, LayerNorm, Linear, Parameter};
use crate::tensor::{Creation, Tensor};

/// Makes the parameters of one model.
#[derive(Debug)]
pub(super) struct Blueprint {
    /// The configuration, for errors.
    source: String,
    zero: Tensor,
    /// Parameters that may still be made.
    left: Cell<usize>,
    /// Those that weights are there for.
    there: usize,
    names: BTreeSet<String>,
}

impl Blueprint {
    /// For a model of tensors that are there. A few parameters more are let pass, so that their names are told
    /// when weights are missed; a configuration of a billion layers is not.
    pub(super) fn new(
        source: &str,
        shapes: &BTreeMap<String, Vec<usize>>,
        at: Creation,
    ) -> Result<Blueprint> {
        // A stack of the weights of experts is a parameter each.
        let parameters = |shape: &Vec<usize>| match shape.as_slice() {
            [rows, _, _] => (*rows).min(crate::shape::product(shape)).max(1),
            _ => 1,
        };
        let there = shapes.values().map(parameters).fold(0usize, usize::saturating_add);
        let most = there.saturating_mul(2).saturating_add(1000);
        let names = shapes.keys().cloned().collect();
        let zero = Tensor::zeros(&[], at)?;
        Ok(Blueprint { source: source.to_owned(), zero, left: Cell::new(most), there, names })
    }

    /// For a model that no weights are there for yet.
    pub(super) fn without_weights(source: &str, at: Creation) -> Result<Blueprint> {
        const MOST: usize = 1 << 18;
        let (zero, names) = (Tensor::zeros(&[], at)?, BTreeSet::new());
        Ok(Blueprint { source: source.to_owned(), zero, left: Cell::new(MOST), there: 0, names })
    }

    /// Whether there is a tensor whose name ends so.
    pub(super) fn has(&self, end: &str) -> bool {
        self.names.iter().any(|name| name.ends_with(end))
    }

    /// A parameter without memory.
    pub(super) fn parameter(&self, shape: &[usize]) -> Result<Parameter> {
        let Some(left) = self.left.get().checked_sub(1) else {
            let Blueprint { source, there, .. } = self;
            let message = format!("{source}: asks for far more than the {there} tensors there are");
            return Err(Error::io(message));
        };
        self.left.set(left);
        crate::shape::numel(&self.source, shape)?;
        Parameter::new(self.zero.broadcast_to(shape)?)
    }

    /// A product `[inputs] -> [outputs]` as a layer of an encoder.
    pub(super) fn linear(&self, [inputs, outputs]: [usize; 2], bias: bool) -> Result<Linear> {
        let weight = self.parameter(&[outputs, inputs])?;
        Ok(Linear { weight, bias: bias.then(|| self.parameter(&[outputs])).transpose()? })
    }

    pub(super) fn embedding(&self, rows: usize, channels: usize) -> Result<Embedding> {
        Ok(Embedding::from_weight(self.parameter(&[rows, channels])?))
    }

    pub(super) fn layer_norm(&self, channels: usize, eps: f64) -> Result<LayerNorm> {
        Ok(LayerNorm {
            weight: Some(self.parameter(&[channels])?),
            bias: Some(self.parameter(&[channels])?),
            normalized_shape: vec![channels],
            eps,
        })
    }
}
