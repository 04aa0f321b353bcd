//! Lint runs: the front end with the warnings enabled that a build leaves out.

use super::flag::flags;
use super::step::failure;
use super::{KernelCompiler, LibraryProgram, compile_error};
use crate::error::Result;
use crate::library::CompileOptions;
use crate::msl::{ColumnMap, Diagnostic, DiagnosticKind, Severity, Translation};
use crate::soft::diagnose::{self, SourceMap};

impl KernelCompiler {
    /// Runs step 3 once for a library and several of its kernels, for diagnostics only.
    pub(crate) fn lint(&self, program: &LibraryProgram, names: &[&str]) -> Result<Vec<Diagnostic>> {
        let warnings = options(program)?;
        let mut found = self.preprocessor_warnings(program, &warnings)?;
        let mut arguments = flags("lint");
        arguments.extend(warnings);
        arguments.extend(["-fsyntax-only", "-Xclang", "-ast-dump"].map(str::to_owned));
        let input = with_kernels(program.translation()?, names);
        let output = self.run_frontend(program, &arguments, input)?;
        found.extend(self.diagnostics(program, &output));
        if !output.success {
            return Err(failure(&output, &program.options, found));
        }
        found.extend(self.conversions(program, &output)?);
        if found.iter().any(|d| d.severity == Severity::Error) {
            return Err(compile_error(&program.options, found));
        }
        Ok(found)
    }

    /// Returns the preprocessor's warnings, which the front end cannot give: the rewritten text has no directives left.
    fn preprocessor_warnings(
        &self,
        program: &LibraryProgram,
        warnings: &[String],
    ) -> Result<Vec<Diagnostic>> {
        if let Some(known) = program.preprocessor_warnings.get() {
            return Ok(known.clone());
        }
        let mut arguments = flags("lint");
        arguments.extend_from_slice(warnings);
        // The front end reports unknown options, too.
        arguments.push("-Wno-unknown-warning-option".to_owned());
        let (source, file) = (&program.source, &program.file);
        let output = self.preprocess(source, file, &program.options, &arguments)?;
        let columns = ColumnMap::default();
        let mut source_map = SourceMap::new(file, source, "", &columns);
        let found = diagnose::read(&output.stderr, &[&self.headers()?], &mut source_map);
        if !output.success && found.iter().all(|d| d.severity != Severity::Error) {
            return Err(failure(&output, &program.options, found));
        }
        Ok(program.preprocessor_warnings.get_or_init(|| found).clone())
    }
}

/// The user's warning options for clang.
///
/// Not everything that starts with `-W` is one: clang passes `-Wl,…`, `-Wp,…` and `-Wa,…` on to other programs.
fn options(program: &LibraryProgram) -> Result<Vec<String>> {
    let is_name = |name: &String| {
        let mut letters = name.bytes();
        !name.is_empty() && letters.all(|c| c.is_ascii_alphanumeric() || b"+-=#_".contains(&c))
    };
    let CompileOptions { warnings, .. } = &program.options;
    if let Some(name) = warnings.iter().find(|name| !is_name(name)) {
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            kind: DiagnosticKind::Compiler,
            message: format!("unknown warning option '-W{name}'"),
            file: program.file.clone(),
            line: 0,
            column: 0,
            flag: None,
            source_line: None,
        };
        return Err(compile_error(&program.options, vec![diagnostic]));
    }
    Ok(warnings.iter().map(|name| format!("-W{name}")).collect())
}

/// Returns the program with the entry points of several kernels; an image has only one.
fn with_kernels(translation: &Translation, names: &[&str]) -> String {
    let lines = translation.cpp.lines();
    // clang would warn about Metal's pragmas, which it does not know.
    let lines = lines.map(|line| {
        if line.starts_with("#pragma METAL ") {
            ""
        } else {
            line
        }
    });
    let mut text = lines.collect::<Vec<_>>().join("\n");
    // The entry points carry the lines of their kernels, but are not the user's code.
    text += "\n#pragma clang diagnostic ignored \"-Weverything\"";
    for (index, name) in names.iter().enumerate() {
        let kernel = translation.reflection.kernel(name);
        let gates = 0..kernel.map_or(0, |k| k.arguments.len());
        let exports = [
            "sm_rt_table",
            "sm_kernel",
            "sm_arg_size",
            "sm_gate",
            "sm_entry",
        ]
        .map(str::to_owned);
        let exports = exports
            .into_iter()
            .chain(gates.map(|gate| format!("sm_gate_{gate}")));
        // An image has one of each; here every kernel needs its own.
        let exports: Vec<String> = exports.collect();
        for export in &exports {
            text += &format!("\n#define {export} {export}_of_{index}");
        }
        text += &translation.glue(name).unwrap_or_default();
        for export in &exports {
            text += &format!("\n#undef {export}");
        }
    }
    text
}
