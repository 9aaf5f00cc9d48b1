//! The runtime on a real GPU: memory, launches, and what happens when something goes wrong. What
//! breaks a device, or depends on the environment, runs in a process of its own; those also run on
//! the CPU.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, ensure};
use genesis_kernel::kernel::Grid;
use genesis_kernel::prelude::*;
use genesis_kernel::runtime::{AsScalar, PtrArg};
use genesis_kernel::{Arg, Array, Buffer, DType, Device, Error, HostElement, inspect};

use crate::gpu::{devices, gpu};

/// `p[i] += 1` for `i < n`.
#[kernel]
pub fn add_one<const BLOCK: usize>(p: PtrMut<i32>, n: i64) {
    let i = program_id(0) * BLOCK + arange::<BLOCK>();
    store(p + i, load(p + i, i < n) + 1, i < n);
}

/// Stops where an element is negative.
#[kernel]
pub fn checked<const BLOCK: usize>(x: View<f32, 1>) {
    let v = x.load::<BLOCK>([program_id(0) * BLOCK]);
    device_assert!(v >= 0.0, "x must not be negative");
}

/// Prints a scalar and a tile.
#[kernel]
pub fn printed<const BLOCK: usize>(n: i64) {
    device_print!("n is {}, 100%", n);
    device_print!("a tile: {}", arange::<BLOCK>() * 10);
}

pub(crate) fn launch_add_one(p: &mut Array<i32>, n: i64) -> Result<(), Error> {
    let (stream, grid) = (p.stream().clone(), Grid::x(p.len().div_ceil(64)));
    // SAFETY: tests that give a larger `n` than there are elements do so where it is checked.
    unsafe { add_one::launch(&stream, grid, add_one::Consts { BLOCK: 64 }, (p, n)) }
}

/// Says to a process that it is the one that a test started.
const CHILD: &str = "GENESIS_TEST_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs a test of this file again in a process of its own, on a device.
fn run_child(test: &str, device: Device, knobs: &[(&str, &Path)]) -> anyhow::Result<Output> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([&format!("runtime::{test}"), "--exact", "--nocapture"]);
    command.env(CHILD, "1").env("GENESIS_DEVICE", device.to_string());
    command.envs(knobs.iter().copied());
    Ok(command.output()?)
}

/// What a child printed, if it passed.
fn passed(child: Output) -> anyhow::Result<String> {
    let text = [&child.stdout[..], &child.stderr[..]].map(String::from_utf8_lossy).concat();
    ensure!(child.status.success() && text.contains("1 passed"), "{text}");
    Ok(text)
}

#[test]
fn bytes_go_to_the_gpu_and_back() -> Result<(), Error> {
    let Some(device) = gpu("copies") else { return Ok(()) };
    let stream = device.stream();
    let buffer = Buffer::from_bytes(&stream, &[1, 2, 3, 4, 5, 6, 7, 8])?;
    assert_eq!(buffer.address() % 256, 0);
    buffer.copy_from(2, &Buffer::from_bytes(&stream, &[1, 2, 3, 4, 5, 6])?, 0, 6)?;
    assert_eq!(buffer.to_bytes()?, [1, 2, 1, 2, 3, 4, 5, 6]);
    let host = buffer.to_stream(&Device::Cpu.stream())?;
    assert_eq!(host.to_bytes()?, [1, 2, 1, 2, 3, 4, 5, 6]);
    buffer.fill(7)?;
    assert_eq!(buffer.to_bytes()?, [7; 8]);
    Ok(())
}

#[test]
fn launches_run_in_order() -> Result<(), Error> {
    let Some(device) = gpu("launches") else { return Ok(()) };
    let mut x = device.stream().upload(&[10, 20, 30])?;
    for _ in 0..2000 {
        launch_add_one(&mut x, 2)?;
    }
    assert_eq!(x.to_vec()?, [2010, 2020, 30]);
    assert_eq!(add_one::KERNEL.compiled_count(), 1);
    Ok(())
}

#[test]
fn what_does_not_fit_the_gpu_is_refused() -> Result<(), Error> {
    let Some(device) = gpu("refusals of launches") else { return Ok(()) };
    let stream = device.stream();
    let mut on_cpu = Device::Cpu.stream().upload(&[1i32; 4])?;
    let consts = || add_one::Consts { BLOCK: 64 };
    // SAFETY: refused before anything is accessed.
    let error = unsafe { add_one::launch(&stream, Grid::x(1), consts(), (&mut on_cpu, 4i64)) };
    let text = error.unwrap_err().to_string();
    assert_eq!(text, "add_one: argument `p` is on cpu, the launch is on cuda:0");
    let mut x = stream.upload(&[1i32; 4])?;
    // SAFETY: as above.
    let error = unsafe { add_one::launch(&stream, Grid::xy(1, 70_000), consts(), (&mut x, 4i64)) };
    let text = error.unwrap_err().to_string();
    assert_eq!(text, "add_one: the grid has 70000 programs along y, it may have 0 to 65535");
    assert_eq!(x.to_vec()?, [1; 4]);
    Ok(())
}

