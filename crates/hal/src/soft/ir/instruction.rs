//! Parses the type and the operation of an instruction.

use super::FissionError;
use super::lex::{Cursor, IrToken, IrTokenKind, bare};
use super::parse::{NameTable, Op, Operand};
use super::types::{Layout, Type};

/// Returns whether a word is a flag between an opcode and its first type.
fn is_flag(word: &str) -> bool {
    matches!(
        word,
        "nuw"
            | "nsw"
            | "exact"
            | "disjoint"
            | "nneg"
            | "samesign"
            | "fast"
            | "nnan"
            | "ninf"
            | "nsz"
            | "arcp"
            | "contract"
            | "afn"
            | "reassoc"
            | "inbounds"
            | "nusw"
            | "volatile"
            | "atomic"
            | "weak"
            | "inalloca"
            | "swifterror"
    )
}

/// Returns whether a word is a parameter or return attribute; some are followed by a bracketed group.
fn is_attribute(word: &str) -> bool {
    matches!(
        word,
        "noundef"
            | "nonnull"
            | "zeroext"
            | "signext"
            | "noext"
            | "inreg"
            | "nocapture"
            | "readonly"
            | "readnone"
            | "writeonly"
            | "noalias"
            | "returned"
            | "immarg"
            | "nofree"
            | "nest"
            | "swiftself"
            | "swifterror"
            | "swiftasync"
            | "allocptr"
            | "allocalign"
            | "writable"
            | "dead_on_unwind"
            | "dead_on_return"
            | "noundefined"
            | "align"
            | "alignstack"
            | "dereferenceable"
            | "dereferenceable_or_null"
            | "range"
            | "nofpclass"
            | "byval"
            | "byref"
            | "sret"
            | "elementtype"
            | "captures"
            | "initializes"
            | "preallocated"
            | "inalloca"
    )
}

/// Skips parameter and return attributes.
pub(super) fn skip_attributes(cursor: &mut Cursor<'_, '_>) {
    while let Some(token) = cursor.peek() {
        if token.kind != IrTokenKind::Word || !is_attribute(token.text) {
            return;
        }
        cursor.next();
        if token.text == "align" && cursor.peek().is_some_and(|t| t.kind == IrTokenKind::Word) {
            cursor.next();
        }
        if cursor.peek_is('(') {
            cursor.skip_group();
        }
    }
}

