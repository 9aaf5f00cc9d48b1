//! GPU kernels written as ordinary Rust functions.
//!
//! `tile IR -> passes -> layout IR -> LLVM -> PTX`, or `-> LLVM -> host code`; the interpreter of
//! tile IR is the oracle for both.

extern crate self as genesis_kernel;

pub mod analysis;
pub mod autotune;
pub mod cache;
pub mod codegen;
pub mod compile;
pub mod compose;
mod configs;
mod device;
pub mod diag;
pub mod differential;
pub mod emulate;
pub mod front;
pub mod inspect;
pub mod interp;
pub mod ir;
pub mod kernel;
pub mod knobs;
pub mod lang;
mod launch;
pub mod layout;
pub mod machine;
pub mod passes;
pub mod prelude;
mod printed;
pub mod runtime;
pub mod target;
pub mod trace;
pub mod tuning;

pub use compile::{Compiled, Resources};
pub use diag::{Diagnostic, Error, Warning};
pub use genesis_macros::{KernelParam, autotune, device, kernel};
pub use ir::{DType, Scalar};
pub use kernel::{ArgValue, Grid, Hints, KernelDef, LaunchOptions, ParamHint, Specialized};
pub use launch::{compile_ahead, launch_at_once};
pub use runtime::{Arg, Array, Buffer, Device, HostElement, Stream};
pub use target::{GpuTarget, Target};
