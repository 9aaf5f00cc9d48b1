//! Integration tests of Genesis: one binary.

#![allow(missing_docs, reason = "tests")]

/// Every kernel of the framework through the assembler.
mod assemble;
/// Gradients by the tape: order, freeing, in-place misuse.
mod autograd;
/// Programs that are clusters of blocks.
mod cluster;
/// What every kernel compiles to, in counts.
mod emulate;
/// The program outside the workspace, as a module.
#[path = "../../docs/example/src/main.rs"]
mod example;
mod facts;
mod float8;
/// Whether there is a GPU, said aloud where there is none.
mod gpu;
/// Matrix products for an sm_90a GPU through the assembler.
mod hopper;
/// The eight kernels of the language on every device.
mod language;
/// The framework's matrix product in every combination of layouts.
mod matmul;
mod mixed;
/// Layers, optimizers, clipping, state.
mod nn;
/// Every op of the table against its f64 reference, on every dtype and layout.
mod ops;
/// The manifest of the program outside the workspace.
mod outside;
/// Seeds and states of the random generator.
mod random;
/// The runtime on a real GPU.
mod runtime;
/// Every kernel a few times, for compute-sanitizer.
mod sanitize;
/// Kernels a thousand times, bit for bit.
mod stress;
/// What a machine can check of the code itself.
mod tidy;
/// Configurations that launches pick where nothing was measured.
mod tuning;
/// What users read when a kernel is wrong.
mod ui;
/// Block sizes and warps of streaming kernels, timed.
mod variants;

/// What `crate::prelude` is inside genesis-kernel, for the kernels taken from its sources.
mod prelude {
    pub(crate) use genesis_kernel::prelude::*;
}
