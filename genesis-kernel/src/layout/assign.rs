//! From tile IR to layout IR.
//!
//! `assign` takes a function without views whose extents are powers of two, decides the layout of
//! every value, writes conversions where two meet, and says how each access goes to memory and each
//! dot to its unit.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::choose_warps::choose_warps;
use super::coalesce::{CoalescedAccess, memory_op};
use super::convert::stays_in_block;
use super::infer::{Infer, is_shared};
use super::insert_conversions::{Converted, fragment, insert_conversions};
use super::linear::HwBit;
use super::lir::{
    Access, DotOperand, DotPlan, DotUnit, LayoutIr, LayoutOptions, RegisterOperand, SharedOperand,
    element_bits,
};
use super::multistage::{MultistageLimits, add_multistage_buffers};
use super::resident::hoist_operands;
use super::scratch::{SharedPlan, registers_along};
use super::swizzle::operand_plan;
use super::warp_specialization;
use crate::analysis::AxisAnalysis;
use crate::diag::Diagnostic;
use crate::ir::{Def, DotPrecision, Func, Op, OpKind, Type, Value};
use crate::tuning::multiprocessor::{
    LEAST_SHARED_BYTES, MAX_BLOCK_WARPS, MAX_CLUSTER, WARP_THREADS,
};
use crate::tuning::registers::MAX_TILE_ELEMENTS;

/// Gives every tile of a function a layout.
///
/// # Errors
/// If the number of warps is not a power of two up to 32, or the function still has views or extents
/// that are not powers of two.
pub fn assign(func: &Func, options: &LayoutOptions) -> Result<LayoutIr, Diagnostic> {
    check_input(func)?;
    let num_warps = options.num_warps.unwrap_or_else(|| choose_warps(func));
    if !num_warps.is_power_of_two() || num_warps > MAX_BLOCK_WARPS {
        let message = format!("{num_warps} warps were asked for `{}`", func.name);
        return Err(
            Diagnostic::new(message, None).help("the number of warps is 1, 2, 4, 8, 16 or 32")
        );
    }
    let num_blocks = cluster_size(func, options)?;
    let infer = Infer::run(func, [num_warps, num_blocks]);
    check_size(&infer)?;
    let Converted { func, mut layouts, dots } = insert_conversions(&infer);
    layouts.resize(func.n_values(), None);
    let mut lir = LayoutIr {
        func,
        layouts,
        num_warps,
        num_blocks,
        accesses: BTreeMap::new(),
        dots: BTreeMap::new(),
        multistage: BTreeMap::new(),
        producer: None,
        program_bytes: options.program_bytes,
    };
    if num_blocks > 1 {
        check_cluster(&lir)?;
    }
    lir.accesses = accesses(&lir);
    lir.dots = dots.iter().map(|&(new, old)| (new, dot_plan(&infer, &lir, new, old))).collect();
    hoist_operands(&mut lir);
    let shared_bytes = match options.max_shared_bytes {
        0 => LEAST_SHARED_BYTES,
        bytes => bytes,
    };
    if lir.func.tma.loads.is_empty() {
        add_multistage_buffers(
            &mut lir,
            MultistageLimits { stages: options.num_stages, shared_bytes },
        );
    } else {
        warp_specialization::choose_stages(&mut lir, options.max_shared_bytes);
        let producer = warp_specialization::producer(&lir.func);
        lir.producer = Some(producer.map_err(|why| Diagnostic::new(why, None))?);
    }
    debug_assert_eq!(super::verify(&lir), Ok(()));
    Ok(lir)
}

fn check_input(func: &Func) -> Result<(), Diagnostic> {
    for op in func.walk() {
        let data = func.op(op);
        let args = data.regions.iter().flat_map(|&region| &func.region(region).args);
        for &value in data.operands.iter().chain(&data.results).chain(args) {
            match func.ty(value) {
                Type::View { .. } => {
                    return Err(Diagnostic::new("views are lowered before layouts", data.loc));
                }
                Type::Tile(tile) if !tile.shape.extents().iter().all(|e| e.is_power_of_two()) => {
                    let message = format!("a tile of shape {} was not padded", tile.shape);
                    return Err(Diagnostic::new(message, data.loc));
                }
                Type::Tile(_) => {}
            }
        }
    }
    Ok(())
}

/// Blocks of a cluster, as the caller wants it.
fn cluster_size(func: &Func, options: &LayoutOptions) -> Result<u32, Diagnostic> {
    let blocks = options.cluster.unwrap_or(1);
    if !blocks.is_power_of_two() || blocks > MAX_CLUSTER {
        let message = format!("a cluster of {blocks} blocks was asked for `{}`", func.name);
        return Err(Diagnostic::new(message, None).help("a cluster has 1, 2, 4, 8 or 16 blocks"));
    }
    if blocks > 1 && func.walk().iter().any(|&op| !is_shared_out(func, op, blocks)) {
        let message = format!("`{}` multiplies tiles in a cluster of {blocks} blocks", func.name);
        return Err(Diagnostic::new(message, None)
            .label("only what the copy engine brings from views that are aligned is shared out")
            .help("launch it with `cluster: 1`, or give each block a multiple of 64 rows"));
    }
    Ok(blocks)
}

