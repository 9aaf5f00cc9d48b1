//! Ranks that the launchers start which people have, where this machine has them.

use std::process::Command;

use anyhow::ensure;
use genesis_kernel::Device;

use super::{free_port, link_virtual, text};
use crate::skipped::{Needed, skip, tell};

#[test]
fn torchrun_starts_ranks() -> anyhow::Result<()> {
    let port = free_port().to_string();
    let args = ["--no-python", "--nproc-per-node", "2", "--master-port", &port];
    start(Needed::Torchrun, &args, "pip's torch has it")
}

#[test]
fn mpirun_starts_ranks() -> anyhow::Result<()> {
    let args = ["--allow-run-as-root", "--oversubscribe", "-n", "2"];
    start(Needed::Mpirun, &args, "Debian's openmpi-bin has it")
}

/// Two ranks of this program, which tell the sum of their numbers, by a launcher that says all that they know.
fn start(launcher: Needed, args: &[&str], whence: &str) -> anyhow::Result<()> {
    const WHAT: &str = "ranks of real launchers";
    let gpus = Device::cuda_count();
    if gpus == 1 {
        tell(format!("one gpu: {WHAT} (NCCL wants one for each rank that a launcher starts)"));
        return Ok(());
    }
    if !is_installed(launcher.name()) {
        skip(launcher, WHAT, whence);
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("timeout");
    command.args(["120", launcher.name()]).args(args).arg(std::env::current_exe()?);
    command.args(["distributed::ranks::sum_of_ranks", "--exact", "--ignored", "--nocapture"]);
    command.env("GENESIS_CACHE_DIR", crate::kernel_cache::folder()).env("GENESIS_NUM_THREADS", "1");
    if gpus == 0 {
        link_virtual(folder.path())?;
        command.env("LD_LIBRARY_PATH", folder.path()).env("TMPDIR", folder.path());
    }
    let output = command.output()?;
    let said = text(&output);
    ensure!(output.status.success(), "{}: {said}", launcher.name());
    for rank in 0..2 {
        let wants = format!("rank {rank} of 2: the sum of ranks is 1");
        ensure!(said.contains(&wants), "{}, {wants}: {said}", launcher.name());
    }
    Ok(())
}

/// Whether a folder of `PATH` has a program.
fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}
