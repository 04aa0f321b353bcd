//! `bessemer msl kernels`: the kernels and function constants of a file.

use std::io::Write as _;

use anyhow::Result;
use bessemer_hal::msl::{AddressSpace, Argument, ArgumentKind, Diagnostic, Kernel, Reflection};
use bessemer_hal::{Error, Library};
use serde_json::{Value, json};

use crate::args::KernelsArgs;
use crate::failure::Outcome;
use crate::host::{self, Setup};
use crate::msl::format::write_json;
use crate::msl::library::compile;
use crate::msl::source::Source;
use crate::msl::{diagnostic_json, write_diagnostics};
use crate::table::Table;
use crate::terminal::{Out, counted, style};

/// Runs the command.
pub(crate) fn run(args: &KernelsArgs, out: &mut Out) -> Result<Outcome> {
    let source = Source::read(&args.file)?;
    let device = host::open(&Setup::compiling(&args.compile))?;
    let library = match compile(&device, &source, &args.compile) {
        Err(Error::Compile { diagnostics, .. }) if args.json => {
            let diagnostics: Vec<_> = diagnostics.iter().map(diagnostic_json).collect();
            let value = json!({ "file": source.name, "kernels": [], "constants": [], "diagnostics": diagnostics });
            write_json(out, value, Outcome::NotCompiled)?;
            return Ok(Outcome::NotCompiled);
        }
        Err(Error::Compile { diagnostics, .. }) => {
            write_diagnostics(&source, &diagnostics)?;
            return Ok(Outcome::NotCompiled);
        }
        library => library?,
    };
    let interface = match library.reflection() {
        Some(reflection) => FileInterface::from_reflection(reflection),
        None => FileInterface::from_pipelines(&library)?,
    };
    if args.json {
        write_json(out, interface.to_json(&source.name), Outcome::Clean)?;
    } else {
        interface.write_text(&source.name, out)?;
    }
    Ok(Outcome::Clean)
}

/// The kernels and function constants of a file, independent of the driver.
#[derive(Debug, Default)]
struct FileInterface {
    kernels: Vec<KernelInterface>,
    constants: Vec<ConstantInterface>,
}

#[derive(Debug)]
struct KernelInterface {
    name: String,
    json: Value,
    arguments: Vec<ArgumentInterface>,
    /// Why the device cannot run it.
    unsupported: Option<Diagnostic>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ArgumentInterface {
    name: String,
    /// `buffer`, `threadgroup` or `builtin`.
    kind: &'static str,
    index: Option<u32>,
    /// The attribute that gives a builtin its value.
    builtin: Option<String>,
    type_name: String,
    access: &'static str,
    gate: Option<String>,
}

#[derive(Debug)]
struct ConstantInterface {
    name: String,
    index: u32,
    type_name: String,
}

impl FileInterface {
    fn from_reflection(reflection: &Reflection) -> Self {
        let constants = reflection
            .constants
            .iter()
            .map(|constant| ConstantInterface {
                name: constant.name.clone(),
                index: constant.index,
                type_name: constant.type_name.clone(),
            });
        Self {
            kernels: reflection.kernels.iter().map(kernel_interface).collect(),
            constants: constants.collect(),
        }
    }

    /// For drivers that do not parse the source: compiles every kernel, which tells less.
    fn from_pipelines(library: &Library) -> Result<Self> {
        let mut kernels = Vec::new();
        for name in library.function_names() {
            let arguments = library.function(&name)?.arguments()?;
            kernels.push(KernelInterface {
                json: json!({ "name": name }),
                name,
                unsupported: None,
                arguments: arguments
                    .into_iter()
                    .map(|argument| {
                        let (kind, index) = match argument.kind {
                            bessemer_hal::ArgumentKind::Buffer(index) => ("buffer", index),
                            bessemer_hal::ArgumentKind::ThreadgroupMemory(index) => {
                                ("threadgroup", index)
                            }
                        };
                        ArgumentInterface {
                            name: argument.name,
                            kind,
                            index: Some(index),
                            builtin: None,
                            type_name: String::new(),
                            access: access(argument.access.writes()),
                            gate: None,
                        }
                    })
                    .collect(),
            });
        }
        Ok(Self {
            kernels,
            constants: Vec::new(),
        })
    }

