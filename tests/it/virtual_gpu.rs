//! The GPU's tests on a virtual GPU: what the host does for a GPU, and small kernels, where there is none.
//!
//! A test of this file starts the test binary once more, with `tests/driver` in the place of the CUDA
//! driver. What runs there is the same code as on a card, down to the calls of the driver; the kernels
//! run in the emulator, which is slow, so only tests of little work are here.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use tempfile::TempDir;

/// The driver, which cargo puts beside the tests.
fn driver() -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?;
    let folder = binary.parent().context("the tests are in a folder")?;
    let driver = folder.join("libvirtual_cuda.so");
    ensure!(driver.exists(), "{} is not there", driver.display());
    Ok(driver)
}

/// This binary on a virtual machine, to run these tests of it, and the folder that holds its driver.
pub(crate) fn command(machine: &str, filters: &[&str]) -> anyhow::Result<(TempDir, Command)> {
    let folder = tempfile::tempdir()?;
    symlink(driver()?, folder.path().join("libcuda.so"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(filters).args(["--exact", "--nocapture", "--test-threads=2"]);
    command.env("LD_LIBRARY_PATH", folder.path()).env("VIRTUAL_GPU", machine);
    command.env("GENESIS_CACHE_DIR", folder.path().join("cache"));
    Ok((folder, command))
}

/// Runs tests of this binary on a virtual machine, and gives what they say and how many passed.
fn run(machine: &str, filters: &[&str]) -> anyhow::Result<(String, usize)> {
    let (_folder, mut command) = command(machine, filters)?;
    let output = command.output()?;
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    ensure!(output.status.success(), "on `{machine}`: {text}");
    let counts = text.split("test result: ok. ").last().context("no result")?;
    let passed = counts.split(' ').next().unwrap_or_default().parse()?;
    Ok((text, passed))
}

/// Runs these tests, all of which must be there, find a GPU and pass.
fn pass(machine: &str, tests: &[&str]) -> anyhow::Result<()> {
    let (text, passed) = run(machine, tests)?;
    ensure!(passed == tests.len(), "{passed} of {} tests ran: {text}", tests.len());
    ensure!(!text.contains("skipped: no GPU"), "{text}");
    Ok(())
}

#[test]
fn the_runtime() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "runtime::bytes_go_to_the_gpu_and_back",
            "runtime::launches_run_in_order",
            "runtime::what_does_not_fit_the_gpu_is_refused",
            "runtime::running_out_of_gpu_memory_is_not_the_end",
            "runtime::the_drivers_assembler_says_what_is_wrong",
            "runtime::a_bad_address_breaks_the_gpu_for_good",
            "runtime::a_failed_assertion_is_named",
            "runtime::compiled_kernels_are_kept_on_disk",
            "runtime::bounds_are_checked_where_it_is_wished",
        ],
    )
}

#[test]
fn the_profiler() -> anyhow::Result<()> {
    pass("", &["profiler::launches_on_a_gpu_have_its_times"])
}

#[test]
fn graphs_and_fused_kernels() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "graphs::replays_on_a_gpu_are_what_the_ops_are",
            "graphs::a_comparison_finds_no_difference_and_names_one",
            "graphs::each_set_of_shapes_is_captured",
            "fuse::operands_broadcast",
            "fuse::operands_lie_as_they_lie",
        ],
    )
}

#[test]
fn memory() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "memory::statistics_follow_tensors",
            "memory::a_snapshot_names_tensors_and_lines",
            "memory::streams_run_beside_each_other",
            "memory::pinned_memory_is_copied_without_waiting",
            "memory::no_two_buffers_share_a_byte",
            "memory::a_fraction_is_of_the_whole",
            "memory::training_goes_on_after_memory_ran_out",
        ],
    )
}

#[test]
fn several_devices() -> anyhow::Result<()> {
    pass("devices=2", &["memory::tensors_go_from_gpu_to_gpu"])
}
