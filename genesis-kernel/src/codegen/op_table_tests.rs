//! Whatever the verifier accepts has code: every op of every dtype, as a scalar and as a tile, for the
//! processor and for two generations of GPUs.

use crate::compile::{Specialized, compile};
use crate::front::Hints;
use crate::ir::{
    AtomicOp, BinaryOp, Builder, DType, DotPrecision, Func, OpKind, ParamAttrs, Predicate, Shape,
    TileType, Type, UnaryOp, Value, verify,
};
use crate::target::{GpuTarget, Target};

const ATOMIC: [AtomicOp; 7] = [
    AtomicOp::Add,
    AtomicOp::Max,
    AtomicOp::Min,
    AtomicOp::And,
    AtomicOp::Or,
    AtomicOp::Xor,
    AtomicOp::Exchange,
];

const COMPARE: [Predicate; 6] =
    [Predicate::Eq, Predicate::Ne, Predicate::Lt, Predicate::Le, Predicate::Gt, Predicate::Ge];

const PRECISIONS: [DotPrecision; 4] =
    [DotPrecision::Ieee, DotPrecision::Tf32, DotPrecision::Tf32x3, DotPrecision::Fast];

type Build = Box<dyn Fn(&mut Builder<'_>, Value, Value) -> Value>;

/// An op of an operand and of the pointers it was loaded from.
struct Case {
    name: String,
    dtype: DType,
    shape: Shape,
    build: Build,
}

/// Every op of every dtype, whether that exists or not.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        for extents in [&[][..], &[64]] {
            of_dtype(&mut cases, dtype, Shape::new(extents));
        }
        over_axes(&mut cases, dtype, Shape::new(&[16, 32]));
    }
    cases
}

fn of_dtype(cases: &mut Vec<Case>, dtype: DType, shape: Shape) {
    let mut add = |name: String, build: Build| {
        cases.push(Case { name, dtype, shape, build });
    };
    for &op in UnaryOp::ALL {
        add(op.name().into(), Box::new(move |b, x, _| b.unary(op, x)));
    }
    for &op in BinaryOp::ALL {
        add(op.name().into(), Box::new(move |b, x, _| b.binary(op, x, x)));
    }
    for predicate in COMPARE {
        let build = move |b: &mut Builder<'_>, x, _| b.compare(predicate, x, x);
        add(format!("{predicate:?}"), Box::new(build));
    }
    for to in DType::ALL {
        add(format!("cast {to}"), Box::new(move |b, x, _| b.cast(x, to)));
        add(format!("bitcast {to}"), Box::new(move |b, x, _| b.bitcast(x, to)));
    }
    add("fma".into(), Box::new(|b, x, _| b.fma(x, x, x)));
    let choose = |b: &mut Builder<'_>, x, _| {
        let cond = b.compare(Predicate::Eq, x, x);
        b.select(cond, x, x)
    };
    add("select".into(), Box::new(choose));
    for op in ATOMIC {
        let build = move |b: &mut Builder<'_>, x, p| b.atomic_rmw(op, p, x, None);
        add(format!("atomic {op:?}"), Box::new(build));
    }
    add("atomic_cas".into(), Box::new(|b, x, p| b.atomic_cas(p, x, x, None)));
    let print = |b: &mut Builder<'_>, x, _| {
        b.push(OpKind::Print { format: "{}".into() }, &[x], &[], &[]);
        x
    };
    add("print".into(), Box::new(print));
}

