//! From a trace to launches: what is inlined, what is stored, which kernel stores it.
//!
//! A value is stored where it is a result, a reduction, or where it is read in another order than it is
//! computed in, such as turned; all else is computed where it is needed. Stored values of one shape that
//! need nothing of each other come from one kernel.

use std::collections::{BTreeMap, BTreeSet};

use genesis_kernel::compose::{Access, Fold, Form, Source, StepKind, compose};
use genesis_kernel::ir::{DType, Scalar};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::runtime::{Arg, Device};

use super::inline::{Inline, Numbers, Stop, padded};
use crate::dispatch::trace::{Kind, Node, Reduction, Trace, Use};
use crate::error::{Error, Result};
use crate::launch::{self, accumulate_dtype, fused};
use crate::shape::{self, Layout, contiguous_strides, inverse, reordered};
use crate::tensor::Tensor;

/// Launches in order, over slots: the leaves, then what is stored.
pub(super) struct Program {
    device: Device,
    stages: Vec<Stage>,
    /// What is stored, after the leaves.
    stored: Vec<(Vec<usize>, DType)>,
    captured: Vec<Tensor>,
    results: Vec<(usize, Layout, DType)>,
    n_inputs: usize,
}

/// One launch.
enum Stage {
    Kernel(Kernel),
    Fill { slot: usize, value: Scalar },
    Reduce { from: usize, layout: Layout, dtype: DType, to: usize, fold: Reduction, scale: f64 },
}

/// A composed kernel and its operands.
pub(super) struct Kernel {
    pub(super) def: &'static KernelDef,
    pub(super) walk: fused::Walk,
    size: fused::Size,
    operands: Vec<fused::Operand>,
    numbers: Vec<Arg>,
    writes: Vec<usize>,
}

impl Program {
    /// Plans a trace of this many arguments.
    pub(super) fn new(
        trace: Trace,
        n: usize,
        results: &[Use],
        (device, numbers): (Device, Numbers),
    ) -> Result<Program> {
        let mut barriers = BTreeSet::new();
        loop {
            let mut planner = Planner::new(&trace, n, (device, numbers), &barriers);
            match planner.plan(results) {
                Ok(()) => {
                    let Planner { stages, stored, slots, layouts, .. } = planner;
                    let of = |u: &Use| {
                        let layout = layouts.get(&u.node).unwrap_or(&u.layout);
                        (slots[&u.node], layout.clone(), u.dtype)
                    };
                    let results = results.iter().map(of).collect();
                    let captured = trace.captured.into_iter().map(|(_, t)| t).collect();
                    return Ok(Program { device, stages, stored, captured, results, n_inputs: n });
                }
                Err(Stop::Needs(node)) if barriers.insert(node) => {}
                Err(Stop::Needs(_)) => {
                    return Err(Error::op("fuse", "a value can't be brought into order"));
                }
                Err(Stop::Error(error)) => return Err(error),
            }
        }
    }

    /// The composed kernels.
    pub(super) fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.stages.iter().filter_map(|stage| match stage {
            Stage::Kernel(kernel) => Some(kernel),
            Stage::Fill { .. } | Stage::Reduce { .. } => None,
        })
    }

    /// Runs the launches; gives the results in order.
    #[track_caller]
    pub(super) fn run(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let given = inputs.iter().map(|&t| Some(t.clone()));
        let own = self.captured.iter().map(|t| Some(t.clone()));
        let mut slots: Vec<Option<Tensor>> = given.chain(own).collect();
        let n_leaves = slots.len();
        debug_assert_eq!(inputs.len(), self.n_inputs);
        slots.resize(n_leaves + self.stored.len(), None);
        let make = |slot: usize| {
            let (shape, dtype) = &self.stored[slot - n_leaves];
            Tensor::uninitialized(shape, (*dtype, self.device)).map(Some)
        };
        for stage in &self.stages {
            match stage {
                Stage::Kernel(Kernel { def, size, operands, numbers, writes, .. }) => {
                    for &slot in writes {
                        slots[slot] = make(slot)?;
                    }
                    fused::composed(def, size, operands, &slots, numbers)?;
                }
                Stage::Fill { slot, value } => {
                    slots[*slot] = make(*slot)?;
                    launch::fill(slot_of(&slots, *slot), *value)?;
                }
                Stage::Reduce { from, layout, dtype, to, fold, scale } => {
                    slots[*to] = make(*to)?;
                    let x = seen(slot_of(&slots, *from), layout, *dtype)?;
                    let y = slot_of(&slots, *to);
                    match fold {
                        Reduction::Sum => launch::sum(&x, y, *scale)?,
                        Reduction::Extreme(kernels) => launch::extreme(*kernels, &x, y)?,
                    }
                }
            }
        }
        let result = |(slot, layout, dtype): &(usize, Layout, DType)| {
            let view = seen(slot_of(&slots, *slot), layout, *dtype)?;
            if *slot < n_leaves { view.copy() } else { Ok(view) }
        };
        self.results.iter().map(result).collect()
    }
}

