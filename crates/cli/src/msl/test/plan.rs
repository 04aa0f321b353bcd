//! Kernel tests, resolved as far as possible without running them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bessemer_hal::{ReportKind, Size};
use clap::Parser as _;
use toml::Value;

use super::compare::Tolerance;
use super::file::{
    CompileTable, DispatchTable, ExpectTable, Length, LiteralTable, TestFile, TestTable,
};
use super::literal;
use crate::args::{CompileArgs, ModeArg};
use crate::dtype;
use crate::failure::Usage;
use crate::msl::finding::Location;
use crate::msl::launch::Extent;
use crate::spec::{BufferSpec, ConstantSpec};

/// Default seeds of fuzz mode.
const DEFAULT_SEEDS: [u64; 4] = [1, 2, 3, 4];

/// A test.
#[derive(Debug)]
pub(super) struct KernelTest {
    pub(super) name: String,
    /// Location of its name in the file.
    pub(super) location: Location,
    pub(super) source: PathBuf,
    pub(super) compile: CompileArgs,
    /// Runs: a mode with its seed.
    pub(super) runs: Vec<(ModeArg, Option<u64>)>,
    pub(super) timeout: Option<Duration>,
    pub(super) expected_report: Option<ReportKind>,
    pub(super) buffers: Vec<(String, BufferSpec)>,
    pub(super) dispatches: Vec<PlannedDispatch>,
    pub(super) expectations: Vec<Expectation>,
}

/// An argument of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArgumentKey {
    Index(u32),
    Name(String),
}

/// A dispatch; names of arguments are resolved when the kernel is known.
#[derive(Debug)]
pub(super) struct PlannedDispatch {
    pub(super) kernel: String,
    pub(super) extent: Extent,
    pub(super) threadgroup: Option<Size>,
    /// Argument, index in [`KernelTest::buffers`], offset.
    pub(super) buffers: Vec<(ArgumentKey, usize, usize)>,
    pub(super) bytes: Vec<(ArgumentKey, Vec<u8>)>,
    pub(super) threadgroup_memory: Vec<(ArgumentKey, usize)>,
    pub(super) constants: Vec<ConstantSpec>,
}

/// Expected values of a buffer.
#[derive(Debug)]
pub(super) struct Expectation {
    pub(super) location: Location,
    /// Index in [`KernelTest::buffers`].
    pub(super) buffer: usize,
    pub(super) expected: Expected,
    pub(super) tolerance: Tolerance,
}

#[derive(Debug)]
pub(super) enum Expected {
    Literal(Value),
    From(BufferSpec),
    /// Index in [`KernelTest::buffers`].
    Buffer(usize),
}

/// Reads a file of tests.
pub(super) fn read(path: &Path) -> Result<Vec<KernelTest>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| Usage::context(format!("cannot read {}", path.display())))?;
    let planner = Planner { path, text: &text };
    let file: TestFile = toml::from_str(&text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        planner.error(&at, error.message())
    })?;
    if file.tests.is_empty() {
        return Err(planner.error(&(0..0), "no [[test]] in this file"));
    }
    let mut tests: Vec<KernelTest> = Vec::new();
    for table in &file.tests {
        let test = planner.test(&file, table)?;
        if tests.iter().any(|t| t.name == test.name) {
            let message = format!("two tests are called `{}`", test.name);
            return Err(planner.error(&table.name.span(), &message));
        }
        tests.push(test);
    }
    Ok(tests)
}

