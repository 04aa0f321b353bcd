//! Random programs that verify: blocks that jump anywhere, with typed registers that all have a value.

use bessemer::program::Program;

/// Elements of each lane in the buffers that lanes write.
pub(crate) const LANE_WORDS: usize = 16;

/// Random numbers.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    pub(crate) fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

// Registers by type: u32 r10 to r14, f32 r15 to r18, i64 r19 to r21, counters of loops r22 and r23 (u32), i8 r24 and r25,
// the lane's first byte r8 and constants r5 to r7.
const WORDS: [&str; 5] = ["r10", "r11", "r12", "r13", "r14"];
const FLOATS: [&str; 4] = ["r15", "r16", "r17", "r18"];
const LONGS: [&str; 3] = ["r19", "r20", "r21"];
const BYTES: [&str; 2] = ["r24", "r25"];
const PREDICATES: [&str; 3] = ["p0", "p1", "p2"];

/// One instruction, or a few.
fn instruction(n: &mut Numbers) -> String {
    let mut word = || n.pick(&WORDS);
    let [a, b, c] = [word(), word(), word()];
    let [x, y, z] = [(); 3].map(|()| n.pick(&FLOATS));
    let [i, j, k] = [(); 3].map(|()| n.pick(&LONGS));
    let [s, t] = [(); 2].map(|()| n.pick(&BYTES));
    let p = n.pick(&PREDICATES);
    // A word of the lane, in shared memory or a buffer.
    let slot = 4 * n.below(LANE_WORDS);
    let at = format!("mov_imm.u64 r9, {slot}\nadd.u64 r9, r9, r8");
    // Not all lanes have a place in shared memory.
    let shared = "cvt.u32.u64 r27, %lane\nshl.u64 r27, r27, r7";
    match n.below(34) {
        0 => format!("add.u32 {a}, {b}, {c}"),
        1 => format!("mul.u32 {a}, {b}, {c}"),
        2 => format!("xor.u32 {a}, {b}, {c}"),
        3 => format!("shr.u32 {a}, {b}, {c}"),
        4 => format!("cvt.u64.u32 {a}, %global"),
        5 => format!("mov.u32 {a}, %lane"),
        6 => format!("mov_imm.u32 {a}, {}", n.below(9)),
        7 => format!("div.u32 {a}, {b}, {c}"),
        8 => format!("mad.i64 {i}, {j}, {k}, {i}"),
        9 => format!("shl.i64 {i}, {j}, {a}"),
        10 => format!("sub.i64 {i}, {j}, {k}"),
        11 => format!("cvt.i64.u32 {a}, {i}\ncvt.u32.i64 {j}, {b}"),
        12 => format!("add.f32 {x}, {y}, {z}"),
        13 => format!("mul.f32 {x}, {y}, {z}"),
        14 => format!("fma.f32 {x}, {y}, {z}, {x}"),
        15 => format!("max.f32 {x}, {y}, {z}"),
        16 => format!("cvt.u32.f32 {x}, {a}\ncvt.f32.u32 {b}, {y}"),
        17 => format!("setcc.u32.lt {p}, {a}, {b}"),
        18 => format!("setcc.f32.ge {p}, {x}, {y}"),
        19 => format!("setcc.u32.eq {p}, {a}, {b}"),
        20 => format!("sel.u32 {a}, {p}, {b}, {c}"),
        21 => format!("sel.f32 {x}, {p}, {y}, {z}"),
        22 => format!("reduce_add.u32 {a}, r10, {}", 1 + n.below(5)),
        23 => format!("{at}\nldg.u32 {a}, [r1 + r9]"),
        24 => format!("{at}\nstg.u32 [r1 + r9], {a}"),
        25 => format!("{at}\nstg.f32 [r3 + r9], {x}"),
        // Any element of a buffer that nobody writes, rarely behind its end.
        26 => format!(
            "mov_imm.u32 r26, 255\nand.u32 r26, {a}, r26\ncvt.u32.u64 r9, r26\nshl.u64 r9, r9, r5\nldg.f32 {x}, [r2 + r9]"
        ),
        27 => format!(
            "cvt.u32.u64 r9, {a}\nshr.u64 r9, r9, r6\nldg.u8 r26, [r2 + r9]\ncvt.u8.i8 {s}, r26"
        ),
        28 => format!("add.i8 {s}, {s}, {t}\nabs.i8 {t}, {t}"),
        29 => format!("cvt.i8.i64 {i}, {s}\ncvt.u32.i8 {t}, {a}"),
        31 => format!("{shared}\nsts.u32 [r1 + r27], {a}"),
        32 => format!("{shared}\nlds.f32 {x}, [r1 + r27]"),
        30 => format!("phase_adv {}\nphase_get {a}", n.below(900)),
        _ => format!("cls_get r26\ncvt.u8.i8 {s}, r26\nmirror r26, r26"),
    }
}

/// The end of a block: where it goes on.
fn jump(n: &mut Numbers, blocks: usize) -> String {
    let p = n.pick(&PREDICATES);
    let [to, other] = [n.below(blocks), n.below(blocks)];
    let counter = n.pick(&["r22", "r23"]);
    match n.below(10) {
        0 => format!("bra @B{to}"),
        1..=3 => format!("bra.{p} @B{to}"),
        4 => format!("bra.{p} @B{to}\nbra @B{other}"),
        5 | 6 => format!("loop {counter}, @B{to}"),
        7 => format!("call @B{to}"),
        8 => n
            .pick(&["exit", "ret", "bar_sync 0", "bar_sync 1"])
            .to_owned(),
        _ => String::new(),
    }
}

/// A program on buffers r1 and r3, of which each lane has [`LANE_WORDS`] words, and on r2 with 256 floats that are only read.
pub(crate) fn program(n: &mut Numbers) -> Program {
    let blocks = 1 + n.below(12);
    let mut text = "
        mov_imm.u32 r5, 2
        mov_imm.u32 r6, 22
        mov_imm.u32 r7, 6
        shl.u64 r8, %global, r7
        mov_imm.u32 r22, 5
        mov_imm.u32 r23, 3
        mov_imm.i8 r24, 100
        mov_imm.i8 r25, -128
        setcc.u32.eq p0, %lane, r5
        setcc.u32.lt p1, %lane, r6
        setcc.u32.gt p2, %block, r5
    "
    .to_owned();
    for (i, register) in WORDS.iter().enumerate() {
        text += &format!(
            "ldg.u32 {register}, [r2 + {}]\nadd.u32 {register}, {register}, %lane\n",
            4 * i
        );
    }
    for (i, register) in FLOATS.iter().enumerate() {
        text += &format!("ldg.f32 {register}, [r2 + {}]\n", 32 + 4 * i);
    }
    for (i, register) in LONGS.iter().enumerate() {
        text += &format!("mov_imm.i64 {register}, {}\n", [-7_i64, 1 << 40, 3][i]);
    }
    for block in 0..blocks {
        text += &format!("B{block}:\n");
        for _ in 0..n.below(6) {
            text += &instruction(n);
            text.push('\n');
        }
        text += &jump(n, blocks);
        text.push('\n');
    }
    // What registers hold in the end.
    text += "stg.u32 [r3 + r8], r10\n";
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}
