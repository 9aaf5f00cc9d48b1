//! Statements and expressions, from `syn`'s tree to ours.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;

use crate::ast::{Binary, Block, Expr, ExprKind, Iter, Pattern, Place, Stmt, Typed, Unary};
use crate::jumps::{self, Refusal};
use crate::messages::{self, Message};
use crate::parse::{Kind, Parser};

/// How deep expressions and blocks may nest. Kernels need a tenth of it; the compiler's own stack
/// would bear ten times as much.
pub(crate) const MAX_DEPTH: usize = 128;

impl Parser {
    /// A block, with its own scope.
    pub(crate) fn block(&mut self, block: &syn::Block) -> Block {
        self.scopes.push(BTreeSet::new());
        let parsed = self.statements(block, false);
        self.scopes.pop();
        parsed
    }

    /// The statements of a block, in the scope there is; `is_body` where it is the function's own.
    pub(crate) fn statements(&mut self, block: &syn::Block, is_body: bool) -> Block {
        let mut parsed =
            Block { stmts: Vec::new(), value: None, span: block.brace_token.span.join() };
        for (index, stmt) in block.stmts.iter().enumerate() {
            let is_last = index + 1 == block.stmts.len();
            self.attributes(stmt);
            match stmt {
                syn::Stmt::Local(local) => parsed.stmts.extend(self.local(local)),
                syn::Stmt::Item(item) => self.refuse(item, messages::LOCAL_ITEM),
                syn::Stmt::Macro(stmt) => {
                    let expr = self.macro_call(&stmt.mac, stmt);
                    parsed.stmts.push(Stmt::Expr(expr));
                }
                syn::Stmt::Expr(syn::Expr::Return(ret), _)
                    if self.kind == Kind::Device && is_body && is_last =>
                {
                    parsed.value = ret.expr.as_ref().map(|value| Box::new(self.expr(value)));
                }
                syn::Stmt::Expr(expr, None) if is_last && !is_statement(expr) => {
                    parsed.value = Some(Box::new(self.expr(expr)));
                }
                syn::Stmt::Expr(expr, _) => parsed.stmts.push(self.statement(expr)),
            }
        }
        parsed
    }

    /// Refuses attributes: `#[cfg(..)]` would be lost.
    fn attributes(&mut self, stmt: &syn::Stmt) {
        let first = stmt.to_token_stream().into_iter().next();
        let is_attribute =
            matches!(&first, Some(TokenTree::Punct(punct)) if punct.as_char() == '#');
        if is_attribute && !matches!(stmt, syn::Stmt::Item(_)) {
            self.refuse(&first, messages::ATTRIBUTE);
        }
    }

    fn local(&mut self, local: &syn::Local) -> Option<Stmt> {
        let Some(init) = &local.init else {
            self.refuse(local, messages::LET_WITHOUT_VALUE);
            // The name is known from here on, so that its uses are not refused as well.
            self.pattern(&local.pat);
            return None;
        };
        if let Some((token, _)) = &init.diverge {
            self.refuse(token, messages::LET_ELSE);
        }
        let value = self.expr(&init.expr);
        let (pat, typed) = match &local.pat {
            syn::Pat::Type(typed) => {
                let ty = self.ty(&typed.ty, messages::LET_TYPE);
                (
                    &*typed.pat,
                    Some(Typed { ty, tokens: self.type_tokens(typed.ty.to_token_stream()) }),
                )
            }
            pat => (pat, None),
        };
        let pattern = self.pattern(pat);
        Some(Stmt::Let { pattern, typed, value, place: Place::of(local) })
    }

    fn statement(&mut self, expr: &syn::Expr) -> Stmt {
        match expr {
            syn::Expr::Assign(assign) => {
                let value = self.expr(&assign.right);
                let pattern = self.assign_target(&assign.left);
                Stmt::Assign { pattern, value, place: Place::of(assign) }
            }
            syn::Expr::Binary(binary) => match compound(&binary.op) {
                Some(op) => self.compound_assign(binary, op),
                None => Stmt::Expr(self.expr(expr)),
            },
            syn::Expr::ForLoop(for_loop) => self.for_loop(for_loop),
            syn::Expr::While(while_loop) => self.while_loop(while_loop),
            syn::Expr::Return(ret) => self.return_statement(ret),
            other => Stmt::Expr(self.expr(other)),
        }
    }

