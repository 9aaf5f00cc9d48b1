//! One dtype and one shape for the operands of an operation.
//!
//! Literals and soft values take the dtype of the first hard operand; shapes broadcast once ranks are
//! equal, and a scalar broadcasts to anything. Every mismatch is told with both sides.

use crate::diag::Diagnostic;
use crate::ir::{Combine, DType, Elem, OpKind, Scalar, Shape, Type, Value};

use super::ast::{ExprAst, Span};
use super::consts;
use super::lower::{Lower, MAX_ELEMENTS, Res, describe_type, name_of, other_name};
use super::value::{Lit, Operand, Val};

/// Operands made equal in dtype and shape.
pub(super) struct Aligned {
    pub(super) values: Vec<Value>,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// Whether all were literals or soft, so that the result still takes its partner's dtype.
    pub(super) soft: bool,
}

impl Aligned {
    /// The result of an op on the operands, soft where they are.
    pub(super) fn wrap(&self, value: Value) -> Val {
        if self.soft { Val::Soft(value) } else { Val::Ir(value) }
    }
}

/// What an operation asks of its operands' dtype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    Any,
    Number,
    Float,
    /// What `dot` multiplies: floats, also those of 8 bits, which are not [`Class::Float`], and integers of 8 bits.
    Factor,
    /// What comparisons order: all but bool.
    Ordered,
    Int,
    /// Integers and bool.
    Bits,
    Bool,
}

impl Class {
    /// Whether a constant may be computed with as it is; what may not is refused elsewhere.
    pub(super) fn takes(self, val: &Val) -> bool {
        match val {
            Val::Const(scalar) => self.accepts(scalar.dtype),
            Val::Lit(Lit::Int(_)) => self != Class::Bool,
            Val::Lit(Lit::Float(_)) => {
                matches!(self, Class::Any | Class::Number | Class::Float | Class::Ordered)
            }
            _ => false,
        }
    }

    fn accepts(self, dtype: DType) -> bool {
        match self {
            Class::Any => true,
            Class::Number => dtype.is_number(),
            Class::Float => dtype.is_arithmetic_float(),
            Class::Factor => dtype.accumulator().is_some(),
            Class::Ordered => dtype != DType::Bool,
            Class::Int => dtype.is_int(),
            Class::Bits => !dtype.is_float(),
            Class::Bool => dtype == DType::Bool,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Class::Any => "numbers",
            Class::Number | Class::Ordered => "numbers",
            Class::Float => "floats",
            Class::Factor => "floats or integers of 8 bits",
            Class::Int => "integers",
            Class::Bits => "integers or bools",
            Class::Bool => "bools",
        }
    }
}

impl Lower {
    /// Makes operands equal in dtype and shape; `what` is the operation as the user wrote it.
    pub(super) fn align(
        &mut self,
        what: &str,
        class: Class,
        operands: &[&Operand],
    ) -> Res<Aligned> {
        let (dtype, soft) = self.common_dtype(what, class, operands)?;
        let shape = self.common_shape(operands)?;
        let mut values = Vec::with_capacity(operands.len());
        for operand in operands {
            let value = self.coerce(operand, dtype)?;
            values.push(self.build().broadcast(value, shape));
        }
        Ok(Aligned { values, dtype, shape, soft })
    }

    /// The dtype that operands share, and whether it is only that of literals.
    pub(super) fn common_dtype(
        &self,
        what: &str,
        class: Class,
        operands: &[&Operand],
    ) -> Res<(DType, bool)> {
        let mut hard: Option<(&Operand, DType)> = None;
        let takes_floats = matches!(class, Class::Float | Class::Factor);
        let mut soft = if takes_floats { DType::F64 } else { DType::I64 };
        for operand in operands {
            let dtype = self.number_dtype(what, operand)?;
            let literal = takes_floats && self.is_soft(&operand.val);
            if !class.accepts(dtype) && !literal {
                return Err(self.wrong_class(what, class, operand));
            }
            if self.is_soft(&operand.val) {
                soft = if dtype.is_float() { dtype } else { soft };
                continue;
            }
            match hard {
                None => hard = Some((operand, dtype)),
                Some((_, first)) if first == dtype => {}
                Some((first, _)) => return Err(self.dtype_mismatch(what, first, operand)),
            }
        }
        Ok(hard.map_or((soft, true), |(_, dtype)| (dtype, false)))
    }

