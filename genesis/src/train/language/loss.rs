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

/// Logits that are held at a time where the head is no product with a tensor; more are made anew in the backward, a part
/// after the other.
pub(super) const MOST_LOGITS: usize = 1 << 27;

/// The sum of the cross entropies of all tokens that are learned, in nats: `[]`, f32 or f64.
///
/// Logits are computed of the inputs that predict such a token, and of no other; as a rule never of all at a time
/// ([`CausalLm::cross_entropy`]). With `half` the model computes in that dtype, by [`autocast`].
///
/// # Errors
/// If a token is out of range, or memory runs out.
pub fn loss_sum(
    model: &Arc<dyn CausalLm>,
    batch: &TokenBatch,
    half: Option<DType>,
) -> Result<Tensor> {
    let parts = losses_as(model, batch, half, Reduction::Sum)?;
    match &parts[..] {
        [sum] if sum.rank() == 0 => Ok(sum.clone()),
        [losses] => losses.sum(),
        parts => {
            let sums = parts.iter().map(Tensor::sum).collect::<Result<Vec<_>>>()?;
            Tensor::stack(&sums.iter().collect::<Vec<_>>(), 0)?.sum()
        }
    }
}

/// The cross entropy of each token that is learned, in nats: parts of `[M]` in order, f32 or f64.
pub(super) fn losses(
    model: &Arc<dyn CausalLm>,
    batch: &TokenBatch,
    half: Option<DType>,
) -> Result<Vec<Tensor>> {
    losses_as(model, batch, half, Reduction::None)
}

fn losses_as(
    model: &Arc<dyn CausalLm>,
    batch: &TokenBatch,
    half: Option<DType>,
    reduction: Reduction,
) -> Result<Vec<Tensor>> {
    match half {
        Some(dtype) => autocast(dtype, || parts(model, batch, |_| reduction)),
        // A sum of losses in 16 bits would have few digits.
        None => parts(model, batch, |of| if of.bytes() < 4 { Reduction::None } else { reduction }),
    }
}

/// The loss of all tokens, or losses of parts of them where the head is no product with a tensor.
fn parts(
    model: &Arc<dyn CausalLm>,
    batch: &TokenBatch,
    reduction: impl Fn(DType) -> Reduction,
) -> Result<Vec<Tensor>> {
    let hidden = model.hidden(&batch.tokens, &Pass::Packed(&batch.packed))?; // [N, C]
    let hidden = match batch.learned() == hidden.shape()[0] {
        true => hidden,
        false => hidden.index_select(0, &batch.places)?, // [M, C]
    };
    let reduction = reduction(hidden.dtype());
    if let Some(loss) = model.cross_entropy(&hidden, &batch.targets, reduction)? {
        return Ok(vec![wide(&loss)?]);
    }
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
    wide(&logits.cross_entropy(targets, Reduction::None)?)
}

/// In f64 if it is, else in f32.
fn wide(loss: &Tensor) -> Result<Tensor> {
    loss.to_dtype(if loss.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
}
