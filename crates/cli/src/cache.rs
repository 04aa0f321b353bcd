//! `bessemer cache`: compiled kernels on disk.

use crate::args::{CacheAction, CacheArgs};
use crate::failure::Outcome;
use crate::terminal::{self, Out, bytes, counted};
use anyhow::{Context as _, Result};
use bessemer_hal::env;
use serde_json::json;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

/// Runs the command.
pub(crate) fn run(args: &CacheArgs, out: &mut Out) -> Result<Outcome> {
    let dir = env::cache_dir().context(
        "there is no cache directory: neither BESSEMER_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set",
    )?;
    let failed = || format!("cannot read {}", dir.display());
    let size = measure(&dir).with_context(failed)?;
    if args.action == CacheAction::Clear {
        clear(&dir).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    if args.json {
        let mut value = json!({ "path": dir.display().to_string() });
        if args.action != CacheAction::Path {
            value["files"] = size.files.into();
            value["bytes"] = size.bytes.into();
            value["cleared"] = (args.action == CacheAction::Clear).into();
        }
        terminal::write_json(out, &value)?;
        return Ok(Outcome::Clean);
    }
    let content = format!(
        "{} in {}",
        bytes(usize::try_from(size.bytes).unwrap_or(usize::MAX)),
        counted(size.files, "file")
    );
    match args.action {
        CacheAction::Path => writeln!(out, "{}", dir.display())?,
        CacheAction::Stats => writeln!(out, "{}: {content}", dir.display())?,
        CacheAction::Clear => writeln!(out, "{}: removed {content}", dir.display())?,
    }
    out.flush()?;
    Ok(Outcome::Clean)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Content {
    files: usize,
    bytes: u64,
}

/// Counts what is in a directory; files that vanish meanwhile are no error: other processes use the cache too.
fn measure(dir: &Path) -> io::Result<Content> {
    let mut content = Content::default();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => open.push(entry.path()),
                Ok(meta) => {
                    content.files += 1;
                    content.bytes += meta.len();
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(content)
}

/// Removes what the software device keeps there, and nothing else: the directory may have been named by hand.
fn clear(dir: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("soft-v") {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clearing_leaves_alone_what_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("soft-v1");
        fs::create_dir(&ours).unwrap();
        fs::write(ours.join("kernel"), [0; 10]).unwrap();
        fs::write(dir.path().join("theirs"), [0; 5]).unwrap();
        assert_eq!(
            measure(dir.path()).unwrap(),
            Content {
                files: 2,
                bytes: 15
            }
        );
        clear(dir.path()).unwrap();
        assert!(!ours.exists());
        assert!(dir.path().join("theirs").exists());
    }

    #[test]
    fn a_cache_that_does_not_exist_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        assert_eq!(measure(&missing).unwrap(), Content::default());
        clear(&missing).unwrap();
    }
}
