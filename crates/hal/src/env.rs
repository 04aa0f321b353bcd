//! Environment variables: every one that Bessemer reads, whichever crate reads it, in one table.
//!
//! The table is also `docs/environment.md`, and a test compares the two. Names begin with `BESSEMER_` and end in a unit
//! where there is one; `MB` are 2²⁰ bytes. A variable that is set to the empty string counts as not set, any other
//! invalid value is [`Error::Environment`]. The first variable read warns about all set variables of that prefix that
//! are not in the table, which is usually a spelling mistake.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Once;

use crate::error::closest;
use crate::{Error, Result};

/// An environment variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// The values it may have.
    pub values: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
}

macro_rules! variables {
    ($($variable:ident $name:literal, $meaning:literal, $values:literal, $default:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $meaning, ".")]
            pub const $variable: Variable = Variable {
                name: $name,
                meaning: $meaning,
                values: $values,
                default: $default,
            };
        )*

        /// All variables that programs read.
        pub const VARIABLES: &[Variable] = &[$($variable),*];
    };
}

variables! {
    DEVICE "BESSEMER_DEVICE", "default device of tensors and language models",
        "cpu, metal, soft or auto", "auto: the Metal GPU if there is one, otherwise the CPU";
    THREADS "BESSEMER_THREADS", "threads of the CPU backend, including the caller",
        "a whole number above 0", "the number of cores";
    SIMD "BESSEMER_SIMD", "highest instruction set of the CPU backend",
        "scalar, avx2, avx512 or neon, if the processor has it", "the best that the processor has";
    MATMUL "BESSEMER_MATMUL", "matmul on Metal devices: the engine's kernels or Metal Performance Shaders",
        "msl or mps", "msl";
    RED_ZONES "BESSEMER_RED_ZONES", "surround results of Metal kernels with guard bytes that are verified on every read; slow, for tests",
        "0 or 1", "0";
    MEMORY_CACHE_MB "BESSEMER_MEMORY_CACHE_MB", "freed tensor memory kept for reuse on the CPU",
        "a whole number", "a quarter of the machine's memory";
    DUMP_MSL "BESSEMER_DUMP_MSL", "directory that the MSL generated from programs is written to",
        "a path", "nothing is written";
    CACHE_DIR "BESSEMER_CACHE_DIR", "directory of compiled kernels, models and measurements",
        "a path", "$XDG_CACHE_HOME/bessemer, ~/.cache/bessemer or, on Apple systems, ~/Library/Caches/bessemer";
    KERNEL_CACHE_MB "BESSEMER_KERNEL_CACHE_MB", "size of the cache of compiled kernels, beyond which the least recently used are removed",
        "a whole number", "1024";
    CLANG "BESSEMER_CLANG", "clang++ of the software device",
        "a path", "the newest of clang++-20 to clang++-17 and clang++ on the path";
    LOG "BESSEMER_LOG", "filter of the spans and events that the command line writes to standard error, in builds with the feature `tracing`",
        "a filter such as debug or bessemer::graph=trace", "nothing is written";
    SOFT_MODE "BESSEMER_SOFT_MODE", "mode of the software device",
        "fast, check, fuzz or isolated", "fast; isolated in the command line";
    SOFT_THREADS "BESSEMER_SOFT_THREADS", "worker threads of the software device",
        "a whole number above 0", "the number of cores";
    SOFT_TIMEOUT_MS "BESSEMER_SOFT_TIMEOUT_MS", "time limit of a submission to the software device",
        "a whole number", "30000";
    SOFT_STEP_LIMIT "BESSEMER_SOFT_STEP_LIMIT", "loop iterations between two synchronisations, beyond which check mode reports an endless loop",
        "a whole number", "268435456";
    SOFT_SEED "BESSEMER_SOFT_SEED", "seed of fuzz mode",
        "a whole number", "0";
    SOFT_OPTIMIZE "BESSEMER_SOFT_OPTIMIZE", "optimisation of kernels on the software device: without it they compile in three fifths of the time and run up to a quarter slower",
        "0 or 1", "1";
    SOFT_INSTRUCTION_SET "BESSEMER_SOFT_INSTRUCTION_SET", "instruction set that the software device compiles for; results are the same on all",
        "x86-64, x86-64-v3 or armv8-a", "the largest that the processor has";
    SOFT_FAMILY "BESSEMER_SOFT_FAMILY", "GPU family whose limits the software device enforces",
        "apple7, apple8, apple9, apple10 or mac2", "apple7";
    SOFT_LANGUAGE "BESSEMER_SOFT_LANGUAGE", "MSL version of the software device",
        "metal3.0, metal3.1 or metal3.2", "metal3.1";
}

/// Variables that only tests and scripts of the repository read.
pub const TEST_VARIABLES: &[Variable] = &[
    Variable {
        name: "BESSEMER_LONG_TESTS",
        meaning: "how much `scripts/test` and `.ci/run` test",
        values: "1 for everything, part for a sixteenth of check and fuzz mode",
        default: "the tests of every change",
    },
    Variable {
        name: "BESSEMER_TEST_CASES",
        meaning: "maximum number of random cases of a test on a Metal device",
        values: "a whole number",
        default: "as many as the test asks for; 3 in check mode",
    },
    Variable {
        name: "BESSEMER_TEST_DEVICE",
        meaning: "device of the conformance tests",
        values: "software, fuzz or apple",
        default: "software",
    },
    Variable {
        name: "BESSEMER_TEST_EMULATED",
        meaning: "fewer cases and only the highest SIMD level, for an emulated processor",
        values: "1",
        default: "not set",
    },
    Variable {
        name: "BESSEMER_BLESS",
        meaning: "write the committed tables of counts instead of comparing with them",
        values: "1",
        default: "not set",
    },
];