    /// The shape operands broadcast to.
    pub(super) fn common_shape(&self, operands: &[&Operand]) -> Res<Shape> {
        let mut shape = Shape::SCALAR;
        for (i, operand) in operands.iter().enumerate() {
            let other = self.shape(&operand.val).unwrap_or(Shape::SCALAR);
            shape = shape
                .broadcast(other)
                .ok_or_else(|| self.shape_mismatch(&operands[..i], operand, shape, other))?;
        }
        self.check_elements(None, shape)?;
        Ok(shape)
    }

    /// Refuses tiles over the size limit.
    pub(super) fn check_elements(&self, span: Option<Span>, shape: Shape) -> Res<()> {
        let elements = shape.extents().iter().try_fold(1usize, |n, &e| n.checked_mul(e));
        if elements.is_some_and(|n| n <= MAX_ELEMENTS) {
            return Ok(());
        }
        let count = elements.map_or_else(|| "too many".to_owned(), |n| n.to_string());
        let message =
            format!("a tile of shape {shape} has {count} elements, the most are {MAX_ELEMENTS}");
        let loc = span.map(|span| self.loc_of(span)).or(self.loc);
        Err(Diagnostic::new(message, loc)
            .help("use smaller blocks, and loop over parts or launch more programs"))
    }

    /// An operand as a value of exactly this dtype.
    pub(super) fn coerce(&mut self, operand: &Operand, dtype: DType) -> Res<Value> {
        self.coerce_at(&operand.val, dtype, operand.span(), Some(operand.expr))
    }

    /// A value as one of exactly this dtype, where no expression names it.
    pub(super) fn coerce_val(&mut self, val: &Val, dtype: DType, span: Span) -> Res<Value> {
        self.coerce_at(val, dtype, span, None)
    }

    fn coerce_at(
        &mut self,
        val: &Val,
        dtype: DType,
        span: Span,
        expr: Option<&'static ExprAst>,
    ) -> Res<Value> {
        match val {
            Val::Lit(lit) => {
                let scalar = self.literal(*lit, dtype, span)?;
                Ok(self.build().constant(scalar))
            }
            Val::Soft(value) => self.retype(*value, dtype, span),
            val => match (val, self.tile_type(val).map(|ty| ty.elem)) {
                (Val::Const(scalar), _) if scalar.dtype == dtype => {
                    Ok(self.build().constant(*scalar))
                }
                (Val::Ir(value), Some(Elem::Data(own))) if own == dtype => Ok(*value),
                _ => Err(self.wrong_dtype(val, dtype, span, expr)),
            },
        }
    }

    /// An operand as a number, with nothing known about its dtype; soft where it is a literal.
    pub(super) fn number(&mut self, what: &str, operand: &Operand) -> Res<(Value, bool)> {
        let dtype = self.number_dtype(what, operand)?;
        Ok((self.coerce(operand, dtype)?, self.is_soft(&operand.val)))
    }

    /// A literal as a number of a dtype.
    pub(super) fn literal(&self, lit: Lit, dtype: DType, span: Span) -> Res<Scalar> {
        match lit {
            _ if dtype.is_float() => Ok(Scalar::float(dtype, consts::as_float(lit))),
            Lit::Int(value) if dtype.is_int() && consts::fits(dtype, value) => {
                Ok(Scalar::int(dtype, value as i64))
            }
            Lit::Int(value) if dtype.is_int() => {
                let error = self.error(span, format!("the literal {value} does not fit {dtype}"));
                Err(error.label(format!("taken as {dtype}")))
            }
            Lit::Int(value) => {
                let error = self.error(span, format!("the literal {value} is no bool"));
                Err(error.help("write `true` or `false`"))
            }
            Lit::Float(value) => {
                let message = format!("the float literal {value:?} is taken as {dtype} here");
                Err(self.error(span, message).help("write a literal without a point, or convert"))
            }
        }
    }

