//! macOS and iOS: the system's GPUs.

use anyhow::Result;
use bessemer_hal::{Device, apple};

use super::{Inventory, Listed, Setup};
use crate::failure::Usage;

pub(super) fn open(setup: &Setup) -> Result<Device> {
    let software = [
        ("--mode", setup.mode.is_some()),
        ("--seed", setup.seed.is_some()),
        ("--timeout-ms", setup.timeout.is_some()),
        ("--threads", setup.threads.is_some()),
        ("--family", setup.family.is_some()),
        ("--std", setup.language.is_some()),
    ];
    if let Some((option, _)) = software.into_iter().find(|(_, given)| *given) {
        return Err(Usage::error(format!(
            "{option} configures the software Metal device, which runs on Linux; here kernels run on the GPU"
        )));
    }
    Ok(apple::system_default()?)
}

/// Always succeeds: the compiler is part of the system.
pub(super) fn compiler() -> Result<()> {
    Ok(())
}

pub(super) fn inventory() -> Result<Inventory> {
    let default = apple::system_default().ok();
    let default = default.map(|device| device.info().registry_id);
    let devices: Vec<_> = apple::all()
        .into_iter()
        .map(|device| Listed {
            is_default: default == Some(device.info().registry_id),
            device,
            details: Vec::new(),
        })
        .collect();
    let notes = if devices.is_empty() {
        vec![
            "The system offers this process no Metal GPU. `system_profiler SPDisplaysDataType` lists them; a virtual machine may have none."
                .to_owned(),
        ]
    } else {
        Vec::new()
    };
    Ok(Inventory { notes, devices })
}
