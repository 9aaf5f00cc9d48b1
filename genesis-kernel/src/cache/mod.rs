//! Compiled kernels on disk, so that a program compiles each of them once on a machine.
//!
//! What is in the folder is trusted as far as its checksum and owner go and no further: an entry that
//! is cut short, changed, of another version or not ours is as good as missing. Nothing that goes
//! wrong with the disk is an error for the program: it compiles instead.

mod disk;
mod entry;

use std::fmt;

pub use disk::DiskCache;
pub(crate) use entry::{CompiledEntry, HostEntry, UsageEntry};

/// The name of an entry: a hash of everything its contents depend on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// The key of these parts. Each is hashed with its length, so that no two lists are alike.
    pub fn of(parts: &[&[u8]]) -> Key {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Key(*hasher.finalize().as_bytes())
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lists_of_parts_are_alike() {
        assert_eq!(Key::of(&[b"ab", b"c"]), Key::of(&[b"ab", b"c"]));
        assert_ne!(Key::of(&[b"ab", b"c"]), Key::of(&[b"a", b"bc"]));
        assert_ne!(Key::of(&[b"ab"]), Key::of(&[b"ab", b""]));
    }

    #[test]
    fn prints_as_hex() {
        assert_eq!(Key([0x0f; 32]).to_string(), "0f".repeat(32));
    }
}
