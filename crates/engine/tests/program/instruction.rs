//! Every instruction on values of every type.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bessemer::DType;
use bessemer::program::{Instruction, LaunchConfig, Program, Value};
use bessemer_hal::soft::Mode;
use bessemer_testing::number::ulp;
use bessemer_testing::tolerance::tolerance;

use crate::{ProgramCase, soft, words};

/// Lanes of a launch: with blocks of one, every class occurs at least twice.
const LANES: usize = 200;

/// Types that Metal has.
const TYPES: [DType; 11] = [
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::F16,
    DType::BF16,
    DType::F32,
];

/// Operand `operand` of a lane, without zero for integers, so that nothing divides by it.
fn element(dtype: DType, operand: usize, lane: usize) -> u64 {
    let number = (lane * 3 + operand) as u64;
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 40);
    let bits = if dtype.is_float() {
        let x = match (lane, operand) {
            (0, 0) | (1, 1) => f32::NAN,
            (2, 0) => f32::INFINITY,
            (3, 1) => -0.0,
            _ => ((mixed >> 20) % 4001) as f32 / 1000.0 - if operand == 2 { 2.0 } else { 0.0 },
        };
        match dtype {
            DType::F16 => u64::from(half::f16::from_f32(x).to_bits()),
            DType::BF16 => u64::from(half::bf16::from_f32(x).to_bits()),
            _ => u64::from(x.to_bits()),
        }
    } else {
        match lane {
            // The least number by -1.
            5 if operand == 0 => 1 << (8 * dtype.size() - 1),
            5 => u64::MAX,
            _ => mixed | 1,
        }
    };
    Value::from_bits(dtype, bits).bits()
}

/// A result that a program stores for every lane.
struct Stored {
    op: String,
    dtype: DType,
    offset: usize,
}

/// A program that stores the results of instructions one behind the other.
struct Assembler {
    text: String,
    stored: Vec<Stored>,
    inputs: Vec<u8>,
    end: usize,
}

impl Assembler {
    fn new() -> Self {
        Self {
            text: String::new(),
            stored: Vec::new(),
            inputs: Vec::new(),
            end: 0,
        }
    }

    /// Loads the operands of a type into r20, r21 and r22.
    fn load(&mut self, dtype: DType) {
        let size = dtype.size();
        let _ = writeln!(
            self.text,
            "mov_imm.u64 r10, {size}\nmul.u64 r11, %global, r10"
        );
        for operand in 0..3 {
            let _ = writeln!(
                self.text,
                "mov_imm.u64 r12, {}\nadd.u64 r12, r12, r11\nldg.{dtype} r{}, [r1 + r12]",
                self.inputs.len(),
                20 + operand
            );
            for lane in 0..LANES {
                let bytes = element(dtype, operand, lane).to_le_bytes();
                self.inputs.extend(&bytes[..size]);
            }
        }
    }

    /// Adds an instruction that writes r30, and a store of it.
    fn add(&mut self, op: &str, instruction: &str, dtype: DType) {
        let size = dtype.size();
        let _ = writeln!(
            self.text,
            "{instruction}\nmov_imm.u64 r10, {size}\nmul.u64 r11, %global, r10\nmov_imm.u64 r12, {}\n\
             add.u64 r12, r12, r11\nstg.{dtype} [r2 + r12], r30",
            self.end
        );
        self.stored.push(Stored {
            op: op.to_owned(),
            dtype,
            offset: self.end,
        });
        self.end += LANES * size.max(8);
    }

    /// Adds a predicate in p0 as 0 or 1.
    fn add_predicate(&mut self, instruction: &str) {
        let text = format!(
            "{instruction}\nmov_imm.u32 r31, 1\nmov_imm.u32 r32, 0\nsel.u32 r30, p0, r31, r32"
        );
        self.add("sel", &text, DType::U32);
    }

