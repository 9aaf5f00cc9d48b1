//! Expressions: one small function for each kind.

use crate::ir::{DType, OpKind, Predicate, Scalar, scalar};

use super::ast::{BlockAst, ConstValue, DTypeAst, ExprAst, ExprKind, Span};
use super::broadcast::Class;
use super::builtins;
use super::consts;
use super::lower::{Lower, Res, name_of};
use super::value::{Function, Lit, Operand, Val};

impl Lower {
    /// Walks an expression and gives what it stands for.
    pub(super) fn expr(&mut self, expr: &'static ExprAst) -> Res {
        self.nested(expr.span, |lower| lower.expr_kind(expr))
    }

    /// Walks an expression and keeps where it came from.
    pub(super) fn operand(&mut self, expr: &'static ExprAst) -> Res<Operand> {
        Ok(Operand { val: self.expr(expr)?, expr })
    }

    fn expr_kind(&mut self, expr: &'static ExprAst) -> Res {
        let span = expr.span;
        match &expr.kind {
            ExprKind::Int(value, dtype) => self.int_literal(*value, *dtype, span),
            ExprKind::Float(value, dtype) => self.float_literal(*value, *dtype, span),
            ExprKind::Bool(value) => Ok(Val::bool(*value)),
            ExprKind::Name(name) => self.name(name, span),
            ExprKind::Constant(value) => Ok(constant(value())),
            ExprKind::DTypeConst(dtype, name) => self.dtype_const(*dtype, name, span),
            ExprKind::From(dtype, inner) | ExprKind::As(inner, dtype) => {
                self.convert(inner, *dtype, span)
            }
            ExprKind::Neg(inner) => {
                let operand = self.operand(inner)?;
                self.negate(&operand)
            }
            ExprKind::Not(inner) => {
                let operand = self.operand(inner)?;
                self.not(&operand)
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.operand(a)?, self.operand(b)?);
                self.arithmetic(*op, &a, &b)
            }
            ExprKind::Compare(predicate, a, b) => {
                let (a, b) = (self.operand(a)?, self.operand(b)?);
                self.compare(*predicate, &a, &b)
            }
            ExprKind::AndThen(a, b) => self.short_circuit(true, a, b),
            ExprKind::OrElse(a, b) => self.short_circuit(false, a, b),
            ExprKind::Tuple(parts) => self.all(parts).map(Val::Tuple),
            ExprKind::Array(parts) => self.all(parts).map(Val::Array),
            ExprKind::Field(inner, index) => self.field(inner, *index, span),
            ExprKind::Member(inner, name) => self.member(inner, name, span),
            ExprKind::Builtin { name, generics, args } => {
                let operands = self.operands(args)?;
                self.loc = Some(self.loc_of(span));
                builtins::call(self, name, span, generics, operands)
            }
            ExprKind::Method { receiver, name, generics, args } => {
                let mut operands = vec![self.operand(receiver)?];
                operands.extend(self.operands(args)?);
                self.loc = Some(self.loc_of(span));
                builtins::method(self, name, span, generics, operands)
            }
            ExprKind::Device { callee, generics, args } => {
                let operands = self.operands(args)?;
                self.call_device(callee, generics, &operands, span)
            }
            ExprKind::DeviceRef(function) => Ok(Val::Function(Function(function))),
            ExprKind::If { cond, then, otherwise } => self.if_expr(cond, then, *otherwise),
            ExprKind::IfSome { pattern, value, then, otherwise } => {
                self.if_some(pattern, value, then, *otherwise)
            }
            ExprKind::Block(block) => self.block(block),
            ExprKind::Print(format, args) => self.print(format, args, span),
            ExprKind::Asm(text, constraints, pack, args) => {
                self.inline_asm((text, constraints, *pack), args, span)
            }
            ExprKind::Assert(cond, message) => self.assert(cond, message),
            ExprKind::StaticAssert(cond, message) => self.static_assert(cond, message),
        }
    }

    fn all(&mut self, parts: &'static [ExprAst]) -> Res<Vec<Val>> {
        parts.iter().map(|part| self.expr(part)).collect()
    }

    /// Walks arguments in order.
    pub(super) fn operands(&mut self, args: &'static [ExprAst]) -> Res<Vec<Operand>> {
        args.iter().map(|arg| self.operand(arg)).collect()
    }

    fn int_literal(&self, value: i128, dtype: Option<DType>, span: Span) -> Res {
        let lit = Lit::Int(value);
        dtype.map_or(Ok(Val::Lit(lit)), |dtype| self.literal(lit, dtype, span).map(Val::Const))
    }

    fn float_literal(&self, value: f64, dtype: Option<DType>, span: Span) -> Res {
        let lit = Lit::Float(value);
        dtype.map_or(Ok(Val::Lit(lit)), |dtype| self.literal(lit, dtype, span).map(Val::Const))
    }

    fn name(&self, name: &'static str, span: Span) -> Res {
        self.frame().lookup(name).ok_or_else(|| {
            self.error(span, format!("`{name}` is not known here"))
                .help("a kernel sees its parameters, its variables and constants")
        })
    }

    fn dtype_const(&self, dtype: DTypeAst, name: &str, span: Span) -> Res {
        let dtype = self.dtype_ast(dtype, span)?;
        dtype_constant(dtype, name)
            .map(Val::Const)
            .ok_or_else(|| self.error(span, format!("{dtype} has no constant `{name}`")))
    }

    fn convert(&mut self, inner: &'static ExprAst, dtype: DTypeAst, span: Span) -> Res {
        let dtype = self.dtype_ast(dtype, span)?;
        let operand = self.operand(inner)?;
        if self.shape(&operand.val).is_some_and(|shape| !shape.is_scalar()) {
            let found = self.describe(&operand.val);
            let error =
                self.error(span, format!("`as` and `from` convert scalars, this is {found}"));
            return Err(error.help(format!("convert a tile with `.to::<{dtype}>()`")));
        }
        self.cast(&operand, dtype)
    }

    /// A number in another dtype.
    pub(super) fn cast(&mut self, operand: &Operand, dtype: DType) -> Res {
        self.number_dtype("a conversion", operand)?;
        match &operand.val {
            Val::Const(scalar) => return Ok(Val::Const(scalar::cast(*scalar, dtype))),
            Val::Lit(Lit::Float(value)) if dtype.is_float() => {
                return Ok(Val::Const(Scalar::float(dtype, *value)));
            }
            Val::Lit(Lit::Int(value)) if dtype != DType::Bool => {
                let lit = Lit::Int(*value);
                return self.literal(lit, dtype, operand.span()).map(Val::Const);
            }
            // Not to bool: there the ops of numbers, made again, would be ops of bools.
            Val::Soft(value)
                if dtype != DType::Bool
                    && self.func.tile(*value).dtype().is_float() == dtype.is_float() =>
            {
                return self.coerce(operand, dtype).map(Val::Ir);
            }
            _ => {}
        }
        let (value, _) = self.number("a conversion", operand)?;
        Ok(Val::Ir(self.build().cast(value, dtype)))
    }

    fn field(&mut self, inner: &'static ExprAst, index: u32, span: Span) -> Res {
        let val = self.expr(inner)?;
        match &val {
            Val::Tuple(parts) if (index as usize) < parts.len() => {
                Ok(parts[index as usize].clone())
            }
            _ => {
                let found = self.describe(&val);
                let message = format!("{} is {found}, it has no `.{index}`", name_of(inner));
                Err(self.error(span, message))
            }
        }
    }

    fn member(&mut self, inner: &'static ExprAst, name: &str, span: Span) -> Res {
        let val = self.expr(inner)?;
        let found = match &val {
            Val::Struct(fields) => fields.iter().find(|(known, _)| *known == name),
            _ => None,
        };
        match found {
            Some((_, val)) => Ok(val.clone()),
            None => {
                let found = self.describe(&val);
                let message = format!("{} is {found}, it has no `.{name}`", name_of(inner));
                Err(self.error(span, message))
            }
        }
    }

    /// `a && b` where `and`, else `a || b`: the right side runs only where it decides, unless it has
    /// no effect, when both sides are computed and combined.
    fn short_circuit(&mut self, and: bool, a: &'static ExprAst, b: &'static ExprAst) -> Res {
        let left = self.operand(a)?;
        let what = if and { "`&&`" } else { "`||`" };
        let (_, other) = if and { ("&&", "&") } else { ("||", "|") };
        let left_value = self.scalar_bool(what, other, &left)?;
        if let Some(known) = left.val.as_bool() {
            if known != and {
                return Ok(Val::bool(known));
            }
            let right = self.operand(b)?;
            self.scalar_bool(what, other, &right)?;
            return Ok(right.val);
        }
        let region = self.func.add_region();
        let (right, value) = self.within(region, |lower| -> Res<_> {
            let right = lower.operand(b)?;
            let value = lower.scalar_bool(what, other, &right)?;
            Ok((right, value))
        })?;
        if right.val.as_bool() == Some(and) {
            return Ok(left.val);
        }
        let op = if and { crate::ir::BinaryOp::And } else { crate::ir::BinaryOp::Or };
        let ops = self.func.region(region).ops.clone();
        if self.combining || ops.iter().all(|&op| self.func.op(op).kind.is_pure()) {
            let here = self.region;
            self.func.region_mut(here).ops.extend(ops);
            return Ok(Val::Ir(self.build().binary(op, left_value, value)));
        }
        let other = self.func.add_region();
        let known = self.within(other, |lower| lower.build().int(DType::Bool, i64::from(!and)));
        self.finish_region(region, &[value]);
        self.finish_region(other, &[known]);
        let (then, otherwise) = if and { (region, other) } else { (other, region) };
        let types = [self.func.ty(value)];
        Ok(Val::Ir(self.build().if_else(left_value, then, otherwise, &types)[0]))
    }

    fn scalar_bool(
        &mut self,
        what: &str,
        elementwise: &str,
        operand: &Operand,
    ) -> Res<crate::ir::Value> {
        let scalar = self.shape(&operand.val).is_some_and(|shape| shape.is_scalar());
        if !scalar {
            let found = self.describe(&operand.val);
            let error =
                self.error(operand.span(), format!("{what} needs scalars, this is {found}"));
            return Err(
                error.help(format!("combine tiles element by element with `{elementwise}`"))
            );
        }
        self.coerce(operand, DType::Bool)
    }

    fn print(&mut self, format: &str, args: &'static [ExprAst], span: Span) -> Res {
        let operands = self.operands(args)?;
        let holes = format.replace("{{", "").replace("}}", "").matches("{}").count();
        if holes != operands.len() {
            let message = format!("the format has {holes} `{{}}` for {} arguments", operands.len());
            return Err(self.error(span, message));
        }
        self.refuse_in_combine(span, "`device_print!`")?;
        let mut values = Vec::new();
        for operand in &operands {
            values.push(self.tile("`device_print!`", operand)?.0);
        }
        self.build().push(OpKind::Print { format: format.to_owned() }, &values, &[], &[]);
        Ok(Val::Unit)
    }

    fn assert(&mut self, cond: &'static ExprAst, message: &str) -> Res {
        let operand = self.operand(cond)?;
        self.refuse_in_combine(cond.span, "`device_assert!`")?;
        let value = self.coerce(&operand, DType::Bool)?;
        self.build().push(OpKind::Assert { message: message.to_owned() }, &[value], &[], &[]);
        Ok(Val::Unit)
    }

    fn static_assert(&mut self, cond: &'static ExprAst, message: &str) -> Res {
        let val = self.expr(cond)?;
        match val.as_bool() {
            Some(true) => Ok(Val::Unit),
            Some(false) => {
                let text = if message.is_empty() { String::new() } else { format!(": {message}") };
                let error = self.error(cond.span, format!("static assertion failed{text}"));
                Err(error.label(self.const_values(cond)))
            }
            None => {
                let found = self.describe(&val);
                let message =
                    format!("`static_assert!` needs a condition on constants, this is {found}");
                let error = self.error(cond.span, message);
                Err(error.help("check run-time values with `device_assert!`"))
            }
        }
    }

    /// The const parameters in a condition with their values: `BK is 24`.
    fn const_values(&self, cond: &'static ExprAst) -> String {
        let mut names = Vec::new();
        const_names(cond, &mut names);
        let known = |name: &&'static str| self.frame().lookup(name)?.as_int().map(|v| (*name, v));
        let values: Vec<String> =
            names.iter().filter_map(known).map(|(name, v)| format!("{name} is {v}")).collect();
        values.join(", ")
    }

    /// Refuses what a combining function of a reduction can't do.
    pub(super) fn refuse_in_combine(&self, span: Span, what: &str) -> Res<()> {
        if !self.combining {
            return Ok(());
        }
        let message = format!("{what} can't stand in a function that combines two elements");
        Err(self.error(span, message).help("such a function only computes with its arguments"))
    }

    /// The value of `{ .. }`: its variables end with it.
    pub(super) fn block(&mut self, block: &'static BlockAst) -> Res {
        let mark = self.frame().slots.len();
        let val = self.block_body(block);
        self.frame_mut().slots.truncate(mark);
        val
    }
}

