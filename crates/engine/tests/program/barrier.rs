//! Barriers, with lanes that end early.

use bessemer::program::LaunchConfig;
use bessemer_hal::soft::Mode;

use crate::{ProgramCase, soft, words};

/// The sum of a block's lanes in shared memory; lanes behind the end of the input end before the first barrier.
const BLOCK_SUM: &str = "
    ; r1: numbers, r2: sums, r3: how many numbers
    mov_imm.u64 r10, 0
    ldg.u64 r11, [r3 + r10]
    setcc.u64.ge p0, %global, r11
    bra.p0 @end
    mov_imm.u32 r12, 2
    shl.u64 r13, %global, r12
    ldg.u32 r14, [r1 + r13]
    cvt.u32.u64 r15, %lane
    shl.u64 r15, r15, r12
    sts.u32 [r0 + r15], r14
    bar_sync 0
    mov_imm.u32 r16, 32          ; distance
    mov_imm.u32 r20, 1
halve:
    setcc.u32.ge p1, %lane, r16
    bra.p1 @skip
    cvt.u32.u64 r17, r16
    shl.u64 r17, r17, r12
    add.u64 r17, r15, r17
    lds.u32 r18, [r0 + r17]
    lds.u32 r19, [r0 + r15]
    add.u32 r19, r19, r18
    sts.u32 [r0 + r15], r19
skip:
    bar_sync 1
    shr.u32 r16, r16, r20
    setcc.u32.ge p2, r16, r20
    bra.p2 @halve
    mov_imm.u32 r21, 0
    setcc.u32.ne p3, %lane, r21
    bra.p3 @end
    cvt.u32.u64 r22, %block
    shl.u64 r22, r22, r12
    lds.u32 r23, [r0 + r15]
    stg.u32 [r2 + r22], r23
end:
    exit
";

fn block_sum() -> ProgramCase {
    let text = format!("mov_imm.u64 r0, 0\n{BLOCK_SUM}");
    let config = LaunchConfig::linear(192, 64).with_shared_memory(64 * 4);
    let buffers = [
        words((0..192).map(|i| i * i + 1)),
        words([0; 3]),
        150_u64.to_le_bytes().to_vec(),
    ];
    ProgramCase::new(&text, config, &buffers)
}

#[test]
fn a_sum_of_a_block_whose_last_lanes_end_early() {
    let case = block_sum();
    let (buffers, faults) = case.interpret();
    assert_eq!(faults, []);
    let sum = |from: u32, to: u32| (from..to).map(|i| i * i + 1).sum::<u32>();
    assert_eq!(buffers[1], words([sum(0, 64), sum(64, 128), sum(128, 150)]));
    for mode in [Mode::Fast, Mode::Check, Mode::Fuzz] {
        case.check(&soft(mode));
    }
}

/// Lanes end in different iterations of a loop with barriers; each leaves its mark before, and sees those of the others.
const LEAVING: &str = "
    mov_imm.u64 r0, 0
    mov_imm.u32 r10, 2
    cvt.u32.u64 r11, %lane
    shl.u64 r11, r11, r10
    shl.u64 r12, %global, r10
    mov_imm.u32 r13, 9           ; iterations
    mov_imm.u32 r14, 0           ; sum of a neighbour's marks
    mov_imm.u64 r15, 60
    sub.u64 r16, r15, r11        ; the neighbour
again:
    sts.u32 [r0 + r11], r13
    bar_sync 3
    lds.u32 r17, [r0 + r16]
    add.u32 r14, r14, r17
    stg.u32 [r1 + r12], r14
    bar_sync 4
    setcc.u32.eq p0, %lane, r13
    bra.p0 @gone
    setcc.u32.lt p1, r14, %lane
    bra.p1 @skip
    add.u32 r14, r14, r10
skip:
    loop r13, @again
    exit
gone:
    mov_imm.u32 r18, 1000
    sts.u32 [r0 + r11], r18
    exit
";

#[test]
fn lanes_leave_a_loop_with_barriers_one_after_the_other() {
    let config = LaunchConfig::linear(32, 16).with_shared_memory(64);
    let case = ProgramCase::new(LEAVING, config, &[words([0; 32])]);
    for mode in [Mode::Fast, Mode::Check] {
        case.check(&soft(mode));
    }
}

#[test]
fn a_lane_that_fails_does_not_stop_the_others() {
    let text = "
        mov_imm.u64 r0, 0
        mov_imm.u32 r10, 2
        mov_imm.u32 r13, 5
        cvt.u32.u64 r11, %lane
        shl.u64 r11, r11, r10
        shl.u64 r12, %global, r10
        sub.u32 r14, %lane, r13      ; 0 in lane 5
        div.u32 r15, r13, r14
        sts.u32 [r0 + r11], r15
        bar_sync 0
        mov_imm.u64 r16, 28
        sub.u64 r16, r16, r11
        lds.u32 r17, [r0 + r16]
        stg.u32 [r1 + r12], r17
    ";
    let config = LaunchConfig::linear(16, 8).with_shared_memory(32);
    let case = ProgramCase::new(text, config, &[words([7; 16])]);
    let (_, faults) = case.interpret();
    assert_eq!(faults.len(), 2);
    case.check(&soft(Mode::Fast));
}

#[test]
fn a_branch_on_a_number_in_memory_is_uniform() {
    let text = "
        mov_imm.u64 r0, 0
        mov_imm.u32 r10, 2
        cvt.u32.u64 r11, %block
        shl.u64 r11, r11, r10
        ldg.u32 r12, [r1 + r11]      ; iterations of the block
        mov_imm.u32 r13, 0
        mov_imm.u32 r15, 5
        setcc.u32.lt p0, %lane, r15
        bra.p0 @again
        exit                         ; lanes from 5 on
    again:
        sts.u32 [r0], r13
        bar_sync 0
        add.u32 r13, r13, r10
        loop r12, @again
        shl.u64 r14, %global, r10
        stg.u32 [r2 + r14], r13
    ";
    // All lanes store the same number.
    let config = LaunchConfig::linear(24, 8).with_shared_memory(4);
    let buffers = [words([3, 1, 6]), words([0; 24])];
    ProgramCase::new(text, config, &buffers).check(&soft(Mode::Fast));
}

#[test]
fn an_endless_loop_with_a_barrier_ends_at_the_step_limit() {
    let text = "again: bar_sync 0\nbra @again";
    let mut case = ProgramCase::new(text, LaunchConfig::linear(16, 8), &[]);
    case.step_limit = 100;
    case.check(&soft(Mode::Fast));
}
