//! Bits of numbers, exponents, `softmax` and all words of a draw: on the interpreter, the CPU and emulated GPUs.

use super::runs::{assembles, bytes, numbers, program_of, written};
use crate::differential::everywhere;
use crate::ir::{DType, InterpArg, Scalar};
use crate::prelude::*;

#[kernel]
fn reversed<T: Int>(x: Ptr<T>, y: PtrMut<T>) {
    let v = load(x + arange::<8>());
    store(y + arange::<8>(), ffs(v));
    store(y + 8 + arange::<8>(), brev(v));
}

#[test]
fn bits_of_every_integer_are_found_and_reversed() {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let values = [0, 1, -1, 2, 76, -128, 100, 3].map(|v| Scalar::int(dtype, v));
        let raw = |all: &[Scalar]| -> Vec<u8> {
            all.iter().flat_map(|s| s.bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
        };
        let args = vec![InterpArg::Buffer(dtype, raw(&values)), written(dtype, 16)];
        let memory = everywhere(program_of(&reversed::KERNEL, &[dtype], &[], args));
        let width = dtype.bits();
        let low = |s: &Scalar| s.bits & (u64::MAX >> (64 - width));
        let first = values.iter().map(|s| match low(s) {
            0 => 0,
            bits => i64::from(bits.trailing_zeros()) + 1,
        });
        let turned = values.iter().map(|s| (low(s).reverse_bits() >> (64 - width)) as i64);
        let expected: Vec<Scalar> = first.chain(turned).map(|n| Scalar::int(dtype, n)).collect();
        assert_eq!(memory[1], raw(&expected), "{dtype}");
    }
}

/// `x * 2^n` of every pair.
#[kernel]
fn scaled<T: Float, I: Int, const M: usize, const N: usize>(
    x: Ptr<T>,
    n: Ptr<I>,
    y: PtrMut<T>,
    signs: PtrMut<bool>,
) {
    let v = load(x + arange::<M>());
    let power = load(n + arange::<N>());
    let at = arange::<M>().col() * N + arange::<N>().row();
    store(y + at, ldexp(v.col(), power.row()));
    store(signs + arange::<M>(), signbit(v));
}

const FACTORS: [f64; 8] = [1.0, -1.5, 0.0, f64::INFINITY, f64::NAN, 1e-30, -3.9e-38, 65504.0];

/// Exact where a number of the dtype is, else rounded once, which f64 has digits enough for.
fn expected(dtype: DType, x: Scalar, n: i64) -> Scalar {
    let whole = x.to_f64();
    // Two steps, of which at most the second rounds.
    let (first, second) = (n / 2, n - n / 2);
    let value = whole * 2f64.powi(first as i32) * 2f64.powi(second as i32);
    Scalar::float(dtype, value)
}

fn check_scaled(dtype: DType, power: DType, powers: &[i64]) {
    let x = FACTORS.map(|v| Scalar::float(dtype, v));
    let raw = |all: &[Scalar]| -> Vec<u8> {
        all.iter().flat_map(|s| s.bits.to_le_bytes()[..s.dtype.bytes()].to_vec()).collect()
    };
    let n: Vec<Scalar> = powers.iter().map(|&n| Scalar::int(power, n)).collect();
    let args = vec![
        InterpArg::Buffer(dtype, raw(&x)),
        InterpArg::Buffer(power, raw(&n)),
        written(dtype, x.len() * n.len()),
        written(DType::Bool, x.len()),
    ];
    let consts = [x.len() as i64, n.len() as i64];
    let memory = everywhere(program_of(&scaled::KERNEL, &[dtype, power], &consts, args));
    for (i, found) in memory[2].chunks(dtype.bytes()).enumerate() {
        let mut word = [0; 8];
        word[..found.len()].copy_from_slice(found);
        let found = Scalar { dtype, bits: u64::from_le_bytes(word) };
        let (x, n) = (x[i / n.len()], powers[i % n.len()]);
        let wanted = expected(dtype, x, n);
        let both_nan = found.to_f64().is_nan() && wanted.to_f64().is_nan();
        let (got, want) = (found.to_f64(), wanted.to_f64());
        assert!(
            found == wanted || both_nan,
            "{dtype}: {} * 2^{n} is {got}, not {want}",
            x.to_f64()
        );
    }
    let signs: Vec<u8> = x.iter().map(|s| u8::from(s.to_f64().is_sign_negative())).collect();
    // NaN has whatever sign it was written with.
    assert_eq!(memory[3][..4], signs[..4]);
    assert_eq!(memory[3][5..], signs[5..]);
}

