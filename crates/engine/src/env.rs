//! The environment variables of the engine, which [`bessemer_hal::env`] lists.
//!
//! They are read once. A bad value is an [`Error::Environment`] of [`Device::current`](crate::Device::current) and of
//! every evaluation; what cannot fail, such as [`simd::level`](crate::simd::level), has its default then.

use std::path::PathBuf;
use std::sync::OnceLock;

use bessemer_hal::env::{self, Variable};

use crate::cpu::simd::Level;
use crate::metal::MatrixLibrary;
use crate::{Error, Result};

/// The values of the variables; `None` and `false` where one is not set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `BESSEMER_DEVICE`
    pub(crate) device: Option<DeviceName>,
    /// `BESSEMER_THREADS`
    pub(crate) threads: Option<usize>,
    /// `BESSEMER_SIMD`
    pub(crate) simd: Option<Level>,
    /// `BESSEMER_MATMUL`
    pub(crate) matmul: Option<MatrixLibrary>,
    /// `BESSEMER_RED_ZONES`
    pub(crate) red_zones: bool,
    /// `BESSEMER_MEMORY_CACHE_MB`, in bytes
    pub(crate) memory_cache_bytes: Option<usize>,
    /// `BESSEMER_DUMP_MSL`
    pub(crate) dump_msl: Option<PathBuf>,
}

/// A value of `BESSEMER_DEVICE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceName {
    Auto,
    Cpu,
    Metal,
    Software,
}

impl DeviceName {
    /// The device of a name: `cpu`, `metal`, `soft` or `auto`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "metal" => Some(Self::Metal),
            "soft" => Some(Self::Software),
            _ => None,
        }
    }
}

impl Settings {
    fn read() -> Result<Self> {
        let read = || {
            Ok::<_, bessemer_hal::Error>(Self {
                device: env::DEVICE.parse(DeviceName::named)?,
                threads: env::THREADS.count()?,
                simd: None,
                matmul: env::MATMUL.parse(MatrixLibrary::named)?,
                red_zones: env::RED_ZONES.switch()?.unwrap_or(false),
                memory_cache_bytes: env::MEMORY_CACHE_MB
                    .megabytes()?
                    .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
                dump_msl: env::DUMP_MSL.path(),
            })
        };
        let settings = read().map_err(|e| Error::device("environment", e))?;
        let simd = simd(env::SIMD)?;
        Ok(Self { simd, ..settings })
    }
}

/// The level that a variable names, which this processor must have.
fn simd(variable: Variable) -> Result<Option<Level>> {
    let error = |e| Error::device("environment", e);
    let Some(name) = variable.text().map_err(error)? else {
        return Ok(None);
    };
    let available = || Level::ALL.into_iter().filter(|l| l.is_available());
    match available().find(|l| l.name() == name) {
        Some(level) => Ok(Some(level)),
        None => Err(Error::Environment {
            variable: variable.name,
            value: name,
            allowed: format!(
                "{} (the levels of this processor)",
                available().map(Level::name).collect::<Vec<_>>().join(", ")
            ),
        }),
    }
}

fn read() -> &'static Result<Settings> {
    static SETTINGS: OnceLock<Result<Settings>> = OnceLock::new();
    SETTINGS.get_or_init(Settings::read)
}

/// The settings, or the defaults if a variable has a bad value.
pub(crate) fn settings() -> &'static Settings {
    static DEFAULTS: OnceLock<Settings> = OnceLock::new();
    match read() {
        Ok(settings) => settings,
        Err(_) => DEFAULTS.get_or_init(Settings::default),
    }
}

/// Checks the environment variables of the engine. Evaluating a tensor does so, too; programs call it to fail early.
///
/// # Errors
/// [`Error::Environment`] if a variable has a value that it may not have.
#[inline]
pub fn check() -> Result<()> {
    match read() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.clone()),
    }
}

/// The directory of compiled kernels, models and measurements; `None` if neither `BESSEMER_CACHE_DIR` nor
/// `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache_dir() -> Option<PathBuf> {
    env::cache_dir()
}
