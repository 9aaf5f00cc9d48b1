//! Calls: functions and methods of the language, device functions, macros.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;

use crate::ast::{Call, Expr, ExprKind, GenericArg, Place, Type, Typed, generic_args};
use crate::body::refused;
use crate::messages;
use crate::parse::Parser;
use crate::table::{self, Generics, Signature};

impl Parser {
    /// `f(..)`, `f::<..>(..)`, `module::f(..)`, `T::from(..)`.
    pub(crate) fn call(&mut self, call: &syn::ExprCall) -> ExprKind {
        let syn::Expr::Path(path) = &*call.func else {
            self.refuse(&call.func, messages::CALL_TARGET);
            return ExprKind::Refused;
        };
        let Some(last) = path.path.segments.last() else { return ExprKind::Refused };
        if path.path.segments.len() == 1 {
            let name = last.ident.to_string();
            if table::ITERATORS.contains(&name.as_str()) {
                self.refuse_named(call, messages::ITER_CALL, &name);
                return ExprKind::Refused;
            }
            if let Some(signature) = table::function(&name) {
                return self.builtin(signature, &last.ident, last, call);
            }
            if name == self.name {
                self.refuse_named(call, messages::RECURSION, &name);
                return ExprKind::Refused;
            }
        }
        if path.path.segments.len() == 2
            && path.path.segments[0].ident == "fast"
            && let Some(signature) = table::fast(&last.ident.to_string())
        {
            let name = Ident::new(signature.name, last.ident.span());
            return self.builtin(signature, &name, last, call);
        }
        if let Some(kind) = self.dtype_from(path, call) {
            return kind;
        }
        self.device_call(path, last, call)
    }

    fn builtin(
        &mut self,
        signature: &Signature,
        name: &Ident,
        segment: &syn::PathSegment,
        call: &syn::ExprCall,
    ) -> ExprKind {
        let generics = generic_args(segment);
        let args: Vec<&syn::Expr> = call.args.iter().collect();
        let parens = call.paren_token.span.join();
        self.language_call(signature, name, &generics, &args, parens)
            .map_or(ExprKind::Refused, ExprKind::Builtin)
    }

    /// `x.name::<..>(..)`
    pub(crate) fn method_call(&mut self, call: &syn::ExprMethodCall) -> ExprKind {
        let name = call.method.to_string();
        let Some(signature) = table::method(&name) else {
            self.refuse_named(&call.method, messages::METHOD, &name);
            return ExprKind::Refused;
        };
        let receiver = Box::new(self.expr(&call.receiver));
        if is_untyped_literal(&receiver) {
            self.refuse(&call.receiver, messages::LITERAL_METHOD);
            return ExprKind::Refused;
        }
        let generics: Vec<syn::GenericArgument> =
            call.turbofish.iter().flat_map(|t| t.args.iter().cloned()).collect();
        let args: Vec<&syn::Expr> = call.args.iter().collect();
        let parens = call.paren_token.span.join();
        match self.language_call(signature, &call.method, &generics, &args, parens) {
            Some(call) => ExprKind::Method { receiver, call },
            None => ExprKind::Refused,
        }
    }

    /// Checks a call against its signature; none if it was refused.
    fn language_call(
        &mut self,
        signature: &Signature,
        name: &Ident,
        generics: &[syn::GenericArgument],
        args: &[&syn::Expr],
        parens: proc_macro2::Span,
    ) -> Option<Call> {
        let one_bound = signature.name == "randint" && args.len() == 3;
        if args.len() < signature.min || args.len() > signature.args.len() || one_bound {
            let text = arg_count_text(signature, args.len());
            self.refuse_named(name, messages::ARG_COUNT, &text);
            return None;
        }
        if !self.check_generics(signature, name, generics) {
            return None;
        }
        let generics = match signature.generics {
            Generics::Ordering => self.ordering(name, generics)?,
            _ => generics.iter().map(|arg| self.generic_arg(arg)).collect(),
        };
        let mut parsed = Vec::new();
        let mut ok = true;
        for (index, arg) in args.iter().enumerate() {
            let value = self.argument(signature, name, index, arg);
            ok &= !matches!(value.kind, ExprKind::Refused);
            parsed.push(value);
        }
        // The two things of the language that nothing checks.
        self.unchecked.takes_pointer |= signature.name == "ptr";
        self.unchecked.promises |= signature.name == "multiple_of";
        if name == "where_" && parsed.len() == 3 && parsed[1..].iter().all(is_untyped_literal) {
            self.refuse(name, messages::UNTYPED_WHERE);
            return None;
        }
        ok.then(|| Call { name: name.clone(), generics, args: parsed, parens })
    }

