//! Every kernel of the engine on the checking software device, which reports out-of-bounds accesses, data races and
//! divergent barriers. The safety argument of `metal/kernel.rs` rests on it: a kernel that no case runs is a failure.
//! The cases also run on the fast device, compiled as the next version of the language.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bessemer::CacheType;
use bessemer::decoder::{Decoder, DeviceSampler, Logits, Run, Sampling, Sequences};
use bessemer::quant::{self, BlockFormat, QuantMatrix, Weights};
use bessemer::{
    AttentionOptions, ConvOptions, DType, Device, PoolOptions, RopeOptions, Tensor, random,
};
use bessemer_hal::LanguageVersion;
use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_testing::tolerance::bound;
use bessemer_testing::transformer::{Family, Reference};

fn checking() -> Device {
    let options = SoftOptions {
        mode: Mode::Check,
        ..SoftOptions::from_env().unwrap()
    };
    Device::on(soft::device(options).unwrap())
}

/// Numbers between -3 and 3 without a pattern.
fn wave(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let value = |i: usize| ((i * 7919 + i * i * 31) % 1009) as f32 / 168.0 - 3.0;
    let data: Vec<f32> = (0..count).map(value).collect();
    Tensor::from_slice(&data, shape)
}

/// Indices below `len`, some of them counting from the end, with duplicates.
fn indices(shape: &[usize], len: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let index = |i: usize| (i * 37 % (2 * len)) as i64 - len as i64;
    let data: Vec<i64> = (0..count).map(index).collect();
    Tensor::from_slice(&data, shape)
}

fn weights(format: BlockFormat, rows: usize, cols: usize) -> QuantMatrix {
    let values = wave(&[rows * cols]).to_vec::<f32>().unwrap();
    let blocks = quant::quantize(format, &values).unwrap();
    QuantMatrix::from_bytes(format, [rows, cols], blocks).unwrap()
}

