//! The CPU back end beside loops written by hand.

use std::time::Instant;

use genesis::{DType, Device, Tensor};
use rayon::prelude::*;

use crate::report::{Report, Row, median};

/// Median of `repeats` runs in ms, after three to warm up.
fn time(repeats: usize, mut run: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    for _ in 0..3 {
        run()?;
    }
    let mut times = Vec::new();
    for _ in 0..repeats {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    add(report)?;
    softmax(report)
}

fn add(report: &mut Report) -> anyhow::Result<()> {
    let case = "add/f32/67108864/cpu";
    if !report.wants(case) {
        return Ok(());
    }
    let n = 64 << 20;
    let x = Tensor::randn(&[n], Device::Cpu)?;
    let y = Tensor::randn(&[n], Device::Cpu)?;
    let (xs, ys) = (x.to_vec::<f32>()?, y.to_vec::<f32>()?);
    let z = x.add(&y)?.to_vec::<f32>()?;
    anyhow::ensure!((0..n).step_by(4099).all(|i| z[i] == xs[i] + ys[i]), "{case} is wrong");
    drop(z);
    let ours = time(9, || Ok(x.add(&y).map(drop)?))?;
    let mut out = vec![0f32; n];
    let by_hand = time(9, || {
        out.par_chunks_mut(1 << 16).enumerate().for_each(|(c, chunk)| {
            let at = c << 16;
            for ((z, x), y) in chunk.iter_mut().zip(&xs[at..]).zip(&ys[at..]) {
                *z = x + y;
            }
        });
        Ok(())
    })?;
    let peer = Some(("rayon loop".to_owned(), by_hand));
    report.add(Row { case: case.to_owned(), ours, peer, bytes: Some(12.0 * n as f64) })
}

fn softmax(report: &mut Report) -> anyhow::Result<()> {
    let case = "softmax/f32/4096x4096/cpu";
    if !report.wants(case) {
        return Ok(());
    }
    let x = Tensor::randn(&[4096, 4096], (DType::F32, Device::Cpu))?;
    let got = x.softmax(-1)?.narrow(0, 5, 1)?.to_f64_vec()?;
    let row = x.narrow(0, 5, 1)?.to_f64_vec()?;
    let total: f64 = row.iter().map(|v| v.exp()).sum();
    let is_right = got.iter().zip(&row).all(|(g, v)| (g - v.exp() / total).abs() < 1e-7);
    anyhow::ensure!(is_right, "{case} is wrong");
    let ours = time(15, || Ok(x.softmax(-1).map(drop)?))?;
    report.add(Row { case: case.to_owned(), ours, peer: None, bytes: Some(8.0 * 4096.0 * 4096.0) })
}
