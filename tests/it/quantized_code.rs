//! The code of products with quantized weights: forms, tiles and epilogues that launches choose, through the assembler.

use genesis::DType;
use genesis_kernel::front::ast::PatternAst;
use genesis_kernel::kernel::{Hints, KernelDef, ParamHint};
use genesis_kernel::target::Target;
use kernels::quantized_tiles::{quantized_tiles_of_codes, quantized_tiles_of_codes_gated};
use rayon::prelude::*;

use crate::skipped::has_ptxas;

/// BK, GROUPS, LANES, SPAN, BITS, ZERO and MINS of one scale for a row, of long and of short groups, with minimums.
const FORMS: [[i64; 7]; 7] = [
    [128, 1, 128, 0, 8, 128, 0],
    [128, 1, 128, 0, 4, 8, 0],
    [128, 1, 128, 128, 4, 8, 0],
    [64, 1, 64, 128, 4, 0, 1],
    [64, 2, 32, 32, 4, 0, 1],
    [64, 2, 32, 32, 8, 0, 1],
    [128, 8, 16, 16, 8, 32, 0],
];

/// Rows of a tile, parts, and whether they are programs, of few rows and of many.
const TILES: [[i64; 3]; 9] = [
    [8, 7, 1],
    [16, 1, 1],
    [16, 7, 1],
    [64, 7, 0],
    [64, 7, 1],
    [128, 1, 0],
    [128, 1, 1],
    [128, 7, 0],
    [128, 7, 1],
];

/// Shared memory of a block.
const MOST_SHARED: u32 = 232_448;

/// Parameters whose rows are neighbours: those of results.
const TURNED: [&str; 4] = ["added", "of", "y", "next"];

fn hints(kernel: &KernelDef, stages: u32) -> Hints {
    let mut hints = Hints::contiguous(kernel.ast);
    for (param, hint) in kernel.ast.params.iter().zip(&mut hints.params) {
        if matches!(param.pattern, PatternAst::Name(name) if TURNED.contains(name)) {
            *hint = ParamHint { unit_stride: false, unit_axis: Some(0), ..*hint };
        }
    }
    Hints { num_warps: Some(4), num_stages: Some(stages), ..hints }
}

/// What is wrong with the code of these constants.
fn problem(kernel: &KernelDef, consts: &[i64]) -> Option<String> {
    let halves = if consts[6] == 4 { 2 } else { 1 };
    let slot = 64 * consts[2] + 2 * halves * consts[1] * consts[2];
    let stages = ((104 << 10) / slot).clamp(2, 6);
    // Tiles whose slots are larger have fewer rows.
    if slot > 48 << 10 {
        return None;
    }
    let dtypes = [DType::BF16, DType::F32, DType::BF16];
    let special = kernel.specialize(&dtypes, consts, &hints(kernel, stages as u32));
    let resources = special.and_then(|it| it.compile(&Target::sm_90a())?.resources());
    let what = format!("{} {consts:?}", kernel.name());
    match resources {
        Err(error) => Some(format!("{what}: {error}")),
        Ok(found) => {
            println!("{what}: {:?} registers, {:?} shared", found.registers, found.shared_bytes);
            let is_good = found.spill_bytes == Some(0)
                && found.warnings.is_empty()
                && found.shared_bytes <= Some(MOST_SHARED);
            (!is_good).then(|| format!("{what}: {found:?}"))
        }
    }
}

#[test]
fn no_form_of_quantized_weights_spills() {
    if !has_ptxas("forms of quantized weights") {
        return;
    }
    let mut cases: Vec<(&KernelDef, Vec<i64>)> = Vec::new();
    for form in FORMS {
        for [rows, parts, split] in TILES {
            // Few rows sum their squares up.
            let norm = if rows <= 16 { 1 } else { 2 };
            let head = [&[64, rows][..], &form, &[parts, split]].concat();
            let plain = [&head[..], &[1, norm, 1]].concat();
            cases.push((&quantized_tiles_of_codes::KERNEL, plain));
            // Several parts of gates are more sums in registers.
            let most = if form[4] == 4 { 32 } else { 64 };
            if parts == 1 || rows <= most {
                let gated = [&head[..], &[0, norm]].concat();
                cases.push((&quantized_tiles_of_codes_gated::KERNEL, gated));
            }
        }
    }
    let problems: Vec<String> =
        cases.par_iter().filter_map(|(kernel, consts)| problem(kernel, consts)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
