//! Zip archives, as much of them as .npz files use: stored and deflated files, zip64.
//!
//! # Source
//! PKWARE's APPNOTE.TXT 6.3.10.

use std::io::Read;

use flate2::Crc;
use flate2::read::DeflateDecoder;

/// The most bytes of one file, so that a small archive can't ask for all memory.
const MOST_BYTES: u64 = 1 << 36;

const LOCAL: u32 = 0x0403_4B50;
const CENTRAL: u32 = 0x0201_4B50;
const END: u32 = 0x0605_4B50;
const END64: u32 = 0x0606_4B50;
const END64_AT: u32 = 0x0706_4B50;

/// A number of `N` bytes at a place.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at.checked_add(N)?)?;
    Some(part.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
}

fn signed(bytes: &[u8], at: usize, signature: u32) -> bool {
    number::<4>(bytes, at) == Some(u64::from(signature))
}

/// The names and contents of all files, in the archive's order.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let not_zip = || "is not a zip archive, or is cut off".to_owned();
    // The last record may be followed by a comment of up to 64 KiB.
    let lowest = bytes.len().saturating_sub(22 + 65_535);
    let highest = bytes.len().checked_sub(22).ok_or_else(not_zip)?;
    let end = (lowest..=highest).rev().find(|&at| signed(bytes, at, END)).ok_or_else(not_zip)?;
    let (mut count, mut at) = directory(bytes, end).ok_or_else(not_zip)?;
    let mut files = Vec::new();
    while count > 0 {
        let damaged = || format!("is a damaged zip archive: entry {}", files.len());
        let entry = Entry::read(bytes, at).ok_or_else(damaged)?;
        at = entry.next;
        count -= 1;
        if !entry.name.ends_with('/') {
            let data = entry.contents(bytes).map_err(|what| format!("{}: {what}", entry.name))?;
            files.push((entry.name, data));
        }
    }
    Ok(files)
}

/// The number of entries and where the first stands.
fn directory(bytes: &[u8], end: usize) -> Option<(u64, usize)> {
    let (count, start) = (number::<2>(bytes, end + 10)?, number::<4>(bytes, end + 16)?);
    let (count, start) = match end.checked_sub(20) {
        Some(at) if signed(bytes, at, END64_AT) => {
            let record = usize::try_from(number::<8>(bytes, at + 8)?).ok()?;
            if !signed(bytes, record, END64) {
                return None;
            }
            (number::<8>(bytes, record.checked_add(32)?)?, number::<8>(bytes, record + 48)?)
        }
        _ => (count, start),
    };
    Some((count, usize::try_from(start).ok()?))
}

/// An entry of the directory.
struct Entry {
    name: String,
    method: u64,
    crc: u64,
    packed: u64,
    size: u64,
    local: u64,
    next: usize,
}

impl Entry {
    fn read(bytes: &[u8], at: usize) -> Option<Entry> {
        if !signed(bytes, at, CENTRAL) {
            return None;
        }
        let length = |offset| Some(number::<2>(bytes, at + offset)? as usize);
        let (name_len, extra_len, comment) = (length(28)?, length(30)?, length(32)?);
        let name = bytes.get(at + 46..at + 46 + name_len)?;
        let extra = bytes.get(at + 46 + name_len..at + 46 + name_len + extra_len)?;
        let mut wide = zip64(extra);
        // The 64-bit field holds, in this order, those numbers that did not fit in 32 bits.
        let mut or_wide = |n: u64| if n == u64::from(u32::MAX) { wide.next() } else { Some(n) };
        let size = or_wide(number::<4>(bytes, at + 24)?)?;
        let packed = or_wide(number::<4>(bytes, at + 20)?)?;
        let local = or_wide(number::<4>(bytes, at + 42)?)?;
        Some(Entry {
            name: String::from_utf8(name.to_vec()).ok()?,
            method: number::<2>(bytes, at + 10)?,
            crc: number::<4>(bytes, at + 16)?,
            packed,
            size,
            local,
            next: at + 46 + name_len + extra_len + comment,
        })
    }

    fn contents(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let packed = self.packed_bytes(bytes).ok_or("is cut off")?;
        if self.size > MOST_BYTES {
            return Err(format!("says it has {} bytes", self.size));
        }
        let data = match self.method {
            0 => packed.to_vec(),
            8 => {
                let mut data = Vec::new();
                // One byte more than it says shows that it is longer.
                let mut decoder = DeflateDecoder::new(packed).take(self.size + 1);
                decoder.read_to_end(&mut data).map_err(|error| format!("is damaged: {error}"))?;
                data
            }
            other => return Err(format!("is packed by method {other}, which is not read")),
        };
        let mut crc = Crc::new();
        crc.update(&data);
        if data.len() as u64 != self.size || u64::from(crc.sum()) != self.crc {
            return Err("is damaged: its checksum differs".to_owned());
        }
        Ok(data)
    }

