//! The files of a model on this machine: a folder as Hugging Face publishes it, or one GGUF file.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::{Weights, shard_names};

/// The weights of a model in one file.
pub(super) const SINGLE: &str = "model.safetensors";

/// The index of weights in several files.
pub(super) const INDEX: &str = "model.safetensors.index.json";

/// Where a model is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelFiles {
    name: String,
    kind: Kind,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    Folder(PathBuf),
    Gguf(PathBuf),
}

impl ModelFiles {
    /// What was asked for: a name on the hub, or a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder that holds `config.json` and the weights; none of a GGUF file.
    pub fn folder(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Folder(folder) => Some(folder),
            Kind::Gguf(_) => None,
        }
    }

    /// The GGUF file; none of a folder.
    pub fn gguf(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Gguf(file) => Some(file),
            Kind::Folder(_) => None,
        }
    }

    /// A file of the folder, where it is there: `tokenizer.json`.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        self.folder().map(|folder| folder.join(name)).filter(|path| path.is_file())
    }

    /// Opens the weights.
    ///
    /// # Errors
    /// If a file is missing, cut off or damaged.
    pub fn weights(&self) -> Result<Weights> {
        match &self.kind {
            Kind::Folder(path) | Kind::Gguf(path) => Weights::open(path),
        }
    }

    /// The files at a path; `tag` names one of several GGUF files.
    pub(super) fn at(name: &str, path: &Path, tag: Option<&str>) -> Result<ModelFiles> {
        let found = |kind| Ok(ModelFiles { name: name.to_owned(), kind });
        if path.is_file() {
            let is_gguf = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"));
            let why = "is no .gguf file, and no folder of a model";
            return match is_gguf {
                true => found(Kind::Gguf(path.to_owned())),
                false => Err(Error::io(format!("{} {why}", path.display()))),
            };
        }
        if tag.is_none() && path.join("config.json").is_file() && has_weights(path)? {
            return found(Kind::Folder(path.to_owned()));
        }
        let problem = |error| Error::io(format!("can't read {}: {error}", path.display()));
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(problem)? {
            let entry = entry.map_err(problem)?;
            // A link whose contents are gone is no file.
            if entry.path().is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let picked = pick_gguf(&names, tag);
        let file = picked.map_err(|why| Error::io(format!("{} {why}", path.display())))?;
        found(Kind::Gguf(path.join(file)))
    }
}

/// Whether all weights of a folder are there.
///
/// # Errors
/// If an index of shards can't be read or a shard is missing.
fn has_weights(folder: &Path) -> Result<bool> {
    if folder.join(SINGLE).is_file() {
        return Ok(true);
    }
    let index = folder.join(INDEX);
    if index.is_file() {
        return match shard_names(&index)?.into_iter().find(|name| !folder.join(name).is_file()) {
            Some(name) => Err(Error::io(format!("{} is missing {name}", folder.display()))),
            None => Ok(true),
        };
    }
    let is_safetensors = |path: &Path| path.extension().is_some_and(|e| e == "safetensors");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    Ok(entries.filter(|entry| is_safetensors(&entry.path()) && entry.path().is_file()).count() == 1)
}

/// The one GGUF file among names, or the one that `tag` is the end or the whole of.
pub(super) fn pick_gguf(names: &[&str], tag: Option<&str>) -> Result<String, String> {
    let is_gguf = |name: &&&str| name.to_ascii_lowercase().ends_with(".gguf");
    let all: Vec<&str> = names.iter().filter(is_gguf).copied().collect();
    let fits = |name: &&&str| {
        let (name, tag) = (name.to_ascii_lowercase(), tag.unwrap_or_default().to_ascii_lowercase());
        let stem = name.trim_end_matches(".gguf");
        // `Q4_K` is not the end of `IQ4_K`, but of `model-Q4_K` and `model.Q4_K`.
        let before = stem.strip_suffix(&tag).map(|rest| rest.ends_with(['-', '.', '_']));
        tag.is_empty() || name == tag || stem == tag || before == Some(true)
    };
    let list = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
    let fitting: Vec<&str> = all.iter().filter(fits).copied().collect();
    match (fitting.as_slice(), tag) {
        ([one], _) if one.contains("-of-0") => {
            Err(format!("has its weights in several GGUF files, which is not read: {list}"))
        }
        ([one], _) => Ok((*one).to_owned()),
        ([], None) => {
            let files: Vec<&str> = names.iter().take(12).copied().collect();
            let files = if files.is_empty() { "nothing".to_owned() } else { files.join(", ") };
            Err(format!(
                "has no model: no config.json with safetensors and no GGUF file, it has {files}"
            ))
        }
        ([], Some(tag)) => Err(format!("has no GGUF file {tag}, it has {list}")),
        (_, None) => Err(format!("has several GGUF files, name one after a colon: {list}")),
        (several, Some(tag)) => {
            Err(format!("has several GGUF files {tag}: {}", several.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn made(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|name| fs::write(folder.path().join(name), "{}").unwrap());
        folder
    }

    fn at(folder: &Path, tag: Option<&str>) -> Result<ModelFiles> {
        ModelFiles::at("m", folder, tag)
    }

    #[test]
    fn a_folder_is_a_model_or_holds_one_gguf_file() {
        let folder = made(&["config.json", SINGLE, "tokenizer.json"]);
        let files = at(folder.path(), None).unwrap();
        assert_eq!((files.folder(), files.gguf()), (Some(folder.path()), None));
        assert!(files.file("tokenizer.json").is_some() && files.file("vocab.json").is_none());
        let folder = made(&["m.gguf", "README.md"]);
        let gguf = folder.path().join("m.gguf");
        assert_eq!(at(folder.path(), None).unwrap().gguf(), Some(gguf.as_path()));
        assert_eq!(at(&gguf, None).unwrap().gguf(), Some(gguf.as_path()));
    }

    #[test]
    fn what_is_no_model_says_what_is_there() {
        let error = |files: &[&str]| at(made(files).path(), None).unwrap_err().to_string();
        assert!(error(&["pytorch_model.bin"]).ends_with("it has pytorch_model.bin"));
        assert!(error(&["a.gguf", "b.gguf"]).ends_with("name one after a colon: a.gguf, b.gguf"));
        let folder = made(&["config.json"]);
        fs::write(folder.path().join(INDEX), r#"{"weight_map":{"x":"a.safetensors"}}"#).unwrap();
        let missing = at(folder.path(), None).unwrap_err().to_string();
        assert!(missing.ends_with("is missing a.safetensors"), "{missing}");
        let other = at(&made(&["x.bin"]).path().join("x.bin"), None).unwrap_err().to_string();
        assert!(other.contains("x.bin"), "{other}");
    }

    #[test]
    fn a_tag_is_the_end_of_a_name() {
        let all = [
            "m-IQ4_XS.gguf",
            "m-Q4_K_M.gguf",
            "m-Q4_K_S.gguf",
            "README.md",
            "x-00001-of-00002.gguf",
        ];
        assert_eq!(pick_gguf(&all, Some("q4_k_m")), Ok("m-Q4_K_M.gguf".to_owned()));
        assert_eq!(pick_gguf(&all, Some("m-Q4_K_S.gguf")), Ok("m-Q4_K_S.gguf".to_owned()));
        assert!(pick_gguf(&all, Some("Q4_XS")).unwrap_err().starts_with("has no GGUF file Q4_XS"));
        assert!(pick_gguf(&all, Some("00002")).unwrap_err().contains("which is not read"));
    }
}
