//! The declaration parser: finds namespaces, classes, functions, variables and instantiations without analysing
//! types.
//!
//! It never rejects a program: whatever it cannot parse it skips, and clang decides. Its work is linear in the
//! number of tokens, and recursion is bounded by the nesting of brackets.

use std::ops::Range;

use super::lexer::TokenKind;
use super::program::{
    Class, Declarator, Enumeration, FunctionDecl, Instantiation, Program, Scope, VariableDecl,
};
use super::token_stream::TokenStream;

/// Parses the whole text.
pub(crate) fn parse(source: &TokenStream<'_>) -> Program {
    let mut parser = DeclarationParser {
        source,
        program: Program::default(),
    };
    let global = parser.enter(None, "", false);
    parser.walk(0, source.len(), global);
    parser.program
}

/// Maximum number of names in `namespace a::b::c {`.
const MAX_NAMESPACE_NAMES: usize = 16;

struct DeclarationParser<'s, 'a> {
    source: &'s TokenStream<'a>,
    program: Program,
}

/// State of the scan of one declaration.
#[derive(Debug)]
struct Scan {
    first: usize,
    heads: Vec<Range<usize>>,
    specifiers: usize,
    scope: usize,
    alias: bool,
    equals: bool,
    /// The declarator is parenthesised, as in `void (*f)(int)`: no parameter list follows.
    grouped: bool,
    name: Range<usize>,
    parameters: Option<(usize, usize)>,
    /// Index of the class in the program, and the token after its body.
    class: Option<(Option<usize>, usize)>,
}

impl DeclarationParser<'_, '_> {
    fn enter(&mut self, parent: Option<usize>, name: &str, is_class: bool) -> usize {
        self.program.scopes.push(Scope {
            parent,
            name: name.to_owned(),
            is_class,
            class: is_class.then_some(self.program.classes.len()),
        });
        self.program.scopes.len() - 1
    }

    fn walk(&mut self, mut i: usize, end: usize, scope: usize) {
        while i < end {
            let next = self.item(i, end, scope);
            debug_assert!(next > i, "every item consumes a token");
            i = next.max(i + 1);
        }
    }

    fn item(&mut self, i: usize, end: usize, scope: usize) -> usize {
        let s = self.source;
        match s.text_at(i) {
            ";" => i + 1,
            "public" | "private" | "protected" if s.text_at(i + 1) == ":" => i + 2,
            "inline" if s.text_at(i + 1) == "namespace" => self.namespace(i + 1, end, scope),
            "namespace" => self.namespace(i, end, scope),
            "extern" if s.kind_at(i + 1) == TokenKind::String && s.text_at(i + 2) == "{" => {
                let close = s.partner(i + 2).unwrap_or(end);
                self.walk(i + 3, close, scope);
                close + 1
            }
            "using" | "static_assert" | "_Static_assert" => self.past_semicolon(i, end),
            _ => self.declaration(i, end, scope),
        }
    }

    fn past_semicolon(&self, mut i: usize, end: usize) -> usize {
        while i < end && self.source.text_at(i) != ";" {
            i = self.source.after(i, false);
        }
        (i + 1).min(end).max(i)
    }

    fn namespace(&mut self, i: usize, end: usize, scope: usize) -> usize {
        let s = self.source;
        let mut at = i + 1;
        let mut names = Vec::new();
        while (s.is_identifier(at) || s.text_at(at) == "::") && names.len() < MAX_NAMESPACE_NAMES {
            if s.is_identifier(at) && s.text_at(at) != "inline" {
                names.push(s.text_at(at));
            }
            at += 1;
        }
        if s.text_at(at) != "{" {
            return self.past_semicolon(i, end);
        }
        if names.is_empty() {
            names.push("");
        }
        let mut inner = scope;
        for name in names {
            inner = self.enter(Some(inner), name, false);
        }
        let close = s.partner(at).unwrap_or(end);
        self.walk(at + 1, close, inner);
        close + 1
    }

