//! The memory of a device, as `genesis::memory` tells it. Statistics and limits are of the process, so
//! that each of these tests runs in one of its own; those that need no particular size also on a GPU.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use genesis::nn::{Linear, Module, Relu, Sequential};
use genesis::optim::{Optimizer, Sgd, SgdOptions};
use genesis::{DType, Device, Event, Result, Stream, Tensor, memory, with_stream};
use genesis_kernel::Buffer;
use genesis_kernel::ir::Scalar;
use genesis_kernel::kernel::{Grid, KernelDef};
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{Arg, PtrArg, ViewArg};

use crate::gpu::{devices, gpu};
use crate::skipped::tell;

/// Says to a process that it is the one that a test started.
const CHILD: &str = "GENESIS_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test of this file again in a process of its own, on a device.
fn run_child(test: &str, device: Device, knobs: &[(&str, &str)]) -> anyhow::Result<Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([&format!("memory::{test}"), "--exact", "--nocapture"]);
    command.env(CHILD, "1").env("GENESIS_DEVICE", device.to_string());
    command.envs(knobs.iter().copied());
    Ok(command.output()?)
}

/// What a child printed, if it passed.
fn passed(child: Output) -> anyhow::Result<String> {
    let text = [&child.stdout[..], &child.stderr[..]].map(String::from_utf8_lossy).concat();
    ensure!(child.status.success() && text.contains("1 passed"), "{text}");
    Ok(text)
}

/// Runs a test in a child on every device.
fn everywhere(test: &str, what: &'static str, knobs: &[(&str, &str)]) -> anyhow::Result<()> {
    for device in devices(what) {
        passed(run_child(test, device, knobs)?).with_context(|| device.to_string())?;
    }
    Ok(())
}

#[test]
fn statistics_follow_tensors() -> anyhow::Result<()> {
    if !is_child() {
        return everywhere("statistics_follow_tensors", "statistics of memory", &[]);
    }
    let device = Device::default();
    memory::reset_peak_memory_stats(device)?;
    let before = memory::memory_stats(device)?;
    let x = Tensor::zeros(&[256, 1024], device)?;
    let y = Tensor::zeros(&[512, 1024], device)?;
    ensure!(memory::memory_allocated(device)? == before.allocated + (3 << 20));
    drop(y);
    ensure!(memory::memory_allocated(device)? == before.allocated + (1 << 20));
    ensure!(memory::max_memory_allocated(device)? == before.allocated + (3 << 20));
    let again = Tensor::zeros(&[512, 1024], device)?;
    let stats = memory::memory_stats(device)?;
    ensure!(stats.hits > before.hits && stats.allocations == before.allocations + 3, "{stats:?}");
    drop((x, again));
    memory::reset_peak_memory_stats(device)?;
    ensure!(memory::max_memory_allocated(device)? == before.allocated);
    let reserved = memory::memory_reserved(device)?;
    memory::empty_cache(device)?;
    ensure!(memory::memory_reserved(device)? < reserved);
    ensure!(memory::max_memory_reserved(device)? >= reserved);
    let summary = memory::memory_summary(device)?;
    ensure!(summary.contains(&format!("memory of {device}")), "{summary}");
    let (free, total) = memory::mem_get_info(device)?;
    ensure!(free <= total && total > 0);
    Ok(())
}

