//! Instructions that run once per launch, between the instructions of lanes.

use bessemer::program::LaunchConfig;
use bessemer::{DType, Device};
use bessemer_hal::soft::Mode;
use bessemer_testing::number::ulp;
use bessemer_testing::tolerance::tolerance;

use crate::{ProgramCase, floats, soft, words};

/// Numbers between -3 and 3 without a pattern.
fn wave(count: usize) -> Vec<u8> {
    floats((0..count).map(|i| ((i * 7919 + i * i * 31) % 1009) as f32 / 168.0 - 3.0))
}

fn positive(count: usize) -> Vec<u8> {
    floats((0..count).map(|i| (i * 37 % 101) as f32 / 50.0 + 0.5))
}

/// Compares floats with those of the interpreter: within the tolerance of an op for results of this magnitude.
fn check(device: &Device, text: &str, buffers: &[Vec<u8>], op: (&str, usize, f64)) {
    let case = ProgramCase::new(text, LaunchConfig::linear(1, 1), buffers);
    let (expected, faults) = case.interpret();
    let (found, outcome) = case.execute(device);
    assert_eq!((faults, outcome), (Vec::new(), Ok(())), "{text}");
    let (name, terms, magnitude) = op;
    let tolerance = device.scope(|| tolerance(name, DType::F32, terms));
    for (expected, found) in expected.iter().zip(&found) {
        let pairs = expected
            .as_chunks::<4>()
            .0
            .iter()
            .zip(found.as_chunks::<4>().0);
        for (i, (expected, found)) in pairs.enumerate() {
            let [e, f] = [expected, found].map(|b| f64::from(f32::from_le_bytes(*b)));
            // The interpreter's result is rounded as well, by half a unit in the last place.
            let allowed = tolerance.allowed(DType::F32, e, magnitude) + 0.5 * ulp(DType::F32, e);
            let is_near = (e - f).abs() <= allowed || e == f || (e.is_nan() && f.is_nan());
            assert!(
                is_near,
                "{text}: element {i}: {f} instead of {e} ± {allowed}"
            );
        }
    }
}

#[test]
fn tensor_instructions_compute_what_the_interpreter_does() {
    let device = soft(Mode::Fast);
    let cases = [
        (
            "layer_norm.f32 input=r1, gamma=r2, beta=r3, output=r4, num_positions=3, hidden_dim=8, eps=1e-5",
            vec![wave(24), positive(8), wave(8), wave(30)],
            ("layer_norm", 8, 12.0),
        ),
        (
            "group_norm.f32 input=r1, gamma=r2, beta=r3, output=r4, batch_size=2, num_channels=4, height=3, width=2, num_groups=2, eps=1e-5",
            vec![wave(48), positive(4), wave(4), wave(48)],
            ("group_norm", 12, 12.0),
        ),
        (
            "batch_norm.f32 input=r1, scale=r2, bias=r3, mean=r4, variance=r5, output=r1, batch_size=2, num_channels=3, height=2, width=2, eps=1e-5",
            vec![wave(24), positive(3), wave(3), wave(3), positive(3)],
            ("batch_norm", 4, 20.0),
        ),
        (
            "conv2d.f32 input=r1, weights=r2, bias=r3, output=r4, batch_size=1, in_channels=2, in_height=5, in_width=4, out_channels=4, kernel_h=3, kernel_w=2, stride_h=2, stride_w=1, pad_top=1, pad_left=0, pad_bottom=2, pad_right=1, dilation_h=1, dilation_w=2, group=2, has_bias=true",
            vec![wave(40), wave(24), wave(4), wave(48)],
            ("conv", 6, 60.0),
        ),
        (
            "nearest_upsample2d.f32 input=r1, output=r2, batch_size=1, num_channels=2, in_height=2, in_width=3, scale_factor=3",
            vec![wave(12), wave(108)],
            ("copy", 1, 3.0),
        ),
        (
            "gemm.f32 matrix_a=r1, matrix_b=r2, matrix_c=r3, m=5, k=7, n=3",
            vec![wave(35), wave(21), wave(15)],
            ("matmul", 7, 63.0),
        ),
    ];
    for (text, buffers, op) in &cases {
        check(&device, text, buffers, *op);
    }
    let specials = floats([
        f32::NAN,
        0.5,
        -0.5,
        2.5,
        -1.5,
        0.499_999_97,
        f32::INFINITY,
        3.0,
    ]);
    for operation in [
        "round",
        "relu",
        "abs",
        "neg",
        "ceil",
        "floor",
        "sqrt",
        "reciprocal",
    ] {
        let text = format!("parallel_map.f32.{operation} input=r1, output=r2, count=8");
        check(
            &device,
            &text,
            &[specials.clone(), wave(8)],
            ("copy", 1, 3.0),
        );
    }
    for operation in ["exp", "log", "sin", "cos", "tan", "erf", "sigmoid", "tanh"] {
        let text = format!("parallel_map.f32.{operation} input=r1, output=r2, count=9");
        check(&device, &text, &[positive(9), wave(9)], (operation, 1, 3.0));
    }
    for operation in ["add", "sub", "mul", "div", "min", "max", "pow", "atan2"] {
        let text = format!(
            "parallel_map_binary.f32.{operation} input_a=r1, input_b=r2, output=r3, count=8"
        );
        let other = if operation == "pow" {
            positive(8)
        } else {
            specials.clone()
        };
        check(
            &device,
            &text,
            &[positive(8), other, wave(8)],
            (operation, 1, 3.0),
        );
    }
    for (operation, op) in [
        ("sum", "sum"),
        ("product", "prod"),
        ("min", "min"),
        ("max", "max"),
    ] {
        let text = format!("parallel_reduce.f32.{operation} input=r1, output=r2, count=9");
        check(&device, &text, &[positive(9), wave(3)], (op, 9, 12.0));
        let text = format!("parallel_reduce.f32.{operation} input=r1, output=r2, count=0");
        check(&device, &text, &[positive(9), wave(3)], (op, 1, 1.0));
    }
    let text = "parallel_reduce.f32.min input=r1, output=r2, count=8";
    check(&device, text, &[specials, wave(1)], ("min", 8, 3.0));
}

