//! From `syn`'s tree to ours: the signature, types and patterns. `body` reads what is inside.
//!
//! Nothing stops at the first refusal: they are collected, and what was refused is left out.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;

use crate::ast::{
    Block, DType, Expr, ExprKind, Extent, Function, Generic, Group as ParamGroup, Param, Pattern,
    Place, Stmt, Type, Typed, Unchecked, generic_args,
};
use crate::messages::{self, Message};
use crate::table;

/// Which of the two macros is at work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Kernel,
    Device,
}

/// What is known while a function is read.
pub(crate) struct Parser {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) generics: Vec<Generic>,
    /// Names in scope, innermost last.
    pub(crate) scopes: Vec<BTreeSet<String>>,
    pub(crate) depth: usize,
    pub(crate) unchecked: Unchecked,
    /// As in [`Function::computed`].
    pub(crate) computed: Vec<Ident>,
    /// `let`s that make tuples of the parameters that they were taken apart to.
    tuples: Vec<Stmt>,
    errors: Option<syn::Error>,
}

/// The function as far as it could be read, and what was refused.
pub(crate) struct Parsed {
    pub(crate) function: Function,
    pub(crate) errors: Option<syn::Error>,
}

/// Reads a function.
pub(crate) fn parse(item: &syn::ItemFn, kind: Kind, contract: bool) -> Parsed {
    let mut parser = Parser::new(kind, item.sig.ident.to_string());
    let function = parser.function(item, contract);
    Parsed { function, errors: parser.errors }
}

impl Parser {
    pub(crate) fn new(kind: Kind, name: String) -> Parser {
        Parser {
            kind,
            name,
            generics: Vec::new(),
            scopes: vec![BTreeSet::new()],
            depth: 0,
            unchecked: Unchecked::default(),
            computed: Vec::new(),
            tuples: Vec::new(),
            errors: None,
        }
    }

    /// What was refused.
    pub(crate) fn into_errors(self) -> Option<syn::Error> {
        self.errors
    }

    /// Notes a refusal of `node`.
    pub(crate) fn refuse(&mut self, node: &impl ToTokens, message: Message) {
        self.refuse_named(node, message, "");
    }

    /// Notes a refusal of `node`, with a name for the text.
    pub(crate) fn refuse_named(&mut self, node: &impl ToTokens, message: Message, name: &str) {
        let error = syn::Error::new_spanned(node, message.render(name));
        match &mut self.errors {
            Some(errors) => errors.combine(error),
            None => self.errors = Some(error),
        }
    }

    fn function(&mut self, item: &syn::ItemFn, contract: bool) -> Function {
        self.qualifiers(&item.sig);
        if table::function(&self.name).is_some() && self.kind == Kind::Device {
            let name = self.name.clone();
            self.refuse_named(&item.sig.ident, messages::RESERVED_NAME, &name);
        }
        self.generics = self.generic_params(&item.sig.generics);
        let (mut params, mut groups) = (Vec::new(), Vec::new());
        for input in &item.sig.inputs {
            groups.extend(self.param(input, &mut params));
        }
        let ret = self.return_type(&item.sig.output);
        let computed_in_signature = self.computed.len();
        let body = self.body(&item.block);
        let (docs, attrs): (Vec<_>, Vec<_>) =
            item.attrs.iter().cloned().partition(|a| a.path().is_ident("doc"));
        Function {
            attrs,
            doc: doc_text(&docs),
            docs,
            vis: item.vis.clone(),
            name: item.sig.ident.clone(),
            generics: self.generics.clone(),
            params,
            groups,
            ret,
            body,
            contract,
            is_unsafe: self.is_unsafe(&item.sig),
            unchecked: std::mem::take(&mut self.unchecked),
            computed: std::mem::take(&mut self.computed),
            computed_in_signature,
        }
    }

    fn body(&mut self, block: &syn::Block) -> Block {
        let mut body = self.statements(block, true);
        body.stmts.splice(0..0, self.tuples.drain(..));
        if self.kind == Kind::Kernel
            && let Some(value) = body.value.take()
        {
            body.stmts.push(crate::ast::Stmt::Expr(*value));
        }
        body
    }

