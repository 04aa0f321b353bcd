//! Products, views and indices, by ndarray's own methods.

use bench_protocol::{Case, DType, Op, Prepared};
use ndarray::linalg::{general_mat_mul, general_mat_vec_mul};
use ndarray::{Array1, Array2, Axis, Ix1, Ix2, LinalgScalar, concatenate, s, stack};

use crate::{array, prepared, prepared_number};

/// Prepares a matmul, or a copy with another layout.
pub(crate) fn prepare(case: &Case) -> Option<Prepared> {
    match case.inputs[0].dtype {
        DType::F64 => product::<f64>(case),
        DType::F32 => product::<f32>(case).or_else(|| copies(case)),
        _ => None,
    }
}

fn matrix<T: crate::Number>(case: &Case, seed: usize) -> Option<Array2<T>> {
    array(case, seed)?.into_dimensionality::<Ix2>().ok()
}

fn vector<T: crate::Number>(case: &Case, seed: usize) -> Option<Array1<T>> {
    array(case, seed)?.into_dimensionality::<Ix1>().ok()
}

fn product<T: crate::Number + LinalgScalar>(case: &Case) -> Option<Prepared> {
    match case.op {
        Op::Matmul | Op::MatmulPacked => {
            let (a, b) = (matrix::<T>(case, 0)?, matrix(case, 1)?);
            prepared(move || a.dot(&b))
        }
        Op::MatmulTransposed => {
            let (a, b) = (matrix::<T>(case, 0)?, matrix(case, 1)?);
            prepared(move || a.dot(&b.t()))
        }
        Op::Matvec => {
            let (a, b) = (matrix::<T>(case, 0)?, vector(case, 1)?);
            prepared(move || {
                let mut y = Array1::zeros(a.nrows());
                general_mat_vec_mul(T::one(), &a, &b, T::zero(), &mut y);
                y
            })
        }
        Op::Dot => {
            let (a, b) = (vector::<T>(case, 0)?, vector(case, 1)?);
            prepared_number(move || a.dot(&b))
        }
        Op::Outer => {
            let (a, b) = (vector::<T>(case, 0)?, vector::<T>(case, 1)?);
            prepared(move || &a.view().insert_axis(Axis(1)) * &b)
        }
        Op::Gemm => {
            let (a, b, c) = (matrix::<T>(case, 0)?, matrix(case, 1)?, matrix(case, 2)?);
            let (alpha, beta) = (T::of(case.number("alpha")), T::of(case.number("beta")));
            prepared(move || {
                let mut result = c.clone();
                general_mat_mul(alpha, &a, &b, beta, &mut result);
                result
            })
        }
        _ => None,
    }
}

fn copies(case: &Case) -> Option<Prepared> {
    if case.op == Op::Copy {
        let x = array::<f32>(case, 0)?;
        return prepared(move || x.to_owned());
    }
    let x = matrix::<f32>(case, 0)?;
    let (rows, columns) = x.dim();
    match case.op {
        Op::TransposeCopy => prepared(move || x.t().as_standard_layout().into_owned()),
        Op::StridedCopy => {
            prepared(move || x.slice(s![.., ..;2]).as_standard_layout().into_owned())
        }
        Op::Flip => prepared(move || x.slice(s![.., ..;-1]).as_standard_layout().into_owned()),
        Op::Take | Op::Embedding => {
            let index: Vec<usize> = vector::<i64>(case, 1)?
                .iter()
                .map(|&i| i as usize)
                .collect();
            prepared(move || x.select(Axis(0), &index))
        }
        Op::Concat => {
            let y = matrix(case, 1)?;
            prepared(move || concatenate![Axis(0), x, y])
        }
        Op::Stack => {
            let y = matrix(case, 1)?;
            prepared(move || stack![Axis(0), x, y])
        }
        Op::SliceUpdate => {
            let y = matrix::<f32>(case, 1)?;
            prepared(move || {
                let mut result = x.clone();
                result.slice_mut(s![.., 16..16 + y.ncols()]).assign(&y);
                result
            })
        }
        Op::Pad => prepared(move || {
            let mut result = Array2::zeros((rows + 2, columns + 2));
            result.slice_mut(s![1..=rows, 1..=columns]).assign(&x);
            result
        }),
        Op::Tril => prepared(move || x.tril(0)),
        Op::Triu => prepared(move || x.triu(0)),
        _ => None,
    }
}
