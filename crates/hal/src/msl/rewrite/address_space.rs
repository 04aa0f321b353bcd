//! Further edits that address spaces in types require.

use std::collections::HashSet;
use std::ops::Range;

use super::Rewrite;
use crate::msl::program::FunctionDecl;
use crate::msl::token_stream::TokenStream;

impl<'a> Rewrite<'_, 'a> {
    /// `thread` is the default address space of types, so a template for `thread T*` would also match `device T*`,
    /// with the address space in `T`. Functions are restricted to `thread` with `enable_if`. Where C++ offers no
    /// such constraint, selecting the template for another address space is a static assertion failure: class
    /// specializations, and functions that have specializations.
    pub(super) fn restrict_thread_templates(&mut self) {
        let source = self.source;
        let program = self.program;
        let specialised: HashSet<&str> = program
            .functions
            .iter()
            .filter(|function| function.is_specialisation())
            .map(|function| function.base_name(source))
            .collect();
        for (index, function) in program.functions.iter().enumerate() {
            if !function.is_template()
                || self.dropped.contains(&index)
                || self.merged.contains(&function.first)
            {
                continue;
            }
            let own = own_heads(self, function);
            let names: HashSet<&str> = own
                .iter()
                .flat_map(|head| self.type_parameters(head))
                .collect();
            let mut types = Vec::new();
            for parameter in function.parameters(source) {
                types.extend(self.thread_types(parameter.range.start..parameter.tail, &names));
            }
            if specialised.contains(function.base_name(source)) {
                if let Some((open, _)) = function.body {
                    self.assert_in_thread(open, &types);
                }
            } else if !types.is_empty() {
                let at = source.bytes(function.specifiers, function.specifiers).start;
                let text = format!(
                    "__attribute__((enable_if({}, \"the address space is not thread\"))) ",
                    in_thread(&types)
                );
                self.edits.insert(at, text);
            }
        }
        for class in &program.classes {
            if let Some(name) = class.name.filter(|&name| name < class.open)
                && !self.merged.contains(&class.first)
            {
                let head = class.first..class.specifiers;
                let names = self.type_parameters(&head).collect();
                let types = self.thread_types(name..class.open, &names);
                self.assert_in_thread(class.open, &types);
            }
        }
    }

    /// Asserts after the brace at `open` that the types carry no address space.
    fn assert_in_thread(&mut self, open: usize, types: &[&str]) {
        if !types.is_empty() {
            let text = format!(
                " static_assert({}, \"this template is for the thread address space\");",
                in_thread(types)
            );
            let at = self.source.bytes(open, open).end;
            self.edits.insert(at, text);
        }
    }

    /// The type parameters that a template head declares.
    fn type_parameters<'s>(
        &'s self,
        head: &Range<usize>,
    ) -> impl Iterator<Item = &'a str> + use<'s, 'a> {
        let source = self.source;
        head.clone()
            .filter(move |&i| i > 0 && matches!(source.before(i), "typename" | "class"))
            .map(move |i| source.text_at(i))
    }

    /// Each `T` of `thread T*` and `thread T&` in a token range.
    fn thread_types(&self, range: Range<usize>, names: &HashSet<&str>) -> Vec<&'a str> {
        let source = self.source;
        let mut found = Vec::new();
        for end in range.clone() {
            if !matches!(source.text_at(end), "*" | "&") {
                continue;
            }
            let words = (range.start..end)
                .rev()
                .take_while(|&i| source.is_identifier(i));
            let (mut in_thread, mut types) = (false, Vec::new());
            for i in words {
                match source.text_at(i) {
                    "thread" => in_thread = true,
                    "const" | "volatile" => {}
                    text => types.push(text),
                }
            }
            if let [name] = types.as_slice()
                && in_thread
                && names.contains(name)
            {
                found.push(*name);
            }
        }
        found
    }

    /// Converts operands of `?:` that name class objects in memory to values: clang does not copy them.
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

    /// The end of an operand of `?:`, which may contain nested ones.
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

    /// Returns whether an operand is a name, an element or a dereferenced pointer; calls, literals and arithmetic
    /// are values.
    fn may_be_object(&self, first: usize, last: usize) -> bool {
        let source = self.source;
        let named = source.is_identifier(last)
            && !matches!(source.text_at(last), "nullptr" | "true" | "false" | "NULL");
        let starts = source.is_identifier(first) || source.text_at(first) == "(";
        source.text_at(first) == "*" || starts && (named || source.text_at(last) == "]")
    }

    /// Rewrites array parameters in an address space as pointers.
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

/// Returns whether a text names `thread`, or has a cast such as `(device float*)x`.
pub(crate) fn may_convert(source: &TokenStream<'_>) -> bool {
    let casts = |i: usize| {
        let Some(close) = source.partner(i).filter(|_| source.text_at(i) == "(") else {
            return false;
        };
        let operand =
            source.is_identifier(close + 1) || matches!(source.text_at(close + 1), "&" | "(" | "*");
        operand
            && source.before(close) == "*"
            && (i..close)
                .any(|i| matches!(source.text_at(i), "device" | "constant" | "threadgroup"))
    };
    (0..source.len()).any(|i| source.text_at(i) == "thread" || casts(i))
}

/// The template heads of the function itself, without those of an enclosing class.
fn own_heads<'f>(rewrite: &Rewrite<'_, '_>, function: &'f FunctionDecl) -> &'f [Range<usize>] {
    let source = rewrite.source;
    let in_template = function
        .name
        .clone()
        .any(|i| source.text_at(i) == "::" && source.before(i) == ">");
    match &*function.heads {
        [_, own @ ..] if in_template => own,
        heads => heads,
    }
}

fn in_thread(types: &[&str]) -> String {
    let parts: Vec<String> = types
        .iter()
        .map(|name| format!("::sm::in_thread<{name}>"))
        .collect();
    parts.join(" && ")
}