    fn compound_assign(&mut self, binary: &syn::ExprBinary, op: Binary) -> Stmt {
        let right = Box::new(self.expr(&binary.right));
        let pattern = self.assign_target(&binary.left);
        let left = Box::new(self.expr(&binary.left));
        let place = Place::of(binary);
        let kind = ExprKind::Binary { op, left, right, span: binary.op.span() };
        Stmt::Assign { pattern, value: Expr { place, kind }, place }
    }

    fn assign_target(&mut self, target: &syn::Expr) -> Pattern {
        match target {
            syn::Expr::Path(path) if path.path.get_ident().is_some_and(|i| !self.is_const(i)) => {
                match path.path.get_ident() {
                    Some(ident) => Pattern::Name { ident: ident.clone(), mutable: false },
                    None => Pattern::Wild(target.span()),
                }
            }
            syn::Expr::Infer(infer) => Pattern::Wild(infer.span()),
            syn::Expr::Paren(paren) => self.assign_target(&paren.expr),
            syn::Expr::Tuple(tuple) if tuple.elems.len() > 1 => {
                Pattern::Tuple(tuple.elems.iter().map(|elem| self.assign_target(elem)).collect())
            }
            other => {
                self.refuse(other, messages::ASSIGN_TARGET);
                Pattern::Wild(other.span())
            }
        }
    }

    /// A loop whose body jumps, written without.
    fn block_statement(&mut self, block: &syn::Block, node: &impl ToTokens) -> Stmt {
        let kind = ExprKind::Block(statements_only(self.block(block)));
        Stmt::Expr(Expr { place: Place::of(node), kind })
    }

    fn for_loop(&mut self, for_loop: &syn::ExprForLoop) -> Stmt {
        match jumps::without_jumps_in_for(for_loop) {
            Some(Ok(block)) => return self.block_statement(&block, for_loop),
            Some(Err(Refusal::Options)) => {
                self.refuse(&for_loop.expr, messages::BREAK_WITH_OPTIONS);
                return Stmt::Expr(refused(for_loop));
            }
            None => {}
        }
        if let Some(label) = &for_loop.label {
            self.refuse(label, messages::LABEL);
        }
        let iter = Box::new(self.iter(&for_loop.expr));
        self.scopes.push(BTreeSet::new());
        let pattern = self.pattern(&for_loop.pat);
        let body = self.block(&for_loop.body);
        self.scopes.pop();
        let place = Place { start: for_loop.for_token.span, end: Place::of(&*for_loop.expr).end };
        Stmt::For { pattern, iter, body: statements_only(body), place }
    }

    fn while_loop(&mut self, while_loop: &syn::ExprWhile) -> Stmt {
        if let Some(block) = jumps::without_jumps_in_while(while_loop) {
            return self.block_statement(&block, while_loop);
        }
        if let Some(label) = &while_loop.label {
            self.refuse(label, messages::LABEL);
        }
        let cond = self.condition(&while_loop.cond);
        let body = statements_only(self.block(&while_loop.body));
        let place = Place { start: while_loop.while_token.span, end: cond.place.end };
        Stmt::While { cond, body, place }
    }

    fn return_statement(&mut self, ret: &syn::ExprReturn) -> Stmt {
        match (self.kind, &ret.expr) {
            (Kind::Kernel, Some(value)) => self.refuse(value, messages::RETURN_VALUE),
            (Kind::Device, _) => self.refuse(ret, messages::RETURN_DEVICE),
            (Kind::Kernel, None) => {}
        }
        Stmt::Return { value: None, place: Place::of(ret) }
    }

    /// What a `for` runs over.
    fn iter(&mut self, expr: &syn::Expr) -> Iter {
        match expr {
            syn::Expr::Paren(paren) => self.iter(&paren.expr),
            syn::Expr::Group(group) => self.iter(&group.expr),
            syn::Expr::Range(range) => self.plain_range(range),
            syn::Expr::MethodCall(call) => self.range_option(call),
            syn::Expr::Call(call) => self.iter_call(call),
            other => self.refused_iter(other, messages::FOR_ITER, ""),
        }
    }

    fn refused_iter(&mut self, node: &syn::Expr, message: Message, name: &str) -> Iter {
        self.refuse_named(node, message, name);
        Iter::Persistent { total: refused(node), span: node.span() }
    }

