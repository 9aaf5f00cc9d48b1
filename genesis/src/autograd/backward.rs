//! The walk from a result back to the leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::mode::with_grad;
use super::node::{GradMeta, Node};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Options of a backward.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackwardOptions {
    /// Keep what backward reads, so that it can run again.
    pub retain_graph: bool,
    /// Record the backward itself, so that its results can be differentiated; implies `retain_graph`.
    pub create_graph: bool,
}

/// What waits for a node: the sum of the gradients of its result so far.
struct Pending {
    node: Arc<Node>,
    dy: Tensor,
}

/// The gradients that a walk collects instead of adding them to the leaves.
type Collected<'a> = Option<(&'a [&'a Tensor], Vec<Option<Tensor>>)>;

pub(super) fn run(root: &Tensor, dy: Option<&Tensor>, options: BackwardOptions) -> Result<()> {
    walk("backward", &[(root, dy)], options, None).map(drop)
}

/// Gradients of the sum of `outputs` with respect to `inputs`, without touching any `.grad()`.
///
/// An input that no output depends on gives `None`.
///
/// # Errors
/// As [`Tensor::backward`].
pub fn grad(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    options: BackwardOptions,
) -> Result<Vec<Option<Tensor>>> {
    let roots: Vec<(&Tensor, Option<&Tensor>)> = outputs.iter().map(|&t| (t, None)).collect();
    let collected = Some((inputs, vec![None; inputs.len()]));
    let collected = walk("grad", &roots, options, collected)?;
    Ok(collected.map(|(_, grads)| grads).unwrap_or_default())
}

fn walk<'a>(
    name: &str,
    roots: &[(&Tensor, Option<&Tensor>)],
    options: BackwardOptions,
    mut collected: Collected<'a>,
) -> Result<Collected<'a>> {
    let keep = options.retain_graph || options.create_graph;
    with_grad(options.create_graph, || {
        let mut queue: BTreeMap<u64, Pending> = BTreeMap::new();
        for (root, dy) in roots {
            let dy = seed(name, root, *dy)?;
            send(root.meta(), dy, &mut queue, &mut collected)?;
        }
        while let Some((_, Pending { node, dy })) = queue.pop_last() {
            let saved = node.unpack(keep)?;
            let grads = node.op.backward(&saved, &dy)?;
            for (edge, grad) in node.edges.iter().zip(grads) {
                if let (Some(meta), Some(grad)) = (edge, grad) {
                    send(meta, grad, &mut queue, &mut collected)?;
                }
            }
        }
        Ok(collected)
    })
}

/// The gradient that starts a walk: `dy`, or one for a scalar.
fn seed(name: &str, root: &Tensor, dy: Option<&Tensor>) -> Result<Tensor> {
    if !root.requires_grad() {
        return Err(Error::op(name, "the tensor requires no gradient: no input of it does"));
    }
    match dy {
        Some(dy) if dy.shape() == root.shape() => dy.to_dtype(root.dtype()),
        Some(dy) => {
            let message = format!("dy has shape {:?}, the tensor {:?}", dy.shape(), root.shape());
            Err(Error::op(name, message))
        }
        None if root.numel() == 1 => Tensor::ones(root.shape(), (root.dtype(), root.device())),
        None => {
            let message =
                format!("needs dy for a tensor that is not a scalar, shape {:?}", root.shape());
            Err(Error::op(name, message))
        }
    }
}

fn send(
    meta: &Arc<GradMeta>,
    dy: Tensor,
    queue: &mut BTreeMap<u64, Pending>,
    collected: &mut Collected<'_>,
) -> Result<()> {
    if let Some((inputs, grads)) = collected
        && let Some(at) = inputs.iter().position(|input| Arc::ptr_eq(input.meta(), meta))
    {
        let sum = match grads[at].take() {
            Some(grad) => grad.add(&dy)?,
            None => dy.clone(),
        };
        grads[at] = Some(sum);
    }
    let Some(node) = meta.node() else {
        return if collected.is_none() { meta.accumulate(&dy) } else { Ok(()) };
    };
    let dy = match queue.remove(&node.sequence) {
        Some(pending) => pending.dy.add(&dy)?,
        None => dy,
    };
    queue.insert(node.sequence, Pending { node: node.clone(), dy });
    Ok(())
}
