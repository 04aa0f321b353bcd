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
    for case in cases(3, 4) {
        case.check(&device);
    }
}
