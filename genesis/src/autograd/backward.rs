//! The backward pass: a walk over the graph in reverse topological order.
//!
//! A node waits in a queue until everything that depends on it has run, which its sequence number
//! tells: the queue is taken from by falling number. A leaf without hooks takes each gradient as it
//! comes. One with hooks must see the sum of this backward, once, and as early as it is complete: the
//! first time one is met, the edges into such leaves that are still to come are counted.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::trace;

use super::hook_list::Accumulate;
use super::parts::{self, Part, Place};
use super::tape::{Edge, GradMeta, Node};
use super::{anomaly, callback};
use crate::dispatch;
use crate::dispatch::autocast::without_autocast;
use crate::error::{Error, Result};
use crate::mode::{is_grad_enabled, with_grad};
use crate::tensor::Tensor;

/// Options of a backward.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackwardOptions {
    /// Keep what backward reads, so that it can run again.
    pub retain_graph: bool,
    /// Record the backward itself, so that its results can be differentiated; implies `retain_graph`.
    pub create_graph: bool,
}

/// Options of [`grad`].
#[derive(Clone, Copy, Debug, Default)]
pub struct GradOptions<'a> {
    /// The gradient of each output; one for a scalar where there is none, and for all outputs where
    /// this is empty.
    pub grad_outputs: &'a [Option<&'a Tensor>],
    /// Keep what backward reads, so that it can run again.
    pub retain_graph: bool,
    /// Record the backward itself, so that its results can be differentiated; implies `retain_graph`.
    pub create_graph: bool,
    /// Whether an input that no output depends on is no error; it gives `None` then.
    pub allow_unused: bool,
    /// Gives zeros for such an input; implies `allow_unused`.
    pub materialize_grads: bool,
}

impl From<BackwardOptions> for GradOptions<'_> {
    fn from(options: BackwardOptions) -> Self {
        let BackwardOptions { retain_graph, create_graph } = options;
        GradOptions { retain_graph, create_graph, ..GradOptions::default() }
    }
}

#[track_caller]
pub(super) fn run(root: &Tensor, dy: Option<&Tensor>, options: BackwardOptions) -> Result<()> {
    let _range = trace::range_at("backward", Location::caller());
    let keep = options.retain_graph || options.create_graph;
    callback::around(|| {
        with_grad(options.create_graph, || {
            let walk = Walk { keep, ..Walk::default() };
            without_autocast(|| walk.run("backward", &[(root, dy)])).map(drop)
        })
    })
}

/// Gradients of the sum of `outputs` with respect to `inputs`, without touching any
/// [`Tensor::grad`]: one for each input, in order.
///
/// Only what lies between the outputs and the inputs is computed.
///
/// # Errors
/// As [`Tensor::backward`]; if an input requires no gradient; or if no output depends on an input and
/// that is not allowed.
///
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::autograd::{GradOptions, grad};
///
/// let x = Tensor::from_slice(&[3.0f32], &[1])?.requires_grad_(true)?;
/// let y = x.mul(&x)?;
/// let create = GradOptions { create_graph: true, ..GradOptions::default() };
/// let dx = grad(&[&y], &[&x], create)?.remove(0).expect("y depends on x");
/// let ddx = grad(&[&dx], &[&x], GradOptions::default())?.remove(0).expect("so does its slope");
/// assert_eq!((dx.item()?, ddx.item()?), (6.0, 2.0));
/// # Ok::<(), genesis::Error>(())
/// ```
#[track_caller]
pub fn grad<'a>(
    outputs: &[&Tensor],
    inputs: &[&Tensor],
    options: impl Into<GradOptions<'a>>,
) -> Result<Vec<Option<Tensor>>> {
    let _range = trace::range_at("backward", Location::caller());
    let options = options.into();
    let given = options.grad_outputs;
    if !given.is_empty() && given.len() != outputs.len() {
        let message = format!("{} grad_outputs for {} outputs", given.len(), outputs.len());
        return Err(Error::op("grad", message));
    }
    let edge = |(index, input): (usize, &&Tensor)| {
        let message = || Error::op("grad", format!("input {index} requires no gradient"));
        input.edge().ok_or_else(message)
    };
    let edges = inputs.iter().enumerate().map(edge).collect::<Result<Vec<_>>>()?;
    let keep = options.retain_graph || options.create_graph;
    let found = with_grad(options.create_graph, || {
        let starts: Vec<Edge> = outputs.iter().filter_map(|output| output.edge()).collect();
        let targets = Targets::new(edges, &starts);
        let walk = Walk { keep, targets: Some(targets), ..Walk::default() };
        let given = |index: usize| given.get(index).copied().flatten();
        let roots: Vec<_> = outputs.iter().enumerate().map(|(i, &y)| (y, given(i))).collect();
        without_autocast(|| walk.run("grad", &roots))
    })?;
    let finish = |(index, grad): (usize, Option<Tensor>)| match grad {
        None if options.materialize_grads => inputs[index].zeros_like().map(Some),
        None if !options.allow_unused => {
            let message = format!(
                "no output depends on input {index} of shape {:?}; set allow_unused if that may be",
                inputs[index].shape()
            );
            Err(Error::op("grad", message))
        }
        grad => Ok(grad),
    };
    found.into_iter().enumerate().map(finish).collect()
}

