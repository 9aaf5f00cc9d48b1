//! The small language that `#[kernel]` and `#[device]` accept, with spans.
//!
//! What is not here can't be written in a kernel. One tree has two readers: `shadow` prints it as
//! Rust that rustc type-checks, `describe` as the `static` that the compiler of kernels reads.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;

/// Where a piece of source begins and ends.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) start: Span,
    pub(crate) end: Span,
}

impl Place {
    /// The place of all tokens of `node`.
    pub(crate) fn of(node: &impl ToTokens) -> Place {
        let mut tokens = node.to_token_stream().into_iter();
        let Some(first) = tokens.next() else {
            return Place { start: Span::call_site(), end: Span::call_site() };
        };
        let start = match &first {
            TokenTree::Group(group) => group.span_open(),
            other => other.span(),
        };
        let end = match tokens.last().unwrap_or(first) {
            TokenTree::Group(group) => group.span_close(),
            other => other.span(),
        };
        Place { start, end }
    }

    /// The place of one token.
    pub(crate) fn token(span: Span) -> Place {
        Place { start: span, end: span }
    }
}

/// A function under `#[kernel]` or `#[device]`.
pub(crate) struct Function {
    /// Everything but doc comments, such as `#[allow(..)]` and `#[cfg(..)]`.
    pub(crate) attrs: Vec<syn::Attribute>,
    /// The doc comments.
    pub(crate) docs: Vec<syn::Attribute>,
    pub(crate) doc: String,
    pub(crate) vis: syn::Visibility,
    pub(crate) name: Ident,
    /// Generic parameters in the user's order.
    pub(crate) generics: Vec<Generic>,
    /// Those of a tuple are parameters of their own.
    pub(crate) params: Vec<Param>,
    pub(crate) groups: Vec<Group>,
    pub(crate) ret: Option<Typed>,
    pub(crate) body: Block,
    /// `#[kernel(contract)]`
    pub(crate) contract: bool,
    /// `unsafe fn`, of a kernel.
    pub(crate) is_unsafe: bool,
    pub(crate) unchecked: Unchecked,
    /// Names that stand for extents computed from const parameters, `{ BM / 2 }`: first those of the signature.
    pub(crate) computed: Vec<Ident>,
    /// How many of them the signature has.
    pub(crate) computed_in_signature: usize,
}

/// What a body does that nothing checks.
#[derive(Clone, Default)]
pub(crate) struct Unchecked {
    /// It takes the pointer of a view.
    pub(crate) takes_pointer: bool,
    /// It promises the compiler something.
    pub(crate) promises: bool,
    /// The device functions that it calls, which may do either.
    pub(crate) callees: Vec<syn::Path>,
}

impl Unchecked {
    /// Whether the body itself does anything of the kind.
    pub(crate) fn itself(&self) -> bool {
        self.takes_pointer || self.promises
    }
}

/// A generic parameter.
#[derive(Clone)]
pub(crate) enum Generic {
    /// `T: Float`, with the bound's name: `Element`, `Number`, `Float` or `Int`.
    DType { name: Ident, bound: Ident },
    /// `S: Shape`
    Shape { name: Ident, bound: Ident },
    /// `const N: usize`, or `const FLAG: bool`.
    Const { name: Ident, is_flag: bool },
}

pub(crate) struct Param {
    pub(crate) pattern: Pattern,
    /// The tokens of an `Option`, and what the type in it means.
    pub(crate) typed: Typed,
    pub(crate) place: Place,
    pub(crate) optional: bool,
}

impl Generic {
    pub(crate) fn name(&self) -> &Ident {
        let (Generic::DType { name, .. }
        | Generic::Shape { name, .. }
        | Generic::Const { name, .. }) = self;
        name
    }
}

/// How a launch is given the parameters: one by one, or some of them as a tuple.
pub(crate) enum Group {
    One,
    Tuple(Vec<Group>),
}

/// A type as the user wrote it, and what it means.
pub(crate) struct Typed {
    pub(crate) ty: Type,
    pub(crate) tokens: TokenStream,
}

pub(crate) enum Type {
    Scalar(DType),
    Ptr {
        dtype: DType,
        mutable: bool,
    },
    View {
        dtype: DType,
        rank: u8,
        mutable: bool,
    },
    Tile(DType),
    /// A tile whose extents are written.
    Shaped(DType, Vec<Extent>),
    Tuple(Vec<Type>),
    /// A struct under `#[derive(KernelParam)]`, or a list of views: what was written, the dtypes in its `<..>`, and the
    /// rank of the views.
    Struct {
        path: syn::Path,
        dtypes: Vec<DType>,
        rank: Option<u8>,
    },
    Inferred,
}

/// An extent of a tile's type.
pub(crate) enum Extent {
    Const(Ident),
    Fixed(u32),
    /// `{ BM / 2 }`
    Computed(Box<Expr>),
    Any,
}

