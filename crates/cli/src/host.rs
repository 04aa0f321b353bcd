//! The devices of this machine.

#[cfg(target_vendor = "apple")]
mod apple;
#[cfg(target_os = "linux")]
mod linux;

use std::time::Duration;

use anyhow::Result;
use bessemer_hal::{Device, Family, LanguageVersion, noop};

#[cfg(target_vendor = "apple")]
use self::apple as system;
#[cfg(target_os = "linux")]
use self::linux as system;
use crate::args::{CompileArgs, ModeArg, RunArgs};

/// Device options of the command line; the environment supplies the rest.
#[derive(Debug, Default)]
#[cfg_attr(
    not(any(target_vendor = "apple", target_os = "linux")),
    expect(dead_code, reason = "there is no device to set up")
)]
pub(crate) struct Setup {
    pub(crate) mode: Option<ModeArg>,
    pub(crate) seed: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) threads: Option<usize>,
    pub(crate) family: Option<Family>,
    pub(crate) language: Option<LanguageVersion>,
}

impl Setup {
    /// For compiling without running: the default way of compiling, independent of the environment.
    pub(crate) fn compiling(args: &CompileArgs) -> Self {
        Self {
            // Only the software device has modes.
            mode: cfg!(target_os = "linux").then_some(ModeArg::Fast),
            family: args.family,
            language: args.language,
            ..Self::default()
        }
    }
}

impl From<&RunArgs> for Setup {
    fn from(args: &RunArgs) -> Self {
        Self {
            mode: args.mode,
            seed: args.seed,
            timeout: args.timeout_ms.map(Duration::from_millis),
            threads: args.threads,
            family: args.compile.family,
            language: args.compile.language,
        }
    }
}

/// The output of `bessemer devices`.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    /// Sentences about this machine as a whole.
    pub(crate) notes: Vec<String>,
    pub(crate) devices: Vec<Listed>,
}

/// A device with details known only to its driver.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) device: Device,
    pub(crate) is_default: bool,
    /// Names and values beyond [`bessemer_hal::DeviceInfo`], as shown in the table; JSON has the names in snake case.
    pub(crate) details: Vec<(&'static str, String)>,
}

/// The device that kernels are compiled for and run on: the system's GPU on Apple, the software device on Linux.
pub(crate) fn open(setup: &Setup) -> Result<Device> {
    system::open(setup)
}

/// Checks whether there is a compiler for kernels.
pub(crate) fn compiler() -> Result<()> {
    system::compiler()
}

/// All devices.
pub(crate) fn inventory() -> Result<Inventory> {
    let mut inventory = system::inventory()?;
    inventory.devices.push(Listed {
        device: noop::device(Family::default()),
        is_default: false,
        details: vec![(
            "purpose",
            "records commands and runs nothing, for tests of schedules".to_owned(),
        )],
    });
    Ok(inventory)
}

/// Systems without any Metal device.
#[cfg(not(any(target_vendor = "apple", target_os = "linux")))]
mod system {
    use anyhow::{Result, bail};
    use bessemer_hal::Device;

    use super::{Inventory, Setup};

    const NO_DEVICE: &str = "there is no Metal GPU here, which needs macOS or iOS, and no software Metal device, which needs Linux";

    pub(super) fn open(_: &Setup) -> Result<Device> {
        bail!(NO_DEVICE)
    }

    pub(super) fn compiler() -> Result<()> {
        bail!(NO_DEVICE)
    }

    pub(super) fn inventory() -> Result<Inventory> {
        Ok(Inventory {
            notes: vec![NO_DEVICE.to_owned()],
            devices: Vec::new(),
        })
    }
}