    fn plain_range(&mut self, range: &syn::ExprRange) -> Iter {
        if matches!(range.limits, syn::RangeLimits::Closed(_)) {
            self.refuse(&range.limits, messages::RANGE_INCLUSIVE);
        }
        let (Some(start), Some(end)) = (&range.start, &range.end) else {
            self.refuse(range, messages::RANGE_OPEN);
            return Iter::Persistent { total: refused(range), span: range.span() };
        };
        let span = range.limits.span();
        let (start, end) = (self.expr(start), self.expr(end));
        Iter::Range { start, end, step: None, stages: 0, unroll: 0, is_static: false, span }
    }

    fn iter_call(&mut self, call: &syn::ExprCall) -> Iter {
        let node = syn::Expr::Call(call.clone());
        let name = match &*call.func {
            syn::Expr::Path(path) => path.path.get_ident().cloned(),
            _ => None,
        };
        let Some(name) = name else { return self.refused_iter(&node, messages::FOR_ITER, "") };
        let text = name.to_string();
        let mut args: Vec<Expr> = call.args.iter().map(|arg| self.expr(arg)).collect();
        match (text.as_str(), args.len()) {
            ("persistent", 1) => Iter::Persistent { total: args.remove(0), span: name.span() },
            ("persistent", _) => self.refused_iter(&node, messages::PERSISTENT_ARGS, ""),
            ("range" | "static_range", 2 | 3) => {
                let step = (args.len() == 3).then(|| args.pop()).flatten();
                let (end, start) = (args.pop(), args.pop());
                let (Some(start), Some(end)) = (start, end) else {
                    return self.refused_iter(&node, messages::RANGE_ARGS, &text);
                };
                let is_static = text == "static_range";
                let span = name.span();
                Iter::Range { start, end, step, stages: 0, unroll: 0, is_static, span }
            }
            ("range" | "static_range", _) => self.refused_iter(&node, messages::RANGE_ARGS, &text),
            _ => self.refused_iter(&node, messages::FOR_ITER, ""),
        }
    }

    fn range_option(&mut self, call: &syn::ExprMethodCall) -> Iter {
        let mut iter = self.iter(&call.receiver);
        let name = call.method.to_string();
        let Iter::Range { stages, unroll, .. } = &mut iter else { return iter };
        let slot = match name.as_str() {
            "stages" => stages,
            "unroll" => unroll,
            _ => {
                self.refuse(&call.method, messages::RANGE_OPTION);
                return iter;
            }
        };
        match call.args.first().and_then(small_int).filter(|n| (1..=16).contains(n)) {
            Some(n) if call.args.len() == 1 => *slot = n,
            _ => self.refuse_named(&call.args, messages::RANGE_OPTION_VALUE, &name),
        }
        iter
    }

    /// An expression.
    pub(crate) fn expr(&mut self, expr: &syn::Expr) -> Expr {
        if self.depth >= MAX_DEPTH {
            self.refuse(expr, messages::TOO_DEEP);
            return refused(expr);
        }
        self.depth += 1;
        let kind = self.expr_kind(expr);
        self.depth -= 1;
        Expr { place: Place::of(expr), kind }
    }

    fn expr_kind(&mut self, expr: &syn::Expr) -> ExprKind {
        use syn::Expr as E;
        match expr {
            E::Paren(paren) => self.expr(&paren.expr).kind,
            E::Group(group) => self.expr(&group.expr).kind,
            E::Lit(literal) => self.literal(&literal.lit),
            E::Path(path) => self.path(path),
            E::Binary(binary) => self.binary(binary),
            E::Unary(unary) => self.unary(unary),
            E::Cast(cast) => self.cast(cast),
            E::Tuple(tuple) => ExprKind::Tuple(self.exprs(&tuple.elems)),
            E::Field(field) => self.field(field),
            E::Call(call) => self.call(call),
            E::MethodCall(call) => self.method_call(call),
            E::Macro(mac) => self.macro_call(&mac.mac, mac).kind,
            E::If(branch) => self.branch(branch),
            E::Block(block) => {
                if let Some(label) = &block.label {
                    self.refuse(label, messages::LABEL);
                }
                ExprKind::Block(self.block(&block.block))
            }
            other => self.refuse_expr(other),
        }
    }

