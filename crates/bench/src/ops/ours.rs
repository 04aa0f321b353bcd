//! Our contestant: the ops as users write them.

mod elementwise;
mod index;
mod linear;
mod network;
mod reduction;

use bench_protocol::{Case, DType, Engine, Input, Op, Output, Prepared, WorkerInfo, data};
use bessemer::{Result, Tensor};
use half::{bf16, f16};

use super::worker::EXACT;

/// The engine under measurement.
#[derive(Debug)]
pub(crate) struct Ours {
    /// Language models as with `--exact`.
    pub(crate) exact: bool,
}

impl Engine for Ours {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            name: if self.exact { EXACT } else { "Bessemer" }.to_owned(),
            version: format!(
                "{} ({})",
                env!("CARGO_PKG_VERSION"),
                bessemer::simd::level().name()
            ),
            threads: bessemer::pool::threads(),
        }
    }

    fn prepare(&mut self, case: &Case) -> Result<Option<Prepared>, String> {
        match &case.model {
            Some(model) => crate::llm::prepare(case.op, model, self.exact)
                .map(Some)
                .map_err(|e| format!("{e:#}")),
            None => prepare(case).map_err(|e| e.to_string()),
        }
    }
}

fn prepare(case: &Case) -> Result<Option<Prepared>> {
    let x = case
        .inputs
        .iter()
        .enumerate()
        .map(|(seed, input)| tensor(input, seed))
        .collect::<Result<Vec<_>>>()?;
    let Some(mut compute) = function(case, x.clone()) else {
        return Ok(None);
    };
    let first = compute();
    first.eval()?;
    let output = Output::of(&comparable_values(case, &x, &first)?, |v| v);
    let work = Box::new(move || match compute().eval() {
        Ok(_) => Ok(()),
        Err(e) => Err(e.to_string()),
    });
    Ok(Some(Prepared {
        work,
        output,
        wake: None,
    }))
}

/// The computation of a case, recorded and evaluated again at every call.
type Compute = Box<dyn FnMut() -> Tensor>;

fn function(case: &Case, x: Vec<Tensor>) -> Option<Compute> {
    elementwise::function(case, &x)
        .or_else(|| reduction::function(case, &x))
        .or_else(|| linear::function(case, &x))
        .or_else(|| network::function(case, &x))
        .or_else(|| index::function(case, &x))
}

/// A computation of one operand.
fn unary_op(x: &[Tensor], f: impl Fn(&Tensor) -> Tensor + 'static) -> Option<Compute> {
    let a = x[0].clone();
    Some(Box::new(move || f(&a)))
}

/// A computation of two operands.
fn binary_op(x: &[Tensor], f: impl Fn(&Tensor, &Tensor) -> Tensor + 'static) -> Option<Compute> {
    let (a, b) = (x[0].clone(), x[1].clone());
    Some(Box::new(move || f(&a, &b)))
}

/// A computation of three operands.
fn ternary_op(
    x: &[Tensor],
    f: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor + 'static,
) -> Option<Compute> {
    let (a, b, c) = (x[0].clone(), x[1].clone(), x[2].clone());
    Some(Box::new(move || f(&a, &b, &c)))
}

/// The values to compare with the peers: for argsort the selected elements, since the order of ties is unspecified.
fn comparable_values(case: &Case, x: &[Tensor], result: &Tensor) -> Result<Vec<f64>> {
    if case.op != Op::Argsort {
        return result.cast(bessemer::DType::F64).to_vec();
    }
    let values: Vec<f32> = x[0].to_vec()?;
    let width = x[0].dim(-1)?.max(1);
    let order: Vec<i64> = result.to_vec()?;
    Ok(order
        .iter()
        .enumerate()
        .map(|(i, &o)| f64::from(values[i / width * width + o as usize]))
        .collect())
}

fn dtype(dtype: DType) -> bessemer::DType {
    match dtype {
        DType::F16 => bessemer::DType::F16,
        DType::Bf16 => bessemer::DType::BF16,
        DType::F32 => bessemer::DType::F32,
        DType::F64 => bessemer::DType::F64,
        DType::I32 => bessemer::DType::I32,
        DType::I64 => bessemer::DType::I64,
        DType::U8 => bessemer::DType::U8,
        DType::Bool => bessemer::DType::Bool,
    }
}

fn tensor(input: &Input, seed: usize) -> Result<Tensor> {
    let shape = input.shape.as_slice();
    let values = || data::values(input, seed);
    let f32s = || data::f32s(input, seed).into_iter();
    let tensor = match input.dtype {
        DType::F16 => Tensor::from_vec(f32s().map(f16::from_f32).collect(), shape),
        DType::Bf16 => Tensor::from_vec(f32s().map(bf16::from_f32).collect(), shape),
        DType::F32 => Tensor::from_vec(f32s().collect(), shape),
        DType::F64 => Tensor::from_vec(values().collect::<Vec<f64>>(), shape),
        DType::I32 => Tensor::from_vec(values().map(|v| v as i32).collect(), shape),
        DType::I64 => Tensor::from_vec(values().map(|v| v as i64).collect(), shape),
        DType::U8 => Tensor::from_vec(values().map(|v| v as u8).collect(), shape),
        DType::Bool => Tensor::from_vec(values().map(|v| v != 0.0).collect(), shape),
    };
    tensor.eval()?;
    Ok(tensor)
}