fn slot_of(slots: &[Option<Tensor>], slot: usize) -> &Tensor {
    slots[slot].as_ref().expect("a tensor is made before it is used")
}

/// A tensor's memory in another layout, counted from the lowest of its elements.
fn seen(t: &Tensor, layout: &Layout, dtype: DType) -> Result<Tensor> {
    let moved = layout.at(layout.offset() + t.layout().start());
    let moved = moved.ok_or_else(|| Error::op("fuse", "a view leaves its tensor"))?;
    Ok(Tensor::plain(t.storage().clone(), moved, dtype))
}

type Step<T = ()> = std::result::Result<T, Stop>;

struct Planner<'a> {
    nodes: &'a [Node],
    device: Device,
    numbers: Numbers,
    /// Values that are stored because of how they are read.
    barriers: &'a BTreeSet<usize>,
    /// Slots of leaves and of what is stored so far.
    slots: BTreeMap<usize, usize>,
    n_leaves: usize,
    stored: Vec<(Vec<usize>, DType)>,
    /// Results that nothing but the caller reads, as a whole: they may lie in any order.
    free: BTreeSet<usize>,
    /// Those of them that do not lie in row-major order.
    layouts: BTreeMap<usize, Layout>,
    stages: Vec<Stage>,
}

impl<'a> Planner<'a> {
    fn new(
        trace: &'a Trace,
        n_inputs: usize,
        (device, numbers): (Device, Numbers),
        barriers: &'a BTreeSet<usize>,
    ) -> Planner<'a> {
        let captured = trace.captured.iter().map(|(node, _)| *node);
        let slots: BTreeMap<usize, usize> =
            (0..n_inputs).chain(captured).enumerate().map(|(slot, node)| (node, slot)).collect();
        let n_leaves = slots.len();
        Planner {
            nodes: &trace.nodes,
            device,
            numbers,
            barriers,
            slots,
            n_leaves,
            stored: Vec::new(),
            free: BTreeSet::new(),
            layouts: BTreeMap::new(),
            stages: Vec::new(),
        }
    }

    fn plan(&mut self, results: &[Use]) -> Step {
        let mut needed = BTreeSet::new();
        let mut next: Vec<usize> = results.iter().map(|u| u.node).collect();
        while let Some(node) = next.pop() {
            if needed.insert(node) {
                next.extend(uses(&self.nodes[node]).iter().map(|u| u.node));
            }
        }
        let wanted: BTreeSet<usize> = results.iter().map(|u| u.node).collect();
        self.free = self.results_that_may_lie_anyhow(results, &needed);
        let mut levels: BTreeMap<usize, usize> = BTreeMap::new();
        // The values to store, by level, then by shape; those before come first.
        let mut groups: BTreeMap<(usize, Vec<usize>), Vec<usize>> = BTreeMap::new();
        for &node in &needed {
            let ends = |u: &Use| {
                let is_fold = matches!(self.nodes[u.node].kind, Kind::Fold { .. });
                levels[&u.node] + usize::from(is_fold || self.barriers.contains(&u.node))
            };
            let level = uses(&self.nodes[node]).iter().map(ends).max().unwrap_or(0);
            levels.insert(node, level);
            let is_stored = wanted.contains(&node) || self.barriers.contains(&node);
            match self.nodes[node].kind {
                Kind::Leaf => {}
                // Reductions of one shape come together: no shape is that of their key.
                Kind::Fold { ref from, .. } => {
                    let operand = &self.nodes[from.node].shape[..];
                    let key = [&[usize::MAX], from.layout.shape(), operand].concat();
                    groups.entry((level, key)).or_default().push(node);
                }
                _ if is_stored => {
                    groups.entry((level, self.nodes[node].shape.clone())).or_default().push(node);
                }
                _ => {}
            }
        }
        for members in groups.values() {
            match &self.nodes[members[0]].kind {
                Kind::Fold { .. } => self.folds(members)?,
                _ => self.store(members)?,
            }
        }
        Ok(())
    }

    fn results_that_may_lie_anyhow(
        &self,
        results: &[Use],
        needed: &BTreeSet<usize>,
    ) -> BTreeSet<usize> {
        let is_whole = |u: &&Use| {
            let node = &self.nodes[u.node];
            u.layout.is_contiguous()
                && u.layout.offset() == 0
                && u.layout.shape() == node.shape
                // A truth that was computed as a byte is seen as one.
                && u.dtype.bytes() == node.dtype.bytes()
        };
        let mut free: BTreeSet<usize> = results.iter().filter(is_whole).map(|u| u.node).collect();
        let in_part = results.iter().filter(|u| !is_whole(u));
        let read = needed.iter().flat_map(|&node| uses(&self.nodes[node]));
        for u in read.chain(in_part) {
            free.remove(&u.node);
        }
        free
    }

    fn new_slot(&mut self, shape: Vec<usize>, dtype: DType) -> usize {
        self.stored.push((shape, dtype));
        self.n_leaves + self.stored.len() - 1
    }

    /// One kernel that stores values of one shape.
    fn store(&mut self, members: &[usize]) -> Step {
        let (fills, members): (Vec<usize>, Vec<usize>) =
            members.iter().partition(|&&node| matches!(self.nodes[node].kind, Kind::Number(_)));
        for node in fills {
            let slot = self.new_slot(self.nodes[node].shape.clone(), self.nodes[node].dtype);
            if let Kind::Number(value) = self.nodes[node].kind {
                self.stages.push(Stage::Fill { slot, value });
            }
            self.slots.insert(node, slot);
        }
        let Some(&first) = members.first() else { return Ok(()) };
        let shape = &self.nodes[first].shape;
        let mut inline = Inline::new(self.nodes, &self.slots, shape.clone(), self.numbers);
        let mut results = Vec::new();
        for &node in &members {
            let from = inline.value(node, &contiguous_strides(shape), 0)?;
            results.push((from, self.nodes[node].dtype));
        }
        let order = match members.iter().all(|node| self.free.contains(node)) {
            true => inline.walk_as_read(),
            false => None,
        };
        let (dims, strides) = inline.collapsed();
        let form = match dims.len() {
            ..=1 => Form::Flat,
            2 => Form::Matrix,
            3 | 4 => Form::Strided,
            n => {
                let message = format!(
                    "operands of shape {shape:?} lie along {n} axes in memory, at most 4 can be \
                     walked; call `contiguous` on them before"
                );
                return Err(Stop::Error(Error::op("fuse", message)));
            }
        };
        let rank = if form == Form::Strided { 4 } else { dims.len().max(1) };
        let (recipe, mut operands) = inline.recipe(form, results, &dims, &strides, rank)?;
        let numbers = inline.params();
        let own = padded(&dims, rank, 1);
        let mut writes = Vec::new();
        for &node in &members {
            let slot = self.new_slot(self.nodes[node].shape.clone(), self.nodes[node].dtype);
            self.slots.insert(node, slot);
            if let Some(order) = &order {
                let layout = Layout::contiguous(&reordered(shape, order));
                let layout = layout.and_then(|layout| layout.permute(&inverse(order)));
                self.layouts.insert(node, layout.ok_or(Stop::Needs(node))?);
            }
            writes.push(slot);
            let strides = contiguous_strides(&own);
            let dims = own.iter().map(|&extent| extent as i64).collect();
            operands.push(fused::Operand { slot, offset: 0, dims, strides, mutable: true });
        }
        self.push(&recipe, &own, operands, numbers, writes)
    }

    fn push(
        &mut self,
        recipe: &genesis_kernel::compose::Recipe,
        dims: &[usize],
        operands: Vec<fused::Operand>,
        numbers: Vec<Arg>,
        writes: Vec<usize>,
    ) -> Step {
        let walk = self.walk(recipe, dims, &operands);
        let size = walk.size(self.device);
        let refused =
            |error: genesis_kernel::Error| Stop::Error(Error::op("fuse", error.to_string()));
        let def = compose(recipe).map_err(refused)?;
        self.stages.push(Stage::Kernel(Kernel { def, walk, size, operands, numbers, writes }));
        Ok(())
    }

    /// How a kernel walks; `operands` are the tensors that it reads, and perhaps others after them.
    fn walk(
        &self,
        recipe: &genesis_kernel::compose::Recipe,
        dims: &[usize],
        operands: &[fused::Operand],
    ) -> fused::Walk {
        let stored = recipe.results.iter().map(|&(_, dtype)| dtype);
        // What is computed in wider numbers than it is stored in takes as many registers.
        let computed = recipe.steps.iter().flat_map(|step| match &step.kind {
            StepKind::Kernel(_, dtypes, _) => dtypes.as_slice(),
            StepKind::Cast(dtype) | StepKind::NotZero(dtype) => std::slice::from_ref(dtype),
        });
        let dtypes =
            recipe.leaves.iter().map(|leaf| leaf.dtype).chain(stored).chain(computed.copied());
        let mut four = [1; 4];
        four[4 - dims.len()..].copy_from_slice(dims);
        fused::Walk {
            form: recipe.form,
            is_turned: self.device.is_cuda()
                && recipe.form == Form::Rows
                && are_turned(recipe, operands),
            dims: four,
            folds: recipe.folds.len().max(1),
            tensors: recipe.leaves.len() + recipe.results.len(),
            bytes: dtypes.map(DType::bytes).max().unwrap_or(4),
        }
    }

    /// Reductions of one shape. Those that read a tensor in common are one kernel, which reads it once.
    fn folds(&mut self, members: &[usize]) -> Step {
        let mut fresh = Vec::new();
        for &node in members {
            let Folded { fold, from, scale } = self.folded(node);
            let Some(&slot) = self.slots.get(&from.node) else {
                fresh.push(node);
                continue;
            };
            let to = self.new_slot(self.nodes[node].shape.clone(), self.nodes[node].dtype);
            self.slots.insert(node, to);
            let (layout, dtype) = (from.layout.clone(), from.dtype);
            self.stages.push(Stage::Reduce { from: slot, layout, dtype, to, fold, scale });
        }
        for together in fresh.chunks(MOST_FOLDS) {
            match self.share_tensors(together) {
                true => self.fold_rows(together)?,
                false => together.iter().try_for_each(|&node| self.fold_rows(&[node]))?,
            }
        }
        Ok(())
    }

    fn folded(&self, node: usize) -> Folded<'a> {
        match &self.nodes[node].kind {
            Kind::Fold { fold, from, scale } => Folded { fold: *fold, from, scale: *scale },
            _ => unreachable!("only reductions are reduced"),
        }
    }

    /// Whether one kernel of several reductions reads less than one for each, along the same lines of memory.
    fn share_tensors(&self, nodes: &[usize]) -> bool {
        let reads = |nodes: &[usize]| {
            let rows = self.rows(nodes).ok()?;
            Some((rows.read.len(), rows.is_turned))
        };
        let each: Option<Vec<_>> = nodes.iter().map(|&node| reads(&[node])).collect();
        let (Some(each), Some((all, is_turned))) = (each, reads(nodes)) else { return false };
        let apart: usize = each.iter().map(|&(reads, _)| reads).sum();
        nodes.len() > 1 && all < apart && each.iter().all(|&(_, turned)| turned == is_turned)
    }

    /// How a kernel of reductions of one shape walks the last axes of what is reduced.
    fn rows(&self, nodes: &[usize]) -> Step<Rows<'_>> {
        let first = self.folded(nodes[0]).from;
        let operand = &self.nodes[first.node];
        let needs = || Stop::Needs(first.node);
        let [outer, n, inner] = first.layout.shape()[..] else { return Err(needs()) };
        let Some(kept) = split(&operand.shape, outer, n) else { return Err(needs()) };
        let mut inline = Inline::new(self.nodes, &self.slots, operand.shape.clone(), self.numbers);
        let (mut values, mut folds) = (Vec::new(), Vec::new());
        for &node in nodes {
            let Folded { fold, from, .. } = self.folded(node);
            let own = &self.nodes[from.node];
            let is_whole = from.layout.is_contiguous() && from.layout.offset() == 0;
            if inner != 1 || !is_whole || outer * n == 0 || from.dtype != own.dtype {
                return Err(Stop::Needs(from.node));
            }
            // Truths and narrow integers are added up in the dtype of their sum.
            let wide = match own.dtype {
                dtype if dtype.is_float() => accumulate_dtype(dtype),
                _ => self.nodes[node].dtype,
            };
            folds.push(match fold {
                Reduction::Sum => Fold::Sum(wide),
                Reduction::Extreme([rows, ..]) if rows.name() == "max_rows" => Fold::Max,
                Reduction::Extreme(..) => Fold::Min,
            });
            let value = inline.value(from.node, &contiguous_strides(&own.shape), 0)?;
            values.push((value, own.dtype));
        }
        inline.reduce_as_read(kept);
        let strides = inline.rows(kept).ok_or_else(needs)?;
        let dims = [outer, n];
        let (mut recipe, read) = inline.recipe(Form::Rows, values.clone(), &dims, &strides, 2)?;
        recipe.folds.clone_from(&folds);
        let walk = self.walk(&recipe, &dims, &read);
        let parts = walk.size(self.device).parts;
        let is_turned = walk.is_turned;
        Ok(Rows { inline, strides, dims, values, folds, read, parts, is_turned })
    }

    /// Reductions in the kernel that computes what is reduced, which is along the last axes.
    fn fold_rows(&mut self, nodes: &[usize]) -> Step {
        let Rows { inline, strides, dims, values, folds, parts, .. } = self.rows(nodes)?;
        let [outer, n] = dims;
        let stored = |(&fold, &node): (&Fold, &usize)| match (parts, fold) {
            (1, _) | (_, Fold::Max | Fold::Min) => self.nodes[node].dtype,
            (_, Fold::Sum(wide)) => wide,
        };
        let dtypes: Vec<DType> = folds.iter().zip(nodes).map(stored).collect();
        let results = values.iter().zip(&dtypes).map(|(&(value, _), &to)| (value, to)).collect();
        let (mut recipe, mut operands) = inline.recipe(Form::Rows, results, &dims, &strides, 2)?;
        recipe.folds.clone_from(&folds);
        let mut numbers = vec![Arg::Scalar(Scalar::int(DType::I64, n as i64))];
        let given = inline.params();
        let (mut writes, mut ends) = (Vec::new(), Vec::new());
        for ((&node, &fold), &dtype) in nodes.iter().zip(&folds).zip(&dtypes) {
            let Folded { fold: kind, scale, .. } = self.folded(node);
            let to = self.new_slot(self.nodes[node].shape.clone(), self.nodes[node].dtype);
            let slot = if parts == 1 { to } else { self.new_slot(vec![outer, parts], dtype) };
            let (dims, strides) = (vec![outer as i64, parts as i64], vec![parts as i64, 1]);
            operands.push(fused::Operand { slot, offset: 0, dims, strides, mutable: true });
            if let Fold::Sum(wide) = fold {
                numbers.push(launch::number(wide, if parts == 1 { scale } else { 1.0 }));
            }
            writes.push(slot);
            if parts > 1 {
                let layout = Layout::contiguous(&[outer, parts, 1]).ok_or(Stop::Needs(node))?;
                ends.push(Stage::Reduce { from: slot, layout, dtype, to, fold: kind, scale });
            }
            self.slots.insert(node, to);
        }
        numbers.extend(given);
        self.push(&recipe, &[outer, n], operands, numbers, writes)?;
        self.stages.extend(ends);
        Ok(())
    }
}