#[test]
fn a_snapshot_names_tensors_and_lines() -> anyhow::Result<()> {
    if !is_child() {
        let on = [("GENESIS_MEMORY_HISTORY", "1")];
        return everywhere("a_snapshot_names_tensors_and_lines", "snapshots of memory", &on);
    }
    let device = Device::default();
    let x = Tensor::zeros(&[300, 20], device)?;
    let line = line!() - 1;
    let y = x.exp()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("memory.json");
    memory::dump_snapshot(&path)?;
    let file = memory::SnapshotFile::read(&path)?;
    let name = device.to_string();
    let of_device = file.devices.iter().find(|d| d.device == name).context("no device")?;
    let blocks: Vec<_> = of_device.segments.iter().flat_map(|s| &s.blocks).collect();
    let mut lines: Vec<String> = blocks
        .iter()
        .filter(|block| block.shape == [300, 20] && block.state == "live")
        .filter_map(|block| block.line.clone())
        .collect();
    lines.sort();
    let place = |line: u32| format!("tests/it/memory.rs:{line}");
    ensure!(lines == [place(line), place(line + 2)], "{lines:?}");
    for segment in &of_device.segments {
        let all: usize = segment.blocks.iter().map(|block| block.bytes).sum();
        ensure!(all == segment.bytes, "the blocks of a segment are all of it");
    }
    let page = file.to_html();
    ensure!(page.contains(&place(line)) && page.contains("f32 [300, 20]"), "{page}");
    drop((x, y));
    let error = memory::SnapshotFile::read(Path::new("Cargo.toml")).err().context("no JSON")?;
    ensure!(
        error.to_string().contains("no snapshot of memory")
            || error.to_string().contains("No such")
    );
    Ok(())
}

/// A step of a small network on a batch; its loss.
fn step(net: &Sequential, sgd: &mut Sgd, batch: usize) -> Result<f64> {
    let x = Tensor::full(&[batch, 16], 0.5, Device::default())?;
    let loss = net.forward(&x)?.square()?.mean()?;
    sgd.zero_grad();
    loss.backward()?;
    sgd.step()?;
    loss.item()
}

#[test]
fn training_goes_on_after_memory_ran_out() -> anyhow::Result<()> {
    if !is_child() {
        let on = [("GENESIS_MEMORY_HISTORY", "1")];
        return everywhere("training_goes_on_after_memory_ran_out", "running out of memory", &on);
    }
    let device = Device::default();
    let net = Sequential::new()
        .with(Linear::new(16, 64, device)?)
        .with(Relu)
        .with(Linear::new(64, 4, device)?);
    let mut sgd = Sgd::new(net.parameters(), SgdOptions { lr: 0.01, ..SgdOptions::default() });
    let first = step(&net, &mut sgd, 8)?;
    memory::empty_cache(device)?;
    memory::set_memory_limit(device, Some(memory::memory_reserved(device)? + (3 << 20)))?;
    // The input takes 1 MiB of the 3, the hidden layer 4.
    let error = step(&net, &mut sgd, 1 << 14).err().context("there is no such memory")?;
    ensure!(error.is_out_of_memory() && !error.is_device_lost(), "{error}");
    let text = error.to_string();
    for part in [
        &format!("asked {device} for"),
        "the limit of this process is",
        "in use by this process",
        "in blocks of at most",
        "live tensors:",
        "f32 [16384, 16]  tests/it/memory.rs:",
        "what may help: ",
    ] {
        ensure!(text.contains(part), "{part} is not in: {text}");
    }
    let mut last = first;
    for _ in 0..5 {
        last = step(&net, &mut sgd, 8)?;
    }
    ensure!(last < first && last.is_finite(), "{last} after {first}");
    ensure!(memory::memory_stats(device)?.out_of_memory == 1);
    memory::set_memory_limit(device, None)?;
    step(&net, &mut sgd, 1 << 8)?;
    Ok(())
}

#[test]
fn a_fraction_is_of_the_whole() -> anyhow::Result<()> {
    if !is_child() {
        return everywhere("a_fraction_is_of_the_whole", "limits of memory", &[]);
    }
    let device = Device::default();
    let (_, total) = memory::mem_get_info(device)?;
    memory::set_per_process_memory_fraction(device, 0.25)?;
    ensure!(memory::memory_stats(device)?.limit == Some(total / 4));
    let error = memory::set_per_process_memory_fraction(device, 1.5).err().context("over all")?;
    let text = "set_per_process_memory_fraction: the part must be in 0 to 1, got 1.5";
    ensure!(error.to_string() == text, "{error}");
    Ok(())
}

