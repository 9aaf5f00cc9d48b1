//! Multistage buffers: software prefetch of MMA operands into a ring of shared-memory stages by `cp.async`.
//!
//! A load in a counted loop whose value goes to dots only, perhaps under another shape, never comes to registers. Each
//! iteration copies what a later one multiplies, from global to shared memory, and reads its own operands from the stage
//! that was filled some iterations ago:
//!
//! ```text
//! 4 stages     iteration:   0    1    2    3    4
//!   prologue                0 1 2
//!   copied                  3    4    5    6    7         into stage (i + 3) % 4
//!   multiplied              0    1    2    3    4         from stage i % 4
//! ```
//!
//! One barrier an iteration is enough: the stage that is filled was read an iteration ago, and the one that is read was
//! waited for by the threads that filled it.
//!
//! Addresses and masks of a later iteration are rematerialized from its index, so they may depend on nothing
//! loop-carried. They may come from memory that nobody writes: page numbers are prefetched too.

use std::collections::BTreeSet;

use super::convert::Conversion;
use super::linear::LinearLayout;
use super::lir::{DotOperand, DotUnit, LayoutIr, MultistageBuffer, StagedLoad, element_bits};
use super::scratch::{SharedPlan, registers_along};
use super::swizzle::operand_plan;
use crate::analysis::is_constant;
use crate::ir::{Def, Func, Op, OpKind, Region, Value};
use crate::tuning::shared::{MULTISTAGE_SPARE_BYTES, multistage_stages};

/// What limits multistage buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultistageLimits {
    /// Slots where a loop does not say; none leaves the choice.
    pub stages: Option<u32>,
    /// Bytes of shared memory that a block may use.
    pub shared_bytes: u32,
}

/// All tiles start at a multiple of this many bytes.
const ALIGNMENT: u32 = 128;

/// Gives the loops of layout IR that can have one a multistage buffer, and their dots the staged operands.
pub(super) fn add_multistage_buffers(lir: &mut LayoutIr, limits: MultistageLimits) {
    for op in lir.func.walk() {
        let OpKind::For(options) = lir.func.op(op).kind else { continue };
        let asked = match options.stages {
            0 => limits.stages,
            stages => Some(u32::from(stages)),
        };
        let found = Finder::new(lir, op).operands();
        let Some(ring) =
            multistage_buffer(lir, op, &found, MultistageLimits { stages: asked, ..limits })
        else {
            continue;
        };
        for found in found {
            let Some(dot) = lir.dots.get_mut(&found.dot) else { continue };
            let side = if found.side == 0 { &mut dot.a } else { &mut dot.b };
            if let DotOperand::Registers(operand) = side {
                operand.staging = Some(found.plan);
                operand.ring = Some(found.load);
            }
        }
        lir.multistage.insert(op, ring);
    }
}

fn multistage_buffer(
    lir: &LayoutIr,
    op: Op,
    found: &[Found],
    limits: MultistageLimits,
) -> Option<MultistageBuffer> {
    let mut ring = MultistageBuffer {
        stages: 0,
        slot_bytes: 0,
        slice: vec![],
        loads: vec![],
        skipped: BTreeSet::new(),
    };
    let mut slice = BTreeSet::new();
    for found in found {
        let (offset, bytes) = (ring.slot_bytes, found.plan.bytes());
        let store = found.plan.store.clone();
        ring.loads.push(StagedLoad { op: found.load, offset, bytes, store });
        ring.slot_bytes += bytes.next_multiple_of(ALIGNMENT);
        ring.skipped.extend(found.views.iter().copied().chain([found.load]));
        slice.extend(found.slice.iter().copied());
    }
    let body = lir.func.region(lir.func.op(op).regions[0]);
    ring.slice = body.ops.iter().copied().filter(|op| slice.contains(op)).collect();
    let left = limits.shared_bytes.saturating_sub(other_bytes(lir, op, found));
    ring.stages = multistage_stages(limits.stages, ring.slot_bytes, left)?;
    Some(ring)
}

/// Bytes that other ops of a loop may need at the same time as its ring.
fn other_bytes(lir: &LayoutIr, op: Op, found: &[Found]) -> u32 {
    let in_ring = |dot: Op, side: usize| found.iter().any(|f| (f.dot, f.side) == (dot, side));
    let largest = ops_within(&lir.func, op)
        .into_iter()
        .map(|inner| match lir.func.op(inner).kind {
            OpKind::Dot { .. } => [&lir.dots[&inner].a, &lir.dots[&inner].b]
                .into_iter()
                .enumerate()
                .filter(|&(side, _)| !in_ring(inner, side))
                .filter_map(|(_, operand)| operand.registers()?.staging.as_ref())
                .map(SharedPlan::bytes)
                .sum(),
            OpKind::ConvertLayout => match lir.conversion(inner) {
                Some(Conversion::Shared(plan)) => plan.bytes(),
                _ => 0,
            },
            _ => 0,
        })
        .max();
    largest.unwrap_or(0) + MULTISTAGE_SPARE_BYTES
}

/// The ops in the regions of an op, at any depth.
fn ops_within(func: &Func, op: Op) -> Vec<Op> {
    let mut found = Vec::new();
    let mut regions = func.op(op).regions.clone();
    while let Some(region) = regions.pop() {
        for &inner in &func.region(region).ops {
            found.push(inner);
            regions.extend(&func.op(inner).regions);
        }
    }
    found
}

