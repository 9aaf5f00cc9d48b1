//! Runs the code of a GPU kernel without a GPU: every thread of a block, every byte of shared memory.
//!
//! What is run is the PTX that code generation made of layout IR: the conversions, reductions and rings
//! are no longer plans there but addresses, barriers and waits. Values are real, so a wrong layout,
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
mod parse;
mod print;
mod program;
mod shadow;
mod warp;

pub use fault::{Fault, FaultKind};
pub use memory::{GlobalMemory, MAP_BYTES, Tensor};
pub use module::{Module, RawLaunch};

use self::cluster::Launch;
use self::machine::Grid;
use self::memory::{Buffers, Global};
use self::program::Program;
use crate::codegen::nvptx::GpuKernel;
use crate::ir::ArgValue;

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

    /// Adds memory and gives its address, for arguments.
    pub fn add_buffer(&mut self, name: impl Into<String>, data: Vec<u8>, writable: bool) -> u64 {
        self.buffers.add(name.into(), data, writable)
    }

    /// What a buffer holds now; empty for an address that is none's.
    pub fn buffer(&self, address: u64) -> &[u8] {
        self.buffers.at(address).map_or(&[], |buffer| &buffer.bytes)
    }

    /// Runs the programs of a grid, axis 0 fastest. `args` are the kernel's as the user wrote it.
    ///
    /// # Errors
    /// At the first error of a thread; see the top of this module.
    pub fn run(
        &mut self,
        kernel: &GpuKernel,
        grid: [u32; 3],
        args: &[ArgValue],
    ) -> Result<(), Fault> {
        let program = parse::parse(&kernel.ptx).map_err(Fault::of_kernel)?;
        let places = program.params.iter().filter(|slot| slot.bytes == MAP_BYTES as u64);
        let tensors = places.zip(&kernel.maps).map(|(slot, map)| {
            Ok((slot.offset, Tensor::new(map, args).map_err(Fault::of_kernel)?))
        });
        let tensors = tensors.collect::<Result<_, Fault>>()?;
        let params = params(&program, args).map_err(Fault::of_kernel)?;
        let (threads, shared_bytes) = (kernel.threads, kernel.shared_bytes);
        let launch = Launch { program: &program, threads, shared_bytes, params, tensors };
        // A cluster is one program.
        let blocks = [grid[0] * kernel.num_blocks, grid[1], grid[2]];
        Grid::new(&launch, Global::Buffers(&mut self.buffers), blocks).run()
    }
}

/// The bytes of a kernel's parameters, as a launch lays them out.
fn params(program: &Program, args: &[ArgValue]) -> Result<Vec<u8>, String> {
    let mut words = Vec::new();
    for arg in args {
        match arg {
            ArgValue::Ptr(ptr) => words.push(*ptr),
            ArgValue::Scalar(scalar) => words.push(scalar.bits),
            ArgValue::View { ptr, dims, strides } => {
                words.push(*ptr);
                words.extend(dims.iter().chain(strides).map(|&n| n as u64));
            }
        }
    }
    let mut words = words.into_iter();
    let mut bytes = Vec::new();
    for slot in &program.params {
        bytes.resize(slot.offset as usize, 0);
        let word = match slot.bytes {
            128 => 0,
            // The last parameter, where there are assertions: nobody reads what failed.
            _ => words.next().unwrap_or(0),
        };
        bytes.extend(&word.to_le_bytes()[..slot.bytes.min(8) as usize]);
        bytes.resize((slot.offset + slot.bytes) as usize, 0);
    }
    if words.next().is_some() {
        return Err("more arguments than parameters".to_owned());
    }
    Ok(bytes)
}
