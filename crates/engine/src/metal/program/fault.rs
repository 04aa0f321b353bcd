//! The record that a kernel of a program leaves when a lane fails.

use crate::DType;
use crate::metal::block::Block;
use crate::metal::msl_struct::{AtomicUint, msl_struct};
use crate::program::{ExecutionParams, Fault, FaultKind, Instruction};

msl_struct! {
    /// The first fault of a launch.
    pub(in crate::metal) struct ProgramFault {
        /// Nonzero once there is one.
        found: AtomicUint,
        code: u32,
        /// Index of the instruction.
        instruction: u32,
        /// Index of the memory that it accesses.
        binding: u32,
        /// Number of the lane in the grid.
        lane: u64,
        /// The offset, class or coordinates that are wrong.
        value: u64,
    }
}

/// Codes of faults; the numbers are those of `msl/program.h`.
const MISALIGNED: u32 = 1;
const OUT_OF_BOUNDS: u32 = 2;
const DIVISION_BY_ZERO: u32 = 3;
const STEP_LIMIT: u32 = 4;
const CLASS: u32 = 5;
const BOUNDARY: u32 = 6;

impl ProgramFault {
    /// The record in a block, if there is a fault.
    pub(super) fn read(block: &Block) -> Option<Self> {
        let bytes = block.bytes().get(..size_of::<Self>())?;
        let record: Self = bytemuck::pod_read_unaligned(bytes);
        (record.found.0 != 0).then_some(record)
    }

    /// The fault, given the handles of the kernel's bindings and the lengths of those that exist.
    pub(super) fn decode(
        self,
        instructions: &[Instruction],
        params: &ExecutionParams,
        handles: &[u64],
        len: &dyn Fn(usize) -> Option<usize>,
    ) -> Fault {
        let index = self.instruction as usize;
        let binding = self.binding as usize;
        let handle = handles.get(binding).copied().unwrap_or(u64::MAX);
        let dtype = instructions.get(index).map_or(DType::U8, element);
        let (offset, size) = (self.value, dtype.size());
        let kind = match self.code {
            MISALIGNED => FaultKind::InvalidMemoryAddress { offset, dtype },
            OUT_OF_BOUNDS => match (instructions.get(index), len(binding)) {
                (Some(Instruction::Lds { .. } | Instruction::Sts { .. }), _) => {
                    FaultKind::SharedOutOfBounds {
                        offset,
                        size,
                        shared_size: params.launch_config.shared_memory.size_bytes,
                    }
                }
                (Some(Instruction::PoolLoad { .. } | Instruction::PoolStore { .. }), Some(len)) => {
                    FaultKind::PoolOutOfBounds {
                        offset,
                        size,
                        pool_size: len,
                    }
                }
                (Some(Instruction::PoolLoad { .. } | Instruction::PoolStore { .. }), None) => {
                    FaultKind::InvalidPoolHandle(handle)
                }
                (_, Some(len)) => FaultKind::BufferOutOfBounds {
                    offset,
                    size,
                    buffer_size: len,
                },
                (_, None) => FaultKind::InvalidBufferHandle(handle),
            },
            DIVISION_BY_ZERO => FaultKind::DivisionByZero,
            STEP_LIMIT => FaultKind::StepLimit(self.value),
            CLASS => FaultKind::InvalidClassIndex(self.value as u8),
            BOUNDARY => FaultKind::InvalidBoundaryCoordinates {
                page: (self.value >> 8) as u8,
                byte: self.value as u8,
            },
            _ => FaultKind::CallStackUnderflow,
        };
        Fault {
            kind,
            index,
            lane: self.lane,
        }
    }
}

/// Type of the element that an instruction accesses.
fn element(instruction: &Instruction) -> DType {
    match *instruction {
        Instruction::Ldg { dtype, .. }
        | Instruction::Stg { dtype, .. }
        | Instruction::Lds { dtype, .. }
        | Instruction::Sts { dtype, .. }
        | Instruction::PoolLoad { dtype, .. }
        | Instruction::PoolStore { dtype, .. } => dtype,
        _ => DType::U8,
    }
}
