//! `MetalMemoryManager`, `MetalExecutor` and the shader files, by the plan's own test list and against plain loops.

use bessemer::program::{ExecutionParams, Program, Register};
use bessemer_compat::hologram::{
    BlockDim, GridDim, LaunchConfig, MetalExecutor, MetalMemoryManager, MetalProgram,
};
use bessemer_hal::soft::Mode;

use super::*;

fn device(mode: Mode) -> Device {
    let options = SoftOptions {
        mode,
        ..SoftOptions::default()
    };
    Device::on(soft::device(options).unwrap())
}

/// A device that reports every access out of bounds and every race.
fn checking_device() -> Device {
    device(Mode::Check)
}

/// A device on which kernels can do no harm.
fn isolating_device() -> Device {
    device(Mode::Isolated)
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_ne_bytes()).collect()
}

/// An executor's memory with a buffer for each slice.
fn buffers<const N: usize>(executor: &MetalExecutor, values: [&[f32]; N]) -> [BufferHandle; N] {
    let memory = executor.memory();
    let mut memory = memory.write().unwrap();
    values.map(|values| {
        let handle = memory.allocate_buffer(4 * values.len()).unwrap();
        memory.copy_to_buffer(handle, &bytes(values)).unwrap();
        handle
    })
}

fn values(executor: &MetalExecutor, handle: BufferHandle) -> Vec<f32> {
    let memory = executor.memory();
    let memory = memory.read().unwrap();
    let mut all = vec![0; memory.buffer_size(handle).unwrap()];
    memory.copy_from_buffer(handle, &mut all).unwrap();
    floats(&all)
}

#[test]
fn test_metal_availability() {
    assert!(!MetalBackend::is_available(), "Metal on Linux");
    let error = MetalExecutor::new().unwrap_err();
    let BackendError::BackendNotAvailable(reason) = error else {
        panic!("{error}");
    };
    assert!(reason.starts_with("Metal device not found"), "{reason}");
    assert!(MetalExecutor::on(&Device::cpu()).is_err());
}

#[test]
fn test_metal_buffer_allocation() {
    let backend = MetalBackend::software().unwrap();
    let handle = backend.allocate_buffer(1024).unwrap();
    backend.free_buffer(handle).unwrap();
}

#[test]
fn test_metal_buffer_copy() {
    let backend = MetalBackend::software().unwrap();
    let handle = backend.allocate_buffer(16).unwrap();
    backend.copy_to_buffer(handle, &bytes(&[1.0; 4])).unwrap();
    let mut result = [0; 16];
    backend.copy_from_buffer(handle, &mut result).unwrap();
    assert_eq!(floats(&result), [1.0; 4]);
    backend.free_buffer(handle).unwrap();
}

#[test]
fn handles_count_from_one_and_lengths_are_checked() {
    let device = Device::software().unwrap();
    let mut memory = MetalMemoryManager::new(device.hal().unwrap().clone());
    let a = memory.allocate_buffer(4).unwrap();
    let b = memory.allocate_buffer(0).unwrap();
    assert_eq!([a.id(), b.id()], [1, 2]);
    let mut found = [9; 4];
    memory.copy_from_buffer(a, &mut found).unwrap();
    assert_eq!(found, [0; 4]);
    memory.copy_to_buffer(a, &[1, 2]).unwrap();
    memory.copy_from_buffer(a, &mut found).unwrap();
    assert_eq!(found, [1, 2, 0, 0]);
    let too_long = |error| {
        let BackendError::Other(error) = error else {
            panic!("{error}");
        };
        assert!(invalid(error).contains("exceed the 4 bytes available"));
    };
    too_long(memory.copy_to_buffer(a, &[0; 5]).unwrap_err());
    too_long(memory.copy_from_buffer(a, &mut [0; 5]).unwrap_err());
    memory.free_buffer(a).unwrap();
    let unknown = BufferHandle::from(77);
    for handle in [a, unknown] {
        let gone = BackendError::InvalidBuffer(handle);
        assert_eq!(memory.free_buffer(handle).unwrap_err(), gone);
        assert_eq!(memory.get_buffer(handle).unwrap_err(), gone);
        assert_eq!(memory.copy_to_buffer(handle, &[]).unwrap_err(), gone);
        assert_eq!(memory.copy_from_buffer(handle, &mut []).unwrap_err(), gone);
    }
    assert_eq!(
        memory.allocate_buffer(1).unwrap().id(),
        3,
        "never used again"
    );
}

