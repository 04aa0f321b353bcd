//! How a command ends.

use std::fmt;
use std::process::ExitCode;

/// What a command that did its work has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing to complain about: exit code 0.
    Clean,
    /// Errors in the user's kernels, or defects: exit code 1.
    Found,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Clean => Self::SUCCESS,
            Outcome::Found => Self::from(1),
        }
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
        assert!(error.downcast_ref::<Usage>().is_some());
        assert_eq!(
            format!("{error:#}"),
            "buffer 0: cannot read a.npy: no such file"
        );
    }
}
