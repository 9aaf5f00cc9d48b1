//! Multi-output fusion: functions of several results, such as an op's gradients, as few kernels.
//!
//! Unlike a [`Fused`](super::Fused) function it is no op on the tape: it computes gradients of the first order, which
//! nobody differentiates.

use std::sync::{Arc, Mutex, PoisonError};

use genesis_kernel::runtime::Device;

use super::inline::Numbers;
use super::plan::Program;
use super::{MAX_PLANS, Signature, forwards};
use crate::autograd::no_grad;
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// What a function gives: as many results as it says, of which some may be missing.
pub(crate) type Results = Vec<Option<Tensor>>;

type Closure = dyn Fn(&[Tensor]) -> Result<Results> + Send + Sync;

/// A function of several results.
pub(crate) struct Several {
    f: Box<Closure>,
    plans: Mutex<Vec<Plan>>,
}

struct Plan {
    device: Device,
    signatures: Vec<Signature>,
    /// Which results there are, and what computes them; none where one launch does, which needs no composing.
    made: Made,
}

type Made = Option<(Vec<bool>, Arc<Program>)>;

impl Several {
    /// Its kernels take the numbers of `f` at each launch.
    pub(crate) fn new(f: impl Fn(&[Tensor]) -> Result<Results> + Send + Sync + 'static) -> Several {
        Several { f: Box::new(f), plans: Mutex::new(Vec::new()) }
    }

    /// Runs the function.
    ///
    /// # Errors
    /// What the function refuses, or, of the op `fuse`, that it can't be composed.
    #[track_caller]
    pub(crate) fn call(&self, args: &[&Tensor]) -> Result<Results> {
        let forwards: Vec<Tensor> = args.iter().map(|t| forwards(t)).collect::<Result<_>>()?;
        let args: Vec<&Tensor> = forwards.iter().collect();
        let Some((are, program)) = self.plan(&args)? else { return (self.f)(&forwards) };
        let mut results = program.run(&args)?.into_iter();
        Ok(are.iter().map(|&is| if is { results.next() } else { None }).collect())
    }

    fn plan(&self, args: &[&Tensor]) -> Result<Made> {
        let Some(device) = args.first().map(|t| t.device()) else {
            return Err(Error::op("fuse", "a fused function takes at least one argument"));
        };
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |plan: &&Plan| {
            plan.device == device
                && plan.signatures.len() == args.len()
                && plan.signatures.iter().zip(args).all(|(own, t)| own.is_of(t))
        };
        if let Some(plan) = plans.iter().find(fits) {
            return Ok(plan.made.clone());
        }
        let (trace, (are, results)) = no_grad(|| {
            trace::run(|| {
                let leaves = args.iter().map(|t| trace::leaf(t)).collect::<Result<Vec<_>>>()?;
                let results = (self.f)(&leaves)?;
                let are: Vec<bool> = results.iter().map(Option::is_some).collect();
                let uses = results.iter().flatten().map(trace::result);
                Ok((are, uses.collect::<Result<Vec<_>>>()?))
            })
        })?;
        let made = match trace.launches() {
            ..=1 => None,
            _ => {
                let on = (device, Numbers::Given);
                Some((are, Arc::new(Program::new(trace, args.len(), &results, on)?)))
            }
        };
        if plans.len() >= MAX_PLANS {
            plans.remove(0);
        }
        let signatures = args.iter().map(|t| Signature::of(t)).collect();
        plans.push(Plan { device, signatures, made: made.clone() });
        Ok(made)
    }
}
