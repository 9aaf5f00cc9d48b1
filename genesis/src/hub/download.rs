//! Downloads the files of a model that are needed to run it.
//!
//! A file is written to `blobs/<etag>.incomplete`, whoever began that, from where it ends; when its size and hash
//! are right it gets the name `<etag>`, and a snapshot a link to it. Small files come first, so that a
//! snapshot with weights has all else too.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use ureq::Body;
use ureq::http::Response;

use super::cache::{Cache, problem};
use super::checksum;
use super::client::{Client, Failure, Meta, header, is_passing};
use super::files::{INDEX, SINGLE, pick_gguf};
use super::name::{Name, is_commit, is_part};
use super::{HubOptions, Progress};
use crate::error::{Error, Result};
use crate::io::shard_names;

/// Downloads a model; its snapshot.
pub(super) fn model(name: &Name, cache: &Cache, options: &HubOptions) -> Result<PathBuf> {
    let client = Client::new(options);
    let download = Download { client: &client, name, cache, options };
    let listing = download.listing()?;
    let (commit, all) = (listing.sha.as_str(), listing.names());
    let snapshot = cache.of_commit(commit);
    let wanted = match name.file {
        Some(_) => Vec::new(),
        None => all.iter().copied().filter(|file| is_small(file)).collect(),
    };
    for file in wanted {
        download.file(commit, file)?;
    }
    for file in download.weights(&all)? {
        let path = download.file(commit, &file)?;
        if file == INDEX {
            for shard in shard_names(&path)? {
                download.file(commit, &shard)?;
            }
        }
    }
    cache.name_commit(&name.revision, commit)?;
    Ok(snapshot)
}

/// What the hub says of a revision.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

impl Listing {
    /// Files that are in no folder: those of a model are not, but other formats of it are.
    fn names(&self) -> Vec<&str> {
        let all = self.siblings.iter().map(|sibling| sibling.rfilename.as_str());
        all.filter(|name| is_part(name)).collect()
    }
}

/// Whether a file is configuration, tokenizer or template.
fn is_small(name: &str) -> bool {
    let whole = ["config.json", "generation_config.json", "merges.txt", "added_tokens.json"];
    let starts = ["tokenizer", "special_tokens_map", "vocab", "chat_template"];
    whole.contains(&name) || starts.iter().any(|start| name.starts_with(start))
}

struct Download<'d> {
    client: &'d Client,
    name: &'d Name,
    cache: &'d Cache,
    options: &'d HubOptions,
}

