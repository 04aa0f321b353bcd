//! The token stream that the other passes work on: significant tokens with matched brackets and folded attributes.
//!
//! Markers, pragmas and white space are not tokens; passes that edit the text leave them alone. `[[…]]` is folded
//! into an [`Attribute`], so that no pass confuses the words inside with code (`threadgroup` is both an address
//! space and an attribute).

use std::collections::HashSet;
use std::ops::Range;

use super::diagnostic::{Diagnostic, DiagnosticKind, Severity};
use super::lexer::{Lexed, Token, TokenKind, lex};

/// Maximum nesting of brackets; the same as clang's default. It bounds every recursion of the front end.
const MAX_BRACKET_DEPTH: usize = 256;

const NO_PARTNER: u32 = u32::MAX;

/// Preprocessed text as a token stream with matched brackets.
#[derive(Debug)]
pub(crate) struct TokenStream<'a> {
    pub(crate) text: &'a str,
    pub(crate) files: Vec<String>,
    /// File and line of every line of the text.
    pub(crate) lines: Vec<(u32, u32)>,
    /// Significant tokens only.
    pub(crate) tokens: Vec<Token>,
    /// Pragmas, in order.
    pub(crate) pragmas: Vec<Token>,
    pub(crate) attributes: Vec<Attribute>,
    /// For each bracket, including `<` and `>` that look like template brackets: the matching bracket.
    partner: Vec<u32>,
}

/// An attribute inside `[[…]]`, with its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    /// The tokens between the parentheses; they are not in [`TokenStream::tokens`].
    pub(crate) arguments: Vec<Token>,
    pub(crate) token: Token,
    /// Byte range of the whole `[[…]]`; several attributes may share it.
    pub(crate) bytes: Range<usize>,
    /// Index of the significant token that follows the attribute.
    pub(crate) before: usize,
}

impl<'a> TokenStream<'a> {
    pub(crate) fn new(text: &'a str, primary_file: &str) -> Result<Self, Vec<Diagnostic>> {
        let Lexed {
            tokens,
            files,
            lines,
        } = lex(text, primary_file);
        let mut source = Self {
            text,
            files,
            lines,
            tokens: Vec::with_capacity(tokens.len()),
            pragmas: Vec::new(),
            attributes: Vec::new(),
            partner: Vec::new(),
        };
        if u32::try_from(text.len()).is_err() {
            let message = "the preprocessed text is larger than 4 GiB".to_owned();
            return Err(vec![Diagnostic {
                severity: Severity::Error,
                kind: DiagnosticKind::Syntax,
                message,
                file: primary_file.to_owned(),
                line: 1,
                column: 1,
                flag: None,
                source_line: None,
            }]);
        }
        source.separate(&tokens)?;
        source.match_brackets()?;
        Ok(source)
    }

    /// Separates significant tokens, pragmas and attributes.
    fn separate(&mut self, all: &[Token]) -> Result<(), Vec<Diagnostic>> {
        let mut i = 0;
        while let Some(&token) = all.get(i) {
            i += 1;
            match token.kind {
                TokenKind::LineMarker | TokenKind::Directive => {}
                TokenKind::Pragma => self.pragmas.push(token),
                TokenKind::Punctuator if self.raw(token) == "[" => {
                    let next = skip_lines(all, i);
                    if next < all.len() && self.raw(all[next]) == "[" {
                        i = self.fold_attribute(all, token, next + 1)?;
                    } else {
                        self.tokens.push(token);
                    }
                }
                _ => self.tokens.push(token),
            }
        }
        Ok(())
    }

