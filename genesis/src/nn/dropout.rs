//! Dropout as a layer.

use super::{Module, Training, Visitor};
use crate::error::Result;
use crate::tensor::Tensor;

/// In training, zeroes each element with probability `p` and scales the rest; else does nothing.
#[derive(Debug)]
pub struct Dropout {
    /// The probability of a zero.
    pub p: f64,
    /// Whether it is training.
    pub training: Training,
}

impl Dropout {
    /// A layer that is in training.
    pub fn new(p: f64) -> Dropout {
        Dropout { p, training: Training::default() }
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.training.is_on() { x.dropout(self.p) } else { Ok(x.clone()) }
    }

    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.training_flag(&self.training);
    }
}
