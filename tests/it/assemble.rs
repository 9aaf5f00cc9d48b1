//! Every kernel of the framework assembles for sm_80, sm_90a, sm_100a and sm_120a, without spills, local
//! memory or a warning of the assembler, such as that of products that run one after the other.

use genesis::DType;
use genesis_kernel::front::ast::{DTypeBound, DTypeParam};
use genesis_kernel::inspect::assemble;
use genesis_kernel::inspect::{Emit, InspectRequest};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::target::{GpuTarget, Target};
use rayon::prelude::*;

use crate::skipped::has_ptxas;

/// What launches pass: `A` is what is computed in.
pub(crate) fn dtypes(kernel: &KernelDef, dtype: DType) -> Vec<DType> {
    let wide = if dtype.bytes() == 2 && dtype.is_float() { DType::F32 } else { dtype };
    let of_ints = |param: &DTypeParam| param.name == "T" && param.bound == DTypeBound::Int;
    let is_of_ints = kernel.ast.dtypes.iter().any(of_ints);
    let has = |name: &str| kernel.ast.dtypes.iter().any(|param| param.name == name);
    // Keys that atomics compare have 32 bits or 64.
    let keyed = if has("A") || !has("T") { wide } else { dtype };
    let of = |param: &DTypeParam| match param.bound {
        // Keys have as many bits as what they are of.
        DTypeBound::Int if param.name == "K" && !is_of_ints && keyed.bytes() == 2 => DType::I16,
        DTypeBound::Int if param.name == "K" && !is_of_ints && keyed.bytes() == 4 => DType::I32,
        // What a product of integers gives.
        DTypeBound::Int if param.name == "O" => DType::I32,
        DTypeBound::Int => DType::I64,
        DTypeBound::Int8 => DType::I8,
        DTypeBound::Float8 => DType::F8E4M3,
        _ if param.name == "A" => wide,
        _ => dtype,
    };
    kernel.ast.dtypes.iter().map(of).collect()
}

/// The block sizes that launches on a GPU choose.
pub(crate) fn usual(name: &str) -> i64 {
    match name {
        "BM" | "BN" | "BP" => 64,
        "BH" | "AXES" | "LINES" | "UNIT" | "BANDS" => 4,
        "BW" => 16,
        "BK" | "D" | "HALF" => 32,
        "ROWS" | "TOKENS" | "OWN" => 16,
        "COLS" => 256,
        "BLOCK" => 1024,
        "LANES" => 32,
        "WIDTH" | "STEP" => 8,
        "PARTS" | "PLACES" => 64,
        "PIECE" => 256,
        "FAN" => 32,
        "EACH" | "TAPS" | "INVERSE" => 2,
        "PAGE" | "PAIRS" => 16,
        "ROW" | "KEYS" | "BINS" => 64,
        "SIZE" => 256,
        "HEADS" => 4,
        "OUTS" | "BITS" | "CHANNELS" => 4,
        "DEEP" | "GROUPS" | "MINS" | "NORM" | "NEXT" | "WEIGH" | "IMAGES" | "FIRSTS" => 1,
        "CP" => 32,
        "VEC" | "VO" => 8,
        "LINE" => 3,
        "VECTOR" => 16,
        _ => 0,
    }
}

/// A kernel's constants, as of a launch that the framework makes.
pub(crate) fn usual_consts(kernel: &KernelDef) -> Vec<i64> {
    let is_tiled =
        ["linear_tiles", "quantized_tiles"].iter().any(|name| kernel.name().starts_with(name));
    let number = |name: &str| match name {
        // With so many rows scales are loaded.
        "NORM" if is_tiled => 2,
        // Of a step of a product, of its columns, of a line of windows.
        "TAPS" => match kernel.name() {
            "conv" => 1,
            "conv_weight" | "grid_sample" | "resample" => 2,
            _ => 4,
        },
        // Four warps have few elements a thread, as launches make them.
        "COLS" if ["grid_sample", "running_extreme_bwd"].contains(&kernel.name()) => 64,
        // Scales of a block of 1024.
        "ROWS" if kernel.name() == "adamw_8bit" => 4,
        name => usual(name),
    };
    kernel.ast.consts.iter().map(|name| number(name)).collect()
}

/// One of each generation, with its own instructions.
fn targets() -> [Target; 4] {
    [Target::sm_80(), Target::sm_90a(), Target::sm_100a(), Target::sm_120a()]
}

/// Kernels that spill on a GPU, and how many bytes: ptxas takes more registers than a thread has there, of the same PTX
/// that needs as many as it has elsewhere.
const SPILLING: [(&str, GpuTarget, u32); 1] = [("sample_filtered", GpuTarget::SM_120A, 8)];

