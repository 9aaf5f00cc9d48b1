//! The procedural macros of Genesis: `#[kernel]`, `#[device]`, `#[derive(KernelParam)]` and `#[derive(Module)]`.
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
//!
//! The launch is `unsafe` for a kernel that takes pointers or that of a view, calls `multiple_of`, or is an
//! `unsafe fn`. For any other, a constant of each device function that it calls must say that this one does
//! nothing of the kind either.

mod arguments;
mod ast;
mod autotune;
mod body;
mod calls;
mod check;
mod describe;
mod expand;
mod fields;
#[cfg(test)]
mod hostile;
mod jumps;
mod messages;
mod module;
mod parse;
mod shadow;
mod table;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

use parse::Kind;

/// Makes a kernel of a function: a module with its name, that holds `launch`, `specialize` and
/// `Consts`.
///
/// `launch` is `unsafe` where the kernel does what nothing checks: takes a `Ptr` or `PtrMut`, calls `.ptr()` of
/// a view, promises something with `multiple_of`, or calls a `#[device]` function that does. For the last the
/// kernel must say so itself: `unsafe fn`.
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

/// Declares what there is to choose from for a kernel's constants, warps and stages, and gives it the
/// function `tuned`, which launches with the choice that is fastest.
///
/// ```ignore
/// #[autotune(
///     key = { m: c.dim(0), n: c.dim(1), k: a.dim(1) },
///     space = { BM: [64, 128], BN: [128, 256], BK: 64, num_warps: [4, 8], num_stages: [3, 4] },
///     grid = |t| Grid::x(m.div_ceil(t.BM) * n.div_ceil(t.BN)),
///     example = { a: [m, k], b: [k, n], c: [m, n] },
/// )]
/// #[kernel]
/// pub fn matmul<T: Float, const BM: usize, const BN: usize, const BK: usize>(
///     a: View<T, 2>, b: View<T, 2>, c: ViewMut<T, 2>,
/// ) { .. }
///
/// matmul::tuned::<bf16>(&stream, (&a, &b, &mut c))?;
/// ```
///
/// * `key`: names for the sizes that the choice depends on. `bucket(rows)` in place of `rows` rounds a
///   size up to a power of two, so that what was measured for one serves its neighbours.
/// * `space`: values of each const parameter and of `num_warps`, `num_stages`, `persistent` and `cluster`,
///   and all their combinations; or a list of such spaces.
/// * `grid`: the grid, from the kernel's `Consts`, the key's names and the parameters.
/// * `example`: extents of the parameters, so that `genesis tune` can make some.
/// * `prune`: a function `(Consts, LaunchOptions, &Problem) -> bool`: what makes no sense is not tried.
/// * `heuristic`: a function `(&Problem) -> (Consts, LaunchOptions)`: the choice where nothing was
///   measured. Without it a model of the machine decides.
/// * `table`: measurements that come with the kernel, as `genesis tune --write-table` writes them.
/// * `tolerance`: how much results of two configurations may differ.
#[proc_macro_attribute]
pub fn autotune(
    attr: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    match autotune::behind_kernel(attr.into(), item.into()) {
        Ok(tokens) => tokens.into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Makes a struct of scalars, pointers and views a parameter of kernels, which read its fields: `p.x.load(..)`.
///
/// A launch is given a second struct, of the same name and `Arg` behind it, with the same fields: each is what could
/// be passed for it if it were a parameter of its own.
///
/// ```ignore
/// #[derive(Clone, Copy, KernelParam)]
/// pub struct Affine<T: Float> {
///     pub x: View<T, 1>,
///     pub y: ViewMut<T, 1>,
///     pub scale: f32,
/// }
///
/// #[kernel]
/// pub fn affine<T: Float, const N: usize>(p: Affine<T>, n: i64) { .. }
///
/// let p = AffineArg { x: x.view([n])?, y: y.view_mut([n])?, scale: 2.0 };
/// affine::launch::<f32>(&stream, grid, affine::Consts { N: 32 }, (p, n))?;
/// ```
///
/// A kernel that takes a struct with a `Ptr` or `PtrMut` in it is declared `unsafe fn`.
#[proc_macro_derive(KernelParam)]
pub fn kernel_param(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    match syn::parse::<syn::DeriveInput>(item) {
        Ok(input) => fields::derive(&input).into(),
        Err(error) => error.into_compile_error().into(),
    }
}

/// Makes a struct of parameters, buffers, training flags and other modules a `genesis::nn::Module`.
///
/// The type of a field says what it is; a field is named by its own name. `#[module(name = "..")]` gives
/// it another name, `#[module(skip)]` leaves it out: that is for data that is no state, of types that
/// the trait `genesis::nn::Part` does not know.
///
/// ```ignore
/// #[derive(Module)]
/// struct Block {
///     norm1: LayerNorm,
///     #[module(name = "self_attn")]
///     attention: MultiheadAttention,
///     scale: Option<Parameter>,
///     layers: Vec<Linear>,
///     #[module(skip)]
///     config: Config,
/// }
/// ```
#[proc_macro_derive(Module, attributes(module))]
pub fn module(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    match syn::parse::<syn::DeriveInput>(item) {
        Ok(input) => module::derive(&input).into(),
        Err(error) => error.into_compile_error().into(),
    }
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
    let mut item: syn::ItemFn = match syn::parse2::<syn::Item>(item)? {
        syn::Item::Fn(item) => item,
        other => {
            return Err(syn::Error::new_spanned(other, messages::NOT_A_FUNCTION.render(name)));
        }
    };
    if check::stands_in_impl(item.sig.ident.span()) {
        let message = messages::IN_AN_IMPL.render(name);
        return Err(syn::Error::new_spanned(&item.sig.ident, message));
    }
    let tuning = autotune::take(&mut item.attrs);
    let option = option(&attr, kind);
    let contract = matches!(option, Ok(true));
    let parsed = parse::parse(&item, kind, contract);
    let (tuning, wrong_tuning) = match tuning {
        Some(Ok(tuning)) => {
            let wrong = autotune::check(&tuning, &parsed.function);
            (Some(tuning), wrong)
        }
        Some(Err(error)) => (None, Some(error)),
        None => (None, None),
    };
    let errors = too_deep.into_iter().chain(option.err()).chain(parsed.errors).chain(wrong_tuning);
    let errors: Vec<TokenStream> = errors.map(syn::Error::into_compile_error).collect();
    let refused = !errors.is_empty();
    let expanded = match kind {
        Kind::Kernel => expand::kernel(&parsed.function, tuning.as_ref(), refused),
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
