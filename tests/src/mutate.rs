//! Damaged files: valid ones of every format that is read, and changes that keep most of them.
//!
//! Random bytes never come past a magic number. So a small valid file is changed at a few places, and where
//! a format has checksums they are made right again, or nothing behind them would be reached.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use genesis::data::{
    Csv, CsvOptions, Image, SampleRng, TextFile, TokenShards, TokenWidth, Tokens, bible_text,
    read_idx,
};
use genesis::io::{
    Checkpoint, Checkpoints, GgufFile, Keep, SafeTensorsFile, Weights, diff_checkpoints, load_npy,
    load_npz, load_safetensors, save_npy, save_npz, save_safetensors, save_safetensors_with,
    save_sharded,
};
use genesis::memory::SnapshotFile;
use genesis::optim::State;
use genesis::{DType, Device, Tensor};
use genesis_kernel::autotune::Database;
use genesis_kernel::cache::{DiskCache, Key};
use genesis_kernel::ir::{parse, print, verify};
use genesis_kernel::{Hints, KernelDef, Specialized, Target};

/// A format of files.
pub struct Format {
    /// What it is called in messages.
    pub name: &'static str,
    /// A small file of it.
    pub valid: Vec<u8>,
    /// The bytes at its beginning that most changes are of: what is behind them is data.
    pub head: usize,
    /// Makes checksums right again, and packs what is packed.
    pub mend: fn(Vec<u8>) -> Vec<u8>,
    /// Reads a file; whether it was accepted.
    pub read: Box<dyn Fn(&Path) -> bool>,
    /// The bytes that its reader may take beside twice the file, where that is bounded so.
    pub room: Option<usize>,
}

/// The kinds of files that a stranger's model is made of, and what a reader may take beside twice the file: values
/// of parsed JSON, the parts of small models, what is compiled of regular expressions. The crate `tokenizers`
/// keeps an entry for each tokenizer that a thread has used, in a table that doubles: 10 MB of a million files.
const ROOMS: [(&str, usize); 5] = [
    ("safetensors", 1 << 20),
    ("gguf", 1 << 20),
    ("config", 1 << 20),
    ("tokenizer", 16 << 20),
    ("chat-template", 1 << 20),
];

impl Format {
    /// A format without checksums.
    pub fn new(
        name: &'static str,
        valid: Vec<u8>,
        read: impl Fn(&Path) -> bool + 'static,
    ) -> Format {
        let room = ROOMS.iter().find(|(kind, _)| name.starts_with(kind)).map(|&(_, room)| room);
        let head = valid.len();
        Format { name, valid, head, mend: |bytes| bytes, read: Box::new(read), room }
    }

    /// The same with so many bytes before its data.
    pub fn headed(self, head: usize) -> Format {
        Format { head, ..self }
    }

    /// The same whose changed files are made whole again in some way.
    pub fn mended(self, mend: fn(Vec<u8>) -> Vec<u8>) -> Format {
        Format { mend, ..self }
    }
}

/// What was read of a file, or of one in a folder.
///
/// # Panics
/// If an error does not name the file, or says nothing besides.
pub fn told<T>(path: &Path, result: genesis::Result<T>) -> Option<T> {
    let error = match result {
        Ok(read) => return Some(read),
        Err(error) => error.to_string(),
    };
    let name = path.display().to_string();
    assert!(error.contains(&name), "an error does not name the file: {error}");
    assert!(error.len() > name.len() + 8, "an error does not say what is wrong: {error}");
    None
}

/// The longest that one file may take.
const LONGEST: Duration = Duration::from_secs(10);

/// Reads changed files of all formats in turns; what each is, its number says.
///
/// # Errors
/// If a valid file is refused, or a reader panics or takes more than 10 s.
pub fn read_mutated(numbers: Range<u64>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let formats = formats(folder.path())?;
    let path = folder.path().join("mutated");
    for format in &formats {
        fs::write(&path, (format.mend)(format.valid.clone()))?;
        ensure!((format.read)(&path), "{}: the valid file is refused", format.name);
    }
    for number in numbers {
        let format = &formats[(number % formats.len() as u64) as usize];
        let mut rng = SampleRng::new(number);
        fs::write(&path, (format.mend)(mutated(format, &mut rng)))?;
        let start = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| (format.read)(&path)));
        ensure!(outcome.is_ok(), "{}: file {number} panics", format.name);
        let took = start.elapsed();
        ensure!(took < LONGEST, "{}: file {number} took {took:?}", format.name);
    }
    Ok(())
}

