//! The eight kernels of the language's design, on machine code and on the interpreter.

use super::differential::{TestArg, compare};
use crate::front::{Hints, ParamHint};
use crate::ir::{DType, Scalar};
use crate::kernel::KernelDef;
use crate::lang::eight;

/// Numbers that look random, of any float dtype or small integers.
fn numbers(dtype: DType, n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let scalar = |u: f64| match dtype.is_float() {
        true => Scalar::float(dtype, u * 8.0 - 4.0),
        false => Scalar::int(dtype, (u * 200.0) as i64),
    };
    (0..n).flat_map(|_| scalar(next()).bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

fn input(dtype: DType, n: usize) -> TestArg {
    TestArg::Buffer { dtype, data: numbers(dtype, n, n as u64 + 1), writable: false }
}

fn output(dtype: DType, n: usize) -> TestArg {
    TestArg::Buffer { dtype, data: vec![0; n * dtype.bytes()], writable: true }
}

fn index(n: usize) -> TestArg {
    TestArg::Number(Scalar::int(DType::I64, n as i64))
}

/// A view of a whole buffer: row-major, or with its axes in reverse order in memory.
fn view(dtype: DType, dims: &[usize], is_output: bool, is_reversed: bool) -> TestArg {
    let n = dims.iter().product();
    let mut strides = vec![1i64; dims.len()];
    if is_reversed {
        for axis in 1..dims.len() {
            strides[axis] = strides[axis - 1] * dims[axis - 1] as i64;
        }
    } else {
        for axis in (1..dims.len()).rev() {
            strides[axis - 1] = strides[axis] * dims[axis] as i64;
        }
    }
    let data = if is_output { vec![0; n * dtype.bytes()] } else { numbers(dtype, n, 3) };
    let dims = dims.iter().map(|&d| d as i64).collect();
    TestArg::View { dtype, data, writable: is_output, dims, strides }
}

fn check(kernel: &KernelDef, dtypes: &[DType], consts: &[i64], args: &[TestArg], grid: [u32; 3]) {
    let unit = Hints {
        params: args
            .iter()
            .map(|arg| match arg {
                TestArg::View { strides, .. } if strides.last() == Some(&1) => {
                    ParamHint { unit_stride: true, ..ParamHint::default() }
                }
                _ => ParamHint::default(),
            })
            .collect(),
        ..Hints::default()
    };
    for hints in [Hints::default(), unit] {
        let name = kernel.name();
        let specialized = kernel.specialize(dtypes, consts, &hints);
        let specialized = specialized.unwrap_or_else(|error| panic!("{name}: {error}"));
        compare(&specialized.func, args, grid).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn add_of_every_dtype() {
    let numbers = DType::ALL.into_iter().filter(|&d| d.is_number());
    for dtype in numbers {
        for (n, block) in [(1, 16), (1000, 96), (257, 100), (64, 64)] {
            let args = [input(dtype, n), input(dtype, n), output(dtype, n), index(n)];
            let grid = [n.div_ceil(block) as u32, 1, 1];
            check(&eight::add::KERNEL, &[dtype], &[block as i64], &args, grid);
        }
    }
}

#[test]
fn softmax_of_rows() {
    for dtype in FLOATS.into_iter().filter(|&d| d != DType::F64) {
        for (rows, cols, block) in [(3, 100, 128), (2, 1, 4), (2, 70, 70), (1, 200, 200)] {
            let args = [input(dtype, rows * cols), output(dtype, rows * cols), index(cols)];
            let grid = [rows as u32, 1, 1];
            check(&eight::softmax::KERNEL, &[dtype], &[block], &args, grid);
        }
    }
}

#[test]
fn layer_norm_of_views() {
    for dtype in [DType::BF16, DType::F32] {
        for (rows, cols, block, is_reversed) in [(3, 100, 128, false), (4, 48, 48, true)] {
            let args = [
                view(dtype, &[rows, cols], false, is_reversed),
                view(dtype, &[cols], false, false),
                view(dtype, &[cols], false, false),
                view(dtype, &[rows, cols], true, is_reversed),
                view(DType::F32, &[rows, 2], true, false),
                TestArg::Number(Scalar::float(DType::F32, 1e-5)),
            ];
            check(&eight::layer_norm::KERNEL, &[dtype], &[block], &args, [rows as u32, 1, 1]);
        }
    }
}

#[test]
fn matmul_of_any_strides() {
    for dtype in [DType::F16, DType::F32] {
        for (m, n, k, is_reversed) in [(20, 40, 24, false), (33, 17, 50, true), (8, 64, 16, false)]
        {
            let args = [
                view(dtype, &[m, k], false, is_reversed),
                view(dtype, &[k, n], false, !is_reversed),
                view(dtype, &[m, n], true, false),
            ];
            check(&eight::matmul::KERNEL, &[dtype], &[16, 32, 16], &args, [2, 1, 1]);
            check(&eight::matmul::KERNEL, &[dtype], &[12, 20, 7], &args, [3, 1, 1]);
        }
    }
}

#[test]
fn elementwise_and_random() {
    for dtype in FLOATS.into_iter().filter(|&d| d != DType::F64) {
        let args = [input(dtype, 300), output(dtype, 300), index(300)];
        check(&eight::gelu_all::KERNEL, &[dtype], &[128], &args, [3, 1, 1]);
        let args = [
            input(dtype, 300),
            output(dtype, 300),
            index(300),
            TestArg::Number(Scalar::float(DType::F32, 0.25)),
            TestArg::Number(Scalar::int(DType::U64, 42)),
        ];
        check(&eight::dropout::KERNEL, &[dtype], &[100], &args, [3, 1, 1]);
    }
}

#[test]
fn pairs_and_atomics() {
    let args = [input(DType::F32, 3 * 45), output(DType::I64, 3), index(45)];
    check(&eight::largest::KERNEL, &[], &[64], &args, [3, 1, 1]);
    let args = [input(DType::U8, 500), output(DType::I32, 256), index(500)];
    check(&eight::histogram::KERNEL, &[], &[128], &args, [4, 1, 1]);
}

#[test]
fn attention_is_causal() {
    for dtype in [DType::BF16, DType::F32] {
        for (m, n, d, length) in [(8, 8, 16, 24), (6, 10, 12, 20)] {
            let qkv = || view(dtype, &[2, length, d], false, false);
            let args = [
                qkv(),
                qkv(),
                qkv(),
                view(dtype, &[2, length, d], true, false),
                view(DType::F32, &[2, length], true, false),
                TestArg::Number(Scalar::float(DType::F32, 0.25)),
            ];
            let consts = [m as i64, n, d as i64];
            let grid = [length.div_ceil(m) as u32, 2, 1];
            check(&eight::attention::KERNEL, &[dtype], &consts, &args, grid);
        }
    }
}
