//! A kernel's tree as the text that it would be the tree of. What the generator names by a parameter, the
//! block's extent `B` and the dtype `T`, stands there by value, since rustc types a tile by its extents:
//! to it `B` is never 16.

use super::language::Writer;
use crate::front::ast::*;
use crate::ir::{BinaryOp, DType, Predicate};

/// What the parameters stand for.
pub(super) struct Text {
    block: i128,
    generic: DType,
}

impl Text {
    /// The function of a seed's tree.
    pub(super) fn of(writer: &Writer, ast: &FnAst) -> String {
        let text = Text { block: writer.block, generic: writer.generic };
        let params = ast
            .params
            .iter()
            .map(|param| format!("{}: {}", text.pattern(param.pattern), text.ty(&param.ty)));
        let params = params.collect::<Vec<_>>().join(", ");
        format!("fn {}({params}) {}\n", ast.name, text.block(ast.body))
    }

    fn pattern(&self, pattern: &PatternAst) -> String {
        match pattern {
            PatternAst::Name(name) => (*name).to_owned(),
            PatternAst::Wild => "_".to_owned(),
            PatternAst::Tuple(all) => {
                let all: Vec<_> = all.iter().map(|one| self.pattern(one)).collect();
                format!("({})", all.join(", "))
            }
        }
    }

    fn dtype(&self, dtype: DTypeAst) -> DType {
        dtype.resolve(|_| Some(self.generic)).unwrap_or(self.generic)
    }

    fn ty(&self, ty: &TypeAst) -> String {
        match *ty {
            TypeAst::Scalar(dtype) => self.dtype(dtype).to_string(),
            TypeAst::Ptr { dtype, mutable } => {
                let name = if mutable { "PtrMut" } else { "Ptr" };
                format!("{name}<{}>", self.dtype(dtype))
            }
            ref other => unreachable!("the generator makes no {other:?}"),
        }
    }

    fn block(&self, block: &BlockAst) -> String {
        let stmts: String = block.stmts.iter().map(|stmt| self.stmt(stmt) + "\n").collect();
        let value = block.value.map(|value| self.expr(value) + "\n").unwrap_or_default();
        format!("{{\n{stmts}{value}}}")
    }

    fn stmt(&self, stmt: &StmtAst) -> String {
        match stmt {
            StmtAst::Let { pattern, value, .. } => {
                format!("let mut {} = {};", self.pattern(pattern), self.expr(value))
            }
            StmtAst::Assign { pattern, value, .. } => {
                format!("{} = {};", self.pattern(pattern), self.expr(value))
            }
            StmtAst::For { pattern, iter, body, .. } => {
                format!("for {} in {} {}", self.pattern(pattern), self.iter(iter), self.block(body))
            }
            StmtAst::While { cond, body, .. } => {
                format!("while {} {}", self.expr(cond), self.block(body))
            }
            StmtAst::Expr(value) => self.expr(value) + ";",
            StmtAst::Return { .. } => "return;".to_owned(),
        }
    }

    fn iter(&self, iter: &IterAst) -> String {
        let IterAst::Range { start, end, step, unroll, is_static, .. } = iter else {
            unreachable!("the generator makes ranges only")
        };
        let name = if *is_static { "static_range" } else { "range" };
        let (start, end) = (self.expr(start), self.expr(end));
        let unroll = if *unroll == 0 { String::new() } else { format!(".unroll({unroll})") };
        match step {
            Some(step) => format!("{name}({start}, {end}, {}){unroll}", self.expr(step)),
            None if *is_static => format!("{name}({start}, {end}){unroll}"),
            None if unroll.is_empty() => format!("{start}..{end}"),
            None => format!("({start}..{end}){unroll}"),
        }
    }

