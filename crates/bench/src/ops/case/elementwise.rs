//! Elementwise ops, reductions, scans and sorts at the four sizes.

use super::{Builder, COLUMNS, Entry, Family, SIZES};
use bench_protocol::{DType, Fill, Op};

/// Ops of one operand with the range of their values.
const UNARY: [(Op, f64, f64); 46] = [
    (Op::Neg, -1.0, 1.0),
    (Op::Abs, -1.0, 1.0),
    (Op::Sign, -1.0, 1.0),
    (Op::Square, -1.0, 1.0),
    (Op::Sqrt, 0.1, 4.0),
    (Op::Rsqrt, 0.1, 4.0),
    (Op::Reciprocal, 0.5, 2.0),
    (Op::Cbrt, -4.0, 4.0),
    (Op::Exp, -4.0, 4.0),
    (Op::Exp2, -4.0, 4.0),
    (Op::Expm1, -2.0, 2.0),
    (Op::Log, 0.1, 10.0),
    (Op::Log2, 0.1, 10.0),
    (Op::Log10, 0.1, 10.0),
    (Op::Log1p, -0.5, 10.0),
    (Op::Sin, -10.0, 10.0),
    (Op::Cos, -10.0, 10.0),
    (Op::Tan, -1.2, 1.2),
    (Op::Asin, -0.99, 0.99),
    (Op::Acos, -0.99, 0.99),
    (Op::Atan, -4.0, 4.0),
    (Op::Sinh, -3.0, 3.0),
    (Op::Cosh, -3.0, 3.0),
    (Op::Tanh, -4.0, 4.0),
    (Op::Asinh, -10.0, 10.0),
    (Op::Acosh, 1.1, 10.0),
    (Op::Atanh, -0.9, 0.9),
    (Op::Erf, -3.0, 3.0),
    (Op::Sigmoid, -6.0, 6.0),
    (Op::LogSigmoid, -6.0, 6.0),
    (Op::Softplus, -6.0, 6.0),
    (Op::Relu, -1.0, 1.0),
    (Op::LeakyRelu, -1.0, 1.0),
    (Op::Elu, -3.0, 3.0),
    (Op::Silu, -6.0, 6.0),
    (Op::Gelu, -4.0, 4.0),
    (Op::GeluTanh, -4.0, 4.0),
    (Op::Hardswish, -4.0, 4.0),
    (Op::Mish, -6.0, 6.0),
    (Op::Ceil, -10.0, 10.0),
    (Op::Floor, -10.0, 10.0),
    (Op::Round, -10.0, 10.0),
    (Op::Trunc, -10.0, 10.0),
    (Op::IsNan, -1.0, 1.0),
    (Op::IsInf, -1.0, 1.0),
    (Op::IsFinite, -1.0, 1.0),
];

/// Ops of two `f32` operands with the ranges of both.
const BINARY: [(Op, [f64; 4]); 17] = [
    (Op::Add, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Sub, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Mul, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Div, [-1.0, 1.0, 0.5, 2.0]),
    (Op::FloorDiv, [-10.0, 10.0, 0.5, 3.0]),
    (Op::Rem, [-10.0, 10.0, 0.5, 3.0]),
    (Op::Pow, [0.1, 4.0, -2.0, 2.0]),
    (Op::Minimum, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Maximum, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Atan2, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Hypot, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Eq, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Ne, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Lt, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Le, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Gt, [-1.0, 1.0, -1.0, 1.0]),
    (Op::Ge, [-1.0, 1.0, -1.0, 1.0]),
];

const BIT: Fill = Fill::Uniform {
    low: 0.0,
    high: 1.0,
};
const WHOLE: Fill = Fill::Uniform {
    low: -1000.0,
    high: 1000.0,
};
const SHIFT: Fill = Fill::Uniform {
    low: 0.0,
    high: 8.0,
};

