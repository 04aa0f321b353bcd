//! Which parts of a program an unsupported feature concerns: they are left out, and the kernels among them are refused.
//!
//! Decided by names alone. A class, alias or variable that mentions the feature passes it on to whatever mentions its name; a
//! function passes it on to its callers only if its body is to blame, because a caller that has an argument for a parameter
//! of an unsupported type mentions that type itself. In doubt, clang complains about a name that is not there.

use std::collections::{HashMap, HashSet};

use super::Unsupported;
use crate::msl::diagnostic::Diagnostic;
use crate::msl::program::Program;
use crate::msl::source::Source;

/// Spreads features from the tokens that name them. `marks` are those tokens with what to say of them, `functions` what is known
/// of whole functions.
pub(super) fn spread(
    source: &Source<'_>,
    program: &Program,
    marks: Vec<(usize, Diagnostic)>,
    functions: &HashMap<usize, Diagnostic>,
) -> Unsupported {
    let mut mentions: HashMap<&str, Vec<usize>> = HashMap::new();
    for i in (0..source.len()).filter(|&i| source.is_identifier(i)) {
        mentions.entry(source.text_at(i)).or_default().push(i);
    }
    let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, function) in program.functions.iter().enumerate() {
        let named = by_name.entry(function.base_name(source)).or_default();
        named.push(index);
    }
    let mut spread = Spread {
        source,
        program,
        index: Index::new(program),
        mentions,
        by_name,
        named: HashSet::new(),
        called: HashSet::new(),
        work: marks,
        found: Unsupported::default(),
    };
    // Of a kernel, a type says more than the attribute beside it; of other stages, nothing else counts.
    let (kernels, stages): (Vec<_>, Vec<_>) =
        (functions.iter()).partition(|(function, _)| program.functions[**function].kernel);
    for (&function, diagnostic) in stages {
        let known = spread.found.functions.entry(function);
        known.or_insert_with(|| diagnostic.clone());
    }
    while let Some((token, diagnostic)) = spread.work.pop() {
        spread.mark(token, &diagnostic);
    }
    for (&function, diagnostic) in kernels {
        let known = spread.found.functions.entry(function);
        known.or_insert_with(|| diagnostic.clone());
    }
    spread.found
}

struct Spread<'s, 'a> {
    source: &'s Source<'a>,
    program: &'s Program,
    index: Index,
    /// Where an identifier occurs.
    mentions: HashMap<&'a str, Vec<usize>>,
    by_name: HashMap<&'a str, Vec<usize>>,
    /// Types, aliases and variables whose mentions are marked.
    named: HashSet<&'a str>,
    /// Functions whose calls are marked.
    called: HashSet<&'a str>,
    work: Vec<(usize, Diagnostic)>,
    found: Unsupported,
}

