//! Libraries of the software device: kernels compiled when they are asked for.

use super::compile::{Compiled, Engine, Kernels, Program};
use super::image::Recipe;
use super::pipeline::{Code, Pipeline};
use super::runtime::{ConstantTable, ConstantType};
use crate::driver;
use crate::error::{Error, Result};
use crate::info::Limits;
use crate::library::{CompileOptions, ConstantValue, FunctionConstants};
use crate::msl::{Diagnostic, FunctionConstant, Kernel, Reflection};
use crate::report::Sources;
use std::sync::Arc;

/// A library that is known to be correct.
#[derive(Debug)]
pub(crate) struct Library {
    engine: Arc<Engine>,
    program: Program,
    label: String,
    limits: Limits,
    kernels: Kernels,
    sources: Option<Arc<Sources>>,
}

impl Library {
    /// Reads and checks a source.
    pub(crate) fn new(
        engine: Arc<Engine>,
        source: &str,
        options: &CompileOptions,
        limits: Limits,
    ) -> Result<Self> {
        let program = engine.library(source, options)?;
        let sources = || Arc::new(Sources::new(&program.file, source));
        Ok(Self {
            sources: engine.checks().then(sources),
            program,
            engine,
            label: options.label.clone(),
            limits,
            kernels: Kernels::default(),
        })
    }

    /// The values as images look them up.
    ///
    /// A value for an index that the source does not declare is refused: it is a mistake, and nothing would tell.
    fn table(&self, kernel: &str, constants: &FunctionConstants) -> Result<ConstantTable> {
        let declared = &self.program.reflection.constants;
        let mut table = ConstantTable::default();
        for (index, value) in constants.iter() {
            if !declared.iter().any(|constant| constant.index == index) {
                return Err(Error::Binding {
                    kernel: kernel.to_owned(),
                    argument: format!("function constant {index}"),
                    message: format!(
                        "a value is given, but the source declares no such constant{}",
                        list(declared.iter())
                    ),
                });
            }
            table.set_index(index, kind(value), value.bits());
        }
        Ok(table)
    }

    /// As Metal does, refuses a kernel that reads a constant without a value, unless the source asks
    /// `is_function_constant_defined` about it. Constants that only other constants are made from read as zero.
    fn check_complete(
        &self,
        kernel: &str,
        compiled: &Compiled,
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
                    && !self.program.asks_whether_defined(&constant.name)
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
                    "it declares {bytes} bytes of threadgroup memory, the device has {limit}"
                ),
            });
        }
        Ok(())
    }
}

/// `: 0 (`scale`, float), 1 (…)`
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
        match (self.engine.lint(&self.program, &supported), refused) {
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
            .get(name, || self.engine.kernel(&self.program, name))?;
        self.check_complete(name, &compiled, constants)?;
        let bytes = compiled.threadgroup_memory();
        self.check_memory(kernel, bytes)?;
        let recipe = Recipe::new(kernel, compiled.clone(), table);
        let (parameters, code) = match self.engine.isolation() {
            None => {
                let ready = recipe.load().map_err(|refusal| refusal.into_error(name))?;
                (ready.parameters, Code::Here(Box::new(ready.image)))
            }
            Some((isolation, limit)) => (recipe.inspect(isolation, limit)?, Code::Apart(recipe)),
        };
        let pipeline = Pipeline::new(
            kernel,
            &parameters,
            code,
            &compiled,
            self.engine.most_threads(name, &self.limits),
            &self.limits,
        );
        Ok(Arc::new(pipeline.with_sources(self.sources.clone())))
    }
}