#[derive(Clone)]
pub(crate) enum DType {
    /// The name of a fixed dtype as `DType`'s variant: `F32`.
    Fixed(&'static str),
    Param(Ident),
    /// `T::Acc`, of the parameter `T`.
    Sum(Ident),
}

pub(crate) enum Pattern {
    Name { ident: Ident, mutable: bool },
    Wild(Span),
    Tuple(Vec<Pattern>),
}

pub(crate) struct Block {
    pub(crate) stmts: Vec<Stmt>,
    pub(crate) value: Option<Box<Expr>>,
    pub(crate) span: Span,
}

pub(crate) enum Stmt {
    Let { pattern: Pattern, typed: Option<Typed>, value: Expr, place: Place },
    Assign { pattern: Pattern, value: Expr, place: Place },
    For { pattern: Pattern, iter: Box<Iter>, body: Block, place: Place },
    While { cond: Expr, body: Block, place: Place },
    Return { value: Option<Expr>, place: Place },
    Expr(Expr),
}

#[allow(clippy::large_enum_variant, reason = "always in a box")]
pub(crate) enum Iter {
    Range {
        start: Expr,
        end: Expr,
        step: Option<Expr>,
        stages: u8,
        unroll: u8,
        is_static: bool,
        span: Span,
    },
    Persistent {
        total: Expr,
        span: Span,
    },
}

pub(crate) struct Expr {
    pub(crate) place: Place,
    pub(crate) kind: ExprKind,
}

pub(crate) enum ExprKind {
    Int(syn::LitInt, i128),
    Float(syn::LitFloat, f64),
    Bool(bool, Span),
    /// A local variable, or a name that nothing in the function declares.
    Local(Ident),
    /// A const parameter.
    ConstParam(Ident),
    /// A const parameter that is a `bool`.
    Flag(Ident),
    /// A Rust constant.
    Constant(syn::Path),
    /// `T::ZERO`
    DTypeConst {
        dtype: Typed,
        trait_name: &'static str,
        name: Ident,
    },
    /// `T::from(x)`
    From {
        dtype: Typed,
        value: Box<Expr>,
        span: Span,
    },
    Unary {
        op: Unary,
        operand: Box<Expr>,
    },
    Binary {
        op: Binary,
        left: Box<Expr>,
        right: Box<Expr>,
        span: Span,
    },
    As {
        value: Box<Expr>,
        dtype: Typed,
        span: Span,
    },
    Tuple(Vec<Expr>),
    Array(Vec<Expr>),
    Field {
        base: Box<Expr>,
        index: u32,
        span: Span,
    },
    /// `params.scale`
    Member {
        base: Box<Expr>,
        name: Ident,
    },
    /// A call of the language's own function.
    Builtin(Call),
    Method {
        receiver: Box<Expr>,
        call: Call,
    },
    Device {
        path: syn::Path,
        generics: Vec<GenericArg>,
        args: Vec<Expr>,
    },
    DeviceRef(syn::Path),
    If {
        cond: Box<Expr>,
        then: Block,
        otherwise: Option<Block>,
        span: Span,
    },
    /// `if let Some(x) = value { .. }`
    IfSome {
        pattern: Pattern,
        value: Box<Expr>,
        then: Block,
        otherwise: Option<Block>,
        span: Span,
    },
    Block(Block),
    Print {
        format: String,
        args: Vec<Expr>,
        span: Span,
    },
    /// `inline_asm!`: the inputs, and last what the CPU computes.
    Asm {
        text: String,
        constraints: String,
        /// How many elements the text is of.
        pack: u8,
        args: Vec<Expr>,
        span: Span,
    },
    Assert {
        cond: Box<Expr>,
        message: String,
        span: Span,
        is_static: bool,
    },
    /// Something refused; an error is on its way to the user.
    Refused,
}

/// A call of a function or method of the language.
pub(crate) struct Call {
    pub(crate) name: Ident,
    pub(crate) generics: Vec<GenericArg>,
    pub(crate) args: Vec<Expr>,
    /// The span of the parentheses.
    pub(crate) parens: Span,
}

pub(crate) enum GenericArg {
    DType(Typed),
    /// A const parameter, a literal, a constant or `{ .. }`, with its tokens.
    Const {
        value: Expr,
        tokens: TokenStream,
    },
    /// What an atomic orders, as a `MemoryOrder` is named.
    Order(&'static str),
    /// Among whom, as a `MemoryScope` is named.
    Scope(&'static str),
    /// `_`, or a shape.
    Other(TokenStream),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Not,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    /// The name of a `BinaryOp` and of the function that types it.
    Arithmetic(&'static str, &'static str),
    /// The name of a `Predicate` and of the function that types it.
    Compare(&'static str, &'static str),
    AndThen,
    OrElse,
}

/// The `<..>` arguments of a path segment.
pub(crate) fn generic_args(segment: &syn::PathSegment) -> Vec<syn::GenericArgument> {
    match &segment.arguments {
        syn::PathArguments::AngleBracketed(args) => args.args.iter().cloned().collect(),
        _ => Vec::new(),
    }
}
