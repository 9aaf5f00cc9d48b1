//! `genesis tune`

mod list;
mod table;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use genesis::{DType, Device};
use genesis_kernel::autotune::{
    Database, Example, Machine, Plan, Progress, Record, TuneReport, TuneRequest, forecast,
    tune_example,
};
use genesis_kernel::kernel::KernelDef;
use genesis_kernel::target::Target;
use indicatif::{ProgressBar, ProgressStyle};

use self::list::Entry;
use super::output::Lines;
use super::{Failure, Outcome, inspect, say, warn};

/// Find the fastest configuration of a kernel, for one problem or a list of them.
///
/// Each candidate's result is checked against the CPU and the others before it is timed. What is found
/// goes to the database that later runs of any program take it from.
#[derive(clap::Args)]
pub(super) struct Args {
    /// A kernel with `#[autotune]`, as `genesis kernels` lists it.
    #[arg(required_unless_present = "list")]
    kernel: Option<String>,
    /// The sizes: --shape m=4096,n=4096,k=4096. Those that are not named are 1.
    #[arg(long, value_delimiter = ',', value_parser = list::size)]
    shape: Vec<(String, i64)>,
    /// The dtype of the tensors.
    #[arg(long, default_value = "bf16", value_parser = inspect::dtype)]
    dtype: DType,
    /// Parameters that lie in memory transposed: --transpose b.
    #[arg(long, value_delimiter = ',')]
    transpose: Vec<String>,
    /// A file of problems, one a line: `matmul bf16 m=4096,n=4096,k=4096 transpose=b`.
    #[arg(long, conflicts_with_all = ["kernel", "shape", "transpose"])]
    list: Option<PathBuf>,
    /// cpu, cuda or cuda:1; a GPU where there is one.
    #[arg(long, value_parser = device)]
    device: Option<Device>,
    /// Print the model's order for a GPU that need not be there, such as sm_90a, and run nothing.
    #[arg(long, value_parser = inspect::arch, conflicts_with_all = ["device", "json"])]
    forecast: Option<Target>,
    /// The most time that measuring for one problem may take, as in 30s, 500ms or 2m.
    #[arg(long, default_value = "30s", value_parser = duration)]
    budget: Duration,
    /// How many configurations are compiled and tried, the model's best first.
    #[arg(long, default_value_t = 12)]
    candidates: usize,
    /// Print JSON, one line for each problem.
    #[arg(long)]
    json: bool,
    /// The database; without it the one in the cache folder.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Also add the results to a kernel's table, such as kernels/tuned/h200.jsonl.
    #[arg(long)]
    write_table: Option<PathBuf>,
}

fn device(text: &str) -> Result<Device, String> {
    Device::from_name(text).ok_or_else(|| "there are cpu, cuda and cuda:1".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("", 1.0)];
    let parsed = units
        .iter()
        .find_map(|(unit, seconds)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * seconds));
    let duration = parsed.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| "write it as 30s, 500ms or 2m".to_owned())
}

pub(super) fn run(args: &Args) -> Outcome {
    let entries = match &args.list {
        Some(path) => list::read(path)?,
        None => vec![Entry {
            kernel: args.kernel.clone().unwrap_or_default(),
            dtype: args.dtype,
            shape: args.shape.clone(),
            transpose: args.transpose.clone(),
        }],
    };
    if let Some(target) = &args.forecast {
        return entries.iter().try_for_each(|entry| forecast_entry(args, entry, target));
    }
    let databases = databases(args)?;
    let started = Instant::now();
    let (mut done, mut failed) = (0, Vec::new());
    let lines = Lines::new(false, true);
    for entry in &entries {
        match tune_entry(args, entry, &lines) {
            Ok(record) => {
                for database in &databases {
                    database.add(&record).map_err(|error| {
                        Failure::Message(format!("{}: {error}", database.path().display()))
                    })?;
                }
                done += 1;
            }
            Err(Failure::Message(message)) if entries.len() > 1 => {
                warn(format_args!("{entry}: {message}"));
                failed.push(entry.to_string());
            }
            Err(failure) => return Err(failure),
        }
    }
    if entries.len() > 1 && !args.json {
        lines.line(format_args!("{done} problems in {:.1} s", started.elapsed().as_secs_f64()));
    }
    lines.end()?;
    match failed.first() {
        Some(first) => {
            let n = failed.len();
            Err(Failure::Message(format!("{n} problems were not tuned; the first is {first}")))
        }
        None => Ok(()),
    }
}

