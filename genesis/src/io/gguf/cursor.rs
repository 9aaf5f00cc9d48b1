//! The bytes of a GGUF file, taken one value after the other.

/// A place in a file, behind which the next value is.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Cursor<'a> {
        Cursor { bytes, at }
    }

    pub(super) fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end)).ok_or("is cut off")?;
        self.at += count;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let taken = self.take(N)?.first_chunk();
        Ok(*taken.expect("as many bytes were taken"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, String> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, String> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of things of which each takes at least `least` bytes.
    pub(super) fn count(&mut self, least: usize) -> Result<usize, String> {
        let count = self.u64()?;
        let most = self.left() / least;
        let known = usize::try_from(count).ok().filter(|&count| count <= most);
        known.ok_or_else(|| format!("is cut off: it claims {count} of what at most {most} fit"))
    }

    pub(super) fn string(&mut self) -> Result<&'a str, String> {
        let len = self.count(1)?;
        std::str::from_utf8(self.take(len)?).map_err(|_| "holds text that is not UTF-8".to_owned())
    }
}
