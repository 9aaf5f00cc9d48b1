//! Random programs give the same bits before and after the passes.

use super::{
    CSE, DCE, EXACT, EXPAND_MATH, FOLD, FOLD_SELECT, INTERPRETER, LICM, PEEL, PIPELINE, VERSION,
    run,
};
use crate::interp::run_func;
use crate::ir::InterpArg;
use crate::ir::random::random_program;
use crate::ir::{
    BinaryOp, Builder, DType, Func, OpKind, ParamAttrs, Predicate, Scalar, Type, UnaryOp, Value,
    scalar, verify,
};

/// Numbers from a seed, by a 64-bit linear congruence.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    fn scalar(&mut self, dtype: DType) -> Scalar {
        let special =
            [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.7, -65504.0, 1e30, f64::INFINITY, f64::NAN];
        let ints = [0, 1, -1, 2, 7, -128, 127, 255, 1 << 31, i64::MIN, i64::MAX, 0x1234_5678_9abc];
        if dtype.is_float() {
            Scalar::float(dtype, self.pick(&special))
        } else {
            Scalar::int(dtype, self.pick(&ints))
        }
    }
}

const UNARY: [UnaryOp; 5] =
    [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Floor, UnaryOp::Round, UnaryOp::Sqrt];
const BINARY: [BinaryOp; 9] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::MinNum,
    BinaryOp::MaxNum,
];
const INT_BINARY: [BinaryOp; 6] =
    [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor, BinaryOp::Shl, BinaryOp::Shr, BinaryOp::MulHi];
const BOOL_BINARY: [BinaryOp; 3] = [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor];
const PREDICATES: [Predicate; 6] =
    [Predicate::Eq, Predicate::Ne, Predicate::Lt, Predicate::Le, Predicate::Gt, Predicate::Ge];

/// One more op on values that are there.
fn grow(random: &mut Random, builder: &mut Builder<'_>, values: &[Value]) -> Value {
    let a = random.pick(values);
    let dtype = builder.func.tile(a).dtype();
    let of_dtype = |builder: &Builder<'_>, dtype: DType| -> Vec<Value> {
        values.iter().copied().filter(|&v| builder.func.tile(v).dtype() == dtype).collect()
    };
    let same = of_dtype(builder, dtype);
    let (b, c) = (random.pick(&same), random.pick(&same));
    let arithmetic = if dtype.is_f8() { 4 } else { 9 };
    match random.below(arithmetic) {
        0 => {
            let constant = random.scalar(dtype);
            builder.constant(constant)
        }
        1 => builder.cast(a, random.pick(&DType::ALL)),
        2 => builder.compare(random.pick(&PREDICATES), a, b),
        3 => {
            let bools = of_dtype(builder, DType::Bool);
            builder.select(random.pick(&bools), b, c)
        }
        4 if dtype == DType::Bool => builder.unary(UnaryOp::Not, a),
        4 if dtype.is_float() => builder.unary(random.pick(&UNARY), a),
        4 => builder.unary(random.pick(&[UnaryOp::Neg, UnaryOp::Not, UnaryOp::Abs]), a),
        5 if dtype.is_float() => builder.fma(a, b, c),
        5 | 6 if dtype.is_int() => builder.binary(random.pick(&INT_BINARY), a, b),
        _ if dtype == DType::Bool => builder.binary(random.pick(&BOOL_BINARY), a, b),
        _ => builder.binary(random.pick(&BINARY), a, b),
    }
}

/// A program that keeps its last values alive by storing them.
fn program(seed: u64) -> Func {
    let mut random = Random(seed);
    let mut func = Func::new("random");
    let mut values: Vec<Value> = DType::ALL
        .iter()
        .map(|&d| func.add_param(format!("x_{d}"), Type::scalar(d), ParamAttrs::default()))
        .collect();
    let pointers: Vec<Value> = DType::ALL
        .iter()
        .map(|&d| {
            let ty = crate::ir::TileType::ptr(d, crate::ir::Shape::SCALAR);
            func.add_param(format!("p_{d}"), ty.into(), ParamAttrs::default())
        })
        .collect();
    let mut builder = Builder::new(&mut func);
    for _ in 0..60 {
        let value = grow(&mut random, &mut builder, &values);
        values.push(value);
    }
    for &value in &values[values.len() - 12..] {
        let dtype = builder.func.tile(value).dtype();
        let i = DType::ALL.iter().position(|&d| d == dtype).expect("every dtype is there");
        builder.store(pointers[i], value, None);
    }
    builder.ret();
    func
}