    /// Parses an attribute list whose content starts at `at`; returns the index after its `]]`.
    fn fold_attribute(
        &mut self,
        all: &[Token],
        open: Token,
        mut at: usize,
    ) -> Result<usize, Vec<Diagnostic>> {
        let first = self.attributes.len();
        let mut depth = 0usize;
        let mut name = String::new();
        let mut name_token = open;
        let mut arguments = Vec::new();
        loop {
            at = skip_lines(all, at);
            let Some(&token) = all.get(at) else {
                return Err(vec![self.error(
                    open,
                    DiagnosticKind::Syntax,
                    "'[[' is never closed",
                )]);
            };
            let text = self.raw(token);
            let closing = matches!(text, ")" | "]" | "}");
            if depth > 0 {
                depth = match text {
                    "(" | "[" | "{" => depth + 1,
                    _ if closing => depth - 1,
                    _ => depth,
                };
                if depth > 0 {
                    arguments.push(token);
                }
            } else if text == "(" {
                depth = 1;
            } else if text == "," || closing {
                if !name.is_empty() {
                    self.attributes.push(Attribute {
                        name: std::mem::take(&mut name),
                        arguments: std::mem::take(&mut arguments),
                        token: name_token,
                        bytes: 0..0,
                        before: self.tokens.len(),
                    });
                }
                if closing {
                    break;
                }
            } else {
                if name.is_empty() {
                    name_token = token;
                }
                name.push_str(text);
            }
            at += 1;
        }
        // `at` is the end of the inner bracket; the outer one follows.
        let outer = skip_lines(all, at + 1);
        let (end, next) = match all.get(outer) {
            Some(token) if self.raw(*token) == "]" => (token.end, outer + 1),
            _ => (all[at].end, at + 1),
        };
        let bytes = open.start as usize..end as usize;
        if self.attributes.len() == first {
            self.attributes.push(Attribute {
                name: String::new(),
                arguments: Vec::new(),
                token: open,
                bytes: bytes.clone(),
                before: self.tokens.len(),
            });
        }
        for attribute in &mut self.attributes[first..] {
            attribute.bytes = bytes.clone();
        }
        Ok(next)
    }

    fn match_brackets(&mut self) -> Result<(), Vec<Diagnostic>> {
        self.partner = vec![NO_PARTNER; self.tokens.len()];
        let values = self.value_parameters();
        let mut open: Vec<usize> = Vec::new();
        let mut depth = 0usize;
        for i in 0..self.tokens.len() {
            if self.tokens[i].kind != TokenKind::Punctuator {
                continue;
            }
            match self.text_at(i) {
                "(" | "[" | "{" => {
                    open.push(i);
                    depth += 1;
                    if depth > MAX_BRACKET_DEPTH {
                        return Err(vec![self.error_at(
                            i,
                            DiagnosticKind::Syntax,
                            format!("brackets nest deeper than {MAX_BRACKET_DEPTH}"),
                        )]);
                    }
                }
                "<" if self.may_open_template(i, &values) => open.push(i),
                ">" => {
                    if let Some(&top) = open.last()
                        && self.text_at(top) == "<"
                    {
                        open.pop();
                        self.pair(top, i);
                    }
                }
                ";" => self.drop_angles(&mut open),
                closing @ (")" | "]" | "}") => {
                    self.drop_angles(&mut open);
                    let expected = match closing {
                        ")" => "(",
                        "]" => "[",
                        _ => "{",
                    };
                    match open.pop() {
                        Some(top) if self.text_at(top) == expected => {
                            self.pair(top, i);
                            depth -= 1;
                        }
                        _ => {
                            return Err(vec![self.error_at(
                                i,
                                DiagnosticKind::Syntax,
                                format!("'{closing}' has no matching '{expected}'"),
                            )]);
                        }
                    }
                }
                _ => {}
            }
        }
        self.drop_angles(&mut open);
        match open.last() {
            Some(&top) => Err(vec![self.error_at(
                top,
                DiagnosticKind::Syntax,
                format!("'{}' is never closed", self.text_at(top)),
            )]),
            None => Ok(()),
        }
    }