    fn qualifiers(&mut self, sig: &syn::Signature) {
        if let Some(token) = &sig.constness {
            self.refuse_named(token, messages::QUALIFIER, "const");
        }
        if let Some(token) = &sig.asyncness {
            self.refuse_named(token, messages::QUALIFIER, "async");
        }
        if self.kind == Kind::Device && matches!(sig.safety, syn::Safety::Unsafe(_)) {
            self.refuse(&sig.safety, messages::UNSAFE_DEVICE);
        } else if !matches!(sig.safety, syn::Safety::Default) && !self.is_unsafe(sig) {
            self.refuse_named(
                &sig.safety,
                messages::QUALIFIER,
                &sig.safety.to_token_stream().to_string(),
            );
        }
        if let Some(abi) = &sig.abi {
            self.refuse_named(abi, messages::QUALIFIER, "extern");
        }
        if let Some(variadic) = &sig.variadic {
            self.refuse(variadic, messages::VARIADIC);
        }
        if let Some(clause) = &sig.generics.where_clause {
            self.refuse(clause, messages::WHERE_CLAUSE);
        }
    }

    /// A kernel may be declared `unsafe`, which its launch then is.
    fn is_unsafe(&self, sig: &syn::Signature) -> bool {
        self.kind == Kind::Kernel && matches!(sig.safety, syn::Safety::Unsafe(_))
    }

    pub(crate) fn generic_params(&mut self, generics: &syn::Generics) -> Vec<Generic> {
        generics.params.iter().filter_map(|param| self.generic_param(param)).collect()
    }

    fn generic_param(&mut self, param: &syn::GenericParam) -> Option<Generic> {
        match param {
            syn::GenericParam::Lifetime(lifetime) => {
                self.refuse(lifetime, messages::LIFETIME);
                None
            }
            syn::GenericParam::Const(constant) => {
                if let Some((_, default)) = &constant.default {
                    self.refuse(default, messages::GENERIC_DEFAULT);
                }
                let is = |name| matches!(&constant.ty, syn::Type::Path(p) if p.path.is_ident(name));
                if !is("usize") && !is("bool") {
                    self.refuse(&constant.ty, messages::CONST_NOT_USIZE);
                }
                Some(Generic::Const { name: constant.ident.clone(), is_flag: is("bool") })
            }
            syn::GenericParam::Type(param) => Some(self.type_param(param)),
        }
    }

    fn type_param(&mut self, param: &syn::TypeParam) -> Generic {
        if let Some((_, default)) = &param.default {
            self.refuse(default, messages::GENERIC_DEFAULT);
        }
        let name = param.ident.clone();
        let fallback =
            Generic::DType { name: name.clone(), bound: Ident::new("Float", name.span()) };
        let Some(first) = param.bounds.first() else {
            self.refuse_named(&param.ident, messages::BOUND_MISSING, &name.to_string());
            return fallback;
        };
        if param.bounds.len() > 1 {
            self.refuse(&param.bounds, messages::BOUND_MANY);
        }
        let bound = match first {
            syn::TypeParamBound::Trait(bound) => {
                bound.path.segments.last().map(|s| s.ident.clone())
            }
            _ => None,
        };
        let bound_name = bound.as_ref().map(Ident::to_string).unwrap_or_default();
        match (bound, bound_name.as_str()) {
            (Some(bound), "Element" | "Number" | "Float" | "Float8" | "Int" | "Int8") => {
                Generic::DType { name, bound }
            }
            (Some(bound), "Shape") => {
                if self.kind == Kind::Kernel {
                    self.refuse(first, messages::SHAPE_IN_KERNEL);
                }
                Generic::Shape { name, bound }
            }
            _ => {
                let text = first.to_token_stream().to_string();
                self.refuse_named(first, messages::BOUND_UNKNOWN, &text);
                fallback
            }
        }
    }

