//! Invalid kernels and calls: typed errors before anything runs, and faults that leave the device usable.

use bessemer::custom::{MetalKernel, MetalKernelBuilder};
use bessemer::{DType, Device, Error, Tensor};
use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{Family, Fault, noop};

use super::{axpy, of_device, on_device, refusal, run, trusted};

fn builder() -> MetalKernelBuilder {
    MetalKernel::body("k", "out[0] = x[0];")
        .input("x")
        .output("out")
}

#[test]
fn declarations_are_checked_when_the_kernel_is_built() {
    let cases: [(MetalKernelBuilder, &str); 18] = [
        (
            MetalKernel::body("my kernel", ""),
            "`my kernel` is no name for a kernel: it must be an identifier",
        ),
        (
            MetalKernel::body("", ""),
            "`` is no name for a kernel: it must be an identifier",
        ),
        (
            builder().input("2x"),
            "`2x` is no name for an argument: it must be an identifier",
        ),
        (
            builder().input("bessemer_x"),
            "`bessemer_x` is no name for an argument: it must be an identifier",
        ),
        (builder().input("x"), "`x` is declared twice"),
        (
            builder().scalar("out", DType::F32),
            "`out` is declared twice",
        ),
        (
            builder().output("x"),
            "output `x` is an input too; declare it once, as in-out",
        ),
        (
            builder().scalar("x_shape", DType::U32),
            "the name `x_shape` is taken: it is a property of `x`",
        ),
        (
            builder().scalar("threads_per_grid", DType::U32),
            "the name `threads_per_grid` is taken: it is a position attribute",
        ),
        (
            builder().index("out_t"),
            "the name `out_t` is taken: it is a property of `out`",
        ),
        (
            MetalKernel::body("k", "").input("x"),
            "a kernel without an output or in-out argument has no result",
        ),
        (
            builder().dtype("y", DType::F32),
            "no tensor `y` is declared before this",
        ),
        (
            builder().dtype("out", DType::F64),
            "`out` cannot be f64: Metal has none",
        ),
        (
            builder().scalar("a", DType::F64),
            "`a` cannot be f64: Metal has no such argument",
        ),
        (
            builder().constant("A", DType::BF16),
            "`A` cannot be bf16: Metal has no such argument",
        ),
        (
            builder().atomic("x"),
            "`x` is an input: an atomic one is in-out",
        ),
        (
            builder().shape_rule("x", |shapes| Ok(shapes[0])),
            "`x` is no output: its shape is that of a tensor",
        ),
        (
            MetalKernel::source("k", "").output("out").header("int x;"),
            "a whole source has no header: write it into the source",
        ),
    ];
    for (builder, message) in cases {
        match builder.build() {
            Err(Error::Invalid { reason, .. }) => assert_eq!(reason, message),
            other => panic!("{message}: {other:?}"),
        }
    }
}

