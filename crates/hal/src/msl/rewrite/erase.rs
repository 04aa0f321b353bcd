//! Edits that a single token determines: address spaces, attributes, casts, literals, pragmas.

use super::Rewrite;
use super::literal::{self, Magnitude};
use crate::msl::lexer::TokenKind;
use crate::msl::program::FunctionDecl;
use crate::msl::token_stream::TokenStream;

/// Words next to `constant` among which a `const` already makes the type const.
const CONST_NEIGHBOURS: [&str; 7] = [
    "const",
    "static",
    "constexpr",
    "volatile",
    "inline",
    "device",
    "typename",
];

impl Rewrite<'_, '_> {
    pub(super) fn erase(&mut self) {
        for i in 0..self.source.len() {
            match self.source.kind_at(i) {
                TokenKind::Identifier => self.word(i),
                TokenKind::Number => self.number(i),
                TokenKind::String => self.string(i),
                _ => {}
            }
        }
        self.attributes();
        self.pragmas();
    }

    /// A string argument is in `constant` memory. Other strings are messages of the language itself.
    fn string(&mut self, i: usize) {
        let source = self.source;
        let mut end = i + 1;
        while source.kind_at(end) == TokenKind::String {
            end += 1;
        }
        if !matches!(source.before(i), "(" | ",") || !matches!(source.text_at(end), ")" | ",") {
            return;
        }
        // Find the enclosing parenthesis.
        let mut open = i;
        while let Some(before) = open.checked_sub(1) {
            open = match source.text_at(before) {
                ")" | "]" | "}" => source.partner(before).unwrap_or(before),
                "(" => {
                    open = before;
                    break;
                }
                "{" | "[" | ";" => return,
                _ => before,
            };
        }
        if source.is_identifier(open.saturating_sub(1))
            && !matches!(
                source.before(open),
                "static_assert" | "asm" | "__asm__" | "annotate" | "deprecated"
            )
        {
            let at = source.bytes(i, i).start;
            self.edits.insert(at, "(sm_constant const char*)");
        }
    }

    fn number(&mut self, i: usize) {
        let text = self.source.text_at(i);
        let rewritten = literal::rewrite(text);
        let is_bfloat = text.ends_with("bf") || text.ends_with("BF");
        match literal::magnitude(text) {
            Magnitude::Subnormal if is_bfloat => self.replace(i, "((__bf16)0.0)"),
            Magnitude::Subnormal => self.replace(i, "0.0f"),
            // clang's front end would fold it and keep subnormal results; the call defers that to the optimiser,
            // which flushes them.
            Magnitude::Small if !is_bfloat && !self.must_be_constant(i) => {
                let literal = rewritten.as_deref().unwrap_or(text);
                self.replace(i, format!("::sm::literal({literal})"));
            }
            _ => {
                if let Some(text) = rewritten {
                    self.replace(i, text);
                }
            }
        }
    }

    /// Returns whether the expression at a token may have to be a constant expression: it is part of a `constexpr`
    /// declaration or function, or of a static assertion.
    fn must_be_constant(&self, i: usize) -> bool {
        let source = self.source;
        let is_constant = |i: usize| matches!(source.text_at(i), "constexpr" | "static_assert");
        let function = |f: &&FunctionDecl| f.first <= i && i <= f.last;
        let mut functions = self.program.functions.iter().filter(function);
        let begins = |i: usize| match source.text_at(i) {
            ";" | "}" => true,
            "{" => i > 0 && source.text_at(i - 1) == ")",
            _ => false,
        };
        functions.any(|f| (f.specifiers..f.open).any(is_constant))
            || (0..i).rev().take_while(|&i| !begins(i)).any(is_constant)
    }

