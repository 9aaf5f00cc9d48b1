//! A kernel as programs hold it: its definition, what it takes, and the code compiled for it so far.
//!
//! `#[kernel]` writes one `static KERNEL: KernelDef` for each function. A launch looks up the code
//! compiled for its dtypes, constants and what its arguments have in common (alignment, a stride of
//! one), compiles on a miss, checks every argument and runs it; the methods that do are in `launch`.

pub(crate) mod args;
mod lookup;
mod request;
pub(crate) mod shape_constraints;

use std::sync::OnceLock;

pub(crate) use self::args::ParamKind;
pub(crate) use self::lookup::{Entry, LaunchCache, Request};
pub use self::request::DenseLaunch;
pub(crate) use self::request::{Launch, MAX_DENSE_OPERANDS};
pub use crate::compile::Specialized;
use crate::configs::{Chosen, Tuning};
use crate::diag::Error;
use crate::front::ast::FnAst;
use crate::front::unchecked::is_unchecked;
pub use crate::front::{Hints, LaunchOptions, ParamHint};
pub use crate::ir::ArgValue;
use crate::ir::DType;
pub use crate::runtime::{Grid, GridExtent};

/// A kernel: what `#[kernel]` left in the program, and the code compiled from it so far.
#[derive(Debug)]
pub struct KernelDef {
    /// The function as written.
    pub ast: &'static FnAst,
    pub(crate) cache: LaunchCache,
    pub(crate) tuning: Option<&'static Tuning>,
    pub(crate) chosen: Chosen,
    /// Whether it does what nothing checks, once somebody asked.
    unchecked: OnceLock<bool>,
}

impl KernelDef {
    /// A kernel with nothing compiled yet; for the `static` that the macro writes.
    pub const fn new(ast: &'static FnAst) -> KernelDef {
        KernelDef {
            ast,
            cache: LaunchCache::new(),
            tuning: None,
            chosen: Chosen::new(),
            unchecked: OnceLock::new(),
        }
    }

    /// The kernel with what `#[autotune]` declares about it.
    pub const fn with_tuning(mut self, tuning: &'static Tuning) -> KernelDef {
        self.tuning = Some(tuning);
        self
    }

    /// What `#[autotune]` declares about the kernel, if anything.
    pub fn tuning(&self) -> Option<&'static Tuning> {
        self.tuning
    }

    /// The kernel's name as the user wrote it.
    pub fn name(&self) -> &'static str {
        self.ast.name
    }

    /// How many specialisations have been compiled by launches of this process.
    pub fn compiled_count(&self) -> usize {
        self.cache.len()
    }

    /// Tile IR for these dtypes and constants, each in the order of the kernel's parameters.
    ///
    /// # Errors
    /// If the kernel is wrong for them: a diagnostic at the user's line.
    pub fn specialize(
        &self,
        dtypes: &[DType],
        consts: &[i64],
        hints: &Hints,
    ) -> Result<Specialized, Error> {
        crate::compile::specialize(self.ast, dtypes, consts, hints)
    }

    /// Whether the kernel does what nothing checks: it takes pointers or that of a view, or promises the
    /// compiler something with `multiple_of`, itself or in a device function that it calls.
    pub fn is_unchecked(&self) -> bool {
        *self.unchecked.get_or_init(|| is_unchecked(self.ast))
    }
}