    /// Names that a template head declares as non-type parameters (`int N`): `N <` is a comparison.
    fn value_parameters(&self) -> HashSet<&'a str> {
        let mut values = HashSet::new();
        let mut i = 0;
        while i + 1 < self.tokens.len() {
            if self.text_at(i) != "template" || self.text_at(i + 1) != "<" {
                i += 1;
                continue;
            }
            let mut depth = 0usize;
            i += 1;
            while i < self.tokens.len() {
                match self.text_at(i) {
                    "<" => depth += 1,
                    ">" => depth -= 1,
                    ";" | "{" | "}" => break,
                    _ => {}
                }
                let named = self.kind_at(i) == TokenKind::Identifier
                    && self.kind_at(i - 1) == TokenKind::Identifier
                    && matches!(self.text_at(i + 1), "," | ">" | "=");
                if named && !matches!(self.text_at(i - 1), "typename" | "class" | "struct") {
                    values.insert(self.text_at(i));
                }
                i += 1;
                if depth == 0 {
                    break;
                }
            }
        }
        values
    }

    fn may_open_template(&self, i: usize, values: &HashSet<&str>) -> bool {
        i > 0
            && self.kind_at(i - 1) == TokenKind::Identifier
            && !values.contains(self.text_at(i - 1))
            && (i < 2 || self.text_at(i - 2) != "operator" || self.text_at(i - 1) == "template")
    }

    fn drop_angles(&self, open: &mut Vec<usize>) {
        while open.last().is_some_and(|&top| self.text_at(top) == "<") {
            open.pop();
        }
    }

    fn pair(&mut self, open: usize, close: usize) {
        self.partner[open] = u32::try_from(close).unwrap_or(NO_PARTNER);
        self.partner[close] = u32::try_from(open).unwrap_or(NO_PARTNER);
    }

    fn raw(&self, token: Token) -> &'a str {
        self.text
            .get(token.start as usize..token.end as usize)
            .unwrap_or_default()
    }

    /// The text of any token, also one inside an attribute.
    pub(crate) fn token_text(&self, token: Token) -> &'a str {
        self.raw(token)
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The text of token `i`; empty past the end.
    pub(crate) fn text_at(&self, i: usize) -> &'a str {
        self.tokens.get(i).map_or("", |&token| self.raw(token))
    }

    /// The text of the token before `i`; empty at the start.
    pub(crate) fn before(&self, i: usize) -> &'a str {
        i.checked_sub(1).map_or("", |i| self.text_at(i))
    }

    /// The kind of token `i`; a punctuator past the end.
    pub(crate) fn kind_at(&self, i: usize) -> TokenKind {
        self.tokens
            .get(i)
            .map_or(TokenKind::Punctuator, |token| token.kind)
    }

    pub(crate) fn is_identifier(&self, i: usize) -> bool {
        self.kind_at(i) == TokenKind::Identifier
    }

    /// The bracket that matches bracket `i`, if it is one.
    pub(crate) fn partner(&self, i: usize) -> Option<usize> {
        match self.partner.get(i) {
            Some(&NO_PARTNER) | None => None,
            Some(&partner) => Some(partner as usize),
        }
    }

    /// The index after token `i`, or after the bracket that it opens. Template brackets are skipped only if
    /// `angles`.
    pub(crate) fn after(&self, i: usize, angles: bool) -> usize {
        let opens = match self.text_at(i) {
            "(" | "[" | "{" => true,
            "<" => angles,
            _ => false,
        };
        match self.partner(i) {
            Some(close) if opens && close > i => close + 1,
            _ => i + 1,
        }
    }

    /// Byte range of the tokens `first..=last`.
    pub(crate) fn bytes(&self, first: usize, last: usize) -> Range<usize> {
        match (self.tokens.get(first), self.tokens.get(last)) {
            (Some(a), Some(b)) if a.start <= b.end => a.start as usize..b.end as usize,
            _ => 0..0,
        }
    }

    /// The attributes before one of the tokens `first..=last`.
    pub(crate) fn attributes_in(&self, first: usize, last: usize) -> &[Attribute] {
        let start = self.attributes.partition_point(|a| a.before < first);
        let end = self.attributes.partition_point(|a| a.before <= last);
        self.attributes.get(start..end).unwrap_or_default()
    }

    /// Splits the tokens of `range` at top-level commas; empty for an empty range.
    pub(crate) fn split_commas(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut start = range.start;
        let mut i = range.start;
        while i < range.end {
            if self.text_at(i) == "," {
                parts.push(start..i);
                start = i + 1;
            }
            i = self.after(i, true);
        }
        let trailing_attribute = !self.attributes_in(start, range.end).is_empty();
        if start < range.end || (trailing_attribute && start == range.end && !parts.is_empty()) {
            parts.push(start..range.end);
        }
        parts
    }

    pub(crate) fn error(
        &self,
        token: Token,
        kind: DiagnosticKind,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            kind,
            message: message.into(),
            file: self.file(token).to_owned(),
            line: token.line,
            column: token.column,
            flag: None,
            source_line: None,
        }
    }

    /// Creates an error at token `i`.
    pub(crate) fn error_at(
        &self,
        i: usize,
        kind: DiagnosticKind,
        message: impl Into<String>,
    ) -> Diagnostic {
        let token = self.tokens.get(i).or(self.tokens.last()).copied();
        self.error(token.unwrap_or(EMPTY_TEXT_LOCATION), kind, message)
    }

    pub(crate) fn file(&self, token: Token) -> &str {
        self.files
            .get(token.file as usize)
            .map_or("", String::as_str)
    }
}

