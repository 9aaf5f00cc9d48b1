//! A text as one vector: the mean of the hidden states of its tokens.
//!
//! Decoders are trained to predict and not to embed, but the mean of their last hidden states is what is usually
//! taken where no other model is at hand, and what servers of such models answer with.

use super::batch::place;
use super::request::refused;
use crate::autograd::no_grad;
use crate::error::Result;
use crate::models::{CausalLm, Pass};
use crate::tensor::Tensor;

/// The mean over all tokens of the hidden states behind the last norm.
///
/// # Shapes
/// Gives as many numbers as the model has channels.
/// # Numerics
/// The mean is in f64 over the states in the model's dtype.
/// # Errors
/// If there is no token, one is unknown, they are more than the model's positions, or the model fails.
pub fn embed(model: &dyn CausalLm, tokens: &[u32]) -> Result<Vec<f32>> {
    let (count, most) = (tokens.len(), model.max_positions());
    if count == 0 || count > most {
        return Err(refused(format!("there are {count} tokens to embed, from 1 to {most} can be")));
    }
    let known = model.vocab_size();
    if let Some(token) = tokens.iter().find(|&&token| token as usize >= known) {
        return Err(refused(format!("the text has token {token}, the model knows {known} tokens")));
    }
    let ids: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
    let ids = Tensor::from_slice_on(&ids, &[1, count], place(model).0)?; // [1, T]
    let hidden = no_grad(|| model.hidden(&ids, &Pass::Whole))?; // [1, T, C]
    let states = hidden.to_f64_vec()?;
    let channels = states.len() / count;
    let mean = |channel| states.iter().skip(channel).step_by(channels).sum::<f64>() / count as f64;
    Ok((0..channels).map(|channel| mean(channel) as f32).collect())
}
