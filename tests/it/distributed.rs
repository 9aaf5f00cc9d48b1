//! Several processes that call collectives and train together.
//!
//! A test of this file starts the test binary once for each rank, with one of the tests of
//! `distributed::ranks` or its siblings. Without a GPU each rank has a virtual one (`tests/driver`) and NCCL is
//! `tests/nccl`, over memory that the ranks share. On a machine with GPUs it is NCCL itself: each rank has a
//! GPU of its own where there are enough, else all share one, and NCCL takes each for a machine of its own.

mod common;
mod language;
mod launchers;
mod overlap;
mod parallel;
mod ranks;
mod saves;
mod sharded;
mod stages;

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use genesis_kernel::Device;
use tempfile::TempDir;

/// The longest that ranks may take before they count as hung.
const LIMIT: Duration = Duration::from_secs(240);

/// Ranks to be started.
struct Launch {
    ranks: usize,
    test: &'static str,
    variables: Vec<(&'static str, String)>,
    /// The folder that the ranks share, if not one of these ranks alone.
    folder: Option<PathBuf>,
    launcher: Launcher,
    /// Whether ranks have a GPU where the machine has none.
    has_gpu: bool,
}

/// Whose variables tell a rank who it is.
#[derive(Clone, Copy)]
enum Launcher {
    Torchrun,
    Slurm,
    OpenMpi,
}

impl Launcher {
    /// The names of a rank's number and the number of ranks, in all and on this machine.
    fn names(self) -> [&'static str; 4] {
        match self {
            Launcher::Torchrun => ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"],
            Launcher::Slurm => {
                ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"]
            }
            Launcher::OpenMpi => [
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
            ],
        }
    }
}

impl Launch {
    fn new(ranks: usize, test: &'static str) -> Launch {
        let (variables, launcher) = (Vec::new(), Launcher::Torchrun);
        Launch { ranks, test, variables, folder: None, launcher, has_gpu: true }
    }