    fn declaration(&mut self, first: usize, end: usize, scope: usize) -> usize {
        let s = self.source;
        let mut i = first;
        let mut heads = Vec::new();
        if s.text_at(i) == "extern" && s.text_at(i + 1) == "template" {
            i += 1;
        }
        while s.text_at(i) == "template" {
            if s.text_at(i + 1) != "<" {
                return self.instantiation(first, i + 1, end, scope);
            }
            let Some(close) = s.partner(i + 1) else {
                return self.past_semicolon(i, end);
            };
            heads.push(i + 2..close);
            i = close + 1;
        }
        if s.text_at(i) == "using" {
            return self.past_semicolon(i, end);
        }
        let mut scan = Scan {
            first,
            heads,
            specifiers: i,
            scope,
            alias: s.text_at(i) == "typedef",
            equals: false,
            grouped: false,
            name: 0..0,
            parameters: None,
            class: None,
        };
        while i < end {
            match s.text_at(i) {
                ";" => {
                    self.finish(scan, i);
                    return i + 1;
                }
                "{" => {
                    let close = s.partner(i).unwrap_or(end);
                    if scan.parameters.is_some() && !scan.equals {
                        self.function(scan, Some((i, close)), close);
                        return close + 1;
                    }
                    i = close + 1;
                }
                "}" => return i + 1,
                _ => i = self.step(&mut scan, i, end),
            }
        }
        end
    }

    /// Consumes a token of a declaration that neither ends it nor opens a brace.
    fn step(&mut self, scan: &mut Scan, i: usize, end: usize) -> usize {
        let s = self.source;
        let before_declarator = scan.parameters.is_none() && !scan.equals;
        match s.text_at(i) {
            "struct" | "class" | "union" | "enum"
                if before_declarator && scan.class.is_none() && s.is_identifier(i) =>
            {
                self.class_or_enum(scan, i, end)
            }
            "=" => {
                scan.equals = true;
                i + 1
            }
            "operator" if before_declarator => self.operator(scan, i, end),
            "<" if !scan.equals => s.after(i, true),
            "(" => {
                let close = s.partner(i).unwrap_or(end);
                if before_declarator && !scan.grouped {
                    self.parenthesis(scan, i, close);
                }
                close + 1
            }
            ":" if scan.parameters.is_some() && !scan.equals => self.initialisers(i + 1, end),
            "[" => s.after(i, false),
            _ => i + 1,
        }
    }

    fn operator(&self, scan: &mut Scan, i: usize, end: usize) -> usize {
        let s = self.source;
        let mut at = i + 1;
        if s.text_at(at) == "(" && s.text_at(at + 1) == ")" {
            at += 2;
        }
        while at < end && !matches!(s.text_at(at), "(" | ";" | "{") {
            at += 1;
        }
        match s.partner(at) {
            Some(close) if s.text_at(at) == "(" => {
                scan.name = name_start(s, i)..at;
                scan.parameters = Some((at, close));
                close + 1
            }
            _ => at.max(i + 1),
        }
    }

    /// Decides whether a parenthesis opens the parameter list.
    fn parenthesis(&self, scan: &mut Scan, open: usize, close: usize) {
        let s = self.source;
        if open == scan.specifiers {
            return;
        }
        let not_a_name = [
            "decltype",
            "alignas",
            "__attribute__",
            "__attribute",
            "typeof",
            "__typeof__",
            "noexcept",
            "explicit",
            "_Alignas",
            "requires",
            "sizeof",
            "coherent",
            "__declspec",
        ];
        let previous = s.before(open);
        if not_a_name.contains(&previous) {
            return;
        }
        let literal = matches!(
            s.kind_at(open + 1),
            TokenKind::Number | TokenKind::String | TokenKind::Character
        );
        if matches!(s.text_at(open + 1), "*" | "&" | "&&") {
            scan.grouped = true;
        } else if literal {
            scan.equals = true;
        } else if s.is_identifier(open - 1) || (previous == ">" && s.partner(open - 1).is_some()) {
            scan.name = name_before(s, open);
            scan.parameters = Some((open, close));
        }
    }

