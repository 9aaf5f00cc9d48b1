//! The kernel language after parsing: what `#[kernel]` and `#[device]` leave in the program.
//!
//! The macros write one `static` of these types for each function, made of literals and `&'static`
//! references only, so that nothing runs before a kernel is specialised. Names are as the user wrote
//! them; what they mean is decided in `front`, which knows the dtypes and constants.
//!
//! Spans are lines and columns from 1, as rustc prints them.

use crate::ir::{BinaryOp, DType, MemoryOrder, MemoryScope, Predicate};

/// A place in the file of the function it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The line, from 1.
    pub line: u32,
    /// The column of the first character, from 1.
    pub column: u32,
    /// The column after the last character if it ends on the same line, else `column + 1`.
    pub end_column: u32,
}

/// A `#[kernel]` or `#[device]` function.
#[derive(Debug)]
pub struct FnAst {
    /// The user's name.
    pub name: &'static str,
    /// `module_path!()` of the definition.
    pub module: &'static str,
    /// `file!()` of the definition.
    pub file: &'static str,
    /// Where the name stands.
    pub span: Span,
    /// The doc comment, lines joined by newlines.
    pub doc: &'static str,
    /// Type parameters that stand for dtypes (`T: Float`), in order. Shape parameters (`S: Shape`)
    /// are not listed: shapes are known from the arguments.
    pub dtypes: &'static [DTypeParam],
    /// `const N: usize` parameters, in order.
    pub consts: &'static [&'static str],
    /// Parameters in order.
    pub params: &'static [ParamAst],
    /// The body.
    pub body: &'static BlockAst,
    /// `#[kernel(contract)]`: a multiply and an add may contract to an fma.
    pub contract: bool,
    /// For a `#[device]` function: what it returns, where that is a value of one dtype; literals
    /// it returns take that dtype.
    pub ret: Option<&'static TypeAst>,
}

impl FnAst {
    /// The const parameters that the user declared: behind them stand those that say of optional parameters whether
    /// they are there, whose names have a dot.
    pub fn declared_consts(&self) -> &'static [&'static str] {
        let n = self.consts.iter().take_while(|name| !name.contains('.')).count();
        &self.consts[..n]
    }
}

/// A type parameter that stands for a dtype.
#[derive(Debug)]
pub struct DTypeParam {
    /// The user's name for it: `T`.
    pub name: &'static str,
    /// The bound.
    pub bound: DTypeBound,
}

/// Which dtypes a type parameter accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DTypeBound {
    /// Any dtype, bool too.
    Element,
    /// Integers and floats.
    Number,
    /// Floats, but those of 8 bits.
    Float,
    /// Floats of 8 bits.
    Float8,
    /// Integers.
    Int,
    /// Integers of 8 bits, which `dot` multiplies.
    Int8,
}

/// A parameter of a kernel or device function.
#[derive(Clone, Copy, Debug)]
pub struct ParamAst {
    /// Where it stands.
    pub span: Span,
    /// The user's name, or names for a tuple pattern; `p.x` for the field of a struct that a kernel takes.
    pub pattern: &'static PatternAst,
    /// Its type; of an `Option` what is in it.
    pub ty: TypeAst,
    /// Whether it is an `Option`. Of a kernel, the constant `NAME.is_some` says whether it is there.
    pub optional: bool,
}

