//! The steps from MSL to an image; each is a run of clang or one of our passes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::conversion;
use super::flag::{flags, math_defines, used_arguments, used_constants};
use super::header::Headers;
use super::{CompiledKernel, HEADER_PREFIX, KernelCompiler, LibraryProgram, compile_error};
use crate::error::{Error, Result};
use crate::library::{CompileOptions, MathMode};
use crate::msl::{ColumnMap, Diagnostic, Severity};
use crate::soft::diagnose::{self, SourceMap};
use crate::soft::plan::KernelPlan;
use crate::soft::toolchain::{self, COMPILE_TIME_LIMIT, Output, TimeLimit, tail};
use crate::soft::{Mode, ir};

/// Time limit for optimising a library's sole kernel while the library is checked; beyond it, only the syntax is
/// checked.
const SOLE_KERNEL_TIME_LIMIT: TimeLimit = TimeLimit {
    cpu: Duration::from_secs(4),
    ..COMPILE_TIME_LIMIT
};
/// Maximum number of optimiser runs to inline remaining calls.
const MAX_INLINE_ROUNDS: usize = 3;
/// Size of the IR text in bytes above which compile time matters more than the last few percent of speed.
const LARGE_IR_BYTES: usize = 1 << 20;

impl KernelCompiler {
    /// Step 1: runs the preprocessor with the macro-only stubs.
    pub(super) fn expand(
        &self,
        source: &str,
        file: &str,
        options: &CompileOptions,
    ) -> Result<String> {
        let output = self.preprocess(source, file, options, &flags("quiet"))?;
        if !output.success {
            let columns = ColumnMap::default();
            let mut source_map = SourceMap::new(file, source, "", &columns);
            return Err(explain(&output, &self.headers()?, options, &mut source_map));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs the preprocessor with the given warning options.
    pub(super) fn preprocess(
        &self,
        source: &str,
        file: &str,
        options: &CompileOptions,
        warnings: &[String],
    ) -> Result<Output> {
        let compiler = toolchain::find(self.clang.as_deref())?;
        let headers = self.headers()?;
        let mut arguments = flags("preprocess");
        arguments.extend_from_slice(warnings);
        arguments.extend(math_defines(options.math_mode));
        arguments.push(format!("-D__METAL_VERSION__={}", self.language.number()));
        arguments.extend(["-fno-caret-diagnostics", "-fno-color-diagnostics"].map(str::to_owned));
        for (name, value) in &options.defines {
            arguments.push(format!("-D{name}={value}"));
        }
        if let Some(parent) = Path::new(file).parent()
            && Path::new(file).is_file()
        {
            arguments.push(format!("-iquote{}", absolute(parent).display()));
        }
        for dir in &options.include_dirs {
            arguments.push(format!("-I{}", absolute(dir).display()));
        }
        for file in &options.include_files {
            arguments.push("-include".to_owned());
            arguments.push(absolute(file).display().to_string());
        }
        arguments.push(format!("-isystem{}", headers.join("stub").display()));
        arguments.push("-".to_owned());
        let name = file.replace('\\', "\\\\").replace('"', "\\\"");
        let name: String = name.chars().filter(|c| !c.is_control()).collect();
        let input = format!("#line 1 \"{name}\"\n{source}\n");
        let _permit = self.permits.take();
        compiler.run(&arguments, input.into_bytes())
    }

    /// Checks the whole library with clang's front end (step 3). If it has a single kernel, lowering that kernel is
    /// the check, and its IR is kept.
    pub(super) fn check(&self, program: &LibraryProgram) -> Result<()> {
        let translation = program.translation()?;
        let mut supported = program.reflection.kernels.iter();
        let mut supported = supported.by_ref().filter(|k| k.unsupported.is_none());
        if let (Some(kernel), None) = (supported.next(), supported.next()) {
            let start = Instant::now();
            match self.lower(program, &kernel.name, SOLE_KERNEL_TIME_LIMIT) {
                Ok(ir) => {
                    *program.ir() = Some(ir);
                    return Ok(());
                }
                // Errors of the kernel alone are reported when it is requested.
                Err(Error::Compile { .. }) => {}
                Err(error) if start.elapsed() < SOLE_KERNEL_TIME_LIMIT.cpu => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        self.check_text(program, translation.cpp.clone())
    }

    /// Fails if a text has errors: clang's own, or conversions that only Metal rejects.
    fn check_text(&self, program: &LibraryProgram, input: String) -> Result<()> {
        let mut arguments = flags("quiet");
        arguments.extend(["-fsyntax-only", "-Xclang", "-ast-dump"].map(str::to_owned));
        let output = self.run_frontend(program, &arguments, input)?;
        if !output.success {
            return Err(self.explain(program, &output));
        }
        let found = self.conversions(program, &output)?;
        if found.is_empty() {
            return Ok(());
        }
        Err(compile_error(&program.options, found))
    }

    /// Finds conversions between address spaces that clang accepts and Metal rejects, in the AST dump.
    pub(super) fn conversions(
        &self,
        program: &LibraryProgram,
        output: &Output,
    ) -> Result<Vec<Diagnostic>> {
        let headers = self.lock_headers().directory.clone().unwrap_or_default();
        let is_hidden = |file: &str| file != program.file && diagnose::is_hidden(file, &[&headers]);
        let found = conversion::find(&String::from_utf8_lossy(&output.stdout), is_hidden);
        let columns = &program.translation()?.columns;
        let mut source_map = program.source_map(columns);
        Ok(found
            .into_iter()
            .take(diagnose::MAX_ERRORS)
            .map(|c| source_map.error_at(&c.file, c.line, c.column, &c.message))
            .collect())
    }

    /// Step 3: lowers the whole text to the LLVM IR of a kernel.
    fn lower(&self, program: &LibraryProgram, name: &str, limit: TimeLimit) -> Result<String> {
        let translation = program.translation()?;
        let glue = translation
            .glue(name)
            .ok_or_else(|| Error::UnknownFunction {
                library: program.options.label.clone(),
                name: name.to_owned(),
                available: Vec::new(),
            })?;
        let mut arguments = flags("quiet");
        arguments.extend(["-S", "-emit-llvm", "-o", "-"].map(str::to_owned));
        if self.mode == Mode::Check {
            arguments.extend(flags("check-raw"));
        }
        let input = format!("{}\n{glue}", translation.cpp);
        if translation.may_convert {
            self.check_text(program, input.clone())?;
        }
        let output = self.run_frontend_within(program, &arguments, input, limit)?;
        if !output.success {
            return Err(self.explain(program, &output));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if self.mode == Mode::Check {
            return self.instrument(program, name, &text);
        }
        Ok(text)
    }

    /// Instruments the unoptimised IR of a kernel, and optimises it.
    fn instrument(&self, program: &LibraryProgram, name: &str, text: &str) -> Result<String> {
        let headers = self.headers()?.display().to_string();
        let text =
            ir::sanitize(text, &headers).map_err(|error| split_error(name, &error.to_string()))?;
        let mut arguments = self.frontend_flags(program.options.math_mode);
        arguments.extend(["-S", "-emit-llvm", "-o", "-", "-x", "ir", "-"].map(str::to_owned));
        let output = self.run_backend(&arguments, text)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Steps 3 to 6.
    pub(super) fn build(&self, program: &LibraryProgram, name: &str) -> Result<CompiledKernel> {
        let translation = program.translation()?;
        let known = program.ir().take();
        let text = known.map_or_else(|| self.lower(program, name, COMPILE_TIME_LIMIT), Ok)?;
        let (text, arguments) = used_arguments(&text);
        let (text, mut plan) = self.split(text, program, name)?;
        let constants = used_constants(&text, &program.reflection);
        let image = self.link(&text)?;
        let mut source_map = program.source_map(&translation.columns);
        let headers = self.headers()?.display().to_string();
        for location in &mut plan.locations {
            if let Some(rest) = location.file.strip_prefix(&headers) {
                // Another process may read the cache with the headers in another directory.
                location.file = format!("{HEADER_PREFIX}{rest}");
            } else {
                location.column = source_map.column(&location.file, location.line, location.column);
            }
        }
        Ok(CompiledKernel {
            image,
            plan,
            variables: translation
                .variables
                .iter()
                .map(|variable| (variable.id, variable.name.clone()))
                .collect(),
            constants,
            arguments,
        })
    }

    /// Runs clang's front end with the precompiled headers, which are rebuilt if they are corrupt. `options`
    /// includes the warning options.
    pub(super) fn run_frontend(
        &self,
        program: &LibraryProgram,
        options: &[String],
        input: String,
    ) -> Result<Output> {
        self.run_frontend_within(program, options, input, COMPILE_TIME_LIMIT)
    }

    fn run_frontend_within(
        &self,
        program: &LibraryProgram,
        options: &[String],
        input: String,
        limit: TimeLimit,
    ) -> Result<Output> {
        let compiler = toolchain::find(self.clang.as_deref())?;
        for attempt in 0.. {
            let mut arguments = self.frontend_flags(program.options.math_mode);
            let precompiled = self.precompiled(&compiler, &arguments)?;
            arguments.extend(
                [
                    "-fno-caret-diagnostics",
                    "-fno-color-diagnostics",
                    "-fno-elide-type",
                    // An error deep in the headers needs the user's line among its notes.
                    "-ftemplate-backtrace-limit=0",
                    "-fconstexpr-backtrace-limit=0",
                    "-include-pch",
                ]
                .map(str::to_owned),
            );
            arguments.push(precompiled.display().to_string());
            arguments.push(format!("-ferror-limit={}", diagnose::MAX_ERRORS));
            arguments.extend_from_slice(options);
            arguments.extend(["-x", "c++", "-"].map(str::to_owned));
            let output = {
                let _permit = self.permits.take();
                compiler.run_within(&arguments, input.clone().into_bytes(), limit)?
            };
            let is_corrupt = !output.success
                && output.stderr.contains(&precompiled.display().to_string())
                && diagnose::is_about_precompiled_header(&output.stderr);
            if !is_corrupt || attempt > 0 {
                return Ok(output);
            }
            let _ = std::fs::remove_file(&precompiled);
            *self.lock_headers() = Headers::default();
        }
        unreachable!("the loop returns in its second iteration")
    }

    pub(super) fn frontend_flags(&self, math: MathMode) -> Vec<String> {
        let mut arguments = flags("common");
        arguments.extend(flags(self.variant()));
        if math == MathMode::Safe {
            arguments.extend(flags("safe-math"));
        }
        arguments.push(self.march());
        arguments
    }

    /// Returns the option for the instruction set.
    fn march(&self) -> String {
        format!("-march={}", self.instruction_set)
    }

    /// Step 4: splits the kernel at its barriers, after another inlining round if calls remain.
    fn split(
        &self,
        mut text: String,
        program: &LibraryProgram,
        name: &str,
    ) -> Result<(String, KernelPlan)> {
        let options = ir::Options {
            check: self.mode == Mode::Check,
        };
        for _ in 0..MAX_INLINE_ROUNDS {
            match ir::fission(&text, &options) {
                Ok(ir::Outcome::Done { text, plan }) => return Ok((text, plan)),
                Ok(ir::Outcome::Inline { text: marked }) => text = self.inline(marked)?,
                Err(ir::FissionError::NotInlined { function }) => {
                    return Err(program.recursion_error(name, &function));
                }
                Err(error) => return Err(split_error(name, &error.to_string())),
            }
        }
        Err(split_error(name, "calls remain that cannot be inlined"))
    }

    pub(super) fn inline(&self, text: String) -> Result<String> {
        let arguments: Vec<String> = [
            "-x",
            "ir",
            "-O1",
            "-fno-vectorize",
            "-fno-slp-vectorize",
            "-fno-unroll-loops",
            "-Wno-everything",
            "-S",
            "-emit-llvm",
            "-o",
            "-",
            "-",
        ]
        .map(str::to_owned)
        .into();
        let output = self.run_backend(&arguments, text)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Steps 5 and 6.
    pub(super) fn link(&self, text: &str) -> Result<Vec<u8>> {
        let mut outcome = Err(Error::Toolchain {
            message: "no directory for the compiler's files can be written".to_owned(),
        });
        // If the first directory is full, the next one may not be.
        for scratch in self.cache.scratch_dirs() {
            let target = scratch.path().join("image.so");
            let mut arguments = flags(match self.mode {
                Mode::Check => "backend-check",
                _ => "backend",
            });
            arguments.push(self.march());
            if !self.optimize {
                arguments.extend(flags("quick"));
            }
            // Disables post-RA scheduling. Processors reorder instructions themselves, so little should be lost
            // (not measured), and in the long basic blocks of unrolled kernels it takes a third of the time
            // (attention with 325 KB of code: 11.3 s, 7.9 s without).
            arguments.extend(["-mllvm", "-disable-post-ra"].map(str::to_owned));
            if text.len() > LARGE_IR_BYTES {
                // Disables pre-RA scheduling. Costs 8 % in size under register pressure, and saves another third.
                arguments.extend(["-mllvm", "-enable-misched=false"].map(str::to_owned));
            }
            arguments.push("-".to_owned());
            arguments.extend(["-x", "none"].map(str::to_owned));
            arguments.extend(flags("link"));
            arguments.push("-o".to_owned());
            arguments.push(target.display().to_string());
            outcome = self.run_backend(&arguments, text.to_owned()).and_then(|_| {
                std::fs::read(&target).map_err(|error| Error::Toolchain {
                    message: format!("the linked image cannot be read: {error}"),
                })
            });
            match &outcome {
                Err(Error::Toolchain { message }) if message.contains("No space left") => {}
                _ => break,
            }
        }
        outcome
    }

    /// Runs clang on generated IR; an error is a bug of the software device, not of the user's code.
    pub(super) fn run_backend(&self, arguments: &[String], text: String) -> Result<Output> {
        let compiler = toolchain::find(self.clang.as_deref())?;
        let output = {
            let _permit = self.permits.take();
            compiler.run(arguments, text.into_bytes())?
        };
        if output.success {
            return Ok(output);
        }
        Err(Error::Toolchain {
            message: format!(
                "`{}` rejected the IR of a valid kernel{}",
                compiler.path.display(),
                tail(&output.stderr)
            ),
        })
    }

    fn explain(&self, program: &LibraryProgram, output: &Output) -> Error {
        let diagnostics = self.diagnostics(program, output);
        failure(output, &program.options, diagnostics)
    }

    /// Parses clang's diagnostics about the rewritten program.
    pub(super) fn diagnostics(&self, program: &LibraryProgram, output: &Output) -> Vec<Diagnostic> {
        let headers = self.lock_headers().directory.clone().unwrap_or_default();
        let columns = ColumnMap::default();
        let columns = program
            .translation
            .get()
            .map_or(&columns, |translation| &translation.columns);
        diagnose::read(
            &output.stderr,
            &[&headers],
            &mut program.source_map(columns),
        )
    }
}

/// Converts a failed run to an error: clang's diagnostics, or clang's own failure if there are none.
fn explain(
    output: &Output,
    headers: &Path,
    options: &CompileOptions,
    source_map: &mut SourceMap<'_>,
) -> Error {
    let diagnostics = diagnose::read(&output.stderr, &[headers], source_map);
    failure(output, options, diagnostics)
}

/// Builds the error of a failed run.
pub(super) fn failure(
    output: &Output,
    options: &CompileOptions,
    diagnostics: Vec<Diagnostic>,
) -> Error {
    if diagnostics.iter().all(|d| d.severity != Severity::Error) {
        return Error::Toolchain {
            message: format!("clang failed without a diagnostic{}", tail(&output.stderr)),
        };
    }
    compile_error(options, diagnostics)
}

fn split_error(kernel: &str, why: &str) -> Error {
    Error::Toolchain {
        message: format!("kernel `{kernel}` cannot be split at its barriers: {why}"),
    }
}

fn absolute(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
