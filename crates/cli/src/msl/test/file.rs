//! The TOML format of kernel tests.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bessemer_hal::{ReportKind, Size};
use clap::ValueEnum as _;
use serde::Deserialize;
use toml::{Spanned, Value};

use crate::args::ModeArg;
use crate::spec::{ByteCount, BytesSpec};

/// A file of tests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TestFile {
    /// The default MSL file of the tests.
    pub(super) source: Option<PathBuf>,
    /// Options of all tests.
    #[serde(default)]
    pub(super) compile: CompileTable,
    #[serde(default, rename = "test")]
    pub(super) tests: Vec<TestTable>,
}

/// Compile options; a test's own come after the file's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CompileTable {
    /// `NAME` or `NAME=VALUE`.
    #[serde(default)]
    pub(super) define: Vec<String>,
    #[serde(default)]
    pub(super) include: Vec<PathBuf>,
    /// Files included before the source.
    #[serde(default)]
    pub(super) include_file: Vec<PathBuf>,
    pub(super) math: Option<String>,
    pub(super) std: Option<String>,
    pub(super) family: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TestTable {
    pub(super) name: Spanned<String>,
    pub(super) source: Option<PathBuf>,
    #[serde(default)]
    pub(super) compile: CompileTable,
    #[serde(default)]
    pub(super) mode: Modes,
    /// Seeds of fuzz mode.
    pub(super) seeds: Option<Vec<u64>>,
    pub(super) timeout_ms: Option<u64>,
    /// The defect that the test must report.
    pub(super) expect_report: Option<Spanned<ReportKind>>,
    #[serde(default)]
    pub(super) buffers: BTreeMap<String, Spanned<Value>>,
    #[serde(default, rename = "dispatch")]
    pub(super) dispatches: Vec<DispatchTable>,
    #[serde(default)]
    pub(super) expect: BTreeMap<String, Spanned<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DispatchTable {
    pub(super) kernel: Spanned<String>,
    /// Threads in the grid.
    pub(super) grid: Option<Extents>,
    /// Threadgroups in the grid, instead of threads.
    pub(super) threadgroups: Option<Extents>,
    /// Threads in a threadgroup.
    pub(super) threadgroup: Option<Extents>,
    /// Buffers, by argument name or index.
    #[serde(default)]
    pub(super) bind: BTreeMap<String, Spanned<Binding>>,
    /// Inline values, by argument name or index.
    #[serde(default)]
    pub(super) bytes: BTreeMap<String, Bytes>,
    /// Function constants, by name or index.
    #[serde(default)]
    pub(super) constants: BTreeMap<String, Spanned<String>>,
    /// Lengths of threadgroup arguments in bytes, by name or index.
    #[serde(default)]
    pub(super) threadgroup_memory: BTreeMap<String, Length>,
}

/// Expected values of a buffer, in table form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ExpectTable {
    /// Literal values.
    pub(super) values: Option<Value>,
    /// A file or a generator, as in `msl run --buffer`.
    pub(super) from: Option<String>,
    /// Another buffer of the test.
    pub(super) buffer: Option<String>,
    pub(super) abs: Option<f64>,
    pub(super) rel: Option<f64>,
    pub(super) ulp: Option<u64>,
}

/// Literal values of a buffer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LiteralTable {
    pub(super) dtype: String,
    pub(super) values: Value,
    pub(super) shape: Option<Vec<usize>>,
}

/// One mode or several.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Modes(pub(super) Vec<ModeArg>);

impl TryFrom<Value> for Modes {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let mode = |value: &Value| match value {
            Value::String(name) => ModeArg::from_str(name, false).map_err(|_| {
                format!("unknown mode `{name}`; known are check, fuzz, fast, isolated")
            }),
            _ => Err("expected a mode such as \"check\"".to_owned()),
        };
        match &value {
            Value::Array(modes) if modes.is_empty() => Err("no mode".to_owned()),
            Value::Array(modes) => modes.iter().map(mode).collect::<Result<_, _>>().map(Self),
            one => Ok(Self(vec![mode(one)?])),
        }
    }
}

/// `64` or `[64, 2, 1]`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Extents(pub(super) Size);

impl TryFrom<Value> for Extents {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let invalid = || "expected a size: X or [X, Y] or [X, Y, Z]".to_owned();
        let extent = |value: &Value| {
            let extent = value.as_integer().and_then(|v| usize::try_from(v).ok());
            extent.ok_or_else(invalid)
        };
        let extents = match &value {
            Value::Array(extents) => extents.iter().map(extent).collect::<Result<_, _>>()?,
            one => vec![extent(one)?],
        };
        match extents[..] {
            [x] => Ok(Self(Size::x(x))),
            [x, y] => Ok(Self(Size::xy(x, y))),
            [x, y, z] => Ok(Self(Size::new(x, y, z))),
            _ => Err(invalid()),
        }
    }
}

/// A buffer's name, or `{ buffer = NAME, offset = BYTES }`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Binding {
    pub(super) buffer: String,
    pub(super) offset: usize,
}

impl TryFrom<Value> for Binding {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            buffer: String,
            #[serde(default)]
            offset: usize,
        }
        match value {
            Value::String(buffer) => Ok(Self { buffer, offset: 0 }),
            value => {
                let table: Table = value.try_into().map_err(|error: toml::de::Error| {
                    format!(
                        "expected the name of a buffer or {{ buffer, offset }}: {}",
                        error.message()
                    )
                })?;
                Ok(Self {
                    buffer: table.buffer,
                    offset: table.offset,
                })
            }
        }
    }
}

/// `"u32:256"`, as in `msl run --bytes`.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Bytes(pub(super) BytesSpec);

impl TryFrom<String> for Bytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let spec = text.parse::<BytesSpec>();
        spec.map(Self).map_err(|error| format!("{error:#}"))
    }
}

/// `1024` or `"16K"`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Length(pub(super) usize);

impl TryFrom<Value> for Length {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let length = match &value {
            Value::Integer(length) => usize::try_from(*length).ok(),
            Value::String(text) => text.parse::<ByteCount>().ok().map(|count| count.0),
            _ => None,
        };
        let length = length.map(Self);
        length.ok_or_else(|| "expected a number of bytes such as 1024 or \"16K\"".to_owned())
    }
}
