//! The GPU's tests on a virtual GPU: what the host does for a GPU, and small kernels, where there is none.
//!
//! A test of this file starts the test binary once more, with `tests/driver` in the place of the CUDA
//! driver. What runs there is the same code as on a card, down to the calls of the driver; the kernels
//! run in the emulator, which is slow, so only tests of little work are here.
//!
//! A machine with a GPU has no virtual one: `scripts/gpu-check.sh` leaves this module out, and only this
//! module can start one.

/// What users read when a GPU stops working.
mod faults;
mod graphs;
mod indices;

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use genesis::Tensor;
use genesis_kernel::runtime::{Event, Graph, Stream, with_stream};
use genesis_kernel::{Buffer, Device};
use tempfile::TempDir;

use crate::runtime::launch_add_one;

/// The driver, which cargo puts beside the tests.
fn driver() -> anyhow::Result<PathBuf> {
    let binary = std::env::current_exe()?;
    let folder = binary.parent().context("the tests are in a folder")?;
    let driver = folder.join("libvirtual_cuda.so");
    ensure!(driver.exists(), "{} is not there", driver.display());
    Ok(driver)
}

/// This binary on a virtual machine, to run these tests of it, and the folder that holds its driver.
fn command(machine: &str, filters: &[&str]) -> anyhow::Result<(TempDir, Command)> {
    let folder = tempfile::tempdir()?;
    symlink(driver()?, folder.path().join("libcuda.so"))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(filters).args(["--exact", "--nocapture", "--test-threads=2"]);
    command.env("LD_LIBRARY_PATH", folder.path()).env("VIRTUAL_GPU", machine);
    command.env("GENESIS_CACHE_DIR", crate::kernel_cache::folder());
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
            "runtime::no_coordinate_leaves_a_view",
            "runtime::prints_reach_the_terminal",
            "runtime::compiled_kernels_are_kept_on_disk",
            "runtime::bounds_are_checked_where_it_is_wished",
        ],
    )
}

#[test]
fn the_language() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "language::add",
            "language::softmax",
            "language::layer_norm",
            "language::matmul",
            "language::gelu",
            "language::largest_by_pairs",
            "language::dropout",
            "language::histogram",
            "language::attention",
            "view_lists::products_of_any_extents_are_one_launch",
            "view_lists::tensors_are_views_of_a_list",
        ],
    )
}

#[test]
fn a_few_kernels_of_the_framework() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "conv::a_gpu_gives_what_the_cpu_does",
            "float8::they_move_like_any_other_dtype",
            "matmul::integers_wrap_on_every_device",
            "matmul::odd_operands_are_copied_for_large_products",
            "mixed::slots_are_read_before_they_are_written_again",
            "products::integers_in_parts_of_tensors",
            "products::tiles_of_the_language",
            "attention::both_forms_agree_in_every_dtype_and_head",
            "numerics::distances_of_every_order",
            "numerics::distances_of_near_points_do_not_cancel",
            "numerics::reductions_have_more_planes_than_a_grid_along_y",
            "numerics::points_of_a_picture_of_one_pixel_have_no_slope",
            "numerics::slices_are_written_by_an_index",
            "nn_joined::a_layer_and_its_activation_are_one_launch",
            "nn_joined::hooks_hear_each_layer",
            "nn_joined::values_and_gradients_on_a_gpu_are_those_of_two_ops",
            "quantized_layers::a_layer_is_two_launches",
            "quantized_layers::a_model_of_codes_has_as_many_launches_as_one_of_tensors",
            "optim_8bit::a_step_is_two_launches_and_is_captured",
            "optim_8bit::codes_are_the_nearest_and_a_first_step_is_that_of_adamw",
            "random::devices_draw_the_same",
            "result_layout::results_lie_as_their_operands",
            "sanitize::products_of_tf32",
            "sanitize::updates_and_layers",
            "special::classes_that_are_not_there_are_refused",
            "stream_norms::a_stream_in_f32_takes_terms_of_16_bits",
            "stream_norms::gradients_are_added_where_they_are_computed",
            "stream_norms::products_add_their_gradients_to_one",
            "weights::weights_on_a_gpu_are_those_of_the_cpu",
        ],
    )
}

#[test]
fn the_profiler() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "profiler::launches_on_a_gpu_have_its_times",
            "profiler::times_of_a_gpu_that_were_not_measured_are_marked",
            "profiler::times_of_a_gpu_are_all_measured_or_none_where_wished",
        ],
    )
}

