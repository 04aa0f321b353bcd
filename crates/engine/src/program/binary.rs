//! The binary format.
//!
//! ```text
//! file     = "BSMP", version u16, flags u16 (0), body length u32, body, CRC-32 of the body u32
//! body     = count, { label }, count, { instruction }
//! label    = length, UTF-8, index                   in alphabetical order
//! instruction = opcode u8, operands in the order of the table
//! ```
//!
//! Integers are little-endian or LEB128, in the shortest form. Reading is safe on any bytes: counts are compared with the bytes
//! that are left before memory is allocated, and everything that the writer does not produce is an error.

use super::error::{ProgramError, Result};
use super::instruction::{Instruction, OperandReader};
use super::operand::{
    Address, BinaryOperation, Condition, MapOperation, MemoryScope, Operand, Predicate,
    ReduceOperation, Register,
};
use super::{MAX_INSTRUCTIONS, Program};
use crate::DType;

/// The first bytes of every file.
pub(super) const MAGIC: &[u8] = b"BSMP";

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 12;
const CHECKSUM_BYTES: usize = 4;

/// The byte that stands for no predicate.
const NO_PREDICATE: u8 = 255;

/// Types in the order of their numbers in the format.
const TYPES: [DType; 12] = [
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

impl Program {
    /// The binary format.
    ///
    /// # Errors
    /// Those of [`Program::validate`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.validate()?;
        let mut body = Vec::new();
        write_leb(&mut body, self.labels.len() as u64);
        for (label, &index) in &self.labels {
            write_leb(&mut body, label.len() as u64);
            body.extend(label.as_bytes());
            write_leb(&mut body, index as u64);
        }
        write_leb(&mut body, self.len() as u64);
        for instruction in &self.instructions {
            body.push(instruction.opcode());
            instruction.for_each_operand(|_, operand| self.write_operand(&mut body, operand));
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(0_u16.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(&body);
        bytes.extend(checksum(&body).to_le_bytes());
        Ok(bytes)
    }

    fn write_operand(&self, body: &mut Vec<u8>, operand: Operand<'_>) {
        match operand {
            Operand::DType(dtype) => body.push(position(&TYPES, &dtype)),
            Operand::Read(register, _)
            | Operand::Write(register, _)
            | Operand::Update(register, _) => body.push(register.0),
            Operand::Span(span, _) => {
                body.push(span.base.0);
                write_leb(body, u64::from(span.count));
            }
            Operand::Test(predicate) | Operand::Set(predicate) => body.push(predicate.0),
            Operand::Guard(predicate) => body.push(predicate.map_or(NO_PREDICATE, |p| p.0)),
            Operand::Condition(value) => body.push(position(Condition::ALL, &value)),
            Operand::Scope(value) => body.push(position(MemoryScope::ALL, &value)),
            Operand::Map(value) => body.push(position(MapOperation::ALL, &value)),
            Operand::MapBinary(value) => body.push(position(BinaryOperation::ALL, &value)),
            Operand::Reduce(value) => body.push(position(ReduceOperation::ALL, &value)),
            // Labels are referred to by their position in alphabetical order.
            Operand::Label(label) => {
                let number = self.labels.keys().position(|l| l == label);
                write_leb(body, number.unwrap_or(usize::MAX) as u64);
            }
            Operand::Address(address) => write_address(body, address),
            Operand::Integer(value, _) | Operand::Bits(value, _) => write_leb(body, value),
            Operand::F32(value) => body.extend(value.to_bits().to_le_bytes()),
            Operand::F64(value) => body.extend(value.to_bits().to_le_bytes()),
            Operand::Flag(value) => body.push(u8::from(value)),
        }
    }

    /// Reads the binary format and validates the program.
    ///
    /// # Errors
    /// [`ProgramError::Binary`] with the offset of the first byte that is wrong, and those of [`Program::validate`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader {
            bytes,
            at: 0,
            labels: Vec::new(),
        };
        let body_len = reader.header()?;
        let end = HEADER_BYTES + body_len;
        if bytes.len() != end + CHECKSUM_BYTES {
            return Err(error(
                reader.at,
                format!(
                    "the header announces {} bytes, there are {}",
                    end + CHECKSUM_BYTES,
                    bytes.len()
                ),
            ));
        }
        let (body, sum) = bytes[HEADER_BYTES..].split_at(body_len);
        if sum != checksum(body).to_le_bytes() {
            return Err(error(
                end,
                "the checksum does not match: the file is damaged",
            ));
        }
        reader.bytes = &bytes[..end];
        let program = reader.program()?;
        if reader.at != end {
            return Err(error(
                reader.at,
                "there are bytes behind the last instruction",
            ));
        }
        program.validate()?;
        Ok(program)
    }
}

