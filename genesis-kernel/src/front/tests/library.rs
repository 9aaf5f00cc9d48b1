//! Functions that are written in the language: against f64's own, and the same on every machine.

use super::runs::{assembles, numbers, program_of, written};
use crate::differential::everywhere;
use crate::ir::{DType, InterpArg, Scalar};
use crate::kernel::KernelDef;
use crate::prelude::*;

/// The inputs of one function, and what it gives for them.
pub(super) type Cases = Vec<([f64; 2], f64)>;

fn element(dtype: DType, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Scalar { dtype, bits: u64::from_le_bytes(word) }.to_f64()
}

/// The gap between a value rounded to a dtype and the next.
fn ulp(dtype: DType, value: f64) -> f64 {
    let (digits, least) = match dtype {
        DType::F16 => (10, -24),
        DType::BF16 => (7, -133),
        DType::F32 => (23, -149),
        _ => (52, -1074),
    };
    let exponent = value.abs().log2().floor() as i32;
    f64::from((exponent - digits).max(least)).exp2()
}

/// Runs a kernel `y = f(a, b)` of 64 elements everywhere; the error in ULP of the worst.
pub(super) fn worst(kernel: &KernelDef, dtype: DType, cases: &[([f64; 2], f64)]) -> f64 {
    let side = |i: usize| -> Vec<u8> {
        let value = |n: usize| Scalar::float(dtype, cases[n % cases.len()].0[i]);
        (0..64).flat_map(|n| value(n).bits.to_le_bytes()[..dtype.bytes()].to_vec()).collect()
    };
    let args = vec![
        InterpArg::Buffer(dtype, side(0)),
        InterpArg::Buffer(dtype, side(1)),
        written(dtype, 64),
    ];
    let mut program = program_of(kernel, &[dtype], &[], args);
    program.approximate = vec![2];
    let memory = everywhere(program);
    let mut worst = 0.0f64;
    for (found, (of, expected)) in memory[2].chunks(dtype.bytes()).zip(cases) {
        let found = element(dtype, found);
        let rounded = Scalar::float(dtype, *expected).to_f64();
        if rounded.is_nan() || rounded.is_infinite() || rounded == 0.0 {
            let is_same =
                found == rounded && found.is_sign_negative() == rounded.is_sign_negative();
            let is_same = is_same || found.is_nan() && rounded.is_nan();
            assert!(is_same, "{} of {of:?} is {found}, not {rounded}", kernel.name());
            continue;
        }
        let off = (found - expected).abs() / ulp(dtype, *expected);
        assert!(off < 1e3, "{} of {of:?} is {found}, not {expected}", kernel.name());
        worst = worst.max(off);
    }
    worst
}

/// Values that a dtype has, so that what is given is what the reference is asked for.
fn rounded(dtype: DType, values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    values.into_iter().map(|v| Scalar::float(dtype, v).to_f64()).collect()
}

const SIMPLE: [f64; 9] =
    [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.5, 2.0];

/// Cases of a function of one number: special ones, and others spread over a range in both signs.
fn unary(dtype: DType, f: fn(f64) -> f64, most: f64) -> Cases {
    let spread = (0..44).map(|i| {
        let size = most * 10f64.powf(-(i as f64) / 9.0);
        if i % 2 == 0 { size } else { -size }
    });
    let values = rounded(dtype, SIMPLE.into_iter().chain(spread));
    values.into_iter().map(|x| ([x, 0.0], f(x))).collect()
}

fn binary(dtype: DType, f: fn(f64, f64) -> f64, most: f64) -> Cases {
    let special = SIMPLE.into_iter().flat_map(|x| [-1.0, 0.0, f64::INFINITY].map(|y| [x, y]));
    let spread = (0..36).map(|i| {
        let (s, t) = (f64::from(i) * 0.7 - 12.0, f64::from(i * 7 % 36) * 0.31 - 5.0);
        [most * (0.17 * s).exp2() * if i % 3 == 0 { -1.0 } else { 1.0 }, t]
    });
    let pairs = special.chain(spread).map(|pair| rounded(dtype, pair));
    pairs.map(|pair| ([pair[0], pair[1]], f(pair[0], pair[1]))).collect()
}

