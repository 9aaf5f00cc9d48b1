//! Statements, and `if`: a constant condition picks its branch now, a run-time one becomes a branch
//! that gives the variables it assigns, and in a combining function of a reduction, where there are
//! no branches, a selection.

use crate::ir::{DType, Region, Type, Value};

use super::ast::{BlockAst, ExprAst, PatternAst, Span, StmtAst, TypeAst};
use super::lower::{Lower, Res, name_of};
use super::merge::{Merged, Plan};
use super::value::{Operand, Val};

impl Lower {
    /// Walks the statements of a block and gives its value; the variables stay.
    pub(super) fn block_body(&mut self, block: &'static BlockAst) -> Res {
        for stmt in block.stmts {
            self.stmt(stmt)?;
            if self.returned {
                return Ok(Val::Unit);
            }
        }
        block.value.map_or(Ok(Val::Unit), |value| self.expr(value))
    }

    fn stmt(&mut self, stmt: &'static StmtAst) -> Res<()> {
        match stmt {
            StmtAst::Let { pattern, ty, value, span } => {
                let operand = self.operand(value)?;
                let val = self.typed(operand, *ty)?;
                self.declare(pattern, val, *span)
            }
            StmtAst::Assign { pattern, value, span } => {
                let val = self.expr(value)?;
                self.assign(pattern, val, value, *span)
            }
            StmtAst::For { pattern, iter, body, span } => {
                self.nested(*span, |lower| lower.for_loop(pattern, iter, body, *span))
            }
            StmtAst::While { cond, body, span } => {
                self.nested(*span, |lower| lower.while_loop(cond, body, *span))
            }
            StmtAst::Return { value, span } => self.return_stmt(*value, *span),
            StmtAst::Expr(expr) => self.expr(expr).map(|_| ()),
        }
    }

    /// A value with the dtype that a `let` or a parameter asks for.
    pub(super) fn typed(&mut self, operand: Operand, ty: Option<&'static TypeAst>) -> Res {
        match (ty, operand.val) {
            (Some(TypeAst::Tuple(types)), Val::Tuple(parts)) if types.len() == parts.len() => {
                let parts = parts.into_iter().zip(*types);
                let expr = operand.expr;
                parts
                    .map(|(val, ty)| self.typed(Operand { val, expr }, Some(ty)))
                    .collect::<Res<Vec<Val>>>()
                    .map(Val::Tuple)
            }
            (
                Some(TypeAst::Scalar(dtype) | TypeAst::Tile(dtype) | TypeAst::Shaped(dtype, _)),
                val,
            ) => {
                let dtype = self.dtype_ast(*dtype, operand.expr.span)?;
                match val {
                    Val::Lit(lit) => self.literal(lit, dtype, operand.expr.span).map(Val::Const),
                    val @ Val::Soft(_) => {
                        self.coerce(&Operand { val, expr: operand.expr }, dtype).map(Val::Ir)
                    }
                    val => Ok(val),
                }
            }
            (_, val) => Ok(val),
        }
    }

    /// `let pattern = val`
    pub(super) fn declare(
        &mut self,
        pattern: &'static PatternAst,
        val: Val,
        span: Span,
    ) -> Res<()> {
        match pattern {
            PatternAst::Name(name) => self.frame_mut().declare(name, val),
            PatternAst::Wild => {}
            PatternAst::Tuple(patterns) => {
                for (pattern, val) in patterns.iter().zip(self.parts(val, patterns.len(), span)?) {
                    self.declare(pattern, val, span)?;
                }
            }
        }
        Ok(())
    }

    fn assign(
        &mut self,
        pattern: &'static PatternAst,
        val: Val,
        expr: &'static ExprAst,
        span: Span,
    ) -> Res<()> {
        match pattern {
            PatternAst::Wild => Ok(()),
            PatternAst::Tuple(patterns) => {
                for (pattern, val) in patterns.iter().zip(self.parts(val, patterns.len(), span)?) {
                    self.assign(pattern, val, expr, span)?;
                }
                Ok(())
            }
            PatternAst::Name(name) => {
                let Some(slot) = self.frame().slot(name) else {
                    return Err(
                        self.error(span, format!("there is no variable `{name}` to assign"))
                    );
                };
                let old = self.frame().slots[slot].val.clone();
                let val = self.like(Operand { val, expr }, &old)?;
                self.frame_mut().slots[slot].val = val;
                Ok(())
            }
        }
    }

