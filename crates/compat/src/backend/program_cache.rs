//! Compiled programs of a backend.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bessemer::Device;
use bessemer::program::{CompiledProgram, Program, ProgramError};

/// Maximum number of programs that a cache keeps.
const MAX_PROGRAMS: usize = 256;

/// Compiled programs by their contents in the binary format: equal programs are compiled once.
#[derive(Debug, Default)]
pub(crate) struct ProgramCache(Mutex<HashMap<Vec<u8>, CompiledProgram>>);

impl ProgramCache {
    /// The compiled program, for the device of the cache.
    pub(crate) fn get(
        &self,
        program: &Program,
        device: &Device,
    ) -> Result<CompiledProgram, ProgramError> {
        let contents = program.to_bytes()?;
        let programs = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = programs().get(&contents) {
            return Ok(compiled.clone());
        }
        let compiled = program.compile(device)?;
        let mut programs = programs();
        if programs.len() >= MAX_PROGRAMS {
            programs.clear();
        }
        programs.insert(contents, compiled.clone());
        Ok(compiled)
    }
}