#[test]
fn the_shader_files_compute_what_their_names_say() {
    let executor = MetalExecutor::on(&checking_device()).unwrap();
    // A prime, so that the last threadgroup is not full.
    let a: Vec<f32> = (0..101)
        .map(|i| ((i * 37) % 23) as f32 / 4.0 - 2.5)
        .collect();
    let b: Vec<f32> = (0..101)
        .map(|i| ((i * 11) % 17) as f32 / 8.0 - 1.0)
        .collect();
    let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let (wide_a, wide_b) = (wide(&a), wide(&b));
    let pairs = || wide_a.iter().zip(&wide_b);
    let config = LaunchConfig::linear(101, 32);
    let launch = |name: &str, buffers: &[BufferHandle]| {
        let program = MetalProgram::shader(name, buffers).unwrap();
        executor.execute_metal_program(&program, &config)
    };
    let [x, y, z, one] = buffers(&executor, [&a, &b, &[0.0; 101], &[0.0]]);
    for (name, expected) in [
        ("vector_add", pairs().map(|(x, y)| x + y).collect()),
        (
            "vector_mul",
            pairs().map(|(x, y)| x * y).collect::<Vec<_>>(),
        ),
    ] {
        launch(name, &[x, y, z]).unwrap();
        assert_near(&values(&executor, z), &expected);
    }
    launch("relu", &[x, z]).unwrap();
    let relu: Vec<_> = wide_a.iter().map(|x| x.max(0.0)).collect();
    assert_near(&values(&executor, z), &relu);
    launch("sigmoid", &[x, z]).unwrap();
    let expected: Vec<_> = wide_a.iter().copied().map(sigmoid).collect();
    assert_near(&values(&executor, z), &expected);
    let fold = |f: fn(f64, f64) -> f64| wide_a.iter().copied().reduce(f).unwrap();
    for (name, expected) in [
        ("reduce_sum", wide_a.iter().sum()),
        ("reduce_min", fold(f64::min)),
        ("reduce_max", fold(f64::max)),
    ] {
        launch(name, &[x, one]).unwrap();
        assert_near(&values(&executor, one), &[expected]);
    }

    // `m, n, k` differ, and none is a multiple of a threadgroup's side.
    let [m, n, k] = [3_usize, 5, 7];
    let [p, q, r] = buffers(&executor, [&a[..m * k], &b[..k * n], &[0.0; 15]]);
    executor
        .gemm([p, q, r], [m, n, k].map(|n| n as u32))
        .unwrap();
    let cell = |i: usize| {
        let (row, col) = (i / n, i % n);
        (0..k)
            .map(|l| wide_a[row * k + l] * wide_b[l * n + col])
            .sum()
    };
    assert_near(
        &values(&executor, r),
        &(0..m * n).map(cell).collect::<Vec<f64>>(),
    );
}

