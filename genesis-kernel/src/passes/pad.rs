//! Tiles get extents that are powers of two: what layouts need.
//!
//! The elements that are added hold anything. They are kept from having an effect: accesses are
//! masked off, reductions see the neutral element of their op, `dot` sees zeros along K, assertions
//! see true. A reduction or reverse scan by a function carries a flag that says which side counts.
//!
//! ```text
//! %0 = load %p : f32[6]                    %0 = load %p, (iota 8 < 6) : f32[8]
//! %1 = reduce max 0 %0 : f32         ->    %1 = select (iota 8 < 6), %0, -inf
//!                                          %2 = reduce max 0 %1 : f32
//! ```

use super::rebuild::{Rebuild, Rewrite};
use super::views::along;
use crate::diag::Diagnostic;
use crate::ir::{
    BinaryOp, Builder, Combine, DType, Func, Op, OpKind, Predicate, Region, Scalar, Shape,
    TileType, Type, UnaryOp, Value,
};

/// The function with extents that are powers of two; views must have gone before.
///
/// # Errors
/// Where an op would mix added elements with the others in a way that no mask undoes.
pub fn run(func: &Func) -> Result<Func, Diagnostic> {
    let mut rebuild = Rebuild::new(func);
    rebuild.copy_params();
    rebuild.body(&mut Pad)?;
    Ok(rebuild.new)
}

struct Pad;

fn padded(shape: Shape) -> Shape {
    let extents: Vec<usize> = shape.extents().iter().map(|e| e.next_power_of_two()).collect();
    Shape::new(&extents)
}

fn is_padded(shape: Shape) -> bool {
    padded(shape) != shape
}

/// Which elements along one axis are the user's: a tile of the padded shape.
fn valid_along(b: &mut Builder<'_>, shape: Shape, axis: usize) -> Value {
    let whole = padded(shape);
    let iota = b.iota(whole.extent(axis));
    let line = b.func.tile(iota).shape;
    let extent = b.full(Scalar::int(DType::I64, shape.extent(axis) as i64), line);
    let valid = b.compare(Predicate::Lt, iota, extent);
    along(b, valid, axis, whole)
}

/// Which elements of a tile are the user's; none if all are.
fn valid(b: &mut Builder<'_>, shape: Shape) -> Option<Value> {
    let axes = (0..shape.rank()).filter(|&axis| !shape.extent(axis).is_power_of_two());
    let mut mask: Option<Value> = None;
    for axis in axes {
        let along = valid_along(b, shape, axis);
        mask = Some(mask.map_or(along, |mask| b.binary(BinaryOp::And, mask, along)));
    }
    mask
}

impl Rewrite for Pad {
    fn ty(&self, ty: Type) -> Type {
        match ty {
            Type::Tile(tile) => tile.with_shape(padded(tile.shape)).into(),
            Type::View { .. } => ty,
        }
    }

    fn op(&mut self, rebuild: &mut Rebuild<'_>, op: Op, region: Region) -> Result<(), Diagnostic> {
        let old = rebuild.old;
        let data = old.op(op);
        let first = data.operands.first().and_then(|&v| old.ty(v).as_tile());
        let shape = first.map_or(Shape::SCALAR, |tile| tile.shape);
        match &data.kind {
            OpKind::Load if is_padded(shape) => pad_load(rebuild, op, region),
            kind if kind.is_pointer_write() && is_padded(shape) => {
                mask_access(rebuild, op, region);
            }
            OpKind::Gather { axis } if !shape.extent(*axis as usize).is_power_of_two() => {
                pad_gather(rebuild, op, region, *axis as usize);
            }
            OpKind::Scatter { axis } if is_padded(shape) => {
                pad_scatter(rebuild, op, region, *axis as usize);
            }
            OpKind::Histogram if is_padded(old.tile(data.results[1]).shape) => {
                pad_histogram(rebuild, op, region);
            }
            OpKind::Reduce { axis, combine } if !shape.extent(*axis as usize).is_power_of_two() => {
                collect(self, rebuild, op, region, *axis as usize, *combine)?;
            }
            OpKind::Scan { axis, reverse: true, combine }
                if !shape.extent(*axis as usize).is_power_of_two() =>
            {
                collect(self, rebuild, op, region, *axis as usize, *combine)?;
            }
            OpKind::Dot { .. } if !shape.extent(1).is_power_of_two() => {
                pad_dot(rebuild, op, region);
            }
            OpKind::Reshape => {
                let to = old.tile(data.results[0]).shape;
                if !shape.reshapes_in_order(to) {
                    let message = format!("can't reshape {shape} to {to}");
                    return Err(Diagnostic::new(message, data.loc).help(
                        "extents that are merged or split must be powers of two, but for the first",
                    ));
                }
                rebuild.copy(self, op, region)?;
            }
            OpKind::Assert { .. } if is_padded(shape) => pad_assert(rebuild, op, region),
            OpKind::Print { .. } => pad_print(rebuild, op, region),
            _ => {
                rebuild.copy(self, op, region)?;
            }
        }
        Ok(())
    }
}

