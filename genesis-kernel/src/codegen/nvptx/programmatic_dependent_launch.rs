//! The instructions of programmatic dependent launch; where they stand, says machine IR.
//!
//! Both are assembly statements that may touch any memory. That keeps ordinary loads behind a wait, but not those of memory
//! that nobody writes: LLVM may move these anywhere. So a kernel that loads before it waits has none that is marked so but
//! of constant memory (see [`GridWait::orders`](crate::machine::GridWait)). Where the wait comes first, nothing stands before
//! it in the block that dominates all others, and LLVM moves code up to the end of a block, never above its first
//! instruction; that this holds is [checked](check) in the PTX of every kernel.

use super::super::llvm::Emitter;
use crate::Error;

const WAIT: &str = "griddepcontrol.wait;";

/// Waits for the primary grid.
pub(super) fn wait_for_grid(e: &Emitter) {
    e.inline_asm(e.void(), WAIT, "~{memory}", &[], true);
}

/// Lets the dependent grid start.
pub(super) fn launch_dependents(e: &Emitter) {
    e.inline_asm(e.void(), "griddepcontrol.launch_dependents;", "~{memory}", &[], true);
}

/// Whether this PTX may be launched with programmatic stream serialization.
pub(crate) fn waits_for_grid(ptx: &str) -> bool {
    ptx.contains(WAIT)
}

/// What touches memory that other grids may write.
const ACCESSES: [&str; 6] =
    ["ld.global", "ld.volatile.global", "st.global", "\tatom.", "\tred.", "cp.async"];

/// Sees that a kernel loads what the primary grid may write by no instruction that `ptxas` may move above the wait, as it
/// may `ld.global.nc`.
///
/// # Errors
/// A bug, if it does.
pub(super) fn check_loads(ptx: &str, reads_constant: bool) -> Result<(), Error> {
    match ptx.lines().find(|line| !reads_constant && line.contains("ld.global.nc")) {
        Some(line) => Err(Error::bug(format!(
            "`{}` reads memory that the primary grid may write",
            line.trim()
        ))),
        None => Ok(()),
    }
}

/// Sees that a kernel whose wait comes first has no access of global memory before it.
///
/// # Errors
/// A bug, if it has one.
pub(super) fn check(ptx: &str) -> Result<(), Error> {
    let entry = ptx.find(".entry").unwrap_or(ptx.len());
    let body = &ptx[entry..];
    let Some(at) = body.find(WAIT) else {
        return Err(Error::bug("a kernel does not wait for the primary grid"));
    };
    let accesses = |line: &&str| ACCESSES.iter().any(|access| line.contains(access));
    match body[..at].lines().find(accesses) {
        Some(line) => {
            Err(Error::bug(format!("`{}` comes before the wait for the primary grid", line.trim())))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_before_the_wait_is_found() {
        let ptx = |before: &str| {
            format!(
                ".func f()\n{{\n\tld.global.b32 %r1, [%rd1];\n\tret;\n}}\n.entry k(\n)\n{{\n\
                 {before}\tgriddepcontrol.wait;\n\tld.global.b32 %r1, [%rd1];\n\tret;\n}}\n"
            )
        };
        assert!(waits_for_grid(&ptx("")) && check(&ptx("")).is_ok());
        assert!(check(&ptx("\tld.param.b64 %rd1, [k_param_0];\n\tmov.u32 %r1, %tid.x;\n")).is_ok());
        for access in ["ld.global.nc.b32 %r1, [%rd1]", "red.relaxed.gpu.global.add.f32 [%rd1], %f1"]
        {
            assert!(check(&ptx(&format!("\t{access};\n"))).is_err(), "{access}");
        }
        assert!(check(".entry k()\n{\n\tret;\n}\n").is_err());
    }

    #[test]
    fn a_load_that_may_pass_the_wait_is_found() {
        let ptx = |load: &str| format!("griddepcontrol.wait;\n\t{load} %r1, [%rd1];\n");
        assert!(check_loads(&ptx("ld.global.b32"), false).is_ok());
        assert!(check_loads(&ptx("ld.global.nc.b32"), false).is_err());
        assert!(check_loads(&ptx("ld.global.nc.b32"), true).is_ok());
    }
}
