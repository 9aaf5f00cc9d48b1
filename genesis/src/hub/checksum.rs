//! What the hub promises of a file: its SHA-256 where it is stored as a large file, else git's hash of it.

use std::path::Path;

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

use crate::error::{Error, Result};
use crate::files::Mapped;

/// Bytes that are hashed at a time.
const PART: usize = 1 << 20;

/// Compares a file with the hash that its ETag is.
///
/// # Errors
/// If it can't be read, or hashes to something else. An ETag of another form promises nothing.
pub(super) fn check(path: &Path, name: &str, etag: &str) -> Result<()> {
    let bytes = Mapped::open(path)?;
    let is_hex = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (algorithm, mut context) = match etag.len() {
        64 if is_hex => ("SHA-256", Context::new(&SHA256)),
        40 if is_hex => {
            let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
            context.update(format!("blob {}\0", bytes.len()).as_bytes());
            ("git hash", context)
        }
        _ => return Ok(()),
    };
    bytes.chunks(PART).for_each(|part| context.update(part));
    let digest = context.finish();
    let found: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    if found.eq_ignore_ascii_case(etag) {
        return Ok(());
    }
    Err(Error::io(format!("{name} is damaged: its {algorithm} is {found}, {etag} was promised")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_git_and_of_large_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "hello\n").unwrap();
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        for etag in [sha256, "ce013625030ba8dba906f756967f9e9ca394464a", "W-other"] {
            check(&path, "x", etag).unwrap();
        }
        let error = check(&path, "x", &sha256.replace('5', "6")).unwrap_err().to_string();
        assert!(error.starts_with("x is damaged: its SHA-256 is 5891"), "{error}");
        assert!(check(&path, "x", &"0".repeat(40)).is_err());
    }
}
