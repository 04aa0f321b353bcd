//! Random programs with random control flow, on all modes of the software device.

use std::fmt::Write as _;

use bessemer::program::LaunchConfig;
use bessemer_hal::soft::Mode;
use bessemer_testing::random::Rng;

use crate::{ProgramCase, soft, words};

/// Numbers of bytes that a lane stores, of lanes, and of blocks' lanes.
const LANE_BYTES: usize = 64;
const LANES: u32 = 70;
const BLOCK: u32 = 32;

/// A random program of up to 12 blocks: any block may lead to any other, so that loops have several entries. It ends because
/// every block takes fuel.
fn program(rng: &mut Rng) -> String {
    let mut text = format!(
        "mov_imm.u64 r20, {LANE_BYTES}\nmul.u64 r21, %global, r20\nmov_imm.u32 r7, 0\nmov_imm.u32 r8, 1\n\
         mov_imm.u32 r9, {}\nmov_imm.u32 r18, {}\n",
        10 + rng.below(40),
        1 + rng.below(6),
    );
    text += "mov.u32 r10, %lane\ncvt.u64.u32 r11, %global\n";
    for register in 12..18 {
        let _ = writeln!(text, "mov_imm.u32 r{register}, {}", rng.bits() as u32);
    }
    for register in 40..44 {
        let _ = writeln!(
            text,
            "mov_imm.f32 r{register}, {:?}",
            rng.below(100) as f32 / 8.0
        );
    }
    for predicate in 0..4 {
        let [a, b] = [data(rng), data(rng)];
        let _ = writeln!(text, "setcc.u32.lt p{predicate}, r{a}, r{b}");
    }
    let blocks = 2 + rng.below(11);
    for block in 0..blocks {
        let _ = write!(
            text,
            "b{block}:\nsetcc.u32.eq p15, r9, r7\nbra.p15 @end\nsub.u32 r9, r9, r8\n"
        );
        for _ in 0..rng.below(5) {
            text += &instruction(rng);
        }
        let (yes, no) = (rng.below(blocks), rng.below(blocks));
        match rng.below(8) {
            0 => {}
            1 => text += &format!("bra @b{no}\n"),
            2 => text += &format!("loop r18, @b{yes}\n"),
            3 if rng.one_in(3) => text += "exit\n",
            _ => text += &format!("bra.p{} @b{yes}\nbra @b{no}\n", rng.below(4)),
        }
    }
    text += "end:\n";
    for register in (9..19).chain(40..44) {
        let dtype = if register < 40 { "u32" } else { "f32" };
        let _ = writeln!(
            text,
            "stg.{dtype} [r2 + r21], r{register}\nadd.u64 r21, r21, r22"
        );
    }
    text += "exit\nf:\nadd.u32 r12, r12, r10\nsetcc.u32.gtu p0, r12, r13\nbra.p0 @g\nret\n\
             g:\nxor.u32 r13, r13, r12\ncall @h\nret\nh:\nmul.u32 r14, r14, r12\nret\n";
    format!("mov_imm.u64 r22, 4\n{text}")
}

fn data(rng: &mut Rng) -> usize {
    10 + rng.below(8)
}

fn instruction(rng: &mut Rng) -> String {
    let [dst, a, b] = [data(rng), data(rng), data(rng)];
    let [x, y, z] = [40 + rng.below(4), 40 + rng.below(4), 40 + rng.below(4)];
    let int = [
        "add", "sub", "mul", "and", "or", "xor", "min", "max", "shl", "shr",
    ];
    match rng.below(10) {
        0 => format!(
            "setcc.u32.{} p{}, r{a}, r{b}\n",
            ["eq", "ne", "lt", "geu"][rng.below(4)],
            rng.below(4)
        ),
        1 => format!("sel.u32 r{dst}, p{}, r{a}, r{b}\n", rng.below(4)),
        2 => "call @f\n".to_owned(),
        3 => format!(
            "{}.f32 r{x}, r{y}, r{z}\n",
            ["add", "sub", "min", "max"][rng.below(4)]
        ),
        // Every lane reads and writes its own numbers only.
        4 => format!("stg.u32 [r2 + r21], r{a}\nldg.u32 r{dst}, [r2 + r21]\n"),
        5 => format!("ldg.u32 r{dst}, [r1 + r21]\n"),
        _ => format!("{}.u32 r{dst}, r{a}, r{b}\n", rng.pick(&int)),
    }
}

