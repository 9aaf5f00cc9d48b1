//! Elementwise ops and comparisons.

use anyhow::{Result, bail};
use genesis::{DType, Tensor};

use super::call::{Call, Value};
use super::table::{Outs, Row, one};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("abs", |c| one(c.x()?.abs())),
    ("neg", |c| one(c.x()?.neg())),
    ("sqrt", |c| float(c, Tensor::sqrt)),
    ("rsqrt", |c| float(c, Tensor::rsqrt)),
    ("exp", |c| float(c, Tensor::exp)),
    ("log", |c| float(c, Tensor::log)),
    ("sin", |c| float(c, Tensor::sin)),
    ("cos", |c| float(c, Tensor::cos)),
    ("tanh", |c| float(c, Tensor::tanh)),
    ("erf", |c| float(c, Tensor::erf)),
    ("sigmoid", |c| float(c, Tensor::sigmoid)),
    ("floor", |c| whole(c, Tensor::floor)),
    ("ceil", |c| whole(c, Tensor::ceil)),
    ("trunc", |c| whole(c, Tensor::trunc)),
    ("round", |c| one(c.x()?.round_decimals(c.int(1, "decimals", Some(0))? as i32))),
    ("frac", |c| one(c.x()?.frac())),
    ("sign", |c| one(c.x()?.sign())),
    ("square", |c| one(c.x()?.square())),
    ("reciprocal", |c| one(c.x()?.reciprocal())),
    ("exp2", |c| one(c.x()?.exp2())),
    ("expm1", |c| one(c.x()?.expm1())),
    ("log2", |c| one(c.x()?.log2())),
    ("log10", |c| one(c.x()?.log10())),
    ("log1p", |c| one(c.x()?.log1p())),
    ("tan", |c| one(c.x()?.tan())),
    ("asin", |c| one(c.x()?.asin())),
    ("acos", |c| one(c.x()?.acos())),
    ("atan", |c| one(c.x()?.atan())),
    ("sinh", |c| one(c.x()?.sinh())),
    ("cosh", |c| one(c.x()?.cosh())),
    ("erfc", |c| one(c.x()?.erfc())),
    ("isnan", |c| one(c.x()?.isnan())),
    ("isinf", |c| one(c.x()?.isinf())),
    ("isfinite", |c| one(c.x()?.isfinite())),
    ("nan_to_num", |c| {
        let limit = |at, name| c.has(at, name).then(|| c.float(at, name, None)).transpose();
        let nan = c.float(1, "nan", Some(0.0))?;
        one(c.x()?.nan_to_num(nan, limit(2, "posinf")?, limit(3, "neginf")?))
    }),
    ("logical_not", |c| one(c.x()?.logical_not())),
    ("bitwise_not", |c| one(c.x()?.bitwise_not())),
    ("add", |c| scaled(c, Tensor::add)),
    ("sub", |c| scaled(c, Tensor::sub)),
    ("mul", |c| either(c, Tensor::mul, Some(Tensor::mul_scalar))),
    ("div", divide),
    ("maximum", |c| binary(c, Tensor::maximum, None)),
    ("minimum", |c| binary(c, Tensor::minimum, None)),
    ("pow", |c| match c.get(0, "self").number() {
        Some(base) => one(c.tensor(1, "exponent")?.rpow_scalar(base)),
        None => match c.get(1, "exponent") {
            Value::Int(whole) if c.x()?.dtype().is_int() => one(c.x()?.pow_scalar(*whole as f64)),
            _ => binary(c, Tensor::pow, Some(Tensor::pow_scalar)),
        },
    }),
    ("floor_divide", |c| either(c, Tensor::floor_divide, Some(Tensor::floor_divide_scalar))),
    ("rsub", |c| match c.get(1, "other").number() {
        Some(number) => one(c.x()?.rsub_scalar(number)),
        None => one(c.tensor(1, "other")?.sub(c.x()?)),
    }),
    ("positive", |c| Ok(vec![c.x()?.clone()])),
    ("atan2", |c| two_tensors(c, Tensor::atan2)),
    ("fmod", |c| binary(c, Tensor::fmod, Some(Tensor::fmod_scalar))),
    ("remainder", |c| either(c, Tensor::remainder, Some(Tensor::remainder_scalar))),
    ("eq", |c| binary(c, Tensor::eq, Some(Tensor::eq_scalar))),
    ("ne", |c| binary(c, Tensor::ne, Some(Tensor::ne_scalar))),
    ("lt", |c| binary(c, Tensor::lt, Some(Tensor::lt_scalar))),
    ("le", |c| binary(c, Tensor::le, Some(Tensor::le_scalar))),
    ("gt", |c| binary(c, Tensor::gt, Some(Tensor::gt_scalar))),
    ("ge", |c| binary(c, Tensor::ge, Some(Tensor::ge_scalar))),
    ("logical_and", |c| two_tensors(c, Tensor::logical_and)),
    ("logical_or", |c| two_tensors(c, Tensor::logical_or)),
    ("logical_xor", |c| two_tensors(c, Tensor::logical_xor)),
    ("bitwise_and", |c| either(c, Tensor::bitwise_and, None)),
    ("bitwise_or", |c| either(c, Tensor::bitwise_or, None)),
    ("bitwise_xor", |c| either(c, Tensor::bitwise_xor, None)),
    ("clamp", clamp),
    ("clamp_min", |c| two_tensors(c, Tensor::clamp_min)),
    ("clamp_min/number", |c| one(c.x()?.clamp_min(&operand(c, c.x()?, 1, "min")?))),
    ("clamp_max", |c| two_tensors(c, Tensor::clamp_max)),
    ("clamp_max/number", |c| one(c.x()?.clamp_max(&operand(c, c.x()?, 1, "max")?))),
    ("lerp", |c| {
        let (x, end) = (c.x()?, c.tensor(1, "end")?);
        match c.get(2, "weight").number() {
            Some(weight) => one(x.lerp_scalar(end, weight)),
            None => one(x.lerp(end, c.tensor(2, "weight")?)),
        }
    }),
    ("addcmul", |c| {
        let (a, b) = (c.tensor(1, "tensor1")?, c.tensor(2, "tensor2")?);
        one(c.x()?.addcmul(a, b, c.float(3, "value", Some(1.0))?))
    }),
    ("addcdiv", |c| {
        let (a, b) = (c.tensor(1, "tensor1")?, c.tensor(2, "tensor2")?);
        one(c.x()?.addcdiv(a, b, c.float(3, "value", Some(1.0))?))
    }),
    ("masked_fill", |c| {
        let value = match c.get(2, "value") {
            Value::Tensor(t) => return one(c.tensor(1, "mask")?.where_(t, c.x()?)),
            _ => c.float(2, "value", None)?,
        };
        one(c.x()?.masked_fill(c.tensor(1, "mask")?, value))
    }),
    ("where", |c| {
        // The sample has the operand in front of the condition, PyTorch's function behind it.
        let is_mask = |value: &Value| matches!(value, Value::Tensor(t) if t.dtype() == DType::Bool);
        let at = if is_mask(c.get(1, "condition")) { [1, 0, 2] } else { [0, 1, 2] };
        let condition = c.tensor(at[0], "condition")?;
        let (x, y) = pair(c, at[1], at[2], condition)?;
        one(condition.where_(&x, &y))
    }),
];