    fn check(self, config: LaunchConfig) -> Program {
        let output = vec![0; self.end];
        let case = ProgramCase::new(&self.text, config, &[self.inputs, output]);
        let device = soft(Mode::Fast);
        let (expected, faults) = case.interpret();
        let (found, outcome) = case.execute(&device);
        assert_eq!((faults, outcome), (Vec::new(), Ok(())));
        let mut problems = String::new();
        for Stored { op, dtype, offset } in &self.stored {
            let tolerance = device.scope(|| tolerance(op, *dtype, 1));
            for lane in 0..LANES {
                let at = offset + lane * dtype.size();
                let value = |all: &[Vec<u8>]| {
                    let mut bytes = [0; 8];
                    bytes[..dtype.size()].copy_from_slice(&all[1][at..at + dtype.size()]);
                    Value::from_bits(*dtype, u64::from_le_bytes(bytes))
                };
                let (expected, found) = (value(&expected), value(&found));
                let [e, f] = [expected, found].map(Value::to_f64);
                let is_near = dtype.is_float()
                    && (e == f
                        || (e.is_nan() && f.is_nan())
                        // The interpreter's result is rounded as well, by half a unit in the last place.
                        || (!tolerance.is_exact()
                            && (e - f).abs()
                                <= tolerance.allowed(*dtype, e, 0.0) + 0.5 * ulp(*dtype, e)));
                if expected.bits() != found.bits() && !is_near {
                    let _ = writeln!(
                        problems,
                        "{op}.{dtype} lane {lane}: {found}, not {expected}"
                    );
                }
            }
        }
        assert!(problems.is_empty(), "{problems}");
        case.program
    }
}

fn arithmetic() -> Assembler {
    let mut all = Assembler::new();
    for dtype in TYPES {
        all.load(dtype);
        for op in ["add", "sub", "mul", "div", "min", "max"] {
            all.add(op, &format!("{op}.{dtype} r30, r20, r21"), dtype);
        }
        all.add("mad", &format!("mad.{dtype} r30, r20, r21, r22"), dtype);
        all.add("mov", &format!("mov.{dtype} r30, r20"), dtype);
        let bits = element(dtype, 0, 7);
        all.add("mov_imm", &format!("mov_imm.{dtype} r30, {bits:#x}"), dtype);
        for op in ["reduce_add", "reduce_min", "reduce_max", "reduce_mul"] {
            all.add(op, &format!("{op}.{dtype} r30, r20, 3"), dtype);
        }
        for condition in ["eq", "ne", "lt", "le", "gt", "ge"] {
            all.add_predicate(&format!("setcc.{dtype}.{condition} p0, r20, r21"));
        }
        if !dtype.is_unsigned() {
            for op in ["abs", "neg"] {
                all.add(op, &format!("{op}.{dtype} r30, r20"), dtype);
            }
        }
        if dtype.is_int() {
            for op in ["and", "or", "xor"] {
                all.add(op, &format!("{op}.{dtype} r30, r20, r21"), dtype);
            }
            all.add("not", &format!("not.{dtype} r30, r20"), dtype);
            for op in ["shl", "shr"] {
                all.add(op, &format!("{op}.{dtype} r30, r20, %lane"), dtype);
            }
        }
        if dtype.is_unsigned() {
            for condition in ["ltu", "leu", "gtu", "geu"] {
                all.add_predicate(&format!("setcc.{dtype}.{condition} p0, r20, r21"));
            }
        }
    }
    all
}

#[test]
fn arithmetic_and_logic_have_the_bits_of_the_interpreter() {
    arithmetic().check(LaunchConfig::linear(LANES as u32, 100));
}

fn conversions_and_functions() -> Assembler {
    let mut all = Assembler::new();
    for dtype in TYPES {
        all.load(dtype);
        for to in TYPES {
            all.add("cvt", &format!("cvt.{dtype}.{to} r30, r22"), to);
        }
    }
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        all.load(dtype);
        all.add("fma", &format!("fma.{dtype} r30, r20, r21, r22"), dtype);
        for op in [
            "exp", "log", "log2", "log10", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid",
        ] {
            all.add(op, &format!("{op}.{dtype} r30, r20"), dtype);
        }
        all.add("pow", &format!("pow.{dtype} r30, r20, r21"), dtype);
    }
    all
}

#[test]
fn conversions_have_the_bits_of_the_interpreter_and_functions_its_values() {
    conversions_and_functions().check(LaunchConfig::linear(LANES as u32, 40));
}

