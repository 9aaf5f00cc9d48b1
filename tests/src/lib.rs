//! The code in the documentation, compiled and run as documentation tests, and the conformance runner.

pub mod conform;

/// README.md
#[doc = include_str!("../../README.md")]
pub mod readme {}

/// The tutorial's first step.
#[doc = include_str!("../../docs/1-vector-add.md")]
pub mod vector_add {}

/// The tutorial's second step.
#[doc = include_str!("../../docs/2-softmax.md")]
pub mod softmax {}

/// The tutorial's third step.
#[doc = include_str!("../../docs/3-matmul.md")]
pub mod matmul {}