fn checksum(body: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(body);
    crc.sum()
}

fn error(offset: usize, reason: impl Into<String>) -> ProgramError {
    ProgramError::Binary {
        offset,
        reason: reason.into(),
    }
}

/// Position of a value in a table; 255 for one that is not in it, which no reader accepts.
fn position<T: PartialEq>(all: &[T], value: &T) -> u8 {
    all.iter().position(|v| v == value).map_or(255, |i| i as u8)
}

fn write_leb(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn write_address(body: &mut Vec<u8>, address: Address) {
    match address {
        Address::BufferOffset { handle, offset } => {
            body.push(0);
            write_leb(body, handle);
            write_leb(body, offset);
        }
        Address::BufferRegister { handle, offset } => {
            body.push(1);
            write_leb(body, handle);
            body.push(offset.0);
        }
        Address::PhiCoordinate { class, page, byte } => body.extend([2, class, page, byte]),
        Address::RegisterIndirect { base, offset } => {
            body.extend([3, base.0]);
            body.extend(offset.to_le_bytes());
        }
        Address::RegisterIndirectComputed {
            handle_reg,
            offset_reg,
        } => body.extend([4, handle_reg.0, offset_reg.0]),
    }
}

/// Reads a file, or its body.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    labels: Vec<String>,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.bytes[self.at..].first_chunk() {
            Some(chunk) => {
                self.at += N;
                Ok(*chunk)
            }
            None => Err(error(self.at, "the file ends here, too early")),
        }
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take::<1>()?[0])
    }

    fn leb(&mut self) -> Result<u64> {
        let start = self.at;
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return Err(error(start, "an integer is longer than it needs to be"));
                }
                return Ok(value);
            }
        }
        Err(error(start, "an integer does not fit 64 bits"))
    }

    /// A number of things that take `size` bytes at least.
    fn count(&mut self, size: usize, what: &str) -> Result<usize> {
        let start = self.at;
        let count = self.leb()?;
        let left = self.bytes.len() - self.at;
        match usize::try_from(count) {
            Ok(count) if count.checked_mul(size).is_some_and(|n| n <= left) => Ok(count),
            _ => Err(error(
                start,
                format!("{count} {what} do not fit the {left} bytes that are left"),
            )),
        }
    }

    /// Checks the header and returns the length of the body.
    fn header(&mut self) -> Result<usize> {
        if self.take::<4>().is_ok_and(|magic| magic != MAGIC) {
            return Err(error(0, "not a program in binary form"));
        }
        let version = u16::from_le_bytes(self.take()?);
        if version != VERSION {
            return Err(error(
                4,
                format!("version {version} is unsupported, only {VERSION}"),
            ));
        }
        if self.take::<2>()? != [0, 0] {
            return Err(error(6, "unknown flags"));
        }
        Ok(u32::from_le_bytes(self.take()?) as usize)
    }

    fn program(&mut self) -> Result<Program> {
        let mut program = Program::new();
        for _ in 0..self.count(3, "labels")? {
            let len = self.count(1, "bytes of a label")?;
            let start = self.at;
            let label = str::from_utf8(&self.bytes[start..start + len])
                .map_err(|_| error(start, "a label is not UTF-8"))?
                .to_owned();
            self.at += len;
            let index = self.leb()?;
            if self.labels.last().is_some_and(|last| *last >= label) {
                return Err(error(start, "labels are not in alphabetical order"));
            }
            self.labels.push(label.clone());
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            program.labels.insert(label, index);
        }
        let start = self.at;
        let count = self.count(1, "instructions")?;
        if count > MAX_INSTRUCTIONS {
            return Err(error(
                start,
                format!("{count} instructions are above the limit of {MAX_INSTRUCTIONS}"),
            ));
        }
        for _ in 0..count {
            let start = self.at;
            let opcode = self.byte()?;
            let instruction = Instruction::read(opcode, self)
                .unwrap_or_else(|| Err(error(start, format!("unknown opcode {opcode}"))))?;
            program.instructions.push(instruction);
        }
        Ok(program)
    }

    /// One of `count` variants.
    fn variant(&mut self, what: &str, count: usize) -> Result<usize> {
        let start = self.at;
        let number = usize::from(self.byte()?);
        if number < count {
            Ok(number)
        } else {
            Err(error(
                start,
                format!("{number} is not a {what}: there are {count}"),
            ))
        }
    }
}