fn cases(seed: u64, count: usize) -> Vec<ProgramCase> {
    let mut rng = Rng::new(seed);
    let lanes = LANES.next_multiple_of(BLOCK) as usize;
    let input = words((0..lanes * LANE_BYTES / 4).map(|i| (i as u32).wrapping_mul(0x9e37_79b9)));
    let output = vec![0; lanes * LANE_BYTES];
    let config = LaunchConfig::linear(LANES, BLOCK);
    (0..count)
        .map(|_| ProgramCase::new(&program(&mut rng), config, &[input.clone(), output.clone()]))
        .collect()
}

/// A random program whose lanes exchange numbers across barriers, in a loop that all of them run, with conditions, loops and exits
/// that only some take in between.
fn with_barriers(rng: &mut Rng) -> String {
    let mut text = format!(
        "mov_imm.u64 r0, 0\nmov_imm.u32 r10, 2\ncvt.u32.u64 r11, %lane\nshl.u64 r11, r11, r10\n\
         shl.u64 r12, %global, r10\nmov_imm.u64 r15, 60\nsub.u64 r16, r15, r11\n\
         mov_imm.u32 r13, {}\nmov_imm.u32 r14, {}\nmov_imm.u32 r8, 1\nadd.u32 r14, r14, %lane\n\
         setcc.u32.eq p5, %block, r8\n",
        rng.below(5),
        rng.bits() as u32 >> 8,
    );
    // A second entry into the loop.
    if rng.one_in(3) {
        text += "bra.p5 @middle\n";
    }
    text += "again:\n";
    for part in 0..2 {
        for snippet in 0..1 + rng.below(3) {
            text += &apart(rng, &format!("{part}_{snippet}"));
        }
        text += [
            "sts.u32 [r0 + r11], r14\nbar_sync 0\nlds.u32 r17, [r0 + r16]\nadd.u32 r14, r14, r17\nmiddle:\nbar_sync 1\n",
            "",
        ][part];
    }
    if rng.one_in(2) {
        text += "bra.p5 @together\nbar_sync 2\nadd.u32 r14, r14, r8\ntogether:\n";
    }
    text + "loop r13, @again\nend:\nstg.u32 [r1 + r12], r14\nexit\n"
}

/// Instructions that only some lanes run.
fn apart(rng: &mut Rng, name: &str) -> String {
    let head = format!(
        "mov_imm.u32 r21, {}\nsetcc.u32.{} p0, %lane, r21\n",
        rng.below(16),
        ["eq", "lt", "ge"][rng.below(3)]
    );
    let body = match rng.below(7) {
        0 => format!("bra.p0 @skip{name}\nmul.u32 r14, r14, r10\nskip{name}:\n"),
        1 => "bra.p0 @end\n".to_owned(),
        2 => format!(
            "bra.p0 @leave{name}\nbra @stay{name}\nleave{name}:\nadd.u32 r14, r14, r21\nstg.u32 [r1 + r12], r14\nexit\nstay{name}:\n"
        ),
        3 => format!(
            "mov.u32 r20, %lane\nagain{name}:\nadd.u32 r14, r14, r8\nloop r20, @again{name}\n"
        ),
        4 => format!(
            "mov.u32 r20, %lane\nagain{name}:\nadd.u32 r14, r14, r8\nbra.p0 @end\nloop r20, @again{name}\n"
        ),
        5 => format!(
            "bra.p0 @skip{name}\nsub.u32 r22, %lane, r10\ndiv.u32 r14, r14, r22\nskip{name}:\n"
        ),
        _ => format!(
            "setcc.u32.lt p1, r14, r21\nbra.p1 @else{name}\nbra.p0 @end\nbra @skip{name}\nelse{name}:\nxor.u32 r14, r14, r21\nskip{name}:\n"
        ),
    };
    head + &body
}

#[test]
fn random_programs_with_barriers_have_the_bits_of_the_interpreter() {
    let mut rng = Rng::new(4);
    let config = LaunchConfig::linear(48, 16).with_shared_memory(64);
    for (mode, count) in [(Mode::Fast, 16), (Mode::Check, 5), (Mode::Fuzz, 5)] {
        let device = soft(mode);
        for _ in 0..count {
            let text = with_barriers(&mut rng);
            ProgramCase::new(&text, config, &[words([0; 48])]).check(&device);
        }
    }
}

#[test]
fn random_programs_have_the_bits_of_the_interpreter() {
    let device = soft(Mode::Fast);
    for case in cases(1, 20) {
        case.check(&device);
    }
}

#[test]
fn check_mode_reports_nothing_on_random_programs() {
    let device = soft(Mode::Check);
    for case in cases(2, 4) {
        case.check(&device);
    }
}

#[test]
fn fuzz_mode_changes_no_result_of_random_programs() {
    let device = soft(Mode::Fuzz);
    for case in cases(3, 6) {
        case.check(&device);
    }
}
