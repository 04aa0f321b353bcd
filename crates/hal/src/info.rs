//! Properties and limits of a device.

use std::fmt;
use std::str::FromStr;

use crate::chip::Chip;
use crate::size::Size;

/// The driver of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A GPU driven by Apple's Metal.
    Apple,
    /// The software Metal device: the same MSL, on the CPU.
    Software,
    /// Records commands and runs nothing.
    Noop,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Apple => "apple",
            Self::Software => "software",
            Self::Noop => "noop",
        })
    }
}

/// GPU families (Metal feature set tables).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Family {
    /// Intel Macs with AMD or Intel GPUs.
    Mac2,
    /// A14, M1.
    #[default]
    Apple7,
    /// A15, A16, M2.
    Apple8,
    /// A17 Pro, M3, M4.
    Apple9,
    /// A19, M5.
    Apple10,
}

impl Family {
    /// All families, oldest first.
    pub const ALL: [Self; 5] = [
        Self::Mac2,
        Self::Apple7,
        Self::Apple8,
        Self::Apple9,
        Self::Apple10,
    ];

    /// The family's name in lower case, as the command line takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mac2 => "mac2",
            Self::Apple7 => "apple7",
            Self::Apple8 => "apple8",
            Self::Apple9 => "apple9",
            Self::Apple10 => "apple10",
        }
    }

    /// Returns whether every GPU of the family has SIMD-groups of 32 threads with simdgroup matrices. SIMD-groups of
    /// Intel Macs may have 8, 16 or 64 threads, and those GPUs have no simdgroup matrices.
    pub fn has_simd_matrices(self) -> bool {
        self != Self::Mac2
    }

    /// The limits of this family. For compute they are the same on all of these, except for the length
    /// of a buffer, which the device reports.
    pub fn limits(self, max_buffer_length: usize) -> Limits {
        Limits {
            max_threads_per_threadgroup: Size::new(1024, 1024, 1024),
            max_total_threads_per_threadgroup: 1024,
            max_threadgroup_memory: 32 * 1024,
            max_buffers: 31,
            max_inline_bytes: 4096,
            simd_width: 32,
            max_buffer_length,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|f| f.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|f| f.name()).collect();
                format!(
                    "unknown GPU family `{text}`; known are {}",
                    names.join(", ")
                )
            })
    }
}

/// Limits that every launch is validated against before a driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest threadgroup in each dimension.
    pub max_threads_per_threadgroup: Size,
    /// Maximum threads in a threadgroup; a pipeline may allow fewer.
    pub max_total_threads_per_threadgroup: usize,
    /// Maximum bytes of threadgroup memory of a kernel, including its own variables.
    pub max_threadgroup_memory: usize,
    /// Maximum number of buffer arguments.
    pub max_buffers: u32,
    /// Maximum bytes passed inline instead of in a buffer.
    pub max_inline_bytes: usize,
    /// Lanes of a SIMD-group.
    pub simd_width: usize,
    /// Maximum bytes of a buffer.
    pub max_buffer_length: usize,
}

/// Properties of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name, as a user would recognise it.
    pub name: String,
    /// The driver behind it.
    pub kind: DeviceKind,
    /// GPU family.
    pub family: Family,
    /// Whether host and device share one memory.
    pub unified_memory: bool,
    /// Bytes that the device can use without paging.
    pub recommended_working_set: usize,
    /// The system's identifier of the device, stable while it is attached.
    pub registry_id: u64,
    /// Whether it is a GPU without a display.
    pub headless: bool,
    /// Whether it is a low-power GPU.
    pub low_power: bool,
    /// Whether it can be unplugged.
    pub removable: bool,
    /// Limits of launches.
    pub limits: Limits,
}

impl DeviceInfo {
    /// The chip, if the name identifies it.
    pub fn chip(&self) -> Option<&'static Chip> {
        Chip::named(&self.name)
    }
}
