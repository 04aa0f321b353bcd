//! Programs on hologram's backends and executor.

use bessemer::program::{
    BOUNDARY_BYTES as POOL_BYTES, ExecutionParams, LaunchConfig, Program, ProgramError, Register,
};

use super::*;

const VECTOR_ADD: &str = include_str!("../../../../examples/program/vector_add.isa");

fn program(text: &str) -> Program {
    text.parse().unwrap()
}

fn backends() -> Vec<Box<dyn Backend>> {
    vec![
        Box::new(CpuBackend::new()),
        Box::new(MetalBackend::software().unwrap()),
    ]
}

fn executors() -> Vec<Executor> {
    let kinds = [BackendType::Cpu, BackendType::Software];
    kinds
        .map(|kind| Executor::new_with_backend(kind).unwrap())
        .into()
}

#[test]
fn an_executor_runs_programs_on_its_buffers() {
    for mut e in executors() {
        let [a, b, c] = [(); 3].map(|()| e.allocate::<f32>(1000).unwrap());
        let values: Vec<f32> = (0..1000_u16).map(f32::from).collect();
        e.write(&a, &values).unwrap();
        e.write(&b, &[0.5; 1000]).unwrap();
        e.write(&c, &[-1.0; 1000]).unwrap();
        let add = program(VECTOR_ADD);
        e.execute_isa_program(&add, &[&a, &b], &c, 999).unwrap();
        let mut expected: Vec<f32> = values.iter().map(|x| x + 0.5).collect();
        expected[999] = -1.0;
        assert_eq!(e.read(&c).unwrap(), expected);
        e.execute_isa_program(&add, &[&a, &b], &c, 0).unwrap();
        let short = e
            .execute_isa_program(&add, &[&a, &b], &c, 1001)
            .unwrap_err();
        assert!(
            matches!(short, BackendError::InvalidLaunchConfig(_)),
            "{short}"
        );

        // One input: the output is r2, and the number of elements is r4 all the same.
        let negate = program(
            "setcc.u64.ge p0, %global, r4
             bra.p0 @end
             mov_imm.u32 r5, 2
             shl.u64 r0, %global, r5
             ldg.f32 r6, [r1 + r0]
             neg.f32 r6, r6
             stg.f32 [r2 + r0], r6
             end:",
        );
        e.execute_isa_program(&negate, &[&a], &c, 1000).unwrap();
        let expected: Vec<f32> = values.iter().map(|x| -x).collect();
        assert_eq!(e.read(&c).unwrap(), expected);

        // Four buffers: the number of elements comes behind them.
        let last = program("mov_imm.u64 r7, 0\nstg.u64 [r4 + r7], r5");
        let d = e.allocate::<u64>(1).unwrap();
        let inputs = [(); 3].map(|()| e.allocate::<u64>(1).unwrap());
        let inputs: Vec<_> = inputs.iter().collect();
        e.execute_isa_program(&last, &inputs, &d, 1).unwrap();
        assert_eq!(e.read(&d).unwrap(), [1]);
    }
}