#[derive(Debug, Clone, Copy)]
struct Planner<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Planner<'_> {
    fn location(self, at: &Range<usize>) -> Location {
        let before = &self.text[..self.text.floor_char_boundary(at.start)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Location {
            file: self.path.display().to_string(),
            line: count(before.matches('\n').count() + 1),
            column: count(before.len() - line_start + 1),
        }
    }

    /// An error at a location in the file.
    fn error(self, at: &Range<usize>, message: &str) -> anyhow::Error {
        let Location { file, line, column } = self.location(at);
        Usage::error(format!("{file}:{line}:{column}: {message}"))
    }

    /// Resolves a path relative to the test file.
    fn resolve(self, path: &Path) -> PathBuf {
        match self.path.parent() {
            Some(dir) => dir.join(path),
            None => path.to_owned(),
        }
    }

    fn test(self, file: &TestFile, table: &TestTable) -> Result<KernelTest> {
        let at = table.name.span();
        let source = table.source.as_ref().or(file.source.as_ref());
        let source = source.ok_or_else(|| self.error(&at, "the test has no `source`"))?;
        if table.dispatches.is_empty() {
            return Err(self.error(&at, "the test has no [[test.dispatch]]"));
        }
        if let Some(report) = &table.expect_report
            && !table.expect.is_empty()
        {
            let message = "a test that expects a report has no expected values";
            return Err(self.error(&report.span(), message));
        }
        let buffers: Vec<(String, BufferSpec)> = table
            .buffers
            .iter()
            .map(|(name, value)| {
                let spec = self.buffer(value.get_ref());
                let spec = spec.map_err(|error| {
                    self.error(&value.span(), &format!("buffer `{name}`: {error:#}"))
                })?;
                Ok((name.clone(), spec))
            })
            .collect::<Result<_>>()?;
        let dispatches = table.dispatches.iter();
        let dispatches = dispatches
            .map(|dispatch| self.dispatch(dispatch, &buffers))
            .collect::<Result<_>>()?;
        let expectations = table.expect.iter();
        let expectations = expectations
            .map(|(name, value)| {
                let at = value.span();
                let found = self.expectation(name, value.get_ref(), &buffers);
                let (buffer, expected, tolerance) = found.map_err(|error| {
                    self.error(&at, &format!("expected values of `{name}`: {error:#}"))
                })?;
                Ok(Expectation {
                    location: self.location(&at),
                    buffer,
                    expected,
                    tolerance,
                })
            })
            .collect::<Result<_>>()?;
        Ok(KernelTest {
            name: table.name.get_ref().clone(),
            location: self.location(&at),
            source: self.resolve(source),
            compile: self
                .compile([&file.compile, &table.compile])
                .map_err(|error| self.error(&at, &error.to_string()))?,
            runs: runs(table),
            timeout: table.timeout_ms.map(Duration::from_millis),
            expected_report: table.expect_report.as_ref().map(|r| *r.get_ref()),
            buffers,
            dispatches,
            expectations,
        })
    }

    /// Parses compile options with the parser of the command line, so that they mean the same.
    fn compile(self, tables: [&CompileTable; 2]) -> Result<CompileArgs> {
        #[derive(Debug, clap::Parser)]
        #[command(no_binary_name = true, args_override_self = true)]
        struct Options {
            #[command(flatten)]
            compile: CompileArgs,
        }
        let mut options = Vec::new();
        for table in tables {
            let dirs = table.include.iter().map(|dir| ("include", dir));
            let files = table.include_file.iter().map(|file| ("include-file", file));
            for (name, path) in dirs.chain(files) {
                options.push(format!("--{name}={}", self.resolve(path).display()));
            }
            options.extend(table.define.iter().map(|d| format!("--define={d}")));
            for (name, value) in [
                ("math", &table.math),
                ("std", &table.std),
                ("family", &table.family),
            ] {
                options.extend(value.iter().map(|value| format!("--{name}={value}")));
            }
        }
        let options = Options::try_parse_from(&options).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Usage::error(first.trim_start_matches("error: "))
        })?;
        Ok(options.compile)
    }

    /// `"zeros:f32:64"`, `"in.npy"`, or `{ dtype = "f32", values = [1, 2] }`.
    fn buffer(self, value: &Value) -> Result<BufferSpec> {
        if let Value::String(text) = value {
            return self.spec(text);
        }
        let table: LiteralTable = value.clone().try_into().map_err(|error| {
            let expected = "expected a generator, a file or { dtype, values }";
            Usage::error(format!("{expected}: {}", message(&error)))
        })?;
        let dtype = dtype::named(&table.dtype)?;
        let mut array = literal::array(&table.values, dtype)?;
        if let Some(shape) = table.shape {
            let count = array.data.len() / dtype.size();
            let product = shape.iter().try_fold(1_usize, |p, d| p.checked_mul(*d));
            if product != Some(count) {
                return Err(Usage::error(format!(
                    "shape {shape:?} does not match {count} values"
                )));
            }
            array.shape = shape;
        }
        Ok(BufferSpec::Literal(array))
    }

    fn spec(self, text: &str) -> Result<BufferSpec> {
        Ok(match text.parse()? {
            BufferSpec::File { path, dtype } => BufferSpec::File {
                path: self.resolve(&path),
                dtype,
            },
            spec => spec,
        })
    }

    fn dispatch(
        self,
        table: &DispatchTable,
        buffers: &[(String, BufferSpec)],
    ) -> Result<PlannedDispatch> {
        let at = table.kernel.span();
        let extent = match (table.grid, table.threadgroups) {
            (Some(threads), None) => Extent::Threads(threads.0),
            (None, Some(groups)) if table.threadgroup.is_some() => Extent::Threadgroups(groups.0),
            (None, Some(_)) => return Err(self.error(&at, "`threadgroups` needs `threadgroup`")),
            _ => return Err(self.error(&at, "expected either `grid` or `threadgroups`")),
        };
        let bound = table.bind.iter().map(|(key, binding)| {
            let found = position(buffers, &binding.get_ref().buffer);
            let buffer = found.map_err(|error| self.error(&binding.span(), &error.to_string()))?;
            Ok((argument_key(key), buffer, binding.get_ref().offset))
        });
        let constants = table.constants.iter().map(|(key, value)| {
            let spec = format!("{key}={}", value.get_ref()).parse::<ConstantSpec>();
            spec.map_err(|error| self.error(&value.span(), &format!("{error:#}")))
        });
        let memory = table.threadgroup_memory.iter();
        Ok(PlannedDispatch {
            kernel: table.kernel.get_ref().clone(),
            extent,
            threadgroup: table.threadgroup.map(|size| size.0),
            buffers: bound.collect::<Result<_>>()?,
            bytes: table
                .bytes
                .iter()
                .map(|(key, bytes)| (argument_key(key), bytes.0.0.clone()))
                .collect(),
            threadgroup_memory: memory
                .map(|(key, Length(length))| (argument_key(key), *length))
                .collect(),
            constants: constants.collect::<Result<_>>()?,
        })
    }

    /// Parses a list, a file or generator, or a table with tolerances.
    fn expectation(
        self,
        name: &str,
        value: &Value,
        buffers: &[(String, BufferSpec)],
    ) -> Result<(usize, Expected, Tolerance)> {
        let buffer = position(buffers, name)?;
        let table = match value {
            Value::Array(_) => {
                let expected = Expected::Literal(value.clone());
                return Ok((buffer, expected, Tolerance::default()));
            }
            Value::String(text) => {
                let expected = Expected::From(self.spec(text)?);
                return Ok((buffer, expected, Tolerance::default()));
            }
            value => value.clone().try_into::<ExpectTable>(),
        };
        let table = table.map_err(|error| Usage::error(message(&error)))?;
        for (name, limit) in [("abs", table.abs), ("rel", table.rel)] {
            if limit.is_some_and(|limit| !limit.is_finite() || limit < 0.0) {
                return Err(Usage::error(format!("`{name}` is not a tolerance")));
            }
        }
        let expected = match (table.values, table.from, table.buffer) {
            (Some(values), None, None) => Expected::Literal(values),
            (None, Some(text), None) => Expected::From(self.spec(&text)?),
            (None, None, Some(other)) => Expected::Buffer(position(buffers, &other)?),
            _ => {
                return Err(Usage::error(
                    "expected one of `values`, `from` and `buffer`",
                ));
            }
        };
        let tolerance = Tolerance {
            abs: table.abs,
            rel: table.rel,
            ulp: table.ulp,
        };
        Ok((buffer, expected, tolerance))
    }
}