    /// `::<Release, System>`: the order first, and each at most once.
    fn ordering(
        &mut self,
        name: &Ident,
        generics: &[syn::GenericArgument],
    ) -> Option<Vec<GenericArg>> {
        let args: Vec<GenericArg> = generics.iter().filter_map(ordering_word).collect();
        let is_right = args.len() == generics.len()
            && matches!(args[..], [] | [_] | [GenericArg::Order(_), GenericArg::Scope(_)]);
        if !is_right {
            self.refuse_named(name, messages::ATOMIC_ORDERING, &name.to_string());
        }
        is_right.then_some(args)
    }

    fn check_generics(
        &mut self,
        signature: &Signature,
        name: &Ident,
        generics: &[syn::GenericArgument],
    ) -> bool {
        let count = generics.len();
        let message = match signature.generics {
            Generics::None if count > 0 => messages::NO_GENERICS,
            Generics::DType if count != 1 => messages::DTYPE_MISSING,
            Generics::Extents if count == 0 => messages::SHAPE_MISSING,
            Generics::OneExtent if count != 1 && signature.name == "arange" => messages::ARANGE,
            Generics::OneExtent if count != 1 => messages::ONE_EXTENT,
            Generics::DTypeExtents if count < 2 => messages::DTYPE_SHAPE_MISSING,
            Generics::Extents if count > 5 => messages::RANK_LIMIT,
            Generics::DTypeExtents if count > 6 => messages::RANK_LIMIT,
            _ => return true,
        };
        self.refuse_named(name, message, &name.to_string());
        false
    }

    /// One argument of a call of the language: an axis, a device function, a flag or a value.
    fn argument(
        &mut self,
        signature: &Signature,
        name: &Ident,
        index: usize,
        arg: &syn::Expr,
    ) -> Expr {
        if signature.axis() == Some(index) {
            return self.axis(name, arg);
        }
        if signature.combine() == Some(index) {
            return self.combine(arg);
        }
        if signature.is_flag(index) && !is_bool_literal(arg) {
            self.refuse(arg, messages::FLAG);
            return refused(arg);
        }
        match signature.args[index] {
            "coordinates" | "extents" | "strides" | "steps" => self.coordinates(arg),
            "order" => self.permutation(arg),
            "n" => self.divisor(arg),
            _ => self.expr(arg),
        }
    }

    fn axis(&mut self, name: &Ident, arg: &syn::Expr) -> Expr {
        let is_grid = name == "program_id" || name == "num_programs";
        let limit = if is_grid { 2 } else { 4 };
        let value = self.expr(arg);
        match &value.kind {
            ExprKind::Int(_, axis) if *axis <= limit => return value,
            ExprKind::Refused => return value,
            _ if name == "max" || name == "min" => {
                self.refuse_named(arg, messages::AXIS_OF_EXTREMUM, &name.to_string());
            }
            _ if is_grid => self.refuse_named(arg, messages::GRID_AXIS, &name.to_string()),
            ExprKind::Unary { .. } => self.refuse(arg, messages::AXIS_NEGATIVE),
            _ => self.refuse(arg, messages::AXIS),
        }
        refused(arg)
    }

    fn combine(&mut self, arg: &syn::Expr) -> Expr {
        let syn::Expr::Path(path) = arg else {
            let message = match arg {
                syn::Expr::Closure(_) => messages::CLOSURE,
                _ => messages::COMBINE,
            };
            self.refuse(arg, message);
            return refused(arg);
        };
        let ident = path.path.get_ident();
        if let Some(name) = ident.map(Ident::to_string).filter(|n| table::function(n).is_some()) {
            self.refuse_named(arg, messages::COMBINE_BUILTIN, &name);
            return refused(arg);
        }
        if ident.is_some_and(|ident| self.is_local(ident)) {
            self.refuse(arg, messages::COMBINE);
            return refused(arg);
        }
        self.unchecked.callees.push(path.path.clone());
        Expr { place: Place::of(arg), kind: ExprKind::DeviceRef(path.path.clone()) }
    }

