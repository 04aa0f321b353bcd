//! Lexer for preprocessed MSL: tokens with their locations in the user's own files.
//!
//! The input is the output of `clang -E`: text with `# line "file" flags` markers. Any other text lexes too:
//! comments are white space, a stray byte is a punctuator, an unterminated literal ends with its line. The lexer
//! never fails.

use std::collections::HashMap;

/// Kind of a [`Token`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TokenKind {
    /// A name or a keyword.
    Identifier,
    /// A preprocessing number: `1`, `0x1p3`, `1.0h`, `1'000u`.
    Number,
    /// A string literal with its prefix, including raw strings.
    String,
    /// A character literal with its prefix.
    Character,
    /// An operator or a bracket. `>>` is always two tokens, because it may close two template argument lists.
    Punctuator,
    /// `# 12 "file" 1 3`
    LineMarker,
    /// `#pragma …`, the whole line.
    Pragma,
    /// Any other line that starts with `#`.
    Directive,
}

/// A token and its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// Kind of the token.
    pub kind: TokenKind,
    /// Whether the file is a system header (flag 3 of the line marker).
    pub system: bool,
    /// First byte in the preprocessed text.
    pub start: u32,
    /// One past the last byte in the preprocessed text.
    pub end: u32,
    /// Index in [`Lexed::files`].
    pub file: u32,
    /// Line in that file, from 1.
    pub line: u32,
    /// Column in bytes, from 1. Inside a macro expansion it is the column of the expanded line.
    pub column: u32,
}

/// Output of the lexer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lexed {
    /// In text order, including markers and pragmas.
    pub tokens: Vec<Token>,
    /// The files that the markers name; the first is the primary file.
    pub files: Vec<String>,
    /// File and line of every line of the text. Never empty.
    pub lines: Vec<(u32, u32)>,
}

/// Lexes at most 4 GiB of text; the rest is ignored (the caller rejects it first).
pub(crate) fn lex(text: &str, primary_file: &str) -> Lexed {
    let mut lexer = Lexer {
        bytes: text.as_bytes(),
        text,
        at: 0,
        line_start: 0,
        line: 1,
        file: 0,
        system: false,
        known: HashMap::from([(primary_file.to_owned(), 0)]),
        out: Lexed {
            tokens: Vec::with_capacity(text.len() / 4),
            files: vec![primary_file.to_owned()],
            lines: vec![(0, 1)],
        },
    };
    lexer.run();
    lexer.out
}

struct Lexer<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    line_start: usize,
    line: u32,
    file: u32,
    system: bool,
    known: HashMap<String, u32>,
    out: Lexed,
}

/// Longest first. `>>` is missing on purpose.
const PUNCTUATORS: [&str; 23] = [
    "<<=", ">>=", "...", "->*", "::", "->", "++", "--", "<<", "<=", ">=", "==", "!=", "&&", "||",
    "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=",
];

fn starts_identifier(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte == b'$' || byte >= 0x80
}

fn continues_identifier(byte: u8) -> bool {
    starts_identifier(byte) || byte.is_ascii_digit()
}