impl OperandReader for Reader<'_> {
    type Error = ProgramError;

    fn dtype(&mut self) -> Result<DType> {
        Ok(TYPES[self.variant("type", TYPES.len())?])
    }

    fn register(&mut self, _name: &'static str) -> Result<Register> {
        self.byte().map(Register)
    }

    fn predicate(&mut self) -> Result<Predicate> {
        let number = self.variant("predicate", Predicate::COUNT)?;
        Ok(Predicate(number as u8))
    }

    fn guard(&mut self) -> Result<Option<Predicate>> {
        if self.bytes.get(self.at) == Some(&NO_PREDICATE) {
            self.at += 1;
            return Ok(None);
        }
        self.predicate().map(Some)
    }

    fn choice(&mut self, what: &'static str, names: &[&'static str]) -> Result<usize> {
        self.variant(what, names.len())
    }

    fn label(&mut self) -> Result<String> {
        let start = self.at;
        let number = self.leb()?;
        let label = usize::try_from(number)
            .ok()
            .and_then(|n| self.labels.get(n));
        label
            .cloned()
            .ok_or_else(|| error(start, format!("label {number} of {}", self.labels.len())))
    }

    fn address(&mut self) -> Result<Address> {
        Ok(match self.variant("kind of address", 5)? {
            0 => Address::BufferOffset {
                handle: self.leb()?,
                offset: self.leb()?,
            },
            1 => Address::BufferRegister {
                handle: self.leb()?,
                offset: Register(self.byte()?),
            },
            2 => {
                let [class, page, byte] = self.take()?;
                Address::PhiCoordinate { class, page, byte }
            }
            3 => Address::RegisterIndirect {
                base: Register(self.byte()?),
                offset: i32::from_le_bytes(self.take()?),
            },
            _ => Address::RegisterIndirectComputed {
                handle_reg: Register(self.byte()?),
                offset_reg: Register(self.byte()?),
            },
        })
    }

    fn integer(&mut self, name: &'static str, max: u64) -> Result<u64> {
        let start = self.at;
        let value = self.leb()?;
        if value <= max {
            Ok(value)
        } else {
            Err(error(start, format!("{name} is {value}, above {max}")))
        }
    }

    fn bits(&mut self, _dtype: DType) -> Result<u64> {
        self.leb()
    }

    fn f32(&mut self, _name: &'static str) -> Result<f32> {
        Ok(f32::from_bits(u32::from_le_bytes(self.take()?)))
    }

    fn f64(&mut self, _name: &'static str) -> Result<f64> {
        Ok(f64::from_bits(u64::from_le_bytes(self.take()?)))
    }

    fn flag(&mut self, name: &'static str) -> Result<bool> {
        Ok(self.variant(name, 2)? == 1)
    }
}
