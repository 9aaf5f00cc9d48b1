//! The framework's matrix products for an sm_90a GPU: what their code is made of, and what the
//! assembler makes of it.

use genesis::DType;
use genesis_kernel::inspect::assemble;
use genesis_kernel::kernel::{Hints, KernelDef, ParamHint};
use genesis_kernel::target::Target;

use crate::skipped::has_ptxas;

/// A view of rank 3 by its axis of stride 1.
fn view(unit: u8) -> ParamHint {
    let (multiple_of, stride_multiple_of) = (16, 16);
    let (unit_stride, unit_axis) = (unit == 2, (unit != 2).then_some(unit));
    ParamHint { multiple_of, unit_stride, unit_axis, stride_multiple_of, ..ParamHint::default() }
}

/// PTX of a product whose operands have these contiguous axes.
fn ptx(kernel: &KernelDef, dtypes: &[DType], tile: [i64; 3], warps: u32, units: [u8; 2]) -> String {
    let params = vec![view(units[0]), view(units[1]), view(2)];
    let hints = Hints { params, num_warps: Some(warps), ..Hints::default() };
    let special = kernel.specialize(dtypes, &tile, &hints).expect("the kernel takes these");
    let compiled = special.compile(&Target::sm_90a()).expect("it compiles");
    let ptx = compiled.ptx().expect("it is for a GPU").to_owned();
    let count = |what: &str| ptx.matches(what).count();
    println!("{tile:?} {units:?}: {} wgmma", count("wgmma.mma_async"));
    for needed in ["wgmma.mma_async", "cp.async.bulk.tensor", "mbarrier.try_wait"] {
        assert!(count(needed) > 0, "{tile:?} {units:?} has no {needed}");
    }
    assert_eq!(count(".local"), 0, "{tile:?} {units:?}");
    // Two warpgroups compute, together or by turns.
    let are_two = warps == 8 || tile[0] * tile[1] >= 128 * 128;
    assert_eq!(count("setmaxnreg"), if are_two { 2 } else { 0 });
    if has_ptxas("products for Hopper through the assembler") {
        let found = assemble(&ptx, "sm_90a").expect("the assembler takes it");
        println!("{} registers", found.registers);
        assert_eq!(found.warnings, [""; 0], "{tile:?} {units:?}");
        assert_eq!((found.spill_stores, found.stack_bytes), (0, 0), "{tile:?} {units:?}");
    }
    ptx
}

const HALF: [DType; 2] = [DType::BF16, DType::F32];

#[test]
fn products_are_warp_specialised_in_every_order_of_operands() {
    let kernel = &kernels::matmul::matmul::KERNEL;
    for (tile, warps, units) in [
        ([128, 256, 64], 8, [2, 1]),
        ([128, 256, 64], 8, [2, 2]),
        ([128, 128, 64], 8, [1, 2]),
        ([128, 128, 64], 4, [2, 1]),
        ([64, 256, 64], 4, [1, 2]),
        ([64, 128, 64], 4, [1, 1]),
        ([64, 16, 64], 4, [2, 1]),
    ] {
        let ptx = ptx(kernel, &HALF, tile, warps, units);
        // The store goes by panels too, where a row of the tile fills one.
        assert_eq!(ptx.contains("cp.async.bulk.tensor.3d.global"), tile[1] >= 64, "{tile:?}");
    }
}

#[test]
fn products_of_f32_by_tf32_read_k_along_rows() {
    let kernel = &kernels::matmul::matmul_tf32::KERNEL;
    ptx(kernel, &[], [128, 128, 32], 8, [2, 1]);
}

#[test]
fn products_of_integers_read_k_along_rows() {
    let kernel = &kernels::matmul_int::matmul_int8::KERNEL;
    for (factor, name) in [(DType::I8, "s8"), (DType::U8, "u8")] {
        for (tile, warps) in
            [([128, 256, 128], 8), ([128, 128, 128], 4), ([64, 128, 128], 4), ([64, 16, 128], 4)]
        {
            let ptx = ptx(kernel, &[factor, DType::I32], tile, warps, [2, 1]);
            let wanted = format!("m64n{}k32.s32.{name}.{name}", tile[1].min(256));
            assert!(ptx.contains(&wanted), "{wanted}");
            assert!(!ptx.contains("mma.sync"), "{tile:?}");
        }
        // Fewer bits go by ordinary stores.
        ptx(kernel, &[factor, factor], [128, 128, 128], 8, [2, 1]);
    }
}

#[test]
fn nothing_else_takes_the_copy_engine() {
    let kernel = &kernels::matmul::matmul::KERNEL;
    let hints = Hints::default();
    let special = kernel.specialize(&HALF, &[64, 64, 32], &hints).expect("the kernel takes these");
    for target in [Target::sm_90a(), Target::sm_80()] {
        let compiled = special.compile(&target).expect("it compiles");
        let ptx = compiled.ptx().expect("it is for a GPU");
        assert!(ptx.contains("mma.sync") && !ptx.contains("cp.async.bulk"), "{target:?}");
    }
}
