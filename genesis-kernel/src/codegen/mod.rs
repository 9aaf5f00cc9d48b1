//! From IR to machine code through LLVM.

pub mod cpu;
pub(crate) mod elementwise;
pub(crate) mod llvm;
pub mod nvptx;
#[cfg(test)]
mod op_table_tests;
