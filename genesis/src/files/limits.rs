//! How much memory a file may ask for, and how files are opened.
//!
//! A header claims what it likes, and a few compressed bytes unpack to a thousand times as many. So every
//! reader asks three questions before it allocates: can a file of this size hold what its header says, is
//! that within the [`ReadLimits`], and does memory have room for it?
//!
//! Only regular files are opened: a pipe would let a reader wait for ever, and a device has no size.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use genesis_kernel::ir::DType;

use crate::error::{Error, Result};
use crate::shape;
use crate::tensor::host::reserved;

/// How much a reader may allocate for one file.
///
/// What is stored plainly, such as `.npy` and safetensors, needs as much memory as the file is large and is
/// always read. What is compressed may become `max_alloc` bytes, or `max_ratio` times the file's size where
/// that is more.
///
/// # Examples
/// ```
/// use genesis::data::Image;
/// use genesis::io::ReadLimits;
///
/// let small = ReadLimits { max_alloc: 1 << 20, max_ratio: 1 };
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("white.png");
/// Image::new(1, 1000, 1000, vec![1.0; 1_000_000])?.save_png(&path)?;
/// assert!(Image::open_with(&path, &small).is_err());
/// assert!(Image::open(&path).is_ok());
/// # Ok::<(), genesis::Error>(())
/// ```
/// # Source
/// The `Limits` of the crates `image` and `png`; the default of `max_alloc` is where Pillow refuses a
/// picture, 178,956,970 pixels of three channels, each four bytes here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLimits {
    /// The most bytes that one compressed file may become in memory, however small it is: 2 GiB.
    pub max_alloc: u64,
    /// A larger file may become so many times its own size: 20.
    pub max_ratio: u64,
}

impl Default for ReadLimits {
    fn default() -> ReadLimits {
        ReadLimits { max_alloc: 1 << 31, max_ratio: 20 }
    }
}

impl ReadLimits {
    /// For files that are trusted: as much as memory holds.
    pub const NONE: ReadLimits = ReadLimits { max_alloc: u64::MAX, max_ratio: u64::MAX };

    /// Refuses `bytes` in memory for a file of `file_bytes`.
    pub(crate) fn check(&self, bytes: u64, file_bytes: u64) -> Result<(), String> {
        let most = self.max_alloc.max(self.max_ratio.saturating_mul(file_bytes));
        if bytes <= most {
            return Ok(());
        }
        Err(format!(
            "would take {bytes} bytes of memory for {file_bytes} of the file, the limit is {most} \
             (ReadLimits)"
        ))
    }
}

/// What deflate can at most make of a byte.
///
/// # Source
/// zlib's "Maximum Compression Factor": 1032 to 1.
const DEFLATE_RATIO: u64 = 1032;

/// Whether so many deflated bytes can become that many.
pub(crate) fn can_inflate(packed: u64, size: u64) -> bool {
    size <= packed.saturating_mul(DEFLATE_RATIO)
}

/// The bytes of elements of this shape; none where memory can't be so large.
pub(crate) fn shape_bytes(shape: &[usize], dtype: DType) -> Option<u64> {
    let bytes = shape::count(shape)?.checked_mul(dtype.bytes())?;
    (bytes <= isize::MAX as usize).then_some(bytes as u64)
}

/// So many bytes of a reader, in memory that is asked for before it is filled.
pub(crate) fn read_bytes(reader: &mut impl Read, count: usize) -> Result<Vec<u8>, String> {
    let mut bytes = reserved(count)?;
    // The reader may hold more; what is behind is the caller's to judge.
    reader.take(count as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Opens a file that is one: no folder, pipe, socket or device. Gives its size too.
pub(crate) fn open_regular(path: &Path) -> Result<(File, u64)> {
    let problem = |error| Error::io(format!("can't read {}: {error}", path.display()));
    // Before it is opened, since opening a pipe waits for a writer; and after, since it may be another then.
    let check = |metadata: std::fs::Metadata| match metadata.is_file() {
        true => Ok(metadata.len()),
        false => Err(Error::io(format!("can't read {}: is not a regular file", path.display()))),
    };
    check(std::fs::metadata(path).map_err(problem)?)?;
    let file = File::open(path).map_err(problem)?;
    let len = check(file.metadata().map_err(problem)?)?;
    Ok((file, len))
}

/// The most bytes of a configuration in JSON. Published ones have thousands, with many labels a million.
pub(crate) const MOST_CONFIG: u64 = 16 << 20;
/// The most bytes of a tokenizer in JSON. Published ones have up to 35 million.
pub(crate) const MOST_TOKENIZER: u64 = 256 << 20;

/// All bytes of a regular file.
pub(crate) fn read_regular(path: &Path) -> Result<Vec<u8>> {
    read_at_most(path, u64::MAX)
}

/// All bytes of a regular file that has at most so many. For what is parsed into values, which take 15 to 50
/// times the memory of their text: a file that is only large is refused before that.
pub(crate) fn read_at_most(path: &Path, most: u64) -> Result<Vec<u8>> {
    let problem = |error: String| Error::io(format!("can't read {}: {error}", path.display()));
    let (mut file, len) = open_regular(path)?;
    if len > most {
        return Err(problem(format!("has {len} bytes, the most is {most}")));
    }
    let len = usize::try_from(len).map_err(|error| problem(error.to_string()))?;
    read_bytes(&mut file, len).map_err(problem)
}

/// All text of a regular file.
pub(crate) fn read_regular_text(path: &Path) -> Result<String> {
    read_text_at_most(path, u64::MAX)
}

/// [`read_at_most`] as text.
pub(crate) fn read_text_at_most(path: &Path, most: u64) -> Result<String> {
    String::from_utf8(read_at_most(path, most)?)
        .map_err(|_| Error::io(format!("can't read {}: is not UTF-8", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_grow_with_the_file() {
        let limits = ReadLimits { max_alloc: 100, max_ratio: 10 };
        assert!(limits.check(100, 1).is_ok() && limits.check(1000, 100).is_ok());
        let error = limits.check(101, 10).unwrap_err();
        let text =
            "would take 101 bytes of memory for 10 of the file, the limit is 100 (ReadLimits)";
        assert_eq!(error, text);
        assert!(ReadLimits::NONE.check(u64::MAX, u64::MAX).is_ok());
        assert!(can_inflate(1, 1032) && !can_inflate(1, 1033) && can_inflate(u64::MAX, u64::MAX));
    }

    #[test]
    fn more_than_memory_is_an_error() {
        assert!(reserved::<u64>(usize::MAX).is_err());
        assert!(reserved::<u8>(1 << 62).is_err());
    }

    #[test]
    fn files_over_a_limit_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        // A hole, which takes no disk.
        File::create(&path).and_then(|file| file.set_len(1 << 33)).unwrap();
        let error = read_at_most(&path, MOST_CONFIG).unwrap_err().to_string();
        assert!(error.ends_with("config.json: has 8589934592 bytes, the most is 16777216"));
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(read_text_at_most(&path, 2).unwrap(), "{}");
        assert!(read_text_at_most(&path, 1).is_err());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| {
            let error = read_regular(path).unwrap_err().to_string();
            assert!(error.ends_with("is not a regular file"), "{error}");
        };
        refused(folder.path());
        let path = folder.path().join("text");
        std::fs::write(&path, "text").unwrap();
        assert_eq!(read_regular_text(&path).unwrap(), "text");
        #[cfg(unix)]
        {
            refused(Path::new("/dev/zero"));
            let socket = folder.path().join("socket");
            let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
            refused(&socket);
        }
    }
}
