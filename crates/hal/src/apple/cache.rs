//! Cache of compiled pipelines: one small file per pipeline, named by a hash of everything that affects its content.
//!
//! One file per pipeline, not per library, because a file is then written once, as a whole, by the process that
//! compiles first; processes need no lock, and a damaged file costs one compilation.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::library::{CompileOptions, FunctionConstants};

/// Version of the cache. Change it when pipelines are built differently from the same source; the language version
/// is covered by the system version.
const CACHE_VERSION: &str = "bessemer-apple-2";

/// Environment variables that make Metal validate or capture kernels, which changes their code.
const INSTRUMENTATION_VARIABLES: [&str; 4] = [
    "MTL_SHADER_VALIDATION",
    "MTL_DEBUG_LAYER",
    "METAL_DEVICE_WRAPPER_TYPE",
    "METAL_CAPTURE_ENABLED",
];

/// Returns whether Metal instruments kernels; `variable` reads the environment. Pipelines are not cached then: those
/// compiled before would run unchecked, and those compiled now would be slow later.
pub(super) fn is_instrumented(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    INSTRUMENTATION_VARIABLES
        .iter()
        .filter_map(|name| variable(name))
        .any(|value| !value.is_empty() && value != "0")
}

/// Identifies a library: the full source, the options that change its code, the device and the
/// system's build, since every system update may bring another compiler.
#[derive(Debug, Clone)]
pub(super) struct LibraryKey(Sha256);

impl LibraryKey {
    pub(super) fn new(source: &str, options: &CompileOptions, device: &str, system: &str) -> Self {
        let mut hash = Sha256::new();
        let math = format!("{:?}", options.math_mode);
        for field in [CACHE_VERSION, source, &math, device, system] {
            feed(&mut hash, field.as_bytes());
        }
        for (name, value) in &options.defines {
            feed(&mut hash, name.as_bytes());
            feed(&mut hash, value.as_bytes());
        }
        Self(hash)
    }

    /// The file name for a kernel of the library with its function constants.
    pub(super) fn file_name(&self, kernel: &str, constants: &FunctionConstants) -> String {
        let mut hash = self.0.clone();
        feed(&mut hash, b"kernel");
        feed(&mut hash, kernel.as_bytes());
        for (index, value) in constants.iter() {
            feed(&mut hash, &index.to_le_bytes());
            feed(&mut hash, value.type_name().as_bytes());
            feed(&mut hash, &value.bits().to_le_bytes());
        }
        let digest = hash.finalize();
        let mut name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        name.push_str(".metalarchive");
        name
    }
}

/// Hashes a field after its length, so that different lists of fields cannot collide.
fn feed(hash: &mut Sha256, field: &[u8]) {
    hash.update((field.len() as u64).to_le_bytes());
    hash.update(field);
}

/// A directory of such files with a size limit, which it exceeds by at most an eighth.
#[derive(Debug, Clone)]
pub(super) struct Directory {
    path: PathBuf,
    limit: u64,
    /// Bytes that may be written before the next trim.
    bytes_until_trim: Arc<AtomicU64>,
}

