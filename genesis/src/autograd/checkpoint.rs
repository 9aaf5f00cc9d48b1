//! Activation checkpointing: a segment is recomputed when its backward needs what it saved.
//!
//! The part leaves the same tape as without a checkpoint, so that gradients are equal bit for bit and
//! everything that walks the tape works through it. Only what its nodes save is left out: in the place
//! of each saved tensor is a number, that of the tensor in the order of saving. The first backward that
//! asks for one runs the part again, with the random numbers of the first time, and keeps what it
//! saves in that order. A leaf is kept as it is: it lives on anyway.

use std::sync::{Arc, Mutex};

use genesis_kernel::ir::DType;

use super::saved::{self, Kept, Recompute, Saved, Saving, lock, saving};
use crate::dispatch::autocast::Regions;
use crate::error::{Error, Result};
use crate::mode::{enable_grad, is_grad_enabled};
use crate::random::{RngState, fork_rng, get_rng_state, set_rng_state};
use crate::tensor::Tensor;

type Part = dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync;

/// A part of a network that ran under a checkpoint.
struct Frame {
    part: Box<Part>,
    inputs: Vec<Saved>,
    rng: RngState,
    autocast: Regions,
    /// What was saved, in order.
    noted: Mutex<Vec<(Vec<usize>, DType)>>,
    /// The same tensors, once the part has run again; none where one was taken.
    values: Mutex<Vec<Option<Kept>>>,
}

/// Runs `f` on the inputs and forgets what it computes on the way: a backward runs it again.
///
/// `f` must do the same both times. The random numbers that it draws from the default generator are
/// the same; what it changes outside, such as running statistics, it changes twice.
///
/// # Numerics
/// Gradients are those of `f(inputs)`, bit for bit.
/// # Errors
/// If `f` refuses. A backward fails if `f` then saves other tensors than the first time, or an input was
/// changed in place since.
/// # Cost
/// Memory for the inputs and the results only; the time of one more forward in the backward.
///
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::autograd::checkpoint;
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0], &[2])?.requires_grad_(true)?;
/// let y = checkpoint(|x| x[0].exp()?.sin()?.sum(), &[&x])?;
/// y.backward()?;
/// assert!(x.grad().is_some());
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn checkpoint(
    f: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Tensor> {
    let mut results = checkpoint_many(move |x| Ok(vec![f(x)?]), inputs)?;
    results.pop().ok_or_else(|| Error::op("checkpoint", "the part gave no result"))
}

/// [`checkpoint()`] for a part with several results.
///
/// # Errors
/// As [`checkpoint()`].
pub fn checkpoint_many(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Vec<Tensor>> {
    let handles: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    if !is_grad_enabled() {
        return f(&handles);
    }
    let inputs = inputs.iter().map(|input| Saved::input("checkpoint", input));
    let frame = Arc::new(Frame {
        part: Box::new(f),
        inputs: inputs.collect::<Result<_>>()?,
        rng: get_rng_state(),
        autocast: Regions::now(),
        noted: Mutex::default(),
        values: Mutex::default(),
    });
    let (results, _) = saving(Saving::Number(frame.clone()), || (frame.part)(&handles))?;
    Ok(results)
}

impl saved::Part for Frame {
    fn note(&self, kept: &Kept) -> usize {
        let mut noted = lock(&self.noted);
        noted.push((kept.shape().to_vec(), kept.dtype));
        noted.len() - 1
    }
}

impl Recompute for Frame {
    fn value(&self, index: usize, keep: bool) -> Result<Kept> {
        if let Some(value) = self.take(index, keep) {
            return Ok(value);
        }
        self.run_again(keep)?;
        let message = "the part saved nothing at this place when it ran again";
        self.take(index, keep).ok_or_else(|| Error::op("checkpoint", message))
    }
}

impl Frame {
    fn take(&self, index: usize, keep: bool) -> Option<Kept> {
        let mut values = lock(&self.values);
        let value = values.get_mut(index)?;
        if keep { value.clone() } else { value.take() }
    }

    fn run_again(&self, keep: bool) -> Result<()> {
        let inputs = self.inputs.iter().map(|input| input.unpack_input(keep));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let run = || {
            fork_rng(|| {
                set_rng_state(self.rng);
                self.autocast.run(|| enable_grad(|| (self.part)(&inputs))).map(drop)
            })
        };
        let ((), collected) = saving(Saving::Collect(Vec::new()), run)?;
        self.check_same(&collected)?;
        let old =
            std::mem::replace(&mut *lock(&self.values), collected.into_iter().map(Some).collect());
        drop(old);
        Ok(())
    }

    /// A part that does something else the second time gives wrong gradients: it is refused.
    fn check_same(&self, again: &[Kept]) -> Result<()> {
        let noted = lock(&self.noted);
        let is_other = |(kept, (shape, dtype)): (&Kept, &(Vec<usize>, DType))| {
            kept.shape() != shape || kept.dtype != *dtype
        };
        let message = if noted.len() != again.len() {
            format!(
                "the part saved {} tensors when it ran again and {} the first time",
                again.len(),
                noted.len()
            )
        } else if let Some(at) = again.iter().zip(&*noted).position(is_other) {
            format!(
                "saved tensor {at} is {:?} of {} when the part runs again, it was {:?} of {}",
                again[at].shape(),
                again[at].dtype,
                noted[at].0,
                noted[at].1
            )
        } else {
            return Ok(());
        };
        Err(Error::op("checkpoint", format!("{message}; it must do the same both times")))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;
    use crate::tensor::Storage;

    /// The memory of what a part computes on the way, after its forward.
    fn left_after_forward(
        with: impl Fn(&Tensor, Arc<Mutex<Vec<Weak<Storage>>>>) -> Result<Tensor>,
    ) -> usize {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let x = Tensor::ones(&[8], ()).and_then(|x| x.requires_grad_(true));
        let x = x.and_then(|x| x.exp()).expect("a small tensor");
        let y = with(&x, seen.clone()).expect("the part runs");
        let left = lock(&seen).iter().filter(|memory| memory.strong_count() > 0).count();
        y.backward().expect("the part is differentiable");
        left
    }

    fn part(x: &Tensor, seen: &Mutex<Vec<Weak<Storage>>>) -> Result<Tensor> {
        let mut y = x.clone();
        for _ in 0..5 {
            y = y.mul(&y)?.tanh()?;
            lock(seen).push(Arc::downgrade(y.storage()));
        }
        y.sum()
    }

    #[test]
    fn what_a_part_computes_on_the_way_is_freed() {
        assert_eq!(left_after_forward(|x, seen| part(x, &seen)), 5);
        let under = |x: &Tensor, seen: Arc<Mutex<Vec<Weak<Storage>>>>| {
            checkpoint(move |x| part(&x[0], &seen), &[x])
        };
        assert_eq!(left_after_forward(under), 0);
    }
}