    fn with(mut self, name: &'static str, value: &str) -> Launch {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Starts the ranks, each with its own output.
    fn start(&self) -> anyhow::Result<(TempDir, Vec<Child>)> {
        let folder = tempfile::tempdir()?;
        let port = free_port();
        let gpus = Device::cuda_count();
        let is_virtual = gpus == 0;
        if is_virtual && self.has_gpu {
            link_virtual(folder.path())?;
        }
        let children = (0..self.ranks)
            .map(|rank| {
                let mut command = Command::new(std::env::current_exe()?);
                let test = match self.test.contains("::") {
                    true => format!("distributed::{}", self.test),
                    false => format!("distributed::ranks::{}", self.test),
                };
                command.args([test.as_str(), "--exact", "--ignored", "--nocapture"]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                if is_virtual {
                    command.env("LD_LIBRARY_PATH", folder.path()).env("TMPDIR", folder.path());
                    // The other tests of a run keep the disk and all cores busy.
                    command.env(common::SLOWER, "2");
                } else {
                    command.env("CUDA_VISIBLE_DEVICES", (rank % gpus as usize).to_string());
                    // Ranks that say they are of one machine may not share a GPU.
                    if self.ranks > gpus as usize {
                        command.env("NCCL_HOSTID", format!("rank{rank}"));
                        command.env("NCCL_SOCKET_IFNAME", "lo").env("NCCL_IB_DISABLE", "1");
                    }
                    // NCCL itself takes seconds to start, and so does a rank on a busy machine.
                    command.env(common::SLOWER, "8");
                }
                let shared = self.folder.clone().unwrap_or_else(|| folder.path().join("shared"));
                command.env(common::FOLDER, shared);
                command.env("GENESIS_CACHE_DIR", crate::kernel_cache::folder());
                command.env("GENESIS_NUM_THREADS", "1");
                let values = [rank, self.ranks, rank, self.ranks];
                for (name, value) in self.launcher.names().into_iter().zip(values) {
                    command.env(name, value.to_string());
                }
                command.env("MASTER_PORT", port.to_string());
                command.env("MASTER_ADDR", "127.0.0.1").envs(self.variables.iter().cloned());
                Ok(command.spawn()?)
            })
            .collect::<anyhow::Result<Vec<Child>>>()?;
        Ok((folder, children))
    }

    /// Runs the ranks to their ends.
    fn run(&self) -> anyhow::Result<Vec<Output>> {
        let (_folder, children) = self.start()?;
        let start = Instant::now();
        // A thread each reads what a rank says, so that none waits for a reader.
        let waits: Vec<_> = children
            .into_iter()
            .map(|child| {
                let id = child.id();
                (id, std::thread::spawn(move || child.wait_with_output()))
            })
            .collect();
        while waits.iter().any(|(_, wait)| !wait.is_finished()) {
            if start.elapsed() > LIMIT {
                for (id, _) in &waits {
                    Command::new("kill").args(["-9", &id.to_string()]).status()?;
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = |(_, wait): (u32, std::thread::JoinHandle<std::io::Result<Output>>)| {
            Ok(wait.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??)
        };
        waits.into_iter().map(output).collect()
    }

    /// Runs the ranks, all of which must pass.
    fn pass(&self) -> anyhow::Result<()> {
        let outputs = self.run()?;
        // A rank that ended by itself says why the others, which were ended, got stuck.
        let failed = |output: &&Output| !output.status.success();
        let first = outputs.iter().filter(failed).max_by_key(|output| output.status.code());
        if let Some(output) = first {
            let rank = outputs.iter().position(|other| std::ptr::eq(other, output));
            let (rank, status) = (rank.unwrap_or(0), output.status);
            anyhow::bail!("rank {rank} of {}, {status}: {}", self.ranks, text(output));
        }
        for (rank, output) in outputs.iter().enumerate() {
            let text = text(output);
            ensure!(text.contains("1 passed"), "rank {rank} ran nothing: {text}");
        }
        Ok(())
    }
}

/// A port that nobody listens at, and below those that outgoing connections take: one of these took a port between
/// its choice and the first rank's start, once in some hundred runs.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 100) as u16 * 100;
    loop {
        // Rank 0 may listen at the next one.
        let port = first + NEXT.fetch_add(2, Ordering::Relaxed) % 100;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Puts a driver and NCCL for virtual GPUs into a folder.
fn link_virtual(folder: &Path) -> anyhow::Result<()> {
    symlink(beside("libvirtual_cuda.so")?, folder.join("libcuda.so"))?;
    Ok(symlink(beside("libvirtual_nccl.so")?, folder.join("libnccl.so.2"))?)
}

/// A library that cargo puts beside the tests.
fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?;
    let library = binary.parent().context("the tests are in a folder")?.join(name);
    ensure!(library.exists(), "{} is not there", library.display());
    Ok(library)
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat()
}

#[test]
fn collectives() -> anyhow::Result<()> {
    Launch::new(2, "collectives").pass()?;
    Launch::new(4, "collectives").pass()
}

#[test]
fn groups_of_some_ranks() -> anyhow::Result<()> {
    Launch::new(4, "groups").pass()
}

#[test]
fn the_rank_that_holds_the_store_leaves_last() -> anyhow::Result<()> {
    Launch::new(2, "late").pass()
}

#[test]
fn training_on_parts_of_a_batch_is_training_on_the_batch() -> anyhow::Result<()> {
    Launch::new(2, "data_parallel").pass()?;
    Launch::new(4, "data_parallel").pass()
}

#[test]
fn parameters_that_a_rank_does_not_use() -> anyhow::Result<()> {
    Launch::new(2, "unused").pass()
}

#[test]
fn a_step_that_is_captured() -> anyhow::Result<()> {
    Launch::new(2, "captured").pass()
}

#[test]
fn calls_that_differ_are_named() -> anyhow::Result<()> {
    Launch::new(2, "mismatched").with("GENESIS_CHECK_COLLECTIVES", "1").pass()
}

#[test]
fn modules_that_differ_are_named() -> anyhow::Result<()> {
    Launch::new(2, "modules").pass()
}

/// What ranks say when one of them is gone.
fn with_faults(test: &'static str, faults: &str) -> anyhow::Result<Vec<Output>> {
    ensure!(Device::cuda_count() == 0, "faults are those of the virtual NCCL");
    Launch::new(2, test).with("VIRTUAL_NCCL", faults).run()
}

#[test]
fn a_rank_that_dies_is_named() -> anyhow::Result<()> {
    if Device::cuda_count() > 0 {
        eprintln!("skipped: faults need the virtual NCCL, and this machine has a GPU");
        return Ok(());
    }
    let outputs = with_faults("many", "dead=1:3")?;
    ensure!(!outputs[1].status.success());
    let said = text(&outputs[0]);
    ensure!(outputs[0].status.code() == Some(75), "{said}");
    let wants = "rank 1 does not answer: it is gone or stopped";
    ensure!(said.contains(wants) && said.contains("all_reduce of [4] f32, at "), "{said}");
    Ok(())
}

#[test]
fn a_rank_that_comes_late_is_waited_for() -> anyhow::Result<()> {
    if Device::cuda_count() > 0 {
        eprintln!("skipped: faults need the virtual NCCL, and this machine has a GPU");
        return Ok(());
    }
    for output in with_faults("many", "late=1:200")? {
        ensure!(output.status.success(), "{}", text(&output));
    }
    Ok(())
}

#[test]
fn a_rank_that_does_something_else_is_named() -> anyhow::Result<()> {
    let outputs = Launch::new(2, "sleeps").run()?;
    let said = text(&outputs[0]);
    ensure!(outputs[0].status.code() == Some(75), "{said}");
    ensure!(said.contains("rank 1 has not called number 2"), "{said}");
    Ok(())
}

#[test]
fn ranks_come_as_their_launcher_says() -> anyhow::Result<()> {
    for (rank, output) in Launch::new(3, "sum_of_ranks").run()?.iter().enumerate() {
        let (said, wants) = (text(output), format!("rank {rank} of 3: the sum of ranks is 3"));
        ensure!(said.contains(&wants), "{said}");
    }
    Ok(())
}

#[test]
fn gradients_of_collectives() -> anyhow::Result<()> {
    Launch::new(2, "sharded::gradients").pass()
}

#[test]
fn parameters_in_parts_train_as_whole_ones() -> anyhow::Result<()> {
    for ranks in [2, 4, 8] {
        Launch::new(ranks, "sharded::fully").pass()?;
    }
    Ok(())
}

#[test]
fn parameters_in_parts_take_their_part_of_the_memory() -> anyhow::Result<()> {
    Launch::new(8, "sharded::memory").pass()
}

#[test]
fn state_in_parts_trains_as_whole_state() -> anyhow::Result<()> {
    Launch::new(2, "sharded::zero").pass()?;
    Launch::new(4, "sharded::zero").pass()
}

#[test]
fn layers_on_several_ranks_are_layers() -> anyhow::Result<()> {
    Launch::new(2, "sharded::tensor_parallel").pass()?;
    Launch::new(4, "sharded::tensor_parallel").pass()
}

#[test]
fn tensor_parallel_blocks_in_parts() -> anyhow::Result<()> {
    Launch::new(4, "sharded::two_axes").pass()
}

#[test]
fn sums_in_order_have_the_bits_of_one_rank() -> anyhow::Result<()> {
    Launch::new(2, "sharded::audit").pass()?;
    Launch::new(4, "sharded::audit").pass()
}

#[test]
fn attention_around_the_ranks() -> anyhow::Result<()> {
    Launch::new(2, "stages::context").pass()?;
    Launch::new(3, "stages::context").pass()
}

#[test]
fn stages_train_as_a_whole_model() -> anyhow::Result<()> {
    Launch::new(2, "stages::pipeline").pass()?;
    Launch::new(4, "stages::pipeline").pass()
}

#[test]
fn batch_norm_over_all_ranks() -> anyhow::Result<()> {
    Launch::new(3, "stages::batch_norm").pass()
}

#[test]
fn checkpoints_in_parts() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let launch =
        |ranks, test| Launch { folder: Some(folder.path().into()), ..Launch::new(ranks, test) };
    launch(4, "stages::save").pass()?;
    // Read by as many ranks, by more of them a part, and by one.
    launch(4, "stages::load").pass()?;
    launch(2, "stages::load").pass()?;
    launch(1, "stages::load").pass()
}

#[test]
fn ranks_train_a_language_model_as_one() -> anyhow::Result<()> {
    // On processors where there is no GPU: a virtual one would take minutes.
    let has_gpu = Device::cuda_count() > 0;
    Launch { has_gpu, ..Launch::new(2, "language::training") }.pass()
}

#[test]
fn processors_have_collectives_too() -> anyhow::Result<()> {
    Launch { has_gpu: false, ..Launch::new(3, "parallel::processors") }.pass()
}

/// On processors, for the same reason.
#[test]
fn every_mesh_trains_as_one_rank() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for ranks in [2, 4, 8] {
        let launch = Launch::new(ranks, "parallel::meshes");
        Launch { folder: Some(folder.path().into()), has_gpu: false, ..launch }.pass()?;
    }
    Ok(())
}

/// On processors, for the same reason.
#[test]
fn checkpoints_of_runs_in_parts() -> anyhow::Result<()> {
    for ranks in [2, 4] {
        Launch { has_gpu: false, ..Launch::new(ranks, "saves::parts") }.pass()?;
    }
    Ok(())
}

#[test]
fn a_rank_that_is_killed_in_a_save_leaves_the_checkpoint_before() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let launch = |test| {
        let folder = Some(folder.path().into());
        Launch { folder, has_gpu: false, ..Launch::new(2, test) }
    };
    let (_folder, mut children) = launch("saves::killed").start()?;
    let killed = children[1].wait();
    // Time enough to complete what is not complete.
    std::thread::sleep(Duration::from_millis(200));
    let ended = children[0].kill();
    children[0].wait()?;
    ended?;
    ensure!(!killed?.success());
    let root = folder.path().join("killed/checkpoints");
    let mut found = std::fs::read_dir(&root)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    found.sort();
    ensure!(found == [".tmp-ranks-00000002", "step-00000001"], "{found:?}");
    genesis::io::verify_checkpoint(root.join("step-00000001"))?;
    launch("saves::after_the_kill").pass()
}

#[test]
fn calls_in_another_order_are_named() -> anyhow::Result<()> {
    Launch::new(2, "disordered").with("GENESIS_CHECK_COLLECTIVES", "1").pass()
}

/// The others end, and say who is missing; its launcher ends the process that is stopped.
#[test]
fn a_rank_that_is_stopped_is_named() -> anyhow::Result<()> {
    let (_folder, mut children) = Launch::new(2, "halted").start()?;
    let mut stopped = children.remove(1);
    let said = children.remove(0).wait_with_output();
    let ended = stopped.kill();
    stopped.wait()?;
    ended?;
    let said = said?;
    ensure!(said.status.code() == Some(75), "{}", text(&said));
    let wants = "rank 1 does not answer: it is gone or stopped";
    ensure!(text(&said).contains(wants), "{}", text(&said));
    Ok(())
}

/// Rank 0 holds the store of all.
#[test]
fn a_store_that_is_gone_is_named() -> anyhow::Result<()> {
    if Device::cuda_count() > 0 {
        eprintln!("skipped: faults need the virtual NCCL, and this machine has a GPU");
        return Ok(());
    }
    let outputs = with_faults("many", "dead=0:3")?;
    let said = text(&outputs[1]);
    ensure!(!outputs[0].status.success() && outputs[1].status.code() == Some(75), "{said}");
    let wants = "the store of the ranks is gone, and with it rank 0 of the world, which holds it";
    ensure!(said.contains(wants) && said.contains("all_reduce of [4] f32, at "), "{said}");
    Ok(())
}

/// The others end at once, though they would wait ten minutes for a rank that is late.
#[test]
fn a_rank_that_can_not_begin_ends_the_others_with_its_name() -> anyhow::Result<()> {
    let start = Instant::now();
    for (rank, output) in Launch::new(3, "one_can_not_begin").run()?.iter().enumerate() {
        let said = text(output);
        let wants = match rank {
            1 => "there is no cuda:99",
            _ => "rank 1 of 3 can't begin: distributed: there is no cuda:99",
        };
        ensure!(!output.status.success() && said.contains(wants), "rank {rank}: {said}");
    }
    ensure!(start.elapsed() < LIMIT / 2, "{:?}", start.elapsed());
    Ok(())
}

#[test]
fn ranks_without_a_gpu_say_so() -> anyhow::Result<()> {
    if Device::cuda_count() > 0 {
        eprintln!("skipped: this machine has a GPU");
        return Ok(());
    }
    let launch = Launch { has_gpu: false, ..Launch::new(2, "sum_of_ranks") };
    for (rank, output) in launch.run()?.iter().enumerate() {
        let (said, wants) = (text(output), format!("rank {rank} finds no GPU"));
        ensure!(!output.status.success() && said.contains(&wants), "{said}");
    }
    Ok(())
}

#[test]
fn other_launchers_number_ranks_too() -> anyhow::Result<()> {
    for launcher in [Launcher::Slurm, Launcher::OpenMpi] {
        let launch = Launch { launcher, ..Launch::new(2, "sum_of_ranks") };
        for (rank, output) in launch.run()?.iter().enumerate() {
            let (said, wants) = (text(output), format!("rank {rank} of 2: the sum of ranks is 1"));
            ensure!(said.contains(&wants), "{said}");
        }
    }
    Ok(())
}

/// A listener at a port behind which nobody listens: there is the store of rank 0 beside an agent. Both are below the range
/// that is handed out to whoever names no port, as other tests do.
fn listener_with_a_free_neighbor() -> anyhow::Result<TcpListener> {
    let start = 20_000 + (std::process::id() % 5_000) as u16 * 2;
    for port in (start..start + 2_000).step_by(2) {
        let both =
            (TcpListener::bind(("127.0.0.1", port)), TcpListener::bind(("127.0.0.1", port + 1)));
        if let (Ok(agent), Ok(_)) = both {
            return Ok(agent);
        }
    }
    anyhow::bail!("no two ports from {start} on are free")
}

/// torchrun's agent listens at the port that it names, and gives it to nobody.
#[test]
fn torchrun_keeps_its_port() -> anyhow::Result<()> {
    let agent = listener_with_a_free_neighbor()?;
    let launch = Launch::new(2, "sum_of_ranks")
        .with("MASTER_PORT", &agent.local_addr()?.port().to_string())
        .with("TORCHELASTIC_USE_AGENT_STORE", "True");
    for (rank, output) in launch.run()?.iter().enumerate() {
        let (said, wants) = (text(output), format!("rank {rank} of 2: the sum of ranks is 1"));
        ensure!(said.contains(&wants), "{said}");
    }
    Ok(())
}

#[test]
fn communication_is_hidden_behind_compute() -> anyhow::Result<()> {
    if Device::cuda_count() > 0 {
        eprintln!("skipped: the clock is that of a virtual GPU, and this machine has a GPU");
        return Ok(());
    }
    overlap::check("overlap::steps", "overlap::steps_without_overlap")
}
