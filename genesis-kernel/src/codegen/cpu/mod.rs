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
mod jam;
#[cfg(test)]
mod kernel_tests;
mod lower;
mod nest;
mod plan;
#[cfg(test)]
mod random_tests;
mod reduce;
mod run;
mod scan;
#[cfg(test)]
mod tests;
mod transpose;

pub use run::CpuKernel;

use super::llvm::{Emitter, Jit, Level, Machine};
use crate::Error;
use crate::ir::Func;

/// How hard LLVM works. Both levels give the same bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OptLevel {
    /// Code as it is written here: for tests that compare with the optimized code.
    O0,
    /// Everything.
    O3,
}

impl OptLevel {
    fn level(self) -> Level {
        match self {
            OptLevel::O0 => Level::None,
            OptLevel::O3 => Level::Aggressive,
        }
    }

    fn passes(self) -> &'static str {
        match self {
            OptLevel::O0 => "default<O0>",
            OptLevel::O3 => PASSES,
        }
    }
}

/// The loops are in their final shape and the values are vectors already: what is left is to share, to
/// hoist and to fold. `default<O3>` takes six times as long, unrolls the loops, and its code was slower
/// (row softmax 15.3 against 11.9 ms).
const PASSES: &str =
    "function(early-cse,loop-mssa(licm),instcombine<no-verify-fixpoint>,simplifycfg)";

/// Compiles a function to machine code of this processor.
///
/// # Errors
/// Only for bugs: what the verifier accepts and the passes prepared compiles.
pub fn compile(func: &Func, opt: OptLevel) -> Result<CpuKernel, Error> {
    let (e, machine, scratch_bytes) = written(func, opt)?;
    e.verify()?;
    e.run_passes(opt.passes(), &machine)?;
    let object = e.object(&machine)?;
    let jit = Jit::link(&object)?;
    CpuKernel::new(func, opt, jit, scratch_bytes)
}

/// A function as LLVM IR before any pass of LLVM, and the scratch memory it needs.
fn written(func: &Func, opt: OptLevel) -> Result<(Emitter, Machine, u64), Error> {
    let machine = Machine::host(opt.level())?;
    let e = Emitter::new(&func.name);
    e.set_target(&machine);
    let scratch_bytes = lower::lower(&e, func)?;
    Ok((e, machine, scratch_bytes))
}

/// The name of the function in every object.
const SYMBOL: &str = "kernel";

/// What [`compile`] hands to LLVM's passes, as text. It is made anew, since hardly anybody asks.
fn llvm_ir(func: &Func, opt: OptLevel) -> Result<String, Error> {
    Ok(written(func, opt)?.0.ir())
}

/// The processor's assembly of what [`compile`] makes.
fn assembly(func: &Func, opt: OptLevel) -> Result<String, Error> {
    let (e, machine, _) = written(func, opt)?;
    e.run_passes(opt.passes(), &machine)?;
    e.assembly(&machine)
}
