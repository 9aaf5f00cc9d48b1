//! Damaged and hostile files: every reader gives an error or what the file holds, within time and memory.
//!
//! The files are read by a process of their own, whose memory is limited: an allocation that a header asks for
//! ends it. `MUTATED_FILES=1000000` reads so many in the place of a few thousand.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use genesis::data::{Image, ImageFolder, TextFile, TokenShards, TokenWidth, read_idx};
use genesis::io::{SafeTensorsFile, load_npy, load_npz, load_safetensors};
use genesis::{Device, data};
use tests::mutate::read_mutated;

const BASELINE: &[u8] = include_bytes!("../fixtures/read/baseline.jpg");
const PROGRESSIVE: &[u8] = include_bytes!("../fixtures/read/progressive.jpg");
const GRAY: &[u8] = include_bytes!("../fixtures/read/gray.jpg");

/// The address space of the process that reads, in KiB: 3 GiB, of which LLVM and threads take a part.
const LIMIT_KIB: u64 = 3 << 20;
/// Set for the process that reads: how many files.
const CHILD: &str = "GENESIS_TEST_READ_MUTATED";

#[test]
fn damaged_files_are_errors() -> Result<()> {
    if let Ok(count) = std::env::var(CHILD) {
        return read_mutated(0..count.parse()?);
    }
    let count = std::env::var("MUTATED_FILES").unwrap_or_else(|_| "4000".to_owned());
    let exe = std::env::current_exe()?;
    let command = format!("ulimit -v {LIMIT_KIB}; exec \"$0\" --exact \"$1\" --nocapture");
    let output = Command::new("sh")
        .args(["-c", &command])
        .arg(exe)
        .arg("readers::damaged_files_are_errors")
        .env(CHILD, count)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    ensure!(text.contains("1 passed"), "nothing was read: {text}");
    Ok(())
}

#[test]
fn a_jpeg_that_is_cut_off_is_refused() {
    for whole in [BASELINE, PROGRESSIVE, GRAY] {
        let image = Image::decode(whole).unwrap();
        assert_eq!((image.height(), image.width()), (13, 20));
        for len in 0..whole.len() {
            assert!(Image::decode(&whole[..len]).is_err(), "cut to {len} bytes");
        }
        // What stands behind the end belongs to others.
        assert!(Image::decode(&[whole, b"more"].concat()).is_ok());
    }
}

#[test]
fn a_small_jpeg_cannot_ask_for_much() {
    // The extents follow the precision in the frame's header.
    for (whole, frame) in [(BASELINE, 0xC0), (PROGRESSIVE, 0xC2), (GRAY, 0xC0)] {
        let at = whole.windows(2).position(|pair| pair == [0xFF, frame]).unwrap() + 5;
        let mut huge = whole.to_vec();
        huge[at..at + 4].fill(0xFF);
        let start = Instant::now();
        let error = Image::decode(&huge).unwrap_err().to_string();
        assert!(error.starts_with("says it is 65535x65535 pixels, which"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(1));
    }
}

/// All that opens a file by its path.
fn refuses(path: &Path) {
    let device = Device::Cpu;
    let errors = [
        Image::open(path).err(),
        read_idx(path).err(),
        data::Csv::read(path, data::CsvOptions::default()).err(),
        data::bible_text(Some(path)).err(),
        TextFile::open(path).err(),
        TokenShards::open(&[path], TokenWidth::U16).err(),
        load_npy(path, device).err(),
        load_npz(path, device).err(),
        load_safetensors(path, device).err(),
        SafeTensorsFile::open(path).err(),
    ];
    for error in errors {
        let error = error.expect("no reader takes what is not a file").to_string();
        assert!(error.contains("is not a regular file"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn what_is_not_a_regular_file_is_refused_without_waiting() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let pipe = folder.path().join("class/pipe.png");
    fs::create_dir(folder.path().join("class"))?;
    let made = Command::new("mkfifo").arg(&pipe).status().context("mkfifo")?;
    ensure!(made.success());
    refuses(&pipe);
    refuses(folder.path());
    refuses(Path::new("/dev/zero"));
    let pictures = ImageFolder::open(folder.path())?;
    ensure!(data::Dataset::get(&pictures, 0).is_err());
    Ok(())
}