/// A case: a name, and what it computes.
type Case = (&'static str, fn() -> Vec<Tensor>);

/// Elementwise ops: all tables, and a fused program.
const ELEMENTWISE: &[Case] = &[
    ("unary", || {
        let x = wave(&[3, 37]);
        vec![x.abs(), x.slice(1, 1, None, 3).square(), x.t().neg()]
    }),
    ("real", || vec![wave(&[3, 37]).exp(), wave(&[64]).gelu()]),
    ("binary", || {
        let x = wave(&[5, 33]);
        vec![
            &x + &wave(&[33]),
            &x * &x.slice(0, None, None, -1),
            &x - 2.0,
        ]
    }),
    ("binary of integers", || {
        let x = indices(&[77], 50).cast(DType::I16);
        vec![x.floor_div(7), &x & 12]
    }),
    ("ternary", || {
        let x = wave(&[3, 41]);
        vec![x.clamp(-1.0, 2.0), x.lerp(wave(&[41]), 0.5)]
    }),
    ("select", || {
        let x = wave(&[3, 41]);
        let mask = x.gt(0.0);
        mask.eval().unwrap();
        vec![mask.select(&x, wave(&[41]))]
    }),
    ("cast", || {
        let x = wave(&[3, 41]);
        vec![x.cast(DType::F16), x.cast(DType::I64), x.cast(DType::Bool)]
    }),
    ("fused", || {
        let x = wave(&[9, 31]);
        vec![(&x * 2.0 + &wave(&[31])).tanh() - &x.slice(0, None, None, -1)]
    }),
];

/// Ops that move or generate elements.
const MOVING: &[Case] = &[
    ("copy", || {
        let x = wave(&[7, 45]);
        vec![x.t().contiguous(), x.slice(1, 1, None, 2).contiguous()]
    }),
    ("copy of neighbours", || {
        let x = wave(&[100]);
        x.eval().unwrap();
        vec![
            Tensor::concat(&[&x.narrow(0, 3, 50)], 0),
            x.narrow(0, 1, 64).contiguous(),
        ]
    }),
    ("full and arange", || {
        vec![
            Tensor::full([3, 5], 2.5, DType::F32).contiguous(),
            Tensor::arange(3, 90, 2, DType::F32),
        ]
    }),
    ("concat", || {
        let x = wave(&[3, 17]);
        vec![
            Tensor::concat(&[&x, &x], 0),
            Tensor::concat(&[&x, &x.slice(1, None, None, -2)], 1),
            Tensor::concat(&[&x; 6], 1),
        ]
    }),
    ("slice_update", || {
        let (x, part) = (wave(&[60, 20]), wave(&[2, 7]));
        x.eval().unwrap();
        // A temporary of more than a few cache lines is updated in place.
        vec![
            x.slice_update(&part, &[3, 9]),
            (&x + 1.0).slice_update(&part, &[1, 13]),
        ]
    }),
    ("pad and triangle", || {
        let x = wave(&[5, 9]);
        vec![x.pad(&[(1, 2), (0, 3)], 7.0), x.tril(1), x.triu(-2)]
    }),
    ("gather and take", || {
        let x = wave(&[6, 20]);
        vec![
            x.gather(0, &indices(&[9, 20], 6)),
            x.take(1, &indices(&[5], 20)),
        ]
    }),
    ("scatter", || {
        let x = wave(&[6, 20]);
        vec![
            x.scatter(0, &indices(&[4, 20], 6), &wave(&[4, 20])),
            x.scatter_add(1, &indices(&[6, 30], 20), &wave(&[6, 30])),
            wave(&[3000]).scatter_add(0, &indices(&[1500], 3000), &wave(&[1500])),
        ]
    }),
    ("random", || {
        let key = random::Key::new(7);
        vec![
            random::uniform(&key, [77], -1.0, 2.0, DType::F32),
            random::normal(&key, [31], DType::F32),
        ]
    }),
];

/// Ops that work on rows, short and longer than a threadgroup.
const ROWS: &[Case] = &[
    ("softmax", || {
        vec![wave(&[3, 100]).softmax(-1), wave(&[3, 100]).t().softmax(-1)]
    }),
    ("rows in place", || {
        let x = |len| wave(&[1500_usize.div_ceil(len), len]) * 2.0;
        [100, 4100]
            .into_iter()
            .flat_map(|len| {
                let weight = wave(&[len]);
                [
                    x(len).softmax(-1),
                    x(len).log_softmax(0),
                    x(len).rms_norm(&weight, 1e-5),
                    x(len).layer_norm(Some(&weight), None, 1e-5),
                    x(len).rope(&RopeOptions::default(), 3),
                ]
            })
            .collect()
    }),
    ("long softmax", || {
        vec![wave(&[2, 4100]).softmax(-1), wave(&[4100]).log_softmax(-1)]
    }),
    ("rms_norm", || {
        vec![wave(&[9, 65]).rms_norm(&wave(&[65]), 1e-5)]
    }),
    ("long rms_norm", || {
        vec![wave(&[2, 4101]).rms_norm(&wave(&[4101]), 1e-5)]
    }),
    ("layer_norm", || {
        vec![wave(&[9, 65]).layer_norm(Some(&wave(&[65])), None, 1e-5)]
    }),
    ("long layer_norm", || {
        vec![wave(&[2, 4101]).layer_norm(None, Some(&wave(&[4101])), 1e-5)]
    }),
    ("group_norm", || {
        vec![wave(&[2, 6, 5]).group_norm(3, Some(&wave(&[6])), None, 1e-5)]
    }),
    ("long group_norm", || {
        vec![wave(&[1, 3, 1401]).group_norm(1, Some(&wave(&[3])), None, 1e-5)]
    }),
    ("reduce", || {
        let x = wave(&[7, 130]);
        vec![
            x.sum(&[0], false),
            x.sum(&[1], false),
            x.max(&[], false),
            wave(&[20_001]).sum(&[], false),
        ]
    }),
    ("argmax", || {
        vec![
            wave(&[7, 130]).argmax(1, false).cast(DType::F32),
            wave(&[1300, 3]).argmin(0, false).cast(DType::F32),
        ]
    }),
    ("scan", || {
        vec![
            wave(&[3, 500]).cumsum(1),
            wave(&[40_000]).cummax(0),
            wave(&[5, 200]).cumsum(0),
        ]
    }),
    ("sort", || {
        let x = wave(&[2, 2500]);
        let (top, _) = x.topk(5, 1, true);
        vec![x.sort(1), x.t().argsort(0).cast(DType::F32), top]
    }),
    ("cross_entropy", || {
        vec![wave(&[5, 300]).cross_entropy(&indices(&[5], 300))]
    }),
    ("rope", || {
        let x = wave(&[1, 2, 5, 16]);
        vec![
            x.rope(&RopeOptions::default(), 3),
            x.rope(&RopeOptions::default(), indices(&[5], 9)),
        ]
    }),
];

/// Matmuls, convolutions and attention.
const PRODUCTS: &[Case] = &[
    ("tiles", || {
        vec![wave(&[40, 70]).matmul(&wave(&[70, 37])) + wave(&[37])]
    }),
    ("few rows", || {
        vec![
            wave(&[3, 70]).matmul(&wave(&[70, 130])),
            wave(&[3, 70]).matmul(&wave(&[130, 70]).t()),
        ]
    }),
    ("shared depth", || {
        vec![wave(&[2, 9000]).matmul(&wave(&[9000, 3]))]
    }),
    ("integers", || {
        let x = indices(&[19, 21], 9).cast(DType::I32);
        vec![x.matmul(&x.t())]
    }),
    ("convolution", || {
        let o = ConvOptions {
            padding: [1, 1],
            ..ConvOptions::default()
        };
        vec![
            wave(&[1, 8, 9, 9]).conv2d(&wave(&[33, 8, 3, 3]), Some(&wave(&[33])), &o),
            wave(&[1, 3, 9, 7]).conv2d(&wave(&[3, 1, 3, 3]), None, &ConvOptions { groups: 3, ..o }),
        ]
    }),
    ("pooling", || {
        let o = PoolOptions {
            padding: [1, 0],
            ..PoolOptions::new([3, 2])
        };
        vec![
            wave(&[2, 9, 8]).max_pool2d(&o),
            wave(&[2, 9, 8]).avg_pool2d(&o),
        ]
    }),
    ("decoding attention", || {
        let (q, k) = (wave(&[1, 4, 1, 16]), wave(&[1, 2, 300, 16]));
        let mask = wave(&[1, 300]).gt(-2.0);
        let masked = AttentionOptions {
            mask: Some(&mask),
            ..AttentionOptions::default()
        };
        vec![
            q.attention(&k, &k, &AttentionOptions::default()),
            q.attention(&k, &k, &masked),
        ]
    }),
    ("attention over parts", || {
        let (q, k) = (wave(&[1, 1, 1, 16]), wave(&[1, 1, 1030, 16]));
        vec![q.attention(&k, &k, &AttentionOptions::default())]
    }),
    ("prefill attention", || {
        let (q, k) = (wave(&[1, 2, 35, 24]), wave(&[1, 1, 50, 24]));
        let options = AttentionOptions {
            causal: true,
            window: Some(20),
            ..AttentionOptions::default()
        };
        vec![q.attention(&k, &k, &options)]
    }),
    ("quantised products", || {
        let matrix = weights(BlockFormat::Q4K, 37, 256);
        [3, 9, 40]
            .map(|rows| wave(&[rows, 256]).quant_matmul(&matrix))
            .into()
    }),
    ("other quantised products", || {
        let q8 = weights(BlockFormat::Q8_0, 21, 64);
        let q6 = weights(BlockFormat::Q6K, 9, 256);
        vec![
            wave(&[2, 64]).quant_matmul(&q8),
            wave(&[18, 256]).quant_matmul(&q6),
        ]
    }),
];

fn floats(x: &Tensor) -> Vec<f32> {
    x.cast(DType::F32).to_vec().unwrap()
}

/// Runs a case on the device and on the CPU.
fn run(device: &Device, (name, case): Case) {
    let found = device.scope(|| case().iter().map(floats).collect::<Vec<_>>());
    let expected = Device::cpu().scope(|| case().iter().map(floats).collect::<Vec<_>>());
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.len(), expected.len(), "{name}");
        let max = expected.iter().fold(1.0_f32, |m, x| m.max(x.abs()));
        for (a, b) in found.iter().zip(expected) {
            assert!(
                (a - b).abs() <= bound::BACKENDS * max,
                "{name}: {a}, not {b}"
            );
        }
    }
}

