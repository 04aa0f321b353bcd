//! The text format.
//!
//! ```text
//! program     = { line }
//! line        = [ label ":" ] [ instruction ] [ ( ";" | "//" ) comment ]
//! instruction = mnemonic { "." suffix } [ operand { "," operand } ]
//! suffix      = dtype | condition | scope | operation | predicate
//! operand     = register | predicate | address | constant | "@" label | name "=" operand
//! register    = "r" 0..255 | "%lane" | "%block" | "%block_dim" | "%global"
//! predicate   = "p" 0..15
//! address     = "[" ( "b" handle | register | "phi(" class "," page "," byte ")" ) [ "+" ( offset | register ) ] "]"
//! constant    = integer | float | "0x" hex | "true" | "false"
//! ```
//!
//! Types, conditions, scopes, operations and guards are suffixes, in the order of the table; everything else follows, separated
//! by commas. Operands of tensor instructions have names. Constants of a type are written as numbers where that is exact, and
//! otherwise as `0x` and their bits. `parse(print(program)) == program` for every valid program.

use std::fmt::{self, Write as _};
use std::iter::Peekable;
use std::str::FromStr;

use half::{bf16, f16};

use super::error::{ProgramError, Result};
use super::instruction::{Instruction, OperandReader, by_mnemonic};
use super::operand::{Address, Operand, Predicate, Register};
use super::{MAX_INSTRUCTIONS, Program};
use crate::DType;

/// Maximum size of a program's text in bytes.
const MAX_TEXT_BYTES: usize = 16 << 20;

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut labels: Vec<_> = self.labels.iter().map(|(l, &i)| (i, l)).collect();
        labels.sort_unstable();
        let mut labels = labels.into_iter().peekable();
        for (index, instruction) in self.instructions.iter().enumerate() {
            write_labels(f, &mut labels, index)?;
            writeln!(f, "    {instruction}")?;
        }
        write_labels(f, &mut labels, self.len())
    }
}

fn write_labels<'a>(
    f: &mut fmt::Formatter<'_>,
    labels: &mut Peekable<impl Iterator<Item = (usize, &'a String)>>,
    index: usize,
) -> fmt::Result {
    while let Some((_, label)) = labels.next_if(|(i, _)| *i == index) {
        writeln!(f, "{label}:")?;
    }
    Ok(())
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.mnemonic().to_owned();
        let mut operands = String::new();
        self.for_each_operand(|name, operand| {
            if let Some(suffix) = suffix(operand) {
                text.push('.');
                text.push_str(&suffix);
            } else if !matches!(operand, Operand::Guard(None)) {
                operands.push_str(if operands.is_empty() { " " } else { ", " });
                if self.category().has_named_operands() {
                    let _ = write!(operands, "{name}=");
                }
                write_operand(&mut operands, operand);
            }
        });
        write!(f, "{text}{operands}")
    }
}

fn suffix(operand: Operand<'_>) -> Option<String> {
    match operand {
        Operand::DType(dtype) => Some(dtype.name().to_owned()),
        Operand::Condition(condition) => Some(condition.to_string()),
        Operand::Scope(scope) => Some(scope.to_string()),
        Operand::Map(operation) => Some(operation.to_string()),
        Operand::MapBinary(operation) => Some(operation.to_string()),
        Operand::Reduce(operation) => Some(operation.to_string()),
        Operand::Guard(Some(predicate)) => Some(predicate.to_string()),
        _ => None,
    }
}

fn write_operand(text: &mut String, operand: Operand<'_>) {
    let _ = match operand {
        Operand::Read(register, _) | Operand::Write(register, _) | Operand::Update(register, _) => {
            write!(text, "{register}")
        }
        Operand::Span(span, _) => write!(text, "{}, {}", span.base, span.count),
        Operand::Test(predicate) | Operand::Set(predicate) => write!(text, "{predicate}"),
        Operand::Label(label) => write!(text, "@{label}"),
        Operand::Address(address) => write!(text, "{address}"),
        Operand::Integer(value, _) => write!(text, "{value}"),
        Operand::Bits(bits, dtype) => write!(text, "{}", constant(bits, dtype)),
        Operand::F32(value) => write!(text, "{value:?}"),
        Operand::F64(value) => write!(text, "{value:?}"),
        Operand::Flag(value) => write!(text, "{value}"),
        // Suffixes.
        _ => Ok(()),
    };
}

