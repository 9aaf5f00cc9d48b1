//! The analysis against the values themselves, on random expressions.

use std::collections::BTreeMap;

use super::*;
use crate::ir::{Builder, DType, Type};

type Tile = Vec<i64>;

/// Evaluates the integer ops that the generator makes.
struct Values(BTreeMap<Value, Tile>);

impl Values {
    fn of(func: &Func, params: &[i64]) -> Values {
        let mut values = Values(BTreeMap::new());
        for (param, &value) in func.params.iter().zip(params) {
            values.0.insert(param.value, vec![value]);
        }
        for op in func.walk() {
            let data = func.op(op);
            let Some(&result) = data.results.first() else { continue };
            let tile = values.eval(func, op);
            values.0.insert(result, tile);
        }
        values
    }

    fn eval(&self, func: &Func, op: Op) -> Tile {
        let data = func.op(op);
        let shape = shape_of(func, data.results[0]);
        let n = shape.numel();
        let x = |i: usize| &self.0[&data.operands[i]];
        match &data.kind {
            OpKind::Const(c) => vec![c.to_i64()],
            OpKind::Iota => (0..n as i64).collect(),
            OpKind::Binary(op) => (0..n).map(|i| binary(*op, x(0)[i], x(1)[i])).collect(),
            OpKind::PtrAdd => {
                let size = func.tile(data.results[0]).dtype().bytes() as i64;
                (0..n).map(|i| x(0)[i].wrapping_add(x(1)[i].wrapping_mul(size))).collect()
            }
            OpKind::Compare(p) => (0..n)
                .map(|i| {
                    let (a, b) = (x(0)[i], x(1)[i]);
                    i64::from(match p {
                        Predicate::Lt => a < b,
                        Predicate::Le => a <= b,
                        Predicate::Gt => a > b,
                        Predicate::Ge => a >= b,
                        Predicate::Eq => a == b,
                        Predicate::Ne => a != b,
                    })
                })
                .collect(),
            OpKind::Select => {
                (0..n).map(|i| if x(0)[i] != 0 { x(1)[i] } else { x(2)[i] }).collect()
            }
            OpKind::Cast => {
                let dtype = func.tile(data.results[0]).dtype();
                x(0).iter().map(|&v| crate::ir::Scalar::int(dtype, v).to_i64()).collect()
            }
            OpKind::Broadcast => {
                let from = func.tile(data.operands[0]).shape;
                (0..n).map(|i| x(0)[source(from, shape, i)]).collect()
            }
            OpKind::Reshape | OpKind::ExpandDims { .. } => x(0).clone(),
            OpKind::Transpose { .. } => {
                let (rows, columns) = (shape.extent(0), shape.extent(1));
                (0..n).map(|i| x(0)[i % columns * rows + i / columns]).collect()
            }
            kind => panic!("not made: {kind:?}"),
        }
    }
}

fn source(from: Shape, to: Shape, flat: usize) -> usize {
    let (mut rest, mut index, mut scale) = (flat, 0, 1);
    for axis in (0..from.rank()).rev() {
        let coord = rest % to.extent(axis);
        rest /= to.extent(axis);
        if from.extent(axis) != 1 {
            index += coord * scale;
        }
        scale *= from.extent(axis);
    }
    index
}

fn binary(op: BinaryOp, a: i64, b: i64) -> i64 {
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b).unwrap_or(0),
        BinaryOp::Rem => a.checked_rem(b).unwrap_or(a),
        BinaryOp::And => a & b,
        BinaryOp::Shl => a.wrapping_shl(b as u32),
        BinaryOp::Shr => a.wrapping_shr(b as u32),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        _ => panic!("not made"),
    }
}

