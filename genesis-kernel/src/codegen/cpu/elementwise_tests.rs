//! Every elementwise op of every dtype against its definition in `ir::scalar`, on values where
//! implementations differ: zeros of both signs, the ends of ranges, subnormals, infinities, NaN.

use super::{OptLevel, linked};
use crate::ir::ArgValue;
use crate::ir::float8;
use crate::ir::scalar;
use crate::ir::{
    BinaryOp, Builder, DType, Func, OpKind, ParamAttrs, Predicate, Scalar, Shape, TileType, Type,
    UnaryOp, Value,
};

const UNARY: [UnaryOp; 9] = [
    UnaryOp::Neg,
    UnaryOp::Not,
    UnaryOp::Abs,
    UnaryOp::Sqrt,
    UnaryOp::Rsqrt,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::Round,
    UnaryOp::Trunc,
];

const BINARY: [BinaryOp; 15] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::Shl,
    BinaryOp::Shr,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::MinNum,
    BinaryOp::MaxNum,
    BinaryOp::MulHi,
];

const COMPARE: [Predicate; 6] =
    [Predicate::Eq, Predicate::Ne, Predicate::Lt, Predicate::Le, Predicate::Gt, Predicate::Ge];

fn unary_has(op: UnaryOp, dtype: DType) -> bool {
    match op {
        _ if dtype.is_f8() => false,
        UnaryOp::Not => !dtype.is_float(),
        UnaryOp::Sqrt | UnaryOp::Rsqrt => dtype.is_float(),
        _ => dtype != DType::Bool,
    }
}

fn binary_has(op: BinaryOp, dtype: DType) -> bool {
    match op {
        _ if dtype.is_f8() => false,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => !dtype.is_float(),
        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => dtype.is_int(),
        BinaryOp::Short => dtype.is_float(),
        BinaryOp::Div | BinaryOp::Rem => dtype != DType::Bool,
        _ => true,
    }
}

/// Numbers of a dtype that are worth trying.
fn interesting(dtype: DType) -> Vec<Scalar> {
    if dtype == DType::Bool {
        return vec![Scalar::int(dtype, 0), Scalar::int(dtype, 1)];
    }
    if dtype.is_int() {
        let near = |center: i64| (-2..=2).map(move |d| center.wrapping_add(d));
        let edges = [0, 7, 100, i64::MIN, i64::MAX, 1 << 7, 1 << 15, 1 << 31, 1 << 24, 0x0101_0001];
        let wide = [0x4001_0000_0000_0001, -0x4001_0000_0000_0001, (1 << 53) + 1];
        let all = edges.into_iter().flat_map(near).chain(wide);
        let mut list: Vec<Scalar> = all.map(|v| Scalar::int(dtype, v)).collect();
        list.dedup();
        return list;
    }
    let magnitudes = [
        0.0,
        0.5,
        1.0,
        1.5,
        2.5,
        3.999,
        7.0,
        126.5,
        127.0,
        128.0,
        255.0,
        256.0,
        32767.5,
        65504.0,
        65519.9,
        65520.0,
        1e-7,
        6e-8,
        1e-40,
        1e-45,
        2147483647.0,
        2147483648.0,
        4294967296.0,
        9.3e18,
        1.9e19,
        3.4e38,
        f64::from(f32::MAX),
        1.0 + 1.0 / 512.0 + 1e-12,
        f64::INFINITY,
        f64::NAN,
        1e300,
        5e-324,
        0.1,
    ];
    if let Some(format) = float8::format(dtype) {
        let all = (0..=u8::MAX).map(|bits| Scalar { dtype, bits: bits.into() });
        return all
            .filter(|s| s.bits & 0x7f <= u64::from(format.largest) || s.bits == 0x7f)
            .collect();
    }
    magnitudes.iter().flat_map(|&m| [m, -m]).map(|v| Scalar::float(dtype, v)).collect()
}

