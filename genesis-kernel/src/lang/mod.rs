//! What kernel authors see: tiles, pointers, views and the functions on them.
//!
//! Nothing here runs. `#[kernel]` and `#[device]` leave two things in the program: a description of
//! the function, which [`front`](crate::front) compiles, and the function's body in terms of this
//! module, which rustc type-checks, generic over every block size at once, and never instantiates.
//! So rustc and rust-analyzer know the type and shape of everything in a kernel.
//!
//! A shape is a tuple of extents, each [`Dim<N>`](Dim) or the unit extent [`One`]. Two shapes of one
//! rank broadcast where extents are equal or one is `One`:
//!
//! ```text
//! x: Tile<f32, (Dim<BM>, One)>        [BM, 1]
//! y: Tile<f32, (One, Dim<BN>)>        [1, BN]
//! x + y: Tile<f32, (Dim<BM>, Dim<BN>)>
//! ```
//!
//! rustc's messages print shapes as they are declared, `(Dim<BM>, Dim<BK>)` for `[BM, BK]`: stable
//! Rust has no way to print a type differently. What is found when a kernel is specialised is
//! printed as `[BM, BK]`.
//!
//! An extent of value 1 that is not written as `1` is a `Dim` like any other: rustc can't know.
//!
//! The page docs/language.md of the repository has every function with an example.
//!
//! Scalars are Rust's own numbers. A number without a suffix takes the dtype of the other operand,
//! generic ones included.

mod control;
mod dtype;
#[cfg(test)]
pub(crate) mod eight;
#[cfg(test)]
mod every;
pub mod fast;
pub mod functions;
pub mod library;
mod list;
mod literal;
mod memory;
pub mod operators;
mod param;
mod random;
mod reduce;
mod reshape;
mod shape;
mod tile;
mod view;

pub use crate::ir::float8::{f8e4m3, f8e5m2};
pub use control::{
    AsmInputs, AsmResults, Assertion, Condition, Print, Range, condition, device_assert,
    inline_asm, persistent, print, range, static_assert, static_range,
};
pub use dtype::{
    Accumulator, As, Bool, Element, Factor, Float, Float8, Int, Int8, Logic, Microscaled, Number,
    OneDType, as_,
};
pub use half::{bf16, f16};
pub use list::{ListLen, Views, ViewsMut};
pub use literal::{
    Argument, Constant, FloatLiteral, FromSource, IntLiteral, OfShape, ScalarOf, constant, from,
    rust_constant,
};
pub use memory::{Mask, Pointers, Ptr, PtrMut, Stored, WritablePointers};
pub use operators::{Pair, PairOrPtr};
pub use param::{KernelParam, PresentOf, struct_of};
pub use random::{Offsets, Seed};
pub use reduce::{Combine, HasAxis, Reducible, Scannable};
pub use reshape::{Col, Row, Scalar, Tile1, Tile2, Tile3};
pub use shape::{
    Append, Axis, Broadcast, Dim, DropAxis, Expand, Extent, InsertAxis, One, Permute, Rank,
    RemoveUnit, SetAxis, Shape, SplitLast, Squeeze, Transpose, Wider,
};
pub use tile::Tile;
pub use view::{TileOf, View, ViewAxis, ViewMut, ViewOf, dim, stride};

use crate::front::ast::FnAst;

/// A kernel's description, as `#[kernel]` leaves it.
#[doc(hidden)]
pub trait Described {
    /// The function as written.
    const AST: FnAst;
}

/// A `#[device]` function, by the unit struct that stands for it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function for kernels",
    label = "a kernel can't call this",
    note = "a kernel calls what the language has, and functions that have `#[device]` above them"
)]
pub trait DeviceFunction: Copy {
    /// The struct itself. Its methods are looked for in this type, so that rustc says of a function
    /// that is none for kernels what is written above, and nothing of methods.
    type Typed;
    /// Its only value.
    const TYPED: Self::Typed;
    /// Whether it takes the pointer of a view or promises something with `multiple_of`, itself or in a
    /// function that it calls. Kernels that call such a function have no safe launch.
    const UNCHECKED: bool;
}

/// [`DeviceFunction::UNCHECKED`] of the function that a name stands for.
#[doc(hidden)]
pub const fn is_unchecked<F: DeviceFunction>(_: F) -> bool {
    F::UNCHECKED
}

/// The struct that stands for a device function.
#[doc(hidden)]
pub const fn device_function<F: DeviceFunction>(_: F) -> F::Typed {
    F::TYPED
}

/// A value for the type checker.
///
/// # Panics
/// Always: the functions of the language have a meaning inside kernels only.
#[doc(hidden)]
#[track_caller]
pub fn refused<T>() -> T {
    panic!("the functions of the kernel language are for use inside `#[kernel]` and `#[device]`")
}

use refused as typed;
