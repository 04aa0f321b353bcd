//! Every environment variable the device layer reads, in one place.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `BESSEMER_CLANG` | the clang++ that the software device drives | the newest of `clang++-20` … `clang++-17`, `clang++` on the path |
//! | `BESSEMER_CACHE_DIR` | where compiled kernels, models and measurements are kept | `$XDG_CACHE_HOME/bessemer` or `~/.cache/bessemer` |
//! | `BESSEMER_CACHE_LIMIT_MB` | size at which old kernels are removed | 1024 |
//! | `BESSEMER_SOFT_MODE` | `fast`, `check`, `fuzz` or `isolated` | `fast` |
//! | `BESSEMER_SOFT_THREADS` | worker threads of the software device | number of cores |
//! | `BESSEMER_SOFT_TIMEOUT_MS` | time limit of one submission | 30000 |
//! | `BESSEMER_SOFT_STEP_LIMIT` | loop iterations that a thread may have between two synchronisations, in `check` mode | 268435456 |
//! | `BESSEMER_SOFT_SEED` | seed of `fuzz` mode | 0 |
//! | `BESSEMER_SOFT_OPTIMIZE` | 0 compiles kernels in three fifths of the time, for tests; they run up to a quarter slower | 1 |
//! | `BESSEMER_SOFT_INSTRUCTION_SET` | what kernels are compiled for, `x86-64`, `x86-64-v3` or `armv8-a`; results are the same | the largest the machine has |
//! | `BESSEMER_SOFT_FAMILY` | GPU family whose limits are enforced, `apple7` to `apple10` or `mac2` | `apple7` |
//! | `BESSEMER_SOFT_LANGUAGE` | version of the Metal Shading Language, `metal3.0`, `metal3.1` or `metal3.2` | `metal3.1` |

use std::path::PathBuf;

/// `BESSEMER_CLANG`
pub const CLANG: &str = "BESSEMER_CLANG";
/// `BESSEMER_CACHE_DIR`
pub const CACHE_DIR: &str = "BESSEMER_CACHE_DIR";
/// `BESSEMER_CACHE_LIMIT_MB`
pub const CACHE_LIMIT_MB: &str = "BESSEMER_CACHE_LIMIT_MB";
/// `BESSEMER_SOFT_MODE`
pub const SOFT_MODE: &str = "BESSEMER_SOFT_MODE";
/// `BESSEMER_SOFT_THREADS`
pub const SOFT_THREADS: &str = "BESSEMER_SOFT_THREADS";
/// `BESSEMER_SOFT_TIMEOUT_MS`
pub const SOFT_TIMEOUT_MS: &str = "BESSEMER_SOFT_TIMEOUT_MS";
/// `BESSEMER_SOFT_STEP_LIMIT`
pub const SOFT_STEP_LIMIT: &str = "BESSEMER_SOFT_STEP_LIMIT";
/// `BESSEMER_SOFT_SEED`
pub const SOFT_SEED: &str = "BESSEMER_SOFT_SEED";
/// `BESSEMER_SOFT_OPTIMIZE`
pub const SOFT_OPTIMIZE: &str = "BESSEMER_SOFT_OPTIMIZE";
/// `BESSEMER_SOFT_INSTRUCTION_SET`
pub const SOFT_INSTRUCTION_SET: &str = "BESSEMER_SOFT_INSTRUCTION_SET";
/// `BESSEMER_SOFT_FAMILY`
pub const SOFT_FAMILY: &str = "BESSEMER_SOFT_FAMILY";
/// `BESSEMER_SOFT_LANGUAGE`
pub const SOFT_LANGUAGE: &str = "BESSEMER_SOFT_LANGUAGE";

/// The value of a variable, if it is set and not empty.
pub fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// A variable as a number.
///
/// # Errors
/// The value is set and is not a number: a typing mistake must not be taken for the default.
pub fn number(name: &str) -> crate::Result<Option<u64>> {
    let Some(value) = text(name) else {
        return Ok(None);
    };
    match value.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => Err(crate::Error::Unavailable {
            device: "the software Metal device".to_owned(),
            reason: format!("{name} is `{value}`, which is not a whole number"),
        }),
    }
}

/// The directory that holds compiled kernels; `None` when neither a cache nor a home directory is known.
pub fn cache_dir() -> Option<PathBuf> {
    if let Some(dir) = text(CACHE_DIR) {
        return Some(dir.into());
    }
    if let Some(dir) = text("XDG_CACHE_HOME") {
        return Some(PathBuf::from(dir).join("bessemer"));
    }
    let home = PathBuf::from(text("HOME")?);
    let caches = if cfg!(target_vendor = "apple") {
        home.join("Library/Caches")
    } else {
        home.join(".cache")
    };
    Some(caches.join("bessemer"))
}
