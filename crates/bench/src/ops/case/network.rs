//! Ops of neural networks at the shapes of models, and indexing.

use bench_protocol::{DType, Fill, Op};

use super::{Builder, COLUMNS, Entry, Family, SIZES, shape_name};

/// Softmax: rows of the four sizes, scores of attention, vocabularies.
const SOFTMAX: [&[usize]; 8] = [
    &[1, 1024],
    &[10, 1024],
    &[1024, 1024],
    &[16384, 1024],
    &[12, 128, 128],
    &[16, 512, 512],
    &[8, 32000],
    &[16, 128256],
];

/// Norms: tokens by width.
const NORM: [[usize; 2]; 7] = [
    [1, 1024],
    [10, 1024],
    [1, 4096],
    [128, 768],
    [512, 2048],
    [128, 4096],
    [4096, 4096],
];

/// RoPE: batch, heads, positions, head dimension.
const ROPE: [[usize; 4]; 5] = [
    [1, 32, 1, 128],
    [1, 12, 128, 64],
    [1, 32, 128, 128],
    [1, 32, 1024, 128],
    [1, 32, 4096, 128],
];

/// Attention: query heads, key heads, queries, keys, head dimension; causal.
const ATTENTION: [(&str, [usize; 5], bool); 7] = [
    ("whole", [12, 12, 128, 128, 64], false),
    ("causal", [12, 12, 512, 512, 64], true),
    ("causal", [8, 8, 2048, 2048, 128], true),
    ("causal, grouped", [32, 8, 512, 512, 128], true),
    ("one token", [12, 12, 1, 1024, 64], false),
    ("one token, grouped", [32, 8, 1, 1024, 128], false),
    ("one token, grouped", [32, 8, 1, 8192, 128], false),
];

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for shape in SOFTMAX {
        for op in [Op::Softmax, Op::LogSoftmax] {
            let entry = Builder::new(Family::Softmax, op, shape_name(shape));
            let entry = entry.uniform(shape, -4.0, 4.0).number("axis", -1.0);
            entries.push(entry.done(4 * shape.iter().product::<usize>()));
        }
    }
    for shape @ [rows, width] in NORM {
        let new = |op| {
            Builder::new(Family::Norm, op, shape_name(&shape))
                .uniform(&shape, -2.0, 2.0)
                .uniform(&[width], 0.5, 1.5)
                .number("eps", 1e-5)
        };
        entries.push(new(Op::RmsNorm).done(4 * rows * width));
        entries.push(new(Op::LayerNorm).values(&[width]).done(4 * rows * width));
    }
    for shape in ROPE {
        for op in [Op::Rope, Op::RopeInterleaved] {
            let entry = Builder::new(Family::Rope, op, shape_name(&shape)).values(&shape);
            let entry = entry.number("base", 10_000.0).number("offset", 0.0);
            entries.push(entry.done(4 * shape.iter().product::<usize>()));
        }
    }
    for (name, [heads, groups, queries, keys, width], causal) in ATTENTION {
        let work = 4.0 * (heads * queries * keys * width) as f64;
        let entry = Builder::new(
            Family::Attention,
            Op::Attention,
            shape_name(&[heads, queries, keys, width]),
        )
        .named(name)
        .values(&[1, heads, queries, width])
        .values(&[1, groups, keys, width])
        .values(&[1, groups, keys, width])
        .number("causal", f64::from(u8::from(causal)))
        .flops(if causal { work / 2.0 } else { work });
        entries.push(entry.done(4 * heads * queries * width));
    }
    entries.extend(layers());
    for (size, n) in SIZES {
        indexing(&mut entries, size, n);
    }
    entries
}

