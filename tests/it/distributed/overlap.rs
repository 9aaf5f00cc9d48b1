//! What of communication is exposed, on the virtual clock: ranks train a stack of blocks over links of several speeds.
//!
//! Compute takes what the virtual GPU's clock says (`tests/driver/src/cost.rs`), collectives what the link does
//! (`tests/nccl/src/link.rs`). The step over a slow link is compared with `genesis::plan`'s simulation of the same schedule,
//! given the times of each block's kernels, as they were measured over a link that takes no time, and the bytes of its
//! collectives.

use std::sync::{Arc, Mutex};

use anyhow::{Context, ensure};
use genesis::distributed::{
    DdpOptions, DistributedDataParallel, FullyShard, FullyShardOptions, ProcessGroup,
};
use genesis::nn::{Layer, LayerNorm, Linear, Module};
use genesis::optim::Optimizer;
use genesis::plan::{Mesh, Strategy, UnitTimes, simulate_units};
use genesis::{DType, Device, Result, Tensor, manual_seed};
use genesis_kernel::runtime::Event;

use super::common::{adamw, group, numbers};
use super::{Launch, text};

const RANKS: usize = 2;
const BLOCKS: usize = 3;
const CHANNELS: usize = 128;
const TOKENS: usize = 16;

/// Parameters of a block.
const PARAMETERS: usize = 2 * CHANNELS + 8 * CHANNELS * CHANNELS + 5 * CHANNELS;

/// A link: GB/s each way and us a call.
#[derive(Clone, Copy)]
struct Link {
    rate: f64,
    latency: f64,
}

/// NVLink 4, and a network of 100 Gb/s, with about the latency of NCCL's LL protocol.
const NVLINK: Link = Link { rate: 450.0, latency: 5.0 };
const SLOW: Link = Link { rate: 12.5, latency: 5.0 };

impl Link {
    /// Seconds of a collective that moves so many bytes over each link.
    fn seconds(self, bytes: f64) -> f64 {
        self.latency * 1e-6 + bytes / (self.rate * 1e9)
    }
}

/// Two products on a residual stream.
#[derive(Module)]
struct Block {
    norm: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(device: Device) -> Result<Block> {
        let (up, down) = (
            Linear::new(CHANNELS, 4 * CHANNELS, device)?,
            Linear::new(4 * CHANNELS, CHANNELS, device)?,
        );
        Ok(Block { norm: LayerNorm::new(CHANNELS, device)?, up, down })
    }
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.up.forward(&self.norm.forward(x)?)?.gelu()?; // [T, 4 C]
        x.add(&self.down.forward(&h)?) // [T, C]
    }
}

/// Marks of a step: its begin, after each block's forward, before each block's backward, after the backward, at its end.
#[derive(Clone, Default)]
struct Marks(Arc<Mutex<Vec<Event>>>);

impl Marks {
    fn mark(&self, device: Device) -> Result<()> {
        let event = Event::record(&device.stream())?;
        self.0.lock().expect("no rank panics in here").push(event);
        Ok(())
    }

    /// Microseconds between each mark and the next.
    fn parts(&self) -> Result<Vec<f64>> {
        let events = self.0.lock().expect("no rank panics in here");
        let part = |pair: &[Event]| Ok(pair[1].elapsed_ms(&pair[0])? * 1e3);
        events.windows(2).map(part).collect()
    }
}

/// A step of training; `blocks` compute in order, `backward` goes back.
fn step(
    blocks: &[impl Layer],
    x: &Tensor,
    optimizer: &mut impl Optimizer,
    backward: impl Fn(&Tensor) -> Result<()>,
) -> Result<Marks> {
    let (marks, device) = (Marks::default(), x.device());
    marks.mark(device)?;
    let mut y = x.clone();
    for block in blocks {
        y = block.forward(&y)?;
        marks.mark(device)?;
        let of_hook = marks.clone();
        y.register_hook(move |_| of_hook.mark(device).map(|()| None))?;
    }
    backward(&y.square()?.mean()?)?;
    marks.mark(device)?;
    optimizer.step()?;
    optimizer.zero_grad();
    marks.mark(device)?;
    Ok(marks)
}

