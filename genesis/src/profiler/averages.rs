//! Totals of events that have something in common.
//!
//! A launch counts for the range that it happened in, and for all ranges around that. Time of a range is its
//! own where no range inside of it spends it.

use std::collections::{BTreeMap, BTreeSet};

use genesis_kernel::trace::{Launch, Range, RangeKind, Trace};
use serde_json::{Value, json};

use super::peaks::Peaks;
use crate::Device;

/// What the events of one row have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// The name of the op or of the part of the program.
    Name,
    /// The name, and dtypes and shapes of inputs, where they were recorded.
    NameAndInputs,
    /// The layer, where layers were recorded.
    Module,
    /// The kernel.
    Kernel,
    /// The kernel and the op that launched it, and dtypes and shapes of the op's inputs, where they were recorded.
    KernelAndInputs,
}

/// Totals of one group of events.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Row {
    /// What its events have in common.
    pub name: String,
    /// Dtypes and shapes of what went in, where events are told apart by them.
    pub inputs: String,
    /// The number of events.
    pub calls: u64,
    /// Host time from begin to end, in nanoseconds; on the CPU kernels run in it.
    pub host_total_ns: u64,
    /// Host time outside of events inside of these.
    pub host_self_ns: u64,
    /// Time of kernels, of events inside of these too.
    pub device_total_ns: u64,
    /// Time of kernels that were launched outside of events inside of these.
    pub device_self_ns: u64,
    /// Launches, counted like `device_self_ns`, as are the fields that follow.
    pub launches: u64,
    /// Bytes between memory and kernels, each of an operand once.
    pub bytes: u64,
    /// Floating-point operations, of lanes that are outside of a tensor too.
    pub flops: u64,
    /// Bytes that were allocated and not given back.
    pub memory_change: i64,
    /// The shortest time that the device could take over the launches whose time is known.
    pub ideal_ns: f64,
    /// The time of those launches.
    pub timed_ns: u64,
    /// Launches among `launches` whose time is the mean of others of their kind, not measured.
    pub estimated: u64,
}

impl Row {
    /// How near the launches come to what the device can do, from 0 to 1; more than 1 where operands came
    /// from a cache. None where that is not known.
    pub fn roofline(&self) -> Option<f64> {
        (self.timed_ns > 0 && self.ideal_ns > 0.0).then(|| self.ideal_ns / self.timed_ns as f64)
    }

    fn add_launch(&mut self, launch: &Launch, peaks: &BTreeMap<Device, Peaks>) {
        let ns = launch.device_ns();
        self.launches += 1;
        self.estimated += u64::from(launch.is_estimated);
        self.device_self_ns += ns.unwrap_or(0);
        self.bytes += launch.work.bytes;
        self.flops += launch.work.flops;
        if let (Some(ns), Some(peaks)) = (ns, peaks.get(&launch.device))
            && launch.work.bytes > 0
        {
            self.ideal_ns += peaks.ideal_ns(&launch.work);
            self.timed_ns += ns;
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "inputs": self.inputs,
            "calls": self.calls,
            "host_total_ns": self.host_total_ns,
            "host_self_ns": self.host_self_ns,
            "device_total_ns": self.device_total_ns,
            "device_self_ns": self.device_self_ns,
            "launches": self.launches,
            "estimated": self.estimated,
            "bytes": self.bytes,
            "flops": self.flops,
            "memory_change": self.memory_change,
            "roofline": self.roofline(),
        })
    }
}

/// Totals of a window, one row a group.
#[derive(Clone, PartialEq, Debug)]
pub struct Averages {
    rows: Vec<Row>,
    pub(super) wall_ms: f64,
    pub(super) dropped: u64,
}

impl Averages {
    /// The rows, by name.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The first row of this name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// All rows, by name.
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(Row::to_json).collect();
        json!({ "wall_ms": self.wall_ms, "dropped_events": self.dropped, "rows": rows })
    }
}

/// The row of launches and memory that are in no range.
const OUTSIDE: &str = "(outside of ops)";

/// The name of a row: that of the op, its gradient or the part.
pub(super) fn name_of(range: &Range) -> String {
    match range.kind {
        RangeKind::Backward => format!("{} backward", range.name),
        RangeKind::Op | RangeKind::User => range.name.clone().into_owned(),
    }
}

pub(super) fn group(
    trace: &Trace,
    group_by: GroupBy,
    peaks: &BTreeMap<Device, Peaks>,
    wall_ms: f64,
) -> Averages {
    let rows = match group_by {
        GroupBy::Kernel => {
            kernels(trace, peaks, |launch| (launch.kernel.to_owned(), String::new()))
        }
        GroupBy::KernelAndInputs => {
            let ranges: BTreeMap<u64, &Range> =
                trace.ranges.iter().map(|range| (range.id, range)).collect();
            kernels(trace, peaks, |launch| kernel_and_inputs(launch, ranges.get(&launch.range)))
        }
        _ => Groups::new(trace, group_by).fill(trace, peaks),
    };
    Averages { rows, wall_ms, dropped: trace.dropped }
}

