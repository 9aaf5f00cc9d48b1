//! Forward hooks: a layer with functions of the user before and after it.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Layer, Module, Visitor, VisitorMut};
use crate::error::Result;
use crate::tensor::Tensor;

type Before<L> = dyn Fn(&L, &Tensor) -> Result<Option<Tensor>> + Send + Sync;
type After<L> = dyn Fn(&L, &Tensor, &Tensor) -> Result<Option<Tensor>> + Send + Sync;

/// A layer that calls hooks, which may replace what goes in and what comes out. In all else it is the layer
/// itself: names and state do not change by it.
///
/// To look at all layers of a module for a while there is [`observe`](super::observe).
///
/// # Examples
/// ```
/// use genesis::nn::{Hooked, Linear, Relu, Sequential};
/// use genesis::{Device, Tensor};
///
/// let layer = Hooked::new(Linear::new(4, 2, Device::Cpu)?);
/// layer.register_forward_pre_hook(|_, x| x.mul_scalar(2.0).map(Some));
/// let clip = layer.register_forward_hook(|_, _, y| y.clamp(-1.0, 1.0).map(Some));
/// clip.remove();
/// let net = Sequential::new().with(layer).with(Relu);
/// assert_eq!(net.forward(&Tensor::ones(&[1, 4], Device::Cpu)?)?.shape(), [1, 2]);
/// # Ok::<(), genesis::Error>(())
/// ```
pub struct Hooked<L> {
    layer: L,
    hooks: Arc<Mutex<Hooks<L>>>,
}

struct Hooks<L> {
    before: Vec<(u64, Arc<Before<L>>)>,
    after: Vec<(u64, Arc<After<L>>)>,
}

static IDS: AtomicU64 = AtomicU64::new(0);

fn lock<L>(hooks: &Mutex<Hooks<L>>) -> MutexGuard<'_, Hooks<L>> {
    hooks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names a hook of a layer, to remove it; dropping the handle leaves the hook where it is.
pub struct ForwardHandle<L> {
    id: u64,
    hooks: Arc<Mutex<Hooks<L>>>,
}

impl<L> std::fmt::Debug for ForwardHandle<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ForwardHandle({})", self.id)
    }
}

impl<L> ForwardHandle<L> {
    /// Removes the hook; nothing happens if it is gone already.
    pub fn remove(&self) {
        let mut hooks = lock(&self.hooks);
        hooks.before.retain(|(id, _)| *id != self.id);
        hooks.after.retain(|(id, _)| *id != self.id);
    }
}

impl<L: Layer> Hooked<L> {
    /// A layer without hooks yet.
    pub fn new(layer: L) -> Hooked<L> {
        let hooks = Hooks { before: Vec::new(), after: Vec::new() };
        Hooked { layer, hooks: Arc::new(Mutex::new(hooks)) }
    }

    /// Calls `hook` with the layer and its input before each forward; the input that it gives takes the
    /// place of the first.
    pub fn register_forward_pre_hook(
        &self,
        hook: impl Fn(&L, &Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> ForwardHandle<L> {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        lock(&self.hooks).before.push((id, Arc::new(hook)));
        ForwardHandle { id, hooks: self.hooks.clone() }
    }

    /// Calls `hook` with the layer, its input and its output after each forward; the output that it gives
    /// takes the place of the first.
    pub fn register_forward_hook(
        &self,
        hook: impl Fn(&L, &Tensor, &Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> ForwardHandle<L> {
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        lock(&self.hooks).after.push((id, Arc::new(hook)));
        ForwardHandle { id, hooks: self.hooks.clone() }
    }

    /// The output of the layer for an input, as hooks leave both.
    ///
    /// # Errors
    /// Those of the layer and of hooks.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // Hooks run without the lock: they may add or remove hooks.
        let (before, after) = {
            let hooks = lock(&self.hooks);
            (hooks.before.clone(), hooks.after.clone())
        };
        let mut x = x.clone();
        for (_, hook) in before {
            if let Some(new) = hook(&self.layer, &x)? {
                x = new;
            }
        }
        let mut y = self.layer.forward(&x)?;
        for (_, hook) in after {
            if let Some(new) = hook(&self.layer, &x, &y)? {
                y = new;
            }
        }
        Ok(y)
    }
}

impl<L> Deref for Hooked<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.layer
    }
}

impl<L> DerefMut for Hooked<L> {
    fn deref_mut(&mut self) -> &mut L {
        &mut self.layer
    }
}

impl<L: Layer> Module for Hooked<L> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        self.layer.visit(visitor);
    }

    fn visit_mut(&mut self, visitor: &mut VisitorMut<'_>) {
        self.layer.visit_mut(visitor);
    }

    fn as_module(&self) -> &dyn Module {
        self.layer.as_module()
    }

    fn kind(&self) -> String {
        self.layer.kind()
    }
}

impl<L: Layer> Layer for Hooked<L> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Hooked::forward(self, x)
    }
}