/// Holds every claim of an info against the values.
fn check(func: &Func, value: Value, info: &AxisInfo, tile: &Tile) {
    let shape = shape_of(func, value);
    let unit = unit(func, value) as i64;
    let text = || format!("{value:?} {info:?} {tile:?}");
    let strides: Vec<usize> = (0..shape.rank())
        .map(|a| (a + 1..shape.rank()).map(|i| shape.extent(i)).product())
        .collect();
    for flat in 0..shape.numel() {
        let coords: Vec<usize> =
            strides.iter().zip(shape.extents()).map(|(s, e)| flat / s % e).collect();
        let begins = |a: usize| coords[a].is_multiple_of(info.runs[a].length as usize);
        if (0..shape.rank()).all(begins) {
            assert_eq!(tile[flat] as i128 % i128::from(info.divisor), 0, "{}", text());
        }
        for axis in 0..shape.rank() {
            if !begins(axis) {
                let before = tile[flat - strides[axis]];
                let step = info.runs[axis].step.wrapping_mul(unit);
                assert_eq!(tile[flat], before.wrapping_add(step), "axis {axis} {}", text());
            } else {
                let divisor = info.divisor_along(axis, unit as u64);
                assert_eq!(tile[flat] as i128 % i128::from(divisor), 0, "{axis} {}", text());
            }
        }
    }
}

/// A small generator of numbers: enough to choose ops.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % n
    }
}

fn grow(b: &mut Builder<'_>, random: &mut Random, shape: Shape, depth: usize) -> Value {
    if depth == 0 {
        return leaf(b, random, shape);
    }
    let x = grow(b, random, shape, depth - 1);
    if random.below(8) == 0 {
        let narrow = b.cast(x, [DType::I32, DType::I16, DType::U32][random.below(3)]);
        return b.cast(narrow, DType::I64);
    }
    if shape.rank() == 2 && random.below(8) == 0 {
        let turned = Shape::new(&[shape.extent(1), shape.extent(0)]);
        let y = grow(b, random, turned, depth - 1);
        return b.transpose(y, &[1, 0]);
    }
    if random.below(8) == 0 {
        let flat = grow(b, random, Shape::new(&[shape.numel()]), depth - 1);
        return b.reshape(flat, shape);
    }
    let y = grow(b, random, shape, depth - 1);
    if random.below(6) == 0 {
        let cond = b.compare(predicate(random), x, y);
        return b.select(cond, x, y);
    }
    let ops = [
        BinaryOp::Add,
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Rem,
        BinaryOp::And,
        BinaryOp::Shl,
        BinaryOp::Shr,
        BinaryOp::Min,
    ];
    b.binary(ops[random.below(ops.len())], x, y)
}

fn predicate(random: &mut Random) -> Predicate {
    [Predicate::Lt, Predicate::Le, Predicate::Gt, Predicate::Ge, Predicate::Eq, Predicate::Ne]
        [random.below(6)]
}

fn leaf(b: &mut Builder<'_>, random: &mut Random, shape: Shape) -> Value {
    match random.below(5) {
        0 => {
            let constants = [0, 1, 2, 4, 8, 15, 16, 24, 64, -8];
            let c = b.int(DType::I64, constants[random.below(constants.len())]);
            b.broadcast(c, shape)
        }
        1 => {
            let param = b.func.params[random.below(3)].value;
            b.broadcast(param, shape)
        }
        _ => {
            let axis = random.below(shape.rank());
            let mut line = b.iota(shape.extent(axis));
            for before in 0..axis {
                line = b.expand_dims(line, before);
            }
            for after in axis + 1..shape.rank() {
                line = b.expand_dims(line, after);
            }
            b.broadcast(line, shape)
        }
    }
}