#[test]
fn streams_run_beside_each_other() -> anyhow::Result<()> {
    if !is_child() {
        let Some(device) = gpu("streams") else { return Ok(()) };
        return passed(run_child("streams_run_beside_each_other", device, &[])?).map(drop);
    }
    let device = Device::default();
    let side = Stream::new(device)?;
    ensure!(side != device.stream() && side.id() > 0);
    let x = Tensor::full(&[1000], 2.0, device)?;
    side.wait_stream(&device.stream())?;
    let y = with_stream(&side, || -> Result<Tensor> {
        assert_eq!(device.stream(), side);
        &x * 3.0
    })?;
    // The side stream still reads it: its memory goes to nobody before.
    drop(x);
    let z = Tensor::full(&[1000], 7.0, device)?;
    let event = Event::record(&side)?;
    device.stream().wait_event(&event)?;
    ensure!(y.add(&z)?.to_vec::<f32>()? == [13.0; 1000]);
    event.synchronize()?;
    ensure!(event.query()? && side.query()?);
    let later = Event::record(&side)?;
    ensure!(later.elapsed_ms(&event)? >= 0.0);
    Ok(())
}

#[test]
fn pinned_memory_is_copied_without_waiting() -> anyhow::Result<()> {
    if !is_child() {
        let Some(device) = gpu("pinned memory") else { return Ok(()) };
        return passed(run_child("pinned_memory_is_copied_without_waiting", device, &[])?)
            .map(drop);
    }
    let device = Device::default();
    let x = Tensor::from_slice_on(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], Device::Cpu)?;
    let pinned = x.t()?.pin_memory()?;
    ensure!(pinned.is_pinned() && !x.is_pinned() && pinned.device() == Device::Cpu);
    let there = pinned.to_device_non_blocking(device)?;
    let back = (&there * 10.0)?.to_device_non_blocking(Device::Cpu)?;
    ensure!(back.is_pinned());
    // An op on the host waits by itself, and so does a read.
    ensure!((&back + 1.0)?.to_vec::<f32>()? == [11.0, 31.0, 21.0, 41.0]);
    ensure!(back.to_vec::<f32>()? == [10.0, 30.0, 20.0, 40.0]);
    let stats = genesis_kernel::runtime::pinned_memory_stats().context("there is a GPU")?;
    ensure!(stats.allocated >= 1024, "{stats:?}");
    Ok(())
}

#[test]
fn tensors_go_from_gpu_to_gpu() -> Result<()> {
    if Device::cuda_count() < 2 {
        if gpu("copies between GPUs").is_some() {
            tell("one GPU only: copies between GPUs".to_owned());
        }
        return Ok(());
    }
    let (one, other) = (Device::Cuda(0), Device::Cuda(1));
    let x = Tensor::from_slice_on(&[1.0f32, 2.0, 3.0], &[3], one)?;
    let y = (&x * 2.0)?.to_device(other)?;
    drop(x);
    let z = (&y + 1.0)?.to_device_non_blocking(one)?;
    assert_eq!((z.device(), z.to_vec::<f32>()?), (one, vec![3.0, 5.0, 7.0]));
    // A stream of one device waits for one of the other.
    let side = Stream::new(other)?;
    one.stream().wait_stream(&side)?;
    assert_eq!(with_stream(&side, || (one.stream().id(), other.stream().id())), (0, side.id()));
    Ok(())
}

/// How many buffers the soak test makes, in place of a number for every day; the script for GPUs says
/// 10000000.
const SOAK: &str = "GENESIS_TEST_SOAK";

/// Four times a byte.
#[device]
pub fn word(byte: u32) -> u32 {
    (byte & 255) * 16843009
}

/// Fills four buffers, each with a byte of `marks`.
#[kernel]
pub fn mark<const BLOCK: usize>(
    a: ViewMut<u32, 1>,
    b: ViewMut<u32, 1>,
    c: ViewMut<u32, 1>,
    d: ViewMut<u32, 1>,
    marks: u32,
) {
    let first = program_id(0) * BLOCK;
    a.store([first], full::<u32, BLOCK>(word(marks)));
    b.store([first], full::<u32, BLOCK>(word(marks >> 8)));
    c.store([first], full::<u32, BLOCK>(word(marks >> 16)));
    d.store([first], full::<u32, BLOCK>(word(marks >> 24)));
}

