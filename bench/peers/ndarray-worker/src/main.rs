//! ndarray as a contestant of the benchmark: `rayon` for the elementwise ops, `matrixmultiply` with
//! its threads for products.

mod elementwise;
mod matrix;
mod reduction;

use bench_protocol::{Case, DType, Engine, Input, Output, Prepared, WorkerInfo, data, serve};
use ndarray::{ArrayD, IxDyn};

struct NdArray;

impl Engine for NdArray {
    fn info(&self) -> WorkerInfo {
        WorkerInfo {
            name: "ndarray".to_owned(),
            version: "0.17 (rayon, matrixmultiply with threads, target-cpu=native)".to_owned(),
            threads: rayon::current_num_threads(),
        }
    }

    fn prepare(&mut self, case: &Case) -> Result<Option<Prepared>, String> {
        Ok(elementwise::prepare(case)
            .or_else(|| reduction::prepare(case))
            .or_else(|| matrix::prepare(case)))
    }
}

/// Input `seed` of a case, where it has the type `T`.
fn array<T: Number>(case: &Case, seed: usize) -> Option<ArrayD<T>> {
    let input: &Input = case.inputs.get(seed)?;
    (input.dtype == T::DTYPE).then(|| {
        let values = data::values(input, seed).map(T::of).collect();
        ArrayD::from_shape_vec(IxDyn(&input.shape), values).expect("the shape's number of values")
    })
}

/// Element types of this worker.
trait Number: Copy + 'static {
    const DTYPE: DType;
    fn of(value: f64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! numbers {
    ($($type:ty: $dtype:ident),*) => {$(
        impl Number for $type {
            const DTYPE: DType = DType::$dtype;
            fn of(value: f64) -> Self {
                value as $type
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
        }
    )*};
}
numbers!(f32: F32, f64: F64, i32: I32, i64: I64, u8: U8);

impl Number for bool {
    const DTYPE: DType = DType::Bool;
    fn of(value: f64) -> Self {
        value != 0.0
    }
    fn to_f64(self) -> f64 {
        f64::from(u8::from(self))
    }
}

/// A computation whose result is an array.
fn prepared<T: Number, D: ndarray::Dimension>(
    compute: impl Fn() -> ndarray::Array<T, D> + 'static,
) -> Option<Prepared> {
    let values: Vec<T> = compute().iter().copied().collect();
    Some(Prepared {
        output: Output::of(&values, T::to_f64),
        wake: None,
        work: Box::new(move || {
            std::hint::black_box(compute());
            Ok(())
        }),
    })
}

/// A computation whose result is a scalar.
fn prepared_number<T: Number>(compute: impl Fn() -> T + 'static) -> Option<Prepared> {
    Some(Prepared {
        output: Output::of(&[compute()], T::to_f64),
        wake: None,
        work: Box::new(move || {
            std::hint::black_box(compute());
            Ok(())
        }),
    })
}

fn main() -> std::io::Result<()> {
    serve(&mut NdArray, std::io::stdin().lock(), std::io::stdout())
}