macro_rules! functions {
    (@all $($kernel:ident)*) => {
        #[test]
        fn functions_assemble() {
            for dtype in [DType::F32, DType::F64, DType::BF16] {
                $(assembles(&$kernel::KERNEL, &[dtype], &[]);)*
            }
        }
    };
    ($($test:ident $kernel:ident: |$a:ident, $b:ident| $body:expr, $cases:expr, [$f32:literal $f64:literal];)*) => {
        functions! { @all $($kernel)* }
        $(
        #[kernel]
        fn $kernel<T: Float>(x: Ptr<T>, y: Ptr<T>, z: PtrMut<T>) {
            let i = arange::<64>();
            let ($a, $b) = (load(x + i), load(y + i));
            store(z + i, $body);
        }

        #[test]
        fn $test() {
            let cases: fn(DType) -> Cases = $cases;
            let limits = [(DType::F32, $f32), (DType::F64, $f64), (DType::F16, 1.0), (DType::BF16, 1.0)];
            let mut said = String::new();
            for (dtype, limit) in limits {
                for part in cases(dtype).chunks(64) {
                    let off = worst(&$kernel::KERNEL, dtype, part);
                    if off > limit {
                        said += &format!("{dtype}: {off} ULP, not {limit}\n");
                    }
                }
            }
            assert!(said.is_empty(), "{said}");
        }
    )*};
}

pub(super) use functions;

