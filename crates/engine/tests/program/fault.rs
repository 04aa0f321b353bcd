//! Faults at run time: the same as the interpreter's, and the device stays usable.

use bessemer::program::{FaultKind, LaunchConfig, ProgramError};
use bessemer_hal::soft::Mode;

use crate::{ProgramCase, soft, words};

#[test]
fn faults_are_those_of_the_interpreter() {
    let cases = [
        "mov_imm.i32 r10, 0\nmov_imm.i32 r11, 7\ndiv.i32 r12, r11, r10",
        "mov_imm.u64 r10, 16\nldg.u32 r11, [r1 + r10]",
        "mov_imm.u64 r10, 18446744073709551612\nldg.u32 r11, [r1 + r10]",
        "mov_imm.u32 r11, 1\nstg.u32 [r1 + -4], r11",
        "mov_imm.u64 r10, 2\nldg.u32 r11, [r1 + r10]",
        "ldg.u32 r11, [b9]",
        "mov_imm.u64 r10, 0\nmov_imm.u64 r12, 3\npool_load.u32 r11, r12, r10",
        "pool_alloc r12, 8\nmov_imm.u64 r10, 8\npool_load.u32 r11, r12, r10",
        "mov_imm.u64 r10, 16\nlds.u64 r11, [r10 + r10]",
        "mov_imm.u8 r10, 96\nmirror r11, r10",
        "mov_imm.u8 r10, 200\nnbr_get r11, r10, 1",
        "mov_imm.u8 r10, 5\nmov_imm.u8 r11, 48\nbound_map r12, r10, r11, r10",
        "mov_imm.u8 r10, 99\nmov_imm.u8 r11, 50\nbound_map r12, r10, r11, r10",
        "phase_adv 1\nret",
        "again: phase_adv 1\nbra @again",
        "mov_imm.u64 r10, 0\npool_free r10",
    ];
    let device = soft(Mode::Fast);
    for text in cases {
        let config = LaunchConfig::linear(1, 1).with_shared_memory(16);
        let mut case = ProgramCase::new(text, config, &[words([1, 2, 3, 4])]);
        case.step_limit = 1000;
        let (_, faults) = case.interpret();
        let (_, outcome) = case.execute(&device);
        assert_eq!(faults.len(), 1, "{text}");
        let Err(ProgramError::Fault(found)) = outcome else {
            panic!("{text}: {outcome:?}");
        };
        match found.kind {
            // Iterations are counted, not instructions.
            FaultKind::StepLimit(_) => assert_eq!(found.kind, faults[0].kind),
            _ => assert_eq!(found, faults[0], "{text}"),
        }
    }
    // The device is as usable as before.
    let text = "mov_imm.u64 r10, 0\nmov_imm.u32 r11, 9\nstg.u32 [r1 + r10], r11";
    let case = ProgramCase::new(text, LaunchConfig::linear(1, 1), &[words([1, 2])]);
    case.check(&device);
}

#[test]
fn only_the_lane_that_fails_ends() {
    let text = "
        mov_imm.u32 r10, 2
        shl.u64 r11, %global, r10
        ldg.u32 r12, [r1 + r11]
        div.u32 r13, r10, r12
        stg.u32 [r2 + r11], r13
    ";
    let numbers = [1, 2, 0, 3, 0, 1];
    let buffers = [words(numbers), words([77; 5])];
    let case = ProgramCase::new(text, LaunchConfig::linear(8, 4), &buffers);
    case.check(&soft(Mode::Fast));
}
