//! GEMM fused with the norm before it and the gate, residual or norm after it, in one launch: on GPUs, for inference.
//!
//! A product has the bits of the ops one after the other, and a row's bits are its own. A norm that is divided behind the
//! product is rounded elsewhere than a norm of its own, and alike for every number of rows.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use crate::autograd::is_grad_enabled;
use crate::error::Result;
use crate::launch::deferred_norm::{DeferredNorm, Gain};
use crate::launch::epilogue::{Epilogue, Fusion};
use crate::launch::linear_tiles::linear_tiles;
use crate::launch::quantized_tiles::{quantized_tiles, steps};
use crate::ops::QuantizedWeight;
use crate::ops::linear_rows::or_none;
use crate::tensor::Tensor;

/// What a product of rows takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows<'t> {
    Whole(&'t Tensor),
    /// Those of a norm, divided behind the product.
    Normed(&'t DeferredNorm),
}

impl<'t> Rows<'t> {
    /// What is multiplied by the weight.
    fn factors(self) -> &'t Tensor {
        match self {
            Rows::Whole(x) => x,
            Rows::Normed(norm) => norm.weighted(),
        }
    }

    fn norm(self) -> Option<&'t DeferredNorm> {
        match self {
            Rows::Whole(_) => None,
            Rows::Normed(norm) => Some(norm),
        }
    }
}

/// `x W^T + b` and what is around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FusedProduct<'t> {
    /// `[.., K]`
    pub(crate) rows: Rows<'t>,
    /// `[M]`
    pub(crate) bias: Option<&'t Tensor>,
    pub(crate) then: Epilogue<'t>,
    /// The weights of the norm behind.
    pub(crate) next: Option<Gain<'t>>,
}

/// A product, `[.., M]` or half of that behind a gate; and where there is a norm behind, the product times its weights.
pub(crate) type Fused = (Tensor, Option<Tensor>);

impl FusedProduct<'_> {
    /// The product with a tensor; none where that is more launches: on processors, of several dtypes, or where a
    /// gradient is recorded.
    ///
    /// # Errors
    /// If a launch fails.
    pub(crate) fn of_whole(self, weight: &Tensor) -> Result<Option<Fused>> {
        let &[m, k] = weight.shape() else { return Ok(None) };
        if !self.takes(weight) {
            return Ok(None);
        }
        let weight = weight.detach().contiguous()?;
        self.run([m, k], |x, bias, y, fusion| linear_tiles(x, &weight, bias, y, fusion))
    }

    /// The product with codes; none where that is more launches, as of a tensor, or their form has none.
    ///
    /// # Errors
    /// If a launch fails.
    pub(crate) fn of_codes(self, weight: &QuantizedWeight) -> Result<Option<Fused>> {
        let (x, planes) = (self.rows.factors(), weight.planes());
        let Some(steps) = steps(x.dtype(), &planes) else { return Ok(None) };
        if weight.device() != x.device() {
            return Ok(None);
        }
        self.run(weight.shape(), |x, bias, y, fusion| {
            quantized_tiles(x, (&planes, steps), bias, y, fusion)
        })
    }

    /// Whether an operand is of the rows' dtype and device, and no gradient of it is recorded.
    fn takes(&self, t: &Tensor) -> bool {
        let x = self.rows.factors();
        let is_alike = t.dtype() == x.dtype() && t.device() == x.device();
        is_alike && !(is_grad_enabled() && t.requires_grad())
    }

    /// The extent of the results, where the operands fit a weight of this shape.
    fn outs(&self, [m, k]: [usize; 2]) -> Option<usize> {
        let (&c, lead) = self.rows.factors().shape().split_last()?;
        let outs = match self.then {
            Epilogue::Gate(_) if m % 2 == 1 => return None,
            Epilogue::Gate(_) => m / 2,
            Epilogue::Add(other) if other.shape() != [lead, &[m]].concat() => return None,
            _ => m,
        };
        let is_next = |gain: Gain<'_>| gain.weight.shape() == [outs] && outs == m;
        let is_whole = self.bias.is_none_or(|bias| bias.shape() == [m]);
        (c == k && is_whole && self.next.is_none_or(is_next)).then_some(outs)
    }

    /// Launches a product with a weight of this shape: rows, bias, result, what is fused.
    fn run(
        self,
        [m, k]: [usize; 2],
        launch: impl FnOnce(&Tensor, &Tensor, &Tensor, Fusion<'_>) -> Result<()>,
    ) -> Result<Option<Fused>> {
        let x = self.rows.factors();
        let others = [self.bias, self.then.added(), self.next.map(|gain| gain.weight)];
        let is_one = matches!(x.device(), Device::Cuda(_))
            && matches!(x.dtype(), DType::F16 | DType::BF16)
            && [x].into_iter().chain(others.into_iter().flatten()).all(|t| self.takes(t));
        let Some(outs) = self.outs([m, k]).filter(|_| is_one) else { return Ok(None) };
        let lead = &x.shape()[..x.rank() - 1];
        let n = crate::shape::product(lead.iter());
        if [n, m, k].contains(&0) {
            return Ok(None);
        }
        let flat = |t: &Tensor, width| t.detach().reshape(&[n, width])?.contiguous();
        let (x, bias) = (flat(x, k)?, or_none(self.bias, x)?);
        let other = self.then.added().map(|other| flat(other, m)).transpose()?;
        let then = match (self.then, &other) {
            (Epilogue::Add(_), Some(other)) => Epilogue::Add(other),
            (then, _) => then,
        };
        let empty = || Tensor::uninitialized(&[n, outs], (x.dtype(), x.device()));
        let (y, weighted) = (empty()?, self.next.map(|_| empty()).transpose()?);
        let next = self.next.zip(weighted.as_ref());
        launch(&x, &bias, &y, Fusion { norm: self.rows.norm(), then, next })?;
        let shaped = |t: &Tensor| t.reshape(&[lead, &[outs]].concat());
        Ok(Some((shaped(&y)?, weighted.as_ref().map(shaped).transpose()?)))
    }
}
