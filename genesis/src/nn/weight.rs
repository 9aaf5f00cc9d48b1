//! Weights of products, in the form that they are computed from.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::training::Training;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
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
    /// A frozen weight with a low-rank adapter.
    Adapted(Box<Adapted>),
}

/// A weight that stays as it is, and its adapter.
#[derive(Clone, Debug)]
pub struct Adapted {
    /// The weight, whole or quantized.
    pub base: Weight,
    /// `A`: `[r, in]`
    pub lora_a: Parameter,
    /// `B`: `[out, r]`
    pub lora_b: Parameter,
    /// The length of each row of the weight, where it is trained apart from its direction (*DoRA*): `[out]`
    pub magnitude: Option<Parameter>,
    /// Factor of the update.
    pub scale: f64,
    /// The probability with which an input of the adapter is dropped in training.
    pub dropout: f64,
    /// Whether it is training.
    pub training: Training,
}

impl Weight {
    /// `[out, in]`; an axis that a tensor lacks, which no product takes, is 1.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Weight::Whole(weight) => {
                [0, 1].map(|axis| weight.shape().get(axis).copied().unwrap_or(1))
            }
            Weight::Quantized(weight) => weight.shape(),
            Weight::Adapted(adapted) => adapted.base.shape(),
        }
    }

    /// Where it is, and the dtype of a whole weight; f32 of codes.
    pub(super) fn place(&self) -> (Device, DType) {
        match self {
            Weight::Whole(weight) => (weight.device(), weight.dtype()),
            Weight::Quantized(weight) => (weight.device(), DType::F32),
            Weight::Adapted(adapted) => adapted.base.place(),
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
            (Weight::Adapted(adapted), _, bias) => adapted.product(x, bias),
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
            Weight::Adapted(_) => Ok(None),
        }
    }

    /// Whether a norm in front of the product may be divided behind it.
    pub(crate) fn defers_norms(&self) -> bool {
        match self {
            Weight::Whole(weight) => DeferredNorm::is_for(weight),
            Weight::Quantized(weight) => weight.defers_norms(),
            Weight::Adapted(_) => false,
        }
    }

    /// Weights of the same inputs as one, `[sum of out, in]`, where [`Weight::pack`] laid them out; none where
    /// they lie apart, or some of them ask for a gradient and others do not. The gradient goes to the parts.
    ///
    /// # Errors
    /// If memory runs out.
    pub(crate) fn joined(parts: &[&Weight]) -> Result<Option<Weight>> {
        if let Some(parts) = all(parts, Weight::whole) {
            let joined = Tensor::joined(&parts)?;
            return Ok(joined.map(|joined| Weight::Whole(Parameter::shared(joined))));
        }
        let Some(parts) = all(parts, Weight::quantized) else { return Ok(None) };
        Ok(QuantizedWeight::adjacent(&parts).map(Weight::Quantized))
    }

    /// Whether nobody trains it.
    pub(crate) fn is_frozen(&self) -> bool {
        match self {
            Weight::Whole(weight) => !weight.requires_grad(),
            Weight::Quantized(_) => true,
            Weight::Adapted(_) => false,
        }
    }

    /// Lays weights of the same inputs out one after the other, where they are of one form. Those that are trained are
    /// leaves of their own again.
    pub(crate) fn pack(parts: &mut [&mut Weight]) -> Result<()> {
        let own: Vec<&Weight> = parts.iter().map(|part| &**part).collect();
        if let Some(whole) = all(&own, Weight::parameter) {
            let Some(packed) = Parameter::packed(&whole)? else { return Ok(()) };
            for (part, packed) in parts.iter_mut().zip(packed) {
                **part = Weight::Whole(packed);
            }
        } else if let Some(quantized) = all(&own, Weight::quantized) {
            let Some(packed) = QuantizedWeight::pack(&quantized)? else { return Ok(()) };
            for (part, packed) in parts.iter_mut().zip(packed) {
                **part = Weight::Quantized(packed);
            }
        }
        Ok(())
    }

    /// The tensor that can be part of another.
    fn whole(&self) -> Option<&Tensor> {
        self.parameter().map(Parameter::tensor)
    }

    fn parameter(&self) -> Option<&Parameter> {
        match self {
            Weight::Whole(weight) => Some(weight),
            Weight::Quantized(_) | Weight::Adapted(_) => None,
        }
    }

    fn quantized(&self) -> Option<&QuantizedWeight> {
        match self {
            Weight::Quantized(weight) => Some(weight),
            Weight::Whole(_) | Weight::Adapted(_) => None,
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

impl Adapted {
    /// `x W^T + b`, and what the adapter adds.
    fn product(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let is_dropping = self.training.is_on() && self.dropout > 0.0;
        let dropped = if is_dropping { x.dropout(self.dropout)? } else { x.clone() };
        let Some(magnitude) = &self.magnitude else {
            let y = self.base.product(x, bias)?;
            return y.add(&self.update(&dropped)?.to_dtype(y.dtype())?);
        };
        let y = self.base.product(x, None)?; // [.., out]
        // What is dropped is dropped for the whole change of the weight, whose direction the rows' factors are a part of.
        let kept = if is_dropping { self.base.product(&dropped, None)? } else { y.clone() };
        let sum = kept.add(&self.update(&dropped)?.to_dtype(y.dtype())?)?;
        let turned = sum.mul(&self.row_factors(magnitude)?)?.to_dtype(y.dtype())?;
        let y = if is_dropping { y.sub(&kept)?.add(&turned)? } else { turned };
        match bias {
            Some(bias) => y.add(&bias.to_dtype(y.dtype())?),
            None => Ok(y),
        }
    }

    /// `scale x A^T B^T`: `[.., out]`
    fn update(&self, x: &Tensor) -> Result<Tensor> {
        let product = |x: &Tensor, weight: &Parameter| match x.dtype() {
            DType::F64 => x.matmul(&weight.t()?),
            _ => x.linear_rows(weight, None),
        };
        let low = product(x, &self.lora_a)?; // [.., r]
        product(&low, &self.lora_b)?.mul_scalar(self.scale)
    }

    /// `W + scale B A`, in the dtype of the adapter: `[out, in]`
    fn updated(&self) -> Result<Tensor> {
        let wide = self.lora_a.dtype();
        let base = match &self.base {
            Weight::Quantized(weight) => weight.dequantize(wide)?,
            Weight::Whole(weight) => weight.to_dtype(wide)?,
            Weight::Adapted(_) => return Err(Error::op("lora", "an adapter has an adapter")),
        };
        base.add(&self.lora_b.matmul(&self.lora_a)?.mul_scalar(self.scale)?.to_dtype(wide)?)
    }

    /// The lengths of the rows of [`Adapted::updated`], as a constant: `[out]`
    pub(super) fn lengths(&self) -> Result<Tensor> {
        no_grad(|| self.updated()?.vector_norm(2.0, &[1], false))
    }

    /// What each row is multiplied by to have its magnitude: `[out]`
    fn row_factors(&self, magnitude: &Parameter) -> Result<Tensor> {
        magnitude.div(&self.lengths()?)
    }

    /// The weight with the update in it, `[out, in]`, whole.
    pub(super) fn merged(&self) -> Result<Tensor> {
        let (_, dtype) = self.base.place();
        let mut whole = self.updated()?;
        if let Some(magnitude) = &self.magnitude {
            whole = whole.mul(&self.row_factors(magnitude)?.unsqueeze(1)?)?; // [out, in] * [out, 1]
        }
        whole.to_dtype(dtype)
    }
}