impl Lexer<'_> {
    fn run(&mut self) {
        let mut at_line_start = true;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.newline();
                    at_line_start = true;
                }
                b' ' | b'\t' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'/' if self.peek(1) == b'/' => self.at = self.line_end(self.at),
                b'/' if self.peek(1) == b'*' => self.block_comment(),
                b'\\' if self.peek(1) == b'\n' => self.at += 1,
                b'#' if at_line_start => self.directive(),
                _ => {
                    at_line_start = false;
                    self.token(byte);
                }
            }
        }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn newline(&mut self) {
        self.at += 1;
        self.start_line(self.at);
    }

    fn start_line(&mut self, at: usize) {
        self.line = self.line.saturating_add(1);
        self.line_start = at;
        self.out.lines.push((self.file, self.line));
    }

    /// The newline that ends the line of `from`; a backslash does not continue it.
    fn line_end(&self, from: usize) -> usize {
        let rest = &self.bytes[from..];
        rest.iter()
            .position(|&b| b == b'\n')
            .map_or(self.bytes.len(), |length| from + length)
    }

    fn block_comment(&mut self) {
        self.at += 2;
        while self.at < self.bytes.len() {
            match self.bytes[self.at] {
                b'*' if self.peek(1) == b'/' => {
                    self.at += 2;
                    return;
                }
                b'\n' => self.newline(),
                _ => self.at += 1,
            }
        }
    }

    fn push(&mut self, kind: TokenKind, start: usize) {
        self.out.tokens.push(Token {
            kind,
            system: self.system,
            start: to_u32(start),
            end: to_u32(self.at),
            file: self.file,
            line: self.line,
            column: to_u32(start.saturating_sub(self.line_start) + 1),
        });
    }

    fn directive(&mut self) {
        let start = self.at;
        self.at = self.line_end(start);
        let line = self.text.get(start..self.at).unwrap_or_default();
        let body = line[1..].trim_start();
        if let Some(marker) = Marker::parse(body) {
            self.push(TokenKind::LineMarker, start);
            self.enter(&marker);
        } else if body
            .strip_prefix("pragma")
            .is_some_and(|rest| !rest.bytes().next().is_some_and(continues_identifier))
        {
            self.push(TokenKind::Pragma, start);
        } else {
            self.push(TokenKind::Directive, start);
        }
    }

    fn enter(&mut self, marker: &Marker) {
        // The marker gives the number of the line after it.
        self.line = marker.line.saturating_sub(1);
        self.system = marker.system;
        let Some(name) = &marker.file else { return };
        let next = to_u32(self.out.files.len());
        self.file = *self.known.entry(name.clone()).or_insert(next);
        if self.file == next {
            self.out.files.push(name.clone());
        }
    }

    fn token(&mut self, byte: u8) {
        let start = self.at;
        let kind = match byte {
            b'"' => self.quoted(b'"', TokenKind::String),
            b'\'' => self.quoted(b'\'', TokenKind::Character),
            b'0'..=b'9' => self.number(),
            b'.' if self.peek(1).is_ascii_digit() => self.number(),
            _ if starts_identifier(byte) => self.identifier(start),
            _ => self.punctuator(start),
        };
        self.push(kind, start);
        // A raw string may span lines; its token has the location of its start.
        for i in start..self.at {
            if self.bytes[i] == b'\n' {
                self.start_line(i + 1);
            }
        }
    }

    fn quoted(&mut self, quote: u8, kind: TokenKind) -> TokenKind {
        self.at += 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' => break,
                b'\\' if self.peek(1) != b'\n' && self.at + 1 < self.bytes.len() => self.at += 2,
                _ => {
                    self.at += 1;
                    if byte == quote {
                        break;
                    }
                }
            }
        }
        // An escape may have ended inside a multi-byte character.
        while self.at < self.bytes.len() && !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
        kind
    }

    fn number(&mut self) -> TokenKind {
        while let Some(&byte) = self.bytes.get(self.at) {
            let after_exponent = matches!(byte, b'+' | b'-')
                && matches!(self.bytes[self.at - 1], b'e' | b'E' | b'p' | b'P');
            let separator = byte == b'\'' && self.peek(1).is_ascii_alphanumeric();
            if !(continues_identifier(byte) || byte == b'.' || after_exponent || separator) {
                break;
            }
            // `0xe+1` is a single preprocessing number, as in standard C++.
            self.at += 1;
        }
        TokenKind::Number
    }

    fn identifier(&mut self, start: usize) -> TokenKind {
        while self
            .bytes
            .get(self.at)
            .copied()
            .is_some_and(continues_identifier)
        {
            self.at += 1;
        }
        let name = &self.bytes[start..self.at];
        match (self.peek(0), name) {
            (b'"', b"R" | b"u8R" | b"uR" | b"UR" | b"LR") => self.raw_string(),
            (b'"', b"u8" | b"u" | b"U" | b"L") => self.quoted(b'"', TokenKind::String),
            (b'\'', b"u8" | b"u" | b"U" | b"L") => self.quoted(b'\'', TokenKind::Character),
            _ => TokenKind::Identifier,
        }
    }

    fn raw_string(&mut self) -> TokenKind {
        let open = self.at + 1;
        let limit = (open + 17).min(self.bytes.len());
        let Some(length) = self.bytes[open..limit].iter().position(|&b| b == b'(') else {
            return self.quoted(b'"', TokenKind::String);
        };
        let mut closing = vec![b')'];
        closing.extend_from_slice(&self.bytes[open..open + length]);
        closing.push(b'"');
        let body = open + length + 1;
        let found = self.bytes[body..]
            .windows(closing.len())
            .position(|window| window == closing);
        self.at = found.map_or(self.bytes.len(), |at| body + at + closing.len());
        TokenKind::String
    }

    fn punctuator(&mut self, start: usize) -> TokenKind {
        let rest = &self.bytes[start..];
        let length = PUNCTUATORS
            .iter()
            .find(|p| rest.starts_with(p.as_bytes()))
            .map_or(1, |p| p.len());
        self.at += length;
        TokenKind::Punctuator
    }
}

