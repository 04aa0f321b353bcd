//! The cases: every op at every size.

mod elementwise;
mod linear;
mod network;

use std::collections::BTreeMap;

use bench_protocol::{Case, DType, Fill, Input, Op};
use serde::Serialize;

/// A group of ops in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Family {
    Overhead,
    Copy,
    Unary,
    Binary,
    Ternary,
    Cast,
    Chain,
    Reduction,
    Order,
    Matmul,
    Linear,
    Softmax,
    Norm,
    Rope,
    Attention,
    Neural,
    Index,
    Prefill,
    Decode,
}

impl Family {
    /// All families, in the order of the report.
    pub(crate) const ALL: [Self; 19] = [
        Self::Overhead,
        Self::Copy,
        Self::Unary,
        Self::Binary,
        Self::Ternary,
        Self::Cast,
        Self::Chain,
        Self::Reduction,
        Self::Order,
        Self::Matmul,
        Self::Linear,
        Self::Softmax,
        Self::Norm,
        Self::Rope,
        Self::Attention,
        Self::Neural,
        Self::Index,
        Self::Prefill,
        Self::Decode,
    ];

    /// The name for `--only` and in files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Overhead => "overhead",
            Self::Copy => "copy",
            Self::Unary => "unary",
            Self::Binary => "binary",
            Self::Ternary => "ternary",
            Self::Cast => "cast",
            Self::Chain => "chain",
            Self::Reduction => "reduction",
            Self::Order => "order",
            Self::Matmul => "matmul",
            Self::Linear => "linear",
            Self::Softmax => "softmax",
            Self::Norm => "norm",
            Self::Rope => "rope",
            Self::Attention => "attention",
            Self::Neural => "neural",
            Self::Index => "index",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// The heading in reports.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Overhead => "Overhead: eight elements",
            Self::Copy => "Plain copy",
            Self::Unary => "Elementwise, one operand",
            Self::Binary => "Elementwise, two operands",
            Self::Ternary => "Elementwise, three operands",
            Self::Cast => "Casts",
            Self::Chain => "Eight elementwise ops in a row",
            Self::Reduction => "Reductions",
            Self::Order => "Scans, sorts, top-k",
            Self::Matmul => "Matrix products",
            Self::Linear => "Other linear algebra",
            Self::Softmax => "Softmax",
            Self::Norm => "Norms",
            Self::Rope => "Rotary embeddings",
            Self::Attention => "Attention",
            Self::Neural => "Other neural ops",
            Self::Index => "Indexing and copies",
            Self::Prefill => "Prompts",
            Self::Decode => "Token by token",
        }
    }

    /// Returns `true` for elementwise ops, whose large cases are compared with the machine's copy bandwidth.
    pub(crate) fn is_elementwise(self) -> bool {
        matches!(
            self,
            Self::Unary | Self::Binary | Self::Ternary | Self::Cast
        )
    }
}

/// One case with its description in reports.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The group in reports.
    pub(crate) family: Family,
    /// The row: the op and its variant.
    pub(crate) name: String,
    /// The column: the size or the shape.
    pub(crate) size: String,
    /// Number of elements of the main operand.
    pub(crate) elements: usize,
    /// Bytes that must be read and written.
    pub(crate) bytes: usize,
    /// Floating-point operations of compute-bound cases.
    pub(crate) flops: Option<f64>,
    /// Tokens per call of a language model.
    pub(crate) tokens: Option<usize>,
    /// The request to every contestant.
    pub(crate) case: Case,
}

/// The sizes: name and number of elements. Multiples of 1024, for rows of 1024.
pub(crate) const SIZES: [(&str, usize); 4] = [
    ("1K", 1 << 10),
    ("10K", 10 << 10),
    ("1M", 1 << 20),
    ("16M", 1 << 24),
];

/// Columns of the matrices of these sizes.
const COLUMNS: usize = 1024;

/// All cases.
pub(crate) fn all() -> Vec<Entry> {
    let mut entries = elementwise::entries();
    entries.extend(linear::entries());
    entries.extend(network::entries());
    entries.sort_by_key(|e| e.family);
    entries
}

/// The cases that `--only` and `--sizes` select.
pub(crate) fn selected(only: &[String], sizes: &[String]) -> Vec<Entry> {
    let wanted = |e: &Entry| {
        only.is_empty()
            || only
                .iter()
                .any(|o| *o == e.family.name() || *o == e.name || *o == e.case.op.name())
    };
    let sized = |e: &Entry| sizes.is_empty() || sizes.contains(&e.size);
    all()
        .into_iter()
        .filter(|e| wanted(e) && sized(e))
        .collect()
}

/// A builder of entries with common defaults.
struct Builder {
    entry: Entry,
}

impl Builder {
    fn new(family: Family, op: Op, size: impl Into<String>) -> Self {
        Self {
            entry: Entry {
                family,
                name: op.name(),
                size: size.into(),
                elements: 0,
                bytes: 0,
                flops: None,
                tokens: None,
                case: Case {
                    op,
                    inputs: Vec::new(),
                    numbers: BTreeMap::new(),
                    to: None,
                    equation: None,
                    model: None,
                },
            },
        }
    }

    fn named(mut self, name: impl Into<String>) -> Self {
        self.entry.name = name.into();
        self
    }

    fn input(mut self, dtype: DType, shape: &[usize], fill: Fill) -> Self {
        self.entry.case.inputs.push(Input {
            shape: shape.to_vec(),
            dtype,
            fill,
        });
        self
    }

    /// An `f32` input with values in a range.
    fn uniform(self, shape: &[usize], low: f64, high: f64) -> Self {
        self.input(DType::F32, shape, Fill::Uniform { low, high })
    }

    /// An `f32` input with values around zero.
    fn values(self, shape: &[usize]) -> Self {
        self.uniform(shape, -1.0, 1.0)
    }

    fn number(mut self, name: &str, value: f64) -> Self {
        self.entry.case.numbers.insert(name.to_owned(), value);
        self
    }

    fn flops(mut self, flops: f64) -> Self {
        self.entry.flops = Some(flops);
        self
    }

    /// Finishes the entry, with the size of the result in bytes.
    fn done(mut self, result: usize) -> Entry {
        let inputs = &self.entry.case.inputs;
        self.entry.elements = inputs.iter().map(Input::count).max().unwrap_or(0);
        self.entry.bytes = inputs.iter().map(Input::bytes).sum::<usize>() + result;
        self.entry
    }
}

/// `3×4` of `[3, 4]`.
fn shape_name(shape: &[usize]) -> String {
    let sides: Vec<_> = shape.iter().map(usize::to_string).collect();
    sides.join("×")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn case_names_are_unique() {
        let mut seen = HashSet::new();
        for e in all() {
            let id = (e.family, e.name.clone(), e.size.clone());
            assert!(seen.insert(id), "{} {} twice", e.name, e.size);
        }
    }

    #[test]
    fn only_accepts_ops_and_families() {
        let ops = |only: &str| -> HashSet<Op> {
            selected(&[only.to_owned()], &[])
                .iter()
                .map(|e| e.case.op)
                .collect()
        };
        assert!(ops("rope").contains(&Op::RopeInterleaved));
        assert_eq!(ops("exp"), HashSet::from([Op::Exp]));
    }

    #[test]
    fn elementwise_cases_count_their_minimum_traffic() {
        let add = all()
            .into_iter()
            .find(|e| e.name == "add" && e.size == "1M")
            .expect("add is measured at 1M");
        assert_eq!(add.bytes, 3 * (4 << 20));
    }
}