/// A damaged file: half of those that are JSON have values in the places of others, all others changed bytes,
/// seven of eight in what stands before the data.
pub fn mutated(format: &Format, rng: &mut SampleRng) -> Vec<u8> {
    let valid = &format.valid;
    if valid.starts_with(b"{") && rng.below(2) == 0 {
        return crate::mutate_text::rearranged(valid, rng);
    }
    let head = if rng.below(8) > 0 { format.head } else { valid.len() };
    let (head, data) = valid.split_at(head);
    [&mutate(head, rng), data].concat()
}

/// Changes a file at one to four places.
fn mutate(valid: &[u8], rng: &mut SampleRng) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    for _ in 0..=rng.below(4) {
        change(&mut bytes, rng);
    }
    bytes
}

/// Numbers that headers are not ready for.
const NUMBERS: [u64; 10] =
    [0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 62, i64::MAX as u64, u64::MAX];

fn change(bytes: &mut Vec<u8>, rng: &mut SampleRng) {
    let at = rng.below(bytes.len().max(1));
    let end = (at + 1 + rng.below(32)).min(bytes.len());
    if bytes.is_empty() {
        bytes.push(rng.next_u64() as u8);
        return;
    }
    match rng.below(9) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = rng.next_u64() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let copy = bytes[at..end].to_vec();
            let to = rng.below(bytes.len());
            bytes.splice(to..to, copy);
        }
        5 => {
            let number = NUMBERS[rng.below(NUMBERS.len())];
            let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
            let len = [1, 2, 4, 8][rng.below(4)];
            let number = if rng.below(2) == 0 { &little[..len] } else { &big[8 - len..] };
            let end = (at + len).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        6 => {
            // Digits of a text become others, or many more.
            let digits = NUMBERS[rng.below(NUMBERS.len())].to_string();
            let number = bytes[at..].iter().position(u8::is_ascii_digit).map(|n| at + n);
            let start = number.unwrap_or(at);
            let rest = bytes[start..].iter().position(|b| !b.is_ascii_digit());
            let end = rest.map_or(bytes.len(), |n| start + n);
            bytes.splice(start..end, digits.bytes());
        }
        7 => {
            let other = bytes[rng.below(bytes.len())];
            bytes[at..end].fill(other);
        }
        _ => bytes.extend((0..rng.below(64)).map(|_| rng.next_u64() as u8)),
    }
}

/// Every format that is read, with its files below `folder`.
///
/// # Errors
/// If a valid file can't be made.
pub fn formats(folder: &Path) -> Result<Vec<Format>> {
    let mut all = images(folder)?;
    all.extend(data_sets());
    all.extend(arrays(folder)?);
    all.extend(compiler_files()?);
    all.push(memory_snapshot(folder)?);
    all.push(format("gguf", include_bytes!("../fixtures/read/small.gguf"), same, read_gguf));
    all.push(shards(&folder.join("shards"))?);
    let texts = crate::mutate_text::formats().into_iter();
    all.extend(texts.map(|(name, valid, read)| format(name, &valid, same, read)));
    all.extend(crate::mutate_models::formats(&folder.join("models"))?);
    all.extend(checkpoint_files(&folder.join("checkpoints"))?);
    all.push(cache_entry(&folder.join("cache")));
    Ok(all)
}

fn format(
    name: &'static str,
    valid: &[u8],
    mend: fn(Vec<u8>) -> Vec<u8>,
    read: fn(&Path) -> bool,
) -> Format {
    Format::new(name, valid.to_vec(), read).mended(mend)
}

/// What is to be made right again in a file without checksums.
fn same(bytes: Vec<u8>) -> Vec<u8> {
    bytes
}

/// A file as it is written.
fn written(path: &Path, write: impl Fn(&Path) -> genesis::Result<()>) -> Result<Vec<u8>> {
    write(path)?;
    Ok(fs::read(path)?)
}

