//! Errors of the device layer.

use crate::msl::Diagnostic;
use crate::report::Report;
use crate::storage::StorageMode;

/// The result of a device-layer call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the device layer. Comparable, so that tests can state what they expect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device does not exist here, or lacks something it needs.
    #[error("{device} is not available: {reason}")]
    Unavailable {
        /// The requested device.
        device: String,
        /// The reason, with the remedy if there is one.
        reason: String,
    },
    /// An environment variable has a value that it may not have.
    #[error("{variable} is `{value}`; allowed: {allowed}")]
    Environment {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values it may have.
        allowed: String,
    },
    /// A buffer could not be allocated.
    #[error(
        "out of device memory: {requested} bytes requested, {in_use} in use, {limit} at most on `{device}`"
    )]
    OutOfMemory {
        /// Device name.
        device: String,
        /// Bytes asked for.
        requested: usize,
        /// Bytes already allocated.
        in_use: usize,
        /// Bytes the device may hold.
        limit: usize,
    },
    /// A buffer is longer than the device allows for one buffer.
    #[error("a buffer of {requested} bytes is longer than the device's maximum of {limit}")]
    BufferTooLong {
        /// Bytes asked for.
        requested: usize,
        /// Longest buffer.
        limit: usize,
    },
    /// A range lies outside its buffer.
    #[error(
        "range {offset}..{} is outside {buffer}, which has {length} bytes",
        offset.saturating_add(*len)
    )]
    OutOfBounds {
        /// The buffer, by label or number.
        buffer: String,
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes the buffer has.
        length: usize,
    },
    /// An address, offset or length is not aligned as it must be.
    #[error("{what} is {value}, which is not a multiple of {alignment}")]
    Misaligned {
        /// What is misaligned.
        what: String,
        /// Its value.
        value: usize,
        /// What it must be a multiple of.
        alignment: usize,
    },
    /// The storage mode does not allow the operation.
    #[error("{buffer} is in {mode} storage, which does not allow {operation}; {remedy}")]
    Storage {
        /// The buffer, by label or number.
        buffer: String,
        /// Its mode.
        mode: StorageMode,
        /// What was tried.
        operation: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// Two objects belong to different devices.
    #[error("{what} belongs to another device than `{device}`")]
    WrongDevice {
        /// The foreign object.
        what: String,
        /// The device it was used on.
        device: String,
    },
    /// The host holds a slice of a buffer that the commands would write (or that it may write itself).
    #[error(
        "{buffer} is mapped by the host; drop the slice before committing commands that use it"
    )]
    Mapped {
        /// The buffer, by label or number.
        buffer: String,
    },
    /// MSL did not compile.
    #[error(
        "library `{library}` did not compile:\n{}",
        crate::error::lines(diagnostics)
    )]
    Compile {
        /// Library label.
        library: String,
        /// The compiler's diagnostics, with locations in the user's source.
        diagnostics: Vec<Diagnostic>,
    },
    /// The library has no kernel of that name.
    #[error(
        "no kernel `{name}` in library `{library}`{}",
        crate::error::suggestion(name, available)
    )]
    UnknownFunction {
        /// Library label.
        library: String,
        /// The name asked for.
        name: String,
        /// Existing names.
        available: Vec<String>,
    },
    /// An argument of a kernel is missing, too short, or bound with less access than the kernel needs.
    #[error("kernel `{kernel}`, argument `{argument}`: {message}")]
    Binding {
        /// Kernel name.
        kernel: String,
        /// Argument name or index.
        argument: String,
        /// What is wrong.
        message: String,
    },
    /// A launch exceeds a limit of the device or the pipeline.
    #[error("kernel `{kernel}` cannot be launched: {message}")]
    Launch {
        /// Kernel name.
        kernel: String,
        /// The limit, with both numbers.
        message: String,
    },
    /// The device or this build cannot do it.
    #[error("{what} is not supported on {device}")]
    Unsupported {
        /// The requested feature.
        what: String,
        /// The device.
        device: String,
    },
    /// A submission failed while it ran.
    #[error("{fault}{}: {message}", crate::error::in_kernel(kernel))]
    Execution {
        /// What happened.
        fault: Fault,
        /// The kernel, where it is known.
        kernel: Option<String>,
        /// Details from the device.
        message: String,
    },
    /// A checking device found defects in the kernels of a submission.
    #[error("{} found by the checking device:\n{}", crate::error::defects(reports.len()), crate::error::lines(reports))]
    Checked {
        /// The defects.
        reports: Vec<Report>,
    },
    /// The compiler that the software device drives is missing, failed or was killed.
    #[error("the compiler failed: {message}")]
    Toolchain {
        /// What happened and what to install.
        message: String,
    },
}

/// How a submission failed on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The device ran out of memory while executing.
    OutOfMemory,
    /// The work ran past the time limit and was stopped.
    Timeout,
    /// A kernel touched an address that is not mapped.
    PageFault,
    /// An integer division by zero.
    DivisionByZero,
    /// A kernel executed something illegal or overflowed its stack.
    Crash,
    /// The device was removed or reset.
    DeviceLost,
    /// The system refused or cancelled the work.
    Refused,
    /// Anything else the device reports.
    Other,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OutOfMemory => "out of memory during execution",
            Self::Timeout => "time limit exceeded",
            Self::PageFault => "page fault",
            Self::DivisionByZero => "integer division by zero",
            Self::Crash => "crash",
            Self::DeviceLost => "device lost",
            Self::Refused => "work refused",
            Self::Other => "execution failed",
        })
    }
}

fn lines<T: ToString>(items: &[T]) -> String {
    items
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn defects(count: usize) -> String {
    match count {
        1 => "1 defect".to_owned(),
        n => format!("{n} defects"),
    }
}

fn in_kernel(kernel: &Option<String>) -> String {
    kernel
        .as_ref()
        .map_or(String::new(), |k| format!(" in kernel `{k}`"))
}

/// "did you mean" with the closest name, or the whole list when it is short.
fn suggestion(name: &str, available: &[String]) -> String {
    match closest(name, available.iter().map(String::as_str)) {
        Some(a) => format!("; did you mean `{a}`?"),
        None if available.is_empty() => "; it has none".to_owned(),
        None if available.len() <= 8 => format!("; it has {}", available.join(", ")),
        None => format!("; it has {} kernels", available.len()),
    }
}

/// The available name that is most like a misspelt one, if any is much like it.
pub(crate) fn closest<'a>(name: &str, available: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, closest) = available.map(|a| (distance(name, a), a)).min()?;
    (distance <= 2.max(name.len() / 3)).then_some(closest)
}

/// Levenshtein distance over bytes, for suggestions only.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let next = (diagonal + usize::from(x != y))
                .min(row[j] + 1)
                .min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_function_suggests_the_closest_name() {
        let error = Error::UnknownFunction {
            library: "ops".into(),
            name: "add_kernal".into(),
            available: vec!["mul_kernel".into(), "add_kernel".into()],
        };
        assert_eq!(
            error.to_string(),
            "no kernel `add_kernal` in library `ops`; did you mean `add_kernel`?"
        );
    }

    #[test]
    fn edit_distance_counts_insertions_deletions_and_changes() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
