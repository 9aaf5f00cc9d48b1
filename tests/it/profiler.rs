//! The profiler: what it counts, what it writes, and that it lets go.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use genesis::nn::{Linear, Module, Relu, Sequential};
use genesis::optim::{Optimizer, Sgd, SgdOptions};
use genesis::profiler::{
    DeviceTimes, GroupBy, Profile, Profiler, ProfilerOptions, Schedule, SortBy, profile,
    record_function,
};
use genesis::{Device, Result, Tensor};
use serde_json::Value;

use crate::gpu::gpu;

const ON: Device = Device::Cpu;

/// A profile of some training steps of a small network.
fn trained(options: ProfilerOptions, steps: usize) -> Result<Profile> {
    let net =
        Sequential::new().with(Linear::new(16, 32, ON)?).with(Relu).with(Linear::new(32, 4, ON)?);
    let mut optimizer = Sgd::new(net.named_parameters(), SgdOptions::default());
    let x = Tensor::ones(&[8, 16], ON)?;
    let (_, profile) = profile(options, |profiler| {
        for _ in 0..steps {
            {
                let _part = record_function("forward and backward");
                let loss = net.forward(&x)?.square()?.mean()?;
                loss.backward()?;
            }
            optimizer.step()?;
            optimizer.zero_grad();
            profiler.step()?;
        }
        Ok(())
    })?;
    Ok(profile)
}

#[test]
fn ops_kernels_and_parts_are_counted() -> Result<()> {
    let profile = trained(ProfilerOptions::default(), 3)?;
    assert_eq!(profile.steps(), 3);
    let ops = profile.key_averages(GroupBy::Name);
    let calls = |name: &str| ops.row(name).map_or(0, |row| row.calls);
    assert_eq!(calls("relu"), 3);
    assert_eq!(calls("relu backward"), 3);
    assert_eq!((calls("backward"), calls("Optimizer.step")), (3, 3));
    assert_eq!(calls("forward and backward"), 3);
    let part = ops.row("forward and backward").expect("it was counted");
    let relu = ops.row("relu").expect("it was counted");
    assert!(part.host_total_ns > relu.host_total_ns && part.host_self_ns < part.host_total_ns);
    assert!(part.device_total_ns > 0 && part.device_self_ns == 0);
    assert!(relu.launches == 3 && relu.device_self_ns > 0 && relu.roofline().is_some());
    // 8 x 32 elements of 4 bytes are read and written.
    assert_eq!(relu.bytes, 3 * 2 * 8 * 32 * 4);
    let kernels = profile.key_averages(GroupBy::Kernel);
    let launches: u64 = kernels.rows().iter().map(|row| row.calls).sum();
    assert_eq!(launches as usize, profile.events().launches.len());
    Ok(())
}

#[test]
fn products_have_their_operations() -> Result<()> {
    let (a, b) = (Tensor::ones(&[20, 30], ON)?, Tensor::ones(&[30, 50], ON)?);
    let (_, profile) = profile(ProfilerOptions::default(), |_| a.matmul(&b))?;
    let ops = profile.key_averages(GroupBy::Name);
    let row = ops.row("matmul").expect("it was counted");
    assert_eq!((row.flops, row.bytes), (2 * 20 * 30 * 50, 4 * (20 * 30 + 30 * 50 + 20 * 50)));
    Ok(())
}

#[test]
fn a_view_is_an_op_where_a_program_makes_it() -> Result<()> {
    let (x, w) = (Tensor::ones(&[2, 4, 8], ON)?, Tensor::ones(&[8, 3], ON)?.requires_grad_(true)?);
    let (_, profile) = profile(ProfilerOptions::default(), |_| {
        let y = x.reshape(&[8, 8])?.matmul(&w)?;
        y.unsqueeze(0)?.sum()?.backward()
    })?;
    let ops = profile.key_averages(GroupBy::Name);
    let views: Vec<(&str, u64)> = ops
        .rows()
        .iter()
        .filter(|row| ["reshape", "permute", "broadcast_to"].contains(&&*row.name))
        .map(|row| (&*row.name, row.calls))
        .collect();
    // Those that the products and the sum make for their kernels are parts of these.
    assert_eq!(views, [("reshape", 2)]);
    assert_eq!(ops.row("matmul").map(|row| row.calls), Some(2));
    Ok(())
}

