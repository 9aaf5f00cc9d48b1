//! Files mapped into memory.

use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

use super::limits::open_regular;
use crate::error::{Error, Result};

/// A file's bytes, read by the system as they are touched.
///
/// The file must not be cut or changed in place while it is mapped. Everything that Genesis writes
/// appears by a rename, which leaves a mapped file as it was.
#[derive(Debug)]
pub struct Mapped {
    /// Nothing for an empty file, which can't be mapped.
    map: Option<Mmap>,
}

impl Mapped {
    /// Maps a whole file.
    ///
    /// # Errors
    /// If it can't be opened or is not a regular file.
    pub fn open(path: &Path) -> Result<Mapped> {
        let problem = |error| Error::io(format!("can't read {}: {error}", path.display()));
        let (file, len) = open_regular(path)?;
        if len == 0 {
            return Ok(Mapped { map: None });
        }
        // SAFETY: the bytes are only read, and are undefined only if another process changes the file
        // in place, which the type's documentation rules out.
        let map = unsafe { Mmap::map(&file) }.map_err(problem)?;
        Ok(Mapped { map: Some(map) })
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}
