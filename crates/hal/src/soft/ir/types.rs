//! LLVM types: parsing, printing, and memory layout on the supported 64-bit targets.

use std::collections::HashMap;
use std::fmt;

use super::FissionError;
use super::lex::{Cursor, IrTokenKind, bare};

/// A first-class LLVM type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Void,
    Int(u32),
    Half,
    BFloat,
    Float,
    Double,
    X86Fp80,
    Fp128,
    Ptr,
    /// `label`, `metadata` and `token`, which are never in memory.
    Opaque(&'static str),
    Vector(u64, Box<Type>),
    Array(u64, Box<Type>),
    Struct {
        packed: bool,
        fields: Vec<Type>,
    },
    /// A named type, without `%` and quotes.
    Named(String),
}

/// Named types of the module.
pub(crate) type Named = HashMap<String, Type>;

/// Size and alignment in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) size: u64,
    pub(crate) align: u64,
}

impl Type {
    /// Parses a type that is a single word.
    fn word(text: &str) -> Option<Self> {
        Some(match text {
            "void" => Self::Void,
            "half" => Self::Half,
            "bfloat" => Self::BFloat,
            "float" => Self::Float,
            "double" => Self::Double,
            "x86_fp80" => Self::X86Fp80,
            "fp128" => Self::Fp128,
            "ptr" => Self::Ptr,
            "label" => Self::Opaque("label"),
            "metadata" => Self::Opaque("metadata"),
            "token" => Self::Opaque("token"),
            _ => Self::Int(text.strip_prefix('i')?.parse().ok()?),
        })
    }

    /// Returns whether a type starts at the cursor.
    pub(crate) fn starts(cursor: &Cursor<'_, '_>) -> bool {
        cursor.peek().is_some_and(|t| match t.kind {
            IrTokenKind::Word => Self::word(t.text).is_some(),
            IrTokenKind::Local => true,
            IrTokenKind::Punct(c) => matches!(c, '<' | '[' | '{'),
            _ => false,
        })
    }

    /// Parses one type.
    pub(crate) fn parse(cursor: &mut Cursor<'_, '_>) -> Result<Self, FissionError> {
        let Some(token) = cursor.next() else {
            return Err(cursor.error("expected a type"));
        };
        match token.kind {
            IrTokenKind::Word => {
                let found = Self::word(token.text)
                    .ok_or_else(|| cursor.error(format!("unknown type `{}`", token.text)))?;
                if found == Self::Ptr && cursor.eat_word("addrspace") {
                    cursor.skip_group();
                }
                Ok(found)
            }
            IrTokenKind::Local => Ok(Self::Named(bare(token.text).to_owned())),
            IrTokenKind::Punct('[') => {
                let (count, element) = Self::counted(cursor)?;
                cursor.expect(']')?;
                Ok(Self::Array(count, Box::new(element)))
            }
            IrTokenKind::Punct('{') => {
                let fields = Self::fields(cursor)?;
                Ok(Self::Struct {
                    packed: false,
                    fields,
                })
            }
            IrTokenKind::Punct('<') if cursor.eat('{') => {
                let fields = Self::fields(cursor)?;
                cursor.expect('>')?;
                Ok(Self::Struct {
                    packed: true,
                    fields,
                })
            }
            IrTokenKind::Punct('<') => {
                if cursor.eat_word("vscale") {
                    return Err(cursor.error("scalable vectors are not supported"));
                }
                let (count, element) = Self::counted(cursor)?;
                cursor.expect('>')?;
                Ok(Self::Vector(count, Box::new(element)))
            }
            _ => Err(cursor.error(format!("expected a type, found `{}`", token.text))),
        }
    }

    fn counted(cursor: &mut Cursor<'_, '_>) -> Result<(u64, Self), FissionError> {
        let count = cursor.next().and_then(|t| t.text.parse().ok());
        let count = count.ok_or_else(|| cursor.error("expected an element count"))?;
        if !cursor.eat_word("x") {
            return Err(cursor.error("expected `x` in a type"));
        }
        Ok((count, Self::parse(cursor)?))
    }