const PREFIX: &str = "BESSEMER_";
/// Tests pass these to the processes they start.
const TEST_PREFIX: &str = "BESSEMER_TEST_";

impl Variable {
    /// The value, if it is set and not empty.
    ///
    /// # Errors
    /// [`Error::Environment`] if it is not Unicode.
    pub fn text(&self) -> Result<Option<String>> {
        let Some(value) = self.value() else {
            return Ok(None);
        };
        let text = value.into_string();
        text.map(Some)
            .map_err(|value| self.error(&value.to_string_lossy()))
    }

    /// The value as a path, if it is set and not empty.
    pub fn path(&self) -> Option<PathBuf> {
        self.value().map(PathBuf::from)
    }

    /// The value, converted, if it is set and not empty.
    ///
    /// # Errors
    /// [`Error::Environment`] if the conversion returns `None`.
    pub fn parse<T>(&self, convert: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.text()? else {
            return Ok(None);
        };
        match convert(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(self.error(&text)),
        }
    }

    /// The value as a whole number, if it is set and not empty.
    ///
    /// # Errors
    /// [`Error::Environment`] if it is not one.
    pub fn number(&self) -> Result<Option<u64>> {
        self.parse(|text| text.parse().ok())
    }

    /// The value as a whole number above zero, if it is set and not empty.
    ///
    /// # Errors
    /// [`Error::Environment`] if it is not one.
    pub fn count(&self) -> Result<Option<usize>> {
        self.parse(|text| text.parse().ok().filter(|&n| n > 0))
    }

    /// The value `0` or `1`, if it is set and not empty.
    ///
    /// # Errors
    /// [`Error::Environment`] if it is another.
    pub fn switch(&self) -> Result<Option<bool>> {
        self.parse(|text| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        })
    }

    /// The value in units of 2²⁰ bytes, converted to bytes, if it is set and not empty.
    ///
    /// # Errors
    /// [`Error::Environment`] if it is not a whole number.
    pub fn megabytes(&self) -> Result<Option<u64>> {
        Ok(self.number()?.map(|n| n.saturating_mul(1 << 20)))
    }

    /// The error of an invalid value.
    fn error(&self, value: &str) -> Error {
        Error::Environment {
            variable: self.name,
            value: value.to_owned(),
            allowed: self.values.to_owned(),
        }
    }

    fn value(&self) -> Option<OsString> {
        warn_of_unknown();
        set(self.name)
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The cache directory; `None` if neither `BESSEMER_CACHE_DIR` nor `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache_dir() -> Option<PathBuf> {
    if let Some(dir) = CACHE_DIR.path() {
        return Some(dir);
    }
    if let Some(dir) = set("XDG_CACHE_HOME") {
        return Some(PathBuf::from(dir).join("bessemer"));
    }
    let home = PathBuf::from(set("HOME")?);
    let caches = if cfg!(target_vendor = "apple") {
        home.join("Library/Caches")
    } else {
        home.join(".cache")
    };
    Some(caches.join("bessemer"))
}

fn set(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Warns on standard error about variables that look like Bessemer's and are not in the table, once per process.
/// Another program may own such a variable, so it is not an error.
fn warn_of_unknown() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        for (name, _) in std::env::vars_os() {
            if let Some(warning) = unknown(&name.to_string_lossy()) {
                eprintln!("warning: {warning}");
            }
        }
    });
}

/// The warning about a variable, if it deserves one.
fn unknown(name: &str) -> Option<String> {
    let known = || VARIABLES.iter().chain(TEST_VARIABLES).map(|v| v.name);
    let is_ours = name.starts_with(PREFIX) && !name.starts_with(TEST_PREFIX);
    if !is_ours || known().any(|other| other == name) {
        return None;
    }
    let short = |name: &'static str| name.trim_start_matches(PREFIX);
    let remedy = match closest(name.trim_start_matches(PREFIX), known().map(short)) {
        Some(other) => format!("did you mean {PREFIX}{other}?"),
        None => "docs/environment.md lists all variables".to_owned(),
    };
    Some(format!(
        "the environment variable {name} is unknown and has no effect; {remedy}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_variable_is_answered_with_the_closest_name() {
        let told = |name| unknown(name).unwrap_or_default();
        assert!(told("BESSEMER_THREAD").ends_with("did you mean BESSEMER_THREADS?"));
        assert!(told("BESSEMER_SOFT_TIMEOUT").ends_with("did you mean BESSEMER_SOFT_TIMEOUT_MS?"));
        assert!(told("BESSEMER_X").ends_with("docs/environment.md lists all variables"));
        for known in [
            "BESSEMER_THREADS",
            "BESSEMER_BLESS",
            "BESSEMER_TEST_ANYTHING",
            "PATH",
        ] {
            assert_eq!(unknown(known), None, "{known}");
        }
    }
}
