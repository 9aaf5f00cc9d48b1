//! One kernel for each group of functions, run by the interpreter.

use super::runs::{bytes, int, numbers, read, run, view, written};
use crate::ir::{DType, InterpArg};
use crate::prelude::*;

#[kernel]
fn extremes<const N: usize>(x: Ptr<f32>, at: PtrMut<i64>, of: PtrMut<f32>) {
    let v = load(x + arange::<N>());
    store(at, argmax(v, 0));
    store(at + 1, argmin(v, 0));
    store(of, max(v, 0));
    store(of + 1, min(v, 0));
    store(of + 2, max_num(v, 0));
    store(of + 3, min_num(v, 0));
}

fn extremes_of(x: &[f32]) -> (Vec<i64>, Vec<f32>) {
    let args = vec![read(x), written(DType::I64, 2), written(DType::F32, 4)];
    let memory = run(&extremes::KERNEL, &[], &[x.len() as i64], [1, 1, 1], args);
    (numbers(&memory[1]), numbers(&memory[2]))
}

#[test]
fn the_first_of_equal_extremes_wins_and_nan_before_all() {
    let (at, of) = extremes_of(&[1.0, 3.0, -2.0, 3.0, -2.0]);
    assert_eq!((at, of), (vec![1, 2], vec![3.0, -2.0, 3.0, -2.0]));
    let (at, of) = extremes_of(&[1.0, f32::NAN, 7.0, f32::NAN]);
    assert_eq!(at, [1, 1]);
    assert!(of[0].is_nan() && of[1].is_nan());
    assert_eq!(of[2..], [7.0, 1.0]);
}

#[device]
fn times(a: f32, b: f32) -> f32 {
    a * b
}

/// Composes x -> a x + b, which does not commute.
#[device]
fn affine(first: (f32, f32), second: (f32, f32)) -> (f32, f32) {
    (first.0 * second.0, second.0 * first.1 + second.1)
}

#[kernel]
fn scans<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange::<N>();
    let v = load(x + i);
    store(out + i, cumsum(v, 0));
    store(out + 1 * N + i, cumsum(v, 0, true));
    store(out + 2 * N + i, associative_scan(v, 0, times));
    let (a, b) = associative_scan((v, v), 0, affine);
    store(out + 3 * N + i, a);
    store(out + 4 * N + i, b);
}

#[test]
fn scans_go_forward_and_back() {
    let x = [1.0f32, 2.0, 3.0, 0.5, 4.0];
    let memory = run(&scans::KERNEL, &[], &[5], [1, 1, 1], vec![read(&x), written(DType::F32, 25)]);
    let found: Vec<f32> = numbers(&memory[1]);
    assert_eq!(found[..5], [1.0, 3.0, 6.0, 6.5, 10.5]);
    assert_eq!(found[5..10], [10.5, 9.5, 7.5, 4.5, 4.0]);
    assert_eq!(found[10..15], [1.0, 2.0, 6.0, 3.0, 12.0]);
    assert_eq!(found[15..20], [1.0, 2.0, 6.0, 3.0, 12.0]);
    // b_n = x_n b_(n-1) + x_n
    assert_eq!(found[20..25], [1.0, 4.0, 15.0, 8.0, 36.0]);
}

#[kernel]
fn integers<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let i = arange::<N>();
    let v = load(x + i);
    store(out + i, umulhi(v, v));
    store(out + 1 * N + i, cdiv(v, 7));
    store(out + 2 * N + i, clamp(v, -5, 5));
    store(out + 3 * N + i, where_(v > 0, v, 0));
    store(out + 4 * N + i, (v & 6) | (v << 3) ^ (v >> 1));
    store(out + 5 * N + i, -v % 3 + !v);
}

#[test]
fn integer_functions() {
    let x = [0i32, 1, 20, 7, 1 << 20, 1000];
    let input = InterpArg::Buffer(DType::I32, bytes(&x));
    let memory = run(&integers::KERNEL, &[], &[6], [1, 1, 1], vec![input, written(DType::I32, 36)]);
    let found: Vec<i32> = numbers(&memory[1]);
    let check = |row: usize, f: fn(i32) -> i32| {
        assert_eq!(found[row * 6..][..6], x.map(f), "row {row}");
    };
    check(0, |v| ((v as u64 * v as u64) >> 32) as i32);
    check(1, |v| (v + 6) / 7);
    check(2, |v| v.clamp(-5, 5));
    check(3, |v| v.max(0));
    check(4, |v| (v & 6) | (v << 3) ^ (v >> 1));
    check(5, |v| -v % 3 + !v);
}