fn message(error: &toml::de::Error) -> String {
    error.message().to_owned()
}

/// Every mode is one run, except fuzz mode, which is one run per seed.
fn runs(table: &TestTable) -> Vec<(ModeArg, Option<u64>)> {
    let modes = match &table.mode.0[..] {
        [] => &[ModeArg::Check],
        modes => modes,
    };
    let seeds = table.seeds.as_deref().unwrap_or(&DEFAULT_SEEDS);
    modes
        .iter()
        .flat_map(|mode| match mode {
            ModeArg::Fuzz => seeds.iter().map(|seed| (*mode, Some(*seed))).collect(),
            mode => vec![(*mode, None)],
        })
        .collect()
}

fn position(buffers: &[(String, BufferSpec)], name: &str) -> Result<usize> {
    let found = buffers.iter().position(|(n, _)| n == name);
    found.ok_or_else(|| {
        let names: Vec<_> = buffers.iter().map(|(n, _)| &**n).collect();
        let known = match &names[..] {
            [] => "the test has none".to_owned(),
            names => format!("there are {}", names.join(", ")),
        };
        Usage::error(format!("no buffer `{name}`; {known}"))
    })
}

fn argument_key(text: &str) -> ArgumentKey {
    match text.parse() {
        Ok(index) => ArgumentKey::Index(index),
        Err(_) => ArgumentKey::Name(text.to_owned()),
    }
}
