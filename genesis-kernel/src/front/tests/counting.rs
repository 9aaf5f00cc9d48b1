//! Atomic additions to few places, which a GPU counts before they reach memory: the same in memory on every machine.

use super::runs::{assembles, int, numbers, program_of, written};
use crate::differential::everywhere;
use crate::front::Hints;
use crate::ir::{DType, InterpArg};
use crate::kernel::KernelDef;
use crate::prelude::*;
use crate::target::Target;

/// How many bytes there are of each value, as a user of Triton or CUDA writes it.
#[kernel]
fn bytes<const N: usize>(x: Ptr<u8>, counts: PtrMut<i32>, n: i64) {
    for i in range(0, n, N) {
        let at = i + arange::<N>();
        let v = load(x + at, at < n);
        atomic_add(counts + v.to::<i64>(), 1, at < n);
    }
}

/// Numbers by their remainder, in a row of counts for each of two halves, by a weight.
#[kernel]
fn remainders<const N: usize>(x: View<u32, 1>, counts: PtrMut<u64>, weight: u64, rows: i64) {
    for half in range(0, rows) {
        let row = counts + half * 10;
        for i in range(half * 128, half * 128 + 128, N) {
            let v = x.load::<N>([i]) % 10;
            atomic_add::<Relaxed, System>(row + v.to::<i64>(), weight);
        }
    }
}

/// One tile, without a loop.
#[kernel]
fn once<const N: usize>(x: Ptr<u8>, counts: PtrMut<i32>) {
    let v = load(x + arange::<N>());
    atomic_add(counts + (v & 15).to::<i64>(), -2);
}

fn some(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * i / 5 % 251) as u8).collect()
}

fn counts(of: impl Iterator<Item = usize>, bins: usize, by: i64) -> Vec<i64> {
    let mut counts = vec![0; bins];
    of.for_each(|bin| counts[bin] += by);
    counts
}

/// How many atomics on global memory there are in the code for a GPU, and whether it counts in shared memory.
fn atomics(kernel: &KernelDef, consts: &[i64]) -> (usize, bool) {
    let special = kernel.specialize(&[], consts, &Hints::default()).unwrap();
    let compiled = special.compile(&Target::sm_90a()).unwrap();
    let ptx = compiled.ptx().unwrap();
    let atomic = |line: &&str| line.contains("red.") && line.contains(".global");
    (ptx.lines().filter(atomic).count(), ptx.contains("atom.shared") || ptx.contains("red.shared"))
}

#[test]
fn bytes_are_counted_by_value() {
    let (n, x) = (2500, some(2500));
    let args = vec![
        InterpArg::Buffer(DType::U8, x.clone()),
        InterpArg::BufferMut(DType::I32, vec![0; 4 * 256]),
        int(n),
    ];
    let memory = everywhere(program_of(&bytes::KERNEL, &[], &[1024], args));
    let found: Vec<i64> = numbers::<i32>(&memory[1]).into_iter().map(i64::from).collect();
    assert_eq!(found, counts(x.iter().map(|&v| usize::from(v)), 256, 1));
    assembles(&bytes::KERNEL, &[], &[1024]);
    // Of a tile of 1024 a thread of four warps has eight; of 256 counters two.
    assert_eq!(atomics(&bytes::KERNEL, &[1024]), (2, true));
    // As many places as elements, which one warp holds: nothing would be spared.
    assert_eq!(atomics(&bytes::KERNEL, &[256]), (8, false));
}

#[test]
fn places_may_move_and_weigh() {
    let x: Vec<u32> = (0..256_u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let view = InterpArg::View {
        dtype: DType::U32,
        data: super::runs::bytes(&x),
        offset: 0,
        dims: vec![256],
        strides: vec![1],
        writable: false,
    };
    let weight = crate::ir::Scalar::int(DType::U64, 1 << 40);
    let args = vec![view, written(DType::U64, 20), InterpArg::Scalar(weight), int(2)];
    let memory = everywhere(program_of(&remainders::KERNEL, &[], &[64], args));
    let bin = |(i, &v): (usize, &u32)| i / 128 * 10 + v as usize % 10;
    let found: Vec<i64> = numbers::<u64>(&memory[1]).into_iter().map(|v| v as i64).collect();
    assert_eq!(found, counts(x.iter().enumerate().map(bin), 20, 1 << 40));
    assert!(atomics(&remainders::KERNEL, &[64]).1);
}

#[test]
fn a_tile_without_a_loop_is_counted_too() {
    let x = some(128);
    let args = vec![InterpArg::Buffer(DType::U8, x.clone()), written(DType::I32, 16)];
    let memory = everywhere(program_of(&once::KERNEL, &[], &[128], args));
    let found: Vec<i64> = numbers::<i32>(&memory[1]).into_iter().map(i64::from).collect();
    assert_eq!(found, counts(x.iter().map(|&v| usize::from(v & 15)), 16, -2));
    assert_eq!(atomics(&once::KERNEL, &[128]), (1, true));
}
