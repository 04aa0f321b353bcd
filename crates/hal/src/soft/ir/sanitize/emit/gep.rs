//! Address arithmetic: the offset that a `getelementptr` adds.

use crate::soft::ir::lex::{Cursor, IrToken, IrTokenKind, tokens};
use crate::soft::ir::types::{Named, Type};

/// The offset of a `getelementptr`: a constant, or the same instruction relative to null.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GepOffset {
    Bytes(i64),
    Text(String),
}

/// Parses a `getelementptr`.
pub(super) fn gep_offset(raw: &str, named: &Named) -> Option<GepOffset> {
    let list = tokens(raw, 0).ok()?;
    let start = list.iter().position(|t| t.is_word("getelementptr"))? + 1;
    let list = &list[start..];
    let mut cursor = Cursor::new(list, 0);
    cursor.skip_words(|word| matches!(word, "inbounds" | "nuw" | "nusw"));
    let from = cursor.position();
    let ty = Type::parse(&mut cursor).ok()?;
    let type_text = &raw[list[from].start..list[cursor.position() - 1].end()];
    cursor.expect(',').ok()?;
    Type::parse(&mut cursor).ok()?;
    let base = cursor.next()?;
    let mut end = base.end();
    let mut indices: Vec<IrToken<'_>> = Vec::new();
    while cursor.eat(',') && !cursor.peek().is_some_and(|t| t.kind == IrTokenKind::Meta) {
        Type::parse(&mut cursor).ok()?;
        let index = cursor.next()?;
        end = index.end();
        indices.push(index);
    }
    let constants: Option<Vec<i64>> = indices.iter().map(|t| t.text.parse().ok()).collect();
    if let Some(bytes) = constants.and_then(|constants| constant_offset(&ty, &constants, named)) {
        return Some(GepOffset::Bytes(bytes));
    }
    Some(GepOffset::Text(format!(
        "getelementptr {type_text}, ptr null{}",
        &raw[base.end()..end]
    )))
}

fn constant_offset(ty: &Type, indices: &[i64], named: &Named) -> Option<i64> {
    let (first, rest) = indices.split_first()?;
    let size = |ty: &Type| i64::try_from(ty.layout(named)?.size).ok();
    let mut sum = first.checked_mul(size(ty)?)?;
    let mut ty = ty;
    for &index in rest {
        let resolved = ty.resolve(named)?;
        let number = usize::try_from(index).ok()?;
        if let Type::Struct { packed, fields } = resolved {
            let mut offset = 0_u64;
            for (at, field) in fields.iter().enumerate() {
                let layout = field.layout(named)?;
                if !packed {
                    offset = offset.next_multiple_of(layout.align);
                }
                if at == number {
                    break;
                }
                offset += layout.size;
            }
            sum = sum.checked_add(i64::try_from(offset).ok()?)?;
            ty = fields.get(number)?;
        } else {
            ty = resolved.element(0, named)?;
            sum = sum.checked_add(index.checked_mul(size(ty)?)?)?;
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::{GepOffset, gep_offset};
    use crate::soft::ir::types::{Named, Type};

    #[test]
    fn constant_offsets_follow_the_layout_and_others_are_relative_to_null() {
        let fields = vec![
            Type::Int(8),
            Type::Array(3, Box::new(Type::Float)),
            Type::Double,
        ];
        let packed = false;
        let named = Named::from([("S".to_owned(), Type::Struct { packed, fields })]);
        for (raw, bytes) in [
            (
                "%q = getelementptr inbounds %S, ptr %p, i32 0, i32 2, !dbg !7",
                16,
            ),
            (
                "%q = getelementptr inbounds nuw %S, ptr %p, i32 0, i32 1, i64 2",
                12,
            ),
            ("%q = getelementptr inbounds %S, ptr %p, i64 -1", -24),
            (
                "%q = getelementptr [2 x [4 x i16]], ptr %p, i64 0, i64 1, i64 3",
                14,
            ),
        ] {
            assert_eq!(
                gep_offset(raw, &named),
                Some(GepOffset::Bytes(bytes)),
                "{raw}"
            );
        }
        let raw = "%q = getelementptr inbounds %S, ptr %p, i64 %i, i32 1, i64 %j, !dbg !7";
        let text = "getelementptr %S, ptr null, i64 %i, i32 1, i64 %j";
        assert_eq!(
            gep_offset(raw, &named),
            Some(GepOffset::Text(text.to_owned()))
        );
    }
}
