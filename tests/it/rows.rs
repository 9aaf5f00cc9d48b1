//! Facts of the code for the memory-bound kernels in the configurations that a GPU's launches choose:
//! accesses to global memory by width, barriers, shuffles; and, where the assembler is present, that
//! nothing is spilled.

use expect_test::expect;
use genesis::DType;
use genesis_kernel::inspect::{Emit, InspectRequest, assemble, find_tool};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::target::Target;

/// A kernel as it is launched.
struct Case {
    kernel: &'static KernelDef,
    dtypes: &'static [DType],
    consts: &'static [i64],
    warps: Option<u32>,
}

const F32: DType = DType::F32;
const BF16: DType = DType::BF16;

fn case(
    kernel: &'static KernelDef,
    dtypes: &'static [DType],
    consts: &'static [i64],
    warps: impl Into<Option<u32>>,
) -> Case {
    Case { kernel, dtypes, consts, warps: warps.into() }
}

fn cases() -> Vec<Case> {
    use kernels::{copy, embedding, loss, norm, norm_bwd, reduce, scan, softmax, update};
    const HALF: &[DType] = &[BF16, F32];
    const FULL: &[DType] = &[F32, F32];
    vec![
        case(&softmax::softmax_long::KERNEL, HALF, &[8192, 1024, 8], 16),
        case(&softmax::softmax_long::KERNEL, HALF, &[16384, 2048, 8], 32),
        case(&loss::cross_entropy::KERNEL, HALF, &[8192, 1024, 8], 16),
        case(&loss::cross_entropy_bwd::KERNEL, HALF, &[4096], None),
        case(&norm::layer_norm::KERNEL, HALF, &[1, 8192], 8),
        case(&norm::layer_norm::KERNEL, HALF, &[4, 1024], 4),
        case(&norm::rms_norm::KERNEL, HALF, &[1, 8192], 8),
        case(&norm::layer_norm_long::KERNEL, HALF, &[4096], None),
        case(&norm_bwd::layer_norm_bwd::KERNEL, HALF, &[1, 8192], 16),
        case(&norm_bwd::layer_norm_bwd::KERNEL, HALF, &[4, 1024], 4),
        case(&norm_bwd::rms_norm_bwd::KERNEL, HALF, &[1, 8192], 16),
        case(&norm_bwd::rms_norm_bwd::KERNEL, HALF, &[4, 1024], 4),
        case(&norm_bwd::layer_norm_bwd_long::KERNEL, HALF, &[4096], None),
        case(&norm_bwd::layer_norm_params::KERNEL, HALF, &[32, 128], None),
        case(&reduce::sum_rows::KERNEL, &[F32, F32, F32], &[1, 4096], None),
        case(&reduce::sum_cols::KERNEL, &[F32, F32, F32], &[32, 128], None),
        case(&reduce::sum_rows_shared::KERNEL, &[F32, F32, F32], &[4096, 512], None),
        case(&reduce::sum_cols_shared::KERNEL, &[F32, F32, F32], &[32, 128, 8], None),
        case(&reduce::argmax_rows::KERNEL, &[F32], &[1, 1024], 8),
        case(&scan::cumsum_rows::KERNEL, FULL, &[1, 1024], 8),
        case(&embedding::embedding_order::KERNEL, &[], &[16, 256], None),
        case(&embedding::embedding_bwd::KERNEL, HALF, &[8, 512], None),
        case(&update::adam::KERNEL, FULL, &[1024, 1], None),
        case(&copy::cast_across::KERNEL, &[F32, F32], &[64, 64], None),
        case(&copy::cast_across::KERNEL, &[BF16, BF16], &[64, 64], None),
        case(&kernels::elementwise::add::KERNEL, FULL, &[4, 1024], None),
        case(&copy::fill_flat::KERNEL, &[BF16], &[8192], None),
    ]
}