impl Directory {
    pub(super) fn new(path: PathBuf, limit: u64) -> Self {
        Self {
            path,
            limit,
            bytes_until_trim: Arc::default(),
        }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Lets `write` create a file under a temporary name, then renames it atomically, so
    /// that a reader finds all of it or nothing. Old files are removed when the directory is full.
    ///
    /// # Errors
    /// Errors of the file system or of `write`; no file of that name is left half written.
    pub(super) fn publish(
        &self,
        file: &Path,
        write: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.path)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = self
            .path
            .join(format!("{}-{number}.tmp", std::process::id()));
        let result = write(&temporary)
            .and_then(|()| fs::metadata(&temporary))
            .and_then(|meta| fs::rename(&temporary, file).map(|()| meta.len()));
        if result.is_err() {
            // If this fails too, a later trim removes the file.
            let _ = fs::remove_file(&temporary);
        }
        let length = result?;
        // Listing thousands of files after every write would take longer than compiling.
        let spend = |bytes: u64| bytes.checked_sub(length);
        if self
            .bytes_until_trim
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend)
            .is_ok()
        {
            return Ok(());
        }
        self.trim()?;
        self.bytes_until_trim
            .store(self.limit / 8, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the oldest files until the rest is below the limit.
    fn trim(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.path)?
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((meta.modified().ok()?, meta.len(), entry.path()))
            })
            .collect();
        let mut total: u64 = files.iter().map(|(_, length, _)| length).sum();
        files.sort();
        for (_, length, path) in files {
            if total <= self.limit {
                break;
            }
            // Another process may have removed it already.
            let _ = fs::remove_file(path);
            total -= length;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::library::MathMode;

    fn options(defines: &[(&str, &str)]) -> CompileOptions {
        CompileOptions {
            defines: defines
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
            ..CompileOptions::default()
        }
    }

    #[test]
    fn everything_that_changes_the_code_changes_the_name() {
        let none = FunctionConstants::new();
        let plain = options(&[]);
        let fast = CompileOptions {
            math_mode: MathMode::Fast,
            ..options(&[])
        };
        let key = LibraryKey::new;
        let names = [
            key("a", &plain, "M1", "14.0").file_name("k", &none),
            key("b", &plain, "M1", "14.0").file_name("k", &none),
            key("a", &fast, "M1", "14.0").file_name("k", &none),
            key("a", &plain, "M2", "14.0").file_name("k", &none),
            key("a", &plain, "M1", "14.1").file_name("k", &none),
            key("a", &options(&[("N", "1")]), "M1", "14.0").file_name("k", &none),
            key("a", &options(&[("N1", "")]), "M1", "14.0").file_name("k", &none),
            key("a", &plain, "M1", "14.0").file_name("j", &none),
            key("a", &plain, "M1", "14.0").file_name("k", &none.clone().with(0, 1_u32)),
            key("a", &plain, "M1", "14.0").file_name("k", &none.clone().with(0, 1_i32)),
            key("a", &plain, "M1", "14.0").file_name("k", &none.clone().with(1, 1_u32)),
        ];
        let distinct: BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
    }

    #[test]
    fn the_label_of_a_library_does_not_change_the_name() {
        let none = FunctionConstants::new();
        let name = |label: &str| {
            LibraryKey::new("a", &CompileOptions::labelled(label), "M1", "14.0")
                .file_name("k", &none)
        };
        assert_eq!(name("x"), name("y"));
    }

    #[test]
    fn instrumented_kernels_are_not_cached() {
        let with = |set: &'static str, value: &'static str| {
            is_instrumented(|name| (name == set).then(|| value.into()))
        };
        assert!(!is_instrumented(|_| None));
        for name in INSTRUMENTATION_VARIABLES {
            assert!(with(name, "1"), "{name}");
            assert!(!with(name, "0"), "{name}");
            assert!(!with(name, ""), "{name}");
        }
        assert!(!with("MTL_HUD_ENABLED", "1"));
    }

    #[test]
    fn a_full_directory_is_trimmed_once_per_eighth_of_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(dir.path().to_owned(), 80);
        let mut max_files = 0;
        for i in 0..40 {
            let file = directory.file(&i.to_string());
            directory.publish(&file, |p| fs::write(p, [0; 4])).unwrap();
            max_files = max_files.max(fs::read_dir(dir.path()).unwrap().count());
        }
        // 20 files fit, and two more until the next trim.
        assert_eq!(max_files, 22);
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(dir.path().join("apple"), 1 << 20);
        let file = directory.file("a");
        directory.publish(&file, |p| fs::write(p, "old")).unwrap();
        let failed = directory.publish(&file, |p| {
            fs::write(p, "ne")?;
            Err(io::Error::other("disk full"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "disk full");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path().join("apple")).unwrap().count(), 1);
    }

    #[test]
    fn the_oldest_files_are_removed_when_the_directory_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::new(dir.path().to_owned(), 25);
        for (age, name) in [(30, "a"), (20, "b")] {
            let file = directory.file(name);
            directory.publish(&file, |p| fs::write(p, [0; 10])).unwrap();
            let then = SystemTime::now() - std::time::Duration::from_secs(age);
            let opened = fs::File::options().write(true).open(&file).unwrap();
            opened.set_modified(then).unwrap();
        }
        let newest = directory.file("c");
        directory
            .publish(&newest, |p| fs::write(p, [0; 10]))
            .unwrap();
        let kept = ["a", "b", "c"].map(|name| directory.file(name).exists());
        assert_eq!(kept, [false, true, true]);
    }
}