/// Ops of two operands that are not floats.
const WHOLE_BINARY: [(Op, DType, Fill, Fill); 8] = [
    (Op::LogicalAnd, DType::Bool, BIT, BIT),
    (Op::LogicalOr, DType::Bool, BIT, BIT),
    (Op::LogicalXor, DType::Bool, BIT, BIT),
    (Op::BitwiseAnd, DType::I32, WHOLE, WHOLE),
    (Op::BitwiseOr, DType::I32, WHOLE, WHOLE),
    (Op::BitwiseXor, DType::I32, WHOLE, WHOLE),
    (Op::ShiftLeft, DType::I32, WHOLE, SHIFT),
    (Op::ShiftRight, DType::I32, WHOLE, SHIFT),
];

const CASTS: [(DType, DType); 8] = [
    (DType::F32, DType::F16),
    (DType::F16, DType::F32),
    (DType::F32, DType::Bf16),
    (DType::Bf16, DType::F32),
    (DType::F32, DType::F64),
    (DType::F32, DType::I32),
    (DType::I32, DType::F32),
    (DType::U8, DType::F32),
];

/// Reductions with the range of their values.
const REDUCTIONS: [(Op, f64, f64); 9] = [
    (Op::Sum, 0.0, 1.0),
    (Op::Mean, 0.0, 1.0),
    // Near one: a product of millions of factors stays a number.
    (Op::Prod, 0.9999, 1.0001),
    (Op::Min, -1.0, 1.0),
    (Op::Max, -1.0, 1.0),
    (Op::Var, -1.0, 1.0),
    (Op::Std, -1.0, 1.0),
    (Op::Logsumexp, -4.0, 4.0),
    (Op::Norm, -1.0, 1.0),
];

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = vec![
        Builder::new(Family::Overhead, Op::Add, "8")
            .values(&[8])
            .values(&[8])
            .done(32),
        Builder::new(Family::Overhead, Op::Exp, "8")
            .values(&[8])
            .done(32),
        Builder::new(Family::Overhead, Op::Sum, "8")
            .values(&[8])
            .done(4),
        Builder::new(Family::Overhead, Op::Matmul, "8")
            .values(&[2, 4])
            .values(&[4, 2])
            .done(16),
    ];
    for (size, n) in SIZES {
        elementwise(&mut entries, size, n);
        reductions(&mut entries, size, n);
        orders(&mut entries, size, n);
    }
    entries
}

fn elementwise(entries: &mut Vec<Entry>, size: &str, n: usize) {
    let new = |family, op| Builder::new(family, op, size);
    let matrix = [n / COLUMNS, COLUMNS];
    entries.push(new(Family::Copy, Op::Copy).values(&[n]).done(4 * n));
    for (op, low, high) in UNARY {
        let result = match op {
            Op::IsNan | Op::IsInf | Op::IsFinite => n,
            _ => 4 * n,
        };
        entries.push(new(Family::Unary, op).uniform(&[n], low, high).done(result));
    }
    entries.push(
        new(Family::Unary, Op::LogicalNot)
            .input(DType::Bool, &[n], BIT)
            .done(n),
    );
    entries.push(
        new(Family::Unary, Op::BitwiseNot)
            .input(DType::I32, &[n], WHOLE)
            .done(4 * n),
    );
    for (op, [low, high, least, most]) in BINARY {
        let compares = matches!(op, Op::Eq | Op::Ne | Op::Lt | Op::Le | Op::Gt | Op::Ge);
        let result = if compares { n } else { 4 * n };
        let both = new(Family::Binary, op).uniform(&[n], low, high);
        entries.push(both.uniform(&[n], least, most).done(result));
    }
    for (op, dtype, a, b) in WHOLE_BINARY {
        let both = new(Family::Binary, op).input(dtype, &[n], a);
        entries.push(both.input(dtype, &[n], b).done(n * dtype.size()));
    }
    entries.push(new(Family::Binary, Op::AddScalar).values(&[n]).done(4 * n));
    for (name, shape) in [("add row", [1, COLUMNS]), ("add column", [n / COLUMNS, 1])] {
        let sum = new(Family::Binary, Op::Add).named(name).values(&matrix);
        entries.push(sum.values(&shape).done(4 * n));
    }
    let choice = new(Family::Ternary, Op::Where).input(DType::Bool, &[n], BIT);
    entries.push(choice.values(&[n]).values(&[n]).done(4 * n));
    entries.push(new(Family::Ternary, Op::Clamp).values(&[n]).done(4 * n));
    for op in [Op::MulAdd, Op::Lerp] {
        let three = new(Family::Ternary, op).values(&[n]).values(&[n]);
        entries.push(three.uniform(&[n], 0.0, 1.0).done(4 * n));
    }
    for (from, to) in CASTS {
        let range = Fill::Uniform {
            low: 0.0,
            high: 200.0,
        };
        let mut entry = new(Family::Cast, Op::Cast)
            .named(format!("{} to {}", from.name(), to.name()))
            .input(from, &[n], range)
            .done(n * to.size());
        entry.case.to = Some(to);
        entries.push(entry);
    }
    for op in [Op::Chain, Op::ChainExp] {
        entries.push(new(Family::Chain, op).values(&[n]).values(&[n]).done(4 * n));
    }
}

