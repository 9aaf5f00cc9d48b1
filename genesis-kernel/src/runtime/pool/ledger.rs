//! What the arenas of a device hold together, and how much that may be.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::snapshot::{MemorySnapshot, MemoryStats};
use super::stream_blocks::StreamBlocks;
use super::watch::{self, MemoryEvent, MemoryEventKind};
use super::{Label, System, exhausted};
use crate::diag::Error;
use crate::knobs;
use crate::runtime::{Device, fork};

/// The memory of a device.
pub(crate) struct Ledger {
    pub(super) device: Device,
    /// What people call it: `cpu`, `cuda:0`, `pinned host memory`.
    pub(super) name: String,
    pub(super) system: &'static dyn System,
    streams: Mutex<Vec<&'static StreamBlocks>>,
    allocated: AtomicUsize,
    peak_allocated: AtomicUsize,
    reserved: AtomicUsize,
    peak_reserved: AtomicUsize,
    limit: AtomicUsize,
    counts: Counts,
}

/// How often something rare happened.
#[derive(Debug, Default)]
struct Counts {
    segments_reserved: AtomicU64,
    segments_released: AtomicU64,
    retries: AtomicU64,
    exhausted: AtomicU64,
}

impl Ledger {
    pub(crate) fn new(device: Device, name: String, system: &'static dyn System) -> Ledger {
        fork::watch();
        Ledger {
            device,
            name,
            system,
            streams: Mutex::default(),
            allocated: AtomicUsize::new(0),
            peak_allocated: AtomicUsize::new(0),
            reserved: AtomicUsize::new(0),
            peak_reserved: AtomicUsize::new(0),
            limit: AtomicUsize::new(usize::MAX),
            counts: Counts::default(),
        }
    }

    /// Adds the blocks of a stream to what the device holds, for good.
    pub(super) fn add(&self, blocks: &'static StreamBlocks) {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(blocks);
    }

    /// The blocks of each stream.
    fn all(&self) -> Vec<&'static StreamBlocks> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of free segments that an arena keeps.
    pub(super) fn keeps(&self) -> usize {
        if knobs::get().pool { self.system.keeps() } else { 0 }
    }

    #[inline]
    pub(super) fn note_alloc(&self, bytes: usize) {
        let now = self.allocated.fetch_add(bytes, Relaxed) + bytes;
        if now > self.peak_allocated.load(Relaxed) {
            self.peak_allocated.fetch_max(now, Relaxed);
        }
    }

    #[inline]
    pub(super) fn note_free(&self, bytes: usize) {
        self.allocated.fetch_sub(bytes, Relaxed);
    }

    /// A segment of the system, if the limit allows and it has one.
    pub(super) fn reserve(&self, bytes: usize, stream: u64) -> Result<Option<u64>, Error> {
        let limit = self.limit.load(Relaxed).min(self.system.most());
        let grown = self.reserved.fetch_update(Relaxed, Relaxed, |reserved| {
            reserved.checked_add(bytes).filter(|&all| all <= limit)
        });
        let Ok(before) = grown else { return Ok(None) };
        match self.system.reserve(bytes) {
            Ok(Some(address)) => {
                self.peak_reserved.fetch_max(before + bytes, Relaxed);
                self.counts.segments_reserved.fetch_add(1, Relaxed);
                self.tell(MemoryEventKind::Reserve, stream, address, bytes);
                Ok(Some(address))
            }
            other => {
                self.reserved.fetch_sub(bytes, Relaxed);
                other
            }
        }
    }

    /// Whether a segment of so many bytes makes what is held the most ever, where it is kept for good.
    pub(super) fn would_be_most(&self, bytes: usize) -> bool {
        let (now, most) = (self.reserved.load(Relaxed), self.peak_reserved.load(Relaxed));
        self.keeps() == usize::MAX && now.saturating_add(bytes) > most
    }

    /// Gives a segment back to the system.
    pub(super) fn release(&self, address: u64, bytes: usize, stream: u64) -> Result<(), Error> {
        self.system.release(address, bytes)?;
        self.reserved.fetch_sub(bytes, Relaxed);
        self.counts.segments_released.fetch_add(1, Relaxed);
        self.tell(MemoryEventKind::Release, stream, address, bytes);
        Ok(())
    }

    /// Gives every segment without a live block back to the system; those of private pools stay.
    pub(crate) fn release_free(&self) -> Result<(), Error> {
        if !self.system.settle()? {
            return Ok(());
        }
        for blocks in self.all() {
            for (address, bytes) in blocks.drain() {
                self.release(address, bytes, blocks.stream())?;
            }
        }
        Ok(())
    }

    /// Like [`Ledger::release_free`], for a request that found no memory.
    pub(super) fn make_room(&self) -> Result<(), Error> {
        self.counts.retries.fetch_add(1, Relaxed);
        self.release_free()
    }

    /// That there is no memory for a request, and what can be said about it.
    #[cold]
    pub(super) fn exhausted(&self, request: usize, label: &Label, stream: u64) -> Error {
        self.counts.exhausted.fetch_add(1, Relaxed);
        self.tell(MemoryEventKind::OutOfMemory, stream, 0, request);
        exhausted::describe(&self.snapshot(), self.space(), request, label)
    }

    #[inline]
    pub(super) fn tell(&self, kind: MemoryEventKind, stream: u64, address: u64, bytes: usize) {
        watch::tell(|| MemoryEvent {
            kind,
            device: self.device,
            stream,
            address,
            bytes,
            allocated: self.allocated.load(Relaxed),
            reserved: self.reserved.load(Relaxed),
        });
    }

    /// Bytes of live blocks.
    pub(crate) fn allocated(&self) -> usize {
        self.allocated.load(Relaxed)
    }

    /// Sets what may be held from the system in all; none for as much as it has.
    pub(crate) fn set_limit(&self, limit: Option<usize>) {
        self.limit.store(limit.unwrap_or(usize::MAX), Relaxed);
    }

    /// What may be held from the system in all.
    pub(crate) fn limit(&self) -> Option<usize> {
        Some(self.limit.load(Relaxed)).filter(|&limit| limit != usize::MAX)
    }

    /// Free and total bytes of the machine.
    pub(crate) fn space(&self) -> Option<(usize, usize)> {
        self.system.space()
    }

    /// Lets peaks begin at what is in use now.
    pub(crate) fn reset_peaks(&self) {
        self.peak_allocated.store(self.allocated.load(Relaxed), Relaxed);
        self.peak_reserved.store(self.reserved.load(Relaxed), Relaxed);
    }

    /// Sizes and counts.
    pub(crate) fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats {
            allocated: self.allocated.load(Relaxed),
            reserved: self.reserved.load(Relaxed),
            peak: self.peak_allocated.load(Relaxed),
            peak_reserved: self.peak_reserved.load(Relaxed),
            limit: self.limit(),
            segments_reserved: self.counts.segments_reserved.load(Relaxed),
            segments_released: self.counts.segments_released.load(Relaxed),
            retries: self.counts.retries.load(Relaxed),
            out_of_memory: self.counts.exhausted.load(Relaxed),
            ..MemoryStats::default()
        };
        self.all().iter().for_each(|blocks| blocks.add_stats(&mut stats));
        stats
    }

    /// Every segment and block.
    pub(crate) fn snapshot(&self) -> MemorySnapshot {
        let segments = self.all().iter().flat_map(|blocks| blocks.snapshot()).collect();
        MemorySnapshot { device: self.name.clone(), stats: self.stats(), segments }
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("name", &self.name).finish_non_exhaustive()
    }
}