#[test]
fn graphs_and_fused_kernels() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "graphs::replays_on_a_gpu_are_what_the_ops_are",
            "graphs::a_comparison_finds_no_difference_and_names_one",
            "graphs::each_set_of_shapes_is_captured",
            "graphs::what_other_threads_do_is_not_recorded",
            "graphs::a_step_that_panics_is_not_recorded_and_the_device_goes_on",
            "fuse::operands_broadcast",
            "fuse::operands_lie_as_they_lie",
        ],
    )
}

#[test]
fn generation_that_goes_ahead() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "generate_ahead::a_sequence_without_a_token_ends_alone",
            "generate_ahead::a_step_that_nobody_awaits_is_in_nobodys_way",
        ],
    )
}

#[test]
fn language_models_are_trained() -> anyhow::Result<()> {
    pass(
        "",
        &[
            "lm_keeping::gradients_of_a_gpu_have_the_same_bits_whatever_is_kept",
            "lm_keeping::what_waits_in_the_host_takes_no_memory_of_the_gpu",
            "lm_training::a_step_is_the_same_on_every_device",
        ],
    )
}

/// Apart from those that count memory.
#[test]
fn products_of_the_same_inputs_are_trained() -> anyhow::Result<()> {
    pass("", &["lm_joined::captured_steps_are_those_of_products_apart"])
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

/// Says to a process that it is on the machine that a test wants.
fn is_on(machine: &str) -> bool {
    std::env::var("VIRTUAL_GPU").is_ok_and(|is| is == machine)
}

#[test]
fn memory_runs_out_and_is_there_again() -> anyhow::Result<()> {
    const MACHINE: &str = "memory=8M";
    if !is_on(MACHINE) {
        return pass(MACHINE, &["virtual_gpu::memory_runs_out_and_is_there_again"]);
    }
    let stream = Device::Cuda(0).stream();
    let kept = Buffer::zeroed(&stream, 4 << 20)?;
    let error = Buffer::uninit(&stream, 6 << 20).err().context("more than there is")?;
    ensure!(error.is_out_of_memory(), "{error}");
    drop(kept);
    Buffer::zeroed(&stream, 6 << 20)?;
    Ok(())
}

#[test]
fn two_devices_in_one_process() -> anyhow::Result<()> {
    const MACHINE: &str = "devices=2";
    if !is_on(MACHINE) {
        return pass(MACHINE, &["virtual_gpu::two_devices_in_one_process"]);
    }
    for device in [Device::Cuda(0), Device::Cuda(1)] {
        let mut x = device.stream().upload(&[10, 20, 30])?;
        launch_add_one(&mut x, 2)?;
        ensure!(x.to_vec()? == [11, 21, 30], "{device}");
    }
    ensure!(Device::Cuda(2).target().is_none());
    Ok(())
}

#[test]
fn a_launch_fails_on_purpose() -> anyhow::Result<()> {
    const MACHINE: &str = "fault=3";
    if !is_on(MACHINE) {
        return pass(MACHINE, &["virtual_gpu::a_launch_fails_on_purpose"]);
    }
    let mut x = Device::Cuda(0).stream().upload(&[1, 2])?;
    launch_add_one(&mut x, 2)?;
    launch_add_one(&mut x, 2)?;
    ensure!(x.to_vec()? == [3, 4]);
    // The launch itself is queued, and goes well.
    launch_add_one(&mut x, 2)?;
    let error = x.to_vec().err().context("nothing failed")?;
    ensure!(error.is_device_lost(), "{error}");
    Ok(())
}

#[test]
fn launches_may_do_nothing() -> anyhow::Result<()> {
    const MACHINE: &str = "null";
    if !is_on(MACHINE) {
        return pass(MACHINE, &["virtual_gpu::launches_may_do_nothing"]);
    }
    let mut x = Device::Cuda(0).stream().upload(&[1, 2])?;
    launch_add_one(&mut x, 2)?;
    ensure!(x.to_vec()? == [1, 2]);
    Ok(())
}

/// What streams do on the virtual clock follows from what they were given, and takes what the GPU would.
#[test]
fn times_are_those_of_a_virtual_clock() -> anyhow::Result<()> {
    const MACHINE: &str = "clock";
    if !is_on(MACHINE) {
        return pass(MACHINE, &["virtual_gpu::times_are_those_of_a_virtual_clock"]);
    }
    let stream = Device::Cuda(0).stream();
    let side = Stream::new(Device::Cuda(0))?;
    let (mut x, mut y) = (stream.upload(&[1, 2])?, side.upload(&[3, 4])?);
    let start = Event::record(&stream)?;
    side.wait_event(&start)?;
    // Four launches beside two, which end first whichever stream is run first.
    (0..4).try_for_each(|_| launch_add_one(&mut x, 2))?;
    with_stream(&side, || (0..2).try_for_each(|_| launch_add_one(&mut y, 2)))?;
    let of_side = Event::record(&side)?;
    let end = Event::record(&stream)?;
    stream.wait_event(&of_side)?;
    let both = Event::record(&stream)?;
    let us = [&of_side, &end, &both].map(|event| event.elapsed_ms(&start).map(|ms| ms * 1e3));
    let [of_side, end, both] = us;
    let (of_side, end, both) = (of_side?, end?, both?);
    ensure!((5.0..5.1).contains(&of_side), "{of_side}");
    ensure!((10.0..10.1).contains(&end) && end == both, "{end}, {both}");
    // A graph's launches follow each other faster, behind the graph's own.
    let graph = Graph::capture(&stream, || (0..4).try_for_each(|_| launch_add_one(&mut x, 2)))?;
    let start = Event::record(&stream)?;
    // SAFETY: the array that the recorded work uses lives on.
    unsafe { graph.launch()? };
    let us = Event::record(&stream)?.elapsed_ms(&start)? * 1e3;
    ensure!((9.8..9.9).contains(&us), "{us}");
    ensure!(x.to_vec()? == [9, 10]);
    Ok(())
}

/// How often the virtual driver says that a function was called.
fn calls(text: &str) -> Vec<(&str, u64)> {
    fn call(line: &str) -> Option<(&str, u64)> {
        let (number, name) = line.strip_prefix("virtual GPU: ")?.split_once(" calls of ")?;
        Some((name, number.parse().ok()?))
    }
    text.lines().filter_map(call).collect()
}

/// What an op asks of the driver is seen in its time: a launch, and nothing else.
#[test]
fn an_addition_is_one_call_of_the_driver() -> anyhow::Result<()> {
    const MACHINE: &str = "null,count";
    const ADDITIONS: u64 = 1000;
    if is_on(MACHINE) {
        let x = Tensor::ones(&[1024], Device::Cuda(0))?.requires_grad_(true)?;
        (0..ADDITIONS).try_for_each(|_| x.add(&x).map(drop))?;
        return Ok(());
    }
    let (text, _) = run(MACHINE, &["virtual_gpu::an_addition_is_one_call_of_the_driver"])?;
    let calls = calls(&text);
    let (launches, others): (Vec<_>, Vec<_>) =
        calls.into_iter().partition(|(name, _)| *name == "cuLaunchKernelEx");
    // Beside the additions there is what opens the GPU and fills `x`.
    let of = |calls: &[(&str, u64)]| calls.iter().map(|call| call.1).sum::<u64>();
    ensure!((ADDITIONS..ADDITIONS + 5).contains(&of(&launches)), "{text}");
    ensure!(of(&others) < ADDITIONS / 5, "{text}");
    Ok(())
}

/// A graph is recorded without running, and replayed as often as it is launched; a thread records one at a
/// time.
#[test]
fn graphs_are_replayed() -> anyhow::Result<()> {
    const MACHINE: &str = "devices=1";
    if !is_on(MACHINE) {
        return pass(MACHINE, &["virtual_gpu::graphs_are_replayed"]);
    }
    let stream = Device::Cuda(0).stream();
    let mut x = stream.upload(&[1, 2])?;
    launch_add_one(&mut x, 2)?;
    let graph = Graph::capture(&stream, || {
        launch_add_one(&mut x, 2)?;
        launch_add_one(&mut x, 1)
    })?;
    ensure!(x.to_vec()? == [2, 3]);
    // SAFETY: the array that the recorded work uses lives on.
    (0..5).try_for_each(|_| unsafe { graph.launch() })?;
    ensure!(x.to_vec()? == [12, 8]);
    let nested = Graph::capture(&stream, || {
        Graph::capture(&stream, || Ok::<(), genesis_kernel::Error>(())).map(drop)
    });
    let error = nested.err().context("a capture in a capture")?.to_string();
    ensure!(error.contains("this thread is in a capture already"), "{error}");
    let upload = Graph::capture(&stream, || stream.upload(&[7, 8]).map(drop));
    let error = upload.err().context("a copy from the host in a capture")?.to_string();
    ensure!(error.contains("a copy from the host is not recorded"), "{error}");
    // Nothing of that is left.
    let graph = Graph::capture(&stream, || launch_add_one(&mut x, 2))?;
    // SAFETY: as above.
    unsafe { graph.launch()? };
    ensure!(x.to_vec()? == [13, 9]);
    Ok(())
}