    /// Skips a constructor's `: a(1), b{2}`; returns the index of the body's brace.
    fn initialisers(&self, mut i: usize, end: usize) -> usize {
        let s = self.source;
        while i < end {
            while i < end && !matches!(s.text_at(i), "(" | "{" | ";") {
                i = s.after(i, true);
            }
            if s.text_at(i) == ";" {
                return i;
            }
            i = s.after(i, false);
            if s.text_at(i) == "..." {
                i += 1;
            }
            if s.text_at(i) != "," {
                return i;
            }
            i += 1;
        }
        end
    }

    fn class_or_enum(&mut self, scan: &mut Scan, key: usize, end: usize) -> usize {
        let s = self.source;
        let enumeration = s.text_at(key) == "enum";
        let mut name = None;
        let mut bases = false;
        let mut i = key + 1;
        while i < end {
            match s.text_at(i) {
                "{" => break,
                "alignas" | "__attribute__" if s.text_at(i + 1) == "(" => i += 1,
                ":" => bases = true,
                "," if bases => {}
                "::" | "<" | "..." => {}
                // The next declaration has started.
                "struct" | "class" | "union" | "enum" if !(enumeration && i == key + 1) => {
                    return key + 1;
                }
                _ if s.is_identifier(i) => {
                    if !bases && !matches!(s.text_at(i), "class" | "struct" | "final") {
                        name = Some(i);
                    }
                }
                _ => return key + 1,
            }
            i = s.after(i, true);
        }
        let Some(close) = s.partner(i).filter(|_| s.text_at(i) == "{") else {
            return key + 1;
        };
        if enumeration {
            self.program
                .enumerations
                .push(Enumeration { open: i, close });
            scan.class = Some((None, close + 1));
            return close + 1;
        }
        let text = name.map_or("", |name| s.text_at(name));
        let inner = self.enter(Some(scan.scope), text, true);
        let index = self.program.classes.len();
        self.program.classes.push(Class {
            first: scan.first,
            last: close,
            parent: scan.scope,
            specifiers: scan.specifiers,
            name,
            open: i,
            anonymous: name.is_none() && s.text_at(close + 1) == ";" && !scan.alias,
        });
        self.walk(i + 1, close, inner);
        scan.class = Some((Some(index), close + 1));
        close + 1
    }

    fn instantiation(&mut self, first: usize, at: usize, end: usize, scope: usize) -> usize {
        let s = self.source;
        let mut semicolon = at;
        while semicolon < end && s.text_at(semicolon) != ";" {
            semicolon = s.after(semicolon, false);
        }
        if semicolon >= end || semicolon == at {
            return semicolon.max(at).min(end).max(first + 1);
        }
        let last = semicolon - 1;
        let call = s
            .partner(last)
            .filter(|_| s.text_at(last) == ")")
            .filter(|&open| s.before(open) != "decltype");
        let name = name_before(s, call.unwrap_or(semicolon));
        self.program.instantiations.push(Instantiation {
            first,
            last: semicolon,
            scope,
            name,
            parameters: call.map(|open| (open, last)),
        });
        semicolon + 1
    }

    /// Finishes a declaration that ends with a semicolon.
    fn finish(&mut self, scan: Scan, semicolon: usize) {
        let s = self.source;
        if let Some((Some(class), _)) = scan.class {
            self.program.classes[class].last = semicolon;
        }
        if scan.alias {
            if let Some((Some(class), after)) = scan.class
                && after < semicolon
                && s.is_identifier(semicolon - 1)
                && self.program.classes[class].name.is_none()
            {
                self.program.classes[class].name = Some(semicolon - 1);
            }
            return;
        }
        if scan.parameters.is_some() {
            self.function(scan, None, semicolon);
            return;
        }
        let from = scan.class.map_or(scan.specifiers, |(_, after)| after);
        if from >= semicolon {
            return;
        }
        let defines_class = scan.class.is_some();
        let declarators = declarators(s, from..semicolon, !defines_class);
        self.program.variables.push(VariableDecl {
            first: scan.first,
            last: semicolon,
            scope: scan.scope,
            heads: scan.heads,
            specifiers: scan.specifiers,
            declarators,
        });
    }