#[test]
fn running_out_of_gpu_memory_is_not_the_end() -> Result<(), Error> {
    let Some(device) = gpu("running out of memory") else { return Ok(()) };
    let stream = device.stream();
    let error = Buffer::uninit(&stream, 1 << 50).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    assert!(error.to_string().contains("asked cuda:0 for 1024.0 TiB"), "{error}");
    assert_eq!(Buffer::zeroed(&stream, 4)?.to_bytes()?, [0; 4]);
    Ok(())
}

/// Writes 7 where a tile of `x` at these coordinates is inside, and counts what it reads there.
#[kernel]
pub fn poke<T: Number, const M: usize, const N: usize>(
    x: ViewMut<T, 2>,
    seen: ViewMut<i64, 1>,
    i: i64,
    j: i64,
) {
    let read = x.load::<M, N>([i, j]).to::<i64>();
    seen.store([0], sum(sum(read, 1), 0));
    x.store([maximum(i, 0), maximum(j, 0)], full::<T, M, N>(T::from(7)));
}

/// Tiles that leave a view of 3 by 5 inside an array, far away and around the ends of the integers.
fn poke_around<T: Number + HostElement>(device: Device, of: fn(u8) -> T) -> Result<(), Error> {
    let stream = device.stream();
    let mut seen = Array::<i64>::zeros(&stream, 1)?;
    for (strides, near) in [([8, 1], [i64::MIN, -3, i64::MAX - 4]), ([-8, 1], [1, i64::MAX, -9])] {
        for (i, j) in near.iter().flat_map(|&i| near.map(|j| (i, j))) {
            let mut x = stream.upload(&[of(1); 96])?;
            let view = x.strided_mut(48, [3, 5], strides)?;
            let consts = poke::Consts { M: 8, N: 16 };
            poke::launch::<T>(&stream, Grid::x(1), consts, (view, &mut seen, i, j))?;
            let (mut expected, mut read) = (vec![of(1); 96], 0);
            for (row, column) in (0..3).flat_map(|row| (0..5).map(move |column| (row, column))) {
                let inside = |i: i64, j: i64| {
                    let (down, right) = (row - i128::from(i), column - i128::from(j));
                    (0..8).contains(&down) && (0..16).contains(&right)
                };
                let at = 48 + row as i64 * strides[0] + column as i64 * strides[1];
                read += i64::from(inside(i, j));
                if inside(i.max(0), j.max(0)) {
                    expected[at as usize] = of(7);
                }
            }
            assert_eq!(x.to_vec()?, expected, "{strides:?} at [{i}, {j}]");
            assert_eq!(seen.to_vec()?, [read], "{strides:?} at [{i}, {j}]");
        }
    }
    Ok(())
}

#[test]
fn no_coordinate_leaves_a_view() -> Result<(), Error> {
    let Some(device) = gpu("coordinates") else { return Ok(()) };
    poke_around::<u8>(device, |value| value)?;
    poke_around::<f32>(device, f32::from)
}

#[test]
fn the_drivers_assembler_says_what_is_wrong() {
    let Some(device) = gpu("the driver's assembler") else { return };
    let ptx = ".version 8.0\n.target sm_80\nnonsense\n";
    let error = inspect::assemble_by_driver(device, ptx).unwrap_err().to_string();
    assert!(error.contains("the driver's assembler refuses our PTX"), "{error}");
}

#[test]
fn a_bad_address_breaks_the_gpu_for_good() -> anyhow::Result<()> {
    if is_child() {
        let stream = Device::Cuda(0).stream();
        let nowhere = PtrArg {
            device: Device::Cuda(0),
            address: 1 << 12,
            bytes: 256,
            dtype: DType::I32,
            mutable: true,
        };
        let args = [Arg::Ptr(nowhere), AsScalar::<i64>::as_arg(&64i64).arg()];
        // SAFETY: the access it makes is what the test is about; this process ends with it.
        unsafe { add_one::KERNEL.launch(&stream, Grid::x(1), &[], &[64], &args)? };
        let error = stream.synchronize().err().context("the access was not noticed")?;
        ensure!(error.is_device_lost() && error.to_string().contains("`add_one`"), "{error}");
        ensure!(Buffer::uninit(&stream, 4).is_err_and(|error| error.is_device_lost()));
        ensure!(stream.is_lost() && stream.synchronize().is_err_and(|e| e.is_device_lost()));
        return Ok(());
    }
    let Some(device) = gpu("a fault in a kernel") else { return Ok(()) };
    passed(run_child("a_bad_address_breaks_the_gpu_for_good", device, &[])?).map(drop)
}

