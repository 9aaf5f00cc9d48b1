//! What is known about values without running the kernel.

pub mod range;
