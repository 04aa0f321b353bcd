//! Elementwise ops, reductions, scans and sorts at the four sizes.

use bench_protocol::{DType, Fill, Op};

use super::{Builder, COLUMNS, Entry, Family, SIZES};

/// A measured function of one element: type and range of the operand, type of the result.
struct Unary(Op, DType, [f64; 2], DType);

/// A measured function of two elements: type and ranges of the operands, type of the result.
struct Binary(Op, DType, [[f64; 2]; 2], DType);

macro_rules! functions {
    (
        unary {$(
            $(#[$doc:meta])*
            $unary:ident $name:ident $(($parameter:literal))? $of:ident [$low:literal, $high:literal] $to:ident;
        )*}
        binary {$(
            $binary:ident $method:ident $type:ident [$($a:literal),*] [$($b:literal),*] $result:ident;
        )*}
    ) => {
        const UNARY: &[Unary] = &[$(Unary(Op::$unary, DType::$of, [$low, $high], DType::$to)),*];
        const BINARY: &[Binary] =
            &[$(Binary(Op::$binary, DType::$type, [[$($a),*], [$($b),*]], DType::$result)),*];
    };
}

bench_protocol::for_each_function!(functions);

const BIT: Fill = Fill::Uniform {
    low: 0.0,
    high: 1.0,
};

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
    // Near one, so that a product of millions of factors stays finite.
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
    let range = |[low, high]: [f64; 2]| Fill::Uniform { low, high };
    for &Unary(op, dtype, of, to) in UNARY {
        let operand = new(Family::Unary, op).input(dtype, &[n], range(of));
        entries.push(operand.done(n * to.size()));
    }
    for &Binary(op, dtype, of, to) in BINARY {
        let mut both = new(Family::Binary, op);
        for of in of {
            both = both.input(dtype, &[n], range(of));
        }
        entries.push(both.done(n * to.size()));
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
        // Values that never decide the result, so that nothing can return early.
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