/// Location of an error in an empty text.
const EMPTY_TEXT_LOCATION: Token = Token {
    kind: TokenKind::Punctuator,
    system: false,
    start: 0,
    end: 0,
    file: 0,
    line: 1,
    column: 1,
};

fn skip_lines(all: &[Token], mut i: usize) -> usize {
    while all.get(i).is_some_and(|token| {
        matches!(
            token.kind,
            TokenKind::LineMarker | TokenKind::Pragma | TokenKind::Directive
        )
    }) {
        i += 1;
    }
    i
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> TokenStream<'_> {
        TokenStream::new(text, "a.metal").expect("the text is balanced")
    }

    #[test]
    fn matches_template_brackets_and_not_comparisons() {
        let s = source("template<int N> f<g<N, (3 > 2)>, sizeof(T) < 8> x; a < b; h<N < 8, 1>();");
        let pairs: Vec<_> = (0..s.len())
            .filter(|&i| s.text_at(i) == "<" && s.partner(i).is_some())
            .map(|i| s.text_at(i - 1))
            .collect();
        assert_eq!(pairs, ["template", "f", "g", "h"]);
    }

    #[test]
    fn sets_attributes_aside() {
        let s = source(
            "[[kernel, host_name(\"a\" \"b\")]] void f(uint i [[thread_position_in_grid]]) {}",
        );
        let names: Vec<_> = s
            .attributes
            .iter()
            .map(|a| (a.name.as_str(), a.before))
            .collect();
        assert_eq!(
            names,
            [
                ("kernel", 0),
                ("host_name", 0),
                ("thread_position_in_grid", 5)
            ]
        );
        assert_eq!(s.attributes[1].arguments.len(), 2);
        assert_eq!(s.text_at(5), ")");
    }

    #[test]
    fn reports_unbalanced_brackets_with_their_location() {
        let errors = TokenStream::new("void f() {\n  (]\n}", "a.metal").expect_err("unbalanced");
        assert_eq!(
            errors[0].to_string(),
            "a.metal:2:4: error: ']' has no matching '['"
        );
        assert!(TokenStream::new("{", "a").is_err());
        assert!(TokenStream::new("[[", "a").is_err());
        assert!(TokenStream::new(&"(".repeat(100_000), "a").is_err());
    }
}
