//! Mathematical functions, conversions and choice, element by element.

use std::f64::consts::LOG2_E;

use crate::ir::{BinaryOp, DType, Predicate, Scalar, UnaryOp};

use super::arguments::Call;
use super::broadcast::Class;
use super::consts;
use super::lower::{Lower, Res};
use super::value::{Operand, Val};

/// `x.to::<U>()`
pub(super) fn to(lower: &mut Lower, call: &Call) -> Res {
    let dtype = call.dtype(lower)?;
    lower.cast(&call.args[0], dtype)
}

/// `x.bitcast::<U>()`
pub(super) fn bitcast(lower: &mut Lower, call: &Call) -> Res {
    let dtype = call.dtype(lower)?;
    let (value, soft) = lower.number("`bitcast`", &call.args[0])?;
    let own = lower.func.tile(value).dtype();
    if soft {
        let error = lower.error(call.span, "`bitcast` of a literal, whose dtype is not known");
        return Err(error.help("give the literal a suffix, such as `1.0f32`"));
    }
    if own.bits() != dtype.bits() {
        let (from, to) = (own.bits(), dtype.bits());
        let message = format!("`bitcast` from {own} with {from} bits to {dtype} with {to}");
        return Err(lower.error(call.span, message).help("convert the value with `.to::<U>()`"));
    }
    Ok(Val::Ir(lower.build().bitcast(value, dtype)))
}

/// `exp(x)` and the other functions of one float.
pub(super) fn float_unary(lower: &mut Lower, call: &Call) -> Res {
    let op = match call.name {
        "exp" => UnaryOp::Exp,
        "exp2" => UnaryOp::Exp2,
        "log" => UnaryOp::Log,
        "log2" => UnaryOp::Log2,
        "log1p" => UnaryOp::Log1p,
        "tan" => UnaryOp::Tan,
        "sqrt" => UnaryOp::Sqrt,
        "rsqrt" => UnaryOp::Rsqrt,
        "sin" => UnaryOp::Sin,
        "cos" => UnaryOp::Cos,
        "tanh" => UnaryOp::Tanh,
        "erf" => UnaryOp::Erf,
        "sigmoid" => UnaryOp::Sigmoid,
        "floor" => UnaryOp::Floor,
        "ceil" => UnaryOp::Ceil,
        "round" => UnaryOp::Round,
        "trunc" => UnaryOp::Trunc,
        name => return Err(lower.error(call.span, format!("there is no function `{name}`"))),
    };
    lower.unary(&format!("`{}`", call.name), Class::Float, op, &call.args[0])
}

/// `fast::exp(x)` and its kin: a power of two whose argument is rounded, and little around it. 16-bit
/// floats are computed in f32.
pub(super) fn fast(lower: &mut Lower, call: &Call) -> Res {
    let what = format!("`{}`", call.name.replacen('_', "::", 1));
    let aligned = lower.align(&what, Class::Float, &[&call.args[0]])?;
    let mut b = lower.build();
    let dtype = b.func.tile(aligned.values[0]).dtype();
    let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
    let x = b.cast(aligned.values[0], wide);
    let shape = b.func.tile(x).shape;
    let [factor, one, two] = match call.name {
        "fast_exp" => [LOG2_E, 1.0, 2.0],
        "fast_sigmoid" => [-LOG2_E, 1.0, 2.0],
        _ => [-2.0 * LOG2_E, 1.0, 2.0],
    }
    .map(|value| b.full(Scalar::float(wide, value), shape));
    let t = if call.name == "fast_exp2" { x } else { b.binary(BinaryOp::Mul, x, factor) };
    // Powers below the least normal number may be zero.
    let flushed = if wide == DType::F32 { UnaryOp::Exp2Flush } else { UnaryOp::Exp2 };
    let power = b.unary(flushed, t);
    let value = match call.name {
        "fast_exp" | "fast_exp2" => power,
        "fast_sigmoid" => {
            let sum = b.binary(BinaryOp::Add, one, power);
            b.binary(BinaryOp::Div, one, sum)
        }
        _ => {
            let sum = b.binary(BinaryOp::Add, one, power);
            let quotient = b.binary(BinaryOp::Div, two, sum);
            b.binary(BinaryOp::Sub, quotient, one)
        }
    };
    let value = b.cast(value, dtype);
    Ok(aligned.wrap(value))
}

/// `fast::recip(x)`, `fast::sqrt(x)`, `fast::log2(x)`: by one instruction. 16-bit floats are computed in f32.
pub(super) fn fast_unary(lower: &mut Lower, call: &Call) -> Res {
    let op = match call.name {
        "fast_sqrt" => UnaryOp::SqrtApprox,
        "fast_log2" => UnaryOp::Log2Flush,
        _ => UnaryOp::RecipApprox,
    };
    let what = format!("`{}`", call.name.replacen('_', "::", 1));
    let aligned = lower.align(&what, Class::Float, &[&call.args[0]])?;
    let mut b = lower.build();
    let dtype = b.func.tile(aligned.values[0]).dtype();
    let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
    let x = b.cast(aligned.values[0], wide);
    let value = b.unary(op, x);
    let value = b.cast(value, dtype);
    Ok(aligned.wrap(value))
}

/// `fast::demanded(a, b)`: which of the two, [`expand_math`](crate::passes::expand_math) decides.
pub(super) fn fast_demanded(lower: &mut Lower, call: &Call) -> Res {
    lower.binary("`fast::demanded`", BinaryOp::Short, &call.args[0], &call.args[1])
}

/// `abs(x)`
pub(super) fn abs(lower: &mut Lower, call: &Call) -> Res {
    lower.unary("`abs`", Class::Number, UnaryOp::Abs, &call.args[0])
}

