//! How a command ends: one table of exit codes, which `bessemer --help` shows.

use bessemer_llm::Error as ModelError;
use std::fmt;
use std::process::ExitCode;

/// The table, for the help text.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done, nothing found
  1    errors or defects were found, or the work failed: device, memory, context, network
  2    nothing could be done: wrong usage, or a file that is missing, damaged or not supported
  130  interrupted (ctrl-c)";

/// What a command that did its work has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing to complain about.
    Clean,
    /// Errors in the user's kernels, or defects.
    Found,
    /// Ctrl-c.
    Interrupted,
}

impl Outcome {
    /// The exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Found => 1,
            Self::Interrupted => 130,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome.code())
    }
}

/// The exit code of an error: it depends on what went wrong, not on the command.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    if error.downcast_ref::<Usage>().is_some() {
        return 2;
    }
    match error.downcast_ref::<ModelError>() {
        Some(
            ModelError::Io { .. }
            | ModelError::BadFile { .. }
            | ModelError::NoTensor { .. }
            | ModelError::BadTensor { .. }
            | ModelError::BadMetadata { .. }
            | ModelError::Architecture { .. }
            | ModelError::Unsupported { .. }
            | ModelError::Invalid { .. }
            | ModelError::Template { .. },
        ) => 2,
        Some(ModelError::Cancelled) => Outcome::Interrupted.code(),
        _ => 1,
    }
}

/// Marks an error as the caller's: exit code 2. It carries the sentence, so that it is the context of
/// whatever caused it.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl Usage {
    /// A mistake without a deeper cause.
    pub(crate) fn error(message: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self(message.into()))
    }

    /// For `with_context`.
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
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn a_mistake_of_the_caller_is_found_through_context_and_keeps_its_cause() {
        let cause = std::io::Error::other("no such file");
        let error = Err::<(), _>(cause)
            .context(Usage::context("cannot read a.npy"))
            .context("buffer 0")
            .unwrap_err();
        assert_eq!(code(&error), 2);
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
        assert_eq!(code(&bad.clone().into()), 2);
        assert_eq!(code(&anyhow::Error::new(bad).context("cannot open it")), 2);
        let full = ModelError::ContextFull {
            needed: 2,
            context: 1,
        };
        assert_eq!(code(&full.into()), 1);
        assert_eq!(code(&ModelError::Cancelled.into()), 130);
        assert_eq!(code(&anyhow::anyhow!("the device failed")), 1);
    }
}
