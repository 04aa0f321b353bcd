//! Compiled kernels on disk, found by what they were made from.
//!
//! An entry is one file, named after the hash of everything that decides its content. It is written beside its
//! place and renamed into it, so that other processes see all of it or nothing; its checksum is verified when it
//! is read, so that a torn or damaged entry is the same as none. Nothing here can fail a compilation: a cache
//! that cannot be read is empty, one that cannot be written keeps nothing.

use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Changes when entries of older versions must not be read any more.
const FORMAT: &str = "1";
const MAGIC: &[u8; 8] = b"BSMRENT1";
const CHECKSUM: usize = 32;
/// Remains of processes that died while they wrote are removed after this time.
const STALE: Duration = Duration::from_secs(3600);
/// Directories that no process has used for this long are removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

/// The name of an entry: its kind and the hash of what it is made from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// Hashes parts; each goes in with its length, so that no two lists of parts collide.
    pub(crate) fn new<'a>(kind: &str, parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(format!("{kind}-{}", hex(&hash.finalize())))
    }

    /// The name.
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
    /// Bytes that may still be written before the size of the whole is looked at.
    allowance: AtomicU64,
    private: OnceLock<Option<Scratch>>,
}

impl Cache {
    /// A cache in `dir`, or none.
    pub(crate) fn new(dir: Option<PathBuf>, limit: u64) -> Self {
        Self {
            // Relative directories would move with the host program; clang runs elsewhere.
            root: dir
                .and_then(|d| std::path::absolute(d).ok())
                .map(|d| d.join(format!("soft-v{FORMAT}"))),
            limit,
            allowance: AtomicU64::new(0),
            private: OnceLock::new(),
        }
    }

    /// The parts of an entry, if it is there and whole.
    pub(crate) fn load(&self, key: &Key) -> Option<Vec<Vec<u8>>> {
        let path = self.path(key)?;
        let bytes = fs::read(&path).ok()?;
        let Some(parts) = decode(&bytes) else {
            // Damaged: out of the way, so that it is rebuilt.
            let _ = fs::remove_file(&path);
            return None;
        };
        touch(&path);
        Some(parts)
    }

    /// Keeps an entry if it can.
    pub(crate) fn store(&self, key: &Key, parts: &[&[u8]]) {
        let (Some(root), Some(path)) = (self.root.as_deref(), self.path(key)) else {
            return;
        };
        let bytes = encode(parts);
        if make_dir(root).is_ok() && replace(root, &path, &bytes).is_ok() {
            self.account(bytes.len() as u64);
        }
    }

    /// A directory `name` that contains `files`, in the cache or, where that cannot be or is not `wanted`, in private.
    ///
    /// # Errors
    /// No directory at all can be written.
    pub(crate) fn directory(
        &self,
        name: &str,
        files: &[(&str, &[u8])],
        wanted: bool,
    ) -> io::Result<PathBuf> {
        if let Some(root) = self.root.as_ref().filter(|_| wanted) {
            let path = root.join(name);
            if holds(&path, files) || publish(root, &path, files).is_ok() {
                touch(&path);
                return Ok(path);
            }
        }
        let private = self
            .private
            .get_or_init(|| self.scratches().next())
            .as_ref()
            .ok_or_else(|| io::Error::other("no temporary directory can be written"))?;
        let path = private.path().join(name);
        if !holds(&path, files) {
            publish(private.path(), &path, files)?;
        }
        Ok(path)
    }

    /// Private directories for files on their way, best first: in the system's temporary directory, in memory, and
    /// at last in the cache. Those that cannot be written are left out.
    pub(crate) fn scratches(&self) -> impl Iterator<Item = Scratch> {
        [
            Some(std::env::temp_dir()),
            Some("/dev/shm".into()),
            self.root.clone(),
        ]
        .into_iter()
        .flatten()
        .filter_map(|place| Scratch::new(&place).ok())
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join(key.as_str()))
    }

    /// Looks at the size of the whole at the first write and then each time another 32nd of the limit was written.
    fn account(&self, written: u64) {
        let left = self.allowance.load(Ordering::Relaxed);
        if left > written {
            self.allowance.store(left - written, Ordering::Relaxed);
            return;
        }
        self.allowance
            .store((self.limit / 32).max(1), Ordering::Relaxed);
        if let Some(root) = &self.root {
            shrink(root, self.limit);
        }
    }
}

