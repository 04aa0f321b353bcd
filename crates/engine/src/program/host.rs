//! Instructions that run once per launch, on the host: tensor instructions, and those that allocate and free pools.

use super::error::FaultKind;
use super::instruction::Instruction;
use super::memory::Memory;
use super::operand::Register;
use super::tensor_op;

/// Returns `true` for instructions that run once per launch.
pub(crate) fn runs_once(instruction: &Instruction) -> bool {
    matches!(
        instruction,
        Instruction::PoolAlloc { .. } | Instruction::PoolFree { .. }
    ) || instruction.category().has_named_operands()
}

/// Registers with the handles that an instruction reads when it runs once: inputs, then the output. Buffers of tensor
/// instructions come in the order of [`tensor_op::buffers`].
pub(crate) fn handle_registers(instruction: &Instruction) -> Vec<Register> {
    match (instruction, tensor_op::buffers(instruction)) {
        (_, Some(Ok(buffers))) => {
            let inputs = buffers.inputs.iter().map(|(register, _)| *register);
            inputs.chain([buffers.output.0]).collect()
        }
        (Instruction::PoolFree { handle }, _) => vec![*handle],
        _ => Vec::new(),
    }
}

/// Runs an instruction for the whole launch, on the handles in its registers; the result is the handle of a new pool.
pub(crate) fn execute(
    memory: &mut dyn Memory,
    instruction: &Instruction,
    handles: &[u64],
) -> Result<Option<u64>, FaultKind> {
    match instruction {
        Instruction::PoolAlloc { size, .. } => {
            return memory.allocate_pool(*size).map(Some);
        }
        Instruction::PoolFree { .. } => {
            return memory.free_pool(handles[0]).map(|()| None);
        }
        _ => {}
    }
    let Some(Ok(buffers)) = tensor_op::buffers(instruction) else {
        return Ok(None);
    };
    let mut inputs = Vec::with_capacity(buffers.inputs.len());
    for (&handle, (_, count)) in handles.iter().zip(&buffers.inputs) {
        inputs.push(read_f32(memory, handle, *count)?);
    }
    let bytes = buffers.output.1 * size_of::<f32>();
    let output = handles[buffers.inputs.len()];
    // An output that is too short is found before anything is computed.
    if let Some(last) = bytes.checked_sub(1) {
        memory.read(output, last as u64, &mut [0])?;
    }
    let result = tensor_op::compute(instruction, &inputs)?;
    let bytes: Vec<u8> = result.iter().flat_map(|x| x.to_le_bytes()).collect();
    memory.write(output, 0, &bytes)?;
    Ok(None)
}

/// The first `count` elements of a buffer.
fn read_f32(memory: &dyn Memory, handle: u64, count: usize) -> Result<Vec<f64>, FaultKind> {
    let bytes = count * size_of::<f32>();
    if let Some(last) = bytes.checked_sub(1) {
        memory.read(handle, last as u64, &mut [0])?;
    }
    let mut all = vec![0; bytes];
    memory.read(handle, 0, &mut all)?;
    let chunks = all.as_chunks::<4>().0;
    Ok(chunks
        .iter()
        .map(|&b| f64::from(f32::from_le_bytes(b)))
        .collect())
}
