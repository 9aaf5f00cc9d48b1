//! Runs the code of a GPU kernel without a GPU: every thread of a block, every byte of shared memory.
//!
//! What is run is the PTX that code generation made of layout IR: layout conversions, reductions and multistage
//! buffers are no longer plans there but addresses, barriers and waits. Values are real, so a wrong layout,
//! swizzle or descriptor gives a wrong result, which a test compares with the interpreter of tile IR.
//! Order is checked and not sampled: each byte of shared memory remembers who wrote it and who read it
//! since (`shadow`), and an access that no barrier, wait or fence puts after those is an error at the
//! kernel's own line, even where it happened to read the right value:
//!
//! ```text
//! a race: the load at kernels/src/softmax.rs:31 reads byte 4 of shared memory, which thread 32 wrote
//! at kernels/src/softmax.rs:31 with nothing in between
//! ```
//!
//! Errors are also: reading shared memory that nobody wrote, accesses outside of a buffer or of shared
//! memory, misaligned ones, the copy engine or a product reading what no fence has handed to it, a
//! block that ends while copies still read its memory, and threads that wait for each other for ever.
//!
//! Blocks run one after the other, or in turns where they wait for each other; those of a cluster run
//! together.

mod access;
mod alu;
mod arrivals;
mod barrier;
mod cluster;
mod copy;
mod fault;
mod machine;
mod matrix;
mod memory;
mod module;
pub mod numbers;
mod parse;
mod print;
mod program;
mod shadow;
mod warp;

pub use fault::{Fault, FaultKind};
pub use memory::{GlobalMemory, MAP_BYTES, Tensor};
pub use module::{Module, RawLaunch};

use self::memory::{Buffers, Global};

/// Runs kernels on buffers that it owns.
#[derive(Debug, Default)]
pub struct Emulator {
    buffers: Buffers,
}

impl Emulator {
    /// An emulator without buffers.
    pub fn new() -> Emulator {
        Emulator::default()
    }

    /// Adds memory and gives its address, for parameters.
    pub fn add_buffer(&mut self, name: impl Into<String>, data: Vec<u8>, writable: bool) -> u64 {
        self.buffers.add(name.into(), data, writable)
    }

    /// What a buffer holds now; empty for an address that is none's.
    pub fn buffer(&self, address: u64) -> &[u8] {
        self.buffers.at(address).map_or(&[], |buffer| &buffer.bytes)
    }

    /// Runs the blocks of a grid, axis 0 fastest.
    ///
    /// # Errors
    /// At the first error of a thread; see the top of this module.
    pub fn run(&mut self, module: &Module, launch: &RawLaunch) -> Result<(), Fault> {
        module.run_in(launch, Global::Buffers(&mut self.buffers))
    }
}
