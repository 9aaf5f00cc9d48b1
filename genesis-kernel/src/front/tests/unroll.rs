//! Loops that ask for copies of their bodies: the same numbers on the interpreter, which makes none, the CPU and
//! emulated GPUs, and the copies in the code.

use super::runs::{assembles, bytes, int, numbers, program_of, written};
use crate::differential::everywhere;
use crate::front::Hints;
use crate::ir::{DType, InterpArg};
use crate::prelude::*;
use crate::target::Target;

/// Sums of blocks, of numbers up and down, and of a loop in a loop.
#[kernel]
fn sums<const N: usize>(x: Ptr<i32>, y: PtrMut<i32>, n: i64) {
    let mut all = zeros::<i32, N>();
    for i in range(0, n, N).unroll(4) {
        let at = i + arange::<N>();
        all = all * 3 + load(x + at, at < n);
    }
    store(y + arange::<N>(), all);
    let (mut up, mut down) = (0_i32, 0_i32);
    for i in range(0, n).unroll(3) {
        up = up * 7 + load(x + i);
    }
    for i in range(n - 1, -1, -1).unroll(2) {
        down = down * 7 + load(x + i);
    }
    store(y + N, up);
    store(y + N + 1, down);
    let mut known = 0_i32;
    for i in range(0, 11).unroll(4) {
        for j in range(0, 3).unroll(8) {
            known = known * 5 + (i * j).to::<i32>();
        }
    }
    store(y + N + 2, known);
}

fn folded(values: impl Iterator<Item = i32>, factor: i32) -> i32 {
    values.fold(0_i32, |sum, v| sum.wrapping_mul(factor).wrapping_add(v))
}

#[test]
fn every_length_is_summed_in_order() {
    for n in [0_usize, 1, 2, 3, 4, 5, 15, 16, 17, 33] {
        let x: Vec<i32> = (0..40).map(|i| i * i - 50).collect();
        let input = InterpArg::Buffer(DType::I32, bytes(&x));
        let args = vec![input, written(DType::I32, 11), int(n as i64)];
        let y = numbers::<i32>(&everywhere(program_of(&sums::KERNEL, &[], &[8], args))[1]);
        for (lane, &found) in y[..8].iter().enumerate() {
            let blocks = (0..n.div_ceil(8)).map(|block| block * 8 + lane);
            let values = blocks.map(|at| if at < n { x[at] } else { 0 });
            assert_eq!(found, folded(values, 3), "{n}");
        }
        assert_eq!(y[8], folded(x[..n].iter().copied(), 7), "{n}");
        assert_eq!(y[9], folded(x[..n].iter().rev().copied(), 7), "{n}");
        let pairs = (0..11).flat_map(|i| (0..3).map(move |j| i * j));
        assert_eq!(y[10], folded(pairs, 5), "{n}");
    }
}

#[test]
fn unrolled_loops_assemble() {
    assembles(&sums::KERNEL, &[], &[128]);
}

#[kernel]
fn plain(x: Ptr<f32>, y: PtrMut<f32>, n: i64) {
    let mut sum = 0.0_f32;
    for i in range(0, n).unroll(4) {
        sum += load(x + i);
    }
    store(y, sum);
}

#[test]
fn copies_are_in_the_code_of_a_gpu() {
    let special = plain::KERNEL.specialize(&[], &[], &Hints::default()).unwrap();
    let compiled = special.compile(&Target::sm_90a()).unwrap();
    assert!(compiled.warnings().is_empty());
    let text = special.passes(&Target::sm_90a()).unwrap();
    let after = text.split("// after unroll").nth(1).unwrap();
    let after = after.split("// ").next().unwrap();
    assert_eq!(after.matches("load ").count(), 5, "{after}");
    assert!(compiled.ptx().unwrap().matches("add.rn.f32").count() >= 5);
}