#[test]
fn shapes_and_layers_are_told_apart_where_wished() -> Result<()> {
    let options =
        ProfilerOptions { record_shapes: true, with_modules: true, ..ProfilerOptions::default() };
    let profile = trained(options, 2)?;
    let ops = profile.key_averages(GroupBy::NameAndInputs);
    let relu = ops.row("relu").expect("it was counted");
    assert_eq!((relu.inputs.as_str(), relu.calls), ("f32[8, 32]", 2));
    let layers = profile.key_averages(GroupBy::Module);
    assert!(layers.row("Sequential > Relu").is_some(), "{}", layers.table(SortBy::Calls, 100));
    Ok(())
}

#[test]
fn a_schedule_chooses_steps() -> Result<()> {
    let windows = Rc::new(RefCell::new(Vec::new()));
    let list = windows.clone();
    let options = ProfilerOptions {
        schedule: Some(Schedule { wait: 1, warmup: 1, active: 2, repeat: 2, skip_first: 1 }),
        on_trace_ready: Some(Box::new(move |profile: &Profile| {
            let ops = profile.key_averages(GroupBy::Name);
            let steps: Vec<String> = ops
                .rows()
                .iter()
                .filter(|row| row.name.starts_with("ProfilerStep"))
                .map(|row| row.name.clone())
                .collect();
            let relu = ops.row("relu").map_or(0, |row| row.calls);
            list.borrow_mut().push((profile.steps(), relu, steps.join(" ")));
            Ok(())
        })),
        ..ProfilerOptions::default()
    };
    trained(options, 12)?;
    let expected = [
        (2, 2, "ProfilerStep#3 ProfilerStep#4".to_owned()),
        (2, 2, "ProfilerStep#7 ProfilerStep#8".to_owned()),
    ];
    assert_eq!(*windows.borrow(), expected);
    Ok(())
}

#[test]
fn one_profiler_at_a_time_and_none_after() -> Result<()> {
    let first = Profiler::start(ProfilerOptions::default())?;
    let error = Profiler::start(ProfilerOptions::default()).expect_err("one is at work");
    assert!(error.to_string().contains("a profiler is at work already"), "{error}");
    drop(first);
    // What runs between two is in neither.
    Tensor::ones(&[4], ON)?.exp()?;
    let second = Profiler::start(ProfilerOptions::default())?.stop()?;
    assert!(second.key_averages(GroupBy::Name).row("exp").is_none());
    assert!(second.summary().contains("Nothing was launched"), "{}", second.summary());
    Ok(())
}

#[test]
fn another_thread_is_recorded_where_wished() -> Result<()> {
    let options = ProfilerOptions::default();
    let elsewhere = || -> Result<()> { Tensor::ones(&[4], ON)?.tan().map(drop) };
    let on_thread = || std::thread::spawn(elsewhere).join().expect("the thread ends");
    let (_, own) = profile(options, |_| on_thread())?;
    assert!(own.key_averages(GroupBy::Name).row("tan").is_none());
    let options = ProfilerOptions { all_threads: true, ..ProfilerOptions::default() };
    let (_, all) = profile(options, |_| on_thread())?;
    assert!(all.key_averages(GroupBy::Name).row("tan").is_some());
    Ok(())
}

#[test]
fn no_more_events_are_kept_than_wished() -> Result<()> {
    let options = ProfilerOptions { max_events: 10, ..ProfilerOptions::default() };
    let profile = trained(options, 3)?;
    assert_eq!(profile.events().len(), 10);
    assert!(profile.events().dropped > 10);
    assert!(profile.summary().contains("events were dropped"), "{}", profile.summary());
    Ok(())
}

#[test]
fn tables_and_json_say_the_same() -> Result<()> {
    let profile = trained(ProfilerOptions::default(), 2)?;
    let ops = profile.key_averages(GroupBy::Name);
    let json = ops.to_json();
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), ops.rows().len());
    for (row, json) in ops.rows().iter().zip(rows) {
        assert_eq!(json["name"], row.name.as_str());
        assert_eq!(json["calls"], row.calls);
        assert_eq!(json["device_total_ns"], row.device_total_ns);
    }
    let by_calls = ops.sorted(SortBy::Calls);
    assert!(by_calls.is_sorted_by(|a, b| a.calls >= b.calls));
    let table = ops.table(SortBy::Calls, 3);
    assert!(
        table.lines().nth(2).is_some_and(|line| line.starts_with(&by_calls[0].name)),
        "{table}"
    );
    let summary = profile.summary();
    assert!(summary.contains("for 2 steps") && summary.contains("Kernels ran"), "{summary}");
    Ok(())
}