/// How many accesses of each width there are to global memory, and what crosses threads.
fn facts(ptx: &str) -> String {
    let lines = || ptx.lines().map(str::trim);
    let count = |what: &str, vector: &str| {
        let is = |line: &&str| line.contains(what) && line.contains(vector);
        lines().filter(is).count()
    };
    let mut text = Vec::new();
    for what in ["ld.global", "st.global", "ld.shared", "st.shared"] {
        let (all, wide, pairs) = (count(what, ""), count(what, ".v4"), count(what, ".v2"));
        if all > 0 {
            text.push(format!("{what} {wide} v4 {pairs} v2 {} others", all - wide - pairs));
        }
    }
    for what in ["bar", "shfl"] {
        let n = lines().filter(|line| line.starts_with(what)).count();
        if n > 0 {
            text.push(format!("{what} {n}"));
        }
    }
    text.join(", ")
}

fn check(case: &Case, target: &Target) -> Result<String, String> {
    let text = |error: genesis_kernel::Error| error.to_string();
    let mut hints = InspectRequest::new(case.kernel, target.clone(), Emit::Ptx).hints;
    hints.num_warps = case.warps;
    let special = case.kernel.specialize(case.dtypes, case.consts, &hints).map_err(text)?;
    let compiled = special.compile(target).map_err(text)?;
    let ptx = compiled.ptx().map_err(text)?;
    if let (Target::Gpu(gpu), Some(_)) = (target, find_tool("ptxas")) {
        let result = assemble(ptx, &gpu.name()).map_err(text)?;
        println!("{} {:?}: {} registers", case.kernel.name(), case.consts, result.registers);
        if result.spill_stores + result.spill_loads + result.stack_bytes > 0 {
            return Err(format!("{} {:?} spills", case.kernel.name(), case.consts));
        }
    }
    Ok(facts(ptx))
}

