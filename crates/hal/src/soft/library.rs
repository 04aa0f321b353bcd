//! Libraries of the software device: kernels are compiled on demand.

use std::sync::Arc;

use super::compile::{CompiledKernel, CompiledKernels, KernelCompiler, LibraryProgram};
use super::image::KernelLoader;
use super::pipeline::{Code, Pipeline};
use super::runtime::{ConstantTable, ConstantType};
use crate::driver;
use crate::error::{Error, Result};
use crate::info::Limits;
use crate::library::{CompileOptions, ConstantValue, FunctionConstants};
use crate::msl::{Diagnostic, FunctionConstant, Kernel, Reflection};
use crate::report::Sources;

/// A library whose source was checked.
#[derive(Debug)]
pub(crate) struct Library {
    compiler: Arc<KernelCompiler>,
    program: LibraryProgram,
    label: String,
    limits: Limits,
    kernels: CompiledKernels,
    sources: Option<Arc<Sources>>,
}

impl Library {
    /// Reads and checks the source.
    pub(crate) fn new(
        compiler: Arc<KernelCompiler>,
        source: &str,
        options: &CompileOptions,
        limits: Limits,
    ) -> Result<Self> {
        let program = compiler.library(source, options)?;
        let sources = || Arc::new(Sources::new(&program.file, source));
        Ok(Self {
            sources: compiler.checks().then(sources),
            program,
            compiler,
            label: options.label.clone(),
            limits,
            kernels: CompiledKernels::default(),
        })
    }

    /// Builds the table in which images look up the constants.
    ///
    /// A value for an undeclared index is an error: the mistake would otherwise go unnoticed.
    fn table(&self, kernel: &str, constants: &FunctionConstants) -> Result<ConstantTable> {
        let declared = &self.program.reflection.constants;
        let mut table = ConstantTable::default();
        for (index, value) in constants.iter() {
            if !declared.iter().any(|constant| constant.index == index) {
                return Err(Error::Binding {
                    kernel: kernel.to_owned(),
                    argument: format!("function constant {index}"),
                    message: format!(
                        "a value was given, but the source declares no such constant{}",
                        list(declared.iter())
                    ),
                });
            }
            table.set_index(index, kind(value), value.bits());
        }
        Ok(table)
    }

    /// Rejects a kernel that reads a function constant without a value, as Metal does, unless the source calls
    /// `is_function_constant_defined` for it. Constants that only initialise other constants read as zero.
    fn check_complete(
        &self,
        kernel: &str,
        compiled: &CompiledKernel,
        constants: &FunctionConstants,
    ) -> Result<()> {
        let missing: Vec<&FunctionConstant> = self
            .program
            .reflection
            .constants
            .iter()
            .filter(|constant| {
                compiled.constants.contains(&constant.index)
                    && constants.get(constant.index).is_none()
                    && !self.program.queries_constant(&constant.name)
            })
            .collect();
        match missing.first() {
            None => Ok(()),
            Some(first) => Err(Error::Binding {
                kernel: kernel.to_owned(),
                argument: first.name.clone(),
                message: format!(
                    "the kernel reads function constants that have no value{}",
                    list(missing.iter().copied())
                ),
            }),
        }
    }

    fn check_memory(&self, kernel: &Kernel, bytes: usize) -> Result<()> {
        let limit = self.limits.max_threadgroup_memory;
        if bytes > limit {
            return Err(Error::Launch {
                kernel: kernel.name.clone(),
                message: format!(
                    "it declares {bytes} bytes of threadgroup memory, but the device has {limit}"
                ),
            });
        }
        Ok(())
    }
}

/// Formats `: 0 (`scale`, float), 1 (…)`.
fn list<'a>(constants: impl Iterator<Item = &'a FunctionConstant>) -> String {
    let names: Vec<_> = constants
        .map(|c| format!("{} (`{}`, {})", c.index, c.name, c.type_name))
        .collect();
    if names.is_empty() {
        "; it declares none".to_owned()
    } else {
        format!(": {}", names.join(", "))
    }
}

fn kind(value: ConstantValue) -> ConstantType {
    match value {
        ConstantValue::Bool(_) => ConstantType::Bool,
        ConstantValue::I8(_) => ConstantType::Char,
        ConstantValue::U8(_) => ConstantType::Uchar,
        ConstantValue::I16(_) => ConstantType::Short,
        ConstantValue::U16(_) => ConstantType::Ushort,
        ConstantValue::I32(_) => ConstantType::Int,
        ConstantValue::U32(_) => ConstantType::Uint,
        ConstantValue::I64(_) => ConstantType::Long,
        ConstantValue::U64(_) => ConstantType::Ulong,
        ConstantValue::F16(_) => ConstantType::Half,
        ConstantValue::F32(_) => ConstantType::Float,
    }
}

impl driver::Library for Library {
    fn function_names(&self) -> Vec<String> {
        let kernels = &self.program.reflection.kernels;
        kernels.iter().map(|kernel| kernel.name.clone()).collect()
    }

    fn reflection(&self) -> Option<&Reflection> {
        Some(&self.program.reflection)
    }

    fn lint(&self, names: &[&str]) -> Result<Vec<Diagnostic>> {
        let is_supported = |name: &&str| {
            let kernel = self.program.reflection.kernel(name);
            kernel.is_none_or(|kernel| kernel.unsupported.is_none())
        };
        let supported: Vec<&str> = names.iter().copied().filter(is_supported).collect();
        let refused = self.program.check_supported(names);
        match (self.compiler.lint(&self.program, &supported), refused) {
            (found, Ok(())) => found,
            (
                Ok(mut diagnostics)
                | Err(Error::Compile {
                    mut diagnostics, ..
                }),
                Err(Error::Compile {
                    library,
                    diagnostics: others,
                }),
            ) => {
                diagnostics.extend(others);
                Err(Error::Compile {
                    library,
                    diagnostics,
                })
            }
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        }
    }

    fn pipeline(
        &self,
        name: &str,
        constants: &FunctionConstants,
    ) -> Result<Arc<dyn driver::Pipeline>> {
        let reflection = &self.program.reflection;
        let kernel = reflection
            .kernel(name)
            .ok_or_else(|| Error::UnknownFunction {
                library: self.label.clone(),
                name: name.to_owned(),
                available: self.function_names(),
            })?;
        self.program.check_supported(&[name])?;
        let table = self.table(name, constants)?;
        let compiled = self
            .kernels
            .get(name, || self.compiler.kernel(&self.program, name))?;
        self.check_complete(name, &compiled, constants)?;
        let bytes = compiled.threadgroup_memory();
        self.check_memory(kernel, bytes)?;
        let loader = KernelLoader::new(kernel, compiled.clone(), table);
        let (parameters, code) = match self.compiler.isolation() {
            None => {
                let loaded = loader.load().map_err(|error| error.into_error(name))?;
                (loaded.parameters, Code::InProcess(Box::new(loaded.image)))
            }
            Some((isolation, limit)) => {
                (loader.inspect(isolation, limit)?, Code::PerProcess(loader))
            }
        };
        let pipeline = Pipeline::new(
            kernel,
            &parameters,
            code,
            &compiled,
            self.compiler.max_threads(name, &self.limits),
            &self.limits,
        );
        Ok(Arc::new(pipeline.with_sources(self.sources.clone())))
    }
}
