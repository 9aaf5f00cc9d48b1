//! Every environment variable that Genesis reads, with its meaning.
//!
//! They are read once, when the first of them is asked for. A value that makes no sense is not used, and
//! standard error says so then; [`problems`] lists it, and `genesis doctor` prints that. A folder that
//! can't be written to is named when it is first needed. Paths need not be UTF-8.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::device::Device;
use crate::target::{GpuTarget, Target};

/// One environment variable, for documentation and `genesis doctor`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// What may be written.
    pub values: &'static str,
    /// What it does.
    pub doc: &'static str,
}

/// Every environment variable of the compiler and runtime.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "GENESIS_DEVICE",
        values: "cpu, cuda, cuda:1, ..",
        doc: "the default device; without it the first GPU, else the CPU",
    },
    Knob {
        name: "GENESIS_CACHE_DIR",
        values: "a folder, or nothing to keep no files",
        doc: "where compiled kernels are kept; without it genesis/ in XDG_CACHE_HOME or ~/.cache",
    },
    Knob {
        name: "GENESIS_CACHE_SIZE",
        values: "bytes, or with K, M, G",
        doc: "the most that compiled kernels may take on disk; 1G without it",
    },
    Knob {
        name: "GENESIS_DUMP",
        values: "tir, passes, lir, machine, llvm, ptx, asm with commas between",
        doc: "prints what the compiler makes of each kernel",
    },
    Knob {
        name: "GENESIS_DUMP_DIR",
        values: "a folder",
        doc: "where GENESIS_DUMP writes files; without it to standard error",
    },
    Knob {
        name: "GENESIS_NUM_THREADS",
        values: "a number",
        doc: "threads that work on the CPU; all that the process may use without it",
    },
    Knob {
        name: "GENESIS_CHECK",
        values: "bounds",
        doc: "runs kernels of any device in the interpreter, which stops at accesses outside of an \
              argument's memory, at races between programs or lanes, and where a program does not end",
    },
    Knob {
        name: "GENESIS_CHECK_OPS",
        values: "a number",
        doc: "the most ops that a program may run under GENESIS_CHECK=bounds; without it each op of the \
              kernel 65536 times, and 4 times more for each element and unit of the integers among its \
              arguments",
    },
    Knob {
        name: "GENESIS_BARRIERS",
        values: "all",
        doc: "puts a barrier behind every access to shared memory in GPU kernels: a result that \
              changes by it shows a missing one",
    },
    Knob {
        name: "GENESIS_DELAYS",
        values: "0 or 1",
        doc: "lets warps of GPU kernels sleep for moments of any length before they meet: a result \
              that changes by it shows a race",
    },
    Knob {
        name: "GENESIS_ANOMALY",
        values: "0 or 1",
        doc: "looks at every result and gradient of every thread, as `autograd::detect_anomaly` does: the \
              first op that makes a NaN or an infinity of finite inputs is an error",
    },
    Knob {
        name: "GENESIS_TARGET",
        values: "sm_80, sm_86, sm_89, sm_90, sm_100, sm_120",
        doc: "compiles for this architecture on every GPU that is not older, without what newer ones \
              add",
    },
    Knob {
        name: "GENESIS_SYNC",
        values: "0 or 1",
        doc: "waits after each launch, so that an error names the kernel that caused it",
    },
    Knob {
        name: "GENESIS_WARNINGS",
        values: "0 or 1",
        doc: "1 says of every kernel that a launch compiles which options have no effect, and which registers \
              spill; without it of those whose source is at hand, and 0 says nothing",
    },
    Knob {
        name: "GENESIS_POOL",
        values: "0 or 1",
        doc: "0 gives freed memory back at once, so that memory checkers see each buffer alone",
    },
    Knob {
        name: "GENESIS_MEMORY_HISTORY",
        values: "0 or 1",
        doc: "records the source line that each tensor was made at, for snapshots of memory and the \
              error when it runs out",
    },
    Knob {
        name: "GENESIS_AUTOTUNE",
        values: "0 or 1",
        doc: "1 measures configurations when a kernel meets a problem for the first time; without it \
              they come from earlier measurements, tables and heuristics",
    },
    Knob {
        name: "GENESIS_AUTOTUNE_BUDGET",
        values: "seconds",
        doc: "the most time that measuring for one problem may take; 10 without it",
    },
    Knob {
        name: "GENESIS_TMA",
        values: "0 or 1",
        doc: "0 keeps kernels for sm_90a off the copy engine and the products that it feeds",
    },
    Knob {
        name: "GENESIS_STREAMING",
        values: "none, loads, stores, all",
        doc: "which accesses of kernels without loops tell a GPU's caches that nothing is used twice",
    },
    Knob {
        name: "GENESIS_OVERLAP",
        values: "0 or 1",
        doc: "0 keeps a kernel from being set up before the one ahead of it has ended",
    },
    Knob {
        name: "GENESIS_PTXAS",
        values: "a path",
        doc: "NVIDIA's assembler, for registers and SASS in inspections; looked for in PATH without it",
    },
    Knob {
        name: "GENESIS_CHECK_COLLECTIVES",
        values: "0 or 1",
        doc: "compares each collective among its ranks before it runs: shapes or an order that differ are an \
              error that names the ranks, and not an endless wait",
    },
    Knob {
        name: "GENESIS_NCCL",
        values: "a path",
        doc: "libnccl.so.2, for several GPUs; looked for where the loader looks without it",
    },
    Knob {
        name: "GENESIS_COMMIT",
        values: "a commit",
        doc: "the commit that rows of benchmarks name; that of the repository around without it",
    },
];