/// An operand of a dot that a ring can bring.
struct Found {
    dot: Op,
    side: usize,
    load: Op,
    /// What renames the load's value on its way to the dot.
    views: Vec<Op>,
    slice: Vec<Op>,
    plan: SharedPlan,
}

struct Finder<'l> {
    lir: &'l LayoutIr,
    region: Region,
    uses: Vec<u32>,
    writes: bool,
}

impl<'l> Finder<'l> {
    fn new(lir: &'l LayoutIr, op: Op) -> Finder<'l> {
        let func = &lir.func;
        let writes = |&op: &Op| func.op(op).kind.is_pointer_write();
        Finder {
            lir,
            region: func.op(op).regions[0],
            uses: func.count_uses(),
            writes: ops_within(func, op).iter().any(writes),
        }
    }

    fn operands(&self) -> Vec<Found> {
        let ops = &self.lir.func.region(self.region).ops;
        let dots = ops.iter().filter(|op| self.lir.dots.contains_key(op));
        dots.flat_map(|&dot| [0, 1].map(|side| self.operand(dot, side))).flatten().collect()
    }

    fn operand(&self, dot: Op, side: usize) -> Option<Found> {
        let lir = self.lir;
        let plan = &lir.dots[&dot];
        if matches!(plan.unit, DotUnit::Wgmma(_)) {
            return None;
        }
        let operand = [&plan.a, &plan.b][side].registers()?;
        operand.staging.as_ref()?;
        let value = lir.func.op(dot).operands[side];
        let (load, views) = self.source(value)?;
        let slice = self.slice(load)?;
        // The fragment as a layout of the tile that was loaded: registers keep their numbers.
        let mut fragment = LinearLayout::clone(&operand.fragment);
        for &view in &views {
            let data = lir.func.op(view);
            fragment = match &data.kind {
                OpKind::Transpose { perm } => fragment.untranspose(perm),
                _ => fragment.reshape(lir.func.tile(data.operands[0]).shape),
            };
        }
        let loaded = lir.func.op(load).results[0];
        let bits = element_bits(lir.func.ty(loaded));
        let avoid = registers_along(&operand.fragment, operand.steps(plan.unit, side));
        let plan = operand_plan(lir.layout(loaded)?, &fragment, bits, avoid)?;
        Some(Found { dot, side, load, views, slice, plan })
    }

    /// The load behind a value, if the value is nothing else and nobody else uses it.
    fn source(&self, mut value: Value) -> Option<(Op, Vec<Op>)> {
        let func = &self.lir.func;
        let mut views = Vec::new();
        loop {
            let op = func.def_op(value).filter(|op| self.in_body(*op))?;
            if self.uses[value.index()] != 1 {
                return None;
            }
            let data = func.op(op);
            match data.kind {
                OpKind::ExpandDims { .. } | OpKind::Reshape | OpKind::Transpose { .. } => {
                    views.push(op);
                    value = data.operands[0];
                }
                OpKind::Load => return Some((op, views)),
                _ => return None,
            }
        }
    }

    fn in_body(&self, op: Op) -> bool {
        self.lir.func.region(self.region).ops.contains(&op)
    }

    /// The ops of the body behind a load's address and mask, where a later iteration's follow from its
    /// index alone and nothing is written meanwhile.
    fn slice(&self, load: Op) -> Option<Vec<Op>> {
        let func = &self.lir.func;
        let data = func.op(load);
        let args = &func.region(self.region).args;
        let is_tile = self.lir.accesses.contains_key(&load);
        if !is_tile
            || data.operands.len() > 2
            || self.writes && !is_constant(func, data.operands[0])
        {
            return None;
        }
        let mut slice = Vec::new();
        let mut work = data.operands.clone();
        while let Some(value) = work.pop() {
            let op = match func.value(value).def {
                Def::Argument(region, number) if region == self.region && number > 0 => {
                    return None;
                }
                Def::Argument(..) => continue,
                Def::Result(op, _) => op,
            };
            if !self.in_body(op) || slice.contains(&op) {
                continue;
            }
            let kind = &func.op(op).kind;
            let reads = *kind == OpKind::Load && is_constant(func, func.op(op).operands[0]);
            if !reads && !kind.is_per_thread() {
                return None;
            }
            slice.push(op);
            work.extend(&func.op(op).operands);
        }
        (!args.is_empty()).then_some(slice)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::ir::parse;
    use crate::layout::{LayoutOptions, assign};
    use crate::machine::tests::MATMUL;
    use crate::passes::views;

    #[test]
    fn tiles_of_a_product_run_ahead_of_its_loop() {
        let func = views::run(&parse(&MATMUL.replace("CONSTANT", "")).unwrap()).unwrap();
        let options = LayoutOptions { num_warps: Some(4), ..LayoutOptions::default() };
        let lir = assign(&func, &options).unwrap();
        let buffers = lir.layout_text();
        let lines = buffers.lines().filter(|line| line.contains("ring") || line.contains("dot"));
        expect![[r#"
            // dot: Mma16, staged by staged
            // ring of 4 slots of 8192 bytes: 2 loads run 3 iterations ahead
        "#]]
        .assert_eq(&lines.map(|line| format!("{line}\n")).collect::<String>());
    }
}