impl Download<'_> {
    fn listing(&self) -> Result<Listing> {
        let (endpoint, Name { repo, revision, .. }) = (self.client.endpoint(), self.name);
        let revision = revision.replace('/', "%2F");
        let url = format!("{endpoint}/api/models/{repo}/revision/{revision}");
        let body = self.patiently(|| {
            // Where there is no network, who asks is told at once; later it may have gone for a moment.
            let answer = self.client.json(&url).map_err(|why| Failure::Lasting(why.text()))?;
            self.answered(answer, "")
        })?;
        let listing: Listing = serde_json::from_slice(&body)
            .map_err(|error| Error::io(format!("{url}: is no list of files: {error}")))?;
        match is_commit(&listing.sha) {
            true => Ok(listing),
            false => Err(Error::io(format!("{url}: {:?} is no commit", listing.sha))),
        }
    }

    /// The files that weights begin with: the index of shards for these.
    fn weights(&self, all: &[&str]) -> Result<Vec<String>> {
        if let Some(tag) = &self.name.file {
            return Ok(vec![self.gguf(all, Some(tag))?]);
        }
        if let Some(known) = [SINGLE, INDEX].into_iter().find(|known| all.contains(known)) {
            return Ok(vec![known.to_owned()]);
        }
        let others: Vec<&&str> = all.iter().filter(|name| name.ends_with(".safetensors")).collect();
        match others.as_slice() {
            [one] => Ok(vec![(**one).to_owned()]),
            _ => Ok(vec![self.gguf(all, None)?]),
        }
    }

    fn gguf(&self, all: &[&str], tag: Option<&str>) -> Result<String> {
        pick_gguf(all, tag).map_err(|why| Error::io(format!("{} {why}", self.name.repo)))
    }

    /// Tries again what may pass, each time after twice the wait.
    fn patiently<T>(&self, mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T> {
        let mut wait = self.options.wait;
        for _ in 0..self.options.retries {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(Failure::Lasting(why)) => return Err(Error::io(why)),
                Err(Failure::Passing(_)) => std::thread::sleep(wait),
            }
            wait = wait.saturating_mul(2);
        }
        attempt().map_err(|failure| Error::io(failure.text()))
    }

    /// What was asked for, or why the hub refuses it.
    fn answered<T>(&self, answer: Result<T, Response<Body>>, file: &str) -> Result<T, Failure> {
        answer.map_err(|response| {
            let why = self.refusal(&response, file);
            if is_passing(&response) { Failure::Passing(why) } else { Failure::Lasting(why) }
        })
    }

    /// Why the hub gives no file, or no model at all.
    fn refusal(&self, response: &Response<Body>, file: &str) -> String {
        let (endpoint, Name { repo, revision, .. }) = (self.client.endpoint(), self.name);
        let code = header(response, "x-error-code").unwrap_or_default();
        let token = if self.client.has_token() { "this HF_TOKEN" } else { "without HF_TOKEN" };
        match (response.status().as_u16(), code) {
            (_, "GatedRepo") => {
                format!("{repo} is gated: ask for access at {endpoint}/{repo}, and set HF_TOKEN")
            }
            (404, "RevisionNotFound") => format!("{repo} has no revision {revision}"),
            (404, _) if !file.is_empty() => format!("{repo} has no {file} at {revision}"),
            (401 | 403 | 404, _) => format!(
                "{endpoint} has no {repo} for {token}: it is misspelt, private, or there is none"
            ),
            (status, _) => format!("{endpoint} answers {status} for {repo} {file}"),
        }
    }

    /// Downloads a file, where its contents are not here yet; its place in the snapshot.
    fn file(&self, commit: &str, file: &str) -> Result<PathBuf> {
        let (endpoint, repo) = (self.client.endpoint(), &self.name.repo);
        let url = format!("{endpoint}/{repo}/resolve/{commit}/{file}");
        let meta = self.patiently(|| self.answered(self.client.meta(&url)?, file))?;
        let blob = self.cache.blob(&meta.etag)?;
        if !blob.exists() {
            let _lock = self.cache.lock(&meta.etag)?;
            // Another may have been faster while this waited.
            if !blob.exists() {
                self.blob(&url, file, &meta, &blob)?;
            }
        }
        self.cache.link(commit, file, &meta.etag)
    }

    /// Downloads contents to their place.
    fn blob(&self, url: &str, name: &str, meta: &Meta, blob: &Path) -> Result<()> {
        let path = blob.with_file_name(format!("{}.incomplete", meta.etag));
        let file = File::options().create(true).append(true).read(true).open(&path);
        let mut partial = Partial { file: file.map_err(problem(&path))?, path: &path, name, meta };
        loop {
            let before = partial.len()?;
            match self.patiently(|| self.part(url, &mut partial)) {
                Ok(()) => break,
                // Bytes came: the attempts begin anew.
                Err(_) if partial.len()? > before => {}
                Err(error) => return Err(error),
            }
        }
        partial.file.sync_all().map_err(problem(&path))?;
        if let Err(error) = checksum::check(&path, name, &meta.etag) {
            // What is wrong can't be resumed.
            fs::remove_file(&path).map_err(problem(&path))?;
            return Err(error);
        }
        fs::rename(&path, blob).map_err(problem(blob))
    }

    /// Asks for what is missing and writes what comes.
    fn part(&self, url: &str, partial: &mut Partial<'_>) -> Result<(), Failure> {
        let lasting = |error: Error| Failure::Lasting(error.to_string());
        let mut start = partial.len().map_err(lasting)?;
        if partial.meta.size.is_some_and(|size| start > size) {
            start = partial.restart().map_err(lasting)?;
        }
        if partial.meta.size == Some(start) {
            return Ok(());
        }
        let mut response = self.client.get(url, start)?;
        match response.status().as_u16() {
            206 if starts_at(&response, start) => {}
            // A server that knows no ranges sends all of it again.
            200 => start = partial.restart().map_err(lasting)?,
            206 | 416 => {
                partial.restart().map_err(lasting)?;
                return Err(Failure::Passing(format!(
                    "{url} has another range than was asked for"
                )));
            }
            _ => return self.answered(Err(response), partial.name),
        }
        let progress = |done| {
            if let Some(tell) = &self.options.progress {
                tell(Progress { file: partial.name, done, total: partial.meta.size });
            }
        };
        copy(response.body_mut(), partial, start, progress)
    }
}

/// Whether a part begins where it was asked to.
fn starts_at(response: &Response<Body>, start: u64) -> bool {
    let range = header(response, "content-range").and_then(|range| range.strip_prefix("bytes "));
    range.and_then(|range| range.split('-').next()?.parse().ok()) == Some(start)
}

/// A file that is not all there yet.
struct Partial<'p> {
    file: File,
    path: &'p Path,
    name: &'p str,
    meta: &'p Meta,
}

impl Partial<'_> {
    fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(problem(self.path))?;
        Ok(metadata.len())
    }

    fn restart(&mut self) -> Result<u64> {
        self.file.set_len(0).map_err(problem(self.path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(problem(self.path))
    }
}

/// Writes a body behind the `start` bytes that are there, up to the size that was promised.
fn copy(
    body: &mut Body,
    partial: &Partial<'_>,
    start: u64,
    progress: impl Fn(u64),
) -> Result<(), Failure> {
    let (name, size) = (partial.name, partial.meta.size);
    let (mut reader, mut done, mut file) = (body.as_reader(), start, &partial.file);
    let mut buffer = vec![0; 1 << 16];
    progress(done);
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) => return Err(Failure::Passing(format!("{name} was cut off: {error}"))),
        };
        done += count as u64;
        if size.is_some_and(|size| done > size) {
            return Err(Failure::Lasting(format!("{name} is longer than the hub said")));
        }
        let written = file.write_all(&buffer[..count]);
        written.map_err(|error| Failure::Lasting(problem(partial.path)(error).to_string()))?;
        progress(done);
    }
    match size {
        Some(size) if done < size => {
            Err(Failure::Passing(format!("{name} was cut off after {done} of {size} bytes")))
        }
        _ => Ok(()),
    }
}