/// The gradients of the results of a node so far.
enum Slots {
    One(Option<Tensor>),
    Many(Vec<Option<Tensor>>),
}

impl Slots {
    fn as_mut(&mut self) -> &mut [Option<Tensor>] {
        match self {
            Slots::One(dy) => std::slice::from_mut(dy),
            Slots::Many(dys) => dys,
        }
    }
}

/// What waits for a node.
struct Pending {
    node: Arc<Node>,
    dys: Slots,
    /// Gradients of slices of its results, by result.
    parts: Vec<(u32, Part)>,
}

impl Pending {
    fn of(node: &Arc<Node>) -> Pending {
        let dys = match node.outputs {
            1 => Slots::One(None),
            n => Slots::Many(vec![None; n as usize]),
        };
        Pending { node: node.clone(), dys, parts: Vec::new() }
    }

    /// Puts the gradients of slices together.
    fn join_parts(&mut self) -> Result<()> {
        while let Some(&(slot, _)) = self.parts.first() {
            let own = self.parts.extract_if(.., |(of, _)| *of == slot).map(|(_, part)| part);
            if let Some(dy) = parts::joined(own.collect())? {
                add_to(&mut self.dys.as_mut()[slot as usize], dy)?;
            }
        }
        Ok(())
    }
}

/// A leaf with hooks: its gradient so far and the number of edges that may still add to it.
struct Waiting {
    meta: Arc<GradMeta>,
    dy: Option<Tensor>,
    edges: usize,
}

/// A backward under way.
#[derive(Default)]
struct Walk {
    queue: BTreeMap<u64, Pending>,
    /// Leaves with hooks; none until one is met.
    waiting: Option<Vec<Waiting>>,
    /// Gradients of slices of leaves without hooks.
    leaf_parts: Vec<(Arc<GradMeta>, Vec<Part>)>,
    targets: Option<Targets>,
    keep: bool,
}

impl Walk {
    /// Walks from the roots; gives what was looked for.
    fn run(
        mut self,
        name: &str,
        roots: &[(&Tensor, Option<&Tensor>)],
    ) -> Result<Vec<Option<Tensor>>> {
        let (mut edges, mut seeds) = (Vec::new(), Vec::new());
        for (root, dy) in roots {
            let Some(edge) = root.edge() else {
                let message = "the tensor requires no gradient: no input of it does";
                return Err(Error::op(name, message));
            };
            edges.push(Some(edge));
            seeds.push(Some(seed(name, root, *dy)?));
        }
        self.send(&edges, seeds)?;
        while let Some((_, mut pending)) = self.queue.pop_last() {
            pending.join_parts()?;
            let Pending { node, mut dys, .. } = pending;
            if let Some(hooks) = node.hooks() {
                hooks.run(dys.as_mut())?;
            }
            let mut wanted = node.edges.iter().map(Option::is_some).collect::<Vec<bool>>();
            if let Some(targets) = &mut self.targets {
                targets.collect(&node, dys.as_mut());
                if !targets.restrict(&node, &mut wanted) {
                    continue;
                }
            }
            let mut saved = node.unpack(self.keep, wanted)?;
            if let Some(place) = place_of(&node) {
                let dy = dys.as_mut().first_mut().and_then(Option::take);
                self.send_part(&node.edges, dy, place)?;
                continue;
            }
            if let Some(rows) = rows_of(&node)
                && let Some(dy) = dys.as_mut().first_mut().and_then(Option::take)
            {
                drop(saved);
                let grads = cut(dy, rows)?.into_iter().map(Some).collect();
                self.send(&node.edges, grads)?;
                continue;
            }
            let onto = self.so_far(&node, &saved.wanted);
            saved.wide = self.wide(&node);
            let grads = {
                let op = node.op();
                let _op = trace::backward(op.label());
                let backward = |dys: &[Option<Tensor>]| match &onto {
                    Some(onto) => op.backward_onto(&saved, dys, onto),
                    None => op.backward(&saved, dys),
                };
                anomaly::watch(op.name(), &node.origin, dys.as_mut(), backward)?
            };
            // So that a gradient that is only passed on has one owner when it arrives.
            drop((saved, dys));
            self.send(&node.edges, grads)?;
        }
        for (meta, parts) in std::mem::take(&mut self.leaf_parts) {
            let dy = parts::joined(parts)?;
            self.arrive(&meta, dy)?;
        }
        self.flush(|_| true)?;
        Ok(self.targets.map(|targets| targets.found).unwrap_or_default())
    }

