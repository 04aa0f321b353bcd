//! The software Metal device: unmodified MSL on the CPU.
//!
//! ```text
//! MSL ── clang -E ──► expanded text ── msl ──► C++ ── clang ──► LLVM IR ── ir ──► regions ── clang ──► image
//!        (compile)                                  (compile)              (fission)     (compile)     (image)
//! ```
//!
//! - `device`, `buffer`, `library`, `pipeline`, `queue` implement the traits of [`crate::driver`];
//! - `toolchain` finds and runs clang, `compile` compiles MSL to an image, `diagnose` maps clang's diagnostics back to
//!   the user's file, line and column, `cache` keeps images between runs;
//! - `image` loads a compiled kernel into the process, once per specialization with function constants.

// The hidden modules are not public API: compiler and runtime internals that the integration tests drive directly.
mod buffer;
mod cache;
pub(crate) mod check;
mod compile;
mod device;
mod diagnose;
#[doc(hidden)]
pub mod group;
mod image;
mod instruction_set;
#[doc(hidden)]
pub mod ir;
mod library;
mod matrix;
mod pipeline;
#[doc(hidden)]
pub mod plan;
mod queue;
#[doc(hidden)]
pub mod runtime;
#[doc(hidden)]
pub mod shim;
mod toolchain;

pub use device::Soft;
pub use instruction_set::InstructionSet;
pub use toolchain::Compiler;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::device::Device;
use crate::env::{self, Variable};
use crate::error::Result;
use crate::info::Family;
use crate::language::LanguageVersion;

/// Execution mode of the software device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Fastest execution, in this process.
    #[default]
    Fast,
    /// Every access is checked: bounds, races, uninitialised memory, divergence.
    Check,
    /// Threads run in random order, and reductions and approximate functions vary within what Metal allows.
    Fuzz,
    /// Kernels run in a child process, where they can corrupt nothing but their buffers.
    Isolated,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Fast, Self::Check, Self::Fuzz, Self::Isolated];

    /// Name on the command line and in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Check => "check",
            Self::Fuzz => "fuzz",
            Self::Isolated => "isolated",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("unknown mode `{text}`; known are {names}")
            })
    }
}

/// Options of a software device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoftOptions {
    /// Execution mode.
    pub mode: Mode,
    /// Threads that run threadgroups; `None` is one per core.
    pub threads: Option<usize>,
    /// Time limit of one submission.
    pub timeout: Duration,
    /// Maximum number of loop iterations of a thread between two synchronisations in [`Mode::Check`]. More are reported
    /// as a `timeout` at the loop.
    pub step_limit: u64,
    /// Seed of all random choices in [`Mode::Fuzz`].
    pub seed: u64,
    /// Whether code is optimised again after barrier splitting. Without it, kernels compile in three fifths of the time,
    /// run up to a quarter slower, and give the same bits. [`Mode::Check`] and [`Mode::Fuzz`] never do it.
    pub optimize: bool,
    /// Target instruction set of kernels. Results are bit-identical on all of them.
    pub instruction_set: InstructionSet,
    /// The GPU family whose limits are enforced.
    pub family: Family,
    /// Metal Shading Language version of the sources.
    pub language: LanguageVersion,
    /// Cache directory of compiled kernels; `None` keeps them for the life of the device only.
    pub cache_dir: Option<PathBuf>,
    /// Maximum cache size in bytes, beyond which the least recently used kernels are evicted.
    pub cache_limit: u64,
    /// The clang++ to use; `None` searches the path.
    pub clang: Option<PathBuf>,
}

impl Default for SoftOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Fast,
            threads: None,
            timeout: Duration::from_secs(30),
            step_limit: 1 << 28,
            seed: 0,
            optimize: true,
            instruction_set: InstructionSet::native(),
            family: Family::default(),
            language: LanguageVersion::default(),
            cache_dir: env::cache_dir(),
            cache_limit: 1 << 30,
            clang: None,
        }
    }
}

impl SoftOptions {
    /// Default options in a mode.
    pub fn in_mode(mode: Mode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }

    /// Reads the options from the environment; see [`crate::env`].
    ///
    /// # Errors
    /// [`crate::Error::Environment`] if a variable has a value that it may not have.
    pub fn from_env() -> Result<Self> {
        let mut options = Self::default();
        if let Some(mode) = parse_variable(env::SOFT_MODE)? {
            options.mode = mode;
        }
        if let Some(threads) = env::SOFT_THREADS.count()? {
            options.threads = Some(threads);
        }
        if let Some(milliseconds) = env::SOFT_TIMEOUT_MS.number()? {
            options.timeout = Duration::from_millis(milliseconds);
        }
        if let Some(steps) = env::SOFT_STEP_LIMIT.number()? {
            options.step_limit = steps;
        }
        if let Some(seed) = env::SOFT_SEED.number()? {
            options.seed = seed;
        }
        if let Some(optimize) = env::SOFT_OPTIMIZE.switch()? {
            options.optimize = optimize;
        }
        if let Some(set) = parse_variable(env::SOFT_INSTRUCTION_SET)? {
            options.instruction_set = set;
        }
        if let Some(family) = parse_variable(env::SOFT_FAMILY)? {
            options.family = family;
        }
        if let Some(language) = parse_variable(env::SOFT_LANGUAGE)? {
            options.language = language;
        }
        if let Some(bytes) = env::KERNEL_CACHE_MB.megabytes()? {
            options.cache_limit = bytes;
        }
        options.clang = env::CLANG.path();
        Ok(options)
    }
}

/// Creates a software device.
///
/// A missing clang is not an error yet: cached kernels need none. Compiling any other kernel fails with
/// [`crate::Error::Toolchain`], which names what to install.
///
/// # Errors
/// [`crate::Error::Unavailable`] if threads cannot be created or the machine lacks the instruction set.
pub fn device(options: SoftOptions) -> Result<Device> {
    Ok(Device::from_driver(Arc::new(Soft::new(options)?)))
}

/// Returns launch counts by kernel name, of command lists that ran without a failure; `None` if the device is not a
/// software device. Tests use it to verify that a kernel ran at all, for example in check mode.
pub fn executed(device: &Device) -> Option<BTreeMap<String, u64>> {
    Some(device.driver::<Soft>()?.executed())
}

/// Returns the number of reports that comments in kernels have suppressed in [`Mode::Check`]; `None` if the device is not
/// a software device. A report counts once per launch.
pub fn suppressed(device: &Device) -> Option<u64> {
    Some(device.driver::<Soft>()?.suppressed())
}

/// Finds the compiler that a device with these options would use.
///
/// # Errors
/// [`crate::Error::Toolchain`] if there is none, with the reason and what to install.
pub fn compiler(options: &SoftOptions) -> Result<Compiler> {
    toolchain::find(options.clang.as_deref())
}

fn parse_variable<T: FromStr>(variable: Variable) -> Result<Option<T>> {
    variable.parse(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_parse_from_their_names() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!(
            "slow".parse::<Mode>(),
            Err("unknown mode `slow`; known are fast, check, fuzz, isolated".to_owned())
        );
    }
}