/// How many words of a block are not what `mark` wrote. They are poisoned: what still reads them reads that.
#[device]
pub fn differing<const BLOCK: usize>(x: ViewMut<u32, 1>, byte: u32) -> i32 {
    let first = program_id(0) * BLOCK;
    let differs = x.load::<BLOCK>([first]) != word(byte);
    x.store([first], full::<u32, BLOCK>(word(POISON as u32)));
    sum(where_(differs & (first + arange::<BLOCK>() < x.dim(0)), 1_i32, 0), 0)
}

/// Counts in `wrong` the words of four buffers that are not what [`mark`] wrote, and poisons them all.
#[kernel]
pub fn look<const BLOCK: usize>(
    a: ViewMut<u32, 1>,
    b: ViewMut<u32, 1>,
    c: ViewMut<u32, 1>,
    d: ViewMut<u32, 1>,
    marks: u32,
    wrong: PtrMut<i32>,
) {
    let ab = differing::<BLOCK>(a, marks) + differing::<BLOCK>(b, marks >> 8);
    let cd = differing::<BLOCK>(c, marks >> 16) + differing::<BLOCK>(d, marks >> 24);
    atomic_add(wrong, ab + cd, ab + cd != 0);
}

const POISON: u8 = 0xA5;

/// A buffer and the number that it is filled with.
type Marked = (Buffer, u8);

fn pointer(of: &Buffer, dtype: DType) -> PtrArg {
    let (address, bytes) = (of.address(), of.bytes() as u64);
    PtrArg { device: of.device(), address, bytes, dtype, mutable: true }
}

/// Launches [`mark`] or [`look`] on the stream of four buffers; nobody waits.
fn launch(def: &'static KernelDef, four: &[Marked; 4], more: Option<Arg>) -> Result<()> {
    let view = |(buffer, _): &Marked| {
        let words = [buffer.bytes() as i64 / 4];
        Arg::View(ViewArg::new(pointer(buffer, DType::U32), &words, &[1]).unwrap())
    };
    let marks = u32::from_le_bytes(four.each_ref().map(|(_, mark)| *mark));
    let marks = Arg::Scalar(Scalar::int(DType::U32, i64::from(marks)));
    let args: Vec<Arg> = four.iter().map(view).chain([marks]).chain(more).collect();
    let longest = four.iter().map(|(buffer, _)| buffer.bytes()).max().unwrap_or(0);
    let grid = Grid::x(longest.div_ceil(4 * 1024));
    // SAFETY: the views are whole buffers, which are dropped after this, in the order of their stream.
    Ok(unsafe { def.launch(four[0].0.stream(), grid, &[], &[1024], &args) }?)
}

/// A captured step of a few shapes, whose recordings share memory: replayed, looked at, and now and then
/// made anew.
fn replay(step: u64, device: Device, graph: &mut Option<Replayed>) -> Result<()> {
    if step.is_multiple_of(5_000) {
        *graph = None;
    }
    let replayed = graph.get_or_insert_with(|| {
        genesis::graph(Box::new(|(): &mut (), args: &[Tensor]| {
            let one = args[0].add_scalar(1.0)?;
            Ok(vec![one.mul_scalar(2.0)?.sub(&one)?])
        }))
    });
    let (n, value) = ([700, 40_000, 3][step as usize / 100 % 3], (step % 1_000) as f32);
    let x = Tensor::full(&[n], f64::from(value), device)?;
    let y = replayed.call(&mut (), &[&x])?.remove(0).to_vec::<f32>()?;
    assert!(
        y.iter().all(|&v| v == value + 1.0),
        "step {step}: what a graph computes was overwritten"
    );
    Ok(())
}

type Step = Box<dyn FnMut(&mut (), &[Tensor]) -> Result<Vec<Tensor>>>;
type Replayed = genesis::Graph<(), Step>;