    /// Sends gradients along edges. Nodes come first: what is counted for the leaves begins there.
    fn send(&mut self, edges: &[Option<Edge>], mut grads: Vec<Option<Tensor>>) -> Result<()> {
        grads.resize(edges.len(), None);
        for (edge, grad) in edges.iter().zip(&mut grads) {
            if let Some(Edge::Node(node, slot)) = edge
                && self.targets.as_ref().is_none_or(|targets| targets.is_needed(node))
                && let Some(dy) = grad.take()
            {
                self.enqueue(node, *slot, dy)?;
            }
        }
        if self.waiting.is_none() && edges.iter().flatten().any(is_hooked_leaf) {
            self.waiting = Some(count(edges, &self.queue));
        }
        for (edge, grad) in edges.iter().zip(grads) {
            if let Some(Edge::Leaf(meta)) = edge {
                self.arrive(meta, grad)?;
            }
        }
        if self.waiting.is_some() { self.flush(|leaf| leaf.edges == 0) } else { Ok(()) }
    }

    /// Sends the gradient of a slice, which waits for those of other slices of the tensor.
    fn send_part(
        &mut self,
        edges: &[Option<Edge>],
        dy: Option<Tensor>,
        place: Place,
    ) -> Result<()> {
        let (Some(Some(edge)), Some(dy)) = (edges.first(), dy) else { return Ok(()) };
        let dy = match dy.rank() < place.from.len() {
            true => dy.unsqueeze(place.axis as i64)?,
            false => dy,
        };
        let part = Part { dy, place };
        match edge {
            Edge::Node(node, slot) => {
                if self.targets.as_ref().is_none_or(|targets| targets.is_needed(node)) {
                    let pending = self.queue.entry(node.sequence);
                    pending.or_insert_with(|| Pending::of(node)).parts.push((*slot, part));
                }
                Ok(())
            }
            // Its hooks count the gradients that come.
            Edge::Leaf(meta) if meta.has_hooks() => {
                self.send(edges, vec![parts::joined(vec![part])?])
            }
            Edge::Leaf(meta) => {
                if self.targets.as_ref().is_some_and(|targets| !targets.has_leaf(meta)) {
                    return Ok(());
                }
                match self.leaf_parts.iter_mut().find(|(own, _)| Arc::ptr_eq(own, meta)) {
                    Some((_, parts)) => parts.push(part),
                    None => self.leaf_parts.push((meta.clone(), vec![part])),
                }
                Ok(())
            }
        }
    }

    /// Takes the gradient that came so far for the input to which a node's backward adds its own. That of a leaf stays: it
    /// may be of an earlier backward.
    fn so_far(&mut self, node: &Node, wanted: &[bool]) -> Option<Tensor> {
        let input = node.op().adds_to().filter(|&input| wanted.get(input) == Some(&true))?;
        if is_looked_at() {
            return None;
        }
        match node.edges.get(input)?.as_ref()? {
            Edge::Node(of, slot) => {
                let pending = self.queue.get_mut(&of.sequence)?;
                let sum = pending.dys.as_mut()[*slot as usize].take()?;
                // A view keeps the tensor that it is of, which no one else may have.
                Some(sum.detach())
            }
            Edge::Leaf(_) => None,
        }
    }