/// Removes what was used longest ago until an eighth of the limit is free. Only entries this module has made, by
/// their names, and never through a link.
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
            Some(Kind::Entry) if meta.is_file() => entries.push((used, meta.len(), item.path())),
            Some(Kind::Temporary) if age > STALE && meta.is_file() => {
                let _ = fs::remove_file(item.path());
            }
            Some(Kind::Temporary) if age > STALE && meta.is_dir() => {
                let _ = fs::remove_dir_all(item.path());
            }
            Some(Kind::Directory) if age > UNUSED && meta.is_dir() => {
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
enum Kind {
    Entry,
    Temporary,
    Directory,
}

fn kind(name: &str) -> Option<Kind> {
    let (kind, hash) = name.split_once('-')?;
    match kind {
        "tmp" | "bessemer" => Some(Kind::Temporary),
        "shim" => Some(Kind::Directory),
        "lib" | "kernel" if hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => {
            Some(Kind::Entry)
        }
        _ => None,
    }
}

/// A name no other thread or process uses.
pub(super) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanoseconds = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.subsec_nanos());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("tmp-{}-{number}-{nanoseconds}", std::process::id())
}

/// Creates a directory and its parents, for this user only: code is loaded from it.
fn make_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Writes a file under another name and renames it.
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

/// Makes a directory with files appear at once. If another process was faster, its work is as good.
fn publish(root: &Path, path: &Path, files: &[(&str, &[u8])]) -> io::Result<()> {
    make_dir(root)?;
    let temporary = root.join(unique());
    let outcome = fill(&temporary, files).and_then(|()| {
        if path.is_dir() && !holds(path, files) {
            // Damaged. Renamed first: another process may be reading it.
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
        Err(_) if holds(path, files) => Ok(()),
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

fn holds(dir: &Path, files: &[(&str, &[u8])]) -> bool {
    files.iter().all(|(name, bytes)| {
        let path = dir.join(name);
        fs::metadata(&path).is_ok_and(|meta| meta.len() == bytes.len() as u64)
            && fs::read(&path).is_ok_and(|found| found == *bytes)
    })
}

/// Marks a file or directory as used now.
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
    let (checksum, body) = rest.split_at_checked(CHECKSUM)?;
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

/// A private directory, removed with all it contains.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    fn new(place: &Path) -> io::Result<Self> {
        let scratch = Self(place.join(format!("bessemer-{}", unique())));
        make_dir(&scratch.0)?;
        // A directory that can be made but holds no byte is on a full disk.
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

impl Drop for Scratch {
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
    fn entries_come_back_as_they_were_stored() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 1 << 20);
        assert_eq!(cache.load(&key("a")), None);
        cache.store(&key("a"), &[b"meta", b"", b"image"]);
        let parts = cache.load(&key("a")).unwrap();
        assert_eq!(parts, [&b"meta"[..], b"", b"image"]);
        assert_eq!(cache.load(&key("b")), None);
    }

    #[test]
    fn parts_are_told_apart_in_keys() {
        let joined = Key::new("lib", [&b"ab"[..], b"c"]);
        assert_ne!(joined, Key::new("lib", [&b"a"[..], b"bc"]));
        assert_ne!(joined, Key::new("kernel", [&b"ab"[..], b"c"]));
    }

    #[test]
    fn a_damaged_entry_is_no_entry_wherever_it_is_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 1 << 20);
        cache.store(&key("a"), &[b"meta", b"image"]);
        let path = cache.path(&key("a")).unwrap();
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(cache.load(&key("a")), None, "cut to {length}");
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
    fn a_cache_that_cannot_be_written_keeps_nothing_and_fails_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "in the way").unwrap();
        let cache = Cache::new(Some(file.join("cache")), 1 << 20);
        cache.store(&key("a"), &[b"image"]);
        assert_eq!(cache.load(&key("a")), None);
        let files: [(&str, &[u8]); 1] = [("include/a.h", b"text")];
        let placed = cache.directory("shim-1", &files, true).unwrap();
        assert_eq!(fs::read(placed.join("include/a.h")).unwrap(), b"text");
        drop(cache);
        assert!(!placed.exists());
    }

    #[test]
    fn directories_are_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 1 << 20);
        let files: [(&str, &[u8]); 2] = [("a.h", b"text"), ("b/c.h", b"more")];
        let placed = cache.directory("shim-1", &files, true).unwrap();
        fs::write(placed.join("a.h"), "te").unwrap();
        assert_eq!(cache.directory("shim-1", &files, true).unwrap(), placed);
        assert_eq!(fs::read(placed.join("a.h")).unwrap(), b"text");
    }

    #[test]
    fn the_least_recently_used_entries_go_first_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Some(dir.path().into()), 8400);
        let root = cache.root.clone().unwrap();
        let stranger = dir.path().join("kernel-of-someone-else");
        fs::write(&stranger, [0; 50_000]).unwrap();
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
        assert!(stranger.exists());
        assert!(root.join("kernel-notes").exists());
    }

    #[test]
    fn many_threads_may_store_and_load_the_same_entry() {
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
