//! Layers with quantized weights, for inference.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::layer::layers;
use super::module::Seen;
use super::{Linear, Module, Parameter, Visitor, VisitorMut, Weight, count_flops, flops, watch};
use crate::error::Result;
use crate::ops::{BlockType, QuantScheme, QuantizedWeight};
use crate::tensor::Tensor;

/// `y = x W^T + b` with a quantized weight; see [`Tensor::quantized_linear`].
///
/// # Shapes
/// `[.., in]` -> `[.., out]`, with a weight `[out, in]` and `bias: [out]`.
#[derive(Debug, Module)]
pub struct QuantizedLinear {
    /// `[out, in]`
    pub weight: QuantizedWeight,
    /// `[out]`
    pub bias: Option<Parameter>,
}

impl QuantizedLinear {
    /// A layer of GGUF's blocks, without a bias.
    ///
    /// # Errors
    /// As [`QuantizedWeight::from_ggml`].
    pub fn from_ggml(
        blocks: &[u8],
        ty: BlockType,
        shape: [usize; 2],
        device: Device,
    ) -> Result<QuantizedLinear> {
        let weight = QuantizedWeight::from_ggml(blocks, ty, shape, device)?;
        Ok(QuantizedLinear { weight, bias: None })
    }

    /// A linear layer with its weight rounded; the bias stays as it is.
    ///
    /// # Errors
    /// As [`QuantizedWeight::quantize`].
    pub fn from_linear(linear: &Linear, scheme: QuantScheme) -> Result<QuantizedLinear> {
        let weight = QuantizedWeight::quantize(&linear.weight, scheme)?;
        Ok(QuantizedLinear { weight, bias: linear.bias.clone() })
    }

    /// The product of the input and the weight, plus the bias; it has no gradient.
    ///
    /// # Errors
    /// As [`Tensor::quantized_linear`].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let y = x.quantized_linear(&self.weight, self.bias.as_deref())?;
            count_flops(|| flops(&[2, y.numel(), self.weight.shape()[1]]));
            Ok(y)
        })
    }
}

layers!(QuantizedLinear);

/// Rows of a quantized table by index.
///
/// # Shapes
/// i64 `[..]` -> `[.., C]`, with a table `[V, C]`.
#[derive(Debug, Module)]
pub struct QuantizedEmbedding {
    /// `[V, C]`
    pub weight: QuantizedWeight,
    /// The dtype of the rows.
    #[module(skip)]
    pub dtype: DType,
}

impl QuantizedEmbedding {
    /// The rows that the index names.
    ///
    /// # Errors
    /// As [`QuantizedWeight::embedding`].
    pub fn forward(&self, index: &Tensor) -> Result<Tensor> {
        watch(self, || self.weight.embedding(index, self.dtype))
    }
}

layers!(QuantizedEmbedding);

/// Its buffers are named as its fields are.
impl Module for QuantizedWeight {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.part("codes", &self.codes);
        visitor.part("scales", &self.scales);
        visitor.part("mins", &self.mins);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        visitor.part("codes", &mut self.codes);
        visitor.part("scales", &mut self.scales);
        visitor.part("mins", &mut self.mins);
    }

    fn as_module(&self) -> &dyn Module {
        self
    }
}

/// How many numbers the quantized weights of a module stand for; they are no parameters of it.
pub fn quantized_numbers(module: &dyn Module) -> u64 {
    let mut count = 0;
    Visitor::walk(module, &mut |_, seen| {
        if let Seen::Weight(Weight::Quantized(weight)) = seen {
            count += crate::shape::product(weight.shape().iter()) as u64;
        }
    });
    count
}
