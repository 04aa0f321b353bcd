//! From MSL to an image.
//!
//! A library costs one preprocessing, one rewrite and one syntax check of the whole text, so that errors in
//! ordinary functions are reported when it is made, as Metal does. A kernel costs two runs of clang with the IR
//! pass between them; the first of them is the check where a library has one kernel only. Results of both are kept
//! in the cache: a warm start runs no process at all.

mod conversion;
mod flag;
mod header;
mod lint;
mod share;
mod step;

pub(crate) use share::Kernels;

use super::cache::{Cache, Key, hex};
use super::diagnose::{self, Places};
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
use flag::{is_self_contained, shim_digest};
use header::Headers;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use share::Permits;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Changes whenever images made by other versions must not be used.
const FORMAT: &str = concat!(env!("CARGO_PKG_VERSION"), "/", env!("BESSEMER_CODEGEN"));
/// What a library without a label is called in diagnostics, as Metal calls it.
const UNNAMED: &str = "program_source";
/// What the names of header files begin with in plans.
pub(crate) const HEADER: &str = "<metal>";

/// Everything that compiling needs.
#[derive(Debug)]
pub(crate) struct Engine {
    mode: Mode,
    seed: u64,
    optimize: bool,
    instruction_set: InstructionSet,
    language: LanguageVersion,
    clang: Option<PathBuf>,
    cache: Cache,
    permits: Permits,
    headers: Mutex<Headers>,
    /// Where kernels are looked into in isolated mode, and how long that may take.
    isolation: Option<(Isolation, Duration)>,
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
    language: LanguageVersion,
    translation: OnceLock<Translation>,
    /// What the preprocessor warns of, once it was asked.
    preprocessor_warnings: OnceLock<Vec<Diagnostic>>,
    /// LLVM IR of the only kernel, from when the library was checked until it is compiled.
    ir: Mutex<Option<String>>,
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
    /// Arguments that its code uses, one bit each: buffers by index, threadgroup memory by index + 31.
    pub(crate) arguments: u64,
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
    arguments: u64,
}

impl Engine {
    /// # Errors
    /// The system has no memory to share with other processes, in isolated mode.
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

    /// Threads that a threadgroup of a kernel may have, if its source does not say. On a GPU that depends on the registers
    /// that it needs, and on the chip; in fuzz mode it is by chance what real pipelines report.
    pub(crate) fn most_threads(&self, kernel: &str, limits: &Limits) -> usize {
        const SEEN: [usize; 9] = [384, 448, 512, 576, 640, 768, 832, 896, 1024];
        let most = limits.max_total_threads_per_threadgroup;
        if self.mode != Mode::Fuzz {
            return most;
        }
        let bytes = kernel.bytes().map(u64::from);
        let chance = bytes.fold(scatter(self.seed), |sum, byte| scatter(sum ^ byte));
        most.min(SEEN[(chance % SEEN.len() as u64) as usize])
    }

    /// Whether kernels are compiled for check mode.
    pub(crate) fn checks(&self) -> bool {
        self.mode == Mode::Check
    }

    /// Where to look into kernels, when not in this process.
    pub(crate) fn isolation(&self) -> Option<(&Isolation, Duration)> {
        let (isolation, limit) = self.isolation.as_ref()?;
        Some((isolation, *limit))
    }

    /// Reads and checks a library.
    pub(crate) fn library(&self, source: &str, options: &CompileOptions) -> Result<Program> {
        let file = match options.label.as_str() {
            "" => UNNAMED,
            label => label,
        };
        let text = (options.include_files.is_empty() && is_self_contained(source))
            .then(|| self.library_key("lib", source, options));
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
        let translation =
            msl::translate_as(&expanded, file, self.language).map_err(|diagnostics| {
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
            language: self.language,
            translation: OnceLock::from(translation),
            preprocessor_warnings: OnceLock::new(),
            ir: Mutex::default(),
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
                self.instruction_set.name().as_bytes(),
                self.wish().as_bytes(),
                self.flavour().as_bytes(),
                self.language.name().as_bytes(),
                &[u8::from(self.optimize)],
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
            arguments: compiled.arguments,
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
            language: self.language,
            translation: OnceLock::new(),
            preprocessor_warnings: OnceLock::new(),
            ir: Mutex::default(),
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
            arguments: entry.arguments,
        })
    }

    fn library_key(&self, kind: &str, text: &str, options: &CompileOptions) -> Key {
        let mut parts: Vec<Vec<u8>> = vec![
            FORMAT.into(),
            shim_digest().into(),
            self.wish().into(),
            self.flavour().into(),
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
}

impl Program {
    /// What to say of a kernel that calls a recursive function in which threads wait for each other.
    fn recursive(&self, kernel: &str, symbol: &str) -> Error {
        let digits = symbol.trim_start_matches("_Z");
        let name = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let length = digits[..digits.len() - name.len()].parse().ok();
        let name = length
            .and_then(|length| name.get(..length))
            .unwrap_or(symbol);
        let place = self.reflection.kernel(kernel);
        let diagnostic = Diagnostic {
            severity: Severity::Error,
            kind: DiagnosticKind::Unsupported,
            message: format!(
                "kernel '{kernel}' calls '{name}', which calls itself and synchronises: such recursion is not supported by \
                 the software device"
            ),
            file: place.map_or(&*self.file, |k| &k.file).to_owned(),
            line: place.map_or(0, |k| k.line),
            column: 1,
            flag: None,
            source_line: None,
        };
        compile_error(&self.options, vec![diagnostic])
    }

    /// Refuses kernels that need what the device does not have.
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
        let found = diagnose::align(found, &mut self.places(&columns));
        Err(compile_error(&self.options, found))
    }

    /// Step 2. Libraries from the cache take it when a kernel of theirs is compiled.
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

fn compile_error(options: &CompileOptions, diagnostics: Vec<Diagnostic>) -> Error {
    Error::Compile {
        library: options.label.clone(),
        diagnostics,
    }
}
