//! Threadgroup variables: `threadgroup float x[32];` in a body names memory that all threads of the group share.
//!
//! The declaration becomes the only field of a local class, which preserves its type, bounds and alignment: `struct
//! sm_tg_0 { float x[32]; }; auto& x = ::sm::tgvar<0, sm_tg_0>().x;`. An initialiser is dropped, as on hardware. A
//! declaration that is missed here is a clang error: an automatic variable has no address space.

use std::collections::HashSet;
use std::ops::Range;

use super::{Rewrite, ThreadgroupVariableName};
use crate::msl::token_stream::TokenStream;

/// Words that start a statement other than a variable declaration.
const OTHER_STATEMENTS: [&str; 12] = [
    "return", "typedef", "using", "if", "for", "while", "else", "do", "switch", "case", "template",
    "goto",
];

/// A declared variable: its name, and all tokens of its declarator.
struct DeclaredVariable {
    name: usize,
    tokens: Range<usize>,
}

impl Rewrite<'_, '_> {
    pub(super) fn threadgroup_variables(&mut self) {
        let source = self.source;
        let aliases = aliases(source);
        let mut end = 0;
        for function in &self.program.functions {
            // Functions are ordered by their ends; a method of a local class is inside another body.
            let Some((open, close)) = function.body else {
                continue;
            };
            let mut i = (open + 1).max(end);
            while i < close {
                i = match declaration(source, i, close, &aliases) {
                    Some(found) => self.declare(&found),
                    None => i + 1,
                };
            }
            end = end.max(close);
        }
    }

    /// Rewrites one declaration; returns the index of its semicolon.
    fn declare(&mut self, found: &Declaration) -> usize {
        let source = self.source;
        let words = self.type_text(found.start, found.variables[0].name);
        let statements: Vec<String> = found
            .variables
            .iter()
            .map(|variable| self.reference(variable, &words, found.aliased))
            .collect();
        let bytes = source.bytes(found.start, found.end - 1);
        self.edits
            .replace_lines(source, bytes, statements.join("; "));
        found.end
    }

    /// The type without storage class and address space.
    fn type_text(&self, start: usize, end: usize) -> String {
        let mut text = String::new();
        let mut i = start;
        while i < end {
            let next = self.source.after(i, true);
            let word = self.source.text_at(i);
            if !matches!(word, "static" | "constexpr" | "inline" | "threadgroup") {
                let tight = matches!(word, "<" | "::") || text.ends_with("::");
                if !text.is_empty() && !tight {
                    text.push(' ');
                }
                text.push_str(&self.render(i, next - 1));
            }
            i = next;
        }
        text
    }

    fn reference(&mut self, variable: &DeclaredVariable, words: &str, aliased: bool) -> String {
        let source = self.source;
        let first = variable.name + 1;
        let mut tail = first;
        while tail < variable.tokens.end && !matches!(source.text_at(tail), "=" | "{") {
            tail = source.after(tail, false);
        }
        let bounds = if tail > first {
            self.render(first, tail - 1)
        } else {
            String::new()
        };
        let id = u32::try_from(self.variables.len()).unwrap_or(u32::MAX);
        let name = source.text_at(variable.name);
        let token = source.tokens[variable.name];
        self.variables.push(ThreadgroupVariableName {
            id,
            name: name.to_owned(),
            file: source.file(token).to_owned(),
            line: token.line,
        });
        // A field has no address space, not even through its type.
        if aliased {
            format!(
                "typedef {words} sm_tg_{id}{bounds}; auto& {name} = ::sm::tgvar<{id}, sm_tg_{id}>()"
            )
        } else {
            format!(
                "struct sm_tg_{id} {{ {words} {name}{bounds}; }}; auto& {name} = ::sm::tgvar<{id}, sm_tg_{id}>().{name}"
            )
        }
    }
}

/// Names of types that carry the address space: `typedef threadgroup uint T;`, `using T = threadgroup uint;`.
pub(crate) fn aliases<'a>(source: &TokenStream<'a>) -> HashSet<&'a str> {
    let mut found = HashSet::new();
    for i in 0..source.len() {
        let (start, name) = match source.text_at(i) {
            "typedef" => (i + 1, None),
            "using" if source.text_at(i + 2) == "=" => (i + 3, Some(i + 1)),
            _ => continue,
        };
        let mut end = start;
        let mut carries = false;
        let mut refers = false;
        while !matches!(source.text_at(end), ";" | "") {
            carries |= source.text_at(end) == "threadgroup";
            refers |= matches!(source.text_at(end), "*" | "&" | "(");
            end = source.after(end, true);
        }
        let name = name.or_else(|| (start..end).rev().find(|&i| source.is_identifier(i)));
        if carries
            && !refers
            && let Some(name) = name
        {
            found.insert(source.text_at(name));
        }
    }
    found
}

