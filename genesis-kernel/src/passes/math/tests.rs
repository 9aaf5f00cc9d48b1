//! The error of each expansion, in units in the last place, over all magnitudes.

use super::super::expand_math::{MathTarget, expand_math};
use crate::ir::{Builder, DType, Func, OpKind, ParamAttrs, Scalar, Type, UnaryOp, Value, scalar};

/// A function of one scalar after expansion, ready to be computed at many points.
struct Evaluator {
    func: Func,
    x: Value,
    result: Value,
    slots: Vec<Scalar>,
}

impl Evaluator {
    fn new(function: UnaryOp, dtype: DType, target: MathTarget) -> Evaluator {
        let mut func = Func::new("f");
        let x = func.add_param("x", Type::scalar(dtype), ParamAttrs::default());
        let mut builder = Builder::new(&mut func);
        let y = builder.unary(function, x);
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

fn worst_f32(function: UnaryOp, target: MathTarget, points: impl Iterator<Item = f32>) -> f64 {
    let mut evaluator = Evaluator::new(function, DType::F32, target);
    let mut worst = (0.0, 0.0);
    for x in points {
        let error = ulps_f32(evaluator.f32_at(x), reference(function, f64::from(x)));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    println!("{function:?} {target:?}: {:.3} ULP at {:e}", worst.0, worst.1);
    worst.0
}

/// All inputs and, more densely, those that are neither tiny nor huge.
fn check_f32(function: UnaryOp, limit: f64) {
    for target in [MathTarget::Exact, MathTarget::Nvptx] {
        let around_one = |x: &f32| (1e-6..200.0).contains(&x.abs());
        let points = f32_points(300_000).chain(f32_points(5_000_000).filter(around_one));
        let points = points.filter(|x| has_reference(function, *x));
        let worst = worst_f32(function, target, points);
        assert!(worst <= limit, "{function:?} for {target:?} is off by {worst} ULP");
    }
}

/// Sine and cosine treat what is larger as zero.
fn has_reference(function: UnaryOp, x: f32) -> bool {
    !matches!(function, UnaryOp::Sin | UnaryOp::Cos) || x.is_nan() || x.abs() <= 3.5e13
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
fn sin_f32() {
    check_f32(UnaryOp::Sin, 2.0);
}

#[test]
fn cos_f32() {
    check_f32(UnaryOp::Cos, 2.0);
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
}

#[test]
fn rsqrt_f32() {
    check_f32(UnaryOp::Rsqrt, 1.5);
}