/// The names in an expression, each once.
fn const_names(expr: &'static ExprAst, names: &mut Vec<&'static str>) {
    match &expr.kind {
        ExprKind::Name(name) if !names.contains(name) => names.push(name),
        ExprKind::Neg(a) | ExprKind::Not(a) | ExprKind::As(a, _) => const_names(a, names),
        ExprKind::Binary(_, a, b)
        | ExprKind::Compare(_, a, b)
        | ExprKind::AndThen(a, b)
        | ExprKind::OrElse(a, b) => {
            const_names(a, names);
            const_names(b, names);
        }
        _ => {}
    }
}

/// What a Rust constant stands for.
fn constant(value: ConstValue) -> Val {
    Val::Const(match value {
        ConstValue::Bool(value) => Scalar::int(DType::Bool, i64::from(value)),
        ConstValue::Int(dtype, value) => Scalar::int(dtype, value),
        ConstValue::F32(value) => Scalar::float(DType::F32, f64::from(value)),
        ConstValue::F64(value) => Scalar::float(DType::F64, value),
    })
}

/// `T::NAME` for a dtype.
fn dtype_constant(dtype: DType, name: &str) -> Option<Scalar> {
    if dtype == DType::Bool {
        return match name {
            "ZERO" => Some(Scalar::zero(dtype)),
            "ONE" => Some(Scalar::int(dtype, 1)),
            _ => None,
        };
    }
    match name {
        _ if dtype.is_f8() => None,
        "ZERO" => Some(Scalar::zero(dtype)),
        "ONE" => Some(Scalar::int(dtype, 1)),
        _ if dtype.is_float() => float_constant(dtype, name),
        "MAX" if dtype.is_signed_int() => Some(Scalar::int(dtype, i64::MAX >> (64 - dtype.bits()))),
        "MIN" if dtype.is_signed_int() => Some(Scalar::int(dtype, i64::MIN >> (64 - dtype.bits()))),
        "MAX" => Some(Scalar::int(dtype, -1)),
        "MIN" => Some(Scalar::zero(dtype)),
        "BITS" => Some(Scalar::int(DType::I64, i64::from(dtype.bits()))),
        _ => None,
    }
}

