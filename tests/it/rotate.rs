//! What stands between a layer's products: rotation with norms and the write to a cache, gated activations,
//! and norms of sums, beside their definitions.

use genesis::ops::{CacheSlots, Gate, Rotation};
use genesis::random::Generator;
use genesis::{DType, Device, Result, Tensor};

use crate::gpu::devices;

/// A head turned as the definition says, in f64.
fn turned(
    x: &[f64],
    position: i64,
    inv_freq: &[f64],
    scale: f64,
    norm: Option<(&[f64], f64)>,
) -> Vec<f64> {
    let x: Vec<f64> = match norm {
        Some((weight, eps)) => {
            let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
            x.iter().zip(weight).map(|(x, w)| x / (mean + eps).sqrt() * w).collect()
        }
        None => x.to_vec(),
    };
    let mut y = x.clone();
    let half = inv_freq.len();
    for (c, freq) in inv_freq.iter().enumerate() {
        let (sin, cos) = (position as f64 * freq).sin_cos();
        y[c] = (x[c] * cos - x[c + half] * sin) * scale;
        y[c + half] = (x[c + half] * cos + x[c] * sin) * scale;
    }
    y
}

fn close(what: &str, got: &[f64], wanted: &[f64], within: f64) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    let far = |(a, b): (&f64, &f64)| (a - b).abs() > within * (1.0 + b.abs()) || a.is_nan();
    if let Some(i) = got.iter().zip(wanted).position(far) {
        panic!("{what}: [{i}] is {} and not {}", got[i], wanted[i]);
    }
}

#[test]
fn heads_are_turned_and_keys_and_values_cached() -> Result<()> {
    for on in devices("rotation") {
        // Heads, groups, channels, turned channels, dtype.
        let shapes = [
            (6, 2, 16, 16, DType::F32),
            (5, 1, 24, 8, DType::F32),
            (4, 4, 64, 64, DType::BF16),
            (2, 1, 8, 0, DType::F32),
        ];
        for (number, (h, g, d, r, dtype)) in shapes.into_iter().enumerate() {
            let (n, pages, size) = (5, 3, 4);
            let random = Generator::new(number as u64);
            let draw = |shape: &[usize]| random.randn(shape, Device::Cpu)?.to_dtype(dtype);
            let joined = draw(&[n, (h + 2 * g) * d])?;
            let on_device = joined.to_device(on)?;
            let part = |t: &Tensor, first: usize, heads: usize| {
                t.narrow(1, first * d, heads * d)?.reshape(&[n, heads, d])
            };
            let positions = [0i64, 3, 4, 1000, 7];
            let slots = [2i64, 11, -1, 12, 5];
            let inv_freq: Vec<f32> =
                (0..r / 2).map(|c| 100f32.powf(-2.0 * c as f32 / r as f32)).collect();
            let (a, b) = (draw(&[d])?, draw(&[d])?);
            let (a_on, b_on) = (a.to_device(on)?, b.to_device(on)?);
            let is_normed = number % 2 == 0;
            let cache = [0, 1].map(|_| Tensor::zeros(&[pages, size, g, d], (dtype, on)));
            let [keys, values] = cache;
            let (keys, values) = (keys?, values?);
            let y = part(&on_device, 0, h)?.rotate_and_cache(
                &part(&on_device, h, g)?,
                &part(&on_device, h + g, g)?,
                &Rotation {
                    positions: &Tensor::from_slice_on(&positions, &[n], on)?,
                    inv_freq: &Tensor::from_slice_on(&inv_freq, &[r / 2], on)?,
                    scale: 1.25,
                    norm: is_normed.then_some((&a_on, &b_on, 1e-6)),
                },
                &CacheSlots {
                    keys: &keys,
                    values: &values,
                    slots: &Tensor::from_slice_on(&slots, &[n], on)?,
                },
            )?;
            let [a, b, q, k, v] = [
                a.to_f64_vec()?,
                b.to_f64_vec()?,
                part(&joined, 0, h)?.to_f64_vec()?,
                part(&joined, h, g)?.to_f64_vec()?,
                part(&joined, h + g, g)?.to_f64_vec()?,
            ];
            let freq: Vec<f64> = inv_freq.iter().map(|&x| f64::from(x)).collect();
            let norm = |w: &'static str| match w {
                "q" => is_normed.then_some((&a[..], 1e-6)),
                _ => is_normed.then_some((&b[..], 1e-6)),
            };
            let mut wanted = Vec::new();
            let width = g * d;
            let mut wanted_cache =
                [vec![0.0; pages * size * width], vec![0.0; pages * size * width]];
            for i in 0..n {
                let turn = |x: &[f64], w| turned(x, positions[i], &freq, 1.25, norm(w));
                for head in q[i * h * d..][..h * d].chunks(d) {
                    wanted.extend(turn(head, "q"));
                }
                let Some(slot) = usize::try_from(slots[i]).ok().filter(|s| *s < pages * size)
                else {
                    continue;
                };
                let heads = k[i * width..][..width].chunks(d);
                let row: Vec<f64> = heads.flat_map(|head| turn(head, "k")).collect();
                wanted_cache[0][slot * width..][..width].copy_from_slice(&row);
                wanted_cache[1][slot * width..][..width].copy_from_slice(&v[i * width..][..width]);
            }
            let within = if dtype == DType::F32 { 1e-4 } else { 1e-2 };
            let what = format!("{on} {h} {g} {d} {r} {dtype}");
            close(&what, &y.to_f64_vec()?, &wanted, within);
            close(&what, &keys.to_f64_vec()?, &wanted_cache[0], within);
            close(&what, &values.to_f64_vec()?, &wanted_cache[1], 0.0);
        }
    }
    Ok(())
}

#[test]
fn gates_and_norms_of_sums_are_as_their_parts() -> Result<()> {
    for on in devices("gates") {
        for dtype in [DType::F32, DType::BF16] {
            let random = Generator::new(3);
            for (rows, width) in [(1, 5), (7, 896), (3, 1536)] {
                let x = random
                    .randn(&[rows, 2 * width], Device::Cpu)?
                    .to_dtype(dtype)?
                    .to_device(on)?;
                for gate in [Gate::Silu, Gate::Gelu, Gate::GeluTanh] {
                    let fused = x.gated(gate)?;
                    let half = |first| x.narrow(1, first, width);
                    let composed = half(0)?.gate(&half(width)?, gate)?;
                    let (fused, composed) = (fused.to_f64_vec()?, composed.to_f64_vec()?);
                    let within = if dtype == DType::F32 { 1e-5 } else { 1e-2 };
                    close(&format!("{on} {dtype} {gate:?}"), &fused, &composed, within);
                }
                let (a, b) = (x.narrow(1, 0, width)?, x.narrow(1, width, width)?);
                let weight = random.randn(&[width], Device::Cpu)?.to_dtype(dtype)?.to_device(on)?;
                let (sum, y) = a.add_rms_norm(&b, &weight, 1e-6)?;
                let wanted = a.add(&b)?;
                assert_eq!(sum.to_f64_vec()?, wanted.to_f64_vec()?);
                close(
                    "norm",
                    &y.to_f64_vec()?,
                    &wanted.rms_norm(&weight, 1e-6)?.to_f64_vec()?,
                    1e-5,
                );
            }
        }
    }
    Ok(())
}