    /// The message for what is not part of the language.
    fn refuse_expr(&mut self, expr: &syn::Expr) -> ExprKind {
        use syn::Expr as E;
        let (message, name) = match expr {
            E::Match(_) => (messages::MATCH, ""),
            E::Closure(_) => (messages::CLOSURE, ""),
            E::Try(_) => (messages::QUESTION, ""),
            E::Reference(_) | E::RawAddr(_) => (messages::REFERENCE, ""),
            E::Struct(_) => (messages::STRUCT, ""),
            E::Index(_) => (messages::INDEX, ""),
            E::Loop(_) => (messages::LOOP, ""),
            E::Break(_) => (messages::BREAK, "break"),
            E::Continue(_) => (messages::BREAK, "continue"),
            E::Async(_) => (messages::ASYNC, "async"),
            E::Await(_) => (messages::ASYNC, "await"),
            E::Yield(_) => (messages::ASYNC, "yield"),
            E::Unsafe(_) => (messages::UNSAFE, ""),
            E::Let(_) => (messages::IF_LET, ""),
            E::Repeat(_) => (messages::REPEAT, ""),
            E::Array(_) => (messages::ARRAY, ""),
            E::Range(_) => (messages::RANGE_VALUE, ""),
            E::Assign(_) => (messages::ASSIGN_VALUE, ""),
            E::Return(_) => (messages::RETURN_EXPR, ""),
            _ => (messages::EXPRESSION, ""),
        };
        self.refuse_named(expr, message, name);
        ExprKind::Refused
    }