#[test]
fn floats_are_scaled_by_powers_of_two() {
    let powers = [0, 1, -1, 10, 120, -120, 127, -149, 200, -200, 300, -300];
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        check_scaled(dtype, DType::I32, &powers);
    }
    let far = [i64::MAX, i64::MIN, -1074, 1023, -1022, 2000, 5, -2100];
    check_scaled(DType::F64, DType::I64, &[0, 3, -7, 1000, -1000, 40, 80, -90]);
    for dtype in [DType::F32, DType::BF16] {
        check_scaled(dtype, DType::I64, &far.map(|n: i64| n.clamp(-2000, 2000)));
    }
}

#[test]
fn exponents_of_every_integer_scale() {
    for power in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let powers: &[i64] = if power.is_signed_int() {
            &[0, 1, -3, 100, -128, 127]
        } else {
            &[0, 1, 7, 100, 200, 255]
        };
        check_scaled(DType::F32, power, powers);
    }
}

#[kernel]
fn weights<T: Float, const M: usize, const N: usize>(x: Ptr<T>, y: PtrMut<T>, z: PtrMut<T>) {
    let at = arange::<M>().col() * N + arange::<N>().row();
    let v = load(x + at);
    store(y + at, softmax(v, 1));
    store(z + at, softmax(v.trans(), 0).trans());
    let row = softmax(load(x + arange::<N>()), 0);
    store(y + arange::<N>(), row);
}

#[test]
fn softmax_is_one_in_each_row() {
    let x: Vec<f32> =
        (0..40).map(|i| ((i * 7) % 13) as f32 * 0.5 - 60.0 * (i / 20) as f32).collect();
    let args = vec![
        InterpArg::Buffer(DType::F32, bytes(&x)),
        written(DType::F32, 40),
        written(DType::F32, 40),
    ];
    let mut program = program_of(&weights::KERNEL, &[DType::F32], &[2, 20], args);
    program.approximate = vec![1, 2];
    let memory = everywhere(program);
    for found in &memory[1..] {
        for (row, line) in x.chunks(20).zip(numbers::<f32>(found).chunks(20)) {
            let top = row.iter().fold(f32::MIN, |a, &b| a.max(b));
            let sum: f64 = row.iter().map(|&v| f64::from(v - top).exp()).sum();
            for (&v, &w) in row.iter().zip(line) {
                assert!((f64::from(w) - f64::from(v - top).exp() / sum).abs() < 1e-6);
            }
        }
    }
}

#[kernel]
fn words(y: PtrMut<u32>, seed: u64) {
    let i = arange::<4>();
    let (a, b, c, d) = randint4x(seed, i);
    store(y + i, a - randint(seed, i));
    store(y + 4 + i, b);
    store(y + 8 + i, c);
    store(y + 12 + i, d);
}

#[test]
fn a_draw_has_four_words() {
    let seed = InterpArg::Scalar(Scalar::int(DType::U64, 0));
    let args = vec![written(DType::U32, 16), seed];
    let y = numbers::<u32>(&everywhere(program_of(&words::KERNEL, &[], &[], args))[0]);
    assert_eq!(y[..4], [0; 4]);
    // The vector of Random123 for a counter and a key of zeros.
    assert_eq!([y[4], y[8], y[12]], [0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
}

#[test]
fn bits_assemble() {
    for dtype in [DType::I8, DType::U32, DType::I64] {
        assembles(&reversed::KERNEL, &[dtype], &[]);
    }
    for dtype in [DType::F16, DType::F32, DType::F64] {
        assembles(&scaled::KERNEL, &[dtype, DType::I64], &[8, 16]);
        assembles(&weights::KERNEL, &[dtype], &[4, 64]);
    }
}