type Unary = fn(&Tensor) -> genesis::Result<Tensor>;
type Binary = fn(&Tensor, &Tensor) -> genesis::Result<Tensor>;
type Scalar = fn(&Tensor, f64) -> genesis::Result<Tensor>;

/// A function with fractional results: of integers in f32.
fn float(c: &Call, op: Unary) -> Outs {
    let x = c.x()?;
    if x.dtype().is_float() { one(op(x)) } else { one(op(&x.to_dtype(DType::F32)?)) }
}

/// A function that leaves integers as they are.
fn whole(c: &Call, op: Unary) -> Outs {
    let x = c.x()?;
    if x.dtype().is_float() { one(op(x)) } else { one(x.copy()) }
}

/// A number as the second operand of `x`: of its dtype, or of the least one that holds such numbers.
pub(super) fn operand(c: &Call, x: &Tensor, at: usize, name: &str) -> Result<Tensor> {
    let value = match c.get(at, name) {
        Value::Tensor(tensor) => return Ok(tensor.clone()),
        value => value,
    };
    let number = c.float(at, name, None)?;
    let dtype = match value {
        _ if x.dtype().is_float() => x.dtype(),
        Value::Float(_) => DType::F32,
        Value::Int(_) if x.dtype() == DType::Bool => DType::I64,
        _ => x.dtype(),
    };
    Ok(Tensor::full(&[], number, (dtype, x.device()))?)
}

pub(super) fn binary(c: &Call, op: Binary, scalar: Option<Scalar>) -> Outs {
    let x = c.x()?;
    // A number beside floats is not rounded to their dtype before it is computed with.
    if let (Some(scalar), Some(number)) = (scalar, c.get(1, "other").number())
        && x.dtype().is_float()
    {
        return one(scalar(x, number));
    }
    one(op(x, &operand(c, x, 1, "other")?))
}

