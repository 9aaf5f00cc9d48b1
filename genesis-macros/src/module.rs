//! `#[derive(Module)]`: a struct of parameters, buffers, flags and modules shows its fields by name.
//!
//! ```text
//! #[derive(Module)]                         visitor.part("fc", &module.fc);
//! struct Net {                         ->   visitor.part("norm1", &module.norm);
//!     fc: Linear,                           // and the same for `visit_mut`
//!     #[module(name = "norm1")]
//!     norm: LayerNorm,
//!     #[module(skip)]
//!     config: Config,
//! }
//! ```
//!
//! What a field is follows from its type, which is the business of the trait `Part`: here only names
//! are known. Each call carries the span of the field's type, so that rustc points there where the type
//! is no part.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, LitStr, Member};

use crate::messages;

/// What `#[module(..)]` says of a field.
struct Options {
    skip: bool,
    name: Option<LitStr>,
}

/// A field that is shown, and under which name.
struct Shown<'i> {
    member: Member,
    name: String,
    field: &'i Field,
}

/// The implementation of `Module`; with errors, one without the wrong fields, so that nothing else is said
/// of them.
pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let (shown, errors) = fields(input);
    let has_lifetime = input.generics.lifetimes().next().is_some();
    let errors = errors.into_iter().map(Error::into_compile_error);
    let implementation = (!has_lifetime).then(|| implementation(input, &shown));
    quote!(#(#errors)* #implementation)
}

/// Both walks stand in one function: a field that is no part is one mistake then, and one error.
fn implementation(input: &DeriveInput, shown: &[Shown<'_>]) -> TokenStream {
    let nn = quote!(::genesis::nn);
    let call = |Shown { member, name, field }: &Shown<'_>, unique: bool| {
        let mutability = unique.then(|| quote_spanned!(field.ty.span()=> mut));
        let part = quote_spanned!(field.ty.span()=> &#mutability module.#member);
        quote!(visitor.part(#name, #part);)
    };
    let shared = shown.iter().map(|field| call(field, false));
    let unique = shown.iter().map(|field| call(field, true));
    let name = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let bounds = with_bounds(input, bounds);
    quote! {
        #[allow(unused_variables, reason = "a module may have no fields")]
        const _: () = {
            fn fields #generics (walk: #nn::Walk<'_, '_, '_, #name #arguments>) #bounds {
                match walk {
                    #nn::Walk::Shared(module, visitor) => { #(#shared)* }
                    #nn::Walk::Unique(module, visitor) => { #(#unique)* }
                }
            }

            #[automatically_derived]
            impl #generics #nn::Module for #name #arguments #bounds {
                fn visit<'visited>(&'visited self, visitor: &mut #nn::Visitor<'visited, '_>) {
                    fields(#nn::Walk::Shared(self, visitor));
                }

                fn visit_mut(&mut self, visitor: &mut #nn::VisitorMut<'_>) {
                    fields(#nn::Walk::Unique(self, visitor));
                }

                fn as_module(&self) -> &dyn #nn::Module {
                    self
                }
            }
        };
    }
}

/// Each type parameter must be a part that a module may own.
fn with_bounds(input: &DeriveInput, bounds: Option<&syn::WhereClause>) -> TokenStream {
    let own = bounds.into_iter().flat_map(|bounds| &bounds.predicates);
    let added = input.generics.type_params().map(|parameter| {
        let name = &parameter.ident;
        quote!(#name: ::genesis::nn::Part + ::core::marker::Send + ::core::marker::Sync + 'static)
    });
    quote!(where #(#own,)* #(#added,)*)
}

/// The fields to show, and all that is wrong with the input.
fn fields(input: &DeriveInput) -> (Vec<Shown<'_>>, Vec<Error>) {
    let refuse = |span: Span, message: messages::Message, name: &str| {
        (Vec::new(), vec![Error::new(span, message.render(name))])
    };
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(data) => {
            return refuse(data.enum_token.span, messages::MODULE_NOT_A_STRUCT, "an enum");
        }
        Data::Union(data) => {
            return refuse(data.union_token.span, messages::MODULE_NOT_A_STRUCT, "a union");
        }
    };
    if let Some(lifetime) = input.generics.lifetimes().next() {
        return refuse(lifetime.lifetime.span(), messages::MODULE_LIFETIME, "");
    }
    let (mut shown, mut errors): (Vec<Shown<'_>>, Vec<Error>) = (Vec::new(), Vec::new());
    let on_struct = input.attrs.iter().find(|attr| attr.path().is_ident("module"));
    errors.extend(
        on_struct.map(|attr| Error::new_spanned(attr, messages::MODULE_ON_STRUCT.render(""))),
    );
    for (member, field) in members(&data.fields) {
        match options(field) {
            Ok(Options { skip: true, .. }) => {}
            Ok(Options { name, .. }) => {
                let own = match &member {
                    // `r#type` is named `type`.
                    Member::Named(name) => name.to_string().trim_start_matches("r#").to_owned(),
                    Member::Unnamed(index) => index.index.to_string(),
                };
                let name = name.map_or(own, |name| name.value());
                match shown.iter().any(|other| other.name == name) {
                    true => errors
                        .push(Error::new(field.span(), messages::MODULE_NAME_TWICE.render(&name))),
                    false => shown.push(Shown { member, name, field }),
                }
            }
            Err(error) => errors.push(error),
        }
    }
    (shown, errors)
}

fn members(fields: &Fields) -> impl Iterator<Item = (Member, &Field)> {
    let member = |(index, field): (usize, &Field)| match &field.ident {
        Some(name) => Member::Named(Ident::clone(name)),
        None => Member::Unnamed(index.into()),
    };
    fields.iter().enumerate().map(move |(index, field)| (member((index, field)), field))
}

/// What stands in a field's `#[module(..)]`.
fn options(field: &Field) -> Result<Options, Error> {
    let mut options = Options { skip: false, name: None };
    for attr in field.attrs.iter().filter(|attr| attr.path().is_ident("module")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") && meta.input.is_empty() {
                options.skip = true;
            } else if meta.path.is_ident("name") {
                let name: LitStr = meta.value()?.parse()?;
                if name.value().is_empty() || name.value().contains('.') {
                    return Err(Error::new(name.span(), messages::MODULE_BAD_NAME.render("")));
                }
                options.name = Some(name);
            } else {
                return Err(meta.error(messages::MODULE_OPTION.render("")));
            }
            Ok(())
        })?;
    }
    Ok(options)
}
