//! The procedural macros of Genesis: `#[kernel]` and `#[device]`.
//!
//! A function is parsed into the small language that kernels are made of (`parse`, `body`, `calls`),
//! refusals are collected on the way (`messages` has all of them), and the tree is printed twice:
//! as Rust for rustc to type-check (`shadow`), and as data for the compiler of kernels (`describe`).
//!
//! ```text
//! #[kernel] pub fn add<T: Number, const BLOCK: usize>(x: Ptr<T>, ..) { .. }
//!
//! pub mod add {
//!     pub static AST, KERNEL;
//!     pub struct Consts { pub BLOCK: usize }
//!     pub fn specialize::<T>(Consts, &Hints) -> Result<Specialized, Error>
//!     pub unsafe fn launch::<T>(&Stream, Grid, Consts, (args..)) -> Result<(), Error>
//! }
//! const _: () = { impl Described for add::Body { .. } fn kernel<..>(..) { .. } };
//! ```

mod ast;
mod body;
mod calls;
mod check;
mod describe;
mod expand;
#[cfg(test)]
mod hostile;
mod messages;
mod parse;
mod shadow;
mod table;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

use parse::Kind;

/// Makes a kernel of a function: a module with its name, that holds `launch`, `specialize` and
/// `Consts`.
///
/// `#[kernel(contract)]` lets a multiply and an add of the body contract to one fused operation.
#[proc_macro_attribute]
pub fn kernel(
    attr: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    macro_body(attr.into(), item.into(), Kind::Kernel).into()
}

/// Makes a function callable from kernels, by its name.
#[proc_macro_attribute]
pub fn device(
    attr: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    macro_body(attr.into(), item.into(), Kind::Device).into()
}

fn macro_body(attr: TokenStream, item: TokenStream, kind: Kind) -> TokenStream {
    match expand_item(attr, item, kind) {
        Ok(tokens) => tokens,
        Err(error) => error.into_compile_error(),
    }
}

fn expand_item(
    attr: TokenStream,
    item: TokenStream,
    kind: Kind,
) -> Result<TokenStream, syn::Error> {
    let (item, too_deep) = check_depth(item)?;
    let name = if kind == Kind::Kernel { "kernel" } else { "device" };
    let item: syn::ItemFn = match syn::parse2::<syn::Item>(item)? {
        syn::Item::Fn(item) => item,
        other => {
            return Err(syn::Error::new_spanned(other, messages::NOT_A_FUNCTION.render(name)));
        }
    };
    let option = option(&attr, kind);
    let contract = matches!(option, Ok(true));
    let parsed = parse::parse(&item, kind, contract);
    let errors = too_deep.into_iter().chain(option.err()).chain(parsed.errors);
    let errors: Vec<TokenStream> = errors.map(syn::Error::into_compile_error).collect();
    let refused = !errors.is_empty();
    let expanded = match kind {
        Kind::Kernel => expand::kernel(&parsed.function, refused),
        Kind::Device => expand::device(&parsed.function, refused),
    };
    Ok(quote!(#(#errors)* #expanded))
}

/// The function, without its body if that nests too deep to be parsed: what launches it should not be
/// refused as well.
fn check_depth(item: TokenStream) -> Result<(TokenStream, Option<syn::Error>), syn::Error> {
    let Err(error) = check::check_depth(item.clone()) else { return Ok((item, None)) };
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let Some(TokenTree::Group(_)) = tokens.pop() else { return Err(error) };
    tokens.push(TokenTree::Group(Group::new(Delimiter::Brace, TokenStream::new())));
    let item: TokenStream = tokens.into_iter().collect();
    if check::check_depth(item.clone()).is_err() {
        return Err(error);
    }
    Ok((item, Some(error)))
}

/// Whether `contract` is given; anything else is refused.
fn option(attr: &TokenStream, kind: Kind) -> Result<bool, syn::Error> {
    if attr.is_empty() {
        return Ok(false);
    }
    match (kind, attr.to_string().as_str()) {
        (Kind::Kernel, "contract") => Ok(true),
        (Kind::Kernel, _) => Err(syn::Error::new_spanned(attr, messages::BAD_OPTION.render(""))),
        (Kind::Device, _) => {
            Err(syn::Error::new_spanned(attr, messages::NO_DEVICE_OPTION.render("")))
        }
    }
}