    /// Whether a number takes its partner's dtype.
    pub(super) fn is_soft(&self, val: &Val) -> bool {
        matches!(val, Val::Lit(_) | Val::Soft(_))
    }

    /// The dtype of a number, the one it has by itself for literals; refuses all else.
    pub(super) fn number_dtype(&self, what: &str, operand: &Operand) -> Res<DType> {
        match &operand.val {
            Val::Lit(Lit::Int(_)) => Ok(DType::I64),
            Val::Lit(Lit::Float(_)) => Ok(DType::F64),
            val => match self.tile_type(val).map(|ty| ty.elem) {
                Some(Elem::Data(dtype)) => Ok(dtype),
                _ => {
                    let message = format!("{what} needs a number, this is {}", self.describe(val));
                    let error = self.error(operand.span(), message);
                    Err(match self.view_type(val) {
                        Some(_) => error.help("read a tile of the view first, with its `load`"),
                        None if self.tile_type(val).is_some() => {
                            error.help("read through the pointer first, with `load`")
                        }
                        None => error,
                    })
                }
            },
        }
    }

    /// A soft value in another dtype: the ops that made it are made again in that dtype, so that the
    /// result is what it would be had the literals been typed.
    fn retype(&mut self, value: Value, dtype: DType, span: Span) -> Res<Value> {
        let own = self.func.tile(value).dtype();
        if own.is_float() && !dtype.is_float() {
            let error = self.error(span, format!("this is a float, {dtype} is needed here"));
            return Err(error.help(format!("convert it: `.to::<{dtype}>()`")));
        }
        Ok(self.retype_tree(value, dtype, 16))
    }

    fn retype_tree(&mut self, value: Value, dtype: DType, depth: usize) -> Value {
        let ty = self.func.tile(value);
        if ty.elem == Elem::Data(dtype) {
            return value;
        }
        let Some(op) = self.func.def_op(value).filter(|_| depth > 0) else {
            return self.build().cast(value, dtype);
        };
        let data = self.func.op(op).clone();
        let skip = match &data.kind {
            OpKind::Const(scalar) => {
                let scalar = match integer_or_float(*scalar) {
                    Lit::Int(value) if dtype.is_int() => Scalar::int(dtype, value as i64),
                    lit if dtype.is_float() => Scalar::float(dtype, consts::as_float(lit)),
                    _ => return self.build().cast(value, dtype),
                };
                return self.build().constant(scalar);
            }
            OpKind::Select => 1,
            kind if kind.is_view() => 0,
            // What integers compute stays integer arithmetic: 3 / 2 is 1 also beside a float.
            OpKind::Unary(_)
            | OpKind::Binary(_)
            | OpKind::Fma
            | OpKind::Reduce { combine: Combine::Op(_), .. }
                if ty.dtype().is_float() == dtype.is_float() =>
            {
                0
            }
            _ => return self.build().cast(value, dtype),
        };
        let mut operands = data.operands.clone();
        for operand in &mut operands[skip..] {
            *operand = self.retype_tree(*operand, dtype, depth - 1);
        }
        let ty = Type::Tile(ty.with_dtype(dtype));
        let op = self.build().push(data.kind, &operands, &[ty], &[]);
        self.func.op(op).results[0]
    }

