//! Hostile arguments of the public API: sizes near `usize::MAX`, axes and offsets at the ends of their types, lengths that
//! do not match. Each call returns an error or a result; none panics, overflows or exhausts memory.
//!
//! The tests run with overflow checks in the dev profile, on the device that `BESSEMER_DEVICE` selects.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use bessemer::dispatch_table::{DispatchTable, OpClass};
use bessemer::external::HostBuffer;
use bessemer::quant::{self, BlockFormat, Precision, Product, QuantMatrix, Weights};
use bessemer::{
    AttentionOptions, Axes, CacheType, ConvOptions, DType, Error, Layout, PoolOptions, RopeOptions,
    RopeScaling, RopeStyle, RopeTable, Scalar, Shape, Tensor, memory, random,
};

/// Bytes that tensors may occupy: what is larger is an error, and does not slow the machine down.
const MEMORY_LIMIT_BYTES: usize = 64 << 20;

/// Sizes, counts and indices.
const SIZES: [usize; 12] = [
    0,
    1,
    2,
    7,
    1 << 31,
    u32::MAX as usize,
    1 << 32,
    1 << 40,
    usize::MAX / 8,
    isize::MAX as usize,
    usize::MAX - 1,
    usize::MAX,
];

/// Axes, shifts and signed indices.
const OFFSETS: [isize; 10] = [
    isize::MIN,
    isize::MIN + 1,
    -(1 << 40),
    i32::MIN as isize,
    -1,
    0,
    1,
    1 << 31,
    isize::MAX - 1,
    isize::MAX,
];

/// The calls that panicked.
#[derive(Default)]
struct Panics(Vec<String>);

impl Panics {
    /// Runs a call, and remembers it if it panics.
    fn run<R>(&mut self, what: String, call: impl FnOnce() -> R) {
        static LIMIT: Once = Once::new();
        LIMIT.call_once(|| {
            memory::set_memory_limit(MEMORY_LIMIT_BYTES);
            if let Ok(device) = bessemer::Device::current() {
                device.set_memory_limit(MEMORY_LIMIT_BYTES);
            }
        });
        if catch_unwind(AssertUnwindSafe(call)).is_err() {
            self.0.push(what);
        }
    }

    /// Runs a call that makes tensors, evaluates them, and prints the small ones.
    fn tensors(&mut self, what: String, call: impl FnOnce() -> Vec<Tensor>) {
        self.run(what, || {
            for tensor in call() {
                let is_small = tensor.check().is_ok_and(|t| t.count() <= 1 << 16);
                let _ = tensor.eval();
                if is_small {
                    let _ = format!("{tensor} {tensor:?} {tensor:#}");
                }
            }
        });
    }

    fn expect_none(self) {
        assert!(self.0.is_empty(), "these panic: {:#?}", self.0);
    }
}

fn matrix() -> Tensor {
    Tensor::arange(0, 12, 1, DType::F32).reshape([3, 4])
}

fn image() -> Tensor {
    Tensor::arange(0, 2 * 4 * 5 * 5, 1, DType::F32).reshape([2, 4, 5, 5])
}