fn images(folder: &Path) -> Result<Vec<Format>> {
    let read = |path: &Path| Image::open(path).is_ok();
    let png =
        written(&folder.join("x.png"), |path| Image::new(3, 4, 5, vec![0.5; 60])?.save_png(path))?;
    Ok(vec![
        format("png", &png, mend_png, read),
        format("png-palette", include_bytes!("../fixtures/read/palette.png"), mend_png, read),
        format("png-damaged", &png, same, read),
        format("jpeg", include_bytes!("../fixtures/read/baseline.jpg"), same, read),
        format("jpeg-progressive", include_bytes!("../fixtures/read/progressive.jpg"), same, read),
        format("jpeg-gray", include_bytes!("../fixtures/read/gray.jpg"), same, read),
    ])
}

/// Labels, tables and texts to train on.
fn data_sets() -> Vec<Format> {
    let idx = vec![0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6];
    let read_labels = |path: &Path| read_idx(path).is_ok();
    let read_table = |path: &Path| {
        Csv::read(path, CsvOptions::default()).and_then(|csv| csv.to_tensor(&[0])).is_ok()
    };
    let read_tokens = |path: &Path| {
        let shards = TokenShards::open(&[path], TokenWidth::U16).map(|s| s.read(1, 1 << 40));
        TextFile::open(path).is_ok_and(|file| !file.bytes().is_empty()) && shards.is_ok()
    };
    vec![
        format("idx", &idx, same, read_labels),
        format("idx-gzip", &idx, gzip, read_labels),
        format("idx-gzip-damaged", &gzip(idx.clone()), same, read_labels),
        format("csv", b"a,b\n1,\"x, \"\"y\"\"\"\r\n2,3\n", same, read_table),
        format("tokens", b"to be or not to be", same, read_tokens),
        format("bible", &bible(), same, |path| bible_text(Some(path)).is_ok()),
    ]
}

/// Tensors by number and by name.
fn arrays(folder: &Path) -> Result<Vec<Format>> {
    let x = Tensor::arange(0.0, 6.0, 1.0, Device::Cpu)?.reshape(&[2, 3])?;
    let named = [("x".to_owned(), x.clone()), ("y".to_owned(), x.clone())].into();
    let npy = written(&folder.join("x.npy"), |path| save_npy(path, &x))?;
    let npz = written(&folder.join("x.npz"), |path| save_npz(path, &named))?;
    let tensors = written(&folder.join("x.safetensors"), |path| save_safetensors(path, &named))?;
    let dtypes = written(&folder.join("dtypes.safetensors"), save_dtypes)?;
    let read_npz = |path: &Path| load_npz(path, Device::Cpu).is_ok();
    Ok(vec![
        format("npy", &npy, same, |path| load_npy(path, Device::Cpu).is_ok()),
        format("npz", &npz, same, read_npz),
        format("npz-deflated", include_bytes!("../fixtures/read/deflated.npz"), same, read_npz),
        format("safetensors", &tensors, same, read_safetensors),
        format("safetensors-dtypes", &dtypes, same, read_safetensors),
    ])
}

fn compiler_files() -> Result<[Format; 2]> {
    Ok([
        format("tile-ir", tile_ir()?.as_bytes(), same, read_tile_ir),
        format("tuned", TUNED, same, read_tuned),
    ])
}

fn memory_snapshot(folder: &Path) -> Result<Format> {
    let valid =
        written(&folder.join("snapshot.json"), |path| genesis::memory::dump_snapshot(path))?;
    let read = |path: &Path| SnapshotFile::read(path).is_ok_and(|file| !file.to_html().is_empty());
    Ok(format("memory-snapshot", &valid, same, read))
}

/// A tensor of every dtype, one of no axes, one of nothing, and texts.
fn save_dtypes(path: &Path) -> genesis::Result<()> {
    let tensor =
        |dtype: DType| Ok((dtype.to_string(), Tensor::ones(&[2, 1], (dtype, Device::Cpu))?));
    let mut named: BTreeMap<String, Tensor> =
        DType::ALL.into_iter().map(tensor).collect::<genesis::Result<_>>()?;
    named.insert("scalar".to_owned(), Tensor::ones(&[], Device::Cpu)?);
    named.insert("nothing".to_owned(), Tensor::ones(&[3, 0], Device::Cpu)?);
    save_safetensors_with(path, &named, &[("format".to_owned(), "pt".to_owned())].into())
}

