//! Events of runs, read by a reader of its own: framing, checksums bit by bit, and protocol buffers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail, ensure};
use genesis::Device;
use genesis::random::thread_rng;
use genesis::train::language::{Options, Session, Start, run};
use serde_json::Value;

use crate::lm_training::{Workplace, until};

/// CRC-32C as its definition divides: bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let is_odd = (crc ^ u32::from(byte >> bit)) & 1 == 1;
            crc >>= 1;
            crc ^= if is_odd { 0x82F6_3B78 } else { 0 };
        }
    }
    !crc
}

fn masked(bytes: &[u8]) -> u32 {
    let crc = crc(bytes);
    crc.rotate_right(15).wrapping_add(0xA282_EAD8)
}

/// A field of a message.
#[derive(Clone, PartialEq, Debug)]
enum Field {
    Number(u64),
    Double(f64),
    Bytes(Vec<u8>),
    Float(f32),
}

fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7F) << shift;
        shift += 7;
        if byte < 0x80 {
            return Ok(value);
        }
    }
}

fn take<'b>(bytes: &mut &'b [u8], count: usize) -> Result<&'b [u8]> {
    let (head, tail) = bytes.split_at_checked(count).context("cut off")?;
    *bytes = tail;
    Ok(head)
}

fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Field)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Double(f64::from_le_bytes(take(&mut bytes, 8)?.try_into()?)),
            2 => {
                let count = varint(&mut bytes)? as usize;
                Field::Bytes(take(&mut bytes, count)?.to_vec())
            }
            5 => Field::Float(f32::from_le_bytes(take(&mut bytes, 4)?.try_into()?)),
            other => bail!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    Ok(fields)
}

fn inner(fields: &[(u64, Field)], number: u64) -> Option<&[u8]> {
    fields.iter().find_map(|(own, field)| match field {
        Field::Bytes(bytes) if *own == number => Some(bytes.as_slice()),
        _ => None,
    })
}

/// What an event says.
#[derive(Debug, Default)]
struct Event {
    step: u64,
    version: Option<String>,
    is_start: bool,
    scalars: BTreeMap<String, f32>,
}

fn events(path: &Path) -> Result<Vec<Event>> {
    let bytes = std::fs::read(path)?;
    let (mut rest, mut events) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        let length = take(&mut rest, 8)?;
        ensure!(take(&mut rest, 4)? == masked(length).to_le_bytes(), "a length's checksum");
        let data = take(&mut rest, u64::from_le_bytes(length.try_into()?) as usize)?;
        ensure!(take(&mut rest, 4)? == masked(data).to_le_bytes(), "an event's checksum");
        let of = fields(data)?;
        let mut event = Event::default();
        for (number, field) in &of {
            match (number, field) {
                (1, Field::Double(time)) => ensure!(*time > 1.6e9, "it is {time}"),
                (2, Field::Number(step)) => event.step = *step,
                (3, Field::Bytes(text)) => event.version = Some(String::from_utf8(text.clone())?),
                (7, Field::Bytes(log)) => event.is_start = fields(log)? == [(1, Field::Number(1))],
                (5, Field::Bytes(summary)) => {
                    for (_, value) in fields(summary)? {
                        let Field::Bytes(value) = value else { bail!("no message") };
                        let value = fields(&value)?;
                        let tag = inner(&value, 1).context("a tag")?.to_vec();
                        let Some((_, Field::Float(number))) = value.last() else {
                            bail!("no float")
                        };
                        event.scalars.insert(String::from_utf8(tag)?, *number);
                    }
                }
                other => bail!("unknown: {other:?}"),
            }
        }
        events.push(event);
    }
    Ok(events)
}

/// The files of events in a folder, in the order of their names.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("events.out.tfevents.") {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn options(workplace: &Workplace, out: &str) -> Options {
    let usual = workplace.options(out);
    Options { tensorboard: true, eval_every: Some(2), steps: Some(5), ..usual }
}

#[test]
fn events_say_what_metrics_say() -> Result<()> {
    let _own = thread_rng(0);
    let workplace = Workplace::new()?;
    let options = options(&workplace, "out");
    let (stop, start) = (AtomicBool::new(false), Start::open(&options, None, Device::Cpu)?);
    run(start, &options, Session::default(), &stop, |_| {})?;
    let files = files(&workplace.path("out"))?;
    ensure!(files.len() == 1, "{files:?}");
    let found = events(&files[0])?;
    ensure!(found[0].version.as_deref() == Some("brain.Event:2"), "{:?}", found[0]);
    ensure!(found.iter().all(|event| !event.is_start), "it went on from nothing");
    let text = std::fs::read_to_string(workplace.path("out/metrics.jsonl"))?;
    let lines = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    ensure!(lines.len() == found.len() - 1 && lines.len() == 5 + 3, "{} lines", lines.len());
    for (line, event) in lines.iter().zip(&found[1..]) {
        ensure!(line["step"] == event.step, "{line} and {event:?}");
        let pairs: &[(&str, &str)] = match line.get("eval_loss") {
            Some(_) => &[("eval_loss", "eval/loss"), ("perplexity", "eval/perplexity")],
            None => &[
                ("loss", "train/loss"),
                ("lr", "train/learning_rate"),
                ("grad_norm", "train/grad_norm"),
            ],
        };
        for (key, tag) in pairs {
            let value = line[*key].as_f64().context("a number")? as f32;
            ensure!(event.scalars[*tag] == value, "{tag}: {event:?}, not {line}");
        }
        let speed = event.scalars.get("train/tokens_per_second");
        ensure!(speed.is_none_or(|&speed| speed > 0.0) && speed.is_some() == (pairs.len() == 3));
    }
    Ok(())
}

#[test]
fn a_run_that_goes_on_tells_where_it_begins() -> Result<()> {
    let workplace = Workplace::new()?;
    let options = options(&workplace, "out");
    until(&options, false, 2)?;
    until(&options, true, usize::MAX)?;
    let found = files(&workplace.path("out"))?;
    ensure!(found.len() == 2, "{found:?}");
    let second = events(&found[1])?;
    ensure!(second[0].version.is_some() && second[1].is_start, "{second:?}");
    assert_eq!(second[1].step, 3);
    assert_eq!(second[2].step, 3);
    // A run that is begun anew leaves nothing of the one before.
    let _own = thread_rng(0);
    let start = Start::open(&options, None, Device::Cpu)?;
    let session = Session { resume: false, overwrite: true };
    run(start, &options, session, &AtomicBool::new(false), |_| {})?;
    ensure!(files(&workplace.path("out"))?.len() == 1);
    Ok(())
}