    fn coordinates(&mut self, arg: &syn::Expr) -> Expr {
        let syn::Expr::Array(array) = arg else {
            self.refuse(arg, messages::COORDINATES);
            return refused(arg);
        };
        Expr { place: Place::of(arg), kind: ExprKind::Array(self.exprs(&array.elems)) }
    }

    fn permutation(&mut self, arg: &syn::Expr) -> Expr {
        let elems = match arg {
            syn::Expr::Array(array) => self.exprs(&array.elems),
            _ => Vec::new(),
        };
        let mut axes: Vec<i128> = elems
            .iter()
            .filter_map(|elem| match &elem.kind {
                ExprKind::Int(_, axis) => Some(*axis),
                _ => None,
            })
            .collect();
        axes.sort_unstable();
        let in_order = axes.iter().enumerate().all(|(index, axis)| *axis == index as i128);
        if elems.is_empty() || axes.len() != elems.len() || axes.len() > 5 || !in_order {
            self.refuse(arg, messages::PERMUTATION);
            return refused(arg);
        }
        Expr { place: Place::of(arg), kind: ExprKind::Array(elems) }
    }

    fn divisor(&mut self, arg: &syn::Expr) -> Expr {
        let value = self.expr(arg);
        match value.kind {
            ExprKind::Int(..) | ExprKind::ConstParam(_) | ExprKind::Refused => value,
            _ => {
                self.refuse(arg, messages::MULTIPLE_OF);
                refused(arg)
            }
        }
    }

    /// `T::from(x)`, if it is one.
    fn dtype_from(&mut self, path: &syn::ExprPath, call: &syn::ExprCall) -> Option<ExprKind> {
        let (dtype, name) = self.dtype_and_name(&path.path)?;
        let (text, mut args) = (name.ident.to_string(), call.args.iter());
        let (Some(arg), None, "from") = (args.next(), args.next(), text.as_str()) else {
            self.refuse_named(&path.path, messages::DTYPE_CALL, &text);
            return Some(ExprKind::Refused);
        };
        let value = Box::new(self.expr(arg));
        Some(ExprKind::From { dtype, value, span: name.ident.span() })
    }

    fn device_call(
        &mut self,
        path: &syn::ExprPath,
        last: &syn::PathSegment,
        call: &syn::ExprCall,
    ) -> ExprKind {
        if path.qself.is_some() {
            self.refuse(&call.func, messages::CALL_TARGET);
            return ExprKind::Refused;
        }
        let generics = generic_args(last).iter().map(|arg| self.generic_arg(arg)).collect();
        let args = self.exprs(&call.args);
        let mut path = path.path.clone();
        if let Some(last) = path.segments.last_mut() {
            last.arguments = syn::PathArguments::None;
        }
        self.unchecked.callees.push(path.clone());
        ExprKind::Device { path, generics, args }
    }

    /// One argument of `::<..>`.
    fn generic_arg(&mut self, arg: &syn::GenericArgument) -> GenericArg {
        let tokens = arg.to_token_stream();
        match arg {
            syn::GenericArgument::Type(syn::Type::Path(path)) if path.qself.is_none() => {
                self.path_generic(&path.path, tokens)
            }
            syn::GenericArgument::Type(syn::Type::Infer(_)) => GenericArg::Other(tokens),
            syn::GenericArgument::Const(expr) => {
                let tokens = match self.mentions_const(expr) {
                    true => self.computed(expr).into_token_stream(),
                    false => tokens,
                };
                GenericArg::Const { value: self.const_value(expr), tokens }
            }
            other => {
                self.refuse(other, messages::GENERIC_ARG);
                GenericArg::Other(quote!(_))
            }
        }
    }

    /// A const parameter that stands for an expression of others, which stable Rust can't have in a type: rustc
    /// checks the body for every value of it, and the front end knows the one that it has.
    pub(crate) fn computed(&mut self, expr: &syn::Expr) -> Ident {
        let mut name = "extent".to_owned();
        name_of_tokens(expr.to_token_stream(), &mut name);
        let ident = Ident::new(&name, expr.span());
        if !self.computed.contains(&ident) {
            self.computed.push(ident.clone());
        }
        ident
    }