/// Says what the parts of a step took, in us.
fn say(name: &str, marks: &Marks) -> Result<()> {
    let parts: Vec<String> = marks.parts()?.iter().map(|us| format!("{us:.3}")).collect();
    println!("overlap of {name}: {}", parts.join(" "));
    Ok(())
}

fn plain(device: Device) -> Result<Vec<Block>> {
    manual_seed(3);
    (0..BLOCKS).map(|_| Block::new(device)).collect()
}

fn batch(group: &ProcessGroup, dtype: DType) -> Result<Tensor> {
    numbers(&[TOKENS, CHANNELS], 7 + group.rank() as u64, group.device())?.to_dtype(dtype)
}

/// Blocks under one `DistributedDataParallel`, a bucket a block.
#[derive(Module)]
struct Stack {
    blocks: Vec<Block>,
}

/// Trains under `DistributedDataParallel`; all buckets are reduced at the end where they are not `beside` the backward.
fn data_parallel(group: &ProcessGroup, beside: bool) -> Result<()> {
    let bytes = 4 * PARAMETERS;
    let options =
        DdpOptions { bucket_bytes: bytes, first_bucket_bytes: bytes, ..DdpOptions::default() };
    let stack = Stack { blocks: plain(group.device())? };
    let model = DistributedDataParallel::new(stack, group, options)?;
    let mut optimizer = adamw(model.named_parameters());
    let x = batch(group, DType::F32)?;
    let marks = step(&model.blocks, &x, &mut optimizer, |loss| match beside {
        true => loss.backward(),
        false => {
            model.no_sync(|| loss.backward())?;
            model.reduce_gradients()
        }
    })?;
    say("ddp", &marks)
}

/// Trains blocks in parts, used in bf16; those of the next block are gathered `beside` the compute, or when they are due.
fn sharded(group: &ProcessGroup, beside: bool) -> Result<()> {
    let param_dtype = Some(DType::BF16);
    let options = FullyShardOptions { param_dtype, ..FullyShardOptions::default() };
    let blocks = plain(group.device())?.into_iter();
    let blocks = blocks.map(|block| FullyShard::new(block, group, options));
    let blocks = blocks.collect::<Result<Vec<_>>>()?;
    if beside {
        blocks.windows(2).for_each(|pair| pair[0].prefetch(&pair[1]));
    }
    let named = blocks.iter().enumerate().flat_map(|(i, block)| {
        block.named_parameters().into_iter().map(move |(name, p)| (format!("{i}.{name}"), p))
    });
    let mut optimizer = adamw(named.collect());
    let x = batch(group, DType::BF16)?;
    say("fsdp", &step(&blocks, &x, &mut optimizer, Tensor::backward)?)
}

fn steps_of(beside: bool) -> Result<()> {
    let group = group(200)?;
    data_parallel(&group, beside)?;
    sharded(&group, beside)
}

#[test]
#[ignore = "ranks, which `distributed::communication_is_hidden_behind_compute` starts"]
fn steps() -> Result<()> {
    steps_of(true)
}

#[test]
#[ignore = "ranks, which `distributed::communication_is_hidden_behind_compute` starts"]
fn steps_without_overlap() -> Result<()> {
    steps_of(false)
}

/// Microseconds of the parts of a step of one kind, as rank 0 said.
struct Step(Vec<f64>);

impl Step {
    fn of(said: &str, name: &str) -> anyhow::Result<Step> {
        let head = format!("overlap of {name}: ");
        let line = said.lines().find_map(|line| line.split_once(&head)).context(head.clone())?.1;
        let parts = line.split(' ').map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        ensure!(parts.len() == 2 * BLOCKS + 2, "{line}");
        Ok(Step(parts))
    }