    /// Several expressions.
    pub(crate) fn exprs<'a>(
        &mut self,
        exprs: impl IntoIterator<Item = &'a syn::Expr>,
    ) -> Vec<Expr> {
        exprs.into_iter().map(|expr| self.expr(expr)).collect()
    }

    fn literal(&mut self, literal: &syn::Lit) -> ExprKind {
        let suffix_ok = |suffix: &str| {
            // Rust has no literals of the short floats.
            suffix.is_empty()
                || crate::table::dtype(suffix).is_some()
                    && !matches!(suffix, "bool" | "f8e4m3" | "f8e5m2" | "f16" | "bf16")
        };
        match literal {
            syn::Lit::Int(int) if !suffix_ok(int.suffix()) => {
                self.refuse_named(int, messages::SUFFIX, int.suffix());
                ExprKind::Refused
            }
            syn::Lit::Int(int) => match int.base10_parse::<i128>() {
                Ok(value) if value <= i128::from(u64::MAX) => ExprKind::Int(int.clone(), value),
                _ => {
                    self.refuse(int, messages::INT_RANGE);
                    ExprKind::Refused
                }
            },
            syn::Lit::Float(float) if !suffix_ok(float.suffix()) => {
                self.refuse_named(float, messages::SUFFIX, float.suffix());
                ExprKind::Refused
            }
            syn::Lit::Float(float) => match float.base10_parse::<f64>() {
                Ok(value) if value.is_finite() => ExprKind::Float(float.clone(), value),
                _ => {
                    self.refuse(float, messages::FLOAT_RANGE);
                    ExprKind::Refused
                }
            },
            syn::Lit::Bool(value) => ExprKind::Bool(value.value, value.span),
            syn::Lit::Str(_) | syn::Lit::ByteStr(_) | syn::Lit::CStr(_) => {
                self.refuse(literal, messages::STRING);
                ExprKind::Refused
            }
            syn::Lit::Byte(_) | syn::Lit::Char(_) => {
                self.refuse(literal, messages::CHAR);
                ExprKind::Refused
            }
            other => {
                self.refuse(other, messages::EXPRESSION);
                ExprKind::Refused
            }
        }
    }

    /// A name in an expression: a variable, a constant, or a constant of a dtype.
    fn path(&mut self, path: &syn::ExprPath) -> ExprKind {
        if path.qself.is_some() {
            self.refuse(path, messages::EXPRESSION);
            return ExprKind::Refused;
        }
        if let Some(ident) = path.path.get_ident() {
            return self.name(ident);
        }
        if let Some((dtype, name)) = self.dtype_and_name(&path.path) {
            return self.dtype_const(dtype, &name.ident);
        }
        ExprKind::Constant(path.path.clone())
    }

    fn name(&mut self, ident: &Ident) -> ExprKind {
        if self.is_local(ident) {
            return ExprKind::Local(ident.clone());
        }
        if self.is_flag(ident) {
            return ExprKind::Flag(ident.clone());
        }
        if self.is_const(ident) {
            return ExprKind::ConstParam(ident.clone());
        }
        let text = ident.to_string();
        let is_upper =
            text.chars().any(char::is_uppercase) && !text.chars().any(char::is_lowercase);
        if crate::table::function(&text).is_some() {
            self.refuse_named(ident, messages::FUNCTION_AS_VALUE, &text);
            ExprKind::Refused
        } else if is_upper {
            ExprKind::Constant(syn::Path::from(ident.clone()))
        } else {
            ExprKind::Local(ident.clone())
        }
    }

    fn dtype_const(&mut self, dtype: Typed, name: &Ident) -> ExprKind {
        let text = name.to_string();
        let trait_name = match text.as_str() {
            "ZERO" | "ONE" | "MIN" | "MAX" => "Number",
            "INFINITY" | "NEG_INFINITY" | "NAN" | "EPSILON" | "MIN_POSITIVE" => "Float",
            _ => {
                self.refuse_named(name, messages::DTYPE_CONST, &text);
                return ExprKind::Refused;
            }
        };
        ExprKind::DTypeConst { dtype, trait_name, name: name.clone() }
    }

    fn binary(&mut self, binary: &syn::ExprBinary) -> ExprKind {
        let Some(op) = operator(&binary.op) else {
            self.refuse(binary, messages::ASSIGN_VALUE);
            return ExprKind::Refused;
        };
        let left = Box::new(self.expr(&binary.left));
        let right = Box::new(self.expr(&binary.right));
        ExprKind::Binary { op, left, right, span: binary.op.span() }
    }

    fn unary(&mut self, unary: &syn::ExprUnary) -> ExprKind {
        let op = match unary.op {
            syn::UnOp::Neg(_) => Unary::Neg,
            syn::UnOp::Not(_) => Unary::Not,
            _ => {
                self.refuse(unary, messages::DEREFERENCE);
                return ExprKind::Refused;
            }
        };
        let operand = Box::new(self.expr(&unary.expr));
        ExprKind::Unary { op, operand }
    }

    fn cast(&mut self, cast: &syn::ExprCast) -> ExprKind {
        let dtype = match &*cast.ty {
            syn::Type::Path(path) => self.dtype(&path.path),
            _ => None,
        };
        let Some(dtype) = dtype else {
            self.refuse(&cast.ty, messages::CAST_TYPE);
            return ExprKind::Refused;
        };
        let value = Box::new(self.expr(&cast.expr));
        let ty = crate::ast::Type::Scalar(dtype);
        let dtype = Typed { ty, tokens: cast.ty.to_token_stream() };
        ExprKind::As { value, dtype, span: cast.as_token.span }
    }

    fn field(&mut self, field: &syn::ExprField) -> ExprKind {
        match &field.member {
            syn::Member::Unnamed(index) => {
                let base = Box::new(self.expr(&field.base));
                ExprKind::Field { base, index: index.index, span: index.span }
            }
            syn::Member::Named(name) => {
                let base = Box::new(self.expr(&field.base));
                ExprKind::Member { base, name: name.clone() }
            }
        }
    }

    /// A condition: an expression, or `let`, which is refused.
    fn condition(&mut self, cond: &syn::Expr) -> Expr {
        self.expr(cond)
    }

    fn branch(&mut self, branch: &syn::ExprIf) -> ExprKind {
        if let syn::Expr::Let(cond) = &*branch.cond {
            return self.if_some(branch, cond);
        }
        let cond = Box::new(self.condition(&branch.cond));
        let then = self.block(&branch.then_branch);
        let span = branch.if_token.span;
        let Some((_, otherwise)) = &branch.else_branch else {
            return ExprKind::If { cond, then: statements_only(then), otherwise: None, span };
        };
        let otherwise = Some(self.otherwise(otherwise));
        ExprKind::If { cond, then, otherwise, span }
    }

    fn otherwise(&mut self, branch: &syn::Expr) -> Block {
        match branch {
            syn::Expr::Block(block) => self.block(&block.block),
            chained => {
                let value = self.expr(chained);
                let span = chained.span();
                Block { stmts: Vec::new(), value: Some(Box::new(value)), span }
            }
        }
    }

    /// `if let Some(x) = value { .. } else { .. }`
    fn if_some(&mut self, branch: &syn::ExprIf, cond: &syn::ExprLet) -> ExprKind {
        let inner = match &*cond.pat {
            syn::Pat::TupleStruct(some) if some.path.is_ident("Some") && some.elems.len() == 1 => {
                &some.elems[0]
            }
            _ => {
                self.refuse(cond, messages::IF_LET);
                return ExprKind::Refused;
            }
        };
        let value = Box::new(self.expr(&cond.expr));
        self.scopes.push(BTreeSet::new());
        let pattern = self.pattern(inner);
        let then = self.block(&branch.then_branch);
        self.scopes.pop();
        let otherwise = branch.else_branch.as_ref().map(|(_, branch)| self.otherwise(branch));
        let then = if otherwise.is_some() { then } else { statements_only(then) };
        ExprKind::IfSome { pattern, value, then, otherwise, span: branch.if_token.span }
    }
}

