//! Operands of instructions.

use std::fmt;

use super::{ProgramError, Result};
use crate::DType;

/// One of a lane's 256 registers. The last four hold the lane's position when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub u8);

impl Register {
    /// `%lane`: x of the lane's position in its block, `u32`.
    pub const LANE_IDX_X: Self = Self(252);
    /// `%block`: x of the block's position in the grid, `u32`.
    pub const BLOCK_IDX_X: Self = Self(253);
    /// `%block_dim`: x of the block's size, `u32`.
    pub const BLOCK_DIM_X: Self = Self(254);
    /// `%global`: number of the lane in the grid, `u64`.
    pub const GLOBAL_LANE_ID: Self = Self(255);

    /// Registers with names, their types and what they hold at the start.
    pub(crate) const SPECIAL: [(Self, &'static str, DType); 4] = [
        (Self::LANE_IDX_X, "lane", DType::U32),
        (Self::BLOCK_IDX_X, "block", DType::U32),
        (Self::BLOCK_DIM_X, "block_dim", DType::U32),
        (Self::GLOBAL_LANE_ID, "global", DType::U64),
    ];
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::SPECIAL.iter().find(|(r, ..)| r == self) {
            Some((_, name, _)) => write!(f, "%{name}"),
            None => write!(f, "r{}", self.0),
        }
    }
}

/// Consecutive registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisterSpan {
    /// The first register.
    pub base: Register,
    /// Number of registers.
    pub count: u32,
}

impl RegisterSpan {
    /// The registers, in order.
    pub fn registers(self) -> impl Iterator<Item = Register> {
        let end = (u32::from(self.base.0) + self.count).min(256);
        (u32::from(self.base.0)..end).map(|r| Register(r as u8))
    }
}

/// One of a lane's 16 predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Predicate(pub u8);

impl Predicate {
    /// Number of predicates of a lane.
    pub const COUNT: usize = 16;
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// Declares an enum whose variants have a name in the text format and a number in the binary format, their position.
macro_rules! named_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Name in the text format.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named_enum! {
    /// Comparison of `setcc`.
    Condition {
        /// `a == b`
        Eq = "eq",
        /// `a != b`
        Ne = "ne",
        /// `a < b`
        Lt = "lt",
        /// `a <= b`
        Le = "le",
        /// `a > b`
        Gt = "gt",
        /// `a >= b`
        Ge = "ge",
        /// `a < b` of unsigned integers.
        Ltu = "ltu",
        /// `a <= b` of unsigned integers.
        Leu = "leu",
        /// `a > b` of unsigned integers.
        Gtu = "gtu",
        /// `a >= b` of unsigned integers.
        Geu = "geu",
    }
}

impl Condition {
    /// Returns `true` for the four conditions that only unsigned integers have.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Self::Ltu | Self::Leu | Self::Gtu | Self::Geu)
    }
}

named_enum! {
    /// Lanes among which a fence orders memory accesses.
    MemoryScope {
        /// The lane itself: no effect.
        Thread = "thread",
        /// Lanes of the block.
        Block = "block",
        /// All lanes of the launch.
        Device = "device",
        /// The device and the host.
        System = "system",
    }
}

named_enum! {
    /// Function of `parallel_map`.
    MapOperation {
        /// `|x|`
        Abs = "abs",
        /// `-x`
        Neg = "neg",
        /// Square root.
        Sqrt = "sqrt",
        /// `e^x`
        Exp = "exp",
        /// Natural logarithm.
        Log = "log",
        /// Sine.
        Sin = "sin",
        /// Cosine.
        Cos = "cos",
        /// Tangent.
        Tan = "tan",
        /// Smallest integer not below `x`.
        Ceil = "ceil",
        /// Largest integer not above `x`.
        Floor = "floor",
        /// Nearest integer, ties away from zero.
        Round = "round",
        /// `1 / x`
        Reciprocal = "reciprocal",
        /// Error function.
        Erf = "erf",
        /// `1 / (1 + e^-x)`
        Sigmoid = "sigmoid",
        /// Hyperbolic tangent.
        Tanh = "tanh",
        /// `max(x, 0)`
        Relu = "relu",
    }
}

named_enum! {
    /// Function of `parallel_map_binary`.
    BinaryOperation {
        /// `a + b`
        Add = "add",
        /// `a - b`
        Sub = "sub",
        /// `a * b`
        Mul = "mul",
        /// `a / b`
        Div = "div",
        /// `a^b`
        Pow = "pow",
        /// Minimum; NaN is ignored.
        Min = "min",
        /// Maximum; NaN is ignored.
        Max = "max",
        /// Angle of the point (b, a).
        Atan2 = "atan2",
    }
}

