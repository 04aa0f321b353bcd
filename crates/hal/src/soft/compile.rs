//! From MSL to an image.
//!
//! A library costs one preprocessing, one rewrite and one syntax check of the whole text, so that errors in
//! ordinary functions are reported when it is made, as Metal does. A kernel costs two runs of clang with the IR
//! pass between them. Results of both are kept in the cache: a warm start runs no process at all.

use super::cache::{Cache, Key, hex};
use super::diagnose::{self, Places};
use super::plan::KernelPlan;
use super::toolchain::{self, Compiler, Output, tail};
use super::{Mode, SoftOptions, ir, shim};
use crate::error::{Error, Result};
use crate::library::{CompileOptions, MathMode};
use crate::msl::{self, ColumnMap, Reflection, Translation};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

/// Changes whenever images made by other versions must not be used.
const FORMAT: &str = concat!(env!("CARGO_PKG_VERSION"), "/", env!("BESSEMER_CODEGEN"));
/// What a library without a label is called in diagnostics, as Metal calls it.
const UNNAMED: &str = "program_source";
/// The directory of the headers, below which nothing is the user's.
const SHIM: &str = "shim";
/// What the names of header files begin with in plans.
pub(crate) const HEADER: &str = "<metal>";
/// How often a kernel is optimised again because calls were left in it.
const INLINE_ROUNDS: usize = 3;

/// Everything that compiling needs.
#[derive(Debug)]
pub(crate) struct Engine {
    mode: Mode,
    clang: Option<PathBuf>,
    cache: Cache,
    permits: Permits,
    headers: Mutex<Headers>,
}

/// What is on disk of the headers.
#[derive(Debug, Default)]
struct Headers {
    directory: Option<PathBuf>,
    precompiled: HashMap<Vec<String>, PathBuf>,
}

/// A library that has been read, checked or found in the cache.
#[derive(Debug)]
pub(crate) struct Program {
    /// The file name in diagnostics.
    pub(crate) file: String,
    source: String,
    expanded: String,
    digest: String,
    pub(crate) reflection: Reflection,
    options: CompileOptions,
    translation: OnceLock<Translation>,
}

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct Compiled {
    /// The shared object.
    pub(crate) image: Vec<u8>,
    pub(crate) plan: KernelPlan,
    /// Names of threadgroup variables by the number the plan gives them.
    pub(crate) variables: Vec<(u32, String)>,
    /// Function constants that the kernel's code reads, by index.
    pub(crate) constants: Vec<u32>,
}

impl Compiled {
    /// Bytes of threadgroup memory that the kernel declares, without what check mode leaves between variables.
    pub(crate) fn threadgroup_memory(&self) -> usize {
        let variables = self.plan.variables.iter();
        variables
            .map(|variable| variable.size.next_multiple_of(16))
            .sum()
    }
}

#[derive(Serialize, Deserialize)]
struct LibraryEntry {
    compiler: String,
    reflection: Reflection,
}

#[derive(Serialize, Deserialize)]
struct KernelEntry {
    compiler: String,
    plan: KernelPlan,
    variables: Vec<(u32, String)>,
    constants: Vec<u32>,
}

impl Engine {
    pub(crate) fn new(options: &SoftOptions) -> Self {
        Self {
            mode: options.mode,
            clang: options.clang.clone(),
            cache: Cache::new(options.cache_dir.clone(), options.cache_limit),
            permits: Permits::new(std::thread::available_parallelism().map_or(1, usize::from)),
            headers: Mutex::default(),
        }
    }

