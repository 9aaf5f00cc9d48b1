//! Tensor parallel products of models: a part of the heads, of the hidden channels and of the vocabulary on each rank.
//!
//! Attention and feed-forward layers are cut alike: products whose inputs are the residual stream keep some of their
//! outputs, those that lead back to it some of their inputs. So a layer has one collective where the stream comes in and
//! one where it is added to.
//!
//! ```text
//! x [N, C] -enter-> q, k, v of H / ranks heads -> seen [N, H D / ranks] -o_proj-> a sum of parts -leave-> [N, C]
//! ```
//!
//! # Source
//! arXiv:1909.08053, arXiv:2205.05198 (sequence parallel norms).

use super::projection::Projection;
use crate::autograd::checkpoint;
use crate::distributed::{
    Parallel, ProcessGroup, shard_parameter, vocab_parallel_cross_entropy, vocab_parallel_rows,
};
use crate::error::{Error, Result};
use crate::nn::{Parameter, Weight};
use crate::ops::Reduction;
use crate::tensor::Tensor;

/// Logits of a rank that are held at a time; more are made anew in the backward, a part after the other.
const MOST_LOGITS: usize = 1 << 27;

/// The ranks that a model's products lie on, and what is between two layers.
#[derive(Clone, Debug)]
pub struct TensorParallel {
    /// The ranks.
    pub group: ProcessGroup,
    /// Whether the residual stream is whole on each rank, or each has its part of the tokens.
    pub between: Parallel,
}

impl TensorParallel {
    /// The whole residual stream, of which each rank makes its own use.
    pub(super) fn enter(&self, x: &Tensor) -> Result<Tensor> {
        self.between.enter(x, &self.group)
    }

    /// The product of what each rank has of the inputs, `[.., in / ranks]` -> `[.., out]`.
    pub(super) fn product(&self, of: &Projection, x: &Tensor) -> Result<Tensor> {
        let y = self.between.leave(&of.weight.product(x, None)?, &self.group)?;
        match &of.bias {
            Some(bias) => y.add(&bias.to_dtype(y.dtype())?),
            None => Ok(y),
        }
    }

    /// Embedded tokens by this rank's rows of the table and those of the others.
    pub(super) fn embedded(&self, table: &Parameter, tokens: &Tensor) -> Result<Tensor> {
        let rows = vocab_parallel_rows(table, tokens, &self.group)?;
        self.between.leave(&rows, &self.group)
    }

    /// Refuses what is not in equal parts.
    pub(super) fn check(&self, what: &str, count: usize) -> Result<()> {
        let size = self.group.size();
        match count.is_multiple_of(size) {
            true => Ok(()),
            false => {
                let message = format!("{count} {what} are not in {size} equal parts");
                Err(Error::op("tensor_parallel", message))
            }
        }
    }

    /// Keeps this rank's outputs of a product.
    pub(super) fn cut_outputs(&self, of: &mut Projection) -> Result<()> {
        of.weight = self.cut(&of.weight, 0)?;
        if let Some(bias) = &mut of.bias {
            *bias = shard_parameter(bias, 0, &self.group)?;
        }
        Ok(())
    }

    /// This rank's rows of a table.
    pub(super) fn cut_rows(&self, table: &Parameter) -> Result<Parameter> {
        shard_parameter(table, 0, &self.group)
    }

    /// Keeps this rank's inputs of a product; a bias stays whole.
    pub(super) fn cut_inputs(&self, of: &mut Projection) -> Result<()> {
        of.weight = self.cut(&of.weight, 1)?;
        Ok(())
    }

    fn cut(&self, weight: &Weight, axis: usize) -> Result<Weight> {
        match weight {
            Weight::Whole(weight) => Ok(shard_parameter(weight, axis, &self.group)?.into()),
            Weight::Quantized(_) | Weight::Adapted(_) => {
                let message = "quantized weights and those with adapters are not cut";
                Err(Error::op("tensor_parallel", message))
            }
        }
    }

    /// The cross entropy of the logits of hidden states that all ranks have, each of its part of the vocabulary.
    pub(super) fn cross_entropy(
        &self,
        head: &Projection,
        (hidden, targets): (&Tensor, &Tensor),
        (reduction, softcap): (Reduction, Option<f64>),
    ) -> Result<Tensor> {
        let Weight::Whole(weight) = &head.weight else {
            return Err(Error::op("tensor_parallel", "the head is no whole weight"));
        };
        let (count, classes) = (targets.numel(), weight.shape()[0]);
        let rows = (MOST_LOGITS / classes.max(1)).max(1);
        let bias = head.bias.as_ref().map(|bias| bias.tensor().clone());
        let (weight, group) = (weight.tensor().clone(), self.group.clone());
        let of = move |x: &Tensor, targets: &Tensor, reduction| {
            let logits =
                Weight::from(Parameter::shared(weight.clone())).product(x, bias.as_ref())?;
            let logits = match softcap {
                Some(cap) => logits.div_scalar(cap)?.tanh()?.mul_scalar(cap)?,
                None => logits,
            };
            vocab_parallel_cross_entropy(&logits, targets, reduction, &group)
        };
        if count <= rows {
            return of(hidden, targets, reduction);
        }
        let mut parts = Vec::new();
        for start in (0..count).step_by(rows) {
            let length = rows.min(count - start);
            let (x, targets) =
                (hidden.narrow(0, start, length)?, targets.narrow(0, start, length)?);
            let of = of.clone();
            parts.push(checkpoint(move |x| of(&x[0], &targets, Reduction::None), &[&x])?);
        }
        let losses = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?;
        match reduction {
            Reduction::None => Ok(losses),
            Reduction::Sum => losses.sum(),
            Reduction::Mean => losses.sum()?.div_scalar(count as f64),
        }
    }
}