/// A constant of a type as a number, or as bits if parsing the number would give others.
fn constant(bits: u64, dtype: DType) -> String {
    let number = match dtype {
        DType::F16 => format!("{:?}", f16::from_bits(bits as u16).to_f32()),
        DType::BF16 => format!("{:?}", bf16::from_bits(bits as u16).to_f32()),
        DType::F32 => format!("{:?}", f32::from_bits(bits as u32)),
        DType::F64 => format!("{:?}", f64::from_bits(bits)),
        _ if dtype.is_unsigned() => bits.to_string(),
        _ => bits.cast_signed().to_string(),
    };
    if parse_constant(&number, dtype) == Some(bits) {
        number
    } else {
        format!("{bits:#x}")
    }
}

/// Bits of a number of a type: sign-extended for signed integers. `None` if it is not one, or out of range.
fn parse_constant(text: &str, dtype: DType) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    match dtype {
        // Nothing that Rust parses beyond numbers, such as `infinity`; a NaN has bits.
        _ if dtype.is_float()
            && !text
                .trim_start_matches('-')
                .starts_with(|c: char| c.is_ascii_digit() || c == '.') =>
        {
            match text {
                "inf" => parse_float("inf", dtype),
                "-inf" => parse_float("-inf", dtype),
                _ => None,
            }
        }
        _ if dtype.is_float() => parse_float(text, dtype),
        _ => {
            let value: i128 = text.parse().ok()?;
            let width = 8 * dtype.size() as u32;
            let range = if dtype.is_unsigned() {
                0..=(1_i128 << width) - 1
            } else {
                -(1_i128 << (width - 1))..=(1_i128 << (width - 1)) - 1
            };
            range.contains(&value).then_some(value as u64)
        }
    }
}

fn parse_float(text: &str, dtype: DType) -> Option<u64> {
    Some(match dtype {
        DType::F16 => u64::from(f16::from_f64(text.parse().ok()?).to_bits()),
        DType::BF16 => u64::from(bf16::from_f64(text.parse().ok()?).to_bits()),
        DType::F32 => u64::from(text.parse::<f32>().ok()?.to_bits()),
        _ => text.parse::<f64>().ok()?.to_bits(),
    })
}

/// Where an instruction stands in the text of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLocation {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl FromStr for Program {
    type Err = ProgramError;

    /// Parses the text format and validates the program.
    fn from_str(text: &str) -> Result<Self> {
        Self::parse_located(text).map(|(program, _)| program)
    }
}

impl Program {
    /// Parses the text format and validates the program; also returns the location of each instruction.
    ///
    /// # Errors
    /// [`ProgramError::Parse`] and [`ProgramError::TooLong`], and those of [`Program::validate`].
    pub fn parse_located(text: &str) -> Result<(Self, Vec<TextLocation>)> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(parse_error(
                1,
                1,
                format!(
                    "the text has {} bytes, the limit is {MAX_TEXT_BYTES}",
                    text.len()
                ),
            ));
        }
        let mut program = Self::new();
        let mut locations = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut line = LineParser::new(number, line);
            if let Some((label, column)) = line.label()? {
                program
                    .add_label(label)
                    .map_err(|error| parse_error(number, column, error.to_string()))?;
            }
            if line.is_at_end() {
                continue;
            }
            let column = line.column();
            if program.len() == MAX_INSTRUCTIONS {
                return Err(ProgramError::TooLong {
                    instructions: MAX_INSTRUCTIONS + 1,
                });
            }
            program.instructions.push(line.instruction()?);
            locations.push(TextLocation {
                line: number,
                column,
            });
        }
        program.validate().map_err(|error| match &error {
            ProgramError::UndefinedLabel(_, index)
            | ProgramError::InvalidInstruction { index, .. } => {
                let TextLocation { line, column } = locations[*index];
                let reason = match error {
                    ProgramError::UndefinedLabel(label, _) => {
                        format!("label `{label}` is not defined")
                    }
                    ProgramError::InvalidInstruction {
                        mnemonic, reason, ..
                    } => format!("{mnemonic}: {reason}"),
                    other => other.to_string(),
                };
                parse_error(line, column, reason)
            }
            _ => error,
        })?;
        Ok((program, locations))
    }
}