/// Variables of Hugging Face's programs that Genesis heeds as they do, so that models are downloaded once for
/// all of them.
pub const HUB_VARIABLES: &[Knob] = &[
    Knob {
        name: "HF_HUB_CACHE",
        values: "a folder",
        doc: "where downloaded models are; without it hub/ in HF_HOME",
    },
    Knob {
        name: "HF_HOME",
        values: "a folder",
        doc: "where the token and the cache are; without it huggingface/ in XDG_CACHE_HOME or ~/.cache",
    },
    Knob {
        name: "HF_ENDPOINT",
        values: "an address",
        doc: "where models are downloaded from; https://huggingface.co without it",
    },
    Knob {
        name: "HF_TOKEN",
        values: "a token",
        doc: "who downloads, for private and gated models; without it the file that HF_TOKEN_PATH names, or \
              token in HF_HOME",
    },
    Knob { name: "HF_TOKEN_PATH", values: "a file", doc: "the file that holds the token" },
    Knob {
        name: "HF_HUB_OFFLINE",
        values: "1, true, yes, on",
        doc: "downloads nothing: models are those that the cache holds",
    },
    Knob {
        name: "XDG_CACHE_HOME",
        values: "a folder",
        doc: "where caches are; without it ~/.cache",
    },
    Knob { name: "HOME", values: "a folder", doc: "what ~ stands for" },
];

/// What launchers of several processes say to each of them; those of torchrun, Slurm and Open MPI.
pub const WORLD_VARIABLES: &[Knob] = &[
    Knob { name: "RANK", values: "a number", doc: "this process among all" },
    Knob { name: "WORLD_SIZE", values: "a number", doc: "how many processes there are" },
    Knob { name: "LOCAL_RANK", values: "a number", doc: "this process among those of its machine" },
    Knob { name: "LOCAL_WORLD_SIZE", values: "a number", doc: "processes of this machine" },
    Knob { name: "MASTER_ADDR", values: "a host", doc: "where rank 0 is" },
    Knob { name: "MASTER_PORT", values: "a port", doc: "the port that rank 0 listens at" },
    Knob {
        name: "TORCHELASTIC_USE_AGENT_STORE",
        values: "True",
        doc: "torchrun itself listens at that port: rank 0 takes the next",
    },
    Knob { name: "SLURM_PROCID", values: "a number", doc: "RANK, of Slurm" },
    Knob { name: "SLURM_NTASKS", values: "a number", doc: "WORLD_SIZE, of Slurm" },
    Knob { name: "SLURM_LOCALID", values: "a number", doc: "LOCAL_RANK, of Slurm" },
    Knob { name: "SLURM_NTASKS_PER_NODE", values: "a number", doc: "LOCAL_WORLD_SIZE, of Slurm" },
    Knob { name: "SLURM_JOB_ID", values: "a number", doc: "what a port is made of, under Slurm" },
    Knob {
        name: "SLURM_JOB_NODELIST",
        values: "hosts",
        doc: "the first is where rank 0 is, under Slurm",
    },
    Knob { name: "OMPI_COMM_WORLD_RANK", values: "a number", doc: "RANK, of Open MPI" },
    Knob { name: "OMPI_COMM_WORLD_SIZE", values: "a number", doc: "WORLD_SIZE, of Open MPI" },
    Knob { name: "OMPI_COMM_WORLD_LOCAL_RANK", values: "a number", doc: "LOCAL_RANK, of Open MPI" },
    Knob {
        name: "OMPI_COMM_WORLD_LOCAL_SIZE",
        values: "a number",
        doc: "LOCAL_WORLD_SIZE, of Open MPI",
    },
];

