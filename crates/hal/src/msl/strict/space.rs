//! Pointers that change their address space: `threadgroup float* q = device_pointer;`

use std::collections::HashMap;
use std::ops::Range;

use super::Strict;
use crate::msl::program::{Function, parameters};
use crate::msl::reflect::{AddressSpace, Shape};

/// What a name in scope is known to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    /// A pointer to memory in a space.
    Pointer(AddressSpace),
    /// An array in a space; it decays to a pointer and its rows are arrays.
    Array(AddressSpace),
    /// An object in a space.
    Object(AddressSpace),
    /// Declared, and nothing is known of it.
    Unknown,
}

/// Names by scope, innermost last.
#[derive(Default)]
struct Names<'a> {
    scopes: Vec<HashMap<&'a str, Binding>>,
}

impl<'a> Names<'a> {
    fn declare(&mut self, name: &'a str, binding: Binding) {
        if let Some(scope) = self.scopes.last_mut() {
            // Two declarations of one name in one scope: it was no declaration after all.
            scope
                .entry(name)
                .and_modify(|known| {
                    if *known != binding {
                        *known = Binding::Unknown;
                    }
                })
                .or_insert(binding);
        }
    }

    fn find(&self, name: &str) -> Binding {
        self.scopes
            .iter()
            .rev()
            .find_map(|scope| scope.get(name))
            .copied()
            .unwrap_or(Binding::Unknown)
    }

    fn is_declared(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| scope.contains_key(name))
    }
}

