//! The function as Rust that rustc type-checks and never runs.
//!
//! It is the user's body with what Rust can't say replaced by calls of `genesis_kernel::lang`, every
//! token at the place of the user's: operators and comparisons become functions (`<` can't give a
//! tile, and an operator of a `T` with a tile of `T` can't be declared), conditions go through a
//! function that wants a scalar, axes become const arguments, const parameters `i64`.
//!
//! `x + 1` with `x` of dtype `T`: a literal operand becomes `IntLiteral` or `FloatLiteral`, which go
//! with every dtype, as Rust's own literals would not.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};

use crate::ast::{
    Binary, Block, Call, DType, Expr, ExprKind, Generic, GenericArg, Iter, Param, Pattern, Place,
    Stmt, Type, Typed, Unary, generic_args,
};
use crate::calls::is_untyped_literal;
use crate::table::{self, Generics};

/// Generic parameters as declared, with the user's tokens.
pub(crate) fn generics(generics: &[Generic]) -> TokenStream {
    let params = generics.iter().map(|generic| match generic {
        Generic::DType { name, bound } | Generic::Shape { name, bound } => {
            quote_spanned!(name.span() => #name: ::genesis_kernel::lang::#bound)
        }
        Generic::Const { name, is_flag } => {
            let ty = const_type(*is_flag);
            quote_spanned!(name.span() => const #name: #ty)
        }
    });
    quote!(#(#params),*)
}

/// The type of a const parameter.
pub(crate) fn const_type(is_flag: bool) -> TokenStream {
    if is_flag { quote!(bool) } else { quote!(usize) }
}

/// Parameters as declared.
pub(crate) fn params(params: &[Param]) -> TokenStream {
    let params = params.iter().map(|param| {
        let (pattern, ty) = (pattern(&param.pattern), &param.typed.tokens);
        quote!(#pattern: #ty)
    });
    quote!(#(#params),*)
}

fn pattern(kind: &Pattern) -> TokenStream {
    match kind {
        Pattern::Name { ident, mutable: true } => quote_spanned!(ident.span() => mut #ident),
        Pattern::Name { ident, mutable: false } => quote!(#ident),
        Pattern::Wild(span) => quote_spanned!(*span => _),
        Pattern::Tuple(parts) => {
            let parts = parts.iter().map(pattern);
            quote!((#(#parts),*))
        }
    }
}

/// Parameters of a device function as a call of it is typed: a scalar is whatever is one of its dtype, so that a
/// tile there is refused in words about scalars and tiles, and a tile of any shape may be a scalar.
pub(crate) fn device_params(params: &[Param], shapes: &[&Ident]) -> TokenStream {
    let params = params.iter().map(|param| {
        let (pattern, ty) = (pattern(&param.pattern), &param.typed.tokens);
        let ty = match (&param.pattern, &param.typed.ty) {
            (Pattern::Name { .. }, Type::Scalar(_)) if !param.optional => {
                quote!(impl ::genesis_kernel::lang::Argument<#ty>)
            }
            _ => replace_tiles(
                ty,
                shapes,
                &|dtype, shape| quote!(impl ::genesis_kernel::lang::OfShape<#dtype, #shape>),
            ),
        };
        quote!(#pattern: #ty)
    });
    quote!(#(#params),*)
}

/// What a call of a device function gives: of shape `S` a tile, or the number itself where `S` is `()`.
pub(crate) fn device_result(ty: &TokenStream, shapes: &[&Ident]) -> TokenStream {
    replace_tiles(
        ty,
        shapes,
        &|dtype, shape| quote!(<#shape as ::genesis_kernel::lang::Shape>::Of<#dtype>),
    )
}

/// A type whose tiles have no axes: `(Tile<f32, S>, i64)` as `(f32, i64)`.
pub(crate) fn of_scalars(ty: &TokenStream, shapes: &[&Ident]) -> TokenStream {
    replace_tiles(ty, shapes, &|dtype, _| dtype.clone())
}

/// A type with another one for each `Tile<T, S>` in it where `S` is one of the `shapes`.
fn replace_tiles(
    ty: &TokenStream,
    shapes: &[&Ident],
    other: &dyn Fn(&TokenStream, &Ident) -> TokenStream,
) -> TokenStream {
    match syn::parse2(ty.clone()) {
        Ok(syn::Type::Tuple(tuple)) => {
            let parts = tuple.elems.iter();
            let parts = parts.map(|ty| replace_tiles(&ty.to_token_stream(), shapes, other));
            quote!((#(#parts,)*))
        }
        Ok(syn::Type::Paren(inner)) => replace_tiles(&inner.elem.to_token_stream(), shapes, other),
        Ok(syn::Type::Path(path)) => {
            let last = path.path.segments.last().filter(|last| last.ident == "Tile");
            let args = last.map(generic_args).unwrap_or_default();
            match &args[..] {
                [dtype, syn::GenericArgument::Type(syn::Type::Path(shape))] => {
                    let shape = shapes.iter().find(|known| shape.path.is_ident(**known));
                    shape.map_or_else(|| ty.clone(), |shape| other(&dtype.to_token_stream(), shape))
                }
                _ => ty.clone(),
            }
        }
        _ => ty.clone(),
    }
}

/// A type for each shape parameter of a device function, by its name, that the function's body is typed with: it has
/// what every shape has and nothing else, and is known, so that what has this shape is known to be a tile.
pub(crate) fn any_shapes(shapes: &[&Ident]) -> TokenStream {
    let shapes = shapes.iter().map(|name| {
        quote! {
            #[derive(Clone, Copy)]
            #[allow(dead_code, non_camel_case_types, reason = "named as the parameter is")]
            struct #name {}
            impl ::genesis_kernel::lang::Shape for #name {
                type Of<T: ::core::marker::Copy> = ::genesis_kernel::lang::Tile<T, #name>;
            }
            impl ::genesis_kernel::lang::Broadcast<#name> for #name {
                type Out = #name;
            }
            impl ::genesis_kernel::lang::Broadcast<()> for #name {
                type Out = #name;
            }
            impl ::genesis_kernel::lang::Wider<#name> for #name {}
        }
    });
    quote!(#(#shapes)*)
}

/// A block in braces.
pub(crate) fn block(block: &Block) -> TokenStream {
    let stmts = block.stmts.iter().map(stmt);
    let value = block.value.as_deref().map(expr);
    let mut group = Group::new(Delimiter::Brace, quote!(#(#stmts)* #value));
    group.set_span(block.span);
    TokenTree::Group(group).into()
}

fn stmt(stmt: &Stmt) -> TokenStream {
    match stmt {
        Stmt::Let { pattern: names, typed, value, place } => {
            let (names, value) = (pattern(names), typed_value(typed.as_ref(), value));
            let ty = typed.as_ref().map(|typed| {
                let tokens = &typed.tokens;
                quote_spanned!(place.start => : #tokens)
            });
            quote_spanned!(place.start => let #names #ty = #value;)
        }
        Stmt::Assign { pattern: names, value, place } => {
            let (names, value) = (pattern(names), expr(value));
            quote_spanned!(place.start => #names = #value;)
        }
        Stmt::For { pattern: names, iter: over, body, place } => {
            let (names, over, body) = (pattern(names), iter(over), block(body));
            quote_spanned!(place.start => for #names in #over #body)
        }
        Stmt::While { cond, body, place } => {
            let (cond, body) = (condition(cond), block(body));
            quote_spanned!(place.start => while #cond #body)
        }
        Stmt::Return { place, .. } => quote_spanned!(place.start => return;),
        Stmt::Expr(value) => {
            let (span, value) = (value.place.end, expr(value));
            quote_spanned!(span => #value;)
        }
    }
}

/// The value of a `let`: in `let x: T = 0.0` the literal takes a dtype that is a parameter.
fn typed_value(typed: Option<&Typed>, value: &Expr) -> TokenStream {
    match typed {
        Some(Typed { ty: Type::Scalar(DType::Param(_) | DType::Sum(_)), tokens })
            if is_untyped_literal(value) =>
        {
            let (span, literal) = (value.place.start, operand(value));
            quote_spanned!(span => ::genesis_kernel::lang::from::<#tokens, _>(#literal))
        }
        _ => expr(value),
    }
}

fn iter(iter: &Iter) -> TokenStream {
    match iter {
        Iter::Range { start, end, step, span, is_static, .. } => {
            let (start, end) = (expr(start), expr(end));
            let step = step.as_ref().map_or_else(|| quote_spanned!(*span => 1), expr);
            let range = if *is_static { "static_range" } else { "range" };
            let range = Ident::new(range, *span);
            quote_spanned!(*span => ::genesis_kernel::lang::#range(#start, #end, #step))
        }
        Iter::Persistent { total, span } => {
            let total = expr(total);
            quote_spanned!(*span => ::genesis_kernel::lang::persistent(#total))
        }
    }
}

/// A condition of `if` or `while`, which must be a scalar.
fn condition(cond: &Expr) -> TokenStream {
    call_function(quote!(lang::condition), cond.place, std::slice::from_ref(&expr(cond)))
}

/// `::genesis_kernel::path(args)`, all of it at `place`, so that rustc underlines what the user
/// wrote.
fn call_function(path: TokenStream, place: Place, args: &[TokenStream]) -> TokenStream {
    let path = respan(quote!(::genesis_kernel::#path), place.start);
    let args = quote_spanned!(place.start => #(#args),*);
    let mut group = Group::new(Delimiter::Parenthesis, args);
    group.set_span(place.end);
    quote!(#path #group)
}

fn respan(tokens: TokenStream, span: Span) -> TokenStream {
    tokens
        .into_iter()
        .map(|mut token| {
            token.set_span(span);
            token
        })
        .collect()
}

/// An expression.
pub(crate) fn expr(value: &Expr) -> TokenStream {
    match &value.kind {
        ExprKind::Int(literal, _) => literal.to_token_stream(),
        ExprKind::Float(literal, _) => literal.to_token_stream(),
        ExprKind::Bool(value, span) => {
            let ident = Ident::new(if *value { "true" } else { "false" }, *span);
            quote!(#ident)
        }
        ExprKind::Local(name) | ExprKind::Flag(name) => quote!(#name),
        ExprKind::ConstParam(name) => {
            call_function(quote!(lang::constant), value.place, &[quote!(#name)])
        }
        ExprKind::Constant(path) => {
            call_function(quote!(lang::rust_constant), value.place, &[quote!(#path)])
        }
        ExprKind::DTypeConst { dtype, trait_name, name } => {
            let (dtype, owner) = (&dtype.tokens, Ident::new(trait_name, name.span()));
            quote_spanned!(name.span() => <#dtype as ::genesis_kernel::lang::#owner>::#name)
        }
        ExprKind::From { dtype, value: inner, span } => {
            let (dtype, inner) = (&dtype.tokens, operand(inner));
            quote_spanned!(*span => ::genesis_kernel::lang::from::<#dtype, _>(#inner))
        }
        ExprKind::As { value: inner, dtype, span } => {
            let (dtype, inner) = (&dtype.tokens, expr(inner));
            quote_spanned!(*span => ::genesis_kernel::lang::as_::<#dtype, _>(#inner))
        }
        ExprKind::Unary { op, operand, .. } => unary(*op, operand, value.place),
        ExprKind::Binary { op, left, right, span } => binary(*op, left, right, value.place, *span),
        ExprKind::Tuple(parts) => list(Delimiter::Parenthesis, parts, value.place),
        ExprKind::Array(parts) => list(Delimiter::Bracket, parts, value.place),
        ExprKind::Field { base, index, span } => {
            let base = expr(base);
            let index = syn::Index { index: *index, span: *span };
            quote_spanned!(*span => (#base).#index)
        }
        ExprKind::Member { base, name } => {
            let base = expr(base);
            quote_spanned!(name.span() => (#base).#name)
        }
        ExprKind::If { cond, then, otherwise, span } => {
            let (cond, then) = (condition(cond), block(then));
            let otherwise = otherwise.as_ref().map(|otherwise| {
                let otherwise = block(otherwise);
                quote_spanned!(*span => else #otherwise)
            });
            quote_spanned!(*span => if #cond #then #otherwise)
        }
        ExprKind::IfSome { pattern: inner, value, then, otherwise, span } => {
            let (inner, value, then) = (pattern(inner), expr(value), block(then));
            let otherwise = otherwise.as_ref().map(|otherwise| {
                let otherwise = block(otherwise);
                quote_spanned!(*span => else #otherwise)
            });
            let some = quote_spanned!(*span => ::core::option::Option::Some);
            quote_spanned!(*span => if let #some(#inner) = #value #then #otherwise)
        }
        ExprKind::Block(body) => block(body),
        ExprKind::Refused => quote!(::genesis_kernel::lang::refused()),
        call => call_expr(call),
    }
}

/// A tuple or an array.
fn list(delimiter: Delimiter, parts: &[Expr], place: Place) -> TokenStream {
    let parts = parts.iter().map(expr);
    let mut group = Group::new(delimiter, quote_spanned!(place.start => #(#parts,)*));
    group.set_span(place.start);
    TokenTree::Group(group).into()
}

/// The span of the name that a path ends in.
pub(crate) fn name_span(path: &syn::Path) -> Span {
    path.segments.last().map_or_else(Span::call_site, |segment| segment.ident.span())
}

/// The device function that a path names. All tokens have the span of the name, so that rustc says of
/// a wrong one the same wherever this stands, and prints it once.
pub(crate) fn device_function(path: &syn::Path) -> TokenStream {
    quote_spanned!(name_span(path) => ::genesis_kernel::lang::device_function(#path))
}

/// Whether the device function that a path names does what nothing checks, with the same spans.
pub(crate) fn is_unchecked(path: &syn::Path) -> TokenStream {
    quote_spanned!(name_span(path) => ::genesis_kernel::lang::is_unchecked(#path))
}

/// What the struct is, that a type for some dtypes says; the spans are the type's, as above.
pub(crate) fn struct_of(ty: &TokenStream) -> TokenStream {
    let span = ty.clone().into_iter().next().map_or_else(Span::call_site, |token| token.span());
    quote_spanned!(span => ::genesis_kernel::lang::struct_of::<#ty>())
}

fn call_expr(kind: &ExprKind) -> TokenStream {
    match kind {
        ExprKind::Builtin(call) => builtin(call),
        ExprKind::Method { receiver, call } => method(receiver, call),
        ExprKind::Device { path, generics, args } => {
            let span = name_span(path);
            let args = args.iter().map(expr);
            let generics =
                turbofish(&generics.iter().map(generic_tokens).collect::<Vec<_>>(), span);
            let function = device_function(path);
            quote_spanned!(span => #function.call #generics (#(#args),*))
        }
        ExprKind::DeviceRef(path) => device_function(path),
        ExprKind::Print { args, span, .. } => {
            let args = args.iter().map(expr);
            quote_spanned!(*span => { #(::genesis_kernel::lang::print(#args);)* })
        }
        ExprKind::Asm { args, span, .. } => {
            let args: Vec<TokenStream> = args.iter().map(expr).collect();
            let (value, inputs) = args.split_last().map_or((None, &[][..]), |(v, i)| (Some(v), i));
            quote_spanned!(*span => ::genesis_kernel::lang::inline_asm((#(#inputs,)*), #value))
        }
        ExprKind::Assert { cond, span, is_static, .. } => {
            let cond = expr(cond);
            let name = if *is_static { "static_assert" } else { "device_assert" };
            let name = Ident::new(name, *span);
            quote_spanned!(*span => ::genesis_kernel::lang::#name(#cond))
        }
        // `expr` has an arm for all others.
        _ => quote!(::genesis_kernel::lang::refused()),
    }
}

fn turbofish(args: &[TokenStream], span: Span) -> TokenStream {
    if args.is_empty() { TokenStream::new() } else { quote_spanned!(span => ::<#(#args),*>) }
}

fn generic_tokens(arg: &GenericArg) -> TokenStream {
    match arg {
        GenericArg::DType(typed) => typed.tokens.clone(),
        GenericArg::Const { tokens, .. } | GenericArg::Other(tokens) => tokens.clone(),
        // Nothing is typed by them.
        GenericArg::Order(_) | GenericArg::Scope(_) => TokenStream::new(),
    }
}

/// The extents of a tile as a type: `(Dim<M>, One)`.
fn shape(args: &[GenericArg], span: Span) -> TokenStream {
    if let [GenericArg::Other(tokens)] = args {
        return tokens.clone();
    }
    let extents = args.iter().map(|arg| match arg {
        GenericArg::Const { value: Expr { kind: ExprKind::Int(_, 1), .. }, .. } => {
            quote_spanned!(span => ::genesis_kernel::lang::One)
        }
        other => {
            let tokens = generic_tokens(other);
            quote_spanned!(span => ::genesis_kernel::lang::Dim<#tokens>)
        }
    });
    quote_spanned!(span => (#(#extents,)*))
}

/// What stands in `::<..>` of a call of the language, where it has anything there.
fn language_generics(kind: Generics, args: &[GenericArg], span: Span) -> Vec<TokenStream> {
    match (kind, args) {
        (Generics::Extents, args) => vec![shape(args, span)],
        (Generics::DTypeExtents, [dtype, extents @ ..]) => {
            vec![generic_tokens(dtype), shape(extents, span)]
        }
        (Generics::Ordering, _) => Vec::new(),
        (_, args) => args.iter().map(generic_tokens).collect(),
    }
}

/// The arguments that stay arguments, and the axis or order as const arguments.
struct Arguments {
    generics: Vec<TokenStream>,
    values: Vec<TokenStream>,
}

fn arguments(signature: &table::Signature, call: &Call) -> Arguments {
    let mut generics = language_generics(signature.generics, &call.generics, call.name.span());
    let mut values = Vec::new();
    for (index, arg) in call.args.iter().enumerate() {
        let is_axis = signature.axis() == Some(index);
        if is_untyped_flag(signature.args[index]) {
            continue;
        }
        if is_axis {
            generics.push(axis(arg));
        } else if signature.args[index] == "order" {
            generics.push(order(arg));
        } else if signature.takes_literal(index) {
            values.push(operand(arg));
        } else {
            values.push(expr(arg));
        }
    }
    Arguments { generics, values }
}

fn axis(arg: &Expr) -> TokenStream {
    match &arg.kind {
        ExprKind::Int(_, axis) => {
            let mut literal = proc_macro2::Literal::usize_unsuffixed(*axis as usize);
            literal.set_span(arg.place.start);
            quote!(#literal)
        }
        _ => quote!(0),
    }
}

fn order(arg: &Expr) -> TokenStream {
    let ExprKind::Array(axes) = &arg.kind else { return quote!(()) };
    let axes = axes.iter().map(|arg| {
        let axis = axis(arg);
        quote_spanned!(arg.place.start => ::genesis_kernel::lang::Axis<#axis>)
    });
    quote_spanned!(arg.place.start => (#(#axes,)*))
}

fn builtin(call: &Call) -> TokenStream {
    let Some(signature) = table::function(&call.name.to_string()) else {
        return quote!(::genesis_kernel::lang::refused());
    };
    let arguments = arguments(signature, call);
    let mut generics = arguments.generics;
    if !generics.is_empty() {
        // The other parameters are those of the values.
        let span = call.name.span();
        generics.extend((0..inferred(call, signature)).map(|_| quote_spanned!(span => _)));
    }
    let name = variant(call, signature);
    let span = call.name.span();
    let generics = turbofish(&generics, span);
    let path = quote_spanned!(span => ::genesis_kernel::lang::functions::#name);
    let mut values = arguments.values;
    let parens = Place { start: span, end: call.parens };
    let sides =
        |values: &[TokenStream]| call_function(quote!(lang::operators::sides), parens, values);
    if signature.args == ["a", "b"] && name != "join" {
        values = vec![sides(&values)];
    } else if let ("where_", [cond, a, b]) = (signature.name, &values[..]) {
        values = vec![sides(&[cond.clone(), sides(&[a.clone(), b.clone()])])];
    }
    let mut group = Group::new(Delimiter::Parenthesis, quote!(#(#values),*));
    group.set_span(call.parens);
    quote!(#path #generics #group)
}

/// How many type parameters of a function follow the ones a call gives: one for each value.
fn inferred(call: &Call, signature: &table::Signature) -> usize {
    let values = signature.args.iter().take(call.args.len());
    let is_value =
        |arg: &&&str| !matches!(**arg, "axis" | "order" | "reverse") && !is_untyped_flag(arg);
    values.filter(is_value).count()
}

/// Whether an argument is a flag that its function is not typed with: another function is, or none need be.
fn is_untyped_flag(arg: &str) -> bool {
    matches!(arg, "keep" | "descending")
}

/// Whether a reduction keeps its axis.
fn keeps_axis(call: &Call) -> bool {
    matches!(call.args.get(2), Some(Expr { kind: ExprKind::Bool(true, _), .. }))
}

/// The function that types this number of arguments.
fn variant(call: &Call, signature: &table::Signature) -> Ident {
    let name = call.name.to_string();
    let suffix = match (name.as_str(), call.args.len()) {
        ("load" | "load_once" | "load_kept", 2) => "_masked",
        ("load" | "load_once" | "load_kept", 3) => "_or",
        ("store" | "store_once" | "store_kept", 3) => "_masked",
        ("cumsum" | "cumprod", 3) | ("associative_scan", 4) => "_reverse",
        ("dot" | "dot_tf32" | "dot_tf32x3" | "fast_dot", 2) => "_new",
        ("randint", 4) => "_between",
        (_, 3) if signature.args.last() == Some(&"keep") && keeps_axis(call) => "_kept",
        ("atomic_cas", 4) => "_masked",
        (atomic, 3) if atomic.starts_with("atomic_") && atomic != "atomic_cas" => "_masked",
        _ => "",
    };
    Ident::new(&format!("{name}{suffix}"), call.name.span())
}

fn method(receiver: &Expr, call: &Call) -> TokenStream {
    let Some(signature) = table::method(&call.name.to_string()) else {
        return quote!(::genesis_kernel::lang::refused());
    };
    let Arguments { generics, values } = arguments(signature, call);
    let (name, span) = (&call.name, call.name.span());
    // Most are typed as functions: rustc then speaks of the values and not of the method, and
    // scalars need no trait in scope.
    let function = match name.to_string().as_str() {
        "dim" | "stride" => Some(quote_spanned!(span => ::genesis_kernel::lang::#name)),
        "to" => Some(quote_spanned!(span => ::genesis_kernel::lang::functions::cast)),
        "expand_dims" | "squeeze" | "permute" | "reshape" | "broadcast_to" => {
            Some(quote_spanned!(span => ::genesis_kernel::lang::functions::#name))
        }
        _ => None,
    };
    if let Some(function) = function {
        let mut group = Group::new(Delimiter::Parenthesis, expr(receiver));
        group.set_span(call.parens);
        return quote_spanned!(span => #function::<#(#generics,)* _> #group);
    }
    let generics = turbofish(&generics, span);
    let receiver = match &receiver.kind {
        ExprKind::Local(name) => quote!(#name),
        ExprKind::Builtin(_) | ExprKind::Method { .. } => expr(receiver),
        _ => {
            let inner = expr(receiver);
            quote_spanned!(receiver.place.start => (#inner))
        }
    };
    // With all of its arguments a method has another name.
    let suffix = match signature.args.last() {
        Some(&"mask") if values.len() == signature.args.len() => "_masked",
        Some(&"steps") if values.len() == signature.args.len() => "_by",
        _ => "",
    };
    let name = Ident::new(&format!("{name}{suffix}"), span);
    let mut group = Group::new(Delimiter::Parenthesis, quote!(#(#values),*));
    group.set_span(call.parens);
    quote_spanned!(span => #receiver.#name #generics #group)
}

/// An operand: a literal without a suffix goes with every dtype.
fn operand(value: &Expr) -> TokenStream {
    if !is_untyped_literal(value) {
        return expr(value);
    }
    let is_float = match &value.kind {
        ExprKind::Unary { operand, .. } => !is_int(operand),
        _ => !is_int(value),
    };
    let name = if is_float { "FloatLiteral" } else { "IntLiteral" };
    let name = Ident::new(name, value.place.start);
    quote_spanned!(value.place.start => ::genesis_kernel::lang::#name)
}

fn is_int(value: &Expr) -> bool {
    matches!(value.kind, ExprKind::Int(..))
}

fn unary(op: Unary, operand: &Expr, place: Place) -> TokenStream {
    let inner = expr(operand);
    match op {
        Unary::Neg if is_untyped_literal(operand) => quote_spanned!(place.start => -#inner),
        Unary::Neg => call_function(quote!(lang::operators::neg), place, &[inner]),
        Unary::Not => call_function(quote!(lang::operators::not), place, &[inner]),
    }
}

fn binary(op: Binary, left: &Expr, right: &Expr, place: Place, span: Span) -> TokenStream {
    let name = match op {
        Binary::Arithmetic(_, name) | Binary::Compare(_, name) => Ident::new(name, span),
        Binary::AndThen | Binary::OrElse => return logic(op, left, right, span),
    };
    // Two literals have the dtype that Rust finds for them.
    let both = is_untyped_literal(left) && is_untyped_literal(right);
    let (left, right) =
        if both { (expr(left), expr(right)) } else { (operand(left), operand(right)) };
    let sides = call_function(quote!(lang::operators::sides), place, &[left, right]);
    call_function(quote!(lang::operators::#name), place, &[sides])
}

fn logic(op: Binary, left: &Expr, right: &Expr, span: Span) -> TokenStream {
    let scalar =
        |side: &Expr| call_function(quote!(lang::operators::logic), side.place, &[expr(side)]);
    let (left, right) = (scalar(left), scalar(right));
    match op {
        Binary::AndThen => quote_spanned!(span => (#left && #right)),
        _ => quote_spanned!(span => (#left || #right)),
    }
}
