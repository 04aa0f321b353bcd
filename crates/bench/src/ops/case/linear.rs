//! Matrix products of many shapes, and the rest of linear algebra.

use bench_protocol::{DType, Fill, Op};

use super::{Builder, Entry, Family, SIZES, shape_name};

const AROUND_ZERO: Fill = Fill::Uniform {
    low: -1.0,
    high: 1.0,
};

/// `m, k, n` of rectangular shapes, with their use.
const SHAPES: [(&str, [usize; 3]); 10] = [
    ("tall", [4096, 64, 64]),
    ("tall", [8192, 256, 32]),
    ("flat", [64, 4096, 64]),
    ("flat", [32, 256, 8192]),
    ("odd", [127, 129, 131]),
    ("odd", [333, 555, 777]),
    ("odd", [1023, 1025, 1021]),
    ("layer, 8 tokens", [8, 2048, 2048]),
    ("layer, 128 tokens", [128, 1024, 4096]),
    ("layer, 512 tokens", [512, 768, 3072]),
];

fn product(op: Op, dtype: DType, name: &str, [m, k, n]: [usize; 3]) -> Entry {
    let right = if op == Op::MatmulTransposed {
        [n, k]
    } else {
        [k, n]
    };
    let size = if m == k && k == n {
        m.to_string()
    } else {
        shape_name(&[m, k, n])
    };
    Builder::new(Family::Matmul, op, size)
        .named(name)
        .input(dtype, &[m, k], AROUND_ZERO)
        .input(dtype, &right, AROUND_ZERO)
        .flops(2.0 * (m * k * n) as f64)
        .done(m * n * dtype.size())
}

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for side in [64, 128, 256, 512, 1024, 2048] {
        entries.push(product(Op::Matmul, DType::F32, "f32", [side; 3]));
    }
    for (name, shape) in SHAPES {
        entries.push(product(
            Op::Matmul,
            DType::F32,
            &format!("f32 {name}"),
            shape,
        ));
    }
    for side in [256, 1024] {
        let name = "f32 a·bᵀ";
        entries.push(product(Op::MatmulTransposed, DType::F32, name, [side; 3]));
    }
    for shape in [[8, 2048, 2048], [128, 1024, 4096]] {
        let name = "f32 packed weight";
        entries.push(product(Op::MatmulPacked, DType::F32, name, shape));
    }
    for dtype in [DType::F64, DType::F16, DType::Bf16] {
        for side in [128, 512, 1024] {
            entries.push(product(Op::Matmul, dtype, dtype.name(), [side; 3]));
        }
    }
    for dtype in [DType::F16, DType::Bf16] {
        let name = format!("{} layer", dtype.name());
        entries.push(product(Op::Matmul, dtype, &name, [128, 1024, 4096]));
    }
    let batch = Builder::new(Family::Matmul, Op::Matmul, "16×128×64×128")
        .named("f32 batch")
        .values(&[16, 128, 64])
        .values(&[16, 64, 128])
        .flops(2.0 * (16 * 128 * 64 * 128) as f64);
    entries.push(batch.done(16 * 128 * 128 * 4));
    entries.extend(vectors());
    entries
}

fn vectors() -> Vec<Entry> {
    let new = |op: Op, size: String| Builder::new(Family::Linear, op, size);
    let mut entries = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::Bf16] {
        for side in [256, 1024, 4096] {
            let entry = new(Op::Matvec, side.to_string())
                .named(format!("matvec {}", dtype.name()))
                .input(dtype, &[side, side], AROUND_ZERO)
                .input(dtype, &[side], AROUND_ZERO)
                .flops(2.0 * (side * side) as f64);
            entries.push(entry.done(side * dtype.size()));
        }
    }
    for (size, n) in SIZES {
        let entry = new(Op::Dot, size.to_owned()).values(&[n]).values(&[n]);
        entries.push(entry.flops(2.0 * n as f64).done(4));
    }
    for side in [256, 1024, 4096] {
        let entry = new(Op::Outer, side.to_string())
            .values(&[side])
            .values(&[side]);
        entries.push(entry.done(side * side * 4));
    }
    // Operands, elements of the result, terms of each.
    let (square, batch, heads) = ([512, 512], [16, 128, 64], [1, 256, 8, 64]);
    for (equation, a, b, result, depth) in [
        ("ij,kj->ik", &square[..], &square[..], 512 * 512, 512),
        ("bij,bjk->bik", &batch, &[16, 64, 128], 16 * 128 * 128, 64),
        ("bthd,bshd->bhts", &heads, &heads, 8 * 256 * 256, 64),
    ] {
        let mut entry = new(Op::Einsum, shape_name(a))
            .named(format!("einsum {equation}"))
            .values(a)
            .values(b)
            .flops(2.0 * f64::from(result * depth))
            .done(result as usize * 4);
        entry.case.equation = Some(equation.to_owned());
        entries.push(entry);
    }
    for side in [256, 1024] {
        let entry = new(Op::Gemm, side.to_string())
            .named("gemm with alpha, beta")
            .values(&[side, side])
            .values(&[side, side])
            .values(&[side, side])
            .number("alpha", 0.5)
            .number("beta", 2.0)
            .flops(2.0 * (side * side * side) as f64);
        entries.push(entry.done(side * side * 4));
    }
    entries
}