    /// Reads and checks a library.
    pub(crate) fn library(&self, source: &str, options: &CompileOptions) -> Result<Program> {
        let file = match options.label.as_str() {
            "" => UNNAMED,
            label => label,
        };
        let text = is_self_contained(source).then(|| self.library_key("lib", source, options));
        if let Some(key) = &text
            && let Some(program) = self.known_library(key, source, file, options)
        {
            return Ok(program);
        }
        let expanded = self.expand(source, file, options)?;
        let key = text.unwrap_or_else(|| self.library_key("lib", &expanded, options));
        if let Some(program) = self.known_library(&key, source, file, options) {
            return Ok(program);
        }
        let translation = msl::translate(&expanded, file).map_err(|diagnostics| {
            let columns = ColumnMap::default();
            let mut places = Places::new(file, source, &expanded, &columns);
            compile_error(options, diagnose::align(diagnostics, &mut places))
        })?;
        let program = Program {
            file: file.to_owned(),
            source: source.to_owned(),
            digest: hex(&Sha256::digest(&expanded)),
            expanded,
            reflection: translation.reflection.clone(),
            options: options.clone(),
            translation: OnceLock::from(translation),
        };
        self.check(&program)?;
        self.store_library(&key, &program);
        Ok(program)
    }

    /// Compiles a kernel that the reflection lists.
    pub(crate) fn kernel(&self, program: &Program, name: &str) -> Result<Compiled> {
        let key = Key::new(
            "kernel",
            [
                FORMAT.as_bytes(),
                shim_digest().as_bytes(),
                processor().as_bytes(),
                self.wish().as_bytes(),
                self.flavour().as_bytes(),
                format!("{:?}", program.options.math_mode).as_bytes(),
                program.file.as_bytes(),
                program.digest.as_bytes(),
                name.as_bytes(),
            ],
        );
        if let Some(compiled) = self.known_kernel(&key) {
            return Ok(compiled);
        }
        let compiled = self.build(program, name)?;
        let entry = KernelEntry {
            compiler: self.fingerprint(),
            plan: compiled.plan.clone(),
            variables: compiled.variables.clone(),
            constants: compiled.constants.clone(),
        };
        if let Ok(meta) = serde_json::to_vec(&entry) {
            self.cache.store(&key, &[&meta, &compiled.image]);
        }
        Ok(compiled)
    }

    fn known_library(
        &self,
        key: &Key,
        source: &str,
        file: &str,
        options: &CompileOptions,
    ) -> Option<Program> {
        let mut parts = self.cache.load(key)?.into_iter();
        let entry: LibraryEntry = serde_json::from_slice(&parts.next()?).ok()?;
        if !self.is_current(&entry.compiler) {
            return None;
        }
        let expanded = String::from_utf8(parts.next()?).ok()?;
        Some(Program {
            file: file.to_owned(),
            source: source.to_owned(),
            digest: hex(&Sha256::digest(&expanded)),
            expanded,
            reflection: entry.reflection,
            options: options.clone(),
            translation: OnceLock::new(),
        })
    }

    fn store_library(&self, key: &Key, program: &Program) {
        let entry = LibraryEntry {
            compiler: self.fingerprint(),
            reflection: program.reflection.clone(),
        };
        if let Ok(meta) = serde_json::to_vec(&entry) {
            self.cache.store(key, &[&meta, program.expanded.as_bytes()]);
        }
    }

    fn known_kernel(&self, key: &Key) -> Option<Compiled> {
        let mut parts = self.cache.load(key)?.into_iter();
        let entry: KernelEntry = serde_json::from_slice(&parts.next()?).ok()?;
        if !self.is_current(&entry.compiler) {
            return None;
        }
        Some(Compiled {
            image: parts.next()?,
            plan: entry.plan,
            variables: entry.variables,
            constants: entry.constants,
        })
    }

    fn library_key(&self, kind: &str, text: &str, options: &CompileOptions) -> Key {
        let mut parts: Vec<Vec<u8>> = vec![
            FORMAT.into(),
            shim_digest().into(),
            self.wish().into(),
            self.flavour().into(),
            format!("{:?}", options.math_mode).into(),
            options.label.clone().into(),
            text.into(),
        ];
        for (name, value) in &options.defines {
            parts.push(name.clone().into());
            parts.push(value.clone().into());
        }
        Key::new(kind, parts.iter().map(Vec::as_slice))
    }

