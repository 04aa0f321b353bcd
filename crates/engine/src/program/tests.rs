//! Random programs through both formats, damaged input, and every error of the text format.

use proptest::prelude::*;

use super::instruction::OperandReader;
use super::*;
use crate::DType;

/// Operands from a stream of random numbers, valid ones where that is simple.
struct RandomOperands<'a> {
    numbers: std::iter::Cycle<std::slice::Iter<'a, u64>>,
    labels: usize,
}

impl RandomOperands<'_> {
    fn next(&mut self) -> u64 {
        self.numbers.next().copied().unwrap_or_default()
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

impl OperandReader for RandomOperands<'_> {
    type Error = std::convert::Infallible;

    fn dtype(&mut self) -> Result<DType, Self::Error> {
        Ok(DType::ALL[1 + self.below(12)])
    }

    fn register(&mut self, _: &'static str) -> Result<Register, Self::Error> {
        Ok(Register(self.next() as u8))
    }

    fn predicate(&mut self) -> Result<Predicate, Self::Error> {
        Ok(Predicate(self.below(16) as u8))
    }

    fn guard(&mut self) -> Result<Option<Predicate>, Self::Error> {
        Ok(self
            .next()
            .is_multiple_of(2)
            .then(|| Predicate(self.below(16) as u8)))
    }

    fn choice(&mut self, _: &'static str, names: &[&'static str]) -> Result<usize, Self::Error> {
        Ok(self.below(names.len()))
    }

    fn label(&mut self) -> Result<String, Self::Error> {
        Ok(format!("L{}", self.below(self.labels)))
    }

    fn address(&mut self) -> Result<Address, Self::Error> {
        let [a, b] = [self.next(), self.next()];
        Ok(match self.below(5) {
            0 => Address::BufferOffset {
                handle: a,
                offset: b,
            },
            1 => Address::BufferRegister {
                handle: a,
                offset: Register(b as u8),
            },
            2 => Address::PhiCoordinate {
                class: (a % 96) as u8,
                page: (b % 48) as u8,
                byte: a as u8,
            },
            3 => Address::RegisterIndirect {
                base: Register(a as u8),
                offset: b as i32,
            },
            _ => Address::RegisterIndirectComputed {
                handle_reg: Register(a as u8),
                offset_reg: Register(b as u8),
            },
        })
    }

    fn integer(&mut self, _: &'static str, max: u64) -> Result<u64, Self::Error> {
        // Small ones are sizes that go with each other, and all of them must be read back.
        Ok(if self.next().is_multiple_of(32) {
            self.next() & max
        } else {
            1 + self.next() % 3
        })
    }

    fn bits(&mut self, _: DType) -> Result<u64, Self::Error> {
        Ok(match self.below(3) {
            0 => self.next(),
            1 => self.next() % 1000,
            _ => (self.next() % 1000).wrapping_neg(),
        })
    }

    fn f32(&mut self, _: &'static str) -> Result<f32, Self::Error> {
        Ok(f32::from_bits(self.next() as u32 & 0x7eff_ffff))
    }

    fn f64(&mut self, _: &'static str) -> Result<f64, Self::Error> {
        Ok(f64::from_bits(self.next() & 0x7fe7_ffff_ffff_ffff))
    }

    fn flag(&mut self, _: &'static str) -> Result<bool, Self::Error> {
        Ok(self.next().is_multiple_of(2))
    }
}

/// A valid program: random instructions, those that are not valid left out.
pub(crate) fn random_program(numbers: &[u64], len: usize) -> Program {
    let labels = 3;
    let mut operands = RandomOperands {
        numbers: numbers.iter().cycle(),
        labels,
    };
    let mut program = Program::new();
    for _ in 0..len {
        let (opcode, ..) = Instruction::TABLE[operands.below(Instruction::TABLE.len())];
        let Ok(instruction) = Instruction::read(opcode, &mut operands).expect("it is in the table");
        if instruction.check().is_ok() {
            program.instructions.push(instruction);
        }
    }
    for label in 0..labels {
        let index = operands.below(program.len() + 1);
        program.labels.insert(format!("L{label}"), index);
    }
    program.validate().expect("every instruction was checked");
    program
}