fn and(b: &mut Builder<'_>, mask: Option<Value>, other: Option<Value>) -> Option<Value> {
    match (mask, other) {
        (Some(a), Some(c)) => Some(b.binary(BinaryOp::And, a, c)),
        (one, None) | (None, one) => one,
    }
}

fn pad_load(rebuild: &mut Rebuild<'_>, op: Op, region: Region) {
    let data = rebuild.old.op(op);
    let shape = rebuild.old.tile(data.operands[0]).shape;
    let new: Vec<Value> = data.operands.iter().map(|&v| rebuild.get(v)).collect();
    let mut b = rebuild.at(op, region);
    let own = valid(&mut b, shape);
    let mask = and(&mut b, new.get(1).copied(), own);
    let loaded = b.load(new[0], mask, new.get(2).copied());
    rebuild.set(data.results[0], loaded);
}

/// A store or atomic, masked off outside the user's elements.
fn mask_access(rebuild: &mut Rebuild<'_>, op: Op, region: Region) {
    let data = rebuild.old.op(op);
    let shape = rebuild.old.tile(data.operands[0]).shape;
    let new: Vec<Value> = data.operands.iter().map(|&v| rebuild.get(v)).collect();
    let mut b = rebuild.at(op, region);
    let own = valid(&mut b, shape);
    let position = data.kind.mask_operand().unwrap_or(new.len());
    let mask = and(&mut b, new.get(position).copied(), own);
    match data.kind {
        OpKind::AtomicRmw(kind, ordering) => {
            b.ordering = ordering;
            let before = b.atomic_rmw(kind, new[0], new[1], mask);
            rebuild.set(data.results[0], before);
        }
        OpKind::AtomicCas(ordering) => {
            b.ordering = ordering;
            let before = b.atomic_cas(new[0], new[1], new[2], mask);
            rebuild.set(data.results[0], before);
        }
        _ => b.store(new[0], new[1], mask),
    }
}

/// What is asked for past the user's elements is asked for past the padding.
fn pad_gather(rebuild: &mut Rebuild<'_>, op: Op, region: Region, axis: usize) {
    let data = rebuild.old.op(op);
    let extent = rebuild.old.tile(data.operands[0]).shape.extent(axis) as i64;
    let [x, index] = [0, 1].map(|i| rebuild.get(data.operands[i]));
    let mut b = rebuild.at(op, region);
    // No narrower integer holds every extent, and a number past all of them.
    let dtype = b.func.tile(index).dtype();
    let index = if dtype.bits() < 32 { b.cast(index, DType::I32) } else { index };
    let (dtype, shape) = (b.func.tile(index).dtype(), b.func.tile(index).shape);
    let [extent, past] = [extent, -1].map(|n| b.full(Scalar::int(dtype, n), shape));
    let valid = b.compare(Predicate::Lt, index, extent);
    let index = b.select(valid, index, past);
    let gathered = b.gather(x, index, axis);
    rebuild.set(data.results[0], gathered);
}

