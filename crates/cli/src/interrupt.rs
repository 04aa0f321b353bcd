//! Ctrl-C: exit code 130, and no partial files.
//!
//! While a command is [`watching`], the first ctrl-c only sets a flag, so that an answer can end where it is. At all
//! other times, and the second time, it ends the program at once.

use crate::failure::Outcome;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often ctrl-c was pressed since the command began to watch.
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
                // Most of them are not there at any one time.
                let _ = fs::remove_file(path).or_else(|_| fs::remove_dir_all(path));
            }
            std::process::exit(Outcome::Interrupted.code().into());
        }
    })
    .context("cannot catch ctrl-c")
}

/// Runs `body`, in which [`pressed`] says whether there was a ctrl-c.
pub(crate) fn watching<T>(body: impl FnOnce() -> T) -> T {
    PRESSED.store(0, Ordering::SeqCst);
    WATCHED.store(true, Ordering::SeqCst);
    let result = body();
    WATCHED.store(false, Ordering::SeqCst);
    result
}

/// Whether ctrl-c was pressed since [`watching`] began.
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