    fn word(&mut self, i: usize) {
        let source = self.source;
        match source.text_at(i) {
            "thread" => self.replace(i, ""),
            // C++ functions are not qualified with an address space: methods apply to objects in any of them.
            "device" | "threadgroup" if self.is_of_object(i) => self.replace(i, ""),
            "constant" if self.is_of_object(i) => {
                let bare = self.bare.contains(&i) || beside_const(source, i);
                let text = if bare { "" } else { "const" };
                self.replace(i, text);
            }
            "device" => self.replace(i, "sm_device"),
            "threadgroup" => self.replace(i, "sm_threadgroup"),
            "constant" => {
                let text = if beside_const(source, i) {
                    "sm_constant"
                } else {
                    "sm_constant const"
                };
                self.replace(i, text);
            }
            "coherent" if source.text_at(i + 1) == "(" => {
                if let Some(close) = source.partner(i + 1) {
                    self.edits.delete(source, source.bytes(i, close));
                }
            }
            "coherent" if matches!(source.text_at(i + 1), "device" | "constant" | "const") => {
                self.replace(i, "");
            }
            // Pointer conversions are checked in the user's text, not in the headers.
            "static_cast" if !self.casts_to_pointer(i) => self.replace(i, "::sm::scast"),
            "noinline" | "__noinline__" if in_gnu_attribute(source, i) => {
                self.replace(i, "always_inline");
            }
            "is_function_constant_defined" if source.text_at(i + 1) == "(" => {
                if let Some(close) = source.partner(i + 1)
                    && close > i + 2
                {
                    let name = source.text_at(close - 1);
                    let text = format!("::sm::fc_defined(\"{name}\")");
                    let bytes = source.bytes(self.qualified_start(i), close);
                    self.edits.replace_lines(source, bytes, text);
                }
            }
            text if super::swizzle::indices(text).is_some() => self.swizzle(i),
            _ => {}
        }
    }

    /// Returns whether a cast is `static_cast<T*>` or `static_cast<T&>`.
    fn casts_to_pointer(&self, i: usize) -> bool {
        let close = self.source.partner(i + 1);
        close.is_some_and(|close| matches!(self.source.before(close), "*" | "&"))
    }

    /// Returns whether an address space is that of a method's object.
    fn is_of_object(&self, i: usize) -> bool {
        self.trailing.contains(&i) || self.returned.contains(&i)
    }

    /// `metal::name` starts two tokens earlier.
    fn qualified_start(&self, i: usize) -> usize {
        if i >= 2 && self.source.before(i) == "::" && self.source.text_at(i - 2) == "metal" {
            i - 2
        } else {
            i
        }
    }

    fn attributes(&mut self) {
        let source = self.source;
        let mut last = 0..0;
        for attribute in &source.attributes {
            if attribute.bytes != last {
                last = attribute.bytes.clone();
                self.edits.delete(source, last.clone());
            }
        }
    }

    /// `-E` does not expand macros in pragmas, so an unroll count that is not a number is dropped; it is only a
    /// hint.
    fn pragmas(&mut self) {
        for &pragma in &self.source.pragmas {
            let text = self.source.token_text(pragma);
            let Some(body) = text[1..].trim_start().strip_prefix("pragma") else {
                continue;
            };
            let body = body.trim_start();
            let argument = body.strip_prefix("unroll").or_else(|| {
                let rest = body.strip_prefix("clang")?.trim_start();
                let rest = rest.strip_prefix("loop")?.trim_start();
                rest.find('(').map(|open| &rest[open..])
            });
            let Some(argument) = argument else { continue };
            let argument = argument
                .trim()
                .trim_start_matches('(')
                .trim_end_matches(')');
            let readable = argument.trim().bytes().all(|b| b.is_ascii_digit())
                || matches!(argument.trim(), "full" | "enable" | "disable");
            if !readable {
                self.edits
                    .replace(pragma.start as usize..pragma.end as usize, "");
            }
        }
    }
}

fn beside_const(source: &TokenStream<'_>, i: usize) -> bool {
    let mut at = i + 1;
    while CONST_NEIGHBOURS.contains(&source.text_at(at)) {
        if source.text_at(at) == "const" {
            return true;
        }
        at += 1;
    }
    let mut at = i;
    while CONST_NEIGHBOURS.contains(&source.before(at)) {
        if source.before(at) == "const" {
            return true;
        }
        at -= 1;
    }
    false
}

/// Returns whether a token is inside `__attribute__((…))`.
fn in_gnu_attribute(source: &TokenStream<'_>, i: usize) -> bool {
    let mut at = i;
    // GNU attribute lists are short; eight tokens back covers all in use.
    for _ in 0..8 {
        let Some(before) = at.checked_sub(1) else {
            return false;
        };
        at = before;
        match source.text_at(at) {
            "__attribute__" | "__attribute" => return true,
            ";" | "{" | "}" => return false,
            _ => {}
        }
    }
    false
}
