//! The CPU's executor of programs against the interpreter, which defines what they mean: memory, faults in their order, and
//! sums are the same, at every SIMD level, with one thread and with two. Both are properties of the process, so this is a
//! process of its own, and its tests take turns.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::sync::{Mutex, MutexGuard, PoisonError};

use bessemer::DType;
use bessemer::pool;
use bessemer::program::{
    BlockDim, BufferBytes, BufferMemory, CpuExecutor, ExecutionParams, FaultKind, GridDim,
    Interpreter, LaunchConfig, Memory, MemoryView, Outcome, Program, ProgramError, Register,
};
use bessemer::simd::{Level, set_level};
use bessemer_testing::tolerance::{Tolerance, tolerance};

#[path = "program_cpu/random.rs"]
mod random;

use self::random::Numbers;

static TURN: Mutex<()> = Mutex::new(());

/// Waits for the other tests, and restores the process afterwards.
struct Turn {
    level: Level,
    threads: usize,
    _guard: MutexGuard<'static, ()>,
}

impl Turn {
    fn take() -> Self {
        let guard = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            level: bessemer::simd::level(),
            threads: pool::threads(),
            _guard: guard,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        set_level(self.level);
        pool::set_threads(self.threads);
    }
}

/// The memory of a test: buffers 1, 2, …, whose handles are in r1, r2, ….
#[derive(Clone, Debug)]
struct Buffers(Vec<(DType, Vec<u8>)>);

/// Block sizes of the tests: single lanes, parts of a vector, and more lanes than a group has.
const BLOCK_SIZES: [u32; 5] = [1, 31, 256, 257, 1024];

const STEP_LIMIT: u64 = 5000;

impl Buffers {
    fn memory(&self) -> BufferMemory {
        let mut memory = BufferMemory::new();
        for (handle, (_, bytes)) in (1..).zip(&self.0) {
            memory.insert(handle, bytes.clone());
        }
        memory
    }

    fn params(&self, config: LaunchConfig) -> ExecutionParams {
        let handles = 1..=self.0.len() as u64;
        handles.fold(ExecutionParams::new(config), |params, handle| {
            params.with_register(Register(handle as u8), handle)
        })
    }
}

/// The element of a buffer as bits.
fn bits(dtype: DType, bytes: &[u8], index: usize) -> u64 {
    let size = dtype.size();
    let mut all = [0; 8];
    all[..size].copy_from_slice(&bytes[index * size..][..size]);
    u64::from_le_bytes(all)
}

fn to_f64(dtype: DType, bits: u64) -> f64 {
    bessemer::program::Value::from_bits(dtype, bits).to_f64()
}

/// Runs a program on both, and compares. `function` names the function whose tolerance counts; otherwise all bits are the
/// same, except those of NaN.
fn agree(
    program: &Program,
    buffers: &Buffers,
    config: LaunchConfig,
    function: Option<&str>,
) -> Outcome {
    let params = buffers.params(config);
    let mut expected = buffers.memory();
    let interpreter = Interpreter::new(program)
        .unwrap()
        .with_step_limit(STEP_LIMIT);
    let outcome = interpreter.run_to_end(&params, &mut expected).unwrap();
    let executor = CpuExecutor::new(program)
        .unwrap()
        .with_step_limit(STEP_LIMIT);
    let mut memory = buffers.memory();
    let got = executor.run_to_end(&params, &mut memory).unwrap();
    assert_eq!(got, outcome, "{program}\n{config:?}");
    for (handle, (dtype, bytes)) in (1..).zip(&buffers.0) {
        let (got, expected) = (
            memory.buffer(handle).unwrap(),
            expected.buffer(handle).unwrap(),
        );
        if got == expected {
            continue;
        }
        for index in 0..bytes.len() / dtype.size() {
            let [got, expected] = [got, expected].map(|all| bits(*dtype, all, index));
            let [x, y] = [got, expected].map(|b| to_f64(*dtype, b));
            // The interpreter's result is rounded, too.
            let allowed = function.map_or(0.0, |f| {
                let bound = |t: Tolerance| t.allowed(*dtype, y, y.abs());
                bound(tolerance(f, *dtype, 1)) + bound(Tolerance::EXACT)
            });
            let is_same = got == expected
                || (dtype.is_float() && (x.is_nan() && y.is_nan() || (x - y).abs() <= allowed));
            assert!(
                is_same,
                "buffer {handle}, element {index}: {x:?} ({got:#x}) for {y:?} ({expected:#x})\n{program}\n{config:?}"
            );
        }
    }
    outcome
}

