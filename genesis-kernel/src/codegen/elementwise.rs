//! Elementwise ops on LLVM values.