/// What pads other axes stays where it is.
fn pad_scatter(rebuild: &mut Rebuild<'_>, op: Op, region: Region, axis: usize) {
    let data = rebuild.old.op(op);
    let shape = rebuild.old.tile(data.operands[0]).shape;
    let [x, index] = [0, 1].map(|i| rebuild.get(data.operands[i]));
    let mut b = rebuild.at(op, region);
    let (dtype, to) = (b.func.tile(index).dtype(), b.func.tile(index).shape);
    let Some(mask) = valid(&mut b, shape) else { return };
    let line = b.iota(to.extent(axis));
    let line = b.cast(line, dtype);
    let own = along(&mut b, line, axis, to);
    let index = b.select(mask, index, own);
    let scattered = b.scatter(x, index, axis);
    rebuild.set(data.results[0], scattered);
}

/// What has none of the user's bins has none of the padding.
fn pad_histogram(rebuild: &mut Rebuild<'_>, op: Op, region: Region) {
    let data = rebuild.old.op(op);
    let bins = rebuild.old.tile(data.results[1]).shape.numel();
    let x = rebuild.get(data.operands[0]);
    let mut b = rebuild.at(op, region);
    let shape = b.func.tile(x).shape;
    let [end, none] = [bins as i64, -1].map(|n| b.full(Scalar::int(DType::I32, n), shape));
    let is_below = b.compare(Predicate::Lt, x, end);
    let x = b.select(is_below, x, none);
    let (ranks, counts) = b.histogram(x, bins.next_power_of_two());
    rebuild.set(data.results[0], ranks);
    rebuild.set(data.results[1], counts);
}

fn pad_assert(rebuild: &mut Rebuild<'_>, op: Op, region: Region) {
    let data = rebuild.old.op(op);
    let shape = rebuild.old.tile(data.operands[0]).shape;
    let cond = rebuild.get(data.operands[0]);
    let mut b = rebuild.at(op, region);
    let cond = match valid(&mut b, shape) {
        Some(valid) => {
            let outside = b.unary(UnaryOp::Not, valid);
            b.binary(BinaryOp::Or, cond, outside)
        }
        None => cond,
    };
    b.push(data.kind.clone(), &[cond], &[], &[]);
}

/// What is printed, and how much of it.
fn pad_print(rebuild: &mut Rebuild<'_>, op: Op, region: Region) {
    let data = rebuild.old.op(op);
    let shapes: Vec<Shape> = data.operands.iter().map(|&v| rebuild.old.tile(v).shape).collect();
    let mut operands: Vec<Value> = data.operands.iter().map(|&v| rebuild.get(v)).collect();
    let mut b = rebuild.at(op, region);
    if shapes.iter().any(|&shape| is_padded(shape)) {
        let extents = shapes.iter().flat_map(|shape| shape.extents());
        operands.extend(extents.map(|extent| b.int(DType::I64, extent as i64)));
    }
    b.push(data.kind.clone(), &operands, &[], &[]);
}

/// Zeros along K, in both operands: zero times whatever is left in the other could be NaN.
fn pad_dot(rebuild: &mut Rebuild<'_>, op: Op, region: Region) {
    let data = rebuild.old.op(op);
    let shapes = [0, 1].map(|i| rebuild.old.tile(data.operands[i]).shape);
    let new: Vec<Value> = data.operands.iter().map(|&v| rebuild.get(v)).collect();
    let mut b = rebuild.at(op, region);
    let [left, right] = [0, 1].map(|i| {
        let valid = valid_along(&mut b, shapes[i], 1 - i);
        let ty = b.func.tile(new[i]);
        let zero = b.full(Scalar::zero(ty.dtype()), ty.shape);
        b.select(valid, new[i], zero)
    });
    let ty = b.func.ty(new[2]);
    let dot = b.push(data.kind.clone(), &[left, right, new[2]], &[ty], &[]);
    let result = rebuild.new.op(dot).results[0];
    rebuild.set(data.results[0], result);
}

