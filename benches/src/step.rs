//! What the host needs of an op and of a training step of a small model, beside PyTorch.
//!
//! An op's figure is that of many in a row without a wait; a step's is wall time, of many steps with one
//! wait at the end: the device has less to do than the host.

use genesis::nn::{Linear, Module};
use genesis::ops::Reduction;
use genesis::optim::{AdamW, AdamWOptions, Optimizer};
use genesis::profiler::{ProfilerOptions, profile};
use genesis::{DType, Device, Graph, Result, Tensor, graph, no_grad};

use crate::launch::host_times;
use crate::peer::Peer;
use crate::table::{Aim, Case};
use crate::timing::{Times, host_turns, median};
use crate::way::Way;

/// The cases, with the time in ms that each may take at most on an H200, as a ratio to the peer's.
const CASES: [(&str, f64, f64); 5] = [
    ("host/add/1024", 4.8 / 2.6, 4.8 / 2.5),
    ("host/add/1024/grad", 5.6 / 3.0, 5.6 / 2.6),
    ("mlp_step/784-256-10/b64", 0.63 / 0.20, 0.63 / 0.12),
    ("mlp_step/784-256-10/b64/graph", 1.0, 1.4),
    (PROFILED, 1.0 / 1.1, 1.0 / 1.05),
];

/// The step under the profiler, beside the same step without it.
const PROFILED: &str = "profiler/mlp_step";

/// Steps of one round.
const STEPS: usize = 100;
/// Rounds of which the median counts.
const ROUNDS: usize = 9;
/// Steps of a profile.
const PROFILED_STEPS: usize = 1000;

pub(crate) fn cases() -> Vec<Case> {
    let case = |&(name, must, aim): &(&str, f64, f64)| {
        let (name, aim) = (name.to_owned(), Some(Aim::Ratio(aim)));
        Case { name, must: Some(must), aim }
    };
    CASES.iter().map(case).collect()
}

/// The times of a case; none if it is another's.
pub(crate) fn time(
    case: &str,
    device: Device,
    peer: Option<&mut Peer>,
) -> anyhow::Result<Option<Times>> {
    if case == PROFILED {
        let [ours, off] = profiled(device)?;
        let peer = Some(("profiler off".to_owned(), off));
        return Ok(Some(Times { ours, peer, from_graphs: false }));
    }
    let ours: fn(Device) -> anyhow::Result<f64> = match case {
        "host/add/1024" => |device| add(device, false),
        "host/add/1024/grad" => |device| add(device, true),
        "mlp_step/784-256-10/b64" => |device| mlp(device, false),
        "mlp_step/784-256-10/b64/graph" => |device| mlp(device, true),
        _ => return Ok(None),
    };
    // Without a GPU PyTorch has no graphs.
    let peer = peer.filter(|_| device.is_cuda() || !case.ends_with("/graph"));
    host_turns(peer, || ours(device), |peer| peer.host(case)).map(Some)
}

/// Host time of an addition of 1024 elements, in ms.
fn add(device: Device, grad: bool) -> anyhow::Result<f64> {
    let at = (DType::F32, device);
    let x = Tensor::randn(&[1024], at)?.requires_grad_(grad)?;
    let y = Tensor::randn(&[1024], at)?;
    let stream = device.stream();
    let way = Way {
        wait: Box::new(|| Ok(stream.synchronize()?)),
        launch: Box::new(|| Ok(x.add(&y).map(drop)?)),
    };
    let [times] = host_times(&mut [way])?;
    Ok(times.steady)
}

/// A model of two layers.
pub(crate) struct Mlp {
    first: Linear,
    second: Linear,
}

impl Mlp {
    pub(crate) fn new(device: Device) -> Result<Mlp> {
        let at = (DType::F32, device);
        Ok(Mlp { first: Linear::new(784, 256, at)?, second: Linear::new(256, 10, at)? })
    }

    pub(crate) fn parameters(&self) -> Vec<Tensor> {
        [self.first.parameters(), self.second.parameters()].concat()
    }

    /// One step; gives the loss.
    pub(crate) fn step(&self, optimizer: &mut AdamW, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        optimizer.zero_grad();
        let hidden = self.first.forward(x)?.relu()?;
        let loss = self.second.forward(&hidden)?.cross_entropy(y, Reduction::Mean)?;
        loss.backward()?;
        optimizer.step()?;
        Ok(loss.detach())
    }
}

/// Wall time of a step with the profiler on and with it off, in ms, in turns of a thousand steps. What a
/// profile is made of after its last step is not counted. A host may run slower by a third in its first second,
/// and for tens of milliseconds at any time: few turns can't tell a few percent.
fn profiled(device: Device) -> anyhow::Result<[f64; 2]> {
    const TURNS: usize = 21;
    let mut training = Training::new(device)?;
    training.run(10 * PROFILED_STEPS)?;
    let mut times = [const { Vec::new() }; 2];
    for _ in 0..TURNS {
        let (on, _) = profile(ProfilerOptions::default(), |_| training.time(PROFILED_STEPS))?;
        times[0].push(on);
        times[1].push(training.time(PROFILED_STEPS)?);
    }
    Ok(times.map(median))
}

/// The model at its training.
struct Training {
    model: Mlp,
    optimizer: AdamW,
    x: Tensor,
    y: Tensor,
}

impl Training {
    fn new(device: Device) -> Result<Training> {
        let model = Mlp::new(device)?;
        let x = Tensor::randn(&[64, 784], (DType::F32, device))?;
        let y = no_grad(|| Tensor::randint(0, 10, &[64], (DType::I64, device)))?;
        let optimizer = AdamW::new(model.parameters(), AdamWOptions::default());
        Ok(Training { model, optimizer, x, y })
    }

    fn run(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            self.model.step(&mut self.optimizer, &self.x, &self.y)?;
        }
        Ok(self.x.device().synchronize()?)
    }

    /// Wall time of one of `n` steps, in ms.
    fn time(&mut self, n: usize) -> Result<f64> {
        let start = std::time::Instant::now();
        self.run(n)?;
        Ok(start.elapsed().as_secs_f64() * 1e3 / n as f64)
    }
}

/// Wall time of a step, in ms.
fn mlp(device: Device, captured: bool) -> anyhow::Result<f64> {
    let Training { model, mut optimizer, x, y } = Training::new(device)?;
    let stream = device.stream();
    let mut step: Graph<AdamW, _> = graph(|optimizer: &mut AdamW, args: &[Tensor]| {
        Ok(vec![model.step(optimizer, &args[0], &args[1])?])
    });
    let mut run = |n: usize| -> anyhow::Result<()> {
        for _ in 0..n {
            match captured {
                true => drop(step.call(&mut optimizer, &[&x, &y])?),
                false => drop(model.step(&mut optimizer, &x, &y)?),
            }
        }
        Ok(stream.synchronize()?)
    };
    run(5)?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = std::time::Instant::now();
        run(STEPS)?;
        times.push(start.elapsed().as_secs_f64() * 1e3 / STEPS as f64);
    }
    Ok(median(times))
}
