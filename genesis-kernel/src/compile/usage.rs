//! What machine code of a GPU uses, as `ptxas` says. It takes several times as long as the compilation to PTX, so the
//! report is kept on disk: the same PTX is assembled once by the same assembler.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::kept::{disk, keep};
use crate::cache::{Key, UsageEntry};
use crate::codegen::nvptx::ptxas;
use crate::diag::Error;

/// The report on some PTX for an architecture such as `sm_90a`.
///
/// # Errors
/// If the assembler can't be run or refuses the PTX; the error has its words.
pub(super) fn of(assembler: &Path, ptx: &str, arch: &str) -> Result<UsageEntry, Error> {
    let (disk, key) = (disk(), key(assembler, ptx, arch));
    let kept = disk.zip(key).and_then(|(disk, key)| disk.get(&key));
    if let Some(entry) = kept.and_then(|bytes| UsageEntry::from_bytes(&bytes)) {
        return Ok(entry);
    }
    let found = ptxas::assemble(assembler, ptx, arch)?;
    let entry = UsageEntry {
        registers: found.registers,
        spill_bytes: found.stack_bytes.max(found.spill_stores),
        shared_bytes: found.shared_bytes,
        warnings: found.warnings,
    };
    if let (Some(disk), Some(key)) = (disk, key) {
        keep(disk, &key, &entry.to_bytes());
    }
    Ok(entry)
}

/// An assembler is known by its path, size and time: another version of it is another file.
fn key(assembler: &Path, ptx: &str, arch: &str) -> Option<Key> {
    let metadata = fs::metadata(assembler).ok()?;
    let age = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let path = assembler.as_os_str().as_encoded_bytes();
    let (size, time) = (metadata.len().to_le_bytes(), age.as_nanos().to_le_bytes());
    Some(Key::of(&[b"usage", path, &size, &time, arch.as_bytes(), ptx.as_bytes()]))
}