/// A call whose first operand may be a number as well, if the second is a tensor.
pub(super) fn either(c: &Call, op: Binary, scalar: Option<Scalar>) -> Outs {
    match c.get(0, "input").number() {
        Some(_) => one(op(&first(c)?, c.tensor(1, "other")?)),
        None => binary(c, op, scalar),
    }
}

/// The first operand; a number becomes what [`operand`] makes of it beside the second.
pub(super) fn first(c: &Call) -> Result<Tensor> {
    match c.get(0, "input").number() {
        Some(_) => operand(c, c.tensor(1, "other")?, 0, "input"),
        None => Ok(c.x()?.clone()),
    }
}

/// Two operands at places, of which one or both may be numbers; on the device of `near`.
fn pair(c: &Call, a: usize, b: usize, near: &Tensor) -> Result<(Tensor, Tensor)> {
    if let (Some(x), Some(y)) = (c.get(a, "input").number(), c.get(b, "other").number()) {
        let numbers = [c.get(a, "input"), c.get(b, "other")];
        let has_fraction = numbers.iter().any(|v| matches!(v, Value::Float(_)));
        let are_bools = numbers.iter().all(|v| matches!(v, Value::Bool(_)));
        let dtype = match (has_fraction, are_bools) {
            (true, _) => DType::F32,
            (_, true) => DType::Bool,
            _ => DType::I64,
        };
        let full = |number| Tensor::full(&[], number, (dtype, near.device()));
        return Ok((full(x)?, full(y)?));
    }
    Ok(match (c.get(a, "input"), c.get(b, "other")) {
        (Value::Tensor(x), _) => (x.clone(), operand(c, x, b, "other")?),
        (_, Value::Tensor(y)) => (operand(c, y, a, "input")?, y.clone()),
        _ => bail!("{}: needs tensors or numbers", c.op),
    })
}

pub(super) fn two_tensors(c: &Call, op: Binary) -> Outs {
    one(op(c.x()?, c.tensor(1, "other")?))
}

/// `x + alpha * y` and `x - alpha * y`.
fn scaled(c: &Call, op: Binary) -> Outs {
    let x = &first(c)?;
    let y = operand(c, x, 1, "other")?;
    let dtype = genesis::result_type(&[x, &y]);
    match c.get(2, "alpha") {
        Value::Float(_) if !dtype.is_float() => {
            bail!("{}: `alpha` is a fraction and the tensors are of integers", c.op)
        }
        Value::Bool(_) if dtype != DType::Bool => {
            bail!("{}: `alpha` is a bool and the tensors are not", c.op)
        }
        _ => {}
    }
    match c.float(2, "alpha", Some(1.0))? {
        1.0 => one(op(x, &y)),
        // Of bools alpha is one too.
        alpha if dtype == DType::Bool => {
            let is_there =
                Tensor::full(&[], f64::from(u8::from(alpha != 0.0)), (dtype, x.device()))?;
            one(op(x, &y.logical_and(&is_there)?))
        }
        // The product is not rounded to 16 bits before it is added.
        alpha => {
            let unit = Tensor::ones(&[], (y.dtype(), y.device()))?;
            one(x.addcmul(&y, &unit, if c.op == "sub" { -alpha } else { alpha }))
        }
    }
}

fn divide(c: &Call) -> Outs {
    let x = &first(c)?;
    match c.text(2, "rounding_mode", "")? {
        "" => {
            let y = operand(c, x, 1, "other")?;
            let both_whole = !x.dtype().is_float() && !y.dtype().is_float();
            let x = if both_whole { x.to_dtype(DType::F32)? } else { x.clone() };
            one(x.div(&y))
        }
        "floor" => either(c, Tensor::floor_divide, Some(Tensor::floor_divide_scalar)),
        "trunc" => either(c, Tensor::trunc_divide, Some(Tensor::trunc_divide_scalar)),
        other => bail!("div: unknown rounding mode {other}"),
    }
}

fn clamp(c: &Call) -> Outs {
    let x = c.x()?;
    if !c.has(1, "min") && !c.has(2, "max") {
        bail!("clamp: needs a lower or an upper bound");
    }
    let mut y = x.clone();
    if c.has(1, "min") {
        y = y.clamp_min(&operand(c, x, 1, "min")?)?;
    }
    if c.has(2, "max") {
        y = y.clamp_max(&operand(c, x, 2, "max")?)?;
    }
    Ok(vec![y])
}
