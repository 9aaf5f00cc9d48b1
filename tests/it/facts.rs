//! What each kernel compiles to, as facts: a line a kernel in `facts.txt`, so that a load that lost its
//! width, a barrier more or a register more is seen in a diff and without a GPU.
//!
//! `UPDATE_EXPECT=1 cargo test -p tests facts` writes the file anew.

use expect_test::expect_file;
use genesis::DType;
use genesis_kernel::compile::{Compiled, Resources};
use genesis_kernel::kernel::{Hints, KernelDef};
use genesis_kernel::target::Target;
use genesis_kernel::tuning::Chip;
use genesis_kernel::tuning::attention::{Features, Heads, Part, Tile};
use rayon::prelude::*;

use crate::assemble::{dtypes, usual_consts};
use crate::skipped::has_ptxas;

/// A kernel in one configuration.
struct Configuration {
    kernel: &'static KernelDef,
    dtype: DType,
    consts: Vec<i64>,
    num_warps: Option<u32>,
}

/// Configurations of large shapes, beside the usual one of every kernel: name, dtype, constants, warps.
const LARGE: &[(&str, DType, &[i64], Option<u32>)] = &[
    ("softmax", DType::F32, &[1, 8192], Some(8)),
    ("softmax", DType::BF16, &[1, 8192], Some(8)),
    ("softmax", DType::BF16, &[4, 1024], Some(4)),
    ("softmax_long", DType::BF16, &[8192, 1024, 8], Some(16)),
    ("softmax_long", DType::BF16, &[16384, 2048, 8], Some(32)),
    ("cross_entropy", DType::BF16, &[8192, 1024, 8], Some(16)),
    ("cross_entropy_bwd", DType::BF16, &[4096], None),
    ("logit_losses", DType::BF16, &[8192, 1024, 8, 0, 0, 0, 0], Some(16)),
    ("logit_losses", DType::BF16, &[16384, 2048, 8, 1, 1, 0, 0], Some(32)),
    ("layer_norm", DType::BF16, &[1, 8192], Some(8)),
    ("layer_norm", DType::BF16, &[4, 1024], Some(4)),
    ("rms_norm", DType::BF16, &[1, 8192], Some(8)),
    ("rms_norm", DType::BF16, &[4, 1024], Some(4)),
    ("layer_norm_bwd", DType::BF16, &[1, 8192, 0, 0], Some(16)),
    ("layer_norm_bwd", DType::BF16, &[1, 8192, 1, 0], Some(16)),
    ("layer_norm_bwd", DType::BF16, &[2, 1024, 0, 1], Some(2)),
    ("layer_norm_bwd", DType::BF16, &[4, 1024, 1, 0], Some(4)),
    ("layer_norm_bwd", DType::BF16, &[1, 4096, 0, 1], Some(4)),
    ("rms_norm_bwd", DType::BF16, &[1, 8192, 0, 1], Some(16)),
    ("rms_norm_bwd", DType::BF16, &[1, 8192, 1, 1], Some(16)),
    ("rms_norm_bwd", DType::BF16, &[2, 1024, 0, 1], Some(2)),
    ("rms_norm_bwd", DType::BF16, &[2, 1024, 1, 1], Some(2)),
    ("rms_norm_bwd", DType::BF16, &[1, 4096, 1, 1], Some(4)),
    ("sum_rows", DType::F32, &[1, 8192], None),
    ("sum_cols", DType::F32, &[32, 128], Some(4)),
    ("sum_rows_shared", DType::F32, &[4096, 512], None),
    ("sum_cols_shared", DType::F32, &[32, 128, 8], Some(4)),
    ("sum_cols_shared", DType::BF16, &[64, 128, 8], Some(4)),
    ("argmax_rows", DType::F32, &[1, 2048], Some(8)),
    ("cumsum_rows", DType::F32, &[1, 1024], Some(8)),
    ("embedding_pieces", DType::I64, &[16, 1024], Some(4)),
    ("embedding_merge", DType::I64, &[16, 8], Some(4)),
    ("embedding_starts", DType::I64, &[128], Some(4)),
    ("embedding_bwd", DType::BF16, &[4, 4, 1024], Some(4)),
    ("embedding_bag_bwd", DType::F32, &[0, 4, 4, 512], Some(4)),
    ("embedding_bag_dots", DType::F32, &[16, 128], Some(4)),
    ("softmax_bwd", DType::BF16, &[1, 8192], Some(16)),
    ("logaddexp_flat", DType::F32, &[1024], Some(8)),
    ("logaddexp2_flat", DType::F32, &[1024], Some(8)),
    ("resample", DType::F32, &[2, 8, 64], Some(4)),
    ("resample", DType::F32, &[1, 1, 512], Some(4)),
    ("resample_wide", DType::F32, &[8, 8], Some(1)),
    ("max_pool", DType::F32, &[8, 64], Some(4)),
    ("max_pool_bwd", DType::F32, &[8, 64], Some(4)),
    ("adam", DType::F32, &[1024, 8, 0, 0, 1, 0, 0], Some(4)),
    ("adam", DType::BF16, &[1024, 8, 0, 0, 1, 0, 1], Some(4)),
    ("adamw_8bit", DType::F32, &[1024, 8, 0, 0, 4], Some(4)),
    ("cast_across", DType::F32, &[64, 64], None),
    ("cast_across", DType::BF16, &[64, 64], None),
    ("add_row", DType::F32, &[8, 256], Some(4)),
    ("add_column", DType::F32, &[8, 256], Some(4)),
    ("fill_flat", DType::BF16, &[8192], None),
    ("matmul", DType::BF16, &[128, 128, 64], Some(8)),
    ("matmul", DType::BF16, &[128, 256, 64], Some(8)),
    ("matmul", DType::BF16, &[128, 128, 64], Some(4)),
    ("matmul_bias_gelu", DType::BF16, &[128, 128, 64], Some(4)),
    ("matmul_bias_gelu", DType::BF16, &[128, 256, 64], Some(8)),
    ("matmul_f8", DType::BF16, &[128, 128, 128], Some(8)),
    ("matmul_f8_fast", DType::BF16, &[128, 256, 128], Some(8)),
    ("conv_by_one", DType::BF16, &[128, 128, 64, 2, 8, 8], Some(4)),
    ("conv_by_one", DType::BF16, &[64, 256, 64, 4, 8, 8], Some(4)),
    ("conv_by_one_weight", DType::BF16, &[128, 128, 64, 1, 8, 8], Some(8)),
    ("conv_point_weight", DType::BF16, &[128, 128, 64], Some(8)),
    ("conv", DType::BF16, &[128, 128, 32, 1, 32, 8], Some(8)),
    ("conv", DType::BF16, &[128, 64, 32, 8, 4, 4], Some(4)),
    ("conv", DType::BF16, &[128, 8, 32, 4, 8, 8], Some(4)),
    ("conv", DType::F32, &[128, 128, 16, 1, 16, 4], Some(8)),
    ("conv_weight", DType::BF16, &[64, 64, 32, 16, 4, 4, 8], Some(4)),
    ("conv_few", DType::BF16, &[1, 16, 64, 3], Some(4)),
    ("conv_few_weight", DType::BF16, &[4, 512], Some(4)),
    ("paged_decode", DType::BF16, &[16, 128, 64, 7, 16, 128, 0, 0, 0, 0], Some(4)),
    ("paged_decode", DType::BF16, &[16, 64, 128, 4, 16, 1024, 0, 0, 1, 0], Some(4)),
    ("paged_decode", DType::BF16, &[64, 32, 256, 2, 16, 1024, 1, 0, 1, 0], Some(8)),
];

