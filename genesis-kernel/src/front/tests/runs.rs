//! Kernels run by the interpreter, against plain Rust.

use crate::codegen::nvptx::ptxas;
use crate::front::{Hints, build};
use crate::interp::run_func;
use crate::ir::random::RandomProgram;
use crate::ir::{DType, InterpArg, Scalar};
use crate::kernel::KernelDef;
use crate::lang::eight;
use crate::prelude::*;
use crate::target::Target;

/// Runs a kernel and gives the memory of each argument.
pub(super) fn run(
    kernel: &'static KernelDef,
    dtypes: &[DType],
    consts: &[i64],
    grid: [u32; 3],
    args: Vec<InterpArg>,
) -> Vec<Vec<u8>> {
    let func = match build(kernel.ast, dtypes, consts, &Hints::default()) {
        Ok(func) => func,
        Err(diagnostic) => panic!("{diagnostic}"),
    };
    match run_func(&func, grid, args) {
        Ok(memory) => memory,
        Err(error) => panic!("{error}\n{func}"),
    }
}

/// A kernel with its arguments, for every machine.
pub(super) fn program_of(
    kernel: &KernelDef,
    dtypes: &[DType],
    consts: &[i64],
    args: Vec<InterpArg>,
) -> RandomProgram {
    let func = build(kernel.ast, dtypes, consts, &Hints::default());
    let func = func.unwrap_or_else(|diagnostic| panic!("{diagnostic}"));
    RandomProgram { func, grid: [1, 1, 1], args, approximate: Vec::new() }
}

/// Assembles a kernel for two architectures, where the assembler is there.
#[track_caller]
pub(super) fn assembles(kernel: &KernelDef, dtypes: &[DType], consts: &[i64]) {
    let Some(ptxas) = ptxas::find_or_skip() else { return };
    for target in [Target::sm_80(), Target::sm_90a()] {
        let special = kernel.specialize(dtypes, consts, &Hints::default());
        let compiled = special.and_then(|special| special.compile(&target));
        let compiled = compiled.unwrap_or_else(|error| panic!("{}: {error}", kernel.name()));
        let ptx = compiled.ptx().expect("a GPU's code is PTX");
        let assembled = ptxas::assemble(&ptxas, ptx, &target.to_string());
        let found = assembled.unwrap_or_else(|error| panic!("{}: {error}", kernel.name()));
        assert!(found.warnings.is_empty(), "{}: {:?}", kernel.name(), found.warnings);
    }
}

pub(super) fn bytes<T: bytemuck::NoUninit>(data: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(data).to_vec()
}

pub(super) fn numbers<T: bytemuck::AnyBitPattern>(data: &[u8]) -> Vec<T> {
    data.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

pub(super) fn read(data: &[f32]) -> InterpArg {
    InterpArg::Buffer(DType::F32, bytes(data))
}

pub(super) fn written(dtype: DType, elements: usize) -> InterpArg {
    InterpArg::BufferMut(dtype, vec![0; elements * dtype.bytes()])
}

pub(super) fn int(value: i64) -> InterpArg {
    InterpArg::Scalar(Scalar::int(DType::I64, value))
}

fn float(value: f32) -> InterpArg {
    InterpArg::Scalar(Scalar::float(DType::F32, f64::from(value)))
}

pub(super) fn view(data: &[f32], dims: &[i64], writable: bool) -> InterpArg {
    let strides = (0..dims.len()).map(|axis| dims[axis + 1..].iter().product()).collect();
    let data = bytes(data);
    InterpArg::View { dtype: DType::F32, data, offset: 0, dims: dims.to_vec(), strides, writable }
}

/// Numbers in [-2, 2) that repeat from run to run.
fn noise(n: usize) -> Vec<f32> {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..n).map(|_| next()).collect()
}

#[track_caller]
fn near(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs();
        assert!(error <= tolerance * (1.0 + expected.abs()), "{i}: {found} for {expected}");
    }
}

#[test]
fn add_of_a_length_that_no_block_divides() {
    let (x, y) = (noise(1000), noise(1001));
    let args = vec![read(&x), read(&y[1..]), written(DType::F32, 1000), int(1000)];
    let memory = run(&eight::add::KERNEL, &[DType::F32], &[96], [11, 1, 1], args);
    let expected: Vec<f32> = x.iter().zip(&y[1..]).map(|(a, b)| a + b).collect();
    assert_eq!(numbers::<f32>(&memory[2]), expected);
}