/// One of [`WORLD_VARIABLES`], where it is set to something.
///
/// # Panics
/// If it is another.
pub fn world_variable(name: &str) -> Option<OsString> {
    documented(WORLD_VARIABLES, name)
}

/// One of [`HUB_VARIABLES`], where it is set to something.
///
/// # Panics
/// If it is another.
pub fn hub_variable(name: &str) -> Option<OsString> {
    documented(HUB_VARIABLES, name)
}

/// A variable of a table, where it is set to something.
fn documented(table: &[Knob], name: &str) -> Option<OsString> {
    assert!(table.iter().any(|known| known.name == name), "{name} is not documented");
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Stages of the compiler that can be printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dump {
    /// Tile IR from the front end.
    pub tir: bool,
    /// Tile IR after each pass.
    pub passes: bool,
    /// Layout IR.
    pub lir: bool,
    /// Machine IR.
    pub machine: bool,
    /// LLVM IR.
    pub llvm: bool,
    /// PTX.
    pub ptx: bool,
    /// The processor's assembly.
    pub asm: bool,
}

/// Accesses that tell the caches of a GPU that nothing is used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Streaming {
    /// Loads of read-only memory leave the first-level cache alone.
    pub loads: bool,
    /// Stores are the first to be evicted.
    pub stores: bool,
}

/// The values of the environment variables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Knobs {
    /// `GENESIS_DEVICE`
    pub device: Option<Device>,
    /// `GENESIS_CACHE_DIR`, or where the cache is without it; none keeps no files.
    pub cache_dir: Option<PathBuf>,
    /// `GENESIS_CACHE_SIZE`, in bytes.
    pub cache_size: u64,
    /// `GENESIS_DUMP`
    pub dump: Dump,
    /// `GENESIS_DUMP_DIR`
    pub dump_dir: Option<PathBuf>,
    /// `GENESIS_NUM_THREADS`
    pub num_threads: Option<usize>,
    /// `GENESIS_CHECK=bounds`
    pub check_bounds: bool,
    /// `GENESIS_CHECK_OPS`
    pub check_ops: Option<u64>,
    /// `GENESIS_BARRIERS=all`
    pub all_barriers: bool,
    /// `GENESIS_DELAYS`
    pub delays: bool,
    /// `GENESIS_ANOMALY`
    pub anomaly: bool,
    /// `GENESIS_TARGET`
    pub target: Option<GpuTarget>,
    /// `GENESIS_SYNC`
    pub sync: bool,
    /// `GENESIS_WARNINGS`
    pub warnings: Option<bool>,
    /// `GENESIS_POOL`
    pub pool: bool,
    /// `GENESIS_MEMORY_HISTORY`
    pub memory_history: bool,
    /// `GENESIS_AUTOTUNE`
    pub autotune: bool,
    /// `GENESIS_AUTOTUNE_BUDGET`
    pub autotune_budget: Duration,
    /// `GENESIS_TMA`
    pub tma: bool,
    /// `GENESIS_STREAMING`
    pub streaming: Streaming,
    /// `GENESIS_OVERLAP`
    pub overlap: bool,
    /// `GENESIS_PTXAS`
    pub ptxas: Option<PathBuf>,
    /// `GENESIS_CHECK_COLLECTIVES`
    pub check_collectives: bool,
    /// `GENESIS_NCCL`
    pub nccl: Option<PathBuf>,
    /// `GENESIS_COMMIT`
    pub commit: Option<String>,
}

/// The knobs of this process.
pub fn get() -> &'static Knobs {
    &read().0
}

/// The folders of `PATH`, where tools are looked for.
pub fn search_path() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

/// Whether a test fails without a tool, where it would be skipped: `GENESIS_TEST_REQUIRE=ptxas,gpu` names them.
#[cfg(test)]
pub(crate) fn tests_require(tool: &str) -> bool {
    let required = std::env::var("GENESIS_TEST_REQUIRE").unwrap_or_default();
    required.split(',').any(|word| word.trim() == tool)
}

/// Variables whose value makes no sense, one line each.
pub fn problems() -> &'static [String] {
    &read().1
}

/// The variables that are set, with their values.
pub fn given() -> Vec<(&'static str, String)> {
    let value = |name| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    KNOBS.iter().filter_map(|knob| Some((knob.name, value(knob.name)?))).collect()
}

/// Says on standard error, once a process, what is wrong with a variable that was set.
pub(crate) fn warn_once(name: &'static str, why: impl std::fmt::Display) {
    static TOLD: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if !told.contains(&name) {
        told.push(name);
        warn(format_args!("{name}: {why}"));
    }
}

