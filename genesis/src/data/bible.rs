//! The King James Bible as Debian ships it: a text of 4.4 MB that every Debian machine can have.
//!
//! The package's file is compressed for a reader of its own: a header, a table of offsets, and windows
//! of 64 KiB that are each packed by LZW with codes of 9 bits and more, as `compress` does it.
//!
//! # Source
//! doi:10.1109/MC.1984.1659158 (LZW); Debian's package `bible-kjv-text`.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::read_regular;

/// Where Debian's package puts the file.
const DEBIAN: &str = "/usr/lib/bible.data";

const MAGIC: &[u8] = b"EC02Compressed Data File";
/// Where the header says how many windows there are; their offsets follow.
const COUNT_AT: usize = 0x58;
/// The size of a window, unpacked.
const WINDOW: usize = 1 << 16;
/// The code that ends a table; the first free one comes after it.
const CLEAR: usize = 256;

/// The whole text, one verse a line: `Ge1:1 In the beginning ..`.
///
/// # Errors
/// If the file is not there, which the message says how to change, or damaged.
pub fn bible_text(path: Option<&Path>) -> Result<Vec<u8>> {
    let path = path.unwrap_or(Path::new(DEBIAN));
    let problem = |what: String| Error::io(format!("{}: {what}", path.display()));
    let bytes = read_regular(path).map_err(|error| {
        let advice = "install Debian's package bible-kjv-text, or name a file with --data";
        Error::io(format!("{error}; {advice}"))
    })?;
    // A file of one's own may be plain text.
    if !bytes.starts_with(MAGIC) {
        return Ok(bytes);
    }
    unpack(&bytes).ok_or_else(|| problem("is damaged".to_owned()))
}

fn unpack(bytes: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| {
        Some(u32::from_be_bytes(*bytes.get(at..at.checked_add(4)?)?.first_chunk()?) as usize)
    };
    let count = word(COUNT_AT)?;
    let mut text = Vec::new();
    for window in 0..count {
        let start = word(COUNT_AT + 4 + 4 * window)?;
        let end = if window + 1 < count { word(COUNT_AT + 8 + 4 * window)? } else { bytes.len() };
        text.extend(unpack_window(bytes.get(start..end)?)?);
    }
    Some(text)
}

/// LZW, codes from the low bits up. An entry is the entry it prolongs, and a byte.
fn unpack_window(packed: &[u8]) -> Option<Vec<u8>> {
    let mut text: Vec<u8> = Vec::with_capacity(WINDOW);
    // Where each entry's bytes lie in the text: entry by entry, what was written last and one more.
    let mut entries: Vec<(usize, usize)> = Vec::new();
    let (mut width, mut at) = (9, 0);
    let mut last: Option<(usize, usize)> = None;
    while text.len() < WINDOW && at + width <= packed.len() * 8 {
        let mut wide = [0; 4];
        let bytes = &packed[at / 8..packed.len().min(at / 8 + 4)];
        wide[..bytes.len()].copy_from_slice(bytes);
        let code = (u32::from_le_bytes(wide) >> (at % 8)) as usize & ((1 << width) - 1);
        at += width;
        if code == CLEAR {
            break;
        }
        let start = text.len();
        match code.checked_sub(CLEAR + 1) {
            None => text.push(code as u8),
            // The entry that this very step completes ends with the byte that it begins with.
            Some(number) if number == entries.len() => {
                let (from, len) = last?;
                text.extend_from_within(from..from + len);
                text.push(text[from]);
            }
            Some(number) => {
                let &(from, len) = entries.get(number)?;
                text.extend_from_within(from..from + len);
            }
        }
        if let Some((from, len)) = last {
            entries.push((from, len + 1));
            if entries.len() + CLEAR + 1 > (1 << width) - 1 && width < 16 {
                width += 1;
            }
        }
        last = Some((start, text.len() - start));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_text_is_whole() {
        if !Path::new(DEBIAN).exists() {
            println!("skipped: bible-kjv-text is not installed");
            return;
        }
        let text = bible_text(None).unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        assert!(text.starts_with("Holy Bible, Authorized (King James) Version."));
        assert!(text.contains("\nGe1:1 In the beginning God created the heaven and the earth.\n"));
        assert!(text.trim_end().ends_with("with you all. Amen."), "{}", &text[text.len() - 200..]);
        assert!(text.lines().count() > 31_102);
    }

    #[test]
    fn what_is_missing_or_damaged_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bible.data");
        let error = bible_text(Some(&path)).unwrap_err().to_string();
        assert!(error.contains("install Debian's package bible-kjv-text"), "{error}");
        let mut bytes = MAGIC.to_vec();
        bytes.resize(COUNT_AT, 0);
        bytes.extend([0, 0, 0, 1, 0, 1, 0, 0]);
        fs::write(&path, bytes).unwrap();
        assert!(bible_text(Some(&path)).unwrap_err().to_string().ends_with("is damaged"));
        fs::write(&path, "plain").unwrap();
        assert_eq!(bible_text(Some(&path)).unwrap(), b"plain");
    }
}
