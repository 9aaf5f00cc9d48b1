//! What the macros leave in the program: a module for a kernel, a unit struct for a device function.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};

use crate::arguments::{
    argument_list, argument_types, argument_values, dtype_generics, dtypes, presences,
    present_trait, raw_arguments, struct_args, struct_traits, structs,
};
use crate::ast::{Function, Generic, Param, Pattern, Type, Unchecked};
use crate::autotune::{self, Autotune};
use crate::{describe, shadow};

/// A kernel's module. With `refused`, one that has no body, so that code which launches the kernel
/// is not refused as well.
pub(crate) fn kernel(function: &Function, tuning: Option<&Autotune>, refused: bool) -> TokenStream {
    let (name, vis, docs, attrs) = (&function.name, &function.vis, &function.docs, &function.attrs);
    let cfgs = attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect::<Vec<_>>();
    let consts = consts_struct(function);
    let present = present_struct(function);
    let struct_traits = struct_traits(function);
    let specialize = specialize(function);
    let launch = launch(function);
    let tuning = tuning.filter(|_| !refused);
    let tuned = tuning.map(|_| tuned(function));
    let tunable = tuning.map(|tuning| {
        let tunable = autotune::tunable(tuning, function);
        quote!(#(#cfgs)* #tunable)
    });
    let with_tuning = tuning.map(|_| quote!(.with_tuning(&TUNING)));
    let fallback_doc = function.docs.is_empty().then(|| {
        let text = format!("The kernel `{name}`.");
        quote!(#[doc = #text])
    });
    let body = if refused { empty_body(function) } else { kernel_body(function) };
    quote! {
        #(#docs)*
        #fallback_doc
        #(#cfgs)*
        #[allow(
            dead_code, clippy::undocumented_unsafe_blocks,
            reason = "a kernel may be launched or only specialised; the safety section says why"
        )]
        #vis mod #name {
            #[doc(hidden)]
            #[derive(Debug)]
            pub struct Body;
            /// The function as written.
            pub static AST: ::genesis_kernel::front::ast::FnAst =
                <Body as ::genesis_kernel::lang::Described>::AST;
            /// The kernel, as the launch and the tools take it.
            pub static KERNEL: ::genesis_kernel::kernel::KernelDef =
                ::genesis_kernel::kernel::KernelDef::new(&AST)#with_tuning;
            #consts
            #present
            #struct_traits
            #specialize
            #launch
            #tuned
        }
        #(#cfgs)*
        #body
        #tunable
    }
}

fn empty_body(function: &Function) -> TokenStream {
    let empty = Function {
        attrs: Vec::new(),
        docs: Vec::new(),
        doc: function.doc.clone(),
        vis: function.vis.clone(),
        name: function.name.clone(),
        generics: function.generics.clone(),
        params: Vec::new(),
        groups: Vec::new(),
        ret: None,
        body: crate::ast::Block { stmts: Vec::new(), value: None, span: Span::call_site() },
        contract: false,
        is_unsafe: function.is_unsafe,
        unchecked: Unchecked::default(),
        computed: Vec::new(),
        computed_in_signature: 0,
    };
    let (name, ast) = (&function.name, describe::kernel(&empty));
    let args = struct_args(function);
    quote! {
        const _: () = {
            #args
            impl ::genesis_kernel::lang::Described for self::#name::Body {
                const AST: ::genesis_kernel::front::ast::FnAst = #ast;
            }
        };
    }
}

/// The description and the body to type-check, where the user's names mean what they meant.
fn kernel_body(function: &Function) -> TokenStream {
    let (name, ast) = (&function.name, describe::kernel(function));
    let lints = lints(function);
    let generics = with_computed(&function.generics, &function.computed);
    let params = shadow::params(&function.params);
    let body = shadow::block(&function.body);
    let (callees, pointers) = (callees(function), pointers(function));
    let args = struct_args(function);
    quote! {
        #[allow(non_upper_case_globals, clippy::all, reason = "the kernel's own text, as data")]
        const _: () = {
            #callees
            #pointers
            #args
            impl ::genesis_kernel::lang::Described for #name::Body {
                const AST: ::genesis_kernel::front::ast::FnAst = #ast;
            }
            #lints
            fn kernel<#generics>(#params) { #body }
        };
    }
}

