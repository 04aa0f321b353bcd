//! Integer constant expressions, as they occur in `[[buffer(…)]]` and its relatives.
//!
//! Names are looked up by their last part among the program's enumerators and integer constants; a name with two values has
//! none.

use std::collections::HashMap;

use super::lexer::{Token, TokenKind};
use super::program::Program;
use super::source::Source;

/// The integer constants of a program, by name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Constants<'a> {
    values: HashMap<&'a str, Option<i64>>,
}

/// Longer initialisers than this are tables or formulas that no index needs.
const LONGEST: usize = 64;

/// Nesting inside one expression.
const DEPTH: u32 = 64;

impl<'a> Constants<'a> {
    pub(crate) fn new(source: &Source<'a>, program: &Program) -> Self {
        let mut constants = Self::default();
        for enumeration in &program.enumerations {
            let mut next = Some(0i64);
            for part in source.split_commas(enumeration.open + 1..enumeration.close) {
                if source.text_at(part.start + 1) == "=" {
                    next = constants.evaluate(source, &source.tokens[part.start + 2..part.end]);
                }
                constants.insert(source.text_at(part.start), next);
                next = next.and_then(|value| value.checked_add(1));
            }
        }
        for variable in &program.variables {
            for declarator in &variable.declarators {
                let tail = declarator.tail.clone();
                if source.text_at(tail.start) == "=" && tail.len() <= LONGEST && !tail.is_empty() {
                    let value =
                        constants.evaluate(source, &source.tokens[tail.start + 1..tail.end]);
                    constants.insert(source.text_at(declarator.name), value);
                }
            }
        }
        constants
    }

    fn insert(&mut self, name: &'a str, value: Option<i64>) {
        self.values
            .entry(name)
            .and_modify(|known| {
                if *known != value {
                    *known = None;
                }
            })
            .or_insert(value);
    }

    /// Gives a template parameter its value, over any constant of that name.
    pub(crate) fn bind(&mut self, name: &'a str, value: Option<i64>) {
        self.values.insert(name, value);
    }

    /// The value of an expression, where it has one that the text shows.
    pub(crate) fn evaluate(&self, source: &Source<'a>, tokens: &[Token]) -> Option<i64> {
        let mut evaluation = Evaluation {
            constants: self,
            source,
            tokens,
            at: 0,
            depth: 0,
        };
        let value = evaluation.conditional()?;
        (evaluation.at == tokens.len()).then_some(value)
    }
}

struct Evaluation<'e, 'a> {
    constants: &'e Constants<'a>,
    source: &'e Source<'a>,
    tokens: &'e [Token],
    at: usize,
    depth: u32,
}

impl<'a> Evaluation<'_, 'a> {
    fn peek(&self, ahead: usize) -> &'a str {
        self.tokens
            .get(self.at + ahead)
            .map_or("", |&token| self.source.token_text(token))
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.peek(0) == text;
        self.at += usize::from(found);
        found
    }

    fn conditional(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let condition = self.binary(0)?;
        let value = if self.take("?") {
            let yes = self.conditional()?;
            if !self.take(":") {
                return None;
            }
            let no = self.conditional()?;
            if condition != 0 { yes } else { no }
        } else {
            condition
        };
        self.depth -= 1;
        Some(value)
    }

    fn binary(&mut self, least: u8) -> Option<i64> {
        let mut left = self.unary()?;
        loop {
            let shift = self.peek(0) == ">" && self.peek(1) == ">";
            let operator = if shift { ">>" } else { self.peek(0) };
            let precedence = match operator {
                "||" => 1,
                "&&" => 2,
                "|" => 3,
                "^" => 4,
                "&" => 5,
                "==" | "!=" => 6,
                "<" | ">" | "<=" | ">=" => 7,
                "<<" | ">>" => 8,
                "+" | "-" => 9,
                "*" | "/" | "%" => 10,
                _ => return Some(left),
            };
            if precedence <= least {
                return Some(left);
            }
            self.at += if shift { 2 } else { 1 };
            let right = self.binary(precedence)?;
            left = apply(operator, left, right)?;
        }
    }

    fn unary(&mut self) -> Option<i64> {
        let mut signs = Vec::new();
        while let sign @ ("-" | "+" | "~" | "!") = self.peek(0) {
            signs.push(sign);
            self.at += 1;
        }
        let mut value = self.primary()?;
        for sign in signs.iter().rev() {
            value = match *sign {
                "-" => value.checked_neg()?,
                "~" => !value,
                "!" => i64::from(value == 0),
                _ => value,
            };
        }
        Some(value)
    }

    fn primary(&mut self) -> Option<i64> {
        let token = *self.tokens.get(self.at)?;
        let text = self.source.token_text(token);
        match token.kind {
            TokenKind::Number => {
                self.at += 1;
                integer(text)
            }
            TokenKind::Identifier => self.name(),
            _ if text == "(" => {
                self.at += 1;
                // A cast to a builtin integer type changes no index.
                if is_integer_type(self.peek(0)) && self.peek(1) == ")" {
                    self.at += 2;
                    self.depth += 1;
                    let value = if self.depth > DEPTH {
                        None
                    } else {
                        self.unary()
                    };
                    self.depth -= 1;
                    return value;
                }
                let value = self.conditional()?;
                self.take(")").then_some(value)
            }
            _ => None,
        }
    }

    fn name(&mut self) -> Option<i64> {
        let mut name = self.peek(0);
        self.at += 1;
        while self.peek(0) == "::" {
            name = self.peek(1);
            self.at += 2;
        }
        if is_integer_type(name) && self.take("(") {
            let value = self.conditional()?;
            return self.take(")").then_some(value);
        }
        match name {
            "true" => Some(1),
            "false" => Some(0),
            _ => *self.constants.values.get(name)?,
        }
    }
}

