//! From layout IR to PTX.
//!
//! A tile is one LLVM scalar per register of its layout in each thread, so most ops are lowered
//! register by register; what crosses threads (reductions, scans, conversions, dots, atomics whose
//! result is wanted) goes through shuffles and shared memory. Control flow of tile IR is uniform over
//! a block, hence a barrier may stand anywhere but in the region of a reduction.
//!
//! ```text
//! %5: f32[128] = add %3, %4      reg [1] lane [2, 4, 8, 16, 32] warp [64]
//!   -> two `fadd float` in each of 64 threads
//! ```
//!
//! The ABI of a kernel, which the runtime's launch follows:
//! * parameters in order, flattened: a pointer is a 64-bit address, a scalar its own type (bool a
//!   byte), a view is its address, then extents, then strides, all 64 bits wide;
//! * then, only where [`GpuKernel::asserts`] is not empty, the address of an `i32` that the host can
//!   read after a fault (or 0): a failed assertion writes its number plus 1 there and traps;
//! * `32 * num_warps` threads and `shared_bytes` of dynamic shared memory a block;
//! * grid axes x, y, z are the programs along axes 0, 1, 2.

pub mod ptxas;

use crate::Error;
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// A kernel as PTX, and what a launch must know about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GpuKernel {
    /// The name of the entry point.
    pub name: String,
    /// The PTX.
    pub ptx: String,
    /// The LLVM IR that was handed to the code generator.
    pub llvm: String,
    /// Dynamic shared memory that a launch must ask for, in bytes.
    pub shared_bytes: u32,
    /// Warps of a block.
    pub num_warps: u32,
    /// Messages of assertions, by number. Where there are any, the kernel takes one more parameter.
    pub asserts: Vec<String>,
}

/// Compiles layout IR for a GPU.
///
/// # Errors
/// If the kernel needs more than the GPU has, such as shared memory, or something is wrong with the
/// compiler itself.
pub fn compile(lir: &LayoutIr, target: &GpuTarget) -> Result<GpuKernel, Error> {
    let _ = (lir, target);
    Err(Error::bug("GPU code generation is not wired up"))
}
