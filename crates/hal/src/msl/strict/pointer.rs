//! Pointers and references without an address space.

use std::ops::Range;

use super::Strict;
use crate::msl::reflect::AddressSpace;

impl Strict<'_, '_> {
    pub(super) fn pointers(&mut self) {
        let source = self.source;
        let program = self.program;
        for function in &program.functions {
            if source.tokens[function.first].system {
                continue;
            }
            for parameter in function.parameters(source) {
                let end = parameter.name.unwrap_or(parameter.tail);
                self.declared(parameter.range.start..end);
            }
            if source.text_at(function.name.start) != "operator" {
                self.declared(
                    super::skip_storage(source, function.specifiers)..function.name.start,
                );
            }
            if let Some((open, close)) = function.body {
                self.local_pointers(open + 1, close);
            }
        }
        for variable in &program.variables {
            if let Some(declarator) = variable.declarators.first()
                && !source.tokens[variable.first].system
            {
                self.declared(super::skip_storage(source, variable.specifiers)..declarator.name);
            }
        }
    }

    /// Rejects `type *` and `type &` if the type is known to carry no address space.
    fn declared(&mut self, range: Range<usize>) -> bool {
        let source = self.source;
        let plain = range.clone().all(|i| {
            AddressSpace::from_keyword(source.text_at(i)).is_none()
                && !matches!(
                    source.text_at(i),
                    "auto"
                        | "decltype"
                        | "typename"
                        | "("
                        | ")"
                        | "<"
                        | ">"
                        | "coherent"
                        | "friend"
                        | "inline"
                        | "kernel"
                        | "__attribute__"
                        | "ray_data"
                        | "object_data"
                )
        });
        let pointer = range
            .clone()
            .find(|&i| matches!(source.text_at(i), "*" | "&" | "&&"));
        let Some(pointer) = pointer.filter(|_| plain) else {
            return false;
        };
        if !self.types.is_type_sequence(source, range.start..pointer) {
            return false;
        }
        let what = if source.text_at(pointer) == "*" {
            "pointer"
        } else {
            "reference"
        };
        self.reject(
            range.start,
            format!(
                "{what} type must have an address space: device, constant, threadgroup or thread"
            ),
        );
        true
    }

    /// Checks declarations and casts inside a body.
    fn local_pointers(&mut self, start: usize, end: usize) {
        let source = self.source;
        for i in start..end {
            match source.before(i) {
                ";" | "{" | "}" => self.local(i),
                "(" if i >= 2 && source.text_at(i - 2) == "for" => self.local(i),
                "(" => self.c_cast(i),
                "<" if i >= 2
                    && matches!(
                        source.text_at(i - 2),
                        "static_cast" | "reinterpret_cast" | "const_cast"
                    ) =>
                {
                    if let Some(close) = source.partner(i - 1) {
                        self.declared(i..close);
                    }
                }
                _ => {}
            }
        }
    }

    /// Checks `float* p = …` at the start of a statement.
    fn local(&mut self, i: usize) {
        let source = self.source;
        let mut at = i;
        while matches!(
            source.text_at(at),
            "const" | "static" | "constexpr" | "volatile"
        ) {
            at += 1;
        }
        // The longest type sequence is three tokens: `metal::float4`.
        let pointer = (at..at + 4).find(|&j| matches!(source.text_at(j), "*" | "&"));
        if let Some(pointer) = pointer
            && source.is_identifier(pointer + 1)
            && matches!(source.text_at(pointer + 2), "=" | ";" | "," | "[")
        {
            self.declared(at..pointer + 1);
        }
    }

    /// Checks `(float*)x`.
    fn c_cast(&mut self, i: usize) {
        let source = self.source;
        let Some(close) = source.partner(i - 1) else {
            return;
        };
        let applied =
            source.is_identifier(close + 1) || matches!(source.text_at(close + 1), "(" | "&" | "*");
        let after_operand = i >= 2
            && (source.is_identifier(i - 2) && source.text_at(i - 2) != "return"
                || matches!(source.text_at(i - 2), ">" | ")" | "]"));
        let pointer = matches!(source.before(close), "*" | "&");
        if close > i && close - i <= 6 && applied && pointer && !after_operand {
            self.declared(i..close);
        }
    }
}