    /// Which gradients a node may give in the dtype that its inputs were converted from, in place of one that is converted
    /// back: nobody looks at what is between.
    fn wide(&self, node: &Node) -> Vec<Option<DType>> {
        if is_looked_at() {
            return Vec::new();
        }
        let of = |(input, edge): (usize, &Option<Edge>)| match edge {
            Some(Edge::Node(from, _)) if node.op().widens(input) => {
                let is_free = from.hooks().is_none()
                    && self.targets.as_ref().is_none_or(|targets| !targets.has_node(from));
                from.op().converts_from().filter(|_| is_free)
            }
            _ => None,
        };
        node.edges.iter().enumerate().map(of).collect()
    }

    fn enqueue(&mut self, node: &Arc<Node>, slot: u32, dy: Tensor) -> Result<()> {
        let pending = self.queue.entry(node.sequence).or_insert_with(|| Pending::of(node));
        add_to(&mut pending.dys.as_mut()[slot as usize], dy)
    }

    /// A gradient, or none, along one edge into a leaf.
    fn arrive(&mut self, meta: &Arc<GradMeta>, dy: Option<Tensor>) -> Result<()> {
        if self.targets.as_ref().is_some_and(|targets| !targets.has_leaf(meta)) {
            return Ok(());
        }
        if !meta.has_hooks() {
            let Some(dy) = dy else { return Ok(()) };
            return match &mut self.targets {
                Some(targets) => targets.add(&Edge::Leaf(meta.clone()), &dy),
                None => meta.accumulate(dy),
            };
        }
        let waiting = self.waiting.get_or_insert_default();
        let is_own = |leaf: &&mut Waiting| Arc::ptr_eq(&leaf.meta, meta);
        let leaf = match waiting.iter_mut().find(is_own) {
            Some(leaf) => leaf,
            None => {
                waiting.push(Waiting { meta: meta.clone(), dy: None, edges: 0 });
                waiting.last_mut().expect("a leaf was just pushed")
            }
        };
        leaf.edges = leaf.edges.saturating_sub(1);
        match dy {
            Some(dy) => add_to(&mut leaf.dy, dy),
            None => Ok(()),
        }
    }

    /// Gives leaves with hooks the gradients that waited for them.
    fn flush(&mut self, is_ready: impl Fn(&Waiting) -> bool) -> Result<()> {
        let Some(waiting) = &mut self.waiting else { return Ok(()) };
        for leaf in waiting.iter_mut().filter(|leaf| is_ready(leaf)) {
            let Some(mut dy) = leaf.dy.take() else { continue };
            leaf.meta.run_gradient_hooks(&mut dy)?;
            match &mut self.targets {
                Some(targets) => targets.add(&Edge::Leaf(leaf.meta.clone()), &dy)?,
                None => {
                    leaf.meta.accumulate(dy)?;
                    leaf.meta.run_accumulate_hooks()?;
                }
            }
        }
        Ok(())
    }
}

/// Whether somebody differentiates the gradients, looks at each of them, or composes what makes them.
fn is_looked_at() -> bool {
    is_grad_enabled() || anomaly::is_on() || dispatch::trace::is_on()
}

/// Where a node's gradient lies in that of its input, if it is a slice of it: nobody differentiates or looks at it.
fn place_of(node: &Node) -> Option<Place> {
    if is_looked_at() { None } else { node.op().place() }
}

/// Along how much of its first axis each input of a node lies in the result, if its backward cuts `dy`: nobody
/// differentiates or looks at it.
fn rows_of(node: &Node) -> Option<&[usize]> {
    if is_looked_at() { None } else { node.op().rows() }
}

/// The parts of a gradient along its first axis, each of which nothing else writes: in its memory, where no one else has
/// that.
fn cut(dy: Tensor, rows: &[usize]) -> Result<Vec<Tensor>> {
    // A view keeps the tensor that it is of, which no one else may have.
    let own = dy.detach();
    drop(dy);
    let own = if own.is_sole_owner() && own.is_contiguous() { own } else { own.copy()? };
    own.apart(rows)
}

fn is_hooked_leaf(edge: &Edge) -> bool {
    matches!(edge, Edge::Leaf(meta) if meta.has_hooks())
}