const fn parse_error(line: usize, column: usize, reason: String) -> ProgramError {
    ProgramError::Parse {
        line,
        column,
        reason,
    }
}

/// A line that is being parsed.
struct LineParser<'a> {
    number: usize,
    text: &'a str,
    /// Bytes that have been read.
    at: usize,
    /// Suffixes of the mnemonic that have not been read, with their positions.
    suffixes: std::vec::IntoIter<(usize, &'a str)>,
    /// Whether operands have names.
    is_named: bool,
    /// Whether an operand was read, so that a comma must come before the next.
    has_operand: bool,
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')
}

impl<'a> LineParser<'a> {
    fn new(number: usize, text: &'a str) -> Self {
        let comment = [text.find(';'), text.find("//")];
        let end = comment.into_iter().flatten().min().unwrap_or(text.len());
        Self {
            number,
            text: &text[..end],
            at: 0,
            suffixes: Vec::new().into_iter(),
            is_named: false,
            has_operand: false,
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Column of the next token, from 1.
    fn column(&mut self) -> usize {
        self.skip_space();
        self.column_of(self.at)
    }

    fn column_of(&self, at: usize) -> usize {
        1 + self.text[..at].chars().count()
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    fn error(&self, at: usize, reason: impl Into<String>) -> ProgramError {
        parse_error(self.number, self.column_of(at), reason.into())
    }

    /// What stands at the next token, for errors.
    fn found(&self) -> String {
        match self.rest().split([' ', '\t', ',']).next() {
            None | Some("") if self.rest().is_empty() => "the end of the line".to_owned(),
            Some(token) if !token.is_empty() => {
                format!("`{}`", token.chars().take(40).collect::<String>())
            }
            _ => format!("`{}`", self.rest().chars().next().unwrap_or(' ')),
        }
    }

    fn expected(&mut self, what: impl fmt::Display) -> ProgramError {
        self.skip_space();
        let found = self.found();
        self.error(self.at, format!("expected {what}, found {found}"))
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) {
            Ok(())
        } else {
            Err(self.expected(format_args!("`{token}`")))
        }
    }

    /// A run of letters, digits, `_`, `.` and `$`, which may be empty.
    fn word(&mut self) -> (usize, &'a str) {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let at = self.at;
        self.at += len;
        (at, &rest[..len])
    }

    /// The label at the start of the line, if there is one, with its column.
    fn label(&mut self) -> Result<Option<(&'a str, usize)>> {
        let (at, word) = self.word();
        if self.eat(":") {
            if word.is_empty() {
                return Err(self.error(at, "expected a label before `:`"));
            }
            return Ok(Some((word, self.column_of(at))));
        }
        self.at = at;
        Ok(None)
    }

    fn instruction(&mut self) -> Result<Instruction> {
        let (start, word) = self.word();
        let mut at = start;
        let mut parts = word.split('.').map(|part| {
            let here = at;
            at += part.len() + 1;
            (here, part)
        });
        let mnemonic = parts.next().map_or("", |(_, m)| m);
        if mnemonic.is_empty() {
            self.at = start;
            return Err(self.expected("an instruction"));
        }
        let (opcode, category) = by_mnemonic(mnemonic)
            .ok_or_else(|| self.error(start, format!("unknown instruction `{mnemonic}`")))?;
        self.suffixes = parts.collect::<Vec<_>>().into_iter();
        self.is_named = category.has_named_operands();
        let instruction = Instruction::read(opcode, self)
            .unwrap_or_else(|| Err(self.error(start, "unknown instruction")))?;
        if let Some((at, suffix)) = self.suffixes.next() {
            return Err(self.error(at, format!("{mnemonic} has no suffix `.{suffix}` here")));
        }
        if !self.is_at_end() {
            return Err(self.expected(format_args!("the end of {mnemonic}")));
        }
        Ok(instruction)
    }

    /// Goes to the next operand: past the comma and, where operands have names, past its name.
    fn operand(&mut self, name: &'static str) -> Result<()> {
        if self.has_operand {
            self.expect(",")?;
        }
        self.has_operand = true;
        if self.is_named {
            let (at, word) = self.word();
            if word != name || !self.eat("=") {
                self.at = at;
                return Err(self.expected(format_args!("`{name}=`")));
            }
        }
        Ok(())
    }

    /// The number after a prefix, up to a limit.
    fn numbered(word: &str, prefix: char, max: u64) -> Option<u64> {
        let digits = word.strip_prefix(prefix)?;
        let is_canonical = digits == "0" || !digits.starts_with('0');
        let all_digits = digits.bytes().all(|b| b.is_ascii_digit());
        let value = digits.parse().ok()?;
        (is_canonical && all_digits && value <= max).then_some(value)
    }

    /// A register, if the next token is one.
    fn maybe_register(&mut self) -> Option<Register> {
        self.skip_space();
        let start = self.at;
        let is_special = self.eat("%");
        let (_, word) = self.word();
        let found = if is_special {
            Register::SPECIAL
                .iter()
                .find(|(_, n, _)| *n == word)
                .map(|(r, ..)| *r)
        } else {
            Self::numbered(word, 'r', 255).map(|r| Register(r as u8))
        };
        if found.is_none() {
            self.at = start;
        }
        found
    }

    /// Text up to the next comma, bracket or the end.
    fn number(&mut self) -> (usize, &'a str) {
        self.skip_space();
        let at = self.at;
        let rest = self.rest();
        let len = rest.find([',', ']', ')']).unwrap_or(rest.len());
        self.at += len;
        (at, rest[..len].trim_end())
    }

    fn unsigned(&mut self, what: &str, max: u64) -> Result<u64> {
        let (at, text) = self.number();
        let value = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
            None => None,
        };
        value.filter(|&v| v <= max).ok_or_else(|| {
            self.at = at;
            self.expected(format_args!("{what}, an integer up to {max}"))
        })
    }

    fn float<T: FromStr + Copy + Into<f64>>(&mut self, name: &'static str) -> Result<T> {
        self.operand(name)?;
        let (at, text) = self.number();
        let value = text.parse::<T>().ok().filter(|&v| v.into().is_finite());
        value.ok_or_else(|| {
            self.at = at;
            self.expected(format_args!("{name}, a finite number"))
        })
    }

    fn suffix(&mut self, what: &str) -> Result<(usize, &'a str)> {
        match self.suffixes.next() {
            Some(found) => Ok(found),
            None => {
                let at = self.at;
                Err(self.error(at, format!("expected {what} as a suffix of the mnemonic")))
            }
        }
    }
}

impl OperandReader for LineParser<'_> {
    type Error = ProgramError;

