//! Quick.
#![allow(missing_docs)]
#[cfg(test)]
#[path = "../it/gpu.rs"]
mod gpu;
#[cfg(test)]
#[path = "../it/paged.rs"]
mod paged;
#[cfg(test)]
#[path = "../it/rotate.rs"]
mod rotate;
#[cfg(test)]
#[path = "../it/sample_tokens.rs"]
mod sample_tokens;
fn main() {}
