//! Sorts, compaction and sums at indices, whose kernels on a GPU are others than on the CPU.

use anyhow::ensure;
use genesis::ops::Index;
use genesis::{DType, Device, Tensor};

use super::{is_on, pass};

/// One call, on the device of its operands: floats `[2, 3000]`, integers of the same shape, and an index below 300.
type Call = fn(&Tensor, &Tensor, &Tensor) -> genesis::Result<Vec<Tensor>>;

fn pair((a, b): (Tensor, Tensor)) -> genesis::Result<Vec<Tensor>> {
    Ok(vec![a, b])
}

/// Rows of two parts and of one, keys of 16, 32 and 64 bits, both directions; slices and elements at indices that occur
/// often, once and never.
const CALLS: &[(&str, Call)] = &[
    ("sort", |x, _, _| pair(x.sort(-1, false)?)),
    ("sort down", |x, _, _| pair(x.narrow(1, 0, 1500)?.sort(-1, true)?)),
    ("sort of 16 bits", |x, _, _| pair(x.to_dtype(DType::BF16)?.sort(-1, true)?)),
    ("sort of integers", |_, i, _| pair(i.narrow(0, 0, 1)?.sort(-1, false)?)),
    ("sort of few", |_, i, _| pair(i.to_dtype(DType::I32)?.narrow(1, 0, 40)?.sort(-1, true)?)),
    ("topk", |x, _, _| pair(x.topk(20, -1, true)?)),
    ("median", |x, _, _| pair(x.median_dim(-1, false)?)),
    ("nonzero", |_, i, _| Ok(vec![i.remainder_scalar(3.0)?.nonzero()?])),
    ("masked_select", |x, _, _| Ok(vec![x.masked_select(&x.gt_scalar(0.5)?)?])),
    ("unique", |_, i, _| {
        let found = i.remainder_scalar(100.0)?.unique()?;
        Ok(vec![found.values, found.inverse, found.counts])
    }),
    ("index_select", |x, _, at| Ok(vec![x.index_select(1, at)?, x.t()?.index_select(0, at)?])),
    ("index_add", |x, i, at| {
        let wide = x.reshape(&[300, 20])?;
        let source = x.narrow(1, 0, 2000)?.reshape(&[200, 20])?;
        let whole = i.reshape(&[300, 20])?;
        let integers = i.narrow(1, 0, 2000)?.reshape(&[200, 20])?;
        Ok(vec![
            wide.index_add(0, at, &source, 2.0)?,
            wide.t()?.index_add(1, at, &source.t()?, 1.0)?,
            whole.index_add(0, at, &integers, 1.0)?,
            wide.index_put(&[Index::Tensor(at.clone())], &source, true)?,
        ])
    }),
    ("gather and scatter", |x, _, at| {
        let index = at.reshape(&[2, 100])?;
        let part = x.narrow(1, 0, 100)?;
        Ok(vec![
            x.gather(1, &index)?,
            x.scatter_add(1, &index, &part)?,
            x.scatter(1, &index, &part)?,
            x.t()?.contiguous()?.scatter_add(0, &index.t()?, &part.t()?)?,
        ])
    }),
];

#[test]
fn sorts_and_sums_at_indices_are_those_of_the_cpu() -> anyhow::Result<()> {
    const MACHINE: &str = "devices=1";
    if !is_on(MACHINE) {
        let own = "virtual_gpu::indices::sorts_and_sums_at_indices_are_those_of_the_cpu";
        return pass(MACHINE, &[own]);
    }
    let mut state = 1_u64;
    let mut draw = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut floats: Vec<f64> = (0..6000).map(|_| (draw() % 4001) as f64 / 1000.0 - 2.0).collect();
    (floats[5], floats[6], floats[7]) = (f64::NAN, -0.0, 0.0);
    let integers: Vec<i64> = (0..6000).map(|_| (draw() << 20) as i64 - (1 << 50)).collect();
    let at: Vec<i64> = (0..200).map(|k| if k < 50 { 7 } else { (draw() % 300) as i64 }).collect();
    let x = Tensor::from_f64(&floats, &[2, 3000], (DType::F32, Device::Cpu))?;
    let i = Tensor::from_slice_on(&integers, &[2, 3000], Device::Cpu)?;
    let at = Tensor::from_slice_on(&at, &[200], Device::Cpu)?;
    let there = [&x, &i, &at].map(|t| t.to_device(Device::Cuda(0)));
    let [x2, i2, at2] = there;
    let (x2, i2, at2) = (x2?, i2?, at2?);
    for (what, call) in CALLS {
        let wanted = call(&x, &i, &at)?;
        let got = call(&x2, &i2, &at2)?;
        for (number, (wanted, got)) in wanted.iter().zip(&got).enumerate() {
            ensure!(got.shape() == wanted.shape(), "{what} {number}: {:?}", got.shape());
            let (wanted, got) = (wanted.to_f64_vec()?, got.to_f64_vec()?);
            // Sums of the CPU are of one element after the other, those of a GPU of four lanes.
            let is_close = |(a, b): (&f64, &f64)| {
                a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * a.abs().max(1.0)
            };
            let wrong = wanted.iter().zip(&got).position(|both| !is_close(both));
            if let Some(at) = wrong {
                anyhow::bail!("{what} {number}, element {at}: {} and not {}", got[at], wanted[at]);
            }
        }
    }
    Ok(())
}
