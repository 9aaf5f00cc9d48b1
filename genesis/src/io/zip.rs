//! Zip archives, as much of them as .npz files use: stored and deflated files, zip64.
//!
//! # Source
//! PKWARE's APPNOTE.TXT 6.3.10.

use std::io::Read;

use flate2::Crc;
use flate2::read::DeflateDecoder;

use crate::files::{ReadLimits, can_inflate};

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

/// All files, in the archive's order: none larger than its packed bytes can hold, no two of the same bytes,
/// all together within the limits.
pub(super) fn entries(bytes: &[u8], limits: &ReadLimits) -> Result<Vec<Entry>, String> {
    let not_zip = || "is not a zip archive, or is cut off".to_owned();
    // The last record may be followed by a comment of up to 64 KiB.
    let lowest = bytes.len().saturating_sub(22 + 65_535);
    let highest = bytes.len().checked_sub(22).ok_or_else(not_zip)?;
    let end = (lowest..=highest).rev().find(|&at| signed(bytes, at, END)).ok_or_else(not_zip)?;
    let (count, mut at) = directory(bytes, end).ok_or_else(not_zip)?;
    let mut files: Vec<Entry> = Vec::new();
    for number in 0..count {
        let damaged = || format!("is a damaged zip archive: entry {number}");
        let entry = Entry::read(bytes, at).ok_or_else(damaged)?;
        at = entry.next;
        if !entry.name.ends_with('/') {
            entry.check().map_err(|what| format!("{}: {what}", entry.name))?;
            files.push(entry);
        }
    }
    let mut spans: Vec<(usize, usize)> = files.iter().map(|f| (f.start, f.end())).collect();
    spans.sort_unstable();
    if spans.windows(2).any(|pair| pair[1].0 < pair[0].1) {
        return Err("is a damaged zip archive: two of its files overlap".to_owned());
    }
    let whole =
        files.iter().filter(|f| f.method != STORED).fold(0, |n: u64, f| n.saturating_add(f.size));
    limits.check(whole, bytes.len() as u64)?;
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
pub(super) struct Entry {
    pub(super) name: String,
    /// Bytes when unpacked, as the archive has it.
    pub(super) size: u64,
    method: u64,
    crc: u64,
    packed: usize,
    /// Where the packed bytes begin.
    start: usize,
    next: usize,
}

/// The method of files that are not packed.
const STORED: u64 = 0;
const DEFLATED: u64 = 8;

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
        let packed = usize::try_from(or_wide(number::<4>(bytes, at + 20)?)?).ok()?;
        let local = usize::try_from(or_wide(number::<4>(bytes, at + 42)?)?).ok()?;
        if !signed(bytes, local, LOCAL) {
            return None;
        }
        let names = number::<2>(bytes, local + 26)? + number::<2>(bytes, local + 28)?;
        let start = local + 30 + names as usize;
        bytes.get(start..start.checked_add(packed)?)?;
        Some(Entry {
            name: String::from_utf8(name.to_vec()).ok()?,
            size,
            method: number::<2>(bytes, at + 10)?,
            crc: number::<4>(bytes, at + 16)?,
            packed,
            start,
            next: at + 46 + name_len + extra_len + comment,
        })
    }

    fn end(&self) -> usize {
        self.start + self.packed
    }

    /// Refuses what it can't hold.
    fn check(&self) -> Result<(), String> {
        let fits = match self.method {
            STORED => self.size == self.packed as u64,
            DEFLATED => can_inflate(self.packed as u64, self.size),
            other => return Err(format!("is packed by method {other}, which is not read")),
        };
        if fits {
            return Ok(());
        }
        Err(format!("is damaged: {} bytes can't hold the {} it says", self.packed, self.size))
    }

    /// Its contents, unpacked as they are read.
    pub(super) fn open<'a>(&self, bytes: &'a [u8]) -> Result<Contents<'a>, String> {
        let packed = bytes.get(self.start..self.end()).ok_or("is cut off")?;
        let reader: Box<dyn Read + 'a> = match self.method {
            STORED => Box::new(packed),
            _ => Box::new(DeflateDecoder::new(packed)),
        };
        Ok(Contents { reader, sum: Crc::new(), read: 0, size: self.size, crc: self.crc })
    }
}

/// Contents whose checksum is taken as they are read.
pub(super) struct Contents<'a> {
    reader: Box<dyn Read + 'a>,
    sum: Crc,
    read: u64,
    size: u64,
    crc: u64,
}

impl Contents<'_> {
    /// Whether all was read, and was what the archive says.
    pub(super) fn finish(mut self) -> Result<(), String> {
        let more = self.reader.read(&mut [0]).map_err(|error| format!("is damaged: {error}"))?;
        if more > 0 || self.read != self.size || u64::from(self.sum.sum()) != self.crc {
            return Err("is damaged: its checksum differs".to_owned());
        }
        Ok(())
    }
}

impl Read for Contents<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.sum.update(&buffer[..count]);
        self.read += count as u64;
        Ok(count)
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

    /// The names and contents of all files.
    fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let unpacked = |entry: Entry| {
            let (mut data, mut contents) = (Vec::new(), entry.open(bytes)?);
            contents.read_to_end(&mut data).map_err(|error| error.to_string())?;
            contents.finish()?;
            Ok((entry.name, data))
        };
        entries(bytes, &ReadLimits::default())?.into_iter().map(unpacked).collect()
    }

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

    #[test]
    fn what_an_archive_cannot_hold_is_refused() {
        // The size in the directory, which is where it counts.
        let at = NUMPY.windows(4).position(|w| w == CENTRAL.to_le_bytes()).unwrap() + 24;
        let mut bomb = NUMPY.to_vec();
        bomb[at..at + 4].copy_from_slice(&0x7FFF_FFFFu32.to_le_bytes());
        let error = read(&bomb).unwrap_err();
        assert_eq!(error, "x.npy: is damaged: 71 bytes can't hold the 2147483647 it says");
        // One file under two names takes its memory twice.
        let twice = write(&[("a".to_owned(), vec![1; 4]), ("b".to_owned(), vec![1; 4])]).unwrap();
        let second = twice.len() - 22 - 47 + 42;
        let mut same = twice;
        same[second..second + 4].fill(0);
        assert_eq!(read(&same).unwrap_err(), "is a damaged zip archive: two of its files overlap");
        let limits = ReadLimits { max_alloc: 100, max_ratio: 0 };
        let error = entries(NUMPY, &limits).err().unwrap();
        assert!(error.starts_with("would take 131 bytes of memory for 199 of the file"), "{error}");
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
