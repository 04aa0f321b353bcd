//! The cost of graphs on a Metal device: launches, barriers, command buffers, bytes, allocations. The numbers are exact
//! and stored in `counts.txt`; `BESSEMER_BLESS=1 cargo test -p bessemer --test counts` updates them.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bessemer::CacheType;
use bessemer::decoder::{Decoder, DeviceSampler, Logits, Run, Sampling, Sequences};
use bessemer::quant::{BlockFormat, QuantMatrix};
use bessemer::{AttentionOptions, DType, Device, RopeOptions, Tensor, explain};
use bessemer_hal::{self as hal, Family, noop};
use bessemer_testing::transformer::Family as Model;

const WIDTH: usize = 1024;
const HEADS: usize = 16;
const KV_HEADS: usize = 4;
const HEAD: usize = WIDTH / HEADS;
const FFN: usize = 2816;

/// An evaluated tensor.
fn data(shape: &[usize]) -> Tensor {
    let x = Tensor::zeros(shape, DType::F32).contiguous();
    x.eval().unwrap();
    x
}

fn chain() -> Tensor {
    let x = data(&[1 << 20]);
    let y = data(&[1 << 20]);
    ((&x * 2.0 + &y).tanh() * (&x - &y).exp())
        .sqrt()
        .maximum(0.5)
        / 3.0
}

fn mlp(rows: usize) -> Tensor {
    let x = data(&[rows, WIDTH]);
    let (w1, b1) = (data(&[WIDTH, FFN]), data(&[FFN]));
    let (w2, b2) = (data(&[FFN, WIDTH]), data(&[WIDTH]));
    (x.matmul(&w1) + b1).gelu().matmul(&w2) + b2
}

/// Ops on rows that nothing else reads: all results have the same memory.
fn rows() -> Tensor {
    let x = data(&[64, WIDTH]) * 2.0;
    let (weight, bias) = (data(&[WIDTH]), data(&[WIDTH]));
    let table = RopeOptions::default().table(WIDTH).unwrap();
    data(&[1, WIDTH]).rope_with(&table, 0).eval().unwrap();
    let x = x
        .rms_norm(&weight, 1e-5)
        .layer_norm(None, Some(&bias), 1e-5);
    x.rope_with(&table, 0).log_softmax(-1)
}

/// Weights that are already on the device.
fn weights(rows: usize, cols: usize) -> QuantMatrix {
    let bytes = vec![0; rows * BlockFormat::Q4K.row_bytes(cols).unwrap()];
    let weights = QuantMatrix::from_bytes(BlockFormat::Q4K, [rows, cols], bytes).unwrap();
    data(&[1, cols]).quant_matmul(&weights).eval().unwrap();
    weights
}

fn quantised_mlp(rows: usize) -> Tensor {
    let x = data(&[rows, WIDTH]);
    let (w1, w2) = (weights(FFN, WIDTH), weights(WIDTH, FFN));
    x.quant_matmul(&w1).gelu().quant_matmul(&w2)
}

fn heads(x: &Tensor, count: usize) -> Tensor {
    let tokens = x.shape()[0];
    x.reshape([1, tokens, count, HEAD]).transpose(1, 2)
}

/// Attention of `new` tokens over `past` positions of a cache and themselves.
fn attention(x: &Tensor, past: usize) -> Tensor {
    let tokens = x.shape()[0];
    let q = x.matmul(&data(&[WIDTH, WIDTH]));
    let k = x.matmul(&data(&[WIDTH, KV_HEADS * HEAD]));
    let v = x.matmul(&data(&[WIDTH, KV_HEADS * HEAD]));
    // A model computes its frequencies once.
    let table = RopeOptions::default().table(HEAD).unwrap();
    data(&[1, HEAD]).rope_with(&table, 0).eval().unwrap();
    let (q, k) = (
        heads(&q, HEADS).rope_with(&table, past),
        heads(&k, KV_HEADS).rope_with(&table, past),
    );
    let v = heads(&v, KV_HEADS);
    let (k, v) = match past {
        0 => (k, v),
        _ => {
            let cache = || data(&[1, KV_HEADS, past, HEAD]);
            (
                Tensor::concat(&[&cache(), &k], 2),
                Tensor::concat(&[&cache(), &v], 2),
            )
        }
    };
    let options = AttentionOptions {
        causal: true,
        ..AttentionOptions::default()
    };
    let a = q.attention(&k, &v, &options);
    let a = a.transpose(1, 2).reshape([tokens, WIDTH]);
    a.matmul(&data(&[WIDTH, WIDTH]))
}

