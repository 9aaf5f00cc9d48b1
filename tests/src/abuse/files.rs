//! Damaged files, by number.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};
use genesis::data::SampleRng;

use crate::mutate::{Format, formats, mutated};

/// The formats and a folder for their files.
pub(super) struct Files {
    formats: Vec<Format>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Files {
    /// Those whose names begin with `only`, where it is given.
    pub(super) fn new(only: Option<&str>) -> Result<Files> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("mutated");
        let mut formats = formats(folder.path())?;
        formats.retain(|format| only.is_none_or(|only| format.name.starts_with(only)));
        Ok(Files { formats, path, _folder: folder })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.formats.is_empty()
    }

    /// Reads each file as it is, which fills the caches of the process.
    pub(super) fn read_valid(&self) -> Result<()> {
        for format in &self.formats {
            fs::write(&self.path, (format.mend)(format.valid.clone()))?;
            if !(format.read)(&self.path) {
                bail!("{}: the valid file is refused", format.name);
            }
        }
        Ok(())
    }

    /// The format of file `number`.
    pub(super) fn format(&self, number: u64) -> &Format {
        &self.formats[(number % self.formats.len() as u64) as usize]
    }

    /// Writes file `number`; its length.
    pub(super) fn write(&self, number: u64) -> Result<usize> {
        let format = self.format(number);
        let bytes = (format.mend)(mutated(format, &mut SampleRng::new(number)));
        fs::write(&self.path, &bytes)?;
        Ok(bytes.len())
    }

    /// Reads what was written last; whether it was accepted.
    pub(super) fn read(&self, number: u64) -> bool {
        (self.format(number).read)(&self.path)
    }
}
