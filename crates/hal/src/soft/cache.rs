//! On-disk cache of compiled kernels, addressed by a hash of their inputs.
//!
//! An entry is one file, named after the hash of everything that determines its content. It is written to a
//! temporary file and renamed, so that other processes see all of it or nothing; its checksum is verified on load,
//! so that a torn or corrupt entry is a cache miss. The cache never fails a compilation: if it cannot be read it is
//! empty, and if it cannot be written it keeps nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// Version of the directory layout and the entry format.
const LAYOUT_VERSION: &str = "1";
const MAGIC: &[u8; 8] = b"BSMRENT1";
const CHECKSUM_BYTES: usize = 32;
/// Age from which temporary files of dead processes are removed.
const STALE_TEMPORARY_AGE: Duration = Duration::from_secs(3600);
/// Age from which unused header directories are removed.
const UNUSED_DIRECTORY_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Name of an entry: its kind and the hash of its inputs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// Hashes the inputs, each prefixed with its length, so that no two lists collide.
    pub(crate) fn new<'a>(kind: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(format!("{kind}-{}", hex(&hash.finalize())))
    }

    /// The entry's file name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A directory of entries.
#[derive(Debug)]
pub(crate) struct Cache {
    root: Option<PathBuf>,
    limit: u64,
    /// Bytes that may be written before the total size is checked again.
    allowance: AtomicU64,
    fallback: OnceLock<Option<ScratchDir>>,
}

impl Cache {
    /// A cache in `dir`, or none.
    pub(crate) fn new(dir: Option<PathBuf>, limit: u64) -> Self {
        Self {
            // Absolute: clang runs in another working directory.
            root: dir
                .and_then(|d| std::path::absolute(d).ok())
                .map(|d| d.join(format!("soft-v{LAYOUT_VERSION}"))),
            limit,
            allowance: AtomicU64::new(0),
            fallback: OnceLock::new(),
        }
    }

    /// Returns the parts of an entry if it exists and is intact.
    pub(crate) fn load(&self, key: &Key) -> Option<Vec<Vec<u8>>> {
        let path = self.path(key)?;
        let bytes = fs::read(&path).ok()?;
        let Some(parts) = decode(&bytes) else {
            // Corrupt: remove it, so that it is rebuilt.
            let _ = fs::remove_file(&path);
            return None;
        };
        touch(&path);
        Some(parts)
    }

    /// Stores an entry if possible.
    pub(crate) fn store(&self, key: &Key, parts: &[&[u8]]) {
        let (Some(root), Some(path)) = (self.root.as_deref(), self.path(key)) else {
            return;
        };
        let bytes = encode(parts);
        if make_dir(root).is_ok() && replace(root, &path, &bytes).is_ok() {
            self.account_for_write(bytes.len() as u64);
        }
    }

    /// Creates a directory `name` with `files`: in the cache, or in a private scratch directory if the cache is not
    /// writable or not `shared`.
    ///
    /// # Errors
    /// Not even a temporary directory can be written.
    pub(crate) fn directory(
        &self,
        name: &str,
        files: &[(&str, &[u8])],
        shared: bool,
    ) -> io::Result<PathBuf> {
        if let Some(root) = self.root.as_ref().filter(|_| shared) {
            let path = root.join(name);
            if has_files(&path, files) || publish(root, &path, files).is_ok() {
                touch(&path);
                return Ok(path);
            }
        }
        let fallback = self
            .fallback
            .get_or_init(|| self.scratch_dirs().next())
            .as_ref()
            .ok_or_else(|| io::Error::other("no temporary directory can be written"))?;
        let path = fallback.path().join(name);
        if !has_files(&path, files) {
            publish(fallback.path(), &path, files)?;
        }
        Ok(path)
    }

    /// Private temporary directories in order of preference: the system's temporary directory, memory, and finally
    /// the cache. Unwritable ones are skipped.
    pub(crate) fn scratch_dirs(&self) -> impl Iterator<Item = ScratchDir> {
        [
            Some(std::env::temp_dir()),
            Some("/dev/shm".into()),
            self.root.clone(),
        ]
        .into_iter()
        .flatten()
        .filter_map(|parent| ScratchDir::new(&parent).ok())
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join(key.as_str()))
    }

    /// Checks the total size at the first write, and then after every 1/32 of the limit.
    fn account_for_write(&self, written: u64) {
        let remaining = self.allowance.load(Ordering::Relaxed);
        if remaining > written {
            self.allowance.store(remaining - written, Ordering::Relaxed);
            return;
        }
        self.allowance
            .store((self.limit / 32).max(1), Ordering::Relaxed);
        if let Some(root) = &self.root {
            shrink(root, self.limit);
        }
    }
}