#[test]
fn memory_bound_kernels_move_whole_vectors() {
    let mut table = String::new();
    let mut problems = Vec::new();
    for case in cases() {
        let dtype = case.dtypes.first().copied().unwrap_or(DType::I64);
        let name = format!("{}/{dtype}{:?}", case.kernel.name(), case.consts);
        match check(&case, &Target::sm_90a()) {
            Ok(facts) => table += &format!("{name}: {facts}\n"),
            Err(problem) => problems.push(problem),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    expect![[r#"
        softmax_long/bf16[8192, 1024, 8]: ld.global 4 v4 0 v2 0 others, st.global 2 v4 0 v2 0 others, ld.shared 8 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 3, shfl 10
        softmax_long/bf16[16384, 2048, 8]: ld.global 4 v4 0 v2 0 others, st.global 2 v4 0 v2 0 others, ld.shared 16 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 3, shfl 10
        cross_entropy/bf16[8192, 1024, 8]: ld.global 2 v4 0 v2 2 others, st.global 0 v4 0 v2 2 others, ld.shared 8 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 2, shfl 10
        cross_entropy_bwd/bf16[4096]: ld.global 2 v4 0 v2 3 others, st.global 2 v4 0 v2 0 others
        layer_norm/bf16[1, 8192]: ld.global 12 v4 0 v2 0 others, st.global 4 v4 0 v2 2 others, ld.shared 4 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 2, shfl 10
        layer_norm/bf16[4, 1024]: ld.global 12 v4 0 v2 0 others, st.global 4 v4 0 v2 2 others, shfl 10
        rms_norm/bf16[1, 8192]: ld.global 8 v4 0 v2 0 others, st.global 4 v4 0 v2 1 others, ld.shared 2 v4 0 v2 0 others, st.shared 0 v4 0 v2 1 others, bar 1, shfl 5
        layer_norm_long/bf16[4096]: ld.global 8 v4 0 v2 0 others, st.global 2 v4 0 v2 2 others, ld.shared 4 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 3, shfl 10
        layer_norm_bwd/bf16[1, 8192]: ld.global 6 v4 0 v2 2 others, st.global 10 v4 0 v2 0 others, ld.shared 8 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 4, shfl 10
        layer_norm_bwd/bf16[4, 1024]: ld.global 12 v4 0 v2 2 others, st.global 20 v4 0 v2 0 others, ld.shared 64 v4 0 v2 0 others, st.shared 0 v4 0 v2 64 others, bar 4, shfl 10
        rms_norm_bwd/bf16[1, 8192]: ld.global 6 v4 0 v2 1 others, st.global 6 v4 0 v2 0 others, ld.shared 4 v4 0 v2 0 others, st.shared 0 v4 0 v2 1 others, bar 2, shfl 5
        rms_norm_bwd/bf16[4, 1024]: ld.global 12 v4 0 v2 1 others, st.global 12 v4 0 v2 0 others, ld.shared 32 v4 0 v2 0 others, st.shared 0 v4 0 v2 32 others, bar 2, shfl 5
        layer_norm_bwd_long/bf16[4096]: ld.global 12 v4 0 v2 2 others, st.global 2 v4 0 v2 0 others, ld.shared 4 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 3, shfl 10
        layer_norm_params/bf16[32, 128]: ld.global 4 v4 0 v2 4 others, st.global 4 v4 0 v2 0 others, ld.shared 32 v4 0 v2 0 others, st.shared 0 v4 0 v2 16 others, bar 3, shfl 16
        sum_rows/f32[1, 4096]: ld.global 4 v4 0 v2 0 others, st.global 0 v4 0 v2 1 others, ld.shared 2 v4 0 v2 0 others, st.shared 0 v4 0 v2 1 others, bar 1, shfl 5
        sum_cols/f32[32, 128]: ld.global 4 v4 0 v2 0 others, st.global 1 v4 0 v2 0 others, ld.shared 8 v4 0 v2 0 others, st.shared 0 v4 0 v2 4 others, bar 1
        sum_rows_shared/f32[4096, 512]: ld.global 4 v4 1 v2 0 others, st.global 0 v4 0 v2 2 others, ld.shared 4 v4 0 v2 1 others, st.shared 0 v4 0 v2 3 others, bar 5, shfl 10
        sum_cols_shared/f32[32, 128, 8]: ld.global 5 v4 0 v2 0 others, st.global 2 v4 0 v2 0 others, ld.shared 16 v4 0 v2 1 others, st.shared 0 v4 0 v2 9 others, bar 5
        argmax_rows/f32[1, 1024]: ld.global 1 v4 0 v2 1 others, st.global 0 v4 0 v2 1 others, ld.shared 4 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 2, shfl 10
        cumsum_rows/f32[1, 1024]: ld.global 1 v4 0 v2 0 others, st.global 1 v4 0 v2 0 others, ld.shared 4 v4 0 v2 0 others, st.shared 0 v4 0 v2 2 others, bar 3, shfl 10
        embedding_order/i64[16, 256]: ld.global 0 v4 0 v2 2 others, st.global 0 v4 0 v2 2 others, ld.shared 0 v4 0 v2 11 others, st.shared 0 v4 0 v2 4 others, bar 4, shfl 10
        embedding_bwd/bf16[8, 512]: ld.global 2 v4 0 v2 6 others, st.global 1 v4 0 v2 0 others, ld.shared 8 v4 0 v2 1 others, st.shared 0 v4 0 v2 9 others, bar 3
        adam/f32[1024, 1]: ld.global 8 v4 0 v2 0 others, st.global 6 v4 0 v2 0 others
        cast_across/f32[64, 64]: ld.global 4 v4 0 v2 0 others, st.global 4 v4 0 v2 0 others, ld.shared 0 v4 0 v2 16 others, st.shared 0 v4 0 v2 16 others, bar 1
        cast_across/bf16[64, 64]: ld.global 2 v4 0 v2 0 others, st.global 2 v4 0 v2 0 others, ld.shared 0 v4 0 v2 16 others, st.shared 0 v4 8 v2 0 others, bar 1
        add/f32[4, 1024]: ld.global 8 v4 0 v2 0 others, st.global 4 v4 0 v2 0 others
        fill_flat/bf16[8192]: st.global 4 v4 0 v2 0 others
    "#]].assert_eq(&table);
}