/// Runs a small transformer: prefill, decoding token by token, and sampling.
fn transform(device: &Device, family: &Family, kind: CacheType, prompt: usize) {
    let spec = family.spec(5).unwrap();
    let decoder = Decoder::new(device, spec.clone()).unwrap();
    let mut sequences = Sequences::new(&decoder, kind, 1, 600).unwrap();
    let mut reference = Reference::new(&spec, kind);
    let tokens: Vec<u32> = (0..prompt).map(|i| (i * 31 % spec.vocab) as u32).collect();
    let mut expected = Vec::new();
    for &token in &tokens {
        expected = reference.take(token);
    }
    let mut logits = Vec::new();
    let run = |tokens| Run {
        slot: 0,
        tokens,
        logits: Logits::Last,
    };
    decoder
        .forward(&mut sequences, &[run(&tokens)], &mut logits)
        .unwrap();
    let near = |logits: &[f32], expected: &[f64]| {
        assert_eq!(logits.len(), expected.len());
        let max = expected.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        for (&a, &b) in logits.iter().zip(expected) {
            assert!(
                (f64::from(a) - b).abs() <= bound::logits(kind) * max,
                "{family:?}: {a}, not {b}"
            );
        }
    };
    near(&logits, &expected);
    logits.clear();
    decoder
        .forward(&mut sequences, &[run(&[3])], &mut logits)
        .unwrap();
    near(&logits, &reference.take(3));
    let mut sampler = DeviceSampler::greedy(&decoder);
    let first = decoder.choose(&mut sequences, 0, &mut sampler).unwrap();
    let greatest = logits.iter().fold(f32::NEG_INFINITY, |m, &l| m.max(l));
    assert_eq!(logits[first.wait().unwrap() as usize], greatest);
}

