//! Gives the compiler a name that changes with its sources: what it compiled is kept on disk by that name, so
//! that a program that is built again finds its kernels there and a changed compiler does not.

use std::path::{Path, PathBuf};
use std::{fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    let mut sources = Vec::new();
    collect(Path::new("src"), &mut sources)?;
    // The order of a folder's entries is the file system's.
    sources.sort();
    let mut hash = Fnv::default();
    for path in &sources {
        hash.write(path.to_string_lossy().as_bytes());
        hash.write(&fs::read(path)?);
    }
    println!("cargo:rustc-env=GENESIS_COMPILER={:032x}", hash.0);
    Ok(())
}

fn collect(dir: &Path, sources: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, sources)?,
            false => sources.push(path),
        }
    }
    Ok(())
}

/// FNV-1a of 128 bits: the same on every machine and for every Rust, unlike the hashes of `std`.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    /// Takes a text with its length, so that no two lists of texts are alike.
    fn write(&mut self, text: &[u8]) {
        for &byte in (text.len() as u64).to_le_bytes().iter().chain(text) {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }
}