fn is_integer_type(name: &str) -> bool {
    matches!(
        name,
        "int"
            | "uint"
            | "short"
            | "ushort"
            | "char"
            | "uchar"
            | "long"
            | "ulong"
            | "size_t"
            | "unsigned"
            | "int32_t"
            | "uint32_t"
            | "int16_t"
            | "uint16_t"
            | "uint8_t"
            | "int64_t"
            | "uint64_t"
    )
}

fn apply(operator: &str, a: i64, b: i64) -> Option<i64> {
    let shift = || u32::try_from(b).ok();
    match operator {
        "||" => Some(i64::from(a != 0 || b != 0)),
        "&&" => Some(i64::from(a != 0 && b != 0)),
        "|" => Some(a | b),
        "^" => Some(a ^ b),
        "&" => Some(a & b),
        "==" => Some(i64::from(a == b)),
        "!=" => Some(i64::from(a != b)),
        "<" => Some(i64::from(a < b)),
        ">" => Some(i64::from(a > b)),
        "<=" => Some(i64::from(a <= b)),
        ">=" => Some(i64::from(a >= b)),
        "<<" => a.checked_shl(shift()?),
        ">>" => a.checked_shr(shift()?),
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" => a.checked_div(b),
        "%" => a.checked_rem(b),
        _ => None,
    }
}

/// The value of an integer literal.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let digits: String = text
        .trim_end_matches(['u', 'U', 'l', 'L'])
        .chars()
        .filter(|&c| c != '\'')
        .collect();
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_str() {
        d if d.starts_with("0x") => (16, &d[2..]),
        d if d.starts_with("0b") => (2, &d[2..]),
        d if d.starts_with('0') && d.len() > 1 => (8, &d[1..]),
        d => (10, d),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    i64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::msl::parse::parse;

    fn value(prelude: &str, expression: &str) -> Option<i64> {
        let text = format!("{prelude}\nint probe = {expression};");
        let source = Source::new(&text, "a.metal").expect("balanced");
        let program = parse(&source);
        let constants = Constants::new(&source, &program);
        let probe = program.variables.last().expect("probe");
        let tail = probe.declarators[0].tail.clone();
        constants.evaluate(&source, &source.tokens[tail.start + 1..tail.end])
    }

    #[test]
    fn evaluates_what_indices_are_made_of() {
        let prelude = "enum Index : uint { A, B = 4, C }; enum class E { X = C * 2 };
            constant uint N = 3; constant constexpr int M = N + 1;";
        for (expression, expected) in [
            ("7u", Some(7)),
            ("0x1F", Some(31)),
            ("B + C * 2", Some(14)),
            ("E::X", Some(10)),
            ("(M << 2) | 1", Some(17)),
            ("-(2 - 5) % 2", Some(1)),
            ("N > 2 ? 1 : 0", Some(1)),
            ("uint(N) + (int)M", Some(7)),
            ("1 / 0", None),
            ("unknown", None),
            ("1 +", None),
            ("1.5", None),
        ] {
            assert_eq!(value(prelude, expression), expected, "{expression}");
        }
    }
}
