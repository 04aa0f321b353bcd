//! `bessemer cache`: the files on disk.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use bessemer_hal::env;
use serde_json::json;

use crate::args::{CacheAction, CacheArgs};
use crate::failure::Outcome;
use crate::table::Table;
use crate::terminal::{self, Out, bytes, counted, style};

/// Kind of an entry of the cache directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Kernels compiled by the software device.
    Kernels,
    /// Models fetched by `bessemer pull`.
    Models,
    /// Dispatch tables measured by `bessemer tune`.
    Tables,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Kernels, Self::Models, Self::Tables];

    const fn name(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Models => "models",
            Self::Tables => "dispatch tables",
        }
    }

    /// Returns the kind of an entry by its name; `None` for files that are not Bessemer's, as users may set the directory.
    fn of(name: &str) -> Option<Self> {
        match name {
            "models" => Some(Self::Models),
            name if name.starts_with("soft-v") => Some(Self::Kernels),
            name if name.starts_with("tune-") => Some(Self::Tables),
            _ => None,
        }
    }

    /// Returns whether `cache clear` removes it.
    fn is_cleared(self, args: &CacheArgs) -> bool {
        let is_named = args.models || args.kernels;
        args.all
            || match self {
                Self::Models => args.models,
                Self::Kernels => args.kernels || !is_named,
                Self::Tables => false,
            }
    }
}

/// Runs the command.
pub(crate) fn run(args: &CacheArgs, out: &mut Out) -> Result<Outcome> {
    let dir = env::cache_dir().context(
        "there is no cache directory: neither BESSEMER_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set",
    )?;
    if args.action == CacheAction::Path {
        if args.json {
            terminal::write_json(out, &json!({ "path": dir.display().to_string() }))?
        } else {
            writeln!(out, "{}", dir.display())?
        }
        out.flush()?;
        return Ok(Outcome::Clean);
    }
    let is_clear = args.action == CacheAction::Clear;
    let wanted = |kind: Kind| !is_clear || kind.is_cleared(args);
    let failed = || format!("cannot read {}", dir.display());
    let entries = entries(&dir).with_context(failed)?;
    let mut found = Kind::ALL.map(|kind| (kind, Content::default()));
    for (kind, path) in &entries {
        let size = measure(path).with_context(failed)?;
        if is_clear && wanted(*kind) {
            remove(path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        for (_, content) in found.iter_mut().filter(|(k, _)| k == kind) {
            *content += size;
        }
    }
    let mut total = Content::default();
    for (_, content) in found.iter().filter(|(kind, _)| wanted(*kind)) {
        total += *content;
    }
    if args.json {
        let kinds: serde_json::Map<_, _> = found
            .iter()
            .map(|(kind, content)| {
                let is_removed = is_clear && wanted(*kind);
                let value =
                    json!({ "files": content.files, "bytes": content.bytes, "removed": is_removed });
                (kind.name().replace(' ', "_"), value)
            })
            .collect();
        let value = json!({
            "path": dir.display().to_string(),
            "files": total.files,
            "bytes": total.bytes,
            "cleared": is_clear,
            "kinds": kinds,
        });
        terminal::write_json(out, &value)?;
        return Ok(Outcome::Clean);
    }
    let verb = if is_clear { ": removed" } else { ":" };
    writeln!(out, "{}{verb} {total}", dir.display())?;
    let mut table = Table::new(["kind", "size", ""]);
    for (kind, content) in found {
        let note = match (is_clear, wanted(kind)) {
            (true, true) => "removed",
            (true, false) if content.files > 0 && kind == Kind::Models => {
                "kept; --models removes them"
            }
            (true, false) if content.files > 0 => "kept; --all removes them",
            _ => "",
        };
        table.row([kind.name().to_owned(), content.to_string(), note.to_owned()]);
    }
    table.write(out, style::STRONG)?;
    out.flush()?;
    Ok(Outcome::Clean)
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Content {
    files: usize,
    bytes: u64,
}

impl AddAssign for Content {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

impl std::fmt::Display for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = bytes(usize::try_from(self.bytes).unwrap_or(usize::MAX));
        write!(f, "{size} in {}", counted(self.files, "file"))
    }
}

/// Bessemer's entries of the directory; none if it does not exist.
fn entries(dir: &Path) -> io::Result<Vec<(Kind, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut known = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Some(kind) = Kind::of(&entry.file_name().to_string_lossy()) {
            known.push((kind, entry.path()));
        }
    }
    Ok(known)
}

/// Counts the contents of a file or directory. Files that vanish meanwhile are not an error: other processes use the
/// cache too.
fn measure(path: &Path) -> io::Result<Content> {
    let mut content = Content::default();
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        let visited = fs::symlink_metadata(&path).and_then(|meta| {
            if meta.is_dir() {
                fs::read_dir(&path)?.try_for_each(|entry| {
                    open.push(entry?.path());
                    Ok(())
                })
            } else {
                content.files += 1;
                content.bytes += meta.len();
                Ok(())
            }
        });
        match visited {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => other?,
        }
    }
    Ok(content)
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_files_are_neither_counted_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["soft-v1", "models", "theirs"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("file"), [0; 10]).unwrap();
        }
        fs::write(dir.path().join("tune-x.txt"), [0; 5]).unwrap();
        fs::write(dir.path().join("tuned"), [0; 5]).unwrap();
        let mut found = entries(dir.path()).unwrap();
        found.sort_by_key(|(kind, _)| kind.name());
        let kinds: Vec<_> = found.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::Tables, Kind::Kernels, Kind::Models]);
        let sizes: Vec<_> = found
            .iter()
            .map(|(_, p)| measure(p).unwrap().bytes)
            .collect();
        assert_eq!(sizes, [5, 10, 10]);
        for (_, path) in found {
            remove(&path).unwrap();
        }
        assert!(dir.path().join("theirs/file").exists() && dir.path().join("tuned").exists());
        assert!(entries(dir.path()).unwrap().is_empty());
    }

    #[test]
    fn a_cache_that_does_not_exist_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        assert_eq!(entries(&missing).unwrap(), []);
        assert_eq!(measure(&missing).unwrap(), Content::default());
    }
}
