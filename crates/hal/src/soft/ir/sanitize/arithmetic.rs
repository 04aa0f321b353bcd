//! Instrumentation of divisions and shifts.

use super::helper::{DIVISION_BY_ZERO, DIVISION_OVERFLOW, SHIFT};
use crate::soft::ir::lex::{Cursor, IrTokenKind, tokens};
use crate::soft::ir::tsan::DEFECT_MARKER;
use crate::soft::ir::types::Type;

/// Lines to insert before an instruction, and the instruction itself.
pub(super) struct Replacement {
    pub(super) before: Vec<String>,
    pub(super) line: String,
}

/// A binary integer operation: width, operands, and the offset of the right operand in the line.
struct BinaryOperation<'a> {
    bits: u32,
    left: &'a str,
    right: &'a str,
    right_start: usize,
}

fn binary<'a>(raw: &'a str, opcode: &str) -> Option<BinaryOperation<'a>> {
    let list = tokens(raw, 0).ok()?;
    let start = list.iter().position(|t| t.is_word(opcode))?;
    let mut cursor = Cursor::new(&list[start + 1..], 0);
    cursor.skip_words(|word| matches!(word, "nuw" | "nsw" | "exact"));
    let Type::Int(bits) = Type::parse(&mut cursor).ok()? else {
        return None;
    };
    let left = cursor
        .next()
        .filter(|t| matches!(t.kind, IrTokenKind::Local | IrTokenKind::Word))?;
    cursor.expect(',').ok()?;
    let right = cursor
        .next()
        .filter(|t| matches!(t.kind, IrTokenKind::Local | IrTokenKind::Word))?;
    (matches!(bits, 8 | 16 | 32 | 64)).then_some(BinaryOperation {
        bits,
        left: left.text,
        right: right.text,
        right_start: right.start,
    })
}

/// Forces the operands of an instruction into range, unless they provably are in range; `fresh` names new values, `location` is
/// the attachment of the debug location.
pub(super) fn replace(
    raw: &str,
    opcode: &str,
    location: &str,
    fresh: &mut impl FnMut() -> String,
) -> Option<Replacement> {
    match opcode {
        "sdiv" | "udiv" | "srem" | "urem" => division(raw, opcode, location, fresh),
        "shl" | "lshr" | "ashr" => shift(raw, opcode, location, fresh),
        _ => None,
    }
}

fn with_right_operand(raw: &str, operation: &BinaryOperation<'_>, by: &str) -> String {
    let (before, after) = raw.split_at(operation.right_start);
    format!("{before}{by}{}", &after[operation.right.len()..])
}

fn division(
    raw: &str,
    opcode: &str,
    location: &str,
    fresh: &mut impl FnMut() -> String,
) -> Option<Replacement> {
    let operation = binary(raw, opcode)?;
    let BinaryOperation {
        bits, left, right, ..
    } = operation;
    if right
        .parse::<i128>()
        .is_ok_and(|divisor| divisor != 0 && divisor != -1)
    {
        return None;
    }
    let (zero, safe) = (fresh(), fresh());
    let mut before = vec![
        format!("{zero} = icmp eq i{bits} {right}, 0"),
        format!(
            "call void @{DEFECT_MARKER}(i1 {zero}, i32 {DIVISION_BY_ZERO}, i64 0, i64 0, i64 0){location}"
        ),
    ];
    let mut out_of_range = zero;
    if opcode.starts_with('s') {
        let [smallest, minus_one, overflow, any] = [(); 4].map(|()| fresh());
        let min = -(1_i128 << (bits - 1));
        before.extend([
            format!("{smallest} = icmp eq i{bits} {left}, {min}"),
            format!("{minus_one} = icmp eq i{bits} {right}, -1"),
            format!("{overflow} = and i1 {smallest}, {minus_one}"),
            format!("call void @{DEFECT_MARKER}(i1 {overflow}, i32 {DIVISION_OVERFLOW}, i64 0, i64 0, i64 0){location}"),
            format!("{any} = or i1 {out_of_range}, {overflow}"),
        ]);
        out_of_range = any;
    }
    before.push(format!(
        "{safe} = select i1 {out_of_range}, i{bits} 1, i{bits} {right}"
    ));
    Some(Replacement {
        before,
        line: with_right_operand(raw, &operation, &safe),
    })
}

fn shift(
    raw: &str,
    opcode: &str,
    location: &str,
    fresh: &mut impl FnMut() -> String,
) -> Option<Replacement> {
    let operation = binary(raw, opcode)?;
    let BinaryOperation { bits, right, .. } = operation;
    if right.parse::<u32>().is_ok_and(|amount| amount < bits) {
        return None;
    }
    let (out_of_range, safe) = (fresh(), fresh());
    let mut before = vec![format!("{out_of_range} = icmp uge i{bits} {right}, {bits}")];
    let amount = if bits == 64 {
        right.to_owned()
    } else {
        let wide = fresh();
        before.push(format!("{wide} = sext i{bits} {right} to i64"));
        wide
    };
    before.extend([
        format!("call void @{DEFECT_MARKER}(i1 {out_of_range}, i32 {SHIFT}, i64 {amount}, i64 {bits}, i64 0){location}"),
        format!("{safe} = and i{bits} {right}, {}", bits - 1),
    ]);
    Some(Replacement {
        before,
        line: with_right_operand(raw, &operation, &safe),
    })
}

#[cfg(test)]
mod tests {
    use super::replace;

    fn replaced(raw: &str, opcode: &str) -> Option<(Vec<String>, String)> {
        let mut count = 0;
        let mut fresh = || {
            count += 1;
            format!("%n{count}")
        };
        replace(raw, opcode, ", !dbg !1", &mut fresh).map(|found| (found.before, found.line))
    }

    #[test]
    fn operands_that_may_be_out_of_range_are_replaced() {
        let (before, line) = replaced("  %q = udiv i32 %a, %b, !dbg !7", "udiv").expect("replaced");
        assert_eq!(line, "  %q = udiv i32 %a, %n2, !dbg !7");
        assert_eq!(before.len(), 3);
        let (before, line) = replaced("  %q = srem exact i64 %a, -1", "srem").expect("replaced");
        assert!(line.starts_with("  %q = srem exact i64 %a, %n"));
        assert!(before.iter().any(|l| l.contains("-9223372036854775808")));
        let (_, line) = replaced("  %s = shl nuw i16 %a, %b", "shl").expect("replaced");
        assert_eq!(line, "  %s = shl nuw i16 %a, %n2");
        assert!(replaced("  %s = lshr i32 %a, 32", "lshr").is_some());
    }

    #[test]
    fn constants_in_range_are_left_alone() {
        for (raw, opcode) in [
            ("  %q = sdiv i32 %a, 3", "sdiv"),
            ("  %q = sdiv exact i64 %a, 4", "sdiv"),
            ("  %s = ashr i32 %a, 31", "ashr"),
            ("  %s = add i32 %a, %b", "add"),
            ("  %q = udiv <4 x i32> %a, %b", "udiv"),
        ] {
            assert_eq!(replaced(raw, opcode), None, "{raw}");
        }
    }
}
