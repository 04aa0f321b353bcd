//! What compiling threads share: the right to run a compiler, and finished kernels.

use super::Compiled;
use crate::error::Result;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// As many compilers at a time as there are cores.
#[derive(Debug)]
pub(super) struct Permits {
    free: Mutex<usize>,
    returned: Condvar,
}

pub(super) struct Permit<'a>(&'a Permits);

impl Permits {
    pub(super) fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            returned: Condvar::new(),
        }
    }

    pub(super) fn take(&self) -> Permit<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self
                .returned
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}

/// Compiled kernels of one library, each compiled once however many threads ask.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    slots: Mutex<HashMap<String, Slot>>,
}

/// Locked while the kernel compiles.
type Slot = Arc<Mutex<Option<Arc<Compiled>>>>;

impl Kernels {
    /// The kernel, from memory or from `make`. A failure is not remembered.
    pub(crate) fn get(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Compiled>,
    ) -> Result<Arc<Compiled>> {
        let slot = self
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name.to_owned())
            .or_default()
            .clone();
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = &*slot {
            return Ok(compiled.clone());
        }
        let compiled = Arc::new(make()?);
        *slot = Some(compiled.clone());
        Ok(compiled)
    }
}