    fn expr(&self, expr: &ExprAst) -> String {
        let of = |dtype: Option<DType>| dtype.map(|dtype| dtype.to_string()).unwrap_or_default();
        match expr.kind {
            ExprKind::Int(value, dtype) => format!("{value}{}", of(dtype)),
            ExprKind::Float(value, dtype) => format!("{value:?}{}", of(dtype)),
            ExprKind::Bool(value) => value.to_string(),
            ExprKind::Name("B") => self.block.to_string(),
            ExprKind::Name(name) => name.to_owned(),
            ExprKind::Neg(x) => format!("-{}", self.at_least(x, UNARY)),
            ExprKind::Not(x) => format!("!{}", self.at_least(x, UNARY)),
            ExprKind::Binary(op, a, b) => self.between(expr, a, sign(op), b),
            ExprKind::Compare(predicate, a, b) => self.between(expr, a, relation(predicate), b),
            ExprKind::AndThen(a, b) => self.between(expr, a, "&&", b),
            ExprKind::OrElse(a, b) => self.between(expr, a, "||", b),
            ExprKind::Member(x, name) => format!("{}.{name}", self.at_least(x, POSTFIX)),
            ExprKind::Field(x, number) => format!("{}.{number}", self.at_least(x, POSTFIX)),
            ExprKind::Builtin { name, generics, args } => {
                format!("{name}{}({})", self.generics(generics), self.list(args))
            }
            ExprKind::Method { receiver, name, generics, args } => {
                let (of, generics) = (self.at_least(receiver, POSTFIX), self.generics(generics));
                format!("{of}.{name}{generics}({})", self.list(args))
            }
            ExprKind::If { cond, then, otherwise } => {
                let otherwise = otherwise.map(|block| format!(" else {}", self.block(block)));
                let (cond, then) = (self.expr(cond), self.block(then));
                format!("if {cond} {then}{}", otherwise.unwrap_or_default())
            }
            ExprKind::Block(block) => self.block(block),
            ExprKind::Assert(cond, message) => {
                format!("device_assert!({}, {message:?})", self.expr(cond))
            }
            ref other => unreachable!("the generator makes no {other:?}"),
        }
    }

    /// Two operands of `whole`: without parentheses where Rust needs none, which is for the macro to know.
    fn between(&self, whole: &ExprAst, a: &ExprAst, sign: &str, b: &ExprAst) -> String {
        let level = level(whole);
        let left = if level == COMPARE { level + 1 } else { level };
        format!("{} {sign} {}", self.at_least(a, left), self.at_least(b, level + 1))
    }

    /// In parentheses where it binds less than that.
    fn at_least(&self, expr: &ExprAst, least: u8) -> String {
        let text = self.expr(expr);
        if level(expr) < least { format!("({text})") } else { text }
    }

    fn list(&self, all: &[ExprAst]) -> String {
        all.iter().map(|one| self.expr(one)).collect::<Vec<_>>().join(", ")
    }

    fn generics(&self, generics: &[GenericAst]) -> String {
        if generics.is_empty() {
            return String::new();
        }
        let one = |generic: &GenericAst| match generic {
            GenericAst::Type(ty) => self.ty(ty),
            GenericAst::Const(value) => self.expr(value),
            // Rust's names are those of the variants.
            GenericAst::Order(order) => format!("{order:?}"),
            GenericAst::Scope(scope) => format!("{scope:?}"),
        };
        format!("::<{}>", generics.iter().map(one).collect::<Vec<_>>().join(", "))
    }
}

const COMPARE: u8 = 3;
const UNARY: u8 = 10;
const POSTFIX: u8 = 12;

/// How tightly an expression binds in Rust; what ends in a brace may not begin an operand at all.
fn level(expr: &ExprAst) -> u8 {
    match expr.kind {
        ExprKind::If { .. } | ExprKind::Block(_) => 0,
        ExprKind::OrElse(..) => 1,
        ExprKind::AndThen(..) => 2,
        ExprKind::Compare(..) => COMPARE,
        ExprKind::Binary(op, ..) => match op {
            BinaryOp::Or => 4,
            BinaryOp::Xor => 5,
            BinaryOp::And => 6,
            BinaryOp::Shl | BinaryOp::Shr => 7,
            BinaryOp::Add | BinaryOp::Sub => 8,
            _ => 9,
        },
        ExprKind::Neg(_) | ExprKind::Not(_) => UNARY,
        ExprKind::Int(value, _) if value < 0 => UNARY,
        ExprKind::Int(..) | ExprKind::Float(..) | ExprKind::Bool(_) => 11,
        _ => POSTFIX,
    }
}

fn sign(op: BinaryOp) -> &'static str {
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
        other => unreachable!("{other:?} has no sign"),
    }
}

fn relation(predicate: Predicate) -> &'static str {
    match predicate {
        Predicate::Eq => "==",
        Predicate::Ne => "!=",
        Predicate::Lt => "<",
        Predicate::Le => "<=",
        Predicate::Gt => ">",
        Predicate::Ge => ">=",
    }
}