/// Evicts the least recently used entries until an eighth of the limit is free. Removes only files with names of
/// this module, and never follows links.
fn shrink(root: &Path, limit: u64) {
    let Ok(listing) = fs::read_dir(root) else {
        return;
    };
    let now = SystemTime::now();
    let mut entries = Vec::new();
    for item in listing.flatten() {
        let Ok(meta) = fs::symlink_metadata(item.path()) else {
            continue;
        };
        let name = item.file_name();
        let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let age = now.duration_since(used).unwrap_or_default();
        match kind(&name.to_string_lossy()) {
            Some(CacheFileKind::Entry) if meta.is_file() => {
                entries.push((used, meta.len(), item.path()))
            }
            Some(CacheFileKind::Temporary) if age > STALE_TEMPORARY_AGE && meta.is_file() => {
                let _ = fs::remove_file(item.path());
            }
            Some(CacheFileKind::Temporary) if age > STALE_TEMPORARY_AGE && meta.is_dir() => {
                let _ = fs::remove_dir_all(item.path());
            }
            Some(CacheFileKind::Directory) if age > UNUSED_DIRECTORY_AGE && meta.is_dir() => {
                let _ = fs::remove_dir_all(item.path());
            }
            _ => {}
        }
    }
    let mut total: u64 = entries.iter().map(|(_, length, _)| length).sum();
    if total <= limit {
        return;
    }
    entries.sort();
    for (_, length, path) in entries {
        if total <= limit - limit / 8 {
            break;
        }
        if fs::remove_file(path).is_ok() {
            total -= length;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum CacheFileKind {
    Entry,
    Temporary,
    Directory,
}

fn kind(name: &str) -> Option<CacheFileKind> {
    let (kind, hash) = name.split_once('-')?;
    match kind {
        "tmp" | "bessemer" => Some(CacheFileKind::Temporary),
        "shim" => Some(CacheFileKind::Directory),
        "lib" | "kernel" if hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            Some(CacheFileKind::Entry)
        }
        _ => None,
    }
}

/// Returns a name that no other thread or process uses.
pub(super) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanoseconds = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.subsec_nanos());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("tmp-{}-{number}-{nanoseconds}", std::process::id())
}