type Build = dyn Fn(&mut Builder<'_>, &[Value]) -> Value;
type Expected = dyn Fn(&[Scalar]) -> Scalar;

/// One case: what to build from loaded operands, and what it should give.
struct Case {
    inputs: Vec<DType>,
    output: DType,
    build: Box<Build>,
    expected: Box<Expected>,
    name: String,
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for dtype in DType::ALL {
        for op in UNARY.into_iter().filter(|&op| unary_has(op, dtype)) {
            cases.push(Case {
                inputs: vec![dtype],
                output: dtype,
                build: Box::new(move |b, v| b.unary(op, v[0])),
                expected: Box::new(move |x| scalar::unary(op, x[0])),
                name: format!("{op:?} {dtype}"),
            });
        }
        for op in BINARY.into_iter().filter(|&op| binary_has(op, dtype)) {
            cases.push(Case {
                inputs: vec![dtype; 2],
                output: dtype,
                build: Box::new(move |b, v| b.binary(op, v[0], v[1])),
                expected: Box::new(move |x| scalar::binary(op, x[0], x[1])),
                name: format!("{op:?} {dtype}"),
            });
        }
        for predicate in COMPARE {
            cases.push(Case {
                inputs: vec![dtype; 2],
                output: DType::Bool,
                build: Box::new(move |b, v| b.compare(predicate, v[0], v[1])),
                expected: Box::new(move |x| {
                    Scalar::int(DType::Bool, scalar::compare(predicate, x[0], x[1]).into())
                }),
                name: format!("{predicate:?} {dtype}"),
            });
        }
        for to in DType::ALL.into_iter().filter(|&to| to != dtype) {
            cases.push(Case {
                inputs: vec![dtype],
                output: to,
                build: Box::new(move |b, v| b.cast(v[0], to)),
                expected: Box::new(move |x| scalar::cast(x[0], to)),
                name: format!("cast {dtype} {to}"),
            });
            if to.bits() == dtype.bits() {
                cases.push(Case {
                    inputs: vec![dtype],
                    output: to,
                    build: Box::new(move |b, v| b.bitcast(v[0], to)),
                    expected: Box::new(move |x| scalar::bitcast(x[0], to)),
                    name: format!("bitcast {dtype} {to}"),
                });
            }
        }
        if dtype.is_number() {
            cases.push(Case {
                inputs: vec![dtype; 3],
                output: dtype,
                build: Box::new(|b, v| b.fma(v[0], v[1], v[2])),
                expected: Box::new(|x| scalar::fma(x[0], x[1], x[2])),
                name: format!("fma {dtype}"),
            });
        }
    }
    cases
}

fn bytes_of(values: &[Scalar]) -> Vec<u8> {
    values.iter().flat_map(|s| s.bits.to_le_bytes()[..s.dtype.bytes()].to_vec()).collect()
}

/// One function for several cases, each with its own pointers; as tiles, or as scalars by program id.
fn build(cases: &[Case], n: usize, as_tiles: bool) -> Func {
    let mut func = Func::new("ops");
    let readonly = ParamAttrs { readonly: true, ..ParamAttrs::default() };
    let exclusive = ParamAttrs { exclusive: true, ..ParamAttrs::default() };
    let mut params = Vec::new();
    for (c, case) in cases.iter().enumerate() {
        let mut ptr = |name: String, dtype, attrs: &ParamAttrs| {
            func.add_param(name, TileType::ptr(dtype, Shape::SCALAR).into(), attrs.clone())
        };
        let inputs: Vec<Value> = (0..)
            .zip(&case.inputs)
            .map(|(i, &d): (usize, _)| ptr(format!("x{c}_{i}"), d, &readonly))
            .collect();
        params.push((inputs, ptr(format!("out{c}"), case.output, &exclusive)));
    }
    let shape = if as_tiles { Shape::new(&[n]) } else { Shape::SCALAR };
    let mut b = Builder::new(&mut func);
    let at = if as_tiles { b.iota(n) } else { b.program_id(0) };
    for (case, (inputs, out)) in cases.iter().zip(params) {
        let mut loaded = Vec::new();
        for input in inputs {
            let p = b.broadcast(input, shape);
            let p = b.ptr_add(p, at);
            loaded.push(b.load(p, None, None));
        }
        let result = (case.build)(&mut b, &loaded);
        let p = b.broadcast(out, shape);
        let p = b.ptr_add(p, at);
        b.store(p, result, None);
    }
    b.push(OpKind::Yield, &[], &[] as &[Type], &[]);
    func
}

/// Operands: every pair for two, every value with shifted lists for three.
fn operands(inputs: &[DType]) -> Vec<Vec<Scalar>> {
    let first = interesting(inputs[0]);
    let n = first.len();
    match inputs.len() {
        1 => vec![first],
        2 => {
            let pairs = || (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
            vec![pairs().map(|(i, _)| first[i]).collect(), pairs().map(|(_, j)| first[j]).collect()]
        }
        _ => {
            let shifted = |s: usize| (0..n * 8).map(|i| first[(i + i / n * s) % n]).collect();
            vec![shifted(0), shifted(1), shifted(5)]
        }
    }
}

fn is_equal(a: Scalar, b: Scalar) -> bool {
    let is_nan = |s: Scalar| s.dtype.is_float() && s.to_f64().is_nan();
    a.bits == b.bits || is_nan(a) && is_nan(b)
}

fn read(dtype: DType, bytes: &[u8]) -> Scalar {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    if dtype.is_float() { Scalar { dtype, bits } } else { Scalar::int(dtype, bits as i64) }
}

/// Compiles cases together, runs them, compares each element.
fn check(cases: &[Case], as_tiles: bool, opt: OptLevel) {
    let inputs: Vec<Vec<Vec<Scalar>>> = cases.iter().map(|c| operands(&c.inputs)).collect();
    let n = inputs.iter().map(|i| i[0].len()).max().unwrap();
    let padded =
        |list: &[Scalar]| -> Vec<Scalar> { (0..n).map(|i| list[i % list.len()]).collect() };
    let func = build(cases, n, as_tiles);
    let kernel = linked(&func, opt).unwrap();
    let mut memory: Vec<Vec<u8>> = Vec::new();
    for (case, inputs) in cases.iter().zip(&inputs) {
        memory.extend(inputs.iter().map(|i| bytes_of(&padded(i))));
        memory.push(vec![0xcc; n * case.output.bytes()]);
    }
    let args: Vec<ArgValue> =
        memory.iter_mut().map(|m| ArgValue::Ptr(m.as_mut_ptr() as u64)).collect();
    let grid = [if as_tiles { 1 } else { n as u32 }, 1, 1];
    // SAFETY: each argument has as many elements as the kernel goes through.
    unsafe { kernel.run(&args, grid).unwrap() };
    let mut slot = 0;
    for (case, inputs) in cases.iter().zip(&inputs) {
        slot += inputs.len();
        for i in 0..n {
            let x: Vec<Scalar> = inputs.iter().map(|list| list[i % list.len()]).collect();
            let width = case.output.bytes();
            let got = read(case.output, &memory[slot][i * width..(i + 1) * width]);
            let want = (case.expected)(&x);
            assert!(is_equal(got, want), "{} {x:?}: {got:?}, not {want:?}", case.name);
        }
        slot += 1;
    }
}

#[test]
fn every_op_in_vectors() {
    let all = cases();
    for opt in [OptLevel::O0, OptLevel::O3] {
        all.chunks(40).for_each(|cases| check(cases, true, opt));
    }
}

#[test]
fn every_op_in_scalars() {
    let all = cases();
    for opt in [OptLevel::O0, OptLevel::O3] {
        all.chunks(40).for_each(|cases| check(cases, false, opt));
    }
}
