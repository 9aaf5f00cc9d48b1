//! The tape's parts: gradient bookkeeping of a tensor, nodes and saved tensors.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use genesis_kernel::ir::DType;

use crate::error::{Error, Result};
use crate::ops::Op;
use crate::shape::Layout;
use crate::tensor::{Storage, Tensor};

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// Where a tensor's gradient goes: into `grad` for a leaf, on to `node` otherwise.
pub(crate) struct GradMeta {
    requires_grad: AtomicBool,
    node: Option<Arc<Node>>,
    grad: Mutex<Option<Tensor>>,
}

impl GradMeta {
    /// A tensor without history.
    pub(crate) fn detached() -> Arc<GradMeta> {
        GradMeta::new(false, None)
    }

    /// The result of a recorded op.
    pub(crate) fn of_node(node: Arc<Node>) -> Arc<GradMeta> {
        GradMeta::new(true, Some(node))
    }

    fn new(requires_grad: bool, node: Option<Arc<Node>>) -> Arc<GradMeta> {
        let requires_grad = AtomicBool::new(requires_grad);
        Arc::new(GradMeta { requires_grad, node, grad: Mutex::new(None) })
    }

    pub(crate) fn requires_grad(&self) -> bool {
        self.requires_grad.load(Ordering::Relaxed)
    }

    pub(crate) fn set_requires_grad(&self, requires: bool) {
        self.requires_grad.store(requires, Ordering::Relaxed);
    }

    pub(crate) fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    pub(crate) fn grad(&self) -> Option<Tensor> {
        lock(&self.grad).clone()
    }

    pub(crate) fn set_grad(&self, grad: Option<Tensor>) {
        *lock(&self.grad) = grad;
    }

    /// Adds to the gradient of a leaf.
    pub(crate) fn accumulate(&self, dy: &Tensor) -> Result<()> {
        let sum = match self.grad() {
            Some(grad) => grad.add(dy)?,
            None => dy.clone(),
        };
        self.set_grad(Some(sum));
        Ok(())
    }
}

/// A lock whose data is whole even if a thread panicked while holding it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tensor that a backward reads, with the version it had when it was saved.
pub(crate) struct Saved {
    storage: Arc<Storage>,
    layout: Layout,
    dtype: DType,
    version: u64,
    /// None for the op's own result: its node would keep itself alive.
    meta: Option<Arc<GradMeta>>,
}

impl Saved {
    /// Saves an input.
    pub(crate) fn input(tensor: &Tensor) -> Saved {
        Saved { meta: Some(tensor.meta().clone()), ..Saved::output(tensor) }
    }

    /// Saves the op's own result.
    pub(crate) fn output(tensor: &Tensor) -> Saved {
        Saved {
            storage: tensor.storage().clone(),
            layout: tensor.layout().clone(),
            dtype: tensor.dtype(),
            version: tensor.version(),
            meta: None,
        }
    }

    /// The tensor, if nobody wrote to it since.
    fn unpack(&self, node: &Arc<Node>) -> Result<Tensor> {
        if self.storage.version() != self.version {
            let which = if self.meta.is_some() { "an input" } else { "the result" };
            let message = format!(
                "backward needs {which} of shape {:?}, which was changed in place since (version {}, saved at {}); \
                 clone it before the change",
                self.layout.shape,
                self.storage.version(),
                self.version,
            );
            return Err(Error::op(node.op.name(), message));
        }
        let meta = self.meta.clone().unwrap_or_else(|| GradMeta::of_node(node.clone()));
        Ok(Tensor::from_parts(self.storage.clone(), self.layout.clone(), self.dtype, meta))
    }
}

/// An op that ran, and what its backward needs.
pub(crate) struct Node {
    pub(crate) sequence: u64,
    pub(crate) op: Arc<dyn Op>,
    /// Where the gradient of each input goes; none where none is wanted.
    pub(crate) edges: Vec<Option<Arc<GradMeta>>>,
    saved: Mutex<Option<SavedParts>>,
}

/// Inputs by number, and the result; each where the op asked for it.
type SavedParts = (Vec<Option<Saved>>, Option<Saved>);

/// The tensors that a backward reads.
pub struct SavedTensors {
    inputs: Vec<Option<Tensor>>,
    output: Option<Tensor>,
    /// Whether each input wants a gradient.
    pub wanted: Vec<bool>,
}

impl SavedTensors {
    /// Input number `index`, which the op asked to save.
    pub fn input(&self, index: usize) -> &Tensor {
        self.inputs[index].as_ref().expect("the op's `saves` names every input its backward reads")
    }

    /// The result, which the op asked to save.
    pub fn output(&self) -> &Tensor {
        self.output.as_ref().expect("the op's `saves` asks for the result its backward reads")
    }
}

impl Node {
    pub(crate) fn new(
        op: Arc<dyn Op>,
        edges: Vec<Option<Arc<GradMeta>>>,
        inputs: Vec<Option<Saved>>,
        output: Option<Saved>,
    ) -> Arc<Node> {
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        Arc::new(Node { sequence, op, edges, saved: Mutex::new(Some((inputs, output))) })
    }

    /// The saved tensors; frees them unless they are kept for another backward.
    pub(crate) fn unpack(self: &Arc<Node>, keep: bool) -> Result<SavedTensors> {
        let mut slot = lock(&self.saved);
        let Some((inputs, output)) = slot.as_ref() else {
            let message =
                "the graph was freed by an earlier backward; ask that one to retain_graph";
            return Err(Error::op("backward", message));
        };
        let unpack = |saved: &Option<Saved>| saved.as_ref().map(|s| s.unpack(self)).transpose();
        let inputs = inputs.iter().map(unpack).collect::<Result<_>>()?;
        let output = unpack(output)?;
        let freed = if keep { None } else { slot.take() };
        drop(slot);
        drop(freed);
        let wanted = self.edges.iter().map(Option::is_some).collect();
        Ok(SavedTensors { inputs, output, wanted })
    }
}

thread_local! {
    static GRAVEYARD: RefCell<Option<Vec<Arc<GradMeta>>>> = const { RefCell::new(None) };
}

/// Freeing a chain of a million nodes must not recurse a million deep: what a node points to is put
/// on a list, and the outermost drop empties the list.
impl Drop for Node {
    fn drop(&mut self) {
        let mut metas: Vec<Arc<GradMeta>> = self.edges.drain(..).flatten().collect();
        let saved = self.saved.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((inputs, _)) = saved {
            metas.extend(inputs.into_iter().flatten().filter_map(|saved| saved.meta));
        }
        let outermost = GRAVEYARD.with_borrow_mut(|list| match list {
            Some(list) => {
                list.append(&mut metas);
                false
            }
            None => {
                *list = Some(Vec::new());
                true
            }
        });
        if !outermost {
            return;
        }
        while let Some(meta) = metas.pop() {
            drop(meta);
            GRAVEYARD.with_borrow_mut(|list| metas.append(list.get_or_insert_default()));
        }
        GRAVEYARD.with_borrow_mut(|list| *list = None);
    }
}
