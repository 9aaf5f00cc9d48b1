//! One device function for scalars and tiles of every shape and dtype, on the interpreter, the CPU and emulated GPUs.

use super::runs::{assembles, bytes, numbers, program_of, read, written};
use crate::differential::everywhere;
use crate::front::Hints;
use crate::ir::{DType, InterpArg};
use crate::prelude::*;

/// `x` where it is not negative, else a part of it.
#[device]
fn leaky<T: Float, S: Shape>(x: Tile<T, S>, slope: T) -> Tile<T, S> {
    where_(x < T::ZERO, x * slope, x)
}

/// What stands left of the point, and the half of `x` by another function of any shape.
#[device]
fn parts<T: Float, S: Shape>(x: Tile<T, S>) -> (Tile<i32, S>, Tile<T, S>) {
    let half: Tile<T, S> = leaky(x, T::from(0.5)) * T::from(0.5);
    (floor(x.to::<f32>()).to::<i32>(), half)
}

/// The larger of two pairs, also where they are elements of a reduction.
#[device]
fn larger<T: Number, S: Shape>(
    a: (Tile<T, S>, Tile<i64, S>),
    b: (Tile<T, S>, Tile<i64, S>),
) -> (Tile<T, S>, Tile<i64, S>) {
    let is_b = b.0 > a.0;
    (where_(is_b, b.0, a.0), where_(is_b, b.1, a.1))
}

#[device]
fn sum_of<T: Number, S: Shape>(a: Tile<T, S>, b: Tile<T, S>) -> Tile<T, S> {
    a + b
}

#[kernel]
fn mixed<T: Float, const M: usize, const N: usize>(
    x: Ptr<T>,
    y: PtrMut<T>,
    whole: PtrMut<i32>,
    at: PtrMut<i64>,
) {
    let i = arange::<N>();
    let first = load(x);
    let row = load(x + i);
    let all = load(x + arange::<M>().col() * N + i.row());
    // A scalar, one axis, two axes, a unit axis.
    store(y, leaky(first, T::from(0.25)));
    store(y + 1 + i, leaky(row, T::from(0.25)));
    store(y + 1 * N + 1 + arange::<M>().col() * N + i.row(), leaky(all, T::from(0.125)));
    let (left, half) = parts(first);
    let (lefts, halves) = parts(all);
    store(whole, left + sum(sum(lefts, 1), 0));
    let end = 1 + 1 * N + M * N;
    store(y + end, half + parts(leaky(1.5_f32, 1.0)).1.to::<T>());
    store(y + 1 + end, sum(reduce(halves, 1, sum_of), 0));
    let (best, best_at) = reduce((row, i), 0, larger);
    let (of_two, at_two) = larger((best, best_at), (first, 100));
    store(y + 2 + end, of_two);
    store(at, at_two);
    store(y + 3 + end, sum_of(best, T::ONE));
}

fn run_of(dtype: DType, x: InterpArg) -> Vec<Vec<u8>> {
    let args = vec![x, written(dtype, 64), written(DType::I32, 1), written(DType::I64, 1)];
    everywhere(program_of(&mixed::KERNEL, &[dtype], &[4, 8], args))
}

#[test]
fn a_function_of_any_shape_takes_scalars_too() {
    let x: Vec<f32> = (0..32).map(|i| (i * 7 % 19) as f32 - 9.5).collect();
    let memory = run_of(DType::F32, read(&x));
    let y = numbers::<f32>(&memory[1]);
    let leaked = |x: f32, slope: f32| if x < 0.0 { x * slope } else { x };
    assert_eq!(y[0], leaked(x[0], 0.25));
    assert_eq!(y[1..9], x[..8].iter().map(|&v| leaked(v, 0.25)).collect::<Vec<_>>());
    assert_eq!(y[9..41], x.iter().map(|&v| leaked(v, 0.125)).collect::<Vec<_>>());
    let floors = x.iter().map(|v| v.floor() as i32).sum::<i32>();
    assert_eq!(numbers::<i32>(&memory[2]), [floors + x[0].floor() as i32]);
    let half = |v: f32| leaked(v, 0.5) * 0.5;
    assert_eq!(y[41], half(x[0]) + 0.75);
    assert_eq!(y[42], x.iter().map(|&v| half(v)).sum::<f32>());
    assert_eq!((y[43], numbers::<i64>(&memory[3])[0]), (6.5, 5));
    assert_eq!(y[44], 7.5);
}

#[test]
fn of_16_bits_too() {
    let x: Vec<bf16> = (0..32).map(|i| bf16::from_f32((i * 7 % 19) as f32 - 9.5)).collect();
    let memory = run_of(DType::BF16, InterpArg::Buffer(DType::BF16, bytes(&x)));
    let y = numbers::<bf16>(&memory[1]);
    assert_eq!((y[0], y[44]), (bf16::from_f32(-9.5 / 4.0), bf16::from_f32(7.5)));
}

#[test]
fn it_assembles() {
    assembles(&mixed::KERNEL, &[DType::F32], &[4, 64]);
}

#[kernel]
fn literal(y: PtrMut<f64>) {
    store(y, leaky(2.0, 1.0));
}

#[test]
fn a_literal_says_no_dtype() {
    let error = crate::front::build(literal::KERNEL.ast, &[], &[], &Hints::default()).unwrap_err();
    assert_eq!(error.message, "the dtype `T` is not known here");
}
