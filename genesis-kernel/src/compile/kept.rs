//! What compilations keep on disk, and where.

use std::sync::OnceLock;

use super::dump;
use crate::cache::{DiskCache, Key};
use crate::knobs;

/// The folder of compiled kernels, if there is to be one. What is there is compiled again where somebody wants to see
/// how.
pub(super) fn disk() -> Option<&'static DiskCache> {
    static DISK: OnceLock<Option<DiskCache>> = OnceLock::new();
    let open = || {
        let knobs = knobs::get();
        let dir = knobs.cache_dir.as_ref().filter(|_| !dump::wants_compilation())?;
        Some(DiskCache::new(dir, knobs.cache_size))
    };
    DISK.get_or_init(open).as_ref()
}

/// Writes an entry; a folder that somebody named and that can't be written is told once.
pub(super) fn keep(disk: &DiskCache, key: &Key, entry: &[u8]) {
    if !disk.put(key, entry) && knobs::is_given("GENESIS_CACHE_DIR") {
        let why = format!("compiled kernels can't be kept in {}", disk.dir().display());
        knobs::warn_once("GENESIS_CACHE_DIR", why);
    }
}