/// Whether an op is no product, or one whose operands the blocks of a cluster bring for each other.
fn is_shared_out(func: &Func, op: Op, blocks: u32) -> bool {
    let data = func.op(op);
    let OpKind::Dot { .. } = data.kind else { return true };
    let multicast = |value: Value| match func.op(func.def_op(value)?).kind {
        OpKind::TmaLoad(load) => Some(func.tma.loads.get(usize::from(load))?.multicast),
        _ => None,
    };
    let [a, b] = [0, 1].map(|i| multicast(data.operands[i]));
    a.is_some_and(|a| a.parts() == blocks) && b.is_some_and(|b| b.shares() == blocks)
}

/// Refuses what would move elements from block to block other than by a sum.
fn check_cluster(lir: &LayoutIr) -> Result<(), Diagnostic> {
    let uses = lir.func.count_uses();
    for op in lir.func.walk() {
        let data = lir.func.op(op);
        let layout = |values: &[Value]| lir.layout(*values.first()?);
        let (from, to) = (layout(&data.operands), layout(&data.results));
        let why = match data.kind {
            OpKind::ConvertLayout => match (from, to) {
                (Some(from), Some(to)) if !stays_in_block(from, to) => {
                    "parts of this tile would move between the blocks of a cluster"
                }
                _ => continue,
            },
            OpKind::Gather { .. } => match lir.gather(op) {
                Some(plan) if !plan.stays_in_block => {
                    "this gathers from the tile of another block of a cluster"
                }
                _ => continue,
            },
            OpKind::Scatter { .. } => match lir.scatter(op) {
                Some(plan) if !plan.stays_in_block => {
                    "this scatters to the tile of another block of a cluster"
                }
                _ => continue,
            },
            OpKind::Histogram => "this counts in one block of a cluster",
            OpKind::AtomicRmw(..) | OpKind::AtomicCas(_)
                if uses[data.results[0].index()] > 0
                    && to.is_none_or(|layout| layout.free_blocks() != 0) =>
            {
                "the old value of this atomic is wanted in several blocks of a cluster"
            }
            OpKind::Reduce { .. } | OpKind::Scan { .. }
                if !lir.func.tma.loads.is_empty() && crosses_blocks(lir, op) =>
            {
                "this goes over the blocks of a cluster, which multiply tiles"
            }
            // Such stores may have to wait for all blocks, of which some threads only load.
            OpKind::Store | OpKind::AtomicRmw(..) | OpKind::AtomicCas(_)
                if !lir.func.tma.loads.is_empty() =>
            {
                "blocks of a cluster that multiply tiles store only by the copy engine: rows of 128 \
                 bytes or more, to an aligned view"
            }
            _ => continue,
        };
        return Err(Diagnostic::new(why, data.loc).help("launch the kernel with `cluster: 1`"));
    }
    Ok(())
}

/// Whether a sum is over elements of different blocks.
fn crosses_blocks(lir: &LayoutIr, op: Op) -> bool {
    let data = lir.func.op(op);
    let (OpKind::Reduce { axis, .. } | OpKind::Scan { axis, .. }) = data.kind else { return false };
    let bits = lir.layout(data.operands[0]).map(|layout| layout.axis_bits(axis as usize));
    bits.is_some_and(|bits| bits.iter().any(|bit| matches!(bit, HwBit::Block(_))))
}

fn check_size(infer: &Infer<'_>) -> Result<(), Diagnostic> {
    for op in infer.func.walk() {
        let data = infer.func.op(op);
        for layout in data.results.iter().filter_map(|&value| infer.layout(value)) {
            let held = layout.num_regs();
            if held > MAX_TILE_ELEMENTS {
                let message = format!("a tile of shape {} is too large for a GPU", layout.shape);
                let label = format!(
                    "{held} elements for each of {} threads",
                    infer.num_warps * WARP_THREADS
                );
                return Err(Diagnostic::new(message, data.loc)
                    .label(label)
                    .help("use a smaller block, and more programs or a loop"));
            }
        }
    }
    Ok(())
}

fn accesses(lir: &LayoutIr) -> BTreeMap<Op, Access> {
    let func = &lir.func;
    let analysis = AxisAnalysis::of(func);
    let mut accesses = BTreeMap::new();
    for op in func.walk() {
        let Some(memory) = memory_op(func, op) else { continue };
        let coalesced = CoalescedAccess::of(func, &analysis, &memory);
        let Some(layout) = lir.layout(memory.ptr) else { continue };
        // Consecutive addresses along any axis will do, not only the one that would be liked.
        let groups = (0..layout.shape.rank())
            .map(|axis| {
                let limit = analysis.vector(func, memory.ptr, memory.mask, axis);
                layout.vectors(axis, limit as u32)
            })
            .max_by_key(|groups| groups.first().map_or(0, Vec::len))
            .unwrap_or_default();
        let vector = groups.first().map_or(1, Vec::len) as u32;
        let access = Access {
            alignment: vector * coalesced.size,
            groups,
            lane_copies: layout.free_lanes(),
            warp_copies: layout.free_warps(),
            block_copies: layout.free_blocks(),
        };
        accesses.insert(op, access);
    }
    accesses
}