    pub(super) fn wrong_class(&self, what: &str, class: Class, operand: &Operand) -> Diagnostic {
        let found = self.describe(&operand.val);
        let message = format!("{what} needs {}, this is {found}", class.name());
        let error = self.error(operand.span(), message);
        let is_f8 =
            self.tile_type(&operand.val).is_some_and(|ty| !ty.is_ptr() && ty.dtype().is_f8());
        match class {
            Class::Float | Class::Number if is_f8 => {
                error.help("floats of 8 bits are for storage: convert it first with `.to::<f32>()`")
            }
            Class::Float | Class::Factor => {
                error.help("convert it first, for example with `.to::<f32>()`")
            }
            Class::Number | Class::Ordered => {
                error.help("convert it first, for example with `.to::<i32>()`")
            }
            Class::Any | Class::Int | Class::Bits | Class::Bool => error,
        }
    }

    fn dtype_mismatch(&self, what: &str, first: &Operand, second: &Operand) -> Diagnostic {
        let dtype = |operand: &Operand| {
            self.tile_type(&operand.val).map_or("a literal", |ty| ty.dtype().name())
        };
        let (left, right) = (dtype(first), dtype(second));
        let message = format!("{what} needs one dtype, {} and {} differ", left, right);
        self.error(second.span(), message)
            .label(format!("this is {right}, {} is {left}", other_name(first)))
            .help(format!("convert one of them, for example with `.to::<{left}>()`"))
    }

    fn shape_mismatch(
        &self,
        earlier: &[&Operand],
        operand: &Operand,
        shape: Shape,
        other: Shape,
    ) -> Diagnostic {
        let with = earlier
            .iter()
            .rev()
            .find(|o| self.shape(&o.val).is_some_and(|s| s.broadcast(other).is_none()));
        let left = with.and_then(|o| self.shape(&o.val)).unwrap_or(shape);
        let name = with.map_or_else(|| "the other operand".to_owned(), |o| other_name(o));
        let message = format!("tiles of shapes {left} and {other} do not broadcast together");
        let help = if left.rank() == other.rank() {
            "extents must be equal or 1; `.row()` and `.col()` add a unit axis"
        } else {
            "ranks must be equal; `.row()`, `.col()` and `.expand_dims(axis)` add a unit axis"
        };
        self.error(operand.span(), message)
            .label(format!("this has shape {other}, {name} has {left}"))
            .help(help)
    }

    fn wrong_dtype(
        &self,
        val: &Val,
        dtype: DType,
        span: Span,
        expr: Option<&'static ExprAst>,
    ) -> Diagnostic {
        let found = self.describe(val);
        let name = expr.map_or_else(|| "this".to_owned(), name_of);
        let error = self.error(span, format!("{name} is {found}, {dtype} is needed here"));
        match self.tile_type(val) {
            Some(ty) if !ty.is_ptr() => error.help(format!("convert it: `.to::<{dtype}>()`")),
            _ => error,
        }
    }

    /// An operand broadcast to a shape that is given: `what` is its role, such as `the mask`.
    pub(super) fn broadcast_operand(
        &mut self,
        what: &str,
        operand: &Operand,
        value: Value,
        shape: Shape,
        target: &str,
    ) -> Res<Value> {
        let own = self.func.tile(value).shape;
        if own.broadcast(shape) == Some(shape) {
            return Ok(self.build().broadcast(value, shape));
        }
        let message = format!("{what} has shape {own}, {target} has {shape}");
        let label = describe_type(self.func.ty(value));
        let help = if own.rank() == shape.rank() || shape.is_scalar() {
            format!("{what} must have {target}'s extents, or 1")
        } else {
            "ranks must be equal; `.row()`, `.col()` and `.expand_dims(axis)` add a unit axis"
                .into()
        };
        Err(self.error(operand.span(), message).label(label).help(help))
    }
}

/// A soft constant as the literal it came from.
fn integer_or_float(scalar: Scalar) -> Lit {
    consts::integer(scalar).map_or_else(|| Lit::Float(scalar.to_f64()), Lit::Int)
}
