//! Linux: no Metal GPU, but the software device.

use std::num::NonZero;

use anyhow::{Context as _, Result};
use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{Device, env};

use super::{Inventory, Listed, Setup};
use crate::args::ModeArg;

pub(super) fn open(setup: &Setup) -> Result<Device> {
    Ok(soft::device(options(setup)?)?)
}

pub(super) fn compiler() -> Result<()> {
    soft::compiler(&SoftOptions::from_env()?)?;
    Ok(())
}

/// Options from the command line, then the environment, then this program's defaults: untrusted kernels run in a
/// separate process.
fn options(setup: &Setup) -> Result<SoftOptions> {
    let mut options = SoftOptions::from_env()?;
    if env::SOFT_MODE.text()?.is_none() {
        options.mode = Mode::Isolated;
    }
    if let Some(mode) = setup.mode {
        options.mode = match mode {
            ModeArg::Fast => Mode::Fast,
            ModeArg::Check => Mode::Check,
            ModeArg::Fuzz => Mode::Fuzz,
            ModeArg::Isolated => Mode::Isolated,
        };
    }
    if let Some(seed) = setup.seed {
        options.seed = seed;
    }
    if let Some(timeout) = setup.timeout {
        options.timeout = timeout;
    }
    if setup.threads.is_some() {
        options.threads = setup.threads;
    }
    if let Some(family) = setup.family {
        options.family = family;
    }
    if let Some(language) = setup.language {
        options.language = language;
    }
    Ok(options)
}

pub(super) fn inventory() -> Result<Inventory> {
    let options = SoftOptions::from_env()?;
    let compiler = match soft::compiler(&options) {
        Ok(compiler) => format!("{} ({})", compiler.version, compiler.path.display()),
        Err(error) => format!("none: {error}"),
    };
    let cache = match &options.cache_dir {
        Some(dir) => dir.display().to_string(),
        None => "none: neither BESSEMER_CACHE_DIR nor HOME is set".to_owned(),
    };
    let threads = options
        .threads
        .or_else(|| std::thread::available_parallelism().ok().map(NonZero::get));
    let threads = threads.map_or_else(|| "one for each core".to_owned(), |n| n.to_string());
    let details = vec![
        ("worker threads", threads),
        ("compiler", compiler),
        ("cache", cache),
    ];
    let device = soft::device(options).context("cannot open the software Metal device")?;
    Ok(Inventory {
        notes: vec![
            "There is no Metal GPU here: this is Linux, and Metal needs macOS or iOS.".to_owned(),
            "The software Metal device runs the same kernels on the CPU.".to_owned(),
        ],
        devices: vec![Listed {
            device,
            is_default: true,
            details,
        }],
    })
}
