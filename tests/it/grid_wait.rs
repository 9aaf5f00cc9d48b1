//! No instruction of a kernel touches memory that its primary grid may write before `griddepcontrol.wait`: in machine code,
//! since the assembler moves loads too.

use genesis::DType;
use genesis_kernel::inspect::{Emit, InspectRequest};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::target::Target;
use rayon::prelude::*;

use crate::assemble::{dtypes, usual_consts};
use crate::skipped::has_ptxas;

/// `griddepcontrol.wait` of machine code.
const WAIT: &str = "ACQBULK";

/// What touches global memory: loads, stores, atomics, and what starts asynchronous copies.
const ACCESSES: [&str; 11] = [
    " LDG", " LD.", " STG", " ST.", " ATOM", " RED", " LDGSTS", " UTMALDG", " UTMASTG", " UBLKCP",
    " UBLKRED",
];

/// The first access before the wait, if there is one.
fn early(sass: &str) -> Result<Option<&str>, String> {
    let at = sass.find(WAIT).ok_or("it does not wait")?;
    let accesses = |line: &&str| ACCESSES.iter().any(|access| line.contains(access));
    Ok(sass[..at].lines().find(accesses).map(str::trim))
}

/// Kernels, with constants and warps, whose loads CUDA's assemblers moved above the wait while these were `ld.global.nc`: of
/// `min_cols` those of the first row, which then was what the memory held before. That no kernel has such loads now, the
/// compiler checks in the PTX of each.
const MOVED: [(&str, &[i64], Option<u32>); 4] = [
    ("min_cols", &[4, 1024], Some(4)),
    ("max_cols", &[4, 1024], Some(4)),
    ("adam", &[], None),
    ("rotate_and_cache", &[], None),
];

fn check(kernel: &'static KernelDef, consts: &[i64], warps: Option<u32>) -> Result<(), String> {
    let text = |error: genesis_kernel::Error| error.to_string();
    let mut hints = InspectRequest::new(kernel, Target::sm_90a(), Emit::Ptx).hints;
    hints.num_warps = warps.or(hints.num_warps);
    let special = kernel.specialize(&dtypes(kernel, DType::F32), consts, &hints).map_err(text)?;
    let compiled = special.compile(&Target::sm_90a()).map_err(text)?;
    match early(&compiled.sass().map_err(text)?)? {
        Some(access) => Err(format!("`{access}` comes before the wait")),
        None => Ok(()),
    }
}

#[test]
fn machine_code_touches_no_memory_before_the_primary_grid_has_ended() {
    if !has_ptxas("what machine code does before it waits") {
        return;
    }
    let all = kernels::all();
    let problem = |(name, consts, warps): &(&str, &[i64], Option<u32>)| {
        let kernel = all.iter().find(|kernel| kernel.name() == *name).expect("it is a kernel");
        let usual = if consts.is_empty() { usual_consts(kernel) } else { consts.to_vec() };
        check(kernel, &usual, *warps).err().map(|problem| format!("{name}: {problem}"))
    };
    let problems: Vec<String> = MOVED.par_iter().filter_map(problem).collect();
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// The check is one that can fail.
#[test]
fn an_early_access_is_found() {
    let wait = "/*0100*/ ACQBULK ;\n/*0110*/ LDG.E R1, desc[UR4][R2.64] ;\n";
    assert_eq!(early(wait), Ok(None));
    for access in ["@P1 LDG.E.128.CONSTANT R24, desc[UR6][R10.64]", "UTMALDG.2D [UR8], [UR4]"] {
        let sass = format!("/*0000*/ S2R R0, SR_TID.X ;\n/*0010*/ {access} ;\n{wait}");
        assert!(early(&sass).is_ok_and(|found| found.is_some_and(|line| line.contains(access))));
    }
    assert!(early("/*0000*/ EXIT ;\n").is_err());
}
