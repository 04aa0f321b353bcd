//! A case, and the requests and replies around it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Op;

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

/// The values of an input.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Uniform in `[low, high)`; integers for integer types, `>= 0.5` for bool.
    Uniform {
        /// Lower bound, inclusive.
        low: f64,
        /// Upper bound, exclusive.
        high: f64,
    },
    /// `i · 7919 mod modulus`: a pseudo-random permutation of the indices below the modulus.
    Stride {
        /// Number of distinct values.
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

/// One measurement: an op, its inputs and its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The op.
    pub op: Op,
    /// Operands, in the order of the op's definition.
    pub inputs: Vec<Input>,
    /// Parameters of the op (`axis`, `k`, `eps`, …).
    #[serde(default)]
    pub numbers: BTreeMap<String, f64>,
    /// Target of a cast.
    #[serde(default)]
    pub to: Option<DType>,
    /// Equation of an einsum.
    #[serde(default)]
    pub equation: Option<String>,
    /// The input of a language model.
    #[serde(default)]
    pub model: Option<Model>,
}

/// A language model and its tokens: all contestants get the same, without sampling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// A GGUF file.
    pub path: String,
    /// Tokens of the prompt, for prefill.
    pub prompt: Vec<u32>,
    /// Tokens to decode one by one.
    pub next: Vec<u32>,
}

impl Model {
    /// Tokens of both.
    pub fn context(&self) -> usize {
        self.prompt.len() + self.next.len()
    }
}

impl Case {
    /// A parameter of the case; 0 if it has none of this name.
    pub fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or(0.0)
    }

    /// An integer parameter of the case.
    pub fn whole(&self, name: &str) -> usize {
        self.number(name) as usize
    }

    /// The axis of the case, if it has one; `None` means all axes.
    pub fn axis(&self) -> Option<isize> {
        self.numbers.get("axis").map(|&a| a as isize)
    }
}

/// A request to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Describe yourself.
    Info,
    /// Generate the data and compute once.
    Prepare(Box<Case>),
    /// Compute this many times, and return the time.
    Run(u64),
    /// Drop the case.
    Drop,
}

/// A reply of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To `Info`.
    Info(WorkerInfo),
    /// To `Prepare`: the result.
    Ready(Output),
    /// To `Prepare`: this library has no such op.
    Unsupported(String),
    /// To `Run`: total time of all calls.
    Nanoseconds(u64),
    /// To `Drop`.
    Dropped,
    /// The request failed.
    Error(String),
}

/// Description of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerInfo {
    /// Name of the library.
    pub name: String,
    /// Its version and backend.
    pub version: String,
    /// Number of threads.
    pub threads: usize,
}

/// A summary of the result, to check that all contestants did the same work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Number of elements.
    pub count: usize,
    /// Mean of all elements that are finite.
    pub mean: f64,
    /// Elements at [`data::positions`](crate::data::positions); nonfinite ones are absent.
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
