//! Threadgroup variables: `threadgroup float x[32];` in a body names memory that all threads of the group share.

use std::ops::Range;

use super::{Rewrite, ThreadgroupVariableName};
use crate::msl::parse::declarators;
use crate::msl::program::Declarator;
use crate::msl::source::Source;

impl Rewrite<'_, '_> {
    pub(super) fn threadgroup_variables(&mut self) {
        let mut end = 0;
        for function in &self.program.functions {
            // Functions come in the order of their ends; a method of a local class lies inside another body.
            let Some((open, close)) = function.body else {
                continue;
            };
            let mut i = (open + 1).max(end);
            while i < close {
                i = match declaration(self.source, i) {
                    Some(range) => self.declare(range),
                    None => i + 1,
                };
            }
            end = end.max(close);
        }
    }

    /// Rewrites one declaration (its `;` excluded); returns the index of the semicolon.
    fn declare(&mut self, range: Range<usize>) -> usize {
        let source = self.source;
        let found = declarators(source, range.clone(), true);
        let Some(first) = found.first() else {
            return range.end;
        };
        let words = self.type_text(range.start, first.name);
        let alignment = self.alignment(range.start, first.name);
        let statements: Vec<String> = found
            .iter()
            .map(|declarator| self.reference(declarator, &words, &alignment))
            .collect();
        let bytes = source.bytes(range.start, range.end - 1);
        self.edits
            .replace_lines(source, bytes, statements.join("; "));
        range.end
    }

    /// The type without storage class and alignment.
    fn type_text(&self, start: usize, end: usize) -> String {
        let mut text = String::new();
        let mut i = start;
        while i < end {
            let next = match self.source.text_at(i) {
                "alignas" => self.source.after(i + 1, false),
                "static" | "constexpr" | "threadgroup" => i + 1,
                _ => {
                    let next = self.source.after(i, true);
                    let tight =
                        matches!(self.source.text_at(i), "<" | "::") || text.ends_with("::");
                    if !text.is_empty() && !tight {
                        text.push(' ');
                    }
                    text.push_str(&self.render(i, next - 1));
                    next
                }
            };
            i = next;
        }
        text
    }

    /// `alignas(…)` among the specifiers; empty where there is none.
    fn alignment(&self, start: usize, end: usize) -> String {
        let found = (start..end).find(|&i| self.source.text_at(i) == "alignas");
        found.map_or_else(String::new, |i| {
            self.render(i, self.source.after(i + 1, false) - 1)
        })
    }

    /// `auto& x = ::sm::tgvar<ID, T [(n)]>()`; an initialiser is dropped, as the hardware does.
    fn reference(&mut self, declarator: &Declarator, words: &str, alignment: &str) -> String {
        let source = self.source;
        let mut bounds = String::new();
        let mut i = declarator.name + 1;
        while i < declarator.tail.end && source.text_at(i) == "[" {
            let next = source.after(i, false);
            // Parentheses: a `>` in the bound must not end the template arguments.
            if next > i + 2 {
                bounds += &format!("[({})]", self.render(i + 1, next - 2));
            } else {
                bounds += "[]";
            }
            i = next;
        }
        let id = u32::try_from(self.variables.len()).unwrap_or(u32::MAX);
        let name = source.text_at(declarator.name);
        let place = source.tokens[declarator.name];
        self.variables.push(ThreadgroupVariableName {
            id,
            name: name.to_owned(),
            file: source.file(place).to_owned(),
            line: place.line,
        });
        let space = if bounds.is_empty() { "" } else { " " };
        if alignment.is_empty() {
            return format!("auto& {name} = ::sm::tgvar<{id}, {words}{space}{bounds}>()");
        }
        // Only a class carries an alignment of its own.
        format!(
            "struct {alignment} sm_aligned_{id} {{ {words} v{bounds}; }}; \
             auto& {name} = ::sm::tgvar<{id}, sm_aligned_{id}>().v"
        )
    }
}

/// The tokens of a threadgroup variable's declaration that starts at `i`, up to its semicolon.
pub(crate) fn declaration(source: &Source<'_>, i: usize) -> Option<Range<usize>> {
    if !matches!(
        source.text_at(i),
        "threadgroup" | "static" | "alignas" | "volatile" | "const"
    ) || !matches!(source.before(i), ";" | "{" | "}" | ")" | ":")
    {
        return None;
    }
    // The address space stands among the specifiers.
    let mut keyword = i;
    while source.text_at(keyword) != "threadgroup" {
        keyword = match source.text_at(keyword) {
            "static" | "volatile" | "const" => keyword + 1,
            "alignas" => source.after(keyword + 1, false),
            _ => return None,
        };
    }
    let mut at = keyword + 1;
    let mut declarator = false;
    loop {
        match source.text_at(at) {
            ";" => break,
            "" | "{" | "}" if !declarator => return None,
            "" | "}" | ")" => return None,
            // A pointer or a reference to threadgroup memory is an ordinary variable.
            "*" | "&" | "&&" if !declarator => return None,
            "(" if !declarator && !matches!(source.before(at), "alignas" | "decltype") => {
                return None;
            }
            "=" | "[" | "," => {
                declarator = true;
                at = source.after(at, false);
            }
            _ => at = source.after(at, !declarator),
        }
    }
    (at > keyword + 2).then_some(i..at)
}
