//! Text and tokens: files mapped into memory, cut into windows to learn the next token from.

use std::path::Path;

use genesis_kernel::runtime::Device;

use super::dataset::{Dataset, no_sample};
use crate::error::{Error, Result};
use crate::files::Mapped;
use crate::tensor::Tensor;

/// A list of tokens that may be larger than memory.
pub trait Tokens: Send + Sync {
    /// The number of tokens.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some tokens in a row, fewer where the list ends before.
    fn read(&self, start: usize, len: usize) -> Vec<i64>;
}

impl Tokens for Vec<u8> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn read(&self, start: usize, len: usize) -> Vec<i64> {
        bytes_from(self, start, len)
    }
}

fn bytes_from(bytes: &[u8], start: usize, len: usize) -> Vec<i64> {
    let rest = bytes.get(start..).unwrap_or_default();
    rest.iter().take(len).map(|&byte| i64::from(byte)).collect()
}

/// A file whose every byte is a token.
#[derive(Debug)]
pub struct TextFile {
    bytes: Mapped,
}

impl TextFile {
    /// Maps a file.
    ///
    /// # Errors
    /// If it can't be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<TextFile> {
        Ok(TextFile { bytes: Mapped::open(path.as_ref())? })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Tokens for TextFile {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn read(&self, start: usize, len: usize) -> Vec<i64> {
        bytes_from(&self.bytes, start, len)
    }
}

/// Bytes of a token in a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenWidth {
    /// 16 bits: up to 65,536 different tokens.
    U16,
    /// 32 bits.
    U32,
}

impl TokenWidth {
    fn bytes(self) -> usize {
        match self {
            TokenWidth::U16 => 2,
            TokenWidth::U32 => 4,
        }
    }
}

/// Files of little-endian tokens, one after another: the plain `.bin` shards of tokenizers.
#[derive(Debug)]
pub struct TokenShards {
    shards: Vec<Mapped>,
    width: TokenWidth,
}

impl TokenShards {
    /// Maps the shards, in this order.
    ///
    /// # Errors
    /// If one can't be opened, or ends inside a token.
    pub fn open<P: AsRef<Path>>(paths: &[P], width: TokenWidth) -> Result<TokenShards> {
        let map = |path: &P| {
            let shard = Mapped::open(path.as_ref())?;
            if shard.len() % width.bytes() != 0 {
                let path = path.as_ref().display();
                return Err(Error::io(format!(
                    "{path}: {} bytes are no whole number of tokens of {}",
                    shard.len(),
                    width.bytes()
                )));
            }
            Ok(shard)
        };
        Ok(TokenShards { shards: paths.iter().map(map).collect::<Result<_>>()?, width })
    }
}

impl Tokens for TokenShards {
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len() / self.width.bytes()).sum()
    }

    fn read(&self, start: usize, len: usize) -> Vec<i64> {
        let size = self.width.bytes();
        let (mut skip, mut tokens) = (start.saturating_mul(size), Vec::new());
        for shard in &self.shards {
            let rest = shard.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(shard.len());
            let token = |c: &[u8]| match self.width {
                TokenWidth::U16 => i64::from(u16::from_le_bytes([c[0], c[1]])),
                TokenWidth::U32 => i64::from(u32::from_le_bytes([c[0], c[1], c[2], c[3]])),
            };
            tokens.extend(rest.chunks_exact(size).take(len - tokens.len()).map(token));
        }
        tokens
    }
}

/// Windows of tokens: `length` tokens, and the same a token later.
///
/// Windows lie `length` apart, so that an epoch shows each token once as input.
#[derive(Clone, Debug)]
pub struct TokenWindows<T> {
    tokens: T,
    length: usize,
}

impl<T: Tokens> TokenWindows<T> {
    /// Windows of `length` tokens.
    ///
    /// # Errors
    /// If `length` is 0 or there is no whole window.
    pub fn new(tokens: T, length: usize) -> Result<TokenWindows<T>> {
        if length == 0 || tokens.len() <= length {
            let message =
                format!("{} tokens hold no window of {length} and the next", tokens.len());
            return Err(Error::op("token windows", message));
        }
        Ok(TokenWindows { tokens, length })
    }

    /// The tokens.
    pub fn tokens(&self) -> &T {
        &self.tokens
    }
}

impl<T: Tokens> Dataset for TokenWindows<T> {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.tokens.len().saturating_sub(1) / self.length
    }

    fn get(&self, index: usize) -> Result<(Tensor, Tensor)> {
        if index >= self.len() {
            return Err(no_sample("token windows", index, self.len()));
        }
        let window = self.tokens.read(index * self.length, self.length + 1);
        if window.len() != self.length + 1 {
            let message = format!("{} of {} tokens were read", window.len(), self.length + 1);
            return Err(Error::op("token windows", message));
        }
        let part = |part: &[i64]| Tensor::from_slice_on(part, &[self.length], Device::Cpu);
        Ok((part(&window[..self.length])?, part(&window[1..])?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_learn_the_next_token() {
        let windows = TokenWindows::new(b"abcdefg".to_vec(), 3).unwrap();
        assert_eq!(Dataset::len(&windows), 2);
        let (x, y) = windows.get(1).unwrap();
        assert_eq!(x.to_vec::<i64>().unwrap(), [100, 101, 102]);
        assert_eq!(y.to_vec::<i64>().unwrap(), [101, 102, 103]);
        assert!(windows.get(2).is_err());
        assert!(TokenWindows::new(b"abc".to_vec(), 3).is_err());
        assert_eq!(b"abc".to_vec().read(2, usize::MAX), [99]);
        assert!(b"abc".to_vec().read(usize::MAX, 1).is_empty());
    }

    #[test]
    fn windows_reach_over_shards() {
        let folder = tempfile::tempdir().unwrap();
        let paths =
            [folder.path().join("0.bin"), folder.path().join("1.bin"), folder.path().join("2.bin")];
        for (path, tokens) in paths.iter().zip([&[1u32, 2][..], &[], &[70_000, 4, 5]]) {
            let bytes: Vec<u8> = tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
            std::fs::write(path, bytes).unwrap();
        }
        let shards = TokenShards::open(&paths, TokenWidth::U32).unwrap();
        assert_eq!((Tokens::len(&shards), shards.read(1, 3)), (5, vec![2, 70_000, 4]));
        assert_eq!(shards.read(4, usize::MAX), [5]);
        assert!(shards.read(usize::MAX, usize::MAX).is_empty());
        std::fs::write(&paths[1], [0; 3]).unwrap();
        let error = TokenShards::open(&paths, TokenWidth::U16).unwrap_err().to_string();
        assert!(error.ends_with("3 bytes are no whole number of tokens of 2"), "{error}");
        let empty = TextFile::open(folder.path().join("2.bin")).unwrap();
        assert_eq!(Tokens::len(&empty), 12);
    }
}