    fn dtype(&mut self) -> Result<DType> {
        let (at, suffix) = self.suffix("a type")?;
        suffix
            .parse()
            .map_err(|_| self.error(at, format!("`{suffix}` is not a type")))
    }

    fn register(&mut self, name: &'static str) -> Result<Register> {
        // The count of a span is read by `integer`.
        self.operand(name)?;
        match self.maybe_register() {
            Some(register) => Ok(register),
            None => Err(self.expected(format_args!("{name}, a register r0 to r255"))),
        }
    }

    fn predicate(&mut self) -> Result<Predicate> {
        self.operand("predicate")?;
        let (at, word) = self.word();
        match Self::numbered(word, 'p', Predicate::COUNT as u64 - 1) {
            Some(number) => Ok(Predicate(number as u8)),
            None => {
                self.at = at;
                Err(self.expected("a predicate p0 to p15"))
            }
        }
    }

    fn guard(&mut self) -> Result<Option<Predicate>> {
        let Some((at, suffix)) = self.suffixes.next() else {
            return Ok(None);
        };
        match Self::numbered(suffix, 'p', Predicate::COUNT as u64 - 1) {
            Some(number) => Ok(Some(Predicate(number as u8))),
            None => Err(self.error(at, format!("`{suffix}` is not a predicate p0 to p15"))),
        }
    }

