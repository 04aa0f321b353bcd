//! Ctrl-C: exit code 130, and no partial files.
//!
//! While a command is [`watching`], the first ctrl-c only sets a flag, so that generation can stop and keep its text.
//! At all other times, and the second time, it ends the program immediately.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};

use crate::failure::Outcome;

/// Number of times ctrl-c was pressed since the command started watching.
static PRESSED: AtomicUsize = AtomicUsize::new(0);
static WATCHED: AtomicBool = AtomicBool::new(false);
/// Files and directories to remove when the program is interrupted.
static PARTIAL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Catches ctrl-c from now on.
pub(crate) fn catch() -> Result<()> {
    ctrlc::set_handler(|| {
        let before = PRESSED.fetch_add(1, Ordering::SeqCst);
        if before > 0 || !WATCHED.load(Ordering::SeqCst) {
            for path in PARTIAL
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
            {
                // Most of them do not exist at any one time.
                let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
            }
            std::process::exit(Outcome::Interrupted.code().into());
        }
    })
    .context("cannot catch ctrl-c")
}

/// Runs `body`, in which [`pressed`] tells whether ctrl-c was pressed.
pub(crate) fn watching<T>(body: impl FnOnce() -> T) -> T {
    PRESSED.store(0, Ordering::SeqCst);
    WATCHED.store(true, Ordering::SeqCst);
    let result = body();
    WATCHED.store(false, Ordering::SeqCst);
    result
}

/// Returns whether ctrl-c was pressed since [`watching`] started.
pub(crate) fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst) > 0
}

/// Runs `body`, which writes these files or directories; they are removed if it is interrupted.
pub(crate) fn removing<T>(paths: Vec<PathBuf>, body: impl FnOnce() -> T) -> T {
    let partial = || PARTIAL.lock().unwrap_or_else(PoisonError::into_inner);
    *partial() = paths;
    let result = body();
    partial().clear();
    result
}
