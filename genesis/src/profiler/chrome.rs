//! Traces for Perfetto and `chrome://tracing`.
//!
//! The format is Chrome's: an object with an array of events. Host threads are threads of process 0, streams
//! of the GPU with number n those of process n + 1. Times are microseconds, with nanoseconds as digits. A
//! kernel whose times were not measured says `"estimated": true`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use genesis_kernel::trace::{Launch, Memory, Range, RangeKind, Trace, Transfer, TransferKind};
use serde_json::{Value, json};

use super::averages::name_of;
use crate::Device;

/// The process of the host.
const HOST: u32 = 0;

pub(super) fn export(trace: &Trace, path: &Path) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write(trace, &mut file)?;
    file.flush()
}

/// An event and where it stands: by time, and what is around another one first.
struct Placed<'t> {
    start_ns: u64,
    length_ns: u64,
    what: What<'t>,
}

enum What<'t> {
    Range(&'t Range),
    Launch(&'t Launch, usize),
    Kernel(&'t Launch, usize, [u64; 2]),
    Transfer(&'t Transfer),
    Memory(&'t Memory),
}

pub(super) fn write(trace: &Trace, file: &mut impl Write) -> io::Result<()> {
    let mut events = placed(trace);
    events.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.length_ns)));
    writeln!(file, "{{\"displayTimeUnit\": \"ms\",")?;
    writeln!(file, "\"otherData\": {},", json!({ "dropped_events": trace.dropped }))?;
    write!(file, "\"traceEvents\": [")?;
    let mut separator = "\n";
    let mut put = |event: Value| -> io::Result<()> {
        write!(file, "{separator}{event}")?;
        separator = ",\n";
        Ok(())
    };
    for event in names(trace) {
        put(event)?;
    }
    for event in &events {
        for json in event.what.events() {
            put(json)?;
        }
    }
    writeln!(file, "\n]}}")
}

fn placed(trace: &Trace) -> Vec<Placed<'_>> {
    let mut events = Vec::with_capacity(trace.len() + trace.launches.len());
    let mut place = |start_ns, end_ns: u64, what| {
        events.push(Placed { start_ns, length_ns: end_ns - start_ns, what });
    };
    for range in &trace.ranges {
        place(range.start_ns, range.end_ns, What::Range(range));
    }
    for (index, launch) in trace.launches.iter().enumerate() {
        place(launch.start_ns, launch.end_ns, What::Launch(launch, index));
        if let Some([start, end]) = launch.gpu_ns {
            place(start, end, What::Kernel(launch, index, [start, end]));
        }
    }
    for transfer in &trace.transfers {
        place(transfer.start_ns, transfer.end_ns, What::Transfer(transfer));
    }
    for memory in &trace.memory {
        place(memory.ns, memory.ns, What::Memory(memory));
    }
    events
}

/// The names of processes and threads.
fn names(trace: &Trace) -> Vec<Value> {
    let name = |what: &str, pid: u32, tid: u64, name: &str| json!({ "ph": "M", "name": what, "pid": pid, "tid": tid, "args": { "name": name } });
    let mut events = vec![name("process_name", HOST, 0, "host")];
    for (tid, thread) in trace.threads.iter().enumerate() {
        events.push(name("thread_name", HOST, tid as u64, thread));
    }
    let mut streams: Vec<(Device, u64)> = Vec::new();
    for launch in trace.launches.iter().filter(|launch| launch.gpu_ns.is_some()) {
        let stream = (launch.device, launch.stream);
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }
    for (number, (device, stream)) in streams.into_iter().enumerate() {
        let pid = process(device);
        events.push(name("process_name", pid, stream, &device.to_string()));
        events.push(name("thread_name", pid, stream, &format!("stream {number}")));
    }
    events
}

fn process(device: Device) -> u32 {
    match device {
        Device::Cpu => HOST,
        Device::Cuda(number) => number + 1,
    }
}

/// Microseconds.
fn us(ns: u64) -> Value {
    json!(ns as f64 / 1e3)
}

