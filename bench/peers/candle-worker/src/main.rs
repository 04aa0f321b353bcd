//! candle as a contestant of the benchmark.

mod model;
mod op;

use bench_protocol::{Case, DType, Engine, Input, Output, Prepared, WorkerInfo, data, serve};
use candle_core::{Device, Result, Tensor};

struct Candle;

impl Engine for Candle {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            name: "candle".to_owned(),
            version: "0.11.1 (gemm, rayon, target-cpu=native)".to_owned(),
            threads: candle_core::utils::get_num_threads(),
        }
    }

    fn prepare(&mut self, case: &Case) -> std::result::Result<Option<Prepared>, String> {
        prepare(case).map_err(|e| e.to_string())
    }
}

fn prepare(case: &Case) -> Result<Option<Prepared>> {
    if let Some(given) = &case.model {
        return model::prepare(case.op, given).map(Some);
    }
    let inputs = case
        .inputs
        .iter()
        .enumerate()
        .map(|(seed, input)| tensor(input, seed))
        .collect::<Result<Vec<_>>>()?;
    let Some(compute) = op::function(case, inputs.clone())? else {
        return Ok(None);
    };
    let mut first = compute()?;
    if case.op == bench_protocol::Op::Argsort {
        first = inputs[0].gather(&first, candle_core::D::Minus1)?;
    }
    let values = first
        .flatten_all()?
        .to_dtype(candle_core::DType::F64)?
        .to_vec1::<f64>()?;
    let output = Output::of(&values, |v| v);
    let work = Box::new(move || match compute() {
        Ok(result) => {
            std::hint::black_box(result);
            Ok(())
        }
        Err(e) => Err(e.to_string()),
    });
    Ok(Some(Prepared {
        work,
        output,
        wake: None,
    }))
}

/// The input as a candle tensor: bool as u8, like the results of its comparisons.
fn tensor(input: &Input, seed: usize) -> Result<Tensor> {
    let shape = input.shape.as_slice();
    let f32s = || data::f32s(input, seed);
    let values = || data::values(input, seed);
    let on = &Device::Cpu;
    match input.dtype {
        DType::F32 => Tensor::from_vec(f32s(), shape, on),
        DType::F16 => Tensor::from_vec(
            f32s().into_iter().map(half::f16::from_f32).collect(),
            shape,
            on,
        ),
        DType::Bf16 => Tensor::from_vec(
            f32s().into_iter().map(half::bf16::from_f32).collect(),
            shape,
            on,
        ),
        DType::F64 => Tensor::from_vec(values().collect::<Vec<f64>>(), shape, on),
        DType::I32 => Tensor::from_vec(values().map(|v| v as i32).collect::<Vec<_>>(), shape, on),
        DType::I64 => Tensor::from_vec(values().map(|v| v as i64).collect::<Vec<_>>(), shape, on),
        DType::U8 | DType::Bool => {
            Tensor::from_vec(values().map(|v| v as u8).collect::<Vec<_>>(), shape, on)
        }
    }
}

fn main() -> std::io::Result<()> {
    serve(&mut Candle, std::io::stdin().lock(), std::io::stdout())
}