fn layer(tokens: usize, past: usize) -> Tensor {
    let x = data(&[tokens, WIDTH]);
    let norm = data(&[WIDTH]);
    let x = &x + attention(&x.rms_norm(&norm, 1e-5), past);
    let y = x.rms_norm(&norm, 1e-5);
    let gate = y.matmul(&data(&[WIDTH, FFN]));
    let up = y.matmul(&data(&[WIDTH, FFN]));
    x + gate.swiglu(&up).matmul(&data(&[FFN, WIDTH]))
}

/// The kernels that a graph launches, without their types.
fn kernels(graph: impl FnOnce() -> Tensor) -> Vec<String> {
    let device = Device::on(noop::device(Family::Apple7));
    let y = device.scope(graph);
    let hal = device.hal().unwrap();
    noop::clear(hal);
    y.eval().unwrap();
    device.synchronize().unwrap();
    let events = noop::record(hal).unwrap().events.into_iter();
    let names = events.filter_map(|event| match event {
        noop::Event::Dispatch { kernel, .. } => Some(kernel),
        _ => None,
    });
    names
        .map(|n| n.trim_end_matches("_f32").to_owned())
        .collect()
}

#[test]
fn every_number_of_rows_selects_its_kernel() {
    // Wide enough to avoid split-K.
    let (k, n) = (256, 16384);
    for rows in 1..=40 {
        let x = || data(&[rows, k]);
        let is_skinny = rows <= 16;
        let product = kernels(|| x().matmul(&data(&[k, n])));
        assert_eq!(
            product,
            [if is_skinny {
                "matmul_skinny_m_major"
            } else {
                "matmul_tile"
            }]
        );
        let transposed = kernels(|| x().matmul(&data(&[n, k]).t()));
        assert_eq!(
            transposed,
            [if is_skinny {
                "matmul_skinny_k_major"
            } else {
                "matmul_tile"
            }]
        );
        let quantised = kernels(|| x().quant_matmul(&weights(n, k)));
        let expected = match rows {
            ..=4 => "quant_gemv",
            5..=16 => "quant_skinny",
            _ => "quant_tile",
        };
        assert_eq!(quantised, [expected], "{rows} rows");
    }
}

/// The thread counts of the launches of a matmul of square matrices, whose equal elements take no memory.
fn grids(side: usize, dtype: DType) -> Vec<usize> {
    let device = Device::on(noop::device(Family::Apple7));
    let hal = device.hal().unwrap();
    let x = Tensor::ones([side, side], dtype);
    device.scope(|| x.matmul(&x)).eval().unwrap();
    device.synchronize().unwrap();
    let events = noop::record(hal).unwrap().events.into_iter();
    let grids = events.filter_map(|event| match event {
        noop::Event::Dispatch { kernel, grid, .. } => {
            assert!(kernel.starts_with("matmul"), "{kernel}");
            Some(grid.total().unwrap())
        }
        _ => None,
    });
    grids.collect()
}

#[test]
fn matmuls_that_take_seconds_are_several_launches() {
    // 2 · 4096³ operations take as long as moving 5.5 GB on an M1, or 80 ms.
    assert_eq!(grids(4096, DType::F16).len(), 1);
    // 64 times as many are 5.2 s.
    let bands = grids(16384, DType::F16);
    assert_eq!(bands.len(), 11);
    let tiles = 256 * 256;
    assert_eq!(bands.iter().sum::<usize>(), tiles * 128);
    assert_eq!(bands[0], tiles.div_ceil(11) * 128);
}

/// The labels of all command buffers, launches and buffers on a recording device; all must have one. Pipelines are
/// labelled with their kernels.
fn labels(device: &hal::Device) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    let mut bare_buffers = 0;
    for event in noop::record(device).unwrap().events {
        match event {
            noop::Event::Dispatch { kernel, label, .. } => {
                assert!(!kernel.is_empty(), "a pipeline has no label");
                let label = label.filter(|label| !label.is_empty());
                labels.insert(label.unwrap_or_else(|| panic!("`{kernel}` has no label")));
            }
            noop::Event::Commit { label } => {
                let label = label.filter(|label| !label.is_empty());
                labels.insert(label.expect("a command buffer has no label"));
            }
            noop::Event::Allocate { .. } => bare_buffers += 1,
            noop::Event::LabelBuffer(label) => {
                assert!(!label.is_empty(), "a buffer has no label");
                labels.insert(label);
                bare_buffers -= 1;
            }
            _ => {}
        }
    }
    assert_eq!(bare_buffers, 0, "buffers without a label");
    labels
}

fn assert_has(labels: &BTreeSet<String>, expected: &[&str]) {
    for label in expected {
        assert!(labels.contains(*label), "{label}: {labels:?}");
    }
}