#[test]
fn calls_are_checked_before_anything_runs() {
    let x = on_device(&Tensor::from_slice(&[1.0_f32, 2.0], [2]));
    let kernel = axpy();
    let good = || kernel.call(&[&x, &x]).scalar("a", 1.0);
    let typed = builder().dtype("x", DType::F16).build().unwrap();
    let counter = MetalKernel::body("k", "out[0] = N;")
        .output("out")
        .scalar("n", DType::U8)
        .constant("N", DType::U32)
        .threadgroup("m", DType::F32)
        .build()
        .unwrap();
    let counted = || {
        counter
            .call(&[])
            .threads(1)
            .shape("out", [1])
            .dtype("out", DType::U32)
    };
    let atomic = MetalKernel::body("k", "")
        .inout("x")
        .atomic("x")
        .build()
        .unwrap();
    let wide = on_device(&Tensor::from_slice(&[1_i64], [1]));
    let double = Tensor::from_slice(&[1.0_f64], [1]);
    let cases = [
        (
            kernel.call(&[&x]).scalar("a", 1.0).threads(2),
            "axpy: 1 tensors are given for 2 arguments (x, y)",
        ),
        (
            kernel.call(&[&x, &x]).threads(2),
            "axpy: scalar `a` has no value",
        ),
        (
            good().scalar("b", 1.0).threads(2),
            "axpy: there is no scalar `b`: the kernel has `a`",
        ),
        (
            good().scalar("a", 2.0).threads(2),
            "axpy: scalar `a` is given twice",
        ),
        (
            good().constant("A", 2.0).threads(2),
            "axpy: there is no constant `A`: the kernel has none",
        ),
        (
            good().shape("x", [2]).threads(2),
            "axpy: there is no output `x`: the kernel has `out`",
        ),
        (
            good().threadgroup("m", 2).threads(2),
            "axpy: there is no threadgroup memory `m`: the kernel has none",
        ),
        (
            good(),
            "axpy: the call has no grid; give it with `threads` or `threadgroups`",
        ),
        (
            good().threads(2).threadgroups(2),
            "axpy: the grid is given in threads and in threadgroups; give one of them",
        ),
        (
            good().threads(0),
            "axpy: a grid of 0×1×1 is empty, and would not compute the results",
        ),
        (
            good()
                .threads(2)
                .shape("out", [1_usize << 40; 8].as_slice()),
            "axpy: a tensor of [1099511627776, 1099511627776, 1099511627776, 1099511627776, 1099511627776, \
             1099511627776, 1099511627776, 1099511627776] elements is larger than the address space",
        ),
        (
            typed.call(&[&x]).threads(1),
            "k: `x` is f32, but the kernel declares f16; convert with `cast`",
        ),
        (
            counted()
                .scalar("n", 2.5)
                .constant("N", 1)
                .threadgroup("m", 4),
            "k: scalar `n` is u8, but its value is a float",
        ),
        (
            counted()
                .scalar("n", 300)
                .constant("N", 1)
                .threadgroup("m", 4),
            "k: 300 is out of range for u8; cast the tensor to a wider type",
        ),
        (
            counted()
                .scalar("n", 3)
                .constant("N", -1)
                .threadgroup("m", 4),
            "k: -1 is out of range for u32; cast the tensor to a wider type",
        ),
        (
            counted()
                .scalar("n", 3)
                .constant("N", 1)
                .threadgroup("m", 0),
            "k: threadgroup memory `m` cannot have 0 elements",
        ),
        (
            counted().constant("N", 1).threadgroup("m", 4),
            "k: scalar `n` has no value",
        ),
        (
            counter.call(&[]).threads(1),
            "k: output `out` has no shape, and there is no tensor to take it from; give it with `shape`",
        ),
        (
            counter.call(&[]).threads(1).shape("out", [1]),
            "k: output `out` has no dtype, and there is no tensor to take it from; give it with `dtype`",
        ),
        (
            atomic.call(&[&wide]).threads(1),
            "k: not defined for i64: atomic elements are u32, i32 or f32; convert with `cast`",
        ),
        (
            builder().build().unwrap().call(&[&double]).threads(1),
            "k: not defined for f64: Metal has none; use `f32`; convert with `cast`",
        ),
        (
            kernel
                .call(&[&(&x + &Tensor::from_slice(&[1.0_f32; 3], [3])), &x])
                .threads(2),
            "add: shapes [2] and [3] do not match: lengths, aligned at the last axis, must be equal or 1",
        ),
    ];
    for (call, message) in cases {
        assert_eq!(refusal(call), message);
    }
}

#[test]
fn grids_beyond_the_limits_name_them() {
    let x = on_device(&Tensor::from_slice(&[1.0_f32, 2.0], [2]));
    let kernel = axpy();
    let good = || kernel.call(&[&x, &x]).scalar("a", 1.0);
    assert_eq!(
        refusal(good().threads(2048).group(2048)),
        "axpy: kernel `axpy` cannot be launched: a threadgroup of 2048×1×1 is larger than the maximum of 1024 threads"
    );
    assert_eq!(
        refusal(good().threads(1_usize << 32)),
        "axpy: kernel `axpy` cannot be launched: a grid of 4294967296×1×1 threads is too large"
    );
    assert_eq!(
        refusal(good().threadgroups((1_usize << 62, 8)).group(16)),
        "axpy: kernel `axpy` cannot be launched: a grid of 4611686018427387904×8×1 groups overflows"
    );
    let softmax = super::numerics::row_softmax();
    let y = on_device(&Tensor::from_slice(&[1.0_f32, 2.0], [1, 2]));
    assert_eq!(
        refusal(
            softmax
                .call(&[&y])
                .threadgroups(1)
                .group(2)
                .threadgroup("scratch", 1 << 20)
        ),
        "row_softmax: kernel `row_softmax` cannot be launched: 4194304 bytes of threadgroup memory are more than the \
         maximum of 32768"
    );
}