/// Kernels whose large configurations have their second operand as a view of its transpose: tensor cores
/// read 8-bit floats along K only.
const LAST_TURNED: &[&str] = &["matmul_f8", "matmul_f8_fast"];

/// A bias, a cap, dropped weights, packed sequences: none, each, and those that take most registers together.
const FEATURES: [[bool; 4]; 8] = [
    [false, false, false, false],
    [true, false, false, false],
    [false, true, false, false],
    [false, false, true, false],
    [false, false, false, true],
    [true, true, true, false],
    [false, true, false, true],
    [false, true, true, true],
];

/// Attention in the tiles that launches choose.
fn attention() -> Vec<Configuration> {
    let parts = [Part::Forward, Part::Keys, Part::OnlyKeys, Part::OnlyValues, Part::Queries];
    let heads = [32, 64, 128, 256];
    let all = parts.iter().flat_map(|&part| heads.iter().map(move |&head| (part, head)));
    let all = all.flat_map(|(part, head)| FEATURES.map(|features| (part, head, features)));
    all.filter_map(|(part, head, features)| attention_of(part, head, features)).collect()
}

/// One part of attention, of heads and features for which a launch takes it.
fn attention_of(part: Part, head: usize, features: [bool; 4]) -> Option<Configuration> {
    let [bias, cap, drop, packed] = features;
    let features = Features { bias, cap, drop, packed };
    let heads = Heads { queries: 1024, width: head, bytes: 2 };
    let chip = Chip::of_target(&Target::sm_90a());
    if part.has_keys() && !Part::of_keys(&chip, heads, features).contains(&part) {
        return None;
    }
    let Tile { queries, keys, warps } = Tile::of(&chip, part, heads, features);
    let mut consts = vec![queries, keys, head as i64];
    consts.extend((part != Part::Forward).then_some(0));
    consts.extend(part.only());
    consts.extend(features.consts());
    let kernel: &'static KernelDef = match part {
        Part::Forward => &kernels::attention::attention::KERNEL,
        Part::Queries => &kernels::attention::attention_queries::KERNEL,
        _ => &kernels::attention::attention_keys::KERNEL,
    };
    Some(Configuration { kernel, dtype: DType::BF16, consts, num_warps: Some(warps) })
}

