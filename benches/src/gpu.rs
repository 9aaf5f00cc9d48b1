//! The GPU back end beside PyTorch and Triton.

use std::time::Instant;

use genesis::{DType, Device, Result, Tensor};
use genesis_kernel::kernel::Hints;
use genesis_kernel::runtime::Event;
use genesis_kernel::target::Target;

use crate::peer::Peers;
use crate::report::{Report, Row, median};

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    compile(report)?;
    if Device::cuda_count() == 0 {
        println!("skipped: no GPU for the GPU cases");
        return Ok(());
    }
    let peers = Peers::measure();
    elementwise(report, &peers)?;
    crate::launch::run(report)
}

/// Median time of a call on the device in ms, by events around it.
fn time(run: impl Fn() -> Result<()>) -> anyhow::Result<f64> {
    let stream = Device::Cuda(0).stream();
    for _ in 0..10 {
        run()?;
    }
    stream.synchronize()?;
    let mut times = Vec::new();
    for _ in 0..50 {
        let start = Event::record(&stream)?;
        run()?;
        let end = Event::record(&stream)?;
        stream.synchronize()?;
        times.push(end.elapsed_ms(&start)?);
    }
    Ok(median(times))
}

/// The largest difference from an f64 reference on a few rows.
fn check(
    case: &str,
    got: &Tensor,
    want: impl Fn(usize) -> Vec<f64>,
    limit: f64,
) -> anyhow::Result<()> {
    for row in [0, 77, 4095, 8191] {
        let values = got.narrow(0, row, 1)?.to_f64_vec()?;
        let worst = values.iter().zip(want(row)).map(|(g, w)| (g - w).abs()).fold(0.0, f64::max);
        anyhow::ensure!(worst <= limit, "{case}: row {row} is off by {worst}");
    }
    Ok(())
}

fn elementwise(report: &mut Report, peers: &Peers) -> anyhow::Result<()> {
    let n = 8192;
    for (dtype, name, eps) in [(DType::F32, "f32", 1e-6), (DType::BF16, "bf16", 4e-2)] {
        let x = Tensor::randn(&[n, n], (dtype, Device::Cuda(0)))?;
        let y = Tensor::randn(&[n, n], (dtype, Device::Cuda(0)))?;
        let row = |t: &Tensor, i: usize| {
            t.narrow(0, i, 1).and_then(|r| r.to_f64_vec()).unwrap_or_default()
        };
        let size = dtype.bytes() as f64 * (n * n) as f64;
        let case = format!("add/{name}/8192x8192");
        if report.wants(&case) {
            let sum = |i| row(&x, i).iter().zip(row(&y, i)).map(|(a, b)| a + b).collect();
            check(&case, &x.add(&y)?, sum, eps)?;
            let ours = time(|| x.add(&y).map(drop))?;
            let peer = peers.get("torch", &case);
            report.add(Row { case, ours, peer, bytes: Some(3.0 * size) })?;
        }
        let case = format!("softmax/{name}/8192x8192");
        if report.wants(&case) {
            let want = |i| {
                let values = row(&x, i);
                let total: f64 = values.iter().map(|v| v.exp()).sum();
                values.iter().map(|v| v.exp() / total).collect()
            };
            check(&case, &x.softmax(-1)?, want, 1e-4)?;
            let ours = time(|| x.softmax(-1).map(drop))?;
            for peer in ["triton", "torch"] {
                let peer = peers.get(peer, &case);
                report.add(Row { case: case.clone(), ours, peer, bytes: Some(2.0 * size) })?;
            }
        }
    }
    Ok(())
}

/// Cold compilation from the kernel's source to PTX, on one core: as a launch of contiguous tensors
/// compiles it, and for any strides, where each element has an address of its own.
fn compile(report: &mut Report) -> anyhow::Result<()> {
    let target = Target::sm_90a();
    let add = (&kernels::elementwise::add_flat::KERNEL, vec![1024]);
    let softmax = (&kernels::softmax::softmax::KERNEL, vec![4096]);
    for (name, (kernel, consts)) in [("add", add), ("softmax", softmax)] {
        let contiguous = Hints::contiguous(kernel.ast);
        for (suffix, hints) in [("", contiguous), ("/strided", Hints::default())] {
            let case = format!("compile/{name}/f32/{}/sm_90a{suffix}", consts[0]);
            if !report.wants(&case) {
                continue;
            }
            let mut times = Vec::new();
            for _ in 0..9 {
                let start = Instant::now();
                let dtypes = [DType::F32, DType::F32];
                kernel.specialize(&dtypes, &consts, &hints)?.compile(&target)?;
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            report.add(Row { case, ours: median(times), peer: None, bytes: None })?;
        }
    }
    Ok(())
}
