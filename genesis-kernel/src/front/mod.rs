//! From what the macros leave to tile IR.

pub mod ast;
