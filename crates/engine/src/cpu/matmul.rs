//! `matmul` and `gemm` on the CPU: batches of matrix products by [`gemm`].

use super::gemm::{Gemm, Matrix, gemm, gemm_batch};
use super::{copy, fused};
use crate::dispatch::{Input, Output};
use crate::dtype::with_type;
use crate::ops::matmul::{EpilogueSteps, Matmul};
use crate::storage::Storage;
use crate::{Element, Layout, Result, Scalar, Shape};

/// Runs the op. An epilogue, which this backend does not fuse, runs afterwards as a fused elementwise program.
pub(crate) fn run(op: &Matmul, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let (operands, others) = inputs.split_at(2);
    if op.epilogue == EpilogueSteps::NONE {
        product(op, inputs, output);
        return Ok(());
    }
    let mut products = Storage::new("matmul", output.bytes.len())?;
    let (dtype, shape) = (output.dtype, output.shape);
    let result = Output {
        bytes: products.bytes_mut().expect("newly allocated"),
        dtype,
        shape,
        aliases_input: None,
    };
    product(op, operands, result);
    let first = Input {
        bytes: products.bytes(),
        dtype,
        layout: Layout::contiguous(shape),
        constant: None,
    };
    let all: Vec<Input<'_>> = [first].into_iter().chain(others.iter().copied()).collect();
    fused::run_program(&op.epilogue.steps(dtype), &all, output);
    Ok(())
}

fn product(op: &Matmul, inputs: &[Input<'_>], mut output: Output<'_>) {
    if let Some(c) = inputs.get(2) {
        let bytes = &mut *output.bytes;
        copy::copy(c, Output { bytes, ..output });
    }
    with_type!(numbers output.dtype, T => multiply::<T>(op, inputs, &mut output),
        else unreachable!("the rule refuses other types"));
}

/// Converts a scalar (`alpha`, `beta`) to type `T`.
pub(super) fn scalar<T: Element + bytemuck::Pod>(value: Scalar) -> T {
    bytemuck::pod_read_unaligned(&value.to_bytes(T::DTYPE)[..size_of::<T>()])
}

/// The matrix of the last two axes of a layout, starting at an offset.
pub(super) fn matrix<'a, T: bytemuck::Pod>(
    input: &Input<'a>,
    layout: &Layout,
    offset: usize,
) -> Matrix<'a, T> {
    let (&[.., rows, cols], &[.., row, col]) = (&layout.shape()[..], layout.strides()) else {
        unreachable!("a matrix has two axes");
    };
    Matrix {
        data: input.all(),
        offset,
        rows,
        cols,
        row,
        col,
    }
}

/// The layout as one tall matrix with the same columns, if its rows have a single stride.
pub(super) fn tall(layout: &Layout) -> Option<Layout> {
    let cols = *layout.shape().last()?;
    let rows = layout.shape()[..layout.shape().rank() - 1].iter().product();
    layout.reshaped(Shape::new("matmul", &[rows, cols]).ok()?)
}

/// The offset of each matrix of a batch.
fn starts(layout: &Layout, batches: &[usize]) -> Vec<usize> {
    let rank = layout.shape().rank();
    let first = layout.sliced(rank - 2, 0, 1, 1).sliced(rank - 1, 0, 1, 1);
    let first = first.without(rank - 1).without(rank - 2);
    let shape = Shape::new("matmul", batches).expect("part of a shape");
    let all = first.broadcast_to("matmul", shape);
    all.expect("the rule has checked it").offsets().collect()
}

fn multiply<T>(op: &Matmul, inputs: &[Input<'_>], output: &mut Output<'_>)
where
    T: Gemm<Acc: Element + bytemuck::Pod> + bytemuck::Pod,
{
    let (a, b) = (&inputs[0], &inputs[1]);
    let alpha = scalar(op.alpha);
    let beta = scalar(if inputs.len() > 2 {
        op.beta
    } else {
        Scalar::Int(0)
    });
    let shape = output.shape;
    let (batches, &[m, n]) = shape.split_at(shape.rank() - 2) else {
        unreachable!("the rule gives two axes or more");
    };
    let c = output.all::<T>();
    let k = a.layout.shape()[a.layout.shape().rank() - 1];
    if k == 0 {
        // Empty operands may have no element at their offset.
        let empty = |rows, cols| Matrix::contiguous(&[], rows, cols);
        gemm(alpha, empty(c.len() / n, 0), empty(0, n), beta, c, n);
        return;
    }
    // A batch of left matrices with a single right matrix is one product with a tall left matrix.
    if b.layout.count() == k * n
        && a.layout.count() * n == c.len() * k
        && let Some(rows) = tall(&a.layout)
    {
        let left = matrix(a, &rows, rows.offset());
        gemm(
            alpha,
            left,
            matrix(b, &b.layout, b.layout.offset()),
            beta,
            c,
            n,
        );
        return;
    }
    let (left, right) = (starts(&a.layout, batches), starts(&b.layout, batches));
    let operands = |i: usize| {
        let left = matrix(a, &a.layout, left[i]);
        (left, matrix(b, &b.layout, right[i]))
    };
    gemm_batch(alpha, operands, beta, c, (m, n));
}