#[test]
fn every_kernel_assembles_without_spills() {
    if !has_ptxas("every kernel through the assembler") {
        return;
    }
    let mut cases = Vec::new();
    for kernel in kernels::all() {
        // What is behind a gate is launched for 16-bit dtypes alone.
        let is_narrow = kernel.name().ends_with("_gated");
        let mut all = vec![DType::BF16];
        // What has the same dtypes for both is one kernel.
        if !is_narrow && dtypes(kernel, DType::F32) != dtypes(kernel, DType::BF16) {
            all.push(DType::F32);
        }
        cases.extend(all.into_iter().flat_map(|d| targets().map(|target| (kernel, d, target))));
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
    let mut consts = usual_consts(kernel);
    if dtype == DType::F32 && kernel.name() == "paged_attention" {
        // As the framework launches it: rows and keys of a tile.
        consts[..2].fill(32);
    }
    let mut hints = InspectRequest::new(kernel, target.clone(), Emit::Ptx).hints;
    // As the framework launches it: a thread of four warps would hold twice the sums.
    let is_wide = dtype == DType::F32 && kernel.name() == "attention_keys";
    hints.num_warps = is_wide.then_some(8).or(hints.num_warps);
    let special = kernel.specialize(&dtypes(kernel, dtype), &consts, &hints).map_err(text)?;
    let compiled = special.compile(target).map_err(text)?;
    let Target::Gpu(gpu) = target else { return Err("is no GPU".to_owned()) };
    let ptx = compiled.ptx().map_err(text)?;
    let known = SPILLING.iter().find(|(name, on, _)| (*name, on) == (kernel.name(), gpu));
    let resources = compiled.resources().map_err(text)?;
    let spilled = resources.spill_bytes.ok_or("nothing is known of spills")?;
    judge(ptx, &resources.warnings, spilled, known.map_or(0, |&(.., bytes)| bytes))
}

/// Each target says the least PTX version that has all it takes, such as conversions of floats of 8 bits.
#[test]
fn floats_of_8_bits_compile_for_every_target() {
    let has_f8 = |kernel: &&KernelDef| {
        kernel.ast.dtypes.iter().any(|param| param.bound == DTypeBound::Float8)
    };
    let all: Vec<&'static KernelDef> = kernels::all().into_iter().filter(has_f8).collect();
    assert!(!all.is_empty());
    let can_assemble = has_ptxas("floats of 8 bits on every target");
    for (kernel, gpu) in all.iter().flat_map(|kernel| GpuTarget::ALL.map(|gpu| (kernel, gpu))) {
        let target = Target::Gpu(gpu);
        let hints = InspectRequest::new(kernel, target.clone(), Emit::Ptx).hints;
        let dtypes = dtypes(kernel, DType::BF16);
        let special = kernel.specialize(&dtypes, &usual_consts(kernel), &hints);
        let compiled = special.and_then(|special| special.compile(&target));
        let compiled = compiled.unwrap_or_else(|why| panic!("{} {gpu}: {why}", kernel.name()));
        let ptx = compiled.ptx().expect("the target is a GPU");
        let converts = ptx.contains("e4m3x2");
        assert!(!converts || gpu.features.f8_conversions, "{} {gpu}", kernel.name());
        if can_assemble {
            assemble(ptx, gpu.name())
                .unwrap_or_else(|why| panic!("{} {gpu}: {why}", kernel.name()));
        }
    }
}

/// What no kernel may do, but for known bytes of spills.
fn judge(ptx: &str, warnings: &[String], spilled: u32, known: u32) -> Result<(), String> {
    if known == 0 && ptx.contains(".local") {
        return Err("uses local memory".to_owned());
    }
    if !warnings.is_empty() {
        return Err(format!("the assembler warns: {}", warnings.join("; ")));
    }
    let message = format!("{spilled} bytes of spills, and not {known}");
    (spilled == known).then_some(()).ok_or(message)
}

/// A kernel with the PTX of its body, which has `[%rd1]` to read from and write to.
fn with_body(body: &str) -> String {
    format!(
        ".version 8.3\n.target sm_90a\n.address_size 64\n\
         .visible .entry k(.param .u64 k_param_0)\n.maxntid 128\n{{\n\
         .reg .b64 %rd<8>;\n.reg .b32 %r<600>;\n.reg .pred %p<4>;\n\
         ld.param.b64 %rd1, [k_param_0];\n{body}\nret;\n}}\n"
    )
}

/// The check of all kernels is one that can fail.
#[test]
fn spills_local_memory_and_serial_products_are_found() {
    let local = judge(&with_body(".local .b32 slot; st.local.b32 [slot], 0;"), &[], 0, 0);
    assert_eq!(local.unwrap_err(), "uses local memory");
    if !has_ptxas("spills and serial products are found") {
        return;
    }
    let why = |body: &str| {
        let ptx = with_body(body);
        let found = assemble(&ptx, "sm_90a").expect("the assembler takes it");
        let spilled = found.stack_bytes.max(found.spill_stores);
        judge(&ptx, &found.warnings, spilled, 0).unwrap_err()
    };
    // More values that live at one time than a thread has registers.
    let all = 0..400;
    let loads = all.clone().map(|i| format!("ld.volatile.global.b32 %r{i}, [%rd1+{}];", 4 * i));
    let stores = all.map(|i| format!("st.volatile.global.b32 [%rd1+{}], %r{i};", 4 * i));
    let body: Vec<String> = loads.chain(["bar.sync 0;".to_owned()]).chain(stores).collect();
    assert!(why(&body.join("\n")).contains("bytes of spills"), "{}", why(&body.join("\n")));
    // A sum that is read while its product may still run.
    let product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r0, %r1, %r2, %r3}, %rd1, %rd1, \
                   1, 1, 1, 0, 0;";
    let body = format!(
        "mov.b32 %r0, 0;\nmov.b32 %r1, 0;\nmov.b32 %r2, 0;\nmov.b32 %r3, 0;\n\
         wgmma.fence.sync.aligned;\n{product}\nadd.f32 %r0, %r0, %r1;\n{product}\n\
         wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n\
         st.global.v4.b32 [%rd1], {{%r0, %r1, %r2, %r3}};"
    );
    assert!(why(&body).contains("the assembler warns"), "{}", why(&body));
}
