//! Evaluates integer constant expressions, as in `[[buffer(…)]]`.
//!
//! Names are looked up by their last component among the program's enumerators and integer constants; an ambiguous
//! name has no value. Constants of templates (`Q<4>::v`, `twice<3>`) are evaluated with the given arguments.

use std::collections::HashMap;
use std::ops::Range;

use super::lexer::{Token, TokenKind};
use super::program::Program;
use super::token_stream::TokenStream;

/// The integer constants of a program, by name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Constants<'a> {
    values: HashMap<&'a str, Option<i64>>,
    templates: HashMap<&'a str, Template<'a>>,
}

/// A class template or a variable template.
#[derive(Debug, Clone)]
struct Template<'a> {
    parameters: Vec<&'a str>,
    /// The tokens of the body or of the initialiser.
    range: Range<usize>,
    is_class: bool,
}

/// Maximum nesting of template constants.
const MAX_TEMPLATE_DEPTH: u32 = 2;

/// Maximum length of an initialiser in tokens; longer ones are tables or formulas that no index needs.
const MAX_INITIALISER_TOKENS: usize = 64;

/// Maximum nesting inside one expression.
const MAX_EXPRESSION_DEPTH: u32 = 64;

impl<'a> Constants<'a> {
    pub(crate) fn new(source: &TokenStream<'a>, program: &Program) -> Self {
        let mut constants = Self {
            templates: templates(source, program),
            ..Self::default()
        };
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
                let short = tail.len() <= MAX_INITIALISER_TOKENS && !tail.is_empty();
                let is_template = variable.heads.iter().any(|head| !head.is_empty());
                if source.text_at(tail.start) == "=" && short && !is_template {
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

    /// Binds a template parameter to its value, shadowing any constant of that name.
    pub(crate) fn bind(&mut self, name: &'a str, value: Option<i64>) {
        self.values.insert(name, value);
    }

    /// Evaluates an expression, if its value can be determined from the text.
    pub(crate) fn evaluate(&self, source: &TokenStream<'a>, tokens: &[Token]) -> Option<i64> {
        self.evaluate_inside(source, tokens, 0)
    }

    fn evaluate_inside(
        &self,
        source: &TokenStream<'a>,
        tokens: &[Token],
        templates: u32,
    ) -> Option<i64> {
        let mut evaluator = ConstantEvaluator {
            constants: self,
            source,
            tokens,
            at: 0,
            depth: 0,
            templates,
        };
        let value = evaluator.conditional()?;
        (evaluator.at == tokens.len()).then_some(value)
    }

    /// Evaluates the constant of a template with arguments; for a class, the one named `member`.
    fn instantiate(
        &self,
        source: &TokenStream<'a>,
        template: &Template<'a>,
        arguments: &[i64],
        member: &str,
        depth: u32,
    ) -> Option<i64> {
        if depth >= MAX_TEMPLATE_DEPTH || arguments.len() > template.parameters.len() {
            return None;
        }
        let mut bound = self.clone();
        for (name, value) in template.parameters.iter().zip(arguments) {
            bound.bind(name, Some(*value));
        }
        let mut range = template.range.clone();
        if template.is_class {
            let declared = range.clone().find(|&i| {
                source.text_at(i) == member
                    && source.text_at(i + 1) == "="
                    && range.contains(&(i + 2))
            })?;
            let ends = |i: &usize| matches!(source.text_at(*i), "," | ";" | "}");
            let end = (declared + 2..range.end).find(ends).unwrap_or(range.end);
            range = declared + 2..end;
        }
        if range.len() > MAX_INITIALISER_TOKENS {
            return None;
        }
        bound.evaluate_inside(source, &source.tokens[range], depth + 1)
    }
}

/// The templates of a program that may define constants; a name with two of them (a specialization) is left out.
fn templates<'a>(source: &TokenStream<'a>, program: &Program) -> HashMap<&'a str, Template<'a>> {
    let mut found: HashMap<&str, Option<Template<'a>>> = HashMap::new();
    let mut add = |name: usize, head: Range<usize>, range: Range<usize>, is_class: bool| {
        let parameters = source.split_commas(head).into_iter().map(|parameter| {
            let equals = parameter.clone().find(|&i| source.text_at(i) == "=");
            source.before(equals.unwrap_or(parameter.end))
        });
        let template = Template {
            parameters: parameters.collect(),
            range,
            is_class,
        };
        found
            .entry(source.text_at(name))
            .and_modify(|known| *known = None)
            .or_insert(Some(template));
    };
    for class in &program.classes {
        let head = source.partner(class.first + 1);
        if let (Some(name), Some(close), Some(end)) = (class.name, head, source.partner(class.open))
            && source.text_at(class.first) == "template"
        {
            add(name, class.first + 2..close, class.open + 1..end, true);
        }
    }
    for variable in &program.variables {
        if let ([head], [declarator]) = (&*variable.heads, &*variable.declarators)
            && source.text_at(declarator.tail.start) == "="
        {
            let range = declarator.tail.start + 1..declarator.tail.end;
            add(declarator.name, head.clone(), range, false);
        }
    }
    let known = |(name, template): (&'a str, Option<Template<'a>>)| Some((name, template?));
    found.into_iter().filter_map(known).collect()
}

struct ConstantEvaluator<'e, 'a> {
    constants: &'e Constants<'a>,
    source: &'e TokenStream<'a>,
    tokens: &'e [Token],
    at: usize,
    depth: u32,
    /// Number of enclosing templates.
    templates: u32,
}

impl<'a> ConstantEvaluator<'_, 'a> {
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
        if self.depth > MAX_EXPRESSION_DEPTH {
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

    fn binary(&mut self, min_precedence: u8) -> Option<i64> {
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
            if precedence <= min_precedence {
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
                // A cast to a builtin integer type does not change an index.
                if is_integer_type(self.peek(0)) && self.peek(1) == ")" {
                    self.at += 2;
                    self.depth += 1;
                    let value = if self.depth > MAX_EXPRESSION_DEPTH {
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
        if self.peek(0) == "<"
            && let Some(template) = self.constants.templates.get(name)
        {
            return self.template(template);
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

impl<'a> ConstantEvaluator<'_, 'a> {
    /// Evaluates `<4>::v` of a class template, or `<4>` of a variable template.
    fn template(&mut self, template: &Template<'a>) -> Option<i64> {
        let mut arguments = Vec::new();
        while self.take(if arguments.is_empty() { "<" } else { "," }) {
            // `>` ends the list and is not a comparison.
            arguments.push(self.binary(8)?);
        }
        if !self.take(">") {
            return None;
        }
        let mut member = "";
        if template.is_class {
            if !self.take("::") {
                return None;
            }
            member = self.peek(0);
            self.at += 1;
        }
        self.constants
            .instantiate(self.source, template, &arguments, member, self.templates)
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
        let source = TokenStream::new(&text, "a.metal").expect("balanced");
        let program = parse(&source);
        let constants = Constants::new(&source, &program);
        let probe = program.variables.last().expect("probe");
        let tail = probe.declarators[0].tail.clone();
        constants.evaluate(&source, &source.tokens[tail.start + 1..tail.end])
    }

    #[test]
    fn evaluates_the_expressions_of_indices() {
        let prelude = "enum Index : uint { A, B = 4, C }; enum class E { X = C * 2 };
            constant uint N = 3; constant constexpr int M = N + 1;
            template <int K, uint L = 1> struct Q { static constant constexpr int v = K + 1; enum { w = v * 2, z = K }; };
            template <int K> constant constexpr int twice = K * 2; template <int K> struct D { enum { v = twice<K> + Q<K>::z }; };
            template <int K> struct R { enum { v = R<K - 1>::v + R<K - 1>::v }; };
            template <int K> struct S { enum { v = 1 }; }; template <> struct S<2> { enum { v = 2 }; };";
        for (expression, expected) in [
            ("7u", Some(7)),
            ("0x1F", Some(31)),
            ("B + C * 2", Some(14)),
            ("E::X", Some(10)),
            ("(M << 2) | 1", Some(17)),
            ("-(2 - 5) % 2", Some(1)),
            ("N > 2 ? 1 : 0", Some(1)),
            ("uint(N) + (int)M", Some(7)),
            ("Q<4>::v", Some(5)),
            ("Q<N + 1, 2>::z * 2", Some(8)),
            ("twice<3> + 1", Some(7)),
            ("D<3>::v", Some(9)),
            ("R<9>::v", None),
            ("S<2>::v", None),
            ("Q<4>", None),
            ("1 / 0", None),
            ("unknown", None),
            ("1 +", None),
            ("1.5", None),
        ] {
            assert_eq!(value(prelude, expression), expected, "{expression}");
        }
    }
}
