//! The loss of a language model: cross entropy of the tokens whose labels are not masked.

use std::sync::Arc;

use genesis_kernel::ir::DType;

use super::batch::TokenBatch;
use crate::amp::autocast;
use crate::autograd::{checkpoint, is_grad_enabled};
use crate::error::Result;
use crate::models::{CausalLm, Pass};
use crate::ops::Reduction;
use crate::tensor::Tensor;

/// Logits that are held at a time; more are made anew in the backward, a part after the other.
pub(super) const MOST_LOGITS: usize = 1 << 27;

/// The sum of the cross entropies of all tokens that are learned, in nats: `[]`, f32 or f64.
///
/// Logits are computed of the inputs that predict such a token, and of no other. With `half` the model computes in that
/// dtype, by [`autocast`].
///
/// # Errors
/// If a token is out of range, or memory runs out.
pub fn loss_sum(
    model: &Arc<dyn CausalLm>,
    batch: &TokenBatch,
    half: Option<DType>,
) -> Result<Tensor> {
    let parts = losses(model, batch, half)?;
    let sums = parts.iter().map(Tensor::sum).collect::<Result<Vec<_>>>()?;
    match &sums[..] {
        [sum] => Ok(sum.clone()),
        sums => Tensor::stack(&sums.iter().collect::<Vec<_>>(), 0)?.sum(),
    }
}

/// The cross entropy of each token that is learned, in nats: parts of `[M]` in order, f32 or f64.
pub(super) fn losses(
    model: &Arc<dyn CausalLm>,
    batch: &TokenBatch,
    half: Option<DType>,
) -> Result<Vec<Tensor>> {
    match half {
        Some(dtype) => autocast(dtype, || parts(model, batch)),
        None => parts(model, batch),
    }
}

fn parts(model: &Arc<dyn CausalLm>, batch: &TokenBatch) -> Result<Vec<Tensor>> {
    let hidden = model.hidden(&batch.tokens, &Pass::Packed(&batch.packed))?; // [N, C]
    let hidden = match batch.learned() == hidden.shape()[0] {
        true => hidden,
        false => hidden.index_select(0, &batch.places)?, // [M, C]
    };
    let rows = (MOST_LOGITS / model.vocab_size().max(1)).max(1);
    let count = batch.learned();
    if count <= rows || !is_grad_enabled() && count <= 4 * rows {
        return Ok(vec![of_rows(&**model, &hidden, &batch.targets)?]);
    }
    let mut parts = Vec::new();
    for start in (0..count).step_by(rows) {
        let length = rows.min(count - start);
        let (hidden, targets) =
            (hidden.narrow(0, start, length)?, batch.targets.narrow(0, start, length)?);
        let model = model.clone();
        parts.push(checkpoint(move |x| of_rows(&*model, &x[0], &targets), &[&hidden])?);
    }
    Ok(parts)
}

fn of_rows(model: &dyn CausalLm, hidden: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let logits = model.logits(hidden)?; // [M, V]
    let wide = if logits.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    logits.cross_entropy(targets, Reduction::None)?.to_dtype(wide)
}
