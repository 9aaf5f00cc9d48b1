//! The cost of one program: bytes of global memory and FLOP, counted in tile IR.
//!
//! Every lane counts as on. An op in a loop counts as often as the loop runs where that is a constant,
//! or follows from the arguments of a launch; another loop counts once, and the cost says that there
//! is one.

use super::trip_count::Integers;
use crate::ir::{Elem, Func, OpKind, Region, Shape, UnaryOp, Value};
use crate::runtime::{Arg, Grid};

/// What one program costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Bytes loaded from and stored to global memory.
    pub bytes: u64,
    /// Floating-point operations: 1 for an addition or a function, 2 for a fused multiply-add.
    pub flops: u64,
    /// Those among them that are of matrix products.
    pub product_flops: u64,
    /// Whether there are loops whose length is known at run time only; each counts once.
    pub has_runtime_loops: bool,
}

/// The cost of one program.
pub fn cost(func: &Func) -> Cost {
    launch_cost(func, Grid::xyz(1, 1, 1), &[])
}

/// The cost of one program of a launch, the first; the grid counts where the kernel asks for it.
pub fn launch_cost(func: &Func, grid: Grid, args: &[Arg]) -> Cost {
    let mut cost = Cost::default();
    let mut known = Integers::new(func, grid, args);
    add_region(func, func.body, 1, &mut known, &mut cost);
    cost
}

fn add_region(func: &Func, region: Region, times: u64, known: &mut Integers<'_>, cost: &mut Cost) {
    for &op in &func.region(region).ops {
        let data = func.op(op);
        let trip_count = match data.kind {
            OpKind::For(_) => match trip_count(known, &data.operands) {
                Some(trip_count) => trip_count,
                None => {
                    cost.has_runtime_loops = true;
                    1
                }
            },
            OpKind::While => {
                cost.has_runtime_loops = true;
                1
            }
            _ => 1,
        };
        cost.bytes += times * bytes(func, &data.kind, &data.operands, &data.results);
        let flops = times * flops(func, &data.kind, &data.operands, &data.results);
        cost.flops += flops;
        if matches!(data.kind, OpKind::Dot { .. }) {
            cost.product_flops += flops;
        }
        // The region of a reduction is its combination, which `flops` counts by element.
        if !data.kind.is_collective() {
            for &inner in &data.regions {
                add_region(func, inner, times.saturating_mul(trip_count), known, cost);
            }
        }
    }
}

/// How often a counted loop runs, if its bounds are known.
fn trip_count(known: &mut Integers<'_>, operands: &[Value]) -> Option<u64> {
    let mut bound = |i: usize| known.get(*operands.get(i)?);
    let (lower, upper, step) = (bound(0)?, bound(1)?, bound(2)?);
    let length = upper.saturating_sub(lower).max(0) as u64;
    Some(if step <= 0 { 0 } else { length.div_ceil(step as u64) })
}

fn bytes(func: &Func, kind: &OpKind, operands: &[Value], results: &[Value]) -> u64 {
    let size = |value: Option<&Value>| match value.and_then(|&v| func.ty(v).as_tile()) {
        Some(tile) => match tile.elem {
            Elem::Data(dtype) => (tile.shape.numel() * dtype.bytes()) as u64,
            Elem::Ptr(_) => 0,
        },
        None => 0,
    };
    match kind {
        OpKind::Load | OpKind::ViewLoad | OpKind::TmaLoad(_) => size(results.first()),
        OpKind::Store | OpKind::ViewStore => size(operands.get(1)),
        OpKind::TmaStore(_) => size(operands.first()),
        kind if kind.is_atomic() => 2 * size(results.first()),
        _ => 0,
    }
}

fn flops(func: &Func, kind: &OpKind, operands: &[Value], results: &[Value]) -> u64 {
    let float = |value: Option<&Value>| -> Option<Shape> {
        let tile = func.ty(*value?).as_tile()?;
        matches!(tile.elem, Elem::Data(dtype) if dtype.is_float()).then_some(tile.shape)
    };
    let numel = |value| float(value).map_or(0, |shape| shape.numel() as u64);
    match kind {
        OpKind::Unary(UnaryOp::Not) => 0,
        OpKind::Unary(_) | OpKind::Binary(_) => numel(results.first()),
        OpKind::Fma => 2 * numel(results.first()),
        kind if kind.is_collective() => operands.iter().map(|value| numel(Some(value))).sum(),
        OpKind::Dot { .. } => {
            let inner = float(operands.first()).filter(|shape| shape.rank() >= 1);
            let inner = inner.map_or(0, |shape| shape.extent(shape.rank() - 1) as u64);
            2 * inner * numel(results.first())
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BinaryOp, Builder, DType, LoopOptions, ParamAttrs, Scalar, Type};

    #[test]
    fn counts_loads_stores_and_arithmetic() {
        let mut func = Func::new("add");
        let ty = Type::View { dtype: DType::F32, rank: 1 };
        let x = func.add_param("x", ty, ParamAttrs::default());
        let mut b = Builder::new(&mut func);
        let zero = b.int(DType::I64, 0);
        let tile = Type::tile(DType::F32, Shape::new(&[64]));
        let op = b.push(OpKind::ViewLoad, &[x, zero], &[tile], &[]);
        let v = b.func.op(op).results[0];
        let sum = b.binary(BinaryOp::Add, v, v);
        b.push(OpKind::ViewStore, &[x, sum, zero], &[], &[]);
        b.ret();
        assert_eq!(cost(&func), Cost { bytes: 512, flops: 64, ..Cost::default() });
    }

    #[test]
    fn a_loop_counts_as_often_as_it_runs() {
        for (end, times, has_runtime_loops) in [(Some(10), 4, false), (None, 1, true)] {
            let mut func = Func::new("loop");
            let n = func.add_param("n", Type::scalar(DType::I64), ParamAttrs::default());
            let x = func.add_param("x", Type::scalar(DType::F32), ParamAttrs::default());
            let body = func.add_region();
            func.add_region_arg(body, Type::scalar(DType::I64));
            let mut b = Builder::at(&mut func, body, None);
            b.fma(x, x, x);
            b.yield_values(&[]);
            let mut b = Builder::new(&mut func);
            let (zero, step) = (b.int(DType::I64, 0), b.int(DType::I64, 3));
            let end = end.map_or(n, |end| b.int(DType::I64, end));
            b.for_loop([zero, end, step], &[], body, LoopOptions::default());
            b.ret();
            let expected = Cost { flops: 2 * times, has_runtime_loops, ..Cost::default() };
            assert_eq!(cost(&func), expected);
            let seven = Arg::Scalar(Scalar::int(DType::I64, 7));
            let times = if has_runtime_loops { 3 } else { times };
            let expected = Cost { flops: 2 * times, ..Cost::default() };
            assert_eq!(launch_cost(&func, Grid::x(1), &[seven]), expected);
        }
    }
}