/// The leaves with hooks that gradients on their way lead to, and how many edges lead to each; in the order in
/// which they are met, which is the order of hooks and must not depend on addresses: hooks may call
/// collectives, in one order on all ranks.
fn count(edges: &[Option<Edge>], queue: &BTreeMap<u64, Pending>) -> Vec<Waiting> {
    let mut leaves: Vec<Waiting> = Vec::new();
    let mut places: BTreeMap<*const GradMeta, usize> = BTreeMap::new();
    let mut add = |edges: &[Option<Edge>]| {
        for edge in edges.iter().flatten() {
            if let Edge::Leaf(meta) = edge
                && meta.has_hooks()
            {
                let place = *places.entry(Arc::as_ptr(meta)).or_insert(leaves.len());
                if place == leaves.len() {
                    leaves.push(Waiting { meta: meta.clone(), dy: None, edges: 0 });
                }
                leaves[place].edges += 1;
            }
        }
    };
    add(edges);
    for_each_node(queue.values().map(|pending| &pending.node), |node| add(&node.edges));
    leaves
}

/// Every node that is reached from some, once.
fn for_each_node<'n>(
    starts: impl Iterator<Item = &'n Arc<Node>>,
    mut visit: impl FnMut(&'n Arc<Node>),
) {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&Arc<Node>> = starts.filter(|node| seen.insert(node.sequence)).collect();
    while let Some(node) = next.pop() {
        visit(node);
        for edge in node.edges.iter().flatten() {
            if let Edge::Node(node, _) = edge
                && seen.insert(node.sequence)
            {
                next.push(node);
            }
        }
    }
}

/// What [`grad`] looks for.
struct Targets {
    edges: Vec<Edge>,
    found: Vec<Option<Tensor>>,
    /// Nodes that are targets or lead to one.
    needed: BTreeSet<u64>,
}

impl Targets {
    fn new(edges: Vec<Edge>, starts: &[Edge]) -> Targets {
        let mut needed = BTreeSet::new();
        for edge in &edges {
            if let Edge::Node(node, _) = edge {
                needed.insert(node.sequence);
            }
        }
        let mut nodes = BTreeMap::new();
        let starts = starts.iter().filter_map(|edge| match edge {
            Edge::Node(node, _) => Some(node),
            Edge::Leaf(_) => None,
        });
        for_each_node(starts, |node| {
            nodes.insert(node.sequence, node);
        });
        let found = vec![None; edges.len()];
        let mut targets = Targets { edges, found, needed };
        // A node comes after all that it depends on, so one pass upwards is enough.
        for (sequence, node) in nodes {
            if node.edges.iter().flatten().any(|edge| targets.leads(edge)) {
                targets.needed.insert(sequence);
            }
        }
        targets
    }

    fn is_needed(&self, node: &Node) -> bool {
        self.needed.contains(&node.sequence)
    }

    fn has_leaf(&self, meta: &Arc<GradMeta>) -> bool {
        self.edges.iter().any(|edge| matches!(edge, Edge::Leaf(own) if Arc::ptr_eq(own, meta)))
    }

    fn has_node(&self, node: &Arc<Node>) -> bool {
        self.edges.iter().any(|edge| matches!(edge, Edge::Node(own, _) if Arc::ptr_eq(own, node)))
    }

    fn leads(&self, edge: &Edge) -> bool {
        match edge {
            Edge::Leaf(meta) => self.has_leaf(meta),
            Edge::Node(node, _) => self.is_needed(node),
        }
    }

    /// Leaves of what a node's inputs want only what leads to a target; whether anything does.
    fn restrict(&self, node: &Node, wanted: &mut [bool]) -> bool {
        for (wanted, edge) in wanted.iter_mut().zip(&node.edges) {
            *wanted = edge.as_ref().is_some_and(|edge| self.leads(edge));
        }
        wanted.contains(&true)
    }

    /// Takes the gradients of a node's results that are looked for.
    fn collect(&mut self, node: &Arc<Node>, dys: &[Option<Tensor>]) {
        for (edge, found) in self.edges.iter().zip(&mut self.found) {
            if let Edge::Node(own, slot) = edge
                && Arc::ptr_eq(own, node)
            {
                found.clone_from(&dys[*slot as usize]);
            }
        }
    }

    fn add(&mut self, to: &Edge, dy: &Tensor) -> Result<()> {
        for (edge, found) in self.edges.iter().zip(&mut self.found) {
            if edge.is_same(to) {
                add_to(found, dy.clone())?;
            }
        }
        Ok(())
    }
}

fn add_to(sum: &mut Option<Tensor>, dy: Tensor) -> Result<()> {
    *sum = Some(match sum.take() {
        Some(sum) => sum.add(&dy)?,
        None => dy,
    });
    Ok(())
}

/// The gradient that starts a walk: `dy`, or one for a scalar.
fn seed(name: &str, root: &Tensor, dy: Option<&Tensor>) -> Result<Tensor> {
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