/// A declaration of threadgroup variables.
pub(crate) struct Declaration {
    /// Its first token, and its semicolon.
    pub(crate) start: usize,
    end: usize,
    variables: Vec<DeclaredVariable>,
    /// The address space comes from an alias.
    aliased: bool,
}

/// The declaration that starts at `i`, if it declares threadgroup variables.
pub(crate) fn declaration(
    source: &TokenStream<'_>,
    i: usize,
    close: usize,
    aliases: &HashSet<&str>,
) -> Option<Declaration> {
    let begins = matches!(source.before(i), ";" | "{" | "}" | ")" | ":");
    if !begins || !source.is_identifier(i) || OTHER_STATEMENTS.contains(&source.text_at(i)) {
        return None;
    }
    let head = specifiers_end(source, i, close)?;
    let (mut qualified, mut aliased) = (false, false);
    let mut at = i;
    while at < head {
        qualified |= source.text_at(at) == "threadgroup";
        aliased |= aliases.contains(source.text_at(at));
        at = source.after(at, true);
    }
    if !qualified && !aliased {
        return None;
    }
    let mut end = head;
    while end < close && source.text_at(end) != ";" {
        end = source.after(end, true);
    }
    if end >= close {
        return None;
    }
    let variables = source
        .split_commas(i..end)
        .into_iter()
        .map(|tokens| declared(source, tokens))
        .collect::<Option<Vec<_>>>()?;
    let first = variables.first()?;
    (first.name > i).then_some(Declaration {
        start: i,
        end,
        variables,
        aliased: aliased && !qualified,
    })
}

/// Returns whether the parenthesis at `i` belongs to a type operator or attribute.
fn is_specifier(source: &TokenStream<'_>, i: usize) -> bool {
    matches!(
        source.before(i),
        "alignas" | "decltype" | "__attribute__" | "typeof" | "__typeof__"
    )
}

/// The end of the specifiers and the first name; `None` if no threadgroup variable is declared: a pointer or a
/// reference to threadgroup memory is an ordinary variable.
fn specifiers_end(source: &TokenStream<'_>, start: usize, close: usize) -> Option<usize> {
    let mut i = start;
    let mut in_class = false;
    while i < close {
        match source.text_at(i) {
            "struct" | "union" | "class" | "enum" => in_class = true,
            "{" if in_class => in_class = false,
            "(" if is_specifier(source, i) => {}
            ";" | "=" | "[" | "," | "{" => return Some(i),
            "::" => {}
            text if source.is_identifier(i) || text == "<" => {}
            _ => return None,
        }
        i = source.after(i, true);
    }
    None
}

fn declared(source: &TokenStream<'_>, tokens: Range<usize>) -> Option<DeclaredVariable> {
    let mut name = None;
    let mut in_class = false;
    let mut i = tokens.start;
    while i < tokens.end {
        match source.text_at(i) {
            "struct" | "union" | "class" | "enum" => in_class = true,
            "{" if in_class => in_class = false,
            "=" | "[" | "{" => break,
            "(" if is_specifier(source, i) => {}
            "*" | "&" | "&&" | "(" => return None,
            "__attribute__" if name.is_some() && ends_declarator(source, i, tokens.end) => break,
            "__attribute__" | "alignas" | "decltype" | "threadgroup" | "static" | "volatile"
            | "const" | "constexpr" => {}
            _ if source.is_identifier(i) => name = Some(i),
            _ => {}
        }
        i = source.after(i, true);
    }
    Some(DeclaredVariable {
        name: name?,
        tokens,
    })
}

/// Returns whether only attributes, bounds and an initialiser follow the attribute at `i`.
fn ends_declarator(source: &TokenStream<'_>, i: usize, end: usize) -> bool {
    let next = source.after(i + 1, false);
    next >= end || matches!(source.text_at(next), "=" | "{" | "[" | "__attribute__")
}
