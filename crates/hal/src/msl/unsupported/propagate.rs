//! Propagates unsupported features through a program: affected declarations are removed, and affected kernels are
//! rejected.
//!
//! Works by names alone. A class, alias or variable that mentions the feature affects everything that mentions its
//! name; a function affects its callers only if its body contains the feature, because a caller that passes an
//! argument of an unsupported type mentions that type itself. In doubt, clang reports an undeclared name.

use std::collections::{HashMap, HashSet};

use super::Unsupported;
use crate::msl::diagnostic::Diagnostic;
use crate::msl::program::Program;
use crate::msl::token_stream::TokenStream;

/// Propagates features from the tokens that name them. `marks` are those tokens with their diagnostics, `functions`
/// the functions that are unsupported as a whole.
pub(super) fn propagate(
    source: &TokenStream<'_>,
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
    let mut propagation = Propagation {
        source,
        program,
        index: DeclarationIndex::new(program),
        mentions,
        by_name,
        named: HashSet::new(),
        called: HashSet::new(),
        work: marks,
        found: Unsupported::default(),
    };
    // For a kernel, a type is a better explanation than the attribute next to it; for other stages, nothing else
    // matters.
    let (kernels, stages): (Vec<_>, Vec<_>) =
        (functions.iter()).partition(|(function, _)| program.functions[**function].kernel);
    for (&function, diagnostic) in stages {
        let known = propagation.found.functions.entry(function);
        known.or_insert_with(|| diagnostic.clone());
    }
    while let Some((token, diagnostic)) = propagation.work.pop() {
        propagation.mark(token, &diagnostic);
    }
    for (&function, diagnostic) in kernels {
        let known = propagation.found.functions.entry(function);
        known.or_insert_with(|| diagnostic.clone());
    }
    propagation.found
}

struct Propagation<'s, 'a> {
    source: &'s TokenStream<'a>,
    program: &'s Program,
    index: DeclarationIndex,
    /// Occurrences of each identifier.
    mentions: HashMap<&'a str, Vec<usize>>,
    by_name: HashMap<&'a str, Vec<usize>>,
    /// Types, aliases and variables whose mentions are marked.
    named: HashSet<&'a str>,
    /// Functions whose calls are marked.
    called: HashSet<&'a str>,
    work: Vec<(usize, Diagnostic)>,
    found: Unsupported,
}

impl<'a> Propagation<'_, 'a> {
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
                self.mark_mentions(name, diagnostic);
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
            self.mark_mentions(name, diagnostic);
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
        // Remove the whole overload set: overload resolution might pick another one silently.
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

    /// Marks everything that mentions the name at token `declared`.
    fn mark_mentions(&mut self, declared: usize, diagnostic: &Diagnostic) {
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

    /// Removes tokens; false if they were removed before.
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

/// Disjoint or nested token ranges, searchable by token.
struct NestedRanges {
    /// Sorted by first token.
    list: Vec<NestedRange>,
}

struct NestedRange {
    first: usize,
    last: usize,
    number: usize,
    /// Index of the enclosing range in the list.
    parent: Option<usize>,
}

impl NestedRanges {
    fn new(ranges: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut sorted: Vec<_> = ranges.enumerate().collect();
        sorted.sort_unstable_by_key(|&(_, (first, last))| (first, std::cmp::Reverse(last)));
        let mut list: Vec<NestedRange> = Vec::with_capacity(sorted.len());
        for (number, (first, last)) in sorted {
            let mut parent = list.len().checked_sub(1);
            while let Some(at) = parent
                && list[at].last < first
            {
                parent = list[at].parent;
            }
            list.push(NestedRange {
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

struct DeclarationIndex {
    functions: NestedRanges,
    classes: NestedRanges,
    instantiations: NestedRanges,
    /// Variables by first token.
    variables: HashMap<usize, usize>,
}

impl DeclarationIndex {
    fn new(program: &Program) -> Self {
        let functions = program.functions.iter().map(|f| (f.first, f.last));
        let classes = program.classes.iter().map(|c| (c.first, c.last));
        let instantiations = program.instantiations.iter().map(|i| (i.first, i.last));
        Self {
            functions: NestedRanges::new(functions),
            classes: NestedRanges::new(classes),
            instantiations: NestedRanges::new(instantiations),
            variables: (program.variables.iter().enumerate())
                .map(|(number, variable)| (variable.first, number))
                .collect(),
        }
    }
}
