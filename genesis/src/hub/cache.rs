//! One model's folder in the cache: commits by name, contents by hash, and snapshots that link to these.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::name::is_commit;
use crate::error::{Error, Result};

/// The folder of a model.
pub(super) struct Cache {
    folder: PathBuf,
    locks: PathBuf,
}

/// An error of the file system with the path that it is about.
pub(super) fn problem(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::io(format!("can't write {}: {error}", path.display()))
}

fn make_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(problem(path))
}

impl Cache {
    /// The folder of `org/name` in `cache`.
    pub(super) fn new(cache: &Path, repo: &str) -> Cache {
        let name = format!("models--{}", repo.replace('/', "--"));
        Cache { locks: cache.join(".locks").join(&name), folder: cache.join(name) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files of a revision, where some are here.
    pub(super) fn snapshot(&self, revision: &str) -> Option<PathBuf> {
        let named = fs::read_to_string(self.folder.join("refs").join(revision)).ok();
        let commit = named.as_deref().map_or(revision, str::trim);
        // What a file says becomes a part of a path.
        is_commit(commit).then(|| self.of_commit(commit)).filter(|snapshot| snapshot.is_dir())
    }

    /// Where the files of a commit are.
    pub(super) fn of_commit(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Where contents of this hash are; its folder is made.
    pub(super) fn blob(&self, etag: &str) -> Result<PathBuf> {
        let blobs = self.folder.join("blobs");
        make_folder(&blobs)?;
        Ok(blobs.join(etag))
    }

    /// Waits until nobody else downloads contents of this hash, this program or another.
    pub(super) fn lock(&self, etag: &str) -> Result<File> {
        make_folder(&self.locks)?;
        let path = self.locks.join(format!("{etag}.lock"));
        let file = File::options().create(true).write(true).truncate(false).open(&path);
        let file = file.map_err(problem(&path))?;
        file.lock().map_err(problem(&path))?;
        Ok(file)
    }

    /// Gives contents of a hash their name in a commit.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<PathBuf> {
        let snapshot = self.of_commit(commit);
        make_folder(&snapshot)?;
        let path = snapshot.join(file);
        let target = Path::new("..").join("..").join("blobs").join(etag);
        if fs::read_link(&path).is_ok_and(|found| found == target) {
            return Ok(path);
        }
        // A link that is made under another name and then renamed is never missing.
        let made = snapshot.join(format!(".{file}.{}", std::process::id()));
        let _ = fs::remove_file(&made);
        #[cfg(unix)]
        std::os::unix::fs::symlink(&target, &made).map_err(problem(&path))?;
        #[cfg(not(unix))]
        fs::hard_link(snapshot.join(&target), &made).map_err(problem(&path))?;
        fs::rename(&made, &path).map_err(problem(&path))?;
        Ok(path)
    }

    /// Says which commit a revision is.
    pub(super) fn name_commit(&self, revision: &str, commit: &str) -> Result<()> {
        if revision == commit {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        make_folder(path.parent().unwrap_or(&self.folder))?;
        fs::write(&path, commit).map_err(problem(&path))
    }
}
