//! Buffers and pools of a device.

use bessemer::program::{
    BOUNDARY_BYTES, DeviceMemory, ExecutionParams, FaultKind, LaunchConfig, Program, ProgramError,
    Register,
};
use bessemer::{DType, Device, Tensor};
use bessemer_hal::soft::Mode;

use crate::{floats, soft, words};

fn devices() -> [Device; 2] {
    [Device::cpu(), soft(Mode::Fast)]
}

#[test]
fn handles_count_from_one_and_none_is_used_twice() {
    for device in devices() {
        let mut memory = DeviceMemory::new(&device).unwrap();
        assert_eq!(memory.size(0), Ok(BOUNDARY_BYTES));
        assert_eq!(memory.allocate(12), Ok(1));
        assert_eq!(memory.insert_bytes(&[1, 2, 3]), Ok(2));
        memory.free(2).unwrap();
        assert_eq!(memory.insert_bytes(&[]), Ok(3));
        assert_eq!(memory.to_vec(1), Ok(vec![0; 12]));
        assert_eq!(memory.to_vec(3), Ok(Vec::new()));
        let gone = ProgramError::Memory(FaultKind::InvalidBufferHandle(2));
        assert_eq!(memory.free(2), Err(gone.clone()));
        assert_eq!(memory.read(2, 0, &mut []), Err(gone));
        assert!(memory.free(0).is_err(), "the boundary pool stays");

        assert_eq!(memory.allocate_pool(16), Ok(1));
        memory.free_pool(1).unwrap();
        assert_eq!(memory.allocate_pool(16), Ok(2));
        assert_eq!(memory.pool_size(2), Ok(16));
        memory.write_pool(2, 14, &[5, 6]).unwrap();
        let mut bytes = [0; 3];
        memory.read_pool(2, 13, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 5, 6]);
        assert!(memory.free_pool(1).is_err());
        assert_eq!(
            memory.allocate_pool(u64::MAX),
            Err(ProgramError::Memory(FaultKind::OutOfMemory(u64::MAX)))
        );
    }
}

#[test]
fn accesses_are_checked_against_the_length() {
    for device in devices() {
        let mut memory = DeviceMemory::new(&device).unwrap();
        let buffer = memory.insert_bytes(&[1, 2, 3, 4]).unwrap();
        let fault = |offset, size| {
            Err(ProgramError::Memory(FaultKind::BufferOutOfBounds {
                offset,
                size,
                buffer_size: 4,
            }))
        };
        assert_eq!(memory.write(buffer, 3, &[1, 2]), fault(3, 2));
        assert_eq!(memory.read(buffer, u64::MAX, &mut [0]), fault(u64::MAX, 1));
        assert_eq!(memory.write(buffer, 4, &[]), Ok(()));
        memory.write(buffer, 1, &[9]).unwrap();
        assert_eq!(memory.to_vec(buffer), Ok(vec![1, 9, 3, 4]));
    }
}

#[test]
fn tensors_become_buffers_and_keep_their_values() {
    let program: Program = "
        mov_imm.u32 r10, 2
        shl.u64 r11, %global, r10
        ldg.f32 r12, [r1 + r11]
        mul.f32 r12, r12, r12
        stg.f32 [r1 + r11], r12
    "
    .parse()
    .unwrap();
    for device in devices() {
        let x = Tensor::from_slice(&[9.0_f32, 1.0, 2.0, 3.0, 4.0], [5]).to(&device);
        let part = x.narrow(0, 1, 4);
        for tensor in [&part, &x] {
            let mut memory = DeviceMemory::new(&device).unwrap();
            let buffer = memory.insert(tensor).unwrap();
            let count = tensor.shape().count();
            let config = LaunchConfig::linear(count as u32, 1);
            let params = ExecutionParams::new(config).with_register(Register(1), buffer);
            program
                .compile(&device)
                .unwrap()
                .run(&params, &mut memory)
                .unwrap();
            assert!(memory.take(buffer, DType::F64, [count]).is_err());
            let squares = memory.take(buffer, DType::F32, [count]).unwrap();
            let expected: Vec<f32> = tensor.to_vec::<f32>().unwrap();
            let expected: Vec<f32> = expected.iter().map(|x| x * x).collect();
            assert_eq!((&squares + 0.0).to_vec::<f32>().unwrap(), expected);
            assert!(memory.size(buffer).is_err());
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), [9.0, 1.0, 2.0, 3.0, 4.0]);
    }
}

#[test]
fn equal_handles_are_one_memory() {
    // A barrier orders a store through one register and a load through the other.
    let program: Program = "
        mov_imm.u32 r10, 2
        shl.u64 r11, %global, r10
        stg.u32 [r1 + r11], %lane
        bar_sync 0
        mov_imm.u64 r12, 28
        sub.u64 r12, r12, r11
        ldg.u32 r13, [r2 + r12]
        ldg.u32 r14, [b1 + r12]
        add.u32 r13, r13, r14
        stg.u32 [r3 + r11], r13
    "
    .parse()
    .unwrap();
    for device in devices() {
        let mut memory = DeviceMemory::new(&device).unwrap();
        let (a, b) = (memory.allocate(32).unwrap(), memory.allocate(32).unwrap());
        let mut params = ExecutionParams::new(LaunchConfig::linear(8, 8));
        for (register, handle) in [(1, a), (2, a), (3, b)] {
            params = params.with_register(Register(register), handle);
        }
        let compiled = program.compile(&device).unwrap();
        compiled.run(&params, &mut memory).unwrap();
        assert_eq!(memory.to_vec(b), Ok(words((0..8).rev().map(|i| 2 * i))));
    }
}

#[test]
fn the_boundary_pool_is_buffer_zero() {
    let text = "mov_imm.f32 r2, 2.5\nstg.f32 [phi(5, 2, 128)], r2\nldg.f32 r3, [b0 + 62080]\nstg.f32 [r1], r3";
    let program: Program = text.parse().unwrap();
    for device in devices() {
        let mut memory = DeviceMemory::new(&device).unwrap();
        let buffer = memory.allocate(4).unwrap();
        let params = ExecutionParams::new(LaunchConfig::linear(1, 1));
        let params = params.with_register(Register(1), buffer);
        program
            .compile(&device)
            .unwrap()
            .run(&params, &mut memory)
            .unwrap();
        assert_eq!(memory.to_vec(buffer), Ok(floats([2.5])));
    }
}
