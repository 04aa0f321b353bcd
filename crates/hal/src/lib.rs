//! Bessemer's device layer: Metal's own words, made safe.

pub mod msl;
pub mod report;
#[cfg(target_os = "linux")]
pub mod soft;
