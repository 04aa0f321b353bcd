//! What can go wrong.

use std::path::Path;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong. Messages name the file, the key or the tensor, and what would help.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to read or write a file.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// A file that is not what it should be: damaged, cut off or of another kind.
    #[error("{path}: {reason}")]
    BadFile {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file that lacks a tensor.
    #[error("{path}: there is no tensor `{name}`")]
    NoTensor {
        /// The file.
        path: String,
        /// The tensor asked for.
        name: String,
    },
    /// A tensor whose shape or format is not the one that the model's description asks for.
    #[error("{path}: tensor `{name}`: {reason}")]
    BadTensor {
        /// The file.
        path: String,
        /// The tensor.
        name: String,
        /// What it is and what it should be.
        reason: String,
    },
    /// Metadata that is missing, of the wrong type or out of range.
    #[error("metadata `{key}`: {reason}")]
    BadMetadata {
        /// The key.
        key: String,
        /// What is wrong with its value.
        reason: String,
    },
    /// A model of a family that this crate does not know.
    #[error("architecture `{name}` is not supported; supported are {supported}")]
    Architecture {
        /// What the file says.
        name: String,
        /// The families there are.
        supported: String,
    },
    /// Something valid that this crate cannot do.
    #[error("{what} is not supported: {reason}")]
    Unsupported {
        /// What was met.
        what: String,
        /// What would help.
        reason: String,
    },
    /// An argument that makes no sense.
    #[error("{what}: {reason}")]
    Invalid {
        /// What was given.
        what: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A chat template that cannot be read, or that refuses a conversation.
    #[error("chat template: {reason}")]
    Template {
        /// What is wrong, with the line where it is known.
        reason: String,
    },
    /// A model could not be fetched.
    #[error("cannot fetch {what}: {reason}")]
    Download {
        /// The model.
        what: String,
        /// What went wrong, and what would help.
        reason: String,
    },
    /// A file that is not the one it should be.
    #[error("{path} has sha256 {actual} instead of {expected}: {remedy}")]
    BadHash {
        /// The file.
        path: String,
        /// The hash it should have.
        expected: String,
        /// The hash it has.
        actual: String,
        /// What would help.
        remedy: String,
    },
    /// A text that is longer than the context.
    #[error(
        "{needed} tokens do not fit a context of {context}; a larger one can be set with --context, up to the model's own"
    )]
    ContextFull {
        /// Tokens in all.
        needed: usize,
        /// Tokens there is room for.
        context: usize,
    },
    /// A model that needs more memory than there is.
    #[error("the model needs {} MB ({parts}) and {} MB are available; {remedy}", needed >> 20, available >> 20)]
    TooLarge {
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
        /// What needs them.
        parts: String,
        /// What would fit.
        remedy: String,
    },
    /// The caller cancelled the work; see [`Session::cancel_when`](crate::generate::Session::cancel_when).
    #[error("cancelled")]
    Cancelled,
    /// A tensor operation failed.
    #[error(transparent)]
    Engine(#[from] bessemer::Error),
}

impl Error {
    pub(crate) fn io(path: &Path, reason: impl ToString) -> Self {
        Self::Io {
            path: path.display().to_string(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn bad_file(path: &Path, reason: impl ToString) -> Self {
        Self::BadFile {
            path: path.display().to_string(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn metadata(key: impl ToString, reason: impl ToString) -> Self {
        Self::BadMetadata {
            key: key.to_string(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn unsupported(what: impl ToString, reason: impl ToString) -> Self {
        Self::Unsupported {
            what: what.to_string(),
            reason: reason.to_string(),
        }
    }
}
