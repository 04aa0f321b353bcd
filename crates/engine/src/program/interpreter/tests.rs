use proptest::prelude::*;

use super::super::tests::random_program;
use super::super::{BufferMemory, LaunchConfig};
use super::*;

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn to_f32s(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect()
}

fn to_u32s(bytes: &[u8]) -> Vec<u32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|&b| u32::from_le_bytes(b))
        .collect()
}

/// Runs a program on buffers 1, 2, …, whose handles are in r1, r2, …, and returns the outcome and the memory.
fn run(text: &str, config: LaunchConfig, buffers: &[Vec<u8>]) -> (Outcome, BufferMemory) {
    let program: Program = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut memory = BufferMemory::new();
    let mut params = ExecutionParams::new(config);
    for (handle, bytes) in (1..).zip(buffers) {
        memory.insert(handle, bytes.clone());
        params = params.with_register(Register(handle as u8), handle);
    }
    let interpreter = Interpreter::new(&program).unwrap().with_step_limit(100_000);
    let outcome = interpreter.run_to_end(&params, &mut memory).unwrap();
    (outcome, memory)
}

fn clean(text: &str, config: LaunchConfig, buffers: &[Vec<u8>]) -> BufferMemory {
    let (outcome, memory) = run(text, config, buffers);
    assert_eq!(outcome.faults, [], "{text}");
    memory
}

/// The faults of a single lane.
fn faults(text: &str, buffers: &[Vec<u8>]) -> Vec<FaultKind> {
    let (outcome, _) = run(text, LaunchConfig::linear(1, 1), buffers);
    outcome.faults.into_iter().map(|f| f.kind).collect()
}

const VECTOR_ADD: &str = "
    ; c = a + b for the first r4 elements
    mov_imm.u64 r4, 5
    setcc.u64.ge p0, %global, r4
    bra.p0 @end
    mov_imm.u32 r5, 2
    shl.u64 r0, %global, r5
    ldg.f32 r6, [r1 + r0]
    ldg.f32 r7, [r2 + r0]
    add.f32 r8, r6, r7
    stg.f32 [r3 + r0], r8
    end:
";

