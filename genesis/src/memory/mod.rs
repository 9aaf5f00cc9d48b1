//! What a device's memory is used for, under PyTorch's names.
//!
//! Memory that tensors leave behind is kept for the next ones: *allocated* is what live tensors hold,
//! *reserved* what the process holds of the device, both in bytes. It is the same on the CPU.
//!
//! ```
//! use genesis::{Device, Tensor, memory};
//!
//! let device = Device::Cpu;
//! let before = memory::memory_allocated(device)?;
//! let x = Tensor::zeros(&[1024, 1024], device)?;
//! assert!(memory::max_memory_allocated(device)? >= before.min(4 << 20));
//! println!("{}", memory::memory_summary(device)?);
//! # drop(x);
//! # Ok::<(), genesis::Error>(())
//! ```
//!
//! # When memory runs out
//! What is free goes back to the system and the request is tried again. Then it is an error
//! ([`Error::is_out_of_memory`](crate::Error::is_out_of_memory)) that names the largest live tensors and
//! says what may help; the process goes on, for example with a smaller batch. Lines of the program are
//! named where [`record_memory_history`] or `GENESIS_MEMORY_HISTORY=1` had them recorded.

mod html;
mod snapshot;
mod summary;

use std::panic::Location;

use genesis_kernel::runtime::{Device, Site, record_history, with_site};
pub use genesis_kernel::runtime::{
    MemoryEvent, MemoryEventKind, MemoryPool, MemoryStats, set_memory_hook,
};

use crate::error::{Error, Result};

pub use snapshot::{
    BlockRecord, DeviceRecord, SegmentRecord, SnapshotFile, dump_snapshot, memory_snapshot,
};
pub use summary::memory_summary;

/// Bytes that live tensors hold on a device, as they are rounded by the allocator.
///
/// # Errors
/// If the device can't be used, as for all of these.
pub fn memory_allocated(device: Device) -> Result<usize> {
    Ok(device.memory_allocated()?)
}

/// Bytes that this process holds of a device: live tensors, and what is kept for the next ones.
///
/// # Errors
/// If the device can't be used.
pub fn memory_reserved(device: Device) -> Result<usize> {
    Ok(device.memory_stats()?.reserved)
}

/// The most bytes that live tensors held at once, since [`reset_peak_memory_stats`].
///
/// # Errors
/// If the device can't be used.
pub fn max_memory_allocated(device: Device) -> Result<usize> {
    Ok(device.memory_stats()?.peak)
}

/// The most bytes that this process held of the device, since [`reset_peak_memory_stats`].
///
/// # Errors
/// If the device can't be used.
pub fn max_memory_reserved(device: Device) -> Result<usize> {
    Ok(device.memory_stats()?.peak_reserved)
}

/// Lets both peaks begin at what is in use now.
///
/// # Errors
/// If the device can't be used.
pub fn reset_peak_memory_stats(device: Device) -> Result<()> {
    Ok(device.reset_peak_memory_stats()?)
}

/// Sizes, peaks and counts; [`MemoryStats::hit_rate`] and [`MemoryStats::fragmentation`] come from them.
///
/// # Errors
/// If the device can't be used.
pub fn memory_stats(device: Device) -> Result<MemoryStats> {
    Ok(device.memory_stats()?)
}

/// Free and total bytes of a device, whoever holds the rest.
///
/// # Errors
/// If the device can't be used or does not say.
pub fn mem_get_info(device: Device) -> Result<(usize, usize)> {
    let space = device.memory_space()?;
    space.ok_or_else(|| Error::op("mem_get_info", format!("{device} does not say")))
}

/// Gives memory that is kept for the next tensors back to the system, for other processes to use. Waits
/// for the device. What this process needs it asks for again, which takes time.
///
/// # Errors
/// If the device fails.
pub fn empty_cache(device: Device) -> Result<()> {
    Ok(device.release_memory()?)
}

/// Lets this process hold at most so many bytes of a device; none for as much as there is.
///
/// # Errors
/// If the device can't be used.
pub fn set_memory_limit(device: Device, bytes: Option<usize>) -> Result<()> {
    Ok(device.set_memory_limit(bytes)?)
}

/// Lets this process hold at most a part of a device's memory.
///
/// # Errors
/// If the part is not in 0 to 1, or the device does not say how much it has.
pub fn set_per_process_memory_fraction(device: Device, fraction: f64) -> Result<()> {
    const NAME: &str = "set_per_process_memory_fraction";
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Error::op(NAME, format!("the part must be in 0 to 1, got {fraction}")));
    }
    let (_, total) = mem_get_info(device)?;
    set_memory_limit(device, Some((total as f64 * fraction) as usize))
}

/// Switches on or off that the line which makes a tensor is recorded, of all threads. Snapshots and the
/// out-of-memory error then name it. Costs nothing while off.
///
/// Where a layer of the library makes the tensor, the line is that of the program that called the layer;
/// a program without line tables names the function.
pub fn record_memory_history(on: bool) {
    record_history(on);
}

/// Runs `f`; tensors that it makes count as made by the caller's line.
pub(crate) fn made_at<T>(caller: &'static Location<'static>, f: impl FnOnce() -> T) -> T {
    with_site(|| Site::new(caller, is_inside(caller.file())), f)
}

/// Whether a source file is one of this library.
fn is_inside(file: &str) -> bool {
    file!().strip_suffix("memory/mod.rs").is_some_and(|root| file.starts_with(root))
}

/// Bytes for people.
fn size(bytes: usize) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