/// One valid instruction of every row of the table.
pub(crate) fn every_instruction() -> Program {
    let mut program = Program::new();
    program.labels.insert("L0".to_owned(), 0);
    for &(opcode, mnemonic, _) in Instruction::TABLE {
        let found = (0..10_000_u64).find_map(|seed| {
            let numbers: Vec<u64> = (0..97)
                .map(|i| (seed * 97 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7)
                .collect();
            let mut operands = RandomOperands {
                numbers: numbers.iter().cycle(),
                labels: 1,
            };
            let Ok(instruction) =
                Instruction::read(opcode, &mut operands).expect("it is in the table");
            instruction.check().is_ok().then_some(instruction)
        });
        program
            .instructions
            .push(found.unwrap_or_else(|| panic!("no valid {mnemonic}")));
    }
    program
}

#[test]
fn the_table_has_seventy_instructions_with_distinct_names() {
    let opcodes: Vec<_> = Instruction::TABLE
        .iter()
        .map(|(opcode, ..)| *opcode)
        .collect();
    assert_eq!(opcodes, (1..=70).collect::<Vec<u8>>());
    let mut names: Vec<_> = Instruction::TABLE
        .iter()
        .map(|(_, name, _)| *name)
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 70);
}

#[test]
fn every_instruction_is_the_same_after_both_formats() {
    let program = every_instruction();
    assert_eq!(program.len(), 70);
    assert_eq!(
        program.to_string().parse(),
        Ok(program.clone()),
        "{program}"
    );
    assert_eq!(
        Program::from_bytes(&program.to_bytes().unwrap()),
        Ok(program)
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn programs_are_the_same_after_both_formats(numbers in prop::collection::vec(any::<u64>(), 1..200), len in 0_usize..60) {
        let program = random_program(&numbers, len);
        let text = program.to_string();
        prop_assert_eq!(text.parse::<Program>(), Ok(program.clone()), "{}", text);
        prop_assert_eq!(Program::from_bytes(&program.to_bytes().unwrap()), Ok(program));
    }

    #[test]
    fn damaged_bytes_are_errors_and_never_panics(
        numbers in prop::collection::vec(any::<u64>(), 1..50),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
        has_checksum in any::<bool>(),
    ) {
        let program = random_program(&numbers, 20);
        let good = program.to_bytes().unwrap();
        let mut bytes = good.clone();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if has_checksum {
            // The damage reaches the decoder only with a checksum that matches.
            let end = bytes.len() - 4;
            let mut crc = flate2::Crc::new();
            crc.update(&bytes[12..end]);
            let sum = crc.sum().to_le_bytes();
            bytes[end..].copy_from_slice(&sum);
        }
        match Program::from_bytes(&bytes) {
            // What is read is what its own writer writes.
            Ok(program) => prop_assert_eq!(program.to_bytes().unwrap(), bytes),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        let cut = cut.index(good.len());
        prop_assert!(Program::from_bytes(&good[..cut]).is_err());
    }

    #[test]
    fn damaged_text_is_an_error_and_never_a_panic(
        numbers in prop::collection::vec(any::<u64>(), 1..50),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..6),
    ) {
        let program = random_program(&numbers, 12);
        let mut text: Vec<char> = program.to_string().chars().collect();
        for (at, edit) in edits {
            if !text.is_empty() {
                let at = at.index(text.len());
                text[at] = edit;
            }
        }
        let text: String = text.into_iter().collect();
        if let Ok(program) = text.parse::<Program>() {
            prop_assert_eq!(program.to_string().parse(), Ok(program));
        }
    }
}

#[test]
fn text_errors_have_a_line_and_a_column() {
    struct Case {
        text: &'static str,
        at: (usize, usize),
        reason: &'static str,
    }
    let cases = [
        Case {
            text: "exit\n  jump r1",
            at: (2, 3),
            reason: "unknown instruction `jump`",
        },
        Case {
            text: "add.f32 r0, r1",
            at: (1, 15),
            reason: "expected `,`, found the end of the line",
        },
        Case {
            text: "add.f32 r0, r1, r300",
            at: (1, 17),
            reason: "expected src2, a register r0 to r255, found `r300`",
        },
        Case {
            text: "add.f31 r0, r1, r2",
            at: (1, 5),
            reason: "`f31` is not a type",
        },
        Case {
            text: "add r0, r1, r2",
            at: (1, 4),
            reason: "expected a type as a suffix of the mnemonic",
        },
        Case {
            text: "neg.f32.f32 r0, r1",
            at: (1, 9),
            reason: "neg has no suffix `.f32` here",
        },
        Case {
            text: "neg.f32 r0, r1 r2",
            at: (1, 16),
            reason: "expected the end of neg, found `r2`",
        },
        Case {
            text: "setcc.f32.xx p0, r1, r2",
            at: (1, 11),
            reason: "`xx` is not a condition: eq, ne, lt, le, gt, ge, ltu, leu, gtu, geu",
        },
        Case {
            text: "setcc.f32.lt p16, r1, r2",
            at: (1, 14),
            reason: "expected a predicate p0 to p15, found `p16`",
        },
        Case {
            text: "bra @x",
            at: (1, 1),
            reason: "label `x` is not defined",
        },
        Case {
            text: "bra x",
            at: (1, 5),
            reason: "expected `@` and a label, found `x`",
        },
        Case {
            text: "x: exit\nx: exit",
            at: (2, 1),
            reason: "label `x` at instruction 1 exists already",
        },
        Case {
            text: "ldg.f32 r0, r1",
            at: (1, 13),
            reason: "expected `[`, found `r1`",
        },
        Case {
            text: "ldg.f32 r0, [q1]",
            at: (1, 14),
            reason: "expected a register, a buffer such as b0, or phi(class, page, byte), found `q1]`",
        },
        Case {
            text: "ldg.f32 r0, [phi(96, 0, 0)]",
            at: (1, 1),
            reason: "ldg: class 96 is out of range: there are 96",
        },
        Case {
            text: "mov_imm.u8 r0, 256",
            at: (1, 16),
            reason: "expected a number that fits u8, or its bits as 0x…, found `256`",
        },
        Case {
            text: "abs.u32 r0, r1",
            at: (1, 1),
            reason: "abs: not defined for u32, only for signed integers and floats",
        },
        Case {
            text: "setcc.i32.ltu p0, r1, r2",
            at: (1, 1),
            reason: "setcc: condition ltu is not defined for i32",
        },
        Case {
            text: "gemm.f32 a=r1",
            at: (1, 10),
            reason: "expected `matrix_a=`, found `a=r1`",
        },
        Case {
            text: "reduce_add.f32 r0, r250, 7",
            at: (1, 1),
            reason: "reduce_add: 7 registers from r250 on: there must be 1 at least, up to r255",
        },
    ];
    for case in cases {
        let (line, column) = case.at;
        let expected = ProgramError::Parse {
            line,
            column,
            reason: case.reason.to_owned(),
        };
        assert_eq!(case.text.parse::<Program>(), Err(expected), "{}", case.text);
    }
}

#[test]
fn text_has_comments_labels_and_special_registers() {
    let program: Program = "
        start:            ; a label of its own line
        also: mov.u32 r0, %lane // and one before an instruction
        bra.p3 @end
        bra @start
        end:
    "
    .parse()
    .unwrap();
    assert_eq!(program.labels["start"], 0);
    assert_eq!(program.labels["also"], 0);
    assert_eq!(program.labels["end"], 3);
    assert_eq!(
        program.to_string(),
        "also:\nstart:\n    mov.u32 r0, %lane\n    bra.p3 @end\n    bra @start\nend:\n"
    );
}

#[test]
fn constants_are_numbers_where_that_is_exact() {
    let texts = [
        "mov_imm.i8 r0, -128",
        "mov_imm.u64 r0, 18446744073709551615",
        "mov_imm.i32 r0, 0xffffffff",
        "mov_imm.f32 r0, -0.0",
        "mov_imm.f32 r0, 1e-45",
        "mov_imm.f32 r0, inf",
        "mov_imm.f32 r0, 0x7fc00001",
        "mov_imm.f16 r0, 0.5",
        "mov_imm.bf16 r0, 3.140625",
        "mov_imm.f64 r0, 0.1",
    ];
    for text in texts {
        let program: Program = text.parse().unwrap();
        assert_eq!(program.to_string().trim(), text);
    }
    for text in [
        "mov_imm.f32 r0, nan",
        "mov_imm.f32 r0, infinity",
        "mov_imm.i8 r0, 128",
    ] {
        assert!(text.parse::<Program>().is_err(), "{text}");
    }
}

#[test]
fn the_header_of_the_binary_format_is_checked() {
    let good = every_instruction().to_bytes().unwrap();
    let damaged = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        match Program::from_bytes(&bytes).unwrap_err() {
            ProgramError::Binary { offset, reason } => (offset, reason),
            other => panic!("{other}"),
        }
    };
    assert_eq!(
        damaged(0, b'X'),
        (0, "not a program in binary form".to_owned())
    );
    assert_eq!(
        damaged(4, 9),
        (4, "version 9 is unsupported, only 1".to_owned())
    );
    assert_eq!(damaged(6, 1), (6, "unknown flags".to_owned()));
    let (_, reason) = damaged(good.len() / 2, !good[good.len() / 2]);
    assert!(reason.contains("checksum"), "{reason}");
}

