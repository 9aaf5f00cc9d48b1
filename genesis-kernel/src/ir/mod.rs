//! Tile IR: what a kernel is before anything is known about threads.
//!
//! Values are tiles, control flow is structured, and there are no layouts, no shared memory and no
//! barriers. It prints and parses back to itself, a verifier states what must hold, and an
//! interpreter says what it means.

mod argument;
pub(crate) mod asm;
pub(crate) mod far;
pub mod float8;
pub mod func;
mod keep;
mod lex;
mod names;
pub mod number;
pub mod ops;
mod ordering;
pub mod parse;
pub mod print;
pub mod random;
pub mod scalar;
pub mod tma;
pub mod types;
pub mod verify;

pub use argument::{ArgValue, InterpArg};
pub use func::{
    Builder, Def, Func, Loc, Op, OpData, Param, ParamAttrs, Region, RegionData, Value, ValueData,
};
pub(crate) use keep::keep;
pub use number::Scalar;
pub use ops::{
    AtomicOp, BinaryOp, Cache, Combine, DotPrecision, LoopOptions, OpKind, Predicate, UnaryOp,
};
pub use ordering::{AtomicOrdering, MemoryOrder, MemoryScope};
pub use parse::{ParseError, parse};
pub use print::print;
pub use tma::{Channel, Multicast, TensorMap, Tma, TmaLoad, TmaStore};
pub use types::{DType, Elem, MAX_RANK, Shape, TileType, Type};
pub use verify::verify;
