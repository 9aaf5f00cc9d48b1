//! The folder of the cache: one file for each entry, written aside and renamed into place.
//!
//! ```text
//! bytes 0..8    "GENESIS1"
//!       8..40   the key
//!      40..48   the length of the contents, little endian
//!      48..80   blake3 of all the above and the contents
//!      80..     the contents
//! ```
//!
//! One file holds everything: with two, one program could read the first of one writer and the second
//! of another. The rename is atomic, so that readers see all of an entry or none of it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::Key;

const MAGIC: &[u8; 8] = b"GENESIS1";
const HEADER: usize = 80;
/// Files that are being written start with this.
const TEMPORARY: &str = "tmp-";
/// Files of writers that died are swept after this long.
const STALE: Duration = Duration::from_secs(3600);

/// The folder is swept whenever so large a part of the limit was written.
const SWEEPS: u64 = 16;

/// A folder of entries with a limit on their size.
#[derive(Clone, Debug)]
pub struct DiskCache {
    dir: PathBuf,
    limit: u64,
    /// Bytes that were written since the last sweep; at first as if there had never been one.
    unswept: Arc<AtomicU64>,
}

impl DiskCache {
    /// The cache in this folder, which is made when the first entry is written; `limit` in bytes.
    pub fn new(dir: impl Into<PathBuf>, limit: u64) -> DiskCache {
        DiskCache { dir: dir.into(), limit, unswept: Arc::new(AtomicU64::new(limit)) }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The contents of an entry, if it is there and whole.
    pub fn get(&self, key: &Key) -> Option<Vec<u8>> {
        if !is_trusted(&self.dir) {
            return None;
        }
        let path = self.path(key);
        // A link could lead to a file that someone else may write.
        if !fs::symlink_metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut file = File::open(&path).ok()?;
        // What has grown or was cut since it was written, or was never written, is not read.
        let size = file.metadata().ok()?.len();
        let mut header = [0; HEADER];
        file.read_exact(&mut header).ok()?;
        let len = contents_len(key, &header)?;
        if size.checked_sub(HEADER as u64)? != len || size > self.limit {
            return None;
        }
        let mut contents = Vec::new();
        contents.try_reserve_exact(usize::try_from(len).ok()?).ok()?;
        (&mut file).take(len).read_to_end(&mut contents).ok()?;
        if !is_whole(&header, &contents) {
            return None;
        }
        // The time of the last use orders the sweep; a read-only disk has no sweep either.
        let _ = file.set_modified(SystemTime::now());
        Some(contents)
    }

    /// Writes an entry, and at times removes those used longest ago: each program may go over the limit by a sixteenth
    /// of it. Returns whether it is there now; a full or read-only disk is not an error.
    pub fn put(&self, key: &Key, contents: &[u8]) -> bool {
        let size = (HEADER + contents.len()) as u64;
        if size > self.limit || !make_private(&self.dir) || !is_trusted(&self.dir) {
            return false;
        }
        if self.write(key, contents).is_err() {
            return false;
        }
        // A sweep lists the folder, which may have thousands of entries.
        let unswept = self.unswept.fetch_add(size, Ordering::Relaxed).saturating_add(size);
        if unswept > self.limit / SWEEPS {
            self.unswept.store(0, Ordering::Relaxed);
            self.sweep();
        }
        true
    }

    /// Bytes of all entries, and how many there are.
    pub fn size(&self) -> (u64, usize) {
        let entries = self.entries();
        (entries.iter().map(|entry| entry.bytes).sum(), entries.len())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.dir.join(format!("{key}.bin"))
    }

    fn write(&self, key: &Key, contents: &[u8]) -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(&self.dir)?;
        file.write_all(&header_of(key, contents))?;
        file.write_all(contents)?;
        let path = self.path(key);
        // A file takes the place of anything but a folder, which nobody of ours has put there.
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            fs::remove_dir_all(&path)?;
        }
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Removes the entries used longest ago until the rest is within the limit, and what writers that
    /// died left.
    fn sweep(&self) {
        let mut entries = self.entries();
        let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        if total > self.limit {
            entries.sort_by_key(|entry| entry.used);
            for entry in entries {
                if total <= self.limit {
                    break;
                }
                // Another process may have removed it: then it is gone all the same.
                let _ = fs::remove_file(&entry.path);
                total -= entry.bytes;
            }
        }
        for path in self.stale_temporaries() {
            let _ = fs::remove_file(path);
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        files
            .filter(|file| file.path().extension().is_some_and(|ext| ext == "bin"))
            .filter_map(|file| {
                let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
                let used = metadata.modified().ok()?;
                Some(Entry { path: file.path(), bytes: metadata.len(), used })
            })
            .collect()
    }

    fn stale_temporaries(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        files
            .filter(|file| file.file_name().to_string_lossy().starts_with(TEMPORARY))
            .filter(|file| {
                let modified = file.metadata().and_then(|metadata| metadata.modified());
                modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > STALE))
            })
            .map(|file| file.path())
            .collect()
    }
}

struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// What stands before the contents.
fn header_of(key: &Key, contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(key.bytes());
    bytes.extend_from_slice(&(contents.len() as u64).to_le_bytes());
    let checksum = checksum(&bytes, contents);
    bytes.extend_from_slice(&checksum);
    bytes
}

/// How long the contents are, if this is the header of an entry of this key.
fn contents_len(key: &Key, header: &[u8; HEADER]) -> Option<u64> {
    let rest = header.strip_prefix(MAGIC)?.strip_prefix(key.bytes())?;
    Some(u64::from_le_bytes(*rest.first_chunk()?))
}

fn is_whole(header: &[u8; HEADER], contents: &[u8]) -> bool {
    let (described, stored) = header.split_at(HEADER - 32);
    stored == checksum(described, contents)
}

fn checksum(described: &[u8], contents: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(described);
    hasher.update(contents);
    *hasher.finalize().as_bytes()
}

/// Makes the folder for this user alone, if it is not there.
#[cfg(unix)]
fn make_private(dir: &Path) -> bool {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).is_ok()
}

#[cfg(not(unix))]
fn make_private(dir: &Path) -> bool {
    fs::create_dir_all(dir).is_ok()
}

/// Whether nobody but this user can have written into the folder.
#[cfg(unix)]
fn is_trusted(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = fs::metadata(dir) else { return false };
    let is_ours = match fs::metadata("/proc/self") {
        Ok(this_process) => this_process.uid() == metadata.uid(),
        Err(_) => true,
    };
    metadata.is_dir() && is_ours && metadata.mode() & 0o022 == 0
}