functions! {
    expm1_keeps_small_digits a_expm1: |a, _b| expm1(a), |d| unary(d, f64::exp_m1, 9.0), [2.0 2.0];
    log1p_keeps_small_digits a_log1p: |a, _b| log1p(a), |d| unary(d, f64::ln_1p, 0.9), [4.0 4.0];
    exp10_of_numbers a_exp10: |a, _b| exp10(a), |d| unary(d, |x| x.exp2().powf(std::f64::consts::LOG2_10), 4.0), [2.0 9.0];
    log10_of_numbers a_log10: |a, _b| log10(a), |d| unary(d, f64::log10, 900.0), [4.0 4.0];
    cbrt_of_numbers a_cbrt: |a, _b| cbrt(a), |d| unary(d, f64::cbrt, 900.0), [2.0 2.0];
    tan_of_numbers a_tan: |a, _b| tan(a), |d| unary(d, f64::tan, 9.0), [8.0 8.0];
    asin_of_numbers a_asin: |a, _b| asin(a), |d| unary(d, f64::asin, 0.99), [4.0 4.0];
    acos_of_numbers a_acos: |a, _b| acos(a), |d| unary(d, f64::acos, 0.99), [4.0 4.0];
    atan_of_numbers a_atan: |a, _b| atan(a), |d| unary(d, f64::atan, 90.0), [4.0 4.0];
    sinh_of_numbers a_sinh: |a, _b| sinh(a), |d| unary(d, f64::sinh, 9.0), [4.0 4.0];
    cosh_of_numbers a_cosh: |a, _b| cosh(a), |d| unary(d, f64::cosh, 9.0), [4.0 4.0];
    asinh_of_numbers a_asinh: |a, _b| asinh(a), |d| unary(d, f64::asinh, 90.0), [4.0 8.0];
    acosh_of_numbers a_acosh: |a, _b| acosh(a), |d| unary(d, f64::acosh, 90.0), [4.0 8.0];
    atanh_of_numbers a_atanh: |a, _b| atanh(a), |d| unary(d, f64::atanh, 0.99), [4.0 4.0];
    pow_of_numbers a_pow: |a, b| pow(a, b), |d| binary(d, f64::powf, 3.0), [2.0 4.0];
    atan2_of_numbers a_atan2: |a, b| atan2(a, b), |d| binary(d, f64::atan2, 3.0), [4.0 4.0];
    hypot_of_numbers a_hypot: |a, b| hypot(a, b), |d| binary(d, f64::hypot, 3.0), [4.0 4.0];
    copysign_of_numbers a_copysign: |a, b| copysign(a, b), |d| binary(d, f64::copysign, 3.0), [0.0 0.0];
    erfc_of_numbers a_erfc: |a, _b| erfc(a), |_| table(&ERFC), [4.0 1000.0];
    erfinv_of_numbers a_erfinv: |a, _b| erfinv(a), |_| table(&ERFINV), [4.0 8.0];
    rcbrt_of_numbers a_rcbrt: |a, _b| rcbrt(a), |d| unary(d, |x| 1.0 / x.cbrt(), 900.0), [4.0 4.0];
    sinpi_of_numbers a_sinpi: |a, _b| sinpi(a), |d| unary(d, sine_of_pi_times, 9.0), [4.0 4.0];
    cospi_of_numbers a_cospi: |a, _b| cospi(a), |d| unary(d, cosine_of_pi_times, 9.0), [4.0 4.0];
    fdim_of_numbers a_fdim: |a, b| fdim(a, b), |d| binary(d, excess, 3.0), [1.0 1.0];
    rhypot_of_numbers a_rhypot: |a, b| rhypot(a, b), |d| binary(d, |x, y| 1.0 / x.hypot(y), 3.0), [5.0 5.0];
    remainder_of_numbers a_remainder: |a, b| remainder(a, b), |d| binary(d, nearest_remainder, 3.0), [0.0 0.0];
    logb_of_numbers a_logb: |a, _b| logb(a), |d| unary(d, exponent, 900.0), [0.0 0.0];
    lgamma_of_numbers a_lgamma: |a, _b| lgamma(a), |_| table(&LGAMMA), [4.0 40.0];
    tgamma_of_numbers a_tgamma: |a, _b| tgamma(a), |_| table(&TGAMMA), [1.0 80.0];
}

fn sine_of_pi_times(x: f64) -> f64 {
    let whole = x.round_ties_even();
    match x - whole {
        0.0 => x * 0.0,
        off if whole % 2.0 == 0.0 => (off * std::f64::consts::PI).sin(),
        off => -(off * std::f64::consts::PI).sin(),
    }
}

fn cosine_of_pi_times(x: f64) -> f64 {
    let whole = x.round_ties_even();
    let size = ((0.5 - (x - whole).abs()) * std::f64::consts::PI).sin();
    if whole % 2.0 == 0.0 || size == 0.0 { size } else { -size }
}

fn nearest_remainder(x: f64, y: f64) -> f64 {
    let below = x % y;
    let above = below - y.abs().copysign(below);
    let is_even = ((x - below) / y) % 2.0 == 0.0;
    match below.abs().partial_cmp(&above.abs()) {
        None => f64::NAN,
        Some(std::cmp::Ordering::Less) => below,
        Some(std::cmp::Ordering::Equal) if is_even => below,
        Some(_) => above,
    }
}

fn exponent(x: f64) -> f64 {
    match x.abs() {
        0.0 => f64::NEG_INFINITY,
        size if size.is_finite() => f64::from((size.to_bits() >> 52) as i32 - 1023),
        size => size,
    }
}

fn excess(x: f64, y: f64) -> f64 {
    match x.partial_cmp(&y) {
        None => f64::NAN,
        Some(std::cmp::Ordering::Greater) => x - y,
        Some(_) => 0.0,
    }
}

