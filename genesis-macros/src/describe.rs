//! The function as a value of `genesis_kernel::front::ast`: literals and references only, so that it
//! is data of the program and nothing runs before a kernel is specialised.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};

use crate::ast::{
    Binary, Block, Call, DType, Expr, ExprKind, Extent, Function, Generic, GenericArg, Iter, Param,
    Pattern, Place, Stmt, Type, Unary,
};
use crate::{shadow, table};

/// The constant that says of a kernel's optional parameter whether it is there, as the compiler of kernels knows it. No
/// name of the user's has a dot.
pub(crate) fn presence(param: &Param) -> Option<String> {
    match &param.pattern {
        Pattern::Name { ident, .. } if param.optional => Some(format!("{ident}.is_some")),
        _ => None,
    }
}

/// The kernel as an expression of type `FnAst`.
pub(crate) fn kernel(function: &Function) -> TokenStream {
    let names = const_names(function).chain(function.params.iter().filter_map(presence));
    if function.params.iter().all(|param| !matches!(param.typed.ty, Type::Struct { .. })) {
        let params = function.params.iter().map(param);
        return ast(function, &quote!(&[#(#names),*]), &quote!(&[#(#params),*]));
    }
    let names = const_names(function);
    let (fields, parts) = (quote!(::genesis_kernel::front::fields), parts(function));
    let consts = quote!({
        const N: usize = #fields::count_optional(PARTS);
        const NAMES: &[#fields::Name; N] = &#fields::presences(PARTS);
        const OWN: &[&str] = &[#(#names),*];
        const CONSTS: &[&str; OWN.len() + N] = &#fields::consts(OWN, NAMES);
        CONSTS
    });
    let params = quote!({
        const N: usize = #fields::count(PARTS);
        const NAMES: &[#fields::Name; N] = &#fields::names(PARTS);
        const PATTERNS: &[::genesis_kernel::front::ast::PatternAst; N] =
            &#fields::patterns(PARTS, NAMES);
        const PARAMS: &[::genesis_kernel::front::ast::ParamAst; N] = &#fields::params(PARTS, PATTERNS);
        PARAMS
    });
    let ast = ast(function, &consts, &params);
    quote!({
        const PARTS: &[#fields::Part] = &[#(#parts),*];
        #ast
    })
}

/// The device function as an expression of type `FnAst`.
pub(crate) fn function(function: &Function) -> TokenStream {
    let (names, params) = (const_names(function), function.params.iter().map(param));
    ast(function, &quote!(&[#(#names),*]), &quote!(&[#(#params),*]))
}

fn const_names(function: &Function) -> impl Iterator<Item = String> {
    function.generics.iter().filter_map(|generic| match generic {
        Generic::Const { name, .. } => Some(name.to_string()),
        _ => None,
    })
}

fn ast(function: &Function, consts: &TokenStream, params: &TokenStream) -> TokenStream {
    let name = function.name.to_string();
    let span = place(Place::token(function.name.span()));
    let doc = &function.doc;
    let dtypes = function.generics.iter().filter_map(dtype_param);
    let body = block(&function.body);
    let contract = function.contract;
    let ret = match &function.ret {
        Some(typed) => {
            let ty = ty(&typed.ty);
            quote!(::core::option::Option::Some(&#ty))
        }
        None => quote!(::core::option::Option::None),
    };
    quote! {
        ::genesis_kernel::front::ast::FnAst {
            name: #name,
            module: ::core::module_path!(),
            file: ::core::file!(),
            span: #span,
            doc: #doc,
            dtypes: &[#(#dtypes),*],
            consts: #consts,
            params: #params,
            body: &#body,
            contract: #contract,
            ret: #ret,
        }
    }
}

fn dtype_param(generic: &Generic) -> Option<TokenStream> {
    let Generic::DType { name, bound } = generic else { return None };
    let name = name.to_string();
    // The bound is one of four names that the enum has too; the span must not be the user's.
    let bound = Ident::new(&bound.to_string(), Span::call_site());
    Some(quote! {
        ::genesis_kernel::front::ast::DTypeParam {
            name: #name,
            bound: ::genesis_kernel::front::ast::DTypeBound::#bound,
        }
    })
}

/// The parameters of a kernel that takes structs: the program puts a struct's fields in place of the struct.
fn parts(function: &Function) -> Vec<TokenStream> {
    let fields = quote!(::genesis_kernel::front::fields);
    let part = |of: &Param| {
        let own = param(of);
        let Some(ty) = example_of(&function.generics, &of.typed.ty) else {
            return quote!(#fields::Part::One(#own));
        };
        let Type::Struct { dtypes, .. } = &of.typed.ty else { return quote!() };
        let (of, given) = (shadow::struct_of(&ty), dtypes.iter().map(dtype));
        quote!(#fields::Part::Fields { param: #own, ty: #of, given: &[#(#given),*] })
    };
    function.params.iter().map(part).collect()
}

/// A struct of parameters for some dtypes that the bounds allow, to ask it what its fields are: for `Affine<T>` of
/// `T: Float` it is `Affine<f32>`. All tokens have the span of the name, as those of a device function.
pub(crate) fn example_of(generics: &[Generic], ty: &Type) -> Option<TokenStream> {
    let Type::Struct { path, dtypes, rank } = ty else { return None };
    let span = shadow::name_span(path);
    let dtypes = dtypes.iter().map(|dtype| {
        let name = match dtype {
            DType::Fixed(variant) => variant.to_lowercase(),
            DType::Param(name) => example_dtype(generics, name).to_owned(),
            DType::Sum(name) => match example_dtype(generics, name) {
                "i8" | "i32" => "i32".to_owned(),
                _ => "f32".to_owned(),
            },
        };
        let name = Ident::new(&name, span);
        match name.to_string().as_str() {
            "f8e4m3" | "f8e5m2" | "f16" | "bf16" => {
                quote_spanned!(span => ::genesis_kernel::lang::#name)
            }
            _ => quote_spanned!(span => ::core::primitive::#name),
        }
    });
    let mut path = path.clone();
    let last = path.segments.last_mut()?;
    if !last.arguments.is_none() {
        let rank = rank.map(usize::from).into_iter();
        last.arguments =
            syn::PathArguments::AngleBracketed(syn::parse_quote!(<#(#dtypes,)* #(#rank),*>));
    }
    Some(quote!(#path))
}

/// A dtype that a bound accepts.
fn example_dtype(generics: &[Generic], name: &Ident) -> &'static str {
    let bound = generics.iter().find_map(|generic| match generic {
        Generic::DType { name: known, bound } if known == name => Some(bound.to_string()),
        _ => None,
    });
    match bound.as_deref() {
        Some("Int") => "i32",
        Some("Int8") => "i8",
        Some("Float8") => "f8e4m3",
        _ => "f32",
    }
}

pub(crate) fn param(param: &Param) -> TokenStream {
    let (span, pattern, ty) = (place(param.place), pattern(&param.pattern), ty(&param.typed.ty));
    let optional = param.optional;
    quote! {
        ::genesis_kernel::front::ast::ParamAst {
            span: #span, pattern: &#pattern, ty: #ty, optional: #optional,
        }
    }
}

/// Line and columns from 1.
fn place(place: Place) -> TokenStream {
    let (start, end) = (place.start.start(), place.end.end());
    let line = start.line as u32;
    let column = start.column as u32 + 1;
    let end_column = if end.line == start.line { end.column as u32 + 1 } else { column + 1 };
    quote! {
        ::genesis_kernel::front::ast::Span {
            line: #line, column: #column, end_column: #end_column,
        }
    }
}

fn dtype(dtype: &DType) -> TokenStream {
    match dtype {
        DType::Fixed(variant) => {
            let variant = Ident::new(variant, Span::call_site());
            quote!(::genesis_kernel::front::ast::DTypeAst::Fixed(::genesis_kernel::ir::DType::#variant))
        }
        DType::Param(name) => {
            let name = name.to_string();
            quote!(::genesis_kernel::front::ast::DTypeAst::Param(#name))
        }
        DType::Sum(name) => {
            let name = name.to_string();
            quote!(::genesis_kernel::front::ast::DTypeAst::Sum(#name))
        }
    }
}

fn ty(kind: &Type) -> TokenStream {
    let body = match kind {
        Type::Scalar(scalar) => {
            let dtype = dtype(scalar);
            quote!(Scalar(#dtype))
        }
        Type::Ptr { dtype: element, mutable } => {
            let dtype = dtype(element);
            quote!(Ptr { dtype: #dtype, mutable: #mutable })
        }
        Type::View { dtype: element, rank, mutable } => {
            let dtype = dtype(element);
            quote!(View { dtype: #dtype, rank: #rank, mutable: #mutable })
        }
        Type::Tile(element) => {
            let dtype = dtype(element);
            quote!(Tile(#dtype))
        }
        Type::Shaped(element, extents) => {
            let (dtype, extents) = (dtype(element), extents.iter().map(extent));
            quote!(Shaped(#dtype, &[#(#extents),*]))
        }
        Type::Tuple(parts) => {
            let parts = parts.iter().map(ty);
            quote!(Tuple(&[#(#parts),*]))
        }
        // What its fields are, the argument of a device function says.
        Type::Struct { .. } | Type::Inferred => quote!(Inferred),
    };
    quote!(::genesis_kernel::front::ast::TypeAst::#body)
}

fn extent(extent: &Extent) -> TokenStream {
    let body = match extent {
        Extent::Const(name) => {
            let name = name.to_string();
            quote!(Const(#name))
        }
        Extent::Fixed(n) => quote!(Fixed(#n)),
        Extent::Computed(value) => {
            let value = expr(value);
            quote!(Computed(&#value))
        }
        Extent::Any => quote!(Any),
    };
    quote!(::genesis_kernel::front::ast::ExtentAst::#body)
}

fn pattern(kind: &Pattern) -> TokenStream {
    let body = match kind {
        Pattern::Name { ident, .. } => {
            let name = ident.to_string();
            quote!(Name(#name))
        }
        Pattern::Wild(_) => quote!(Wild),
        Pattern::Tuple(parts) => {
            let parts = parts.iter().map(pattern);
            quote!(Tuple(&[#(#parts),*]))
        }
    };
    quote!(::genesis_kernel::front::ast::PatternAst::#body)
}

fn block(block: &Block) -> TokenStream {
    let stmts = block.stmts.iter().map(stmt);
    let value = optional(block.value.as_deref());
    quote! {
        ::genesis_kernel::front::ast::BlockAst { stmts: &[#(#stmts),*], value: #value }
    }
}

fn optional(value: Option<&Expr>) -> TokenStream {
    match value {
        Some(value) => {
            let value = expr(value);
            quote!(::core::option::Option::Some(&#value))
        }
        None => quote!(::core::option::Option::None),
    }
}

fn stmt(stmt: &Stmt) -> TokenStream {
    let body = match stmt {
        Stmt::Let { pattern: names, typed, value, place: at } => {
            let (names, value, span) = (pattern(names), expr(value), place(*at));
            let ty = match typed {
                Some(typed) => {
                    let ty = ty(&typed.ty);
                    quote!(::core::option::Option::Some(&#ty))
                }
                None => quote!(::core::option::Option::None),
            };
            quote!(Let { pattern: &#names, ty: #ty, value: &#value, span: #span })
        }
        Stmt::Assign { pattern: names, value, place: at } => {
            let (names, value, span) = (pattern(names), expr(value), place(*at));
            quote!(Assign { pattern: &#names, value: &#value, span: #span })
        }
        Stmt::For { pattern: names, iter: over, body, place: at } => {
            let (names, over, body, span) = (pattern(names), iter(over), block(body), place(*at));
            quote!(For { pattern: &#names, iter: &#over, body: &#body, span: #span })
        }
        Stmt::While { cond, body, place: at } => {
            let (cond, body, span) = (expr(cond), block(body), place(*at));
            quote!(While { cond: &#cond, body: &#body, span: #span })
        }
        Stmt::Return { value, place: at } => {
            let (value, span) = (optional(value.as_ref()), place(*at));
            quote!(Return { value: #value, span: #span })
        }
        Stmt::Expr(value) => {
            let value = expr(value);
            quote!(Expr(&#value))
        }
    };
    quote!(::genesis_kernel::front::ast::StmtAst::#body)
}

fn iter(iter: &Iter) -> TokenStream {
    let body = match iter {
        Iter::Range { start, end, step, stages, unroll, is_static, .. } => {
            let (start, end, step) = (expr(start), expr(end), optional(step.as_ref()));
            quote! {
                Range {
                    start: &#start, end: &#end, step: #step,
                    stages: #stages, unroll: #unroll, is_static: #is_static,
                }
            }
        }
        Iter::Persistent { total, .. } => {
            let total = expr(total);
            quote!(Persistent(&#total))
        }
    };
    quote!(::genesis_kernel::front::ast::IterAst::#body)
}

fn expr(value: &Expr) -> TokenStream {
    let (span, kind) = (place(value.place), kind(&value.kind));
    quote! {
        ::genesis_kernel::front::ast::ExprAst {
            span: #span, kind: ::genesis_kernel::front::ast::ExprKind::#kind,
        }
    }
}

fn exprs(values: &[Expr]) -> TokenStream {
    let values = values.iter().map(expr);
    quote!(&[#(#values),*])
}

fn kind(kind: &ExprKind) -> TokenStream {
    match kind {
        ExprKind::Int(literal, value) => {
            let suffix = suffix(literal.suffix());
            quote!(Int(#value, #suffix))
        }
        ExprKind::Float(literal, value) => {
            let suffix = suffix(literal.suffix());
            quote!(Float(#value, #suffix))
        }
        ExprKind::Bool(value, _) => quote!(Bool(#value)),
        ExprKind::Local(name) | ExprKind::ConstParam(name) => {
            let name = name.to_string();
            quote!(Name(#name))
        }
        ExprKind::Flag(name) => flag(name),
        ExprKind::Constant(path) => {
            quote!(Constant(|| ::genesis_kernel::front::ast::ConstValue::from(#path)))
        }
        ExprKind::DTypeConst { dtype, name, .. } => {
            let (dtype, name) = (scalar_dtype(&dtype.ty), name.to_string());
            quote!(DTypeConst(#dtype, #name))
        }
        ExprKind::From { dtype, value, .. } => {
            let (dtype, value) = (scalar_dtype(&dtype.ty), expr(value));
            quote!(From(#dtype, &#value))
        }
        ExprKind::As { value, dtype, .. } => {
            let (value, dtype) = (expr(value), scalar_dtype(&dtype.ty));
            quote!(As(&#value, #dtype))
        }
        ExprKind::Unary { op, operand, .. } => {
            let operand = expr(operand);
            match op {
                Unary::Neg => quote!(Neg(&#operand)),
                Unary::Not => quote!(Not(&#operand)),
            }
        }
        ExprKind::Binary { op, left, right, .. } => binary(*op, left, right),
        ExprKind::If { cond, then, otherwise, .. } => branch(cond, then, otherwise.as_ref()),
        ExprKind::IfSome { pattern: inner, value, then, otherwise, .. } => {
            let (inner, value, then) = (pattern(inner), expr(value), block(then));
            let otherwise = optional_block(otherwise.as_ref());
            quote! {
                IfSome {
                    pattern: &#inner, value: &#value, then: &#then, otherwise: #otherwise,
                }
            }
        }
        ExprKind::Block(body) => {
            let body = block(body);
            quote!(Block(&#body))
        }
        // A refusal is on its way: this is never read.
        ExprKind::Refused => quote!(Bool(false)),
        other => parts_kind(other),
    }
}

/// What is made of parts, and the parts of it.
fn parts_kind(kind: &ExprKind) -> TokenStream {
    match kind {
        ExprKind::Tuple(parts) => {
            let parts = exprs(parts);
            quote!(Tuple(#parts))
        }
        ExprKind::Array(parts) => {
            let parts = exprs(parts);
            quote!(Array(#parts))
        }
        ExprKind::Field { base, index, .. } => {
            let base = expr(base);
            quote!(Field(&#base, #index))
        }
        ExprKind::Member { base, name } => {
            let (base, name) = (expr(base), name.to_string());
            quote!(Member(&#base, #name))
        }
        call => call_kind(call),
    }
}

/// A constant that is true or false: the front end keeps constants as integers.
fn flag(name: &Ident) -> TokenStream {
    let (name, span) = (name.to_string(), place(Place::token(name.span())));
    let side = |kind| {
        quote! {
            ::genesis_kernel::front::ast::ExprAst {
                span: #span, kind: ::genesis_kernel::front::ast::ExprKind::#kind,
            }
        }
    };
    let (flag, zero) =
        (side(quote!(Name(#name))), side(quote!(Int(0, ::core::option::Option::None))));
    quote!(Compare(::genesis_kernel::ir::Predicate::Ne, &#flag, &#zero))
}

fn binary(op: Binary, left: &Expr, right: &Expr) -> TokenStream {
    let (left, right) = (expr(left), expr(right));
    match op {
        Binary::Arithmetic(name, _) => {
            let name = Ident::new(name, Span::call_site());
            quote!(Binary(::genesis_kernel::ir::BinaryOp::#name, &#left, &#right))
        }
        Binary::Compare(name, _) => {
            let name = Ident::new(name, Span::call_site());
            quote!(Compare(::genesis_kernel::ir::Predicate::#name, &#left, &#right))
        }
        Binary::AndThen => quote!(AndThen(&#left, &#right)),
        Binary::OrElse => quote!(OrElse(&#left, &#right)),
    }
}

fn branch(cond: &Expr, then: &Block, otherwise: Option<&Block>) -> TokenStream {
    let (cond, then, otherwise) = (expr(cond), block(then), optional_block(otherwise));
    quote!(If { cond: &#cond, then: &#then, otherwise: #otherwise })
}

fn optional_block(value: Option<&Block>) -> TokenStream {
    match value {
        Some(value) => {
            let value = block(value);
            quote!(::core::option::Option::Some(&#value))
        }
        None => quote!(::core::option::Option::None),
    }
}

fn call_kind(kind: &ExprKind) -> TokenStream {
    match kind {
        ExprKind::Builtin(call) if table::is_library(&call.name.to_string()) => {
            let (_, generics, args) = call_parts(call);
            let callee = device(&library(&call.name));
            quote!(Device { callee: #callee, generics: #generics, args: #args })
        }
        ExprKind::Builtin(call) => {
            let (name, generics, args) = call_parts(call);
            quote!(Builtin { name: #name, generics: #generics, args: #args })
        }
        ExprKind::Method { receiver, call } => {
            let receiver = expr(receiver);
            let (name, generics, args) = call_parts(call);
            quote!(Method { receiver: &#receiver, name: #name, generics: #generics, args: #args })
        }
        ExprKind::Device { path, generics: given, args } => {
            let (callee, generics, args) = (device(path), generics(given), exprs(args));
            quote!(Device { callee: #callee, generics: #generics, args: #args })
        }
        ExprKind::DeviceRef(path) => {
            let callee = device(path);
            quote!(DeviceRef(#callee))
        }
        ExprKind::Print { format, args, .. } => {
            let args = exprs(args);
            quote!(Print(#format, #args))
        }
        ExprKind::Asm { text, constraints, pack, args, .. } => {
            let args = exprs(args);
            quote!(Asm(#text, #constraints, #pack, #args))
        }
        ExprKind::Assert { cond, message, is_static, .. } => {
            let cond = expr(cond);
            if *is_static {
                quote!(StaticAssert(&#cond, #message))
            } else {
                quote!(Assert(&#cond, #message))
            }
        }
        // `kind` has an arm for all others.
        _ => quote!(Bool(false)),
    }
}

/// The device function that a function of the language is, which is written in it.
fn library(name: &Ident) -> syn::Path {
    let function = Ident::new(&format!("{name}_of"), name.span());
    syn::parse_quote!(::genesis_kernel::lang::library::#function)
}

fn call_parts(call: &Call) -> (String, TokenStream, TokenStream) {
    (call.name.to_string(), generics(&call.generics), exprs(&call.args))
}

/// The function a path names, as a reference. A constant of its own, since only those may be part of
/// a larger constant by reference.
fn device(path: &syn::Path) -> TokenStream {
    let function = shadow::device_function(path);
    let span = shadow::name_span(path);
    // rustc names this constant at this place where functions call each other in a circle.
    let name = path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
    let constant = Ident::new(&format!("{name}_is_inlined_here"), span);
    let function = quote_spanned!(span => #function.ast());
    quote_spanned!(span => {
        const #constant: &'static ::genesis_kernel::front::ast::FnAst = #function;
        #constant
    })
}

fn generics(args: &[GenericArg]) -> TokenStream {
    let args = args.iter().map(|arg| match arg {
        GenericArg::DType(typed) => {
            let ty = ty(&typed.ty);
            quote!(::genesis_kernel::front::ast::GenericAst::Type(#ty))
        }
        GenericArg::Const { value, .. } => {
            let value = expr(value);
            quote!(::genesis_kernel::front::ast::GenericAst::Const(&#value))
        }
        GenericArg::Order(name) => {
            let name = Ident::new(name, Span::call_site());
            quote!(::genesis_kernel::front::ast::GenericAst::Order(::genesis_kernel::ir::MemoryOrder::#name))
        }
        GenericArg::Scope(name) => {
            let name = Ident::new(name, Span::call_site());
            quote!(::genesis_kernel::front::ast::GenericAst::Scope(::genesis_kernel::ir::MemoryScope::#name))
        }
        GenericArg::Other(_) => quote! {
            ::genesis_kernel::front::ast::GenericAst::Type(
                ::genesis_kernel::front::ast::TypeAst::Inferred,
            )
        },
    });
    quote!(&[#(#args),*])
}

fn suffix(suffix: &str) -> TokenStream {
    match table::dtype(suffix) {
        Some(variant) => {
            let variant = Ident::new(variant, Span::call_site());
            quote!(::core::option::Option::Some(::genesis_kernel::ir::DType::#variant))
        }
        None => quote!(::core::option::Option::None),
    }
}

/// The dtype of a scalar type; what else there is was refused.
fn scalar_dtype(ty: &Type) -> TokenStream {
    match ty {
        Type::Scalar(scalar) => dtype(scalar),
        _ => dtype(&DType::Fixed("F32")).to_token_stream(),
    }
}
