//! State shared by compiling threads: a semaphore for compiler processes, and finished kernels.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::CompiledKernel;
use crate::error::Result;

/// Limits the number of concurrent compilers to the number of cores.
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

/// Compiled kernels of one library, each compiled once however many threads request it.
#[derive(Debug, Default)]
pub(crate) struct CompiledKernels {
    slots: Mutex<HashMap<String, KernelSlot>>,
}

/// Locked while the kernel compiles.
type KernelSlot = Arc<Mutex<Option<Arc<CompiledKernel>>>>;

impl CompiledKernels {
    /// Returns the kernel, from memory or from `make`. Failures are not cached.
    pub(crate) fn get(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<CompiledKernel>,
    ) -> Result<Arc<CompiledKernel>> {
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