    fn param(&mut self, input: &syn::FnArg, params: &mut Vec<Param>) -> Option<ParamGroup> {
        let typed = match input {
            syn::FnArg::Receiver(receiver) => {
                self.refuse(receiver, messages::SELF_PARAM);
                return None;
            }
            syn::FnArg::Typed(typed) => typed,
        };
        if let Some(attr) = typed.attrs.first() {
            self.refuse(attr, messages::ATTRIBUTE);
        }
        if let (syn::Type::Tuple(tuple), Kind::Kernel) = (&*typed.ty, self.kind)
            && tuple.elems.len() > 1
        {
            return Some(self.tuple_param(&typed.pat, tuple, params));
        }
        let pattern = match (&*typed.pat, self.kind) {
            (syn::Pat::Ident(_) | syn::Pat::Wild(_), _) | (_, Kind::Device) => {
                self.pattern(&typed.pat)
            }
            (other, Kind::Kernel) => {
                self.refuse(other, messages::PARAM_PATTERN);
                Pattern::Wild(other.span())
            }
        };
        params.push(self.one_param(pattern, &typed.ty, Place::of(typed)));
        Some(ParamGroup::One)
    }

    fn one_param(&mut self, pattern: Pattern, ty: &syn::Type, place: Place) -> Param {
        let inner = option_of(ty);
        let parsed = self.param_type(inner.unwrap_or(ty));
        let is_one = matches!(
            parsed,
            Type::Scalar(_) | Type::Ptr { .. } | Type::View { .. } | Type::Inferred
        );
        if inner.is_some() && !is_one {
            self.refuse(ty, messages::OPTION_OF);
        }
        let tokens = self.type_tokens(ty.to_token_stream());
        Param { pattern, typed: Typed { ty: parsed, tokens }, place, optional: inner.is_some() }
    }

