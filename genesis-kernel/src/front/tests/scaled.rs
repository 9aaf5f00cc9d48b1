//! Products of tiles with a scale for each block of elements: the interpreter, the CPU and emulated GPUs.

use super::runs::{assembles, numbers, program_of, written};
use crate::differential::everywhere;
use crate::front::Hints;
use crate::ir::{DType, InterpArg, Scalar};
use crate::prelude::*;

/// `z = x y` of one tile, with `B` scales along K.
#[kernel]
fn scaled<T: Float8, U: Float8, const M: usize, const K: usize, const N: usize, const B: usize>(
    x: Ptr<T>,
    x_scale: Ptr<u8>,
    y: Ptr<U>,
    y_scale: Ptr<u8>,
    z: PtrMut<f32>,
) {
    let (m, n, k, b) = (arange::<M>(), arange::<N>(), arange::<K>(), arange::<B>());
    let left = load(x + (m.col() * K + k.row()));
    let right = load(y + (k.col() * N + n.row()));
    let left_scale = load(x_scale + (m.col() * B + b.row()));
    let right_scale = load(y_scale + (n.col() * B + b.row()));
    let sum = dot_scaled(left, left_scale, right, right_scale, zeros::<f32, M, N>());
    store(z + (m.col() * N + n.row()), sum);
}

const M: usize = 16;
const N: usize = 8;

/// Small whole numbers, so that sums are exact in any order.
fn number(i: usize) -> f64 {
    (i * 7 % 9) as f64 - 4.0
}

fn scale(i: usize) -> u8 {
    [126, 127, 128, 129, 125][i * 3 % 5]
}

fn check(left: DType, right: DType, k: usize) {
    let b = k / 32;
    let bytes = |dtype: DType, n: usize| -> Vec<u8> {
        (0..n).map(|i| Scalar::float(dtype, number(i)).bits as u8).collect()
    };
    let args = vec![
        InterpArg::Buffer(left, bytes(left, M * k)),
        InterpArg::Buffer(DType::U8, (0..M * b).map(scale).collect()),
        InterpArg::Buffer(right, bytes(right, k * N)),
        InterpArg::Buffer(DType::U8, (0..N * b).map(scale).collect()),
        written(DType::F32, M * N),
    ];
    let consts = [M, k, N, b].map(|n| n as i64);
    let memory = everywhere(program_of(&scaled::KERNEL, &[left, right], &consts, args));
    let power = |at: usize| f64::from(i32::from(scale(at)) - 127).exp2();
    let expected: Vec<f32> = (0..M * N)
        .map(|at| {
            let (i, j) = (at / N, at % N);
            let product = |p: usize| {
                let scales = power(i * b + p / 32) * power(j * b + p / 32);
                number(i * k + p) * number(p * N + j) * scales
            };
            (0..k).map(product).sum::<f64>() as f32
        })
        .collect();
    assert_eq!(numbers::<f32>(&memory[4]), expected, "{left} {right} {k}");
}

#[test]
fn each_block_has_its_scale() {
    check(DType::F8E4M3, DType::F8E4M3, 32);
    check(DType::F8E4M3, DType::F8E5M2, 64);
    check(DType::F8E5M2, DType::F8E5M2, 128);
}

#[test]
fn scales_are_powers_of_two_and_the_last_is_no_number() {
    for (scale, expected) in [(0_u8, 2f32.powi(-127)), (1, 2f32.powi(-126)), (254, 2f32.powi(127))]
    {
        let one = |dtype: DType, n: usize| vec![Scalar::float(dtype, 1.0).bits as u8; n];
        // One element of the left side is not zero.
        let mut left = vec![0; M * 32];
        left[0] = one(DType::F8E4M3, 1)[0];
        let args = vec![
            InterpArg::Buffer(DType::F8E4M3, left),
            InterpArg::Buffer(DType::U8, vec![scale; M]),
            InterpArg::Buffer(DType::F8E4M3, one(DType::F8E4M3, 32 * N)),
            InterpArg::Buffer(DType::U8, (0..N).map(|n| if n == 1 { 255 } else { 127 }).collect()),
            written(DType::F32, M * N),
        ];
        let dtypes = [DType::F8E4M3; 2];
        let memory = everywhere(program_of(&scaled::KERNEL, &dtypes, &[16, 32, 8, 1], args));
        let z = numbers::<f32>(&memory[4]);
        assert_eq!(z[0], expected);
        assert!(z[1].is_nan());
    }
}

#[test]
fn scaled_products_assemble() {
    assembles(&scaled::KERNEL, &[DType::F8E4M3, DType::F8E5M2], &[64, 128, 64, 4]);
}

#[test]
fn a_wrong_number_of_scales_is_refused() {
    let dtypes = [DType::F8E4M3; 2];
    let ast = scaled::KERNEL.ast;
    let error = crate::front::build(ast, &dtypes, &[16, 64, 8, 1], &Hints::default()).unwrap_err();
    let expected =
        "static assertion failed: `dot_scaled` takes a scale for each 32 elements along K";
    assert_eq!(error.message, expected);
}