/// Values of a type that are often special.
fn values(dtype: DType, count: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers::new(seed);
    let special: &[f64] = &[
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        3.0,
        7.0,
        31.0,
        32.0,
        33.0,
        63.0,
        64.0,
        100.0,
        -128.0,
        127.0,
        128.0,
        255.0,
        1e-3,
        -2.5,
        0.1,
        65504.0,
        1e10,
        1e38,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let mut bytes = Vec::with_capacity(count * dtype.size());
    for _ in 0..count {
        let value = if dtype.is_float() {
            let x = match numbers.below(3) {
                0 => special[numbers.below(special.len())],
                _ => (numbers.next() % 20_001) as f64 / 1000.0 - 10.0,
            };
            match dtype {
                DType::F64 => x.to_bits(),
                DType::F32 => (x as f32).to_bits().into(),
                DType::F16 => half::f16::from_f64(x).to_bits().into(),
                _ => half::bf16::from_f64(x).to_bits().into(),
            }
        } else {
            match numbers.below(4) {
                0 => 0,
                1 => (numbers.next() % 80).wrapping_sub(10),
                2 => 1 << (8 * dtype.size() - 1),
                _ => numbers.next(),
            }
        };
        bytes.extend_from_slice(&value.to_le_bytes()[..dtype.size()]);
    }
    bytes
}

const TYPES: [DType; 12] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Number of elements of a test on values: more than a group, no multiple of a vector.
const COUNT: usize = 2500;

/// A program that applies `body` to elements of r1, r2 and r3 in r10, r11 and r12, and stores r13 to r4. What it cannot
/// express as a fused op runs on groups of lanes; `prefix` forces that.
fn elementwise(prefix: &str, from: DType, to: DType, body: &str) -> Program {
    let text = format!(
        "{prefix}
         mov_imm.u64 r5, {count}
         setcc.u64.ge p15, %global, r5
         bra.p15 @end
         mov_imm.u32 r6, {shift}
         mov_imm.u32 r7, {to_shift}
         shl.u64 r8, %global, r6
         shl.u64 r9, %global, r7
         ldg.{from} r10, [r1 + r8]
         ldg.{from} r11, [r2 + r8]
         ldg.{from} r12, [r3 + r8]
         {body}
         stg.{to} [r4 + r9], r13
         end:",
        count = COUNT,
        shift = from.size().trailing_zeros(),
        to_shift = to.size().trailing_zeros(),
    );
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn check_elementwise(from: DType, to: DType, body: &str, function: Option<&str>) {
    let mut all: Vec<_> = (1..=3)
        .map(|seed| (from, values(from, COUNT, seed)))
        .collect();
    all.push((to, vec![0; COUNT * to.size()]));
    for prefix in ["", "phase_adv 0"] {
        let program = elementwise(prefix, from, to, body);
        let buffers = Buffers(all.clone());
        // Faults are reported up to a thousand; blocks of any size have the same results.
        for block in [31, 256] {
            agree(
                &program,
                &buffers,
                LaunchConfig::linear(COUNT as u32 + 40, block),
                function,
            );
        }
    }
}

/// Checks functions of elements at every level.
fn at_every_level(check: impl Fn()) {
    for level in Level::ALL {
        if set_level(level) {
            check();
        }
    }
}

#[test]
fn instructions_on_integers_have_the_same_bits() {
    let _turn = Turn::take();
    at_every_level(|| {
        for dtype in TYPES.into_iter().filter(|d| d.is_int()) {
            for name in ["add", "sub", "mul", "div", "min", "max", "and", "or", "xor"] {
                check_elementwise(dtype, dtype, &format!("{name}.{dtype} r13, r10, r11"), None);
            }
            check_elementwise(dtype, dtype, &format!("not.{dtype} r13, r10"), None);
            check_elementwise(
                dtype,
                dtype,
                &format!("mad.{dtype} r13, r10, r11, r12"),
                None,
            );
            for name in ["shl", "shr"] {
                let body = format!("cvt.{dtype}.u32 r14, r11\n{name}.{dtype} r13, r10, r14");
                check_elementwise(dtype, dtype, &body, None);
                let body = format!("mov_imm.u32 r14, 37\n{name}.{dtype} r13, r10, r14");
                check_elementwise(dtype, dtype, &body, None);
            }
            for name in ["reduce_add", "reduce_mul", "reduce_min", "reduce_max"] {
                check_elementwise(dtype, dtype, &format!("{name}.{dtype} r13, r10, 3"), None);
                // The result is one of the registers.
                let body = format!("{name}.{dtype} r11, r10, 3\nmov.{dtype} r13, r11");
                check_elementwise(dtype, dtype, &body, None);
            }
            if !dtype.is_unsigned() {
                check_elementwise(dtype, dtype, &format!("abs.{dtype} r13, r10"), None);
                check_elementwise(dtype, dtype, &format!("neg.{dtype} r13, r10"), None);
            }
        }
    });
}

#[test]
fn arithmetic_on_floats_has_the_same_bits() {
    let _turn = Turn::take();
    at_every_level(|| {
        for dtype in TYPES.into_iter().filter(|d| d.is_float()) {
            for name in ["add", "sub", "mul", "div", "min", "max"] {
                check_elementwise(dtype, dtype, &format!("{name}.{dtype} r13, r10, r11"), None);
            }
            for name in ["mad", "fma"] {
                check_elementwise(
                    dtype,
                    dtype,
                    &format!("{name}.{dtype} r13, r10, r11, r12"),
                    None,
                );
            }
            for name in ["abs", "neg", "sqrt"] {
                check_elementwise(dtype, dtype, &format!("{name}.{dtype} r13, r10"), None);
            }
            for name in ["reduce_add", "reduce_mul", "reduce_min", "reduce_max"] {
                check_elementwise(dtype, dtype, &format!("{name}.{dtype} r13, r10, 3"), None);
            }
            check_elementwise(dtype, dtype, &format!("add.{dtype} r13, r10, r10"), None);
            check_elementwise(
                dtype,
                dtype,
                &format!("fma.{dtype} r13, r11, r10, r10"),
                None,
            );
            let constant = format!("mov_imm.{dtype} r14, 1.5\nmax.{dtype} r13, r10, r14");
            check_elementwise(dtype, dtype, &constant, None);
        }
    });
}

#[test]
fn elementary_functions_are_within_the_bounds_of_tensors() {
    let _turn = Turn::take();
    at_every_level(|| {
        for dtype in TYPES.into_iter().filter(|d| d.is_float()) {
            for name in [
                "exp", "log", "log2", "log10", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid",
            ] {
                check_elementwise(
                    dtype,
                    dtype,
                    &format!("{name}.{dtype} r13, r10"),
                    Some(name),
                );
            }
            check_elementwise(
                dtype,
                dtype,
                &format!("pow.{dtype} r13, r10, r11"),
                Some("pow"),
            );
        }
    });
}

#[test]
fn conversions_comparisons_and_selections_have_the_same_bits() {
    let _turn = Turn::take();
    at_every_level(|| {
        for from in TYPES {
            for to in TYPES {
                check_elementwise(from, to, &format!("cvt.{from}.{to} r13, r10"), None);
            }
            let conditions = [
                "eq", "ne", "lt", "le", "gt", "ge", "ltu", "leu", "gtu", "geu",
            ];
            let count = if from.is_unsigned() { 10 } else { 6 };
            for condition in &conditions[..count] {
                let body = format!(
                    "setcc.{from}.{condition} p3, r10, r11
                     sel.{from} r13, p3, r12, r10"
                );
                check_elementwise(from, from, &body, None);
            }
            check_elementwise(from, from, &format!("mov.{from} r13, r12"), None);
            check_elementwise(from, from, &format!("mov_imm.{from} r13, 77"), None);
        }
    });
}

fn config(lanes: u32, block: u32) -> LaunchConfig {
    LaunchConfig::linear(lanes, block).with_shared_memory(8192)
}

/// Runs a program with every block size and both numbers of threads.
fn agree_everywhere(program: &Program, buffers: &Buffers, lanes: u32) {
    for threads in [1, 2] {
        pool::set_threads(threads);
        for block in BLOCK_SIZES {
            agree(program, buffers, config(lanes, block), None);
        }
    }
}

fn parse(text: &str) -> Program {
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn zeros(dtype: DType, count: usize) -> (DType, Vec<u8>) {
    (dtype, vec![0; count * dtype.size()])
}

#[test]
fn lanes_meet_again_behind_branches_loops_and_calls() {
    let _turn = Turn::take();
    let program = parse(
        "
        mov_imm.u32 r5, 2
        shl.u64 r8, %global, r5
        cvt.u64.u32 r9, %global
        mov_imm.u32 r10, 7
        and.u32 r11, r9, r10
        mov_imm.u32 r12, 1
    again:
        call @collatz
        loop r11, @again
        stg.u32 [r1 + r8], r9
        stg.u32 [r2 + r8], r12
        exit
    collatz:
        mov_imm.u32 r13, 1
        add.u32 r12, r12, r13
        and.u32 r14, r9, r13
        setcc.u32.eq p0, r14, r13
        bra.p0 @odd
        shr.u32 r9, r9, r13
        ret
    odd:
        mov_imm.u32 r15, 3
        mad.u32 r9, r9, r15, r13
        ret
    ",
    );
    let buffers = Buffers(vec![zeros(DType::U32, 20_000), zeros(DType::U32, 20_000)]);
    assert_eq!(
        CpuExecutor::new(&program)
            .unwrap()
            .refusal(&[Register(1), Register(2)]),
        None
    );
    agree_everywhere(&program, &buffers, 17_000);
}

#[test]
fn irreducible_loops_run_as_interpreted() {
    let _turn = Turn::take();
    // A loop with two entries: even lanes enter it at `second`.
    let program = parse(
        "
        mov_imm.u32 r5, 2
        shl.u64 r8, %global, r5
        cvt.u64.u32 r9, %global
        mov_imm.u32 r10, 1
        mov_imm.u32 r11, 0
        mov_imm.u32 r13, 50
        and.u32 r12, r9, r10
        setcc.u32.ne p0, r12, r10
        bra.p0 @second
    first:
        add.u32 r11, r11, r9
        add.u32 r11, r11, r10
    second:
        mad.u32 r11, r11, r10, r10
        setcc.u32.lt p1, r11, r13
        bra.p1 @first
        stg.u32 [r1 + r8], r11
    ",
    );
    let buffers = Buffers(vec![zeros(DType::U32, 3000)]);
    agree_everywhere(&program, &buffers, 1500);
}

#[test]
fn barriers_join_the_lanes_that_have_not_ended() {
    let _turn = Turn::take();
    // A sum of the block by halves in shared memory; lanes that are not needed end early, in the middle of a loop with a
    // barrier.
    let program = parse(
        "
        mov_imm.u32 r5, 2
        mov_imm.u64 r6, 0
        mov_imm.u32 r20, 1
        shl.u64 r8, %global, r5
        cvt.u32.u64 r9, %lane
        shl.u64 r9, r9, r5
        ldg.u32 r10, [r1 + r8]
        sts.u32 [r6 + r9], r10
        mov.u32 r11, %block_dim
        bar_sync 0
    halve:
        setcc.u32.le p0, r11, r20
        bra.p0 @done
        add.u32 r12, r11, r20
        shr.u32 r12, r12, r20
        setcc.u32.ge p1, %lane, r12
        bra.p1 @end
        add.u32 r13, %lane, r12
        setcc.u32.ge p2, r13, r11
        bra.p2 @skip
        cvt.u32.u64 r14, r13
        shl.u64 r14, r14, r5
        lds.u32 r15, [r6 + r14]
        lds.u32 r16, [r6 + r9]
        add.u32 r16, r16, r15
        sts.u32 [r6 + r9], r16
    skip:
        mov.u32 r11, r12
        bar_sync 0
        bra @halve
    done:
        lds.u32 r16, [r6 + r9]
        cvt.u32.u64 r17, %block
        shl.u64 r17, r17, r5
        stg.u32 [r2 + r17], r16
    end:
    ",
    );
    let lanes = 5000;
    let buffers = Buffers(vec![
        (DType::U32, values(DType::U32, lanes + 1024, 5)),
        zeros(DType::U32, lanes),
    ]);
    for threads in [1, 2] {
        pool::set_threads(threads);
        for block in BLOCK_SIZES {
            let outcome = agree(&program, &buffers, config(lanes as u32, block), None);
            assert_eq!(outcome.faults, []);
        }
    }
}

#[test]
fn faults_are_those_of_the_interpreter_in_its_order() {
    let _turn = Turn::take();
    let cases = [
        // Division by zero in some lanes, behind a branch.
        "mov_imm.u32 r5, 3\nrem: and.u32 r6, %lane, r5\nsetcc.u32.eq p0, r6, r5\nbra.p0 @end\ndiv.u32 r7, r5, r6\nend:",
        // Out of bounds, from some lane on, and misaligned.
        "mov_imm.u32 r5, 2\nshl.u64 r8, %global, r5\nldg.u32 r9, [r1 + r8]\nstg.u32 [r2 + r8], r9",
        "ldg.u32 r9, [r1 + %global]\nphase_get r10\nadd.u32 r10, r10, r9\nmov_imm.u32 r5, 2\nshl.u64 r8, %global, r5\nstg.u32 [r2 + r8], r10",
        // A handle that some lanes do not have, and one that none has.
        "mov_imm.u64 r5, 3\nand.u64 r6, %global, r5\nldg.u8 r7, [r6 + 1]",
        "mov_imm.u64 r5, 99\nldg.u8 r7, [r5 + 1]",
        "mov_imm.u64 r5, 5\npool_load.u8 r7, r5, r5",
        "mov_imm.u64 r5, 8190\nadd.u64 r5, r5, %global\nsts.u8 [r1 + r5], r6",
        // Stacks and steps.
        "again: call @again",
        "call @back\nret\nback: ret",
        "again: setcc.u64.lt p0, %global, r1\nbra.p0 @again",
        // Classes.
        "cvt.u32.u8 r5, %lane\nmirror r6, r5\nnbr_count r7, r5\nnbr_get r8, r5, 4",
        "cvt.u32.u8 r5, %lane\nmov_imm.u8 r6, 47\nbound_map r7, r5, r6, r5\nmov_imm.f64 r8, 1.0\nres_accum r5, r8",
        // Lanes that wait at different barriers.
        "mov_imm.u32 r5, 7\nsetcc.u32.lt p0, %lane, r5\nbra.p0 @other\nbar_sync 1\nexit\nother: bar_sync 2",
    ];
    for text in cases {
        let text = text.replace("sts.u8", "mov_imm.u8 r6, 1\nsts.u8");
        let program = parse(&text);
        assert_eq!(
            CpuExecutor::new(&program)
                .unwrap()
                .refusal(&[Register(1), Register(2)]),
            None,
            "{text}"
        );
        let buffers = Buffers(vec![
            (DType::U32, values(DType::U32, 1000, 1)),
            zeros(DType::U32, 900),
        ]);
        for threads in [1, 2] {
            pool::set_threads(threads);
            let mut faults = 0;
            for (lanes, block) in [(1, 1), (40, 31), (1500, 256), (9000, 257), (1024, 1024)] {
                faults += agree(&program, &buffers, config(lanes, block), None)
                    .faults
                    .len();
            }
            assert!(faults > 0, "{text}");
        }
    }
}

#[test]
fn positions_classes_phases_and_resonance_are_those_of_the_interpreter() {
    let _turn = Turn::take();
    let program = parse(
        "
        mov_imm.u32 r5, 4
        shl.u64 r8, %global, r5
        mov_imm.u64 r6, 4
        stg.u32 [r1 + r8], %lane
        add.u64 r8, r8, r6
        stg.u32 [r1 + r8], %block
        add.u64 r8, r8, r6
        phase_adv 700
        phase_adv 100
        phase_get r9
        stg.u32 [r1 + r8], r9
        add.u64 r8, r8, r6
        cls_get r10
        unity_test p0, 0.5
        mov_imm.u8 r11, 95
        sel.u8 r10, p0, r11, r10
        cvt.u8.u32 r12, r10
        stg.u32 [r1 + r8], r12
        cvt.u32.f32 r13, %lane
        cvt.f32.f64 r13, r13
        sqrt.f64 r13, r13
        res_accum r10, r13
        ldg.u8 r14, [phi(5, 2, 128)]
        res_accum r14, r13
    ",
    );
    let buffers = Buffers(vec![zeros(DType::U32, 4 * 40_000)]);
    agree_everywhere(&program, &buffers, 30_000);
    let grid = LaunchConfig {
        grid: GridDim { x: 3, y: 5, z: 2 },
        block: BlockDim { x: 7, y: 3, z: 2 },
        ..LaunchConfig::linear(1, 1)
    };
    agree(&program, &buffers, grid, None);
    // Without sums, blocks share groups.
    let text = program.to_string();
    let without: String = text
        .lines()
        .filter(|l| !l.contains("res_accum"))
        .map(|l| format!("{l}\n"))
        .collect();
    agree(&parse(&without), &buffers, grid, None);
    agree_everywhere(&parse(&without), &buffers, 9000);
}

#[test]
fn instructions_that_run_once_wait_for_all_lanes() {
    let _turn = Turn::take();
    let program = parse(
        "
        mov_imm.u32 r5, 2
        shl.u64 r0, %global, r5
        pool_alloc r20, 8192
        ldg.f32 r6, [r1 + r0]
        neg.f32 r6, r6
        stg.f32 [r1 + r0], r6
        pool_store.f32 r20, r0, r6
        gemm.f32 matrix_a=r1, matrix_b=r2, matrix_c=r3, m=30, k=20, n=30
        bar_sync 1
        parallel_map.f32.relu input=r3, output=r3, count=900
        ldg.f32 r6, [r3 + r0]
        pool_load.f32 r7, r20, r0
        add.f32 r6, r6, r7
        stg.f32 [r3 + r0], r6
        pool_free r20
    ",
    );
    let floats = |seed| (DType::F32, values(DType::F32, 1100, seed));
    let buffers = Buffers(vec![floats(1), floats(2), floats(3)]);
    for threads in [1, 2] {
        pool::set_threads(threads);
        for (lanes, block) in [(1, 1), (62, 31), (1024, 256), (514, 257)] {
            let outcome = agree(&program, &buffers, config(lanes, block), None);
            assert_eq!(outcome.faults, []);
        }
    }
    // Lanes that disagree, fault, or wait at a barrier meanwhile.
    for text in [
        "parallel_map.f32.abs input=%global, output=r1, count=0",
        "parallel_map.f32.abs input=r1, output=r1, count=2000",
        "setcc.u64.lt p0, %global, r3\nbra.p0 @wait\nparallel_map.f32.abs input=r1, output=r1, count=2\nexit\nwait: bar_sync 1",
        "setcc.u64.lt p0, %global, r3\nbra.p0 @end\nparallel_reduce.f32.sum input=r1, output=r2, count=20\nend: res_accum r9, r8",
    ] {
        let program = parse(&format!("mov_imm.u8 r9, 3\nmov_imm.f64 r8, 0.1\n{text}"));
        for (lanes, block) in [(1, 1), (62, 31), (512, 256)] {
            agree(&program, &buffers, config(lanes, block), None);
        }
    }
}

#[test]
fn programs_that_the_verifier_refuses_run_on_the_interpreter() {
    let _turn = Turn::take();
    let program = parse(
        "
        mov_imm.u32 r5, 2
        setcc.u32.lt p0, %lane, r5
        bra.p0 @skip
        mov_imm.f32 r6, 1.0
    skip:
        neg.f32 r6, r6
    ",
    );
    let executor = CpuExecutor::new(&program).unwrap();
    assert!(executor.refusal(&[]).is_some());
    let outcome = agree(&program, &Buffers(Vec::new()), config(10, 5), None);
    assert_eq!(outcome.faults.len(), 4);
    assert_eq!(
        outcome.faults[0].kind,
        FaultKind::UninitializedRegister(Register(6))
    );
}

/// Memory whose view lends nothing that may be written.
struct ReadOnlyView(BufferMemory);

impl Memory for ReadOnlyView {
    fn read(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), FaultKind> {
        self.0.read(handle, offset, bytes)
    }
    fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        self.0.write(handle, offset, bytes)
    }
    fn read_pool(&self, handle: u64, offset: u64, bytes: &mut [u8]) -> Result<(), FaultKind> {
        self.0.read_pool(handle, offset, bytes)
    }
    fn write_pool(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        self.0.write_pool(handle, offset, bytes)
    }
    fn allocate_pool(&mut self, bytes: u64) -> Result<u64, FaultKind> {
        self.0.allocate_pool(bytes)
    }
    fn free_pool(&mut self, handle: u64) -> Result<(), FaultKind> {
        self.0.free_pool(handle)
    }
    fn view(&mut self, _: &dyn Fn(u64) -> bool) -> Result<MemoryView<'_>, ProgramError> {
        let buffer = self.0.buffer(1).unwrap_or_default();
        Ok(MemoryView {
            buffers: vec![(1, BufferBytes::Shared(buffer))],
            pools: Vec::new(),
        })
    }
}

#[test]
fn stores_to_memory_that_is_only_lent_for_reading_are_faults() {
    let _turn = Turn::take();
    for prefix in ["", "phase_adv 0"] {
        let program = parse(&format!(
            "{prefix}\nldg.u8 r5, [r1 + %global]\nstg.u8 [r1 + %global], r5"
        ));
        let mut memory = ReadOnlyView(BufferMemory::new());
        memory.0.insert(1, vec![0; 20]);
        let params = ExecutionParams::new(config(20, 10)).with_register(Register(1), 1);
        let executor = CpuExecutor::new(&program).unwrap();
        let outcome = executor.run_to_end(&params, &mut memory).unwrap();
        assert_eq!(outcome.faults.len(), 20);
        assert_eq!(outcome.faults[3].kind, FaultKind::InvalidBufferHandle(1));
    }
}

#[test]
fn lanes_that_race_get_the_value_of_one_of_them() {
    let _turn = Turn::take();
    let program = parse(
        "
        mov_imm.u64 r5, 1023
        mov_imm.u32 r6, 3
        and.u64 r8, %global, r5
        shl.u64 r8, r8, r6
        stg.u64 [r1 + r8], %global
        ldg.u64 r9, [r1 + r8]
        stg.u64 [r1 + r8], r9
    ",
    );
    let buffers = Buffers(vec![zeros(DType::U64, 1024)]);
    for threads in [1, 2] {
        pool::set_threads(threads);
        let mut memory = buffers.memory();
        let params = buffers.params(config(100_000, 256));
        CpuExecutor::new(&program)
            .unwrap()
            .run(&params, &mut memory)
            .unwrap();
        let bytes = memory.buffer(1).unwrap();
        assert!((0..1024).all(|i| bits(DType::U64, bytes, i) % 1024 == i as u64));
    }
}

#[test]
fn random_programs_do_what_the_interpreter_does() {
    let _turn = Turn::take();
    let cases = if cfg!(debug_assertions) { 400 } else { 4000 };
    for seed in 0..cases {
        pool::set_threads(1 + seed as usize % 2);
        let mut numbers = Numbers::new(seed);
        let program = random::program(&mut numbers);
        let executor = CpuExecutor::new(&program).unwrap();
        let registers = [1, 2, 3].map(Register);
        assert_eq!(executor.refusal(&registers), None, "seed {seed}\n{program}");
        let block = [1, 5, 31, 64, 257][numbers.below(5)];
        let lanes = [1, 30, 70, 600][numbers.below(4)];
        // Every lane has its own elements of the first buffer.
        let buffers = Buffers(vec![
            (
                DType::U32,
                values(DType::U32, 900 * random::LANE_WORDS, seed),
            ),
            (DType::F32, values(DType::F32, 256, seed + 1)),
            zeros(DType::U32, 900 * random::LANE_WORDS),
        ]);
        agree(&program, &buffers, config(lanes, block), None);
    }
}
