//! Models by name: `Qwen/Qwen2.5-0.5B-Instruct` becomes the files of it on this machine.
//!
//! A name is looked for as a path first, then in Hugging Face's cache, which other programs fill too, and is
//! downloaded where both have nothing. What is downloaded lies where these programs look for it, is resumed
//! where it was cut off, and is compared with the checksum that the hub promised before it gets its name.
//!
//! ```text
//! ./model                                a folder, or a .gguf file
//! Qwen/Qwen2.5-0.5B-Instruct             models--Qwen--Qwen2.5-0.5B-Instruct in the cache
//! Qwen/Qwen2.5-0.5B-Instruct@v1          at a branch, tag or commit
//! Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M the one GGUF file of this name among several
//!
//! <cache>/models--Qwen--Qwen2.5-0.5B-Instruct/
//!     refs/main                          a commit
//!     blobs/<etag>                       contents, by their hash
//!     snapshots/<commit>/config.json     -> ../../blobs/<etag>
//! ```
//!
//! # Source
//! The layout that `huggingface_hub` describes in "Understand caching".

mod cache;
mod checksum;
mod client;
mod download;
mod files;
mod name;
mod options;

pub use files::ModelFiles;
pub use options::{HubOptions, OnProgress, Progress};

use std::path::Path;

use self::cache::Cache;
use self::name::Name;
use crate::error::{Error, Result};

/// Finds the files of a model: a path, else what the local Hugging Face cache has, else a download.
///
/// # Errors
/// If a path has no weights, a name is none, or the model is not in the cache and can't be downloaded: with
/// what was looked for, where, and why not.
///
/// # Examples
/// ```
/// use genesis::hub::{HubOptions, resolve};
///
/// let cache = tempfile::tempdir()?;
/// let offline = HubOptions {
///     cache: Some(cache.path().to_owned()),
///     offline: true,
///     ..HubOptions::default()
/// };
/// let error = resolve("Qwen/Qwen2.5-0.5B-Instruct", &offline).unwrap_err();
/// assert!(error.to_string().contains("HF_HUB_OFFLINE"));
/// # Ok::<(), genesis::Error>(())
/// ```
pub fn resolve(model: &str, options: &HubOptions) -> Result<ModelFiles> {
    if Path::new(model).exists() {
        return ModelFiles::at(model, Path::new(model), None);
    }
    let name = Name::parse(model).map_err(|why| Error::io(format!("{model}: {why}")))?;
    let Some(folder) = &options.cache else {
        let why = "no folder for downloads is known: set HF_HOME or HOME";
        return Err(Error::io(format!("{model}: is no path here, and {why}")));
    };
    let cache = Cache::new(folder, &name.repo);
    if let Some(snapshot) = cache.snapshot(&name.revision)
        && let Ok(files) = ModelFiles::at(model, &snapshot, name.file.as_deref())
    {
        return Ok(files);
    }
    let looked = format!(
        "{model} is no path here, and {} has no complete snapshot of revision {}",
        cache.folder().display(),
        name.revision
    );
    if options.offline {
        let why = "nothing is downloaded offline (HF_HUB_OFFLINE)";
        return Err(Error::io(format!("{looked}; {why}")));
    }
    let snapshot = download::model(&name, &cache, options)
        .map_err(|error| Error::io(format!("{looked}; {error}")))?;
    ModelFiles::at(model, &snapshot, name.file.as_deref())
}

#[cfg(test)]
mod tests;