    fn fields(cursor: &mut Cursor<'_, '_>) -> Result<Vec<Self>, FissionError> {
        let mut fields = Vec::new();
        if cursor.eat('}') {
            return Ok(fields);
        }
        loop {
            fields.push(Self::parse(cursor)?);
            if cursor.eat('}') {
                return Ok(fields);
            }
            cursor.expect(',')?;
        }
    }

    /// Resolves a named type.
    pub(crate) fn resolve<'a>(&'a self, named: &'a Named) -> Option<&'a Self> {
        match self {
            Self::Named(name) => named.get(name)?.resolve(named),
            other => Some(other),
        }
    }

    /// Returns the type of the element at one index of an aggregate or vector.
    pub(crate) fn element<'a>(&'a self, index: usize, named: &'a Named) -> Option<&'a Self> {
        match self.resolve(named)? {
            Self::Vector(_, element) | Self::Array(_, element) => Some(element),
            Self::Struct { fields, .. } => fields.get(index),
            _ => None,
        }
    }

    /// Returns the size and alignment in memory; `None` for types that are never in memory.
    pub(crate) fn layout(&self, named: &Named) -> Option<Layout> {
        let naturally_aligned = |size: u64| Some(Layout { size, align: size });
        match self {
            Self::Void | Self::Opaque(_) => None,
            Self::Int(bits) => {
                let bytes = u64::from(bits.div_ceil(8)).next_power_of_two();
                let align = bytes.min(16);
                Some(Layout {
                    size: bytes.next_multiple_of(align),
                    align,
                })
            }
            Self::Half | Self::BFloat => naturally_aligned(2),
            Self::Float => naturally_aligned(4),
            Self::Double | Self::Ptr => naturally_aligned(8),
            Self::X86Fp80 | Self::Fp128 => naturally_aligned(16),
            Self::Vector(count, element) => {
                let bits = match **element {
                    Self::Int(bits) => u64::from(bits),
                    _ => element.layout(named)?.size * 8,
                };
                let size = bits
                    .checked_mul(*count)?
                    .div_ceil(8)
                    .max(1)
                    .checked_next_power_of_two()?;
                Some(Layout { size, align: size })
            }
            Self::Array(count, element) => {
                let inner = element.layout(named)?;
                Some(Layout {
                    size: inner.size.checked_mul(*count)?,
                    align: inner.align,
                })
            }
            Self::Struct { packed, fields } => {
                let (mut size, mut align) = (0u64, 1u64);
                for field in fields {
                    let inner = field.layout(named)?;
                    if !packed {
                        align = align.max(inner.align);
                        size = size.next_multiple_of(inner.align);
                    }
                    size = size.checked_add(inner.size)?;
                }
                Some(Layout {
                    size: size.next_multiple_of(align),
                    align,
                })
            }
            Self::Named(name) => named.get(name)?.layout(named),
        }
    }

    /// Returns whether the type is a scalar: a number or a pointer.
    pub(crate) fn is_scalar(&self) -> bool {
        matches!(
            self,
            Self::Int(_) | Self::Half | Self::BFloat | Self::Float | Self::Double | Self::Ptr
        )
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Void => f.write_str("void"),
            Self::Int(bits) => write!(f, "i{bits}"),
            Self::Half => f.write_str("half"),
            Self::BFloat => f.write_str("bfloat"),
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::X86Fp80 => f.write_str("x86_fp80"),
            Self::Fp128 => f.write_str("fp128"),
            Self::Ptr => f.write_str("ptr"),
            Self::Opaque(name) => f.write_str(name),
            Self::Vector(count, element) => write!(f, "<{count} x {element}>"),
            Self::Array(count, element) => write!(f, "[{count} x {element}]"),
            Self::Struct { packed, fields } => {
                f.write_str(if *packed { "<{ " } else { "{ " })?;
                for (index, field) in fields.iter().enumerate() {
                    if index > 0 {
                        f.write_str(", ")?;
                    }
                    write!(f, "{field}")?;
                }
                f.write_str(if *packed { " }>" } else { " }" })
            }
            Self::Named(name) => write!(f, "%\"{name}\""),
        }
    }
}