fn layers() -> Vec<Entry> {
    let new =
        |op: Op, shape: &[usize]| Builder::new(Family::Neural, op, shape_name(shape)).values(shape);
    let mut entries = Vec::new();
    for shape in [[1, 11008], [128, 11008]] {
        for op in [Op::Swiglu, Op::Geglu] {
            entries.push(new(op, &shape).values(&shape).done(4 * shape[0] * shape[1]));
        }
    }
    for (rows, width) in [(32, 1000), (128, 32000)] {
        let target = Fill::Uniform {
            low: 0.0,
            high: width as f64,
        };
        let entry = new(Op::CrossEntropy, &[rows, width]).input(DType::I64, &[rows], target);
        entries.push(entry.done(4));
    }
    for (_, n) in SIZES {
        entries.push(new(Op::Mse, &[n]).values(&[n]).done(4));
    }
    let group = new(Op::GroupNorm, &[1, 320, 64, 64])
        .uniform(&[320], 0.5, 1.5)
        .values(&[320])
        .number("groups", 32.0)
        .number("eps", 1e-5);
    entries.push(group.done(4 * 320 * 64 * 64));
    let batch = new(Op::BatchNorm, &[8, 64, 56, 56])
        .values(&[64])
        .uniform(&[64], 0.5, 2.0)
        .uniform(&[64], 0.5, 1.5)
        .values(&[64])
        .number("eps", 1e-5);
    entries.push(batch.done(4 * 8 * 64 * 56 * 56));
    entries.push(conv(Op::Conv1d, &[1, 80, 3000], &[384, 80, 3], 1, 1));
    entries.push(conv(Op::Conv2d, &[1, 3, 224, 224], &[64, 3, 7, 7], 2, 3));
    entries.push(conv(Op::Conv2d, &[1, 64, 56, 56], &[64, 64, 3, 3], 1, 1));
    entries.push(conv(Op::Conv2d, &[1, 256, 28, 28], &[512, 256, 1, 1], 1, 0));
    for op in [Op::MaxPool2d, Op::AvgPool2d] {
        let pool = new(op, &[1, 64, 112, 112]).number("size", 2.0);
        entries.push(pool.done(64 * 112 * 112));
    }
    entries.push(new(Op::UpsampleNearest, &[1, 64, 56, 56]).done(16 * 64 * 56 * 56));
    for tokens in [1, 512] {
        let ids = Fill::Uniform {
            low: 0.0,
            high: 32000.0,
        };
        let mut entry = Builder::new(Family::Neural, Op::Embedding, format!("{tokens} tokens"))
            .values(&[32000, 1024])
            .input(DType::I64, &[tokens], ids)
            .done(4 * tokens * 1024);
        entry.bytes = 8 * tokens * 1024;
        entries.push(entry);
    }
    entries
}

fn conv(op: Op, image: &[usize], kernel: &[usize], stride: usize, padding: usize) -> Entry {
    let out = |side: usize, k: usize| (side + 2 * padding - k) / stride + 1;
    let places: usize = image[2..]
        .iter()
        .zip(&kernel[2..])
        .map(|(&side, &k)| out(side, k))
        .product();
    let depth: usize = kernel[1..].iter().product();
    Builder::new(
        Family::Neural,
        op,
        format!("{} by {}", shape_name(image), shape_name(kernel)),
    )
    .values(image)
    .values(kernel)
    .number("stride", stride as f64)
    .number("padding", padding as f64)
    .number("groups", 1.0)
    .flops(2.0 * (kernel[0] * places * depth) as f64)
    .done(4 * kernel[0] * places)
}

fn indexing(entries: &mut Vec<Entry>, size: &str, n: usize) {
    let rows = n / COLUMNS;
    let matrix = [rows, COLUMNS];
    let new = |op: Op| Builder::new(Family::Index, op, size).values(&matrix);
    let within_row = Fill::Stride {
        modulus: COLUMNS as u64,
    };
    let gather = new(Op::Gather).input(DType::I64, &matrix, within_row);
    entries.push(gather.done(4 * n));
    let which = Fill::Stride {
        modulus: rows as u64,
    };
    entries.push(new(Op::Take).input(DType::I64, &[rows], which).done(4 * n));
    for op in [Op::Scatter, Op::ScatterAdd] {
        let entry = new(op)
            .input(DType::I64, &matrix, within_row)
            .values(&matrix);
        entries.push(entry.done(4 * n));
    }
    let bit = Fill::Uniform {
        low: 0.0,
        high: 1.0,
    };
    entries.push(
        new(Op::MaskedSelect)
            .input(DType::Bool, &matrix, bit)
            .done(2 * n),
    );
    entries.push(new(Op::SliceUpdate).values(&[rows, 512]).done(4 * n));
    for op in [Op::Concat, Op::Stack] {
        entries.push(new(op).values(&matrix).done(8 * n));
    }
    for (op, result) in [
        (Op::Split, 4),
        (Op::Repeat, 8),
        (Op::Tile, 16),
        (Op::Pad, 4),
        (Op::Roll, 4),
        (Op::Flip, 4),
        (Op::Tril, 4),
        (Op::Triu, 4),
        (Op::TransposeCopy, 4),
        (Op::StridedCopy, 2),
    ] {
        entries.push(new(op).done(result * n));
    }
}
