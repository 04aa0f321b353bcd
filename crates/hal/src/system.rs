//! The system's own Metal GPUs.

use std::sync::OnceLock;

use crate::device::Device;
#[cfg(not(target_vendor = "apple"))]
use crate::error::Error;
use crate::error::Result;

impl Device {
    /// The system's default Metal GPU. It is looked up once per process; if there is none, every
    /// call returns the reason.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`].
    pub fn system_default() -> Result<Self> {
        static DEFAULT: OnceLock<Result<Device>> = OnceLock::new();
        DEFAULT.get_or_init(find).clone()
    }

    /// Returns whether there is a Metal GPU. Cheap after the first call.
    pub fn is_metal_available() -> bool {
        Self::system_default().is_ok()
    }
}

#[cfg(target_vendor = "apple")]
fn find() -> Result<Device> {
    crate::apple::system_default()
}

#[cfg(not(target_vendor = "apple"))]
fn find() -> Result<Device> {
    Err(Error::Unavailable {
        device: "a Metal GPU".to_owned(),
        reason: format!(
            "this is {}, and Metal needs macOS or iOS; the software Metal device runs the same kernels",
            std::env::consts::OS
        ),
    })
}

#[cfg(all(test, not(target_vendor = "apple")))]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_metal_reports_it_every_time() {
        assert!(!Device::is_metal_available());
        let first = Device::system_default().expect_err("no Metal here");
        assert_eq!(Device::system_default().expect_err("still none"), first);
        assert!(matches!(first, Error::Unavailable { .. }), "{first}");
    }
}
