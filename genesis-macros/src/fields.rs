//! `#[derive(KernelParam)]`: a struct of scalars, pointers and views is a parameter of kernels.
//!
//! ```text
//! #[derive(KernelParam)]                  impl<T: Float> KernelParam for Affine<T> { the fields, as data }
//! struct Affine<T: Float> {        ->     struct AffineArg<A0, A1> { x: A0, scale: A1 }
//!     x: View<T, 1>,                      impl<T: Float, A0: AsView<T, 1>, A1: AsScalar<f32>>
//!     scale: f32,                             AsParam<Affine<T>> for AffineArg<A0, A1> { .. }
//! }
//! ```
//!
//! Of optional fields there is a third struct, which says to `specialize_with` which are there:
//!
//! ```text
//! bias: Option<View<T, 1>>,        ->     struct AffinePresent { bias: bool }
//! ```
//!
//! The struct is what a kernel sees. Its views are types that no program has values of, so that a launch is given a
//! second struct of the same fields, each of any type that may be passed for the field.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Fields};

use crate::arguments::argument_bound;
use crate::ast::{Generic, Param, Pattern, Place, Type};
use crate::parse::{Kind, Parser};
use crate::{autotune, describe, messages, shadow};

/// The struct, taken apart.
struct Struct<'i> {
    input: &'i DeriveInput,
    generics: Vec<Generic>,
    fields: Vec<Field<'i>>,
}

struct Field<'i> {
    name: &'i Ident,
    vis: &'i syn::Visibility,
    /// The field as a parameter of its own.
    param: Param,
    /// The generic parameter of the launch's struct that is its type there.
    passed: Ident,
}

/// What kernels and launches need of the struct; of one that is refused, the errors.
pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut parser = Parser::new(Kind::Kernel, input.ident.to_string());
    let parsed = parse(&mut parser, input);
    let errors = parser.into_errors();
    // The fields that were refused are left out, so that nothing else is said of them.
    let (param, arg, present) = (parsed.param(), parsed.arg(), parsed.present());
    let errors = errors.map(Error::into_compile_error);
    quote!(#errors #param #arg #present)
}

fn parse<'i>(parser: &mut Parser, input: &'i DeriveInput) -> Struct<'i> {
    for param in input.generics.const_params() {
        parser.refuse(param, messages::PARAM_CONST);
    }
    if let Some(clause) = &input.generics.where_clause {
        parser.refuse(clause, messages::WHERE_CLAUSE);
    }
    let mut types = input.generics.clone();
    types.params = types.params.into_iter().filter(is_no_constant).collect();
    parser.generics = parser.generic_params(&types);
    let generics = parser.generics.clone();
    let named = match &input.data {
        Data::Struct(syn::DataStruct { fields: Fields::Named(fields), .. }) => Some(&fields.named),
        _ => None,
    };
    if named.is_none_or(|fields| fields.is_empty()) {
        parser.refuse(&input.ident, messages::PARAM_STRUCT);
    }
    let fields = named.into_iter().flatten().enumerate().filter_map(|(index, field)| {
        let name = field.ident.as_ref()?;
        let (typed, optional) = parser.field_type(&field.ty);
        if matches!(typed.ty, Type::Inferred) {
            return None;
        }
        let pattern = Pattern::Name { ident: name.clone(), mutable: false };
        let param = Param { pattern, typed, place: Place::of(&field.ty), optional };
        let passed = Ident::new(&format!("A{index}"), Span::mixed_site());
        Some(Field { name, vis: &field.vis, param, passed })
    });
    Struct { input, generics, fields: fields.collect() }
}

fn is_no_constant(param: &syn::GenericParam) -> bool {
    !matches!(param, syn::GenericParam::Const(_))
}