#[test]
fn memory_is_followed_where_wished() -> Result<()> {
    let options = ProfilerOptions { profile_memory: true, ..ProfilerOptions::default() };
    let (kept, profile) = profile(options, |_| {
        let x = Tensor::ones(&[1000], ON)?;
        drop(x.exp()?);
        x.tan()
    })?;
    let ops = profile.key_averages(GroupBy::Name);
    let change = |name: &str| ops.row(name).map_or(0, |row| row.memory_change);
    assert!(change("tan") >= 4000 && change("exp") >= 4000, "{}", ops.table(SortBy::Memory, 9));
    let memory = &profile.events().memory;
    assert!(memory.iter().any(|event| event.change <= -4000), "exp's result came back");
    assert!(memory.iter().all(|event| event.allocated <= event.reserved));
    let trace = exported(&profile)?;
    let events = trace["traceEvents"].as_array().expect("a list of events");
    let counters = events.iter().filter(|event| event["ph"] == "C");
    assert_eq!(counters.count(), memory.len());
    assert!(profile.summary().contains("blocks of memory were asked for"), "{}", profile.summary());
    drop(kept);
    Ok(())
}

/// The trace that a profile writes.
fn exported(profile: &Profile) -> Result<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.json");
    profile.export_chrome_trace(&path)?;
    let text = std::fs::read_to_string(&path).expect("the trace was written");
    Ok(serde_json::from_str(&text).expect("the trace is JSON"))
}

/// A bar: when it begins and ends in nanoseconds, and its name.
type Bar = (u64, u64, String);

/// The bars of each thread.
fn bars(trace: &Value) -> BTreeMap<(u64, u64), Vec<Bar>> {
    let mut threads = BTreeMap::new();
    let ns = |value: &Value| (value.as_f64().expect("a number") * 1e3).round() as u64;
    for event in trace["traceEvents"].as_array().expect("a list of events") {
        if event["ph"] != "X" {
            continue;
        }
        let number = |name: &str| event[name].as_u64().expect("a number");
        let bar = (ns(&event["ts"]), ns(&event["ts"]) + ns(&event["dur"]));
        let name = event["name"].as_str().expect("a name").to_owned();
        let key = (number("pid"), number("tid"));
        threads.entry(key).or_insert_with(Vec::new).push((bar.0, bar.1, name));
    }
    threads
}

#[test]
fn a_trace_is_one_that_perfetto_opens() -> Result<()> {
    let options = ProfilerOptions { record_shapes: true, ..ProfilerOptions::default() };
    let profile = trained(options, 2)?;
    let trace = exported(&profile)?;
    assert_eq!(trace["otherData"]["dropped_events"], 0);
    let threads = bars(&trace);
    let count: usize = threads.values().map(Vec::len).sum();
    assert_eq!(count, profile.events().len());
    for bars in threads.values() {
        assert!(bars.is_sorted_by_key(|bar| bar.0), "bars are in the order of their begin");
        let mut open: Vec<Bar> = Vec::new();
        for bar in bars {
            while open.last().is_some_and(|outer| outer.1 <= bar.0) {
                open.pop();
            }
            if let Some(outer) = open.last() {
                assert!(bar.1 <= outer.1, "{bar:?} ends after {outer:?}, which it began in");
            }
            open.push(bar.clone());
        }
    }
    let events = trace["traceEvents"].as_array().expect("a list of events");
    assert!(events.iter().any(|event| event["ph"] == "M" && event["name"] == "thread_name"));
    let relu = events.iter().find(|event| event["name"] == "relu").expect("the op is there");
    assert_eq!((&relu["cat"], &relu["args"]["inputs"]), (&"op".into(), &"f32[8, 32]".into()));
    let kernel = events.iter().find(|event| event["cat"] == "kernel").expect("a kernel is there");
    assert!(kernel["args"]["grid"].is_array() && kernel["args"]["bytes"].is_u64());
    Ok(())
}

#[test]
fn a_trace_that_can_not_be_written_is_an_error() -> Result<()> {
    let profile = trained(ProfilerOptions::default(), 1)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("missing/trace.json");
    let error = profile.export_chrome_trace(&path).expect_err("no such folder").to_string();
    let start = format!("export_chrome_trace: {}: ", path.display());
    assert!(error.starts_with(&start), "{error}");
    Ok(())
}

