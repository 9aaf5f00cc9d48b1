//! Configurations of a kernel: those there are to choose from, those that were measured, and those that were chosen.
//!
//! A kernel holds it; [`autotune`](crate::autotune) measures, and chooses.

mod chosen;
mod config;
pub(crate) mod database;
mod machine;
#[cfg(test)]
pub(crate) mod samples;

pub(crate) use chosen::Choice;
pub use chosen::{Chosen, Source};
pub use config::{Axis, Config, ExampleExtents, Extents, Problem, Tuning};
#[doc(hidden)]
pub use config::{Dims, bucket, constant, count, with};
pub use database::{Database, Record};
