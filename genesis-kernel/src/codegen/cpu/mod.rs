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
mod histogram;
mod jam;
#[cfg(test)]
mod kernel_tests;
mod lower;
mod lowering;
mod nest;
mod object;
mod pairs;
mod plan;
#[cfg(test)]
mod random_tests;
mod reduce;
mod run;
mod scan;
mod scatter;
#[cfg(test)]
mod tests;
mod transpose;

pub(crate) use super::llvm::host_cpu;
pub use object::OptLevel;
pub(crate) use object::{assembly, llvm_ir};
pub use run::CpuKernel;
pub(crate) use run::CpuObject;

use crate::Error;
use crate::ir::Func;

/// Compiles a function to machine code of this processor, which [`CpuKernel::link`] makes runnable.
///
/// # Errors
/// Only for bugs: what the verifier accepts and the passes prepared compiles.
pub(crate) fn compile(func: &Func, opt: OptLevel) -> Result<CpuObject, Error> {
    let (e, machine, scratch_bytes) = object::written(func, opt)?;
    e.verify()?;
    e.run_passes(opt.passes(), &machine)?;
    Ok(CpuObject::new(func, e.object(&machine)?, scratch_bytes))
}

/// A function as a kernel that runs.
#[cfg(test)]
fn linked(func: &Func, opt: OptLevel) -> Result<CpuKernel, Error> {
    CpuKernel::link(func, compile(func, opt)?)
}
