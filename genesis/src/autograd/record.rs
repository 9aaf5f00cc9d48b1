//! What an op leaves on the tape: a node with where its inputs' gradients go, and what its backward reads.

use super::op::{Op, Saves, Single};
use super::saved::{Parts, Recorded, Saved};
use super::tape::{Edge, GradMeta, Node};
use crate::error::Result;
use crate::tensor::Tensor;

/// Puts an op on the tape; gives its result with that history.
#[track_caller]
pub(crate) fn record<O: Op>(op: O, inputs: &[&Tensor], result: Tensor) -> Result<Tensor> {
    let Saves { inputs: bits, output } = op.saves();
    // An input that is given back is another tensor now.
    let result = if result.is_sole_handle() { result } else { result.detach() };
    let mut saved = Parts::default();
    if bits != 0 {
        let save = |(index, tensor): (usize, &&Tensor)| {
            (index < 32 && bits >> index & 1 == 1)
                .then(|| Saved::input(op.name(), tensor))
                .transpose()
        };
        saved.inputs = inputs.iter().enumerate().map(save).collect::<Result<_>>()?;
    }
    if output {
        saved.output = Some(Saved::output(op.name(), &result, 0)?);
    }
    let edges = inputs.iter().map(|input| input.edge()).collect();
    let node = Node::new(Recorded::new(Single(op), saved), 1, edges);
    Ok(match result.known_meta() {
        Some(meta) => {
            meta.set_history(Some((node, 0)));
            result
        }
        None => result.with_meta(GradMeta::of_node(node, 0)),
    })
}

impl Tensor {
    /// Where the gradient of this tensor goes; none where none is wanted.
    pub(crate) fn edge(&self) -> Option<Edge> {
        self.requires_grad().then(|| match self.meta().history() {
            Some((node, slot)) => Edge::Node(node, slot),
            None => Edge::Leaf(self.shared_meta()),
        })
    }
}
