//! Writing files so that they appear whole or not at all.
//!
//! A crash may stop a process between any two writes, and a machine may lose what was not synced. So
//! bytes go to a temporary name, are synced, and get their name by a rename, which is one step; the
//! folder is synced after it, because a name is contents of the folder.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::{Error, Result};

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn cannot_write(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::io(format!("can't write {}: {error}", path.display()))
}

/// Writes a file whole or not at all.
pub(crate) fn write_file(path: &Path, parts: &[&[u8]]) -> Result<()> {
    write_by(path, |file| {
        parts.iter().try_for_each(|part| file.write_all(part)).map_err(|e| cannot_write(path, e))
    })
}

/// Writes a file whole or not at all, by what `write` puts into it. Who may read it says the umask, as for any new file.
pub(super) fn write_by(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder_of(path))
        .map_err(|e| cannot_write(path, e))?;
    write(file.as_file_mut())?;
    file.as_file().sync_all().map_err(|e| cannot_write(path, e))?;
    file.persist(path).map_err(|e| cannot_write(path, e))?;
    sync_folder(folder_of(path))
}

/// Waits until the names in a folder are on the disk.
pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| cannot_write(folder, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_for_whom_the_umask_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let [usual, whole] = ["usual", "whole"].map(|name| folder.path().join(name));
        File::create(&usual).expect("a file");
        write_file(&whole, &[b"bytes"]).expect("it is written");
        let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode(&whole), mode(&usual));
    }
}