#[test]
fn initial_registers_are_not_dropped() {
    for backend in backends() {
        let out = backend.allocate_buffer(16).unwrap();
        let store = program("mov_imm.u64 r0, 8\nstg.u64 [r1 + r0], r9");
        let config = LaunchConfig::linear(1, 1);
        let params = ExecutionParams::new(config)
            .with_register(Register(1), out.id())
            .with_register(Register(9), 0x0102_0304_0506_0708);
        backend
            .execute_program_with_params(&store, &params)
            .unwrap();
        let mut bytes = [0; 16];
        backend.copy_from_buffer(out, &mut bytes).unwrap();
        assert_eq!(bytes[..8], [0; 8]);
        assert_eq!(bytes[8..], 0x0102_0304_0506_0708_u64.to_le_bytes());
        let params = ExecutionParams::new(config).with_register(Register(1), out.id());
        let error = backend
            .execute_program_with_params(&store, &params)
            .unwrap_err();
        let BackendError::UninitializedRegister {
            register,
            instruction,
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((&*register, instruction), ("r9", 1));
    }
}

#[test]
fn the_boundary_pool_is_addressed_by_class_page_and_byte() {
    for backend in backends() {
        let pool = BufferHandle::BOUNDARY;
        assert_eq!(backend.buffer_size(pool).unwrap(), POOL_BYTES);
        let mut bytes = vec![0; POOL_BYTES];
        bytes[5 * 12_288 + 2 * 256 + 128] = 42;
        backend.copy_to_buffer(pool, &bytes).unwrap();
        let text = "ldg.u8 r0, [phi(5, 2, 128)]\nstg.u8 [phi(95, 47, 255)], r0";
        let config = LaunchConfig::linear(1, 1);
        backend.execute_program(&program(text), &config).unwrap();
        backend.copy_from_buffer(pool, &mut bytes).unwrap();
        assert_eq!(bytes.last(), Some(&42));
    }
}

#[test]
fn faults_name_the_instruction_and_leave_the_backend_usable() {
    for backend in backends() {
        let buffer = backend.allocate_buffer(16).unwrap();
        let pool = backend.allocate_pool(8).unwrap();
        let run = |text: &str| {
            let params = ExecutionParams::new(LaunchConfig::linear(1, 1))
                .with_register(Register(1), buffer.id())
                .with_register(Register(2), pool.id());
            backend.execute_program_with_params(&program(text), &params)
        };
        let cases: [(&str, BackendError); 6] = [
            (
                "mov_imm.i32 r0, 0\ndiv.i32 r0, r0, r0",
                BackendError::DivisionByZero { instruction: 1 },
            ),
            (
                "mov_imm.u64 r3, 16\nldg.u32 r0, [r1 + r3]",
                BackendError::BufferOutOfBounds {
                    offset: 16,
                    size: 4,
                    buffer_size: 16,
                    instruction: 1,
                },
            ),
            (
                "ldg.u32 r0, [b77]",
                BackendError::InvalidBufferHandle {
                    handle: 77,
                    instruction: 0,
                },
            ),
            (
                "mov_imm.f32 r0, 0.5\nadd.i32 r0, r0, r0",
                BackendError::TypeMismatch {
                    register: "r0".to_owned(),
                    expected: "i32".to_owned(),
                    actual: "f32".to_owned(),
                    instruction: 1,
                },
            ),
            (
                "bra.p3 @end\nend:",
                BackendError::UninitializedPredicate {
                    predicate: "p3".to_owned(),
                    instruction: 0,
                },
            ),
            ("ret", BackendError::CallStackUnderflow { instruction: 0 }),
        ];
        for (text, expected) in cases {
            assert_eq!(run(text).unwrap_err(), expected, "{text}");
        }
        // A compiler inlines calls, and refuses those that have no end.
        let overflow = run("again: call @again").unwrap_err();
        assert!(
            matches!(
                overflow,
                BackendError::CallStackOverflow {
                    limit: 256,
                    instruction: 0
                } | BackendError::ProgramError(ProgramError::Unsupported { index: 0, .. })
            ),
            "{overflow}"
        );
        let misaligned = run("mov_imm.u64 r3, 2\nldg.u32 r0, [r1 + r3]").unwrap_err();
        assert!(
            matches!(
                misaligned,
                BackendError::InvalidMemoryAddress { instruction: 1, .. }
            ),
            "{misaligned}"
        );
        let pools = "mov_imm.u64 r3, 8\npool_load.u32 r0, r2, r3";
        let beyond = BackendError::PoolOutOfBounds {
            offset: 8,
            size: 4,
            pool_size: 8,
            instruction: 1,
        };
        assert_eq!(run(pools).unwrap_err(), beyond);
        run("mov_imm.u64 r3, 4\nmov_imm.u32 r0, 9\npool_store.u32 r2, r3, r0").unwrap();
        let mut bytes = [0; 8];
        backend.copy_from_pool(pool, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 9, 0, 0, 0]);
        run("pool_free r2").unwrap();
        invalid(backend.pool_size(pool).unwrap_err());
    }
}

#[test]
fn metal_refuses_f64_by_name_and_never_narrows_it() {
    let text = "mov_imm.f64 r0, 0.1\nadd.f64 r0, r0, r0";
    let config = LaunchConfig::linear(1, 1);
    let run = |kind| {
        let executor = Executor::new_with_backend(kind).unwrap();
        executor.execute_program(&program(text), &config)
    };
    run(BackendType::Cpu).unwrap();
    let error = run(BackendType::Software).unwrap_err();
    let BackendError::ProgramError(ProgramError::Unsupported { index, reason, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(index, 0);
    assert!(reason.contains("f64"), "{reason}");
}

#[test]
fn what_cannot_be_launched_is_refused_before_anything_runs() {
    for backend in backends() {
        let store = program("mov_imm.u32 r0, 1\nstg.u32 [b0], r0");
        let config = LaunchConfig::linear(1, 1);
        for config in [
            LaunchConfig::linear(1, 0),
            config.with_shared_memory(1 << 20),
        ] {
            let error = backend.execute_program(&store, &config).unwrap_err();
            assert!(
                matches!(error, BackendError::InvalidLaunchConfig(_)),
                "{error}"
            );
        }
        let missing = Program::from_instructions(program("a: bra @a").instructions);
        let error = backend.execute_program(&missing, &config).unwrap_err();
        assert_eq!(
            error,
            BackendError::LabelNotFound {
                label: "a".to_owned(),
                instruction: 0
            }
        );
        let mut bytes = [9; 4];
        backend
            .copy_from_buffer(BufferHandle::BOUNDARY, &mut bytes)
            .unwrap();
        assert_eq!(bytes, [0; 4]);
    }
}
