//! Errors.

use std::path::Path;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of this crate. Messages name the file, the key or the tensor, and the remedy if there is one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: String,
        /// The operating system's reason.
        reason: String,
    },
    /// The file is corrupt, truncated or of the wrong kind.
    #[error("{path}: {reason}")]
    BadFile {
        /// The file.
        path: String,
        /// The defect.
        reason: String,
    },
    /// The file lacks a tensor.
    #[error("{path}: there is no tensor `{name}`")]
    NoTensor {
        /// The file.
        path: String,
        /// The missing tensor.
        name: String,
    },
    /// A tensor has a shape or format that does not match the config.
    #[error("{path}: tensor `{name}`: {reason}")]
    BadTensor {
        /// The file.
        path: String,
        /// The tensor.
        name: String,
        /// The actual and the expected value.
        reason: String,
    },
    /// Metadata is missing, of the wrong type or out of range.
    #[error("metadata `{key}`: {reason}")]
    BadMetadata {
        /// The key.
        key: String,
        /// The defect.
        reason: String,
    },
    /// The model family is not supported.
    #[error("architecture `{name}` is not supported; supported: {supported}")]
    Architecture {
        /// Architecture in the file.
        name: String,
        /// Supported architectures.
        supported: String,
    },
    /// A valid input that is not supported.
    #[error("{what} is not supported: {reason}")]
    Unsupported {
        /// The unsupported feature.
        what: String,
        /// The reason or the remedy.
        reason: String,
    },
    /// Invalid argument.
    #[error("{what}: {reason}")]
    Invalid {
        /// The argument.
        what: String,
        /// Why it is invalid.
        reason: String,
    },
    /// The chat template cannot be parsed, or rejects the conversation.
    #[error("chat template: {reason}")]
    Template {
        /// The reason, with the line if known.
        reason: String,
    },
    /// A model could not be downloaded.
    #[error("cannot fetch {what}: {reason}")]
    Download {
        /// The model.
        what: String,
        /// The reason, and the remedy if there is one.
        reason: String,
    },
    /// A file's checksum does not match.
    #[error("{path} has sha256 {actual} instead of {expected}: {remedy}")]
    BadHash {
        /// The file.
        path: String,
        /// Expected SHA-256.
        expected: String,
        /// Actual SHA-256.
        actual: String,
        /// The remedy.
        remedy: String,
    },
    /// The text is longer than the context.
    #[error(
        "{needed} tokens exceed the context of {context}; set a larger one with --context, up to the model's own limit"
    )]
    ContextFull {
        /// Number of tokens in total.
        needed: usize,
        /// Context length.
        context: usize,
    },
    /// The model needs more memory than is available.
    #[error("the model needs {} MB ({parts}) and {} MB are available; {remedy}", needed >> 20, available >> 20)]
    TooLarge {
        /// Bytes needed.
        needed: u64,
        /// Bytes available.
        available: u64,
        /// Breakdown of the memory.
        parts: String,
        /// The remedy.
        remedy: String,
    },
    /// The caller cancelled; see [`Session::cancel_when`](crate::generate::Session::cancel_when).
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
