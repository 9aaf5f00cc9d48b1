//! A tensor that a backward reads: memory with the version it had, or a place in what a checkpoint
//! computes again.
//!
//! What becomes of a tensor that is saved is a property of the thread, [`Saving`]: a checkpoint has each leave
//! its number, and those of its second run collected.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use genesis_kernel::ir::DType;

use super::op::{Backward, SavedTensors};
use super::tape::{Edge, GradMeta, Node, Record};
use crate::error::{Error, Result};
use crate::shape::Layout;
use crate::tensor::{Storage, Tensor};

/// A saved tensor.
#[derive(Clone)]
pub(crate) struct Saved {
    memory: Memory,
    history: History,
}

/// Where the values of a saved tensor are.
#[derive(Clone)]
pub(super) enum Memory {
    /// Here, if nobody wrote to them since.
    Kept(Kept),
    /// What a checkpoint saves at this place when it runs again.
    Again(Arc<dyn Recompute>, usize),
}

impl Memory {
    /// The tensor that is there, or is made again.
    pub(super) fn kept(&self, keep: bool) -> Result<Kept> {
        match self {
            Memory::Kept(kept) => Ok(kept.clone()),
            Memory::Again(part, index) => part.clone().value(*index, keep),
        }
    }
}

/// What makes tensors again that are not kept.
pub(super) trait Recompute: Send + Sync {
    /// The tensor of this number; stays for another backward where it is to be kept.
    fn value(self: Arc<Self>, index: usize, keep: bool) -> Result<Kept>;
}

/// A part of a network that runs again for what it saved.
pub(super) trait Part: Recompute {
    /// Notes that a tensor was saved; gives its place in the order of saving.
    fn note(&self, kept: &Kept) -> usize;

    /// Whether a tensor lies in the result of an op that is kept, so that it is saved as outside of the part.
    fn is_kept(&self, _: &Kept) -> bool {
        false
    }

    /// An op of the part begins.
    fn begins(&self) {}

    /// An op of the part gave this result; `pack` says where it is to be kept.
    fn made(
        &self,
        _op: &str,
        _inputs: &[&Tensor],
        _result: &Tensor,
        _pack: &mut dyn FnMut(Kept) -> Result<Memory>,
    ) -> Result<()> {
        Ok(())
    }

    /// The result that the next op had, where it was kept: of a part that runs again.
    fn recalled(&self, _op: &str, _inputs: &[&Tensor]) -> Result<Option<Tensor>> {
        Ok(None)
    }

    /// Whether a part that runs again may end once so many tensors are collected.
    fn is_over(&self, _collected: usize) -> bool {
        false
    }
}

/// Memory that is given up after a forward, and made again when a backward reads it.
pub(super) trait GivenUp: Send + Sync {
    /// Notes a tensor that lies in such memory: who makes it again, under which number; none if it lies elsewhere.
    fn claim(self: Arc<Self>, kept: &Kept) -> Result<Option<(Arc<dyn Recompute>, usize)>>;
}

/// What becomes of tensors that ops save on this thread.
pub(super) enum Saving {
    /// Each leaves its number.
    Number(Arc<dyn Part>),
    /// Each goes on the list of the part that runs again.
    Collect(Arc<dyn Part>, Vec<Kept>),
    /// Those in memory that is given up leave a number; the others are saved as outside of this.
    GiveUp(Arc<dyn GivenUp>),
}

thread_local! {
    static SAVING: RefCell<Vec<Saving>> = const { RefCell::new(Vec::new()) };
}

/// Memory, and how it was.
#[derive(Clone)]
pub(super) struct Kept {
    storage: Arc<Storage>,
    layout: Layout,
    pub(super) dtype: DType,
    version: u64,
}

/// Where a saved tensor is kept: as it is, outside of any checkpoint.
fn pack(kept: Kept) -> Result<Memory> {
    SAVING.with_borrow_mut(|stack| pack_within(stack, kept))
}

fn pack_within(stack: &mut [Saving], kept: Kept) -> Result<Memory> {
    for saving in stack.iter_mut().rev() {
        match saving {
            Saving::Number(part) | Saving::Collect(part, _) if part.is_kept(&kept) => {}
            Saving::Number(part) => return Ok(Memory::Again(part.clone(), part.note(&kept))),
            Saving::Collect(_, list) => {
                list.push(kept.clone());
                break;
            }
            Saving::GiveUp(memory) => {
                if let Some((memory, index)) = memory.clone().claim(&kept)? {
                    return Ok(Memory::Again(memory, index));
                }
            }
        }
    }
    Ok(Memory::Kept(kept))
}

