//! The manifest of a checkpoint: which files there are, and what they must hash to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use super::number::{from_json, to_json};
use super::whole::{sync_folder, write_file};
use crate::error::{Error, Result};
use crate::files::{Mapped, read_regular};

const MANIFEST: &str = "manifest.json";
const FORMAT: &str = "genesis checkpoint 1";

/// A file of a checkpoint as its manifest has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    bytes: u64,
    blake3: String,
}

impl Entry {
    /// How long [`Entry::to_bytes`] is.
    pub(crate) const BYTES: usize = 40;

    /// The same as bytes, which a rank sends.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let hash = blake3::Hash::from_hex(&self.blake3).map(|hash| *hash.as_bytes());
        [&self.bytes.to_le_bytes()[..], &hash.unwrap_or_default()].concat()
    }

    /// What a rank sent; none where it is of another length.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Entry> {
        let (length, hash) = bytes.split_first_chunk()?;
        let hash = blake3::Hash::from_bytes(hash.try_into().ok()?);
        Some(Entry { bytes: u64::from_le_bytes(*length), blake3: hash.to_hex().to_string() })
    }
}

/// A checkpoint on disk.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckpointInfo {
    /// Its folder.
    pub path: PathBuf,
    /// Steps done.
    pub step: u64,
    /// How good the model is, where that was measured.
    pub metric: Option<f64>,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Writes a file of a checkpoint; its folder is synced with the manifest.
pub(super) fn write_new(folder: &Path, name: &str, parts: &[&[u8]]) -> Result<Entry> {
    write_file(&folder.join(name), parts)?;
    let mut hash = blake3::Hasher::new();
    for part in parts {
        hash.update(part);
    }
    let bytes = parts.iter().map(|part| part.len() as u64).sum();
    Ok(Entry { bytes, blake3: hash.finalize().to_hex().to_string() })
}

/// Writes the manifest: with it a checkpoint is complete.
pub(super) fn write(
    folder: &Path,
    step: u64,
    metric: Option<f64>,
    files: &BTreeMap<String, Entry>,
) -> Result<()> {
    let entries = files.iter().map(|(name, entry)| {
        (name.clone(), json!({ "bytes": entry.bytes, "blake3": entry.blake3 }))
    });
    let manifest = json!({
        "format": FORMAT,
        "genesis": env!("CARGO_PKG_VERSION"),
        "step": step,
        "metric": metric.map(to_json),
        "files": entries.collect::<serde_json::Map<_, _>>(),
    });
    let text = format!("{manifest:#}");
    let text = text.trim_end_matches("\n}");
    let seal = seal(text);
    write_file(&folder.join(MANIFEST), &[text.as_bytes(), SEAL.as_bytes(), seal.as_bytes()])?;
    sync_folder(folder)
}

/// What stands before the manifest's hash of itself, which is its last entry.
const SEAL: &str = ",\n  \"blake3\": \"";

/// A hash of all that stands before it, and the end of the file.
fn seal(text: &str) -> String {
    format!("{}\"\n}}\n", blake3::hash(text.as_bytes()).to_hex())
}

/// What a manifest says, after its own hash was checked.
pub(super) struct Manifest {
    step: u64,
    metric: Option<f64>,
    pub(super) files: BTreeMap<String, Entry>,
}

/// Reads a manifest, which is small, and none of its files.
pub(super) fn read(folder: &Path) -> Result<Manifest> {
    let path = folder.join(MANIFEST);
    let problem = |what: &str| Error::io(format!("{}: {what}", path.display()));
    let text = read_regular(&path)?;
    let damaged = || problem("is damaged or no manifest of a checkpoint");
    let text = std::str::from_utf8(&text).map_err(|_| damaged())?;
    let sealed = text.rsplit_once(SEAL).filter(|(body, end)| seal(body) == *end);
    if sealed.is_none() {
        return Err(damaged());
    }
    let value: Value = serde_json::from_str(text).map_err(|_| damaged())?;
    let mut files = BTreeMap::new();
    for (name, entry) in value["files"].as_object().ok_or_else(damaged)? {
        let bytes = entry["bytes"].as_u64().ok_or_else(damaged)?;
        let blake3 = entry["blake3"].as_str().ok_or_else(damaged)?.to_owned();
        // A name must stay inside the folder, whoever wrote it.
        if Path::new(name).file_name() != Some(name.as_ref()) {
            return Err(damaged());
        }
        files.insert(name.clone(), Entry { bytes, blake3 });
    }
    let step = value["step"].as_u64().ok_or_else(damaged)?;
    let metric = from_json(&value["metric"]);
    if value["format"] != FORMAT {
        let message = format!("is of format {}, which is not read", value["format"]);
        return Err(problem(&message));
    }
    Ok(Manifest { step, metric, files })
}

/// Reads every file of a checkpoint and compares sizes and hashes with the manifest.
///
/// # Errors
/// If the folder is no complete checkpoint, with the first file that is wrong and how.
pub fn verify_checkpoint(folder: impl AsRef<Path>) -> Result<CheckpointInfo> {
    let folder = folder.as_ref();
    let manifest = read(folder)?;
    manifest.files.iter().try_for_each(|(name, entry)| verify_file(&folder.join(name), entry))?;
    Ok(info(folder, &manifest))
}

/// [`verify_checkpoint`] of every so many files, from one on: the share of one of several ranks.
pub(crate) fn verify_share(folder: &Path, (rank, ranks): (usize, usize)) -> Result<()> {
    let manifest = read(folder)?;
    let own = manifest.files.iter().skip(rank).step_by(ranks.max(1));
    own.into_iter().try_for_each(|(name, entry)| verify_file(&folder.join(name), entry))
}

/// Compares a file with what was written.
fn verify_file(path: &Path, entry: &Entry) -> Result<()> {
    let bytes = Mapped::open(path)?;
    let problem = |what: String| Err(Error::io(format!("{}: {what}", path.display())));
    if bytes.len() as u64 != entry.bytes {
        return problem(format!("has {} bytes, {} were written", bytes.len(), entry.bytes));
    }
    match blake3::hash(&bytes).to_hex().as_str() == entry.blake3 {
        true => Ok(()),
        false => problem("is damaged: its hash is not what was written".to_owned()),
    }
}

fn info(folder: &Path, manifest: &Manifest) -> CheckpointInfo {
    CheckpointInfo {
        path: folder.to_owned(),
        step: manifest.step,
        metric: manifest.metric,
        // A manifest may claim any sizes; they are compared with the files before those are read.
        bytes: manifest.files.values().fold(0, |sum: u64, entry| sum.saturating_add(entry.bytes)),
    }
}

/// The checkpoints in a folder by their manifests, the earliest first, without reading their files.
///
/// # Errors
/// If the folder can't be read.
pub fn list_checkpoints(root: impl AsRef<Path>) -> Result<Vec<CheckpointInfo>> {
    let folders = candidates(root.as_ref())?;
    let mut found: Vec<CheckpointInfo> =
        folders.iter().filter_map(|(_, folder)| Some(info(folder, &read(folder).ok()?))).collect();
    found.sort_by_key(|info| info.step);
    Ok(found)
}

/// Folders named like checkpoints with their steps, the latest first.
pub(crate) fn candidates(root: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let problem = |error| Error::io(format!("can't read {}: {error}", root.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(root).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let step = name.strip_prefix("step-").map(|rest| rest.trim_end_matches(".old"));
        if let Some(step) = step.and_then(|step| step.parse::<u64>().ok()) {
            found.push((step, path));
        }
    }
    // `.old` comes after the name that it is a prefix of.
    found.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    Ok(found)
}
