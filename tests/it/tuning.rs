//! What launches of matrix products on an H200 pick by themselves, through the assembler: no choice may
//! spill, nor miss the tensor cores of its architecture.

use std::collections::BTreeSet;

use crate::skipped::has_ptxas;

use genesis::{DType, Device};
use genesis_kernel::autotune::{Config, Machine, Problem};
use genesis_kernel::kernel::{Hints, KernelDef, ParamHint};
use genesis_kernel::runtime::{Arg, PtrArg, ViewArg};
use genesis_kernel::target::Target;
use rayon::prelude::*;

/// Sizes m, n, k; the last ones are of a row and of 16 rows, with the operands swapped.
const SIZES: [[i64; 3]; 9] = [
    [512; 3],
    [1024; 3],
    [2048; 3],
    [4096; 3],
    [16384; 3],
    [8192, 4864, 896],
    [8192, 151936, 896],
    [14336, 1, 4096],
    [151936, 16, 896],
];

/// A matrix in rows or columns.
fn view(rows: i64, columns: i64, dtype: DType, in_columns: bool) -> Arg {
    let device = Device::Cuda(0);
    let ptr = PtrArg { device, address: 256, bytes: 1 << 40, dtype, mutable: true };
    let strides = if in_columns { [rows * columns, 1, rows] } else { [rows * columns, columns, 1] };
    Arg::View(ViewArg::new(ptr, &[1, rows, columns], &strides).expect("three axes are few"))
}

/// What is promised of a view of a matrix in rows or columns.
fn hint(in_columns: bool) -> ParamHint {
    let (unit_stride, unit_axis) = (!in_columns, in_columns.then_some(1));
    let stride_multiple_of = 16;
    ParamHint {
        multiple_of: 16,
        unit_stride,
        unit_axis,
        stride_multiple_of,
        ..ParamHint::default()
    }
}

fn picked(kernel: &KernelDef, dtypes: &[DType], in_columns: [bool; 2]) -> Vec<Config> {
    let machine = Machine::of_target(&Target::sm_90a());
    let heuristic = kernel.tuning().and_then(|tuning| tuning.heuristic).expect("it has one");
    let dtype = dtypes.first().copied().unwrap_or(DType::F32);
    let pick = |&[m, n, k]: &[i64; 3]| {
        let args = [
            view(m, k, dtype, in_columns[0]),
            view(k, n, dtype, in_columns[1]),
            view(m, n, dtype, false),
        ];
        let sizes = [1, m, n, k];
        heuristic(&Problem { machine: &machine, dtypes, sizes: &sizes, present: &[], args: &args })
    };
    SIZES.iter().map(pick).collect::<BTreeSet<_>>().into_iter().collect()
}

fn check(kernel: &KernelDef, dtypes: &[DType], in_columns: [bool; 2]) {
    let configs = picked(kernel, dtypes, in_columns);
    assert!(configs.len() > 2, "{configs:?}");
    configs.par_iter().for_each(|config| {
        let [a, b] = in_columns.map(hint);
        let hints = Hints { params: vec![a, b, hint(false)], ..Hints::default() };
        let hints = hints.with_options(config.options);
        let special = kernel.specialize(dtypes, &config.consts, &hints).expect("it is right");
        let compiled = special.compile(&Target::sm_90a()).expect("it compiles");
        let ptx = compiled.ptx().expect("it is for a GPU");
        assert!(ptx.contains("wgmma.mma_async"), "{config:?}");
        if has_ptxas("chosen products through the assembler") {
            let resources = compiled.resources().expect("the assembler takes it");
            assert_eq!(resources.spill_bytes, Some(0), "{config:?}");
            assert_eq!(resources.warnings, [""; 0], "{config:?}");
            assert!(resources.shared_bytes <= Some(232_448), "{config:?} {resources:?}");
        }
    });
}

#[test]
fn choices_for_bf16_use_wgmma_and_spill_nothing() {
    check(&kernels::matmul::matmul::KERNEL, &[DType::BF16, DType::F32], [false, true]);
}

#[test]
fn choices_for_tf32_use_wgmma_and_spill_nothing() {
    check(&kernels::matmul::matmul_tf32::KERNEL, &[], [false, true]);
}