/// A line on standard error; where that is closed there is nobody to tell.
fn warn(line: impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "warning: {line}");
}

/// A text on standard error that says itself what it is.
pub(crate) fn warn_text(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether a variable is set to something.
pub(crate) fn is_given(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn read() -> &'static (Knobs, Vec<String>) {
    static KNOBS: OnceLock<(Knobs, Vec<String>)> = OnceLock::new();
    KNOBS.get_or_init(|| {
        let read = parse(|name| std::env::var_os(name));
        read.1.iter().for_each(warn);
        read
    })
}

/// Reads every knob through `lookup`.
fn parse(lookup: impl Fn(&str) -> Option<OsString>) -> (Knobs, Vec<String>) {
    let mut reader = Reader { lookup, problems: Vec::new() };
    let knobs = Knobs {
        device: reader.read("GENESIS_DEVICE", Device::from_name),
        cache_dir: cache_dir(&reader.lookup),
        cache_size: reader.read("GENESIS_CACHE_SIZE", byte_size).unwrap_or(1 << 30),
        dump: reader.read("GENESIS_DUMP", dump).unwrap_or_default(),
        dump_dir: reader.path("GENESIS_DUMP_DIR"),
        num_threads: reader
            .read("GENESIS_NUM_THREADS", |text| text.parse().ok().filter(|&n: &usize| n > 0)),
        check_bounds: reader
            .read("GENESIS_CHECK", |text| matches!(text, "bounds").then_some(true))
            .unwrap_or(false),
        check_ops: reader.read("GENESIS_CHECK_OPS", |text| text.parse().ok()),
        all_barriers: reader
            .read("GENESIS_BARRIERS", |text| matches!(text, "all").then_some(true))
            .unwrap_or(false),
        delays: reader.read("GENESIS_DELAYS", switch).unwrap_or(false),
        anomaly: reader.read("GENESIS_ANOMALY", switch).unwrap_or(false),
        target: reader.read("GENESIS_TARGET", gpu_target),
        sync: reader.read("GENESIS_SYNC", switch).unwrap_or(false),
        warnings: reader.read("GENESIS_WARNINGS", switch),
        pool: reader.read("GENESIS_POOL", switch).unwrap_or(true),
        memory_history: reader.read("GENESIS_MEMORY_HISTORY", switch).unwrap_or(false),
        autotune: reader.read("GENESIS_AUTOTUNE", switch).unwrap_or(false),
        autotune_budget: reader
            .read("GENESIS_AUTOTUNE_BUDGET", seconds)
            .unwrap_or(Duration::from_secs(10)),
        tma: reader.read("GENESIS_TMA", switch).unwrap_or(true),
        streaming: reader.read("GENESIS_STREAMING", streaming).unwrap_or_default(),
        overlap: reader.read("GENESIS_OVERLAP", switch).unwrap_or(true),
        ptxas: reader.path("GENESIS_PTXAS"),
        check_collectives: reader.read("GENESIS_CHECK_COLLECTIVES", switch).unwrap_or(false),
        nccl: reader.path("GENESIS_NCCL"),
        commit: reader.read("GENESIS_COMMIT", |text| (!text.is_empty()).then(|| text.to_owned())),
    };
    (knobs, reader.problems)
}

struct Reader<F> {
    lookup: F,
    problems: Vec<String>,
}

impl<F: Fn(&str) -> Option<OsString>> Reader<F> {
    /// A variable that is set to something.
    fn given(&self, name: &str) -> Option<OsString> {
        (self.lookup)(name).filter(|value| !value.is_empty())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.given(name).map(PathBuf::from)
    }

    fn read<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let given = self.given(name)?;
        // What is not UTF-8 is no value of any of these, and is shown as far as it can be.
        let value = given.to_str().and_then(&parse);
        let text = given.to_string_lossy();
        if value.is_none() {
            let knob = KNOBS.iter().find(|knob| knob.name == name);
            let values = knob.map_or("", |knob| knob.values);
            self.problems.push(format!("{name}={text} is not understood; it may be {values}"));
        }
        value
    }
}