fn softmax(row: &[f32]) -> Vec<f64> {
    let max = row.iter().fold(f64::NEG_INFINITY, |m, &v| m.max(f64::from(v)));
    let exps: Vec<f64> = row.iter().map(|&v| (f64::from(v) - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

#[test]
fn softmax_of_rows_shorter_than_the_block() {
    let (rows, cols) = (3, 77);
    let x = noise(rows * cols);
    let args = vec![read(&x), written(DType::F32, x.len()), int(cols as i64)];
    let memory = run(&eight::softmax::KERNEL, &[DType::F32], &[100], [3, 1, 1], args);
    let expected: Vec<f64> = x.chunks(cols).flat_map(softmax).collect();
    near(&numbers(&memory[1]), &expected, 1e-6);
}

#[test]
fn softmax_of_bf16_is_computed_in_f32() {
    let cols = 50;
    let x: Vec<bf16> = noise(cols).iter().map(|&v| bf16::from_f32(v)).collect();
    let rounded: Vec<f32> = x.iter().map(|v| v.to_f32()).collect();
    let input = InterpArg::Buffer(DType::BF16, bytes(&x));
    let args = vec![input, written(DType::BF16, cols), int(cols as i64)];
    let memory = run(&eight::softmax::KERNEL, &[DType::BF16], &[64], [1, 1, 1], args);
    let found: Vec<f32> = numbers::<bf16>(&memory[1]).iter().map(|v| v.to_f32()).collect();
    near(&found, &softmax(&rounded), 1.0 / 256.0);
}

#[test]
fn layer_norm_keeps_its_statistics() {
    let (rows, cols) = (2, 45);
    let x = noise(rows * cols);
    let (weight, bias) = (noise(cols), noise(cols + 1)[1..].to_vec());
    let dims = [rows as i64, cols as i64];
    let args = vec![
        view(&x, &dims, false),
        view(&weight, &[cols as i64], false),
        view(&bias, &[cols as i64], false),
        view(&vec![0.0; rows * cols], &dims, true),
        view(&vec![0.0; rows * 2], &[rows as i64, 2], true),
        float(1e-5),
    ];
    let memory = run(&eight::layer_norm::KERNEL, &[DType::F32], &[64], [2, 1, 1], args);
    let (mut expected, mut stats) = (Vec::new(), Vec::new());
    for row in x.chunks(cols) {
        let n = cols as f64;
        let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
        let var = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
        let rstd = 1.0 / (var + 1e-5).sqrt();
        for (i, &v) in row.iter().enumerate() {
            let normal = (f64::from(v) - mean) * rstd;
            expected.push(normal * f64::from(weight[i]) + f64::from(bias[i]));
        }
        stats.extend([mean, rstd]);
    }
    near(&numbers(&memory[3]), &expected, 1e-5);
    near(&numbers(&memory[4]), &stats, 1e-5);
}

fn product(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f64> {
    let at = |i: usize, j: usize| {
        (0..k).map(|p| f64::from(a[i * k + p]) * f64::from(b[p * n + j])).sum::<f64>()
    };
    (0..m * n).map(|index| at(index / n, index % n)).collect()
}

#[test]
fn matmul_of_extents_that_no_block_divides() {
    let (m, n, k) = (37, 29, 45);
    let (a, b) = (noise(m * k), noise(k * n));
    let args = vec![
        view(&a, &[m as i64, k as i64], false),
        view(&b, &[k as i64, n as i64], false),
        view(&vec![0.0; m * n], &[m as i64, n as i64], true),
    ];
    // Three programs share fifteen tiles.
    let memory = run(&eight::matmul::KERNEL, &[DType::F32], &[12, 8, 16], [3, 1, 1], args);
    near(&numbers(&memory[2]), &product(&a, &b, m, n, k), 1e-5);
}

#[test]
fn matmul_of_f64_is_added_in_f64() {
    let (a, b) = ([1e8f64, 1.0], [1.0, 1.0f64]);
    let f64_view = |data: &[f64], dims: [i64; 2], writable| InterpArg::View {
        dtype: DType::F64,
        data: bytes(data),
        offset: 0,
        dims: dims.to_vec(),
        strides: vec![dims[1], 1],
        writable,
    };
    let args = vec![
        f64_view(&a, [1, 2], false),
        f64_view(&b, [2, 1], false),
        f64_view(&[0.0], [1, 1], true),
    ];
    let memory = run(&eight::matmul::KERNEL, &[DType::F64], &[1, 1, 2], [1, 1, 1], args);
    // The accumulator is f32 between the steps, so the sum is the f32 nearest to 1e8 + 1.
    assert_eq!(numbers::<f64>(&memory[2]), [1e8]);
}

#[test]
fn gelu_through_a_device_function() {
    let x = noise(20);
    let args = vec![read(&x), written(DType::F32, 20), int(20)];
    let memory = run(&eight::gelu_all::KERNEL, &[DType::F32], &[32], [1, 1, 1], args);
    let half_erf = |v: f64| {
        // The error function by its Taylor series, which converges fast enough below 2.
        let z = v / 2f64.sqrt();
        let mut term = z;
        let mut sum = z;
        for n in 1..60 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        0.5 * v * (1.0 + sum * 2.0 / std::f64::consts::PI.sqrt())
    };
    let expected: Vec<f64> = x.iter().map(|&v| half_erf(f64::from(v))).collect();
    near(&numbers(&memory[1]), &expected, 1e-6);
}

#[test]
fn the_largest_of_a_row_by_pairs() {
    let mut x = noise(3 * 20);
    x[7] = 5.0;
    x[3] = 5.0;
    x[20 + 11] = f32::NAN;
    x[40 + 19] = 9.0;
    let args = vec![read(&x), written(DType::I64, 3), int(20)];
    let memory = run(&eight::largest::KERNEL, &[], &[32], [3, 1, 1], args);
    assert_eq!(numbers::<i64>(&memory[1]), [3, 11, 19]);
}

/// The first two words of Philox 4x32-10, written a second time.
fn philox(seed: u64, index: u64) -> [u32; 2] {
    let (mut key, mut c) =
        ([seed as u32, (seed >> 32) as u32], [index as u32, (index >> 32) as u32, 0, 0]);
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
        c = [
            (b >> 32) as u32 ^ c[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ c[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    [c[0], c[1]]
}

#[test]
fn dropout_keeps_what_the_draw_says() {
    let (n, seed, p) = (200, 0x1234_5678_9ABC_DEF0u64, 0.25f32);
    let x = noise(n);
    let seed_arg = InterpArg::Scalar(Scalar { dtype: DType::U64, bits: seed });
    let args = vec![read(&x), written(DType::F32, n), int(n as i64), float(p), seed_arg];
    let memory = run(&eight::dropout::KERNEL, &[DType::F32], &[64], [4, 1, 1], args);
    let draw = |i: usize| (philox(seed, i as u64)[0] >> 8) as f32 / (1 << 24) as f32;
    let scale = 1.0 / (1.0 - p);
    let expected: Vec<f32> =
        x.iter().enumerate().map(|(i, v)| if draw(i) >= p { v * scale } else { 0.0 }).collect();
    assert_eq!(numbers::<f32>(&memory[1]), expected);
    assert!(expected.iter().filter(|v| **v == 0.0).count() > 20);
}

#[kernel]
fn draws<const N: usize>(normal: PtrMut<f32>, small: PtrMut<i64>, words: PtrMut<u32>, seed: u64) {
    let i = arange::<N>();
    store(normal + i, randn(seed, i));
    store(words + i, randint(seed, i));
    store(small + i, randint(seed, i).to::<i64>());
}

#[test]
fn normal_and_integer_draws_follow_their_formulas() {
    let seed = 99u64;
    let n = 64;
    let seed_arg = InterpArg::Scalar(Scalar { dtype: DType::U64, bits: seed });
    let outputs = [DType::F32, DType::I64, DType::U32].map(|dtype| written(dtype, n));
    let args = outputs.into_iter().chain([seed_arg]).collect();
    let memory = run(&draws::KERNEL, &[], &[n as i64], [1, 1, 1], args);
    let words: Vec<[u32; 2]> = (0..n as u64).map(|i| philox(seed, i)).collect();
    assert_eq!(numbers::<u32>(&memory[2]), words.iter().map(|w| w[0]).collect::<Vec<u32>>());
    let unit = |word: u32, plus: u32| f64::from((word >> 8) + plus) / f64::from(1 << 24);
    let normal = |w: &[u32; 2]| {
        (-2.0 * unit(w[0], 1).ln()).sqrt() * (std::f64::consts::TAU * unit(w[1], 0)).cos()
    };
    near(&numbers(&memory[0]), &words.iter().map(normal).collect::<Vec<f64>>(), 1e-5);
}

#[test]
fn histogram_counts_with_atomics() {
    let x: Vec<u8> = (0..500u32).map(|i| (i * i % 7) as u8).collect();
    let args = vec![InterpArg::Buffer(DType::U8, x.clone()), written(DType::I32, 256), int(500)];
    let memory = run(&eight::histogram::KERNEL, &[], &[64], [8, 1, 1], args);
    let mut expected = vec![0i32; 256];
    x.iter().for_each(|&v| expected[usize::from(v)] += 1);
    assert_eq!(numbers::<i32>(&memory[1]), expected);
}

#[test]
fn attention_is_softmax_of_scores_times_values() {
    let (heads, t, d) = (2, 24, 8);
    let n = heads * t * d;
    let (q, k, v) = (noise(n), noise(n + 3)[3..].to_vec(), noise(n + 5)[5..].to_vec());
    let dims = [heads as i64, t as i64, d as i64];
    let scale = 0.35f32;
    let args = vec![
        view(&q, &dims, false),
        view(&k, &dims, false),
        view(&v, &dims, false),
        view(&vec![0.0; n], &dims, true),
        view(&vec![0.0; heads * t], &dims[..2], true),
        float(scale),
    ];
    let memory = run(&eight::attention::KERNEL, &[DType::F32], &[8, 4, 8], [3, 2, 1], args);
    let row = |x: &[f32], head: usize, i: usize| x[(head * t + i) * d..][..d].to_vec();
    let mut expected = Vec::new();
    for head in 0..heads {
        for i in 0..t {
            let query = row(&q, head, i);
            let score = |j: usize| {
                let key = row(&k, head, j);
                query.iter().zip(&key).map(|(a, b)| a * b).sum::<f32>() * scale
            };
            let weights = softmax(&(0..=i).map(score).collect::<Vec<f32>>());
            for c in 0..d {
                let value = |j: usize| f64::from(row(&v, head, j)[c]);
                expected.push(weights.iter().enumerate().map(|(j, w)| w * value(j)).sum());
            }
        }
    }
    near(&numbers(&memory[3]), &expected, 1e-5);
}
