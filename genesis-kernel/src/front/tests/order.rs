//! Order along an axis, and tiles put together: every dtype, on the interpreter, the CPU and emulated GPUs.

use std::cmp::Ordering;

use super::runs::{assembles, bytes, numbers, program_of, written};
use crate::differential::everywhere;
use crate::ir::{DType, InterpArg, Predicate, Scalar, scalar};
use crate::kernel::KernelDef;
use crate::prelude::*;

/// Rows sorted up and down, the indices of both, and rows turned around.
#[kernel]
fn ordered<T: Number, const M: usize, const N: usize>(
    x: Ptr<T>,
    up: PtrMut<T>,
    down: PtrMut<T>,
    at: PtrMut<i64>,
    at_down: PtrMut<i64>,
    turned: PtrMut<T>,
) {
    let i = arange::<M>().col() * N + arange::<N>().row();
    let v = load(x + i);
    store(up + i, sort(v, 1));
    store(down + i, sort(v, 1, true));
    store(at + i, argsort(v, 1));
    store(at_down + i, argsort(v, 1, true));
    store(turned + i, flip(v, 1));
}

/// Numbers that repeat from run to run, few enough of them that some are equal; a NaN among floats.
fn some(dtype: DType, n: usize) -> Vec<Scalar> {
    let mut state = 7u64;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as i64
    };
    let number = |i: usize, v: i64| match dtype {
        _ if dtype.is_float() && i % 13 == 5 => Scalar::float(dtype, f64::NAN),
        _ if dtype.is_float() && i % 13 == 7 => Scalar::float(dtype, f64::NEG_INFINITY),
        _ if dtype.is_float() => Scalar::float(dtype, (v % 41 - 20) as f64 * 0.25 + 0.125),
        _ if dtype.is_signed_int() => Scalar::int(dtype, (v % 41 - 20) * 3),
        _ if i % 11 == 3 => Scalar::int(dtype, -1),
        _ => Scalar::int(dtype, v % 41 * 3),
    };
    (0..n).map(|i| number(i, draw())).collect()
}

