//! Reductions and ops derived from them, by ndarray's own methods.

use bench_protocol::{Case, Op, Prepared};
use ndarray::parallel::prelude::{IntoParallelIterator, ParallelIterator};
use ndarray::{Array1, Array2, ArrayD, Axis, Ix1, Zip};

use crate::{array, prepared, prepared_number};

/// From this many elements on, rayon is worth its overhead.
const MIN_PARALLEL_ELEMENTS: usize = 1 << 15;

/// Prepares a reduction, a scan, a sort, a softmax or a norm.
pub(crate) fn prepare(case: &Case) -> Option<Prepared> {
    let x = array::<f32>(case, 0)?;
    match (case.op, case.axis()) {
        (Op::Sum, None) => prepared_number(move || x.sum()),
        (Op::Mean, None) => prepared_number(move || x.mean().unwrap_or(f32::NAN)),
        (Op::Prod, None) => prepared_number(move || x.product()),
        (Op::Var, None) => prepared_number(move || x.var(0.0)),
        (Op::Std, None) => prepared_number(move || x.std(0.0)),
        (Op::Min, None) => prepared_number(move || x.fold(f32::INFINITY, |a, &b| a.min(b))),
        (Op::Max, None) => prepared_number(move || x.fold(f32::NEG_INFINITY, |a, &b| a.max(b))),
        (Op::Norm, None) => prepared_number(move || x.fold(0.0, |a: f32, &b| a + b * b).sqrt()),
        (op, Some(axis)) => along(case, op, x, axis),
        (op, None) => rows(case, op, x),
    }
}

fn along(case: &Case, op: Op, x: ArrayD<f32>, axis: isize) -> Option<Prepared> {
    let axis = Axis(
        (if axis < 0 {
            axis + x.ndim() as isize
        } else {
            axis
        }) as usize,
    );
    match op {
        Op::Sum => prepared(move || x.sum_axis(axis)),
        Op::Mean => prepared(move || x.mean_axis(axis).expect("no axis is empty")),
        Op::Prod => prepared(move || x.product_axis(axis)),
        Op::Var => prepared(move || x.var_axis(axis, 0.0)),
        Op::Std => prepared(move || x.std_axis(axis, 0.0)),
        Op::Min => prepared(move || x.fold_axis(axis, f32::INFINITY, |a, &b| a.min(b))),
        Op::Max => prepared(move || x.fold_axis(axis, f32::NEG_INFINITY, |a, &b| a.max(b))),
        Op::Cumsum => prepared(move || {
            let mut sums = x.clone();
            sums.accumulate_axis_inplace(axis, |&a, b| *b += a);
            sums
        }),
        Op::Cumprod => prepared(move || {
            let mut products = x.clone();
            products.accumulate_axis_inplace(axis, |&a, b| *b *= a);
            products
        }),
        Op::Cummax => prepared(move || {
            let mut tops = x.clone();
            tops.accumulate_axis_inplace(axis, |&a, b| *b = b.max(a));
            tops
        }),
        _ => rows(case, op, x),
    }
}

/// Row by row, rows in parallel.
fn rows(case: &Case, op: Op, x: ArrayD<f32>) -> Option<Prepared> {
    match op {
        Op::Sort => {
            let x = x.into_dimensionality::<Ix1>().ok()?;
            prepared(move || {
                let mut sorted: Array1<f32> = x.clone();
                sorted
                    .as_slice_mut()
                    .expect("a clone is contiguous")
                    .sort_unstable_by(f32::total_cmp);
                sorted
            })
        }
        Op::Softmax => each_row(x, |row| {
            let top = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            row.iter_mut().for_each(|v| *v = (*v - top).exp());
            let total: f32 = row.iter().sum();
            row.iter_mut().for_each(|v| *v /= total);
        }),
        Op::RmsNorm => {
            let weight = array::<f32>(case, 1)?.into_dimensionality::<Ix1>().ok()?;
            let eps = case.number("eps") as f32;
            each_row(x, move |row| {
                let square = row.iter().map(|v| v * v).sum::<f32>() / row.len() as f32;
                let scale = (square + eps).sqrt().recip();
                row.iter_mut()
                    .zip(&weight)
                    .for_each(|(v, w)| *v = *v * scale * w);
            })
        }
        Op::LayerNorm => {
            let weight = array::<f32>(case, 1)?.into_dimensionality::<Ix1>().ok()?;
            let bias = array::<f32>(case, 2)?.into_dimensionality::<Ix1>().ok()?;
            let eps = case.number("eps") as f32;
            each_row(x, move |row| {
                let mean = row.iter().sum::<f32>() / row.len() as f32;
                let square = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f32>();
                let scale = (square / row.len() as f32 + eps).sqrt().recip();
                row.iter_mut()
                    .zip(weight.iter().zip(&bias))
                    .for_each(|(v, (w, b))| *v = (*v - mean) * scale * w + b);
            })
        }
        Op::Mse => {
            let y = array::<f32>(case, 1)?;
            prepared_number(move || {
                let total = Zip::from(&x)
                    .and(&y)
                    .fold(0.0_f32, |s, a, b| s + (a - b) * (a - b));
                total / x.len() as f32
            })
        }
        _ => None,
    }
}

fn each_row(x: ArrayD<f32>, f: impl Fn(&mut [f32]) + Sync + Send + 'static) -> Option<Prepared> {
    let width = *x.shape().last()?;
    let rows = x.len() / width;
    let x: Array2<f32> = x.into_shape_with_order((rows, width)).ok()?;
    prepared(move || {
        let mut result = x.clone();
        let each = |mut row: ndarray::ArrayViewMut1<'_, f32>| {
            f(row.as_slice_mut().expect("rows of a clone are contiguous"));
        };
        if result.len() >= MIN_PARALLEL_ELEMENTS {
            result.axis_iter_mut(Axis(0)).into_par_iter().for_each(each);
        } else {
            result.rows_mut().into_iter().for_each(each);
        }
        result
    })
}
