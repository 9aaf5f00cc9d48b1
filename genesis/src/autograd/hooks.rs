//! Gradient hooks.
//!
//! | hook | runs | may |
//! |---|---|---|
//! | [`Tensor::register_hook`] | once a backward, when the gradient of the tensor is complete | replace it |
//! | [`Tensor::retain_grad`] | after those | – (it keeps the gradient of a tensor that is no leaf) |
//! | [`Tensor::register_post_accumulate_grad_hook`] | once a backward, when `grad` of the leaf is up to date, while the rest of the backward is still to come | use `grad` and forget it: an optimizer's step, the start of an all-reduce |
//!
//! A tensor without hooks pays nothing for them: they are allocated with the first.

use std::sync::{Arc, Weak};

use super::hook_list::{AccumulateHook, TensorHook, new_id, replace, take};
use super::tape::{Edge, GradMeta, Node};
use crate::error::{Error, Result};
use crate::tensor::{Tensor, WeakTensor};

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
                    drop(hooks.remove(self.id));
                }
            }
        }
    }
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
        let (id, hook) = (new_id(), Arc::new(hook));
        let place = match edge {
            Edge::Leaf(meta) => {
                meta.with_hooks(|hooks| hooks.gradient.push((id, hook)));
                Place::Leaf(Arc::downgrade(&meta))
            }
            Edge::Node(node, slot) => {
                node.hooks_or_new().add_gradient(id, slot, hook);
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
        let id = new_id();
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
                retain(&self.shared_meta(), &node, slot);
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

fn retain(meta: &Arc<GradMeta>, node: &Node, slot: u32) {
    let hooks = node.hooks_or_new();
    if !hooks.retains(&**meta) {
        let meta = Arc::downgrade(meta);
        hooks.add_retain(slot, meta);
    }
}

/// Lets a tensor that was given another history keep the gradient of its new values, if it kept that of
/// its old ones.
pub(super) fn move_retain(meta: &Arc<GradMeta>, from: &Node, (to, slot): (&Node, u32)) {
    let Some(hooks) = from.hooks() else { return };
    if hooks.remove_retain(&**meta).is_some() {
        retain(meta, to, slot);
    }
}