#[test]
fn command_buffers_launches_and_buffers_are_labelled() {
    let device = Device::on(noop::device(Family::Apple7));
    device.scope(|| layer(64, 0)).eval().unwrap();
    device.synchronize().unwrap();
    let found = labels(device.hal().unwrap());
    assert_has(
        &found,
        &[
            "tensors",
            "tensor",
            "rms_norm",
            "matmul",
            "rope",
            "attention",
        ],
    );
}

#[test]
fn decoder_commands_are_labelled() {
    let device = Device::on(noop::device(Family::Apple7));
    let decoder = Decoder::new(&device, Model::default().spec(1).unwrap()).unwrap();
    let mut sequences = Sequences::new(&decoder, CacheType::F16, 1, 64).unwrap();
    let sampling = Sampling {
        temperature: 0.7,
        top_k: 10,
        presence_penalty: 0.5,
        ..Sampling::default()
    };
    let mut sampler = DeviceSampler::new(&device, sampling, decoder.vocab()).unwrap();
    for tokens in [&[1_u32, 2, 3][..], &[4]] {
        let run = Run {
            slot: 0,
            tokens,
            logits: Logits::Last,
        };
        let mut logits = Vec::new();
        decoder
            .forward(&mut sequences, &[run], &mut logits)
            .unwrap();
    }
    decoder
        .choose(&mut sequences, 0, &mut sampler)
        .unwrap()
        .wait()
        .unwrap();
    decoder
        .step(&mut sequences, 0, &mut sampler)
        .unwrap()
        .wait()
        .unwrap();
    let found = labels(device.hal().unwrap());
    assert_has(&found, &["prefill", "decode", "decoder", "tensor"]);
}

#[test]
fn a_decoder_keeps_its_memory_resident_until_it_is_dropped() {
    let device = Device::on(noop::device(Family::Apple7));
    let guards = || noop::resident_guards(device.hal().unwrap()).unwrap();
    let decoder = Decoder::new(&device, Model::default().spec(1).unwrap()).unwrap();
    assert_eq!(guards(), 1);
    let other = decoder.clone();
    drop(decoder);
    assert_eq!(guards(), 1, "a clone has the same weights");
    drop(other);
    assert_eq!(guards(), 0);
}

#[test]
fn graph_costs_match_counts_txt() {
    type Graph = Box<dyn Fn() -> Tensor>;
    let graphs: [(&str, Graph); 9] = [
        ("elementwise chain", Box::new(chain)),
        ("mlp of 1 row", Box::new(|| mlp(1))),
        ("mlp of 64 rows", Box::new(|| mlp(64))),
        ("quantised mlp of 1 row", Box::new(|| quantised_mlp(1))),
        ("quantised mlp of 64 rows", Box::new(|| quantised_mlp(64))),
        (
            "attention block, 64 tokens",
            Box::new(|| attention(&data(&[64, WIDTH]), 0)),
        ),
        ("rows in place", Box::new(rows)),
        ("layer, decode after 511", Box::new(|| layer(1, 511))),
        ("layer, prefill of 64", Box::new(|| layer(64, 0))),
    ];
    let mut table = String::from(
        "graph                       launches barriers buffers bytes_read bytes_written allocations\n",
    );
    for (name, graph) in graphs {
        let device = Device::on(noop::device(Family::Apple7));
        let (y, plan) = device.scope(|| {
            let y = graph();
            let plan = explain(&[&y]).unwrap();
            (y, plan)
        });
        let hal = device.hal().unwrap();
        device.synchronize().unwrap();
        device.clear_cache();
        noop::clear(hal);
        y.eval().unwrap();
        device.synchronize().unwrap();
        let counts = noop::record(hal).unwrap().counts;
        writeln!(
            table,
            "{name:<27} {:>8} {:>8} {:>7} {:>10} {:>13} {:>11}",
            counts.dispatches + counts.copies + counts.fills,
            counts.barriers,
            counts.command_buffers,
            counts.bytes_read,
            counts.bytes_written,
            counts.allocations,
        )
        .unwrap();
        let needed: usize = plan
            .steps
            .iter()
            .map(|s| s.bytes_read + s.bytes_written)
            .sum();
        let moved = counts.bytes_read + counts.bytes_written;
        assert!(
            moved as f64 <= 1.05 * needed as f64,
            "{name} moves {moved} bytes, the arithmetic needs {needed}\n{plan}"
        );
        assert_eq!(counts.command_buffers, 1, "{name}");
        assert_eq!(plan.launches() as u64, counts.dispatches, "{name}\n{plan}");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/counts.txt");
    if std::env::var_os("BESSEMER_BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        table, expected,
        "changed on purpose? BESSEMER_BLESS=1 writes tests/counts.txt"
    );
}