fn over_axes(cases: &mut Vec<Case>, dtype: DType, shape: Shape) {
    let mut add = |name: String, build: Build| {
        cases.push(Case { name, dtype, shape, build });
    };
    for (&op, axis) in BinaryOp::ALL.iter().flat_map(|op| [(op, 0), (op, 1)]) {
        add(format!("reduce {axis} {op:?}"), Box::new(move |b, x, _| b.reduce(op, x, axis)));
        let scan = move |b: &mut Builder<'_>, x, _| b.scan(op, x, axis, axis == 1);
        add(format!("scan {axis} {op:?}"), Box::new(scan));
    }
    for (sums, precision) in DType::ALL.into_iter().flat_map(|d| PRECISIONS.map(|p| (d, p))) {
        let build = move |b: &mut Builder<'_>, x, _| {
            let right = b.transpose(x, &[1, 0]);
            let zero = b.constant(crate::ir::Scalar::zero(sums));
            let zero = b.broadcast(zero, Shape::new(&[16, 16]));
            b.dot(x, right, zero, precision)
        };
        add(format!("dot {sums} {precision:?}"), Box::new(build));
    }
    for axis in [0, 1] {
        let build = move |b: &mut Builder<'_>, x, _| {
            let line = b.iota(32);
            let index = b.expand_dims(line, 0);
            let index = b.broadcast(index, Shape::new(&[16, 32]));
            b.gather(x, index, axis)
        };
        add(format!("gather {axis}"), Box::new(build));
    }
    for axis in [0, 1] {
        let build = move |b: &mut Builder<'_>, x, _| {
            let line = b.iota(16);
            let line = b.expand_dims(line, 1 - axis);
            let index = b.broadcast(line, Shape::new(&[16, 16]));
            b.scatter(x, index, axis)
        };
        add(format!("scatter {axis}"), Box::new(build));
    }
    add("transpose".into(), Box::new(|b, x, _| b.transpose(x, &[1, 0])));
    add("reshape".into(), Box::new(|b, x, _| b.reshape(x, Shape::new(&[8, 4, 16]))));
    add("join".into(), Box::new(|b, x, _| b.join(x, x)));
}

/// Addresses of as many elements as the shape has, from a pointer on.
fn addresses(b: &mut Builder<'_>, pointer: Value, shape: Shape) -> Value {
    if shape.is_scalar() {
        return pointer;
    }
    let at = b.iota(shape.numel());
    let at = b.reshape(at, shape);
    let all = b.broadcast(pointer, shape);
    b.ptr_add(all, at)
}

/// A kernel of these cases.
fn kernel(cases: &[&Case]) -> Func {
    let mut func = Func::new("table");
    let pointers: Vec<Value> = DType::ALL
        .into_iter()
        .map(|dtype| {
            let ty = TileType::ptr(dtype, Shape::SCALAR);
            func.add_param(format!("{dtype}"), ty.into(), ParamAttrs::default())
        })
        .collect();
    let place = |dtype: DType| {
        let at = DType::ALL.into_iter().position(|other| other == dtype);
        pointers[at.expect("it is one of all")]
    };
    let mut b = Builder::new(&mut func);
    for case in cases {
        let p = addresses(&mut b, place(case.dtype), case.shape);
        let x = b.load(p, None, None);
        let y = (case.build)(&mut b, x, p);
        let made = b.func.tile(y);
        let out = addresses(&mut b, place(made.dtype()), made.shape);
        b.store(out, y, None);
    }
    b.push(OpKind::Return, &[], &[] as &[Type], &[]);
    func
}

fn code(func: Func, target: &Target) -> Result<(), String> {
    let hints = Hints { num_warps: Some(4), ..Hints::default() };
    let special = Specialized::new(func, &[], &[], &hints);
    compile(&special, target).map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn what_verifies_has_code() {
    let cases = cases();
    let accepted: Vec<&Case> =
        cases.iter().filter(|&case| verify(&kernel(&[case])).is_ok()).collect();
    assert!(accepted.len() > 1000, "{} are accepted", accepted.len());
    let mut failures = Vec::new();
    for target in [Target::Cpu, Target::Gpu(GpuTarget::SM_80), Target::Gpu(GpuTarget::SM_90A)] {
        for cases in accepted.chunks(32) {
            if code(kernel(cases), &target).is_ok() {
                continue;
            }
            for case in cases {
                if let Err(error) = code(kernel(&[case]), &target) {
                    let (dtype, shape) = (case.dtype, case.shape);
                    failures.push(format!("{} of {dtype}{shape} for {target}: {error}", case.name));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} fail:\n{}", failures.len(), failures.join("\n"));
}
