//! What address spaces in types need besides their names.

use super::Rewrite;

impl Rewrite<'_, '_> {
    /// Operands of `?:` that name objects of classes in memory become values: clang does not copy them there.
    pub(super) fn conditionals(&mut self) {
        let source = self.source;
        for question in 0..source.len() {
            if source.text_at(question) != "?" || source.tokens[question].system {
                continue;
            }
            let Some(colon) = self
                .operand_end(question + 1)
                .filter(|&i| source.text_at(i) == ":")
            else {
                continue;
            };
            let Some(end) = self.operand_end(colon + 1) else {
                continue;
            };
            for operand in [question + 1..colon, colon + 1..end] {
                if operand.is_empty() || !self.may_be_object(operand.start, operand.end - 1) {
                    continue;
                }
                let bytes = source.bytes(operand.start, operand.end - 1);
                self.edits.insert(bytes.start, "SM_OPERAND(");
                self.edits.insert(bytes.end, ")");
            }
        }
    }

    /// Where an operand of `?:` ends, which may have such operands itself.
    fn operand_end(&self, start: usize) -> Option<usize> {
        let source = self.source;
        let mut depth = 0;
        let mut i = start;
        loop {
            match source.text_at(i) {
                "" => return None,
                "?" => depth += 1,
                ":" if depth == 0 => return Some(i),
                ":" => depth -= 1,
                "," | ";" | ")" | "}" | "]" => return Some(i),
                _ => {}
            }
            i = source.after(i, true);
        }
    }

    /// Names, elements and what pointers point to; not calls, literals and arithmetic, which are values.
    fn may_be_object(&self, first: usize, last: usize) -> bool {
        let source = self.source;
        let named = source.is_identifier(last)
            && !matches!(source.text_at(last), "nullptr" | "true" | "false" | "NULL");
        let starts = source.is_identifier(first) || source.text_at(first) == "(";
        source.text_at(first) == "*" || starts && (named || source.text_at(last) == "]")
    }

    /// An array parameter in an address space is a pointer.
    pub(super) fn array_parameters(&mut self) {
        let source = self.source;
        for function in &self.program.functions {
            for parameter in function.parameters(source) {
                let Some(name) = parameter.name.filter(|name| name + 1 == parameter.tail) else {
                    continue;
                };
                let placed = (parameter.range.start..name)
                    .any(|i| matches!(source.text_at(i), "device" | "constant" | "threadgroup"));
                if !placed
                    || parameter.tail >= parameter.range.end
                    || source.text_at(parameter.tail) != "["
                {
                    continue;
                }
                let next = source.after(parameter.tail, false);
                self.edits
                    .delete(source, source.bytes(parameter.tail, next - 1));
                let bytes = source.bytes(name, name);
                if source.text_at(next) == "[" {
                    self.edits.insert(bytes.start, "(*");
                    self.edits.insert(bytes.end, ")");
                } else {
                    self.edits.insert(bytes.start, "*");
                }
            }
        }
    }
}