/// Where results go.
fn databases(args: &Args) -> Result<Vec<Database>, Failure> {
    let user = genesis_kernel::knobs::get().cache_dir.as_deref();
    let out = match (&args.out, user) {
        (Some(path), _) => Some(Database::at(path)),
        (None, Some(dir)) => Some(Database::in_folder(dir)),
        (None, None) => None,
    };
    let table = args.write_table.as_ref().map(Database::at);
    let databases: Vec<Database> = out.into_iter().chain(table).collect();
    if databases.is_empty() {
        let message = "there is no cache folder to keep the result in; give --out FILE";
        return Err(Failure::Message(message.to_owned()));
    }
    Ok(databases)
}

/// Prints what would be tried.
fn forecast_entry(args: &Args, entry: &Entry, target: &Target) -> Outcome {
    let kernel = inspect::find(&entry.kernel)?;
    let tuning = kernel.tuning().ok_or_else(|| no_space(kernel))?;
    let sizes = entry.sizes(kernel.name(), tuning.key)?;
    let dtypes = inspect::dtypes(kernel, entry.dtype);
    let transpose: Vec<&str> = entry.transpose.iter().map(String::as_str).collect();
    let example = Example::without_memory(kernel.ast, tuning, &dtypes, &sizes, &transpose)?;
    let report = forecast(kernel, &Machine::of_target(target), &dtypes, &example)?;
    say(table::forecast(kernel, entry, &report, args.candidates))
}

/// Tunes for one problem and prints what was found.
fn tune_entry(args: &Args, entry: &Entry, lines: &Lines) -> Result<Record, Failure> {
    let kernel = inspect::find(&entry.kernel)?;
    let tuning = kernel.tuning().ok_or_else(|| no_space(kernel))?;
    let sizes = entry.sizes(kernel.name(), tuning.key)?;
    let dtypes = inspect::dtypes(kernel, entry.dtype);
    let stream = args.device.unwrap_or_default().stream();
    let transpose: Vec<&str> = entry.transpose.iter().map(String::as_str).collect();
    let example = Example::new(&stream, kernel.ast, tuning, &dtypes, &sizes, &transpose)?;
    let plan = Plan { budget: args.budget, ..Plan::default() };
    let request = TuneRequest {
        plan,
        shortlist: args.candidates.max(1),
        ..TuneRequest::new(kernel, &stream, &dtypes)
    };
    let bar = bar(args, entry);
    let started = Instant::now();
    let report = tune_example(&request, &example, &mut |progress: Progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.stage);
    });
    bar.finish_and_clear();
    let report: TuneReport = report?;
    let seconds = started.elapsed().as_secs_f64();
    if args.json {
        lines.line(table::json(kernel, entry, &report, seconds));
    } else if args.list.is_some() {
        lines.line(table::line(kernel, entry, &report, seconds));
    } else {
        lines.line(table::text(kernel, &report, seconds));
    }
    report.record().ok_or_else(|| Failure::Message("no configuration could be timed".to_owned()))
}

fn no_space(kernel: &KernelDef) -> Failure {
    let tunable: Vec<&str> = kernels::all()
        .into_iter()
        .filter(|kernel| kernel.tuning().is_some())
        .map(|kernel| kernel.name())
        .collect();
    let has = tunable.join(", ");
    Failure::Message(format!("{} has no #[autotune]; these kernels have: {has}", kernel.name()))
}

fn bar(args: &Args, entry: &Entry) -> ProgressBar {
    if args.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} {msg:10} {bar:30} {pos}/{len} {elapsed}")
        .expect("the template is well formed");
    ProgressBar::new(1).with_style(style).with_prefix(entry.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        assert!(duration("-1s").is_err() && duration("long").is_err());
    }
}