    /// A literal assigned to a scalar variable that has a dtype takes it.
    fn like(&mut self, operand: Operand, old: &Val) -> Res {
        let hard = !self.is_soft(old) && !self.is_pointer(old);
        match (self.tile_type(old), &operand.val) {
            (Some(ty), Val::Lit(lit)) if hard && ty.shape.is_scalar() => {
                self.literal(*lit, ty.dtype(), operand.span()).map(Val::Const)
            }
            (Some(ty), Val::Soft(_)) if hard => self.coerce(&operand, ty.dtype()).map(Val::Ir),
            _ => Ok(operand.val),
        }
    }

    fn parts(&self, val: Val, n: usize, span: Span) -> Res<Vec<Val>> {
        match val {
            Val::Tuple(parts) if parts.len() == n => Ok(parts),
            val => {
                let found = self.describe(&val);
                Err(self.error(span, format!("{n} names are given for {found}")))
            }
        }
    }

    fn return_stmt(&mut self, value: Option<&'static ExprAst>, span: Span) -> Res<()> {
        let in_kernel = self.frames.len() == 1;
        match value {
            None if in_kernel => {
                self.loc = Some(self.loc_of(span));
                self.build().ret();
                self.returned = true;
                Ok(())
            }
            Some(_) if in_kernel => Err(self.error(span, "a kernel returns nothing")),
            _ if self.region != self.frame().entry => {
                let error = self.error(span, "a device function returns at its end only");
                Err(error.help("make the result the value of an `if` expression"))
            }
            value => {
                let result = value.map_or(Ok(Val::Unit), |value| self.expr(value))?;
                self.frame_mut().result = Some(result);
                self.returned = true;
                Ok(())
            }
        }
    }

    /// The condition of an `if` or `while`.
    pub(super) fn condition(&mut self, what: &str, operand: &Operand) -> Res<Value> {
        let shape = self.shape(&operand.val);
        if shape.is_some_and(|shape| !shape.is_scalar()) {
            let found = self.describe(&operand.val);
            let error =
                self.error(operand.span(), format!("{what} needs a scalar, this is {found}"));
            return Err(error.help("choose element by element with `where_(cond, a, b)`"));
        }
        let dtype = self.number_dtype(what, operand)?;
        if dtype != DType::Bool || self.is_soft(&operand.val) {
            let found = self.describe(&operand.val);
            let message = format!("{what} needs a bool, {} is {found}", name_of(operand.expr));
            return Err(self.error(operand.span(), message).help("compare it: `x != 0`"));
        }
        self.coerce(operand, DType::Bool)
    }

    /// `if cond { .. } else { .. }`
    pub(super) fn if_expr(
        &mut self,
        cond: &'static ExprAst,
        then: &'static BlockAst,
        otherwise: Option<&'static BlockAst>,
    ) -> Res {
        let operand = self.operand(cond)?;
        if let Some(known) = operand.val.as_bool() {
            return match (known, otherwise) {
                (true, _) => self.block(then),
                (false, Some(otherwise)) => self.block(otherwise),
                (false, None) => Ok(Val::Unit),
            };
        }
        let cond_value = self.condition("`if`", &operand)?;
        if self.combining {
            self.select_branches(cond, cond_value, then, otherwise)
        } else {
            self.branch(cond, cond_value, then, otherwise)
        }
    }

    /// `if let Some(pattern) = value { .. } else { .. }`: one of the two is left.
    pub(super) fn if_some(
        &mut self,
        pattern: &'static PatternAst,
        value: &'static ExprAst,
        then: &'static BlockAst,
        otherwise: Option<&'static BlockAst>,
    ) -> Res {
        let operand = self.operand(value)?;
        let Val::Optional(inner) = operand.val else {
            let found = self.describe(&operand.val);
            let message = format!("`if let Some(..)` takes an `Option` apart, this is {found}");
            return Err(self.error(value.span, message));
        };
        match (inner, otherwise) {
            (Some(val), _) => {
                let outside = self.frame().slots.len();
                self.declare(pattern, *val, value.span)?;
                let result = self.block(then);
                self.frame_mut().slots.truncate(outside);
                result
            }
            (None, Some(otherwise)) => self.block(otherwise),
            (None, None) => Ok(Val::Unit),
        }
    }

