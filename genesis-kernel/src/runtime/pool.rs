//! Free lists of memory by size class.
//!
//! A size is rounded up to a class: eight classes between powers of two, so that at most an eighth
//! is lost. What is freed waits in its class for the next request of that class. The lists of a GPU
//! are in the order of its one stream: memory freed on the host is handed out again while kernels
//! that use it may still run, and whoever gets it queues behind them.

use std::alloc::{self, Layout};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::diag::Error;
use crate::knobs;

/// Free blocks by class.
#[derive(Debug, Default)]
pub(crate) struct FreeLists {
    blocks: BTreeMap<usize, Vec<u64>>,
    /// Bytes of all free blocks.
    free_bytes: usize,
}

impl FreeLists {
    pub(crate) const fn new() -> FreeLists {
        FreeLists { blocks: BTreeMap::new(), free_bytes: 0 }
    }

    /// Takes a block of this class.
    pub(crate) fn take(&mut self, class: usize) -> Option<u64> {
        let address = self.blocks.get_mut(&class)?.pop()?;
        self.free_bytes -= class;
        Some(address)
    }

    /// Puts a block back.
    pub(crate) fn put(&mut self, class: usize, address: u64) {
        self.blocks.entry(class).or_default().push(address);
        self.free_bytes += class;
    }

    /// Takes everything, to give it back to the system: classes and addresses.
    pub(crate) fn drain(&mut self) -> Vec<(usize, u64)> {
        self.free_bytes = 0;
        std::mem::take(&mut self.blocks)
            .into_iter()
            .flat_map(|(class, addresses)| addresses.into_iter().map(move |a| (class, a)))
            .collect()
    }

    /// Bytes of all free blocks.
    pub(crate) fn free_bytes(&self) -> usize {
        self.free_bytes
    }
}

/// The class of a size: the next of eight steps between powers of two, at least `smallest` (a power
/// of two). None if the size fits into no memory.
pub(crate) fn size_class(bytes: usize, smallest: usize) -> Option<usize> {
    if bytes <= smallest {
        return Some(smallest);
    }
    let step = (bytes.checked_next_power_of_two()? / 16).max(smallest);
    bytes.checked_next_multiple_of(step)
}

/// The alignment of CPU memory: a cache line, and the widest vector.
const HOST_ALIGN: usize = 64;
/// Freed CPU memory kept for reuse; more goes back to the system.
const HOST_KEPT: usize = 1 << 30;

static HOST: Mutex<FreeLists> = Mutex::new(FreeLists::new());

/// CPU memory. A size of 0 gives an address that must not be accessed.
pub(super) fn host_alloc(bytes: usize) -> Result<u64, Error> {
    if bytes == 0 {
        return Ok(HOST_ALIGN as u64);
    }
    let layout = host_layout(bytes).ok_or_else(|| host_oom(bytes))?;
    let mut lists = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(address) = lists.take(layout.size()) {
        return Ok(address);
    }
    drop(lists);
    // SAFETY: the size is not zero.
    let mut address = unsafe { alloc::alloc(layout) } as u64;
    if address == 0 {
        host_release();
        // SAFETY: the size is not zero.
        address = unsafe { alloc::alloc(layout) } as u64;
    }
    if address == 0 { Err(host_oom(bytes)) } else { Ok(address) }
}

/// Puts CPU memory of [`host_alloc`] back.
pub(super) fn host_free(address: u64, bytes: usize) {
    let Some(layout) = host_layout(bytes).filter(|_| bytes != 0) else { return };
    let mut lists = HOST.lock().unwrap_or_else(PoisonError::into_inner);
    if knobs::get().pool && lists.free_bytes() + layout.size() <= HOST_KEPT {
        lists.put(layout.size(), address);
    } else {
        drop(lists);
        // SAFETY: `host_alloc` allocated it with this layout, which follows from the size.
        unsafe { alloc::dealloc(address as usize as *mut u8, layout) };
    }
}

/// Gives all free CPU memory back to the system.
pub(super) fn host_release() {
    let blocks = HOST.lock().unwrap_or_else(PoisonError::into_inner).drain();
    for (class, address) in blocks {
        let layout = Layout::from_size_align(class, HOST_ALIGN)
            .expect("a class in the lists was a valid layout when it was allocated");
        // SAFETY: a block in the lists was allocated with the layout of its class.
        unsafe { alloc::dealloc(address as usize as *mut u8, layout) };
    }
}

fn host_layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(size_class(bytes, HOST_ALIGN)?, HOST_ALIGN).ok()
}

fn host_oom(bytes: usize) -> Error {
    Error::out_of_memory(format!("asked the CPU for {bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_lose_an_eighth_at_most() {
        for bytes in (1..70_000).chain([1 << 30, (1 << 30) + 1, 3_000_000_001]) {
            let class = size_class(bytes, 64).unwrap();
            assert!(class >= bytes && class.is_multiple_of(64), "{bytes} -> {class}");
            assert!(class - bytes <= (bytes / 8).max(63), "{bytes} -> {class}");
            assert_eq!(size_class(class, 64), Some(class));
        }
        assert_eq!(size_class(usize::MAX, 64), None);
    }

    #[test]
    fn freed_blocks_are_taken_again() {
        let mut lists = FreeLists::new();
        lists.put(128, 7);
        lists.put(128, 8);
        assert_eq!(lists.free_bytes(), 256);
        assert_eq!((lists.take(64), lists.take(128), lists.take(128)), (None, Some(8), Some(7)));
        lists.put(64, 1);
        assert_eq!(lists.drain(), [(64, 1)]);
        assert_eq!((lists.free_bytes(), lists.take(64)), (0, None));
    }
}