#[test]
fn an_unknown_opcode_is_an_error() {
    let mut program = Program::new();
    program.instructions.push(Instruction::Exit {});
    let mut bytes = program.to_bytes().unwrap();
    // The body is: no labels, one instruction, its opcode.
    bytes[14] = 71;
    let mut crc = flate2::Crc::new();
    crc.update(&bytes[12..15]);
    bytes[15..].copy_from_slice(&crc.sum().to_le_bytes());
    let expected = ProgramError::Binary {
        offset: 14,
        reason: "unknown opcode 71".to_owned(),
    };
    assert_eq!(Program::from_bytes(&bytes), Err(expected));
}

#[test]
fn files_are_written_and_read_in_both_formats() {
    let program = every_instruction();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program.bsm");
    program.save_to_file(&path).unwrap();
    assert_eq!(Program::load_from_file(&path), Ok(program.clone()));
    std::fs::write(&path, program.to_string()).unwrap();
    assert_eq!(Program::load_from_file(&path), Ok(program));
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(
        Program::load_from_file(&path),
        Err(ProgramError::File { .. })
    ));
    assert!(matches!(
        Program::load_from_file(folder.path().join("missing")),
        Err(ProgramError::File { .. })
    ));
}

#[test]
fn labels_are_checked() {
    let mut program = Program::new();
    program.add_label("a").unwrap();
    assert_eq!(
        program.add_label("a"),
        Err(ProgramError::DuplicateLabel("a".to_owned(), 0))
    );
    assert_eq!(
        program.add_label("1a"),
        Err(ProgramError::InvalidLabel("1a".to_owned()))
    );
    program.instructions.push(Instruction::Bra {
        pred: None,
        target: "b".to_owned(),
    });
    assert_eq!(
        program.validate(),
        Err(ProgramError::UndefinedLabel("b".to_owned(), 0))
    );
    program.labels.insert("b".to_owned(), 2);
    assert_eq!(
        program.validate(),
        Err(ProgramError::InvalidLabelTarget("b".to_owned(), 2, 1))
    );
    program.labels.insert("b".to_owned(), 1);
    assert_eq!(program.validate(), Ok(()));
    assert_eq!(program.resolve_label("b"), Some(1));
    assert!(program.has_label("a") && !program.has_label("c"));
}

#[test]
fn the_builder_reports_its_first_mistake() {
    let mut builder = Program::builder();
    builder.label("a").exit().label("a").label("b");
    assert_eq!(
        builder.build(),
        Err(ProgramError::DuplicateLabel("a".to_owned(), 1))
    );
    let mut builder = Program::builder();
    builder.bra(None, "nowhere");
    assert_eq!(
        builder.build(),
        Err(ProgramError::UndefinedLabel("nowhere".to_owned(), 0))
    );
}

#[test]
fn instructions_know_their_place_in_the_text() {
    let text = "; a comment\n\nstart: mov_imm.u32 r0, 1\nend:\n\n\texit // done\n";
    let (program, locations) = Program::parse_located(text).unwrap();
    assert_eq!(program.len(), 2);
    let [first, second] = locations[..] else {
        panic!("{locations:?}");
    };
    assert_eq!((first.line, first.column), (3, 8));
    assert_eq!((second.line, second.column), (6, 2));
}
