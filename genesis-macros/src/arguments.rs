//! What a launch is given for a kernel's parameters: its types, and how they become arguments.
//!
//! ```text
//! fn k<T: Float>((x, n): (View<T, 1>, i64), p: Affine<T>)
//!   args: ((impl AsView<T, 1>, impl AsScalar<i64>), impl Arg2<T>)
//!   x     AsView::as_arg(&args.0.0)
//!   p     <_ as Arg2<T>>::add_to(&args.1, ..), the argument of each field
//! ```
//!
//! A struct's fields are arguments of their own. How many there are the program knows, not the macro.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};

use crate::ast::{DType, Function, Generic, Group, Param, Pattern, Type};
use crate::describe;

/// The types of the arguments, as the parts of a tuple.
pub(crate) fn argument_types(function: &Function) -> TokenStream {
    let mut params = function.params.iter();
    let types = function.groups.iter().map(|group| group_type(function, group, &mut params));
    quote!(#(#types,)*)
}

fn group_type<'p>(
    function: &Function,
    group: &Group,
    params: &mut impl Iterator<Item = &'p Param>,
) -> TokenStream {
    match group {
        Group::One => params.next().map(|param| argument_type(function, param)).unwrap_or_default(),
        Group::Tuple(parts) => {
            let types: Vec<_> =
                parts.iter().map(|part| group_type(function, part, &mut *params)).collect();
            quote!((#(#types,)*))
        }
    }
}

fn argument_type(function: &Function, param: &Param) -> TokenStream {
    let index = function.params.iter().position(|other| std::ptr::eq(other, param));
    let bound = match (&param.typed.ty, index) {
        (Type::Struct { .. }, Some(index)) => passed(function, index),
        _ => argument_bound(param),
    };
    quote!(impl #bound)
}

/// The trait of what can be passed for a parameter that is no struct.
pub(crate) fn argument_bound(param: &Param) -> TokenStream {
    let trait_name = argument_trait(param);
    let args = match &param.typed.ty {
        Type::Ptr { dtype, .. } | Type::Scalar(dtype) => rust_type(dtype),
        Type::View { dtype, rank, .. } => {
            let (dtype, rank) = (rust_type(dtype), usize::from(*rank));
            quote!(#dtype, #rank)
        }
        // Refused: the stub takes anything of one dtype.
        _ => quote!(f32),
    };
    quote!(::genesis_kernel::runtime::#trait_name<#args>)
}

fn argument_trait(param: &Param) -> Ident {
    let name = match param.typed.ty {
        Type::Ptr { mutable: false, .. } => "AsPtr",
        Type::Ptr { mutable: true, .. } => "AsPtrMut",
        Type::View { mutable: false, .. } => "AsView",
        Type::View { mutable: true, .. } => "AsViewMut",
        _ => "AsScalar",
    };
    let name = match param.optional {
        true => name.replacen("As", "AsOptional", 1),
        false => name.to_owned(),
    };
    Ident::new(&name, Span::call_site())
}

/// A dtype as a Rust type, whatever names the user has in scope.
fn rust_type(dtype: &DType) -> TokenStream {
    match dtype {
        DType::Param(name) => name.to_token_stream(),
        DType::Sum(name) => quote!(#name::Acc),
        DType::Fixed(variant) => {
            let name = Ident::new(&variant.to_lowercase(), Span::call_site());
            match *variant {
                "F8E4M3" | "F8E5M2" | "F16" | "BF16" => quote!(::genesis_kernel::lang::#name),
                _ => quote!(::core::primitive::#name),
            }
        }
    }
}

/// The arguments one by one, of a kernel that takes no structs.
pub(crate) fn argument_values(function: &Function) -> Vec<TokenStream> {
    let value = |(param, place): (&Param, TokenStream)| {
        let trait_name = argument_trait(param);
        quote!(::genesis_kernel::runtime::#trait_name::as_arg(&#place))
    };
    function.params.iter().zip(argument_places(function)).map(value).collect()
}

/// The arguments as a list, for a kernel that takes structs: a program learns from the structs how many there are.
pub(crate) fn argument_list(function: &Function) -> Option<TokenStream> {
    structs(function).next()?;
    let adds = function.params.iter().zip(argument_places(function)).enumerate();
    let adds = adds.map(|(index, (param, place))| {
        if matches!(param.typed.ty, Type::Struct { .. }) {
            let passed = passed(function, index);
            return quote!(<_ as #passed>::add_to(&#place, &mut list););
        }
        let trait_name = argument_trait(param);
        quote!(list.push(::genesis_kernel::runtime::#trait_name::as_arg(&#place));)
    });
    Some(quote!({
        let mut list = ::std::vec::Vec::new();
        #(#adds)*
        list
    }))
}

/// The arguments as plain data.
pub(crate) fn raw_arguments(function: &Function) -> TokenStream {
    match argument_list(function) {
        Some(list) => {
            let arg = quote!(::genesis_kernel::runtime::CheckedArg::arg);
            quote!(&#list.iter().map(#arg).collect::<::std::vec::Vec<_>>())
        }
        None => {
            let values = argument_values(function);
            quote!(&[#(#values.arg()),*])
        }
    }
}

/// Whether each optional parameter that has a name is given, and each optional field: a value that is a slice of `bool`s
/// behind a reference.
pub(crate) fn presences(function: &Function) -> TokenStream {
    let is_there = |param: &Param, place: &TokenStream| {
        describe::presence(param)?;
        let trait_name = argument_trait(param);
        Some(quote!(::genesis_kernel::runtime::#trait_name::is_there(&#place)))
    };
    let params = function.params.iter().zip(argument_places(function));
    if structs(function).next().is_none() {
        let there = params.filter_map(|(param, place)| is_there(param, &place));
        return quote!([#(#there),*]);
    }
    let adds = params.enumerate().map(|(index, (param, place))| {
        // What has no name nothing asks for.
        let is_named = matches!(param.pattern, Pattern::Name { .. });
        if matches!(param.typed.ty, Type::Struct { .. }) && is_named {
            let passed = passed(function, index);
            return quote!(<_ as #passed>::presences(&#place, &mut there););
        }
        is_there(param, &place).map(|is_there| quote!(there.push(#is_there);)).unwrap_or_default()
    });
    quote!({
        let mut there = ::std::vec::Vec::<bool>::new();
        #(#adds)*
        there
    })
}

/// Where the argument of each parameter is among those of a launch: `args.0`, `args.1.0`.
fn argument_places(function: &Function) -> Vec<TokenStream> {
    fn add(group: &Group, place: TokenStream, places: &mut Vec<TokenStream>) {
        match group {
            Group::One => places.push(place),
            Group::Tuple(parts) => {
                for (index, part) in parts.iter().enumerate() {
                    let index = syn::Index::from(index);
                    add(part, quote!(#place.#index), places);
                }
            }
        }
    }
    let mut places = Vec::new();
    for (index, group) in function.groups.iter().enumerate() {
        let index = syn::Index::from(index);
        add(group, quote!(args.#index), &mut places);
    }
    places
}

/// The parameters that are structs, by their place among all.
pub(crate) fn structs(function: &Function) -> impl Iterator<Item = (usize, &Param)> {
    let is_struct = |(_, param): &(usize, &Param)| matches!(param.typed.ty, Type::Struct { .. });
    function.params.iter().enumerate().filter(is_struct)
}

/// Those traits, for the module.
pub(crate) fn struct_traits(function: &Function) -> TokenStream {
    let traits = structs(function).map(|(index, param)| {
        let (name, generics) = (passed_name(index), dtype_generics(function));
        let doc = match &param.pattern {
            Pattern::Name { ident, .. } => format!("What can be passed for `{ident}`."),
            Pattern::Wild(_) | Pattern::Tuple(_) => "What can be passed for a struct.".to_owned(),
        };
        let (message, expected) = passed_texts(param);
        quote! {
            #[doc = #doc]
            #[diagnostic::on_unimplemented(message = #message, label = #expected)]
            pub trait #name<#generics> {
                /// Adds the argument of each field.
                fn add_to<'arg>(
                    &'arg self,
                    args: &mut ::std::vec::Vec<::genesis_kernel::runtime::CheckedArg<'arg>>,
                );

                /// Adds whether each optional field is given.
                fn presences(&self, there: &mut ::std::vec::Vec<bool>);
            }
        }
    });
    let present = structs(function).map(|(index, _)| {
        let name = present_trait(index);
        quote! {
            /// Which optional fields of a struct are there.
            pub trait #name {
                /// Adds whether each is.
                fn add_to(&self, there: &mut ::std::vec::Vec<bool>);
            }
        }
    });
    quote!(#(#traits)* #(#present)*)
}

/// What rustc says of an argument that can't be passed for a struct or a list: what is wrong, and what is expected.
fn passed_texts(param: &Param) -> (String, String) {
    let ty = param.typed.tokens.to_string().replace(' ', "");
    let expected = match (&param.typed.ty, ty.starts_with("ViewsMut")) {
        (Type::Struct { rank: Some(_), .. }, false) => {
            "expected a list of views: `stream.views(&[..])?`".to_owned()
        }
        (Type::Struct { rank: Some(_), .. }, true) => {
            "expected a list of views to write: `stream.views_mut(&mut [..])?`".to_owned()
        }
        _ => {
            let name = ty.split('<').next().unwrap_or_default();
            format!("expected the arguments of its fields, as in `{name}Arg {{{{ .. }}}}`")
        }
    };
    (format!("`{{Self}}` can't be passed for a `{}`", ty.replace(',', ", ")), expected)
}

/// The trait of a kernel's module of what says which optional fields of a struct are there.
pub(crate) fn present_trait(index: usize) -> Ident {
    Ident::new(&format!("Present{index}"), Span::call_site())
}

/// What implements them: whatever can be passed for the struct.
pub(crate) fn struct_args(function: &Function) -> TokenStream {
    let impls = structs(function).map(|(index, param)| {
        let (kernel, passed) = (&function.name, passed(function, index));
        let (generics, ty) = (dtype_generics(function), &param.typed.tokens);
        let comma = (!generics.is_empty()).then(|| quote!(,));
        let arg = Ident::new("Passed", Span::mixed_site());
        quote! {
            impl<#generics #comma #arg: ::genesis_kernel::runtime::AsParam<#ty>> #kernel::#passed for #arg {
                fn add_to<'arg>(
                    &'arg self,
                    args: &mut ::std::vec::Vec<::genesis_kernel::runtime::CheckedArg<'arg>>,
                ) {
                    ::genesis_kernel::runtime::AsParam::<#ty>::add_to(self, args);
                }

                fn presences(&self, there: &mut ::std::vec::Vec<bool>) {
                    ::genesis_kernel::runtime::AsParam::<#ty>::presences(self, there);
                }
            }
        }
    });
    let present = structs(function).filter_map(|(index, param)| {
        let (kernel, name) = (&function.name, present_trait(index));
        let ty = describe::example_of(&function.generics, &param.typed.ty)?;
        let given = Ident::new("Given", Span::mixed_site());
        Some(quote! {
            impl<#given: ::genesis_kernel::lang::PresentOf<#ty>> #kernel::#name for #given {
                fn add_to(&self, there: &mut ::std::vec::Vec<bool>) {
                    ::genesis_kernel::lang::PresentOf::<#ty>::add_to(self, there);
                }
            }
        })
    });
    quote!(#(#impls)* #(#present)*)
}

/// The trait of a kernel's module of what can be passed for a struct: `Arg0<T>`. The module does not see the struct
/// itself, which is named where the kernel stands.
fn passed(function: &Function, index: usize) -> TokenStream {
    let (name, dtypes) = (passed_name(index), dtypes(function).map(|(name, _)| name));
    quote!(#name<#(#dtypes),*>)
}

fn passed_name(index: usize) -> Ident {
    Ident::new(&format!("Arg{index}"), Span::call_site())
}

/// The generic parameters that stand for dtypes, with bounds.
pub(crate) fn dtype_generics(function: &Function) -> TokenStream {
    let params = dtypes(function).map(|(name, bound)| {
        let bound = Ident::new(&bound.to_string(), Span::call_site());
        quote!(#name: ::genesis_kernel::lang::#bound)
    });
    quote!(#(#params),*)
}

pub(crate) fn dtypes(function: &Function) -> impl Iterator<Item = (&Ident, &Ident)> {
    function.generics.iter().filter_map(|generic| match generic {
        Generic::DType { name, bound } => Some((name, bound)),
        _ => None,
    })
}
