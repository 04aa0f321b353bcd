//! Faults that kernels find in the values they are given: an index outside its axis.

use std::sync::Arc;

use bessemer_hal::BufferSlice;

use super::block::Block;
use super::msl_struct::{AtomicUint, msl_struct};
use super::stream::Batch;
use crate::{Error, Result};

msl_struct! {
    /// The record that a kernel leaves when an index is out of range.
    pub(super) struct FaultRecord {
        /// Nonzero once there is an index.
        found: AtomicUint,
        padding: u32,
        index: i64,
    }
}

/// Bytes of a fault record.
pub(crate) const RECORD_BYTES: usize = size_of::<FaultRecord>();

/// A buffer in which kernels of an op leave an index that is out of range.
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
        self.record.slice(0..RECORD_BYTES)
    }

    /// Registers that a batch writes the record.
    pub(super) fn used_by(&self, batch: &Arc<Batch>) {
        self.record.read_by(batch);
    }

    /// The error that was found, once the kernels have run.
    pub(super) fn check(&self) -> Result<()> {
        let bytes = self.record.bytes();
        let record: FaultRecord = bytemuck::pod_read_unaligned(&bytes[..RECORD_BYTES]);
        if record.found.0 == 0 {
            return Ok(());
        }
        Err(Error::BadIndex {
            op: self.op,
            index: record.index,
            len: self.len,
        })
    }
}