    fn choice(&mut self, what: &'static str, names: &[&'static str]) -> Result<usize> {
        let (at, suffix) = self.suffix(&format!("a {what}"))?;
        names.iter().position(|n| *n == suffix).ok_or_else(|| {
            let names = names.join(", ");
            self.error(at, format!("`{suffix}` is not a {what}: {names}"))
        })
    }

    fn label(&mut self) -> Result<String> {
        self.operand("label")?;
        if !self.eat("@") {
            return Err(self.expected("`@` and a label"));
        }
        let (at, word) = self.word();
        super::operand::check_label(word).map_err(|e| self.error(at, e.to_string()))?;
        Ok(word.to_owned())
    }

    fn address(&mut self) -> Result<Address> {
        self.operand("address")?;
        self.expect("[")?;
        let address = if let Some(base) = self.maybe_register() {
            if self.eat("+") {
                match self.maybe_register() {
                    Some(offset_reg) => Address::RegisterIndirectComputed {
                        handle_reg: base,
                        offset_reg,
                    },
                    None => {
                        let (at, text) = self.number();
                        let offset = text.parse().map_err(|_| {
                            self.at = at;
                            self.expected("a register or an offset that fits an i32")
                        })?;
                        Address::RegisterIndirect { base, offset }
                    }
                }
            } else {
                Address::RegisterIndirect { base, offset: 0 }
            }
        } else {
            let (at, word) = self.word();
            if word == "phi" {
                self.coordinates()?
            } else if let Some(handle) = Self::numbered(word, 'b', u64::MAX) {
                self.offset_in(handle)?
            } else {
                self.at = at;
                return Err(
                    self.expected("a register, a buffer such as b0, or phi(class, page, byte)")
                );
            }
        };
        self.expect("]")?;
        Ok(address)
    }

    fn integer(&mut self, name: &'static str, max: u64) -> Result<u64> {
        // A span is one operand of two tokens; only instructions without names have it.
        self.operand(name)?;
        self.unsigned(name, max)
    }

    fn bits(&mut self, dtype: DType) -> Result<u64> {
        self.operand("value")?;
        let (at, text) = self.number();
        parse_constant(text, dtype).ok_or_else(|| {
            self.at = at;
            self.expected(format_args!(
                "a number that fits {dtype}, or its bits as 0x…"
            ))
        })
    }

    fn f32(&mut self, name: &'static str) -> Result<f32> {
        self.float(name)
    }

    fn f64(&mut self, name: &'static str) -> Result<f64> {
        self.float(name)
    }

    fn flag(&mut self, name: &'static str) -> Result<bool> {
        self.operand(name)?;
        let (at, word) = self.word();
        word.parse().map_err(|_| {
            self.at = at;
            self.expected(format_args!("{name}, true or false"))
        })
    }
}

impl LineParser<'_> {
    /// The rest of `[phi(class, page, byte)`.
    fn coordinates(&mut self) -> Result<Address> {
        self.expect("(")?;
        let class = self.unsigned("class", 255)? as u8;
        self.expect(",")?;
        let page = self.unsigned("page", 255)? as u8;
        self.expect(",")?;
        let byte = self.unsigned("byte", 255)? as u8;
        self.expect(")")?;
        Ok(Address::PhiCoordinate { class, page, byte })
    }

    /// The rest of `[b0 + offset`.
    fn offset_in(&mut self, handle: u64) -> Result<Address> {
        if !self.eat("+") {
            return Ok(Address::BufferOffset { handle, offset: 0 });
        }
        Ok(match self.maybe_register() {
            Some(offset) => Address::BufferRegister { handle, offset },
            None => Address::BufferOffset {
                handle,
                offset: self.unsigned("an offset", u64::MAX)?,
            },
        })
    }
}