named_enum! {
    /// Function of `parallel_reduce`.
    ReduceOperation {
        /// Sum.
        Sum = "sum",
        /// Product.
        Product = "product",
        /// Minimum; NaN is ignored.
        Min = "min",
        /// Maximum; NaN is ignored.
        Max = "max",
    }
}

/// Where an element is in memory. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A buffer and an offset: `[b3 + 16]`.
    BufferOffset {
        /// Handle of the buffer.
        handle: u64,
        /// Offset.
        offset: u64,
    },
    /// A buffer and an offset in a `u64` register: `[b3 + r4]`.
    BufferRegister {
        /// Handle of the buffer.
        handle: u64,
        /// Register of the offset.
        offset: Register,
    },
    /// A byte of the boundary pool: `[phi(5, 2, 128)]`.
    PhiCoordinate {
        /// Class, below 96.
        class: u8,
        /// Page, below 48.
        page: u8,
        /// Byte in the page.
        byte: u8,
    },
    /// A handle in a `u64` register and an offset: `[r1 + 16]`.
    RegisterIndirect {
        /// Register of the handle.
        base: Register,
        /// Offset.
        offset: i32,
    },
    /// A handle and an offset, both in `u64` registers: `[r1 + r2]`.
    RegisterIndirectComputed {
        /// Register of the handle.
        handle_reg: Register,
        /// Register of the offset.
        offset_reg: Register,
    },
}

impl Address {
    /// The registers it reads, all `u64`.
    pub fn registers(self) -> impl Iterator<Item = Register> {
        let (first, second) = match self {
            Self::BufferOffset { .. } | Self::PhiCoordinate { .. } => (None, None),
            Self::BufferRegister { offset, .. } => (Some(offset), None),
            Self::RegisterIndirect { base, .. } => (Some(base), None),
            Self::RegisterIndirectComputed {
                handle_reg,
                offset_reg,
            } => (Some(handle_reg), Some(offset_reg)),
        };
        first.into_iter().chain(second)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BufferOffset { handle, offset: 0 } => write!(f, "[b{handle}]"),
            Self::BufferOffset { handle, offset } => write!(f, "[b{handle} + {offset}]"),
            Self::BufferRegister { handle, offset } => write!(f, "[b{handle} + {offset}]"),
            Self::PhiCoordinate { class, page, byte } => {
                write!(f, "[phi({class}, {page}, {byte})]")
            }
            Self::RegisterIndirect { base, offset: 0 } => write!(f, "[{base}]"),
            Self::RegisterIndirect { base, offset } => write!(f, "[{base} + {offset}]"),
            Self::RegisterIndirectComputed {
                handle_reg,
                offset_reg,
            } => write!(f, "[{handle_reg} + {offset_reg}]"),
        }
    }
}

/// An operand of an instruction, with its role.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operand<'a> {
    /// Type that the instruction works on.
    DType(DType),
    /// Register that is read as a type.
    Read(Register, DType),
    /// Consecutive registers that are read as a type.
    Span(RegisterSpan, DType),
    /// Register that is written with a type.
    Write(Register, DType),
    /// Register that is read and then written.
    Update(Register, DType),
    /// Predicate that is read.
    Test(Predicate),
    /// Predicate that is written.
    Set(Predicate),
    /// Predicate under which the instruction has an effect; always without one.
    Guard(Option<Predicate>),
    /// Condition.
    Condition(Condition),
    /// Scope of a fence.
    Scope(MemoryScope),
    /// Function of `parallel_map`.
    Map(MapOperation),
    /// Function of `parallel_map_binary`.
    MapBinary(BinaryOperation),
    /// Function of `parallel_reduce`.
    Reduce(ReduceOperation),
    /// Label.
    Label(&'a str),
    /// Address.
    Address(Address),
    /// Integer constant and the largest value it can have.
    Integer(u64, u64),
    /// Bits of a constant of a type.
    Bits(u64, DType),
    /// `f32` constant.
    F32(f32),
    /// `f64` constant.
    F64(f64),
    /// Boolean constant.
    Flag(bool),
}

/// Checks that a name can be a label.
pub(super) fn check_label(label: &str) -> Result<()> {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    let mut chars = label.chars();
    let valid = chars.next().is_some_and(is_start)
        && chars.all(|c| is_start(c) || c.is_ascii_digit() || c == '.' || c == '$');
    if valid && label.len() <= MAX_LABEL_BYTES {
        Ok(())
    } else {
        Err(ProgramError::InvalidLabel(
            label.chars().take(MAX_LABEL_BYTES).collect(),
        ))
    }
}

/// Maximum length of a label.
const MAX_LABEL_BYTES: usize = 255;
