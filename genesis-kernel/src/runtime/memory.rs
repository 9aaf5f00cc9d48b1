//! The memory of a device: what is in use, what is kept, and how much it may be.

use super::cuda;
use super::device::Device;
use super::pool::{Ledger, MemorySnapshot, MemoryStats};
use crate::diag::Error;

impl Device {
    fn ledger(self) -> Result<&'static Ledger, Error> {
        Ok(self.default_stream().arena()?.ledger())
    }

    /// Bytes of live blocks.
    ///
    /// # Errors
    /// If the GPU can't be used, as for all of these.
    pub fn memory_allocated(self) -> Result<usize, Error> {
        Ok(self.ledger()?.allocated())
    }

    /// Sizes and counts.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn memory_stats(self) -> Result<MemoryStats, Error> {
        Ok(self.ledger()?.stats())
    }

    /// Every segment and block.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn memory_snapshot(self) -> Result<MemorySnapshot, Error> {
        Ok(self.ledger()?.snapshot())
    }

    /// Lets peaks begin at what is in use now.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn reset_peak_memory_stats(self) -> Result<(), Error> {
        self.ledger()?.reset_peaks();
        Ok(())
    }

    /// Sets what this process may hold of the device's memory in all, in bytes; none for as much as there
    /// is. What it holds already stays.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn set_memory_limit(self, limit: Option<usize>) -> Result<(), Error> {
        self.ledger()?.set_limit(limit);
        Ok(())
    }

    /// Free and total bytes of the device, whoever has the rest; none where the system does not say.
    ///
    /// # Errors
    /// If the GPU can't be used.
    pub fn memory_space(self) -> Result<Option<(usize, usize)>, Error> {
        Ok(self.ledger()?.space())
    }

    /// Gives memory that is kept for reuse back to the system. Waits for the device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn release_memory(self) -> Result<(), Error> {
        self.ledger()?.release_free()
    }
}

/// Sizes and counts of pinned host memory; none without a GPU.
pub fn pinned_memory_stats() -> Option<MemoryStats> {
    Some(cuda::pinned_arena().ok()?.ledger().stats())
}

/// Every segment and block of pinned host memory; none without a GPU.
pub fn pinned_memory_snapshot() -> Option<MemorySnapshot> {
    Some(cuda::pinned_arena().ok()?.ledger().snapshot())
}