    fn branch(
        &mut self,
        cond: &'static ExprAst,
        cond_value: Value,
        then: &'static BlockAst,
        otherwise: Option<&'static BlockAst>,
    ) -> Res {
        let (then_region, else_region) = (self.func.add_region(), self.func.add_region());
        let before = self.variables();
        let then = self.walk_branch(then_region, Some(then))?;
        self.restore(&before);
        let otherwise = self.walk_branch(else_region, otherwise)?;
        self.restore(&before);
        let mut merged = Merged::new(then_region, else_region);
        merged.only = match (then.returned, otherwise.returned) {
            (true, false) => Some(else_region),
            (false, true) => Some(then_region),
            (true, true) | (false, false) => None,
        };
        let mut plans = Vec::new();
        for (i, (a, b)) in then.vals.iter().zip(&otherwise.vals).enumerate() {
            let old = before.get(i);
            let (a, b) = match (then.returned, otherwise.returned) {
                (true, true) => (&Val::Unit, &Val::Unit),
                (true, false) => (b, b),
                (false, true) => (a, a),
                (false, false) => (a, b),
            };
            // What one branch alone decides is defined inside it, unless nothing was assigned.
            plans.push(if old.is_some_and(|slot| slot.1 == *a && a == b) {
                Plan::Same(a.clone())
            } else {
                let name = old.map_or("the value of the `if`", |slot| slot.0);
                self.merge(&mut merged, a, b, name, cond)?
            });
        }
        self.finish_region(then_region, &merged.then_values);
        self.finish_region(else_region, &merged.else_values);
        let types: Vec<Type> = merged.types.clone();
        let results = self.build().if_else(cond_value, then_region, else_region, &types);
        if then.returned && otherwise.returned {
            self.build().ret();
            self.returned = true;
        }
        let vals = plans.iter().map(|plan| plan.resolve(&results)).collect();
        Ok(self.set_variables(vals))
    }

    fn walk_branch(&mut self, region: Region, block: Option<&'static BlockAst>) -> Res<Branch> {
        let returned = std::mem::replace(&mut self.returned, false);
        let value = match block {
            Some(block) => self.within(region, |lower| lower.block(block))?,
            None => Val::Unit,
        };
        let mut vals: Vec<Val> = self.frame().slots.iter().map(|slot| slot.val.clone()).collect();
        vals.push(value);
        let returned = std::mem::replace(&mut self.returned, returned);
        Ok(Branch { vals, returned })
    }

    /// Both branches are computed here, and what differs is selected.
    fn select_branches(
        &mut self,
        cond: &'static ExprAst,
        cond_value: Value,
        then: &'static BlockAst,
        otherwise: Option<&'static BlockAst>,
    ) -> Res {
        let here = self.region;
        let before = self.variables();
        let then = self.walk_branch(here, Some(then))?;
        self.restore(&before);
        let otherwise = self.walk_branch(here, otherwise)?;
        self.restore(&before);
        if then.returned || otherwise.returned {
            return Err(self.error(cond.span, "a device function returns at its end only"));
        }
        let mut vals = Vec::new();
        for (i, (a, b)) in then.vals.iter().zip(&otherwise.vals).enumerate() {
            let name = before.get(i).map_or("the value of the `if`", |slot| slot.0);
            let mut merged = Merged::new(here, here);
            let plan = self.merge(&mut merged, a, b, name, cond)?;
            let pairs = merged.then_values.iter().zip(&merged.else_values);
            let pairs: Vec<(Value, Value)> = pairs.map(|(&a, &b)| (a, b)).collect();
            let selected: Vec<Value> =
                pairs.into_iter().map(|(a, b)| self.build().select(cond_value, a, b)).collect();
            vals.push(plan.resolve(&selected));
        }
        Ok(self.set_variables(vals))
    }

    /// The variables of the function being walked, by name and value.
    pub(super) fn variables(&self) -> Vec<(&'static str, Val)> {
        self.frame().slots.iter().map(|slot| (slot.name, slot.val.clone())).collect()
    }

    /// Puts the variables back to what they were.
    pub(super) fn restore(&mut self, before: &[(&'static str, Val)]) {
        let slots = &mut self.frame_mut().slots;
        slots.truncate(before.len());
        for (slot, (_, val)) in slots.iter_mut().zip(before) {
            slot.val = val.clone();
        }
    }

    /// Sets all variables; the last value is that of the `if` itself and is given back.
    fn set_variables(&mut self, mut vals: Vec<Val>) -> Val {
        let value = vals.pop().unwrap_or(Val::Unit);
        for (slot, val) in self.frame_mut().slots.iter_mut().zip(vals) {
            slot.val = val;
        }
        value
    }
}

/// What a branch left: every variable's value, then the branch's own.
struct Branch {
    vals: Vec<Val>,
    returned: bool,
}