fn reductions(entries: &mut Vec<Entry>, size: &str, n: usize) {
    let new = |op: Op, how: &str| {
        let name = format!("{} {how}", op.name());
        Builder::new(Family::Reduction, op, size).named(name)
    };
    let rows = n / COLUMNS;
    let matrix = [rows, COLUMNS];
    for (op, low, high) in REDUCTIONS {
        entries.push(new(op, "all").uniform(&[n], low, high).done(4));
        let last = new(op, "rows").uniform(&matrix, low, high);
        entries.push(last.number("axis", -1.0).done(4 * rows));
        if matches!(op, Op::Sum | Op::Max | Op::Var) {
            let first = new(op, "columns").uniform(&matrix, low, high);
            entries.push(first.number("axis", 0.0).done(4 * COLUMNS));
        }
    }
    for op in [Op::Argmin, Op::Argmax] {
        entries.push(new(op, "all").values(&[n]).number("axis", 0.0).done(8));
        entries.push(
            new(op, "rows")
                .values(&matrix)
                .number("axis", -1.0)
                .done(8 * rows),
        );
    }
    for op in [Op::Any, Op::All] {
        // The value that is not decisive, everywhere: no early end.
        let value = f64::from(u8::from(op == Op::All));
        let fill = Fill::Uniform {
            low: value,
            high: value,
        };
        entries.push(new(op, "all").input(DType::Bool, &[n], fill).done(1));
        entries.push(
            new(op, "rows")
                .input(DType::Bool, &matrix, fill)
                .number("axis", -1.0)
                .done(rows),
        );
    }
}

fn orders(entries: &mut Vec<Entry>, size: &str, n: usize) {
    let new = |op: Op, how: &str| {
        let name = format!("{} {how}", op.name());
        Builder::new(Family::Order, op, size).named(name)
    };
    let rows = n / COLUMNS;
    let matrix = [rows, COLUMNS];
    for (op, low, high) in [
        (Op::Cumsum, 0.0, 1.0),
        (Op::Cumprod, 0.9999, 1.0001),
        (Op::Cummax, -1.0, 1.0),
    ] {
        entries.push(
            new(op, "all")
                .uniform(&[n], low, high)
                .number("axis", 0.0)
                .done(4 * n),
        );
        let last = new(op, "rows").uniform(&matrix, low, high);
        entries.push(last.number("axis", -1.0).done(4 * n));
    }
    for (op, result) in [(Op::Sort, 4), (Op::Argsort, 8)] {
        entries.push(new(op, "all").values(&[n]).done(result * n));
        entries.push(new(op, "rows").values(&matrix).done(result * n));
    }
    let top = new(Op::Topk, "rows").values(&matrix).number("k", 32.0);
    entries.push(top.done(12 * 32 * rows));
}