#[test]
fn compile_errors_are_at_the_lines_of_the_user() {
    let kernel = |header: &str, body: &str| {
        MetalKernel::body("broken", body)
            .input("x")
            .output("out")
            .header(header)
            .index("i")
            .build()
            .unwrap()
    };
    let x = on_device(&Tensor::from_slice(&[1.0_f32], [1]));
    let diagnostics = |kernel: MetalKernel| {
        let error = trusted(kernel.call(&[&x]).threads(1)).run().unwrap_err();
        match of_device(error) {
            bessemer_hal::Error::Compile { diagnostics, .. } => diagnostics,
            other => panic!("{other}"),
        }
    };
    let found = diagnostics(kernel(
        "// nothing",
        "float v = x[i];\n\nout[i] = v + missing;\n",
    ));
    assert_eq!(
        (found[0].file.as_str(), found[0].line, found[0].column),
        ("broken", 3, 14)
    );
    assert_eq!(
        found[0].source_line.as_deref(),
        Some("out[i] = v + missing;")
    );
    assert!(
        found[0].message.contains("undeclared identifier 'missing'"),
        "{found:?}"
    );

    let header = "// one\ninline float f() { return nothing; }";
    let found = diagnostics(kernel(header, "out[i] = f();"));
    assert_eq!(
        (found[0].file.as_str(), found[0].line),
        ("broken (header)", 2)
    );

    let whole = MetalKernel::source(
        "whole",
        "kernel void whole(device float* out [[buffer(0)]]) {\n  oops;\n}",
    );
    let whole = whole
        .output("out")
        .dtype("out", DType::F32)
        .build()
        .unwrap();
    let call = trusted(whole.call(&[]).shape("out", [1]).threads(1));
    let error = super::device().scope(|| call.run()).unwrap_err();
    match of_device(error) {
        bessemer_hal::Error::Compile { diagnostics, .. } => {
            assert_eq!(
                (diagnostics[0].file.as_str(), diagnostics[0].line),
                ("whole", 2)
            );
        }
        other => panic!("{other}"),
    }
    let other = MetalKernel::source(
        "other",
        "kernel void whole(device float* out [[buffer(0)]]) {}",
    );
    let other = other
        .output("out")
        .dtype("out", DType::F32)
        .build()
        .unwrap();
    let call = trusted(other.call(&[]).shape("out", [1]).threads(1));
    let error = super::device().scope(|| call.run()).unwrap_err();
    assert!(matches!(
        of_device(error),
        bessemer_hal::Error::UnknownFunction { .. }
    ));
    let constant = MetalKernel::source(
        "other",
        "kernel void other(device float* out [[buffer(0)]]) {}",
    );
    let constant = constant
        .output("out")
        .dtype("out", DType::F32)
        .constant("K", DType::U32);
    let call = constant
        .build()
        .unwrap()
        .call(&[])
        .shape("out", [1])
        .threads(1)
        .constant("K", 1);
    assert_eq!(
        refusal(call),
        "other: the source has no `constant uint K [[function_constant(…)]]`"
    );
}

#[test]
fn devices_that_cannot_run_a_kernel_say_what_to_do() {
    let data = Tensor::from_slice(&[1.0_f32, 2.0], [2]);
    let kernel = axpy();
    let x = data.to(&Device::cpu());
    assert_eq!(
        refusal(kernel.call(&[&x, &x]).scalar("a", 1.0).threads(2)),
        "axpy: not on CPU: a custom kernel runs on a Metal device; move a tensor there with `to`, or call it in \
         `Device::scope`"
    );
    let x = on_device(&data);
    if !matches!(SoftOptions::from_env().unwrap().mode, Mode::Isolated) {
        let call = kernel.call(&[&x, &x]).scalar("a", 1.0).threads(2);
        assert_eq!(
            call.run().unwrap_err().to_string(),
            format!(
                "axpy: not on {}: the device does not contain kernels; promise that this one is sound with \
                 `KernelCall::trust`, or use the software device in isolated mode",
                super::device().name()
            )
        );
    }
    let recording = data.to(&Device::on(noop::device(Family::Apple7)));
    assert!(
        refusal(kernel.call(&[&x, &recording]).scalar("a", 1.0).threads(2))
            .contains("move one with `to`")
    );
}

