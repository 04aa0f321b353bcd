//! Libraries of kernels, and the kernels in them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use half::f16;

use crate::device::DeviceShared;
use crate::driver;
use crate::error::{Error, Result};
use crate::msl::{Diagnostic, Reflection};
use crate::pipeline::{Argument, Pipeline};

/// Floating-point rules of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MathMode {
    /// IEEE semantics: NaN, infinities and signed zeros are honoured, nothing is reordered.
    #[default]
    Safe,
    /// Reordering is allowed; NaN and infinities are still honoured.
    Relaxed,
    /// All fast-maths assumptions, approximate functions.
    Fast,
}

/// Options for compiling MSL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct CompileOptions {
    /// Name of the library in errors and tools; a file's path makes errors point into the file.
    pub label: String,
    /// Floating-point rules.
    pub math_mode: MathMode,
    /// Preprocessor macros: a name, with its parameters if it is function-like (`F(x)`), and its value.
    pub defines: Vec<(String, String)>,
    /// Directories for `#include "…"`. Only supported by the software device: Metal compiles a single source string.
    pub include_dirs: Vec<PathBuf>,
    /// Files to include before the source, as clang's `-include`. Only supported by the software device.
    pub include_files: Vec<PathBuf>,
    /// Warnings that [`Library::lint`] enables, disables (`no-…`) or makes errors (`error`, `error=…`) in addition to
    /// clang's defaults, in the form that clang accepts after `-W`.
    pub warnings: Vec<String>,
}

impl CompileOptions {
    /// Default options with a label.
    pub fn labelled(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            ..Self::default()
        }
    }
}

/// The value of a function constant.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ConstantValue {
    /// `bool`
    Bool(bool),
    /// `char`
    I8(i8),
    /// `uchar`
    U8(u8),
    /// `short`
    I16(i16),
    /// `ushort`
    U16(u16),
    /// `int`
    I32(i32),
    /// `uint`
    U32(u32),
    /// `long`
    I64(i64),
    /// `ulong`
    U64(u64),
    /// `half`
    F16(f16),
    /// `float`
    F32(f32),
}

impl ConstantValue {
    /// The MSL type.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::I8(_) => "char",
            Self::U8(_) => "uchar",
            Self::I16(_) => "short",
            Self::U16(_) => "ushort",
            Self::I32(_) => "int",
            Self::U32(_) => "uint",
            Self::I64(_) => "long",
            Self::U64(_) => "ulong",
            Self::F16(_) => "half",
            Self::F32(_) => "float",
        }
    }

    /// The value's bytes, zero-extended.
    pub fn bits(self) -> u64 {
        match self {
            Self::Bool(v) => v.into(),
            Self::I8(v) => u64::from(v.cast_unsigned()),
            Self::U8(v) => v.into(),
            Self::I16(v) => u64::from(v.cast_unsigned()),
            Self::U16(v) => v.into(),
            Self::I32(v) => u64::from(v.cast_unsigned()),
            Self::U32(v) => v.into(),
            Self::I64(v) => v.cast_unsigned(),
            Self::U64(v) => v,
            Self::F16(v) => v.to_bits().into(),
            Self::F32(v) => v.to_bits().into(),
        }
    }
}

macro_rules! constant_from {
    ($($type:ty => $variant:ident),*) => {$(
        impl From<$type> for ConstantValue {
            fn from(value: $type) -> Self {
                Self::$variant(value)
            }
        }
    )*};
}
constant_from!(bool => Bool, i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32,
               i64 => I64, u64 => U64, f16 => F16, f32 => F32);

/// Values for a kernel's `[[function_constant(n)]]`s, by index.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FunctionConstants {
    values: BTreeMap<u32, ConstantValue>,
}

impl FunctionConstants {
    /// No values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, index: u32, value: impl Into<ConstantValue>) -> Self {
        self.set(index, value);
        self
    }

    /// Sets a value.
    pub fn set(&mut self, index: u32, value: impl Into<ConstantValue>) {
        self.values.insert(index, value.into());
    }

    /// The value at an index.
    pub fn get(&self, index: u32) -> Option<ConstantValue> {
        self.values.get(&index).copied()
    }

    /// All values, by index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, ConstantValue)> + '_ {
        self.values.iter().map(|(i, v)| (*i, *v))
    }

    /// Identity for caches: floats by their bits, so that NaN equals itself.
    fn key(&self) -> Vec<(u32, &'static str, u64)> {
        self.iter()
            .map(|(i, v)| (i, v.type_name(), v.bits()))
            .collect()
    }
}

/// A compiled library: kernels by name.
#[derive(Debug, Clone)]
pub struct Library {
    inner: Arc<LibraryInner>,
}