/// Buffers that come and go in fours, which a launch is for, on two streams.
struct Soak {
    streams: [Stream; 2],
    live: [Vec<Marked>; 2],
    seed: u64,
    made: u64,
    /// Words that were not what they were filled with, as kernels saw.
    wrong: Buffer,
    /// Kernels look at most buffers then, the host at few: it waits for them. An emulated kernel takes long.
    is_long: bool,
}

impl Soak {
    fn new(device: Device, is_long: bool) -> Result<Soak> {
        let wrong = Buffer::zeroed(&device.stream(), 4)?;
        device.synchronize()?;
        let (streams, live) = ([device.stream(), Stream::new(device)?], Default::default());
        Ok(Soak { streams, live, seed: 1, made: 0, wrong, is_long })
    }

    fn random(&mut self, n: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.seed >> 33) % n
    }

    fn step(&mut self) -> anyhow::Result<()> {
        let stream = self.random(2) as usize;
        let n = self.live[stream].len();
        if n < 16 || (n < 32 && self.random(2) == 0) {
            let four =
                [self.make(stream)?, self.make(stream)?, self.make(stream)?, self.make(stream)?];
            launch(&mark::KERNEL, &four, None)?;
            self.live[stream].extend(four);
            return Ok(());
        }
        let four = [(); 4].map(|()| {
            let which = self.random(self.live[stream].len() as u64) as usize;
            self.live[stream].swap_remove(which)
        });
        if self.random(8) == 0 {
            return self.hand_over(four, 1 - stream);
        }
        let is_rare = self.random(32) == 0;
        if is_rare == self.is_long {
            return four.iter().try_for_each(look_now);
        }
        self.wrong.record_stream(&self.streams[stream]);
        Ok(launch(&look::KERNEL, &four, Some(Arg::Ptr(pointer(&self.wrong, DType::I32))))?)
    }

    fn make(&mut self, stream: usize) -> Result<Marked> {
        // A sanitizer looks at each access, and whole lines take few.
        let most = 1 << self.random(13);
        let bytes = 64 * (self.random(most) as usize + 1);
        self.made += 1;
        Ok((Buffer::uninit(&self.streams[stream], bytes)?, self.made as u8))
    }

    /// The other stream copies from buffers, which are dropped at once.
    fn hand_over(&mut self, four: [Marked; 4], to: usize) -> anyhow::Result<()> {
        for (buffer, mark) in four {
            self.live[to].push((buffer.to_stream(&self.streams[to])?, mark));
            self.made += 1;
        }
        Ok(())
    }

    fn finish(self, device: Device) -> anyhow::Result<()> {
        self.live.iter().flatten().try_for_each(look_now)?;
        device.synchronize()?;
        ensure!(self.wrong.to_bytes()? == [0; 4], "overwritten, as a kernel saw");
        Ok(())
    }
}

fn look_now((buffer, mark): &Marked) -> anyhow::Result<()> {
    ensure!(buffer.to_bytes()?.iter().all(|byte| byte == mark), "overwritten");
    Ok(buffer.fill(POISON)?)
}

/// Many buffers of random sizes on two streams, each filled with a number of its own when it is made and
/// looked at when it goes, by the host or by a kernel, while graphs are captured and replayed: whoever
/// shares a byte with another is found out.
#[test]
fn no_two_buffers_share_a_byte() -> anyhow::Result<()> {
    if !is_child() {
        return everywhere("no_two_buffers_share_a_byte", "the soak test of memory", &[]);
    }
    let device = Device::default();
    let long = std::env::var(SOAK).ok().and_then(|text| text.parse::<u64>().ok());
    let mut soak = Soak::new(device, long.is_some())?;
    let (mut graph, mut replays) = (None, 0);
    while soak.made < long.unwrap_or(4_000) {
        if soak.made >= 100 * replays {
            replay(100 * replays, device, &mut graph)?;
            replays += 1;
        }
        soak.step()?;
    }
    let made = soak.made;
    soak.finish(device)?;
    drop(graph);
    memory::empty_cache(device)?;
    let stats = memory::memory_stats(device)?;
    ensure!(stats.allocated == 0 && stats.waiting == 0, "something leaked: {stats:?}");
    println!("{made} buffers were made; none shared a byte with another");
    Ok(())
}
