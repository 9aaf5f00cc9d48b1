//! A tensor that a backward reads: memory with the version it had, or a place in what a checkpoint
//! computes again.

use std::sync::Arc;

use genesis_kernel::ir::DType;

use super::checkpoint::{self, Frame};
use super::meta::{Edge, GradMeta};
use super::node::Node;
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
    Again(Arc<Frame>, usize),
}

/// Memory, and how it was.
#[derive(Clone)]
pub(super) struct Kept {
    storage: Arc<Storage>,
    layout: Layout,
    pub(super) dtype: DType,
    version: u64,
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
    fn of(tensor: &Tensor) -> Kept {
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
            _ => checkpoint::pack(Kept::of(tensor)),
        };
        Ok(Saved { memory, history })
    }

    /// Saves a result of the node that saves it.
    pub(super) fn output(op: &str, tensor: &Tensor, slot: u32) -> Result<Saved> {
        check_mode(op, tensor)?;
        let memory = checkpoint::pack(Kept::of(tensor));
        Ok(Saved { memory, history: History::Output(slot) })
    }

    /// The tensor, if nobody wrote to it since.
    pub(super) fn unpack(&self, node: &Arc<Node>, keep: bool) -> Result<Tensor> {
        let which = match self.history {
            History::Output(_) => "the result",
            _ => "an input",
        };
        let meta = match &self.history {
            History::Nowhere => GradMeta::detached(),
            History::Input(edge) => meta_of(edge),
            History::Output(slot) => GradMeta::of_node(node.clone(), *slot),
        };
        self.tensor(node.op().name(), which, meta, keep)
    }

    /// The saved input of a checkpoint, with its history.
    pub(super) fn unpack_input(&self, keep: bool) -> Result<Tensor> {
        let meta = match &self.history {
            History::Input(edge) => meta_of(edge),
            _ => GradMeta::detached(),
        };
        self.tensor("checkpoint", "an input", meta, keep)
    }

    fn tensor(&self, op: &str, which: &str, meta: Arc<GradMeta>, keep: bool) -> Result<Tensor> {
        let again;
        let kept = match &self.memory {
            Memory::Kept(kept) => kept,
            Memory::Again(frame, index) => {
                again = frame.value(*index, keep)?;
                &again
            }
        };
        let Kept { storage, layout, dtype, version } = kept;
        if storage.version() != *version {
            let message = format!(
                "backward needs {which} of shape {:?}, which was changed in place since (version {}, saved at {}); \
                 clone it before the change",
                layout.shape(),
                storage.version(),
                version,
            );
            return Err(Error::op(op, message));
        }
        Ok(Tensor::from_parts(storage.clone(), layout.clone(), *dtype, meta))
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
