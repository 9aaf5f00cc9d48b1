//! Histograms and ranks: on the interpreter, the CPU and emulated GPUs.

use super::runs::{assembles, numbers, program_of, written};
use crate::differential::everywhere;
use crate::front::Hints;
use crate::ir::{DType, InterpArg, Scalar};
use crate::kernel::KernelDef;
use crate::prelude::*;
use crate::target::Target;

/// Ranks of `M` rows of `N` integers in row-major order, and how many there are of each.
#[kernel]
fn ranked<T: Int, const M: usize, const N: usize, const BINS: usize>(
    x: Ptr<T>,
    ranks: PtrMut<i32>,
    counts: PtrMut<i32>,
    alone: PtrMut<i32>,
) {
    let i = arange::<M>().col() * N + arange::<N>().row();
    let v = load(x + i);
    let (rank, count) = histogram_with_ranks::<BINS>(v);
    store(ranks + i, rank);
    store(counts + arange::<BINS>(), count);
    store(alone + arange::<BINS>(), histogram::<BINS>(v));
}

/// Numbers of which some have no bin, and many are equal.
fn some(dtype: DType, n: usize, bins: usize) -> Vec<i64> {
    let number = |i: usize| match (i * i * 31 + i / 7) % (bins + 3) {
        over if over >= bins && dtype.is_signed_int() && i.is_multiple_of(2) => -1 - (over as i64),
        over => over as i64,
    };
    (0..n).map(number).collect()
}

fn check(dtype: DType, [m, n, bins]: [usize; 3]) {
    let values = some(dtype, m * n, bins);
    let scalars = values.iter().map(|&v| Scalar::int(dtype, v));
    let raw = scalars.flat_map(|s| s.bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect();
    let args = vec![
        InterpArg::Buffer(dtype, raw),
        written(DType::I32, m * n),
        written(DType::I32, bins),
        written(DType::I32, bins),
    ];
    let consts = [m, n, bins].map(|c| c as i64);
    let memory = everywhere(program_of(&ranked::KERNEL, &[dtype], &consts, args));
    let mut counts = vec![0; bins];
    let ranks: Vec<i32> = values
        .iter()
        .map(|&v| match usize::try_from(v).ok().filter(|&bin| bin < bins) {
            Some(bin) => {
                counts[bin] += 1;
                counts[bin] - 1
            }
            None => 0,
        })
        .collect();
    let what = format!("{dtype} [{m}, {n}] in {bins} bins");
    assert_eq!(numbers::<i32>(&memory[1]), ranks, "{what}");
    assert_eq!(numbers::<i32>(&memory[2]), counts, "{what}");
    assert_eq!(numbers::<i32>(&memory[3]), counts, "{what}, without ranks");
}

#[test]
fn every_dtype_is_counted() {
    for dtype in [DType::I8, DType::U8, DType::I16, DType::I32, DType::U32, DType::I64, DType::U64]
    {
        check(dtype, [4, 64, 16]);
    }
}

#[test]
fn few_and_many_elements_and_bins_are_counted() {
    for [m, n, bins] in [[1, 4, 8], [1, 32, 256], [2, 32, 5], [8, 256, 256], [1, 1, 1]] {
        check(DType::I32, [m, n, bins]);
    }
    check(DType::I32, [64, 64, 1000]);
}

#[test]
fn histograms_assemble() {
    assembles(&ranked::KERNEL, &[DType::I32], &[16, 256, 256]);
    assembles(&ranked::KERNEL, &[DType::I64], &[1, 8, 4]);
}

fn refusal(kernel: &KernelDef, consts: &[i64]) -> String {
    let built = crate::front::build(kernel.ast, &[DType::I32], consts, &Hints::default());
    built.map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
}

#[test]
fn what_cant_be_counted_is_refused() {
    let error = refusal(&ranked::KERNEL, &[3, 8, 4]);
    assert!(error.contains("whose number of elements is a power of two"), "{error}");
    let error = refusal(&ranked::KERNEL, &[2, 8, 1025]);
    assert!(error.contains("at most 1024"), "{error}");
    let hints = Hints { cluster: Some(2), num_warps: Some(4), ..Hints::default() };
    let special = ranked::KERNEL.specialize(&[DType::I32], &[4, 64, 16], &hints).unwrap();
    let error = special.compile(&Target::sm_90a()).unwrap_err().to_string();
    assert!(error.contains("this counts in one block of a cluster"), "{error}");
}
