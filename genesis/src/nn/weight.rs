//! Weights of products, in the form that they are computed from.

use genesis_kernel::ir::DType;

use crate::error::Result;
use crate::launch::deferred_norm::DeferredNorm;
use crate::ops::QuantizedWeight;
use crate::ops::fused_product::{Fused, FusedProduct};
use crate::parameter::Parameter;
use crate::tensor::Tensor;

/// The weight of a product, `[out, in]`.
///
/// In a state dict a whole one has the name of the field, as a [`Parameter`] has; a quantized one is in none.
#[derive(Clone, Debug)]
pub enum Weight {
    /// A tensor, which may be trained.
    Whole(Parameter),
    /// Codes and scales, for inference.
    Quantized(QuantizedWeight),
}

impl Weight {
    /// `[out, in]`; an axis that a tensor lacks, which no product takes, is 1.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Weight::Whole(weight) => {
                [0, 1].map(|axis| weight.shape().get(axis).copied().unwrap_or(1))
            }
            Weight::Quantized(weight) => weight.shape(),
        }
    }

    /// `x W^T + b`, with the same bits for a row in any batch but in f64.
    ///
    /// # Shapes
    /// `[.., in]` and `bias: [out]` give `[.., out]`.
    /// # Errors
    /// As [`Tensor::linear_rows`] and [`Tensor::quantized_linear`].
    pub fn product(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        match (self, x.dtype(), bias) {
            (Weight::Quantized(weight), _, bias) => x.quantized_linear(weight, bias),
            // Of f64 there are products of whole matrices only.
            (Weight::Whole(weight), DType::F64, Some(bias)) => x.matmul_bias(&weight.t()?, bias),
            (Weight::Whole(weight), DType::F64, None) => x.matmul(&weight.t()?),
            (Weight::Whole(weight), _, bias) => x.linear_rows(weight, bias),
        }
    }
}

impl Weight {
    /// A product and what is around it, where that is one launch.
    pub(crate) fn fused(&self, product: FusedProduct<'_>) -> Result<Option<Fused>> {
        match self {
            Weight::Whole(weight) => product.of_whole(weight),
            Weight::Quantized(weight) => product.of_codes(weight),
        }
    }

    /// Whether a norm in front of the product may be divided behind it.
    pub(crate) fn defers_norms(&self) -> bool {
        match self {
            Weight::Whole(weight) => DeferredNorm::is_for(weight),
            Weight::Quantized(weight) => weight.defers_norms(),
        }
    }

    /// Weights of the same inputs as one, `[sum of out, in]`, where [`Weight::pack`] laid them out; none where
    /// they lie apart, or one asks for a gradient, which would go to a copy of it.
    pub(crate) fn joined(parts: &[&Weight]) -> Option<Weight> {
        if let Some(parts) = all(parts, Weight::whole) {
            let joined = Tensor::adjacent(&parts)?;
            return Some(Weight::Whole(Parameter::frozen(joined)));
        }
        QuantizedWeight::adjacent(&all(parts, Weight::quantized)?).map(Weight::Quantized)
    }

    /// Lays weights of the same inputs out one after the other, where they are of one form.
    pub(crate) fn pack(parts: &mut [&mut Weight]) -> Result<()> {
        let own: Vec<&Weight> = parts.iter().map(|part| &**part).collect();
        if let Some(whole) = all(&own, Weight::whole) {
            let packed = Tensor::pack(&whole)?;
            for (part, packed) in parts.iter_mut().zip(packed) {
                **part = Weight::Whole(Parameter::frozen(packed));
            }
        } else if let Some(quantized) = all(&own, Weight::quantized) {
            let Some(packed) = QuantizedWeight::pack(&quantized)? else { return Ok(()) };
            for (part, packed) in parts.iter_mut().zip(packed) {
                **part = Weight::Quantized(packed);
            }
        }
        Ok(())
    }

    /// The tensor that can be part of another: a frozen one.
    fn whole(&self) -> Option<&Tensor> {
        match self {
            Weight::Whole(weight) if !weight.requires_grad() => Some(weight),
            _ => None,
        }
    }

    fn quantized(&self) -> Option<&QuantizedWeight> {
        match self {
            Weight::Quantized(weight) => Some(weight),
            Weight::Whole(_) => None,
        }
    }
}

/// What every one of some weights has, or none.
fn all<'a, T>(parts: &[&'a Weight], of: impl Fn(&'a Weight) -> Option<T>) -> Option<Vec<T>> {
    parts.iter().map(|&part| of(part)).collect()
}

impl From<Parameter> for Weight {
    fn from(weight: Parameter) -> Weight {
        Weight::Whole(weight)
    }
}