fn configurations() -> Vec<Configuration> {
    let mut all: Vec<Configuration> = kernels::all()
        .into_iter()
        .map(|kernel| Configuration {
            kernel,
            dtype: DType::BF16,
            consts: usual_consts(kernel),
            num_warps: None,
        })
        .collect();
    for &(name, dtype, consts, num_warps) in LARGE {
        let kernel = kernels::all().into_iter().find(|kernel| kernel.name() == name);
        let kernel = kernel.expect("the list names kernels");
        assert_eq!(
            kernel.ast.consts.len(),
            consts.len(),
            "{name} has the constants {:?}",
            kernel.ast.consts
        );
        all.push(Configuration { kernel, dtype, consts: consts.to_vec(), num_warps });
    }
    all.extend(attention());
    all
}

/// Kernels that spill in tiles that launches choose, and how many bytes, to the byte. Three index divisions of the warps that
/// bring boxes of rank 5 do not fit into their registers. A decode step of heads of 128 with norms
/// takes every register, since loads that the primary grid may write keep their place.
const SPILLING: [(&str, &str); 2] = [("conv_by_one ", "SPILLS 36"), ("paged_decode ", "SPILLS 32")];

/// Bytes that a thread of attention with warp roles may keep in local memory: a few numbers that stay as they are in the
/// loop, most of them read behind it. The accumulators of heads of 256 leave no more registers.
const SPILLED_BY_ATTENTION: u32 = 32;

