//! The compile pipeline, from MSL to an image.
//!
//! A library costs one preprocessor run, one rewrite and one syntax check of the whole text, so that errors in
//! ordinary functions are reported when the library is created, as in Metal. A kernel costs two more runs of clang
//! with the IR pass between them; if a library has a single kernel, the first of these runs is also the syntax
//! check. The results of both are cached: a warm start spawns no process.

mod conversion;
mod flag;
mod header;
mod lint;
mod share;
mod step;

pub(crate) use share::CompiledKernels;

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::flag::{is_self_contained, shim_digest};
use self::header::Headers;
use self::share::Permits;
use super::cache::{Cache, Key, hex};
use super::diagnose::{self, SourceMap};
use super::plan::KernelPlan;
use super::runtime::Isolation;
use super::runtime::fuzz::scatter;
use super::toolchain;
use super::{InstructionSet, Mode, SoftOptions};
use crate::error::{Error, Result};
use crate::info::Limits;
use crate::language::LanguageVersion;
use crate::library::CompileOptions;
use crate::msl::{self, ColumnMap, Diagnostic, DiagnosticKind, Reflection, Severity, Translation};

/// Identifies the code generator; images of other versions are not used.
const CODEGEN_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "/", env!("SOFT_CODEGEN"));
/// File name in diagnostics of a library without a label, as in Metal.
const UNNAMED_FILE: &str = "program_source";
/// Prefix of the shim's header files in plans.
pub(crate) const HEADER_PREFIX: &str = "<metal>";

/// Compiles libraries and kernels, with the device's options and its cache.
#[derive(Debug)]
pub(crate) struct KernelCompiler {
    mode: Mode,
    seed: u64,
    optimize: bool,
    instruction_set: InstructionSet,
    language: LanguageVersion,
    clang: Option<PathBuf>,
    cache: Cache,
    permits: Permits,
    headers: Mutex<Headers>,
    /// Forks the processes that inspect kernels in isolated mode, with their time limit.
    isolation: Option<(Isolation, Duration)>,
}

/// A library that was checked, or loaded from the cache.
#[derive(Debug)]
pub(crate) struct LibraryProgram {
    /// The file name in diagnostics.
    pub(crate) file: String,
    source: String,
    expanded: String,
    digest: String,
    pub(crate) reflection: Reflection,
    options: CompileOptions,
    language: LanguageVersion,
    translation: OnceLock<Translation>,
    /// Warnings of the preprocessor, once it was run for them.
    preprocessor_warnings: OnceLock<Vec<Diagnostic>>,
    /// LLVM IR of a sole kernel, kept from the library's check until the kernel is compiled.
    ir: Mutex<Option<String>>,
}

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct CompiledKernel {
    /// The shared object.
    pub(crate) image: Vec<u8>,
    pub(crate) plan: KernelPlan,
    /// Names of the threadgroup variables, by their ids in the plan.
    pub(crate) variables: Vec<(u32, String)>,
    /// Indices of the function constants that the kernel's code reads.
    pub(crate) constants: Vec<u32>,
    /// Bit set of the arguments that the code uses: buffers by index, threadgroup memory by index + 31.
    pub(crate) arguments: u64,
}

impl CompiledKernel {
    /// Bytes of threadgroup memory that the kernel declares, without the red zones of check mode.
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
    arguments: u64,
}

impl KernelCompiler {
    /// # Errors
    /// Shared memory cannot be allocated, in isolated mode.
    pub(crate) fn new(options: &SoftOptions) -> io::Result<Self> {
        let isolated = options.mode == Mode::Isolated;
        Ok(Self {
            isolation: isolated
                .then(Isolation::new)
                .transpose()?
                .map(|isolation| (isolation, options.timeout)),
            mode: options.mode,
            seed: options.seed,
            optimize: options.optimize && matches!(options.mode, Mode::Fast | Mode::Isolated),
            instruction_set: options.instruction_set,
            language: options.language,
            clang: options.clang.clone(),
            cache: Cache::new(options.cache_dir.clone(), options.cache_limit),
            permits: Permits::new(std::thread::available_parallelism().map_or(1, usize::from)),
            headers: Mutex::default(),
        })
    }

    /// Maximum threads per threadgroup of a kernel whose source does not limit it. On a GPU that depends on the
    /// chip and on the kernel's register pressure; in fuzz mode it is a random value among those that real
    /// pipelines report.
    pub(crate) fn max_threads(&self, kernel: &str, limits: &Limits) -> usize {
        const OBSERVED_MAX_THREADS: [usize; 9] = [384, 448, 512, 576, 640, 768, 832, 896, 1024];
        let max = limits.max_total_threads_per_threadgroup;
        if self.mode != Mode::Fuzz {
            return max;
        }
        let bytes = kernel.bytes().map(u64::from);
        let random = bytes.fold(scatter(self.seed), |sum, byte| scatter(sum ^ byte));
        max.min(OBSERVED_MAX_THREADS[(random % OBSERVED_MAX_THREADS.len() as u64) as usize])
    }