/// The most reductions of one kernel: each keeps a tile of registers.
const MOST_FOLDS: usize = 4;

/// A reduction of the middle axis of three.
struct Folded<'a> {
    fold: Reduction,
    from: &'a Use,
    scale: f64,
}

/// Reductions of rows, in the making.
struct Rows<'a> {
    inline: Inline<'a>,
    /// Of each tensor that is read, along rows and columns.
    strides: Vec<Vec<i64>>,
    dims: [usize; 2],
    /// What is reduced, and the dtype of that.
    values: Vec<(Source, DType)>,
    folds: Vec<Fold>,
    read: Vec<fused::Operand>,
    /// Programs that share a row.
    parts: usize,
    is_turned: bool,
}

/// Whether all matrices that are read lie with their rows beside one another, as transposed ones do.
fn are_turned(recipe: &genesis_kernel::compose::Recipe, operands: &[fused::Operand]) -> bool {
    let matrices =
        recipe.leaves.iter().zip(operands).filter(|(leaf, _)| leaf.access == Access::Full);
    let mut turned = matrices.map(|(_, of)| of.strides[0] == 1 && of.strides[1] > 1);
    turned.next() == Some(true) && turned.all(|is_turned| is_turned)
}

/// What a node is made of.
fn uses(node: &Node) -> &[Use] {
    match &node.kind {
        Kind::Leaf | Kind::Number(_) => &[],
        Kind::Map { uses, .. } => uses,
        Kind::Fold { from, .. } => std::slice::from_ref(from),
    }
}

/// The number of leading axes with `outer` elements, where the others have `n`.
fn split(shape: &[usize], outer: usize, n: usize) -> Option<usize> {
    (0..=shape.len()).find(|&kept| {
        shape::product(&shape[..kept]) == outer && shape::product(&shape[kept..]) == n
    })
}
