//! One optimizer step: forward and backward of its micro-batches, clipping, update.

use std::sync::Arc;

use genesis_kernel::ir::DType;

use super::batch::TokenBatch;
use super::lesson::{Lesson, Preferences};
use crate::error::{Error, Result};
use crate::models::CausalLm;
use crate::optim::{Optimizer, clip_grad_norm_};

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
    learn(model, optimizer, batches, half, clip)
}

/// [`train_step`] of any batches, by the mean over what they count.
pub(super) fn learn<L: Lesson>(
    model: &Arc<dyn CausalLm>,
    optimizer: &mut dyn Optimizer,
    batches: &[L],
    half: Option<DType>,
    clip: f64,
) -> Result<Trained> {
    let count: usize = batches.iter().map(L::count).sum();
    if count == 0 {
        return Err(Error::op("train", "no token of the step is learned"));
    }
    optimizer.zero_grad();
    let (mut parts, mut preferences) = (Vec::with_capacity(batches.len()), Vec::new());
    for batch in batches.iter().filter(|batch| batch.count() > 0) {
        let measured = batch.measure(model, half)?;
        let loss = measured.loss.div_scalar(count as f64)?;
        loss.backward()?;
        parts.push(loss.detach());
        preferences.extend(measured.preferences);
    }
    let most = if clip > 0.0 { clip } else { f64::MAX };
    let grad_norm = clip_grad_norm_(optimizer.parameters(), most, 2.0)?;
    optimizer.step()?;
    // Reads wait for the device; until here nothing did.
    let losses = parts.iter().map(|loss| loss.item()).collect::<Result<Vec<f64>>>()?;
    let (loss, grad_norm) = (losses.iter().sum::<f64>(), grad_norm.item()?);
    if !loss.is_finite() || !grad_norm.is_finite() {
        let what = format!("the loss is {loss}, the norm of its gradients {grad_norm}");
        return Err(Error::op("train", format!("{what}; try a smaller learning rate")));
    }
    Ok(Trained {
        loss,
        grad_norm,
        inputs: batches.iter().map(|batch| batch.tokens().inputs).sum(),
        learned: batches.iter().map(|batch| batch.tokens().learned()).sum(),
        preferences: Preferences::of(&preferences, count)?,
    })
}
