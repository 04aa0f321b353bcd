//! What a kernel found wrong with values it was given: an index outside its axis.

use std::sync::Arc;

use bessemer_hal::BufferSlice;

use super::block::Block;
use super::stream::Batch;
use crate::{Error, Result};

/// Bytes of a fault record: a flag, 4 unused bytes, and the index as 64 bits. `msl/fault.h` writes it.
pub(crate) const BYTES: usize = 16;

/// A place where kernels of an op leave an index that is out of range.
pub(crate) struct Fault {
    op: &'static str,
    /// The length of the axis.
    len: usize,
    record: Block,
}

impl Fault {
    pub(super) fn new(op: &'static str, len: usize, record: Block) -> Arc<Self> {
        Arc::new(Self { op, len, record })
    }

    /// The record, to be bound.
    pub(super) fn slice(&self) -> BufferSlice {
        self.record.slice(0..BYTES)
    }

    /// Notes that a batch writes the record.
    pub(super) fn used_by(&self, batch: &Arc<Batch>) {
        self.record.read_by(batch);
    }

    /// The error that was found, once the kernels have run.
    pub(super) fn check(&self) -> Result<()> {
        let bytes = self.record.bytes();
        if bytes[..4] == [0; 4] {
            return Ok(());
        }
        let mut index = [0; 8];
        index.copy_from_slice(&bytes[8..BYTES]);
        Err(Error::BadIndex {
            op: self.op,
            index: i64::from_ne_bytes(index),
            len: self.len,
        })
    }
}