    fn write_text(&self, file: &str, out: &mut Out) -> Result<()> {
        if self.kernels.is_empty() {
            writeln!(out, "{file} has no kernel")?;
        } else {
            let mut table = Table::new(["kernel", "argument", "index", "type", "access", "gate"]);
            for kernel in self.kernels.iter().filter(|k| k.unsupported.is_none()) {
                let mut name = kernel.name.clone();
                if kernel.arguments.is_empty() {
                    table.row([name.clone()]);
                }
                for argument in &kernel.arguments {
                    table.row(argument.row(std::mem::take(&mut name)));
                }
            }
            table.write(out, style::STRONG)?;
        }
        if self.kernels.iter().any(|k| k.unsupported.is_some()) {
            writeln!(out)?;
            let mut table = Table::new(["unsupported kernel", "line", "reason"]);
            for kernel in &self.kernels {
                if let Some(why) = &kernel.unsupported {
                    let line = why.line.to_string();
                    table.row([kernel.name.clone(), line, why.message.clone()]);
                }
            }
            table.write(out, style::STRONG)?;
        }
        if !self.constants.is_empty() {
            writeln!(out)?;
            let mut table = Table::new(["function constant", "index", "type"]);
            for constant in &self.constants {
                table.row([
                    constant.name.clone(),
                    constant.index.to_string(),
                    constant.type_name.clone(),
                ]);
            }
            table.write(out, style::STRONG)?;
        }
        let (kernels, constants) = (self.kernels.len(), self.constants.len());
        let quiet = style::QUIET;
        writeln!(
            out,
            "\n{quiet}{}, {}{quiet:#}",
            counted(kernels, "kernel"),
            counted(constants, "function constant")
        )?;
        out.flush()?;
        Ok(())
    }

    fn to_json(&self, file: &str) -> Value {
        let kernels: Vec<_> = self
            .kernels
            .iter()
            .map(|kernel| {
                let mut value = kernel.json.clone();
                let arguments = kernel.arguments.iter().map(ArgumentInterface::to_json);
                value["arguments"] = arguments.collect();
                value["unsupported"] = kernel.unsupported.as_ref().map(diagnostic_json).into();
                value
            })
            .collect();
        let constants: Vec<_> = self
            .constants
            .iter()
            .map(|c| json!({ "name": c.name, "index": c.index, "type": c.type_name }))
            .collect();
        json!({ "file": file, "kernels": kernels, "constants": constants })
    }
}

fn kernel_interface(kernel: &Kernel) -> KernelInterface {
    KernelInterface {
        name: kernel.name.clone(),
        json: json!({
            "name": kernel.name,
            "function": kernel.function,
            "file": kernel.file,
            "line": kernel.line,
            "max_total_threads": kernel.max_total_threads,
        }),
        arguments: kernel.arguments.iter().map(argument_interface).collect(),
        unsupported: kernel.unsupported.clone(),
    }
}

fn argument_interface(argument: &Argument) -> ArgumentInterface {
    let (kind, index, builtin) = match argument.kind {
        ArgumentKind::Buffer { index } => ("buffer", Some(index), None),
        ArgumentKind::ThreadgroupMemory { index } => ("threadgroup", Some(index), None),
        ArgumentKind::Builtin(builtin) => ("builtin", None, Some(builtin.name().to_owned())),
        _ => ("other", None, None),
    };
    let type_name = if builtin.is_some() {
        argument.type_name.clone()
    } else {
        let read_only = !argument.writable && argument.address_space != AddressSpace::Constant;
        format!(
            "{} {}{}{}",
            argument.address_space.keyword(),
            if read_only { "const " } else { "" },
            argument.type_name,
            if argument.by_reference { "&" } else { "*" }
        )
    };
    ArgumentInterface {
        name: argument.name.clone(),
        kind,
        index,
        access: if builtin.is_some() {
            ""
        } else {
            access(argument.writable)
        },
        builtin,
        type_name,
        gate: argument.gate.clone(),
    }
}

fn access(writable: bool) -> &'static str {
    if writable { "read-write" } else { "read" }
}

impl ArgumentInterface {
    fn row(&self, kernel: String) -> Vec<String> {
        let index = match (self.index, &self.builtin) {
            (Some(index), _) => format!("{}({index})", self.kind),
            (None, Some(builtin)) => builtin.clone(),
            (None, None) => String::new(),
        };
        vec![
            kernel,
            self.name.clone(),
            index,
            self.type_name.clone(),
            self.access.to_owned(),
            self.gate.clone().unwrap_or_default(),
        ]
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "kind": self.kind,
            "index": self.index,
            "builtin": self.builtin,
            "type": (!self.type_name.is_empty()).then_some(&self.type_name),
            "access": (!self.access.is_empty()).then_some(self.access),
            "gate": self.gate,
        })
    }
}
