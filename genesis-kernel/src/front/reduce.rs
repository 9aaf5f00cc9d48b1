//! Reductions, scans and `dot`.
//!
//! Sums and products of f16 and bf16 are computed in f32 and rounded once at the end; integers keep
//! their dtype and wrap. `max` and `min` give NaN where there is one, their `_num` forms pass it by.

use crate::ir::{
    BinaryOp, Builder, DType, DotPrecision, Predicate, Region, Scalar, Shape, Type, UnaryOp, Value,
};

use super::arguments::Call;
use super::ast::Span;
use super::broadcast::Class;
use super::lower::{Lower, Res};
use super::value::{Operand, Val};

/// `sum(x, axis)` and the other reductions by one op.
pub(super) fn simple(lower: &mut Lower, call: &Call) -> Res {
    let (op, class) = match call.name {
        "sum" => (BinaryOp::Add, Class::Number),
        "prod" => (BinaryOp::Mul, Class::Number),
        "max" => (BinaryOp::Max, Class::Number),
        "min" => (BinaryOp::Min, Class::Number),
        "max_num" => (BinaryOp::MaxNum, Class::Number),
        "min_num" => (BinaryOp::MinNum, Class::Number),
        "xor_sum" => (BinaryOp::Xor, Class::Bits),
        "any" => (BinaryOp::Or, Class::Bool),
        _ => (BinaryOp::And, Class::Bool),
    };
    let (x, axis) = reduced(lower, call, class)?;
    let wide = widened(op, x.dtype);
    let mut build = lower.build();
    let value = build.cast(x.value, wide);
    let value = build.reduce(op, value, axis);
    let value = build.cast(value, x.dtype);
    let value = kept(lower, call, value, axis)?;
    Ok(x.wrap(value))
}

/// What a reduction gives, with the axis as one of extent 1 where the third argument is `true`.
fn kept(lower: &mut Lower, call: &Call, value: Value, axis: usize) -> Res<Value> {
    if !lower.known_flag(call.args.get(2), false)? {
        return Ok(value);
    }
    let is_scalar = lower.func.tile(value).shape.is_scalar();
    let mut build = lower.build();
    Ok(match is_scalar {
        true => build.broadcast(value, Shape::new(&[1])),
        false => build.expand_dims(value, axis),
    })
}

/// `cumsum(x, axis)`, `cumprod(x, axis)`; a third argument `true` runs from the end.
pub(super) fn cumulative(lower: &mut Lower, call: &Call) -> Res {
    let op = if call.name == "cumsum" { BinaryOp::Add } else { BinaryOp::Mul };
    let (x, axis) = reduced(lower, call, Class::Number)?;
    let reverse = lower.known_flag(call.args.get(2), false)?;
    let wide = widened(op, x.dtype);
    let mut build = lower.build();
    let value = build.cast(x.value, wide);
    let value = build.scan(op, value, axis, reverse);
    let value = build.cast(value, x.dtype);
    Ok(x.wrap(value))
}

/// `softmax(x, axis)`: `exp(x - max(x))` over its sum; of 16-bit floats in f32, rounded once.
pub(super) fn softmax(lower: &mut Lower, call: &Call) -> Res {
    let (x, axis) = reduced(lower, call, Class::Float)?;
    let wide = widened(BinaryOp::Add, x.dtype);
    let mut build = lower.build();
    let value = build.cast(x.value, wide);
    let along = |build: &mut Builder<'_>, op, value| {
        let one = build.reduce(op, value, axis);
        let unit = x.shape.without(axis).with(axis, 1);
        let one = if x.shape.rank() == 1 {
            build.broadcast(one, unit)
        } else {
            build.expand_dims(one, axis)
        };
        build.broadcast(one, x.shape)
    };
    let largest = along(&mut build, BinaryOp::Max, value);
    let rest = build.binary(BinaryOp::Sub, value, largest);
    let power = build.unary(UnaryOp::Exp, rest);
    let sum = along(&mut build, BinaryOp::Add, power);
    let value = build.binary(BinaryOp::Div, power, sum);
    let value = build.cast(value, x.dtype);
    Ok(x.wrap(value))
}

