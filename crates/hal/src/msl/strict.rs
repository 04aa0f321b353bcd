//! Rejects what Apple's compiler rejects, if the text alone is sufficient to decide, so that a kernel accepted here is
//! accepted there.
//!
//! Checked: `double` and `long double`; pointers and references without an address space (parameters, fields,
//! locals, casts, return types); program-scope variables that are not in `constant`; kernels that return a value;
//! lambdas; threadgroup variables outside of kernels; static locals; fields with an address space; attributes after
//! the parameters; `half` as a name; position attributes of different dimensions, or of a type that is not an
//! integer.
//!
//! Not checked, because it would need types:
//! - pointers to template parameters, aliases and dependent types (`T* p` may carry its address space in `T`);
//! - conversions between address spaces, which clang and its AST dump find (`soft/compile/conversion.rs`);
//! - implicit conversions, missing vector components and everything else that clang with the device's headers
//!   decides.
//!
//! In doubt, a program is accepted: everything that is rejected here must be rejected there.

mod form;
mod pointer;
mod types;

use std::collections::HashSet;

use self::types::KnownTypes;
use super::diagnostic::{Diagnostic, DiagnosticKind};
use super::lexer::Token;
use super::program::{FunctionDecl, Program};
use super::rewrite::threadgroup_aliases;
use super::token_stream::TokenStream;
use crate::language::LanguageVersion;

/// Reports everything in the program that Apple's compiler would reject.
pub(crate) fn check(
    source: &TokenStream<'_>,
    program: &Program,
    language: LanguageVersion,
) -> Vec<Diagnostic> {
    let mut strict = Strict {
        source,
        program,
        language,
        types: KnownTypes::new(source, program),
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

/// State shared by the checks.
struct Strict<'s, 'a> {
    source: &'s TokenStream<'a>,
    program: &'s Program,
    language: LanguageVersion,
    types: KnownTypes<'a>,
    /// Names of types in threadgroup memory.
    aliases: HashSet<&'a str>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Strict<'_, 'a> {
    fn reject(&mut self, i: usize, message: impl Into<String>) {
        self.diagnostics
            .push(self.source.error_at(i, DiagnosticKind::Refused, message));
    }

    fn reject_at(&mut self, token: Token, message: impl Into<String>) {
        let message = message.into();
        self.diagnostics
            .push(self.source.error(token, DiagnosticKind::Refused, message));
    }

    fn doubles(&mut self) {
        for i in 0..self.source.len() {
            if self.source.text_at(i) == "double" && !self.source.tokens[i].system {
                self.reject(i, "'double' is not supported in Metal");
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
            // Only obvious variables: `type name = …;`, `type name;`, `type name[…];`
            let evident = self.types.is_type_sequence(
                source,
                skip_storage(source, variable.specifiers)..declarator.name,
            );
            if outside && !placed && evident {
                let name = source.text_at(declarator.name);
                self.reject(
                    declarator.name,
                    format!(
                        "program-scope variable '{name}' must be in the constant address space"
                    ),
                );
            }
        }
    }

    fn kernel_result(&mut self, function: &FunctionDecl) {
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
            self.reject(*only, format!("kernel '{name}' must return void"));
        }
    }
}

/// Skips words that are not part of the type.
fn skip_storage(source: &TokenStream<'_>, mut i: usize) -> usize {
    while matches!(
        source.text_at(i),
        "static" | "inline" | "const" | "constexpr"
    ) {
        i += 1;
    }
    i
}
