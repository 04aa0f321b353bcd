//! The Metal Shading Language front end: lexing, reflection, strictness checks and the rewrite to C++.
//!
//! ```text
//! preprocessed MSL ─ lexer ─ source ─ parse ─┬─ unsupported, strict ── diagnostics
//!                                            ├─ rewrite ─ edit ─────── C++17 text, column map
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

pub use diagnostic::{Diagnostic, DiagnosticKind, Severity};
pub use edit::ColumnMap;
pub use lexer::{Lexed, Token, TokenKind, lex};
pub use reflect::{
    AddressSpace, Argument, ArgumentKind, Builtin, FunctionConstant, Kernel, Reflection, SLOTS,
};
pub use rewrite::ThreadgroupVariableName;

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
    /// Whether the text names `thread` or casts to another address space, without which nothing converts between them.
    pub(crate) may_convert: bool,
    entries: Vec<glue::Entry>,
}

impl Translation {
    /// The C++ to append to [`Translation::cpp`] for an image of one kernel, by its host name.
    pub fn glue(&self, kernel: &str) -> Option<String> {
        let index = self
            .reflection
            .kernels
            .iter()
            .position(|known| known.name == kernel)?;
        let entry = self.entries.get(index)?;
        Some(glue::glue(&self.reflection.kernels[index], entry))
    }
}

/// Translates preprocessed MSL. `primary_file` names the text up to its first line marker.
///
/// # Errors
/// Everything that is wrong with the program, by file, line and column.
pub fn translate(expanded: &str, primary_file: &str) -> Result<Translation, Vec<Diagnostic>> {
    let source = source::Source::new(expanded, primary_file)?;
    let program = parse::parse(&source);
    let constants = constant::Constants::new(&source, &program);
    let mut rewrite = rewrite::Rewrite::new(&source, &program);
    let mut diagnostics = unsupported::check(&source, &program);
    diagnostics.extend(strict::check(&source, &program));
    diagnostics.append(&mut rewrite.diagnostics);
    let (reflection, entries, found) = reflect::reflect(&rewrite, &constants);
    diagnostics.extend(found);
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