/// Creates a directory and its parents, accessible to this user only: code is loaded from it.
fn make_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Writes a temporary file and renames it.
fn replace(root: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = root.join(unique());
    let written = File::create_new(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Publishes a directory with its files atomically. If another process was faster, its directory is used.
fn publish(root: &Path, path: &Path, files: &[(&str, &[u8])]) -> io::Result<()> {
    make_dir(root)?;
    let temporary = root.join(unique());
    let outcome = fill(&temporary, files).and_then(|()| {
        if path.is_dir() && !has_files(path, files) {
            // Corrupt. Rename it first: another process may be reading it.
            let aside = root.join(unique());
            fs::rename(path, &aside)?;
            let _ = fs::remove_dir_all(&aside);
        }
        fs::rename(&temporary, path)
    });
    if outcome.is_err() {
        let _ = fs::remove_dir_all(&temporary);
    }
    match outcome {
        Err(_) if has_files(path, files) => Ok(()),
        other => other,
    }
}

fn fill(dir: &Path, files: &[(&str, &[u8])]) -> io::Result<()> {
    make_dir(dir)?;
    for (name, bytes) in files {
        let path = dir.join(name);
        if let Some(parent) = path.parent() {
            make_dir(parent)?;
        }
        fs::write(path, bytes)?;
    }
    Ok(())
}

fn has_files(dir: &Path, files: &[(&str, &[u8])]) -> bool {
    files.iter().all(|(name, bytes)| {
        let path = dir.join(name);
        fs::metadata(&path).is_ok_and(|meta| meta.len() == bytes.len() as u64)
            && fs::read(&path).is_ok_and(|found| found == *bytes)
    })
}

/// Updates the modification time, which is the time of last use.
fn touch(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = file.set_modified(SystemTime::now());
    }
}

fn encode(parts: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend((parts.len() as u64).to_le_bytes());
    for part in parts {
        body.extend((part.len() as u64).to_le_bytes());
    }
    for part in parts {
        body.extend_from_slice(part);
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(Sha256::digest(&body));
    bytes.append(&mut body);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (checksum, body) = rest.split_at_checked(CHECKSUM_BYTES)?;
    if Sha256::digest(body).as_slice() != checksum {
        return None;
    }
    let number = |at: usize| -> Option<usize> {
        let word = body.get(at..at.checked_add(8)?)?;
        usize::try_from(u64::from_le_bytes(word.try_into().ok()?)).ok()
    };
    let count = number(0)?;
    let mut at = count.checked_add(1)?.checked_mul(8)?;
    let mut parts = Vec::new();
    for index in 0..count {
        let end = at.checked_add(number(8 * (index + 1))?)?;
        parts.push(body.get(at..end)?.to_vec());
        at = end;
    }
    Some(parts)
}

/// A private directory, removed with its contents on drop.
#[derive(Debug)]
pub(crate) struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new(parent: &Path) -> io::Result<Self> {
        let scratch = Self(parent.join(format!("bessemer-{}", unique())));
        make_dir(&scratch.0)?;
        // On a full disk a directory can be created, but not written to.
        let probe = scratch.0.join("probe");
        fs::write(&probe, [0; 4096])?;
        fs::remove_file(&probe)?;
        Ok(scratch)
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key::new("kernel", [text.as_bytes()])
    }

    #[test]
    fn entries_round_trip() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 1 << 20);
        assert_eq!(cache.load(&key("a")), None);
        cache.store(&key("a"), &[b"meta", b"", b"image"]);
        let parts = cache.load(&key("a")).unwrap();
        assert_eq!(parts, [&b"meta"[..], b"", b"image"]);
        assert_eq!(cache.load(&key("b")), None);
    }

    #[test]
    fn part_boundaries_change_the_key() {
        let key = Key::new("lib", [&b"ab"[..], b"c"]);
        assert_ne!(key, Key::new("lib", [&b"a"[..], b"bc"]));
        assert_ne!(key, Key::new("kernel", [&b"ab"[..], b"c"]));
    }

    #[test]
    fn a_corrupt_entry_is_a_miss_wherever_it_is_corrupt() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 1 << 20);
        cache.store(&key("a"), &[b"meta", b"image"]);
        let path = cache.path(&key("a")).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(cache.load(&key("a")), None, "truncated to {length}");
            assert!(!path.exists());
        }
        for index in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[index] ^= 0x40;
            fs::write(&path, bytes).unwrap();
            assert_eq!(cache.load(&key("a")), None, "changed at {index}");
        }
        cache.store(&key("a"), &[b"new"]);
        assert_eq!(cache.load(&key("a")).unwrap(), [b"new"]);
    }

    #[test]
    fn an_unwritable_cache_stores_nothing_and_fails_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "in the way").unwrap();
        let cache = Cache::new(Some(file.join("cache")), 1 << 20);
        cache.store(&key("a"), &[b"image"]);
        assert_eq!(cache.load(&key("a")), None);
        let files: [(&str, &[u8]); 1] = [("include/a.h", b"text")];
        let directory = cache.directory("shim-1", &files, true).unwrap();
        assert_eq!(fs::read(directory.join("include/a.h")).unwrap(), b"text");
        drop(cache);
        assert!(!directory.exists());
    }

    #[test]
    fn corrupt_directories_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 1 << 20);
        let files: [(&str, &[u8]); 2] = [("a.h", b"text"), ("b/c.h", b"more")];
        let directory = cache.directory("shim-1", &files, true).unwrap();
        fs::write(directory.join("a.h"), "te").unwrap();
        assert_eq!(cache.directory("shim-1", &files, true).unwrap(), directory);
        assert_eq!(fs::read(directory.join("a.h")).unwrap(), b"text");
    }

    #[test]
    fn evicts_the_least_recently_used_entries_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 8400);
        let root = cache.root.clone().unwrap();
        let foreign_file = dir.path().join("kernel-of-someone-else");
        fs::write(&foreign_file, [0; 50_000]).unwrap();
        for name in ["a", "b", "c"] {
            cache.store(&key(name), &[&[0; 2000]]);
        }
        let past = SystemTime::now() - Duration::from_secs(100);
        for name in ["a", "b"] {
            let file = File::open(cache.path(&key(name)).unwrap()).unwrap();
            file.set_modified(past).unwrap();
        }
        assert!(cache.load(&key("a")).is_some(), "which marks it as used");
        fs::write(root.join("kernel-notes"), [0; 50_000]).unwrap();
        cache.store(&key("d"), &[&[0; 2500]]);
        assert_eq!(cache.load(&key("b")), None);
        for name in ["a", "c", "d"] {
            assert!(cache.load(&key(name)).is_some(), "{name}");
        }
        assert!(foreign_file.exists());
        assert!(root.join("kernel-notes").exists());
    }

    #[test]
    fn concurrent_threads_may_store_and_load_the_same_entry() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 1 << 20);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        cache.store(&key("a"), &[&[7; 3000]]);
                        assert_eq!(cache.load(&key("a")).unwrap(), [[7; 3000]]);
                    }
                });
            }
        });
    }
}