impl Struct<'_> {
    fn arg_name(&self) -> Ident {
        format_ident!("{}Arg", self.input.ident)
    }

    /// What the compiler of kernels and `#[autotune]` ask of the struct.
    fn param(&self) -> TokenStream {
        let (name, arg) = (&self.input.ident, self.arg_name());
        let (generics, arguments) = (shadow::generics(&self.generics), self.arguments());
        let dtypes = self.dtypes().map(Ident::to_string);
        let params = self.fields.iter().map(|field| describe::param(&field.param));
        let is_pointer = |field: &Field<'_>| matches!(field.param.typed.ty, Type::Ptr { .. });
        let has_pointers = self.fields.iter().any(is_pointer);
        let types = self.fields.iter().map(|field| match &field.param.typed.ty {
            Type::View { .. } => quote!(::genesis_kernel::autotune::Dims<'args>),
            Type::Scalar(_) => quote!(usize),
            _ => quote!(()),
        });
        let values = self.fields.iter().enumerate().map(|(index, field)| {
            let name = field.name;
            match autotune::problem_value(&[], &field.param.typed.ty) {
                Some(value) => quote!(#name: #value(args, first + #index)),
                None => quote!(#name: ()),
            }
        });
        let reads = self.fields.iter().map(|Field { name, .. }| quote!(let _ = &param.#name;));
        quote! {
            #[allow(dead_code, unused_variables, clippy::all, reason = "programs read no field")]
            const _: () = {
                #[automatically_derived]
                impl<#generics> ::genesis_kernel::lang::KernelParam for #name #arguments {
                    const DTYPES: &'static [&'static str] = &[#(#dtypes),*];
                    const FIELDS: &'static [::genesis_kernel::front::ast::ParamAst] =
                        &[#(#params),*];
                    const HAS_POINTERS: bool = #has_pointers;
                    type Problem<'args> = #arg<#(#types),*>;

                    fn problem(
                        args: &[::genesis_kernel::runtime::Arg],
                        first: usize,
                    ) -> Self::Problem<'_> {
                        #arg { #(#values),* }
                    }
                }

                fn read<#generics>(param: #name #arguments) { #(#reads)* }
            };
        }
    }

    /// The struct that a launch is given, and how it is passed.
    fn arg(&self) -> TokenStream {
        let (name, vis, arg) = (&self.input.ident, &self.input.vis, self.arg_name());
        let passed: Vec<&Ident> = self.fields.iter().map(|field| &field.passed).collect();
        let fields = self.fields.iter().map(|Field { name, vis, passed, .. }| {
            let doc = format!("What is passed for `{name}`.");
            quote!(#[doc = #doc] #vis #name: #passed)
        });
        let doc = format!("The argument for a parameter [`{name}`] of a kernel.");
        let generics = shadow::generics(&self.generics);
        let comma = (!self.generics.is_empty()).then(|| quote!(,));
        let bounds = self.fields.iter().map(|Field { passed, param, .. }| {
            let bound = argument_bound(param);
            quote!(#passed: #bound)
        });
        let adds = self.fields.iter().map(|Field { name, passed, param, .. }| {
            let bound = argument_bound(param);
            quote!(args.push(<#passed as #bound>::as_arg(&self.#name));)
        });
        let presences = self.optional().map(|Field { name, passed, param, .. }| {
            let bound = argument_bound(param);
            quote!(there.push(<#passed as #bound>::is_there(&self.#name));)
        });
        let presences = self.optional().next().map(|_| {
            quote! {
                fn presences(&self, there: &mut ::std::vec::Vec<bool>) {
                    #(#presences)*
                }
            }
        });
        let arguments = self.arguments();
        quote! {
            #[doc = #doc]
            #[derive(Clone, Copy, Debug)]
            #[allow(dead_code, reason = "a kernel may be specialised only")]
            #vis struct #arg<#(#passed),*> {
                #(#fields,)*
            }
            #[automatically_derived]
            impl<#generics #comma #(#bounds),*> ::genesis_kernel::runtime::AsParam<#name #arguments>
                for #arg<#(#passed),*>
            {
                fn add_to<'arg>(
                    &'arg self,
                    args: &mut ::std::vec::Vec<::genesis_kernel::runtime::CheckedArg<'arg>>,
                ) {
                    #(#adds)*
                }

                #presences
            }
        }
    }

    /// The struct that says which optional fields are there: `()` where no field is optional.
    fn present(&self) -> TokenStream {
        let (name, vis) = (&self.input.ident, &self.input.vis);
        let (generics, arguments) = (shadow::generics(&self.generics), self.arguments());
        let present_of = quote!(::genesis_kernel::lang::PresentOf<#name #arguments>);
        if self.optional().next().is_none() {
            return quote! {
                #[automatically_derived]
                impl<#generics> #present_of for () {
                    fn add_to(&self, _there: &mut ::std::vec::Vec<bool>) {}
                }
            };
        }
        let present = format_ident!("{name}Present");
        let fields = self.optional().map(|Field { name, vis, .. }| {
            let doc = format!("Whether `{name}` is there.");
            quote!(#[doc = #doc] #vis #name: bool)
        });
        let names = self.optional().map(|field| field.name);
        let doc = format!("Which optional fields of a [`{name}`] are there.");
        quote! {
            #[doc = #doc]
            #[derive(Clone, Copy, Debug, Default)]
            #[allow(dead_code, reason = "a kernel may be launched only")]
            #vis struct #present {
                #(#fields,)*
            }
            #[automatically_derived]
            impl<#generics> #present_of for #present {
                fn add_to(&self, there: &mut ::std::vec::Vec<bool>) {
                    there.extend([#(self.#names),*]);
                }
            }
        }
    }

    fn optional(&self) -> impl Iterator<Item = &Field<'_>> {
        self.fields.iter().filter(|field| field.param.optional)
    }

    fn dtypes(&self) -> impl Iterator<Item = &Ident> {
        self.generics.iter().map(Generic::name)
    }

    /// The struct's own parameters, as its arguments: `<T>`.
    fn arguments(&self) -> TokenStream {
        let names = self.dtypes();
        if self.generics.is_empty() { TokenStream::new() } else { quote!(<#(#names),*>) }
    }
}
