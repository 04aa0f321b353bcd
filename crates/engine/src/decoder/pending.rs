//! Sampled tokens in flight.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bessemer_hal::{BufferSlice, Submission};

use super::OP;
use crate::{Error, Result};

/// A token that a device is sampling.
#[derive(Clone, Debug)]
#[must_use = "sampling may fail; wait for the token"]
pub struct Pending(pub(super) Arc<Ticket>);

impl Pending {
    /// Waits until the token is known. May be called again.
    ///
    /// # Errors
    /// [`Error::Device`], if the device failed at this token or at one before it. The sequence is then as it was before
    /// the first that failed, and needs a token to continue with.
    pub fn wait(&self) -> Result<u32> {
        self.0.resolve()
    }

    /// Whether the device is done, so that [`Pending::wait`] returns immediately.
    pub fn is_done(&self) -> bool {
        self.0.submission.is_done()
    }
}

/// A submission that samples a token for the host.
#[derive(Debug)]
pub(super) struct Ticket {
    submission: Submission,
    /// Location of the token's id.
    id: BufferSlice,
    /// The ticket that it depends on.
    parent: Mutex<Option<Arc<Self>>>,
    outcome: OnceLock<Result<u32>>,
}

impl Ticket {
    pub(super) fn new(
        submission: Submission,
        id: BufferSlice,
        parent: Option<Arc<Self>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            submission,
            id,
            parent: Mutex::new(parent),
            outcome: OnceLock::new(),
        })
    }

    /// Waits for the token; only the first call does.
    pub(super) fn resolve(&self) -> Result<u32> {
        self.outcome.get_or_init(|| self.read()).clone()
    }

    /// Whether it is known to have failed. Does not wait.
    pub(super) fn has_failed(&self) -> bool {
        self.submission.is_done() && self.resolve().is_err()
    }

    /// Whether the submission has ended.
    pub(super) fn is_done(&self) -> bool {
        self.submission.is_done()
    }

    fn read(&self) -> Result<u32> {
        let parent = self
            .parent
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let before = parent.map_or(Ok(0), |parent| parent.resolve());
        // An earlier failure is the cause of all later ones.
        let own = self.submission.wait().map_err(|e| Error::device(OP, e));
        before?;
        own?;
        let mut id = [0_u32];
        let read = self.id.buffer().read(self.id.offset(), &mut id);
        read.map_err(|e| Error::device(OP, e))?;
        Ok(id[0])
    }
}
