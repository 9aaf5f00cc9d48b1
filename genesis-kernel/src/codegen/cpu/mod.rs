//! Machine code of this processor: loops over chunks of lanes, not giant vectors.
//!
//! A tile is never one LLVM value. Most tile values are *virtual*: their code is written again inside
//! the loop of whoever reads them, one chunk of lanes at a time, so that `store(p, load(a) + load(b))`
//! becomes one loop with two vector loads, an addition and a store. A value is kept in *scratch* memory
//! where that is cheaper or needed: results of reductions, scans, dots and control flow, costly values
//! that several loops read, and loads that memory could change under.
//!
//! ```text
//! tile IR -> plan (virtual or in scratch) -> nests of loops over chunks -> LLVM -> object -> linked code
//! ```
//!
//! Masks `i < n` become loop bounds: the main loop of a row has none, and one masked loop takes the
//! rest. Programs of a launch are tasks of consecutive program ids; the loop over them is in the code.
//!
//! Not here: layouts, warps, barriers. Views' loads and stores are pointers before they come here
//! (`passes::views`), transcendental functions are polynomials (`passes::expand_math`).

mod address;
mod affine;
mod atomic;
mod bounds;
mod chunk;
mod control;
mod debug;
#[cfg(test)]
mod differential;
mod dot;
#[cfg(test)]
mod elementwise_tests;
mod gather;
mod jam;
#[cfg(test)]
mod kernel_tests;
mod lower;
mod lowering;
mod nest;
mod object;
mod plan;
#[cfg(test)]
mod random_tests;
mod reduce;
mod run;
mod scan;
#[cfg(test)]
mod tests;
mod transpose;

pub use object::OptLevel;
pub use run::CpuKernel;

use super::llvm::Jit;
use crate::Error;
use crate::ir::Func;

/// Compiles a function to machine code of this processor.
///
/// # Errors
/// Only for bugs: what the verifier accepts and the passes prepared compiles.
pub fn compile(func: &Func, opt: OptLevel) -> Result<CpuKernel, Error> {
    let (e, machine, scratch_bytes) = object::written(func, opt)?;
    e.verify()?;
    e.run_passes(opt.passes(), &machine)?;
    let code = e.object(&machine)?;
    let jit = Jit::link(&code)?;
    CpuKernel::new(func, opt, jit, scratch_bytes)
}
