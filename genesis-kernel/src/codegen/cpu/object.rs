//! A function as LLVM IR, and the passes of LLVM that make code of it.

use super::super::llvm::{Emitter, Level, Machine};
use super::lower;
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
    pub(super) fn level(self) -> Level {
        match self {
            OptLevel::O0 => Level::None,
            OptLevel::O3 => Level::Aggressive,
        }
    }

    pub(super) fn passes(self) -> &'static str {
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

/// A function as LLVM IR before any pass of LLVM, and the scratch memory it needs.
pub(super) fn written(func: &Func, opt: OptLevel) -> Result<(Emitter, Machine, u64), Error> {
    let machine = Machine::host(opt.level())?;
    let e = Emitter::new(&func.name);
    e.set_target(&machine);
    let scratch_bytes = lower::lower(&e, func)?;
    Ok((e, machine, scratch_bytes))
}

/// What [`compile`] hands to LLVM's passes, as text. It is made anew, since hardly anybody asks.
pub(crate) fn llvm_ir(func: &Func, opt: OptLevel) -> Result<String, Error> {
    Ok(written(func, opt)?.0.ir())
}

/// The processor's assembly of what [`compile`] makes.
pub(crate) fn assembly(func: &Func, opt: OptLevel) -> Result<String, Error> {
    let (e, machine, _) = written(func, opt)?;
    e.run_passes(opt.passes(), &machine)?;
    e.assembly(&machine)
}
