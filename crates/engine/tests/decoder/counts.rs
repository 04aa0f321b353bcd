//! The cost of a token: exact numbers, stored in `decoder.txt`;
//! `BESSEMER_BLESS=1 cargo test -p bessemer --test decoder` updates them.

use std::fmt::Write as _;

use bessemer::Device;
use bessemer::decoder::{Decoder, DeviceSampler, Logits, Run, Sequences};
use bessemer::quant::{BlockFormat, Weights};
use bessemer::{Activation, CacheType};
use bessemer_hal::{Family as Gpu, noop};
use bessemer_testing::transformer::Family;

/// Layers with the shapes of published models, but fewer layers and a smaller vocabulary.
fn shapes() -> [(&'static str, Family); 4] {
    let q4_k = [Weights::Block(BlockFormat::Q4K); 4];
    let mixed = [
        Weights::Block(BlockFormat::Q6K),
        Weights::Block(BlockFormat::Q4K),
        Weights::Block(BlockFormat::Q6K),
        Weights::Block(BlockFormat::Q4K),
    ];
    let llama = Family {
        width: 2048,
        heads: 32,
        kv_heads: 8,
        head_dim: 64,
        ffn: 8192,
        vocab: 512,
        layers: 3,
        formats: mixed,
        is_tied: true,
        ..Family::default()
    };
    let smol = Family {
        width: 576,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        ffn: 1536,
        formats: [
            Weights::Block(BlockFormat::Q8_0),
            Weights::Block(BlockFormat::Q4_1),
            Weights::Block(BlockFormat::Q4_1),
            Weights::Block(BlockFormat::Q4_1),
        ],
        ..llama.clone()
    };
    let qwen3 = Family {
        width: 1024,
        heads: 16,
        kv_heads: 8,
        head_dim: 128,
        ffn: 3072,
        formats: q4_k,
        vocab: 512,
        layers: 3,
        has_qkv_bias: false,
        ..Family::qwen()
    };
    let gemma3 = Family {
        width: 1152,
        heads: 4,
        kv_heads: 1,
        head_dim: 256,
        ffn: 6912,
        vocab: 512,
        layers: 3,
        formats: [Weights::Block(BlockFormat::Q4_0); 4],
        activation: Activation::GeluTanh,
        soft_caps: [None, None],
        window: Some(512),
        ..Family::gemma()
    };
    [
        ("smollm2", smol),
        ("llama3", llama),
        ("qwen3", qwen3),
        ("gemma3", gemma3),
    ]
}

#[test]
fn token_costs_match_decoder_txt() {
    let mut table = String::from(
        "model    cache positions length  a_layer launches barriers buffers bytes_read bytes_written over_needed\n",
    );
    for (name, family) in shapes() {
        let device = Device::on(noop::device(Gpu::Apple7));
        let decoder = Decoder::new(&device, family.hollow().unwrap()).unwrap();
        let layers = family.layers;
        let short = [CacheType::F16, CacheType::Q8_0].map(|kind| (kind, 256, 255));
        let long = [
            (CacheType::F16, 100),
            (CacheType::F16, 4095),
            (CacheType::Q8_0, 4095),
        ];
        let long = long.map(|(kind, length)| (kind, 4096, length));
        for (kind, positions, length) in short.into_iter().chain(long) {
            let mut sequences = Sequences::new(&decoder, kind, 1, positions).unwrap();
            let mut sampler = DeviceSampler::greedy(&decoder);
            let counts = decoder.counts(&mut sequences, &sampler, length).unwrap();
            let full = decoder.counts(&mut sequences, &sampler, usize::MAX);
            assert!(full.unwrap().bytes_read >= counts.bytes_read, "{name}");
            // The cost outside of the layers does not depend on their number.
            let around = 3;
            let a_layer = (counts.launches - around) as f64 / layers as f64;
            let row = 2 * family.kv_heads * kind.row_bytes(family.head_dim);
            let seen: usize = (0..layers)
                .map(|i| match family.window {
                    Some(w) if i % 3 != 2 => w.min(length + 1),
                    _ => length + 1,
                })
                .sum();
            let needed = decoder.bytes_per_token() + row * seen;
            let over = counts.bytes_read as f64 / needed as f64;
            writeln!(
                table,
                "{name:<8} {:>5} {positions:>9} {length:>6} {a_layer:>8.2} {:>8} {:>8} {:>7} {:>10} {:>13} {over:>11.4}",
                kind.name(),
                counts.launches,
                counts.barriers,
                counts.command_buffers,
                counts.bytes_read,
                counts.bytes_written,
            )
            .unwrap();
            let max_launches = if family.has_head_norms { 8.0 } else { 6.0 };
            assert!(
                a_layer <= max_launches,
                "{name}: {a_layer} launches a layer"
            );
            assert!(over <= 1.02, "{name} reads {over} of what it needs");

            // The same, as requested from the device step by step.
            let hal = device.hal().unwrap();
            sequences.set_next(0, 1).unwrap();
            for _ in 0..2 {
                noop::clear(hal);
                let step = decoder.step(&mut sequences, 0, &mut sampler).unwrap();
                step.wait().unwrap();
                let asked = noop::record(hal).unwrap().counts;
                assert_eq!(asked.command_buffers, 1);
                assert_eq!(asked.dispatches, counts.launches as u64);
                assert_eq!(asked.barriers, counts.barriers as u64);
                assert_eq!((asked.copies, asked.fills, asked.allocations), (0, 0, 0));
            }
        }
    }
    batches(&mut table);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/decoder.txt");
    if std::env::var_os("BESSEMER_BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        table, kept,
        "changed on purpose? BESSEMER_BLESS=1 writes tests/decoder.txt"
    );
}

/// The cost of batches of tokens.
fn batches(table: &mut String) {
    table.push_str(
        "\nmodel       tokens  a_layer launches barriers buffers bytes_read bytes_written\n",
    );
    for (name, family) in shapes() {
        let device = Device::on(noop::device(Gpu::Apple7));
        let decoder = Decoder::new(&device, family.hollow().unwrap()).unwrap();
        for count in [2, 16, 64, 512] {
            let mut sequences = Sequences::new(&decoder, CacheType::F16, 1, 512).unwrap();
            let counts = decoder.prefill_counts(&sequences, count).unwrap();
            let a_layer = (counts.launches - 2) as f64 / family.layers as f64;
            assert!(a_layer <= 10.0, "{name}: {a_layer} launches a layer");
            // As requested from the device.
            let hal = device.hal().unwrap();
            noop::clear(hal);
            let run = Run {
                slot: 0,
                tokens: &vec![1; count],
                logits: Logits::Last,
            };
            let outcome = decoder.forward(&mut sequences, &[run], &mut Vec::new());
            outcome.unwrap();
            let asked = noop::record(hal).unwrap().counts;
            assert_eq!(asked.dispatches, counts.launches as u64);
            assert_eq!((asked.copies, asked.fills), (0, 0));
            writeln!(
                table,
                "{name:<8} {count:>9} {a_layer:>8.2} {:>8} {:>8} {:>7} {:>10} {:>13}",
                counts.launches,
                counts.barriers,
                asked.command_buffers,
                counts.bytes_read,
                counts.bytes_written,
            )
            .unwrap();
        }
    }
}
