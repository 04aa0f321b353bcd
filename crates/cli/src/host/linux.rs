//! Linux: no Metal GPU, but the software device.

use super::{Inventory, Setup};
use anyhow::{Result, bail};
use bessemer_hal::Device;

pub(super) fn open(_: &Setup) -> Result<Device> {
    bail!("no device yet")
}

pub(super) fn inventory() -> Result<Inventory> {
    Ok(Inventory::default())
}
