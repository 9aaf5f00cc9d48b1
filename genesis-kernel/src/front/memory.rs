//! Reading and writing through pointers.

use crate::diag::Diagnostic;
use crate::ir::{AtomicOp, AtomicOrdering, Cache, DType, Def, OpKind, Shape, Value};

use super::arguments::Call;
use super::ast::GenericAst;
use super::lower::{Lower, Res, name_of};
use super::value::{Operand, Val};

/// What the name of a load or store says to caches.
pub(super) fn cache_of(call: &Call) -> Cache {
    match call.name {
        "load_once" | "store_once" => Cache::Once,
        "load_kept" | "store_kept" => Cache::Kept,
        _ => Cache::Usual,
    }
}

/// What `::<Release, System>` of an atomic says.
fn ordering_of(call: &Call) -> AtomicOrdering {
    let mut ordering = AtomicOrdering::default();
    for generic in call.generics {
        match generic {
            GenericAst::Order(order) => ordering.order = *order,
            GenericAst::Scope(scope) => ordering.scope = *scope,
            GenericAst::Type(_) | GenericAst::Const(_) => {}
        }
    }
    ordering
}

/// `load(ptr)`, `load(ptr, mask)`, `load(ptr, mask, other)`
pub(super) fn load(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`load`")?;
    let (pointer, dtype, _) = lower.pointer("`load`", &call.args[0])?;
    // Pointers and mask broadcast together: a row of pointers is read under a matrix of masks.
    let together: Vec<&Operand> = call.args.iter().take(2).collect();
    let shape = lower.common_shape(&together)?;
    let pointer = lower.build().broadcast(pointer, shape);
    let mask = lower.mask(call.args.get(1), shape)?;
    let other = match call.args.get(2) {
        None => None,
        Some(operand) => {
            let value = lower.coerce(operand, dtype)?;
            let what = "the value for masked-off elements";
            Some(lower.broadcast_operand(what, operand, value, shape, "the pointer")?)
        }
    };
    let mut builder = lower.build();
    builder.cache = cache_of(call);
    Ok(Val::Ir(builder.load(pointer, mask, other)))
}

/// `store(ptr, value)`, `store(ptr, value, mask)`
pub(super) fn store(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`store`")?;
    let (pointer, dtype, shape) = lower.pointer("`store`", &call.args[0])?;
    lower.refuse_readonly(pointer, &call.args[0])?;
    let value = lower.stored(&call.args[1], dtype, shape)?;
    let mask = lower.mask(call.args.get(2), shape)?;
    let mut builder = lower.build();
    builder.cache = cache_of(call);
    builder.store(pointer, value, mask);
    Ok(Val::Unit)
}

/// `atomic_add(ptr, value)`, `atomic_add::<Release>(ptr, value, mask)` and the like.
pub(super) fn atomic_rmw(lower: &mut Lower, call: &Call) -> Res {
    let op = match call.name {
        "atomic_max" => AtomicOp::Max,
        "atomic_min" => AtomicOp::Min,
        "atomic_and" => AtomicOp::And,
        "atomic_or" => AtomicOp::Or,
        "atomic_xor" => AtomicOp::Xor,
        "atomic_xchg" => AtomicOp::Exchange,
        _ => AtomicOp::Add,
    };
    let (pointer, dtype, shape) = lower.atomic_pointer(call)?;
    let bits_only = matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor);
    let adds = op == AtomicOp::Add && dtype.is_arithmetic_float();
    if dtype.bits() < 32 && !adds || bits_only && dtype.is_float() {
        return Err(lower.no_atomic(call, dtype));
    }
    let value = lower.stored(&call.args[1], dtype, shape)?;
    let mask = lower.mask(call.args.get(2), shape)?;
    let mut builder = lower.build();
    builder.ordering = ordering_of(call);
    Ok(Val::Ir(builder.atomic_rmw(op, pointer, value, mask)))
}