impl<'a> Spread<'_, 'a> {
    fn mark(&mut self, token: usize, diagnostic: &Diagnostic) {
        let functions = self.index.functions.containing(token);
        if !functions.is_empty() {
            for function in functions {
                self.mark_function(function, token, diagnostic);
            }
            return;
        }
        if let Some(&class) = self.index.classes.containing(token).first() {
            let class = &self.program.classes[class];
            if self.drop_range(class.first, class.last)
                && let Some(name) = class.name
            {
                self.pass_on(name, diagnostic);
            }
            return;
        }
        if let Some(&instantiation) = self.index.instantiations.containing(token).first() {
            let known = self.found.instantiations.entry(instantiation);
            known.or_insert_with(|| diagnostic.clone());
            return;
        }
        let before = self.found.ranges.range(..=token).next_back();
        if before.is_some_and(|(_, last)| *last >= token) {
            return;
        }
        let (first, last) = self.statement(token);
        if self.drop_range(first, last)
            && let Some(name) = self.declared(first, last)
        {
            self.pass_on(name, diagnostic);
        }
    }

    fn mark_function(&mut self, index: usize, token: usize, diagnostic: &Diagnostic) {
        if self.found.functions.contains_key(&index) {
            return;
        }
        self.found.functions.insert(index, diagnostic.clone());
        let function = &self.program.functions[index];
        let in_body = function.body.is_some_and(|(open, _)| token > open);
        let name = function.base_name(self.source);
        if !in_body || function.kernel || !self.called.insert(name) {
            return;
        }
        // What is left of an overload set could be chosen by mistake.
        for other in self.by_name.get(name).cloned().unwrap_or_default() {
            let function = &self.program.functions[other];
            if !function.kernel {
                self.found
                    .functions
                    .entry(other)
                    .or_insert_with(|| diagnostic.clone());
            }
        }
        for &token in self.mentions.get(name).into_iter().flatten() {
            if matches!(self.source.text_at(token + 1), "(" | "<") {
                self.work.push((token, diagnostic.clone()));
            }
        }
    }

    /// Marks what mentions the name at token `declared`.
    fn pass_on(&mut self, declared: usize, diagnostic: &Diagnostic) {
        let name = self.source.text_at(declared);
        if !self.named.insert(name) {
            return;
        }
        for &token in self.mentions.get(name).into_iter().flatten() {
            let member = matches!(self.source.before(token), "." | "->");
            if token != declared && !member {
                self.work.push((token, diagnostic.clone()));
            }
        }
    }

    /// Leaves tokens out; false if they were left out before.
    fn drop_range(&mut self, first: usize, last: usize) -> bool {
        self.found.ranges.insert(first, last).is_none()
    }

    /// The statement around a token: a variable, an alias, an assertion.
    fn statement(&self, token: usize) -> (usize, usize) {
        let source = self.source;
        let mut first = token;
        while first > 0 && !matches!(source.before(first), ";" | "{" | "}") {
            first = match source.partner(first - 1) {
                Some(open) if open < first => open,
                _ => first - 1,
            };
        }
        let mut last = token;
        while last + 1 < source.len() && !matches!(source.text_at(last), ";" | "}") {
            last = source.after(last, false);
        }
        (first, last.min(source.len().saturating_sub(1)))
    }

    /// The name that an alias or a variable declares.
    fn declared(&self, first: usize, last: usize) -> Option<usize> {
        let source = self.source;
        let mut start = first;
        while source.text_at(start) == "template" && source.text_at(start + 1) == "<" {
            start = source.after(start + 1, true);
        }
        match source.text_at(start) {
            "using" if source.text_at(start + 1) == "namespace" => None,
            "using" if source.text_at(start + 2) == "=" => Some(start + 1),
            "using" | "typedef" => (start..last).rev().find(|&i| source.is_identifier(i)),
            _ => {
                let variable = *self.index.variables.get(&first)?;
                let declarators = &self.program.variables[variable].declarators;
                Some(declarators.first()?.name)
            }
        }
    }
}

/// Ranges of tokens, of which those that contain a token can be found. They nest or lie apart.
struct Ranges {
    /// By first token.
    list: Vec<Nested>,
}

struct Nested {
    first: usize,
    last: usize,
    number: usize,
    /// The range around this one, as a place in the list.
    parent: Option<usize>,
}

impl Ranges {
    fn new(ranges: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut sorted: Vec<_> = ranges.enumerate().collect();
        sorted.sort_unstable_by_key(|&(_, (first, last))| (first, std::cmp::Reverse(last)));
        let mut list: Vec<Nested> = Vec::with_capacity(sorted.len());
        for (number, (first, last)) in sorted {
            let mut parent = list.len().checked_sub(1);
            while let Some(at) = parent
                && list[at].last < first
            {
                parent = list[at].parent;
            }
            list.push(Nested {
                first,
                last,
                number,
                parent,
            });
        }
        Self { list }
    }

    /// The numbers of the ranges around a token, innermost first.
    fn containing(&self, token: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut at = self
            .list
            .partition_point(|range| range.first <= token)
            .checked_sub(1);
        while let Some(range) = at.map(|at| &self.list[at]) {
            if range.last >= token {
                found.push(range.number);
            }
            at = range.parent;
        }
        found
    }
}

struct Index {
    functions: Ranges,
    classes: Ranges,
    instantiations: Ranges,
    /// By first token.
    variables: HashMap<usize, usize>,
}

impl Index {
    fn new(program: &Program) -> Self {
        let functions = program.functions.iter().map(|f| (f.first, f.last));
        let classes = program.classes.iter().map(|c| (c.first, c.last));
        let instantiations = program.instantiations.iter().map(|i| (i.first, i.last));
        Self {
            functions: Ranges::new(functions),
            classes: Ranges::new(classes),
            instantiations: Ranges::new(instantiations),
            variables: (program.variables.iter().enumerate())
                .map(|(number, variable)| (variable.first, number))
                .collect(),
        }
    }
}
