//! The Metal Shading Language front end: lexing, reflection, strictness checks and the rewrite to C++.
//!
//! ```text
//! preprocessed MSL ─ lexer ─ source ─ parse ─┬─ unsupported, strict, version ── diagnostics
//!                                            ├─ rewrite ─ edit ─────── C++14 text, column map
//!                                            └─ reflect ─ glue ─────── reflection, entry of one kernel
//! ```
//!
//! Pure Rust, for every operating system: a driver for Apple's GPUs validates arguments against the same [`Reflection`]. The input is
//! what `clang -E` writes with macro-only stand-ins for Metal's headers; the output is for clang with the software device's
//! own headers. Nothing here analyses types: what is decided is decided from tokens and declarations, in time linear in the
//! text, and no input panics.

mod builtin;
mod constant;
mod diagnostic;
mod edit;
mod glue;
mod lexer;
mod parse;
mod program;
mod reflect;
mod rewrite;
mod source;
mod strict;
mod unsupported;
mod version;

pub use diagnostic::{Diagnostic, DiagnosticKind, Severity};
pub use edit::ColumnMap;
pub use lexer::{Lexed, Token, TokenKind, lex};
pub use reflect::{
    AddressSpace, Argument, ArgumentKind, Builtin, FunctionConstant, Kernel, Reflection, SLOTS,
};
pub use rewrite::ThreadgroupVariableName;

use crate::language::LanguageVersion;

/// A program in C++, with everything that leads back to MSL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The whole program; line markers lead to the user's files and lines.
    pub cpp: String,
    /// Kernels and function constants.
    pub reflection: Reflection,
    /// Leads from columns of `cpp` to the user's columns.
    pub columns: ColumnMap,
    /// The threadgroup variables that `cpp` knows by number.
    pub variables: Vec<ThreadgroupVariableName>,
    entries: Vec<glue::Entry>,
}

impl Translation {
    /// The C++ to append to [`Translation::cpp`] for an image of one kernel, by its host name; none for kernels that are not
    /// supported.
    pub fn glue(&self, kernel: &str) -> Option<String> {
        let index = self
            .reflection
            .kernels
            .iter()
            .position(|known| known.name == kernel && known.unsupported.is_none())?;
        let entry = self.entries.get(index)?;
        Some(glue::glue(&self.reflection.kernels[index], entry))
    }
}

/// Translates preprocessed MSL of the default version. `primary_file` names the text up to its first line marker.
///
/// # Errors
/// As [`translate_as`].
pub fn translate(expanded: &str, primary_file: &str) -> Result<Translation, Vec<Diagnostic>> {
    translate_as(expanded, primary_file, LanguageVersion::default())
}

/// Translates preprocessed MSL of a version.
///
/// # Errors
/// Everything that is wrong with the program, by file, line and column.
pub fn translate_as(
    expanded: &str,
    primary_file: &str,
    language: LanguageVersion,
) -> Result<Translation, Vec<Diagnostic>> {
    let source = source::Source::new(expanded, primary_file)?;
    let program = parse::parse(&source);
    let constants = constant::Constants::new(&source, &program);
    let mut unsupported = unsupported::check(&source, &program);
    let mut rewrite = rewrite::Rewrite::new(&source, &program, &unsupported);
    let mut diagnostics = std::mem::take(&mut unsupported.errors);
    diagnostics.extend(strict::check(&source, &program, language));
    diagnostics.extend(version::check(&source, &program, language));
    diagnostics.append(&mut rewrite.diagnostics);
    let (reflection, entries, found) = reflect::reflect(&rewrite, &constants, &unsupported);
    diagnostics.extend(found);
    let none_is_left = !reflection.kernels.iter().any(|k| k.unsupported.is_none());
    if none_is_left && !unsupported.found.is_empty() {
        // What else is wrong may follow from the feature: Metal 4, which has tensors, has lambdas too.
        diagnostics.retain(|diagnostic| diagnostic.kind == DiagnosticKind::Unsupported);
        diagnostics.append(&mut unsupported.found);
    }
    if !diagnostics.is_empty() {
        diagnostics.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        diagnostics.dedup();
        return Err(diagnostics);
    }
    let variables = std::mem::take(&mut rewrite.variables);
    let (cpp, columns) = rewrite.emit();
    Ok(Translation {
        cpp,
        reflection,
        columns,
        variables,
        entries,
    })
}