fn classes() -> Assembler {
    let mut all = Assembler::new();
    all.add("cls_get", "cls_get r30", DType::U8);
    all.add("mirror", "cls_get r20\nmirror r30, r20", DType::U8);
    all.add("nbr_count", "nbr_count r30, r20", DType::U32);
    for index in 0..7 {
        all.add("nbr_get", &format!("nbr_get r30, r20, {index}"), DType::U8);
    }
    all.add_predicate("unity_test p0, 0.5");
    all.add(
        "bound_map",
        "mov_imm.u8 r21, 47\nmov_imm.u8 r22, 200\nbound_map r30, r20, r21, r22",
        DType::U64,
    );
    all.add(
        "phase_get",
        "phase_adv 700\nphase_adv 100\nmem_fence.device\nphase_get r30",
        DType::U32,
    );
    all
}

#[test]
fn classes_and_phases_are_those_of_the_interpreter() {
    classes().check(LaunchConfig::linear(LANES as u32, 1));
}

#[test]
fn positions_follow_a_grid_and_a_block_of_three_dimensions() {
    let text = "
        mov_imm.u64 r10, 16
        mul.u64 r11, %global, r10
        stg.u32 [r1 + r11], %lane
        mov_imm.u64 r12, 4
        add.u64 r11, r11, r12
        stg.u32 [r1 + r11], %block
        add.u64 r11, r11, r12
        stg.u64 [r1 + r11], %global
    ";
    let mut config = LaunchConfig::linear(1, 1);
    (config.grid.x, config.grid.y, config.grid.z) = (3, 2, 2);
    (config.block.x, config.block.y, config.block.z) = (2, 3, 2);
    let case = ProgramCase::new(text, config, &[words([0; 12 * 12 * 4])]);
    case.check(&soft(Mode::Fast));
}

#[test]
fn every_instruction_is_compiled_or_refused_by_name() {
    let more = "
            mov_imm.u32 r10, 2
            mov_imm.u64 r11, 0
            pool_alloc r12, 16
            pool_store.u32 r12, r11, r10
            pool_load.u32 r13, r12, r11
            sts.u32 [r11], r13
            bar_sync 1
            lds.u32 r13, [r11]
        again:
            call @function
            loop r10, @again
            bra @next
        function:
            ret
        next:
            layer_norm.f32 input=r1, gamma=r1, beta=r1, output=r2, num_positions=1, hidden_dim=1, eps=0.1
            group_norm.f32 input=r1, gamma=r1, beta=r1, output=r2, batch_size=1, num_channels=1, height=1, width=1, num_groups=1, eps=0.1
            batch_norm.f32 input=r1, scale=r1, bias=r1, mean=r1, variance=r1, output=r2, batch_size=1, num_channels=1, height=1, width=1, eps=0.1
            conv2d.f32 input=r1, weights=r1, bias=r1, output=r2, batch_size=1, in_channels=1, in_height=1, in_width=1, out_channels=1, kernel_h=1, kernel_w=1, stride_h=1, stride_w=1, pad_top=0, pad_left=0, pad_bottom=0, pad_right=0, dilation_h=1, dilation_w=1, group=1, has_bias=false
            nearest_upsample2d.f32 input=r1, output=r2, batch_size=1, num_channels=1, in_height=1, in_width=1, scale_factor=1
            gemm.f32 matrix_a=r1, matrix_b=r1, matrix_c=r2, m=1, k=1, n=1
            parallel_map.f32.abs input=r1, output=r2, count=1
            parallel_map_binary.f32.add input_a=r1, input_b=r1, output=r2, count=1
            parallel_reduce.f32.sum input=r1, output=r2, count=1
            pool_free r12
            exit
    ";
    let device = soft(Mode::Fast);
    let texts = [
        arithmetic().text,
        conversions_and_functions().text,
        classes().text,
        more.to_owned(),
    ];
    let mut compiled = BTreeSet::new();
    for text in texts {
        let program: Program = text.parse().unwrap();
        program.compile(&device).unwrap();
        compiled.extend(program.instructions.iter().map(Instruction::mnemonic));
    }
    let missing: Vec<_> = Instruction::TABLE
        .iter()
        .map(|(_, mnemonic, _)| *mnemonic)
        .filter(|mnemonic| !compiled.contains(mnemonic))
        .collect();
    // `refused.rs` shows that it is refused.
    assert_eq!(missing, ["res_accum"]);
}
