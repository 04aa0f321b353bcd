//! Kernels: their sources, types and pipelines.
//!
//! A kernel is compiled for its types and numbers on first use. The name of its entry point is that of the source,
//! followed by the types: `softmax_row` for `f32` is `softmax_row_f32`.
#![expect(
    unsafe_code,
    reason = "promises that the kernels of this crate keep to what they are given"
)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{PoisonError, RwLock};

use bessemer_hal::{
    self as hal, CompileOptions, ConstantValue, FunctionConstants, Library, MathMode, Pipeline,
};

use super::fused::{self, Program, Table};
use super::{constant, msl};
use crate::{DType, Error, Result};

/// A kernel with everything that it is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    source: KernelSource,
    entry: &'static str,
    types: Vec<(&'static str, DType)>,
    numbers: Vec<(&'static str, i64)>,
    constants: Vec<(&'static str, Constant)>,
}

/// The source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum KernelSource {
    /// `msl/NAME.metal`
    File(&'static str),
    /// A program of elementwise steps; its text is generated when it is compiled.
    Program(Program),
    /// All elementwise ops of a kind on one type, of which a function constant selects one.
    Table(Table, DType),
}

/// A function constant, comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Constant {
    Bool(bool),
    U32(u32),
}

impl Kernel {
    /// The kernel `entry` of `msl/FILE.metal`.
    pub(crate) fn new(file: &'static str, entry: &'static str) -> Self {
        Self::from_source(KernelSource::File(file), entry)
    }

    /// The kernel of a program of elementwise steps.
    pub(crate) fn program(program: Program) -> Self {
        Self::from_source(KernelSource::Program(program), fused::ENTRY)
    }

    /// The kernel of all elementwise ops of a kind, whose inputs (of `select` the second) have this type.
    pub(crate) fn table(table: Table, dtype: DType) -> Self {
        Self::from_source(KernelSource::Table(table, dtype), table.entry())
    }

    fn from_source(source: KernelSource, entry: &'static str) -> Self {
        Self {
            source,
            entry,
            types: Vec::new(),
            numbers: Vec::new(),
            constants: Vec::new(),
        }
    }

    /// Defines `name` as a type. The types become part of the entry point's name, in the order of the calls.
    pub(crate) fn with_type(mut self, name: &'static str, dtype: DType) -> Self {
        self.types.push((name, dtype));
        self
    }

    /// Defines `name` as a number. Each value is a separate compilation.
    pub(crate) fn define(mut self, name: &'static str, value: impl Into<i64>) -> Self {
        self.numbers.push((name, value.into()));
        self
    }

    /// Sets a boolean function constant. Costs no compilation.
    pub(crate) fn flag(mut self, name: &'static str, value: bool) -> Self {
        self.constants.push((name, Constant::Bool(value)));
        self
    }

    /// Sets a `uint` function constant. Costs no compilation.
    pub(crate) fn constant(mut self, name: &'static str, value: u32) -> Self {
        self.constants.push((name, Constant::U32(value)));
        self
    }

    /// The name of the entry point in the compiled source.
    fn name(&self) -> String {
        let mut name = self.entry.to_owned();
        for (_, dtype) in &self.types {
            let _ = write!(name, "_{dtype}");
        }
        name
    }

    /// The source to compile.
    fn text(&self) -> String {
        let mut text = String::from("#include <metal_stdlib>\nusing namespace metal;\n");
        let mut suffix = String::new();
        for (name, dtype) in &self.types {
            let _ = writeln!(text, "typedef {} {name};", msl_name(*dtype));
            let _ = write!(suffix, "_{dtype}");
        }
        for (name, value) in &self.numbers {
            let _ = writeln!(text, "#define {name} {value}");
        }
        let _ = writeln!(text, "#define SUFFIX {suffix}");
        text += &match &self.source {
            KernelSource::File(file) => msl::resolve(&format!("{file}.metal")),
            KernelSource::Program(program) => msl::resolve_text("fused", &program.text()),
            KernelSource::Table(table, dtype) => msl::resolve_text("fused", &table.text(*dtype)),
        };
        text
    }
}

/// The MSL name of a type.
pub(crate) const fn msl_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uchar",
        DType::U16 => "ushort",
        DType::U32 => "uint",
        DType::U64 => "ulong",
        DType::I8 => "char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long",
        DType::F16 => "half",
        DType::BF16 => "bfloat",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

/// Width of a SIMD-group that kernels are written for.
const SIMD_WIDTH: usize = 32;

/// Whether a source uses SIMD-groups: their functions, their matrices, their indices.
fn uses_simd_groups(text: &str) -> bool {
    text.contains("simd") || text.contains("quad_")
}

/// The compiled kernels of a device.
///
/// This is the only place that decides what a device is too old for. Kernels that use SIMD-groups (matmul, reductions,
/// norms, softmax, attention, scans) are written for 32 lanes, and some multiply SIMD-group matrices. The GPUs of Intel
/// Macs guarantee neither, so a kernel whose source mentions SIMD-groups is not compiled for their family, nor used if
/// the compiled kernel has another SIMD-group width: it is [`Error::Unsupported`], and the CPU computes the op.
/// Everything else (elementwise functions, copies, casts, sorting, indexing) runs there.
pub(super) struct Kernels {
    device: hal::Device,
    math: MathMode,
    /// `None` for a kernel that the device cannot run.
    pipelines: RwLock<HashMap<Kernel, Option<Pipeline>>>,
    /// By source: kernels that differ only in function constants share a library.
    libraries: RwLock<HashMap<String, Library>>,
}

impl Kernels {
    pub(super) fn new(device: hal::Device, math: MathMode) -> Self {
        Self {
            device,
            math,
            pipelines: RwLock::default(),
            libraries: RwLock::default(),
        }
    }

    /// The math mode that kernels are compiled with.
    pub(super) fn math_mode(&self) -> MathMode {
        self.math
    }

    /// The pipeline of a kernel, compiled on first use.
    pub(super) fn pipeline(&self, op: &'static str, kernel: &Kernel) -> Result<Pipeline> {
        let unsupported = || Error::Unsupported {
            op,
            what: format!("SIMD-groups of {SIMD_WIDTH} threads; the CPU computes it"),
            device: self.device.name().to_owned(),
        };
        let known = self
            .pipelines
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(pipeline) = known.get(kernel) {
            return pipeline.clone().ok_or_else(unsupported);
        }
        drop(known);
        let pipeline = self.build(kernel).map_err(|e| Error::device(op, e))?;
        let mut known = self
            .pipelines
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let pipeline = known.entry(kernel.clone()).or_insert(pipeline);
        pipeline.clone().ok_or_else(unsupported)
    }

    /// The pipeline of the kernel `name` of a generated source, compiled on first use.
    pub(super) fn generated(&self, op: &'static str, name: &str, text: &str) -> Result<Pipeline> {
        let known = self
            .libraries
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let library = known.get(text).cloned();
        drop(known);
        let build = || {
            let library = match library {
                Some(library) => library,
                None => {
                    // Whatever the device is set to: programs mean what the reference executor computes.
                    let options = CompileOptions::labelled(name);
                    // SAFETY: `metal/program/` guards every access that it writes by the length of the range that is
                    // bound, and counts the iterations of every loop. Lanes that race may read any value, and check it.
                    let library = unsafe { self.device.library(text, &options) }?;
                    let mut known = self
                        .libraries
                        .write()
                        .unwrap_or_else(PoisonError::into_inner);
                    known.entry(text.to_owned()).or_insert(library).clone()
                }
            };
            library.pipeline(name)
        };
        build().map_err(|e| Error::device(op, e))
    }

    /// Compiles a kernel; `None` if the device lacks what it needs.
    fn build(&self, kernel: &Kernel) -> hal::Result<Option<Pipeline>> {
        let (mut text, declared) = constant::assign_indices(&kernel.text());
        let simd_groups = uses_simd_groups(&text);
        if simd_groups && !self.device.info().family.has_simd_matrices() {
            return Ok(None);
        }
        if self.math != MathMode::Safe {
            text.insert_str(0, "#define FAST_MATH\n");
        }
        let known = self
            .libraries
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let library = known.get(&text).cloned();
        drop(known);
        let library = match library {
            Some(library) => library,
            None => {
                let options = CompileOptions {
                    label: kernel.name(),
                    math_mode: self.math,
                    ..CompileOptions::default()
                };
                // SAFETY: the kernels of this crate stay inside the ranges that launches bind for them,
                // share memory only across barriers, and end; `tests/checked.rs` runs every one of them on
                // the checking device, and fails where one is missing.
                let library = unsafe { self.device.library(&text, &options) }?;
                let mut known = self
                    .libraries
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                known.entry(text).or_insert(library).clone()
            }
        };
        let mut constants = FunctionConstants::new();
        for &(name, value) in &kernel.constants {
            let value = match value {
                Constant::Bool(v) => ConstantValue::Bool(v),
                Constant::U32(v) => ConstantValue::U32(v),
            };
            let index = constant::index_of(&declared, name, value).map_err(|message| {
                hal::Error::Binding {
                    kernel: kernel.name(),
                    argument: format!("function constant {name}"),
                    message,
                }
            })?;
            constants.set(index, value);
        }
        let pipeline = library
            .function_with(&kernel.name(), constants)?
            .pipeline()?;
        let is_supported = !simd_groups || pipeline.thread_execution_width() == SIMD_WIDTH;
        Ok(is_supported.then_some(pipeline))
    }
}