    /// The compiler asked for; its version is compared when an entry is read, see [`Engine::is_current`].
    fn wish(&self) -> String {
        self.clang
            .as_ref()
            .map_or(String::new(), |path| path.display().to_string())
    }

    fn fingerprint(&self) -> String {
        toolchain::fingerprint(self.clang.as_deref())
    }

    /// Whether an entry was made by the compiler that is installed now. Where none is installed any more, what is
    /// there is as good as it gets: images need no compiler.
    fn is_current(&self, compiler: &str) -> bool {
        let now = self.fingerprint();
        now.is_empty() || now == compiler
    }

    /// Which of the three ways of compiling the mode needs.
    fn flavour(&self) -> &'static str {
        match self.mode {
            Mode::Fast | Mode::Isolated => "fast",
            Mode::Check => "check",
            Mode::Fuzz => "fuzz",
        }
    }

    /// Step 1: the preprocessor, with nothing but macro-only headers in view.
    fn expand(&self, source: &str, file: &str, options: &CompileOptions) -> Result<String> {
        let compiler = toolchain::find(self.clang.as_deref())?;
        let headers = self.headers()?;
        let mut arguments = flags("preprocess");
        arguments.extend(math_flags(options.math_mode));
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

    /// Step 3 for the whole library, as far as saying whether it is correct.
    fn check(&self, program: &Program) -> Result<()> {
        let translation = program.translation()?;
        let arguments = ["-fsyntax-only"].map(str::to_owned);
        let output = self.front(program, &arguments, translation.cpp.clone())?;
        if output.success {
            return Ok(());
        }
        Err(self.explain(program, &output))
    }

    /// Steps 3 to 6.
    fn build(&self, program: &Program, name: &str) -> Result<Compiled> {
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
        let output = self.front(program, &arguments, input)?;
        if !output.success {
            return Err(self.explain(program, &output));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (text, mut plan) = self.split(text, name)?;
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
        })
    }

    /// Runs clang's front end with the precompiled headers, which are made again if they were damaged.
    fn front(&self, program: &Program, wanted: &[String], input: String) -> Result<Output> {
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
                compiler.run(&arguments, input.clone().into_bytes())?
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

    fn front_flags(&self, math: MathMode) -> Vec<String> {
        let mut arguments = flags("common");
        arguments.extend(flags(self.flavour()));
        if math == MathMode::Safe {
            arguments.extend(flags("safe-math"));
        }
        arguments.extend(math_flags(math));
        arguments
    }

    /// Step 4: barrier fission, with another round of inlining where calls were left.
    fn split(&self, mut text: String, name: &str) -> Result<(String, KernelPlan)> {
        let options = ir::Options {
            check: self.mode == Mode::Check,
        };
        for _ in 0..INLINE_ROUNDS {
            match ir::fission(&text, &options) {
                Ok(ir::Outcome::Done { text, plan }) => return Ok((text, plan)),
                Ok(ir::Outcome::Inline { text: more }) => text = self.inline(more)?,
                Err(error) => return Err(broken(name, &error.to_string())),
            }
        }
        Err(broken(name, "calls remain that cannot be inlined"))
    }

    fn inline(&self, text: String) -> Result<String> {
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
    fn link(&self, text: &str) -> Result<Vec<u8>> {
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
    fn back(&self, arguments: &[String], text: String) -> Result<Output> {
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

    fn lock_headers(&self) -> MutexGuard<'_, Headers> {
        self.headers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory with `include` and `stub`.
    fn headers(&self) -> Result<PathBuf> {
        self.place_headers(&mut self.lock_headers(), true)
    }

    fn place_headers(&self, headers: &mut Headers, in_cache: bool) -> Result<PathBuf> {
        if let Some(directory) = &headers.directory {
            return Ok(directory.clone());
        }
        let include = shim::HEADERS
            .iter()
            .map(|(path, text)| ("include", path, text));
        let stub = shim::STUBS.iter().map(|(path, text)| ("stub", path, text));
        let files: Vec<(String, &[u8])> = include
            .chain(stub)
            .map(|(dir, path, text)| (format!("{dir}/{path}"), text.as_bytes()))
            .collect();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        let name = format!("{SHIM}-{}", &shim_digest()[..16]);
        let directory = self
            .cache
            .directory(&name, &files, in_cache)
            .map_err(|error| Error::Toolchain {
                message: format!("Metal's headers cannot be written for the compiler: {error}"),
            })?;
        headers.directory = Some(directory.clone());
        Ok(directory)
    }

    /// The precompiled headers for these flags, made if they are not there: in the cache or, where it is full, in
    /// private.
    fn precompiled(&self, compiler: &Compiler, arguments: &[String]) -> Result<PathBuf> {
        // Held while clang runs: whoever else needs the headers would only do the same work.
        let mut headers = self.lock_headers();
        if let Some(path) = headers.precompiled.get(arguments)
            && path.is_file()
        {
            return Ok(path.clone());
        }
        let fingerprint = self.fingerprint();
        let parts = arguments.iter().map(String::as_bytes).chain([
            compiler.version.as_bytes(),
            fingerprint.as_bytes(),
            processor().as_bytes(),
        ]);
        let name = Key::new("pch", parts);
        let mut outcome = Ok(PathBuf::new());
        for in_cache in [true, false] {
            let directory = self.place_headers(&mut headers, in_cache)?;
            let path = directory.join(name.as_str());
            outcome = if path.is_file() {
                Ok(path)
            } else {
                self.precompile(compiler, arguments, &directory, &path)
                    .map(|()| path)
            };
            if let Ok(path) = &outcome {
                headers.precompiled.insert(arguments.to_vec(), path.clone());
                break;
            }
            *headers = Headers::default();
        }
        outcome
    }

    fn precompile(
        &self,
        compiler: &Compiler,
        arguments: &[String],
        directory: &Path,
        target: &Path,
    ) -> Result<()> {
        let temporary = directory.join(super::cache::unique());
        let mut all = arguments.to_vec();
        all.extend(["-Xclang", "-fno-pch-timestamp", "-x", "c++-header"].map(str::to_owned));
        all.push(directory.join("include/shim.h").display().to_string());
        all.push("-o".to_owned());
        all.push(temporary.display().to_string());
        let _permit = self.permits.take();
        let output = compiler.run(&all, Vec::new())?;
        if !output.success {
            let _ = std::fs::remove_file(&temporary);
            return Err(Error::Toolchain {
                message: format!(
                    "`{}` cannot precompile Metal's headers{}",
                    compiler.path.display(),
                    tail(&output.stderr)
                ),
            });
        }
        std::fs::rename(&temporary, target).map_err(|error| Error::Toolchain {
            message: format!("precompiled headers cannot be put in their place: {error}"),
        })
    }

    fn explain(&self, program: &Program, output: &Output) -> Error {
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

impl Program {
    /// Step 2. Libraries from the cache take it when a kernel of theirs is compiled.
    fn translation(&self) -> Result<&Translation> {
        if let Some(translation) = self.translation.get() {
            return Ok(translation);
        }
        let translation = msl::translate(&self.expanded, &self.file)
            .map_err(|diagnostics| compile_error(&self.options, diagnostics))?;
        Ok(self.translation.get_or_init(|| translation))
    }

    /// Whether the source calls `is_function_constant_defined(name)`.
    pub(crate) fn asks_whether_defined(&self, name: &str) -> bool {
        const CALL: &str = "is_function_constant_defined";
        self.expanded.match_indices(CALL).any(|(at, _)| {
            let rest = self.expanded[at + CALL.len()..].trim_start();
            rest.strip_prefix('(')
                .map(str::trim_start)
                .and_then(|rest| rest.strip_prefix(name))
                .is_some_and(|rest| rest.trim_start().starts_with(')'))
        })
    }

    fn places<'a>(&'a self, columns: &'a ColumnMap) -> Places<'a> {
        Places::new(&self.file, &self.source, &self.expanded, columns)
    }
}

fn compile_error(options: &CompileOptions, diagnostics: Vec<msl::Diagnostic>) -> Error {
    Error::Compile {
        library: options.label.clone(),
        diagnostics,
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

/// The options of one section of the shim's list.
fn flags(section: &str) -> Vec<String> {
    let header = format!("[{section}]");
    shim::FLAGS
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .skip_while(|line| *line != header)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .map(|flag| match flag {
            // The same wish under the name that clang knows there.
            "-march=native" if cfg!(target_arch = "aarch64") => "-mcpu=native".to_owned(),
            flag => flag.to_owned(),
        })
        .collect()
}

/// Floating-point rules.
///
/// Safe rounds every operation as written: no contraction to fused multiply-adds, so that results are the same on
/// every processor. Apple's compiler may contract within an expression in this mode; a test that holds for both
/// allows the last bit. Relaxed may reorder and contract, and keeps NaN and infinities. Fast assumes that there are none.
fn math_flags(math: MathMode) -> Vec<String> {
    let flags: &[&str] = match math {
        MathMode::Safe => &[],
        MathMode::Relaxed => &[
            "-fassociative-math",
            "-freciprocal-math",
            "-fno-signed-zeros",
            "-fno-trapping-math",
            "-ffp-contract=fast",
        ],
        MathMode::Fast => &["-ffast-math", "-ffp-contract=fast"],
    };
    flags.iter().map(|&flag| flag.to_owned()).collect()
}

fn absolute(path: &Path) -> PathBuf {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether the text includes nothing but Metal's own headers, so that it alone decides what it means.
fn is_self_contained(source: &str) -> bool {
    let joined;
    let text = if source.contains("\\\n") {
        joined = source.replace("\\\n", "");
        &joined
    } else {
        source
    };
    let known = |target: &str| {
        target
            .strip_prefix('<')
            .and_then(|rest| rest.split_once('>'))
            .is_some_and(|(name, _)| shim::STUBS.iter().any(|(stub, _)| *stub == name))
    };
    !text.contains("__has_include")
        && !text.contains("__has_embed")
        && text.lines().all(|line| {
            let Some(directive) = line.trim_start().strip_prefix('#') else {
                return true;
            };
            let directive = directive.trim_start();
            match ["include", "import", "embed"]
                .iter()
                .find_map(|word| directive.strip_prefix(word))
            {
                Some(target) => known(target.trim_start()),
                None => true,
            }
        })
}

/// Function constants that code outside the initialisers reads. Their names end up in the symbols of their
/// variables, `_ZL5scale` or `_ZN1aL5scaleE`.
fn used_constants(text: &str, reflection: &Reflection) -> Vec<u32> {
    let mut used = Vec::new();
    let mut inside = false;
    let suffixes: Vec<(u32, String)> = reflection
        .constants
        .iter()
        .map(|constant| {
            (
                constant.index,
                format!("L{}{}", constant.name.len(), constant.name),
            )
        })
        .collect();
    if suffixes.is_empty() {
        return used;
    }
    for line in text.lines() {
        if line.starts_with("define ") {
            inside = !line.contains("_GLOBAL__sub_I")
                && !line.contains("__cxx_global_var_init")
                && !line.contains("@sm_init")
                && !line.contains("@sm_gate");
        }
        if !inside || !line.contains("load") {
            continue;
        }
        for (index, suffix) in &suffixes {
            let found = line.match_indices(suffix.as_str()).any(|(at, _)| {
                let rest = &line[at + suffix.len()..];
                line[..at].contains("@_Z")
                    && !rest.starts_with(|c: char| c.is_alphanumeric() && c != 'E' || c == '_')
            });
            if found && !used.contains(index) {
                used.push(*index);
            }
        }
    }
    used.sort_unstable();
    used
}

/// A hash of headers, stubs and flags.
fn shim_digest() -> &'static str {
    static DIGEST: LazyLock<String> = LazyLock::new(|| {
        let mut hash = Sha256::new();
        for (path, text) in shim::HEADERS.iter().chain(shim::STUBS) {
            hash.update(path);
            hash.update([0]);
            hash.update(text);
            hash.update([0]);
        }
        hash.update(shim::FLAGS);
        hex(&hash.finalize())
    });
    &DIGEST
}

/// What `-march=native` means here.
fn processor() -> &'static str {
    static FEATURES: LazyLock<String> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let telling = [
            "model name",
            "flags",
            "Features",
            "CPU implementer",
            "CPU part",
        ];
        let mut lines: Vec<&str> = text
            .lines()
            .filter(|line| telling.iter().any(|key| line.starts_with(key)))
            .collect();
        lines.sort_unstable();
        lines.dedup();
        format!("{}\n{}", std::env::consts::ARCH, lines.join("\n"))
    });
    &FEATURES
}

/// As many compilers at a time as there are cores.
#[derive(Debug)]
struct Permits {
    free: Mutex<usize>,
    returned: Condvar,
}

struct Permit<'a>(&'a Permits);

impl Permits {
    fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            returned: Condvar::new(),
        }
    }

    fn take(&self) -> Permit<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self
                .returned
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}

/// Compiled kernels of one library, each compiled once however many threads ask.
#[derive(Debug, Default)]
pub(crate) struct Kernels {
    slots: Mutex<HashMap<String, Slot>>,
}

/// Locked while the kernel compiles.
type Slot = Arc<Mutex<Option<Arc<Compiled>>>>;

impl Kernels {
    /// The kernel, from memory or from `make`. A failure is not remembered.
    pub(crate) fn get(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Compiled>,
    ) -> Result<Arc<Compiled>> {
        let slot = self
            .slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(name.to_owned())
            .or_default()
            .clone();
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compiled) = &*slot {
            return Ok(compiled.clone());
        }
        let compiled = Arc::new(make()?);
        *slot = Some(compiled.clone());
        Ok(compiled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metals_own_headers_leave_a_text_self_contained() {
        for (text, expected) in [
            ("#include <metal_stdlib>\nusing namespace metal;", true),
            ("  #  include <metal_stdlib> // maths", true),
            ("// #include \"a.h\" is not a directive", true),
            ("#include \"a.h\"", false),
            ("#include <vector>", false),
            ("#include HEADER", false),
            ("#inc\\\nlude \"a.h\"", false),
            ("#if __has_include(\"a.h\")", false),
        ] {
            assert_eq!(is_self_contained(text), expected, "{text}");
        }
    }

    #[test]
    fn constants_are_used_where_code_loads_them() {
        let reflection = Reflection {
            constants: [("scale", 3), ("sca", 4), ("flag", 5), ("deep", 6)]
                .map(|(name, index)| msl::FunctionConstant {
                    name: name.to_owned(),
                    index,
                    type_name: "float".to_owned(),
                })
                .into(),
            ..Reflection::default()
        };
        let text = "define void @sm_region_0(ptr %g) {\n  %1 = load float, ptr @_ZL5scale, align 4\n  \
                    %2 = load float, ptr @_ZN1aL4deepE, align 4\n}\n\
                    define void @sm_init(ptr %t) {\n  %1 = load i8, ptr @_ZL4flag\n}\n";
        assert_eq!(used_constants(text, &reflection), [3, 6]);
    }
}
