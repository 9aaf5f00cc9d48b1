//! How loads and stores of global memory treat the caches, beside what the kernel says; see `cache_policy`.
//!
//! ```text
//! select 2 cache readonly                 ld.global
//! select 3 cache readonly nc              ld.global.nc
//! select 4 cache readonly nc streaming    ld.global.nc.L1::no_allocate
//! select 9 cache streaming                st.global.cs
//! ```

use std::fmt;

/// What is known of an access's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cached {
    /// Loads need no order: nobody writes the memory, or has while the kernel waits.
    pub(crate) readonly: bool,
    /// Nobody at all writes the memory while the kernel runs: its loads are non-coherent.
    pub(crate) nc: bool,
    /// Each address is used once.
    pub(crate) streaming: bool,
}

impl fmt::Display for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cache")?;
        f.write_str(if self.readonly { " readonly" } else { "" })?;
        f.write_str(if self.nc { " nc" } else { "" })?;
        f.write_str(if self.streaming { " streaming" } else { "" })
    }
}

#[cfg(test)]
impl Cached {
    /// Reads an entry's text.
    pub(super) fn parse(text: &str) -> Option<Cached> {
        let mut cached = Cached::default();
        for word in text.split(' ').skip(1) {
            match word {
                "readonly" => cached.readonly = true,
                "nc" => cached.nc = true,
                "streaming" => cached.streaming = true,
                _ => return None,
            }
        }
        Some(cached)
    }
}
