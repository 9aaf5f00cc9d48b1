//! Damaged files, by number.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use genesis::data::SampleRng;

use crate::mutate::{Format, formats, mutate};

/// The formats and a folder for their files.
pub(super) struct Files {
    formats: Vec<Format>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Files {
    pub(super) fn new() -> Result<Files> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("mutated");
        Ok(Files { formats: formats(folder.path())?, path, _folder: folder })
    }

    fn format(&self, number: u64) -> &Format {
        &self.formats[(number % self.formats.len() as u64) as usize]
    }

    pub(super) fn name(&self, number: u64) -> &'static str {
        self.format(number).name
    }

    /// Reads file `number`; its length.
    pub(super) fn read(&self, number: u64) -> Result<usize> {
        let format = self.format(number);
        let bytes = (format.mend)(mutate(&format.valid, &mut SampleRng::new(number)));
        fs::write(&self.path, &bytes)?;
        (format.read)(&self.path);
        Ok(bytes.len())
    }
}