/// `atomic_cas(ptr, expected, new)`, `atomic_cas(ptr, expected, new, mask)`
pub(super) fn atomic_cas(lower: &mut Lower, call: &Call) -> Res {
    let (pointer, dtype, shape) = lower.atomic_pointer(call)?;
    if dtype.bits() < 32 {
        return Err(lower.no_atomic(call, dtype));
    }
    let expected = lower.stored(&call.args[1], dtype, shape)?;
    let new = lower.stored(&call.args[2], dtype, shape)?;
    let mask = lower.mask(call.args.get(3), shape)?;
    let mut builder = lower.build();
    builder.ordering = ordering_of(call);
    Ok(Val::Ir(builder.atomic_cas(pointer, expected, new, mask)))
}

impl Lower {
    /// An operand as pointers, with what they point to and their shape.
    pub(super) fn pointer(&self, what: &str, operand: &Operand) -> Res<(Value, DType, Shape)> {
        self.pointee(&operand.val).ok_or_else(|| {
            let found = self.describe(&operand.val);
            let error =
                self.error(operand.span(), format!("{what} needs a pointer, this is {found}"));
            match self.view_type(&operand.val) {
                Some(_) => error.help("a view has methods: `v.load::<M, N>([i, j])`"),
                None => error,
            }
        })
    }

    fn atomic_pointer(&mut self, call: &Call) -> Res<(Value, DType, Shape)> {
        let what = format!("`{}`", call.name);
        self.refuse_in_combine(call.span, &what)?;
        let pointer = self.pointer(&what, &call.args[0])?;
        self.refuse_readonly(pointer.0, &call.args[0])?;
        Ok(pointer)
    }

    fn no_atomic(&self, call: &Call, dtype: DType) -> Diagnostic {
        let error = self.error(call.span, format!("`{}` does not work on {dtype}", call.name));
        error.help("use 32 or 64 bit numbers")
    }

    pub(super) fn mask(&mut self, operand: Option<&Operand>, shape: Shape) -> Res<Option<Value>> {
        let Some(operand) = operand else { return Ok(None) };
        if self.number_dtype("a mask", operand)? != DType::Bool {
            let found = self.describe(&operand.val);
            let message = format!("a mask is a tile of bool, {} is {found}", name_of(operand.expr));
            return Err(self.error(operand.span(), message).help("compare: `i < n`"));
        }
        let value = self.coerce(operand, DType::Bool)?;
        self.broadcast_operand("the mask", operand, value, shape, "the pointer").map(Some)
    }

    /// A value to be written: of the pointer's dtype, broadcast to its shape.
    fn stored(&mut self, operand: &Operand, dtype: DType, shape: Shape) -> Res<Value> {
        let found = self.number_dtype("a store", operand)?;
        if found != dtype && !self.is_soft(&operand.val) {
            let message =
                format!("{} is {found}, the pointer is to {dtype}", name_of(operand.expr));
            let error = self.error(operand.span(), message);
            return Err(error.help(format!("convert it: `.to::<{dtype}>()`")));
        }
        let value = self.coerce(operand, dtype)?;
        self.broadcast_operand("the value", operand, value, shape, "the pointer")
    }

    /// Refuses to write through what was derived from a read-only parameter.
    pub(super) fn refuse_readonly(&self, value: Value, operand: &Operand) -> Res<()> {
        let mut root = value;
        while let Def::Result(op, _) = self.func.value(root).def {
            let data = self.func.op(op);
            match (&data.kind, data.operands.first()) {
                (
                    OpKind::PtrAdd
                    | OpKind::Broadcast
                    | OpKind::ExpandDims { .. }
                    | OpKind::Reshape
                    | OpKind::Transpose { .. }
                    | OpKind::ViewPtr
                    | OpKind::MakeView
                    | OpKind::MultipleOf(_),
                    Some(&first),
                ) => root = first,
                _ => return Ok(()),
            }
        }
        let Some(param) = self.func.params.iter().find(|param| param.value == root) else {
            return Ok(());
        };
        if !param.attrs.readonly {
            return Ok(());
        }
        let message = format!("`{}` is read-only memory", param.name);
        let kind = if self.func.ty(root).as_tile().is_some() { "PtrMut" } else { "ViewMut" };
        Err(self.error(operand.span(), message).help(format!("declare it as `{kind}`")))
    }
}