#[test]
fn a_failed_assertion_is_named() -> anyhow::Result<()> {
    if is_child() {
        let stream = Device::default().stream();
        let consts = || checked::Consts { BLOCK: 128 };
        let good = stream.upload(&[1.0f32; 300])?;
        checked::launch(&stream, Grid::x(3), consts(), (&good,))?;
        stream.synchronize()?;
        let mut values = [1.0f32; 300];
        values[200] = -2.0;
        let bad = stream.upload(&values)?;
        let launched = checked::launch(&stream, Grid::x(3), consts(), (&bad,));
        let error = launched.and_then(|()| stream.synchronize()).err().context("it holds")?;
        let text = error.to_string();
        ensure!(text.contains("`checked`") || text.starts_with("checked"), "{text}");
        ensure!(text.contains("runtime.rs:") && text.contains("x must not be negative"), "{text}");
        ensure!(error.is_device_lost() == Device::default().is_cuda());
        if Device::default().is_cuda() {
            ensure!(text.contains(" and 0 were compared), in program ["), "{text}");
            ensure!(text.contains(" of its tile"), "{text}");
        }
        // A program whose device is lost still ends in good order.
        drop((good, bad));
        return Ok(());
    }
    for device in devices("device_assert!") {
        passed(run_child("a_failed_assertion_is_named", device, &[])?)?;
    }
    Ok(())
}

#[test]
fn prints_reach_the_terminal() -> anyhow::Result<()> {
    if is_child() {
        let stream = Device::default().stream();
        printed::launch(&stream, Grid::x(1), printed::Consts { BLOCK: 4 }, (7i64,))?;
        return Ok(stream.synchronize()?);
    }
    for device in devices("device_print!") {
        let text = passed(run_child("prints_reach_the_terminal", device, &[])?)?;
        let count = |part: &str| text.matches(part).count();
        ensure!(count("n is 7, 100%") == 1, "{text}");
        match device {
            Device::Cpu => ensure!(count("a tile: [0, 10, 20, 30]") == 1, "{text}"),
            Device::Cuda(_) => (0..4).try_for_each(|i| {
                let line = format!("[{i}] a tile: {}\n", 10 * i);
                ensure!(count(&line) == 1, "{text}");
                Ok(())
            })?,
        }
    }
    Ok(())
}

/// The entries of a cache, with their sizes.
fn entries(dir: &Path) -> anyhow::Result<Vec<(PathBuf, u64)>> {
    let files = std::fs::read_dir(dir)?.map(|file| {
        let file = file?;
        Ok((file.path(), file.metadata()?.len()))
    });
    files.collect()
}

#[test]
fn compiled_kernels_are_kept_on_disk() -> anyhow::Result<()> {
    if is_child() {
        let mut x = Device::default().stream().upload(&[1, 2, 3])?;
        launch_add_one(&mut x, 3)?;
        ensure!(x.to_vec()? == [2, 3, 4]);
        return Ok(());
    }
    let Some(device) = gpu("the cache on disk") else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let dir = folder.path().join("cache");
    let run = || {
        passed(run_child(
            "compiled_kernels_are_kept_on_disk",
            device,
            &[("GENESIS_CACHE_DIR", &dir)],
        )?)
    };
    run()?;
    let first = entries(&dir)?;
    ensure!(first.len() == 1, "{first:?}");
    run()?;
    ensure!(entries(&dir)? == first);
    // What is broken is compiled anew and replaced.
    let (path, bytes) = &first[0];
    std::fs::File::options().write(true).open(path)?.set_len(bytes / 2)?;
    run()?;
    ensure!(entries(&dir)? == first);
    Ok(())
}

#[test]
fn bounds_are_checked_where_it_is_wished() -> anyhow::Result<()> {
    if is_child() {
        let stream = Device::default().stream();
        let mut x = stream.upload(&[1, 2, 3])?;
        launch_add_one(&mut x, 3)?;
        ensure!(x.to_vec()? == [2, 3, 4]);
        let error = launch_add_one(&mut x, 4).err().context("nothing was noticed")?.to_string();
        ensure!(error.starts_with("add_one: ") && error.contains("`p`"), "{error}");
        ensure!(x.to_vec()? == [2, 3, 4]);
        return Ok(());
    }
    for device in devices("GENESIS_CHECK=bounds") {
        let knobs = [("GENESIS_CHECK", Path::new("bounds"))];
        passed(run_child("bounds_are_checked_where_it_is_wished", device, &knobs)?)?;
    }
    Ok(())
}