/// A reduction or scan along a padded axis: by an op over neutral elements, by a function with a flag.
fn collect(
    pad: &mut Pad,
    rebuild: &mut Rebuild<'_>,
    op: Op,
    region: Region,
    axis: usize,
    combine: Combine,
) -> Result<(), Diagnostic> {
    let old = rebuild.old;
    let data = old.op(op);
    let shape = old.tile(data.operands[0]).shape;
    let mut operands: Vec<Value> = data.operands.iter().map(|&v| rebuild.get(v)).collect();
    let mut types: Vec<Type> = data.results.iter().map(|&v| pad.ty(old.ty(v))).collect();
    let mut regions = Vec::new();
    let mut b = rebuild.at(op, region);
    let valid = valid_along(&mut b, shape, axis);
    match combine {
        Combine::Op(combined) => {
            let ty = b.func.tile(operands[0]);
            let neutral = neutral(combined, ty.dtype()).ok_or_else(|| {
                let message = format!("can't reduce a tile of {} of shape {shape}", ty.dtype());
                Diagnostic::new(message, data.loc)
            })?;
            let neutral = b.full(neutral, ty.shape);
            operands[0] = b.select(valid, operands[0], neutral);
        }
        Combine::Region => {
            operands.push(valid);
            let flags = TileType::data(DType::Bool, rebuild.new.tile(valid).shape);
            let reduces = matches!(data.kind, OpKind::Reduce { .. });
            let shape = if reduces { flags.shape.without(axis) } else { flags.shape };
            types.push(flags.with_shape(shape).into());
            regions.push(flagged(pad, rebuild, op)?);
        }
    }
    let new = rebuild.at(op, region).push(data.kind.clone(), &operands, &types, &regions);
    for (i, &result) in data.results.iter().enumerate() {
        let value = rebuild.new.op(new).results[i];
        rebuild.set(result, value);
    }
    Ok(())
}

/// The combining region with a flag on each side: a side that does not count gives the other one.
fn flagged(pad: &mut Pad, rebuild: &mut Rebuild<'_>, op: Op) -> Result<Region, Diagnostic> {
    let old = rebuild.old;
    let from = old.op(op).regions[0];
    let args = &old.region(from).args;
    let (left, right) = args.split_at(args.len() / 2);
    let to = rebuild.new.add_region();
    let mut sides = Vec::new();
    for side in [left, right] {
        let mut values = Vec::new();
        for &arg in side {
            let value = rebuild.new.add_region_arg(to, old.ty(arg));
            rebuild.set(arg, value);
            values.push(value);
        }
        let flag = rebuild.new.add_region_arg(to, Type::scalar(DType::Bool));
        sides.push((values, flag));
    }
    let ops = &old.region(from).ops;
    let (&last, body) = ops.split_last().expect("a region ends with a yield");
    for &inner in body {
        pad.op(rebuild, inner, to)?;
    }
    let combined: Vec<Value> = old.op(last).operands.iter().map(|&v| rebuild.get(v)).collect();
    let [(left, left_counts), (right, right_counts)] = &sides[..] else {
        unreachable!("two sides were made above")
    };
    let mut b = rebuild.at(last, to);
    let mut yields: Vec<Value> = (0..combined.len())
        .map(|i| {
            let with_right = b.select(*left_counts, combined[i], right[i]);
            b.select(*right_counts, with_right, left[i])
        })
        .collect();
    yields.push(b.binary(BinaryOp::Or, *left_counts, *right_counts));
    b.yield_values(&yields);
    Ok(to)
}

/// What leaves every element as it is under an op: for floats also its sign and NaN.
fn neutral(op: BinaryOp, dtype: DType) -> Option<Scalar> {
    let float = |value| Some(Scalar::float(dtype, value));
    let int = |value| Some(Scalar::int(dtype, value));
    let bits = dtype.bits();
    let (low, high) = match dtype {
        DType::Bool => (0, 1),
        _ if dtype.is_signed_int() => (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits)),
        _ => (0, (u64::MAX >> (64 - bits)) as i64),
    };
    match op {
        BinaryOp::Add if dtype.is_float() => float(-0.0),
        BinaryOp::Mul if dtype.is_float() => float(1.0),
        BinaryOp::Min if dtype.is_float() => float(f64::INFINITY),
        BinaryOp::Max if dtype.is_float() => float(f64::NEG_INFINITY),
        BinaryOp::MinNum | BinaryOp::MaxNum if dtype.is_float() => float(f64::NAN),
        _ if dtype.is_float() => None,
        BinaryOp::Add | BinaryOp::Or | BinaryOp::Xor => int(0),
        BinaryOp::Mul => int(1),
        BinaryOp::Min | BinaryOp::MinNum => int(high),
        BinaryOp::Max | BinaryOp::MaxNum => int(low),
        BinaryOp::And => int(if dtype == DType::Bool { 1 } else { -1 }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