impl What<'_> {
    fn events(&self) -> Vec<Value> {
        match *self {
            What::Range(range) => vec![range_event(range)],
            What::Launch(launch, index) => launch_events(launch, index),
            What::Kernel(launch, index, times) => kernel_events(launch, index, times),
            What::Transfer(transfer) => vec![transfer_event(transfer)],
            What::Memory(memory) => vec![memory_event(memory)],
        }
    }
}

fn range_event(range: &Range) -> Value {
    let category = match range.kind {
        RangeKind::Op => "op",
        RangeKind::Backward => "backward",
        RangeKind::User => "user",
    };
    let mut args = json!({ "id": range.id });
    if let Some(inputs) = &range.inputs {
        args["inputs"] = json!(inputs);
    }
    if let Some(module) = &range.module {
        args["module"] = json!(**module);
    }
    json!({
        "ph": "X",
        "cat": category,
        "name": name_of(range),
        "pid": HOST,
        "tid": range.thread,
        "ts": us(range.start_ns),
        "dur": us(range.end_ns - range.start_ns),
        "args": args,
    })
}

fn launch_args(launch: &Launch) -> Value {
    json!({
        "grid": launch.grid,
        "bytes": launch.work.bytes,
        "flops": launch.work.flops,
        "op": launch.range,
    })
}

/// The launch, and where an arrow to its kernel begins.
fn launch_events(launch: &Launch, index: usize) -> Vec<Value> {
    let is_kernel = launch.device == Device::Cpu;
    let mut events = vec![json!({
        "ph": "X",
        "cat": if is_kernel { "kernel" } else { "launch" },
        "name": if is_kernel { launch.kernel.to_owned() } else { format!("launch {}", launch.kernel) },
        "pid": HOST,
        "tid": launch.thread,
        "ts": us(launch.start_ns),
        "dur": us(launch.end_ns - launch.start_ns),
        "args": launch_args(launch),
    })];
    if launch.gpu_ns.is_some() {
        events.push(json!({
            "ph": "s",
            "cat": "launch",
            "name": "launch",
            "id": index,
            "pid": HOST,
            "tid": launch.thread,
            "ts": us(launch.start_ns),
        }));
    }
    events
}

/// The kernel on its stream, and where the arrow from its launch ends.
fn kernel_events(launch: &Launch, index: usize, [start, end]: [u64; 2]) -> Vec<Value> {
    let (pid, tid) = (process(launch.device), launch.stream);
    let mut args = launch_args(launch);
    if launch.is_estimated {
        args["estimated"] = json!(true);
    }
    let kernel = json!({
        "ph": "X",
        "cat": "kernel",
        "name": launch.kernel,
        "pid": pid,
        "tid": tid,
        "ts": us(start),
        "dur": us(end - start),
        "args": args,
    });
    let arrow = json!({
        "ph": "f",
        "bp": "e",
        "cat": "launch",
        "name": "launch",
        "id": index,
        "pid": pid,
        "tid": tid,
        "ts": us(start),
    });
    vec![kernel, arrow]
}

fn transfer_event(transfer: &Transfer) -> Value {
    let name = match transfer.kind {
        TransferKind::HostToDevice => "copy to the GPU",
        TransferKind::DeviceToHost => "copy from the GPU",
        TransferKind::Wait => "wait for the GPU",
    };
    json!({
        "ph": "X",
        "cat": "transfer",
        "name": name,
        "pid": HOST,
        "tid": transfer.thread,
        "ts": us(transfer.start_ns),
        "dur": us(transfer.end_ns - transfer.start_ns),
        "args": { "bytes": transfer.bytes, "device": transfer.device.to_string() },
    })
}

fn memory_event(memory: &Memory) -> Value {
    json!({
        "ph": "C",
        "name": format!("memory of {}", memory.device),
        "pid": HOST,
        "ts": us(memory.ns),
        "args": { "allocated": memory.allocated, "reserved": memory.reserved },
    })
}