/// A dtype as written: fixed, or a type parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DTypeAst {
    /// `f32`
    Fixed(DType),
    /// `T`
    Param(&'static str),
    /// `T::Acc`: the dtype in which sums of `T` are kept.
    Sum(&'static str),
}

impl DTypeAst {
    /// The dtype it stands for, where `of` knows the type parameters.
    pub fn resolve(self, of: impl FnOnce(&'static str) -> Option<DType>) -> Option<DType> {
        match self {
            DTypeAst::Fixed(dtype) => Some(dtype),
            DTypeAst::Param(name) => of(name),
            DTypeAst::Sum(name) => of(name)?.sums_in(),
        }
    }

    /// The type parameter that it follows from.
    pub fn param(self) -> Option<&'static str> {
        match self {
            DTypeAst::Fixed(_) => None,
            DTypeAst::Param(name) | DTypeAst::Sum(name) => Some(name),
        }
    }
}

/// A type as written.
#[derive(Clone, Copy, Debug)]
pub enum TypeAst {
    /// A scalar: `i64`, `T`.
    Scalar(DTypeAst),
    /// `Ptr<T>` or `PtrMut<T>`.
    Ptr {
        /// What it points to.
        dtype: DTypeAst,
        /// Whether it is `PtrMut`.
        mutable: bool,
    },
    /// `View<T, 2>` or `ViewMut<T, 2>`.
    View {
        /// The dtype of its elements.
        dtype: DTypeAst,
        /// The number of axes.
        rank: u8,
        /// Whether it is `ViewMut`.
        mutable: bool,
    },
    /// `Views<T, 2>` or `ViewsMut<T, 2>`: what is known of all views of a list. The table of them is the parameter behind.
    Views {
        /// The dtype of their elements.
        dtype: DTypeAst,
        /// The number of axes.
        rank: u8,
        /// Whether it is `ViewsMut`.
        mutable: bool,
    },
    /// `Tile<T, ..>`, `Tile2<T, M, N>`, ...: only its dtype matters here, rustc checks the rest.
    Tile(DTypeAst),
    /// A tile whose extents are written: `Tile2<T, M, N>`, `Row<T, N>`. A const parameter of a device
    /// function that stands here is known from the argument's shape.
    Shaped(DTypeAst, &'static [ExtentAst]),
    /// `(f32, i64)`
    Tuple(&'static [TypeAst]),
    /// A type that rustc checks and the front end takes from the argument.
    Inferred,
}

/// An extent as written in a type.
#[derive(Clone, Copy, Debug)]
pub enum ExtentAst {
    /// A const parameter.
    Const(&'static str),
    /// A number; 1 for the unit axis of `Row` and `Col`.
    Fixed(u32),
    /// `{ BM / 2 }`: computed from const parameters.
    Computed(&'static ExprAst),
    /// Anything else.
    Any,
}

/// A block: statements, then perhaps a value.
#[derive(Clone, Copy, Debug)]
pub struct BlockAst {
    /// Statements in order.
    pub stmts: &'static [StmtAst],
    /// The value of the block, where it ends in an expression without a semicolon.
    pub value: Option<&'static ExprAst>,
}

/// A statement.
#[derive(Clone, Copy, Debug)]
pub enum StmtAst {
    /// `let pattern = value;` also with `mut`, also with a type that fixes a literal's dtype.
    Let {
        /// The names.
        pattern: &'static PatternAst,
        /// `let x: f32 = ..`
        ty: Option<&'static TypeAst>,
        /// The value.
        value: &'static ExprAst,
        /// The whole statement.
        span: Span,
    },
    /// `place = value;` : a name, or a tuple of names.
    Assign {
        /// The names.
        pattern: &'static PatternAst,
        /// The value. `x += y` arrives as `x = x + y`.
        value: &'static ExprAst,
        /// The whole statement.
        span: Span,
    },
    /// `for name in iter { .. }`
    For {
        /// The loop variable.
        pattern: &'static PatternAst,
        /// What it runs over.
        iter: &'static IterAst,
        /// The body.
        body: &'static BlockAst,
        /// The header.
        span: Span,
    },
    /// `while cond { .. }`
    While {
        /// The condition.
        cond: &'static ExprAst,
        /// The body.
        body: &'static BlockAst,
        /// The header.
        span: Span,
    },
    /// `return;` of a kernel, `return value;` at the end of a device function.
    Return {
        /// The value, in a device function.
        value: Option<&'static ExprAst>,
        /// The statement.
        span: Span,
    },
    /// An expression for its effect; `if` without a value too.
    Expr(&'static ExprAst),
}

/// What a name binding looks like.
#[derive(Clone, Copy, Debug)]
pub enum PatternAst {
    /// A name.
    Name(&'static str),
    /// `_`
    Wild,
    /// `(a, b)`
    Tuple(&'static [PatternAst]),
}

/// What a `for` runs over.
#[derive(Clone, Copy, Debug)]
pub enum IterAst {
    /// `a..b`, `range(a, b, step)`, with options. If all three are compile-time constants and the
    /// form is `a..b` over const parameters and literals, or `static_range(..)`, it is unrolled.
    Range {
        /// The first index.
        start: &'static ExprAst,
        /// The end, exclusive.
        end: &'static ExprAst,
        /// The step; 1 where absent.
        step: Option<&'static ExprAst>,
        /// `.stages(n)`; 0 where absent.
        stages: u8,
        /// `.unroll(n)`; 0 where absent.
        unroll: u8,
        /// `static_range(a, b, step)`: unrolled, and refused where not constant.
        is_static: bool,
    },
    /// `persistent(total)`: this program's share of `0..total`: program_id(0), then steps of
    /// num_programs(0).
    Persistent(&'static ExprAst),
}

/// An expression with its place.
#[derive(Clone, Copy, Debug)]
pub struct ExprAst {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: ExprKind,
}

/// What an expression is.
#[derive(Clone, Copy, Debug)]
pub enum ExprKind {
    /// An integer literal, with its suffix's dtype if it has one.
    Int(i128, Option<DType>),
    /// A float literal, with its suffix's dtype if it has one.
    Float(f64, Option<DType>),
    /// `true` or `false`.
    Bool(bool),
    /// A variable, parameter or const parameter.
    Name(&'static str),
    /// A Rust constant of the user's or the prelude's, such as `FRAC_1_SQRT_2`, by value.
    Constant(fn() -> ConstValue),
    /// `T::NEG_INFINITY`, `f32::MAX`, ...
    DTypeConst(DTypeAst, &'static str),
    /// `T::from(x)`: converts a scalar or literal.
    From(DTypeAst, &'static ExprAst),
    /// `-x` or `!x`.
    Neg(&'static ExprAst),
    /// `!x`
    Not(&'static ExprAst),
    /// Arithmetic, bitwise and shifts.
    Binary(BinaryOp, &'static ExprAst, &'static ExprAst),
    /// `<` and friends.
    Compare(Predicate, &'static ExprAst, &'static ExprAst),
    /// `a && b` on scalars.
    AndThen(&'static ExprAst, &'static ExprAst),
    /// `a || b` on scalars.
    OrElse(&'static ExprAst, &'static ExprAst),
    /// `x as f32` on scalars.
    As(&'static ExprAst, DTypeAst),
    /// `(a, b)`
    Tuple(&'static [ExprAst]),
    /// `[a, b]`: coordinates.
    Array(&'static [ExprAst]),
    /// `pair.0`
    Field(&'static ExprAst, u32),
    /// `params.scale`
    Member(&'static ExprAst, &'static str),
    /// A call of the language's own function: `load`, `arange`, ...
    Builtin {
        /// Its name, one of the table in `front::builtins`.
        name: &'static str,
        /// `::<..>` arguments in order.
        generics: &'static [GenericAst],
        /// The arguments.
        args: &'static [ExprAst],
    },
    /// A method: `x.to::<f32>()`, `view.load::<BM, BK>([i, j])`, `x.row()`.
    Method {
        /// What it is called on.
        receiver: &'static ExprAst,
        /// Its name.
        name: &'static str,
        /// `::<..>` arguments in order.
        generics: &'static [GenericAst],
        /// The arguments.
        args: &'static [ExprAst],
    },
    /// A call of a `#[device]` function.
    Device {
        /// The function.
        callee: &'static FnAst,
        /// `::<..>` arguments in order.
        generics: &'static [GenericAst],
        /// The arguments.
        args: &'static [ExprAst],
    },
    /// A `#[device]` function by name, as the argument of `reduce` or `associative_scan`.
    DeviceRef(&'static FnAst),
    /// `if cond { .. } else { .. }`
    If {
        /// The condition.
        cond: &'static ExprAst,
        /// Where it holds.
        then: &'static BlockAst,
        /// Where it does not.
        otherwise: Option<&'static BlockAst>,
    },
    /// `if let Some(x) = value { .. } else { .. }`
    IfSome {
        /// What is in it, where something is.
        pattern: &'static PatternAst,
        /// The optional value.
        value: &'static ExprAst,
        /// Where it is there.
        then: &'static BlockAst,
        /// Where it is not.
        otherwise: Option<&'static BlockAst>,
    },
    /// `{ .. }`
    Block(&'static BlockAst),
    /// `device_print!("x = {}", x)`
    Print(&'static str, &'static [ExprAst]),
    /// `inline_asm!("text", "constraints", x, y, value, pack = 2)`: how many elements a text is of; the inputs, and last
    /// what the CPU computes.
    Asm(&'static str, &'static str, u8, &'static [ExprAst]),
    /// `device_assert!(cond, "message")`
    Assert(&'static ExprAst, &'static str),
    /// `static_assert!(cond, "message")`
    StaticAssert(&'static ExprAst, &'static str),
}

/// A `::<..>` argument.
#[derive(Clone, Copy, Debug)]
pub enum GenericAst {
    /// A dtype, or a shape or type that rustc infers (`Inferred`).
    Type(TypeAst),
    /// A compile-time value: a const parameter, a literal or `{ .. }` over them.
    Const(&'static ExprAst),
    /// What an atomic orders: `Acquire`.
    Order(MemoryOrder),
    /// Among whom it does: `System`.
    Scope(MemoryScope),
}

/// The value of a Rust constant named in a kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "each variant is a Rust type")]
pub enum ConstValue {
    Bool(bool),
    Int(DType, i64),
    F32(f32),
    F64(f64),
}

macro_rules! const_value_from {
    ($($ty:ty => $dtype:ident),*) => {$(
        impl From<$ty> for ConstValue {
            fn from(value: $ty) -> ConstValue {
                ConstValue::Int(DType::$dtype, value as i64)
            }
        }
    )*};
}
const_value_from!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, usize => I64);

impl From<bool> for ConstValue {
    fn from(value: bool) -> ConstValue {
        ConstValue::Bool(value)
    }
}

impl From<f32> for ConstValue {
    fn from(value: f32) -> ConstValue {
        ConstValue::F32(value)
    }
}

impl From<f64> for ConstValue {
    fn from(value: f64) -> ConstValue {
        ConstValue::F64(value)
    }
}
