//! `genesis doctor`

use std::path::Path;

use genesis::Device;
use genesis_kernel::knobs;
use serde_json::{Value, json};

use super::{Outcome, say};

/// Say what this machine has and what Genesis will use.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// List every environment variable with its meaning.
    #[arg(long)]
    variables: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    if args.variables && !args.json {
        return knobs::KNOBS.iter().try_for_each(|knob| {
            say(format_args!("{}={}\n    {}", knob.name, knob.values, knob.doc))
        });
    }
    let found = Found::here();
    if args.json { say(found.to_json()) } else { found.print() }
}

/// What this machine has.
struct Found {
    gpus: Vec<Device>,
    problem: Option<String>,
    processors: usize,
    memory: Option<[u64; 2]>,
    cache: Option<Cache>,
    ptxas: Option<String>,
}

/// The folder of compiled kernels.
struct Cache {
    folder: String,
    files: usize,
    bytes: u64,
    most: u64,
}

impl Found {
    fn here() -> Found {
        let knobs = knobs::get();
        let ptxas = genesis_kernel::inspect::find_tool("ptxas");
        Found {
            gpus: (0..Device::cuda_count()).map(Device::Cuda).collect(),
            problem: Device::cuda_problem().map(|error| error.to_string()),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory: host_memory(),
            cache: knobs.cache_dir.as_deref().map(|folder| Cache::of(folder, knobs.cache_size)),
            ptxas: ptxas.map(|path| path.display().to_string()),
        }
    }

    fn print(&self) -> Outcome {
        say(format_args!("genesis {}", env!("CARGO_PKG_VERSION")))?;
        say(format_args!("default device   {}", Device::default()))?;
        if let Some(problem) = &self.problem {
            say(format_args!("GPUs             none: {problem}"))?;
        }
        for &gpu in &self.gpus {
            say(format_args!("{:<16} {}", gpu.to_string(), describe(gpu)))?;
        }
        let threads = genesis::num_threads();
        say(format_args!("CPU threads      {threads}, of {} processors", self.processors))?;
        if let Some([free, all]) = self.memory {
            say(format_args!("host memory      {}, {} of it free", size(all), size(free)))?;
        }
        match &self.cache {
            None => say("kernel cache     none: GENESIS_CACHE_DIR is empty"),
            Some(Cache { folder, files, bytes, most }) => say(format_args!(
                "kernel cache     {folder}: {files} files, {} of at most {}",
                size(*bytes),
                size(*most)
            )),
        }?;
        say(format_args!(
            "ptxas            {}",
            self.ptxas
                .as_deref()
                .unwrap_or("none (scripts/ptxas.sh installs it); only `inspect --emit sass` and register counts need it")
        ))?;
        for (name, value) in knobs::given() {
            say(format_args!("set              {name}={value}"))?;
        }
        for problem in knobs::problems() {
            say(format_args!("problem          {problem}"))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let cache = self.cache.as_ref().map(|Cache { folder, files, bytes, most }| {
            json!({ "folder": folder, "files": files, "bytes": bytes, "most_bytes": most })
        });
        let set: serde_json::Map<String, Value> = knobs::given()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "default_device": Device::default().to_string(),
            "gpus": self.gpus.len(),
            "devices": self.gpus.iter().map(|&gpu| describe(gpu)).collect::<Vec<_>>(),
            "cuda_problem": self.problem,
            "threads": genesis::num_threads(),
            "processors": self.processors,
            "memory_bytes": self.memory.map(|[_, all]| all),
            "free_memory_bytes": self.memory.map(|[free, _]| free),
            "cache": cache,
            "ptxas": self.ptxas,
            "variables": set,
            "problems": knobs::problems(),
        })
    }
}

/// A GPU in a line, or why it can't be used.
fn describe(gpu: Device) -> String {
    match gpu.gpu_info() {
        Err(error) => error.to_string(),
        Ok(info) => format!(
            "{}, {}, {} multiprocessors, {}, CUDA {}.{}",
            info.name,
            info.target.name(),
            info.multiprocessors,
            size(info.memory_bytes as u64),
            info.driver_version / 1000,
            info.driver_version % 1000 / 10
        ),
    }
}

impl Cache {
    fn of(folder: &Path, most: u64) -> Cache {
        let (mut files, mut bytes, mut folders) = (0, 0, vec![folder.to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                    Ok(metadata) => (files, bytes) = (files + 1, bytes + metadata.len()),
                    Err(_) => {}
                }
            }
        }
        Cache { folder: folder.display().to_string(), files, bytes, most }
    }
}

/// Bytes of the host's memory, free and all, where Linux tells.
fn host_memory() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
    };
    Some([bytes("MemAvailable")?, bytes("MemTotal")?])
}

/// `1.5 GiB`
fn size(bytes: u64) -> String {
    let (mut scaled, mut units) = (bytes as f64, ["B", "KiB", "MiB", "GiB", "TiB"].iter());
    let mut unit = units.next();
    while scaled >= 1024.0
        && let Some(next) = units.next()
    {
        (scaled, unit) = (scaled / 1024.0, Some(next));
    }
    let digits = usize::from(bytes >= 1024);
    format!("{scaled:.digits$} {}", unit.copied().unwrap_or_default())
}
