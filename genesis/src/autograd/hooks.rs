//! Functions of the user that see gradients as a backward makes them.
//!
//! | hook | runs | may |
//! |---|---|---|
//! | [`Tensor::register_hook`] | once a backward, when the gradient of the tensor is complete | replace it |
//! | [`Tensor::retain_grad`] | after those | – (it keeps the gradient of a tensor that is no leaf) |
//! | [`Tensor::register_post_accumulate_grad_hook`] | once a backward, when `grad` of the leaf is up to date, while the rest of the backward is still to come | use `grad` and forget it: an optimizer's step, the start of an all-reduce |
//!
//! A tensor without hooks pays nothing for them: they are allocated with the first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::meta::{Edge, GradMeta};
use super::node::Node;
use crate::error::{Error, Result};
use crate::tensor::{Tensor, WeakTensor};

type TensorHook = dyn Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync;
type AccumulateHook = dyn Fn(&Tensor) -> Result<()> + Send + Sync;

static IDS: AtomicU64 = AtomicU64::new(0);

/// Hooks of a leaf.
#[derive(Default)]
pub(super) struct LeafHooks {
    gradient: Vec<(u64, Arc<TensorHook>)>,
    accumulated: Vec<(u64, WeakTensor, Arc<AccumulateHook>)>,
}

impl LeafHooks {
    pub(super) fn is_empty(&self) -> bool {
        self.gradient.is_empty() && self.accumulated.is_empty()
    }
}

/// Hooks of the results of a node.
#[derive(Default)]
pub(super) struct NodeHooks(Mutex<Vec<NodeHook>>);

struct NodeHook {
    id: u64,
    slot: u32,
    what: NodeHookKind,
}

#[derive(Clone)]
enum NodeHookKind {
    Gradient(Arc<TensorHook>),
    Retain(Weak<GradMeta>),
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

    fn retains(&self, meta: &Arc<GradMeta>) -> bool {
        self.lock().iter().any(|hook| is_retain(hook, meta))
    }
}

fn is_retain(hook: &NodeHook, meta: &Arc<GradMeta>) -> bool {
    matches!(&hook.what, NodeHookKind::Retain(own) if own.as_ptr() == Arc::as_ptr(meta))
}

/// Lets one hook see a gradient, and takes the one it gives instead.
fn replace(dy: &mut Tensor, hook: &Arc<TensorHook>) -> Result<()> {
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

impl GradMeta {
    /// The gradient of a leaf as its hooks leave it.
    pub(super) fn run_gradient_hooks(&self, dy: &mut Tensor) -> Result<()> {
        let hooks: Vec<Arc<TensorHook>> =
            self.with_hooks(|hooks| hooks.gradient.iter().map(|(_, hook)| hook.clone()).collect());
        hooks.iter().try_for_each(|hook| replace(dy, hook))
    }

    /// Tells the hooks of a leaf that its gradient is up to date.
    pub(super) fn run_accumulate_hooks(&self) -> Result<()> {
        let hooks: Vec<(WeakTensor, Arc<AccumulateHook>)> = self.with_hooks(|hooks| {
            hooks.accumulated.iter().map(|(_, leaf, hook)| (leaf.clone(), hook.clone())).collect()
        });
        for (leaf, hook) in hooks {
            // Nobody can look at the gradient of a leaf that is gone.
            if let Some(leaf) = leaf.upgrade() {
                hook(&leaf)?;
            }
        }
        Ok(())
    }
}

/// Names a hook, to remove it; dropping the handle leaves the hook where it is.
#[derive(Clone)]
pub struct HookHandle {
    id: u64,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Leaf(Weak<GradMeta>),
    Node(Weak<Node>),
}

impl std::fmt::Debug for HookHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HookHandle({})", self.id)
    }
}

impl HookHandle {
    /// Removes the hook; nothing happens if it is gone already.
    pub fn remove(&self) {
        match &self.place {
            Place::Leaf(meta) => {
                if let Some(meta) = meta.upgrade() {
                    let removed = meta.with_hooks(|hooks| {
                        let gradient = take(&mut hooks.gradient, |(id, _)| *id == self.id);
                        (gradient, take(&mut hooks.accumulated, |(id, ..)| *id == self.id))
                    });
                    drop(removed);
                }
            }
            Place::Node(node) => {
                if let Some(node) = node.upgrade()
                    && let Some(hooks) = node.hooks()
                {
                    let removed = take(&mut hooks.lock(), |hook| hook.id == self.id);
                    drop(removed);
                }
            }
        }
    }
}

/// Takes the first element that fits, so that it can be dropped without the lock.
fn take<T>(list: &mut Vec<T>, fits: impl Fn(&T) -> bool) -> Option<T> {
    list.iter().position(fits).map(|at| list.remove(at))
}

