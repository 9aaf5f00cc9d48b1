//! One value where two branches meet.
//!
//! What both branches agree on stays as it is; everything else is brought to one type inside each
//! branch and becomes a result of the branch.

use crate::ir::{DType, Elem, Region, Type, Value};

use super::ast::ExprAst;
use super::lower::{Lower, Res};
use super::value::{Lit, Operand, Val, soft_dtype};

/// The results of a branch being gathered.
pub(super) struct Merged {
    then_region: Region,
    else_region: Region,
    /// The one region whose values count, where the other returns from the kernel.
    pub(super) only: Option<Region>,
    pub(super) then_values: Vec<Value>,
    pub(super) else_values: Vec<Value>,
    pub(super) types: Vec<Type>,
}

/// How to find a merged value among the branch's results.
pub(super) enum Plan {
    /// It is this, whatever the branch does.
    Same(Val),
    /// A result, soft or not.
    Result(usize, bool),
    Tuple(Vec<Plan>),
}

impl Plan {
    pub(super) fn resolve(&self, results: &[Value]) -> Val {
        match self {
            Plan::Same(val) => val.clone(),
            Plan::Result(index, false) => Val::Ir(results[*index]),
            Plan::Result(index, true) => Val::Soft(results[*index]),
            Plan::Tuple(plans) => Val::Tuple(plans.iter().map(|p| p.resolve(results)).collect()),
        }
    }
}

impl Merged {
    pub(super) fn new(then_region: Region, else_region: Region) -> Merged {
        Merged {
            then_region,
            else_region,
            only: None,
            then_values: Vec::new(),
            else_values: Vec::new(),
            types: Vec::new(),
        }
    }

    fn push(&mut self, a: Value, b: Value, ty: Type, soft: bool) -> Plan {
        self.then_values.push(a);
        self.else_values.push(b);
        self.types.push(ty);
        Plan::Result(self.types.len() - 1, soft)
    }
}

impl Lower {
    /// Merges the values of one variable; `at` is the condition, for messages.
    pub(super) fn merge(
        &mut self,
        merged: &mut Merged,
        a: &Val,
        b: &Val,
        name: &str,
        at: &'static ExprAst,
    ) -> Res<Plan> {
        match (a, b) {
            (Val::Tuple(left), Val::Tuple(right)) if left.len() == right.len() => {
                let pairs = left.iter().zip(right);
                let plans = pairs.map(|(a, b)| self.merge(merged, a, b, name, at));
                return Ok(Plan::Tuple(plans.collect::<Res<Vec<Plan>>>()?));
            }
            // There is no view behind the branch that is one or the other.
            (a, b) if [a, b].iter().any(|val| self.view_type(val).is_some()) => {
                if merged.only.is_some() || a != b {
                    return Err(self.no_view_of_a_branch(name, at));
                }
                return Ok(Plan::Same(a.clone()));
            }
            (Val::Ir(value), Val::Ir(_)) | (Val::Soft(value), Val::Soft(_))
                if merged.only.is_some() =>
            {
                let (ty, soft) = (self.func.ty(*value), matches!(a, Val::Soft(_)));
                return Ok(merged.push(*value, *value, ty, soft));
            }
            _ if a == b => return Ok(Plan::Same(a.clone())),
            _ => {}
        }
        if let (Some((x, ..)), Some((y, ..))) = (self.pointee(a), self.pointee(b))
            && self.func.ty(x) == self.func.ty(y)
        {
            return Ok(merged.push(x, y, self.func.ty(x), false));
        }
        let (Some(left), Some(right)) = (self.number_kind(a), self.number_kind(b)) else {
            return Err(self.cannot_merge(a, b, name, at));
        };
        let (dtype, soft) = match (left, right) {
            ((x, false), (y, false)) if x != y => return Err(self.cannot_merge(a, b, name, at)),
            ((x, false), _) => (x, false),
            (_, (y, false)) => (y, false),
            ((x, true), (y, true)) => (if y.is_float() { y } else { x }, true),
        };
        if self.shape(a) != self.shape(b) {
            return Err(self.cannot_merge(a, b, name, at));
        }
        let x = self.coerce_in(merged.then_region, a, dtype, at)?;
        let y = self.coerce_in(merged.else_region, b, dtype, at)?;
        Ok(merged.push(x, y, self.func.ty(x), soft))
    }

    fn no_view_of_a_branch(&self, name: &str, at: &'static ExprAst) -> crate::diag::Diagnostic {
        let name = if name.contains(' ') { name.to_owned() } else { format!("`{name}`") };
        let message = format!("{name} is a view that a branch chooses");
        let error = self.error(at.span, message);
        error.help("use it inside the branch, or choose coordinates and make the view of them")
    }

    fn coerce_in(
        &mut self,
        region: Region,
        val: &Val,
        dtype: DType,
        at: &'static ExprAst,
    ) -> Res<Value> {
        let operand = Operand { val: val.clone(), expr: at };
        self.within(region, |lower| lower.coerce(&operand, dtype))
    }

    /// The dtype of a number and whether it is only a literal's.
    pub(super) fn number_kind(&self, val: &Val) -> Option<(DType, bool)> {
        match val {
            Val::Lit(lit @ (Lit::Int(_) | Lit::Float(_))) => Some((soft_dtype(*lit), true)),
            val => match self.tile_type(val)?.elem {
                Elem::Data(dtype) => Some((dtype, self.is_soft(val))),
                Elem::Ptr(_) => None,
            },
        }
    }

    fn cannot_merge(
        &self,
        a: &Val,
        b: &Val,
        name: &str,
        at: &'static ExprAst,
    ) -> crate::diag::Diagnostic {
        let name = if name.contains(' ') { name.to_owned() } else { format!("`{name}`") };
        let (a, b) = (self.describe(a), self.describe(b));
        let message = format!("{name} is {a} in one branch and {b} in the other");
        self.error(at.span, message).help("give both branches one dtype and one shape")
    }
}
