//! Choosing the constants, warps and stages that a kernel runs fastest with.
//!
//! A kernel declares what there is to choose from, beside its source:
//!
//! ```ignore
//! #[autotune(
//!     key = { m: c.dim(0), n: c.dim(1), k: a.dim(1) },
//!     space = { BM: [64, 128], BN: [128, 256], BK: 64, num_warps: [4, 8], num_stages: 4 },
//!     grid = |t| Grid::x(m.div_ceil(t.BM) * n.div_ceil(t.BN)),
//! )]
//! #[kernel]
//! pub fn matmul<T: Float, const BM: usize, const BN: usize, const BK: usize>(..) { .. }
//!
//! matmul::tuned::<bf16>(&stream, (&a, &b, &mut c))?;
//! ```
//!
//! `tuned` never measures on its own: it takes the configuration from the database on this disk, from
//! the table that came with the kernel, from the nearest problem in either, or from the kernel's
//! heuristic, in this order ([`Source`]). `genesis tune`, or `GENESIS_AUTOTUNE=1`, fills the database
//! ([`tune()`]):
//!
//! ```text
//! space --prune--> legal --model--> 12 best --compile, in parallel--> without spills
//!       --check against the CPU and each other--> right --3 runs--> 3 fastest --20 runs--> the best
//! ```
//!
//! What is wrong is never timed: a candidate is compared with the CPU back end on a small problem, and
//! with the other candidates on the problem itself.

mod check;
mod choose;
mod contest;
mod example;
mod search;
mod tune;

pub use crate::configs::{
    Axis, Chosen, Config, Database, ExampleExtents, Extents, Problem, Record, Source, Tuning,
};
#[doc(hidden)]
pub use crate::configs::{Dims, bucket, constant, count, with};
pub use crate::tuning::{Machine, Unit, Work};
pub use choose::machine;
pub use contest::Contest;
pub use example::{Example, Order};
pub use search::{Outcome, Plan, Progress, search};
pub use tune::{Candidate, TuneReport, TuneRequest, forecast, tune, tune_example};

/// What `#[autotune]` leaves beside a kernel.
#[doc(hidden)]
pub trait Tunable {
    /// The configuration space.
    const TUNING: Tuning;
}

#[cfg(test)]
mod tests {
    use crate::front::ast::FnAst;
    use crate::kernel::KernelDef;

    static AST: FnAst = crate::configs::samples::TEST_AST;

    /// A kernel without `#[autotune]`.
    pub(super) static PLAIN: KernelDef = KernelDef::new(&AST);
}