/// All that a safetensors file says, and every value of it.
fn read_safetensors(path: &Path) -> bool {
    let metadata = told(path, SafeTensorsFile::open(path)).map(|file| file.metadata().len());
    told(path, load_safetensors(path, Device::Cpu)).is_some() && metadata.is_some()
}

/// All that a GGUF file says, and every value of it.
fn read_gguf(path: &Path) -> bool {
    let Some(file) = told(path, GgufFile::open(path)) else { return false };
    for array in file.metadata().values().filter_map(|value| value.as_array()) {
        assert_eq!(array.values().count(), array.len(), "an array has all of its elements");
    }
    let values = |name: &String| file.dequantized(name).is_ok_and(|v| v.len() < 1 << 20);
    assert!(file.tensors().keys().all(values), "tensors that were accepted are read");
    told(path, Weights::open(path))
        .is_some_and(|weights| told(path, weights.load_all(Device::Cpu)).is_some())
}

/// The index of two shards, which are whole.
fn shards(folder: &Path) -> Result<Format> {
    let ones =
        |name: &str| -> Result<_> { Ok((name.to_owned(), Tensor::ones(&[2], Device::Cpu)?)) };
    save_sharded(folder, &BTreeMap::from_iter([ones("x")?, ones("y")?]), 1)?;
    let index = folder.join("model.safetensors.index.json");
    let valid = fs::read(&index)?;
    let folder = folder.to_owned();
    let read = move |path: &Path| {
        let weights = fs::copy(path, &index).map_err(drop);
        let weights = weights.and_then(|_| Weights::open(&folder).map_err(drop));
        weights.is_ok_and(|weights| weights.load_all(Device::Cpu).is_ok())
    };
    Ok(Format::new("shards", valid, read))
}

/// A line of the file of measurements.
const TUNED: &[u8] = br#"{"kernel":"sum","dtypes":["f32"],"sizes":{"n":1024},"forms":"","device":"cpu","driver":0,"consts":{"BLOCK":64},"options":{"num_warps":4},"us":1.5,"date":"2026-11-21"}
"#;

fn read_tuned(path: &Path) -> bool {
    let records = Database::at(path).records();
    for record in &records {
        let _ = (record.line(), record.distance(&["n"], &[7]));
        for kernel in kernels::all().iter().take(3) {
            let _ = record.config(kernel.ast);
        }
    }
    !records.is_empty()
}

/// A kernel with a loop, as text.
fn tile_ir() -> Result<String> {
    let text = |kernel: &&KernelDef| {
        let dtypes = vec![DType::F32; kernel.ast.dtypes.len()];
        let consts = vec![16; kernel.ast.consts.len()];
        kernel.specialize(&dtypes, &consts, &Hints::default()).ok().map(|made| made.tir())
    };
    let has_loop = |text: &String| text.contains(" for ") && text.len() < 4000;
    kernels::all().iter().filter_map(text).find(has_loop).context("no kernel has a loop")
}

/// What verifies is printed, read again, and compiled.
fn read_tile_ir(path: &Path) -> bool {
    let Ok(func) = fs::read_to_string(path).map_err(drop).and_then(|t| parse(&t).map_err(drop))
    else {
        return false;
    };
    if verify(&func).is_err() {
        return false;
    }
    let text = print(&func);
    let again = parse(&text).unwrap_or_else(|error| panic!("can't be read back: {error}\n{text}"));
    assert_eq!(print(&again), text, "reads back as something else");
    let special = Specialized::new(func, &[], &[], &Hints::default());
    special.compile(&Target::sm_90a()).is_ok()
}

fn gzip(bytes: Vec<u8>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let packed = encoder.write_all(&bytes).and_then(|()| encoder.finish());
    packed.expect("a vector takes all that is written")
}

/// Makes the checksum of each chunk right.
fn mend_png(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 8;
    while let Some(&[a, b, c, d]) = bytes.get(at..at + 4) {
        let end = at.saturating_add(8).saturating_add(u32::from_be_bytes([a, b, c, d]) as usize);
        let Some(chunk) = bytes.get(at + 4..end) else { break };
        let mut sum = flate2::Crc::new();
        sum.update(chunk);
        let Some(place) = bytes.get_mut(end..end + 4) else { break };
        place.copy_from_slice(&sum.sum().to_be_bytes());
        at = end + 4;
    }
    bytes
}