/// A number being reduced.
struct Reduced {
    value: Value,
    dtype: DType,
    shape: Shape,
    soft: bool,
}

impl Reduced {
    fn wrap(&self, value: Value) -> Val {
        if self.soft { Val::Soft(value) } else { Val::Ir(value) }
    }
}

fn reduced(lower: &mut Lower, call: &Call, class: Class) -> Res<(Reduced, usize)> {
    let what = format!("`{}`", call.name);
    let aligned = lower.align(&what, class, &[&call.args[0]])?;
    let axis = reduced_axis(lower, call, &call.args[0], aligned.shape)?;
    let (value, dtype) = (aligned.values[0], aligned.dtype);
    Ok((Reduced { value, dtype, shape: aligned.shape, soft: aligned.soft }, axis))
}

fn reduced_axis(lower: &Lower, call: &Call, operand: &Operand, shape: Shape) -> Res<usize> {
    if shape.is_scalar() {
        let found = lower.describe(&operand.val);
        let message = format!("`{}` needs a tile, this is {found}", call.name);
        return Err(lower.error(operand.span(), message));
    }
    call.axis(lower, 1, shape.rank())
}

/// The dtype in which sums and products are computed.
fn widened(op: BinaryOp, dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 if matches!(op, BinaryOp::Add | BinaryOp::Mul) => DType::F32,
        dtype => dtype,
    }
}

/// `argmax(x, axis)`, `argmin(x, axis)`: the index as i64. The smaller index wins a tie, NaN wins
/// over numbers. `max_with_index(x, axis)` and its twin give the value too.
pub(super) fn arg_best(lower: &mut Lower, call: &Call) -> Res {
    let (x, axis) = reduced(lower, call, Class::Number)?;
    let is_max = matches!(call.name, "argmax" | "max_with_index");
    let better = if is_max { Predicate::Gt } else { Predicate::Lt };
    let mut build = lower.build();
    let mut indices = build.iota(x.shape.extent(axis));
    for outer in 0..axis {
        indices = build.expand_dims(indices, outer);
    }
    for inner in axis + 1..x.shape.rank() {
        indices = build.expand_dims(indices, inner);
    }
    let indices = build.broadcast(indices, x.shape);
    let region = better_region(lower, x.dtype, better);
    let results = lower.build().reduce_region(&[x.value, indices], axis, region);
    if matches!(call.name, "max_with_index" | "min_with_index") {
        return Ok(Val::Tuple(vec![x.wrap(results[0]), Val::Ir(results[1])]));
    }
    kept(lower, call, results[1], axis).map(Val::Ir)
}

/// The region that keeps the better of two (value, index) pairs.
fn better_region(lower: &mut Lower, dtype: DType, better: Predicate) -> Region {
    let region = lower.func.add_region();
    let types = [dtype, DType::I64, dtype, DType::I64].map(Type::scalar);
    let [a, i, b, j] = types.map(|ty| lower.func.add_region_arg(region, ty));
    lower.within(region, |lower| {
        let mut build = lower.build();
        let mut wins = build.compare(better, b, a);
        let mut ties = build.compare(Predicate::Eq, a, b);
        if dtype.is_float() {
            let a_nan = build.compare(Predicate::Ne, a, a);
            let b_nan = build.compare(Predicate::Ne, b, b);
            let a_number = build.compare(Predicate::Eq, a, a);
            let first_nan = build.binary(BinaryOp::And, b_nan, a_number);
            wins = build.binary(BinaryOp::Or, wins, first_nan);
            let both_nan = build.binary(BinaryOp::And, a_nan, b_nan);
            ties = build.binary(BinaryOp::Or, ties, both_nan);
        }
        let earlier = build.compare(Predicate::Lt, j, i);
        let earlier = build.binary(BinaryOp::And, ties, earlier);
        let take = build.binary(BinaryOp::Or, wins, earlier);
        let value = build.select(take, b, a);
        let index = build.select(take, j, i);
        build.yield_values(&[value, index]);
    });
    region
}

/// `reduce(x, axis, f)`, `reduce((x, y), axis, f)`
pub(super) fn reduce(lower: &mut Lower, call: &Call) -> Res {
    let parts = combined(lower, call)?;
    let results = lower.build().reduce_region(&parts.values, parts.axis, parts.region);
    Ok(parts.wrap(&results))
}

