//! Ops that are measured on the device and on the CPU.

use std::hint::black_box;

use anyhow::{Context as _, Result, ensure};
use bessemer::quant::{self, BlockFormat, Precision, QuantMatrix, Weights};
use bessemer::random::{self, Key};
use bessemer::{AttentionOptions, DType, Device, Tensor};
use half::{bf16, f16};

use crate::measure::{Timing, Work, interleaved};

/// A computation, on either device.
type DeviceComputation = Box<dyn Fn(&[Tensor]) -> Tensor>;

pub(super) struct DeviceCase {
    /// The promises of docs/systems.md that it measures, or its topic.
    pub(super) promise: &'static str,
    pub(super) name: String,
    shapes: Vec<Vec<usize>>,
    dtype: DType,
    compute: DeviceComputation,
    /// Tolerance relative to the CPU's largest result.
    tolerance: f64,
    /// The speed-up over the CPU that the documents promise.
    pub(super) goal: f64,
    /// The unit of the absolute rate, and its amount per run.
    pub(super) rate: (&'static str, f64),
}

/// All cases; with `quick`, in small sizes.
pub(super) fn all(quick: bool) -> Result<Vec<DeviceCase>> {
    let mut cases = documents(quick);
    cases.extend(quantised(quick)?);
    cases.extend(attention(quick));
    Ok(cases)
}

/// The claims of other Metal backends' documents.
fn documents(quick: bool) -> Vec<DeviceCase> {
    let f32 = DType::F32;
    let mut cases = Vec::new();
    for count in if quick {
        vec![1_000, 10_000]
    } else {
        vec![10_000, 100_000, 1_000_000, 16_000_000]
    } {
        cases.push(DeviceCase {
            promise: "C-13, C-17",
            name: format!("add f32 of {count}"),
            shapes: vec![vec![count]; 2],
            dtype: f32,
            compute: Box::new(|x| &x[0] + &x[1]),
            tolerance: 0.0,
            goal: 2.0,
            rate: ("M elements/s", count as f64 / 1e6),
        });
    }
    for side in if quick {
        vec![64]
    } else {
        vec![128, 256, 512, 1024, 2048]
    } {
        cases.push(DeviceCase {
            promise: "C-14, C-16",
            name: format!("matmul f32 {side}³"),
            shapes: vec![vec![side, side]; 2],
            dtype: f32,
            compute: Box::new(|x| x[0].matmul(&x[1])),
            tolerance: 1e-5,
            goal: 1.0,
            rate: ("Gop/s", 2.0 * (side * side * side) as f64 / 1e9),
        });
    }
    let width = if quick { 256 } else { 4096 };
    let weights = (width * width) as f64;
    cases.push(DeviceCase {
        promise: "B-29",
        name: format!("product of a {width}×{width} f16 matrix with a vector"),
        shapes: vec![vec![width, width], vec![width]],
        dtype: DType::F16,
        compute: Box::new(|x| x[0].matvec(&x[1])),
        tolerance: 4e-3,
        goal: 10.0,
        rate: ("GB/s", weights * 2.0 / 1e9),
    });
    cases.push(DeviceCase {
        promise: "B-29",
        name: format!("softmax of {width} rows of {width}"),
        shapes: vec![vec![width, width]],
        dtype: f32,
        compute: Box::new(|x| x[0].softmax(-1)),
        tolerance: 1e-5,
        goal: 10.0,
        rate: ("GB/s", weights * 8.0 / 1e9),
    });
    cases.extend(hologram());
    let count = if quick { 1 << 16 } else { 1 << 26 };
    cases.push(DeviceCase {
        promise: "B-30",
        name: format!("negation of {count} f32, read and written once"),
        shapes: vec![vec![count]],
        dtype: f32,
        compute: Box::new(|x| -&x[0]),
        tolerance: 0.0,
        goal: 1.0,
        rate: ("GB/s", count as f64 * 8.0 / 1e9),
    });
    cases
}

/// Elements of hologram's vector ops.
pub(super) const HOLOGRAM_ELEMENTS: usize = 10_000;

/// The table of hologram's plan; small already.
fn hologram() -> Vec<DeviceCase> {
    let count = HOLOGRAM_ELEMENTS;
    let vector = |name: &str, inputs: usize, goal: f64, compute: DeviceComputation| DeviceCase {
        promise: "E-20",
        name: format!("{name} f32 of {count}"),
        shapes: vec![vec![count]; inputs],
        dtype: DType::F32,
        compute,
        tolerance: 0.0,
        goal,
        rate: ("GB/s", (inputs + 1) as f64 * count as f64 * 4.0 / 1e9),
    };
    let side = 256;
    vec![
        vector("vector_add", 2, 4.0, Box::new(|x| &x[0] + &x[1])),
        vector("vector_mul", 2, 3.75, Box::new(|x| &x[0] * &x[1])),
        vector("relu", 1, 4.5, Box::new(|x| x[0].relu())),
        DeviceCase {
            promise: "E-20",
            name: format!("gemm f32 {side}³"),
            shapes: vec![vec![side, side]; 2],
            dtype: DType::F32,
            compute: Box::new(|x| x[0].matmul(&x[1])),
            tolerance: 1e-5,
            goal: 4.25,
            rate: ("Gop/s", 2.0 * (side * side * side) as f64 / 1e9),
        },
    ]
}

/// GEMV with weights of every format, in the sizes of a 7B model's layers, which dominate decode. The CPU uses its fast
/// precision.
fn quantised(quick: bool) -> Result<Vec<DeviceCase>> {
    let shapes = if quick {
        vec![[40, 256]]
    } else {
        vec![[4096, 4096], [11008, 4096]]
    };
    let blocks = BlockFormat::ALL.map(Weights::Block);
    let mut cases = Vec::new();
    for weights in [Weights::F16, Weights::BF16].into_iter().chain(blocks) {
        for [rows, cols] in shapes.clone() {
            let matrix = matrix(weights, rows, cols)?.repacked();
            let bytes = matrix.bytes().len() as f64;
            cases.push(DeviceCase {
                promise: "decode",
                name: format!("product of a {rows}×{cols} {weights} matrix with a vector"),
                shapes: vec![vec![cols]],
                dtype: DType::F32,
                compute: Box::new(move |x| x[0].quant_matmul_with(&matrix, Precision::Fast)),
                // The CPU rounds activations to 8 bits.
                tolerance: 0.03,
                goal: 1.0,
                rate: ("GB/s", bytes / 1e9),
            });
        }
    }
    Ok(cases)
}

/// Random weights: a few rows, repeated, as quantising to K-quants is slow.
fn matrix(weights: Weights, rows: usize, cols: usize) -> Result<QuantMatrix> {
    const DISTINCT_ROWS: usize = 24;
    let values = Device::cpu().scope(|| {
        let key = Key::new(rows as u64);
        random::normal(&key, [DISTINCT_ROWS, cols], DType::F32).to_vec::<f32>()
    })?;
    let some = match weights {
        Weights::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Weights::F16 => values
            .iter()
            .flat_map(|v| f16::from_f32(*v).to_le_bytes())
            .collect(),
        Weights::BF16 => values
            .iter()
            .flat_map(|v| bf16::from_f32(*v).to_le_bytes())
            .collect(),
        Weights::Block(format) => quant::quantize(format, &values)?,
    };
    let len = some.len() / DISTINCT_ROWS * rows;
    let bytes = some.into_iter().cycle().take(len).collect();
    Ok(QuantMatrix::from_bytes(weights, [rows, cols], bytes)?)
}

/// Attention with 32 query heads and 8 key heads, of one token over a long context and of a prompt.
fn attention(quick: bool) -> Vec<DeviceCase> {
    let (heads, kv_heads, dim) = if quick { (4, 2, 32) } else { (32, 8, 128) };
    let sizes = if quick {
        [(1, 80), (40, 40)]
    } else {
        [(1, 4096), (512, 512)]
    };
    let case = |(queries, keys): (usize, usize)| {
        let kv = vec![1, kv_heads, keys, dim];
        let is_decode = queries == 1;
        let read = 2.0 * (kv_heads * keys * dim) as f64 * 2.0;
        // Half of the scores of a prompt are masked.
        let ops = 2.0 * (heads * queries * keys * dim) as f64;
        DeviceCase {
            promise: if is_decode { "decode" } else { "prefill" },
            name: format!("attention of {queries} over {keys} positions, f16"),
            shapes: vec![vec![1, heads, queries, dim], kv.clone(), kv],
            dtype: DType::F16,
            compute: Box::new(|x| {
                let options = AttentionOptions {
                    causal: true,
                    ..AttentionOptions::default()
                };
                x[0].attention(&x[1], &x[2], &options)
            }),
            tolerance: 4e-3,
            goal: 1.0,
            rate: if is_decode {
                ("GB/s", read / 1e9)
            } else {
                ("Gop/s", ops / 1e9)
            },
        }
    };
    sizes.map(case).into()
}

impl DeviceCase {
    /// Times on the device and on the CPU, including the wait for the results.
    ///
    /// # Errors
    /// If the results differ by more than the tolerance: the speed of wrong results is meaningless.
    pub(super) fn measure(&self, device: &Device, rounds: usize) -> Result<(Timing, Timing)> {
        let cpu = Device::cpu();
        let keys = Key::new(1).split(self.shapes.len());
        let there: Vec<Tensor> = cpu.scope(|| {
            let shapes = self.shapes.iter().zip(keys);
            shapes
                .map(|(shape, key)| random::uniform(&key, shape.as_slice(), -1.0, 1.0, self.dtype))
                .collect()
        });
        let here: Vec<Tensor> = there.iter().map(|x| x.to(device)).collect();
        for x in here.iter().chain(&there) {
            x.eval()?;
        }
        let once = |x: &[Tensor], on: &Device| -> Result<Tensor> {
            let y = on.scope(|| (self.compute)(x));
            y.eval()?;
            on.synchronize()?;
            Ok(y)
        };
        let numbers = |y: Tensor| y.cast(DType::F32).to_vec::<f32>();
        let (ours, expected) = (once(&here, device)?, once(&there, &cpu)?);
        agree(&numbers(ours)?, &numbers(expected)?, self.tolerance)
            .with_context(|| self.name.clone())?;
        let mut contestants: [Work<'_>; 2] = [
            Box::new(|| once(&here, device).map(|y| drop(black_box(y)))),
            Box::new(|| once(&there, &cpu).map(|y| drop(black_box(y)))),
        ];
        let mut times = interleaved(rounds, &mut contestants)?.into_iter();
        times
            .next()
            .zip(times.next())
            .context("two contestants have two times")
    }
}

/// Returns an error unless all values are close to the CPU's, relative to the largest of those.
pub(super) fn agree(ours: &[f32], expected: &[f32], tolerance: f64) -> Result<()> {
    ensure!(
        ours.len() == expected.len() && !ours.is_empty(),
        "{} results, {} on the CPU",
        ours.len(),
        expected.len()
    );
    let largest = expected.iter().fold(0.0_f32, |top, v| top.max(v.abs()));
    ensure!(largest > 0.0, "the CPU computed nothing but zeros");
    for (i, (a, b)) in ours.iter().zip(expected).enumerate() {
        let error = f64::from((a - b).abs()) / f64::from(largest);
        ensure!(
            error <= tolerance,
            "result {i} is {a}, on the CPU {b}: off by {error:.1e} of the largest, more than {tolerance:.0e}"
        );
    }
    Ok(())
}
