//! Lexer for LLVM IR text.

use super::FissionError;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IrTokenKind {
    /// A keyword, type name, number or bare label.
    Word,
    /// `%name`, `%12` or `%"name"`.
    Local,
    /// `@name` or `@"name"`.
    Global,
    /// `!name`, `!12` or a lone `!`.
    Meta,
    /// `#12` or `#dbg_value`.
    Hash,
    /// `$name`.
    Comdat,
    /// `"text"` or `c"text"`.
    Text,
    /// One character of punctuation.
    Punct(char),
}

/// A token with its position in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IrToken<'a> {
    pub(crate) kind: IrTokenKind,
    pub(crate) text: &'a str,
    pub(crate) start: usize,
}

impl IrToken<'_> {
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    pub(crate) fn is_punct(&self, c: char) -> bool {
        self.kind == IrTokenKind::Punct(c)
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.kind == IrTokenKind::Word && self.text == word
    }
}

fn is_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'-' | b'$' | b'.' | b'_')
}

/// Returns the end of the quoted text whose opening quote is at `at`: one past the closing quote.
fn quoted_end(bytes: &[u8], at: usize) -> Option<usize> {
    bytes
        .get(at + 1..)?
        .iter()
        .position(|&c| c == b'"')
        .map(|n| at + 1 + n + 1)
}

/// Splits `text` into tokens; comments are skipped.
pub(crate) fn tokens(text: &str, line: usize) -> Result<Vec<IrToken<'_>>, FissionError> {
    let bytes = text.as_bytes();
    let unterminated = || FissionError::Syntax {
        line,
        what: "unterminated string".into(),
    };
    let mut list = Vec::with_capacity(text.len() / 4);
    let mut at = 0;
    while at < bytes.len() {
        let c = bytes[at];
        if c.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if c == b';' {
            match text[at..].find('\n') {
                Some(n) => at += n + 1,
                None => break,
            }
            continue;
        }
        let start = at;
        let kind = match c {
            b'%' | b'@' | b'$' | b'!' | b'#' => {
                at += 1;
                if bytes.get(at) == Some(&b'"') && c != b'!' {
                    at = quoted_end(bytes, at).ok_or_else(unterminated)?;
                } else {
                    while at < bytes.len()
                        && (is_name(bytes[at]) || (c == b'!' && bytes[at] == b'\\'))
                    {
                        at += 1;
                    }
                }
                match c {
                    b'%' => IrTokenKind::Local,
                    b'@' => IrTokenKind::Global,
                    b'$' => IrTokenKind::Comdat,
                    b'!' => IrTokenKind::Meta,
                    _ => IrTokenKind::Hash,
                }
            }
            b'"' => {
                at = quoted_end(bytes, at).ok_or_else(unterminated)?;
                IrTokenKind::Text
            }
            b'c' if bytes.get(at + 1) == Some(&b'"') => {
                at = quoted_end(bytes, at + 1).ok_or_else(unterminated)?;
                IrTokenKind::Text
            }
            _ if is_name(c) || c == b'+' => {
                at += 1;
                while at < bytes.len() && is_name(bytes[at]) {
                    at += 1;
                }
                // Exponents such as 1.0e+02.
                if at < bytes.len()
                    && bytes[at] == b'+'
                    && bytes[at - 1] == b'e'
                    && (bytes[start].is_ascii_digit() || bytes[start] == b'-')
                {
                    at += 1;
                    while at < bytes.len() && is_name(bytes[at]) {
                        at += 1;
                    }
                }
                IrTokenKind::Word
            }
            _ => {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
                IrTokenKind::Punct(c as char)
            }
        };
        list.push(IrToken {
            kind,
            text: &text[start..at],
            start,
        });
    }
    Ok(list)
}

/// A position in a token list.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a, 't> {
    tokens: &'t [IrToken<'a>],
    at: usize,
    line: usize,
}

impl<'a, 't> Cursor<'a, 't> {
    pub(crate) fn new(tokens: &'t [IrToken<'a>], line: usize) -> Self {
        Self {
            tokens,
            at: 0,
            line,
        }
    }

    pub(crate) fn peek(&self) -> Option<IrToken<'a>> {
        self.tokens.get(self.at).copied()
    }

    pub(crate) fn next(&mut self) -> Option<IrToken<'a>> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn error(&self, what: impl Into<String>) -> FissionError {
        FissionError::Syntax {
            line: self.line,
            what: what.into(),
        }
    }

    pub(crate) fn peek_is(&self, c: char) -> bool {
        self.peek().is_some_and(|t| t.is_punct(c))
    }

    pub(crate) fn eat(&mut self, c: char) -> bool {
        let found = self.peek_is(c);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|t| t.is_word(word));
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, c: char) -> Result<(), FissionError> {
        if self.eat(c) {
            Ok(())
        } else {
            Err(self.error(format!("expected `{c}`")))
        }
    }

    /// Skips words that satisfy `skip`.
    pub(crate) fn skip_words(&mut self, skip: impl Fn(&str) -> bool) {
        while self
            .peek()
            .is_some_and(|t| t.kind == IrTokenKind::Word && skip(t.text))
        {
            self.at += 1;
        }
    }

    /// Skips a bracketed group if one starts here, with all nested brackets.
    pub(crate) fn skip_group(&mut self) {
        let opens = |t: IrToken<'_>| matches!(t.kind, IrTokenKind::Punct('(' | '[' | '{' | '<'));
        if !self.peek().is_some_and(opens) {
            return;
        }
        let mut depth = 0usize;
        while let Some(token) = self.next() {
            match token.kind {
                IrTokenKind::Punct('(' | '[' | '{' | '<') => depth += 1,
                IrTokenKind::Punct(')' | ']' | '}' | '>') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }

    /// Skips to the next comma on this nesting level (not past it) or to the end of the level.
    pub(crate) fn skip_operand(&mut self) {
        while let Some(token) = self.peek() {
            match token.kind {
                IrTokenKind::Punct(',' | ')' | ']' | '}' | '>') => return,
                IrTokenKind::Punct('(' | '[' | '{' | '<') => self.skip_group(),
                _ => self.at += 1,
            }
        }
    }
}

/// Returns the name without its sigil and quotes.
pub(crate) fn bare(text: &str) -> &str {
    let name = text.trim_start_matches(['%', '@', '$']);
    name.strip_prefix('"')
        .and_then(|n| n.strip_suffix('"'))
        .unwrap_or(name)
}
