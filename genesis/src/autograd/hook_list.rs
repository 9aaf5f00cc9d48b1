//! The hooks of a leaf and those of a node's results: what a backward runs, in which order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::tensor::{Tensor, WeakTensor};

pub(super) type TensorHook = dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync;
pub(super) type AccumulateHook = dyn Fn(&Tensor) -> Result<()> + Send + Sync;

/// The number of a new hook.
pub(super) fn new_id() -> u64 {
    static IDS: AtomicU64 = AtomicU64::new(0);
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// What keeps gradients: the bookkeeping of a tensor.
pub(super) trait Accumulate: Send + Sync {
    /// Adds to the gradient.
    fn accumulate(&self, dy: Tensor) -> Result<()>;
}

/// Hooks of a leaf.
#[derive(Default)]
pub(super) struct LeafHooks {
    pub(super) gradient: Vec<(u64, Arc<TensorHook>)>,
    pub(super) accumulated: Vec<(u64, WeakTensor, Arc<AccumulateHook>)>,
}

impl LeafHooks {
    pub(super) fn is_empty(&self) -> bool {
        self.gradient.is_empty() && self.accumulated.is_empty()
    }
}

/// Hooks of the results of a node.
#[derive(Default)]
pub(super) struct NodeHooks(Mutex<Vec<NodeHook>>);

pub(super) struct NodeHook {
    id: u64,
    slot: u32,
    what: NodeHookKind,
}

#[derive(Clone)]
enum NodeHookKind {
    Gradient(Arc<TensorHook>),
    Retain(Weak<dyn Accumulate>),
}

impl NodeHooks {
    fn lock(&self) -> MutexGuard<'_, Vec<NodeHook>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the hooks of every result in order, those that keep gradients last.
    pub(super) fn run(&self, dys: &mut [Option<Tensor>]) -> Result<()> {
        for (slot, dy) in dys.iter_mut().enumerate() {
            let Some(dy) = dy else { continue };
            // Hooks run without the lock: they may add or remove hooks.
            let of_slot = |hook: &&NodeHook| hook.slot as usize == slot;
            let kinds: Vec<NodeHookKind> =
                self.lock().iter().filter(of_slot).map(|hook| hook.what.clone()).collect();
            for kind in &kinds {
                if let NodeHookKind::Gradient(hook) = kind {
                    replace(dy, hook)?;
                }
            }
            for kind in &kinds {
                if let NodeHookKind::Retain(meta) = kind
                    && let Some(meta) = meta.upgrade()
                {
                    meta.accumulate(dy.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Adds a function that sees the gradient of a result.
    pub(super) fn add_gradient(&self, id: u64, slot: u32, hook: Arc<TensorHook>) {
        self.lock().push(NodeHook { id, slot, what: NodeHookKind::Gradient(hook) });
    }

    /// Lets `of` keep the gradient of a result.
    pub(super) fn add_retain(&self, slot: u32, of: Weak<dyn Accumulate>) {
        self.lock().push(NodeHook { id: new_id(), slot, what: NodeHookKind::Retain(of) });
    }

    /// Whether `of` keeps the gradient of a result.
    pub(super) fn retains(&self, of: &dyn Accumulate) -> bool {
        self.lock().iter().any(|hook| hook.is_retain(of))
    }

    /// Takes a hook out, for the caller to drop without the lock.
    pub(super) fn remove(&self, id: u64) -> Option<NodeHook> {
        take(&mut self.lock(), |hook| hook.id == id)
    }

    /// Takes out that `of` keeps a gradient.
    pub(super) fn remove_retain(&self, of: &dyn Accumulate) -> Option<NodeHook> {
        take(&mut self.lock(), |hook| hook.is_retain(of))
    }
}

impl NodeHook {
    fn is_retain(&self, of: &dyn Accumulate) -> bool {
        matches!(&self.what, NodeHookKind::Retain(own) if std::ptr::addr_eq(own.as_ptr(), of))
    }
}

/// Lets one hook see a gradient, and takes the one it gives instead.
pub(super) fn replace(dy: &mut Tensor, hook: &Arc<TensorHook>) -> Result<()> {
    let Some(new) = hook(dy)? else { return Ok(()) };
    if new.shape() != dy.shape() || new.dtype() != dy.dtype() || new.device() != dy.device() {
        let message = format!(
            "a hook must give a gradient like the one it got, {:?} of {} on {}, it gave {:?} of {} on {}",
            dy.shape(),
            dy.dtype(),
            dy.device(),
            new.shape(),
            new.dtype(),
            new.device()
        );
        return Err(Error::op("register_hook", message));
    }
    *dy = new;
    Ok(())
}

/// Takes the first element that fits, so that it can be dropped without the lock.
pub(super) fn take<T>(list: &mut Vec<T>, fits: impl Fn(&T) -> bool) -> Option<T> {
    list.iter().position(fits).map(|at| list.remove(at))
}