impl Tensor {
    /// Lets `hook` see the gradient of this tensor, once in each backward, when it is complete. What
    /// the hook returns takes its place.
    ///
    /// # Errors
    /// If the tensor requires no gradient.
    ///
    /// # Examples
    /// ```
    /// # use genesis::Tensor;
    /// let x = Tensor::from_slice(&[1.0f32], &[1])?.requires_grad_(true)?;
    /// let hook = x.register_hook(|dy| dy.mul_scalar(10.0).map(Some))?;
    /// x.exp()?.sum()?.backward()?;
    /// assert!(x.grad().expect("x requires a gradient").item()? > 27.0);
    /// hook.remove();
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<HookHandle> {
        let edge = self.edge().ok_or_else(|| {
            Error::op("register_hook", "the tensor requires no gradient, so it never gets one")
        })?;
        let (id, hook) = (IDS.fetch_add(1, Ordering::Relaxed), Arc::new(hook));
        let place = match edge {
            Edge::Leaf(meta) => {
                meta.with_hooks(|hooks| hooks.gradient.push((id, hook)));
                Place::Leaf(Arc::downgrade(&meta))
            }
            Edge::Node(node, slot) => {
                let what = NodeHookKind::Gradient(hook);
                node.hooks_or_new().lock().push(NodeHook { id, slot, what });
                Place::Node(Arc::downgrade(&node))
            }
        };
        Ok(HookHandle { id, place })
    }

    /// Calls `hook` with this leaf each time a backward has brought its `grad` up to date: once a
    /// backward, however often the leaf was used, and as soon as nothing more can be added.
    ///
    /// # Errors
    /// If the tensor is no leaf, or requires no gradient.
    ///
    /// # Examples
    /// A step of gradient descent inside the backward, which leaves no gradient behind:
    /// ```
    /// # use genesis::{Tensor, no_grad};
    /// let w = Tensor::from_slice(&[1.0f32], &[1])?.requires_grad_(true)?;
    /// w.register_post_accumulate_grad_hook(|w| {
    ///     let step = w.grad().expect("it is up to date").mul_scalar(-0.5)?;
    ///     w.zero_grad();
    ///     no_grad(|| w.add_(&step))
    /// })?;
    /// w.mul(&w)?.sum()?.backward()?;
    /// assert_eq!(w.item()?, 0.0);
    /// assert!(w.grad().is_none());
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn register_post_accumulate_grad_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<()> + Send + Sync + 'static,
    ) -> Result<HookHandle> {
        let Some(Edge::Leaf(meta)) = self.edge() else {
            let message = "only a leaf that requires a gradient accumulates one";
            return Err(Error::op("register_post_accumulate_grad_hook", message));
        };
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let (leaf, hook) = (self.downgrade(), Arc::new(hook));
        meta.with_hooks(|hooks| hooks.accumulated.push((id, leaf, hook)));
        Ok(HookHandle { id, place: Place::Leaf(Arc::downgrade(&meta)) })
    }

    /// Lets a backward keep the gradient of this tensor in `grad`, though it is no leaf.
    ///
    /// # Errors
    /// If the tensor requires no gradient.
    pub fn retain_grad(&self) -> Result<()> {
        match self.edge() {
            None => Err(Error::op("retain_grad", "the tensor requires no gradient")),
            Some(Edge::Leaf(_)) => Ok(()),
            Some(Edge::Node(node, slot)) => {
                retain(self.meta(), &node, slot);
                Ok(())
            }
        }
    }

    /// Whether [`Tensor::retain_grad`] was asked of a tensor that is no leaf.
    pub fn retains_grad(&self) -> bool {
        match self.edge() {
            Some(Edge::Node(node, _)) => node.hooks().is_some_and(|h| h.retains(self.meta())),
            _ => false,
        }
    }
}

fn retain(meta: &Arc<GradMeta>, node: &Arc<Node>, slot: u32) {
    let hooks = node.hooks_or_new();
    if !hooks.retains(meta) {
        let what = NodeHookKind::Retain(Arc::downgrade(meta));
        hooks.lock().push(NodeHook { id: IDS.fetch_add(1, Ordering::Relaxed), slot, what });
    }
}

/// Lets a tensor that was given another history keep the gradient of its new values, if it kept that of
/// its old ones.
pub(super) fn move_retain(meta: &Arc<GradMeta>, from: &Arc<Node>, to: (&Arc<Node>, u32)) {
    let Some(hooks) = from.hooks() else { return };
    let removed = take(&mut hooks.lock(), |hook| is_retain(hook, meta));
    if removed.is_some() {
        retain(meta, to.0, to.1);
    }
}
