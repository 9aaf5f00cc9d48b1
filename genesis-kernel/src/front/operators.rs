//! Rust's operators on tiles, scalars and pointers.

use crate::ir::{BinaryOp, DType, Elem, Predicate, UnaryOp, scalar};

use super::broadcast::Class;
use super::consts;
use super::lower::{Lower, Res};
use super::value::{Lit, Operand, Val};

impl Lower {
    /// `a op b` as written with an operator: pointers move, numbers compute.
    pub(super) fn arithmetic(&mut self, op: BinaryOp, a: &Operand, b: &Operand) -> Res {
        if self.is_pointer(&a.val) && matches!(op, BinaryOp::Add | BinaryOp::Sub) {
            return self.move_pointer(a, b, op == BinaryOp::Sub);
        }
        if self.is_pointer(&b.val) && op == BinaryOp::Add {
            return self.move_pointer(b, a, false);
        }
        self.binary(&format!("`{}`", symbol(op)), op, a, b)
    }

    /// A binary op on numbers; `what` names it in messages.
    pub(super) fn binary(&mut self, what: &str, op: BinaryOp, a: &Operand, b: &Operand) -> Res {
        let class = match op {
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => Class::Bits,
            BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => Class::Int,
            BinaryOp::Short => Class::Float,
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::MinNum
            | BinaryOp::MaxNum => Class::Number,
        };
        if class.takes(&a.val)
            && class.takes(&b.val)
            && let Some(known) = consts::binary(op, &a.val, &b.val)
        {
            return Ok(known);
        }
        let aligned = self.align(what, class, &[a, b])?;
        let value = self.build().binary(op, aligned.values[0], aligned.values[1]);
        Ok(aligned.wrap(value))
    }

    /// `-x`
    pub(super) fn negate(&mut self, operand: &Operand) -> Res {
        match &operand.val {
            Val::Lit(Lit::Int(value)) => Ok(Val::Lit(Lit::Int(value.wrapping_neg()))),
            Val::Lit(Lit::Float(value)) => Ok(Val::Lit(Lit::Float(-value))),
            Val::Const(value) if value.dtype != DType::Bool => {
                Ok(Val::Const(scalar::unary(UnaryOp::Neg, *value)))
            }
            _ => self.unary("`-`", Class::Number, UnaryOp::Neg, operand),
        }
    }

    /// `!x`
    pub(super) fn not(&mut self, operand: &Operand) -> Res {
        match operand.val.as_bool() {
            Some(known) => Ok(Val::bool(!known)),
            None => self.unary("`!`", Class::Bits, UnaryOp::Not, operand),
        }
    }

    /// An elementwise op of one operand.
    pub(super) fn unary(
        &mut self,
        what: &str,
        class: Class,
        op: UnaryOp,
        operand: &Operand,
    ) -> Res {
        let aligned = self.align(what, class, &[operand])?;
        let value = self.build().unary(op, aligned.values[0]);
        Ok(aligned.wrap(value))
    }

    /// Whether it is a pointer or a tile of them.
    pub(super) fn is_pointer(&self, val: &Val) -> bool {
        self.tile_type(val).is_some_and(|ty| ty.is_ptr())
    }

    /// `pointer + offset`: offsets count elements and are widened to i64.
    fn move_pointer(&mut self, ptr: &Operand, offset: &Operand, back: bool) -> Res {
        let Val::Ir(pointer) = ptr.val else {
            return Err(self.error(ptr.span(), "this is no pointer"));
        };
        let offset_value = self.index("the offset of a pointer", offset)?;
        let shape = self.common_shape(&[ptr, offset])?;
        let mut build = self.build();
        let mut distance = offset_value;
        if back {
            distance = build.unary(UnaryOp::Neg, distance);
        }
        let (pointer, distance) =
            (build.broadcast(pointer, shape), build.broadcast(distance, shape));
        Ok(Val::Ir(build.ptr_add(pointer, distance)))
    }

    /// An integer operand as i64, a tile or a scalar.
    pub(super) fn index(&mut self, what: &str, operand: &Operand) -> Res<crate::ir::Value> {
        let dtype = self.number_dtype(what, operand)?;
        if !dtype.is_int() {
            return Err(self.wrong_class(what, Class::Int, operand));
        }
        let (value, _) = self.number(what, operand)?;
        Ok(self.build().cast(value, DType::I64))
    }

    /// An integer scalar as i64.
    pub(super) fn scalar_index(&mut self, what: &str, operand: &Operand) -> Res<crate::ir::Value> {
        let value = self.index(what, operand)?;
        if self.func.tile(value).shape.is_scalar() {
            return Ok(value);
        }
        let found = self.describe(&operand.val);
        Err(self.error(operand.span(), format!("{what} needs a scalar, this is {found}")))
    }

    /// What pointers point to, with their shape.
    pub(super) fn pointee(&self, val: &Val) -> Option<(crate::ir::Value, DType, crate::ir::Shape)> {
        let Val::Ir(value) = val else { return None };
        let ty = self.tile_type(val)?;
        match ty.elem {
            Elem::Ptr(dtype) => Some((*value, dtype, ty.shape)),
            Elem::Data(_) => None,
        }
    }
}

/// How an operator is written.
fn symbol(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => "%",
        BinaryOp::And => "&",
        BinaryOp::Or => "|",
        BinaryOp::Xor => "^",
        BinaryOp::Shl => "<<",
        BinaryOp::Shr => ">>",
        BinaryOp::Min => "minimum",
        BinaryOp::Max => "maximum",
        BinaryOp::MinNum => "minimum_num",
        BinaryOp::MaxNum => "maximum_num",
        BinaryOp::MulHi => "umulhi",
        BinaryOp::Short => "fast::demanded",
    }
}

/// How a comparison is written.
pub(super) fn predicate_symbol(predicate: Predicate) -> &'static str {
    match predicate {
        Predicate::Eq => "==",
        Predicate::Ne => "!=",
        Predicate::Lt => "<",
        Predicate::Le => "<=",
        Predicate::Gt => ">",
        Predicate::Ge => ">=",
    }
}