    fn packed_bytes<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let local = usize::try_from(self.local).ok()?;
        if !signed(bytes, local, LOCAL) {
            return None;
        }
        let names = number::<2>(bytes, local + 26)? + number::<2>(bytes, local + 28)?;
        let start = local + 30 + names as usize;
        bytes.get(start..start.checked_add(usize::try_from(self.packed).ok()?)?)
    }
}

/// The numbers of an extra field of 64-bit sizes.
fn zip64(extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut at = 0;
    let mut numbers = Vec::new();
    while let (Some(kind), Some(len)) = (number::<2>(extra, at), number::<2>(extra, at + 2)) {
        if kind == 1 {
            let field = extra.get(at + 4..at + 4 + len as usize).unwrap_or_default();
            numbers = (0..field.len() / 8).filter_map(|i| number::<8>(field, 8 * i)).collect();
        }
        at += 4 + len as usize;
    }
    numbers.into_iter()
}

/// An archive of these files, stored as they are; nothing from 4 GiB on, which would need the 64-bit
/// records that are only read here.
pub(super) fn write(files: &[(String, Vec<u8>)]) -> Option<Vec<u8>> {
    let whole: usize = files.iter().map(|(name, data)| 128 + 2 * name.len() + data.len()).sum();
    if whole > u32::MAX as usize || files.len() > usize::from(u16::MAX) {
        return None;
    }
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in files {
        let mut crc = Crc::new();
        crc.update(data);
        let (offset, size) = (out.len() as u32, (data.len() as u32).to_le_bytes());
        // Version 2.0, names in UTF-8, stored, the first day that the format knows.
        let common = [
            &[20, 0, 0, 8, 0, 0, 0, 0, 0x21, 0][..],
            &crc.sum().to_le_bytes(),
            &size,
            &size,
            &(name.len() as u16).to_le_bytes(),
            &[0, 0],
        ]
        .concat();
        out.extend([&LOCAL.to_le_bytes()[..], &common, name.as_bytes(), data].concat());
        directory.extend([&CENTRAL.to_le_bytes()[..], &[20, 0], &common, &[0; 10]].concat());
        directory.extend([&offset.to_le_bytes()[..], name.as_bytes()].concat());
    }
    let (start, count) = (out.len() as u32, (files.len() as u16).to_le_bytes());
    out.extend_from_slice(&directory);
    out.extend([&END.to_le_bytes()[..], &[0; 4], &count, &count].concat());
    out.extend([(directory.len() as u32).to_le_bytes(), start.to_le_bytes()].concat());
    out.extend([0, 0]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_of_numpy_are_read() {
        // np.savez_compressed(f, x=np.arange(3, dtype=np.uint8)), of NumPy 2.
        let files = read(NUMPY).unwrap();
        assert_eq!((files.len(), files[0].0.as_str()), (1, "x.npy"));
        assert!(files[0].1.ends_with(&[b'\n', 0, 1, 2]));
        let mut bad = NUMPY.to_vec();
        bad[60] ^= 1;
        assert!(read(&bad).is_err());
    }

    const NUMPY: &[u8] = &[
        80, 75, 3, 4, 45, 0, 0, 0, 8, 0, 0, 0, 33, 0, 72, 234, 102, 236, 255, 255, 255, 255, 255,
        255, 255, 255, 5, 0, 20, 0, 120, 46, 110, 112, 121, 1, 0, 16, 0, 131, 0, 0, 0, 0, 0, 0, 0,
        71, 0, 0, 0, 0, 0, 0, 0, 155, 236, 23, 234, 27, 16, 201, 200, 80, 198, 80, 173, 158, 146,
        90, 156, 92, 164, 110, 165, 160, 94, 83, 106, 168, 174, 163, 160, 158, 150, 95, 84, 82,
        148, 152, 23, 159, 95, 148, 146, 10, 18, 119, 75, 204, 41, 78, 5, 138, 23, 103, 36, 22,
        164, 2, 249, 26, 198, 58, 154, 58, 10, 181, 10, 20, 0, 46, 6, 70, 38, 0, 80, 75, 1, 2, 45,
        3, 45, 0, 0, 0, 8, 0, 0, 0, 33, 0, 72, 234, 102, 236, 71, 0, 0, 0, 131, 0, 0, 0, 5, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 1, 0, 0, 0, 0, 120, 46, 110, 112, 121, 80, 75, 5, 6, 0, 0,
        0, 0, 1, 0, 1, 0, 51, 0, 0, 0, 126, 0, 0, 0, 0, 0,
    ];
}