/// Runs small transformers that together use every kernel of the decoder.
fn transformers(device: &Device) {
    let small = Family {
        layers: 1,
        ..Family::default()
    };
    transform(device, &small, CacheType::F16, 40);
    let gemma = Family {
        width: 32,
        heads: 2,
        kv_heads: 1,
        head_dim: 16,
        ffn: 32,
        vocab: 32,
        layers: 1,
        window: Some(3),
        formats: [
            BlockFormat::Q8_0.into(),
            BlockFormat::Q4_0.into(),
            BlockFormat::Q8_0.into(),
            Weights::F16,
        ],
        ..Family::gemma()
    };
    transform(device, &gemma, CacheType::Q8_0, 3);
}

fn sample(device: &Device) {
    let all = Sampling {
        temperature: 0.9,
        logit_bias: vec![(3, 2.5), (7, -1.0)],
        repetition_penalty: 1.2,
        penalty_window: 4,
        top_k: 700,
        top_p: 0.98,
        ..Sampling::default()
    };
    let logits = Device::cpu().scope(|| wave(&[1500]).to_vec::<f32>().unwrap());
    let mut sampler = DeviceSampler::new(device, all, 1500).unwrap();
    sampler.reset(&[1, 2, 1]).unwrap();
    assert!(sampler.next(&logits).unwrap() < 1500);
}

/// The kernels that the engine's MSL declares, and those it writes at run time, without types.
fn declared() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/metal/msl");
    let mut names: BTreeSet<String> = [
        "fused", "unary", "real", "binary", "ternary", "select", "cast",
    ]
    .map(str::to_owned)
    .into();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for part in text.split("kernel void ").skip(1) {
            let name = part
                .strip_prefix("ENTRY(")
                .and_then(|p| p.split(')').next());
            names.insert(name.expect("kernels are named by ENTRY").to_owned());
        }
    }
    names
}

/// The kernels that a device ran, without types.
fn executed(device: &Device) -> BTreeSet<String> {
    let names = soft::executed(device.hal().unwrap()).unwrap().into_keys();
    names
        .map(|mut name| {
            while let Some(short) = DType::ALL
                .iter()
                .find_map(|dtype| name.strip_suffix(&format!("_{dtype}")))
            {
                name = short.to_owned();
            }
            name
        })
        .collect()
}

/// A named job; jobs run on several threads.
type Job<'a> = (&'a str, Box<dyn Fn() + Sync + 'a>);

#[test]
fn every_kernel_runs_on_the_checking_device_without_reports() {
    run_every_kernel(&checking());
}

/// The kernels branch on the language version: what Metal compiles depends on the system.
#[test]
fn every_kernel_compiles_and_runs_as_metal_3_2() {
    let options = SoftOptions {
        mode: Mode::Fast,
        language: LanguageVersion::Metal3_2,
        ..SoftOptions::from_env().unwrap()
    };
    run_every_kernel(&Device::on(soft::device(options).unwrap()));
}

fn run_every_kernel(device: &Device) {
    let mut jobs: Vec<Job<'_>> = vec![
        ("transformers", Box::new(|| transformers(device))),
        ("sampling", Box::new(|| sample(device))),
    ];
    for &case in [ELEMENTWISE, MOVING, ROWS, PRODUCTS].into_iter().flatten() {
        jobs.push((case.0, Box::new(move || run(device, case))));
    }
    // Compilation dominates: one job per processor.
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((name, job)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                failed.lock().unwrap().push(*name);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "failed: {failed:?}");
    let executed = executed(device);
    let missing: Vec<_> = declared().difference(&executed).cloned().collect();
    assert!(missing.is_empty(), "not run: {missing:?}");
    assert!(device.fallbacks().is_empty(), "{:?}", device.fallbacks());
}
