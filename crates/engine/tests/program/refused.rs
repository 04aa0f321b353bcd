//! What is refused, by instruction and reason.

use bessemer::program::{
    DeviceMemory, ExecutionParams, LaunchConfig, Program, ProgramError, Register,
};
use bessemer_hal::soft::Mode;

use crate::soft;

fn refusal(text: &str) -> (usize, &'static str, String) {
    let program: Program = text.parse().unwrap_or_else(|e| panic!("{e}: {text}"));
    match program.compile(&soft(Mode::Fast)) {
        Err(ProgramError::Unsupported {
            index,
            mnemonic,
            reason,
        }) => (index, mnemonic, reason),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn what_cannot_be_compiled_is_refused_by_name() {
    let cases = [
        (
            "mov_imm.f64 r0, 1.0\nphase_adv 1",
            (0, "mov_imm"),
            "Metal has no f64",
        ),
        (
            "mov_imm.f32 r0, 1.0\ncvt.f32.f64 r1, r0",
            (1, "cvt"),
            "never narrowed",
        ),
        ("f: call @f", (0, "call"), "recursive"),
        (
            "ldg.u32 r0, [%global + %global]",
            (0, "ldg"),
            "the handle in %global is computed",
        ),
        (
            "mov_imm.u64 r0, 1\nadd.u64 r0, r0, r0\nldg.u32 r1, [r0]",
            (2, "ldg"),
            "the handle in r0 is computed",
        ),
        (
            "mov_imm.u32 r0, 2\nsetcc.u32.eq p0, %lane, r0\nbra.p0 @skip\nbar_sync 0\nskip: bar_sync 1",
            (3, "bar_sync"),
            "the bra at instruction 2 may differ",
        ),
        (
            "mov_imm.u32 r0, 2\nagain: pool_alloc r1, 8\nloop r0, @again",
            (1, "pool_alloc"),
            "must not be in a loop",
        ),
        (
            "mov_imm.u32 r0, 2\nsetcc.u32.eq p0, %lane, r0\nbra.p0 @end\npool_alloc r1, 8\nend: exit",
            (3, "pool_alloc"),
            "every lane must reach it",
        ),
        (
            "cvt.u32.u64 r0, %lane\npool_alloc r1, 8\nadd.u64 r0, r0, r1",
            (1, "pool_alloc"),
            "r0 would have to be kept",
        ),
        (
            "setcc.u32.eq p0, %lane, %block\npool_alloc r1, 8\nbra.p0 @end\nphase_adv 1\nend: exit",
            (1, "pool_alloc"),
            "p0 would have to be kept",
        ),
        (
            "phase_adv 3\npool_alloc r1, 8\nphase_get r2",
            (1, "pool_alloc"),
            "the phase would have to be kept",
        ),
        (
            "mov_imm.u64 r0, 0\nsts.u64 [r0 + r0], r0\npool_alloc r1, 8\nlds.u64 r2, [r0 + r0]",
            (2, "pool_alloc"),
            "shared memory would have to be kept",
        ),
    ];
    for (text, (index, mnemonic), reason) in cases {
        let (i, m, r) = refusal(text);
        assert_eq!((i, m), (index, mnemonic), "{text}: {r}");
        assert!(r.contains(reason), "{text}: {r}");
    }
    let many: String = (1..=40).map(|i| format!("ldg.u32 r0, [b{i}]\n")).collect();
    assert!(refusal(&many).2.contains("accesses 40 buffers"));
    let long = "phase_adv 1\n".repeat(20_000);
    assert!(refusal(&long).2.contains("use loops"));
}

#[test]
fn resonance_needs_the_cpu() {
    let text = "mov_imm.u8 r0, 1\nmov_imm.f64 r1, 1.0\nres_accum r0, r1";
    let program: Program = text.parse().unwrap();
    assert!(matches!(
        program.compile(&soft(Mode::Fast)),
        Err(ProgramError::Unsupported { .. })
    ));
    assert!(program.compile(&bessemer::Device::cpu()).is_ok());
}

#[test]
fn a_launch_must_fit_the_program_and_the_device() {
    let device = soft(Mode::Fast);
    let program: Program = "mov_imm.u64 r3, 0\nldg.u32 r2, [r1 + r3]".parse().unwrap();
    let compiled = program.compile(&device).unwrap();
    let mut memory = DeviceMemory::new(&device).unwrap();
    let params = ExecutionParams::new(LaunchConfig::linear(1, 1));
    assert_eq!(
        compiled.run(&params, &mut memory),
        Err(ProgramError::Uninitialized {
            index: 1,
            name: "r1".to_owned()
        })
    );
    let too_large = ExecutionParams::new(LaunchConfig::linear(4096, 2048));
    let with_handle = too_large.with_register(Register(1), 0);
    assert!(matches!(
        compiled.run(&with_handle, &mut memory),
        Err(ProgramError::InvalidLaunch(_))
    ));
    let mut elsewhere = DeviceMemory::new(&bessemer::Device::cpu()).unwrap();
    let params = params.with_register(Register(1), 0);
    assert!(matches!(
        compiled.run(&params, &mut elsewhere),
        Err(ProgramError::InvalidLaunch(_))
    ));
    assert_eq!(compiled.run(&params, &mut memory), Ok(()));
    let empty = ExecutionParams::new(LaunchConfig::linear(0, 1)).with_register(Register(1), 0);
    assert_eq!(compiled.run(&empty, &mut memory), Ok(()));
}
