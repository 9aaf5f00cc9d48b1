//! Where the processes that tests start keep compiled kernels: all in one place, so that each kernel is compiled once, and
//! not at all where an earlier run of the tests has done it.

use std::path::{Path, PathBuf};

pub(crate) fn folder() -> PathBuf {
    let built_at = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // The binary may have been brought to another machine.
    let base = if built_at.is_dir() { built_at.to_owned() } else { std::env::temp_dir() };
    base.join("kernels")
}