    /// The value of a const argument: `BM`, `{ BM / 2 }`.
    pub(crate) fn const_value(&mut self, expr: &syn::Expr) -> Expr {
        match expr {
            syn::Expr::Block(block) => match &block.block.stmts[..] {
                [syn::Stmt::Expr(inner, None)] => self.expr(inner),
                _ => self.expr(expr),
            },
            _ => self.expr(expr),
        }
    }

    fn path_generic(&mut self, path: &syn::Path, tokens: TokenStream) -> GenericArg {
        if let Some(dtype) = self.dtype(path) {
            return GenericArg::DType(Typed { ty: Type::Scalar(dtype), tokens });
        }
        if let Some(ident) = path.get_ident() {
            if self.is_const(ident) {
                let kind = ExprKind::ConstParam(ident.clone());
                return GenericArg::Const { value: Expr { place: Place::of(path), kind }, tokens };
            }
            if self.is_shape(ident) {
                return GenericArg::Other(tokens);
            }
        }
        let kind = ExprKind::Constant(path.clone());
        GenericArg::Const { value: Expr { place: Place::of(path), kind }, tokens }
    }

    /// Whether a const expression uses a const parameter in a way stable Rust refuses.
    pub(crate) fn mentions_const(&self, expr: &syn::Expr) -> bool {
        let is_lone = match expr {
            syn::Expr::Block(block) => {
                matches!(&block.block.stmts[..], [syn::Stmt::Expr(syn::Expr::Path(_), None)])
            }
            syn::Expr::Path(_) | syn::Expr::Lit(_) => true,
            _ => false,
        };
        !is_lone && self.any_const_in(expr.to_token_stream())
    }

    fn any_const_in(&self, tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            proc_macro2::TokenTree::Ident(ident) => self.is_const(&ident),
            proc_macro2::TokenTree::Group(group) => self.any_const_in(group.stream()),
            _ => false,
        })
    }

    /// `device_print!(..)`, `device_assert!(..)`, `static_assert!(..)`, `inline_asm!(..)`.
    pub(crate) fn macro_call(&mut self, mac: &syn::Macro, node: &impl ToTokens) -> Expr {
        let name = mac.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        let parser = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        let is_ours = matches!(
            name.as_str(),
            "device_print" | "device_assert" | "static_assert" | "inline_asm"
        );
        let args = match parser.parse2(mac.tokens.clone()) {
            Ok(args) if is_ours => args,
            _ => {
                let message = if is_ours { messages::ASSERT_ARGS } else { messages::MACRO };
                self.refuse_named(&mac.path, message, &name);
                return refused(node);
            }
        };
        let args: Vec<syn::Expr> = args.into_iter().collect();
        let kind = match name.as_str() {
            "device_print" => self.print(mac, &args),
            "inline_asm" => self.asm(mac, &args),
            _ => self.assertion(mac, &name, &args),
        };
        Expr { place: Place::of(node), kind }
    }

    fn print(&mut self, mac: &syn::Macro, args: &[syn::Expr]) -> ExprKind {
        let Some((format, values)) = args.split_first() else {
            self.refuse_named(&mac.path, messages::FORMAT, "`device_print!` needs a text");
            return ExprKind::Refused;
        };
        let Some(text) = string_literal(format) else {
            self.refuse_named(format, messages::FORMAT, "the text must be a string literal");
            return ExprKind::Refused;
        };
        if let Err(problem) = check_format(&text, values.len()) {
            self.refuse_named(format, messages::FORMAT, &problem);
            return ExprKind::Refused;
        }
        ExprKind::Print { format: text, args: self.exprs(values), span: mac.path.span() }
    }

    fn asm(&mut self, mac: &syn::Macro, args: &[syn::Expr]) -> ExprKind {
        let (pack, args) = match args {
            [args @ .., syn::Expr::Assign(option)] => {
                let Some(pack) = pack_of(option) else {
                    self.refuse(option, messages::ASM_PACK);
                    return ExprKind::Refused;
                };
                (pack, args)
            }
            args => (1, args),
        };
        let parts = match args {
            [text, constraints, _, ..] => string_literal(text).zip(string_literal(constraints)),
            _ => None,
        };
        let Some((text, constraints)) = parts else {
            self.refuse(&mac.path, messages::ASM_ARGS);
            return ExprKind::Refused;
        };
        let args = self.exprs(&args[2..]);
        ExprKind::Asm { text, constraints, pack, args, span: mac.path.span() }
    }

    fn assertion(&mut self, mac: &syn::Macro, name: &str, args: &[syn::Expr]) -> ExprKind {
        let parts = match args {
            [cond, message] => string_literal(message).map(|text| (cond, text)),
            _ => None,
        };
        let Some((cond, message)) = parts else {
            self.refuse_named(&mac.path, messages::ASSERT_ARGS, name);
            return ExprKind::Refused;
        };
        let cond = Box::new(self.expr(cond));
        let is_static = name == "static_assert";
        ExprKind::Assert { cond, message, span: mac.path.span(), is_static }
    }
}

