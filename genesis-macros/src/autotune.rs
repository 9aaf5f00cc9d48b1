//! `#[autotune]`: from its text to the data and functions that the tuner takes.
//!
//! ```text
//! #[autotune(
//!     key = { m: c.dim(0), n: c.dim(1) },                       // names for what the choice depends on
//!     space = [{ BM: [64, 128], BN: 64, num_warps: [4, 8] }],   // products of values, one beside the other
//!     grid = |t| Grid::x(m.div_ceil(t.BM) * n.div_ceil(t.BN)),  // from constants, names and arguments
//!     example = { a: [m, 64], b: [64, n], c: [m, n] },          // arguments for `genesis tune`
//!     heuristic = pick, prune = fits,                           // paths of functions
//!     table = include_str!("h200.jsonl"), tolerance = 1e-3,
//! )]
//! ```
//!
//! The expressions become functions over a launch's arguments in which the kernel's parameters stand
//! for extents: `c.dim(0)` of a view, and an integer parameter as its value.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Token, braced, bracketed};

use crate::ast::{Function, Generic, Param, Pattern, Type};
use crate::{describe, messages};

/// Options of a launch that are axes of a space beside the kernel's constants.
const OPTIONS: [&str; 4] = ["num_warps", "num_stages", "persistent", "cluster"];

/// What stands in the parentheses.
#[derive(Default)]
pub(crate) struct Autotune {
    key: Vec<Named<syn::Expr>>,
    spaces: Vec<Vec<Named<Vec<i64>>>>,
    grid: Option<syn::Expr>,
    example: Vec<Named<Vec<syn::Expr>>>,
    heuristic: Option<syn::Path>,
    prune: Option<syn::Path>,
    table: Option<syn::Expr>,
    tolerance: Option<syn::Expr>,
}

struct Named<T> {
    name: Ident,
    value: T,
}

/// Takes `#[autotune(..)]` off a kernel's attributes, where `#[autotune]` put it last.
pub(crate) fn take(attrs: &mut Vec<syn::Attribute>) -> Option<Result<Autotune, syn::Error>> {
    let at = attrs.iter().position(|attr| attr.path().is_ident("autotune"))?;
    Some(attrs.remove(at).parse_args())
}

