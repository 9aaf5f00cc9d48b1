//! The error of each expansion, in units in the last place, over all magnitudes.

use super::super::expand_math::{MathTarget, expand_math};
use crate::ir::{Builder, DType, Func, OpKind, ParamAttrs, Scalar, Type, UnaryOp, Value, scalar};

mod halves;

/// A function of one scalar after expansion, ready to be computed at many points.
struct Evaluator {
    func: Func,
    x: Value,
    result: Value,
    slots: Vec<Scalar>,
}

impl Evaluator {
    fn new(function: UnaryOp, dtype: DType, target: MathTarget) -> Evaluator {
        Evaluator::of(dtype, target, |builder, x| builder.unary(function, x))
    }

    /// Of what `write` makes of an argument.
    fn of(
        dtype: DType,
        target: MathTarget,
        write: impl Fn(&mut Builder<'_>, Value) -> Value,
    ) -> Evaluator {
        let mut func = Func::new("f");
        let x = func.add_param("x", Type::scalar(dtype), ParamAttrs::default());
        let mut builder = Builder::new(&mut func);
        let y = write(&mut builder, x);
        builder.yield_values(&[y]);
        expand_math(&mut func, target);
        let last = *func.region(func.body).ops.last().expect("the yield is still there");
        let result = func.op(last).operands[0];
        let mut slots = vec![Scalar::zero(DType::Bool); func.n_values()];
        for op in func.walk() {
            if let OpKind::Const(scalar) = func.op(op).kind {
                slots[func.op(op).results[0].index()] = scalar;
            }
        }
        Evaluator { func, x, result, slots }
    }

    fn at(&mut self, x: Scalar) -> Scalar {
        self.slots[self.x.index()] = x;
        for &op in &self.func.region(self.func.body).ops {
            let data = self.func.op(op);
            let Some(result) = data.results.first() else { continue };
            let v = |i: usize| self.slots[data.operands[i].index()];
            self.slots[result.index()] = match &data.kind {
                OpKind::Const(_) => continue,
                OpKind::Unary(op) => scalar::unary(*op, v(0)),
                OpKind::Binary(op) => scalar::binary(*op, v(0), v(1)),
                OpKind::Compare(p) => {
                    Scalar::int(DType::Bool, i64::from(scalar::compare(*p, v(0), v(1))))
                }
                OpKind::Select => scalar::select(v(0), v(1), v(2)),
                OpKind::Fma => scalar::fma(v(0), v(1), v(2)),
                OpKind::Cast => scalar::cast(v(0), self.func.tile(*result).dtype()),
                OpKind::Bitcast => scalar::bitcast(v(0), self.func.tile(*result).dtype()),
                kind => panic!("{kind:?} is not elementwise"),
            };
        }
        self.slots[self.result.index()]
    }

    fn f32_at(&mut self, x: f32) -> f32 {
        let x = Scalar { dtype: DType::F32, bits: u64::from(x.to_bits()) };
        f32::from_bits(self.at(x).bits as u32)
    }

    fn f64_at(&mut self, x: f64) -> f64 {
        f64::from_bits(self.at(Scalar { dtype: DType::F64, bits: x.to_bits() }).bits)
    }
}

/// The function in f64, to compare f32 with.
fn reference(function: UnaryOp, x: f64) -> f64 {
    scalar::unary(function, Scalar::float(DType::F64, x)).to_f64()
}

/// How far apart they are, in the spacing of f32 numbers at `want`.
fn ulps_f32(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if (got.is_nan() && want.is_nan()) || got == rounded {
        return 0.0;
    }
    if !got.is_finite() || !rounded.is_finite() {
        // One past the largest number is infinity, as rounding has it.
        let edge = f64::from(f32::MAX);
        let one_past = got.is_infinite() && (want.abs() / edge - 1.0).abs() < 1e-6;
        return if one_past { 1.0 } else { f64::INFINITY };
    }
    let exponent = (want.abs().log2().floor() as i32).max(-126);
    (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
}

/// Points of every exponent and both signs, the same in each run: about `n` of them.
fn f32_points(n: u64) -> impl Iterator<Item = f32> {
    let step = (1u64 << 32) / n;
    (0..n).map(move |i| {
        let jitter = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        f32::from_bits((i * step + jitter % step) as u32)
    })
}

fn worst_f32(
    function: UnaryOp,
    target: MathTarget,
    points: impl Iterator<Item = f32>,
) -> (f64, f32) {
    let mut evaluator = Evaluator::new(function, DType::F32, target);
    let mut worst = (0.0, 0.0);
    for x in points {
        let error = ulps_f32(evaluator.f32_at(x), reference(function, f64::from(x)));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

/// All inputs and, more densely, those that are neither tiny nor huge: a million points.
fn check_f32(function: UnaryOp, limit: f64) {
    let targets: &[MathTarget] = match function {
        UnaryOp::Sigmoid | UnaryOp::Rsqrt => &[MathTarget::Exact],
        _ => &[MathTarget::Exact, MathTarget::Nvptx],
    };
    targets.iter().for_each(|&target| check_f32_for(function, target, limit));
}

fn check_f32_for(function: UnaryOp, target: MathTarget, limit: f64) {
    let around_one = |x: &f32| (1e-5..200.0).contains(&x.abs());
    let points = f32_points(300_000).chain(f32_points(7_000_000).filter(around_one));
    let points = points.filter(|x| has_reference(function, *x));
    let (worst, x) = worst_f32(function, target, points);
    assert!(worst <= limit, "{function:?} of {x:e} for {target:?} is off by {worst} ULP");
}

/// Sine and cosine treat what is larger as zero.
fn has_reference(function: UnaryOp, x: f32) -> bool {
    !matches!(function, UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan)
        || x.is_nan()
        || x.abs() <= 3.5e13
}

#[test]
fn exp_f32() {
    check_f32(UnaryOp::Exp, 2.6);
}

#[test]
fn exp2_f32() {
    check_f32(UnaryOp::Exp2, 1.5);
}

#[test]
fn log_f32() {
    check_f32(UnaryOp::Log, 1.5);
}

#[test]
fn log2_f32() {
    check_f32(UnaryOp::Log2, 2.0);
}

#[test]
fn log1p_f32() {
    check_f32(UnaryOp::Log1p, 2.0);
}

#[test]
fn log1p_f64_agrees_with_the_host() {
    let mut evaluator = Evaluator::new(UnaryOp::Log1p, DType::F64, MathTarget::Exact);
    for i in -300..300 {
        let x = 10f64.powi(i) * 1.25;
        for x in [x, -x].into_iter().filter(|&x| x > -1.0) {
            let (got, want) = (evaluator.f64_at(x), x.ln_1p());
            assert!(steps_f64(got, want) <= 4, "log1p({x:e}) = {got:e}, not {want:e}");
        }
    }
}

/// Where 16 bits are left a logarithm may be the GPU's own.
#[test]
fn logarithms_in_16_bits() {
    for (dtype, bits) in [(DType::F16, 0x7c00), (DType::BF16, 0x7f80)] {
        for function in [UnaryOp::Log, UnaryOp::Log2, UnaryOp::Log1p] {
            let mut evaluator = Evaluator::new(function, dtype, MathTarget::Nvptx);
            for x in (0..bits).chain(0x8000..0x8000 + bits) {
                let x = Scalar { dtype, bits: x };
                let (got, want) = (evaluator.at(x), scalar::unary(function, x));
                let distance = got.bits.abs_diff(want.bits);
                let is_nan = got.to_f64().is_nan() && want.to_f64().is_nan();
                assert!(distance <= 1 || is_nan, "{function:?}({}): {got:?}", x.to_f64());
            }
        }
    }
}

#[test]
fn sin_f32() {
    check_f32(UnaryOp::Sin, 2.0);
}

#[test]
fn cos_f32() {
    check_f32(UnaryOp::Cos, 2.0);
}

#[test]
fn tan_f32() {
    check_f32(UnaryOp::Tan, 4.0);
}

#[test]
fn log1p_of_what_is_at_most_one() {
    for target in [MathTarget::Exact, MathTarget::Nvptx] {
        let mut evaluator = Evaluator::of(DType::F32, target, |builder, x| {
            let size = builder.unary(UnaryOp::Abs, x);
            let minus = builder.unary(UnaryOp::Neg, size);
            let power = builder.unary(UnaryOp::Exp, minus);
            builder.unary(UnaryOp::Log1p, power)
        });
        for i in 0..100_000 {
            let x = i as f32 * 1e-3 - 50.0;
            let want = (-f64::from(x).abs()).exp().ln_1p();
            let error = ulps_f32(evaluator.f32_at(x), want);
            assert!(error <= 4.0, "{x}, {target:?}: {error} ULP");
        }
        assert!(evaluator.f32_at(f32::NAN).is_nan());
        assert_eq!(evaluator.f32_at(f32::INFINITY), 0.0);
    }
}

#[test]
fn tanh_f32() {
    check_f32(UnaryOp::Tanh, 2.5);
}

#[test]
fn erf_f32() {
    check_f32(UnaryOp::Erf, 3.0);
}

#[test]
fn sigmoid_f32() {
    check_f32(UnaryOp::Sigmoid, 3.0);
    // A product of two results that are rounded, with the GPU's own power of two taken as exact.
    check_f32_for(UnaryOp::Sigmoid, MathTarget::Nvptx, 4.0);
}

#[test]
fn rsqrt_f32() {
    check_f32(UnaryOp::Rsqrt, 1.5);
}

fn name(function: UnaryOp) -> String {
    format!("{function:?}").to_lowercase()
}

const FUNCTIONS: [UnaryOp; 10] = [
    UnaryOp::Exp,
    UnaryOp::Exp2,
    UnaryOp::Log,
    UnaryOp::Log2,
    UnaryOp::Sin,
    UnaryOp::Cos,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Sigmoid,
    UnaryOp::Rsqrt,
];

/// The distance in steps between neighboring f64 numbers.
fn steps_f64(a: f64, b: f64) -> u64 {
    let ordered = |x: f64| {
        let bits = x.to_bits() as i64;
        if bits < 0 { i64::MIN - bits } else { bits }
    };
    if a.is_nan() && b.is_nan() { 0 } else { ordered(a).abs_diff(ordered(b)) }
}

/// The table was computed with 60 digits and rounded to f64.
#[test]
fn f64_agrees_with_a_table() {
    let table = include_str!("reference_f64.txt");
    for function in FUNCTIONS {
        let mut evaluator = Evaluator::new(function, DType::F64, MathTarget::Exact);
        let wanted = name(function);
        let mut n_points = 0;
        for line in table.lines() {
            let mut words = line.split_whitespace();
            if words.next() != Some(wanted.as_str()) {
                continue;
            }
            let mut number = || {
                let word = words.next().expect("a line has three words");
                let digits = word.trim_start_matches("0x");
                f64::from_bits(u64::from_str_radix(digits, 16).expect("hexadecimal digits"))
            };
            let (x, want) = (number(), number());
            let got = evaluator.f64_at(x);
            let steps = steps_f64(got, want);
            assert!(steps <= 2, "{wanted}({x:e}) = {got:e}, not {want:e}: {steps} ULP");
            n_points += 1;
        }
        assert_eq!(n_points, 48, "{wanted}");
    }
}

#[test]
fn f64_agrees_with_the_host() {
    // The reference for `erf` is a series of our own, no better than what is tested.
    for function in FUNCTIONS.into_iter().filter(|&f| f != UnaryOp::Erf) {
        let mut evaluator = Evaluator::new(function, DType::F64, MathTarget::Exact);
        for i in 0..20_000u64 {
            let random = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let fraction = (random >> 11) as f64 / (1u64 << 53) as f64;
            let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
            let x = sign * (0.5 + fraction) * 2f64.powi((i % 40) as i32 - 30);
            let (got, want) = (evaluator.f64_at(x), reference(function, x));
            // The host's own error, and that of e^-x in its sigmoid, comes on top.
            let steps = steps_f64(got, want);
            assert!(steps <= 4, "{function:?}({x:e}) = {got:e}, not {want:e}: {steps} ULP");
        }
    }
}

#[test]
fn special_values() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let cases = [
        (UnaryOp::Exp, [1.0, 1.0, inf, 0.0, nan]),
        (UnaryOp::Exp2, [1.0, 1.0, inf, 0.0, nan]),
        (UnaryOp::Log, [-inf, -inf, inf, nan, nan]),
        (UnaryOp::Log2, [-inf, -inf, inf, nan, nan]),
        (UnaryOp::Log1p, [0.0, -0.0, inf, nan, nan]),
        (UnaryOp::Tan, [0.0, -0.0, nan, nan, nan]),
        (UnaryOp::Sin, [0.0, -0.0, nan, nan, nan]),
        (UnaryOp::Cos, [1.0, 1.0, nan, nan, nan]),
        (UnaryOp::Tanh, [0.0, -0.0, 1.0, -1.0, nan]),
        (UnaryOp::Erf, [0.0, -0.0, 1.0, -1.0, nan]),
        (UnaryOp::Sigmoid, [0.5, 0.5, 1.0, 0.0, nan]),
        (UnaryOp::Rsqrt, [inf, -inf, 0.0, nan, nan]),
    ];
    for target in [MathTarget::Exact, MathTarget::Nvptx] {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for (function, wants) in cases {
                let mut evaluator = Evaluator::new(function, dtype, target);
                for (x, want) in [0.0, -0.0, inf, -inf, nan].into_iter().zip(wants) {
                    let got = evaluator.at(Scalar::float(dtype, x)).to_f64();
                    let is_same =
                        got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                    assert!(is_same, "{function:?}({x}) = {got}, not {want}: {dtype}, {target:?}");
                }
            }
        }
    }
}

#[test]
fn logarithms_of_powers_of_two_are_whole() {
    let mut evaluator = Evaluator::new(UnaryOp::Log2, DType::F32, MathTarget::Exact);
    for n in -149..=127 {
        assert_eq!(evaluator.f32_at(2f64.powi(n) as f32), n as f32);
    }
}

#[test]
fn halves_are_within_one_ulp() {
    let targets = [MathTarget::Exact, MathTarget::Nvptx];
    for (function, target) in FUNCTIONS.into_iter().flat_map(|f| targets.map(|t| (f, t))) {
        let mut evaluator = Evaluator::new(function, DType::BF16, target);
        for bits in (0..0x7f80).step_by(5) {
            let x = Scalar { dtype: DType::BF16, bits };
            if !has_reference(function, x.to_f64() as f32) {
                continue;
            }
            let (got, want) = (evaluator.at(x), scalar::unary(function, x));
            let distance = got.bits.abs_diff(want.bits);
            assert!(distance <= 1, "{function:?}({}) = {got:?}, not {want:?}", x.to_f64());
        }
    }
}

/// Whether the code for arguments beyond 2^45 is there.
fn has_far(dtype: DType, write: impl Fn(&mut Builder<'_>, Value) -> Value) -> bool {
    let of = Evaluator::of(dtype, MathTarget::Nvptx, write);
    let is_far = |op| matches!(of.func.op(op).kind, OpKind::Unary(UnaryOp::SinFar));
    of.func.walk().into_iter().any(is_far)
}

#[test]
fn arguments_known_to_be_small_need_no_long_reduction() {
    use crate::ir::BinaryOp::{Mul, Sub};
    assert!(has_far(DType::F32, |b, x| b.unary(UnaryOp::Sin, x)));
    assert!(!has_far(DType::F16, |b, x| b.unary(UnaryOp::Sin, x)));
    for rounds in [UnaryOp::Floor, UnaryOp::Ceil, UnaryOp::Round, UnaryOp::Trunc] {
        assert!(!has_far(DType::F64, |b, x| {
            let whole = b.unary(rounds, x);
            let rest = b.binary(Sub, x, whole);
            let turns = b.binary(Mul, rest, rest);
            b.unary(UnaryOp::Sin, turns)
        }));
    }
    // What is subtracted is of another value.
    assert!(has_far(DType::F64, |b, x| {
        let negative = b.unary(UnaryOp::Neg, x);
        let whole = b.unary(UnaryOp::Floor, x);
        let twice = b.binary(Sub, negative, whole);
        b.unary(UnaryOp::Sin, twice)
    }));
}
