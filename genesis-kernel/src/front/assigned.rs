//! Which variables of the surroundings a block assigns, read off the syntax.
//!
//! A loop must know before it walks its body what it carries round; a `let` inside the body hides an
//! outer variable from there to the end of its block.

use super::ast::{BlockAst, ExprAst, ExprKind, IterAst, PatternAst, StmtAst};

/// The names assigned in a block that are declared outside it, in order of first assignment.
pub(super) fn assigned_in(block: &'static BlockAst) -> Vec<&'static str> {
    let mut scan = Scan::default();
    scan.block(block);
    scan.found
}

#[derive(Default)]
struct Scan {
    local: Vec<&'static str>,
    found: Vec<&'static str>,
}

impl Scan {
    fn block(&mut self, block: &'static BlockAst) {
        let mark = self.local.len();
        for stmt in block.stmts {
            self.stmt(stmt);
        }
        if let Some(value) = block.value {
            self.expr(value);
        }
        self.local.truncate(mark);
    }

    fn stmt(&mut self, stmt: &'static StmtAst) {
        match stmt {
            StmtAst::Let { pattern, value, .. } => {
                self.expr(value);
                self.declare(pattern);
            }
            StmtAst::Assign { pattern, value, .. } => {
                self.expr(value);
                self.assign(pattern);
            }
            StmtAst::For { pattern, iter, body, .. } => {
                self.iter(iter);
                let mark = self.local.len();
                self.declare(pattern);
                self.block(body);
                self.local.truncate(mark);
            }
            StmtAst::While { cond, body, .. } => {
                self.expr(cond);
                self.block(body);
            }
            StmtAst::Return { value, .. } => {
                if let Some(value) = value {
                    self.expr(value);
                }
            }
            StmtAst::Expr(expr) => self.expr(expr),
        }
    }

    fn iter(&mut self, iter: &'static IterAst) {
        match iter {
            IterAst::Range { start, end, step, .. } => {
                self.expr(start);
                self.expr(end);
                if let Some(step) = step {
                    self.expr(step);
                }
            }
            IterAst::Persistent(total) => self.expr(total),
        }
    }

    fn declare(&mut self, pattern: &'static PatternAst) {
        match pattern {
            PatternAst::Name(name) => self.local.push(name),
            PatternAst::Wild => {}
            PatternAst::Tuple(parts) => parts.iter().for_each(|part| self.declare(part)),
        }
    }

    fn assign(&mut self, pattern: &'static PatternAst) {
        match pattern {
            PatternAst::Name(name) => {
                if !self.local.contains(name) && !self.found.contains(name) {
                    self.found.push(name);
                }
            }
            PatternAst::Wild => {}
            PatternAst::Tuple(parts) => parts.iter().for_each(|part| self.assign(part)),
        }
    }

    fn expr(&mut self, expr: &'static ExprAst) {
        match &expr.kind {
            ExprKind::Int(..)
            | ExprKind::Float(..)
            | ExprKind::Bool(_)
            | ExprKind::Name(_)
            | ExprKind::Constant(_)
            | ExprKind::DTypeConst(..)
            | ExprKind::DeviceRef(_) => {}
            ExprKind::From(_, inner)
            | ExprKind::Neg(inner)
            | ExprKind::Not(inner)
            | ExprKind::As(inner, _)
            | ExprKind::Field(inner, _)
            | ExprKind::Member(inner, _)
            | ExprKind::Assert(inner, _)
            | ExprKind::StaticAssert(inner, _) => self.expr(inner),
            ExprKind::Binary(_, a, b)
            | ExprKind::Compare(_, a, b)
            | ExprKind::AndThen(a, b)
            | ExprKind::OrElse(a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Tuple(parts)
            | ExprKind::Array(parts)
            | ExprKind::Print(_, parts)
            | ExprKind::Asm(_, _, _, parts) => {
                parts.iter().for_each(|part| self.expr(part));
            }
            ExprKind::Builtin { args, .. } | ExprKind::Device { args, .. } => {
                args.iter().for_each(|arg| self.expr(arg));
            }
            ExprKind::Method { receiver, args, .. } => {
                self.expr(receiver);
                args.iter().for_each(|arg| self.expr(arg));
            }
            ExprKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.block(then);
                if let Some(otherwise) = otherwise {
                    self.block(otherwise);
                }
            }
            ExprKind::IfSome { pattern, value, then, otherwise } => {
                self.expr(value);
                let mark = self.local.len();
                self.declare(pattern);
                self.block(then);
                self.local.truncate(mark);
                if let Some(otherwise) = otherwise {
                    self.block(otherwise);
                }
            }
            ExprKind::Block(block) => self.block(block),
        }
    }
}