    /// A tuple of a kernel's: a parameter for each part, of which a `let` makes the tuple where it has a name.
    fn tuple_param(
        &mut self,
        pat: &syn::Pat,
        tuple: &syn::TypeTuple,
        params: &mut Vec<Param>,
    ) -> ParamGroup {
        let parts: Vec<syn::Pat> = match pat {
            syn::Pat::Tuple(pats) if pats.elems.len() == tuple.elems.len() => {
                pats.elems.iter().cloned().collect()
            }
            syn::Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => {
                let part = |n: usize| Ident::new(&format!("{}_{n}", name.ident), name.ident.span());
                let parts: Vec<Ident> = (0..tuple.elems.len()).map(part).collect();
                self.make_tuple(name, &parts);
                parts.iter().map(|part| syn::parse_quote!(#part)).collect()
            }
            other => {
                if !matches!(other, syn::Pat::Wild(_)) {
                    self.refuse(other, messages::TUPLE_PARAM);
                }
                tuple.elems.iter().map(|_| syn::parse_quote!(_)).collect()
            }
        };
        let groups = parts.iter().zip(&tuple.elems).map(|(pat, ty)| match ty {
            syn::Type::Tuple(inner) if inner.elems.len() > 1 => {
                self.tuple_param(pat, inner, params)
            }
            ty => {
                let pattern = self.pattern(pat);
                params.push(self.one_param(pattern, ty, Place::of(ty)));
                ParamGroup::One
            }
        });
        ParamGroup::Tuple(groups.collect())
    }

    /// Notes `let name = (parts..);`, after those of the tuples in it, which are made first.
    fn make_tuple(&mut self, name: &syn::PatIdent, parts: &[Ident]) {
        let place = Place::of(name);
        let parts = parts.iter().map(|part| Expr { place, kind: ExprKind::Local(part.clone()) });
        let value = Expr { place, kind: ExprKind::Tuple(parts.collect()) };
        let pattern =
            Pattern::Name { ident: name.ident.clone(), mutable: name.mutability.is_some() };
        self.declare(&name.ident);
        self.tuples.insert(0, Stmt::Let { pattern, typed: None, value, place });
    }

    /// The type of a field of a struct that kernels take, and whether it is optional.
    pub(crate) fn field_type(&mut self, ty: &syn::Type) -> (Typed, bool) {
        let (tokens, inner) = (ty.to_token_stream(), option_of(ty));
        let parsed = match self.ty(inner.unwrap_or(ty), messages::PARAM_FIELD) {
            parsed @ (Type::Scalar(_) | Type::Ptr { .. } | Type::View { .. } | Type::Inferred) => {
                parsed
            }
            Type::Tile(_) | Type::Shaped(..) | Type::Tuple(_) | Type::Struct { .. } => {
                self.refuse(ty, messages::PARAM_FIELD);
                Type::Inferred
            }
        };
        (Typed { ty: parsed, tokens }, inner.is_some())
    }

    /// A type that is nothing of the language, and may be a struct under `#[derive(KernelParam)]`.
    fn struct_type(&self, ty: &syn::Type) -> Option<Type> {
        let syn::Type::Path(syn::TypePath { qself: None, path, .. }) = ty else { return None };
        let last = path.segments.last()?;
        let name = last.ident.to_string();
        let is_known = table::dtype(&name).is_some()
            || self.dtype(path).is_some()
            || self.generics.iter().any(|generic| generic.name() == &last.ident)
            || matches!(
                name.as_str(),
                "Option" | "Ptr" | "PtrMut" | "View" | "ViewMut" | "Row" | "Col"
            )
            || matches!(name.as_str(), "Tile" | "Tile1" | "Tile2" | "Tile3" | "String" | "Self");
        if is_known || !name.starts_with(char::is_uppercase) {
            return None;
        }
        let mut args = generic_args(last);
        let rank = match name.as_str() {
            "Views" | "ViewsMut" => Some(literal_rank(&args.pop()?)?),
            _ => None,
        };
        let dtypes = args.iter().map(|arg| self.dtype_arg(arg)).collect::<Option<_>>();
        Some(Type::Struct { path: path.clone(), dtypes: dtypes?, rank })
    }

    fn param_type(&mut self, ty: &syn::Type) -> Type {
        if let Some(parsed) = self.struct_type(ty) {
            return parsed;
        }
        let message = match self.kind {
            Kind::Kernel => messages::PARAM_TYPE_KERNEL,
            Kind::Device => messages::PARAM_TYPE_DEVICE,
        };
        let parsed = self.ty(ty, message);
        match (&parsed, self.kind) {
            (Type::Tile(_) | Type::Shaped(..), Kind::Kernel) => {
                self.refuse(ty, messages::TILE_PARAM);
                Type::Inferred
            }
            (Type::Tuple(_), Kind::Kernel) => {
                self.refuse(ty, message);
                Type::Inferred
            }
            _ => parsed,
        }
    }

    fn return_type(&mut self, output: &syn::ReturnType) -> Option<Typed> {
        let syn::ReturnType::Type(_, ty) = output else { return None };
        if matches!(&**ty, syn::Type::Tuple(tuple) if tuple.elems.is_empty()) {
            return None;
        }
        if self.kind == Kind::Kernel {
            self.refuse(ty, messages::KERNEL_RETURNS);
            return None;
        }
        let parsed = self.ty(ty, messages::PARAM_TYPE_DEVICE);
        Some(Typed { ty: parsed, tokens: self.type_tokens(ty.to_token_stream()) })
    }

    /// A type; `message` is what to say of one that has no place here.
    pub(crate) fn ty(&mut self, ty: &syn::Type, message: Message) -> Type {
        match ty {
            syn::Type::Paren(inner) => self.ty(&inner.elem, message),
            syn::Type::Group(inner) => self.ty(&inner.elem, message),
            syn::Type::Tuple(tuple) if tuple.elems.len() > 1 => {
                Type::Tuple(tuple.elems.iter().map(|elem| self.ty(elem, message)).collect())
            }
            syn::Type::Reference(_) => {
                self.refuse(ty, messages::REFERENCE);
                Type::Inferred
            }
            syn::Type::Path(path) if path.qself.is_none() => self.path_type(path, message),
            other => {
                self.refuse(other, message);
                Type::Inferred
            }
        }
    }

    fn path_type(&mut self, path: &syn::TypePath, message: Message) -> Type {
        let Some(last) = path.path.segments.last() else { return Type::Inferred };
        let name = last.ident.to_string();
        if last.arguments.is_none() {
            if let Some(dtype) = self.dtype(&path.path) {
                return Type::Scalar(dtype);
            }
            if matches!(
                name.as_str(),
                "usize" | "isize" | "char" | "str" | "String" | "u128" | "i128"
            ) {
                self.refuse_named(path, messages::USIZE_PARAM, &name);
                return Type::Inferred;
            }
        }
        let args = generic_args(last);
        let dtype = args.first().and_then(|arg| self.dtype_arg(arg));
        match (name.as_str(), dtype) {
            ("Ptr" | "PtrMut", Some(dtype)) => Type::Ptr { dtype, mutable: name == "PtrMut" },
            ("View" | "ViewMut", Some(dtype)) => {
                let rank = args.get(1).and_then(literal_rank).unwrap_or_else(|| {
                    self.refuse(path, messages::RANK);
                    1
                });
                Type::View { dtype, rank, mutable: name == "ViewMut" }
            }
            ("Views" | "ViewsMut", Some(_)) if args.get(1).and_then(literal_rank).is_none() => {
                self.refuse(path, messages::RANK);
                Type::Inferred
            }
            ("Tile" | "Tile1" | "Tile2" | "Tile3" | "Row" | "Col", Some(dtype)) => {
                self.tile_type(&name, dtype, &args[1..])
            }
            _ => {
                self.refuse(path, message);
                Type::Inferred
            }
        }
    }

    /// A type as rustc can have it: with a name in place of each extent that is computed.
    pub(crate) fn type_tokens(&mut self, tokens: TokenStream) -> TokenStream {
        let tokens = tokens.into_iter().map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                match syn::parse2::<syn::Expr>(TokenTree::Group(group.clone()).into()) {
                    Ok(expr) if self.mentions_const(&expr) => {
                        TokenTree::Ident(self.computed(&expr))
                    }
                    _ => TokenTree::Group(group),
                }
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), self.type_tokens(group.stream()));
                inner.set_span(group.span());
                TokenTree::Group(inner)
            }
            token => token,
        });
        tokens.collect()
    }

    fn tile_type(&mut self, name: &str, dtype: DType, args: &[syn::GenericArgument]) -> Type {
        if let ("Tile", [syn::GenericArgument::Type(syn::Type::Tuple(shape))]) = (name, args) {
            return Type::Shaped(dtype, shape.elems.iter().map(|e| self.extent_type(e)).collect());
        }
        let extents = args.iter().map(|arg| self.extent(arg));
        match (name, args) {
            ("Row", [_]) => {
                Type::Shaped(dtype, std::iter::once(Extent::Fixed(1)).chain(extents).collect())
            }
            ("Col", [_]) => Type::Shaped(dtype, extents.chain([Extent::Fixed(1)]).collect()),
            ("Tile", _) => Type::Tile(dtype),
            _ => Type::Shaped(dtype, extents.collect()),
        }
    }

    /// An extent as a const argument: `BM`, `128`, `{ BM / 2 }`.
    fn extent(&mut self, arg: &syn::GenericArgument) -> Extent {
        match arg {
            syn::GenericArgument::Type(syn::Type::Path(path)) => match path.path.get_ident() {
                Some(ident) if self.is_const(ident) => Extent::Const(ident.clone()),
                _ => Extent::Any,
            },
            syn::GenericArgument::Const(syn::Expr::Lit(syn::ExprLit {
                lit: syn::Lit::Int(int),
                ..
            })) => int.base10_parse().map_or(Extent::Any, Extent::Fixed),
            syn::GenericArgument::Const(expr) if self.mentions_const(expr) => {
                Extent::Computed(Box::new(self.const_value(expr)))
            }
            _ => Extent::Any,
        }
    }

    /// An extent as a type: `Dim<BM>`, `One`.
    fn extent_type(&mut self, ty: &syn::Type) -> Extent {
        let syn::Type::Path(path) = ty else { return Extent::Any };
        let Some(last) = path.path.segments.last() else { return Extent::Any };
        match (last.ident.to_string().as_str(), &generic_args(last)[..]) {
            ("One", []) => Extent::Fixed(1),
            ("Dim", [arg]) => self.extent(arg),
            _ => Extent::Any,
        }
    }

    /// The dtype a path names, if it names one.
    pub(crate) fn dtype(&self, path: &syn::Path) -> Option<DType> {
        let is_param = |ident: &Ident| {
            self.generics.iter().any(|g| matches!(g, Generic::DType { name, .. } if name == ident))
        };
        let segments: Vec<&syn::PathSegment> = path.segments.iter().collect();
        match segments[..] {
            [owner, acc] if acc.ident == "Acc" && is_param(&owner.ident) => {
                Some(DType::Sum(owner.ident.clone()))
            }
            [one] if is_param(&one.ident) => Some(DType::Param(one.ident.clone())),
            [_] => table::dtype(&path.get_ident()?.to_string()).map(DType::Fixed),
            _ => None,
        }
    }

    /// The dtype before the last name of a path, and that name: `T` and `ZERO` of `T::ZERO`.
    pub(crate) fn dtype_and_name<'p>(
        &self,
        path: &'p syn::Path,
    ) -> Option<(Typed, &'p syn::PathSegment)> {
        let mut owner = path.clone();
        owner.segments.pop();
        owner.segments.pop_punct();
        let dtype = self.dtype(&owner)?;
        let typed = Typed { ty: Type::Scalar(dtype), tokens: owner.to_token_stream() };
        Some((typed, path.segments.last()?))
    }

    fn dtype_arg(&self, arg: &syn::GenericArgument) -> Option<DType> {
        match arg {
            syn::GenericArgument::Type(syn::Type::Path(path)) => self.dtype(&path.path),
            _ => None,
        }
    }

    /// Whether `ident` is a const parameter.
    pub(crate) fn is_const(&self, ident: &Ident) -> bool {
        self.generics.iter().any(|g| matches!(g, Generic::Const { name, .. } if name == ident))
    }

    /// Whether it is a `const FLAG: bool`.
    pub(crate) fn is_flag(&self, ident: &Ident) -> bool {
        let is = |g: &Generic| matches!(g, Generic::Const { name, is_flag: true } if name == ident);
        self.generics.iter().any(is)
    }

    /// Whether `ident` is a shape parameter.
    pub(crate) fn is_shape(&self, ident: &Ident) -> bool {
        self.generics.iter().any(|g| matches!(g, Generic::Shape { name, .. } if name == ident))
    }

    /// A pattern, whose names come into scope.
    pub(crate) fn pattern(&mut self, pat: &syn::Pat) -> Pattern {
        match pat {
            syn::Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                self.declare(&ident.ident);
                Pattern::Name { ident: ident.ident.clone(), mutable: ident.mutability.is_some() }
            }
            syn::Pat::Wild(wild) => Pattern::Wild(wild.span()),
            syn::Pat::Paren(paren) => self.pattern(&paren.pat),
            syn::Pat::Tuple(tuple) if tuple.elems.len() > 1 => {
                Pattern::Tuple(tuple.elems.iter().map(|elem| self.pattern(elem)).collect())
            }
            other => {
                self.refuse(other, messages::PATTERN);
                Pattern::Wild(other.span())
            }
        }
    }

    fn declare(&mut self, ident: &Ident) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(ident.to_string());
        }
    }

    /// Whether a variable of this name is in scope.
    pub(crate) fn is_local(&self, ident: &Ident) -> bool {
        let name = ident.to_string();
        self.scopes.iter().any(|scope| scope.contains(&name))
    }
}

/// What is in an `Option`.
fn option_of(ty: &syn::Type) -> Option<&syn::Type> {
    let syn::Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let syn::PathArguments::AngleBracketed(args) = &last.arguments else { return None };
    match args.args.first() {
        Some(syn::GenericArgument::Type(inner)) if args.args.len() == 1 => Some(inner),
        _ => None,
    }
}

fn literal_rank(arg: &syn::GenericArgument) -> Option<u8> {
    let syn::GenericArgument::Const(syn::Expr::Lit(literal)) = arg else { return None };
    let syn::Lit::Int(int) = &literal.lit else { return None };
    int.base10_parse().ok().filter(|rank| (1..=5).contains(rank))
}

/// The text of doc comments, without the space that follows `///`.
fn doc_text(docs: &[syn::Attribute]) -> String {
    let lines: Vec<String> = docs
        .iter()
        .filter_map(|attr| match &attr.meta {
            syn::Meta::NameValue(pair) => Some(&pair.value),
            _ => None,
        })
        .filter_map(|value| match value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        })
        .map(|line| line.strip_prefix(' ').unwrap_or(&line).to_owned())
        .collect();
    lines.join("\n")
}