    /// Returns whether kernels are instrumented for check mode.
    pub(crate) fn checks(&self) -> bool {
        self.mode == Mode::Check
    }

    /// The isolation to inspect kernels with, if not in this process.
    pub(crate) fn isolation(&self) -> Option<(&Isolation, Duration)> {
        let (isolation, limit) = self.isolation.as_ref()?;
        Some((isolation, *limit))
    }

    /// Reads and checks a library, or loads it from the cache.
    pub(crate) fn library(&self, source: &str, options: &CompileOptions) -> Result<LibraryProgram> {
        let file = match options.label.as_str() {
            "" => UNNAMED_FILE,
            label => label,
        };
        let source_key = (options.include_files.is_empty() && is_self_contained(source))
            .then(|| self.library_key("lib", source, options));
        if let Some(key) = &source_key
            && let Some(program) = self.cached_library(key, source, file, options)
        {
            event!(DEBUG, "library loaded from the cache");
            return Ok(program);
        }
        let expanded = self.expand(source, file, options)?;
        let key = source_key.unwrap_or_else(|| self.library_key("lib", &expanded, options));
        if let Some(program) = self.cached_library(&key, source, file, options) {
            event!(DEBUG, "library loaded from the cache");
            return Ok(program);
        }
        event!(DEBUG, "library is not in the cache");
        let translation =
            msl::translate_as(&expanded, file, self.language).map_err(|diagnostics| {
                let columns = ColumnMap::default();
                let mut source_map = SourceMap::new(file, source, &expanded, &columns);
                compile_error(options, diagnose::align(diagnostics, &mut source_map))
            })?;
        let program = LibraryProgram {
            file: file.to_owned(),
            source: source.to_owned(),
            digest: hex(&Sha256::digest(&expanded)),
            expanded,
            reflection: translation.reflection.clone(),
            options: options.clone(),
            language: self.language,
            translation: OnceLock::from(translation),
            preprocessor_warnings: OnceLock::new(),
            ir: Mutex::default(),
        };
        self.check(&program)?;
        self.store_library(&key, &program);
        Ok(program)
    }

    /// Compiles a kernel of the reflection, or loads it from the cache.
    pub(crate) fn kernel(&self, program: &LibraryProgram, name: &str) -> Result<CompiledKernel> {
        let key = Key::new(
            "kernel",
            [
                CODEGEN_VERSION.as_bytes(),
                shim_digest().as_bytes(),
                self.instruction_set.name().as_bytes(),
                self.requested_compiler().as_bytes(),
                self.variant().as_bytes(),
                self.language.name().as_bytes(),
                &[u8::from(self.optimize)],
                format!("{:?}", program.options.math_mode).as_bytes(),
                program.file.as_bytes(),
                program.digest.as_bytes(),
                name.as_bytes(),
            ],
        );
        if let Some(compiled) = self.cached_kernel(&key) {
            event!(DEBUG, "kernel loaded from the cache");
            return Ok(compiled);
        }
        event!(DEBUG, "kernel is not in the cache");
        let compiled = self.build(program, name)?;
        let entry = KernelEntry {
            compiler: self.fingerprint(),
            plan: compiled.plan.clone(),
            variables: compiled.variables.clone(),
            constants: compiled.constants.clone(),
            arguments: compiled.arguments,
        };
        if let Ok(meta) = serde_json::to_vec(&entry) {
            self.cache.store(&key, &[&meta, &compiled.image]);
        }
        Ok(compiled)
    }

    fn cached_library(
        &self,
        key: &Key,
        source: &str,
        file: &str,
        options: &CompileOptions,
    ) -> Option<LibraryProgram> {
        let mut parts = self.cache.load(key)?.into_iter();
        let entry: LibraryEntry = serde_json::from_slice(&parts.next()?).ok()?;
        if !self.is_current(&entry.compiler) {
            return None;
        }
        let expanded = String::from_utf8(parts.next()?).ok()?;
        Some(LibraryProgram {
            file: file.to_owned(),
            source: source.to_owned(),
            digest: hex(&Sha256::digest(&expanded)),
            expanded,
            reflection: entry.reflection,
            options: options.clone(),
            language: self.language,
            translation: OnceLock::new(),
            preprocessor_warnings: OnceLock::new(),
            ir: Mutex::default(),
        })
    }

    fn store_library(&self, key: &Key, program: &LibraryProgram) {
        let entry = LibraryEntry {
            compiler: self.fingerprint(),
            reflection: program.reflection.clone(),
        };
        if let Ok(meta) = serde_json::to_vec(&entry) {
            self.cache.store(key, &[&meta, program.expanded.as_bytes()]);
        }
    }

