//! From IR to machine code through LLVM.

pub mod cpu;
pub mod llvm;
pub mod nvptx;