#[cfg(not(unix))]
fn is_trusted(dir: &Path) -> bool {
    dir.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(limit: u64) -> (tempfile::TempDir, DiskCache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(dir.path().join("genesis"), limit);
        (dir, cache)
    }

    fn key(n: u8) -> Key {
        Key::of(&[&[n]])
    }

    #[test]
    fn an_entry_comes_back() {
        let (_dir, cache) = cache(1 << 20);
        assert_eq!(cache.get(&key(1)), None);
        assert!(cache.put(&key(1), b"one"));
        assert!(cache.put(&key(2), b""));
        assert_eq!(cache.get(&key(1)).as_deref(), Some(&b"one"[..]));
        assert_eq!(cache.get(&key(2)).as_deref(), Some(&b""[..]));
        assert_eq!(cache.size().1, 2);
    }

    #[test]
    fn a_changed_byte_anywhere_makes_an_entry_missing() {
        let (_dir, cache) = cache(1 << 20);
        assert!(cache.put(&key(1), b"contents"));
        let path = cache.path(&key(1));
        let whole = fs::read(&path).unwrap();
        for i in 0..whole.len() {
            let mut changed = whole.clone();
            changed[i] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert_eq!(cache.get(&key(1)), None, "byte {i}");
        }
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(cache.get(&key(1)), None, "cut to {len}");
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert_eq!(cache.get(&key(1)), None);
        assert!(cache.put(&key(1), b"contents"));
        assert!(cache.get(&key(1)).is_some());
    }

    #[test]
    fn an_entry_that_has_grown_is_not_read() {
        let (_dir, cache) = cache(1 << 20);
        assert!(cache.put(&key(1), b"contents"));
        let path = cache.path(&key(1));
        // Far more than memory, without a block on the disk.
        File::options().write(true).open(&path).unwrap().set_len(1 << 43).unwrap();
        assert_eq!(cache.get(&key(1)), None);
        let mut whole = header_of(&key(1), b"");
        whole[40..48].copy_from_slice(&((1u64 << 43) - HEADER as u64).to_le_bytes());
        let mut file = File::options().write(true).open(&path).unwrap();
        file.write_all(&whole).unwrap();
        assert_eq!(cache.get(&key(1)), None);
        assert!(cache.put(&key(1), b"contents"));
        assert_eq!(cache.get(&key(1)).as_deref(), Some(&b"contents"[..]));
    }

    #[test]
    fn a_folder_in_the_place_of_an_entry_gives_way() {
        let (_dir, cache) = cache(1 << 20);
        assert!(cache.put(&key(1), b"one"));
        let path = cache.path(&key(1));
        fs::remove_file(&path).unwrap();
        fs::create_dir_all(path.join("full")).unwrap();
        assert_eq!((cache.get(&key(1)), cache.size()), (None, (0, 0)));
        assert!(cache.put(&key(1), b"one"));
        assert_eq!(cache.get(&key(1)).as_deref(), Some(&b"one"[..]));
    }

    #[test]
    fn an_entry_under_another_name_is_missing() {
        let (_dir, cache) = cache(1 << 20);
        assert!(cache.put(&key(1), b"one"));
        fs::rename(cache.path(&key(1)), cache.path(&key(2))).unwrap();
        assert_eq!(cache.get(&key(2)), None);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let (_dir, cache) = cache(3 * (HEADER as u64 + 100));
        let start = SystemTime::now() - Duration::from_secs(1000);
        for n in 0..3 {
            assert!(cache.put(&key(n), &[n; 100]));
            let file = File::options().write(true).open(cache.path(&key(n))).unwrap();
            file.set_modified(start + Duration::from_secs(u64::from(n))).unwrap();
        }
        assert!(cache.get(&key(0)).is_some());
        assert!(cache.put(&key(3), &[3; 100]));
        let kept: Vec<bool> = (0..4).map(|n| cache.get(&key(n)).is_some()).collect();
        assert_eq!(kept, [true, false, true, true]);
        assert!(!cache.put(&key(4), &[0; 10_000]), "an entry over the limit is not kept");
    }

    #[test]
    fn writers_that_died_leave_nothing_for_ever() {
        let (_dir, cache) = cache(1 << 20);
        assert!(cache.put(&key(1), b"one"));
        let path = cache.dir().join("tmp-dead");
        fs::write(&path, b"half").unwrap();
        let hour_ago = SystemTime::now() - 2 * STALE;
        File::options().write(true).open(&path).unwrap().set_modified(hour_ago).unwrap();
        let fresh = cache.dir().join("tmp-alive");
        fs::write(&fresh, b"half").unwrap();
        assert!(DiskCache::new(cache.dir(), 1 << 20).put(&key(2), b"two"));
        assert!(!path.exists() && fresh.exists());
    }

    #[test]
    fn many_writers_of_one_entry_never_tear_it() {
        let (_dir, cache) = cache(1 << 20);
        let contents: Vec<u8> = (0..20_000u32).map(|i| (i * 7) as u8).collect();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        assert!(cache.put(&key(1), &contents));
                        assert_eq!(cache.get(&key(1)).as_deref(), Some(&contents[..]));
                    }
                });
            }
        });
        assert_eq!(cache.size().1, 1);
    }

    /// The processes are this test again, with the folder as one more argument.
    #[test]
    fn many_processes_share_a_folder() {
        const FOLDER: &str = "cache-folder=";
        let contents = |n: u8| -> Vec<u8> { (0..5000u32).map(|i| (i as u8) ^ n).collect() };
        let folder = std::env::args().find_map(|arg| arg.strip_prefix(FOLDER).map(str::to_owned));
        if let Some(folder) = folder {
            let cache = DiskCache::new(folder, 1 << 20);
            for round in 0..50 {
                let n = round % 3;
                assert!(cache.put(&key(n), &contents(n)));
                assert_eq!(cache.get(&key(n)), Some(contents(n)));
            }
            return;
        }
        let (_dir, cache) = cache(1 << 20);
        let name = "cache::disk::tests::many_processes_share_a_folder";
        let spawn = || {
            std::process::Command::new(std::env::current_exe().unwrap())
                .args([name, "--exact", &format!("{FOLDER}{}", cache.dir().display())])
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut processes: Vec<_> = (0..8).map(|_| spawn()).collect();
        assert!(processes.iter_mut().all(|process| process.wait().unwrap().success()));
        for n in 0..3 {
            assert_eq!(cache.get(&key(n)), Some(contents(n)));
        }
        let temporaries = fs::read_dir(cache.dir()).unwrap().flatten();
        assert_eq!(temporaries.count(), 3, "nothing is left beside the entries");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_not_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = DiskCache::new(file.path().join("below-a-file"), 1 << 20);
        assert!(!cache.put(&key(1), b"one"));
        assert_eq!(cache.get(&key(1)), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_others_may_write_is_not_trusted() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, cache) = cache(1 << 20);
        assert!(cache.put(&key(1), b"one"));
        let mode = fs::metadata(cache.dir()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::set_permissions(cache.dir(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(cache.get(&key(1)), None);
        assert!(!cache.put(&key(2), b"two"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_not_followed() {
        let (dir, cache) = cache(1 << 20);
        assert!(cache.put(&key(1), b"one"));
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(cache.path(&key(1)), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, cache.path(&key(1))).unwrap();
        assert_eq!(cache.get(&key(1)), None);
    }
}