/// `#[autotune]` itself: it goes behind `#[kernel]`, which reads it.
pub(crate) fn behind_kernel(
    attr: TokenStream,
    item: TokenStream,
) -> Result<TokenStream, syn::Error> {
    let refuse = |tokens: &dyn ToTokens| {
        syn::Error::new_spanned(tokens.to_token_stream(), messages::AUTOTUNE_ALONE.render(""))
    };
    let mut item: syn::ItemFn = syn::parse2(item.clone()).map_err(|_| refuse(&item))?;
    let is_kernel = |attr: &syn::Attribute| {
        attr.path().segments.last().is_some_and(|segment| segment.ident == "kernel")
    };
    if !item.attrs.iter().any(is_kernel) {
        return Err(refuse(&item.sig.ident));
    }
    item.attrs.push(syn::parse_quote!(#[autotune(#attr)]));
    Ok(item.into_token_stream())
}

impl Parse for Autotune {
    fn parse(input: ParseStream<'_>) -> Result<Autotune, syn::Error> {
        let mut autotune = Autotune::default();
        while !input.is_empty() {
            let name: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            match name.to_string().as_str() {
                "key" => autotune.key = fields(input, |input| input.parse())?,
                "space" => autotune.spaces = spaces(input)?,
                "grid" => autotune.grid = Some(input.parse()?),
                "example" => autotune.example = fields(input, list)?,
                "heuristic" => autotune.heuristic = Some(input.parse()?),
                "prune" => autotune.prune = Some(input.parse()?),
                "table" => autotune.table = Some(input.parse()?),
                "tolerance" => autotune.tolerance = Some(input.parse()?),
                other => {
                    let message = messages::AUTOTUNE_OPTION.render(other);
                    return Err(syn::Error::new(name.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(autotune)
    }
}

/// `{ name: value, .. }`
fn fields<T>(
    input: ParseStream<'_>,
    value: fn(ParseStream<'_>) -> Result<T, syn::Error>,
) -> Result<Vec<Named<T>>, syn::Error> {
    let inner;
    braced!(inner in input);
    let mut named = Vec::new();
    while !inner.is_empty() {
        let name: Ident = inner.parse()?;
        inner.parse::<Token![:]>()?;
        named.push(Named { name, value: value(&inner)? });
        if !inner.is_empty() {
            inner.parse::<Token![,]>()?;
        }
    }
    Ok(named)
}

/// `[a, b, ..]`
fn list(input: ParseStream<'_>) -> Result<Vec<syn::Expr>, syn::Error> {
    let inner;
    bracketed!(inner in input);
    let items = Punctuated::<syn::Expr, Token![,]>::parse_terminated(&inner)?;
    Ok(items.into_iter().collect())
}

/// One product of axes, or a list of them.
fn spaces(input: ParseStream<'_>) -> Result<Vec<Vec<Named<Vec<i64>>>>, syn::Error> {
    if input.peek(syn::token::Brace) {
        return Ok(vec![fields(input, values)?]);
    }
    let inner;
    bracketed!(inner in input);
    let mut spaces = Vec::new();
    while !inner.is_empty() {
        spaces.push(fields(&inner, values)?);
        if !inner.is_empty() {
            inner.parse::<Token![,]>()?;
        }
    }
    Ok(spaces)
}

/// `64`, `true`, `[64, 128]`
fn values(input: ParseStream<'_>) -> Result<Vec<i64>, syn::Error> {
    if !input.peek(syn::token::Bracket) {
        return Ok(vec![value(input)?]);
    }
    let inner;
    bracketed!(inner in input);
    let mut values = Vec::new();
    while !inner.is_empty() {
        values.push(value(&inner)?);
        if !inner.is_empty() {
            inner.parse::<Token![,]>()?;
        }
    }
    Ok(values)
}

fn value(input: ParseStream<'_>) -> Result<i64, syn::Error> {
    let literal: syn::Lit = input.parse()?;
    let refuse = || syn::Error::new_spanned(&literal, messages::AUTOTUNE_VALUE.render(""));
    match &literal {
        syn::Lit::Int(int) => int.base10_parse().map_err(|_| refuse()),
        syn::Lit::Bool(bool) => Ok(i64::from(bool.value)),
        _ => Err(refuse()),
    }
}

/// What is wrong with the attribute of this kernel; nothing if it is fine.
pub(crate) fn check(autotune: &Autotune, function: &Function) -> Option<syn::Error> {
    let mut errors: Vec<syn::Error> = Vec::new();
    let consts: Vec<String> = consts(function).map(Ident::to_string).collect();
    let place = function.name.span();
    if autotune.spaces.is_empty() {
        errors.push(syn::Error::new(place, messages::AUTOTUNE_NEEDS.render("space")));
    }
    if autotune.grid.is_none() {
        errors.push(syn::Error::new(place, messages::AUTOTUNE_NEEDS.render("grid")));
    }
    for space in &autotune.spaces {
        for axis in space {
            let name = axis.name.to_string();
            if !consts.contains(&name) && !OPTIONS.contains(&name.as_str()) {
                let message = messages::AUTOTUNE_AXIS.render(&name);
                errors.push(syn::Error::new(axis.name.span(), message));
            }
        }
        for name in consts.iter().filter(|name| !space.iter().any(|axis| axis.name == **name)) {
            errors.push(syn::Error::new(place, messages::AUTOTUNE_NO_VALUES.render(name)));
        }
    }
    let structs = function.params.iter().filter(|param| is_struct(param));
    for name in structs.filter(|_| !autotune.example.is_empty()).filter_map(param_name) {
        let message = messages::AUTOTUNE_STRUCT.render(&name.to_string());
        errors.push(syn::Error::new(name.span(), message));
    }
    for entry in &autotune.example {
        if !function.params.iter().any(|param| param_name(param) == Some(&entry.name)) {
            let message = messages::AUTOTUNE_EXAMPLE.render(&entry.name.to_string());
            errors.push(syn::Error::new(entry.name.span(), message));
        }
    }
    errors.into_iter().reduce(|mut all, error| {
        all.combine(error);
        all
    })
}

/// The `impl` that holds the attribute's content, where the user's names mean what they meant.
pub(crate) fn tunable(autotune: &Autotune, function: &Function) -> TokenStream {
    let name = &function.name;
    let key: Vec<String> = autotune.key.iter().map(|size| size.name.to_string()).collect();
    let spaces = autotune.spaces.iter().map(|space| {
        let axes = space.iter().map(|axis| {
            let (name, values) = (axis.name.to_string(), &axis.value);
            quote!(::genesis_kernel::autotune::Axis { name: #name, values: &[#(#values),*] })
        });
        quote!(&[#(#axes),*])
    });
    let (sizes, grid, example) =
        (sizes_fn(autotune, function), grid_fn(autotune, function), example_fn(autotune, function));
    let (heuristic, prune) = (heuristic(autotune, function), prune(autotune, function));
    let table = autotune.table.as_ref().map_or_else(|| quote!(""), ToTokens::to_token_stream);
    let tolerance = optional(autotune.tolerance.as_ref().map(ToTokens::to_token_stream));
    quote! {
        #[allow(non_snake_case, clippy::all, reason = "named as the kernel's parameters are")]
        const _: () = {
            impl ::genesis_kernel::autotune::Tunable for #name::Body {
                const TUNING: ::genesis_kernel::autotune::Tuning =
                    ::genesis_kernel::autotune::Tuning {
                        key: &[#(#key),*],
                        sizes: #sizes,
                        spaces: &[#(#spaces),*],
                        grid: #grid,
                        example: #example,
                        heuristic: #heuristic,
                        prune: #prune,
                        table: #table,
                        tolerance: #tolerance,
                    };
            }
        };
    }
}

fn optional(tokens: Option<TokenStream>) -> TokenStream {
    match tokens {
        Some(tokens) => quote!(::core::option::Option::Some(#tokens)),
        None => quote!(::core::option::Option::None),
    }
}

fn consts(function: &Function) -> impl Iterator<Item = &Ident> {
    function.generics.iter().filter_map(|generic| match generic {
        Generic::Const { name, .. } => Some(name),
        _ => None,
    })
}

fn param_name(param: &Param) -> Option<&Ident> {
    match &param.pattern {
        Pattern::Name { ident, .. } => Some(ident),
        Pattern::Wild(_) | Pattern::Tuple(_) => None,
    }
}

fn is_struct(param: &Param) -> bool {
    matches!(param.typed.ty, Type::Struct { .. })
}

/// `let`s that give the kernel's parameters their meaning in the attribute.
fn bind_params(function: &Function) -> TokenStream {
    let bindings = function.params.iter().enumerate().filter_map(|(index, param)| {
        let name = param_name(param)?;
        let value = problem_value(&function.generics, &param.typed.ty)?;
        let first = first_argument(function, index);
        Some(quote! {
            #[allow(unused_variables, reason = "not every parameter is asked for")]
            let #name = #value(args, #first);
        })
    });
    quote!(#(#bindings)*)
}

/// The function of a launch's arguments and a place among them that says what the attribute sees of a parameter;
/// nothing of pointers.
pub(crate) fn problem_value(generics: &[Generic], ty: &Type) -> Option<TokenStream> {
    match ty {
        Type::View { .. } => Some(quote!(::genesis_kernel::autotune::Dims::of)),
        Type::Scalar(_) => Some(quote!(::genesis_kernel::autotune::count)),
        Type::Struct { .. } => {
            let ty = describe::example_of(generics, ty)?;
            Some(quote!(<#ty as ::genesis_kernel::lang::KernelParam>::problem))
        }
        _ => None,
    }
}

/// Where the argument of a parameter is among those of a launch: fields of structs are arguments of their own.
fn first_argument(function: &Function, index: usize) -> TokenStream {
    let before = &function.params[..index];
    let single = before.iter().filter(|param| !is_struct(param)).count();
    let structs = before.iter().filter_map(|param| {
        let ty = describe::example_of(&function.generics, &param.typed.ty)?;
        Some(quote!(+ <#ty as ::genesis_kernel::lang::KernelParam>::FIELDS.len()))
    });
    quote!(#single #(#structs)*)
}

fn sizes_fn(autotune: &Autotune, function: &Function) -> TokenStream {
    let params = bind_params(function);
    let values = autotune.key.iter().map(|size| {
        let value = &size.value;
        quote!(i64::try_from(#value).unwrap_or(i64::MAX))
    });
    quote!({
        fn sizes(
            args: &[::genesis_kernel::runtime::Arg],
        ) -> ::std::vec::Vec<i64> {
            #[allow(unused_imports, reason = "for keys that need not be exact")]
            use ::genesis_kernel::autotune::bucket;
            #params
            ::std::vec![#(#values),*]
        }
        sizes
    })
}

/// The constants of a configuration as the kernel's own struct.
fn consts_value(function: &Function) -> TokenStream {
    let name = &function.name;
    let fields = consts(function)
        .enumerate()
        .map(|(index, field)| quote!(#field: ::genesis_kernel::autotune::constant(consts, #index)));
    quote!(#name::Consts { #(#fields,)* })
}

fn grid_fn(autotune: &Autotune, function: &Function) -> TokenStream {
    let (params, consts) = (bind_params(function), consts_value(function));
    let names = autotune.key.iter().map(|size| {
        let (name, value) = (&size.name, &size.value);
        quote! {
            #[allow(unused_variables, reason = "not every size is asked for")]
            let #name: usize = #value;
        }
    });
    let grid = autotune.grid.as_ref().map_or_else(
        || quote!(|_| ::genesis_kernel::kernel::Grid::x(1)),
        ToTokens::to_token_stream,
    );
    quote!({
        fn grid(
            consts: &[i64],
            args: &[::genesis_kernel::runtime::Arg],
        ) -> ::genesis_kernel::kernel::Grid {
            #[allow(unused_imports, reason = "for keys that need not be exact")]
            use ::genesis_kernel::autotune::bucket;
            #[allow(unused_variables, reason = "a grid need not depend on them")]
            let consts = #consts;
            #params
            #(#names)*
            ::genesis_kernel::autotune::with(consts, #grid)
        }
        grid
    })
}

fn example_fn(autotune: &Autotune, function: &Function) -> TokenStream {
    if autotune.example.is_empty() {
        return optional(None);
    }
    let names = autotune.key.iter().enumerate().map(|(index, size)| {
        let name = &size.name;
        quote! {
            #[allow(unused_variables, reason = "not every size is an extent")]
            let #name: usize = ::genesis_kernel::autotune::constant(sizes, #index);
        }
    });
    let extents = function.params.iter().map(|param| {
        let entry = autotune.example.iter().find(|entry| param_name(param) == Some(&entry.name));
        let values = entry
            .iter()
            .flat_map(|entry| &entry.value)
            .map(|value| quote!(i64::try_from(#value as usize).unwrap_or(i64::MAX)));
        quote!(::std::vec![#(#values),*])
    });
    optional(Some(quote!({
        fn example(sizes: &[i64]) -> ::std::vec::Vec<::std::vec::Vec<i64>> {
            #(#names)*
            ::std::vec![#(#extents),*]
        }
        example
    })))
}

/// The user's function gives the kernel's `Consts` and the options.
fn heuristic(autotune: &Autotune, function: &Function) -> TokenStream {
    let path = autotune.heuristic.as_ref().map(|path| {
        let fields = consts(function);
        let name = &function.name;
        quote_spanned!(Span::call_site() => {
            fn heuristic(
                problem: &::genesis_kernel::autotune::Problem<'_>,
            ) -> ::genesis_kernel::autotune::Config {
                let (consts, options): (#name::Consts, _) = #path(problem);
                let consts = ::std::vec![#(consts.#fields as i64),*];
                ::genesis_kernel::autotune::Config { consts, options }
            }
            heuristic
        })
    });
    optional(path)
}

/// The user's function takes the kernel's `Consts`, the options and the problem.
fn prune(autotune: &Autotune, function: &Function) -> TokenStream {
    let path = autotune.prune.as_ref().map(|path| {
        let consts = consts_value(function);
        quote!({
            fn prune(
                config: &::genesis_kernel::autotune::Config,
                problem: &::genesis_kernel::autotune::Problem<'_>,
            ) -> bool {
                let (consts, options) = (&config.consts, config.options);
                #path(#consts, options, problem)
            }
            prune
        })
    });
    optional(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::{self, Kind};

    fn function(text: &str) -> Function {
        let item: syn::ItemFn = syn::parse_str(text).expect("the text is Rust");
        parse::parse(&item, Kind::Kernel, false).function
    }

    fn kernel() -> Function {
        function("fn f<T: Float, const BM: usize, const BN: usize>(c: ViewMut<T, 2>, n: i64) {}")
    }

    fn errors(attribute: &str) -> Vec<String> {
        match syn::parse_str::<Autotune>(attribute) {
            Ok(autotune) => check(&autotune, &kernel())
                .map_or_else(Vec::new, |e| e.into_iter().map(|e| e.to_string()).collect()),
            Err(error) => vec![error.to_string()],
        }
    }

    fn first_line(errors: &[String]) -> Vec<&str> {
        errors.iter().map(|error| error.lines().next().unwrap_or("")).collect()
    }

    #[test]
    fn takes_what_the_documentation_shows() {
        let text = "key = { m: c.dim(0) }, \
                    space = [{ BM: [64, 128], BN: 64, persistent: [true, false] }, { BM: 32, BN: 32 }], \
                    grid = |t| Grid::x(m.div_ceil(t.BM)), example = { c: [m, m], n: [m] }";
        assert_eq!(errors(text), [""; 0]);
        let autotune: Autotune = syn::parse_str(text).expect("as above");
        assert_eq!(autotune.spaces[0][2].value, [1, 0]);
        let tokens = tunable(&autotune, &kernel()).to_string();
        assert!(syn::parse_str::<syn::File>(&tokens).is_ok(), "{tokens}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = errors("space = { BM: 64 }");
        assert_eq!(first_line(&missing), ["`#[autotune]` needs `grid`", "`BN` has no values"]);
    }

    #[test]
    fn unknown_names_are_refused() {
        let unknown =
            errors("space = { BM: 64, BN: 64, BX: 1 }, grid = |t| t, example = { d: [1] }");
        assert_eq!(
            first_line(&unknown),
            ["the kernel has no constant `BX`", "the kernel has no parameter `d`"]
        );
        assert_eq!(first_line(&errors("configs = 1")), ["`#[autotune]` has no option `configs`"]);
        assert_eq!(
            first_line(&errors("space = { BM: \"64\" }")),
            ["this must be a whole number, `true` or `false`"]
        );
    }

    #[test]
    fn goes_behind_the_kernel() {
        let item = "#[kernel] fn f() {}".parse().expect("the text is Rust");
        let moved = behind_kernel(quote!(space = {}), item).expect("it is a kernel");
        assert_eq!(moved.to_string(), "# [kernel] # [autotune (space = { })] fn f () { }");
        let alone = "fn f() {}".parse().expect("the text is Rust");
        assert!(behind_kernel(quote!(), alone).is_err());
    }
}