#[test]
fn launches_on_a_gpu_have_its_times() -> Result<()> {
    let Some(device) = gpu("times of kernels") else { return Ok(()) };
    let x = Tensor::ones(&[64], device)?;
    let (_, profile) = profile(ProfilerOptions::default(), |_| {
        let y = x.exp()?.mul(&x)?;
        y.to_vec::<f32>()
    })?;
    let launches = &profile.events().launches;
    assert!(launches.len() >= 2);
    for launch in launches {
        let [start, end] = launch.gpu_ns.expect("the time of each launch was read");
        assert!(launch.start_ns <= start && start <= end, "{launch:?}");
        assert!(!launch.is_estimated, "the first of a kind is measured: {launch:?}");
    }
    let ops = profile.key_averages(GroupBy::Name);
    assert_eq!(ops.row("exp").map(|row| row.launches), Some(1));
    let transfers = &profile.events().transfers;
    assert!(transfers.iter().any(|transfer| transfer.bytes == 256), "{transfers:?}");
    let summary = profile.summary();
    assert!(
        summary.contains("The GPU worked") && summary.contains("copies from the GPU"),
        "{summary}"
    );
    let trace = exported(&profile)?;
    let arrows = |phase: &str| -> BTreeMap<u64, f64> {
        let events = trace["traceEvents"].as_array().expect("a list of events");
        let of_phase = events.iter().filter(|event| event["ph"] == phase);
        let number = |value: &Value| value.as_f64().expect("a number");
        of_phase.map(|event| (number(&event["id"]) as u64, number(&event["ts"]))).collect()
    };
    let (from, to) = (arrows("s"), arrows("f"));
    assert_eq!(from.len(), launches.len());
    assert!(from.keys().eq(to.keys()) && from.iter().all(|(id, ts)| *ts <= to[id]));
    let kernels: Vec<Vec<Bar>> =
        bars(&trace).into_iter().filter(|((pid, _), _)| *pid == 1).map(|(_, bars)| bars).collect();
    assert_eq!(kernels.iter().map(Vec::len).sum::<usize>(), launches.len());
    for stream in kernels {
        assert!(stream.windows(2).all(|pair| pair[0].1 <= pair[1].0), "kernels follow each other");
    }
    Ok(())
}

/// Twenty launches of each of two kernels, with times of the GPU as wished.
fn repeated(device: Device, device_times: DeviceTimes) -> Result<Profile> {
    let x = Tensor::ones(&[64], device)?;
    let options = ProfilerOptions { device_times, ..ProfilerOptions::default() };
    let (_, profile) = profile(options, |_| {
        for _ in 0..20 {
            x.exp()?;
            x.mul(&x)?;
        }
        Ok(device.synchronize()?)
    })?;
    Ok(profile)
}

#[test]
fn times_of_a_gpu_that_were_not_measured_are_marked() -> Result<()> {
    let Some(device) = gpu("estimated times of kernels") else { return Ok(()) };
    let sampled = repeated(device, DeviceTimes::Sampled)?;
    let launches = &sampled.events().launches;
    let estimated = launches.iter().filter(|launch| launch.is_estimated).count();
    assert_eq!((launches.len(), estimated), (40, 36), "the first two of a kind are measured");
    let mut last_end = 0;
    for launch in launches {
        let [start, end] = launch.gpu_ns.expect("each launch has a time");
        assert!(launch.start_ns <= start && last_end <= start && start <= end, "{launch:?}");
        last_end = end;
    }
    let ops = sampled.key_averages(GroupBy::Name);
    let row = ops.row("exp").expect("it was counted");
    assert_eq!((row.launches, row.estimated), (20, 18));
    let json = ops.to_json();
    let mut rows = json["rows"].as_array().expect("rows").iter();
    let row = rows.find(|row| row["name"] == "exp").expect("it is in the JSON too");
    assert_eq!(row["estimated"], 18);
    let table = ops.table(SortBy::Calls, 9);
    assert!(table.contains("times of 36 of 40 launches are estimated"), "{table}");
    let summary = sampled.summary();
    assert!(summary.contains("4 of 40 launches on the GPU were timed"), "{summary}");
    let trace = exported(&sampled)?;
    let events = trace["traceEvents"].as_array().expect("a list of events");
    let marked = events.iter().filter(|event| event["args"]["estimated"] == true);
    assert!(marked.clone().all(|event| event["cat"] == "kernel"));
    assert_eq!(marked.count(), 36);
    Ok(())
}

#[test]
fn times_of_a_gpu_are_all_measured_or_none_where_wished() -> Result<()> {
    let Some(device) = gpu("measured times of kernels") else { return Ok(()) };
    let all = repeated(device, DeviceTimes::All)?;
    let measured = all.events().launches.iter().filter(|l| l.gpu_ns.is_some() && !l.is_estimated);
    assert_eq!(measured.count(), 40);
    assert!(!all.summary().contains("were timed"), "{}", all.summary());
    let off = repeated(device, DeviceTimes::Off)?;
    assert!(off.events().launches.iter().all(|l| l.gpu_ns.is_none() && !l.is_estimated));
    assert_eq!(off.events().launches.len(), 40);
    Ok(())
}
