//! One optimizer step: forward and backward of its micro-batches, clipping, update.

use std::cell::RefCell;
use std::sync::Arc;

use genesis_kernel::ir::DType;

use super::batch::TokenBatch;
use super::keeping::Keeping;
use super::lesson::{Lesson, Preferences};
use super::loss::loss_of_hidden;
use super::ranks::Ranks;
use super::turns::{self, Own};
use crate::error::{Error, Result};
use crate::models::CausalLm;
use crate::optim::{Optimizer, clip_grad_norm_, clip_grads_with_norm_};
use crate::tensor::Tensor;

/// What a step did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trained {
    /// The mean loss of the tokens that were learned, or of the pairs, in nats.
    pub loss: f64,
    /// The joint norm of the gradients, before it was clipped.
    pub grad_norm: f64,
    /// Inputs, without padding.
    pub inputs: usize,
    /// Tokens that were learned.
    pub learned: usize,
    /// Of pairs, how far the better answers were preferred before the step.
    pub preferences: Option<Preferences>,
}

/// Steps an optimizer once by the mean loss over the learned tokens of all batches. Each batch goes backward by itself, so
/// that memory is that of one; a norm above `clip` is scaled down to it, unless that is 0.
///
/// # Errors
/// If no token is learned, the loss is not finite, or memory runs out.
pub fn train_step(
    model: &Arc<dyn CausalLm>,
    optimizer: &mut dyn Optimizer,
    batches: &[TokenBatch],
    half: Option<DType>,
    clip: f64,
) -> Result<Trained> {
    learn(model, optimizer, batches, &How { half, clip, keeping: &Keeping::default() }, None)
}

/// How a step is made.
pub(super) struct How<'k> {
    /// What products are computed in, where that is not the dtype of the weights.
    pub(super) half: Option<DType>,
    /// The largest joint norm of gradients; 0 clips nothing.
    pub(super) clip: f64,
    pub(super) keeping: &'k Keeping,
}

/// [`train_step`] of any batches, by the mean over what they count; on several ranks each takes its own of them.
pub(super) fn learn<L: Lesson>(
    model: &Arc<dyn CausalLm>,
    optimizer: &mut dyn Optimizer,
    batches: &[L],
    how: &How<'_>,
    ranks: Option<&Ranks>,
) -> Result<Trained> {
    let count: usize = batches.iter().map(L::count).sum();
    if count == 0 {
        return Err(Error::op("train", "no token of the step is learned"));
    }
    optimizer.zero_grad();
    let (losses, preferences) = backward(model, batches, (how, count), ranks)?;
    let most = if how.clip > 0.0 { how.clip } else { f64::MAX };
    let grad_norm = match ranks {
        Some(ranks) => {
            let norm = ranks.grad_norm(&**model, optimizer.parameters())?;
            clip_grads_with_norm_(optimizer.parameters(), most, &norm)?;
            norm
        }
        None => clip_grad_norm_(optimizer.parameters(), most, 2.0)?,
    };
    optimizer.step()?;
    // Reads wait for the device; until here nothing did.
    let losses = losses.iter().map(|loss| loss.item()).collect::<Result<Vec<f64>>>()?;
    let mut loss = losses.iter().sum::<f64>();
    let mut preferences = Preferences::of(&preferences, count)?;
    if let Some(ranks) = ranks {
        [loss] = ranks.sum([loss])?;
        preferences = Preferences::over::<L>(preferences, ranks)?;
    }
    let grad_norm = grad_norm.item()?;
    if !loss.is_finite() || !grad_norm.is_finite() {
        let what = format!("the loss is {loss}, the norm of its gradients {grad_norm}");
        return Err(Error::op("train", format!("{what}; try a smaller learning rate")));
    }
    Ok(Trained {
        loss,
        grad_norm,
        inputs: batches.iter().map(|batch| batch.tokens().inputs).sum(),
        learned: batches.iter().map(|batch| batch.tokens().learned()).sum(),
        preferences,
    })
}

/// The forwards and backwards of a step: the losses of this rank's batches, and what it measured of pairs.
fn backward<L: Lesson>(
    model: &Arc<dyn CausalLm>,
    batches: &[L],
    (how, count): (&How<'_>, usize),
    ranks: Option<&Ranks>,
) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
    let How { half, keeping, .. } = *how;
    let own = turns::own(batches, ranks);
    let (mut losses, mut preferences) = (Vec::with_capacity(own.len()), Vec::new());
    if let Some((ranks, stages)) = ranks.and_then(|ranks| Some((ranks, ranks.stages.as_ref()?))) {
        let tokens: Vec<&TokenBatch> = own.iter().map(|own| own.batch.tokens()).collect();
        let counts: Vec<bool> = own.iter().map(Own::counts).collect();
        let found = RefCell::new(Vec::new());
        let loss = |hidden: &Tensor, at: usize| {
            let loss = loss_of_hidden(model, hidden, tokens[at], half)?.div_scalar(count as f64)?;
            let loss = own[at].weighted(loss)?;
            found.borrow_mut().push(loss.detach());
            ranks.scaled(loss)
        };
        ranks.reduced(|| stages.step(model, (&tokens, &counts), (half, keeping), loss))?;
        stages.sum_shared(&**model)?;
        return Ok((found.into_inner(), preferences));
    }
    let mut measure = |own: &Own<'_, L>| {
        let measured = own.run(|| keeping.run(model, || own.batch.measure(model, half)))?;
        let loss = own.weighted(measured.loss.div_scalar(count as f64)?)?;
        losses.push(loss.detach());
        preferences.extend(measured.preferences);
        Ok(loss)
    };
    match ranks {
        Some(ranks) => ranks.backward(&own, measure)?,
        None => own.iter().try_for_each(|own| measure(own)?.backward())?,
    }
    Ok((losses, preferences))
}