fn float_constant(dtype: DType, name: &str) -> Option<Scalar> {
    // Bits of the exponent and of the stored fraction.
    let (exponent, fraction) = match dtype {
        DType::F16 => (5, 10),
        DType::BF16 => (8, 7),
        DType::F32 => (8, 23),
        _ => (11, 52),
    };
    let emax = (1 << (exponent - 1)) - 1;
    let power = |n: i32| 2f64.powi(n);
    let max = (2.0 - power(-fraction)) * power(emax);
    let value = match name {
        "NEG_INFINITY" => f64::NEG_INFINITY,
        "INFINITY" => f64::INFINITY,
        "NAN" => f64::NAN,
        "MAX" => max,
        "MIN" => -max,
        "EPSILON" => power(-fraction),
        "MIN_POSITIVE" => power(1 - emax),
        _ => return None,
    };
    Some(Scalar::float(dtype, value))
}

impl Lower {
    /// A comparison, element by element.
    fn compare(&mut self, predicate: Predicate, a: &Operand, b: &Operand) -> Res {
        let equality = matches!(predicate, Predicate::Eq | Predicate::Ne);
        let class = if equality { Class::Any } else { Class::Ordered };
        if class.takes(&a.val)
            && class.takes(&b.val)
            && let Some(known) = consts::compare(predicate, &a.val, &b.val)
        {
            return Ok(known);
        }
        let what = format!("`{}`", super::operators::predicate_symbol(predicate));
        let aligned = self.align(&what, class, &[a, b])?;
        let value = self.build().compare(predicate, aligned.values[0], aligned.values[1]);
        Ok(Val::Ir(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_dtypes_are_those_of_rust() {
        let float = |dtype, name| dtype_constant(dtype, name).map(Scalar::to_f64);
        assert_eq!(float(DType::F32, "MAX"), Some(f64::from(f32::MAX)));
        assert_eq!(float(DType::F64, "MIN"), Some(f64::MIN));
        assert_eq!(float(DType::F16, "MAX"), Some(65504.0));
        assert_eq!(float(DType::BF16, "EPSILON"), Some(0.0078125));
        assert_eq!(float(DType::F32, "MIN_POSITIVE"), Some(f64::from(f32::MIN_POSITIVE)));
        let int = |dtype, name| dtype_constant(dtype, name).map(Scalar::to_i64);
        assert_eq!(int(DType::I8, "MIN"), Some(-128));
        assert_eq!(int(DType::U32, "MAX"), Some(i64::from(u32::MAX)));
        assert_eq!(int(DType::I64, "MAX"), Some(i64::MAX));
    }
}
