//! Which layout each value gets.
//!
//! Dots, histograms and memory accesses are anchors. From each, its layout goes to every value that can have it
//! for nothing: through elementwise ops both ways, through transposes and unit axes both ways, from a
//! broadcast to its operand, from a tile to its reduction, around loops. It stops where another layout
//! was first, and at an access that would use memory badly.
//!
//! Values that cost next to nothing (constants, `iota`, address and mask arithmetic on them) belong to
//! no layout: conversion insertion rematerializes them in each layout that is used.
//!
//! ```text
//! %x = load %p        anchor: blocked [16, 64]
//! %m = max %x, 1      slice of it, [16]
//! %y = load %q        f32[16], slice too: it meets %m in an add
//! %z = sub %x, broadcast (expand_dims %m)
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use super::coalesce::{BlockedLayouts, CoalescedAccess, is_scannable, memory_op, scan_layout};
use super::histogram;
use super::linear::LinearLayout;
use super::mma;
use crate::analysis::AxisAnalysis;
use crate::ir::{BinaryOp, DType, DotPrecision, Func, Op, OpKind, Region, Shape, Value};
use crate::layout::lir::{DotUnit, WgmmaKind};

/// The most columns of one `wgmma`.
const WGMMA_COLUMNS: usize = 256;

/// A layout shared by many values.
pub(super) type Shared = Arc<LinearLayout>;

/// The layouts of a function's values and what they were found from.
pub(super) struct Infer<'f> {
    pub func: &'f Func,
    pub num_warps: u32,
    pub num_blocks: u32,
    /// Values that are computed in whatever layout is wanted.
    pub free: Vec<bool>,
    /// The layouts of the others.
    pub assigned: Vec<Option<Shared>>,
    /// The layout in which each access goes to memory.
    pub accesses: BTreeMap<Op, Shared>,
    /// The unit of each dot.
    pub units: BTreeMap<Op, (DotUnit, [u32; 2])>,
    /// The layout of each result of a dot, which its unit decides.
    sums: BTreeMap<Value, Shared>,
    pub blocked_layouts: BlockedLayouts,
    coalesced: BTreeMap<Op, CoalescedAccess>,
    /// For each value, the ops that use it, and the op that owns its region or defines it.
    touching: Vec<Vec<Op>>,
    /// For each region, the op that owns it.
    owners: BTreeMap<Region, Op>,
    /// The other names of a loop's variable: region arguments and result.
    partners: BTreeMap<Value, Vec<Value>>,
}

