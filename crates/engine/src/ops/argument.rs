//! The argument of a function that is being traced. Made by [`compile`](crate::compile()), never by users.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;

/// A value that exists only when the compiled function is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Argument {
    /// Its number among the arguments.
    pub(crate) index: usize,
    /// The trace that it belongs to.
    pub(crate) tracing: Tracing,
}

/// A trace, which notes whether the value of one of its arguments was requested.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracing(Arc<AtomicBool>);

impl Tracing {
    /// Fails if the value of an argument was requested.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Self::error());
        }
        Ok(())
    }

    fn error() -> Error {
        let reason = "the function reads the value of an argument, or of a tensor computed from one, while it is \
                      traced; compute with tensors instead, or read the value outside of the function";
        Error::Invalid {
            op: "compile",
            reason: reason.to_owned(),
        }
    }
}

impl PartialEq for Tracing {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tracing {}

impl Hash for Tracing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl Argument {
    /// Notes that its value was requested, and returns the error for that.
    pub(crate) fn read(&self) -> Error {
        self.tracing.0.store(true, Ordering::Relaxed);
        Tracing::error()
    }
}