/// A row for each name and inputs that launches have.
fn kernels(
    trace: &Trace,
    peaks: &BTreeMap<Device, Peaks>,
    key: impl Fn(&Launch) -> (String, String),
) -> Vec<Row> {
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for launch in &trace.launches {
        let (name, inputs) = key(launch);
        let row = rows.entry((name.clone(), inputs.clone())).or_default();
        (row.name, row.inputs) = (name, inputs);
        row.calls += 1;
        row.host_total_ns += launch.end_ns - launch.start_ns;
        row.host_self_ns = row.host_total_ns;
        row.add_launch(launch, peaks);
        row.device_total_ns = row.device_self_ns;
    }
    rows.into_values().collect()
}

/// A kernel with the op that launched it, and that op's inputs.
fn kernel_and_inputs(launch: &Launch, range: Option<&&Range>) -> (String, String) {
    let Some(range) = range else { return (launch.kernel.to_owned(), String::new()) };
    let name = format!("{} in {}", launch.kernel, name_of(range));
    (name, range.inputs.clone().unwrap_or_default())
}

/// Ranges by number, and the row that each counts for.
struct Groups<'t> {
    ranges: BTreeMap<u64, &'t Range>,
    rows: Vec<Row>,
    row_of: BTreeMap<u64, usize>,
}

impl<'t> Groups<'t> {
    fn new(trace: &'t Trace, group_by: GroupBy) -> Groups<'t> {
        let ranges = trace.ranges.iter().map(|range| (range.id, range)).collect();
        let mut keys: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
        for range in &trace.ranges {
            keys.entry(key(range, group_by)).or_default().push(range.id);
        }
        let (mut rows, mut row_of) = (Vec::new(), BTreeMap::new());
        for ((name, inputs), ids) in keys {
            row_of.extend(ids.into_iter().map(|id| (id, rows.len())));
            rows.push(Row { name, inputs, ..Row::default() });
        }
        Groups { ranges, rows, row_of }
    }

    /// A range and those around it, from the inside out.
    fn around(&self, id: u64) -> impl Iterator<Item = &'t Range> {
        let find = |id: &u64| self.ranges.get(id).copied();
        std::iter::successors(find(&id), move |range| find(&range.parent))
    }

    /// The rows that something in a range counts for, each once.
    fn rows_around(&self, id: u64) -> BTreeSet<usize> {
        self.around(id).map(|range| self.row_of[&range.id]).collect()
    }

    fn fill(mut self, trace: &Trace, peaks: &BTreeMap<Device, Peaks>) -> Vec<Row> {
        let mut inner: BTreeMap<u64, u64> = BTreeMap::new();
        for range in &trace.ranges {
            *inner.entry(range.parent).or_default() += range.end_ns - range.start_ns;
        }
        for range in &trace.ranges {
            let ns = range.end_ns - range.start_ns;
            let own = self.row_of[&range.id];
            let is_outermost = !self.rows_around(range.parent).contains(&own);
            let row = &mut self.rows[own];
            row.calls += 1;
            row.host_self_ns += ns.saturating_sub(inner.get(&range.id).copied().unwrap_or(0));
            // A range in one of its own name is in that one's time already.
            row.host_total_ns += if is_outermost { ns } else { 0 };
        }
        let mut outside = Row { name: OUTSIDE.to_owned(), ..Row::default() };
        for launch in &trace.launches {
            let ns = launch.device_ns().unwrap_or(0);
            for row in self.rows_around(launch.range) {
                self.rows[row].device_total_ns += ns;
            }
            match self.row_of.get(&launch.range) {
                Some(&row) => self.rows[row].add_launch(launch, peaks),
                None => {
                    outside.calls += 1;
                    outside.device_total_ns += ns;
                    outside.host_self_ns += launch.end_ns - launch.start_ns;
                    outside.host_total_ns = outside.host_self_ns;
                    outside.add_launch(launch, peaks);
                }
            }
        }
        for memory in &trace.memory {
            let row = self.row_of.get(&memory.range).map(|&row| &mut self.rows[row]);
            row.unwrap_or(&mut outside).memory_change += memory.change;
        }
        if outside.calls > 0 {
            self.rows.push(outside);
        }
        self.rows
    }
}

fn key(range: &Range, group_by: GroupBy) -> (String, String) {
    match group_by {
        GroupBy::Name | GroupBy::Kernel | GroupBy::KernelAndInputs => {
            (name_of(range), String::new())
        }
        GroupBy::NameAndInputs => (name_of(range), range.inputs.clone().unwrap_or_default()),
        GroupBy::Module => {
            let module = range.module.as_deref().unwrap_or("(outside of layers)");
            (module.to_owned(), String::new())
        }
    }
}