    fn cached_kernel(&self, key: &Key) -> Option<CompiledKernel> {
        let mut parts = self.cache.load(key)?.into_iter();
        let entry: KernelEntry = serde_json::from_slice(&parts.next()?).ok()?;
        if !self.is_current(&entry.compiler) {
            return None;
        }
        Some(CompiledKernel {
            image: parts.next()?,
            plan: entry.plan,
            variables: entry.variables,
            constants: entry.constants,
            arguments: entry.arguments,
        })
    }

    fn library_key(&self, kind: &str, text: &str, options: &CompileOptions) -> Key {
        let mut parts: Vec<Vec<u8>> = vec![
            CODEGEN_VERSION.into(),
            shim_digest().into(),
            self.requested_compiler().into(),
            self.variant().into(),
            self.language.name().into(),
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

    /// Path of the compiler that the options name; its identity is compared when an entry is read, see
    /// [`KernelCompiler::is_current`].
    fn requested_compiler(&self) -> String {
        self.clang
            .as_ref()
            .map_or(String::new(), |path| path.display().to_string())
    }

    fn fingerprint(&self) -> String {
        toolchain::fingerprint(self.clang.as_deref())
    }

    /// Returns whether an entry was made by the installed compiler. If none is installed any more, every entry is
    /// valid: images need no compiler to run.
    fn is_current(&self, compiler: &str) -> bool {
        let now = self.fingerprint();
        now.is_empty() || now == compiler
    }

    /// Name of the code variant that the mode needs, which is also a section of the flags.
    fn variant(&self) -> &'static str {
        match self.mode {
            Mode::Fast | Mode::Isolated => "fast",
            Mode::Check => "check",
            Mode::Fuzz => "fuzz",
        }
    }
}

impl LibraryProgram {
    /// The error for a kernel that calls a recursive function containing a synchronisation.
    fn recursion_error(&self, kernel: &str, symbol: &str) -> Error {
        let digits = symbol.trim_start_matches("_Z");
        let name = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let length = digits[..digits.len() - name.len()].parse().ok();
        let name = length
            .and_then(|length| name.get(..length))
            .unwrap_or(symbol);
        let location = self.reflection.kernel(kernel);
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            kind: DiagnosticKind::Unsupported,
            message: format!(
                "kernel '{kernel}' calls '{name}', which calls itself and synchronises: such recursion is not supported by \
                 the software device"
            ),
            file: location.map_or(&*self.file, |k| &k.file).to_owned(),
            line: location.map_or(0, |k| k.line),
            column: 1,
            flag: None,
            source_line: None,
        };
        compile_error(&self.options, vec![diagnostic])
    }

    /// Fails for kernels that use unsupported features.
    pub(super) fn check_supported(&self, names: &[&str]) -> Result<()> {
        let kernels = names.iter().filter_map(|name| self.reflection.kernel(name));
        let mut found: Vec<Diagnostic> = Vec::new();
        for diagnostic in kernels.filter_map(|kernel| kernel.unsupported.as_ref()) {
            if !found.contains(diagnostic) {
                found.push(diagnostic.clone());
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        let columns = ColumnMap::default();
        let found = diagnose::align(found, &mut self.source_map(&columns));
        Err(compile_error(&self.options, found))
    }

    /// Step 2 (translation to C++), run lazily for libraries from the cache.
    fn translation(&self) -> Result<&Translation> {
        if let Some(translation) = self.translation.get() {
            return Ok(translation);
        }
        let translation = msl::translate_as(&self.expanded, &self.file, self.language)
            .map_err(|diagnostics| compile_error(&self.options, diagnostics))?;
        Ok(self.translation.get_or_init(|| translation))
    }

    fn ir(&self) -> MutexGuard<'_, Option<String>> {
        self.ir.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the source calls `is_function_constant_defined(name)`.
    pub(crate) fn queries_constant(&self, name: &str) -> bool {
        const CALL: &str = "is_function_constant_defined";
        self.expanded.match_indices(CALL).any(|(at, _)| {
            let rest = self.expanded[at + CALL.len()..].trim_start();
            rest.strip_prefix('(')
                .map(str::trim_start)
                .and_then(|rest| rest.strip_prefix(name))
                .is_some_and(|rest| rest.trim_start().starts_with(')'))
        })
    }

    fn source_map<'a>(&'a self, columns: &'a ColumnMap) -> SourceMap<'a> {
        SourceMap::new(&self.file, &self.source, &self.expanded, columns)
    }
}

fn compile_error(options: &CompileOptions, diagnostics: Vec<Diagnostic>) -> Error {
    Error::Compile {
        library: options.label.clone(),
        diagnostics,
    }
}