fn bytes_of(dtype: DType, values: &[Scalar]) -> Vec<u8> {
    values.iter().flat_map(|v| v.bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
}

/// NaN after all numbers.
fn order(a: Scalar, b: Scalar) -> Ordering {
    let is_nan = |s: Scalar| s.dtype.is_float() && s.to_f64().is_nan();
    match (is_nan(a), is_nan(b)) {
        (false, false) if scalar::compare(Predicate::Lt, a, b) => Ordering::Less,
        (false, false) if scalar::compare(Predicate::Gt, a, b) => Ordering::Greater,
        (nan, other) => nan.cmp(&other),
    }
}

/// The indices in order; of equal ones the earlier first.
fn argsorted(row: &[Scalar], descending: bool) -> Vec<usize> {
    let mut at: Vec<usize> = (0..row.len()).collect();
    at.sort_by(|&a, &b| {
        let order = order(row[a], row[b]);
        if descending { order.reverse() } else { order }
    });
    at
}

fn same(dtype: DType, found: &[u8], expected: &[Scalar]) -> bool {
    found.chunks(dtype.bytes()).zip(expected).all(|(found, expected)| {
        let mut word = [0; 8];
        word[..found.len()].copy_from_slice(found);
        let own = bytes_of(dtype, &[*expected]);
        let is_nan = dtype.is_float() && expected.to_f64().is_nan();
        let found_nan =
            is_nan && Scalar { dtype, bits: u64::from_le_bytes(word) }.to_f64().is_nan();
        found == own || found_nan
    })
}

fn check_ordered(dtype: DType, m: usize, n: usize) {
    let values = some(dtype, m * n);
    let input = InterpArg::Buffer(dtype, bytes_of(dtype, &values));
    let (out, indices) = (written(dtype, m * n), written(DType::I64, m * n));
    let args = vec![input, out.clone(), out.clone(), indices.clone(), indices, out];
    let memory = everywhere(program_of(&ordered::KERNEL, &[dtype], &[m as i64, n as i64], args));
    for (row, line) in values.chunks(n).enumerate() {
        let part = |buffer: usize, size: usize| &memory[buffer][row * n * size..][..n * size];
        for (values_at, indices_at, descending) in [(1, 3, false), (2, 4, true)] {
            let at = argsorted(line, descending);
            let sorted: Vec<Scalar> = at.iter().map(|&i| line[i]).collect();
            assert!(same(dtype, part(values_at, dtype.bytes()), &sorted), "{dtype} {descending}");
            let found = numbers::<i64>(part(indices_at, 8));
            assert_eq!(found, at.iter().map(|&i| i as i64).collect::<Vec<_>>(), "{dtype}");
        }
        let turned: Vec<Scalar> = line.iter().rev().copied().collect();
        assert!(same(dtype, part(5, dtype.bytes()), &turned), "{dtype}");
    }
}

#[test]
fn every_dtype_is_sorted_and_turned() {
    let numbers = DType::ALL.iter().copied();
    for dtype in numbers.filter(|d| d.is_int() || d.is_arithmetic_float()) {
        check_ordered(dtype, 2, 16);
    }
}

#[test]
fn one_element_and_many_are_sorted() {
    check_ordered(DType::F32, 3, 1);
    check_ordered(DType::F32, 1, 2);
    check_ordered(DType::BF16, 1, 256);
    check_ordered(DType::I64, 1, 64);
}

/// Columns, and the middle axis of three.
#[kernel]
fn other_axes<const M: usize, const N: usize>(x: Ptr<i32>, y: PtrMut<i32>, z: PtrMut<i32>) {
    let i = arange::<M>().col() * N + arange::<N>().row();
    store(y + i, sort(load(x + i), 0));
    let j = (arange::<2>().col() * M + arange::<M>().row()).expand_dims(2) * 3;
    let j = j + arange::<3>().row().expand_dims(0);
    store(z + j, flip(load(x + j), 1));
}

#[test]
fn any_axis_is_sorted() {
    let x: Vec<i32> = (0..24).map(|i| (i * 7) % 24).collect();
    let input = InterpArg::Buffer(DType::I32, bytes(&x));
    let args = vec![input, written(DType::I32, 24), written(DType::I32, 24)];
    let memory = everywhere(program_of(&other_axes::KERNEL, &[], &[4, 6], args));
    let (y, z) = (numbers::<i32>(&memory[1]), numbers::<i32>(&memory[2]));
    for column in 0..6 {
        let mut expected: Vec<i32> = (0..4).map(|row| x[row * 6 + column]).collect();
        expected.sort_unstable();
        let found: Vec<i32> = (0..4).map(|row| y[row * 6 + column]).collect();
        assert_eq!(found, expected);
    }
    for (i, &found) in z.iter().enumerate() {
        let (a, b, c) = (i / 12, i / 3 % 4, i % 3);
        assert_eq!(found, x[a * 12 + (3 - b) * 3 + c]);
    }
}

/// The four largest of rows, and the largest of each.
#[kernel]
fn largest<T: Number, const M: usize, const N: usize>(
    x: Ptr<T>,
    values: PtrMut<T>,
    at: PtrMut<i64>,
    first: PtrMut<T>,
    first_at: PtrMut<i64>,
) {
    let v = load(x + (arange::<M>().col() * N + arange::<N>().row()));
    let (top, index) = topk::<4>(v, 1);
    let i = arange::<M>().col() * 4 + arange::<4>().row();
    store(values + i, top);
    store(at + i, index);
    let (best, best_at) = max_with_index(v, 1);
    store(first + arange::<M>(), best);
    store(first_at + arange::<M>(), best_at);
}

#[test]
fn the_largest_are_found_with_their_indices() {
    for dtype in [DType::F32, DType::BF16, DType::I8, DType::U32, DType::I64, DType::F64] {
        let (m, n) = (2, 32);
        let values = some(dtype, m * n);
        let input = InterpArg::Buffer(dtype, bytes_of(dtype, &values));
        let args = vec![
            input,
            written(dtype, m * 4),
            written(DType::I64, m * 4),
            written(dtype, m),
            written(DType::I64, m),
        ];
        let memory =
            everywhere(program_of(&largest::KERNEL, &[dtype], &[m as i64, n as i64], args));
        for (row, line) in values.chunks(n).enumerate() {
            let at = argsorted(line, true);
            let top: Vec<Scalar> = at[..4].iter().map(|&i| line[i]).collect();
            assert!(same(dtype, &memory[1][row * 4 * dtype.bytes()..], &top), "{dtype}");
            let found = numbers::<i64>(&memory[2][row * 32..][..32]);
            assert_eq!(found, at[..4].iter().map(|&i| i as i64).collect::<Vec<_>>(), "{dtype}");
            assert_eq!(numbers::<i64>(&memory[4])[row], at[0] as i64, "{dtype}");
            assert!(same(dtype, &memory[3][row * dtype.bytes()..], &top[..1]), "{dtype}");
        }
    }
}

/// Tiles put together, reductions that keep their axis, and counts.
#[kernel]
fn together<const M: usize, const N: usize>(x: Ptr<i32>, y: PtrMut<i32>) {
    let i = arange::<M>().col() * N + arange::<N>().row();
    let v = load(x + i);
    let rows = cat::<{ 2 * M }, N>(v, -v);
    store(y + (arange::<{ 2 * M }>().col() * N + arange::<N>().row()), rows);
    let columns = cat::<M, { 2 * N }>(v, -v);
    let wide = arange::<M>().col() * (2 * N) + arange::<{ 2 * N }>().row();
    store(y + 2 * M * N + wide, columns);
    store(y + 4 * M * N + wide, interleave::<M, { 2 * N }>(v, -v));
    store(y + 6 * M * N + i, v - max(v, 1, true) + min(v, 0, true) * 0);
    let bins = histogram::<8>(v);
    store(y + 7 * M * N + arange::<8>(), bins);
    store(y + 7 * M * N + 8 + i, popcount(v) * 100 + clz(v));
    store(y + 8 * M * N + 8 + arange::<1>(), sum(bins, 0, true));
}

#[test]
fn tiles_are_put_together_and_counted() {
    let (m, n) = (4usize, 8usize);
    let x: Vec<i32> = (0..32).map(|i| (i * 5) % 11 - 1).collect();
    let input = InterpArg::Buffer(DType::I32, bytes(&x));
    let args = vec![input, written(DType::I32, 8 * 32 + 9)];
    let memory = everywhere(program_of(&together::KERNEL, &[], &[4, 8], args));
    let y = numbers::<i32>(&memory[1]);
    let mut rows = x.clone();
    rows.extend(x.iter().map(|v| -v));
    assert_eq!(y[..64], rows);
    for row in 0..m {
        let line = &x[row * n..][..n];
        let negated = line.iter().map(|v| -v);
        let columns: Vec<i32> = line.iter().copied().chain(negated.clone()).collect();
        assert_eq!(y[64 + row * 16..][..16], columns);
        let turns: Vec<i32> = line.iter().copied().zip(negated).flat_map(|(a, b)| [a, b]).collect();
        assert_eq!(y[128 + row * 16..][..16], turns);
        let top = line.iter().max().copied().unwrap_or(0);
        let less: Vec<i32> = line.iter().map(|v| v - top).collect();
        assert_eq!(y[192 + row * n..][..n], less);
    }
    let counts: Vec<i32> =
        (0..8).map(|bin| x.iter().filter(|&&v| v == bin).count() as i32).collect();
    assert_eq!(y[224..232], counts);
    let bits: Vec<i32> =
        x.iter().map(|v| (v.count_ones() * 100 + v.leading_zeros()) as i32).collect();
    assert_eq!(y[232..264], bits);
    assert_eq!(y[264], counts.iter().sum::<i32>());
}

/// Bits of every integer dtype.
#[kernel]
fn bits<T: Int>(x: Ptr<T>, y: PtrMut<T>) {
    let v = load(x + arange::<8>());
    store(y + arange::<8>(), popcount(v));
    store(y + 8 + arange::<8>(), clz(v));
}

#[test]
fn bits_of_every_integer_are_counted() {
    for dtype in DType::ALL.iter().copied().filter(|d| d.is_int()) {
        let values: Vec<Scalar> =
            [0, 1, -1, 2, 77, -128, 100, 3].map(|v| Scalar::int(dtype, v)).to_vec();
        let input = InterpArg::Buffer(dtype, bytes_of(dtype, &values));
        let memory =
            everywhere(program_of(&bits::KERNEL, &[dtype], &[], vec![input, written(dtype, 16)]));
        let width = dtype.bits();
        let low = |s: &Scalar| s.bits & (u64::MAX >> (64 - width));
        let ones = values.iter().map(|s| low(s).count_ones());
        let zeros = values.iter().map(|s| low(s).leading_zeros() - (64 - width));
        let expected: Vec<Scalar> =
            ones.chain(zeros).map(|n| Scalar::int(dtype, i64::from(n))).collect();
        assert!(same(dtype, &memory[1], &expected), "{dtype}");
    }
}

/// Six sums at once.
#[device]
fn add_six(
    a: (i32, i32, i32, i32, i32, i32),
    b: (i32, i32, i32, i32, i32, i32),
) -> (i32, i32, i32, i32, i32, i32) {
    (a.0 + b.0, a.1 + b.1, a.2 + b.2, a.3 + b.3, a.4 + b.4, a.5 + b.5)
}

#[kernel]
fn moments<const N: usize, const SQUARES: bool>(x: Ptr<i32>, y: PtrMut<i32>) {
    let v = load(x + arange::<N>());
    let w = if SQUARES { v * v } else { v };
    let (a, b, c, d, e, f) = reduce((v, w, v + 1, v + 2, v + 3, v * 0 + 1), 0, add_six);
    store(y, a);
    store(y + 1, b);
    store(y + 2, c);
    store(y + 3, d);
    store(y + 4, e);
    store(y + 5, f);
}

#[test]
fn six_values_are_reduced_at_once_and_a_flag_is_a_constant() {
    let x: Vec<i32> = (1..=16).collect();
    for (flag, second) in [(0, 136), (1, 1496)] {
        let input = InterpArg::Buffer(DType::I32, bytes(&x));
        let args = vec![input, written(DType::I32, 6)];
        let memory = everywhere(program_of(&moments::KERNEL, &[], &[16, flag], args));
        assert_eq!(numbers::<i32>(&memory[1]), [136, second, 152, 168, 184, 16]);
    }
    let _ = moments::Consts { N: 16, SQUARES: true };
}

#[test]
fn orders_assemble() {
    for dtype in [DType::F32, DType::BF16, DType::U8, DType::I64] {
        assembles(&ordered::KERNEL, &[dtype], &[2, 64]);
        assembles(&largest::KERNEL, &[dtype], &[2, 64]);
    }
    assembles(&together::KERNEL, &[], &[4, 8]);
    assembles(&bits::KERNEL, &[DType::I16], &[]);
    assembles(&moments::KERNEL, &[], &[64, 1]);
}

fn refusal(kernel: &'static KernelDef, consts: &[i64]) -> String {
    let built = crate::front::build(kernel.ast, &[], consts, &crate::front::Hints::default());
    built.map_or_else(|error| error.message, |_| "accepted".to_owned())
}

#[kernel]
fn sorts<const M: usize, const N: usize>(y: PtrMut<f32>) {
    let v = zeros::<f32, M, N>();
    store(y, sum(sum(sort(v, 1), 1), 0));
}

#[kernel]
fn takes<const N: usize>(y: PtrMut<f32>) {
    let (top, _) = topk::<16>(zeros::<f32, N>(), 0);
    store(y, sum(top, 0));
}

#[kernel]
fn puts<const N: usize>(y: PtrMut<f32>) {
    store(y, sum(cat::<32>(zeros::<f32, N>(), zeros::<f32, N>()), 0));
}

#[test]
fn what_is_no_power_of_two_is_refused() {
    assert_eq!(refusal(&sorts::KERNEL, &[3, 8]), "accepted");
    let refused = "`sort` along axis 1 of [3, 12], which is no power of two";
    assert_eq!(refusal(&sorts::KERNEL, &[3, 12]), refused);
    assert_eq!(refusal(&takes::KERNEL, &[8]), "`topk` of 16 among 8 elements");
    assert_eq!(refusal(&puts::KERNEL, &[16]), "accepted");
    assert_eq!(refusal(&puts::KERNEL, &[12]), "`cat` of two tiles of [12] can't have shape [32]");
}
