//! Quantized weights: what blocks stand for, and products with them.

use std::time::Instant;

use genesis::nn::{Linear, Module, QuantizedEmbedding, QuantizedLinear};
use genesis::ops::{BlockType, QuantScheme, QuantizedWeight};
use genesis::{DType, Device, Result, Tensor};
use serde_json::Value;

use crate::linear_rows::{random, reference};

const TYPES: [(&str, BlockType); 8] = [
    ("Q4_0", BlockType::Q4_0),
    ("Q4_1", BlockType::Q4_1),
    ("Q5_0", BlockType::Q5_0),
    ("Q5_1", BlockType::Q5_1),
    ("Q8_0", BlockType::Q8_0),
    ("Q4_K", BlockType::Q4_K),
    ("Q5_K", BlockType::Q5_K),
    ("Q6_K", BlockType::Q6_K),
];

/// What `tests/parity/ggml_blocks.py` wrote: blocks, and the weights that the gguf package made of them.
fn golden() -> Value {
    serde_json::from_str(include_str!("../fixtures/ggml_blocks.json")).expect("it was written so")
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn devices() -> Vec<Device> {
    crate::gpu::devices("quantized weights")
}

fn loaded(name: &str, ty: BlockType, on: Device) -> Result<(QuantizedWeight, Vec<f32>)> {
    let golden = &golden()[name];
    let text = |key: &str| bytes(golden[key].as_str().expect("digits"));
    let extent = |i: usize| golden["shape"][i].as_u64().expect("an extent") as usize;
    let shape = [extent(0), extent(1)];
    let weight = QuantizedWeight::from_ggml(&text("blocks"), ty, shape, on)?;
    let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    Ok((weight, text("weights").chunks_exact(4).map(number).collect()))
}

#[test]
fn blocks_are_the_weights_of_their_definition_to_the_bit() -> Result<()> {
    for on in devices() {
        for (name, ty) in TYPES {
            let (weight, want) = loaded(name, ty, on)?;
            assert!(weight.dequantize(DType::F32)?.to_vec::<f32>()? == want, "{name} on {on}");
        }
    }
    Ok(())
}

#[test]
fn products_are_those_of_the_dequantized_weight() -> Result<()> {
    for on in devices() {
        for (name, ty) in TYPES {
            let (weight, want) = loaded(name, ty, on)?;
            let [m, k] = weight.shape();
            let want: Vec<f64> = want.iter().map(|&w| f64::from(w)).collect();
            let bias = random(&[m], 3, (DType::F32, on))?;
            for n in [1, 3, 19] {
                let x = random(&[n, k], 1, (DType::F32, on))?;
                let y = x.quantized_linear(&weight, Some(&bias))?.to_f64_vec()?;
                let bias = bias.to_f64_vec()?;
                let sums = reference(&x.to_f64_vec()?, &want, k);
                for (i, (y, (sum, size))) in y.iter().zip(sums).enumerate() {
                    let want = sum + bias[i % m];
                    assert!(
                        (y - want).abs() <= 4e-7 * (size + 1.0),
                        "{name}, {n} rows: {y}, not {want}"
                    );
                }
            }
        }
    }
    Ok(())
}

#[test]
fn ragged_shapes_and_every_scheme_multiply_as_their_weights_do() -> Result<()> {
    for on in devices() {
        for (m, k, group) in
            [(5, 96, Some(32)), (37, 256, Some(128)), (9, 160, None), (70, 48, Some(16))]
        {
            for (bits, zero_points) in [(4, false), (4, true), (8, false), (8, true)] {
                let w = random(&[m, k], 2, (DType::F32, on))?;
                let scheme = QuantScheme { bits, group, zero_points };
                let weight = QuantizedWeight::quantize(&w, scheme)?;
                let rounded = weight.dequantize(DType::F32)?;
                let levels = if bits == 4 { 14.0 } else { 254.0 };
                let error = rounded.sub(&w)?.abs()?.max()?.to_f64_vec()?[0];
                assert!(error <= 1.0 / levels + 1e-6, "{scheme:?}: off by {error}");
                let x = random(&[3, k], 1, (DType::F32, on))?;
                let y = x.quantized_linear(&weight, None)?.to_f64_vec()?;
                let sums = reference(&x.to_f64_vec()?, &rounded.to_f64_vec()?, k);
                for (y, (sum, size)) in y.iter().zip(sums) {
                    assert!(
                        (y - sum).abs() <= 4e-7 * (size + 1.0),
                        "{scheme:?} {m} x {k}: {y}, not {sum}"
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
        for (bits, zero_points, dtype) in
            [(4, true, DType::F32), (8, false, DType::F32), (4, false, DType::BF16)]
        {
            let (m, k) = (37, 384);
            let scheme = QuantScheme { bits, group: Some(64), zero_points };
            let w = random(&[m, k], 2, (DType::F32, on))?;
            let weight = QuantizedWeight::quantize(&w, scheme)?;
            let x = random(&[65, k], 1, (dtype, on))?;
            let all = x.quantized_linear(&weight, None)?.to_f64_vec()?;
            for n in [1, 2, 7, 64] {
                for first in [0, 1, 65 - n] {
                    let part = x.narrow(0, first, n)?.quantized_linear(&weight, None)?;
                    let want = &all[first * m..][..n * m];
                    assert!(
                        part.to_f64_vec()? == want,
                        "{n} rows from {first} on, {scheme:?} {dtype} on {on}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// Schemes of each form that products of 16-bit rows have on GPUs: groups that are steps and more, short ones,
/// one scale for a row, and minimums.
const SCHEMES: [(u32, Option<usize>, bool); 11] = [
    (4, Some(128), false),
    (4, Some(256), false),
    (4, Some(64), false),
    (4, Some(32), false),
    (4, Some(128), true),
    (4, None, false),
    (8, Some(128), false),
    (8, Some(16), false),
    (8, Some(32), true),
    (8, None, false),
    (8, Some(48), false),
];

/// A row with a single 1 picks a column of the weights: every code is the float that it stands for.
#[test]
fn rows_of_16_bits_pick_rounded_weights() -> Result<()> {
    for on in devices() {
        for (bits, group, zero_points) in SCHEMES {
            for dtype in [DType::BF16, DType::F16] {
                let (m, k) = (70, if group == Some(48) { 192 } else { 512 });
                let scheme = QuantScheme { bits, group, zero_points };
                let weight =
                    QuantizedWeight::quantize(&random(&[m, k], 2, (DType::F32, on))?, scheme)?;
                let x = Tensor::eye(k, k, (dtype, on))?;
                let y = x.quantized_linear(&weight, None)?.t()?.to_f64_vec()?;
                let want = weight.dequantize(dtype)?.to_f64_vec()?;
                let unit = if dtype == DType::BF16 { 1.0 / 128.0 } else { 1.0 / 1024.0 };
                for (i, (y, want)) in y.iter().zip(want).enumerate() {
                    // With minimums the last bit of f32 may decide how a weight is rounded.
                    let most = if zero_points { unit * want.abs() } else { 0.0 };
                    assert!((y - want).abs() <= most, "{scheme:?} {dtype} {i}: {y}, not {want}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn rows_of_16_bits_keep_their_bits_in_any_batch() -> Result<()> {
    for on in devices() {
        for (bits, group, zero_points) in SCHEMES {
            let (m, k) = (70, 768);
            let scheme = QuantScheme { bits, group, zero_points };
            let weight = QuantizedWeight::quantize(&random(&[m, k], 2, (DType::F32, on))?, scheme)?;
            let bias = random(&[m], 3, (DType::BF16, on))?;
            let x = random(&[130, k], 1, (DType::BF16, on))?;
            let all = x.quantized_linear(&weight, Some(&bias))?.to_f64_vec()?;
            let weights = weight.dequantize(DType::F32)?.to_f64_vec()?;
            let bias_values = bias.to_f64_vec()?;
            let sums = reference(&x.to_f64_vec()?, &weights, k);
            for (i, (y, (sum, size))) in all.iter().zip(sums).enumerate() {
                let want = sum + bias_values[i % m];
                // Codes are exact; of other forms weights are rounded too, on GPUs.
                let is_exact = !zero_points && group.is_none_or(|group| group >= 64);
                let weights = if is_exact { 1e-6 } else { 1.0 / (64.0 * (k as f64).sqrt()) };
                let most = want.abs() / 256.0 + weights * size;
                assert!((y - want).abs() <= most, "{scheme:?} on {on}: {y}, not {want}");
            }
            for (first, n) in [(0, 1), (129, 1), (3, 7), (60, 16), (1, 33), (66, 64), (1, 129)] {
                let part = x.narrow(0, first, n)?.quantized_linear(&weight, Some(&bias))?;
                let want = &all[first * m..][..n * m];
                assert!(part.to_f64_vec()? == want, "{n} rows from {first} on, {scheme:?} on {on}");
            }
        }
    }
    Ok(())
}

/// So many tiles that a program computes a tile's parts one after the other, where one row has a program for each.
#[test]
fn parts_of_many_tiles_are_joined_as_those_of_few() -> Result<()> {
    for on in devices() {
        let (m, k, n) = (8448, 128, 129);
        let scheme = QuantScheme { bits: 8, group: Some(64), zero_points: false };
        let weight = QuantizedWeight::quantize(&random(&[m, k], 2, (DType::F32, on))?, scheme)?;
        let x = random(&[n, k], 1, (DType::BF16, on))?;
        let all = x.quantized_linear(&weight, None)?;
        for row in [0, 128] {
            let one = x.narrow(0, row, 1)?.quantized_linear(&weight, None)?;
            assert!(one.to_f64_vec()? == all.narrow(0, row, 1)?.to_f64_vec()?, "row {row} on {on}");
        }
    }
    Ok(())
}

#[test]
fn a_table_gives_its_rows() -> Result<()> {
    for on in devices() {
        for (name, ty) in TYPES {
            let (weight, want) = loaded(name, ty, on)?;
            let k = weight.shape()[1];
            let table = QuantizedEmbedding { weight, dtype: DType::F32 };
            let index = Tensor::from_slice_on(&[1i64, 0, 1], &[3, 1], on)?;
            let rows = table.forward(&index)?;
            assert_eq!(rows.shape(), [3, 1, k]);
            let want = [&want[k..2 * k], &want[..k], &want[k..2 * k]].concat();
            assert!(rows.to_vec::<f32>()? == want, "{name} on {on}");
        }
    }
    Ok(())
}

#[test]
fn a_layer_is_near_the_one_that_it_was_made_of_and_keeps_its_scales() -> Result<()> {
    let linear = Linear::new(128, 16, (DType::F32, Device::Cpu))?;
    let mut layer = QuantizedLinear::from_linear(&linear, QuantScheme::INT8)?;
    let x = random(&[2, 128], 1, (DType::F32, Device::Cpu))?;
    let (y, want) = (layer.forward(&x)?, linear.forward(&x)?);
    assert!(y.sub(&want)?.abs()?.max()?.to_f64_vec()?[0] < 0.02);
    let before = layer.weight.dequantize(DType::F32)?.to_vec::<f32>()?;
    layer.to_dtype(DType::BF16)?;
    assert!(layer.weight.dequantize(DType::F32)?.to_vec::<f32>()? == before);
    Ok(())
}

#[test]
fn wrong_blocks_and_weights_are_refused() -> Result<()> {
    let on = Device::Cpu;
    let refused = |blocks: usize, ty, shape| {
        let made = QuantizedWeight::from_ggml(&vec![0; blocks], ty, shape, on);
        made.expect_err("it does not fit").to_string()
    };
    assert_eq!(
        refused(18, BlockType::Q4_0, [1, 33]),
        "from_ggml: rows of 33 are not made of blocks of 32"
    );
    assert_eq!(
        refused(17, BlockType::Q4_0, [1, 32]),
        "from_ggml: 17 bytes are not [1, 32] of Q4_0"
    );
    refused(18, BlockType::Q4_0, [usize::MAX, 1 << 20]);
    let w = Tensor::zeros(&[2, 48], (DType::F32, on))?;
    let scheme = QuantScheme { group: Some(32), ..QuantScheme::INT4 };
    let error = QuantizedWeight::quantize(&w, scheme).expect_err("48 is no multiple").to_string();
    assert_eq!(error, "quantize: rows of 48 are not made of groups of 32");
    let nan = Tensor::full(&[1, 32], f64::NAN, (DType::F32, on))?;
    let error = QuantizedWeight::quantize(&nan, QuantScheme::INT8).expect_err("it is NaN");
    assert_eq!(error.to_string(), "quantize: a weight is NaN");
    Ok(())
}

/// Not a check: what `GENESIS_SPEED=1` prints, for the products of a token of a model of 135 M weights.
#[test]
fn speed() -> Result<()> {
    if std::env::var_os("GENESIS_SPEED").is_none() {
        return Ok(());
    }
    let on = Device::Cpu;
    for (name, ty, block, size) in [
        ("Q4_1", BlockType::Q4_1, 32, 20),
        ("Q8_0", BlockType::Q8_0, 32, 34),
        ("Q6_K", BlockType::Q6_K, 256, 210),
    ] {
        for (m, k) in
            [(576, 576), (1536, 576), (576, 1536), (49152, 576), (4864, 896), (14336, 4096)]
        {
            if k % block != 0 {
                continue;
            }
            let blocks: Vec<u8> = (0..m * k / block * size).map(|i| (i * 7 % 61) as u8).collect();
            let w = QuantizedWeight::from_ggml(&blocks, ty, [m, k], on)?;
            for n in [1, 4, 16, 64] {
                if n * m * k > 1 << 31 {
                    continue;
                }
                let x = random(&[n, k], 1, (DType::F32, on))?;
                let mut best = f64::INFINITY;
                for _ in 0..20 {
                    let start = Instant::now();
                    x.quantized_linear(&w, None)?;
                    best = best.min(start.elapsed().as_secs_f64());
                }
                let flops = (2 * n * m * k) as f64;
                println!(
                    "{name} {m}x{k} n={n}: {:.1} us {:.1} GB/s {:.1} GFLOP/s",
                    best * 1e6,
                    w.bytes() as f64 / best / 1e9,
                    flops / best / 1e9
                );
            }
        }
    }
    Ok(())
}
