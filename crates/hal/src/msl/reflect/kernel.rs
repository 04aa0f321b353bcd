//! Finds the kernels: functions, and template instantiations in all their spellings.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use super::argument::{ArgumentDraft, is_specifier, join, words};
use super::{Argument, FunctionConstant, Kernel, Reflection};
use crate::msl::constant::Constants;
use crate::msl::diagnostic::{Diagnostic, DiagnosticKind};
use crate::msl::glue::EntryPoint;
use crate::msl::lexer::TokenKind;
use crate::msl::program::{FunctionDecl, Instantiation, base_name};
use crate::msl::rewrite::Rewrite;
use crate::msl::token_stream::TokenStream;
use crate::msl::unsupported::Unsupported;

/// Reads kernels and constants; problems are reported as diagnostics.
pub(crate) fn reflect<'a>(
    rewrite: &Rewrite<'_, 'a>,
    constants: &Constants<'a>,
    unsupported: &Unsupported,
) -> (Reflection, Vec<EntryPoint>, Vec<Diagnostic>) {
    let mut reflector = Reflector {
        rewrite,
        constants,
        unsupported,
        kernels: Vec::new(),
        diagnostics: Vec::new(),
        signatures: HashMap::new(),
    };
    reflector.functions();
    reflector.instantiations();
    let constants = reflector.constants();
    let mut diagnostics = reflector.diagnostics;
    let mut found = reflector.kernels;
    found.sort_by_key(|(first, ..)| *first);
    let mut names: HashMap<String, (String, u32)> = HashMap::with_capacity(found.len());
    let mut reflection = Reflection {
        kernels: Vec::with_capacity(found.len()),
        constants,
    };
    let mut entries = Vec::with_capacity(found.len());
    for (first, kernel, entry) in found {
        if let Some((file, line)) = names.get(&kernel.name) {
            let message = format!(
                "two kernels are named '{}'; the first is at {file}:{line}",
                kernel.name
            );
            diagnostics.push(rewrite.source.error_at(
                first,
                DiagnosticKind::DuplicateKernel,
                message,
            ));
            continue;
        }
        names.insert(kernel.name.clone(), (kernel.file.clone(), kernel.line));
        reflection.kernels.push(kernel);
        entries.push(entry);
    }
    (reflection, entries, diagnostics)
}

pub(super) struct Reflector<'r, 's, 'a> {
    pub(super) rewrite: &'r Rewrite<'s, 'a>,
    pub(super) constants: &'r Constants<'a>,
    unsupported: &'r Unsupported,
    kernels: Vec<(usize, Kernel, EntryPoint)>,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// The arguments of a kernel function, read once for all its instantiations.
    pub(super) signatures: HashMap<usize, Vec<ArgumentDraft>>,
}