type PipelineKey = (String, Vec<(u32, &'static str, u64)>);

#[derive(Debug)]
struct LibraryInner {
    device: Arc<DeviceShared>,
    raw: Arc<dyn driver::Library>,
    label: String,
    pipelines: Mutex<BTreeMap<PipelineKey, Pipeline>>,
}

impl Library {
    pub(crate) fn new(
        device: Arc<DeviceShared>,
        raw: Arc<dyn driver::Library>,
        label: String,
    ) -> Self {
        Self {
            inner: Arc::new(LibraryInner {
                device,
                raw,
                label,
                pipelines: Mutex::default(),
            }),
        }
    }

    /// The library's name.
    pub fn label(&self) -> &str {
        &self.inner.label
    }

    /// Names of all kernels, in the order of the source where the driver knows it.
    pub fn function_names(&self) -> Vec<String> {
        self.inner.raw.function_names()
    }

    /// Reflection of the source. Only available from drivers that parse the source: the software device.
    pub fn reflection(&self) -> Option<&Reflection> {
        self.inner.raw.reflection()
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// [`Error::UnknownFunction`].
    pub fn function(&self, name: &str) -> Result<Function> {
        self.function_with(name, FunctionConstants::new())
    }

    /// A kernel by name, specialised with function constants.
    ///
    /// # Errors
    /// [`Error::UnknownFunction`].
    pub fn function_with(&self, name: &str, constants: FunctionConstants) -> Result<Function> {
        let available = self.function_names();
        // A recording device accepts any name: it does not read the source.
        if available.iter().any(|n| n == name) || self.inner.raw.accepts_any_name() {
            return Ok(Function {
                library: self.clone(),
                name: name.to_owned(),
                constants,
            });
        }
        Err(Error::UnknownFunction {
            library: self.label().to_owned(),
            name: name.to_owned(),
            available,
        })
    }

    /// Checks kernels without building them: much faster than building, for
    /// hundreds of instantiations. Limits that only a built kernel can exceed are not checked.
    ///
    /// # Errors
    /// [`Error::Compile`] with the diagnostics of all of them, [`Error::UnknownFunction`], [`Error::Toolchain`].
    pub fn check(&self, names: &[&str]) -> Result<()> {
        self.lint(names).map(drop)
    }

    /// As [`Library::check`], and returns the compiler's warnings about the kernels and about everything in the source
    /// outside of templates, each followed by its notes. [`CompileOptions::warnings`] selects them. Only supported by
    /// the software device.
    ///
    /// # Errors
    /// As [`Library::check`]. A warning that is treated as an error fails too: [`Error::Compile`] then contains the other
    /// warnings as well.
    pub fn lint(&self, names: &[&str]) -> Result<Vec<Diagnostic>> {
        for name in names {
            self.function(name)?;
        }
        self.inner.raw.lint(names)
    }

    /// The pipeline of a kernel without function constants.
    ///
    /// # Errors
    /// As [`Library::function`] and [`Function::pipeline`].
    pub fn pipeline(&self, name: &str) -> Result<Pipeline> {
        self.function(name)?.pipeline()
    }
}

/// A kernel of a library, specialised or not, that can become a pipeline.
#[derive(Debug, Clone)]
pub struct Function {
    library: Library,
    name: String,
    constants: FunctionConstants,
}

impl Function {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its function constants.
    pub fn constants(&self) -> &FunctionConstants {
        &self.constants
    }

    /// Its arguments. They are known once the kernel is compiled, so this builds the pipeline, which is then cached.
    ///
    /// # Errors
    /// As [`Function::pipeline`].
    pub fn arguments(&self) -> Result<Vec<Argument>> {
        Ok(self.pipeline()?.arguments().to_vec())
    }

    /// Compiles the kernel, or returns the pipeline made earlier from the same library, name and constants.
    ///
    /// # Errors
    /// [`Error::Compile`], [`Error::Toolchain`], [`Error::Launch`] when the kernel alone exceeds a limit.
    pub fn pipeline(&self) -> Result<Pipeline> {
        let inner = &self.library.inner;
        let key = (self.name.clone(), self.constants.key());
        let lock = || {
            inner
                .pipelines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(pipeline) = lock().get(&key) {
            return Ok(pipeline.clone());
        }
        span!(
            DEBUG,
            "pipeline",
            library = inner.label.as_str(),
            kernel = self.name.as_str()
        );
        // Compiled outside the lock: other kernels of the library may compile concurrently.
        let raw = inner.raw.pipeline(&self.name, &self.constants)?;
        let pipeline = Pipeline::new(inner.device.clone(), raw);
        Ok(lock().entry(key).or_insert(pipeline).clone())
    }
}
