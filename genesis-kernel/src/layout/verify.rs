//! What must hold in layout IR, checked after it is made.

use super::convert::view_registers;
use super::histogram;
use super::infer::is_shared;
use super::linear::LinearLayout;
use super::lir::{DotOperand, DotUnit, LayoutIr};
use crate::ir::{Op, OpKind, Value};

/// Checks layout IR.
///
/// # Errors
/// The first rule that is broken, for a developer: it is a bug in Genesis.
pub fn verify(lir: &LayoutIr) -> Result<(), String> {
    for op in lir.func.walk() {
        check_values(lir, op)?;
        check_op(lir, op).map_err(|error| {
            let data = lir.func.op(op);
            format!("{:?} {:?} -> {:?}: {error}", data.kind, data.operands, data.results)
        })?;
    }
    Ok(())
}

fn check_values(lir: &LayoutIr, op: Op) -> Result<(), String> {
    let data = lir.func.op(op);
    let args = data.regions.iter().flat_map(|&region| &lir.func.region(region).args);
    for &value in data.results.iter().chain(&data.operands).chain(args) {
        let tile = lir.func.ty(value).as_tile().ok_or("a view")?;
        match lir.layout(value) {
            None if tile.shape.is_scalar() || is_shared(&lir.func, value) => {}
            None => return Err(format!("%{} has no layout", value.0)),
            Some(layout) => {
                layout.check().map_err(|error| format!("%{}: {error}", value.0))?;
                if layout.shape != tile.shape
                    || layout.num_warps() != lir.num_warps
                    || layout.num_blocks() != lir.num_blocks
                {
                    return Err(format!("%{}: {layout:?} is of another tile", value.0));
                }
            }
        }
    }
    Ok(())
}

fn check_op(lir: &LayoutIr, op: Op) -> Result<(), String> {
    let data = lir.func.op(op);
    let (operands, results) = (&data.operands, &data.results);
    match &data.kind {
        kind if kind.is_elementwise() || kind.is_pointer_access() => {
            equal(lir, operands.iter().chain(results))
        }
        kind if kind.is_view() => match (lir.layout(operands[0]), lir.layout(results[0])) {
            (Some(from), Some(to)) => {
                let map = view_registers(&data.kind, from, to);
                map.map(|_| ()).ok_or_else(|| format!("{from:?} does not give {to:?}"))
            }
            _ => Ok(()),
        },
        OpKind::Reduce { axis, .. } => {
            equal(lir, operands)?;
            let sliced = lir.layout(operands[0]).map(|layout| layout.slice(*axis as usize));
            gives(lir, sliced.as_ref(), results)
        }
        OpKind::Scan { .. } => equal(lir, operands.iter().chain(results)),
        OpKind::Gather { .. } => match lir.gather(op) {
            Some(plan) if !plan.stays_in_block => Err("it reads what other blocks hold".to_owned()),
            _ => equal(lir, operands[1..].iter().chain(results)),
        },
        OpKind::Scatter { .. } => match lir.scatter(op) {
            Some(plan) if !plan.stays_in_block => {
                Err("it writes what other blocks hold".to_owned())
            }
            _ => equal(lir, operands),
        },
        OpKind::Histogram => {
            let shape = lir.func.tile(operands[0]).shape;
            let layout = histogram::layout(shape, lir.num_warps).in_cluster(lir.num_blocks);
            gives(lir, Some(&layout), operands)?;
            gives(lir, Some(&layout), &results[..1])
        }
        OpKind::Join => {
            equal(lir, operands)?;
            let joined = lir.layout(operands[0]).map(|layout| layout.join());
            // Of two scalars every thread holds both.
            let joined = joined.unwrap_or_else(|| {
                let shape = lir.func.tile(results[0]).shape;
                LinearLayout::replicated(shape, lir.num_warps).in_cluster(lir.num_blocks)
            });
            gives(lir, Some(&joined), results)
        }
        OpKind::ConvertLayout => match (lir.layout(operands[0]), lir.layout(results[0])) {
            (Some(from), Some(to)) if !super::convert::stays_in_block(from, to) => {
                Err(format!("{from:?} to {to:?} moves between blocks"))
            }
            _ => Ok(()),
        },
        OpKind::Split => {
            let split = lir.layout(operands[0]).and_then(|layout| layout.split());
            gives(lir, split.as_ref(), results)
        }
        OpKind::Dot { .. } => check_dot(lir, op),
        OpKind::TmaStore(_) => {
            let columns = lir.func.tile(operands[0]).shape.extent(1).min(256) as u32;
            let shape = lir.func.tile(operands[0]).shape;
            let threads = [lir.num_warps, lir.num_blocks];
            let wanted = super::mma::wgmma_accumulator(shape, columns, threads);
            gives(lir, Some(&wanted), &operands[..1])
        }
        OpKind::For(_) | OpKind::While => check_loop(lir, op),
        OpKind::If => check_yield(lir, op, 0).and_then(|()| check_yield(lir, op, 1)),
        _ => Ok(()),
    }
}

/// The accumulator is the result, and the operands are where the unit takes them from.
fn check_dot(lir: &LayoutIr, op: Op) -> Result<(), String> {
    let data = lir.func.op(op);
    equal(lir, [&data.operands[2], &data.results[0]])?;
    let plan = lir.dots.get(&op).ok_or("no plan")?;
    let is_in_shared = |operand: &DotOperand| matches!(operand, DotOperand::Shared(_));
    let tensor_cores = matches!(plan.unit, DotUnit::Wgmma(_));
    if is_in_shared(&plan.b) != tensor_cores || (is_in_shared(&plan.a) && !tensor_cores) {
        return Err(format!("{:?} does not take its operands from there", plan.unit));
    }
    Ok(())
}

/// What a loop carries has one layout all the way.
fn check_loop(lir: &LayoutIr, op: Op) -> Result<(), String> {
    let data = lir.func.op(op);
    let region_args = |i: usize| &lir.func.region(data.regions[i]).args;
    let is_for = matches!(data.kind, OpKind::For(_));
    for (i, result) in data.results.iter().enumerate() {
        match is_for {
            true => equal(lir, [&data.operands[i + 3], &region_args(0)[i + 1], result])?,
            false => {
                equal(lir, [&data.operands[i], &region_args(0)[i], &region_args(1)[i], result])?
            }
        }
    }
    check_yield(lir, op, if is_for { 0 } else { 1 })
}

fn check_yield(lir: &LayoutIr, op: Op, region: usize) -> Result<(), String> {
    let data = lir.func.op(op);
    let ops = &lir.func.region(data.regions[region]).ops;
    let last = lir.func.op(*ops.last().ok_or("an empty region")?);
    if matches!(last.kind, OpKind::Yield) {
        for (value, result) in last.operands.iter().zip(&data.results) {
            equal(lir, [value, result])?;
        }
    }
    Ok(())
}

fn equal<'v>(lir: &LayoutIr, values: impl IntoIterator<Item = &'v Value>) -> Result<(), String> {
    let mut values = values.into_iter();
    let Some(&first) = values.next() else { return Ok(()) };
    for &value in values {
        if lir.layout(value) != lir.layout(first) {
            return Err(format!("%{} and %{} differ in layout", first.0, value.0));
        }
    }
    Ok(())
}

fn gives(lir: &LayoutIr, layout: Option<&LinearLayout>, results: &[Value]) -> Result<(), String> {
    for &result in results {
        if let Some(have) = lir.layout(result)
            && Some(&**have) != layout
        {
            return Err(format!("%{}: {have:?} is not {layout:?}", result.0));
        }
    }
    Ok(())
}
