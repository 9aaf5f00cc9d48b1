//! The tape: what a tensor and an op that ran are in it.
//!
//! The history of a tensor is the node and slot that made it. It can change: a write in place gives a
//! tensor a new history, and gives every view of the same base a stale one, which is made anew when
//! it is next asked for. So what points into a graph is an [`Edge`], taken when an op runs: an edge
//! names the node of that moment and not the tensor.
//!
//! A tensor holds its [`GradMeta`] without knowing what it is: see [`AutogradMeta`].

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::anomaly::Origin;
use super::hook_list::{Accumulate, LeafHooks, NodeHooks};
use super::op::{Backward, SavedTensors};
use crate::error::Result;
use crate::tensor::{AutogradMeta, Tensor};

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

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
    pub(super) fn detached() -> Arc<GradMeta> {
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

    /// The node that made the tensor, and as which of its results.
    pub(super) fn history(&self) -> Option<(Arc<Node>, u32)> {
        self.lock().history.clone()
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

impl Accumulate for GradMeta {
    /// Several threads may: the lock is not held while the sum is computed, and what another thread put there
    /// meanwhile is added as well.
    fn accumulate(&self, dy: Tensor) -> Result<()> {
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

impl Tensor {
    /// The gradient bookkeeping.
    pub(super) fn meta(&self) -> &GradMeta {
        own(self.autograd_meta().get_or_init(|| GradMeta::detached()))
    }

    /// The gradient bookkeeping, to be kept beside the tensor.
    pub(super) fn shared_meta(&self) -> Arc<GradMeta> {
        let meta = self.autograd_meta().get_or_init(|| GradMeta::detached()).clone();
        meta.downcast().expect(OWN)
    }

    /// The gradient bookkeeping, if anything ever asked for it: a tensor without it is a leaf that wants
    /// no gradient.
    pub(super) fn known_meta(&self) -> Option<&GradMeta> {
        self.autograd_meta().get().map(own)
    }

    /// Whether another is this tensor or a view of it.
    pub(super) fn is_base_of(&self, other: &Tensor) -> bool {
        let is_own = |meta: &GradMeta| std::ptr::eq(self.meta(), meta);
        is_own(other.meta()) || other.meta().view().is_some_and(|view| is_own(view.base.meta()))
    }

    /// Gives a tensor its first gradient bookkeeping.
    pub(super) fn with_meta(self, meta: Arc<GradMeta>) -> Tensor {
        let is_first = self.autograd_meta().set(meta).is_ok();
        assert!(is_first, "a tensor has one gradient bookkeeping, this is a bug in Genesis");
        self
    }
}

const OWN: &str = "only autograd keeps something with a tensor";

fn own(meta: &Arc<AutogradMeta>) -> &GradMeta {
    meta.downcast_ref().expect(OWN)
}

/// An op that ran, and what its backward needs.
pub(crate) struct Node {
    /// Greater than that of every node that this one depends on.
    pub(super) sequence: u64,
    /// The number of results.
    pub(super) outputs: u32,
    record: Option<Box<dyn Record>>,
    /// Where the gradient of each input goes; none where none is wanted.
    pub(super) edges: Vec<Option<Edge>>,
    hooks: OnceLock<Box<NodeHooks>>,
    /// Where the forward ran, known in anomaly mode.
    pub(super) origin: Option<Arc<Origin>>,
}

/// What a node holds: the op that ran, and what that saved for its backward.
pub(super) trait Record: Send + Sync {
    /// The op.
    fn op(&self) -> &dyn Backward;

    /// The saved tensors; frees them unless they are kept for another backward.
    fn unpack(&self, node: &Arc<Node>, keep: bool, wanted: Vec<bool>) -> Result<SavedTensors>;
}

impl Node {
    /// A node of this many results, whose inputs' gradients go along the edges.
    #[track_caller]
    pub(super) fn new(
        record: Box<dyn Record>,
        outputs: u32,
        edges: Vec<Option<Edge>>,
    ) -> Arc<Node> {
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let (origin, hooks) = (Origin::here(), OnceLock::new());
        Arc::new(Node { sequence, outputs, record: Some(record), edges, hooks, origin })
    }

    fn record(&self) -> &dyn Record {
        self.record.as_deref().expect("only the drop of a node takes its op")
    }

    pub(super) fn op(&self) -> &dyn Backward {
        self.record().op()
    }

    /// The saved tensors; frees them unless they are kept for another backward.
    pub(super) fn unpack(self: &Arc<Node>, keep: bool, wanted: Vec<bool>) -> Result<SavedTensors> {
        self.record().unpack(self, keep, wanted)
    }

    /// The hooks, if there ever was one.
    pub(super) fn hooks(&self) -> Option<&NodeHooks> {
        self.hooks.get().map(|hooks| &**hooks)
    }

    pub(super) fn hooks_or_new(&self) -> &NodeHooks {
        self.hooks.get_or_init(Box::default)
    }
}

/// What a dropped node leaves to be dropped.
#[derive(Default)]
struct Remains {
    record: Option<Box<dyn Record>>,
    edges: Vec<Option<Edge>>,
}

thread_local! {
    static GRAVEYARD: RefCell<Option<Vec<Remains>>> = const { RefCell::new(None) };
}

/// Freeing a chain of a million nodes must not recurse a million deep: what a node points to is put
/// on a list, and the outermost drop empties the list.
impl Drop for Node {
    fn drop(&mut self) {
        let remains =
            Remains { record: self.record.take(), edges: std::mem::take(&mut self.edges) };
        // On a thread that ends there may be no list any more; what hangs on it is freed as it comes.
        let mut next = Some(remains);
        let bury = GRAVEYARD.try_with(|list| match &mut *list.borrow_mut() {
            Some(list) => {
                list.extend(next.take());
                false
            }
            list => {
                *list = Some(Vec::new());
                true
            }
        });
        if bury != Ok(true) {
            return;
        }
        while let Some(Remains { record, edges }) = next.take() {
            drop((record, edges));
            next = GRAVEYARD.with_borrow_mut(|list| list.as_mut().and_then(Vec::pop));
        }
        GRAVEYARD.with_borrow_mut(|list| *list = None);
    }
}
