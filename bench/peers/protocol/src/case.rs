//! A case, and the requests and replies around it.

use crate::Op;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Element types that occur in the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "named after the types")]
pub enum DType {
    F16,
    Bf16,
    F32,
    F64,
    I32,
    I64,
    U8,
    Bool,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }

    /// The name in cases and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }
}

/// How an input is filled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Uniform in `[low, high)`; whole numbers for integers, at least a half for bool.
    Uniform {
        /// Least value.
        low: f64,
        /// Bound.
        high: f64,
    },
    /// `i · 7919 mod modulus`: every index below the modulus once, in no simple order.
    Stride {
        /// Number of different values.
        modulus: u64,
    },
}

/// One input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its element type.
    pub dtype: DType,
    /// Its values.
    pub fill: Fill,
}

impl Input {
    /// Number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Number of bytes.
    pub fn bytes(&self) -> usize {
        self.count() * self.dtype.size()
    }
}

/// One measurement: an op, its inputs and its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// What is computed.
    pub op: Op,
    /// Operands, in the order of the op's definition.
    pub inputs: Vec<Input>,
    /// Numbers the op takes besides (`axis`, `k`, `eps`, …).
    #[serde(default)]
    pub numbers: BTreeMap<String, f64>,
    /// Target of a cast.
    #[serde(default)]
    pub to: Option<DType>,
    /// Equation of an einsum.
    #[serde(default)]
    pub equation: Option<String>,
    /// What a language model is given.
    #[serde(default)]
    pub model: Option<Model>,
}

/// A language model and its tokens: everybody is given the same, and nobody chooses any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// A GGUF file.
    pub path: String,
    /// Tokens that are taken in at once.
    pub prompt: Vec<u32>,
    /// Tokens that follow one by one.
    pub next: Vec<u32>,
}

impl Model {
    /// Tokens of both.
    pub fn context(&self) -> usize {
        self.prompt.len() + self.next.len()
    }
}

impl Case {
    /// A number of the case; zero where it has none of this name.
    pub fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or(0.0)
    }

    /// A whole number of the case.
    pub fn whole(&self, name: &str) -> usize {
        self.number(name) as usize
    }

    /// The axis, where the case has one; none means over everything.
    pub fn axis(&self) -> Option<isize> {
        self.numbers.get("axis").map(|&a| a as isize)
    }
}

/// What a worker is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Who are you?
    Info,
    /// Make the data, compute once.
    Prepare(Box<Case>),
    /// Compute so many times, say how long it took.
    Run(u64),
    /// Forget the case.
    Drop,
}

/// What a worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To `Info`.
    Info(WorkerInfo),
    /// To `Prepare`: what came out.
    Ready(Output),
    /// To `Prepare`: this library has no such op.
    Unsupported(String),
    /// To `Run`: time of all calls together.
    Nanoseconds(u64),
    /// To `Drop`.
    Dropped,
    /// The request failed.
    Error(String),
}

/// Who a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Name of the library.
    pub name: String,
    /// Its version and what it computes with.
    pub version: String,
    /// Threads it computes with.
    pub threads: usize,
}

/// What came out, in short: enough to see that all contestants did the same work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Number of elements.
    pub count: usize,
    /// Mean of all elements that are finite.
    pub mean: f64,
    /// Elements at [`data::positions`](crate::data::positions); what is not finite is absent.
    pub sample: Vec<Option<f64>>,
}

impl Output {
    /// Sums up a result.
    pub fn of<T: Copy>(values: &[T], to_f64: impl Fn(T) -> f64) -> Self {
        let sample = crate::data::positions(values.len())
            .map(|i| Some(to_f64(values[i])).filter(|v| v.is_finite()))
            .collect();
        let finite = values.iter().map(|&v| to_f64(v)).filter(|v| v.is_finite());
        let (sum, count) = finite.fold((0.0, 0_usize), |(s, n), v| (s + v, n + 1));
        Self {
            count: values.len(),
            mean: sum / count.max(1) as f64,
            sample,
        }
    }
}