#[kernel]
fn shapes<const M: usize, const N: usize>(
    x: View<f32, 2>,
    out: ViewMut<f32, 2>,
    sums: PtrMut<f32>,
) {
    let v = x.load::<M, N>([0, 0]);
    out.store([0, 0], v.trans());
    let (even, odd) = split(join(v, v * 2.0));
    store(sums, sum(sum(even, 1), 0));
    store(sums + 1, sum(sum(odd, 0), 0));
    store(sums + 2, sum(sum(v.reshape::<N, M>() - v.trans(), 0), 0));
    store(sums + 3, sum(broadcast_to::<N>(2.5f32), 0));
    store(sums + 4, sum(max(v.expand_dims(0).squeeze(0), 0).row().permute([1, 0]).squeeze(1), 0));
}

#[test]
fn shapes_move_elements_and_lose_none() {
    let x: Vec<f32> = (0..8).map(|i| i as f32).collect();
    let args =
        vec![view(&x, &[2, 4], false), view(&[0.0; 8], &[4, 2], true), written(DType::F32, 5)];
    let memory = run(&shapes::KERNEL, &[], &[2, 4], [1, 1, 1], args);
    assert_eq!(numbers::<f32>(&memory[1]), [0.0, 4.0, 1.0, 5.0, 2.0, 6.0, 3.0, 7.0]);
    assert_eq!(numbers::<f32>(&memory[2]), [28.0, 56.0, 0.0, 10.0, 22.0]);
}

#[kernel]
fn accumulates(x: Ptr<f16>, out: PtrMut<f16>) {
    let v = load(x + arange::<2048>());
    store(out, sum(v, 0));
}

#[test]
fn sums_of_f16_are_rounded_once() {
    let x = vec![f16::from_f32(1.0 + 1.0 / 1024.0); 2048];
    let input = InterpArg::Buffer(DType::F16, bytes(&x));
    let memory =
        run(&accumulates::KERNEL, &[], &[], [1, 1, 1], vec![input, written(DType::F16, 1)]);
    assert_eq!(numbers::<f16>(&memory[1]), [f16::from_f32(2050.0)]);
}

#[kernel]
fn atomics(x: PtrMut<i32>, old: PtrMut<i32>) {
    store(old, atomic_add(x, 5));
    store(old + 1, atomic_max(x, 3));
    store(old + 2, atomic_xchg(x, 9));
    store(old + 3, atomic_cas(x, 9, 11));
    store(old + 4, atomic_cas(x, 9, 12));
    store(old + 5, atomic_or(x, 4));
    store(old + 6, atomic_min(x, 100));
}

#[test]
fn atomics_give_the_old_value() {
    let args = vec![written(DType::I32, 1), written(DType::I32, 7)];
    let memory = run(&atomics::KERNEL, &[], &[], [1, 1, 1], args);
    assert_eq!(numbers::<i32>(&memory[1]), [0, 5, 5, 9, 11, 11, 15]);
    assert_eq!(numbers::<i32>(&memory[0]), [15]);
}

#[kernel]
fn steps(out: PtrMut<i64>, n: i64) {
    let mut length = 0;
    let mut value = n;
    while value != 1 {
        value = if value % 2 == 0 { value / 2 } else { 3 * value + 1 };
        length += 1;
        if length > 1000 {
            return;
        }
    }
    store(out, length);
}

#[test]
fn a_while_loop_ends_when_its_condition_fails() {
    let memory = run(&steps::KERNEL, &[], &[], [1, 1, 1], vec![written(DType::I64, 1), int(27)]);
    assert_eq!(numbers::<i64>(&memory[0]), [111]);
}

/// The square, or the number itself.
#[device]
fn powered<const SQUARE: bool>(v: f32) -> f32 {
    let mut y = v;
    if SQUARE {
        y = v * v;
    }
    y
}

#[kernel]
fn powers<const SQUARE: bool>(x: Ptr<f32>, out: PtrMut<f32>) {
    store(out, powered::<false>(load(x)));
    store(out + 1, powered::<true>(load(x)));
    store(out + 2, powered::<SQUARE>(load(x)));
}

#[test]
fn const_arguments_may_be_bools() {
    for (square, last) in [(0, 3.0), (1, 9.0)] {
        let args = vec![read(&[3.0]), written(DType::F32, 3)];
        let memory = run(&powers::KERNEL, &[], &[square], [1, 1, 1], args);
        assert_eq!(numbers::<f32>(&memory[1]), [3.0, 9.0, last]);
    }
}