/// An order or a scope of atomics.
fn ordering_word(arg: &syn::GenericArgument) -> Option<GenericArg> {
    let syn::GenericArgument::Type(syn::Type::Path(path)) = arg else { return None };
    let of = |names: [&'static str; 4]| names.into_iter().find(|name| path.path.is_ident(name));
    let order = of(table::ORDERS).map(GenericArg::Order);
    order.or_else(|| of(table::SCOPES).map(GenericArg::Scope))
}

/// The number of `pack = 2`.
fn pack_of(option: &syn::ExprAssign) -> Option<u8> {
    let is_pack = matches!(&*option.left, syn::Expr::Path(path) if path.path.is_ident("pack"));
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) = &*option.right else {
        return None;
    };
    number.base10_parse().ok().filter(|pack| is_pack && [1, 2, 4, 8].contains(pack))
}

/// Adds `BM * 2` to a name: `_BM_times_2`.
fn name_of_tokens(tokens: TokenStream, name: &mut String) {
    for token in tokens {
        let word = match token {
            proc_macro2::TokenTree::Group(group) => {
                name_of_tokens(group.stream(), name);
                continue;
            }
            proc_macro2::TokenTree::Punct(punct) => match punct.as_char() {
                '+' => "plus".to_owned(),
                '-' => "minus".to_owned(),
                '*' => "times".to_owned(),
                '/' => "by".to_owned(),
                '%' => "modulo".to_owned(),
                '<' => "less".to_owned(),
                '>' => "greater".to_owned(),
                _ => "and".to_owned(),
            },
            other => {
                other.to_string().chars().filter(|c| c.is_alphanumeric() || *c == '_').collect()
            }
        };
        name.push('_');
        *name += &word;
    }
}

/// `load takes 1 to 3 arguments, here are 4: load(ptr, mask, other)`.
fn arg_count_text(signature: &Signature, given: usize) -> String {
    let max = signature.args.len();
    let wanted = match (signature.min, max) {
        (0, 0) => "no arguments".to_owned(),
        (1, 1) => "1 argument".to_owned(),
        (min, max) if min == max => format!("{max} arguments"),
        (min, max) => format!("{min} to {max} arguments"),
    };
    let verb = if given == 1 { "is" } else { "are" };
    format!("`{}` takes {wanted}, here {verb} {given}: `{}`", signature.name, signature.usage())
}

/// Whether it is a number without a suffix, perhaps negative.
pub(crate) fn is_untyped_literal(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Int(int, _) => int.suffix().is_empty(),
        ExprKind::Float(float, _) => float.suffix().is_empty(),
        ExprKind::Unary { op: crate::ast::Unary::Neg, operand, .. } => is_untyped_literal(operand),
        _ => false,
    }
}

fn is_bool_literal(expr: &syn::Expr) -> bool {
    matches!(expr, syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Bool(_), .. }))
}

fn string_literal(expr: &syn::Expr) -> Option<String> {
    match expr {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// Counts `{}`; other braces must be doubled.
fn check_format(text: &str, values: usize) -> Result<(), String> {
    let plain = text.replace("{{", "").replace("}}", "");
    let places = plain.matches("{}").count();
    if plain.replace("{}", "").contains(['{', '}']) {
        return Err("only `{}` stands for a value here".to_owned());
    }
    if places != values {
        let verb = if values == 1 { "value is" } else { "values are" };
        return Err(format!("the text has {places} `{{}}`, {values} {verb} given"));
    }
    Ok(())
}
