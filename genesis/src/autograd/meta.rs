//! What a tensor knows of gradients: whether they are wanted, where they go, and whose view it is.
//!
//! The history of a tensor is the node and slot that made it. It can change: a write in place gives a
//! tensor a new history, and gives every view of the same base a stale one, which is made anew when
//! it is next asked for. So what points into a graph is an [`Edge`], taken when an op runs: an edge
//! names the node of that moment and not the tensor.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::hooks::LeafHooks;
use super::node::Node;
use crate::error::Result;
use crate::tensor::Tensor;

/// Where a gradient goes.
#[derive(Clone)]
pub(crate) enum Edge {
    /// Into the `grad` of a leaf.
    Leaf(Arc<GradMeta>),
    /// On to the node, as the gradient of its result of this number.
    Node(Arc<Node>, u32),
}

impl Edge {
    /// Whether both lead to one place.
    pub(super) fn is_same(&self, other: &Edge) -> bool {
        match (self, other) {
            (Edge::Leaf(a), Edge::Leaf(b)) => Arc::ptr_eq(a, b),
            (Edge::Node(a, i), Edge::Node(b, j)) => Arc::ptr_eq(a, b) && i == j,
            _ => false,
        }
    }
}

/// The gradient bookkeeping of one tensor, shared by its clones.
pub(crate) struct GradMeta {
    requires_grad: AtomicBool,
    /// Whether `hooks` holds anything, known without the lock.
    has_hooks: AtomicBool,
    /// How often the history was replaced by a write in place.
    rewrites: AtomicU64,
    view: OnceLock<View>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: Option<(Arc<Node>, u32)>,
    grad: Option<Tensor>,
    hooks: Option<Box<LeafHooks>>,
}

/// That a tensor is a view, and of what.
pub(super) struct View {
    /// The tensor at the root: never a view itself.
    pub(super) base: Tensor,
    /// Whether it was made where ops record themselves.
    pub(super) recorded: AtomicBool,
    /// The rewrites of the base that the view's history accounts for.
    pub(super) seen: AtomicU64,
}

impl GradMeta {
    /// A tensor without history.
    pub(crate) fn detached() -> Arc<GradMeta> {
        GradMeta::new(false, None)
    }

    /// A result of a recorded op.
    pub(super) fn of_node(node: Arc<Node>, slot: u32) -> Arc<GradMeta> {
        GradMeta::new(true, Some((node, slot)))
    }

    fn new(requires_grad: bool, history: Option<(Arc<Node>, u32)>) -> Arc<GradMeta> {
        Arc::new(GradMeta {
            requires_grad: AtomicBool::new(requires_grad),
            has_hooks: AtomicBool::new(false),
            rewrites: AtomicU64::new(0),
            view: OnceLock::new(),
            state: Mutex::new(State { history, ..State::default() }),
        })
    }

    /// A lock whose data is whole even if a thread panicked while holding it. Nothing is called while
    /// it is held.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn requires_grad(&self) -> bool {
        self.requires_grad.load(Ordering::Relaxed)
    }

    pub(super) fn set_requires_grad(&self, requires: bool) {
        self.requires_grad.store(requires, Ordering::Relaxed);
    }

    /// The edge that leads to this tensor.
    pub(super) fn edge(self: &Arc<GradMeta>) -> Edge {
        match &self.lock().history {
            Some((node, slot)) => Edge::Node(node.clone(), *slot),
            None => Edge::Leaf(self.clone()),
        }
    }

    pub(super) fn has_history(&self) -> bool {
        self.lock().history.is_some()
    }

    /// Makes this the result of a node, or a leaf that wants no gradient.
    pub(super) fn set_history(&self, history: Option<(Arc<Node>, u32)>) {
        self.set_requires_grad(history.is_some());
        let old = std::mem::replace(&mut self.lock().history, history);
        drop(old);
    }

    /// [`set_history`](GradMeta::set_history) by a write in place: views of this tensor notice it.
    pub(super) fn rewrite(&self, history: Option<(Arc<Node>, u32)>) {
        self.set_history(history);
        self.rewrites.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn rewrites(&self) -> u64 {
        self.rewrites.load(Ordering::Acquire)
    }

    pub(super) fn view(&self) -> Option<&View> {
        self.view.get()
    }

    /// Notes that this is the meta of a view of `base`.
    pub(super) fn set_view(&self, base: Tensor, recorded: bool) {
        let seen = AtomicU64::new(base.meta().rewrites());
        let view = View { base, recorded: AtomicBool::new(recorded), seen };
        if let Err(view) = self.view.set(view)
            && recorded
            && let Some(own) = self.view.get()
        {
            own.recorded.store(true, Ordering::Relaxed);
            drop(view);
        }
    }

    pub(super) fn grad(&self) -> Option<Tensor> {
        self.lock().grad.clone()
    }

    pub(super) fn set_grad(&self, grad: Option<Tensor>) {
        let old = std::mem::replace(&mut self.lock().grad, grad);
        drop(old);
    }

    /// Adds to the gradient. Several threads may: the lock is not held while the sum is computed, and
    /// what another thread put there meanwhile is added as well.
    pub(super) fn accumulate(&self, dy: Tensor) -> Result<()> {
        let mut sum = dy;
        let mut is_own = false;
        loop {
            let mut state = self.lock();
            match state.grad.take() {
                None if is_own => {
                    state.grad = Some(sum);
                    return Ok(());
                }
                None => {
                    drop(state);
                    sum = owned(sum)?;
                }
                Some(grad) => {
                    drop(state);
                    sum = grad.add(&sum)?;
                }
            }
            is_own = true;
        }
    }

    pub(super) fn has_hooks(&self) -> bool {
        self.has_hooks.load(Ordering::Relaxed)
    }

    /// Changes the hooks of a leaf.
    pub(super) fn with_hooks<T>(&self, f: impl FnOnce(&mut LeafHooks) -> T) -> T {
        let mut state = self.lock();
        let hooks = state.hooks.get_or_insert_default();
        let result = f(hooks);
        self.has_hooks.store(!hooks.is_empty(), Ordering::Relaxed);
        result
    }
}

/// A gradient that nothing else reads or writes: two leaves may be sent one tensor, and a change of
/// the gradient of one must not change that of the other.
fn owned(dy: Tensor) -> Result<Tensor> {
    let is_whole = dy.storage().bytes() == dy.numel() * dy.dtype().bytes();
    let dy = match is_whole && !dy.requires_grad() {
        true => {
            // A view keeps the tensor that it is of, which no one else may have.
            let own = dy.detach();
            drop(dy);
            own
        }
        false => dy,
    };
    if dy.is_sole_owner() && dy.is_contiguous() { Ok(dy) } else { dy.copy() }
}