/// Parses the operand at the cursor, up to the next comma or closing bracket on this level.
fn operand(
    cursor: &mut Cursor<'_, '_>,
    names: &mut NameTable<'_>,
    list: &[IrToken<'_>],
) -> Operand {
    let start = cursor.position();
    if let Some(token) = cursor.peek()
        && token.kind == IrTokenKind::Local
        && !names.is_type(token.text)
    {
        cursor.next();
        return Operand::Local(names.id(token.text));
    }
    cursor.skip_operand();
    // Both token lists start at the opcode, so the positions agree.
    let words: Vec<&str> = list[start..cursor.position()]
        .iter()
        .map(|t| t.text)
        .collect();
    Operand::Constant(words.join(" "))
}

/// Parses a call; the cursor is after the opcode.
pub(super) fn call(
    cursor: &mut Cursor<'_, '_>,
    names: &mut NameTable<'_>,
) -> Result<(Type, Op), FissionError> {
    // Flags, calling convention and return attributes precede the type.
    loop {
        skip_attributes(cursor);
        match cursor.peek() {
            Some(token) if token.kind == IrTokenKind::Word && !Type::starts(cursor) => {
                cursor.next();
                if token.text == "cc" {
                    cursor.next();
                }
                if cursor.peek_is('(') {
                    cursor.skip_group();
                }
            }
            _ => break,
        }
    }
    let ty = Type::parse(cursor)?;
    if cursor.peek_is('(') {
        cursor.skip_group();
    }
    let Some(target) = cursor.next() else {
        return Err(cursor.error("a call without a callee"));
    };
    let callee = match target.kind {
        IrTokenKind::Global => Some(bare(target.text).to_owned()),
        IrTokenKind::Local => None,
        _ if target.is_word("asm") => {
            while cursor.peek().is_some_and(|t| !t.is_punct('(')) {
                cursor.next();
            }
            None
        }
        _ => return Err(cursor.error(format!("unknown callee `{}`", target.text))),
    };
    cursor.expect('(')?;
    let mut arguments = Vec::new();
    while !cursor.eat(')') {
        if cursor.eat_word("metadata") {
            cursor.skip_operand();
            arguments.push((Type::Opaque("metadata"), Operand::Constant(String::new())));
        } else {
            let ty = Type::parse(cursor)?;
            skip_attributes(cursor);
            let value = match cursor.peek() {
                Some(token) if token.kind == IrTokenKind::Local && !names.is_type(token.text) => {
                    cursor.next();
                    Operand::Local(names.id(token.text))
                }
                _ => {
                    let mut text = String::new();
                    let mut probe = cursor.clone();
                    probe.skip_operand();
                    while cursor.position() < probe.position() {
                        if let Some(token) = cursor.next() {
                            if !text.is_empty() {
                                text.push(' ');
                            }
                            text.push_str(token.text);
                        }
                    }
                    Operand::Constant(text)
                }
            };
            arguments.push((ty, value));
        }
        if !cursor.eat(',') && !cursor.peek_is(')') {
            return Err(cursor.error("expected `,` between arguments"));
        }
    }
    Ok((ty, Op::Call { callee, arguments }))
}

/// Returns `element`, as a vector if `shape` is one.
fn with_element(shape: &Type, element: Type) -> Type {
    match shape {
        Type::Vector(count, _) => Type::Vector(*count, Box::new(element)),
        _ => element,
    }
}

/// Parses the type and the operation of an instruction other than a call; the cursor is after the opcode.
pub(super) fn operation(
    opcode: &str,
    cursor: &mut Cursor<'_, '_>,
    names: &mut NameTable<'_>,
    list: &[IrToken<'_>],
) -> Result<(Type, Op), FissionError> {
    let plain = !list
        .iter()
        .any(|t| t.is_word("volatile") || t.is_word("atomic"));
    cursor.skip_words(is_flag);
    let mut op = Op::Other;
    let ty = match opcode {
        "add" | "sub" | "mul" | "udiv" | "sdiv" | "urem" | "srem" | "shl" | "lshr" | "ashr"
        | "and" | "or" | "xor" | "fadd" | "fsub" | "fmul" | "fdiv" | "frem" | "fneg" | "freeze"
        | "insertelement" | "insertvalue" => Type::parse(cursor)?,
        "icmp" | "fcmp" => {
            cursor.next();
            with_element(&Type::parse(cursor)?, Type::Int(1))
        }
        "trunc" | "zext" | "sext" | "fptrunc" | "fpext" | "fptoui" | "fptosi" | "uitofp"
        | "sitofp" | "ptrtoint" | "inttoptr" | "bitcast" | "addrspacecast" => {
            Type::parse(cursor)?;
            while cursor.peek().is_some_and(|t| !t.is_word("to")) {
                if cursor
                    .peek()
                    .is_some_and(|t| matches!(t.kind, IrTokenKind::Punct('(' | '<' | '[' | '{')))
                {
                    cursor.skip_group();
                } else {
                    cursor.next();
                }
            }
            cursor.next();
            Type::parse(cursor)?
        }
        "load" => {
            let ty = Type::parse(cursor)?;
            cursor.expect(',')?;
            Type::parse(cursor)?;
            op = Op::Load {
                pointer: operand(cursor, names, list),
                plain,
            };
            ty
        }
        "store" => {
            Type::parse(cursor)?;
            let value = operand(cursor, names, list);
            cursor.expect(',')?;
            Type::parse(cursor)?;
            op = Op::Store {
                value,
                pointer: operand(cursor, names, list),
                plain,
            };
            Type::Void
        }
        "fence" => Type::Void,
        "getelementptr" => {
            if cursor.eat_word("inrange") {
                cursor.skip_group();
            }
            cursor.skip_words(is_flag);
            Type::parse(cursor)?;
            cursor.expect(',')?;
            let mut shape = Type::parse(cursor)?;
            op = Op::Gep {
                base: operand(cursor, names, list),
            };
            while cursor.eat(',') {
                let index = Type::parse(cursor)?;
                cursor.skip_operand();
                if matches!(index, Type::Vector(..)) {
                    shape = index;
                }
            }
            with_element(&shape, Type::Ptr)
        }
        "alloca" => {
            let allocated = Type::parse(cursor)?;
            let base = allocated
                .layout(names.types)
                .ok_or_else(|| cursor.error("alloca of a type without a size"))?;
            let (mut count, mut align) = (1u64, base.align);
            while cursor.eat(',') {
                if cursor.eat_word("align") {
                    let number = cursor.next().and_then(|t| t.text.parse().ok());
                    align = number.ok_or_else(|| cursor.error("expected an alignment"))?;
                } else if cursor.eat_word("addrspace") {
                    cursor.skip_group();
                } else {
                    Type::parse(cursor)?;
                    let number = cursor.next().and_then(|t| t.text.parse().ok());
                    count = number.ok_or_else(|| {
                        cursor.error("a variable-length array in a kernel is not supported")
                    })?;
                }
            }
            let size = base
                .size
                .checked_mul(count)
                .ok_or_else(|| cursor.error("an alloca that is too large"))?;
            op = Op::Alloca {
                layout: Layout { size, align },
            };
            Type::Ptr
        }
        "phi" => {
            let ty = Type::parse(cursor)?;
            let mut incoming = Vec::new();
            loop {
                cursor.expect('[')?;
                let value = operand(cursor, names, list);
                cursor.expect(',')?;
                let Some(label) = cursor.next().filter(|t| t.kind == IrTokenKind::Local) else {
                    return Err(cursor.error("expected a block in a phi"));
                };
                incoming.push((value, names.id(label.text)));
                cursor.expect(']')?;
                if !cursor.eat(',') {
                    break;
                }
            }
            op = Op::Phi { incoming };
            ty
        }
        "select" => {
            Type::parse(cursor)?;
            cursor.skip_operand();
            cursor.expect(',')?;
            Type::parse(cursor)?
        }
        "extractelement" => {
            let vector = Type::parse(cursor)?;
            let element = vector.element(0, names.types).cloned();
            element.ok_or_else(|| cursor.error("extractelement of a non-vector"))?
        }
        "shufflevector" => {
            let vector = Type::parse(cursor)?;
            cursor.skip_operand();
            cursor.expect(',')?;
            Type::parse(cursor)?;
            cursor.skip_operand();
            cursor.expect(',')?;
            let mask = Type::parse(cursor)?;
            let element = vector.element(0, names.types).cloned();
            with_element(
                &mask,
                element.ok_or_else(|| cursor.error("shufflevector of a non-vector"))?,
            )
        }
        "extractvalue" => {
            let mut ty = Type::parse(cursor)?;
            cursor.skip_operand();
            while cursor.eat(',') {
                let index = cursor.next().and_then(|t| t.text.parse().ok());
                let index = index.ok_or_else(|| cursor.error("expected an index"))?;
                let inner = ty.element(index, names.types).cloned();
                ty = inner.ok_or_else(|| cursor.error("extractvalue past the end of a type"))?;
            }
            ty
        }
        "atomicrmw" => {
            cursor.next();
            Type::parse(cursor)?;
            cursor.skip_operand();
            cursor.expect(',')?;
            Type::parse(cursor)?
        }
        "cmpxchg" => {
            Type::parse(cursor)?;
            cursor.skip_operand();
            cursor.expect(',')?;
            let value = Type::parse(cursor)?;
            Type::Struct {
                packed: false,
                fields: vec![value, Type::Int(1)],
            }
        }
        other => return Err(cursor.error(format!("unknown instruction `{other}`"))),
    };
    Ok((ty, op))
}
