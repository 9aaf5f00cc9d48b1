//! Memory of the CPU.

use std::alloc::{self, Layout};
use std::sync::OnceLock;

use super::System;
use super::arena::Arena;
use super::ledger::Ledger;
use crate::diag::Error;
use crate::runtime::Device;

/// The alignment of CPU memory, a cache line and the widest vector, as a power of two.
const ALIGN_LOG2: u32 = 6;
/// Freed CPU memory kept for reuse; more goes back to the system.
const KEPT: usize = 1 << 30;

/// The memory of the CPU. It has one arena: what is given to the CPU runs at once, whoever gives it.
pub(crate) fn arena() -> &'static Arena {
    static ARENA: OnceLock<&'static Arena> = OnceLock::new();
    ARENA.get_or_init(|| {
        let ledger = Ledger::new(Device::Cpu, Device::Cpu.to_string(), &Host);
        let ledger: &'static Ledger = Box::leak(Box::new(ledger));
        ledger.arena(0)
    })
}

/// The system's allocator.
struct Host;

impl System for Host {
    fn granule_log2(&self) -> u32 {
        ALIGN_LOG2
    }

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> Result<Option<u64>, Error> {
        let Some(layout) = layout(bytes) else { return Ok(None) };
        // SAFETY: no segment is of 0 bytes.
        let address = unsafe { alloc::alloc(layout) };
        Ok(if address.is_null() { None } else { Some(address as u64) })
    }

    fn release(&self, address: u64, bytes: usize) -> Result<(), Error> {
        if let Some(layout) = layout(bytes) {
            // SAFETY: `reserve` allocated it with this layout.
            unsafe { alloc::dealloc(address as usize as *mut u8, layout) };
        }
        Ok(())
    }

    fn settle(&self) -> Result<bool, Error> {
        Ok(true)
    }

    fn keeps(&self) -> usize {
        KEPT
    }

    fn space(&self) -> Option<(usize, usize)> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let kib = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<usize>().ok()
        };
        Some((kib("MemAvailable:")? << 10, kib("MemTotal:")? << 10))
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, 1 << ALIGN_LOG2).ok()
}