    /// In us.
    fn whole(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The share of this step that it took longer than another.
    fn exposed(&self, without: &Step) -> f64 {
        1.0 - without.whole() / self.whole()
    }

    /// What the plan says of a step of blocks that take as long as those of this one, in us; the rest is as it was.
    fn planned(&self, strategy: &Strategy, collectives: UnitTimes) -> anyhow::Result<f64> {
        let unit = |block: usize| UnitTimes {
            forward: self.0[block] * 1e-6,
            // The backward goes from the last block to the first.
            backward: self.0[2 * BLOCKS - block] * 1e-6,
            ..collectives
        };
        let units: Vec<UnitTimes> = (0..BLOCKS).map(unit).collect();
        let computed: f64 = units.iter().map(|unit| unit.forward + unit.backward).sum();
        let planned = simulate_units(&units, strategy)?.seconds;
        Ok((planned - computed) * 1e6 + self.whole())
    }
}

/// What rank 0 says of its steps over a link.
fn run(test: &'static str, link: Option<Link>) -> anyhow::Result<String> {
    let words = link
        .map_or(String::new(), |Link { rate, latency }| format!("link={rate},latency={latency}"));
    let launch = Launch::new(RANKS, test);
    let outputs = launch.with("VIRTUAL_GPU", "clock").with("VIRTUAL_NCCL", &words).run()?;
    for output in &outputs {
        ensure!(output.status.success(), "{}", text(output));
    }
    Ok(text(&outputs[0]))
}

/// What ranks said of their steps over no link, NVLink and the slow one, and over both links without overlap.
struct Said {
    free: String,
    fast: String,
    slow: String,
    fast_in_order: String,
    slow_in_order: String,
}

/// A way to train: its mesh, and what the collectives of a block take over the slow link.
struct Way {
    name: &'static str,
    mesh: Mesh,
    collectives: UnitTimes,
}

impl Way {
    fn check(&self, said: &Said) -> anyhow::Result<()> {
        let name = self.name;
        let of = |said: &str| Step::of(said, name);
        let (free, fast, slow) = (of(&said.free)?, of(&said.fast)?, of(&said.slow)?);
        let strategy = Strategy { mesh: self.mesh, ..Strategy::default() };
        let planned = free.planned(&strategy, self.collectives)?;
        let shares = [&fast, &slow].map(|step| step.exposed(&free));
        let in_order = [of(&said.fast_in_order)?, of(&said.slow_in_order)?];
        let shares_in_order = in_order.each_ref().map(|step| step.exposed(&free));
        let off = slow.whole() / planned - 1.0;
        println!(
            "{name}: {:.0} us alone; NVLink {:.0} us, 100 Gb/s {:.0} us of {planned:.0} planned, {off:+.3}; \
             exposed {shares:.3?}, without overlap {shares_in_order:.3?}",
            free.whole(),
            fast.whole(),
            slow.whole(),
        );
        ensure!(shares[0] <= 0.1, "{name}: {:.3} of a step over NVLink is exposed", shares[0]);
        ensure!(off.abs() <= 0.1, "{name}: {:.0} us, and {planned:.0} planned", slow.whole());
        for (with, without) in shares.iter().zip(shares_in_order) {
            ensure!(without > 1.2 * with, "{name}: {with:.3} exposed, {without:.3} in order");
        }
        Ok(())
    }
}

/// Over NVLink at most a tenth of a step is exposed, and over 100 Gb/s as much as the plan says: of ranks that run the
/// test `beside`, and not of those that run `in_order`.
pub(super) fn check(beside: &'static str, in_order: &'static str) -> anyhow::Result<()> {
    let said = Said {
        free: run(beside, None)?,
        fast: run(beside, Some(NVLINK))?,
        slow: run(beside, Some(SLOW))?,
        fast_in_order: run(in_order, Some(NVLINK))?,
        slow_in_order: run(in_order, Some(SLOW))?,
    };
    let part = (RANKS - 1) as f64 / RANKS as f64;
    let bytes = |of_each: f64| part * of_each * PARAMETERS as f64;
    let gather = SLOW.seconds(bytes(2.0));
    let data_parallel = Way {
        name: "ddp",
        mesh: Mesh { dp: RANKS, ..Mesh::default() },
        collectives: UnitTimes {
            all_reduce: SLOW.seconds(2.0 * bytes(4.0)),
            ..UnitTimes::default()
        },
    };
    let sharded = Way {
        name: "fsdp",
        mesh: Mesh { fsdp: RANKS, ..Mesh::default() },
        collectives: UnitTimes { gather, reduce: gather, ..UnitTimes::default() },
    };
    data_parallel.check(&said)?;
    sharded.check(&said)
}
