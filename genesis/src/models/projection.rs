//! The products of a model with its weights: one type for all of them.
//!
//! Every product of a decoder with a weight goes through [`Projection::forward`], so that how it is computed,
//! from which form of the weight, is decided in one place: a row has the same bits alone, in any batch and in
//! chunks ([`Weight::product`]), so that a prompt has the same answer whatever runs beside it.

use super::blueprint::Blueprint;
use super::norm::Norm;
use super::normed::Normed;
use crate::autograd::is_grad_enabled;
use crate::error::Result;
use crate::launch::epilogue::Epilogue;
use crate::nn::{Layer, Linear, Module, Parameter, Weight, count_flops, flops, is_observed, watch};
use crate::ops::fused_product::{Fused, FusedProduct, Rows};
use crate::ops::{Classes, Gate, LinearCrossEntropy, Reduction};
use crate::tensor::Tensor;

/// `y = x W^T + b`
///
/// # Shapes
/// `[.., in]` -> `[.., out]`, with `weight: [out, in]` and `bias: [out]`.
#[derive(Debug, Module)]
pub struct Projection {
    /// `[out, in]`
    pub weight: Weight,
    /// `[out]`
    pub bias: Option<Parameter>,
}

impl Blueprint {
    /// A product `[inputs] -> [outputs]`.
    pub(super) fn projection(
        &self,
        [inputs, outputs]: [usize; 2],
        bias: bool,
    ) -> Result<Projection> {
        let Linear { weight, bias } = self.linear([inputs, outputs], bias)?;
        Ok(Projection { weight: weight.into(), bias })
    }
}

impl Projection {
    /// The product of the input and the weight, plus the bias.
    ///
    /// # Errors
    /// If the last extent is not that of the weight, or dtypes or devices differ.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let y = self.weight.product(x, self.bias.as_deref())?; // [.., out]
            count_flops(|| flops(&[2, y.numel(), self.weight.shape()[1]]));
            Ok(y)
        })
    }
}

impl Projection {
    /// The cross entropy of the product, bounded by a soft cap, against class indices, without all of it in memory; none
    /// where the weight is no tensor, or somebody observes the product.
    ///
    /// # Errors
    /// As [`Tensor::linear_cross_entropy`].
    pub(super) fn cross_entropy(
        &self,
        x: &Tensor,
        targets: &Tensor,
        (reduction, softcap): (Reduction, Option<f64>),
    ) -> Result<Option<Tensor>> {
        let Weight::Whole(weight) = &self.weight else { return Ok(None) };
        if is_observed() {
            return Ok(None);
        }
        let classes = Classes { reduction, ..Classes::default() };
        let options = LinearCrossEntropy { classes, softcap, ..LinearCrossEntropy::default() };
        x.linear_cross_entropy(weight, self.bias.as_deref(), targets, &options).map(Some)
    }

    /// The product of what a norm leaves to it, or makes.
    ///
    /// # Errors
    /// As [`Projection::forward`].
    pub(super) fn of_normed(&self, x: &Normed<'_>) -> Result<Tensor> {
        if let Some(rows) = x.deferred_rows()
            && let Some((y, _)) = self.then(rows, Epilogue::Nothing, None)?
        {
            return Ok(y);
        }
        self.forward(x.tensor()?)
    }

    /// The product plus a residual, where that is one launch that nobody observes; and what the norm behind, where
    /// one is named, multiplies that with its weights to.
    pub(super) fn added(
        &self,
        x: &Tensor,
        residual: &Tensor,
        next: Option<&Norm>,
    ) -> Result<Option<Fused>> {
        self.then(Rows::Whole(x), Epilogue::Add(residual), next)
    }

    /// The first half of the product, opened as a gate, times the second, where that is one launch that nobody
    /// observes.
    pub(super) fn gated(&self, x: &Normed<'_>, gate: Gate) -> Result<Option<Tensor>> {
        let rows = match x.deferred_rows() {
            Some(rows) => rows,
            None => Rows::Whole(x.tensor()?),
        };
        Ok(self.then(rows, Epilogue::Gate(gate), None)?.map(|(y, _)| y))
    }

    fn then(
        &self,
        rows: Rows<'_>,
        then: Epilogue<'_>,
        next: Option<&Norm>,
    ) -> Result<Option<Fused>> {
        if is_observed() {
            return Ok(None);
        }
        let (bias, next) = (self.bias.as_deref(), next.map(Norm::gain));
        self.weight.fused(FusedProduct { rows, bias, then, next })
    }

    /// Whether the norm in front of products of the same inputs is divided behind them: they are one product, of
    /// frozen weights for which that is so.
    pub(super) fn defer_norms(parts: &[&Projection]) -> bool {
        let is_inference = !is_grad_enabled() && parts.iter().all(|part| part.weight.is_frozen());
        let defers = |joined: Projection| joined.weight.defers_norms();
        is_inference && Projection::joined(parts).is_ok_and(|joined| joined.is_some_and(defers))
    }

    /// Products of the same inputs as one, where [`Projection::pack`] laid their weights and biases out; none where they lie
    /// apart, some are trained and others not, or somebody observes the single ones. Gradients go to the parts.
    ///
    /// # Errors
    /// If memory runs out.
    pub(super) fn joined(parts: &[&Projection]) -> Result<Option<Projection>> {
        if is_observed() {
            return Ok(None);
        }
        let weights: Vec<&Weight> = parts.iter().map(|part| &part.weight).collect();
        let biases: Vec<&Tensor> = parts.iter().filter_map(|part| part.bias.as_deref()).collect();
        let bias = match biases.len() {
            0 => None,
            all if all == parts.len() => match Tensor::joined(&biases)? {
                Some(bias) => Some(Parameter::shared(bias)),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Weight::joined(&weights)?.map(|weight| Projection { weight, bias }))
    }

    /// Lays weights and biases of products of the same inputs out one after the other, so that they are computed as one.
    /// Those that are trained are leaves of their own again.
    pub(super) fn pack(parts: &mut [&mut Projection]) -> Result<()> {
        let biases: Vec<&Parameter> = parts.iter().filter_map(|part| part.bias.as_ref()).collect();
        if biases.len() == parts.len()
            && let Some(packed) = Parameter::packed(&biases)?
        {
            for (part, packed) in parts.iter_mut().zip(packed) {
                part.bias = Some(packed);
            }
        }
        let mut weights: Vec<&mut Weight> = parts.iter_mut().map(|part| &mut part.weight).collect();
        Weight::pack(&mut weights)
    }
}

impl Layer for Projection {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Projection::forward(self, x)
    }
}
