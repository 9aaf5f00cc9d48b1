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
    summed(&losses_as(model, batch, half, Reduction::Sum)?)
}

/// [`loss_sum`] of hidden states that are computed already: the last stage's part of it.
pub(super) fn loss_of_hidden(
    model: &Arc<dyn CausalLm>,
    hidden: &Tensor,
    batch: &TokenBatch,
    half: Option<DType>,
) -> Result<Tensor> {
    in_half(half, || {
        let reduction = match half {
            None if hidden.dtype().bytes() < 4 => Reduction::None,
            _ => Reduction::Sum,
        };
        summed(&of_hidden(model, hidden.clone(), batch, reduction)?)
    })
}

/// Runs `f` with products in another dtype, where one is named.
pub(super) fn in_half<T>(half: Option<DType>, f: impl FnOnce() -> Result<T>) -> Result<T> {
    match half {
        Some(dtype) => autocast(dtype, f),
        None => f(),
    }
}

fn summed(parts: &[Tensor]) -> Result<Tensor> {
    match parts {
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
    let pass = Pass::Packed(&batch.packed);
    let dtype = model.parameters().first().map_or(DType::F32, Tensor::dtype);
    let asked = (&batch.places, &batch.targets);
    if let Some(loss) = model.losses((&batch.tokens, &pass), asked, reduction(dtype))? {
        return Ok(vec![wide(&loss)?]);
    }
    let hidden = model.hidden(&batch.tokens, &pass)?; // [N, C]
    let reduction = reduction(hidden.dtype());
    of_hidden(model, hidden, batch, reduction)
}

/// The same of the hidden states of all tokens.
fn of_hidden(
    model: &Arc<dyn CausalLm>,
    hidden: Tensor,
    batch: &TokenBatch,
    reduction: Reduction,
) -> Result<Vec<Tensor>> {
    let count = batch.targets.numel();
    let hidden = match count == hidden.shape()[0] {
        true => hidden,
        false => hidden.index_select(0, &batch.places)?, // [M, C]
    };
    if let Some(loss) = model.cross_entropy(&hidden, &batch.targets, reduction)? {
        return Ok(vec![wide(&loss)?]);
    }
    let rows = (MOST_LOGITS / model.vocab_size().max(1)).max(1);
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