/// A file of one window, whose codes of 9 bits are letters and one entry.
fn bible() -> Vec<u8> {
    let mut bytes = b"EC02Compressed Data File".to_vec();
    bytes.resize(0x58, 0);
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0x60]);
    let codes = [u64::from(b'a'), u64::from(b'b'), 257, 259, 256];
    let packed = codes.iter().rev().fold(0, |packed, code| packed << 9 | code);
    bytes.extend(packed.to_le_bytes());
    bytes
}

const SEAL: &str = ",\n  \"blake3\": \"";

/// The manifest with its own hash, which is its last entry, made right.
fn seal(manifest: Vec<u8>) -> Vec<u8> {
    let at = manifest.windows(SEAL.len()).rposition(|part| part == SEAL.as_bytes());
    let body = &manifest[..at.unwrap_or(manifest.len())];
    let end = format!("{SEAL}{}\"\n}}\n", blake3::hash(body).to_hex());
    [body, end.as_bytes()].concat()
}

/// The files of a checkpoint that are not tensors. What is read is a copy of it with one file changed.
fn checkpoint_files(root: &Path) -> Result<[Format; 2]> {
    let x = Tensor::ones(&[2], Device::Cpu)?;
    let state = State {
        tensors: [("x".to_owned(), x.clone())].into(),
        numbers: [("step".to_owned(), 3.0), ("best".to_owned(), f64::INFINITY)].into(),
    };
    let whole = Checkpoint {
        step: 3,
        model: [("w".to_owned(), x)].into(),
        states: [("optimizer".to_owned(), state)].into(),
        rng: Some(genesis::random::get_rng_state()),
        data: Some(genesis::data::LoaderState::default()),
        metric: Some(0.5),
        ..Checkpoint::default()
    };
    let folder = Checkpoints::open(root, Keep::default())?.save(&whole)?;
    let load = move |folder: &Path| {
        let other = folder.with_file_name("step-00000009");
        let listed = genesis::io::list_checkpoints(root_of(folder)).is_ok();
        let compared = diff_checkpoints(folder, &other).is_err();
        Checkpoint::load(folder, Device::Cpu).is_ok() && listed && compared
    };
    let (manifest, state) = (fs::read(folder.join("manifest.json"))?, folder.join("state.json"));
    let (text, own, its) = (fs::read(&state)?, folder.clone(), manifest.clone());
    let read_state = move |path: &Path| {
        let Ok(bytes) = fs::read(path) else { return false };
        let mut described: serde_json::Value = match serde_json::from_slice(&its) {
            Ok(described) => described,
            Err(_) => return false,
        };
        described["files"]["state.json"] = serde_json::json!({
            "bytes": bytes.len(),
            "blake3": blake3::hash(&bytes).to_hex().to_string(),
        });
        described.as_object_mut().map(|entries| entries.remove("blake3"));
        let text = format!("{described:#}");
        let sealed = seal(text.trim_end_matches("\n}").as_bytes().to_vec());
        let written = fs::write(own.join("state.json"), bytes)
            .and_then(|()| fs::write(own.join("manifest.json"), sealed));
        written.is_ok() && load(&own)
    };
    let whole_text = text.clone();
    let read_manifest = move |path: &Path| {
        let written = fs::write(folder.join("state.json"), &whole_text)
            .and_then(|()| fs::copy(path, folder.join("manifest.json")));
        written.is_ok() && load(&folder)
    };
    Ok([
        Format::new("state.json", text, read_state),
        Format::new("manifest.json", manifest, read_manifest).mended(seal),
    ])
}

fn root_of(folder: &Path) -> PathBuf {
    folder.parent().map(Path::to_owned).unwrap_or_default()
}

fn cache_entry(folder: &Path) -> Format {
    let (cache, key) = (DiskCache::new(folder, 1 << 20), Key::of(&[b"mutated"]));
    let was_put = cache.put(&key, b"what a kernel compiles to");
    let path = folder.join(format!("{key}.bin"));
    let valid = if was_put { fs::read(&path).unwrap_or_default() } else { Vec::new() };
    let read = move |mutated: &Path| fs::copy(mutated, &path).is_ok() && cache.get(&key).is_some();
    Format::new("cache", valid, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_files_are_read_and_changed_ones_do_no_harm() {
        read_mutated(0..200).unwrap();
    }
}