/// An expression that stands for something refused.
pub(crate) fn refused(node: &impl ToTokens) -> Expr {
    Expr { place: Place::of(node), kind: ExprKind::Refused }
}

/// Whether it has no value even where it ends a block.
fn is_statement(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Assign(_)
        | syn::Expr::ForLoop(_)
        | syn::Expr::While(_)
        | syn::Expr::Return(_) => true,
        syn::Expr::If(branch) => branch.else_branch.is_none(),
        syn::Expr::Binary(binary) => compound(&binary.op).is_some(),
        _ => false,
    }
}

/// A block whose last expression stands for its effect.
fn statements_only(mut block: Block) -> Block {
    if let Some(value) = block.value.take() {
        block.stmts.push(Stmt::Expr(*value));
    }
    block
}

/// A literal that fits a byte.
fn small_int(expr: &syn::Expr) -> Option<u8> {
    match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(int), .. }) => int.base10_parse().ok(),
        _ => None,
    }
}

/// The operator, unless it assigns.
fn operator(op: &syn::BinOp) -> Option<Binary> {
    use syn::BinOp as B;
    let op = match op {
        B::Add(_) => Binary::Arithmetic("Add", "add"),
        B::Sub(_) => Binary::Arithmetic("Sub", "sub"),
        B::Mul(_) => Binary::Arithmetic("Mul", "mul"),
        B::Div(_) => Binary::Arithmetic("Div", "div"),
        B::Rem(_) => Binary::Arithmetic("Rem", "rem"),
        B::BitAnd(_) => Binary::Arithmetic("And", "bit_and"),
        B::BitOr(_) => Binary::Arithmetic("Or", "bit_or"),
        B::BitXor(_) => Binary::Arithmetic("Xor", "bit_xor"),
        B::Shl(_) => Binary::Arithmetic("Shl", "shl"),
        B::Shr(_) => Binary::Arithmetic("Shr", "shr"),
        B::Eq(_) => Binary::Compare("Eq", "eq"),
        B::Ne(_) => Binary::Compare("Ne", "ne"),
        B::Lt(_) => Binary::Compare("Lt", "lt"),
        B::Le(_) => Binary::Compare("Le", "le"),
        B::Gt(_) => Binary::Compare("Gt", "gt"),
        B::Ge(_) => Binary::Compare("Ge", "ge"),
        B::And(_) => Binary::AndThen,
        B::Or(_) => Binary::OrElse,
        _ => return None,
    };
    Some(op)
}

/// The operator of `+=` and friends.
fn compound(op: &syn::BinOp) -> Option<Binary> {
    use syn::BinOp as B;
    let op = match op {
        B::AddAssign(_) => Binary::Arithmetic("Add", "add"),
        B::SubAssign(_) => Binary::Arithmetic("Sub", "sub"),
        B::MulAssign(_) => Binary::Arithmetic("Mul", "mul"),
        B::DivAssign(_) => Binary::Arithmetic("Div", "div"),
        B::RemAssign(_) => Binary::Arithmetic("Rem", "rem"),
        B::BitAndAssign(_) => Binary::Arithmetic("And", "bit_and"),
        B::BitOrAssign(_) => Binary::Arithmetic("Or", "bit_or"),
        B::BitXorAssign(_) => Binary::Arithmetic("Xor", "bit_xor"),
        B::ShlAssign(_) => Binary::Arithmetic("Shl", "shl"),
        B::ShrAssign(_) => Binary::Arithmetic("Shr", "shr"),
        _ => return None,
    };
    Some(op)
}
