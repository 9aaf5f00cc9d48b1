//! Event files of TensorBoard: scalars by their tags, a record a step.
//!
//! ```text
//! record       length u64 | masked CRC-32C of the length | event | masked CRC-32C of the event
//! Event        wall_time = 1: double, step = 2: int64, file_version = 3: string, summary = 5, session_log = 7
//! Summary      value = 1, repeated: tag = 1: string, simple_value = 2: float
//! SessionLog   status = 1: START is 1
//! ```
//!
//! A run that goes on begins a file of its own with a `START` at its first step. TensorBoard then forgets what older
//! files have from that step on: the run that was killed wrote it, and this one does it again.
//!
//! # Source
//! TensorFlow's `core/lib/io/record_writer.cc`, `core/util/event.proto` and `core/framework/summary.proto`.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::folder::{EVENTS, host};
use crate::error::{Error, Result};

/// What the first record of a file says.
const VERSION: &str = "brain.Event:2";

/// A file of events, where a run writes one.
#[derive(Default)]
pub(super) struct EventFile {
    file: Option<(PathBuf, File)>,
    /// Bytes of whole records in the file.
    written: u64,
}

impl EventFile {
    /// Begins a file in a folder, of a run that has done `step` steps.
    pub(super) fn create(folder: &Path, step: usize) -> Result<EventFile> {
        let (path, file) = new_file(folder)?;
        let mut events = EventFile { file: Some((path, file)), written: 0 };
        events.append(&Event::at(0).bytes(3, VERSION.as_bytes()))?;
        if step > 0 {
            let start = Message::default().number(1, 1);
            events.append(&Event::at(step + 1).bytes(7, &start.0))?;
        }
        Ok(events)
    }

    /// Writes scalars of a step.
    pub(super) fn scalars(&mut self, step: usize, values: &[(&str, f64)]) -> Result<()> {
        let summary = values.iter().fold(Message::default(), |summary, (tag, value)| {
            let value = Message::default().bytes(1, tag.as_bytes()).float(2, *value as f32);
            summary.bytes(1, &value.0)
        });
        self.append(&Event::at(step).bytes(5, &summary.0))
    }

    /// Writes a record, whole or not at all.
    fn append(&mut self, event: &Message) -> Result<()> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let record = record(&event.0);
        if let Err(error) = file.write_all(&record) {
            let _ = file.set_len(self.written);
            return Err(Error::io(format!("can't write {}: {error}", path.display())));
        }
        self.written += record.len() as u64;
        Ok(())
    }
}

/// A file under a name that TensorBoard looks for, and reads after those of earlier processes.
fn new_file(folder: &Path) -> Result<(PathBuf, File)> {
    let (seconds, process) = (seconds() as u64, std::process::id());
    let mut number = 0;
    loop {
        let path = folder.join(format!("{EVENTS}{seconds:010}.{}.{process}.{number}", host()));
        match OpenOptions::new().create_new(true).append(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => {
                return Err(Error::io(format!("can't write {}: {error}", path.display())));
            }
        }
    }
}

/// Seconds since 1970.
fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Events of now.
struct Event;

impl Event {
    fn at(step: usize) -> Message {
        Message::default().double(1, seconds()).number(2, step as u64)
    }
}

/// A message of protocol buffers in the making: fields as they are added.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn key(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    /// Seven bits a byte, the lowest first.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Message {
        self.key(field, 0);
        self.varint(value);
        self
    }

    fn double(mut self, field: u64, value: f64) -> Message {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn float(mut self, field: u64, value: f32) -> Message {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }
}

/// Data with its length and both checksums.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let (head, tail) = (masked(crc32c(&length)), masked(crc32c(data)));
    [&length[..], &head.to_le_bytes(), data, &tail.to_le_bytes()].concat()
}

/// A checksum as files have it, so that one of data that holds checksums is no special case.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// What each byte does to a CRC-32C: Castagnoli's polynomial, reflected.
const TABLE: [u32; 256] = {
    let (mut table, mut byte) = ([0; 256], 0);
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82F6_3B78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4, and the check value of the catalogue of CRCs.
    #[test]
    fn checksums_are_those_of_castagnoli() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xFF; 32]), 0x62A8_AB43);
    }

    #[test]
    fn numbers_are_written_seven_bits_a_byte() {
        assert_eq!(Message::default().number(2, 300).0, [0x10, 0xAC, 0x02]);
        assert_eq!(Message::default().bytes(1, b"a").0, [0x0A, 0x01, b'a']);
    }

    #[test]
    fn each_file_of_a_process_has_a_name_of_its_own() -> Result<()> {
        let folder = tempfile::tempdir()?;
        EventFile::create(folder.path(), 0)?;
        EventFile::create(folder.path(), 3)?;
        assert_eq!(std::fs::read_dir(folder.path())?.count(), 2);
        Ok(())
    }
}
