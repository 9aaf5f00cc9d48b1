//! The tape's parts: nodes, what they save, and how a long tape is freed.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::anomaly::Origin;
use super::hooks::NodeHooks;
use super::meta::Edge;
use super::saved::Saved;
use crate::error::{Error, Result};
use crate::ops::Op;
use crate::tensor::Tensor;

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// How a node turns the gradients of its results into those of its inputs.
pub(crate) trait Backward: Send + Sync {
    /// The name users know the op by.
    fn name(&self) -> &str;

    /// The name in profiles and in errors of a GPU.
    fn label(&self) -> &'static str;

    /// The gradient of each input; `dys` has one place for each result, and at least one is there.
    fn backward(&self, saved: &SavedTensors, dys: &[Option<Tensor>])
    -> Result<Vec<Option<Tensor>>>;
}

/// An op of the table: it has one result.
pub(super) struct Single<O>(pub(super) O);

impl<O: Op> Backward for Single<O> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn label(&self) -> &'static str {
        self.0.name()
    }

    fn backward(
        &self,
        saved: &SavedTensors,
        dys: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        match dys {
            [Some(dy)] => self.0.backward(saved, dy),
            _ => Ok(Vec::new()),
        }
    }
}

/// An op that ran, and what its backward needs.
pub(crate) struct Node {
    /// Greater than that of every node that this one depends on.
    pub(super) sequence: u64,
    /// The number of results.
    pub(super) outputs: u32,
    op: Option<Box<dyn Backward>>,
    /// Where the gradient of each input goes; none where none is wanted.
    pub(super) edges: Vec<Option<Edge>>,
    saved: Mutex<Option<Parts>>,
    hooks: OnceLock<Box<NodeHooks>>,
    /// Where the forward ran, known in anomaly mode.
    pub(super) origin: Option<Arc<Origin>>,
}

/// What a node saves.
#[derive(Clone, Default)]
pub(super) struct Parts {
    /// Inputs by number, each where the op asked for it; of a custom function, whatever it saved.
    pub(super) inputs: Vec<Option<Saved>>,
    /// The result, where the op asked for it.
    pub(super) output: Option<Saved>,
}

/// The tensors that a backward reads.
pub struct SavedTensors {
    pub(super) inputs: Vec<Option<Tensor>>,
    output: Option<Tensor>,
    /// Whether each input wants a gradient.
    pub wanted: Vec<bool>,
}

impl SavedTensors {
    /// Input number `index`, which the op asked to save.
    pub fn input(&self, index: usize) -> &Tensor {
        self.inputs[index].as_ref().expect("the op's `saves` names every input its backward reads")
    }

    /// One tensor as the only input and as the result: of an op that reads one of them.
    pub(crate) fn only(read: &Tensor) -> SavedTensors {
        let (inputs, output) = (vec![Some(read.clone())], Some(read.clone()));
        SavedTensors { inputs, output, wanted: vec![true] }
    }

    /// The result, which the op asked to save.
    pub fn output(&self) -> &Tensor {
        self.output.as_ref().expect("the op's `saves` asks for the result its backward reads")
    }
}

/// What a node is made of.
pub(super) struct NodeParts {
    pub(super) op: Box<dyn Backward>,
    pub(super) outputs: u32,
    pub(super) edges: Vec<Option<Edge>>,
    pub(super) saved: Parts,
}

impl Node {
    #[track_caller]
    pub(super) fn new(parts: NodeParts) -> Arc<Node> {
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let NodeParts { op, outputs, edges, saved } = parts;
        let origin = Origin::here();
        let (saved, hooks) = (Mutex::new(Some(saved)), OnceLock::new());
        Arc::new(Node { sequence, outputs, op: Some(op), edges, saved, hooks, origin })
    }

    pub(super) fn op(&self) -> &dyn Backward {
        self.op.as_deref().expect("only the drop of a node takes its op")
    }

    /// The hooks, if there ever was one.
    pub(super) fn hooks(&self) -> Option<&NodeHooks> {
        self.hooks.get().map(|hooks| &**hooks)
    }

    pub(super) fn hooks_or_new(&self) -> &NodeHooks {
        self.hooks.get_or_init(Box::default)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Parts>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The saved tensors; frees them unless they are kept for another backward.
    pub(super) fn unpack(self: &Arc<Node>, keep: bool, wanted: Vec<bool>) -> Result<SavedTensors> {
        let mut slot = self.lock();
        let parts = if keep { slot.clone() } else { slot.take() };
        // A saved tensor may have to be computed first: no lock may be held meanwhile.
        drop(slot);
        let parts = parts.ok_or_else(|| {
            let message =
                "the graph was freed by an earlier backward; ask that one to retain_graph";
            Error::op("backward", message)
        })?;
        let unpack = |saved: &Option<Saved>| {
            saved.as_ref().map(|saved| saved.unpack(self, keep)).transpose()
        };
        let inputs = parts.inputs.iter().map(unpack).collect::<Result<_>>()?;
        Ok(SavedTensors { inputs, output: unpack(&parts.output)?, wanted })
    }
}

/// What a dropped node leaves to be dropped.
#[derive(Default)]
struct Remains {
    op: Option<Box<dyn Backward>>,
    edges: Vec<Option<Edge>>,
    saved: Option<Parts>,
}

thread_local! {
    static GRAVEYARD: RefCell<Option<Vec<Remains>>> = const { RefCell::new(None) };
}

/// Freeing a chain of a million nodes must not recurse a million deep: what a node points to is put
/// on a list, and the outermost drop empties the list.
impl Drop for Node {
    fn drop(&mut self) {
        let remains = Remains {
            op: self.op.take(),
            edges: std::mem::take(&mut self.edges),
            saved: self.saved.get_mut().unwrap_or_else(PoisonError::into_inner).take(),
        };
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
        while let Some(Remains { op, edges, saved }) = next.take() {
            drop((op, edges, saved));
            next = GRAVEYARD.with_borrow_mut(|list| list.as_mut().and_then(Vec::pop));
        }
        GRAVEYARD.with_borrow_mut(|list| *list = None);
    }
}
