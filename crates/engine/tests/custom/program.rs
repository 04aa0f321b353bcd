//! Kernels that are programs, on tensors.

use bessemer::custom::ProgramKernel;
use bessemer::program::{FaultKind, Program, ProgramError, Register};
use bessemer::{DType, Device, Error, Tensor, explain};

use super::wave;

/// The devices that run programs.
fn devices() -> [Device; 2] {
    [Device::cpu(), super::device()]
}

/// A program for an element per lane: R20 is the offset of the lane's element in bytes.
fn elementwise(body: &str) -> Program {
    let text = format!(
        "setcc.u64.ge p0, %global, r4\n bra.p0 @end\n mov_imm.u32 r21, 2\n shl.u64 r20, %global, r21\n{body}\nend:\n"
    );
    text.parse().unwrap()
}

fn vector_add() -> ProgramKernel {
    let program = elementwise(
        "ldg.f32 r22, [r1 + r20]\n ldg.f32 r23, [r2 + r20]\n add.f32 r24, r22, r23\n stg.f32 [r3 + r20], r24",
    );
    ProgramKernel::new("vector_add", &program).unwrap()
}

#[test]
fn a_program_computes_a_tensor_from_tensors() {
    let kernel = vector_add();
    for device in devices() {
        for n in [1, 2, 255, 256, 257, 1000] {
            let (x, y) = (wave(n), wave(2 * n).split_off(n));
            let tensors = [&x, &y].map(|v| Tensor::from_slice(v, [n]).to(&device));
            let sum = kernel.call(&[&tensors[0], &tensors[1]]).run().unwrap();
            assert!(!sum.is_evaluated());
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
            assert_eq!(sum.to_vec::<f32>().unwrap(), expected, "{n} on {device}");
            assert_eq!(sum.device(), &device);
            assert_eq!(tensors[0].to_vec::<f32>().unwrap(), x);
        }
    }
}

#[test]
fn views_and_elementwise_ops_around_a_program_are_computed() {
    let kernel = vector_add();
    for device in devices() {
        let data = wave(5 * 300);
        let x = Tensor::from_slice(&data, [5, 300]).to(&device);
        let views = [
            x.narrow(0, 2, 1).reshape([300]),
            x.slice(0, None, None, -1).narrow(0, 0, 1).reshape([300]),
        ];
        let doubled = &views[1] * 2.0;
        let y = (kernel.call(&[&views[0], &doubled]).run().unwrap() - 1.0).abs();
        drop(doubled);
        let plan = explain(&[&y]).unwrap();
        let ops: Vec<_> = plan.steps.iter().map(|s| s.ops.join(" ")).collect();
        assert_eq!(ops, ["mul", "vector_add", "sub abs"]);
        let expected = (0..300).map(|i| (data[600 + i] + 2.0 * data[1200 + i] - 1.0).abs());
        assert_eq!(y.to_vec::<f32>().unwrap(), expected.collect::<Vec<_>>());
    }
}

#[test]
fn shapes_dtypes_lanes_and_registers_are_those_of_the_call() {
    // Each lane adds r30 to the bits of its element, and writes half of the result.
    let program = elementwise("mov_imm.u32 r22, 9\n stg.u32 [r1 + r20], r22");
    let kernel = ProgramKernel::new("nines", &program).unwrap();
    for device in devices() {
        let call = kernel
            .call(&[])
            .shape([2, 3])
            .dtype(DType::U32)
            .lanes(4)
            .block(1);
        let found = device.scope(|| call.run()).unwrap();
        assert_eq!(found.shape()[..], [2, 3]);
        assert_eq!(found.to_vec::<u32>().unwrap(), [9, 9, 9, 9, 0, 0]);

        let program = elementwise("cvt.u64.u32 r22, r30\n stg.u32 [r1 + r20], r22");
        let value = ProgramKernel::new("value", &program).unwrap();
        let call = value
            .call(&[])
            .shape([2])
            .dtype(DType::U32)
            .register(Register(30), 77);
        let found = device.scope(|| call.run()).unwrap();
        assert_eq!(found.to_vec::<u32>().unwrap(), [77, 77]);

        let empty = vector_add();
        let x = Tensor::zeros([0], DType::F32).to(&device);
        assert!(
            empty
                .call(&[&x, &x])
                .run()
                .unwrap()
                .to_vec::<f32>()
                .unwrap()
                .is_empty()
        );
    }
}

#[test]
fn a_fault_is_a_typed_error_with_the_instruction() {
    // Without a guard, the last lanes of the block are outside.
    let program = "mov_imm.u32 r21, 2\n shl.u64 r20, %global, r21\n ldg.f32 r22, [r1 + r20]\n stg.f32 [r2 + r20], r22";
    let kernel = ProgramKernel::new("unguarded", &program.parse().unwrap()).unwrap();
    for device in devices() {
        let x = Tensor::from_slice(&wave(100), [100]).to(&device);
        let y = kernel.call(&[&x]).run().unwrap();
        for _ in 0..2 {
            match y.to_vec::<f32>() {
                Err(Error::Program { op, source }) => match *source {
                    ProgramError::Fault(fault) => {
                        assert_eq!((op, fault.index), ("unguarded", 2));
                        assert!(
                            matches!(fault.kind, FaultKind::BufferOutOfBounds { .. }),
                            "{fault}"
                        );
                    }
                    other => panic!("{other}"),
                },
                other => panic!("{other:?}"),
            }
        }
        let whole = kernel.call(&[&x]).block(10).run().unwrap();
        assert_eq!(whole.to_vec::<f32>().unwrap(), wave(100));
    }
}

#[test]
fn invalid_calls_are_errors_before_anything_runs() {
    let invalid = Program {
        labels: [("end".to_owned(), 7)].into(),
        ..Program::default()
    };
    let error = ProgramKernel::new("invalid", &invalid).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid: label `end` points to instruction 7, but there are only 0"
    );
    let kernel = vector_add();
    let x = Tensor::from_slice(&[1.0_f32], [1]).to(&Device::cpu());
    let cases = [
        (
            kernel.call(&[]),
            "vector_add: there is no tensor to take the shape of the result from; give it with `shape`",
        ),
        (
            kernel.call(&[]).shape([1]),
            "vector_add: there is no tensor to take the dtype of the result from; give it with `dtype`",
        ),
        (
            kernel.call(&[&x]).dtype(DType::Bool),
            "vector_add: not defined for bool: a program writes bytes, and not all of them are a `bool`; use `u8`; \
             convert with `cast`",
        ),
        (
            kernel.call(&[&x, &x]).register(Register(3), 1),
            "vector_add: r3 has a buffer or the number of elements; use another register",
        ),
        (
            kernel.call(&[&x]).register(Register(4), 1),
            "vector_add: r4 has a buffer or the number of elements; use another register",
        ),
        (
            kernel.call(&[&x; 250]),
            "vector_add: 250 tensors are too many",
        ),
        (
            kernel.call(&[&x]).block(0),
            "vector_add: launch: a block has 0 lanes; it must have 1 to 1024",
        ),
        (
            kernel.call(&[&x]).block(2048),
            "vector_add: launch: a block has 2048 lanes; it must have 1 to 1024",
        ),
        (
            kernel.call(&[&x]).lanes(1 << 40),
            "vector_add: launch: 1099511627776 lanes are too many",
        ),
        (
            kernel.call(&[&x]).shared_memory(1 << 20),
            "vector_add: launch: 1048576 bytes of shared memory exceed the 32768 available",
        ),
    ];
    for (call, message) in cases {
        assert_eq!(call.run().unwrap_err().to_string(), message);
    }
}
