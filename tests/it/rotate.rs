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

const ROWS: usize = 5;
/// Where rows stand in their sequences, and the slots that take their keys and values: none where they lie
/// outside of the cache.
const POSITIONS: [i64; ROWS] = [0, 3, 4, 1000, 7];
const SLOTS: [i64; ROWS] = [2, 11, -1, 12, 5];

/// Pages of a cache, and slots of each.
const PAGES: usize = 3;
const PAGE_SIZE: usize = 4;

const SCALE: f64 = 1.25;
const EPS: f64 = 1e-6;

/// Heads of queries `h`, and of keys and values `g`; their channels `d`, of which `r` are turned.
#[derive(Debug)]
struct Heads {
    h: usize,
    g: usize,
    d: usize,
    r: usize,
    dtype: DType,
    is_normed: bool,
}

const HEADS: [Heads; 4] = [
    Heads { h: 6, g: 2, d: 16, r: 16, dtype: DType::F32, is_normed: true },
    Heads { h: 5, g: 1, d: 24, r: 8, dtype: DType::F32, is_normed: false },
    Heads { h: 4, g: 4, d: 64, r: 64, dtype: DType::BF16, is_normed: true },
    Heads { h: 2, g: 1, d: 8, r: 0, dtype: DType::F32, is_normed: false },
];

struct Operands {
    /// Queries, keys and values of each row.
    joined: Tensor, // [ROWS, (H + 2 * G) * D]
    /// Weights of the norms of queries and of keys.
    weights: [Tensor; 2], // [D]
    inv_freq: Vec<f32>,
}

impl Heads {
    fn operands(&self, seed: u64) -> Result<Operands> {
        let random = Generator::new(seed);
        let draw = |shape: &[usize]| random.randn(shape, Device::Cpu)?.to_dtype(self.dtype);
        let freq = |c: usize| 100f32.powf(-2.0 * c as f32 / self.r as f32);
        Ok(Operands {
            joined: draw(&[ROWS, (self.h + 2 * self.g) * self.d])?,
            weights: [draw(&[self.d])?, draw(&[self.d])?],
            inv_freq: (0..self.r / 2).map(freq).collect(),
        })
    }

    /// Queries, keys and values.
    fn parts(&self, joined: &Tensor) -> Result<[Tensor; 3]> {
        let part = |first: usize, heads: usize| {
            joined.narrow(1, first * self.d, heads * self.d)?.reshape(&[ROWS, heads, self.d])
        };
        Ok([part(0, self.h)?, part(self.h, self.g)?, part(self.h + self.g, self.g)?])
    }

    /// Queries that the op turned, and the keys and values that it cached.
    fn rotated(&self, of: &Operands, on: Device) -> Result<[Vec<f64>; 3]> {
        let [q, k, v] = self.parts(&of.joined.to_device(on)?)?;
        let [of_q, of_k] = [of.weights[0].to_device(on)?, of.weights[1].to_device(on)?];
        let positions = Tensor::from_slice_on(&POSITIONS, &[ROWS], on)?;
        let inv_freq = Tensor::from_slice_on(&of.inv_freq, &[self.r / 2], on)?;
        let slots = Tensor::from_slice_on(&SLOTS, &[ROWS], on)?;
        let cache = || Tensor::zeros(&[PAGES, PAGE_SIZE, self.g, self.d], (self.dtype, on));
        let (keys, values) = (cache()?, cache()?);
        let norm = self.is_normed.then_some((&of_q, &of_k, EPS));
        let rotation = Rotation { positions: &positions, inv_freq: &inv_freq, scale: SCALE, norm };
        let cache = CacheSlots { keys: &keys, values: &values, slots: &slots };
        let y = q.rotate_and_cache(&k, &v, &rotation, &cache)?;
        Ok([y.to_f64_vec()?, keys.to_f64_vec()?, values.to_f64_vec()?])
    }

    /// The same as the definition says.
    fn expected(&self, of: &Operands) -> Result<[Vec<f64>; 3]> {
        let [q, k, v] = self.parts(&of.joined)?;
        let [q, k, v] = [q.to_f64_vec()?, k.to_f64_vec()?, v.to_f64_vec()?];
        let [of_q, of_k] = [of.weights[0].to_f64_vec()?, of.weights[1].to_f64_vec()?];
        let freq: Vec<f64> = of.inv_freq.iter().map(|&x| f64::from(x)).collect();
        let turn = |heads: &[f64], row: usize, weight: &[f64]| -> Vec<f64> {
            let norm = self.is_normed.then_some((weight, EPS));
            let turn = |head| turned(head, POSITIONS[row], &freq, SCALE, norm);
            heads.chunks(self.d).flat_map(turn).collect()
        };
        let (n_slots, width) = (PAGES * PAGE_SIZE, self.g * self.d);
        let (mut y, mut keys) = (Vec::new(), vec![0.0; n_slots * width]);
        let mut values = keys.clone();
        for row in 0..ROWS {
            let n = self.h * self.d;
            y.extend(turn(&q[row * n..][..n], row, &of_q));
            let slot = usize::try_from(SLOTS[row]).ok().filter(|slot| *slot < n_slots);
            let Some(slot) = slot else { continue };
            let (from, to) = (row * width..(row + 1) * width, slot * width..(slot + 1) * width);
            keys[to.clone()].copy_from_slice(&turn(&k[from.clone()], row, &of_k));
            values[to].copy_from_slice(&v[from]);
        }
        Ok([y, keys, values])
    }
}

#[test]
fn heads_are_turned_and_keys_and_values_cached() -> Result<()> {
    for on in devices("rotation") {
        for (number, heads) in HEADS.iter().enumerate() {
            let operands = heads.operands(number as u64)?;
            let [y, keys, values] = heads.rotated(&operands, on)?;
            let expected = heads.expected(&operands)?;
            let within = if heads.dtype == DType::F32 { 1e-4 } else { 1e-2 };
            let what = format!("{on} {heads:?}");
            close(&what, &y, &expected[0], within);
            close(&what, &keys, &expected[1], within);
            close(&what, &values, &expected[2], 0.0);
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
