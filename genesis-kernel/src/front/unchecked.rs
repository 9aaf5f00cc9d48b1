//! What a kernel does that nothing checks: accesses through pointers, and promises to the compiler.
//!
//! Loads and stores of views stay inside them. A pointer goes anywhere, and a false `multiple_of` lets the
//! compiler take a mask for true. A kernel that does either, in its body or in a device function that it
//! calls, has no safe launch. The macros find the same while a program is compiled, and say where; what is
//! found here, in the very tree that is compiled, is what a safe launch relies on.

use super::ast::{BlockAst, ExprAst, ExprKind, FnAst, IterAst, StmtAst, TypeAst};

/// Whether a kernel takes pointers, takes that of a view, or makes promises.
pub(crate) fn is_unchecked(kernel: &'static FnAst) -> bool {
    let mut search = Search { seen: Vec::new(), found: false };
    search.function(kernel);
    search.found
}

struct Search {
    /// The functions looked at, by address: two may call each other.
    seen: Vec<*const FnAst>,
    found: bool,
}

impl Search {
    fn function(&mut self, ast: &'static FnAst) {
        if self.seen.contains(&std::ptr::from_ref(ast)) {
            return;
        }
        self.seen.push(ast);
        self.found |= ast.params.iter().any(|param| matches!(param.ty, TypeAst::Ptr { .. }));
        self.block(ast.body);
    }

    fn block(&mut self, block: &BlockAst) {
        for stmt in block.stmts {
            match stmt {
                StmtAst::Let { value, .. }
                | StmtAst::Assign { value, .. }
                | StmtAst::Expr(value) => self.expr(value),
                StmtAst::For { iter, body, .. } => {
                    match iter {
                        IterAst::Range { start, end, step, .. } => {
                            [Some(*start), Some(*end), *step]
                                .into_iter()
                                .flatten()
                                .for_each(|bound| self.expr(bound));
                        }
                        IterAst::Persistent(total) => self.expr(total),
                    }
                    self.block(body);
                }
                StmtAst::While { cond, body, .. } => {
                    self.expr(cond);
                    self.block(body);
                }
                StmtAst::Return { value, .. } => value.iter().for_each(|value| self.expr(value)),
            }
        }
        block.value.iter().for_each(|value| self.expr(value));
    }

    fn expr(&mut self, expr: &ExprAst) {
        match &expr.kind {
            ExprKind::Int(..)
            | ExprKind::Float(..)
            | ExprKind::Bool(_)
            | ExprKind::Name(_)
            | ExprKind::Constant(_)
            | ExprKind::DTypeConst(..) => {}
            ExprKind::From(_, value)
            | ExprKind::Neg(value)
            | ExprKind::Not(value)
            | ExprKind::As(value, _)
            | ExprKind::Field(value, _)
            | ExprKind::Member(value, _)
            | ExprKind::Assert(value, _)
            | ExprKind::StaticAssert(value, _) => self.expr(value),
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
                self.exprs(parts);
            }
            ExprKind::Builtin { name, args, .. } => {
                self.found |= *name == "multiple_of";
                self.exprs(args);
            }
            ExprKind::Method { receiver, name, args, .. } => {
                self.found |= *name == "ptr";
                self.expr(receiver);
                self.exprs(args);
            }
            ExprKind::Device { callee, args, .. } => {
                self.function(callee);
                self.exprs(args);
            }
            ExprKind::DeviceRef(callee) => self.function(callee),
            ExprKind::If { cond, then, otherwise } => {
                self.expr(cond);
                self.block(then);
                otherwise.iter().for_each(|block| self.block(block));
            }
            ExprKind::IfSome { value, then, otherwise, .. } => {
                self.expr(value);
                self.block(then);
                otherwise.iter().for_each(|block| self.block(block));
            }
            ExprKind::Block(block) => self.block(block),
        }
    }

    fn exprs(&mut self, exprs: &[ExprAst]) {
        exprs.iter().for_each(|expr| self.expr(expr));
    }
}
