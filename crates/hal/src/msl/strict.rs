//! Refuses what Apple's compiler refuses, wherever the text alone shows it, so that a kernel accepted here is accepted there.
//!
//! Checked: `double` and `long double`; pointers and references without an address space (parameters, fields, locals, casts,
//! returned types); variables at program scope that are not in `constant`; kernels that return a value; lambdas; threadgroup
//! variables outside of kernels; static locals; fields with an address space; attributes after the
//! parameters; `half` as a name; position attributes of different dimensions, or of a type that is no integer.
//!
//! Not checked, because types would have to be known:
//! - pointers to template parameters, aliases and dependent types (`T* p` may carry its address space in `T`);
//! - conversions between address spaces, which clang finds, and its dump of the syntax tree (`soft/compile/conversion.rs`);
//! - implicit conversions, missing vector components and everything else that clang with the device's headers decides.
//!
//! In doubt a program is accepted: a refusal here must be a refusal there.

mod form;
mod pointer;
mod types;

use std::collections::HashSet;

use super::diagnostic::{Diagnostic, DiagnosticKind};
use super::lexer::Token;
use super::program::{Function, Program};
use super::rewrite::threadgroup_aliases;
use super::source::Source;
use crate::language::LanguageVersion;
use types::Types;

/// Everything in the program that Apple's compiler would refuse.
pub(crate) fn check(
    source: &Source<'_>,
    program: &Program,
    language: LanguageVersion,
) -> Vec<Diagnostic> {
    let mut strict = Strict {
        source,
        program,
        language,
        types: Types::new(source, program),
        aliases: threadgroup_aliases(source),
        diagnostics: Vec::new(),
    };
    strict.doubles();
    strict.program_scope();
    for function in &program.functions {
        if source.tokens[function.first].system {
            continue;
        }
        strict.kernel_result(function);
    }
    strict.forms();
    strict.pointers();
    strict.diagnostics
}

/// The checks share what is known of the program.
struct Strict<'s, 'a> {
    source: &'s Source<'a>,
    program: &'s Program,
    language: LanguageVersion,
    types: Types<'a>,
    /// Names of types in threadgroup memory.
    aliases: HashSet<&'a str>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Strict<'_, 'a> {
    fn refuse(&mut self, i: usize, message: impl Into<String>) {
        self.diagnostics
            .push(self.source.error_at(i, DiagnosticKind::Refused, message));
    }

    fn refuse_at(&mut self, place: Token, message: impl Into<String>) {
        let message = message.into();
        self.diagnostics
            .push(self.source.error(place, DiagnosticKind::Refused, message));
    }

    fn doubles(&mut self) {
        for i in 0..self.source.len() {
            if self.source.text_at(i) == "double" && !self.source.tokens[i].system {
                self.refuse(i, "'double' is not supported in Metal");
            }
        }
    }

    fn program_scope(&mut self) {
        let source = self.source;
        for variable in &self.program.variables {
            let Some(declarator) = variable.declarators.first() else {
                continue;
            };
            let outside = !self.program.scopes[variable.scope].is_class
                && !source.tokens[variable.first].system;
            let placed = (variable.first..declarator.name).any(|i| {
                matches!(
                    source.text_at(i),
                    "constant"
                        | "device"
                        | "threadgroup"
                        | "thread"
                        | "extern"
                        | "typedef"
                        | "using"
                        | "template"
                        | "friend"
                        | "::"
                        | "("
                )
            });
            // Only what is evidently a variable: `type name = …;`, `type name;`, `type name[…];`
            let evident = self.types.is_type_sequence(
                source,
                skip_storage(source, variable.specifiers)..declarator.name,
            );
            if outside && !placed && evident {
                let name = source.text_at(declarator.name);
                self.refuse(
                    declarator.name,
                    format!(
                        "program-scope variable '{name}' must be in the constant address space"
                    ),
                );
            }
        }
    }

    fn kernel_result(&mut self, function: &Function) {
        let source = self.source;
        if !function.kernel {
            return;
        }
        let result: Vec<usize> = (function.specifiers..function.name.start)
            .filter(|&i| {
                !matches!(
                    source.text_at(i),
                    "kernel" | "static" | "inline" | "extern" | "constexpr"
                )
            })
            .collect();
        if let [only] = result.as_slice()
            && source.text_at(*only) != "void"
            && self.types.is_known(source.text_at(*only))
        {
            let name = source.text_at(function.name.start);
            self.refuse(*only, format!("kernel '{name}' must return void"));
        }
    }
}

/// Passes words that say nothing of the type.
fn skip_storage(source: &Source<'_>, mut i: usize) -> usize {
    while matches!(
        source.text_at(i),
        "static" | "inline" | "const" | "constexpr"
    ) {
        i += 1;
    }
    i
}
