//! Activation checkpointing: a segment is recomputed when its backward needs what it saved.
//!
//! The part leaves the same tape as without a checkpoint, so that gradients are equal bit for bit and
//! everything that walks the tape works through it. Only what its nodes save is left out: in the place
//! of each saved tensor is a number, that of the tensor in the order of saving. The first backward that
//! asks for one runs the part again, with the random numbers of the first time, and keeps what it
//! saves in that order. A leaf is kept as it is: it lives on anyway.
//!
//! Of a part with a [`CheckpointPolicy`] results of some ops are kept. What lies in one is saved as it is and has no
//! number; the second run takes the results in the order of the first, and ends with the last saved tensor.

use std::sync::{Arc, Mutex, PoisonError};

use genesis_kernel::ir::DType;

use super::policy::CheckpointPolicy;
use super::saved::{self, Kept, Memory, Recompute, Saved, Saving, is_in_checkpoint, lock, saving};
use crate::dispatch::autocast::Regions;
use crate::error::{Error, Result};
use crate::mode::{enable_grad, is_grad_enabled, no_grad};
use crate::random::{RngState, fork_rng, get_rng_state, set_rng_state};
use crate::tensor::{Creation, Storage, Tensor};

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
    /// None where the part runs again as a whole.
    policy: Option<CheckpointPolicy>,
    results: Mutex<Results>,
}

/// The results of ops that are kept.
#[derive(Default)]
struct Results {
    /// Of the ops whose results may be kept, in order.
    all: Vec<OfOp>,
    /// How many of them the part that runs again has met.
    met: usize,
    /// The memory of those that are kept, for as long as the part runs.
    running: Vec<Arc<Storage>>,
}

/// The result of an op.
struct OfOp {
    /// None where it is computed again.
    kept: Option<Memory>,
    /// Whether no tensor is saved behind it, so that nobody reads its values again.
    is_last: bool,
    shape: Vec<usize>,
    at: Creation,
    bytes: usize,
    /// How many tensors had been noted when the next op began; none where there was no next op.
    noted: Option<usize>,
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
    let part = Arc::new(f);
    let first = part.clone();
    run_first(|x| first(x), Box::new(move |x| part(x)), inputs, None)
}

/// [`checkpoint_many`] that keeps what a policy says; within another checkpoint it keeps nothing.
///
/// # Numerics
/// Gradients are those of `f(inputs)`, bit for bit.
/// # Errors
/// As [`checkpoint()`]; what `f` would save behind the last tensor of its first run is not looked at.
/// # Cost
/// Memory for the inputs and what is kept; the time of the rest in the backward.
///
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::autograd::{CheckpointPolicy, KeptResults, checkpoint_with};
///
/// let x = Tensor::ones(&[4, 8], ())?;
/// let w = Tensor::ones(&[8, 8], ())?.requires_grad_(true)?;
/// let policy = CheckpointPolicy { keep: KeptResults::Products, budget: None };
/// let part = |x: &[Tensor]| Ok(vec![x[0].matmul(&x[1])?.silu()?.square()?]);
/// let y = checkpoint_with(part, &[&x, &w], &policy)?.remove(0); // the product is computed once
/// y.sum()?.backward()?;
/// assert!(w.grad().is_some());
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn checkpoint_with(
    f: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    inputs: &[&Tensor],
    policy: &CheckpointPolicy,
) -> Result<Vec<Tensor>> {
    let part = Arc::new(f);
    let first = part.clone();
    run_first(|x| first(x), Box::new(move |x| part(x)), inputs, Some(policy))
}

/// A checkpoint of a part that is `first` and later `again`, which do the same: where the first run borrows what the
/// second has a handle of.
pub(crate) fn run_first(
    first: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    again: Box<Part>,
    inputs: &[&Tensor],
    policy: Option<&CheckpointPolicy>,
) -> Result<Vec<Tensor>> {
    let handles: Vec<Tensor> = inputs.iter().map(|&input| input.clone()).collect();
    if !is_grad_enabled() {
        return first(&handles);
    }
    let inputs = inputs.iter().map(|input| Saved::input("checkpoint", input));
    let frame = Arc::new(Frame {
        part: again,
        inputs: inputs.collect::<Result<_>>()?,
        rng: get_rng_state(),
        autocast: Regions::now(),
        noted: Mutex::default(),
        values: Mutex::default(),
        // What the budget leaves may be something else when an outer part runs again.
        policy: policy.filter(|_| !is_in_checkpoint()).cloned(),
        results: Mutex::default(),
    });
    let (results, _) = saving(Saving::Number(frame.clone()), || first(&handles));
    frame.end_first();
    results
}