#[test]
fn every_claim_holds_on_random_expressions() {
    let mut known = 0;
    for seed in 0..3000 {
        let mut random = Random(seed * 77 + 5);
        let mut func = Func::new("f");
        let multiples = [1, 16, 8];
        for (i, multiple_of) in multiples.into_iter().enumerate() {
            let attrs = ParamAttrs { multiple_of, ..ParamAttrs::default() };
            func.add_param(format!("p{i}"), Type::scalar(DType::I64), attrs);
        }
        let params = [
            random.below(100) as i64 - 50,
            16 * (random.below(9) as i64 - 2),
            8 * random.below(9) as i64,
        ];
        let shapes: [&[usize]; 5] = [&[64], &[8, 16], &[4, 8], &[96], &[6, 16]];
        let shape = Shape::new(shapes[random.below(5)]);
        let mut b = Builder::new(&mut func);
        let offset = grow(&mut b, &mut random, shape, 4);
        let other = grow(&mut b, &mut random, shape, 2);
        b.compare(predicate(&mut random), offset, other);
        let analysis = AxisAnalysis::of(&func);
        let values = Values::of(&func, &params);
        for (&value, tile) in &values.0 {
            let info = analysis.of_value(&func, value);
            check(&func, value, &info, tile);
            known += usize::from(info.runs.iter().any(|run| run.length > 1));
        }
    }
    assert!(known > 10_000, "the analysis knows something: {known}");
}

#[test]
fn a_masked_row_takes_whole_vectors() {
    let mut func = Func::new("f");
    let ptr = TileType::ptr(DType::F32, Shape::SCALAR).into();
    let aligned = ParamAttrs { multiple_of: 16, ..ParamAttrs::default() };
    let x = func.add_param("x", ptr, aligned.clone());
    let n = func.add_param("n", Type::scalar(DType::I64), aligned);
    let odd = func.add_param("odd", Type::scalar(DType::I64), ParamAttrs::default());
    let mut b = Builder::new(&mut func);
    let shape = Shape::new(&[1024]);
    let pid = b.program_id(0);
    let block = b.int(DType::I64, 1024);
    let start = b.binary(BinaryOp::Mul, pid, block);
    let start = b.broadcast(start, shape);
    let iota = b.iota(1024);
    let i = b.binary(BinaryOp::Add, start, iota);
    let x = b.broadcast(x, shape);
    let pointers = b.ptr_add(x, i);
    let bounds = [n, odd].map(|n| {
        let n = b.broadcast(n, shape);
        b.compare(Predicate::Lt, i, n)
    });
    let odd_tile = b.broadcast(odd, shape);
    let shifted = b.ptr_add(pointers, odd_tile);
    let analysis = AxisAnalysis::of(&func);
    assert_eq!(analysis.vector(&func, pointers, None, 0), 4);
    assert_eq!(analysis.vector(&func, pointers, Some(bounds[0]), 0), 4);
    assert_eq!(analysis.vector(&func, pointers, Some(bounds[1]), 0), 1);
    assert_eq!(analysis.vector(&func, shifted, None, 0), 1);
}

#[test]
fn pointers_carried_by_a_loop_keep_their_runs() {
    let mut func = Func::new("f");
    let aligned = ParamAttrs { multiple_of: 16, ..ParamAttrs::default() };
    let ptr = TileType::ptr(DType::F16, Shape::SCALAR);
    let x = func.add_param("x", ptr.into(), aligned);
    let mut b = Builder::new(&mut func);
    let shape = Shape::new(&[64]);
    let iota = b.iota(64);
    let x = b.broadcast(x, shape);
    let start = b.ptr_add(x, iota);
    let [zero, end, step] = [0, 100, 1].map(|v| b.int(DType::I64, v));
    let body = b.func.add_region();
    let _ = b.func.add_region_arg(body, Type::scalar(DType::I64));
    let arg = b.func.add_region_arg(body, ptr.with_shape(shape).into());
    let mut inner = Builder::at(b.func, body, None);
    let four = inner.int(DType::I64, 4);
    let four = inner.broadcast(four, shape);
    let next = inner.ptr_add(arg, four);
    inner.yield_values(&[next]);
    let results = b.for_loop([zero, end, step], &[start], body, Default::default());
    let analysis = AxisAnalysis::of(&func);
    assert_eq!(analysis.vector(&func, start, None, 0), 8);
    assert_eq!(analysis.vector(&func, arg, None, 0), 4);
    assert_eq!(analysis.vector(&func, results[0], None, 0), 4);
}
