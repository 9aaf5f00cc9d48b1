//! Every kernel of the framework assembles for sm_80 and sm_90a, without spills, local
//! memory or a warning of the assembler, such as that of products that run one after the other.

use genesis::DType;
use genesis_kernel::front::ast::{DTypeBound, DTypeParam};
use genesis_kernel::inspect::{Emit, InspectRequest};
use genesis_kernel::inspect::{assemble, find_tool};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::target::Target;
use rayon::prelude::*;

/// What launches pass: `A` is what is computed in.
pub(crate) fn dtypes(kernel: &KernelDef, dtype: DType) -> Vec<DType> {
    let wide = if dtype.bytes() == 2 && dtype.is_float() { DType::F32 } else { dtype };
    let of = |param: &DTypeParam| match param.bound {
        DTypeBound::Float8 => DType::F8E4M3,
        _ if param.name == "A" => wide,
        _ => dtype,
    };
    kernel.ast.dtypes.iter().map(of).collect()
}

/// The block sizes that launches on a GPU choose.
pub(crate) fn usual(name: &str) -> i64 {
    match name {
        "BM" | "BN" => 64,
        "BK" => 32,
        "ROWS" | "TOKENS" => 16,
        "COLS" => 256,
        "BLOCK" => 1024,
        "LANES" => 32,
        "WIDTH" => 8,
        "PARTS" => 64,
        "PIECE" => 256,
        "FAN" => 32,
        _ => 0,
    }
}

#[test]
fn every_kernel_assembles_without_spills() {
    if find_tool("ptxas").is_none() {
        println!("skipped: no ptxas");
        return;
    }
    let mut cases = Vec::new();
    for kernel in kernels::all() {
        for dtype in [DType::F32, DType::BF16] {
            cases.extend([Target::sm_80(), Target::sm_90a()].map(|target| (kernel, dtype, target)));
        }
    }
    let problem = |(kernel, dtype, target): &(&'static KernelDef, DType, Target)| {
        let what = format!("{} {dtype} {target:?}", kernel.name());
        check(kernel, *dtype, target).err().map(|problem| format!("{what}: {problem}"))
    };
    let problems: Vec<String> = cases.par_iter().filter_map(problem).collect();
    let assembled = cases.len() - problems.len();
    println!("{assembled} assembled");
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

fn check(kernel: &'static KernelDef, dtype: DType, target: &Target) -> Result<(), String> {
    let text = |error: genesis_kernel::Error| error.to_string();
    let consts: Vec<i64> = kernel.ast.consts.iter().map(|name| usual(name)).collect();
    let hints = InspectRequest::new(kernel, target.clone(), Emit::Ptx).hints;
    let special = kernel.specialize(&dtypes(kernel, dtype), &consts, &hints).map_err(text)?;
    let compiled = special.compile(target).map_err(text)?;
    let ptx = compiled.ptx().map_err(text)?;
    if ptx.contains(".local") {
        return Err("uses local memory".to_owned());
    }
    let arch = match target {
        Target::Gpu(gpu) => gpu.name(),
        Target::Cpu => return Err("is no GPU".to_owned()),
    };
    let result = assemble(ptx, &arch).map_err(text)?;
    if !result.warnings.is_empty() {
        return Err(format!("the assembler warns: {}", result.warnings.join("; ")));
    }
    let (stores, loads) = (result.spill_stores, result.spill_loads);
    if stores + loads + result.stack_bytes > 0 {
        return Err(format!(
            "{} registers, {stores} bytes of spills stored and {loads} loaded, {} of stack",
            result.registers, result.stack_bytes
        ));
    }
    Ok(())
}