#[test]
fn a_device_that_contains_kernels_needs_no_promise() {
    let options = SoftOptions {
        mode: Mode::Isolated,
        ..SoftOptions::from_env().unwrap()
    };
    let device = Device::on(soft::device(options).unwrap());
    let x = Tensor::from_slice(&[1.0_f32, 2.0], [2]).to(&device);
    let call = || axpy().call(&[&x, &x]).scalar("a", 3.0).threads(2);
    assert_eq!(call().run().unwrap().to_vec::<f32>().unwrap(), [4.0, 8.0]);
    let wild = MetalKernel::body(
        "wild",
        "*(device float*)(0x10ul + ulong(x[0])) = 1.0f; out[0] = 0;",
    );
    let wild = wild.input("x").output("out").build().unwrap();
    let result = wild.call(&[&x]).threads(1).run().unwrap();
    match of_device(result.to_vec::<f32>().unwrap_err()) {
        bessemer_hal::Error::Execution { fault, .. } => assert_eq!(fault, Fault::PageFault),
        other => panic!("{other}"),
    }
    assert_eq!(
        (call().run().unwrap() + 1.0).to_vec::<f32>().unwrap(),
        [5.0, 9.0]
    );
}

#[test]
fn a_fault_is_an_error_of_what_depends_on_it_and_of_nothing_else() {
    let divide = MetalKernel::body("divide", "out[i] = 12 / x[i];");
    let divide = divide.input("x").output("out").index("i").build().unwrap();
    // Another test's launches must not be in the submission that fails.
    let device = Device::on(soft::device(SoftOptions::from_env().unwrap()).unwrap());
    let x = Tensor::from_slice(&[3, 0, 4], [3]).to(&device);
    let before = run(divide.call(&[&x.narrow(0, 2, 1)]).threads(1));
    before.eval().unwrap();
    device.synchronize().unwrap();
    let bad = run(divide.call(&[&x]).threads(3));
    let after = (&bad + 1).to_vec::<i32>().unwrap_err();
    match of_device(after) {
        bessemer_hal::Error::Execution { fault, kernel, .. } => {
            assert_eq!(
                (fault, kernel.as_deref()),
                (Fault::DivisionByZero, Some("divide"))
            );
        }
        // In check mode.
        bessemer_hal::Error::Checked { .. } => {}
        other => panic!("{other}"),
    }
    assert_eq!(before.to_vec::<i32>().unwrap(), [3]);
    let again = run(divide.call(&[&(&x + 1)]).threads(3));
    assert_eq!(again.to_vec::<i32>().unwrap(), [3, 12, 2]);
}

#[test]
fn a_promise_is_about_the_call_as_it_was() {
    if matches!(SoftOptions::from_env().unwrap().mode, Mode::Isolated) {
        return;
    }
    let x = on_device(&Tensor::from_slice(&[1.0_f32, 2.0], [2]));
    let call = || trusted(axpy().call(&[&x, &x]).scalar("a", 1.0).threads(2));
    assert_eq!(call().run().unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0]);
    let changed = [
        call().threads(1 << 20),
        call().scalar("a", 2.0),
        call().group(1),
        call().shape("out", [1]),
        call().dtype("out", DType::F16),
        call().init("out", 1.0),
        call().constant("A", 1),
        call().threadgroup("m", 1),
        call().threadgroups(9),
    ];
    for call in changed {
        let error = call.run().unwrap_err().to_string();
        // Some of them are also wrong.
        let is_refused = error.contains("does not contain kernels");
        assert!(
            is_refused || error.contains("given") || error.contains("there is no"),
            "{error}"
        );
    }
}

#[test]
fn text_that_is_no_body_is_a_compile_error() {
    let x = on_device(&Tensor::from_slice(&[1.0_f32], [1]));
    let long = "x[0]; ".repeat(20_000) + "missing;";
    for body in ["}", "{", "/*", "#error no", "é", &long] {
        let kernel = MetalKernel::body("odd", body).inout("x").build().unwrap();
        let Err(error) = trusted(kernel.call(&[&x]).threads(1)).run() else {
            panic!("{body:.10} is accepted");
        };
        let error = of_device(error);
        assert!(
            matches!(error, bessemer_hal::Error::Compile { .. }),
            "{body:.10}: {error}"
        );
    }
    for source in [
        "",
        "kernel",
        "struct odd;",
        "float odd(float x) { return x; }",
    ] {
        let kernel = MetalKernel::source("odd", source)
            .inout("x")
            .build()
            .unwrap();
        let error = trusted(kernel.call(&[&x]).threads(1)).run().unwrap_err();
        let error = of_device(error);
        let is_typed = matches!(
            error,
            bessemer_hal::Error::Compile { .. } | bessemer_hal::Error::UnknownFunction { .. }
        );
        assert!(is_typed, "{source}: {error}");
    }
}