/// Lanes fill a pool, then a product of buffers that they have written is added to what they find there.
const STAGES: &str = "
    mov_imm.u32 r10, 2
    pool_alloc r20, 64
    shl.u64 r11, %global, r10
    cvt.u64.f32 r12, %global
    stg.f32 [r1 + r11], r12
    add.f32 r13, r12, r12
    pool_store.f32 r20, r11, r13
    mov_imm.u32 r30, 4
    gemm.f32 matrix_a=r1, matrix_b=r1, matrix_c=r2, m=4, k=4, n=4
    mov_imm.u32 r10, 2
    shl.u64 r11, %global, r10
    ldg.f32 r12, [r2 + r11]
    pool_load.f32 r13, r20, r11
    add.f32 r12, r12, r13
    stg.f32 [r2 + r11], r12
    setcc.u32.eq p0, %lane, r30
    bra.p0 @four
    bra @end
four:
    stg.f32 [r1 + r11], r12
end:
    pool_free r20
";

#[test]
fn stages_run_in_order_and_keep_what_a_launch_knows() {
    let config = LaunchConfig::linear(16, 8);
    let buffers = [floats([0.5; 16]), words([0; 16])];
    let case = ProgramCase::new(STAGES, config, &buffers);
    let (expected, faults) = case.interpret();
    assert_eq!(faults, []);
    // 0·0 + 1·4 + 2·8 + 3·12 = 56, and twice 0.
    assert_eq!(expected[1][..4], 56_f32.to_le_bytes());
    case.check(&soft(Mode::Fast));
    case.check(&Device::cpu());
}

#[test]
fn a_buffer_that_is_too_short_or_unknown_is_the_fault_of_its_instruction() {
    let device = soft(Mode::Fast);
    for text in [
        "gemm.f32 matrix_a=r1, matrix_b=r1, matrix_c=r2, m=4, k=4, n=4",
        "mov_imm.u64 r9, 9\nparallel_map.f32.abs input=r9, output=r1, count=4",
        "mov_imm.u64 r9, 1\nparallel_map.f32.abs input=r9, output=r1, count=4000",
    ] {
        let buffers = [wave(16), wave(8)];
        ProgramCase::new(text, LaunchConfig::linear(4, 2), &buffers).check(&device);
    }
}