    fn function(&mut self, scan: Scan, body: Option<(usize, usize)>, last: usize) {
        let s = self.source;
        let Some((open, close)) = scan.parameters else {
            return;
        };
        let kernel = (scan.specifiers..scan.name.start).any(|i| s.text_at(i) == "kernel")
            || s.attributes_in(scan.first, open)
                .iter()
                .any(|attribute| attribute.name == "kernel");
        self.program.functions.push(FunctionDecl {
            first: scan.first,
            last,
            scope: scan.scope,
            heads: scan.heads,
            specifiers: scan.specifiers,
            name: scan.name,
            open,
            close,
            body,
            defaulted: scan.equals,
            kernel,
        });
        if let Some((open, close)) = body {
            self.local_classes(open + 1, close, scan.scope);
        }
    }

    /// Finds classes inside a function body; nothing else in there is recorded.
    fn local_classes(&mut self, start: usize, end: usize, scope: usize) {
        let s = self.source;
        let mut i = start;
        while i < end {
            let starts = matches!(s.before(i), ";" | "{" | "}" | "typedef" | "const");
            if starts && matches!(s.text_at(i), "struct" | "class" | "union") {
                let mut scan = Scan {
                    first: i,
                    heads: Vec::new(),
                    specifiers: i,
                    scope,
                    alias: s.before(i) == "typedef",
                    equals: false,
                    grouped: false,
                    name: 0..0,
                    parameters: None,
                    class: None,
                };
                i = self.class_or_enum(&mut scan, i, end);
            } else {
                i += 1;
            }
        }
    }
}

/// The start of the qualified name whose last component is at `i`.
fn name_start(s: &TokenStream<'_>, mut i: usize) -> usize {
    loop {
        if i >= 1 && s.before(i) == "~" {
            i -= 1;
        }
        if i < 2 || s.before(i) != "::" {
            return i;
        }
        let mut qualifier = i - 2;
        if s.text_at(qualifier) == ">"
            && let Some(open) = s.partner(qualifier)
        {
            qualifier = open.saturating_sub(1);
        }
        if !s.is_identifier(qualifier) {
            return i - 1;
        }
        i = qualifier;
    }
}

/// The name that ends right before token `end`, with qualification and template arguments.
pub(crate) fn name_before(s: &TokenStream<'_>, end: usize) -> Range<usize> {
    let Some(last) = end.checked_sub(1) else {
        return end..end;
    };
    let mut i = last;
    if s.text_at(i) == ">"
        && let Some(open) = s.partner(i)
    {
        i = open.saturating_sub(1);
    }
    name_start(s, i)..end
}

/// The names that `range` declares. With `typed`, the first part starts with the type.
pub(crate) fn declarators(
    s: &TokenStream<'_>,
    range: Range<usize>,
    typed: bool,
) -> Vec<Declarator> {
    let mut found = Vec::new();
    for (n, part) in s.split_commas(range).into_iter().enumerate() {
        let mut name = None;
        let mut words = 0;
        let mut i = part.start;
        let mut tail = part.end;
        while i < part.end {
            match s.text_at(i) {
                "=" | "[" | "{" | ":" => {
                    tail = i;
                    break;
                }
                "(" => {
                    let inside = s.after(i, false).saturating_sub(2);
                    let grouped = matches!(s.text_at(i + 1), "*" | "&") && s.is_identifier(inside);
                    if grouped {
                        (name, words) = (Some(inside), 2);
                        tail = s.after(i, false);
                        break;
                    }
                    if !matches!(s.before(i), "decltype" | "alignas" | "__attribute__") {
                        tail = i;
                        break;
                    }
                }
                _ if s.is_identifier(i) => {
                    name = Some(i);
                    words += 1;
                }
                _ => {}
            }
            i = s.after(i, true);
        }
        let min_words = if typed && n == 0 { 2 } else { 1 };
        if let Some(name) = name
            && words >= min_words
        {
            found.push(Declarator {
                name,
                tail: tail.max(name + 1)..part.end,
            });
        }
    }
    found
}