/// Generic parameters, with one for each extent that is computed.
fn with_computed(generics: &[Generic], computed: &[Ident]) -> TokenStream {
    let (own, computed) = (shadow::generics(generics), computed.iter());
    let comma = (!own.is_empty()).then(|| quote!(,));
    quote!(#own #comma #(const #computed: usize),*)
}

/// Lints that make no sense of a body that is only type-checked.
fn lints(function: &Function) -> TokenStream {
    let own = function.attrs.iter().filter(|attr| !attr.path().is_ident("cfg"));
    quote! {
        #[allow(
            dead_code, unused_parens, unused_braces, unused_must_use, unreachable_code,
            path_statements, non_snake_case, non_upper_case_globals, clippy::all,
            reason = "type-checked, never run"
        )]
        #(#own)*
    }
}

fn consts(function: &Function) -> impl Iterator<Item = &Ident> {
    function.generics.iter().filter_map(|generic| match generic {
        Generic::Const { name, .. } => Some(name),
        _ => None,
    })
}

fn consts_struct(function: &Function) -> TokenStream {
    let fields = function.generics.iter().filter_map(|generic| {
        let Generic::Const { name, is_flag } = generic else { return None };
        let (doc, ty) = (format!("The kernel's `const {name}`."), shadow::const_type(*is_flag));
        Some(quote!(#[doc = #doc] pub #name: #ty))
    });
    quote! {
        /// The compile-time values of the kernel.
        #[derive(Clone, Copy, Debug)]
        #[allow(non_snake_case, reason = "named as the const parameters are")]
        pub struct Consts {
            #(#fields,)*
        }
    }
}

/// The dtypes of a launch, as a slice.
fn dtypes_of(function: &Function) -> TokenStream {
    let dtypes = dtypes(function)
        .map(|(name, _)| quote!(<#name as ::genesis_kernel::runtime::HostElement>::DTYPE));
    quote!(&[#(#dtypes),*])
}

/// The constants of a launch, as a slice: last of all which optional parameters and fields are there.
fn consts_of(function: &Function, present: &TokenStream) -> TokenStream {
    let consts = consts(function).map(|name| quote!(consts.#name as i64));
    if structs(function).next().is_none() {
        let n = optional_names(function).len();
        let there: Vec<Ident> =
            (0..n).map(|i| Ident::new(&format!("there{i}"), Span::mixed_site())).collect();
        return quote!(&{
            let [#(#there),*]: [bool; #n] = #present;
            [#(#consts,)* #(i64::from(#there)),*]
        });
    }
    quote!(&{
        let mut list: ::std::vec::Vec<i64> = ::std::vec![#(#consts),*];
        list.extend(#present.into_iter().map(i64::from));
        list
    })
}

/// The optional parameters that have a name.
fn optional_names(function: &Function) -> Vec<&Ident> {
    let named = function.params.iter().filter(|param| describe::presence(param).is_some());
    let names = named.filter_map(|param| match &param.pattern {
        Pattern::Name { ident, .. } => Some(ident),
        Pattern::Wild(_) | Pattern::Tuple(_) => None,
    });
    names.collect()
}

/// Which of its optional parameters a kernel is to be specialised with.
fn present_struct(function: &Function) -> Option<TokenStream> {
    let names = optional_names(function);
    let fields = names.iter().map(|name| {
        let doc = format!("Whether `{name}` is there.");
        quote!(#[doc = #doc] pub #name: bool)
    });
    let structs = named_structs(function);
    let of_structs = structs.iter().map(|(index, name)| {
        let (ty, doc) = (present_type(*index), format!("Which fields of `{name}` are there."));
        quote!(#[doc = #doc] pub #name: #ty)
    });
    let types = structs.iter().map(|(index, _)| present_type(*index));
    (!names.is_empty() || !structs.is_empty()).then(|| {
        quote! {
            /// Which optional parameters and fields are there.
            #[derive(Clone, Copy, Debug, Default)]
            pub struct Present<#(#types),*> {
                #(#fields,)*
                #(#of_structs,)*
            }
        }
    })
}

/// The parameter of `Present` for a struct, which the module of a kernel does not see.
fn present_type(index: usize) -> Ident {
    Ident::new(&format!("P{index}"), Span::mixed_site())
}

/// The structs that have a name, by their place among all parameters.
fn named_structs(function: &Function) -> Vec<(usize, &Ident)> {
    let named = structs(function).filter_map(|(index, param)| match &param.pattern {
        Pattern::Name { ident, .. } => Some((index, ident)),
        Pattern::Wild(_) | Pattern::Tuple(_) => None,
    });
    named.collect()
}

/// What `Present` says, in the order of a kernel's parameters: as [`presences`] of a launch.
fn given_presences(function: &Function) -> TokenStream {
    if structs(function).next().is_none() {
        let names = optional_names(function);
        return quote!([#(present.#names),*]);
    }
    let adds = function.params.iter().enumerate().filter_map(|(index, param)| {
        let Pattern::Name { ident, .. } = &param.pattern else { return None };
        if matches!(param.typed.ty, Type::Struct { .. }) {
            let name = present_trait(index);
            return Some(quote!(#name::add_to(&present.#ident, &mut there);));
        }
        describe::presence(param).map(|_| quote!(there.push(present.#ident);))
    });
    quote!({
        let mut there = ::std::vec::Vec::<bool>::new();
        #(#adds)*
        there
    })
}

fn specialize(function: &Function) -> TokenStream {
    let structs = named_structs(function);
    let bounds = structs.iter().map(|(index, _)| present_trait(*index));
    let with = quote!(present: Present<#(impl #bounds),*>,);
    let given = given_presences(function);
    match (optional_names(function).is_empty(), structs.is_empty()) {
        (true, true) => specialize_fn(function, "specialize", None, &quote!([])),
        (false, _) => specialize_fn(function, "specialize", Some(&with), &given),
        (true, false) => {
            // What no struct says is there is not.
            let none = quote!(::std::vec![false; AST.consts.len() - list.len()]);
            let without = specialize_fn(function, "specialize", None, &none);
            let with = specialize_fn(function, "specialize_with", Some(&with), &given);
            quote!(#without #with)
        }
    }
}

/// A function of this name that specialises the kernel.
fn specialize_fn(
    function: &Function,
    name: &str,
    with: Option<&TokenStream>,
    present: &TokenStream,
) -> TokenStream {
    let (name, generics) = (Ident::new(name, Span::call_site()), dtype_generics(function));
    let dtypes = dtypes_of(function);
    let consts = consts_of(function, present);
    let left_out = match with {
        None if !named_structs(function).is_empty() => Some(quote! {
            /// Optional fields of structs are not there; `specialize_with` says which are.
            ///
        }),
        _ => None,
    };
    quote! {
        /// The kernel for these dtypes and constants, ready to be compiled, read or interpreted.
        ///
        #left_out
        /// # Errors
        /// If the kernel is wrong for them: a diagnostic at the line that is.
        pub fn #name<#generics>(
            consts: Consts,
            #with
            hints: &::genesis_kernel::kernel::Hints,
        ) -> ::core::result::Result<
            ::genesis_kernel::kernel::Specialized,
            ::genesis_kernel::Error,
        > {
            let _ = &consts;
            KERNEL.specialize(#dtypes, #consts, hints)
        }
    }
}

fn launch(function: &Function) -> TokenStream {
    let generics = dtype_generics(function);
    let types = argument_types(function);
    let (dtypes, consts) = (dtypes_of(function), consts_of(function, &presences(function)));
    let safety = safety(function);
    let (doc, qualifier) = (safety.doc(), safety.qualifier());
    let given = quote!(stream, grid, #dtypes, #consts);
    let call = match (safety, argument_list(function)) {
        (Safety::Safe, None) => {
            let values = argument_values(function);
            quote!(KERNEL.launch_checked(#given, [#(#values),*]))
        }
        (Safety::Safe, Some(list)) => quote!(KERNEL.launch_checked_list(#given, &#list)),
        // What pointers and promises need is the caller's promise.
        _ => {
            let raw = raw_arguments(function);
            quote!(unsafe { KERNEL.launch(#given, #raw) })
        }
    };
    quote! {
        /// Runs the kernel: one program for each point of the grid.
        ///
        #doc
        /// # Errors
        /// If the arguments do not fit the kernel, it does not compile, or the device refuses.
        pub #qualifier fn launch<#generics>(
            stream: &::genesis_kernel::runtime::Stream,
            grid: ::genesis_kernel::kernel::Grid,
            consts: Consts,
            args: (#types),
        ) -> ::core::result::Result<(), ::genesis_kernel::Error> {
            let _ = (&consts, &args);
            #call
        }
    }
}

/// What `#[autotune]` adds to the module: its content, and a launch that chooses.
fn tuned(function: &Function) -> TokenStream {
    let generics = dtype_generics(function);
    let dtypes = dtypes_of(function);
    let types = argument_types(function);
    let present = presences(function);
    let safety = safety(function);
    let (doc, qualifier) = (safety.doc(), safety.qualifier());
    let given = quote!(stream, #dtypes, &#present);
    let call = match safety {
        Safety::Safe => {
            let list = argument_list(function).unwrap_or_else(|| {
                let values = argument_values(function);
                quote!([#(#values),*])
            });
            quote!(KERNEL.launch_tuned_checked(#given, &#list))
        }
        _ => {
            let raw = raw_arguments(function);
            quote!(unsafe { KERNEL.launch_tuned_present(#given, #raw) })
        }
    };
    quote! {
        /// What there is to choose from.
        pub static TUNING: ::genesis_kernel::autotune::Tuning =
            <Body as ::genesis_kernel::autotune::Tunable>::TUNING;

        /// Runs the kernel with the constants, warps and stages that are best for the arguments: as
        /// measured by `genesis tune` on this machine or as its table has them, else by heuristic.
        ///
        #doc
        /// # Errors
        /// If the arguments do not fit the kernel, it does not compile, or the device refuses.
        pub #qualifier fn tuned<#generics>(
            stream: &::genesis_kernel::runtime::Stream,
            args: (#types),
        ) -> ::core::result::Result<(), ::genesis_kernel::Error> {
            let _ = &args;
            #call
        }
    }
}

/// For a kernel whose own text has a safe launch: that no struct it takes has pointers.
fn pointers(function: &Function) -> TokenStream {
    if !matches!(safety(function), Safety::Safe) {
        return TokenStream::new();
    }
    let asserts = structs(function).filter_map(|(_, param)| {
        let ty = describe::example_of(&function.generics, &param.typed.ty)?;
        let Type::Struct { path, .. } = &param.typed.ty else { return None };
        let span = shadow::name_span(path);
        let name = path.to_token_stream().to_string().replace(' ', "");
        let message = format!(
            "the struct `{name}` has pointers, whose accesses nothing checks: declare the kernel `unsafe fn`, so \
            that its launch is `unsafe`"
        );
        let ty = shadow::struct_of(&ty);
        Some(quote_spanned!(span => const _: () = ::core::assert!(!#ty.has_pointers, #message);))
    });
    quote!(#(#asserts)*)
}

/// Whether a launch is safe, and else why not.
#[derive(Clone, Copy)]
enum Safety {
    Safe,
    Pointers,
    PointersOfViews,
    Promises,
    Declared,
}

/// Why the kernel's own text makes the launch unsafe. What device functions do is for [`callees`].
fn safety(function: &Function) -> Safety {
    let is_pointer = |param: &Param| matches!(param.typed.ty, Type::Ptr { .. });
    if function.params.iter().any(is_pointer) {
        Safety::Pointers
    } else if function.unchecked.takes_pointer {
        Safety::PointersOfViews
    } else if function.unchecked.promises {
        Safety::Promises
    } else if function.is_unsafe {
        Safety::Declared
    } else {
        Safety::Safe
    }
}

impl Safety {
    fn qualifier(self) -> Option<TokenStream> {
        (!matches!(self, Safety::Safe)).then(|| quote!(unsafe))
    }

    /// The section of the documentation.
    fn doc(self) -> Option<TokenStream> {
        let why = match self {
            Safety::Safe => return None,
            Safety::Pointers => "The kernel takes pointers, whose accesses are not checked:",
            Safety::PointersOfViews => {
                "The kernel takes the pointer of a view, whose accesses are not checked:"
            }
            Safety::Promises => {
                "The kernel promises with `multiple_of` what is not checked: it must hold for these \
                arguments. Besides,"
            }
            Safety::Declared => "The kernel is declared `unsafe`: see what it asks for. Besides,",
        };
        let doc = format!(
            "# Safety\n{why} every address it reads or writes must lie in the argument it comes from, \
            and two arguments must not overlap where one is written.\n"
        );
        Some(quote!(#[doc = #doc]))
    }
}

/// For a kernel whose own text has a safe launch: that no device function it calls takes that away.
fn callees(function: &Function) -> TokenStream {
    if !matches!(safety(function), Safety::Safe) {
        return TokenStream::new();
    }
    let asserts = distinct_callees(function).into_iter().map(|path| {
        let name = path.to_token_stream().to_string().replace(' ', "");
        let message = format!(
            "the device function `{name}` takes the pointer of a view or promises with `multiple_of`, \
            which nothing checks: declare the kernel `unsafe fn`, so that its launch is `unsafe`"
        );
        let is_unchecked = shadow::is_unchecked(path);
        let span = shadow::name_span(path);
        quote_spanned!(span => const _: () = ::core::assert!(!#is_unchecked, #message);)
    });
    quote!(#(#asserts)*)
}

fn distinct_callees(function: &Function) -> Vec<&syn::Path> {
    let mut distinct: Vec<&syn::Path> = Vec::new();
    for path in &function.unchecked.callees {
        if !distinct.contains(&path) {
            distinct.push(path);
        }
    }
    distinct
}

/// A device function: a unit struct, so that its name is a value that the body of a kernel can call
/// a method of, and an unknown name is one error.
pub(crate) fn device(function: &Function, refused: bool) -> TokenStream {
    let (name, vis, docs) = (&function.name, &function.vis, &function.docs);
    let cfgs = function.attrs.iter().filter(|attr| attr.path().is_ident("cfg")).collect::<Vec<_>>();
    let ast = describe::function(function);
    let lints = lints(function);
    let called = called_shapes(function);
    let (params, ret) = (shadow::device_params(&function.params, &called), &function.ret);
    let in_signature = &function.computed[..function.computed_in_signature];
    let generics = with_computed(&function.generics, in_signature);
    let ret = ret.as_ref().map(|ret| shadow::device_result(&ret.tokens, &called));
    let ret = ret.map(|ty| quote!(-> #ty));
    let body = (!refused).then(|| device_body(function));
    let ast = if refused { describe::function(&without_body(function)) } else { ast };
    let combine = combine(function);
    // The name is what rustc says where functions call each other in a circle.
    let described = quote_spanned! { name.span() =>
        static DEVICE_FUNCTIONS_ARE_INLINED_AND_CAN_NOT_RECURSE: ::genesis_kernel::front::ast::FnAst =
            #ast;
    };
    let unchecked = match (refused, function.unchecked.itself()) {
        (true, _) => quote!(false),
        (false, true) => quote!(true),
        (false, false) => {
            let callees = distinct_callees(function).into_iter().map(shadow::is_unchecked);
            quote!(false #(|| #callees)*)
        }
    };
    quote! {
        #(#docs)*
        #(#cfgs)*
        #[allow(non_camel_case_types, dead_code, reason = "named as the function is")]
        #[derive(Clone, Copy, Debug)]
        #vis struct #name;
        #(#cfgs)*
        const _: () = {
            #[diagnostic::do_not_recommend]
            impl ::genesis_kernel::lang::DeviceFunction for #name {
                type Typed = #name;
                const TYPED: #name = #name;
                const UNCHECKED: bool = #unchecked;
            }
            impl #name {
                /// Types a call of the function in a kernel; it is never run.
                #lints
                #[allow(unused_variables, unused_mut, reason = "they are the body's")]
                pub fn call<#generics>(self, #params) #ret {
                    ::genesis_kernel::lang::refused()
                }

                /// The function as written.
                #[allow(
                    dead_code, non_upper_case_globals, clippy::all,
                    reason = "the function's own text, as data"
                )]
                pub const fn ast(&self) -> &'static ::genesis_kernel::front::ast::FnAst {
                    #described
                    &DEVICE_FUNCTIONS_ARE_INLINED_AND_CAN_NOT_RECURSE
                }
            }
            #combine
            #body
        };
    }
}

/// The body of a device function, to be type-checked.
fn device_body(function: &Function) -> TokenStream {
    let (name, lints) = (&function.name, lints(function));
    let generics = with_computed(&but_shapes(function), &function.computed);
    let shapes = shadow::any_shapes(&shapes(function));
    let (params, body) = (shadow::params(&function.params), shadow::block(&function.body));
    let ret = function.ret.as_ref().map(|typed| {
        let tokens = &typed.tokens;
        quote!(-> #tokens)
    });
    let structs = structs(function).map(|(_, param)| {
        let ty = describe::example_of(&function.generics, &param.typed.ty);
        let ty = ty.as_ref().map(shadow::struct_of);
        quote!(const _: ::genesis_kernel::front::fields::StructAst = #ty;)
    });
    quote! {
        #shapes
        #(#structs)*
        impl #name {
            #lints
            fn body<#generics>(#params) #ret #body
        }
    }
}

/// The shape parameters of a function.
fn shapes(function: &Function) -> Vec<&Ident> {
    let shapes = function.generics.iter().filter_map(|generic| match generic {
        Generic::Shape { name, .. } => Some(name),
        _ => None,
    });
    shapes.collect()
}

/// Those that the arguments of a call say.
fn called_shapes(function: &Function) -> Vec<&Ident> {
    let is_said =
        |name: &&Ident| function.params.iter().any(|p| mentions(p.typed.tokens.clone(), name));
    shapes(function).into_iter().filter(is_said).collect()
}

/// The generic parameters but those of shapes.
fn but_shapes(function: &Function) -> Vec<Generic> {
    let is_shape = |generic: &&Generic| matches!(generic, Generic::Shape { .. });
    function.generics.iter().filter(|generic| !is_shape(generic)).cloned().collect()
}

fn without_body(function: &Function) -> Function {
    Function {
        attrs: Vec::new(),
        docs: Vec::new(),
        doc: String::new(),
        vis: syn::Visibility::Inherited,
        name: function.name.clone(),
        generics: Vec::new(),
        params: Vec::new(),
        groups: Vec::new(),
        ret: None,
        body: crate::ast::Block { stmts: Vec::new(), value: None, span: Span::call_site() },
        contract: false,
        is_unsafe: function.is_unsafe,
        unchecked: Unchecked::default(),
        computed: Vec::new(),
        computed_in_signature: 0,
    }
}

/// Two parameters and a result of one type: it can combine the elements of a reduction, which are scalars.
fn combine(function: &Function) -> Option<TokenStream> {
    let ([a, b], Some(ret)) = (&function.params[..], &function.ret) else { return None };
    let text = ret.tokens.to_string();
    if a.typed.tokens.to_string() != text || b.typed.tokens.to_string() != text {
        return None;
    }
    let (name, ty) = (&function.name, shadow::of_scalars(&ret.tokens, &shapes(function)));
    // What is computed is no scalar, and elements are.
    if function.computed_in_signature > 0 {
        return None;
    }
    let others = but_shapes(function);
    let mentioned = |generic: &Generic| {
        let (Generic::DType { name, .. }
        | Generic::Shape { name, .. }
        | Generic::Const { name, .. }) = generic;
        mentions(ty.clone(), name)
    };
    if !others.iter().all(mentioned) {
        return None;
    }
    let generics = shadow::generics(&others);
    Some(quote!(impl<#generics> ::genesis_kernel::lang::Combine<#ty> for #name {}))
}

/// Whether a type says what a parameter is: `T` and `Tile<T, S>` do, `T::Acc` does not.
fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let is_path =
            matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
        let is_there = match token {
            TokenTree::Ident(ident) => ident == *name && !is_path,
            TokenTree::Group(group) => mentions(group.stream(), name),
            _ => false,
        };
        if is_there {
            return true;
        }
    }
    false
}