/// What the stores write, in order.
fn stores(func: &Func, inputs: &[Scalar]) -> Vec<Scalar> {
    let mut slots = vec![Scalar::zero(DType::Bool); func.n_values()];
    for (param, &input) in func.params.iter().zip(inputs) {
        slots[param.value.index()] = input;
    }
    let mut written = Vec::new();
    for op in func.walk() {
        let data = func.op(op);
        let v = |i: usize| slots[data.operands[i].index()];
        let result = match &data.kind {
            OpKind::Const(constant) => *constant,
            OpKind::Unary(op) => scalar::unary(*op, v(0)),
            OpKind::Binary(op) => scalar::binary(*op, v(0), v(1)),
            OpKind::Compare(p) => Scalar::int(DType::Bool, scalar::compare(*p, v(0), v(1)).into()),
            OpKind::Select => scalar::select(v(0), v(1), v(2)),
            OpKind::Fma => scalar::fma(v(0), v(1), v(2)),
            OpKind::Cast => scalar::cast(v(0), func.tile(data.results[0]).dtype()),
            OpKind::Store => {
                written.push(v(1));
                continue;
            }
            OpKind::Return => continue,
            kind => panic!("{kind:?} is not in these programs"),
        };
        slots[data.results[0].index()] = result;
    }
    written
}

#[test]
fn bits_stay() {
    for seed in 0..400 {
        let func = program(seed);
        verify::verify(&func).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let mut after = func.clone();
        run(&mut after, PIPELINE);
        run(&mut after, EXACT);
        let mut random = Random(seed ^ 0xfeed);
        for _ in 0..20 {
            let inputs: Vec<Scalar> = DType::ALL.iter().map(|&d| random.scalar(d)).collect();
            let pairs = stores(&func, &inputs).into_iter().zip(stores(&after, &inputs));
            for (before, now) in pairs {
                let is_same = before == now
                    || (before.dtype.is_float()
                        && before.to_f64().is_nan()
                        && now.to_f64().is_nan());
                assert!(
                    is_same,
                    "seed {seed}: {before:?} became {now:?} for {inputs:?}\n{func}\n{after}"
                );
            }
        }
    }
}

/// The memory of an argument with every NaN made the same.
fn canonical(arg: &InterpArg, memory: &[u8]) -> Vec<u64> {
    let dtype = match arg {
        InterpArg::Buffer(dtype, _) | InterpArg::BufferMut(dtype, _) => *dtype,
        InterpArg::View { dtype, .. } => *dtype,
        InterpArg::Scalar(scalar) => scalar.dtype,
    };
    let number = |bytes: &[u8]| {
        let bits = bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
        let scalar = Scalar { dtype, bits };
        if dtype.is_float() && scalar.to_f64().is_nan() { u64::MAX } else { bits }
    };
    memory.chunks(dtype.bytes()).map(number).collect()
}

#[test]
fn whole_programs_write_the_same() {
    for seed in 0..150 {
        let program = random_program(seed);
        let result = |pipelines: [&[super::Pass]; 2]| {
            let mut func = program.func.clone();
            pipelines.into_iter().for_each(|passes| run(&mut func, passes));
            let memory = run_func(&func, program.grid, program.args.clone())
                .unwrap_or_else(|e| panic!("seed {seed}: {e}\n{func}"));
            let pairs = program.args.iter().zip(&memory);
            (func, pairs.map(|(arg, memory)| canonical(arg, memory)).collect::<Vec<_>>())
        };
        let (before, want) = result([INTERPRETER, &[]]);
        let (after, got) = result([PIPELINE, EXACT]);
        assert!(want == got, "seed {seed}\n{before}\n{after}");
        let (after, got) =
            result([PIPELINE, &[VERSION, PEEL, FOLD_SELECT, EXPAND_MATH, FOLD, CSE, LICM, DCE]]);
        assert!(want == got, "versions, seed {seed}\n{before}\n{after}");
    }
}
