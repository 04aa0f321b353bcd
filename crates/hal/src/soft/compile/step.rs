//! The steps from MSL to an image, each a run of clang or of a pass of ours.

use super::flag::{flags, math_defines, used_arguments, used_constants};
use super::header::Headers;
use super::{Compiled, Engine, HEADER, Program, compile_error};
use crate::error::{Error, Result};
use crate::library::{CompileOptions, MathMode};
use crate::msl::ColumnMap;
use crate::soft::diagnose::{self, Places};
use crate::soft::plan::KernelPlan;
use crate::soft::toolchain::{self, LIMIT, Output, tail};
use crate::soft::{Mode, ir};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a library's only kernel may take to optimise while the library is read; after that its syntax is checked alone.
const ATTEMPT: Duration = Duration::from_secs(4);
/// How often a kernel is optimised again because calls were left in it.
const INLINE_ROUNDS: usize = 3;
/// Bytes of IR text from which on the time to compile counts more than the last few percent of speed.
const LARGE: usize = 1 << 20;

impl Engine {
    /// Step 1: the preprocessor, with nothing but macro-only headers in view.
    pub(super) fn expand(
        &self,
        source: &str,
        file: &str,
        options: &CompileOptions,
    ) -> Result<String> {
        let compiler = toolchain::find(self.clang.as_deref())?;
        let headers = self.headers()?;
        let mut arguments = flags("preprocess");
        arguments.extend(math_defines(options.math_mode));
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
        arguments.push(format!("-isystem{}", headers.join("stub").display()));
        arguments.push("-".to_owned());
        let name = file.replace('\\', "\\\\").replace('"', "\\\"");
        let name: String = name.chars().filter(|c| !c.is_control()).collect();
        let input = format!("#line 1 \"{name}\"\n{source}\n");
        let output = {
            let _permit = self.permits.take();
            compiler.run(&arguments, input.into_bytes())?
        };
        if !output.success {
            let columns = ColumnMap::default();
            let mut places = Places::new(file, source, "", &columns);
            return Err(explain(&output, &headers, options, &mut places));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Step 3 for the whole library, as far as saying whether it is correct. Where it has one kernel only, step 3 for
    /// that kernel says so too, and is done.
    pub(super) fn check(&self, program: &Program) -> Result<()> {
        let translation = program.translation()?;
        let mut supported = program.reflection.kernels.iter();
        let mut supported = supported.by_ref().filter(|k| k.unsupported.is_none());
        if let (Some(kernel), None) = (supported.next(), supported.next()) {
            let start = Instant::now();
            match self.lower(program, &kernel.name, ATTEMPT) {
                Ok(ir) => {
                    *program.ir() = Some(ir);
                    return Ok(());
                }
                // What is wrong with the kernel alone is said when it is asked for.
                Err(Error::Compile { .. }) => {}
                Err(error) if start.elapsed() < ATTEMPT => return Err(error),
                Err(_) => {}
            }
        }
        let arguments = ["-fsyntax-only"].map(str::to_owned);
        let output = self.front(program, &arguments, translation.cpp.clone())?;
        if output.success {
            return Ok(());
        }
        Err(self.explain(program, &output))
    }

    /// Step 3 for many kernels in one run, as far as saying whether they are correct.
    pub(crate) fn check_kernels(&self, program: &Program, names: &[&str]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let translation = program.translation()?;
        let mut input = translation.cpp.clone();
        for (index, name) in names.iter().enumerate() {
            let kernel = program.reflection.kernel(name);
            let gates = 0..kernel.map_or(0, |k| k.arguments.len());
            let exports = [
                "sm_rt_table",
                "sm_kernel",
                "sm_arg_sizes",
                "sm_gate",
                "sm_entry",
            ]
            .map(str::to_owned);
            let exports = exports
                .into_iter()
                .chain(gates.map(|gate| format!("sm_gate_{gate}")));
            // An image has one of each; here every kernel gets its own.
            let exports: Vec<String> = exports.collect();
            for export in &exports {
                input += &format!("\n#define {export} {export}_of_{index}");
            }
            input += &translation.glue(name).unwrap_or_default();
            for export in &exports {
                input += &format!("\n#undef {export}");
            }
        }
        let arguments = ["-fsyntax-only", "-ferror-limit=200"].map(str::to_owned);
        let output = self.front(program, &arguments, input)?;
        if output.success {
            return Ok(());
        }
        Err(self.explain(program, &output))
    }

    /// Step 3: from the whole text to the LLVM IR of a kernel.
    fn lower(&self, program: &Program, name: &str, limit: Duration) -> Result<String> {
        let translation = program.translation()?;
        let glue = translation
            .glue(name)
            .ok_or_else(|| Error::UnknownFunction {
                library: program.options.label.clone(),
                name: name.to_owned(),
                available: Vec::new(),
            })?;
        let arguments = ["-S", "-emit-llvm", "-o", "-"].map(str::to_owned);
        let input = format!("{}\n{glue}", translation.cpp);
        let output = self.front_within(program, &arguments, input, limit)?;
        if !output.success {
            return Err(self.explain(program, &output));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Steps 3 to 6.
    pub(super) fn build(&self, program: &Program, name: &str) -> Result<Compiled> {
        let translation = program.translation()?;
        let known = program.ir().take();
        let text = known.map_or_else(|| self.lower(program, name, LIMIT), Ok)?;
        let (text, arguments) = used_arguments(&text);
        let (text, mut plan) = self.split(text, program, name)?;
        let constants = used_constants(&text, &program.reflection);
        let image = self.link(&text)?;
        let mut places = program.places(&translation.columns);
        let headers = self.headers()?.display().to_string();
        for location in &mut plan.locations {
            if let Some(rest) = location.file.strip_prefix(&headers) {
                // The cache may be read where the headers are elsewhere.
                location.file = format!("{HEADER}{rest}");
            } else {
                location.column = places.column(&location.file, location.line, location.column);
            }
        }
        Ok(Compiled {
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

    /// Runs clang's front end with the precompiled headers, which are made again if they were damaged.
    pub(super) fn front(
        &self,
        program: &Program,
        wanted: &[String],
        input: String,
    ) -> Result<Output> {
        self.front_within(program, wanted, input, LIMIT)
    }

    fn front_within(
        &self,
        program: &Program,
        wanted: &[String],
        input: String,
        limit: Duration,
    ) -> Result<Output> {
        let compiler = toolchain::find(self.clang.as_deref())?;
        for attempt in 0.. {
            let mut arguments = self.front_flags(program.options.math_mode);
            let precompiled = self.precompiled(&compiler, &arguments)?;
            arguments.extend(
                [
                    "-fno-caret-diagnostics",
                    "-fno-color-diagnostics",
                    "-ferror-limit=20",
                    "-fno-elide-type",
                    "-include-pch",
                ]
                .map(str::to_owned),
            );
            arguments.push(precompiled.display().to_string());
            arguments.extend_from_slice(wanted);
            arguments.extend(["-x", "c++", "-"].map(str::to_owned));
            let output = {
                let _permit = self.permits.take();
                compiler.run_within(&arguments, input.clone().into_bytes(), limit)?
            };
            let damaged = !output.success
                && output.stderr.contains(&precompiled.display().to_string())
                && diagnose::about_precompiled(&output.stderr);
            if !damaged || attempt > 0 {
                return Ok(output);
            }
            let _ = std::fs::remove_file(&precompiled);
            *self.lock_headers() = Headers::default();
        }
        unreachable!("the loop returns in its second round")
    }

    pub(super) fn front_flags(&self, math: MathMode) -> Vec<String> {
        let mut arguments = flags("common");
        arguments.extend(flags(self.flavour()));
        if math == MathMode::Safe {
            arguments.extend(flags("safe-math"));
        }
        arguments.push(self.march());
        arguments
    }

    /// The option that names the instruction set.
    fn march(&self) -> String {
        format!("-march={}", self.instruction_set)
    }

    /// Step 4: barrier fission, with another round of inlining where calls were left.
    fn split(
        &self,
        mut text: String,
        program: &Program,
        name: &str,
    ) -> Result<(String, KernelPlan)> {
        let options = ir::Options {
            check: self.mode == Mode::Check,
        };
        for _ in 0..INLINE_ROUNDS {
            match ir::fission(&text, &options) {
                Ok(ir::Outcome::Done { text, plan }) => return Ok((text, plan)),
                Ok(ir::Outcome::Inline { text: more }) => text = self.inline(more)?,
                Err(ir::Error::NotInlined { function }) => {
                    return Err(program.recursive(name, &function));
                }
                Err(error) => return Err(broken(name, &error.to_string())),
            }
        }
        Err(broken(name, "calls remain that cannot be inlined"))
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
        let output = self.back(&arguments, text)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Steps 5 and 6.
    pub(super) fn link(&self, text: &str) -> Result<Vec<u8>> {
        let mut outcome = Err(Error::Toolchain {
            message: "no directory for the compiler's files can be written".to_owned(),
        });
        // Another place helps where the first is full, and costs nothing where it does not.
        for scratch in self.cache.scratches() {
            let target = scratch.path().join("image.so");
            let mut arguments = flags(match self.mode {
                Mode::Check => "backend-check",
                _ => "backend",
            });
            arguments.push(self.march());
            if !self.optimize {
                arguments.extend(flags("quick"));
            }
            // Processors reorder instructions themselves, so little should be lost (not measured), while in the long
            // blocks of unrolled kernels it takes a third of the time (attention in 325 KB of code: 11.3 s, 7.9 s without it).
            arguments.extend(["-mllvm", "-disable-post-ra"].map(str::to_owned));
            if text.len() > LARGE {
                // Costs 8 % in size where registers are short, and saves another third.
                arguments.extend(["-mllvm", "-enable-misched=false"].map(str::to_owned));
            }
            arguments.push("-".to_owned());
            arguments.extend(["-x", "none"].map(str::to_owned));
            arguments.extend(flags("link"));
            arguments.push("-o".to_owned());
            arguments.push(target.display().to_string());
            outcome = self.back(&arguments, text.to_owned()).and_then(|_| {
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

    /// Runs clang on IR, which is ours: whatever it says is no fault of the user's.
    pub(super) fn back(&self, arguments: &[String], text: String) -> Result<Output> {
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
                "`{}` refused code made from a correct kernel{}",
                compiler.path.display(),
                tail(&output.stderr)
            ),
        })
    }

    pub(super) fn explain(&self, program: &Program, output: &Output) -> Error {
        let headers = self.lock_headers().directory.clone().unwrap_or_default();
        let columns = ColumnMap::default();
        let columns = program
            .translation
            .get()
            .map_or(&columns, |translation| &translation.columns);
        explain(
            output,
            &headers,
            &program.options,
            &mut program.places(columns),
        )
    }
}

/// What clang found wrong with the program; if it says nothing about it, with itself.
fn explain(
    output: &Output,
    headers: &Path,
    options: &CompileOptions,
    places: &mut Places<'_>,
) -> Error {
    let diagnostics = diagnose::read(&output.stderr, &[headers], places);
    if diagnostics.is_empty() {
        return Error::Toolchain {
            message: format!("clang failed without a diagnostic{}", tail(&output.stderr)),
        };
    }
    compile_error(options, diagnostics)
}

fn broken(kernel: &str, why: &str) -> Error {
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
