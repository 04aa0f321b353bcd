//! The Metal Shading Language front end: lexing, reflection, strictness checks and lowering to C++.
//!
//! ```text
//! preprocessed MSL ─ lexer ─ token_stream ─ parse ─┬─ unsupported, strict, version ── diagnostics
//!                                                  ├─ rewrite ─ edit ─────── C++14 text, column map
//!                                                  └─ reflect ─ glue ─────── reflection, entry point of one kernel
//! ```
//!
//! Pure Rust, for every operating system: a driver for Apple's GPUs validates arguments against the same
//! [`Reflection`]. The input is the output of `clang -E` with macro-only stubs for Metal's headers; the output is for
//! clang with the software device's own headers. Nothing here analyses types: all decisions are based on tokens and
//! declarations, in time linear in the text, and no input panics.

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
#[cfg(any(target_os = "linux", test))]
mod source_lines;
mod strict;
mod token_stream;
mod unsupported;
mod version;

pub use diagnostic::{Diagnostic, DiagnosticKind, Severity};
pub use reflect::{
    AddressSpace, Argument, ArgumentKind, Builtin, FunctionConstant, Kernel, Reflection, SLOTS,
};

// Not public API: the lowering to C++, which integration tests and the fuzz target call directly.
#[doc(hidden)]
pub use edit::ColumnMap;
#[doc(hidden)]
pub use rewrite::ThreadgroupVariableName;

use crate::language::LanguageVersion;
#[cfg(any(target_os = "linux", test))]
pub(crate) use source_lines::SourceLines;

/// A program lowered to C++, with its reflection and the maps back to MSL.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The whole program; line markers refer to the user's files and lines.
    pub cpp: String,
    /// Kernels and function constants.
    pub reflection: Reflection,
    /// Maps columns of `cpp` to the user's columns.
    pub columns: ColumnMap,
    /// Names of the threadgroup variables, which `cpp` numbers.
    pub variables: Vec<ThreadgroupVariableName>,
    /// Whether the text names `thread` or casts to another address space; otherwise no conversion between them is possible.
    pub(crate) may_convert: bool,
    entries: Vec<glue::EntryPoint>,
}

impl Translation {
    /// The C++ to append to [`Translation::cpp`] for an image of one kernel, by its host name; `None` for unsupported
    /// kernels.
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

/// Lowers preprocessed MSL of the default version to C++. `primary_file` is the name of the text up to its first line marker.
///
/// # Errors
/// As [`translate_as`].
#[doc(hidden)]
pub fn translate(expanded: &str, primary_file: &str) -> Result<Translation, Vec<Diagnostic>> {
    translate_as(expanded, primary_file, LanguageVersion::default())
}

/// Lowers preprocessed MSL of a language version to C++.
///
/// # Errors
/// All diagnostics, sorted by file, line and column.
#[doc(hidden)]
pub fn translate_as(
    expanded: &str,
    primary_file: &str,
    language: LanguageVersion,
) -> Result<Translation, Vec<Diagnostic>> {
    let source = token_stream::TokenStream::new(expanded, primary_file)?;
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
    let none_supported = !reflection.kernels.iter().any(|k| k.unsupported.is_none());
    if none_supported && !unsupported.found.is_empty() {
        // Other errors may follow from the feature: Metal 4, which has tensors, has lambdas too.
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
        may_convert: rewrite::may_convert(&source),
        entries,
    })
}