type SizeCall = (&'static str, fn(usize) -> Vec<Tensor>);

const SIZE_CALLS: &[SizeCall] = &[
    ("zeros", |n| vec![Tensor::zeros([n], DType::F64)]),
    ("ones", |n| vec![Tensor::ones([n, n], DType::U8)]),
    ("full", |n| vec![Tensor::full([0, n, n], 1, DType::I16)]),
    ("eye", |n| vec![Tensor::eye(n, DType::F16)]),
    ("linspace", |n| {
        vec![
            Tensor::linspace(0.0, 1.0, n, DType::F32),
            Tensor::linspace(f64::MAX, f64::MIN, n, DType::BF16),
        ]
    }),
    ("arange", |n| {
        let n = n as u64;
        vec![
            Tensor::arange(0_u64, n, 1, DType::I64),
            Tensor::arange(i64::MIN, n, n, DType::U64),
        ]
    }),
    ("reshape", |n| {
        vec![
            matrix().reshape([n, 12]),
            Tensor::zeros([0, n], DType::F32).reshape([n, 0]),
        ]
    }),
    ("broadcast_to", |n| {
        let wide = matrix().broadcast_to([n, 3, 4]);
        vec![wide.contiguous(), wide.cast(DType::U8)]
    }),
    ("narrow", |n| {
        vec![
            matrix().narrow(0, n, 1),
            matrix().narrow(0, 1, n),
            matrix().narrow(1, n, n),
        ]
    }),
    ("split", |n| {
        let wide = Tensor::zeros([1], DType::U8).broadcast_to([n]);
        let mut all = matrix().split(n, 0);
        all.extend(wide.split(n, 0).into_iter().take(3));
        all.extend(matrix().split_sizes(&[n, n], 0));
        all.extend(matrix().split_sizes(&[n, 1], 1));
        all
    }),
    ("repeat", |n| {
        vec![matrix().repeat(n, 0), matrix().repeat(n, 1)]
    }),
    ("tile", |n| {
        vec![
            matrix().tile(&[n]),
            matrix().tile(&[n, n]),
            matrix().tile(&[n; 8]),
        ]
    }),
    ("pad", |n| {
        vec![
            matrix().pad(&[(n, 0), (0, n)], 0),
            matrix().pad(&[(n, n), (0, 0)], 0),
            matrix().narrow(0, 0, 0).pad(&[(0, n), (0, 0)], 0),
        ]
    }),
    ("upsample_nearest", |n| vec![image().upsample_nearest(n)]),
    ("topk", |n| {
        let (values, indices) = matrix().topk(n, 0, true);
        vec![values, indices]
    }),
    ("var", |n| {
        vec![matrix().var(&[0], false, n), matrix().std(&[], true, n)]
    }),
    ("group_norm", |n| {
        vec![image().group_norm(n, None, None, 1e-5)]
    }),
    ("slice_update", |n| {
        vec![
            matrix().slice_update(&Tensor::ones([1, 1], DType::F32), &[n, 0]),
            matrix().slice_update(&Tensor::ones([1, 1], DType::F32), &[n, n]),
        ]
    }),
    ("max_pool", |n| {
        let options = |kernel, stride, padding| PoolOptions {
            kernel: [kernel, 2],
            stride: [stride, 1],
            padding: [padding, 0],
            count_padding: false,
        };
        vec![
            image().max_pool2d(&options(n, 1, 0)),
            image().max_pool2d(&options(2, n, 1)),
            image().avg_pool2d(&options(2, 1, n)),
            image().avg_pool2d(&options(n, n, n)),
        ]
    }),
    ("conv", |n| {
        let weight = Tensor::ones([4, 2, 3, 3], DType::F32);
        let options = |stride, padding, dilation, groups| ConvOptions {
            stride: [stride, 1],
            padding: [padding, 0],
            dilation: [dilation, 1],
            groups,
        };
        let conv = |options| image().conv2d(&weight, None, &options);
        vec![
            conv(options(n, 0, 1, 2)),
            conv(options(1, n, 1, 2)),
            conv(options(1, 0, n, 2)),
            conv(options(n, n, 1, 2)),
            conv(options(1, 0, 1, n)),
        ]
    }),
    ("rope", |n| {
        let tables = [
            RopeScaling::None,
            RopeScaling::Linear { factor: 2.0 },
            RopeScaling::Ntk { factor: 2.0 },
            RopeScaling::Yarn {
                factor: 2.0,
                original_context: n,
                beta_fast: 32.0,
                beta_slow: 1.0,
            },
            RopeScaling::Llama3 {
                factor: 8.0,
                low_factor: 1.0,
                high_factor: 4.0,
                original_context: n,
            },
        ];
        let mut all = vec![matrix().rope(&RopeOptions::default(), n)];
        for scaling in tables {
            let options = RopeOptions {
                scaling,
                dims: Some(n),
                ..RopeOptions::default()
            };
            all.push(matrix().rope(&options, n));
            let frequencies = |t: Result<RopeTable, Error>| t.map(|t| t.frequencies().clone());
            all.extend(frequencies(options.table(n)));
            all.extend(frequencies(
                RopeOptions {
                    scaling,
                    ..RopeOptions::default()
                }
                .table(n),
            ));
        }
        all
    }),
    ("attention", |n| {
        let x = Tensor::ones([1, 2, 3, 4], DType::F32);
        let options = AttentionOptions {
            window: Some(n),
            ..AttentionOptions::default()
        };
        vec![x.attention(&x, &x, &options)]
    }),
    ("random", |n| {
        let key = random::Key::new(n as u64);
        vec![
            random::normal(&key.fold_in(u64::MAX), [n], DType::F32),
            random::uniform(&key, [n], f64::MIN, f64::MAX, DType::F64),
            random::randint(&key, [3], 0, n as u64, DType::U8),
            random::randint(&key, [3], i64::MIN, n as u64, DType::I64),
            random::bits(&key, [n, 2], DType::U64),
            random::bernoulli(&key, n as f64, [2]),
        ]
    }),
    ("take", |n| {
        let index = Tensor::from_slice(&[n as i64, -(n as i64 / 2)], [2]);
        vec![
            matrix().take(0, &index),
            matrix().embedding(&index),
            matrix().gather(1, &index.reshape([1, 2]).broadcast_to([3, 2])),
            matrix().scatter_add(0, &index, &Tensor::ones([2], DType::F32)),
        ]
    }),
];

type OffsetCall = (&'static str, fn(isize) -> Vec<Tensor>);

const OFFSET_CALLS: &[OffsetCall] = &[
    ("axes", |a| {
        let x = matrix();
        let mut all = vec![
            x.sum(&[a], true),
            x.argmax(a, false),
            x.cumsum(a),
            x.sort(a),
            x.argsort(a),
            x.softmax(a),
            x.log_softmax(a),
            x.logsumexp(&[a, 0], false),
            x.norm(&[a], false, 2.0),
            x.expand_dims(a),
            x.squeeze(a),
            x.transpose(a, 0),
            x.permute(&[a, 0]),
            x.flip(&[a]),
            x.repeat(2, a),
            x.narrow(a, 0, 1),
            x.topk(1, a, false).0,
            x.gather(a, &Tensor::zeros([3, 4], DType::I64)),
            Tensor::concat(&[&x, &x], a),
            Tensor::stack(&[&x, &x], a),
        ];
        all.extend(x.split(1, a));
        all
    }),
    ("index", |i| {
        vec![matrix().index(0, i), matrix().index(1, i)]
    }),
    ("slice", |i| {
        let x = matrix();
        vec![
            x.slice(0, i, None, 1),
            x.slice(0, None, i, 1),
            x.slice(0, None, None, i),
            x.slice(0, i, i, i),
            x.slice(1, i, 0, -1),
            x.slice(1, i, None, isize::MIN),
        ]
    }),
    ("roll", |i| vec![matrix().roll(i, 0), matrix().roll(i, -1)]),
    ("diagonal", |i| {
        vec![
            matrix().diagonal(i, 0, 1),
            matrix().diagonal(0, i, 1),
            matrix().diagonal(0, 0, i),
        ]
    }),
    ("triangle", |i| vec![matrix().tril(i), matrix().triu(i)]),
    ("shift", |i| {
        let x = Tensor::arange(-4, 4, 1, DType::I64);
        vec![
            x.shift_left(i as i64),
            x.shift_right(i as i64),
            x.floor_div(i as i64),
            x.rem(i as i64),
            x.pow(i as i64),
            Tensor::full([3], i as i64, DType::I64).neg(),
            Tensor::full([3], i as i64, DType::I64).abs(),
        ]
    }),
    ("arange", |i| {
        let i = i as i64;
        vec![
            Tensor::arange(i, i64::MAX, i, DType::I64),
            Tensor::arange(i64::MAX, i64::MIN, i, DType::I8),
            Tensor::arange(0.0, i, 1e-300, DType::F32),
            Tensor::arange(0.0, f64::NAN, i, DType::F32),
        ]
    }),
];

#[test]
fn tensor_calls_with_hostile_sizes_do_not_panic() {
    let mut panics = Panics::default();
    for (name, call) in SIZE_CALLS {
        for n in SIZES {
            panics.tensors(format!("{name}, {n}"), || call(n));
        }
    }
    panics.expect_none();
}

#[test]
fn tensor_calls_with_hostile_axes_and_offsets_do_not_panic() {
    let mut panics = Panics::default();
    for (name, call) in OFFSET_CALLS {
        for offset in OFFSETS {
            panics.tensors(format!("{name}, {offset}"), || call(offset));
        }
    }
    panics.expect_none();
}

#[test]
fn shapes_and_layouts_of_hostile_sizes_do_not_panic() {
    let mut panics = Panics::default();
    for n in SIZES {
        for dims in [vec![n], vec![n, n], vec![0, n, n], vec![n; 8], vec![n; 9]] {
            panics.run(format!("shape {dims:?}"), || {
                let shape = Shape::new("test", &dims)?;
                let layout = Layout::contiguous(shape);
                let _ = (
                    shape.count(),
                    layout.span(),
                    layout.is_contiguous(),
                    layout.count(),
                );
                let _ = layout.offsets().take(3).count();
                let _ = shape.broadcast("test", &Shape::new("test", &[2, n])?)?;
                Ok::<_, Error>(())
            });
        }
        panics.run(format!("axes {n}"), || Axes::all(n).contains(n));
        for kind in CacheType::ALL {
            panics.run(format!("row bytes {n}"), || kind.row_bytes(n));
        }
    }
    panics.expect_none();
}

#[test]
fn random_keys_split_into_any_number_without_allocating() {
    let mut panics = Panics::default();
    for n in SIZES {
        panics.run(format!("split {n}"), || {
            let mut keys = random::Key::new(7).split(n);
            let _ = (keys.len(), keys.next(), keys.next());
        });
    }
    panics.expect_none();
}

#[test]
fn hostile_equations_do_not_panic() {
    let mut panics = Panics::default();
    let x = matrix();
    let long = "a".repeat(100_000);
    for equation in [
        "",
        "->",
        ",",
        "ij",
        "ij->",
        "ij,jk->ik",
        "ii->i",
        "ij->ijk",
        "ij->jj",
        "...",
        "i...->...i",
        "......->",
        "é,j->é",
        "ij->ji->ij",
        "i j , j k -> i k",
        "\0",
        "Zz->zZ",
        &long,
    ] {
        let what = format!("einsum {}", equation.chars().take(20).collect::<String>());
        panics.tensors(what.clone(), || vec![Tensor::einsum(equation, &[])]);
        panics.tensors(what.clone(), || vec![Tensor::einsum(equation, &[&x])]);
        panics.tensors(what.clone(), || vec![Tensor::einsum(equation, &[&x, &x])]);
        panics.tensors(what, || vec![Tensor::einsum(equation, &[&x; 40])]);
    }
    panics.expect_none();
}

#[test]
fn quantised_matrices_with_hostile_sizes_do_not_panic() {
    let mut panics = Panics::default();
    let all_weights = [
        Weights::F32,
        Weights::BF16,
        Weights::Block(BlockFormat::Q4_0),
        Weights::Block(BlockFormat::Q6K),
    ];
    for weights in all_weights {
        for rows in SIZES {
            for cols in SIZES {
                panics.run(format!("{weights} [{rows}, {cols}]"), || {
                    let _ = weights.row_bytes(cols);
                    let _ = weights.repacked_bytes(rows, cols);
                    let matrix = QuantMatrix::from_bytes(weights, [rows, cols], vec![0; 32]);
                    matrix.map(|m| m.repacked().rows())
                });
            }
            let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![0_u8; 64]);
            let ranges: [Range<usize>; 4] = [0..rows, rows..usize::MAX, rows..0, 1..rows];
            for range in ranges {
                panics.run(format!("{weights} at {range:?}"), || {
                    let _ = QuantMatrix::new(weights, [1, rows], Arc::clone(&owner), range.clone());
                    let _ = QuantMatrix::new(weights, [rows, 0], Arc::clone(&owner), range.clone());
                });
            }
        }
    }
    panics.expect_none();
}

#[test]
fn quantised_products_of_lengths_that_do_not_match_do_not_panic() {
    let mut panics = Panics::default();
    let matrices = [
        QuantMatrix::from_bytes(Weights::F32, [2, 4], vec![0; 32]).unwrap(),
        QuantMatrix::from_bytes(Weights::F32, [0, 4], vec![]).unwrap(),
        QuantMatrix::from_bytes(Weights::F32, [4, 0], vec![]).unwrap(),
        QuantMatrix::from_bytes(BlockFormat::Q8_0, [1, 32], vec![0; 34]).unwrap(),
    ];
    for matrix in &matrices {
        for matrix in [matrix.clone(), matrix.repacked()] {
            for (inputs, outputs) in [(0, 0), (4, 2), (4, 1), (5, 2), (8, 4), (32, 1), (1, 0)] {
                let (x, mut y) = (vec![1.0; inputs], vec![0.0; outputs]);
                for precision in [Precision::Exact, Precision::Fast] {
                    panics.run(format!("{inputs} to {outputs} by {matrix:?}"), || {
                        let product = Product {
                            matrix: &matrix,
                            to: &mut y,
                        };
                        let _ = quant::multiply(&x, precision, &mut [product]);
                        let _ = quant::multiply(&x, precision, &mut []);
                    });
                }
                panics.tensors(format!("tensor of {inputs} by {matrix:?}"), || {
                    let x = Tensor::from_slice(&x, [inputs]);
                    vec![
                        x.quant_matmul(&matrix),
                        Tensor::scalar(1.0_f32).quant_matmul(&matrix),
                    ]
                });
            }
        }
    }
    for len in [0, 1, 31, 32, 33, 255, 256, 257] {
        for format in BlockFormat::ALL {
            panics.run(format!("{format} of {len}"), || {
                let _ = quant::quantize(format, &vec![f32::NAN; len]);
                let _ = quant::quantize(format, &vec![f32::MAX; len]);
                let mut values = vec![0.0; len];
                let _ = quant::dequantize(format, &vec![0xff; len], &mut values);
                let _ = quant::dequantize(format, &vec![0xff; format.block_bytes()], &mut values);
            });
        }
    }
    panics.expect_none();
}

#[test]
fn host_buffers_of_hostile_sizes_do_not_panic() {
    let mut panics = Panics::default();
    let mut small = HostBuffer::zeros("test", 16).unwrap();
    for n in SIZES {
        panics.run(format!("zeros {n}"), || HostBuffer::zeros("test", n));
        panics.run(format!("write {n}"), || {
            let _ = small.write("test", n, &[1, 2, 3]);
            let _ = small.write("test", n, &[]);
        });
        panics.run(format!("tensor {n}"), || {
            let _ = small.tensor("test", DType::F64, Shape::new("test", &[n])?)?;
            let _ = small.tensor("test", DType::F64, Shape::new("test", &[n, 0])?)?;
            Ok::<_, Error>(())
        });
    }
    panics.expect_none();
}

#[test]
fn memory_beyond_the_limit_is_an_error() {
    memory::set_memory_limit(MEMORY_LIMIT_BYTES);
    for bytes in [
        MEMORY_LIMIT_BYTES + 1,
        1 << 40,
        1 << 62,
        isize::MAX as usize,
        usize::MAX,
    ] {
        let error = HostBuffer::zeros("test", bytes).unwrap_err();
        assert!(
            matches!(error, Error::OutOfMemory { requested, .. } if requested == bytes),
            "{error}"
        );
    }
    let in_use = memory::stats().in_use;
    assert!(
        in_use < MEMORY_LIMIT_BYTES,
        "a refused allocation is not in use: {in_use}"
    );
    let wide_matrix = Tensor::zeros([1], DType::F16).broadcast_to([1 << 20, 1 << 20]);
    let packed = wide_matrix.to(&bessemer::Device::cpu()).prepack();
    assert!(matches!(
        packed,
        Err(Error::OutOfMemory { op: "prepack", .. })
    ));
    // Nothing of these is a tensor yet: their lists alone would exceed the limit.
    let wide = Tensor::zeros([1], DType::U8).broadcast_to([1 << 40]);
    let sections = wide.split(1 << 40, 0);
    assert!(matches!(
        sections[0].check(),
        Err(Error::OutOfMemory { op: "split", .. })
    ));
    let table = RopeOptions::default().table(1 << 40);
    assert!(matches!(table, Err(Error::OutOfMemory { op: "rope", .. })));
}

#[test]
fn dispatch_tables_of_any_text_and_size_do_not_panic() {
    let mut panics = Panics::default();
    for text in [
        "",
        "\0",
        "{}",
        "[]",
        "{\"rows\": 3}",
        "elementwise 18446744073709551616 cpu",
        "é",
    ] {
        panics.run(format!("parse {text:?}"), || DispatchTable::parse(text));
    }
    let empty = DispatchTable::new(Vec::new(), true);
    for n in SIZES {
        panics.run(format!("choose {n}"), || {
            empty.choose(OpClass::Reduction, n)
        });
    }
    panics.expect_none();
}

#[test]
fn scalars_out_of_range_are_errors_or_saturate() {
    let mut panics = Panics::default();
    let scalars = [
        Scalar::from(f64::NAN),
        Scalar::from(f64::INFINITY),
        Scalar::from(f64::MIN),
        Scalar::from(i64::MIN),
        Scalar::from(u64::MAX),
        Scalar::from(true),
    ];
    for scalar in scalars {
        for dtype in DType::ALL {
            panics.tensors(format!("{scalar:?} as {dtype}"), || {
                let x = Tensor::full([3], scalar, dtype);
                let y = Tensor::ones([3], dtype);
                vec![
                    x.cast(DType::I8),
                    x.cast(DType::U64),
                    x.cast(DType::F16),
                    &x + &y,
                    &y - &x,
                    &y * &x,
                    y.div(&x),
                    y.floor_div(&x),
                    y.rem(&x),
                    y.pow(&x),
                    x.clamp(&y, &x),
                ]
            });
            let _ = (scalar.to_f64(), scalar.to_i128(), scalar.promote(dtype));
        }
    }
    panics.expect_none();
}

#[test]
fn rope_tables_of_hostile_frequencies_do_not_panic() {
    let mut panics = Panics::default();
    for frequency in [
        f64::NAN,
        f64::INFINITY,
        f64::MAX,
        -f64::MAX,
        f64::MIN_POSITIVE,
        0.0,
    ] {
        for style in [RopeStyle::HalfSplit, RopeStyle::Interleaved] {
            panics.tensors(format!("{frequency} {style:?}"), || {
                let frequencies = Tensor::from_slice(&[frequency, 1.0], [2]);
                let table = RopeTable::new(&frequencies, style, frequency);
                let positions = Tensor::from_slice(&[u64::MAX, 0, 1 << 63], [3]);
                let rotated = |t: RopeTable| {
                    vec![
                        matrix().rope_with(&t, usize::MAX),
                        matrix().rope_with(&t, &positions),
                    ]
                };
                table.map(rotated).unwrap_or_default()
            });
        }
    }
    panics.expect_none();
}

#[cfg(target_os = "linux")]
#[test]
fn decoders_reject_hostile_sizes() {
    use bessemer::Device;
    use bessemer::decoder::{Decoder, DeviceSampler, Sampling, Sequences};
    use bessemer_testing::transformer::Family;

    let device = Device::software().unwrap();
    device.set_memory_limit(MEMORY_LIMIT_BYTES);
    let decoder = Decoder::new(&device, Family::default().spec(7).unwrap()).unwrap();
    let mut panics = Panics::default();
    for slots in SIZES {
        for positions in SIZES {
            for kind in CacheType::ALL {
                panics.run(
                    format!("{kind:?}, {slots} sequences of {positions}"),
                    || {
                        let sequences = Sequences::new(&decoder, kind, slots, positions);
                        assert_eq!(
                            sequences.is_ok(),
                            (1..=7).contains(&slots) && (1..=7).contains(&positions)
                        );
                    },
                );
            }
        }
    }
    let mut sequences = Sequences::new(&decoder, CacheType::F16, 1, 4).unwrap();
    for n in SIZES {
        panics.run(format!("slot {n}"), || {
            let _ = (sequences.len(n), sequences.is_empty(n));
            let _ = sequences.truncate(n, n);
            let _ = sequences.truncate(0, n);
            let _ = sequences.set_next(n, n as u32);
        });
        panics.run(format!("vocabulary {n}"), || {
            let sampling = Sampling {
                penalty_window: n,
                presence_penalty: 1.0,
                top_k: n,
                logit_bias: vec![(u32::MAX, f32::MAX)],
                ..Sampling::default()
            };
            DeviceSampler::new(&device, sampling, n).map(|_| ())
        });
    }
    for rows in [0, 7, usize::MAX] {
        panics.run(format!("prefill of {rows}"), || {
            assert!(decoder.prefill_counts(&sequences, rows).is_err());
        });
    }
    panics.expect_none();
}
