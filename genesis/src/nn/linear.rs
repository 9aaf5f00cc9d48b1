//! The fully connected layer.

use super::{Module, Visitor, init};
use crate::error::Result;
use crate::tensor::{Creation, Tensor};

/// `y = x W^T + b`
///
/// # Shapes
/// `[.., in]` -> `[.., out]`, with `weight: [out, in]` and `bias: [out]`.
#[derive(Debug)]
pub struct Linear {
    /// `[out, in]`
    pub weight: Tensor,
    /// `[out]`
    pub bias: Option<Tensor>,
}

impl Linear {
    /// A layer with a bias, both uniform in `±1 / sqrt(in)` as PyTorch starts them.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(inputs: usize, outputs: usize, at: impl Into<Creation>) -> Result<Linear> {
        let at = at.into();
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        let weight = init::uniform(&[outputs, inputs], -bound, bound, at)?;
        let bias = Some(init::uniform(&[outputs], -bound, bound, at)?);
        Ok(Linear { weight, bias })
    }

    /// A layer without a bias.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn without_bias(inputs: usize, outputs: usize, at: impl Into<Creation>) -> Result<Linear> {
        Ok(Linear { bias: None, ..Linear::new(inputs, outputs, at)? })
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let weight = self.weight.t()?; // [in, out]
        match &self.bias {
            Some(bias) => x.matmul_bias(&weight, bias), // [.., out]
            None => x.matmul(&weight),
        }
    }

    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.parameter("weight", &self.weight);
        if let Some(bias) = &self.bias {
            visitor.parameter("bias", bias);
        }
    }
}
