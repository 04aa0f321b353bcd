//! Random and damaged programs through all passes: an error or a source, never a panic.

use proptest::prelude::*;

use crate::Device;
use crate::program::tests::random_program;
use crate::program::{ExecutionParams, LaunchConfig, Program, Register};

/// Valid programs with everything that a pass may stumble over.
const SAMPLES: &[&str] = &[
    "mov_imm.u64 r0, 0
     setcc.u64.ge p0, %global, r3
     bra.p0 @end
     mov_imm.u32 r1, 8
     again: sts.u64 [r0 + r0], %global
     bar_sync 0
     lds.u64 r4, [r0 + r0]
     setcc.u64.lt p1, r4, %global
     bra.p1 @skip
     ldg.f32 r5, [r2 + r4]
     call @f
     skip: loop r1, @again
     end: exit
     f: add.f32 r5, r5, r5
     stg.f32 [r2 + r4], r5
     ret",
    "mov_imm.u32 r0, 9
     setcc.u32.eq p0, %lane, r0
     bra.p0 @b
     a: phase_adv 1
     b: setcc.u32.lt p1, %block, r0
     bra.p1 @c
     loop r0, @a
     c: div.u32 r0, r0, r0
     bra.p0 @a
     exit",
    "pool_alloc r4, 64
     mov_imm.u64 r5, 8
     pool_store.u64 r4, r5, %global
     gemm.f32 matrix_a=r1, matrix_b=r2, matrix_c=r3, m=2, k=2, n=2
     pool_load.u64 r6, r4, r5
     stg.u64 [b0 + 16], r6
     pool_free r4",
];

fn compile(program: &Program) {
    let config = LaunchConfig::linear(100, 32).with_shared_memory(64);
    let registers = 0..=u8::MAX;
    let params = registers.fold(ExecutionParams::new(config), |params, r| {
        params.with_register(Register(r), u64::from(r % 3))
    });
    let source = program.compile(&Device::cpu()).and_then(|c| c.msl(&params));
    if let Err(error) = source {
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn samples_are_compiled() {
    for text in SAMPLES {
        let program: Program = text.parse().unwrap();
        let params = ExecutionParams::new(LaunchConfig::linear(100, 32));
        let params = [1, 2, 3].into_iter().fold(params, |params, r| {
            params.with_register(Register(r), u64::from(r))
        });
        let source = program.compile(&Device::cpu()).unwrap().msl(&params);
        assert!(source.is_ok(), "{text}: {source:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn random_programs_are_compiled_or_refused(
        numbers in prop::collection::vec(any::<u64>(), 1..100),
        len in 0_usize..40,
    ) {
        compile(&random_program(&numbers, len));
    }

    #[test]
    fn damaged_programs_are_compiled_or_refused(
        sample in 0..SAMPLES.len(),
        moves in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut program: Program = SAMPLES[sample].parse().unwrap();
        for (from, to) in moves {
            let count = program.instructions.len();
            let moved = program.instructions[from.index(count)].clone();
            program.instructions[to.index(count)] = moved;
        }
        let mut bytes = program.to_bytes().unwrap();
        let end = bytes.len() - 4;
        for (at, byte) in edits {
            bytes[12 + at.index(end - 12)] = byte;
        }
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[12..end]);
        bytes[end..].copy_from_slice(&crc.sum().to_le_bytes());
        if let Ok(program) = Program::from_bytes(&bytes) {
            compile(&program);
        }
    }
}