#[test]
fn kernels_compile_to_what_they_did() {
    if !has_ptxas("what kernels compile to") {
        return;
    }
    let lines: Vec<String> = configurations().par_iter().map(line).collect();
    // What no snapshot may bless.
    let is_known = |line: &str| {
        let bytes = line.split("SPILLS ").nth(1).and_then(|rest| rest.parse::<u32>().ok());
        let has_roles = line.starts_with("attention") && line.contains("setmaxnreg ");
        if has_roles && bytes.is_some_and(|bytes| bytes <= SPILLED_BY_ATTENTION) {
            return true;
        }
        SPILLING.iter().any(|(name, bytes)| line.starts_with(name) && line.ends_with(bytes))
    };
    let bad = |line: &&String| {
        let is_bad = ["SPILLS", "WARNING", "refused"].iter().any(|word| line.contains(word));
        is_bad && !is_known(line)
    };
    let bad: Vec<&String> = lines.iter().filter(bad).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    expect_file!["facts.txt"].assert_eq(&(lines.join("\n") + "\n"));
}

/// Packed sequences are multiplied as a batch is: by `wgmma`, of what the copy engine brings.
#[test]
fn packed_sequences_multiply_as_a_batch_does() {
    let is_packed = |what: &&Configuration| what.consts.ends_with(&[0, 0, 0, 1]);
    let mut compared = 0;
    for what in configurations().iter().filter(is_packed) {
        if what.kernel.ast.consts.last() != Some(&"VARLEN") {
            continue;
        }
        let counts = |is_packed: i64| {
            let [others @ .., _] = &what.consts[..] else { return Vec::new() };
            let consts = [others, &[is_packed]].concat();
            let (kernel, dtype, num_warps) = (what.kernel, what.dtype, what.num_warps);
            let one = Configuration { kernel, dtype, consts, num_warps };
            let compiled = compile(&one).expect("the facts are of the same configurations");
            let ptx = compiled.ptx().expect("the target is a GPU");
            let is_product =
                |fact: &String| ["wgmma ", "setmaxnreg "].iter().any(|name| fact.starts_with(name));
            of_ptx(ptx).into_iter().filter(is_product).collect()
        };
        let (packed, batch) = (counts(1), counts(0));
        let has_wgmma = packed.iter().any(|fact| fact.starts_with("wgmma "));
        assert!(has_wgmma, "{}: {packed:?}", what.kernel.name());
        assert_eq!(packed, batch, "{}", what.kernel.name());
        compared += 1;
    }
    assert!(compared > 0, "no configuration of the list is of packed sequences");
}

/// The facts of one configuration.
fn line(what: &Configuration) -> String {
    let kernel = what.kernel;
    let mut title = kernel.name().to_owned();
    if !kernel.ast.dtypes.is_empty() {
        title += &format!(" {}", what.dtype);
    }
    for (name, value) in kernel.ast.consts.iter().zip(&what.consts) {
        title += &format!(" {name}={value}");
    }
    let facts = |compiled: Compiled| -> Result<Vec<String>, String> {
        let text = |error: genesis_kernel::Error| error.to_string();
        let (ptx, resources) = (compiled.ptx().map_err(text)?, compiled.resources().map_err(text)?);
        Ok(of_ptx(ptx).into_iter().chain(of_machine_code(&resources)).collect())
    };
    match compile(what).and_then(facts) {
        Ok(facts) => format!("{title}: {}", facts.join(", ")),
        Err(error) => format!("{title}: refused, {}", error.lines().next().unwrap_or_default()),
    }
}

fn compile(what: &Configuration) -> Result<Compiled, String> {
    let text = |error: genesis_kernel::Error| error.to_string();
    let dtypes = dtypes(what.kernel, what.dtype);
    let mut hints = Hints { num_warps: what.num_warps, ..Hints::contiguous(what.kernel.ast) };
    let b = hints.params.get_mut(1).filter(|_| LAST_TURNED.contains(&what.kernel.name()));
    if let Some(b) = b.filter(|_| what.num_warps.is_some()) {
        (b.unit_stride, b.unit_axis) = (false, Some(1));
    }
    let special = what.kernel.specialize(&dtypes, &what.consts, &hints).map_err(text)?;
    special.compile(&Target::sm_90a()).map_err(text)
}