fn dot_plan(infer: &Infer<'_>, lir: &LayoutIr, new: Op, old: Op) -> DotPlan {
    let (unit, _) = infer.units[&old];
    let operand = |i: usize| match shared_operand(&lir.func, new, i) {
        Some(operand) => DotOperand::Shared(operand),
        None => dot_operand(infer, lir, [new, old], unit, i),
    };
    let is_wgmma = matches!(unit, DotUnit::Wgmma(_));
    let data = lir.func.op(new);
    let is_exact = data.kind == OpKind::Dot { precision: DotPrecision::Ieee };
    let promoted = is_wgmma && is_exact && lir.func.tile(data.operands[0]).dtype().is_f8();
    let async_across_iterations =
        is_wgmma && !promoted && only_goes_round(&lir.func, new) && has_slots(&lir.func, new);
    DotPlan { unit, a: operand(0), b: operand(1), async_across_iterations, promoted }
}

/// Operand `i` of a dot, if the copy engine brings it.
fn shared_operand(func: &Func, dot: Op, i: usize) -> Option<SharedOperand> {
    let value = func.op(dot).operands[i];
    let OpKind::TmaLoad(load) = func.op(func.def_op(value)?).kind else { return None };
    if !is_shared(func, value) {
        return None;
    }
    let tile = func.tile(value);
    let k = 1 - i;
    let entry = func.tma.loads.get(usize::from(load))?;
    Some(SharedOperand {
        load,
        k_major: usize::from(entry.contiguous) == k,
        size: tile.dtype().bytes() as u32,
        swizzle: func.tma.map_of_load(load)?.swizzle,
        rows: tile.shape.extent(i) as u32 / entry.multicast.parts(),
        depth: tile.shape.extent(k) as u32,
    })
}

/// Whether the accumulator of a dot is a variable of the loop around it that nothing else in the loop
/// reads or writes.
fn only_goes_round(func: &Func, dot: Op) -> bool {
    let uses = func.count_uses();
    let data = func.op(dot);
    let (acc, result): (Value, Value) = (data.operands[2], data.results[0]);
    let Def::Argument(region, number) = func.value(acc).def else { return false };
    let owner = func.walk().into_iter().find(|&op| func.op(op).regions.contains(&region));
    let in_loop = owner.is_some_and(|op| matches!(func.op(op).kind, OpKind::For(_)));
    let Some((&last, ops)) = func.region(region).ops.split_last() else { return false };
    let yielded = func.op(last).operands.get((number as usize).wrapping_sub(1));
    let alone = uses[acc.index()] == 1 && uses[result.index()] == 1;
    in_loop && alone && ops.contains(&dot) && yielded == Some(&result)
}

/// Whether the operands of the next iteration have slots beside those of this one: a product that runs
/// into the next would wait for what it keeps itself.
fn has_slots(func: &Func, dot: Op) -> bool {
    let walk = func.walk();
    let mut regions = walk.iter().flat_map(|&op| &func.op(op).regions);
    let Some(&own) = regions.find(|&&region| func.region(region).ops.contains(&dot)) else {
        return true;
    };
    func.op(dot).operands.iter().filter_map(|&value| func.def_op(value)).all(|load| {
        let OpKind::TmaLoad(number) = func.op(load).kind else { return true };
        let entry = func.tma.loads.get(usize::from(number));
        let channel = entry.and_then(|load| func.tma.channels.get(usize::from(load.channel)));
        !func.region(own).ops.contains(&load) || channel.is_none_or(|c| c.stages != 1)
    })
}

fn dot_operand(
    infer: &Infer<'_>,
    lir: &LayoutIr,
    [new, old]: [Op; 2],
    unit: DotUnit,
    i: usize,
) -> DotOperand {
    let fragment = Arc::new(fragment(infer, old, i));
    let value = lir.func.op(new).operands[i];
    let layout = lir.layout(value).expect("an operand of a dot is a tile");
    let bits = element_bits(lir.func.ty(value));
    let mut operand = RegisterOperand { fragment, staging: None, ring: None };
    if *layout != operand.fragment {
        // A vector may not cross steps, since each step loads its own.
        let avoid = operand.steps(unit, i);
        let by_matrices = operand_plan(
            layout,
            &operand.fragment,
            bits,
            registers_along(&operand.fragment, avoid),
        );
        let is_free = |plan: &SharedPlan| (plan.store.ways, plan.load.ways) == (1, 1);
        let any = || SharedPlan::staged(layout, &operand.fragment, bits, avoid);
        operand.staging = Some(by_matrices.filter(is_free).unwrap_or_else(any));
    }
    DotOperand::Registers(Box::new(operand))
}

#[cfg(test)]
pub(super) mod tests;