/// What an op of a checkpoint's part gives, where that is known or over: asked before it runs.
pub(super) fn recalled(op: &str, inputs: &[&Tensor]) -> Result<Option<Tensor>> {
    let part = SAVING.with_borrow(|stack| match innermost(stack) {
        Some((_, Saving::Collect(part, list))) => Some((part.clone(), part.is_over(list.len()))),
        Some((_, Saving::Number(part))) => {
            part.begins();
            None
        }
        _ => None,
    });
    match part {
        None => Ok(None),
        Some((_, true)) => Err(Error::op("checkpoint", "the part has saved all that is read")),
        Some((part, false)) => part.recalled(op, inputs),
    }
}

/// Tells the checkpoint that runs a part for the first time what an op gave.
pub(super) fn made(op: &str, inputs: &[&Tensor], result: &Tensor) -> Result<()> {
    SAVING.with_borrow_mut(|stack| {
        let Some((at, Saving::Number(part))) = innermost(stack) else { return Ok(()) };
        let (part, outer) = (part.clone(), &mut stack[..at]);
        part.made(op, inputs, result, &mut |kept| pack_within(outer, kept))
    })
}

/// The innermost checkpoint, and its place.
fn innermost(stack: &[Saving]) -> Option<(usize, &Saving)> {
    let decides = |(_, saving): &(usize, &Saving)| !matches!(saving, Saving::GiveUp(_));
    stack.iter().enumerate().rev().find(decides)
}

/// Whether a part of a checkpoint runs again on this thread.
pub(crate) fn is_running_again() -> bool {
    let again = |saving: &Saving| matches!(saving, Saving::Collect(..));
    SAVING.with_borrow(|stack| stack.iter().any(again))
}

/// Whether a checkpoint decides what becomes of tensors that are saved.
pub(super) fn is_in_checkpoint() -> bool {
    let decides = |saving: &Saving| !matches!(saving, Saving::GiveUp(_));
    SAVING.with_borrow(|stack| stack.iter().any(decides))
}

/// Runs `f` with saved tensors treated like this; gives what was collected, also where it fails.
pub(super) fn saving<T>(how: Saving, f: impl FnOnce() -> Result<T>) -> (Result<T>, Vec<Kept>) {
    /// Also where `f` panics.
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            let ended = SAVING.with_borrow_mut(Vec::pop);
            drop(ended);
        }
    }
    SAVING.with_borrow_mut(|stack| stack.push(how));
    let pop = Pop;
    let result = f();
    let collected = SAVING.with_borrow_mut(|stack| match stack.last_mut() {
        Some(Saving::Collect(_, list)) => std::mem::take(list),
        _ => Vec::new(),
    });
    drop(pop);
    (result, collected)
}

/// Where the gradient of a saved tensor goes, if it is differentiated itself.
#[derive(Clone)]
enum History {
    Nowhere,
    Input(Edge),
    /// A result of the node that saves it, which would keep itself alive by an edge.
    Output(u32),
}

impl Kept {
    pub(super) fn of(tensor: &Tensor) -> Kept {
        Kept {
            storage: tensor.storage().clone(),
            layout: tensor.layout().clone(),
            dtype: tensor.dtype(),
            version: tensor.version(),
        }
    }

    pub(super) fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// The memory that it lies in, and the version that this had.
    pub(super) fn memory(&self) -> (&Arc<Storage>, u64) {
        (&self.storage, self.version)
    }

    /// The tensor, without history, if nobody wrote to it since.
    pub(super) fn tensor(&self, op: &str) -> Result<Tensor> {
        self.check(op, "a kept result")?;
        Ok(Tensor::plain(self.storage.clone(), self.layout.clone(), self.dtype))
    }

    fn check(&self, op: &str, which: &str) -> Result<()> {
        let Kept { storage, layout, version, .. } = self;
        if storage.version() == *version {
            return Ok(());
        }
        let message = format!(
            "backward needs {which} of shape {:?}, which was changed in place since (version {}, saved at {}); \
             clone it before the change",
            layout.shape(),
            storage.version(),
            version,
        );
        Err(Error::op(op, message))
    }

    /// Whether it lies in this memory.
    pub(super) fn is_in(&self, storage: &Arc<Storage>) -> bool {
        Arc::ptr_eq(&self.storage, storage)
    }

    /// Where in its memory it lies.
    pub(super) fn place(&self) -> Place {
        Place { layout: self.layout.clone(), dtype: self.dtype }
    }
}

/// A tensor apart from its memory.
pub(super) struct Place {
    layout: Layout,
    dtype: DType,
}

impl Place {
    /// The tensor at this place in the memory of another.
    pub(super) fn within(&self, tensor: &Tensor) -> Kept {
        let (storage, version) = (tensor.storage().clone(), tensor.version());
        Kept { storage, layout: self.layout.clone(), dtype: self.dtype, version }
    }
}