/// `popcount(x)`, `clz(x)`: of the bits of an integer.
pub(super) fn bits(lower: &mut Lower, call: &Call) -> Res {
    let op = if call.name == "clz" { UnaryOp::LeadingZeros } else { UnaryOp::PopCount };
    lower.unary(&format!("`{}`", call.name), Class::Int, op, &call.args[0])
}

/// `fma(a, b, c)`: `a * b + c` rounded once.
pub(super) fn fma(lower: &mut Lower, call: &Call) -> Res {
    let operands: Vec<&Operand> = call.args.iter().collect();
    let aligned = lower.align("`fma`", Class::Float, &operands)?;
    let [a, b, c] = [aligned.values[0], aligned.values[1], aligned.values[2]];
    let value = lower.build().fma(a, b, c);
    Ok(aligned.wrap(value))
}

/// `minimum(a, b)` and its kin.
pub(super) fn extremum(lower: &mut Lower, call: &Call) -> Res {
    let op = match call.name {
        "minimum" => BinaryOp::Min,
        "maximum" => BinaryOp::Max,
        "minimum_num" => BinaryOp::MinNum,
        _ => BinaryOp::MaxNum,
    };
    lower.binary(&format!("`{}`", call.name), op, &call.args[0], &call.args[1])
}

/// `clamp(x, low, high)`; a NaN stays.
pub(super) fn clamp(lower: &mut Lower, call: &Call) -> Res {
    let operands: Vec<&Operand> = call.args.iter().collect();
    let aligned = lower.align("`clamp`", Class::Number, &operands)?;
    let [x, low, high] = [aligned.values[0], aligned.values[1], aligned.values[2]];
    let mut build = lower.build();
    let raised = build.binary(BinaryOp::Max, x, low);
    let value = build.binary(BinaryOp::Min, raised, high);
    Ok(aligned.wrap(value))
}

/// `cdiv(a, b)`: the quotient rounded up, for non-negative `a` and positive `b`.
pub(super) fn cdiv(lower: &mut Lower, call: &Call) -> Res {
    let (a, b) = (&call.args[0], &call.args[1]);
    let one = Val::Lit(super::value::Lit::Int(1));
    if Class::Int.takes(&a.val)
        && Class::Int.takes(&b.val)
        && let Some(known) = consts::binary(BinaryOp::Add, &a.val, &b.val)
            .and_then(|sum| consts::binary(BinaryOp::Sub, &sum, &one))
            .and_then(|top| consts::binary(BinaryOp::Div, &top, &b.val))
    {
        return Ok(known);
    }
    let aligned = lower.align("`cdiv`", Class::Int, &[a, b])?;
    let [a, b] = [aligned.values[0], aligned.values[1]];
    let mut build = lower.build();
    let one = build.full(Scalar::int(aligned.dtype, 1), aligned.shape);
    let less = build.binary(BinaryOp::Sub, b, one);
    let top = build.binary(BinaryOp::Add, a, less);
    let value = build.binary(BinaryOp::Div, top, b);
    Ok(aligned.wrap(value))
}

/// `umulhi(a, b)`: the upper half of the full product, as unsigned numbers.
pub(super) fn umulhi(lower: &mut Lower, call: &Call) -> Res {
    let aligned = lower.align("`umulhi`", Class::Int, &[&call.args[0], &call.args[1]])?;
    let unsigned = aligned.dtype.unsigned();
    let mut build = lower.build();
    let a = build.bitcast(aligned.values[0], unsigned);
    let b = build.bitcast(aligned.values[1], unsigned);
    let high = build.binary(BinaryOp::MulHi, a, b);
    Ok(Val::Ir(build.bitcast(high, aligned.dtype)))
}

/// `where_(cond, a, b)`
pub(super) fn where_(lower: &mut Lower, call: &Call) -> Res {
    let [cond, a, b] = [&call.args[0], &call.args[1], &call.args[2]];
    if lower.number_dtype("the condition of `where_`", cond)? != DType::Bool {
        return Err(lower.wrong_class("the condition of `where_`", Class::Bool, cond));
    }
    let (dtype, soft) = lower.common_dtype("`where_`", Class::Any, &[a, b])?;
    let shape = lower.common_shape(&[cond, a, b])?;
    let cond_value = lower.coerce(cond, DType::Bool)?;
    let (a, b) = (lower.coerce(a, dtype)?, lower.coerce(b, dtype)?);
    let mut build = lower.build();
    let cond_value = build.broadcast(cond_value, shape);
    let (a, b) = (build.broadcast(a, shape), build.broadcast(b, shape));
    let value = build.select(cond_value, a, b);
    Ok(if soft { Val::Soft(value) } else { Val::Ir(value) })
}

/// `is_nan(x)`
pub(super) fn is_nan(lower: &mut Lower, call: &Call) -> Res {
    let aligned = lower.align("`is_nan`", Class::Float, &[&call.args[0]])?;
    let x = aligned.values[0];
    Ok(Val::Ir(lower.build().compare(Predicate::Ne, x, x)))
}

/// `is_inf(x)`, `is_finite(x)`
pub(super) fn is_inf(lower: &mut Lower, call: &Call) -> Res {
    let what = format!("`{}`", call.name);
    let aligned = lower.align(&what, Class::Float, &[&call.args[0]])?;
    let mut build = lower.build();
    let size = build.unary(UnaryOp::Abs, aligned.values[0]);
    let infinity = build.full(Scalar::float(aligned.dtype, f64::INFINITY), aligned.shape);
    let predicate = if call.name == "is_inf" { Predicate::Eq } else { Predicate::Lt };
    Ok(Val::Ir(build.compare(predicate, size, infinity)))
}