/// `associative_scan(x, axis, f)`; a fourth argument `true` runs from the end.
pub(super) fn scan(lower: &mut Lower, call: &Call) -> Res {
    let parts = combined(lower, call)?;
    let reverse = lower.known_flag(call.args.get(3), false)?;
    let results = lower.build().scan_region(&parts.values, parts.axis, reverse, parts.region);
    Ok(parts.wrap(&results))
}

/// The operands of a reduction by a function, and the function as a region.
struct Combined {
    values: Vec<Value>,
    axis: usize,
    region: Region,
    tuple: bool,
}

impl Combined {
    fn wrap(&self, results: &[Value]) -> Val {
        let mut vals: Vec<Val> = results.iter().map(|&value| Val::Ir(value)).collect();
        match vals.pop() {
            Some(only) if !self.tuple => only,
            last => Val::Tuple(vals.into_iter().chain(last).collect()),
        }
    }
}

fn combined(lower: &mut Lower, call: &Call) -> Res<Combined> {
    let (operand, function) = (&call.args[0], &call.args[2]);
    let Val::Function(function) = function.val else {
        let found = lower.describe(&function.val);
        let message = format!("`{}` needs a device function, this is {found}", call.name);
        return Err(lower
            .error(function.span(), message)
            .help("name a `#[device]` function of two elements"));
    };
    let (parts, tuple) = match &operand.val {
        Val::Tuple(parts) => (parts.clone(), true),
        val => (vec![val.clone()], false),
    };
    if parts.is_empty() {
        return Err(lower.error(operand.span(), format!("`{}` of nothing", call.name)));
    }
    let parts: Vec<Operand> =
        parts.into_iter().map(|val| Operand { val, expr: operand.expr }).collect();
    let shape = lower.common_shape(&parts.iter().collect::<Vec<_>>())?;
    let axis = reduced_axis(lower, call, operand, shape)?;
    let what = format!("`{}`", call.name);
    let mut values = Vec::with_capacity(parts.len());
    for part in &parts {
        let (value, _) = lower.number(&what, part)?;
        values.push(lower.build().broadcast(value, shape));
    }
    let dtypes: Vec<DType> = values.iter().map(|&v| lower.func.tile(v).dtype()).collect();
    let region = combine_region(lower, function.0, &dtypes, tuple, operand, call.span)?;
    Ok(Combined { values, axis, region, tuple })
}

/// A device function of two elements as a region: left scalars, then right, to as many results.
fn combine_region(
    lower: &mut Lower,
    function: &'static super::ast::FnAst,
    dtypes: &[DType],
    tuple: bool,
    operand: &Operand,
    span: Span,
) -> Res<Region> {
    let region = lower.func.add_region();
    let mut side = || -> Val {
        let args = dtypes.iter().map(|&dtype| Type::scalar(dtype));
        let mut vals: Vec<Val> =
            args.map(|ty| Val::Ir(lower.func.add_region_arg(region, ty))).collect();
        if tuple { Val::Tuple(vals) } else { vals.pop().unwrap_or(Val::Unit) }
    };
    let (left, right) = (side(), side());
    let args = [left, right].map(|val| Operand { val, expr: operand.expr });
    let outer = std::mem::replace(&mut lower.combining, true);
    let result = lower.within(region, |lower| lower.call_device(function, &[], &args, span));
    lower.combining = outer;
    let parts = match result? {
        Val::Tuple(parts) if tuple => parts,
        val => vec![val],
    };
    if parts.len() != dtypes.len() {
        let (name, n, found) = (function.name, dtypes.len(), parts.len());
        let message = format!("`{name}` combines {n} values and gives {found}");
        return Err(lower.error(span, message));
    }
    let values = lower.within(region, |lower| -> Res<Vec<Value>> {
        let pairs = parts.iter().zip(dtypes);
        pairs.map(|(val, &dtype)| combined_result(lower, function.name, val, dtype, span)).collect()
    })?;
    lower.finish_region(region, &values);
    Ok(region)
}

