//! Composite ops: functions of other ops, fused to one kernel.
//!
//! Such an op is written once, as what it is made of: elementwise ops, casts, broadcasts, and perhaps a reduction
//! of the last axes at the end. [`composite`] runs that description on tensors that stand for others
//! ([`fuse`](crate::fuse)) and composes what it launches, forward and backward, so that what is between its ops stays
//! in registers. 16-bit operands are f32 there, and rounded once at the end.
//!
//! ```text
//! fn softsign(x: &Tensor) -> Result<Tensor> {
//!     composite("softsign", &[], [x], |[x], _| x.div(&x.abs()?.add_scalar(1.0)?))
//! }
//! ```
//!
//! The description can hold nothing, for it is a function and no closure: the numbers it depends on are given beside
//! the tensors. They are arguments of the kernel, so that a number which changes from step to step compiles nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::autograd::{Kinds, SavedTensors, is_grad_enabled};
use crate::dispatch::autocast::without_autocast;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::fuse::{self, Fused, Results, Several};
use crate::tensor::Tensor;

/// What an op of `N` operands is made of, with the numbers it was called with.
pub(in crate::ops) type Description<const N: usize> = fn([&Tensor; N], &[f64]) -> Result<Tensor>;

/// What is done with the result of a description: a reduction, or nothing.
pub(in crate::ops) type Ending = fn(&Tensor) -> Result<Tensor>;

/// The most descriptions with numbers that are kept; beyond it all are made anew.
const MOST: usize = 1024;

/// An op, the addresses of its description and ending, and the bits of its numbers.
type Key = (&'static str, [usize; 2], Vec<u64>);

/// Runs an op that is made of others as one kernel where it can be.
///
/// # Errors
/// What the ops of the description refuse.
#[track_caller]
pub(in crate::ops) fn composite<const N: usize>(
    name: &'static str,
    numbers: &[f64],
    inputs: [&Tensor; N],
    description: Description<N>,
) -> Result<Tensor> {
    composite_ending(name, numbers, inputs, description, |y| Ok(y.clone()))
}

/// Runs [`composite`] with an ending, such as the mean of what is described.
///
/// # Errors
/// What the ops of the description and the ending refuse.
#[track_caller]
pub(in crate::ops) fn composite_ending<const N: usize>(
    name: &'static str,
    numbers: &[f64],
    inputs: [&Tensor; N],
    description: Description<N>,
    ending: Ending,
) -> Result<Tensor> {
    // The op chose the precision of its operands before; what it is made of takes them as they are.
    without_autocast(|| match known(name, numbers, description, ending).call(&inputs) {
        // Operands that lie along more axes than a composed kernel walks, say.
        Err(error) if error.op_name() == Some("fuse") => ending(&description(inputs, numbers)?),
        done => done,
    })
}

fn known<const N: usize>(
    name: &'static str,
    numbers: &[f64],
    description: Description<N>,
    ending: Ending,
) -> Arc<Fused> {
    static KNOWN: Mutex<BTreeMap<Key, Arc<Fused>>> = Mutex::new(BTreeMap::new());
    let bits = numbers.iter().map(|number| number.to_bits()).collect();
    kept(&KNOWN, (name, [description as usize, ending as usize], bits), || {
        let numbers = numbers.to_vec();
        fuse::composite(name, move |args| {
            let args: [&Tensor; N] = std::array::from_fn(|i| &args[i]);
            ending(&description(args, &numbers)?)
        })
    })
}

/// What is known by a key, made where it is not.
fn kept<K: Ord, V>(known: &Mutex<BTreeMap<K, Arc<V>>>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MOST && !known.contains_key(&key) {
        known.clear();
    }
    known.entry(key).or_insert_with(|| Arc::new(make())).clone()
}

/// An op whose gradients are made of several ops: its name and its numbers, and the address of the function that makes
/// them, so that two ops of one name do not get each other's.
pub(in crate::ops) struct Differentiated<'a> {
    pub(in crate::ops) name: &'static str,
    pub(in crate::ops) numbers: &'a [f64],
    pub(in crate::ops) by: usize,
}

/// The gradients of an op by the tensors it saved and `dy`: what `formula` says, composed where that is more than one
/// launch. `formula` may hold nothing that the op does not say.
///
/// # Errors
/// What the ops of the formula refuse.
#[track_caller]
pub(in crate::ops) fn gradients(
    op: &Differentiated<'_>,
    saved: &SavedTensors,
    dy: &Tensor,
    formula: impl Fn(&SavedTensors, &Tensor) -> Result<Results> + Send + Sync + Copy + 'static,
) -> Result<Results> {
    if is_grad_enabled() || trace::is_on() || saved.all().next().is_none() {
        return formula(saved, dy);
    }
    let read: Vec<&Tensor> = saved.all().chain([dy]).collect();
    match known_gradients(op, saved.kinds(), formula).call(&read) {
        Err(error) if error.op_name() == Some("fuse") => formula(saved, dy),
        done => done,
    }
}

fn known_gradients(
    op: &Differentiated<'_>,
    kinds: Kinds,
    formula: impl Fn(&SavedTensors, &Tensor) -> Result<Results> + Send + Sync + 'static,
) -> Arc<Several> {
    type Known = BTreeMap<(Key, Kinds), Arc<Several>>;
    static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
    let (name, bits) = (op.name, op.numbers.iter().map(|number| number.to_bits()).collect());
    let key = ((name, [op.by, 0], bits), kinds.clone());
    kept(&KNOWN, key, || {
        Several::new(move |args| {
            let Some((dy, read)) = args.split_last() else {
                return Err(Error::op(name, "a gradient reads one at least"));
            };
            formula(&kinds.of(read), dy)
        })
    })
}