#[test]
fn shaders_stay_inside_their_shortest_buffer() {
    let executor = MetalExecutor::on(&checking_device()).unwrap();
    let [a, b, c] = buffers(&executor, [&[1.0; 8], &[2.0; 5], &[9.0; 8]]);
    let launch = |name: &str, buffers: &[BufferHandle]| {
        let program = MetalProgram::shader(name, buffers).unwrap();
        executor.execute_metal_program(&program, &LaunchConfig::linear(64, 64))
    };
    launch("vector_add", &[a, b, c]).unwrap();
    let expected = [3.0, 3.0, 3.0, 3.0, 3.0, 9.0, 9.0, 9.0];
    assert_eq!(values(&executor, c), expected);

    let refused = |outcome: Result<(), BackendError>, expected: &str| match outcome {
        Err(BackendError::InvalidLaunchConfig(reason)) => {
            assert!(reason.contains(expected), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    refused(launch("vector_add", &[a, b]), "3 buffers, not 2");
    let [none] = buffers(&executor, [&[]]);
    refused(launch("reduce_sum", &[a, none]), "no element");
    refused(
        executor.gemm([a, b, c], [3, 3, 1]),
        "3 by 3 does not fit 32",
    );
    refused(executor.gemm([a, b, a], [2, 2, 2]), "in an input");
    let huge = [u32::MAX; 3];
    refused(executor.gemm([a, b, c], huge), "does not fit");
    let gone = BufferHandle::from(99);
    assert_eq!(
        launch("relu", &[a, gone]).unwrap_err(),
        BackendError::InvalidBuffer(gone)
    );
    let none = LaunchConfig::linear(1, 0);
    let program = MetalProgram::shader("relu", &[a, c]).unwrap();
    refused(executor.execute_metal_program(&program, &none), "0 lanes");
    assert!(MetalProgram::shader("tanh", &[a, c]).is_none());
}

#[test]
fn a_shader_is_compiled_once_for_its_text_not_for_its_name() {
    let executor = MetalExecutor::on(&isolating_device()).unwrap();
    let [x] = buffers(&executor, [&[1.0, 2.0, 3.0]]);
    let program = |factor: &str| MetalProgram {
        name: "scale".to_owned(),
        metal_source: format!(
            "kernel void scale(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]])
             {{ x[i] *= {factor}; }}"
        ),
        buffers: vec![x],
    };
    // The grid is a number of blocks.
    let config = LaunchConfig {
        grid: GridDim { x: 3, y: 1, z: 1 },
        block: BlockDim { x: 1, y: 1, z: 1 },
        ..LaunchConfig::linear(1, 1)
    };
    executor
        .execute_metal_program(&program("2.0f"), &config)
        .unwrap();
    assert_eq!(values(&executor, x), [2.0, 4.0, 6.0]);
    executor
        .execute_metal_program(&program("-1.0f"), &config)
        .unwrap();
    assert_eq!(
        values(&executor, x),
        [-2.0, -4.0, -6.0],
        "another text of the same name"
    );
    let [first, second] = [0, 1].map(|_| executor.get_or_compile_shader(&program("2.0f")).unwrap());
    assert_eq!(first.name(), second.name());
    let error = executor
        .get_or_compile_shader(&program("undefined"))
        .unwrap_err();
    assert!(error.to_string().contains("undefined"), "{error}");

    // In this process, a kernel could do harm.
    let executor = MetalExecutor::on(&Device::software().unwrap()).unwrap();
    let error = executor
        .get_or_compile_shader(&program("2.0f"))
        .unwrap_err();
    assert!(
        matches!(error, BackendError::InvalidOperation(_)),
        "{error}"
    );
}

#[test]
fn programs_run_on_the_memory_of_the_executor_and_have_a_metal_source() {
    let executor = MetalExecutor::on(&checking_device()).unwrap();
    let [a, b, c] = buffers(&executor, [&[1.0, 2.0, 3.0], &[0.5; 3], &[-1.0; 3]]);
    assert_eq!(
        [a.id(), b.id(), c.id()],
        [1, 2, 3],
        "0 is the boundary pool"
    );
    let add: Program = include_str!("../../../../examples/program/vector_add.isa")
        .parse()
        .unwrap();
    let mut params = ExecutionParams::new(LaunchConfig::linear(2, 8));
    for (register, value) in [(1, a.id()), (2, b.id()), (3, c.id()), (4, 2)] {
        params = params.with_register(Register(register), value);
    }
    executor.execute_program(&add, &params).unwrap();
    assert_eq!(values(&executor, c), [1.5, 2.5, -1.0]);
    let beyond = params.clone().with_register(Register(4), 4);
    let error = executor.execute_program(&add, &beyond).unwrap_err();
    let expected = BackendError::BufferOutOfBounds {
        offset: 12,
        size: 4,
        buffer_size: 12,
        instruction: 4,
    };
    assert_eq!(error, expected);
    let boundary: Program = "ldg.u8 r0, [phi(1, 0, 2)]\nstg.u8 [b1], r0"
        .parse()
        .unwrap();
    let one = ExecutionParams::new(LaunchConfig::linear(1, 1));
    let memory = executor.memory();
    let mut pool = vec![0; 12_288 + 3];
    pool[12_288 + 2] = 7;
    let write = |bytes: &[u8]| {
        let memory = memory.read().unwrap();
        memory.copy_to_buffer(BufferHandle::BOUNDARY, bytes)
    };
    write(&pool).unwrap();
    executor.execute_program(&boundary, &one).unwrap();
    assert_eq!(values(&executor, a)[0].to_bits() & 0xff, 7);

    // The library as a kernel like any other: the record of faults, the arguments, and the buffers.
    let source = executor.metal_source(&add, "add", &params).unwrap();
    assert!(
        source.starts_with("// add: a program, compiled for blocks of 8 x 1 x 1 lanes"),
        "{source}"
    );
    let executor = MetalExecutor::on(&isolating_device()).unwrap();
    let arguments = [1_u64, 1, 1000, 12, 12, 12, 1, 2, 3, 3]
        .map(u64::to_ne_bytes)
        .concat();
    let [x, y, z] = buffers(&executor, [&[1.0, 2.0, 3.0], &[0.5; 3], &[-1.0; 3]]);
    let [record, launch] = {
        let memory = executor.memory();
        let mut memory = memory.write().unwrap();
        let record = memory.allocate_buffer(32).unwrap();
        let launch = memory.allocate_buffer(arguments.len()).unwrap();
        memory.copy_to_buffer(launch, &arguments).unwrap();
        [record, launch]
    };
    let program = MetalProgram {
        name: "add".to_owned(),
        metal_source: source,
        buffers: vec![record, launch, x, y, z],
    };
    let config = LaunchConfig::linear(3, 8);
    executor.execute_metal_program(&program, &config).unwrap();
    assert_eq!(values(&executor, z), [1.5, 2.5, 3.5]);
    assert_eq!(values(&executor, record)[0].to_bits(), 0, "no fault");
}
