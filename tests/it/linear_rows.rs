//! Products of rows that keep their bits.

use std::time::Instant;

use genesis::{DType, Device, Result, Tensor};

/// Numbers in -1..1 that look random.
pub(crate) fn noise(n: usize, seed: u64) -> Vec<f32> {
    let next = |i: u64| {
        let x = (i ^ (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((x >> 40) as f32) / (1u64 << 23) as f32 - 1.0
    };
    (0..n as u64).map(next).collect()
}

/// [`noise`] in a shape.
pub(crate) fn random(shape: &[usize], seed: u64, (dtype, on): (DType, Device)) -> Result<Tensor> {
    let n = shape.iter().product();
    Tensor::from_slice_on(&noise(n, seed), shape, Device::Cpu)?.to_dtype(dtype)?.to_device(on)
}

/// The product in f64, and the sum of the magnitudes of its terms.
pub(crate) fn reference(x: &[f64], w: &[f64], k: usize) -> Vec<(f64, f64)> {
    let rows = x.chunks_exact(k);
    let dot = |a: &[f64], b: &[f64]| {
        let terms = a.iter().zip(b).map(|(a, b)| a * b);
        terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
    };
    rows.flat_map(|row| w.chunks_exact(k).map(move |out| dot(row, out))).collect()
}

fn devices() -> Vec<Device> {
    crate::gpu::devices("products of rows")
}

/// Rows, outputs and K of products in tiles of 64 and of 128 rows, the last of them cut off.
const MANY: (usize, usize, usize) = (130, 1480, 64);
const MORE: (usize, usize, usize) = (200, 4360, 64);

#[test]
fn sums_are_those_of_f64() -> Result<()> {
    for on in devices() {
        for (n, m, k) in
            [(1, 1, 1), (3, 5, 7), (2, 9, 96), (17, 33, 448), (1, 70, 9000), (5, 8, 36), MANY, MORE]
        {
            for (of_x, of_w) in [
                (DType::F32, DType::F32),
                (DType::F32, DType::BF16),
                (DType::BF16, DType::BF16),
                (DType::F16, DType::F16),
            ] {
                // Results of many rows are copied as wholes, from their transposes.
                if of_x == DType::F32 && [MANY, MORE].contains(&(n, m, k)) {
                    continue;
                }
                let (x, w) = (random(&[n, k], 1, (of_x, on))?, random(&[m, k], 2, (of_w, on))?);
                let bias = random(&[m], 3, (of_w, on))?;
                let y = x.linear_rows(&w, Some(&bias))?;
                let want = reference(&x.to_f64_vec()?, &w.to_f64_vec()?, k);
                let epsilon = if of_x == DType::F32 { 2e-6 } else { 8e-3 };
                let bias = bias.to_f64_vec()?;
                for (i, (y, (sum, size))) in y.to_f64_vec()?.iter().zip(&want).enumerate() {
                    let want = sum + bias[i % m];
                    let limit = epsilon * want.abs() + 4e-7 * (size + 1.0);
                    assert!(
                        (y - want).abs() <= limit,
                        "{n} x {m} x {k} {of_x} {of_w} at {i}: {y}, not {want}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_row_has_the_same_bits_in_any_batch_and_place() -> Result<()> {
    for on in devices() {
        for (dtype, m, k) in [
            (DType::F32, 37, 64),
            (DType::BF16, 64, 96),
            (DType::BF16, 130, 1024),
            (DType::F32, 9, 45),
        ] {
            let (x, w) = (random(&[65, k], 1, (dtype, on))?, random(&[m, k], 2, (dtype, on))?);
            let all = x.linear_rows(&w, None)?.to_f64_vec()?;
            for n in [1, 2, 7, 64] {
                for first in [0, 1, 65 - n] {
                    let part = x.narrow(0, first, n)?.linear_rows(&w, None)?.to_f64_vec()?;
                    let want = &all[first * m..][..n * m];
                    assert!(part == want, "{n} rows from {first} on, {dtype} {m} x {k} on {on}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_recorded_product_has_gradients() -> Result<()> {
    let at = (DType::F32, Device::Cpu);
    let (x, w) = (random(&[2, 3], 1, at)?, random(&[4, 3], 2, at)?.requires_grad_(true)?);
    x.linear_rows(&w, None)?.sum()?.backward()?;
    let dw = w.grad().expect("it is recorded").to_f64_vec()?;
    let x = x.to_f64_vec()?;
    for (i, dw) in dw.iter().enumerate() {
        assert!((dw - x[i % 3] - x[3 + i % 3]).abs() < 1e-6);
    }
    Ok(())
}

#[test]
fn wrong_operands_are_refused() -> Result<()> {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, (DType::F32, Device::Cpu));
    let (x, w) = (zeros(&[2, 3])?, zeros(&[4, 3])?);
    let refused = |x: &Tensor, w: &Tensor, bias: Option<&Tensor>| {
        x.linear_rows(w, bias).expect_err("it does not fit").to_string()
    };
    assert_eq!(
        refused(&x, &zeros(&[4, 2])?, None),
        "linear_rows: inner extents differ, [2, 3] and [4, 2]"
    );
    assert_eq!(
        refused(&x, &zeros(&[3])?, None),
        "linear_rows: needs [.., K] and [M, K], got [2, 3] and [3]"
    );
    assert_eq!(refused(&x, &w, Some(&zeros(&[3])?)), "linear_rows: the bias must be [4], got [3]");
    let ints = Tensor::zeros(&[2, 3], (DType::I64, Device::Cpu))?;
    assert_eq!(refused(&ints, &w, None), "linear_rows: needs f32, f16 or bf16 dtype, got i64");
    Ok(())
}

/// Not a check: what `GENESIS_SPEED=1` prints.
#[test]
fn speed() -> Result<()> {
    if std::env::var_os("GENESIS_SPEED").is_none() {
        return Ok(());
    }
    for (m, k) in [(4864, 896), (896, 4864), (151_936, 896)] {
        for dtype in [DType::F32, DType::BF16] {
            let w = random(&[m, k], 2, (dtype, Device::Cpu))?;
            for n in [1, 4, 16, 256] {
                if n == 256 && m > 100_000 {
                    continue;
                }
                let x = random(&[n, k], 1, (DType::F32, Device::Cpu))?;
                let mut best = f64::INFINITY;
                for _ in 0..if n == 256 { 6 } else { 30 } {
                    let start = Instant::now();
                    x.linear_rows(&w, None)?;
                    best = best.min(start.elapsed().as_secs_f64());
                }
                let bytes = (m * k * dtype.bytes()) as f64;
                let flops = (2 * n * m * k) as f64;
                println!(
                    "{dtype} {m}x{k} n={n}: {:.1} us {:.1} GB/s {:.1} GFLOP/s",
                    best * 1e6,
                    bytes / best / 1e9,
                    flops / best / 1e9
                );
            }
        }
    }
    Ok(())
}