impl saved::Part for Frame {
    fn note(&self, kept: &Kept) -> usize {
        let mut noted = lock(&self.noted);
        noted.push((kept.shape().to_vec(), kept.dtype));
        noted.len() - 1
    }

    fn is_kept(&self, kept: &Kept) -> bool {
        self.policy.is_some() && lock(&self.results).running.iter().any(|own| kept.is_in(own))
    }

    fn made(
        &self,
        op: &str,
        inputs: &[&Tensor],
        result: &Tensor,
        pack: &mut dyn FnMut(Kept) -> Result<Memory>,
    ) -> Result<()> {
        let Some(policy) = self.policy.as_ref().filter(|of| of.keep.has(op, inputs)) else {
            return Ok(());
        };
        let bytes = result.storage().bytes();
        let kept = match policy.takes(bytes) {
            true => {
                lock(&self.results).running.push(result.storage().clone());
                Some(pack(Kept::of(result))?)
            }
            false => None,
        };
        let (shape, at) = (result.shape().to_vec(), (result.dtype(), result.device()).into());
        let of = OfOp { kept, is_last: false, shape, at, bytes, noted: None };
        lock(&self.results).all.push(of);
        Ok(())
    }

    fn begins(&self) {
        let mut results = lock(&self.results);
        if let Some(last) = results.all.last_mut().filter(|last| last.noted.is_none()) {
            last.noted = Some(lock(&self.noted).len());
        }
    }

    fn recalled(&self, op: &str, inputs: &[&Tensor]) -> Result<Option<Tensor>> {
        let Some(_) = self.policy.as_ref().filter(|of| of.keep.has(op, inputs)) else {
            return Ok(None);
        };
        let memory = {
            let mut results = lock(&self.results);
            let at = results.met;
            results.met += 1;
            match results.all.get(at) {
                Some(of) if of.is_last => {
                    return no_grad(|| Tensor::empty(&of.shape, of.at)).map(Some);
                }
                of => of.and_then(|of| of.kept.clone()),
            }
        };
        // It may have to be brought back first: no lock may be held meanwhile.
        let Some(memory) = memory else { return Ok(None) };
        let result = memory.kept(true)?.tensor(op)?;
        lock(&self.results).running.push(result.storage().clone());
        Ok(Some(result))
    }

    fn is_over(&self, collected: usize) -> bool {
        self.policy.is_some() && collected >= lock(&self.noted).len()
    }
}

impl Recompute for Frame {
    fn value(self: Arc<Self>, index: usize, keep: bool) -> Result<Kept> {
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

    /// Lets go of what nobody will ask for: results behind the last tensor that was noted.
    fn end_first(&self) {
        let Some(policy) = &self.policy else { return };
        let noted = lock(&self.noted).len();
        let mut results = lock(&self.results);
        let running = std::mem::take(&mut results.running);
        let mut left = Vec::new();
        for of in results.all.iter_mut().filter(|of| of.noted.unwrap_or(noted) == noted) {
            of.is_last = true;
            if let Some(memory) = of.kept.take() {
                policy.give_back(of.bytes);
                left.push(memory);
            }
        }
        drop(results);
        drop((running, left));
    }

    fn run_again(self: &Arc<Self>, keep: bool) -> Result<()> {
        let inputs = self.inputs.iter().map(|input| input.unpack_input(keep));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let run = || {
            fork_rng(|| {
                set_rng_state(self.rng);
                self.autocast.run(|| enable_grad(|| (self.part)(&inputs))).map(drop)
            })
        };
        lock(&self.results).met = 0;
        let (ran, collected) = saving(Saving::Collect(self.clone(), Vec::new()), run);
        let running = std::mem::take(&mut lock(&self.results).running);
        drop(running);
        if !saved::Part::is_over(&**self, collected.len()) {
            ran?;
        }
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

impl Drop for Frame {
    fn drop(&mut self) {
        let Some(policy) = &self.policy else { return };
        let results = self.results.get_mut().unwrap_or_else(PoisonError::into_inner);
        let bytes = results.all.iter().filter(|of| of.kept.is_some());
        policy.give_back(bytes.map(|of| of.bytes).sum());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

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
