//! Modules, their kernels, and what a launch of them may be.

use std::sync::Arc;

use cudarc::driver::sys::CUresult;
use genesis_emulator::{Module, RawLaunch};

use crate::answer::Answer;

/// Shared memory of a block without asking, and with, in bytes.
pub(crate) const SHARED: u32 = 48 << 10;
pub(crate) const SHARED_OPT_IN: u32 = 227 << 10;
/// Shared memory of a multiprocessor in bytes, of which each block takes one KiB more than it asks for.
pub(crate) const SHARED_OF_ALL: u32 = 228 << 10;
pub(crate) const MULTIPROCESSORS: u32 = 132;
pub(crate) const MAX_THREADS: u32 = 1024;
const THREADS_OF_ALL: u32 = 2048;
const BLOCKS_OF_ALL: u32 = 32;
/// Registers that a thread is said to have.
pub(crate) const REGISTERS: i32 = 32;

/// A module.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) module: Module,
}

impl Code {
    pub(crate) fn name(&self) -> &str {
        self.module.name()
    }
}

/// A kernel of a loaded module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) code: Arc<Code>,
    pub(crate) device: u32,
    /// Bytes of shared memory that a launch may ask for.
    pub(crate) most_shared: u32,
    pub(crate) large_clusters: bool,
}

/// A link in progress.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) text: Vec<u8>,
    /// Where messages go: the address and the bytes there.
    pub(crate) log: Option<(u64, usize)>,
}

/// What a launch says of its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) blocks: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) shared_bytes: u32,
}

impl Function {
    /// Blocks that run on a multiprocessor at once.
    pub(crate) fn blocks_at_once(&self, threads: u32, shared_bytes: u32) -> u32 {
        let by_threads = THREADS_OF_ALL / threads.next_multiple_of(32).max(32);
        let by_shared = SHARED_OF_ALL / (shared_bytes + 1024);
        by_threads.min(by_shared).min(BLOCKS_OF_ALL)
    }

    /// Refuses what a GPU would.
    pub(crate) fn check(&self, size: &Size) -> Answer<()> {
        let wrong = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        let limits = [i32::MAX as u32, 65_535, 65_535];
        let fits = size.blocks.iter().zip(limits).all(|(&n, most)| (1..=most).contains(&n));
        let threads: u32 = size.threads.iter().product();
        if !fits || threads == 0 || threads > MAX_THREADS || size.shared_bytes > self.most_shared {
            return wrong;
        }
        if size.threads[1] != 1 || size.threads[2] != 1 {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let cluster = self.code.module.cluster();
        let blocks: u32 = cluster.iter().product();
        let most = if self.large_clusters { 16 } else { 8 };
        let is_whole = size.blocks.iter().zip(cluster).all(|(&n, of)| of > 0 && n % of == 0);
        if !is_whole || blocks > most {
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        Ok(())
    }

    /// A launch with parameters whose addresses are given.
    ///
    /// # Safety
    /// There must be as many addresses as the kernel has parameters, each of as many bytes.
    pub(crate) unsafe fn launch(&self, size: &Size, params: *const *const u8) -> RawLaunch {
        let mut bytes = Vec::new();
        for (number, (at, len)) in self.code.module.params().enumerate() {
            bytes.resize(at, 0);
            // SAFETY: by the caller's promise.
            bytes.extend(unsafe { std::slice::from_raw_parts(*params.add(number), len) });
        }
        RawLaunch {
            blocks: size.blocks,
            threads: size.threads[0],
            shared_bytes: size.shared_bytes,
            params: bytes,
        }
    }
}