impl<'s, 'a> Reflector<'_, 's, 'a> {
    pub(super) fn source(&self) -> &'s TokenStream<'a> {
        self.rewrite.source
    }

    /// Collects kernels that are not templates.
    fn functions(&mut self) {
        let program = self.rewrite.program;
        for (index, function) in program.functions.iter().enumerate() {
            let why = self.unsupported.functions.get(&index);
            let defined = function.body.is_some()
                && (why.is_some() || !self.rewrite.dropped.contains(&index));
            if !function.kernel || !defined || self.source().tokens[function.first].system {
                continue;
            }
            if let Some(why) = why {
                if !function.is_template() {
                    let mut found = self.found(function.specifiers, function.scope, &function.name);
                    found.host = host_name(self.source(), function.first, function.open);
                    found.unsupported = Some(why.clone());
                    self.push(found);
                }
                continue;
            }
            self.check_attributes(function);
            let drafts = self.signature(index);
            if function.is_template() {
                continue;
            }
            let found = FoundKernel {
                host: host_name(self.source(), function.first, function.open),
                arguments: drafts.into_iter().map(|draft| draft.argument).collect(),
                threads: self.threads(function, self.constants),
                ..self.found(function.specifiers, function.scope, &function.name)
            };
            self.push(found);
        }
    }

    fn instantiations(&mut self) {
        let program = self.rewrite.program;
        let mut by_name: HashMap<&str, Vec<Candidate<'_>>> = HashMap::new();
        for (index, function) in program.functions.iter().enumerate() {
            if function.is_template() && !program.scopes[function.scope].is_class {
                let candidates = by_name
                    .entry(function.base_name(self.source()))
                    .or_default();
                if candidates.len() < MAX_OVERLOADS {
                    candidates.push(self.candidate(index));
                }
            }
        }
        for (index, instantiation) in program.instantiations.iter().enumerate() {
            let source = self.source();
            let attributes = source.attributes_in(instantiation.first, instantiation.last);
            let asked = attributes
                .iter()
                .any(|a| a.name == "kernel" || a.name == "host_name")
                || (instantiation.first..instantiation.name.start)
                    .any(|i| source.text_at(i) == "kernel");
            let base = base_name(source, &instantiation.name);
            let candidates = by_name.get(base).map_or(&[][..], Vec::as_slice);
            let Some(function) = self.select_template(instantiation, candidates) else {
                if asked {
                    let message = format!("there is no kernel template named '{base}'");
                    self.diagnostics.push(source.error_at(
                        instantiation.name.start,
                        DiagnosticKind::UnknownKernel,
                        message,
                    ));
                }
                continue;
            };
            if !asked && !program.functions[function].kernel {
                continue;
            }
            let why = self.unsupported.functions.get(&function);
            match why.or_else(|| self.unsupported.instantiations.get(&index)) {
                None => self.instantiate(instantiation, function),
                Some(why) => {
                    let (first, name) = (instantiation.first, &instantiation.name);
                    let mut found = self.found(first, instantiation.scope, name);
                    found.host = host_name(source, first, instantiation.last);
                    found.unsupported = Some(why.clone());
                    self.push(found);
                }
            }
        }
    }

    fn candidate(&self, index: usize) -> Candidate<'s> {
        let source = self.source();
        let program = self.rewrite.program;
        let function = &program.functions[index];
        let head = function.heads.last().cloned().unwrap_or_default();
        Candidate {
            index,
            kernel: function.kernel,
            defined: function.body.is_some(),
            parameters: source.split_commas(function.open + 1..function.close).len(),
            heads: source.split_commas(head).len(),
            path: program.path(function.scope),
        }
    }

    /// Selects the template of an instantiation: preferably a kernel, a definition, with the same number of
    /// parameters, in the nearest scope.
    fn select_template(
        &self,
        instantiation: &Instantiation,
        candidates: &[Candidate<'_>],
    ) -> Option<usize> {
        let source = self.source();
        let path = self.rewrite.program.path(instantiation.scope);
        let parameters = instantiation
            .parameters
            .map(|(open, close)| source.split_commas(open + 1..close).len());
        let arguments = arguments(source, &instantiation.name).map_or(0, |list| list.len());
        let best = candidates.iter().max_by_key(|candidate| {
            let near = path.starts_with(&candidate.path);
            (
                candidate.kernel,
                candidate.defined,
                parameters.is_none_or(|wanted| wanted == candidate.parameters),
                candidate.heads >= arguments,
                if near { candidate.path.len() + 1 } else { 0 },
                Reverse(candidate.index),
            )
        });
        best.map(|candidate| candidate.index)
    }

    fn instantiate(&mut self, instantiation: &Instantiation, index: usize) {
        let source = self.source();
        let function = &self.rewrite.program.functions[index];
        let drafts = self.signature(index);
        let bound = self.bind(function, &instantiation.name);
        let arguments = drafts
            .into_iter()
            .map(|draft| self.substitute(draft, &bound))
            .collect();
        let host = host_name(source, instantiation.first, instantiation.last);
        let deduced = arguments_range(source, &instantiation.name).is_none();
        let cast = instantiation
            .parameters
            .filter(|_| deduced)
            .map(|(open, close)| self.rewrite.render(open, close));
        let threads = self.threads(function, self.constants).or_else(|| {
            let mut constants = self.constants.clone();
            for (name, range) in &bound {
                let value = constants.evaluate(source, &source.tokens[range.clone()]);
                constants.bind(name, value);
            }
            self.threads(function, &constants)
        });
        self.push(FoundKernel {
            host,
            cast,
            arguments,
            threads,
            ..self.found(
                instantiation.first,
                instantiation.scope,
                &instantiation.name,
            )
        });
    }

    /// Starts a kernel of which only the name is known.
    fn found(&self, first: usize, scope: usize, name: &Range<usize>) -> FoundKernel {
        FoundKernel {
            first,
            scope,
            expression: self.expression(name),
            host: None,
            cast: None,
            arguments: Vec::new(),
            threads: None,
            unsupported: None,
        }
    }

    fn push(&mut self, found: FoundKernel) {
        let path = self.rewrite.program.path(found.scope).join("::");
        let function = if path.is_empty() {
            found.expression.clone()
        } else {
            format!("{path}::{}", found.expression)
        };
        let token = self.source().tokens[found.first];
        let kernel = Kernel {
            name: found.host.unwrap_or_else(|| function.clone()),
            function,
            arguments: found.arguments,
            max_total_threads: found.threads,
            file: self.source().file(token).to_owned(),
            line: token.line,
            unsupported: found.unsupported,
        };
        let entry = EntryPoint {
            namespace: path,
            expression: found.expression,
            cast: found.cast,
        };
        self.kernels.push((found.first, kernel, entry));
    }

    /// The C++ expression of a name, with its template arguments rewritten.
    fn expression(&self, name: &Range<usize>) -> String {
        self.rewrite.render(name.start, name.end - 1)
    }

    /// Maps the template parameters of a kernel to the tokens of their arguments.
    fn bind(&self, function: &FunctionDecl, name: &Range<usize>) -> Vec<(&'a str, Range<usize>)> {
        let source = self.source();
        let Some(head) = function.heads.last() else {
            return Vec::new();
        };
        let given = arguments(source, name).unwrap_or_default();
        let mut bound = Vec::new();
        for (n, parameter) in source.split_commas(head.clone()).into_iter().enumerate() {
            let equals = (parameter.clone()).find(|&i| source.text_at(i) == "=");
            let end = equals.unwrap_or(parameter.end);
            let Some(last) = end
                .checked_sub(1)
                .filter(|&last| source.is_identifier(last))
            else {
                continue;
            };
            let default = equals.map(|equals| equals + 1..parameter.end);
            if let Some(range) = given.get(n).cloned().or(default) {
                bound.push((source.text_at(last), range));
            }
        }
        bound
    }

    fn substitute(&self, draft: ArgumentDraft, bound: &[(&'a str, Range<usize>)]) -> Argument {
        let source = self.source();
        let mut argument = draft.argument;
        let dependent = |i: &usize| {
            bound
                .iter()
                .find(|(name, _)| *name == source.text_at(*i))
                .filter(|(_, range)| !range.is_empty())
        };
        if draft.words.iter().any(|i| dependent(i).is_some()) {
            let words = draft.words.iter().map(|i| match dependent(i) {
                Some((_, range)) => self.rewrite.render(range.start, range.end - 1),
                None => source.text_at(*i).to_owned(),
            });
            argument.type_name = join(words);
        }
        argument
    }

    fn threads(&self, function: &FunctionDecl, constants: &Constants<'a>) -> Option<u32> {
        let attribute = self
            .source()
            .attributes_in(function.first, function.open)
            .iter()
            .find(|a| a.name == "max_total_threads_per_threadgroup")?;
        let value = constants.evaluate(self.source(), &attribute.arguments)?;
        u32::try_from(value).ok()
    }

    fn constants(&mut self) -> Vec<FunctionConstant> {
        let source = self.source();
        let program = self.rewrite.program;
        let mut found = Vec::new();
        for variable in &program.variables {
            for attribute in source.attributes_in(variable.first, variable.last) {
                if attribute.name != "function_constant" || attribute.before == 0 {
                    continue;
                }
                let value = self.constants.evaluate(source, &attribute.arguments);
                let Some(index) = value.and_then(|v| u16::try_from(v).ok()) else {
                    let message = format!(
                        "[[function_constant({})]]: the index must be a constant from 0 to 65535",
                        words(source, &attribute.arguments)
                    );
                    self.diagnostics.push(source.error(
                        attribute.token,
                        DiagnosticKind::Index,
                        message,
                    ));
                    continue;
                };
                let first = variable
                    .declarators
                    .first()
                    .map_or(variable.last, |d| d.name);
                let kept =
                    (variable.specifiers..first).filter(|&i| !is_specifier(source.text_at(i)));
                found.push(FunctionConstant {
                    name: source.text_at(attribute.before - 1).to_owned(),
                    index: u32::from(index),
                    type_name: join(kept.map(|i| source.text_at(i).to_owned())),
                });
            }
        }
        found
    }
}

/// Maximum number of overloads of a kernel template that are considered; keeps hostile input linear.
const MAX_OVERLOADS: usize = 64;

/// A template that an instantiation may refer to.
struct Candidate<'s> {
    index: usize,
    kernel: bool,
    defined: bool,
    parameters: usize,
    heads: usize,
    path: Vec<&'s str>,
}

struct FoundKernel {
    first: usize,
    scope: usize,
    expression: String,
    host: Option<String>,
    cast: Option<String>,
    arguments: Vec<Argument>,
    threads: Option<u32>,
    unsupported: Option<Diagnostic>,
}

/// The tokens between the angle brackets that end a name.
fn arguments_range(source: &TokenStream<'_>, name: &Range<usize>) -> Option<Range<usize>> {
    let last = name.end.checked_sub(1)?;
    let open = source
        .partner(last)
        .filter(|_| source.text_at(last) == ">")?;
    Some(open + 1..last)
}

fn arguments(source: &TokenStream<'_>, name: &Range<usize>) -> Option<Vec<Range<usize>>> {
    arguments_range(source, name).map(|range| source.split_commas(range))
}

/// Reads `[[host_name("a" "b")]]` among the attributes of a declaration.
fn host_name(source: &TokenStream<'_>, first: usize, last: usize) -> Option<String> {
    let attribute = source
        .attributes_in(first, last)
        .iter()
        .find(|attribute| attribute.name == "host_name")?;
    let mut name = String::new();
    for token in &attribute.arguments {
        if token.kind == TokenKind::String {
            let text = source.token_text(*token);
            let open = text.find('"').map_or(0, |open| open + 1);
            name.push_str(text[open..].strip_suffix('"').unwrap_or_default());
        }
    }
    Some(name)
}