impl Saved {
    /// Saves an input.
    pub(super) fn input(op: &str, tensor: &Tensor) -> Result<Saved> {
        check_mode(op, tensor)?;
        let history = match tensor.edge() {
            Some(edge) => History::Input(edge),
            None => History::Nowhere,
        };
        let memory = match &history {
            // A leaf lives on anyway, and keeping it shows when it is changed in place.
            History::Input(Edge::Leaf(_)) => Memory::Kept(Kept::of(tensor)),
            _ => pack(Kept::of(tensor))?,
        };
        Ok(Saved { memory, history })
    }

    /// Saves a result of the node that saves it.
    pub(super) fn output(op: &str, tensor: &Tensor, slot: u32) -> Result<Saved> {
        check_mode(op, tensor)?;
        let memory = pack(Kept::of(tensor))?;
        Ok(Saved { memory, history: History::Output(slot) })
    }

    /// The tensor, if nobody wrote to it since.
    pub(super) fn unpack(&self, node: &Arc<Node>, keep: bool) -> Result<Tensor> {
        let which = match self.history {
            History::Output(_) => "the result",
            _ => "an input",
        };
        let meta = match &self.history {
            History::Nowhere => None,
            History::Input(edge) => Some(meta_of(edge)),
            History::Output(slot) => Some(GradMeta::of_node(node.clone(), *slot)),
        };
        self.tensor(node.op().name(), which, meta, keep)
    }

    /// The saved input of a checkpoint, with its history.
    pub(super) fn unpack_input(&self, keep: bool) -> Result<Tensor> {
        let meta = match &self.history {
            History::Input(edge) => Some(meta_of(edge)),
            _ => None,
        };
        self.tensor("checkpoint", "an input", meta, keep)
    }

    fn tensor(
        &self,
        op: &str,
        which: &str,
        meta: Option<Arc<GradMeta>>,
        keep: bool,
    ) -> Result<Tensor> {
        let kept = self.memory.kept(keep)?;
        kept.check(op, which)?;
        let Kept { storage, layout, dtype, .. } = kept;
        let tensor = Tensor::plain(storage, layout, dtype);
        Ok(match meta {
            Some(meta) => tensor.with_meta(meta),
            None => tensor,
        })
    }
}

fn meta_of(edge: &Edge) -> Arc<GradMeta> {
    match edge {
        Edge::Leaf(meta) => meta.clone(),
        Edge::Node(node, slot) => GradMeta::of_node(node.clone(), *slot),
    }
}

fn check_mode(op: &str, tensor: &Tensor) -> Result<()> {
    if !tensor.is_inference() {
        return Ok(());
    }
    let message = format!(
        "an inference tensor of shape {:?} can't be saved for backward; copy it outside of inference mode",
        tensor.shape()
    );
    Err(Error::op(op, message))
}

/// What an op saves.
#[derive(Clone, Default)]
pub(super) struct Parts {
    /// Inputs by number, each where the op asked for it; of a custom function, whatever it saved.
    pub(super) inputs: Vec<Option<Saved>>,
    /// The result, where the op asked for it.
    pub(super) output: Option<Saved>,
}

/// An op that ran, and what it saved.
pub(super) struct Recorded<B> {
    op: B,
    saved: Mutex<Option<Parts>>,
}

impl<B: Backward> Recorded<B> {
    pub(super) fn new(op: B, saved: Parts) -> Box<Recorded<B>> {
        Box::new(Recorded { op, saved: Mutex::new(Some(saved)) })
    }
}

impl<B: Backward> Record for Recorded<B> {
    fn op(&self) -> &dyn Backward {
        &self.op
    }

    fn unpack(&self, node: &Arc<Node>, keep: bool, wanted: Vec<bool>) -> Result<SavedTensors> {
        unpack(&self.saved, node, keep, wanted)
    }
}

fn unpack(
    saved: &Mutex<Option<Parts>>,
    node: &Arc<Node>,
    keep: bool,
    wanted: Vec<bool>,
) -> Result<SavedTensors> {
    let mut slot = lock(saved);
    let parts = if keep { slot.clone() } else { slot.take() };
    // A saved tensor may have to be computed first: no lock may be held meanwhile.
    drop(slot);
    let parts = parts.ok_or_else(|| {
        let message = "the graph was freed by an earlier backward; ask that one to retain_graph";
        Error::op("backward", message)
    })?;
    let unpack =
        |saved: &Option<Saved>| saved.as_ref().map(|saved| saved.unpack(node, keep)).transpose();
    let inputs = parts.inputs.iter().map(unpack).collect::<Result<_>>()?;
    Ok(SavedTensors { inputs, output: unpack(&parts.output)?, wanted, wide: Vec::new() })
}

/// A lock whose data is whole even if a thread panicked while holding it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
