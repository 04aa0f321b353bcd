//! Outcomes of commands: one table of exit codes, which the help texts show.

use std::fmt;
use std::process::ExitCode;

use bessemer::Error as EngineError;
use bessemer_hal::Error as DeviceError;
use bessemer_llm::Error as ModelError;

/// Exit codes with their meanings. Commands other than `msl` and `program` end with 0, 1, 2 or 130.
const EXIT_CODES: [(Outcome, &str); 7] = [
    (Outcome::Clean, "done, nothing found"),
    (
        Outcome::NotCompiled,
        "msl, program: a kernel or program does not compile",
    ),
    (
        Outcome::Failed,
        "other commands: the work failed (device, memory, context, network)",
    ),
    (
        Outcome::Usage,
        "wrong usage or environment variable, or a file that is missing, damaged or unsupported",
    ),
    (
        Outcome::Defect,
        "msl, program: a defect was found (a report, a fault, a crash, a time limit, a failed kernel test)",
    ),
    (
        Outcome::ToolFailed,
        "msl, program: the tool failed (compiler missing, crashed or out of time; device; memory)",
    ),
    (Outcome::Interrupted, "interrupted (ctrl-c)"),
];

/// Formats the table for help texts.
pub(crate) fn exit_codes() -> String {
    let rows = EXIT_CODES.map(|(outcome, text)| format!("\n  {:<4} {text}", outcome.code()));
    format!("Exit codes:{}", rows.concat())
}

/// The outcome of a command, from the best to the worst: a command with several tasks ends with the worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Success, nothing found.
    Clean,
    /// A kernel or program has a defect.
    Defect,
    /// A kernel or program does not compile.
    NotCompiled,
    /// The command line or a file is wrong.
    Usage,
    /// The work of a command other than `msl` and `program` failed.
    Failed,
    /// The compiler or the device failed: nothing is known about the kernel.
    ToolFailed,
    /// Ctrl-c.
    Interrupted,
}

impl Outcome {
    /// The exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::NotCompiled | Self::Failed => 1,
            Self::Usage => 2,
            Self::Defect => 3,
            Self::ToolFailed => 4,
            Self::Interrupted => 130,
        }
    }

    /// The outcome of an error: it depends on the error, not on the command.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if error.downcast_ref::<Usage>().is_some() {
            return Self::Usage;
        }
        if let Some(DeviceError::Environment { .. }) = error.downcast_ref() {
            return Self::Usage;
        }
        if let Some(EngineError::Environment { .. }) = error.downcast_ref() {
            return Self::Usage;
        }
        match error.downcast_ref::<ModelError>() {
            Some(
                ModelError::Engine(EngineError::Environment { .. })
                | ModelError::Io { .. }
                | ModelError::BadFile { .. }
                | ModelError::NoTensor { .. }
                | ModelError::BadTensor { .. }
                | ModelError::BadMetadata { .. }
                | ModelError::Architecture { .. }
                | ModelError::Unsupported { .. }
                | ModelError::Invalid { .. }
                | ModelError::Template { .. },
            ) => Self::Usage,
            Some(ModelError::Cancelled) => Self::Interrupted,
            _ => Self::Failed,
        }
    }

    /// The outcome of an error of an `msl` or `program` command.
    pub(crate) fn of_kernel(error: &anyhow::Error) -> Self {
        match Self::of(error) {
            Self::Failed => match error.downcast_ref::<DeviceError>() {
                Some(DeviceError::Compile { .. }) => Self::NotCompiled,
                _ => Self::ToolFailed,
            },
            outcome => outcome,
        }
    }

    /// The name of the outcome in JSON.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Defect => "defect",
            Self::NotCompiled => "compile",
            Self::Usage => "usage",
            Self::Failed => "failed",
            Self::ToolFailed => "tool",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome.code())
    }
}

/// Marks an error as a usage error: exit code 2. It carries the message, so that it can be attached as context
/// to its cause.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl Usage {
    /// A usage error without a cause.
    pub(crate) fn error(message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self(message.into()))
    }

    /// A usage error for `with_context`.
    pub(crate) fn context(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_usage_error_is_found_through_context_and_keeps_its_cause() {
        let cause = std::io::Error::other("no such file");
        let error = Err::<(), _>(cause)
            .context(Usage::context("cannot read a.npy"))
            .context("buffer 0")
            .unwrap_err();
        assert_eq!(Outcome::of(&error), Outcome::Usage);
        assert_eq!(
            format!("{error:#}"),
            "buffer 0: cannot read a.npy: no such file"
        );
    }

    #[test]
    fn an_error_has_the_same_code_in_every_command() {
        let bad = ModelError::BadFile {
            path: "x.gguf".to_owned(),
            reason: "cut off".to_owned(),
        };
        let code = |error: anyhow::Error| Outcome::of(&error).code();
        assert_eq!(code(bad.clone().into()), 2);
        assert_eq!(code(anyhow::Error::new(bad).context("cannot open it")), 2);
        let full = ModelError::ContextFull {
            needed: 2,
            context: 1,
        };
        assert_eq!(code(full.into()), 1);
        assert_eq!(code(ModelError::Cancelled.into()), 130);
        let variable = EngineError::Environment {
            variable: "BESSEMER_THREADS",
            value: "0".to_owned(),
            allowed: "a whole number above 0".to_owned(),
        };
        assert_eq!(code(ModelError::from(variable.clone()).into()), 2);
        assert_eq!(code(variable.into()), 2);
        assert_eq!(code(anyhow::anyhow!("the device failed")), 1);
    }

    #[test]
    fn kernel_commands_distinguish_a_failed_tool_from_a_failed_compilation() {
        let failed = DeviceError::Toolchain {
            message: "no clang".to_owned(),
        };
        let refused = DeviceError::Compile {
            library: "k".to_owned(),
            diagnostics: Vec::new(),
        };
        let code = |error: anyhow::Error| Outcome::of_kernel(&error).code();
        assert_eq!(code(failed.into()), 4);
        assert_eq!(code(refused.into()), 1);
        assert_eq!(code(Usage::error("no such option")), 2);
    }

    #[test]
    fn the_table_has_every_exit_code_and_outcomes_are_ordered() {
        let help = exit_codes();
        for code in [0, 1, 2, 3, 4, 130] {
            assert!(help.contains(&format!("\n  {code} ")), "{help}");
        }
        assert!(Outcome::Defect < Outcome::NotCompiled);
        assert!(Outcome::NotCompiled < Outcome::Usage);
        assert!(Outcome::Usage < Outcome::ToolFailed);
    }
}