impl<'a> Strict<'_, 'a> {
    pub(super) fn spaces(&mut self) {
        let program = self.program;
        let mut end = 0;
        for function in &program.functions {
            let Some((open, close)) = function.body else {
                continue;
            };
            // A method of a local class has its own names; it is passed over.
            if open < end || self.source.tokens[function.first].system {
                continue;
            }
            end = close;
            if self.has_lambda(open + 1, close) {
                continue;
            }
            let mut names = Names::default();
            names.scopes.push(HashMap::new());
            for parameter in function.parameters(self.source) {
                let Some(name) = parameter.name else { continue };
                let shape = Shape::read(self.source, &parameter);
                let levels = (parameter.range.start..name)
                    .filter(|&i| matches!(self.source.text_at(i), "*" | "&" | "&&"))
                    .count();
                let binding = match (shape.space, shape.indirect) {
                    (Some(space), true) if shape.reference && levels == 1 => Binding::Object(space),
                    (Some(space), true) if levels <= 1 && !shape.reference => {
                        Binding::Pointer(space)
                    }
                    _ => Binding::Unknown,
                };
                names.declare(self.source.text_at(name), binding);
            }
            self.body(function, open, close, &mut names);
        }
    }

    fn body(&mut self, function: &Function, open: usize, close: usize, names: &mut Names<'a>) {
        let source = self.source;
        let result = self.result_space(function);
        for i in open..close {
            match source.text_at(i) {
                "{" => names.scopes.push(HashMap::new()),
                "}" => {
                    names.scopes.pop();
                }
                "return" => {
                    if let Some(space) = result {
                        let value = i + 1..self.statement_end(i + 1, close);
                        self.compare(value, space, names, "the returned pointer");
                    }
                }
                _ if source.is_identifier(i) => {
                    if matches!(source.before(i), ";" | "{" | "}" | "(") {
                        self.statement(i, close, names);
                    }
                    self.anonymous_declaration(i, names);
                    if source.text_at(i + 1) == "(" {
                        self.call(i, names);
                    }
                }
                _ => {}
            }
        }
    }

    /// A `[` that neither subscripts nor bounds.
    fn has_lambda(&self, start: usize, end: usize) -> bool {
        (start..end).any(|i| self.is_free_bracket(i))
    }

    pub(super) fn is_free_bracket(&self, i: usize) -> bool {
        let source = self.source;
        source.text_at(i) == "["
            && !matches!(source.before(i), ")" | "]" | ">" | "*" | "&" | "")
            && (!source.is_identifier(i - 1) || source.before(i) == "return")
    }

    fn result_space(&self, function: &Function) -> Option<AddressSpace> {
        let source = self.source;
        let range = function.specifiers..function.name.start;
        let levels = range.clone().filter(|&i| source.text_at(i) == "*").count();
        let simple = range.clone().all(|i| {
            !matches!(
                source.text_at(i),
                "&" | "&&" | "auto" | "(" | "<" | "decltype"
            )
        });
        let mut spaces = range.filter_map(|i| AddressSpace::from_keyword(source.text_at(i)));
        let space = spaces.next()?;
        (levels == 1 && simple && spaces.next().is_none()).then_some(space)
    }

    /// The index of the `;` or `,` that ends an expression, at most `close`.
    fn statement_end(&self, mut i: usize, close: usize) -> usize {
        while i < close && !matches!(self.source.text_at(i), ";" | "," | "}" | ")" | "]") {
            i = self.source.after(i, false);
        }
        i.min(close)
    }

    /// Any `type name`, `type* name`: the name is taken, whatever it is. In doubt it is: that only loses a check.
    fn anonymous_declaration(&self, i: usize, names: &mut Names<'a>) {
        let source = self.source;
        let (Some(before), next) = (i.checked_sub(1), source.text_at(i + 1)) else {
            return;
        };
        let type_ends = |at: usize| {
            source.is_identifier(at)
                && !matches!(
                    source.text_at(at),
                    "return" | "else" | "case" | "do" | "goto"
                )
        };
        let declares = match source.text_at(before) {
            "*" | "&" | "&&" => {
                let typed = before > 0
                    && (type_ends(before - 1) || matches!(source.before(before), "," | ">"));
                typed && matches!(next, "=" | ";" | "," | "[" | "{" | ":" | ")")
            }
            // `int a, b;`; a call's arguments are followed by neither.
            "," => matches!(next, "=" | ";"),
            ">" => matches!(next, "=" | ";" | "," | "[" | "{" | ":" | "("),
            _ => type_ends(before) && matches!(next, "=" | ";" | "," | "[" | "(" | "{" | ":" | ")"),
        };
        let name = source.text_at(i);
        let here = names.scopes.last().and_then(|scope| scope.get(name));
        if declares && here.is_none() {
            names.declare(name, Binding::Unknown);
        }
    }

    /// A declaration with an evident space, or an assignment to a pointer.
    fn statement(&mut self, i: usize, close: usize, names: &mut Names<'a>) {
        let source = self.source;
        if source.text_at(i + 1) == "=" {
            let name = source.text_at(i);
            if let Binding::Pointer(space) = names.find(name) {
                let value = i + 2..self.statement_end(i + 2, close);
                self.compare(value, space, names, &format!("'{name}'"));
            }
            return;
        }
        let Some(declaration) = self.read_declaration(i, close) else {
            return;
        };
        let name = source.text_at(declaration.name);
        // A name declared in the parentheses of a `for` ends with the loop; it is not followed further.
        let kept = source.before(i) != "(";
        names.declare(
            name,
            if kept {
                declaration.binding
            } else {
                Binding::Unknown
            },
        );
        if let Binding::Pointer(space) = declaration.binding
            && source.text_at(declaration.name + 1) == "="
        {
            let start = declaration.name + 2;
            let value = start..self.statement_end(start, close);
            self.compare(value, space, names, &format!("'{name}'"));
        }
    }

    fn read_declaration(&self, start: usize, close: usize) -> Option<Declaration> {
        let source = self.source;
        let mut spaces = Vec::new();
        let mut stars = 0;
        let mut words = Vec::new();
        let mut i = start;
        let name = loop {
            let text = source.text_at(i);
            let last = matches!(source.text_at(i + 1), "=" | ";" | "[" | "," | "{");
            if i >= close {
                return None;
            } else if let Some(space) = AddressSpace::from_keyword(text) {
                spaces.push(space);
            } else if text == "*" {
                stars += 1;
            } else if matches!(text, "const" | "volatile" | "static" | "constexpr") {
            } else if !source.is_identifier(i) && text != "::" && text != "<" {
                return None;
            } else if source.is_identifier(i) && last && !(words.is_empty() && stars == 0) {
                break i;
            } else if stars > 0 {
                return None;
            } else {
                words.push(i);
            }
            i = source.after(i, true);
        };
        let array = source.text_at(name + 1) == "[";
        // Without an address space the type must certainly carry none.
        let own = || {
            let (first, last) = (words.first()?, words.last()?);
            let known = self.types.is_type_sequence(source, *first..last + 1);
            known.then_some(AddressSpace::Thread)
        };
        let binding = match (spaces.as_slice(), stars) {
            ([space], 1) if !array => Binding::Pointer(*space),
            ([AddressSpace::Threadgroup], 0) if array => Binding::Array(AddressSpace::Threadgroup),
            ([AddressSpace::Threadgroup], 0) => Binding::Object(AddressSpace::Threadgroup),
            ([] | [AddressSpace::Thread], 0) => match own() {
                Some(space) if array => Binding::Array(space),
                Some(space) => Binding::Object(space),
                None => Binding::Unknown,
            },
            _ => Binding::Unknown,
        };
        Some(Declaration { name, binding })
    }

    fn compare(
        &mut self,
        value: Range<usize>,
        space: AddressSpace,
        names: &Names<'a>,
        target: &str,
    ) {
        if let Some(found) = self.pointer_space(value.clone(), names)
            && found != space
        {
            self.mismatch(value.start, space, found, target);
        }
    }

    fn mismatch(&mut self, i: usize, space: AddressSpace, found: AddressSpace, target: &str) {
        let (space, found) = (space.keyword(), found.keyword());
        self.refuse(
            i,
            format!("{target} is in the {space} address space and cannot refer to {found} memory"),
        );
    }

    /// The address space an expression points to, where it is evident.
    fn pointer_space(&self, range: Range<usize>, names: &Names<'a>) -> Option<AddressSpace> {
        let source = self.source;
        let range = self.strip_parentheses(range);
        let first = source.text_at(range.start);
        if range.is_empty() {
            return None;
        }
        if first == "(" {
            let close = source
                .partner(range.start)
                .filter(|&close| close + 1 < range.end)?;
            // A cast applies to one operand only.
            let operand = close + 1;
            let whole = operand + 1 == range.end && source.is_identifier(operand)
                || source.text_at(operand) == "(" && source.after(operand, false) == range.end;
            return self.cast_space(range.start + 1..close).filter(|_| whole);
        }
        if matches!(first, "reinterpret_cast" | "static_cast") {
            let close = source.partner(range.start + 1)?;
            let whole = source.after(close + 1, false) == range.end;
            return self.cast_space(range.start + 2..close).filter(|_| whole);
        }
        if first == "&" {
            return self.object_space(range.start + 1..range.end, names);
        }
        if !source.is_identifier(range.start) {
            return None;
        }
        let space = match names.find(first) {
            Binding::Pointer(space) | Binding::Array(space) => space,
            Binding::Object(_) | Binding::Unknown => return None,
        };
        let next = range.start + 1;
        let sum =
            matches!(source.text_at(next), "+" | "-") && self.is_arithmetic(next + 1..range.end);
        // A row of an array of arrays and a sum with an array decay as well; a row of unknown depth is left alone.
        (next == range.end || sum).then_some(space)
    }

    /// No operator of lower precedence than a sum, so that the sum is the whole expression.
    fn is_arithmetic(&self, range: Range<usize>) -> bool {
        let source = self.source;
        let mut i = range.start;
        while i < range.end {
            if matches!(
                source.text_at(i),
                "?" | ":"
                    | "<"
                    | ">"
                    | "<="
                    | ">="
                    | "=="
                    | "!="
                    | "&&"
                    | "||"
                    | "&"
                    | "|"
                    | "^"
                    | "<<"
                    | "="
                    | ","
                    | "-"
            ) {
                return false;
            }
            i = source.after(i, false);
        }
        true
    }

    fn strip_parentheses(&self, mut range: Range<usize>) -> Range<usize> {
        while self.source.text_at(range.start) == "("
            && self.source.partner(range.start) == Some(range.end.saturating_sub(1))
            && range.len() > 2
        {
            range = range.start + 1..range.end - 1;
        }
        range
    }

    /// The one address space of a pointer type.
    fn cast_space(&self, range: Range<usize>) -> Option<AddressSpace> {
        let source = self.source;
        if source.before(range.end) != "*" {
            return None;
        }
        let stars = range.clone().filter(|&i| source.text_at(i) == "*").count();
        let mut spaces = range.filter_map(|i| AddressSpace::from_keyword(source.text_at(i)));
        let space = spaces.next()?;
        (stars == 1 && spaces.next().is_none()).then_some(space)
    }

    /// The address space of an object: `p[i]`, `*p`, `x`, `a[i][j]`.
    fn object_space(&self, range: Range<usize>, names: &Names<'a>) -> Option<AddressSpace> {
        let source = self.source;
        let range = self.strip_parentheses(range);
        if source.text_at(range.start) == "*" {
            let pointer = self.strip_parentheses(range.start + 1..range.end);
            let single = pointer.len() == 1 || pointer.start > range.start + 1;
            return self.pointer_space(pointer, names).filter(|_| single);
        }
        if !source.is_identifier(range.start) {
            return None;
        }
        let mut i = range.start + 1;
        let mut subscripts = 0;
        while i < range.end && source.text_at(i) == "[" {
            i = source.after(i, false);
            subscripts += 1;
        }
        if i != range.end {
            return None;
        }
        match (names.find(source.text_at(range.start)), subscripts) {
            (Binding::Pointer(space), 1) | (Binding::Object(space), 0) => Some(space),
            (Binding::Array(space), 1..) => Some(space),
            _ => None,
        }
    }

    /// Arguments of a function that is the only one of its name.
    fn call(&mut self, i: usize, names: &Names<'a>) {
        let source = self.source;
        let name = source.text_at(i);
        if matches!(source.before(i), "." | "->" | "::") || names.is_declared(name) {
            return;
        }
        // The library has functions of these names for every address space.
        let library = name.starts_with("atomic_") || name.starts_with("simdgroup_");
        let Some(function) = self.sole_function(name).filter(|_| !library) else {
            return;
        };
        let Some(close) = source.partner(i + 1) else {
            return;
        };
        let wanted = parameters(source, function.open, function.close);
        let given = self.call_arguments(i + 2..close);
        if wanted.len() != given.len() {
            return;
        }
        let mut found = Vec::new();
        for (parameter, argument) in wanted.iter().zip(given) {
            let shape = Shape::read(source, parameter);
            let end = parameter.name.unwrap_or(parameter.tail);
            let levels = (parameter.range.start..end)
                .filter(|&i| matches!(source.text_at(i), "*" | "&" | "&&" | "(" | "<"))
                .count();
            let (Some(space), true) = (shape.space, levels == 1) else {
                continue;
            };
            let actual = if !shape.reference {
                self.pointer_space(argument.clone(), names)
            } else if shape.constant {
                None
            } else {
                self.object_space(argument.clone(), names)
            };
            if let Some(actual) = actual
                && actual != space
            {
                let label = parameter.name.map_or("", |name| source.text_at(name));
                found.push((
                    argument.start,
                    space,
                    actual,
                    format!("parameter '{label}' of '{name}'"),
                ));
            }
        }
        for (start, space, actual, target) in found {
            self.mismatch(start, space, actual, &target);
        }
    }

    /// Splits at commas; `<` is a comparison here unless it certainly brackets, in which case the count will not fit.
    fn call_arguments(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut start = range.start;
        let mut i = range.start;
        while i < range.end {
            if self.source.text_at(i) == "," {
                parts.push(start..i);
                start = i + 1;
            }
            i = self.source.after(i, false);
        }
        if start < range.end {
            parts.push(start..range.end);
        }
        parts
    }
}

struct Declaration {
    name: usize,
    binding: Binding,
}
