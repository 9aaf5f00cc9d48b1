//! What the host does, by criterion: launches, compilation, and the CPU back end beside loops by hand.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use genesis::nn::{Linear, Module, Relu, Sequential};
use genesis::ops::Reduction;
use genesis::optim::{AdamW, AdamWOptions, Optimizer};
use genesis::profiler::{Profiler, ProfilerOptions, Schedule};
use genesis::{DType, Device, Tensor};
use genesis_kernel::kernel::{Hints, KernelDef};
use genesis_kernel::target::Target;
use rayon::prelude::*;

fn main() {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    add(&mut criterion);
    softmax(&mut criterion);
    launch(&mut criterion);
    profiler(&mut criterion);
    compile(&mut criterion);
    criterion.final_summary();
}

fn randn(shape: &[usize]) -> Tensor {
    Tensor::randn(shape, (DType::F32, Device::Cpu)).expect("memory for a benchmark")
}

fn add(criterion: &mut Criterion) {
    let n = 1usize << 24;
    let (x, y) = (randn(&[n]), randn(&[n]));
    let values = |t: &Tensor| t.to_vec::<f32>().expect("the tensor is f32");
    let (xs, ys) = (values(&x), values(&y));
    let mut group = criterion.benchmark_group("cpu/add/f32/16777216");
    group.throughput(Throughput::Bytes(12 * n as u64));
    group.bench_function("genesis", |b| b.iter(|| x.add(&y)));
    let mut out = vec![0f32; n];
    group.bench_function("rayon loop", |b| {
        b.iter(|| {
            out.par_chunks_mut(1 << 16).enumerate().for_each(|(c, chunk)| {
                let at = c << 16;
                for ((z, x), y) in chunk.iter_mut().zip(&xs[at..]).zip(&ys[at..]) {
                    *z = x + y;
                }
            });
        });
    });
    group.finish();
}

fn softmax(criterion: &mut Criterion) {
    let x = randn(&[1024, 4096]);
    let mut group = criterion.benchmark_group("cpu/softmax/f32/1024x4096");
    group.throughput(Throughput::Bytes(8 * 1024 * 4096));
    group.bench_function("genesis", |b| b.iter(|| x.softmax(-1)));
    group.finish();
}

/// A launch whose kernel has next to nothing to do.
fn launch(criterion: &mut Criterion) {
    let (x, y) = (randn(&[16]), randn(&[16]));
    criterion.bench_function("cpu/launch of an op", |b| b.iter(|| x.add(&y)));
}

/// A step of a small network, alone and under the profiler. Steps of both kinds alternate in both cases, so
/// that whatever else the machine does slows both down alike; only the time of one kind counts.
fn profiler(criterion: &mut Criterion) {
    let device = Device::Cpu;
    let layer = |from, to| Linear::new(from, to, device).expect("memory for a layer");
    let net = Sequential::new().with(layer(784, 256)).with(Relu).with(layer(256, 10));
    let mut optimizer = AdamW::new(net.named_parameters(), AdamWOptions::default());
    let x = randn(&[64, 784]);
    let classes = Tensor::zeros(&[64], (DType::I64, device)).expect("memory for classes");
    let mut step = || -> genesis::Result<()> {
        optimizer.zero_grad();
        net.forward(&x)?.cross_entropy(&classes, Reduction::Mean)?.backward()?;
        optimizer.step()
    };
    // Every other step is recorded, and forgotten when the next window begins.
    let schedule = Schedule { wait: 1, warmup: 0, active: 1, repeat: 0, skip_first: 0 };
    let options = ProfilerOptions { schedule: Some(schedule), ..ProfilerOptions::default() };
    let mut profiler = Profiler::start(options).expect("no profiler is at work");
    let mut pair = || -> genesis::Result<[Duration; 2]> {
        let mut times = [Duration::ZERO; 2];
        for time in &mut times {
            let start = Instant::now();
            step()?;
            *time = start.elapsed();
            profiler.step()?;
        }
        Ok(times)
    };
    let mut group = criterion.benchmark_group("cpu/mlp_step/784-256-10/b64");
    for (which, name) in ["alone", "profiled"].into_iter().enumerate() {
        group.bench_function(name, |b| {
            b.iter_custom(|n| (0..n).map(|_| pair().expect("the step runs")[which]).sum());
        });
    }
    group.finish();
}

/// From a kernel's source to PTX.
fn compile(criterion: &mut Criterion) {
    let cases: [(&str, &'static KernelDef, &[i64]); 3] = [
        ("add", &kernels::elementwise::add_flat::KERNEL, &[1024]),
        ("softmax", &kernels::softmax::softmax::KERNEL, &[1, 4096]),
        ("matmul", &kernels::matmul::matmul::KERNEL, &[64, 64, 32]),
    ];
    let mut group = criterion.benchmark_group("compile to PTX for sm_90a");
    for (name, kernel, consts) in cases {
        let hints = Hints::contiguous(kernel.ast);
        group.bench_function(BenchmarkId::from_parameter(name), |b| {
            b.iter(|| {
                let special = kernel.specialize(&[DType::F32, DType::F32], consts, &hints);
                special.and_then(|special| special.compile(&Target::sm_90a()))
            });
        });
    }
    group.finish();
}
