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

/// The same, of elements of 4 bits on the right, and where `BOTH` says so on the left.
#[kernel]
fn packed<T: Float8, const M: usize, const K: usize, const N: usize, const BOTH: bool>(
    x: Ptr<T>,
    x_packed: Ptr<u8>,
    x_scale: Ptr<u8>,
    y: Ptr<u8>,
    y_scale: Ptr<u8>,
    z: PtrMut<f32>,
) {
    let (m, n, b) = (arange::<M>(), arange::<N>(), arange::<{ K / 32 }>());
    let right = load(y + (arange::<{ K / 2 }>().col() * N + n.row()));
    let left_scale = load(x_scale + (m.col() * (K / 32) + b.row()));
    let right_scale = load(y_scale + (n.col() * (K / 32) + b.row()));
    let mut sum = zeros::<f32, M, N>();
    if BOTH {
        let left = load(x_packed + (m.col() * (K / 2) + arange::<{ K / 2 }>().row()));
        sum = dot_scaled(left, left_scale, right, right_scale, sum);
    } else {
        let left = load(x + (m.col() * K + arange::<K>().row()));
        sum = dot_scaled(left, left_scale, right, right_scale, sum);
    }
    store(z + (m.col() * N + n.row()), sum);
}

/// The number of each 4 bits.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// `z[i, j]` of lines of elements along K, each of its own number of 4 bits, on either side.
fn run_packed(k: usize, both: bool, left: &[u8], right: &[u8]) -> Vec<f32> {
    let (m, n, b) = (left.len() / k, right.len() / k, k / 32);
    let pack = |low: u8, high: u8| low | high << 4;
    let x = left.iter().map(|&bits| Scalar::float(DType::F8E4M3, E2M1[bits as usize].into()));
    // Bytes of the right side have the elements of two rows.
    let y = (0..k / 2 * n).map(|at| {
        let (row, column) = (at / n * 2, at % n);
        pack(right[column * k + row], right[column * k + row + 1])
    });
    let args = vec![
        InterpArg::Buffer(DType::F8E4M3, x.map(|scalar| scalar.bits as u8).collect()),
        InterpArg::Buffer(DType::U8, left.chunks_exact(2).map(|p| pack(p[0], p[1])).collect()),
        InterpArg::Buffer(DType::U8, (0..m * b).map(scale).collect()),
        InterpArg::Buffer(DType::U8, y.collect()),
        InterpArg::Buffer(DType::U8, (0..n * b).map(scale).collect()),
        written(DType::F32, m * n),
    ];
    let consts = [m, k, n, usize::from(both)].map(|n| n as i64);
    let memory = everywhere(program_of(&packed::KERNEL, &[DType::F8E4M3], &consts, args));
    numbers(&memory[5])
}

#[test]
fn every_number_of_4_bits_is_multiplied_with_every_other() {
    // Line `i` of either side has the number `i` at its own places, of which each pair of lines has one in common.
    let lines: Vec<u8> = (0..16u8).flat_map(|i| [i].into_iter().chain([0; 31])).collect();
    let odd: Vec<u8> = (0..16u8).flat_map(|i| [0, i].into_iter().chain([0; 30])).collect();
    let power = |i: usize| (f32::from(scale(i)) - 127.0).exp2();
    for (lines, both) in [(&lines, true), (&odd, true), (&lines, false), (&odd, false)] {
        let z = run_packed(32, both, lines, lines);
        let expected = |at: usize| {
            let (i, j) = (at / 16, at % 16);
            E2M1[i] * E2M1[j] * power(i) * power(j)
        };
        assert_eq!(z, (0..256).map(expected).collect::<Vec<f32>>(), "{both}");
    }
    assert!(run_packed(32, true, &lines, &odd).iter().all(|&z| z == 0.0));
}

#[test]
fn sums_of_numbers_of_4_bits_are_exact() {
    for (k, both) in [(64, true), (128, true), (96, true), (64, false)] {
        let line =
            |n: usize, by: usize| -> Vec<u8> { (0..n * k).map(|i| (i * by % 16) as u8).collect() };
        let (left, right) = (line(16, 7), line(8, 11));
        let power = |at: usize| (f32::from(scale(at)) - 127.0).exp2();
        let b = k / 32;
        let expected = |at: usize| -> f32 {
            let (i, j) = (at / 8, at % 8);
            let product = |p: usize| {
                let of = |line: &[u8], at: usize| E2M1[line[at * k + p] as usize];
                of(&left, i) * of(&right, j) * power(i * b + p / 32) * power(j * b + p / 32)
            };
            (0..k).map(product).sum()
        };
        let z = run_packed(k, both, &left, &right);
        assert_eq!(z, (0..128).map(expected).collect::<Vec<f32>>(), "{k} {both}");
    }
}

#[test]
fn scales_are_counted_by_elements_of_4_bits() {
    /// Of a tile whose bytes are as many as the elements of 8 bits of the other.
    #[kernel]
    fn half(x: View<f8e4m3, 2>, y: View<u8, 2>, s: View<u8, 2>, z: ViewMut<f32, 2>) {
        let (left, right) = (x.load::<16, 32>([0, 0]), y.load::<32, 16>([0, 0]));
        let scales = s.load::<16, 1>([0, 0]);
        z.store([0, 0], dot_scaled(left, scales, right, scales, zeros::<f32, 16, 16>()));
    }
    let error = crate::front::build(half::KERNEL.ast, &[], &[], &Hints::default()).unwrap_err();
    assert_eq!(
        error.help.as_deref(),
        Some("64 elements along K of 16 lines have scales `[16, 64 / 32]`")
    );
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
    let expected = "`dot_scaled` takes a scale of u8 for each 32 elements along K, this is a tile of u8 [16, 1]";
    assert_eq!(error.message, expected);
}