fn cache_dir(lookup: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    match lookup("GENESIS_CACHE_DIR") {
        Some(dir) if dir.is_empty() => None,
        Some(dir) => Some(PathBuf::from(dir)),
        None => {
            let base = lookup("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
            let home = || lookup("HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
            Some(base.or_else(|| home().map(|dir| dir.join(".cache")))?.join("genesis"))
        }
    }
}

fn byte_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['K', 'k', 'M', 'm', 'G', 'g']) {
        Some(digits) => (digits, text.chars().next_back()?.to_ascii_uppercase()),
        None => (text, ' '),
    };
    let shift = match unit {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => 0,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn gpu_target(text: &str) -> Option<GpuTarget> {
    match Target::from_name(text)? {
        Target::Gpu(gpu) => Some(gpu),
        Target::Cpu => None,
    }
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim_end_matches('s').parse().ok()?).ok()
}

fn streaming(text: &str) -> Option<Streaming> {
    match text {
        "none" => Some(Streaming { loads: false, stores: false }),
        "loads" => Some(Streaming { loads: true, stores: false }),
        "stores" => Some(Streaming { loads: false, stores: true }),
        "all" => Some(Streaming { loads: true, stores: true }),
        _ => None,
    }
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "true" | "on" => Some(true),
        "0" | "false" | "off" => Some(false),
        _ => None,
    }
}

fn dump(text: &str) -> Option<Dump> {
    let mut dump = Dump::default();
    for stage in text.split(',').map(str::trim) {
        match stage {
            "tir" => dump.tir = true,
            "passes" => dump.passes = true,
            "lir" => dump.lir = true,
            "machine" => dump.machine = true,
            "llvm" => dump.llvm = true,
            "ptx" => dump.ptx = true,
            "asm" => dump.asm = true,
            _ => return None,
        }
    }
    Some(dump)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[(&str, &str)]) -> (Knobs, Vec<String>) {
        parse(|name| values.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()))
    }

    #[test]
    fn nothing_set_is_the_default() {
        let (knobs, problems) = with(&[("HOME", "/home/u")]);
        assert_eq!(problems, [""; 0]);
        assert_eq!(knobs.cache_dir, Some(PathBuf::from("/home/u/.cache/genesis")));
        assert_eq!((knobs.cache_size, knobs.sync, knobs.pool), (1 << 30, false, true));
        assert_eq!((knobs.device, knobs.dump), (None, Dump::default()));
    }

    #[test]
    fn variables_of_the_hub_are_documented_ones() {
        assert!(std::panic::catch_unwind(|| hub_variable("HF_OTHER")).is_err());
        assert!(hub_variable("HOME").is_none_or(|home| !home.is_empty()));
    }

    #[test]
    fn values_are_read() {
        let (knobs, problems) = with(&[
            ("GENESIS_DEVICE", "cuda:1"),
            ("GENESIS_CACHE_DIR", ""),
            ("GENESIS_CACHE_SIZE", "64M"),
            ("GENESIS_DUMP", "tir,ptx"),
            ("GENESIS_SYNC", "1"),
            ("GENESIS_AUTOTUNE", "1"),
            ("GENESIS_AUTOTUNE_BUDGET", "2.5"),
        ]);
        assert_eq!(problems, [""; 0]);
        assert_eq!(knobs.device, Some(Device::Cuda(1)));
        assert_eq!((knobs.cache_dir, knobs.cache_size), (None, 64 << 20));
        assert!(knobs.autotune && knobs.autotune_budget == Duration::from_millis(2500));
        assert!(knobs.dump.tir && knobs.dump.ptx && !knobs.dump.llvm && knobs.sync);
    }

    #[test]
    fn nonsense_is_named_and_not_used() {
        let (knobs, problems) = with(&[("GENESIS_DEVICE", "tpu"), ("GENESIS_CACHE_SIZE", "-1")]);
        assert_eq!((knobs.device, knobs.cache_size), (None, 1 << 30));
        assert_eq!(
            problems[0],
            "GENESIS_DEVICE=tpu is not understood; it may be cpu, cuda, cuda:1, .."
        );
        assert_eq!(problems.len(), 2);
    }
    #[test]
    #[cfg(unix)]
    fn bytes_that_are_not_utf8_are_paths_and_nothing_else() {
        use std::os::unix::ffi::OsStringExt;
        let bytes = || OsString::from_vec(b"/a\xFF".to_vec());
        let (knobs, problems) = parse(|name| name.starts_with("GENESIS_").then(bytes));
        for path in [knobs.cache_dir, knobs.dump_dir, knobs.ptxas, knobs.nccl] {
            assert_eq!(path, Some(PathBuf::from(bytes())));
        }
        // Every other variable is named.
        assert_eq!(problems.len(), KNOBS.len() - 4);
        assert!(problems[0].starts_with("GENESIS_DEVICE=/a\u{FFFD} is not understood"));
        assert_eq!((knobs.sync, knobs.pool), (false, true));
    }
}