#[test]
fn lanes_beyond_the_bound_write_nothing() {
    let a = f32s(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let memory = clean(
        VECTOR_ADD,
        LaunchConfig::linear(5, 4),
        &[a.clone(), a, vec![0; 24]],
    );
    assert_eq!(
        to_f32s(memory.buffer(3).unwrap()),
        [2.0, 4.0, 6.0, 8.0, 10.0, 0.0]
    );
}

#[test]
fn position_registers_number_lanes_and_blocks() {
    let config = LaunchConfig {
        grid: super::super::GridDim { x: 2, y: 2, z: 1 },
        block: super::super::BlockDim { x: 2, y: 2, z: 1 },
        ..LaunchConfig::linear(1, 1)
    };
    let text = "
        mov_imm.u32 r5, 4
        shl.u64 r0, %global, r5
        stg.u32 [r1 + r0], %lane
        mov_imm.u64 r6, 4
        add.u64 r0, r0, r6
        stg.u32 [r1 + r0], %block
        add.u64 r0, r0, r6
        stg.u32 [r1 + r0], %block_dim
        add.u64 r0, r0, r6
        cvt.u64.u32 r7, %global
        stg.u32 [r1 + r0], r7
    ";
    let memory = clean(text, config, &[vec![0; 16 * 16]]);
    let rows = to_u32s(memory.buffer(1).unwrap());
    let row = |lane: usize| &rows[4 * lane..4 * lane + 4];
    assert_eq!(row(0), [0, 0, 2, 0]);
    assert_eq!(row(1), [1, 0, 2, 1]);
    assert_eq!(row(2), [0, 0, 2, 2]);
    assert_eq!(row(5), [1, 1, 2, 5]);
    assert_eq!(row(15), [1, 1, 2, 15]);
}

#[test]
fn a_barrier_separates_writes_of_shared_memory_from_reads() {
    // Every lane stores its number and reads that of its mirror image.
    let text = "
        mov_imm.u32 r5, 2
        mov_imm.u32 r6, 7
        mov_imm.u64 r7, 0
        shl.u32 r8, %lane, r5
        cvt.u32.u64 r9, r8
        sts.u32 [r7 + r9], %lane
        bar_sync 0
        sub.u32 r8, r6, %lane
        shl.u32 r8, r8, r5
        cvt.u32.u64 r10, r8
        lds.u32 r11, [r7 + r10]
        stg.u32 [r1 + r9], r11
    ";
    let config = LaunchConfig::linear(8, 8).with_shared_memory(32);
    let memory = clean(text, config, &[vec![0; 32]]);
    assert_eq!(to_u32s(memory.buffer(1).unwrap()), [7, 6, 5, 4, 3, 2, 1, 0]);
}

#[test]
fn a_barrier_waits_only_for_lanes_that_have_not_ended() {
    let text = "
        mov_imm.u32 r5, 2
        setcc.u32.lt p0, %lane, r5
        bra.p0 @end
        bar_sync 1
        mov_imm.u32 r6, 9
        stg.u32 [r1], r6
        end:
    ";
    let memory = clean(text, LaunchConfig::linear(4, 4), &[vec![0; 4]]);
    assert_eq!(to_u32s(memory.buffer(1).unwrap()), [9]);
}

#[test]
fn lanes_at_different_barriers_are_a_fault() {
    let text = "
        mov_imm.u32 r5, 1
        setcc.u32.lt p0, %lane, r5
        bra.p0 @other
        bar_sync 1
        exit
        other: bar_sync 2
    ";
    let (outcome, _) = run(text, LaunchConfig::linear(2, 2), &[]);
    let kinds: Vec<_> = outcome.faults.iter().map(|f| (f.index, f.lane)).collect();
    assert_eq!(kinds, [(5, 0), (3, 1)]);
    assert_eq!(
        outcome.faults[0].kind,
        FaultKind::DivergentBarrier { block: 0 }
    );
}

#[test]
fn loops_count_down_and_calls_return() {
    let text = "
        mov_imm.u32 r5, 9
        mov_imm.u32 r6, 0
        again:
        call @increment
        loop r5, @again
        stg.u32 [r1], r6
        stg.u32 [r1 + 4], r5
        exit
        increment:
        mov_imm.u32 r7, 1
        add.u32 r6, r6, r7
        ret
    ";
    let memory = clean(text, LaunchConfig::linear(1, 1), &[vec![0; 8]]);
    // The body runs once before the first test, and nine times after it.
    assert_eq!(to_u32s(memory.buffer(1).unwrap()), [10, 0]);
}

#[test]
fn failures_of_a_lane_are_typed_and_name_the_instruction() {
    let one = [vec![0_u8; 4]];
    let zero = "mov_imm.i32 r5, 0\ndiv.i32 r6, r5, r5";
    assert_eq!(faults(zero, &[]), [FaultKind::DivisionByZero]);
    assert_eq!(
        faults("ldg.f32 r5, [r1 + 4]", &one),
        [FaultKind::BufferOutOfBounds {
            offset: 4,
            size: 4,
            buffer_size: 4
        }]
    );
    assert_eq!(
        faults("ldg.f32 r5, [r1 + 2]", &one),
        [FaultKind::InvalidMemoryAddress {
            offset: 2,
            dtype: DType::F32
        }]
    );
    assert_eq!(
        faults("ldg.f32 r5, [r1 + -4]", &one),
        [FaultKind::BufferOutOfBounds {
            offset: u64::MAX - 3,
            size: 4,
            buffer_size: 4
        }]
    );
    assert_eq!(
        faults("ldg.f32 r5, [b77]", &[]),
        [FaultKind::InvalidBufferHandle(77)]
    );
    assert_eq!(
        faults("mov_imm.u64 r5, 3\npool_load.f32 r6, r5, r5", &[]),
        [FaultKind::InvalidMemoryAddress {
            offset: 3,
            dtype: DType::F32
        }]
    );
    assert_eq!(
        faults("mov_imm.u64 r5, 8\npool_load.f32 r6, r5, r5", &[]),
        [FaultKind::InvalidPoolHandle(8)]
    );
    assert_eq!(
        faults("lds.f32 r5, [b0]", &[]),
        [FaultKind::SharedOutOfBounds {
            offset: 0,
            size: 4,
            shared_size: 0
        }]
    );
    assert_eq!(
        faults("neg.f32 r5, r6", &[]),
        [FaultKind::UninitializedRegister(Register(6))]
    );
    assert_eq!(
        faults("a: bra.p2 @a", &[]),
        [FaultKind::UninitializedPredicate(Predicate(2))]
    );
    assert_eq!(
        faults("mov_imm.u32 r5, 1\nneg.f32 r5, r5", &[]),
        [FaultKind::TypeMismatch {
            register: Register(5),
            expected: DType::F32,
            actual: DType::U32
        }]
    );
    assert_eq!(
        faults("a: call @a", &[]),
        [FaultKind::CallStackOverflow(256)]
    );
    assert_eq!(faults("ret", &[]), [FaultKind::CallStackUnderflow]);
    assert_eq!(faults("a: bra @a", &[]), [FaultKind::StepLimit(100_000)]);
    assert_eq!(
        faults("mov_imm.u8 r5, 96\nmirror r6, r5", &[]),
        [FaultKind::InvalidClassIndex(96)]
    );
}

#[test]
fn run_fails_with_the_first_fault_and_other_lanes_go_on() {
    let text = "
        mov_imm.u32 r5, 2
        shl.u64 r0, %global, r5
        mov_imm.u32 r6, 6
        div.u32 r7, r6, %lane
        stg.u32 [r1 + r0], r7
    ";
    let program: Program = text.parse().unwrap();
    let mut memory = BufferMemory::new();
    memory.insert(1, vec![0; 16]);
    let params = ExecutionParams::new(LaunchConfig::linear(4, 4)).with_register(Register(1), 1);
    let error = Interpreter::new(&program)
        .unwrap()
        .run(&params, &mut memory)
        .unwrap_err();
    assert_eq!(error.to_string(), "instruction 3, lane 0: division by zero");
    assert_eq!(to_u32s(memory.buffer(1).unwrap()), [0, 6, 3, 2]);
}

#[test]
fn classes_phases_and_resonance_follow_the_block_and_the_lane() {
    let text = "
        cls_get r5
        cvt.u8.u32 r6, r5
        mov_imm.u32 r7, 3
        shl.u64 r0, %global, r7
        stg.u32 [r1 + r0], r6
        phase_adv 700
        phase_adv 100
        phase_get r8
        mov_imm.u64 r9, 4
        add.u64 r0, r0, r9
        stg.u32 [r1 + r0], r8
        mov_imm.f64 r10, 0.5
        res_accum r5, r10
    ";
    let (outcome, memory) = run(text, LaunchConfig::linear(98, 1), &[vec![0; 98 * 8]]);
    assert_eq!(outcome.faults, []);
    let pairs = to_u32s(memory.buffer(1).unwrap());
    assert_eq!(pairs[2 * 95..], [95, 32, 0, 32, 1, 32]);
    assert_eq!(outcome.resonance[..3], [1.0, 1.0, 0.5]);
}

#[test]
fn tensor_instructions_run_once_per_launch() {
    // r3 = relu(r1 · r2): were it computed by each lane, or before all had stored, the result would differ.
    let text = "
        mov_imm.u32 r5, 2
        shl.u64 r0, %global, r5
        ldg.f32 r6, [r1 + r0]
        neg.f32 r6, r6
        stg.f32 [r1 + r0], r6
        gemm.f32 matrix_a=r1, matrix_b=r2, matrix_c=r3, m=2, k=2, n=2
        parallel_map.f32.relu input=r3, output=r3, count=4
        ldg.f32 r6, [r3 + r0]
        add.f32 r6, r6, r6
        stg.f32 [r3 + r0], r6
    ";
    let a = f32s(&[1.0, -2.0, 3.0, -4.0]);
    let b = f32s(&[1.0, 0.0, 0.0, -1.0]);
    let memory = clean(text, LaunchConfig::linear(4, 2), &[a, b, vec![0; 16]]);
    assert_eq!(to_f32s(memory.buffer(3).unwrap()), [0.0, 0.0, 0.0, 0.0]);
    let memory = clean(
        text,
        LaunchConfig::linear(4, 2),
        &[
            f32s(&[-1.0, 2.0, -3.0, 4.0]),
            f32s(&[1.0, 0.0, 0.0, -1.0]),
            vec![0; 16],
        ],
    );
    assert_eq!(to_f32s(memory.buffer(3).unwrap()), [2.0, 4.0, 6.0, 8.0]);
}

#[test]
fn a_tensor_instruction_that_only_some_lanes_reach_waits_for_the_others_to_end() {
    let text = "
        mov_imm.u32 r5, 1
        setcc.u32.lt p0, %lane, r5
        bra.p0 @first
        exit
        first:
        parallel_reduce.f32.sum input=r1, output=r2, count=3
    ";
    let memory = clean(
        text,
        LaunchConfig::linear(2, 2),
        &[f32s(&[1.0, 2.0, 4.0]), vec![0; 4]],
    );
    assert_eq!(to_f32s(memory.buffer(2).unwrap()), [7.0]);
}

#[test]
fn lanes_that_disagree_on_a_tensor_instruction_are_a_fault() {
    let text = "parallel_map.f32.abs input=%global, output=r1, count=0";
    let (outcome, _) = run(text, LaunchConfig::linear(2, 2), &[vec![]]);
    assert_eq!(outcome.faults[0].kind, FaultKind::DivergentLaunch);
    let short = "parallel_map.f32.abs input=r1, output=r1, count=2";
    assert_eq!(
        faults(short, &[vec![0; 4]]),
        [FaultKind::BufferOutOfBounds {
            offset: 7,
            size: 1,
            buffer_size: 4
        }]
    );
}

#[test]
fn pools_are_allocated_for_the_launch() {
    let text = "
        pool_alloc r5, 16
        mov_imm.u32 r6, 2
        shl.u64 r0, %global, r6
        cvt.u64.u32 r7, %global
        pool_store.u32 r5, r0, r7
        bar_sync 0
        mov_imm.u64 r8, 12
        sub.u64 r9, r8, r0
        pool_load.u32 r10, r5, r9
        stg.u32 [r1 + r0], r10
        pool_free r5
    ";
    let memory = clean(text, LaunchConfig::linear(4, 4), &[vec![0; 16]]);
    assert_eq!(to_u32s(memory.buffer(1).unwrap()), [3, 2, 1, 0]);
    assert_eq!(
        faults("pool_alloc r5, 2000000000000", &[]),
        [FaultKind::OutOfMemory(2_000_000_000_000)]
    );
}

#[test]
fn norms_convolution_and_upsampling_have_their_values() {
    let once = LaunchConfig::linear(1, 1);
    let x = f32s(&[1.0, 3.0, -2.0, 2.0]);
    let norm = "layer_norm.f32 input=r1, gamma=r2, beta=r3, output=r4, num_positions=2, hidden_dim=2, eps=0.0";
    let gamma = f32s(&[2.0, 1.0]);
    let beta = f32s(&[0.0, 0.5]);
    let memory = clean(
        norm,
        once,
        &[x.clone(), gamma.clone(), beta.clone(), vec![0; 16]],
    );
    assert_eq!(to_f32s(memory.buffer(4).unwrap()), [-2.0, 1.5, -2.0, 1.5]);
    let group = "group_norm.f32 input=r1, gamma=r2, beta=r3, output=r4, batch_size=1, num_channels=2, height=1, width=2, \
                 num_groups=2, eps=0.0";
    let memory = clean(group, once, &[x.clone(), gamma, beta, vec![0; 16]]);
    assert_eq!(to_f32s(memory.buffer(4).unwrap()), [-2.0, 2.0, -0.5, 1.5]);
    let batch = "batch_norm.f32 input=r1, scale=r2, bias=r3, mean=r4, variance=r5, output=r6, batch_size=1, num_channels=2, \
                 height=1, width=2, eps=0.0";
    let [scale, bias, mean, variance] =
        [[1.0, 2.0], [0.0, 1.0], [1.0, 0.0], [4.0, 1.0]].map(|v| f32s(&v));
    let memory = clean(
        batch,
        once,
        &[x.clone(), scale, bias, mean, variance, vec![0; 16]],
    );
    assert_eq!(to_f32s(memory.buffer(6).unwrap()), [0.0, 1.0, -3.0, 5.0]);
    let conv = "conv2d.f32 input=r1, weights=r2, bias=r3, output=r4, batch_size=1, in_channels=1, in_height=2, in_width=2, \
                out_channels=1, kernel_h=2, kernel_w=2, stride_h=1, stride_w=1, pad_top=1, pad_left=0, pad_bottom=0, \
                pad_right=0, dilation_h=1, dilation_w=1, group=1, has_bias=true";
    let memory = clean(
        conv,
        once,
        &[
            x.clone(),
            f32s(&[1.0, 10.0, 100.0, 1000.0]),
            f32s(&[0.5]),
            vec![0; 8],
        ],
    );
    assert_eq!(to_f32s(memory.buffer(4).unwrap()), [3100.5, 1831.5]);
    let up = "nearest_upsample2d.f32 input=r1, output=r2, batch_size=1, num_channels=2, in_height=1, in_width=2, scale_factor=2";
    let memory = clean(up, once, &[x, vec![0; 64]]);
    assert_eq!(
        to_f32s(memory.buffer(2).unwrap()),
        [
            1.0, 1.0, 3.0, 3.0, 1.0, 1.0, 3.0, 3.0, -2.0, -2.0, 2.0, 2.0, -2.0, -2.0, 2.0, 2.0
        ]
    );
}

#[test]
fn launches_that_cannot_run_are_rejected() {
    let program = Program::new();
    let interpreter = Interpreter::new(&program).unwrap();
    for config in [
        LaunchConfig::linear(10, 0),
        LaunchConfig::linear(10, 1025),
        LaunchConfig::linear(10, 1).with_shared_memory(33 << 10),
    ] {
        let outcome = interpreter.run(&ExecutionParams::new(config), &mut BufferMemory::new());
        assert!(
            matches!(outcome, Err(ProgramError::InvalidLaunch(_))),
            "{config:?}"
        );
    }
    let empty = LaunchConfig::linear(0, 4);
    assert!(
        interpreter
            .run(&ExecutionParams::new(empty), &mut BufferMemory::new())
            .is_ok()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_programs_end_without_a_panic(
        numbers in prop::collection::vec(any::<u64>(), 1..200),
        len in 0_usize..40,
        lanes in 1_u32..5,
    ) {
        let program = random_program(&numbers, len);
        let mut memory = BufferMemory::new();
        memory.insert(1, vec![0; 64]);
        let mut params = ExecutionParams::new(LaunchConfig::linear(lanes, 2).with_shared_memory(16));
        for register in 0..8 {
            params = params.with_register(Register(register), u64::from(register % 2));
        }
        let interpreter = Interpreter::new(&program).unwrap().with_step_limit(1_000);
        let outcome = interpreter.run_to_end(&params, &mut memory).unwrap();
        // A program that verifies never reads a register that it may not.
        let registers: Vec<_> = params.initial_registers.keys().copied().collect();
        if program.verify(&registers).is_ok() {
            for fault in outcome.faults {
                let is_typed = matches!(
                    fault.kind,
                    FaultKind::TypeMismatch { .. } | FaultKind::UninitializedRegister(_) | FaultKind::UninitializedPredicate(_)
                );
                prop_assert!(!is_typed, "{fault}\n{program}");
            }
        }
    }
}
