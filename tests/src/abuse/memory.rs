//! How much memory a call or a file takes.
//!
//! Calls launch kernels, so that what LLVM takes counts too: the pages of the process. Readers of small files
//! are measured by their own allocations and tensors, see [`crate::heap`].

use std::fs;

use anyhow::{Context, Result};
use genesis::{Device, memory};

use crate::heap;

/// The memory of the process when a call began.
pub(super) struct Meter {
    pages: Option<usize>,
    heap: usize,
    tensors: usize,
    reserved: usize,
}

impl Meter {
    /// Begins a record. Pages are looked at where `is_by_pages`.
    pub(super) fn start(is_by_pages: bool) -> Result<Meter> {
        memory::reset_peak_memory_stats(Device::Cpu)?;
        Ok(Meter {
            pages: if is_by_pages { start_of_peak() } else { None },
            heap: heap::start_of_peak(),
            tensors: memory::memory_allocated(Device::Cpu)?,
            reserved: memory::memory_reserved(Device::Cpu)?,
        })
    }

    /// The most bytes of pages beside those at the start; none where the system does not say.
    pub(super) fn pages(&self) -> Option<usize> {
        Some(peak().ok()?.saturating_sub(self.pages?))
    }

    /// The most bytes allocated and in tensors beside those at the start. What tensors are cut from is left out:
    /// it stays for the next ones.
    pub(super) fn own(&self) -> Result<usize> {
        let [_, heap] = heap::live_and_peak();
        let reserved = memory::memory_reserved(Device::Cpu)?.saturating_sub(self.reserved);
        let tensors = memory::max_memory_allocated(Device::Cpu)?.saturating_sub(self.tensors);
        Ok(heap.saturating_sub(self.heap).saturating_sub(reserved) + tensors)
    }
}

/// Starts the kernel's record of the most memory anew; what is in use now.
fn start_of_peak() -> Option<usize> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    peak().ok()
}

/// The most memory since then, in bytes.
fn peak() -> Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<usize>()? << 10)
}