impl<'f> Infer<'f> {
    /// Decides every layout.
    pub(super) fn run(func: &'f Func, [num_warps, num_blocks]: [u32; 2]) -> Infer<'f> {
        let analysis = AxisAnalysis::of(func);
        let walk = func.walk();
        let coalesced: BTreeMap<Op, CoalescedAccess> = walk
            .iter()
            .filter_map(|&op| {
                Some((op, CoalescedAccess::of(func, &analysis, &memory_op(func, op)?)))
            })
            .collect();
        let list: Vec<CoalescedAccess> =
            walk.iter().filter_map(|op| coalesced.get(op).cloned()).collect();
        let mut infer = Infer {
            func,
            num_warps,
            num_blocks,
            free: free_values(func),
            assigned: vec![None; func.n_values()],
            accesses: BTreeMap::new(),
            units: BTreeMap::new(),
            sums: BTreeMap::new(),
            blocked_layouts: BlockedLayouts::new(func, &list, [num_warps, num_blocks]),
            coalesced,
            touching: touching(func),
            owners: owners(func),
            partners: partners(func),
        };
        infer.seed_dots(&walk);
        infer.seed_histograms(&walk);
        infer.seed_accesses(&walk);
        infer.seed_rest(&walk);
        infer
    }

    fn shape(&self, value: Value) -> Shape {
        self.func.ty(value).as_tile().map_or(Shape::SCALAR, |tile| tile.shape)
    }

    /// Whether a value needs a layout of its own.
    fn is_bound(&self, value: Value) -> bool {
        !self.free[value.index()] && !self.shape(value).is_scalar() && !is_shared(self.func, value)
    }

    fn replicated(&self, shape: Shape) -> LinearLayout {
        LinearLayout::replicated(shape, self.num_warps).in_cluster(self.num_blocks)
    }

    /// The layout of a value that has one of its own.
    pub(super) fn layout(&self, value: Value) -> Option<&Shared> {
        self.assigned[value.index()].as_ref()
    }

    /// The layout of a value, or a default where it is free.
    pub(super) fn layout_or_default(&self, value: Value) -> Option<Shared> {
        let shape = self.shape(value);
        if shape.is_scalar() || is_shared(self.func, value) {
            return None;
        }
        Some(self.layout(value).cloned().unwrap_or_else(|| self.blocked_layouts.default(shape)))
    }

    fn seed_dots(&mut self, walk: &[Op]) {
        let dots: Vec<Op> = walk.iter().copied().filter(|&op| self.is_dot(op)).collect();
        let rows = dots.len() > 1 || self.reduces_rows(walk, &dots);
        for &op in &dots {
            let result = self.func.op(op).results[0];
            let (unit, warps) = self.unit(op, rows);
            self.units.insert(op, (unit, warps));
            let shape = self.shape(result);
            let layout = match unit {
                DotUnit::Fma => mma::fma_accumulator(shape, self.num_warps),
                DotUnit::Wgmma(_) => self.wgmma_layout(shape),
                _ => mma::accumulator(shape, warps, self.num_warps),
            };
            self.sums.insert(result, Arc::new(layout.in_cluster(self.num_blocks)));
        }
        for &op in &dots {
            let result = self.func.op(op).results[0];
            self.assign(result, Arc::clone(&self.sums[&result]));
        }
        for &op in &dots {
            self.seed_left_operand(op);
        }
    }

    /// What is multiplied from registers is best made in the registers that the instruction takes.
    fn seed_left_operand(&mut self, op: Op) {
        let left = self.func.op(op).operands[0];
        if let (DotUnit::Wgmma(kind), warps) = self.units[&op]
            && !is_shared(self.func, left)
        {
            let layout = mma::operand_a(self.shape(left), warps, kind.packed(), self.num_warps);
            self.assign(left, Arc::new(layout));
        }
    }

    /// What is counted is best made where it is counted.
    fn seed_histograms(&mut self, walk: &[Op]) {
        for &op in walk {
            let data = self.func.op(op);
            if data.kind != OpKind::Histogram {
                continue;
            }
            let (x, ranks) = (data.operands[0], data.results[0]);
            let layout = Arc::new(self.histogram_layout(self.shape(x)));
            self.assign(ranks, Arc::clone(&layout));
            self.assign(x, layout);
        }
    }

    /// The layout in which a histogram takes its elements and gives their ranks.
    pub(super) fn histogram_layout(&self, shape: Shape) -> LinearLayout {
        histogram::layout(shape, self.num_warps).in_cluster(self.num_blocks)
    }

    /// The layout in which `wgmma` leaves a result, and a store by the copy engine takes its tile.
    pub(super) fn wgmma_layout(&self, shape: Shape) -> LinearLayout {
        let columns = shape.extent(1).min(WGMMA_COLUMNS) as u32;
        mma::wgmma_accumulator(shape, columns, [self.num_warps, self.num_blocks])
    }

    fn is_dot(&self, op: Op) -> bool {
        matches!(self.func.op(op).kind, OpKind::Dot { .. })
    }

    /// Whether a result of a dot may be reduced along its rows: then a row stays in one warp.
    fn reduces_rows(&self, walk: &[Op], dots: &[Op]) -> bool {
        walk.iter().any(|&op| {
            let data = self.func.op(op);
            matches!(data.kind, OpKind::Reduce { axis: 1, .. })
                && dots.iter().any(|&dot| {
                    self.shape(self.func.op(dot).results[0]) == self.shape(data.operands[0])
                })
        })
    }

    fn unit(&self, op: Op, rows: bool) -> (DotUnit, [u32; 2]) {
        let data = self.func.op(op);
        let OpKind::Dot { precision } = data.kind else { return (DotUnit::Fma, [1, 1]) };
        let (a, acc) = (self.func.tile(data.operands[0]), self.func.tile(data.operands[2]));
        if is_shared(self.func, data.operands[1]) {
            let kind = WgmmaKind::of(a.dtype()).expect("TMA is planned for what wgmma multiplies");
            return (DotUnit::Wgmma(kind), [self.num_warps, 1]);
        }
        let (m, n, k) = (acc.shape.extent(0), acc.shape.extent(1), a.shape.extent(1));
        let fits =
            |step: usize| m.is_multiple_of(16) && n.is_multiple_of(8) && k.is_multiple_of(step);
        let unit = match (a.dtype(), acc.dtype(), precision) {
            (DType::F16 | DType::BF16, DType::F32, _) if fits(16) => DotUnit::Mma16,
            (DType::F32, DType::F32, DotPrecision::Tf32) if fits(8) => DotUnit::MmaTf32,
            (DType::F32, DType::F32, DotPrecision::Tf32x3) if fits(8) => DotUnit::MmaTf32x3,
            (DType::I8 | DType::U8, DType::I32, _) if fits(32) => DotUnit::MmaInt8,
            (DType::F64, DType::F64, _) if fits(8) => DotUnit::MmaF64,
            _ => DotUnit::Fma,
        };
        let along_rows = rows && m as u32 / 16 >= self.num_warps;
        let warps = match unit {
            DotUnit::Fma => [1, 1],
            _ if along_rows => [self.num_warps, 1],
            _ => mma::split_warps(acc.shape, self.num_warps),
        };
        (unit, warps)
    }

    fn seed_accesses(&mut self, walk: &[Op]) {
        let mut ops: Vec<(usize, Op)> = walk
            .iter()
            .filter_map(|&op| Some((self.coalesced.get(&op)?.shape.numel(), op)))
            .collect();
        ops.sort_by_key(|&(numel, _)| usize::MAX - numel);
        for &(_, op) in &ops {
            let layout = self.access_layout(op);
            let data = self.func.op(op);
            let values: Vec<Value> = data.results.iter().chain(&data.operands).copied().collect();
            self.accesses.insert(op, Arc::clone(&layout));
            for value in values {
                self.assign(value, Arc::clone(&layout));
            }
        }
    }

    /// The layout in which an access goes to memory: its result's, else that of an operand that has
    /// one which suits the memory, else its own choice.
    fn access_layout(&self, op: Op) -> Shared {
        let data = self.func.op(op);
        let coalesced = &self.coalesced[&op];
        if let Some(layout) = data.results.first().and_then(|&v| self.layout(v)) {
            return Arc::clone(layout);
        }
        let assigned = data.operands.iter().filter_map(|&v| self.layout(v));
        match assigned.into_iter().find(|layout| coalesced.accepts(layout)) {
            Some(layout) => Arc::clone(layout),
            None => self.blocked_layouts.along(coalesced.shape, coalesced.order[0]),
        }
    }

    /// What no anchor reached, in program order.
    fn seed_rest(&mut self, walk: &[Op]) {
        for &op in walk {
            let data = self.func.op(op);
            let values: Vec<Value> = data
                .regions
                .iter()
                .flat_map(|&region| self.func.region(region).args.clone())
                .chain(data.results.iter().copied())
                .collect();
            for value in values {
                if self.is_bound(value) && self.layout(value).is_none() {
                    let layout = self
                        .forward(op)
                        .unwrap_or_else(|| self.blocked_layouts.default(self.shape(value)));
                    self.assign(value, layout);
                }
            }
        }
    }

    /// Gives a value a layout, unless it has one or needs none, and everything that follows.
    fn assign(&mut self, value: Value, layout: Shared) {
        let mut work = vec![(value, layout)];
        while let Some((value, layout)) = work.pop() {
            if !self.is_bound(value) || self.layout(value).is_some() {
                continue;
            }
            if self.refuses(value, &layout) {
                continue;
            }
            debug_assert_eq!(layout.shape, self.shape(value));
            // A loop's argument and result are one variable: nothing may come between them.
            let mut values = vec![value];
            values.extend(self.partners.get(&value).into_iter().flatten());
            for &value in &values {
                self.assigned[value.index()] = Some(Arc::clone(&layout));
            }
            for value in values {
                for &op in &self.touching[value.index()] {
                    self.spread(op, value, &layout, &mut work);
                }
            }
        }
    }

    /// Whether an access could have this layout and use the memory well.
    pub(super) fn suits_memory(&self, op: Op, layout: &LinearLayout) -> bool {
        self.coalesced.get(&op).is_some_and(|coalesced| coalesced.accepts(layout))
    }

    /// Whether a value comes from memory that this layout would use badly, or from a dot whose unit leaves
    /// it in another.
    fn refuses(&self, value: Value, layout: &LinearLayout) -> bool {
        if self.sums.get(&value).is_some_and(|own| **own != *layout) {
            return true;
        }
        let coalesced = self.func.def_op(value).and_then(|op| self.coalesced.get(&op));
        coalesced.is_some_and(|coalesced| !coalesced.accepts(layout))
    }

    /// Adds the values of an op that get a layout because `value` has this one.
    fn spread(&self, op: Op, value: Value, layout: &Shared, work: &mut Vec<(Value, Shared)>) {
        let data = self.func.op(op);
        let from_result = data.results.contains(&value);
        let mut give = |value: Value, layout: LinearLayout| work.push((value, Arc::new(layout)));
        match &data.kind {
            _ if data.kind.is_elementwise() => {
                for &other in data.operands.iter().chain(&data.results) {
                    work.push((other, Arc::clone(layout)));
                }
            }
            kind if kind.is_pointer_access() => {
                let Some(coalesced) = self.coalesced.get(&op) else { return };
                if coalesced.accepts(layout) {
                    for &other in data.operands.iter().chain(&data.results) {
                        work.push((other, Arc::clone(layout)));
                    }
                }
            }
            OpKind::Broadcast if from_result => {
                let operand = data.operands[0];
                give(operand, layout.project(self.shape(operand)));
            }
            OpKind::ExpandDims { .. } | OpKind::Reshape => {
                let other = if from_result { data.operands[0] } else { data.results[0] };
                give(other, layout.reshape(self.shape(other)));
            }
            OpKind::Transpose { perm } if from_result => {
                give(data.operands[0], layout.untranspose(perm));
            }
            OpKind::Transpose { perm } => give(data.results[0], layout.transpose(perm)),
            OpKind::Reduce { .. } | OpKind::Scan { .. } | OpKind::Join | OpKind::Split => {
                self.spread_forward(op, value, layout, work);
            }
            OpKind::Gather { .. } if from_result || value == data.operands[1] => {
                work.push((data.operands[1], Arc::clone(layout)));
                work.push((data.results[0], Arc::clone(layout)));
            }
            OpKind::Scatter { .. } if !from_result => {
                work.push((data.operands[0], Arc::clone(layout)));
                work.push((data.operands[1], Arc::clone(layout)));
            }
            OpKind::Dot { .. } if from_result || value == data.operands[2] => {
                work.push((data.operands[2], Arc::clone(layout)));
                work.push((data.results[0], Arc::clone(layout)));
            }
            kind if kind.is_control_flow() => {
                for other in self.carried_with(op, value) {
                    work.push((other, Arc::clone(layout)));
                }
            }
            _ => {}
        }
    }

    fn spread_forward(
        &self,
        op: Op,
        value: Value,
        layout: &Shared,
        work: &mut Vec<(Value, Shared)>,
    ) {
        let data = self.func.op(op);
        if data.results.contains(&value) {
            let operand = match data.kind {
                OpKind::Join => layout.split(),
                OpKind::Split => Some(layout.join()),
                _ => None,
            };
            if let Some(operand) = operand.map(Arc::new) {
                work.extend(data.operands.iter().map(|&v| (v, Arc::clone(&operand))));
            }
            work.extend(data.results.iter().map(|&v| (v, Arc::clone(layout))));
            return;
        }
        work.extend(data.operands.iter().map(|&v| (v, Arc::clone(layout))));
        if self.forward_operand(op).as_ref() == Some(layout)
            && let Some(result) = self.forward(op)
        {
            work.extend(data.results.iter().map(|&v| (v, Arc::clone(&result))));
        }
    }

    /// The layout in which `reduce`, `scan`, `join` and `split` take their operands.
    pub(super) fn forward_operand(&self, op: Op) -> Option<Shared> {
        let data = self.func.op(op);
        let &first = data.operands.first()?;
        let layout = self.layout_or_default(first)?;
        match data.kind {
            OpKind::Reduce { .. } | OpKind::Join => Some(layout),
            OpKind::Scan { axis, .. } if is_scannable(&layout, axis as usize) => Some(layout),
            OpKind::Scan { axis, .. } => Some(Arc::new(scan_layout(&layout, axis as usize))),
            OpKind::Split if layout.split().is_some() => Some(layout),
            OpKind::Split => {
                let half = layout.shape.without(layout.shape.rank() - 1);
                Some(Arc::new(match half.is_scalar() {
                    true => self.replicated(layout.shape),
                    false => self.blocked_layouts.default(half).join(),
                }))
            }
            _ => None,
        }
    }

    /// The layout in which `reduce`, `scan`, `join` and `split` give their results.
    pub(super) fn forward(&self, op: Op) -> Option<Shared> {
        let data = self.func.op(op);
        let Some(operand) = self.forward_operand(op) else {
            // Two scalars: every thread holds both.
            let joined = data.kind == OpKind::Join;
            let shape = self.shape(*data.results.first()?);
            return joined.then(|| Arc::new(self.replicated(shape)));
        };
        let result = match data.kind {
            OpKind::Reduce { axis, .. } => operand.slice(axis as usize),
            OpKind::Scan { .. } => return Some(operand),
            OpKind::Join => operand.join(),
            OpKind::Split => operand.split()?,
            _ => return None,
        };
        (!result.shape.is_scalar()).then(|| Arc::new(result))
    }

    /// The values that are the same variable as `value` in a loop or branch: initial value, region
    /// argument, what is yielded, result.
    fn carried_with(&self, op: Op, value: Value) -> Vec<Value> {
        self.variables(op)
            .into_iter()
            .find(|variable| variable.contains(&value))
            .unwrap_or_default()
    }

    /// The variables of a loop or branch.
    fn variables(&self, op: Op) -> Vec<Vec<Value>> {
        let data = self.func.op(op);
        let yields: Vec<Vec<Value>> = data
            .regions
            .iter()
            .map(|&region| yielded(self.func, region).unwrap_or_default())
            .collect();
        let args: Vec<Vec<Value>> =
            data.regions.iter().map(|&region| self.func.region(region).args.clone()).collect();
        let lists: Vec<&[Value]> = match data.kind {
            OpKind::For(_) => vec![&data.operands[3..], &args[0][1..], &yields[0], &data.results],
            OpKind::While => {
                vec![&data.operands, &args[0], &args[1], &yields[1], &data.results]
            }
            OpKind::If => yields.iter().map(Vec::as_slice).chain([&data.results[..]]).collect(),
            _ => vec![],
        };
        (0..data.results.len())
            .map(|i| lists.iter().filter_map(|list| list.get(i)).copied().collect())
            .collect()
    }

    /// The layout in which each value that a region ends with is wanted.
    pub(super) fn wanted_by_yield(&self, region: Region) -> Vec<Option<Shared>> {
        let Some(&op) = self.owners.get(&region) else { return vec![] };
        let data = self.func.op(op);
        match data.kind {
            OpKind::For(_) | OpKind::If => {
                data.results.iter().map(|&v| self.layout(v).cloned()).collect()
            }
            OpKind::While if region == data.regions[1] => {
                data.results.iter().map(|&v| self.layout(v).cloned()).collect()
            }
            _ => vec![],
        }
    }
}

/// Whether a tile stays in shared memory, where the copy engine puts it.
pub(super) fn is_shared(func: &Func, value: Value) -> bool {
    let kind = func.def_op(value).map(|op| &func.op(op).kind);
    let Some(OpKind::TmaLoad(load)) = kind else { return false };
    func.tma.loads.get(usize::from(*load)).is_none_or(|load| !load.registers)
}

/// What a region ends with, unless it ends the program.
pub(super) fn yielded(func: &Func, region: Region) -> Option<Vec<Value>> {
    let last = func.op(*func.region(region).ops.last()?);
    matches!(last.kind, OpKind::Yield).then(|| last.operands.clone())
}

fn owners(func: &Func) -> BTreeMap<Region, Op> {
    let walk = func.walk();
    walk.iter().flat_map(|&op| func.op(op).regions.iter().map(move |&r| (r, op))).collect()
}

/// For each value the ops that relate it to others: definition, uses, and the loop or branch that it
/// enters or leaves.
fn touching(func: &Func) -> Vec<Vec<Op>> {
    let mut touching = vec![Vec::new(); func.n_values()];
    for op in func.walk() {
        let data = func.op(op);
        let mut values: Vec<Value> = data.operands.iter().chain(&data.results).copied().collect();
        for &region in &data.regions {
            values.extend(&func.region(region).args);
            values.extend(yielded(func, region).unwrap_or_default());
        }
        for value in values {
            let ops: &mut Vec<Op> = &mut touching[value.index()];
            if ops.last() != Some(&op) {
                ops.push(op);
            }
        }
    }
    touching
}

/// For each argument and result of a loop, the other arguments and the result that are the same
/// variable.
fn partners(func: &Func) -> BTreeMap<Value, Vec<Value>> {
    let mut partners = BTreeMap::new();
    for op in func.walk() {
        let data = func.op(op);
        let skip = match data.kind {
            OpKind::For(_) => 1,
            OpKind::While => 0,
            _ => continue,
        };
        for (i, &result) in data.results.iter().enumerate() {
            let args = data.regions.iter().map(|&region| func.region(region).args[i + skip]);
            let all: Vec<Value> = args.chain([result]).collect();
            for &value in &all {
                let others = all.iter().copied().filter(|&other| other != value).collect();
                partners.insert(value, others);
            }
        }
    }
    partners
}

/// Ops that a value may cost and still be computed again: about what moving it would cost.
const FREE_COST: u32 = 64;

/// Tiles that are computed from scalars and `iota` by a few cheap ops.
fn free_values(func: &Func) -> Vec<bool> {
    let mut costs: Vec<Option<u32>> = vec![None; func.n_values()];
    for op in func.walk() {
        let data = func.op(op);
        let &[result] = data.results.as_slice() else { continue };
        let own = match &data.kind {
            OpKind::Iota => 0,
            kind if kind.is_view() => 0,
            OpKind::Binary(BinaryOp::Div | BinaryOp::Rem) => 16,
            kind if kind.is_elementwise() && !kind.is_expensive() => 1,
            _ => continue,
        };
        let mut operands = data.operands.iter().map(|&v| match func.ty(v).as_tile() {
            Some(tile) if !tile.shape.is_scalar() => costs[v.index()],
            _ => Some(0),
        });
        let total = operands.try_fold(own, |sum, cost| Some(sum + cost?));
        costs[result.index()] = total.filter(|&cost| cost <= FREE_COST);
    }
    let is_tile =
        |i: usize| func.ty(Value(i as u32)).as_tile().is_some_and(|tile| !tile.shape.is_scalar());
    costs.iter().enumerate().map(|(i, cost)| cost.is_some() && is_tile(i)).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ir::parse;
    use crate::ir::print::names;
    use crate::layout::assign::tests::NORM;

    /// The layout of each value that has one of its own.
    fn layouts(text: &str) -> String {
        let func = parse(text).unwrap();
        let infer = Infer::run(&func, [4, 1]);
        let names = names(&func);
        let values = (0..func.n_values()).map(|index| Value(index as u32));
        let one = |value| Some(format!("%{}: {}\n", names.get(&value)?, infer.layout(value)?));
        values.filter_map(one).collect()
    }

    #[test]
    fn an_access_gives_its_layout_to_what_is_computed_from_it() {
        expect![[r#"
            %12: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
            %13: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
            %14: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
            %15: reg [] lane [0, 0, 0, 0, 0] warp [1, 2]
            %16: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
            %17: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
            %20: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [0, 0]
            %21: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [0, 0]
            %22: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
            %23: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
            %24: reg [1, 2, 4] lane [8, 16, 32, 64, 128] warp [256, 512]
        "#]]
        .assert_eq(&layouts(NORM));
    }
}