/// Values that all dtypes have, and those of the functions to 16 digits.
const ERFC: [(f64, f64); 8] = [
    (0.0, 1.0),
    (0.5, 0.479_500_122_186_953_5),
    (1.0, 0.157_299_207_050_285_13),
    (2.0, 0.004_677_734_981_047_266),
    (-1.0, 1.842_700_792_949_714_8),
    (f64::INFINITY, 0.0),
    (f64::NEG_INFINITY, 2.0),
    (f64::NAN, f64::NAN),
];
const ERFINV: [(f64, f64); 8] = [
    (0.0, 0.0),
    (0.25, 0.225_312_055_012_178_1),
    (0.5, 0.476_936_276_204_469_9),
    (-0.5, -0.476_936_276_204_469_9),
    (0.75, 0.813_419_847_597_618_5),
    (1.0, f64::INFINITY),
    (-1.0, f64::NEG_INFINITY),
    (2.0, f64::NAN),
];
const LGAMMA: [(f64, f64); 8] = [
    (0.5, 0.572_364_942_924_700_1),
    (1.0, 0.0),
    (2.0, 0.0),
    (3.5, 1.200_973_602_347_074_3),
    (10.0, 12.801_827_480_081_469),
    (-1.5, 0.860_047_015_376_481),
    (-2.0, f64::INFINITY),
    (f64::NEG_INFINITY, f64::INFINITY),
];
const TGAMMA: [(f64, f64); 8] = [
    (0.5, 1.772_453_850_905_516),
    (5.0, 24.0),
    (4.5, 11.631_728_396_567_448),
    (-1.5, 2.363_271_801_207_354_4),
    (-0.5, -3.544_907_701_811_032),
    (-2.0, f64::NAN),
    (0.0, f64::INFINITY),
    (-0.0, f64::NEG_INFINITY),
];

fn table(values: &[(f64, f64)]) -> Cases {
    values.iter().map(|&(x, y)| ([x, 0.0], y)).collect()
}

#[kernel]
fn steps<T: Float>(x: Ptr<T>, y: Ptr<T>, z: PtrMut<T>) {
    let i = arange::<64>();
    store(z + i, nextafter(load(x + i), load(y + i)));
}

#[test]
fn nextafter_is_the_next_number() {
    let cases: [[f64; 2]; 7] = [
        [1.0, 2.0],
        [1.0, 0.0],
        [-1.0, -2.0],
        [0.0, 1.0],
        [0.0, -1.0],
        [3.0, 3.0],
        [f64::NAN, 1.0],
    ];
    let expected = |dtype: DType| {
        let (digits, least) = match dtype {
            DType::F16 => (10, -24),
            DType::BF16 => (7, -133),
            DType::F32 => (23, -149),
            _ => (52, -1074),
        };
        let gap = f64::from(-digits).exp2();
        let least = f64::from(least).exp2();
        [1.0 + gap, 1.0 - gap / 2.0, -1.0 - gap, least, -least, 3.0, f64::NAN]
    };
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let cases: Cases = cases.iter().copied().zip(expected(dtype)).collect();
        assert_eq!(worst(&steps::KERNEL, dtype, &cases), 0.0, "{dtype}");
    }
}

/// Scalars and numbers without a suffix go as well, and shapes broadcast.
#[kernel]
fn scalars(x: PtrMut<f32>, a: f32) {
    let rows = pow(arange::<2>().to::<f32>().col() + 1.0, arange::<2>().to::<f32>().row());
    store(x, pow(a, 2.0) + hypot(3.0, a + 1.0) + sum(sum(rows, 1), 0) + pow(2.0, a));
}

#[test]
fn scalars_and_literals_are_taken() {
    let a = InterpArg::Scalar(Scalar::float(DType::F32, 3.0));
    let mut program = program_of(&scalars::KERNEL, &[], &[], vec![written(DType::F32, 1), a]);
    program.approximate = vec![0];
    let memory = everywhere(program);
    assert!((numbers::<f32>(&memory[0])[0] - 27.0).abs() < 1e-4);
}
