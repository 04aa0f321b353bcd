//! Launches that would take too long are split into bands, bit-identical to a single launch.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::time::Duration;

use bessemer::CacheType;
use bessemer::decoder::{Decoder, Logits, Run, Sequences};
use bessemer::quant::{BlockFormat, QuantMatrix};
use bessemer::{AttentionOptions, ConvOptions, DType, Device, MatrixLibrary, Tensor};
use bessemer_hal as hal;
use bessemer_hal::noop;
use bessemer_testing::tolerance::bound;
use bessemer_testing::transformer::Family;

/// Times that make every threadgroup a launch, several bands with a rest, and a few of the larger grids.
const TIMES: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_nanos(20),
    Duration::from_nanos(150),
];

type Graph = Box<dyn Fn() -> Tensor>;

/// Elements without a pattern; small integers for integer types.
fn data(shape: &[usize], dtype: DType) -> Tensor {
    let count: usize = shape.iter().product();
    let element = |i: usize| ((i * 2_654_435_761 % 1009) as f32 - 504.0) / 64.0;
    let values: Vec<f32> = (0..count).map(element).collect();
    Tensor::from_slice(&values, shape).cast(dtype)
}

fn f32s(shape: &[usize]) -> Tensor {
    data(shape, DType::F32)
}

/// `q8_0` weights, with a scale of an eighth for every 32.
fn quantised(rows: usize, cols: usize) -> QuantMatrix {
    let block = |i: usize| {
        (0..34).map(move |at| {
            if at < 2 {
                [0, 0x30][at]
            } else {
                (i * 31 + at * 57) as u8
            }
        })
    };
    let bytes: Vec<u8> = (0..rows * cols / 32).flat_map(block).collect();
    QuantMatrix::from_bytes(BlockFormat::Q8_0, [rows, cols], bytes).unwrap()
}

fn attention([queries, keys, dim]: [usize; 3], causal: bool) -> Tensor {
    let options = AttentionOptions {
        causal,
        ..AttentionOptions::default()
    };
    let (q, k) = (f32s(&[2, 4, queries, dim]), f32s(&[2, 2, keys, dim]));
    (q * 0.1).attention(&k, &(&k * 0.5), &options)
}

/// A graph of every kernel that supports bands, with grids that no number of bands divides.
fn graphs() -> Vec<(&'static str, Graph)> {
    let graph = |name, graph: fn() -> Tensor| (name, Box::new(graph) as Graph);
    vec![
        graph("matmul_tile_f32", || {
            f32s(&[227, 33]).matmul(&f32s(&[33, 101]))
        }),
        graph("matmul_tile_f16", || {
            let b = data(&[7, 40, 100], DType::F16);
            data(&[7, 90, 40], DType::F16).matmul(&b)
        }),
        graph("matmul_tile_f32", || {
            // Split-K, with a batch.
            f32s(&[3, 40, 1100]).matmul(&f32s(&[3, 1100, 50])) + f32s(&[50])
        }),
        graph("matmul_skinny_k_major_f32", || {
            f32s(&[333, 130]).matmul(&f32s(&[5, 130]).t())
        }),
        graph("matmul_skinny_m_major_f32", || {
            f32s(&[3, 130]).matmul(&f32s(&[130, 999]))
        }),
        graph("matmul_integer_u32", || {
            data(&[3, 50, 20], DType::I32).matmul(&data(&[3, 20, 37], DType::I32))
        }),
        graph("conv_tile_f32", || {
            let weights = f32s(&[18, 5, 3, 3]);
            f32s(&[3, 10, 21, 19]).conv2d(
                &weights,
                Some(&f32s(&[18])),
                &ConvOptions {
                    groups: 2,
                    padding: [1, 1],
                    ..ConvOptions::default()
                },
            )
        }),
        graph("conv_direct_f32", || {
            let options = ConvOptions {
                groups: 6,
                ..ConvOptions::default()
            };
            f32s(&[2, 6, 45, 70]).conv2d(&f32s(&[6, 1, 3, 3]), None, &options)
        }),
        graph("quant_gemv", || {
            f32s(&[2, 64]).quant_matmul(&quantised(301, 64))
        }),
        graph("quant_skinny", || {
            f32s(&[13, 64]).quant_matmul(&quantised(301, 64))
        }),
        graph("quant_tile", || {
            f32s(&[203, 64]).quant_matmul(&quantised(301, 64))
        }),
        graph("attention_prefill_f32", || attention([75, 90, 16], true)),
        graph("attention_prefill_f32", || attention([75, 90, 16], false)),
        graph("attention_decode_f32", || attention([7, 600, 16], true)),
        graph("attention_decode_f32", || attention([30, 40, 260], true)),
    ]
}