/// Instructions that are counted: what they begin with, and the fact's name.
const COUNTED: [(&str, &str); 12] = [
    ("wgmma.mma_async", "wgmma"),
    ("mma.sync", "mma"),
    ("ldmatrix", "ldmatrix"),
    ("cp.async.bulk.tensor", "tma"),
    ("cp.async.c", "cp.async"),
    ("mbarrier.try_wait", "mbarrier wait"),
    ("setmaxnreg", "setmaxnreg"),
    ("shfl.sync", "shfl"),
    ("bar.sync", "barrier"),
    ("barrier.sync", "barrier"),
    ("atom.", "atom"),
    ("red.", "red"),
];

/// Counts in PTX: accesses of global memory with the widest in bits, then what is there of
/// [`COUNTED`].
fn of_ptx(ptx: &str) -> Vec<String> {
    let mut counts = [0usize; COUNTED.len()];
    let mut accesses = [("ld.global", 0usize, 0u32), ("st.global", 0, 0)];
    for instruction in ptx.lines().filter_map(instruction) {
        for (name, count, widest) in &mut accesses {
            if instruction.starts_with(&format!("{name}.")) {
                *count += 1;
                *widest = (*widest).max(width(instruction));
            }
        }
        let counted = COUNTED.iter().position(|(start, _)| instruction.starts_with(start));
        if let Some(at) = counted {
            let name = COUNTED[at].1;
            let first = COUNTED.iter().position(|(_, other)| *other == name).unwrap_or(at);
            counts[first] += 1;
        }
    }
    let accesses = accesses.iter().filter(|(_, count, _)| *count > 0);
    let accesses = accesses.map(|(name, count, widest)| format!("{name} {count} of {widest} bits"));
    let counts = COUNTED.iter().zip(counts).filter(|(_, count)| *count > 0);
    accesses.chain(counts.map(|((_, name), count)| format!("{name} {count}"))).collect()
}

/// The instruction of a line, without the predicate before it.
fn instruction(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix('@') {
        Some(predicated) => predicated.split_once(char::is_whitespace)?.1.trim_start(),
        None => line,
    };
    line.split_whitespace().next().filter(|word| !word.starts_with("//"))
}

/// The bits of one access: the dtype's, times the elements of the vector.
fn width(instruction: &str) -> u32 {
    let digits = |part: &str| part.get(1..).and_then(|digits| digits.parse::<u32>().ok());
    let mut vector = 1;
    let mut bits = 0;
    for part in instruction.split('.') {
        match (part.chars().next(), digits(part)) {
            (Some('v'), Some(n)) => vector = n,
            (Some('b' | 'f' | 'u' | 's'), Some(n)) => bits = n,
            _ => {}
        }
    }
    vector * bits
}

fn of_machine_code(resources: &Resources) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(bytes @ 1..) = resources.shared_bytes {
        facts.push(format!("{bytes} bytes shared"));
    }
    if let Some(ways @ 2..) = resources.bank_ways {
        facts.push(format!("{ways}-way bank conflicts"));
    }
    facts.extend(resources.registers.map(|registers| format!("{registers} registers")));
    match resources.spill_bytes {
        None | Some(0) => {}
        Some(bytes) => facts.push(format!("SPILLS {bytes}")),
    }
    facts.extend(resources.warnings.iter().map(|warning| format!("WARNING {warning}")));
    facts
}

#[test]
fn reads_instructions() {
    let ptx = "
    @%p1 ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
    st.global.L1::no_allocate.v2.b64 [%rd1], {%rd2, %rd3};
    bar.sync 0;
    // bar.sync 0;
    cp.async.cg.shared.global [%r1], [%rd1], 16;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier [%r1], [%rd1], [%r2];";
    let facts = of_ptx(ptx).join(", ");
    let wanted = "ld.global 1 of 128 bits, st.global 1 of 128 bits, tma 1, cp.async 1, barrier 1";
    assert_eq!(facts, wanted);
}