/// A line marker: `12 "file" 1 3` or `line 12 "file"`, without its `#`.
struct Marker {
    line: u32,
    file: Option<String>,
    system: bool,
}

impl Marker {
    fn parse(body: &str) -> Option<Self> {
        let body = match body.strip_prefix("line") {
            Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start(),
            Some(_) => return None,
            None => body,
        };
        let digits = body.bytes().take_while(u8::is_ascii_digit).count();
        let line = body[..digits].parse().ok()?;
        let rest = body[digits..].trim_start();
        let Some(quoted) = rest.strip_prefix('"') else {
            return rest.is_empty().then_some(Self {
                line,
                file: None,
                system: false,
            });
        };
        let (name, flags) = unquote(quoted)?;
        Some(Self {
            line,
            file: Some(name),
            system: flags.split_ascii_whitespace().any(|flag| flag == "3"),
        })
    }
}

/// Unescapes `\\` and `\"` up to the closing quote, and returns the rest.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((i, c)) = characters.next() {
        match c {
            '"' => return Some((name, &text[i + 1..])),
            '\\' => name.push(characters.next()?.1),
            _ => name.push(c),
        }
    }
    None
}

fn to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<(TokenKind, &str)> {
        lex(source, "a.metal")
            .tokens
            .iter()
            .map(|t| (t.kind, &source[t.start as usize..t.end as usize]))
            .collect()
    }

    #[test]
    fn knows_every_kind_of_token() {
        use TokenKind::{Character, Identifier, Number, Pragma, Punctuator, String};
        assert_eq!(
            texts("#pragma unroll\nfloat x = 1.5e-3h + u8\"a\\\"b\" 'c' >>= -> a>>b 1'000u .5"),
            [
                (Pragma, "#pragma unroll"),
                (Identifier, "float"),
                (Identifier, "x"),
                (Punctuator, "="),
                (Number, "1.5e-3h"),
                (Punctuator, "+"),
                (String, "u8\"a\\\"b\""),
                (Character, "'c'"),
                (Punctuator, ">>="),
                (Punctuator, "->"),
                (Identifier, "a"),
                (Punctuator, ">"),
                (Punctuator, ">"),
                (Identifier, "b"),
                (Number, "1'000u"),
                (Number, ".5"),
            ]
        );
    }

    #[test]
    fn follows_line_markers() {
        let lexed = lex(
            "a\n# 41 \"dir/b \\\"q\\\".h\" 1 3\n\n  c\n# 3 \"a.metal\" 2\nd",
            "a.metal",
        );
        let locations: Vec<_> = lexed
            .tokens
            .iter()
            .filter(|t| t.kind == TokenKind::Identifier)
            .map(|t| (t.file, t.line, t.column, t.system))
            .collect();
        assert_eq!(
            locations,
            [(0, 1, 1, false), (1, 42, 3, true), (0, 3, 1, false)]
        );
        assert_eq!(lexed.files, ["a.metal", "dir/b \"q\".h"]);
    }

    #[test]
    fn skips_comments_and_counts_their_lines() {
        let lexed = lex("/* a\n b */ c // d\n e R\"x(\n)x\" f", "a.metal");
        let locations: Vec<_> = lexed.tokens.iter().map(|t| (t.line, t.column)).collect();
        assert_eq!(locations, [(2, 7), (3, 2), (3, 4), (4, 5)]);
    }

    #[test]
    fn ends_unterminated_literals_with_their_line() {
        assert_eq!(texts("\"abc\nx").len(), 2);
        assert_eq!(texts("'\\").len(), 1);
        assert_eq!(texts("R\"(abc").len(), 1);
        assert_eq!(texts("\"\\é\" é").len(), 2);
    }
}