/// Number of launches of a kernel, counted by a recording device.
fn launches(kernel: &str, time: Option<Duration>, graph: &Graph) -> usize {
    let device = Device::on(noop::device(hal::Family::Apple7));
    if let Some(time) = time {
        device.set_max_launch_time(time);
    }
    device.scope(graph).eval().unwrap();
    device.synchronize().unwrap();
    let events = noop::record(device.hal().unwrap()).unwrap().events;
    let of = |event: &&noop::Event| matches!(event, noop::Event::Dispatch { kernel: name, .. } if name == kernel);
    events.iter().filter(of).count()
}

/// The bits of a graph's result on a device.
fn bits(device: &Device, graph: &Graph) -> Vec<u32> {
    let values: Vec<f32> = device.scope(|| graph().cast(DType::F32)).to_vec().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn bands_are_bit_identical_to_one_launch() {
    for (i, (kernel, graph)) in graphs().into_iter().enumerate() {
        let device = Device::software().unwrap();
        let expected = bits(&device, &graph);
        assert_eq!(launches(kernel, None, &graph), 1, "{kernel}, case {i}");
        for time in TIMES {
            let case = format!("{kernel}, case {i}, {time:?}");
            let count = launches(kernel, Some(time), &graph);
            assert!(count > 1 || time == TIMES[2], "{case}");
            let device = Device::software().unwrap();
            device.set_max_launch_time(time);
            assert!(bits(&device, &graph) == expected, "{case}");
        }
    }
}

#[test]
fn prefill_in_bands_gives_the_same_logits() {
    let spec = Family::default().spec(1).unwrap();
    let tokens: Vec<u32> = (0..70).map(|i| (i * 37 % spec.vocab) as u32).collect();
    let logits = |time: Option<Duration>| {
        let device = Device::software().unwrap();
        if let Some(time) = time {
            device.set_max_launch_time(time);
        }
        let decoder = Decoder::new(&device, spec.clone()).unwrap();
        let mut sequences = Sequences::new(&decoder, CacheType::F16, 1, 80).unwrap();
        let mut logits = Vec::new();
        for tokens in tokens.chunks(40) {
            let run = Run {
                slot: 0,
                tokens,
                logits: Logits::Last,
            };
            decoder
                .forward(&mut sequences, &[run], &mut logits)
                .unwrap();
        }
        logits
    };
    let expected = logits(None);
    assert!(logits(Some(Duration::ZERO)) == expected);
    assert!(logits(Some(Duration::from_nanos(50))) == expected);
}

#[test]
fn long_library_matmuls_run_in_bands_of_rows() {
    let products = |time: Option<Duration>| {
        let device = Device::on(noop::device(hal::Family::Apple7));
        device.set_matrix_library(MatrixLibrary::Mps).unwrap();
        if let Some(time) = time {
            device.set_max_launch_time(time);
        }
        let product = || f32s(&[100, 40]).matmul(&f32s(&[30, 40]).t());
        device.scope(product).eval().unwrap();
        device.synchronize().unwrap();
        let recorded = device.hal().unwrap();
        let events = noop::record(recorded).unwrap().events;
        let rows = |event: &noop::Event| match event {
            noop::Event::Product { sizes, .. } => Some(sizes[0]),
            _ => None,
        };
        let rows: Vec<usize> = events.iter().filter_map(rows).collect();
        // Each is prepared once.
        assert_eq!(noop::prepared_products(recorded), Some(rows.len() as u64));
        rows
    };
    assert_eq!(products(None), [100]);
    // 9,600 bytes' worth, of 4,095 each.
    assert_eq!(products(Some(Duration::from_nanos(60))), [34, 34, 32]);
    let device = Device::software().unwrap();
    device.set_matrix_library(MatrixLibrary::Mps).unwrap();
    device.set_max_launch_time(Duration::from_nanos(60));
    for is_transposed in [false, true] {
        let [a, b, c] = [[100, 40], [40, 30], [1, 30]].map(|shape| {
            let [rows, cols] = shape;
            if is_transposed {
                f32s(&[cols, rows]).t()
            } else {
                f32s(&shape)
            }
        });
        let product = || a.matmul(&b) + &c;
        let expected: Vec<f32> = product().to_vec().unwrap();
        let found: Vec<f32> = device.scope(product).to_vec().unwrap();
        for (a, b) in found.iter().zip(&expected) {
            assert!((a - b).abs() <= bound::SPLIT_LAUNCHES, "{a} {b}");
        }
    }
}