fn combined_result(
    lower: &mut Lower,
    name: &str,
    val: &Val,
    dtype: DType,
    span: Span,
) -> Res<Value> {
    let scalar = lower.shape(val).is_some_and(|shape| shape.is_scalar());
    let kind = lower.number_kind(val);
    if !scalar || kind.is_none_or(|(own, soft)| own != dtype && !soft) {
        let found = lower.describe(val);
        let message = format!("`{name}` gives {found} where it takes a scalar of {dtype}");
        return Err(lower.error(span, message).help("it must give what it takes"));
    }
    lower.coerce_val(val, dtype, span)
}

/// `dot(a, b)`, `dot(a, b, acc)`: accumulates in f32, f64 for f64, i32 for integers.
pub(super) fn dot(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`dot`")?;
    let what = format!("`{}`", call.name);
    let [a, b] = [&call.args[0], &call.args[1]];
    let (dtype, soft) = lower.common_dtype(&what, Class::Factor, &[a, b])?;
    let dtype = if soft { DType::F32 } else { dtype };
    let (left, right) = (lower.coerce(a, dtype)?, lower.coerce(b, dtype)?);
    let (m, k) = matrix(lower, &what, a, left)?;
    let (k2, n) = matrix(lower, &what, b, right)?;
    if k != k2 {
        let message = format!("{what} needs equal inner extents, {k} and {k2} differ");
        let (left, right) = (lower.describe(&a.val), lower.describe(&b.val));
        let error = lower.error(call.span, message).label(format!("{left} by {right}"));
        return Err(error.help(format!(
            "the second must be [{k}, N]; transpose it with `.trans()` if it is [N, {k}]"
        )));
    }
    let shape = Shape::new(&[m, n]);
    lower.check_elements(Some(call.span), shape)?;
    let wide = dtype.accumulator().unwrap_or(DType::F32);
    let (acc, given) = accumulator(lower, call, wide, shape)?;
    let precision = match call.name {
        "dot_tf32" => DotPrecision::Tf32,
        "dot_tf32x3" => DotPrecision::Tf32x3,
        "fast_dot" => DotPrecision::Fast,
        _ => DotPrecision::Ieee,
    };
    let wrong = match precision {
        DotPrecision::Ieee => None,
        DotPrecision::Tf32 | DotPrecision::Tf32x3 => (dtype != DType::F32).then_some("f32"),
        DotPrecision::Fast => (!dtype.is_f8()).then_some("floats of 8 bits"),
    };
    if let Some(wanted) = wrong {
        let message = format!("{what} multiplies {wanted}, these are {dtype}");
        return Err(lower.error(call.span, message));
    }
    let mut build = lower.build();
    let product = build.dot(left, right, acc, precision);
    Ok(Val::Ir(build.cast(product, given)))
}

/// What a product is added to, and the dtype it was given in: that of the sums, but that products of f64 are
/// added in f64 also to an f32.
fn accumulator(lower: &mut Lower, call: &Call, wide: DType, shape: Shape) -> Res<(Value, DType)> {
    let Some(operand) = call.args.get(2) else {
        return Ok((lower.build().full(Scalar::zero(wide), shape), wide));
    };
    let what = format!("the accumulator of `{}`", call.name);
    let found = lower.number_dtype(&what, operand)?;
    let widens = wide == DType::F64 && found == DType::F32;
    let given = if widens { DType::F32 } else { wide };
    let acc = lower.coerce(operand, given)?;
    let found = lower.func.tile(acc).shape;
    if found != shape && !found.is_scalar() {
        let message = format!("{what} has shape {found}, the product has {shape}");
        return Err(lower.error(operand.span(), message));
    }
    let mut build = lower.build();
    let acc = build.cast(acc, wide);
    Ok((build.broadcast(acc, shape), given))
}

/// The extents of a matrix.
fn matrix(lower: &Lower, what: &str, operand: &Operand, value: Value) -> Res<(usize, usize)> {
    let shape = lower.func.tile(value).shape;
    if shape.rank() == 2 {
        return Ok((shape.extent(0), shape.extent(1)));
    }
    let found = lower.describe(&operand.val);
    let error =
        lower.error(operand.span(), format!("{what} needs tiles with 2 axes, this is {found}"));
    Err(error.help("drop a unit axis with `.squeeze(axis)`, add one with `.row()` or `.col()`"))
}
