//! Matmul by the device's own library, Metal Performance Shaders, on request.
//!
//! MPS takes one product at a time, of `f32` or `f16`, whose factors are contiguous along rows or columns. Everything
//! else is left to the kernels of [`super::matmul`]: batches, other types, broadcast and reversed factors, empty sums,
//! and what MPS itself refuses.

use std::cell::Cell;

use bessemer_hal::{Matrix, MatrixElement, MatrixProduct, PreparedProduct};

use super::input::{Input, Output};
use super::matmul::{Epilogue, EpilogueActivation};
use super::record::Recorder;
use super::{Metal, copy, matmul};
use crate::{DType, Result};

/// Library that multiplies matrices on a Metal device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatrixLibrary {
    /// The engine's own kernels, for everything.
    #[default]
    Msl,
    /// Metal Performance Shaders, for the products that they support: their sums may be ordered and rounded
    /// differently, for `f16` more coarsely, and change with the system.
    Mps,
}

thread_local! {
    static SCOPE: Cell<Option<MatrixLibrary>> = const { Cell::new(None) };
}

impl MatrixLibrary {
    /// `msl` or `mps`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Msl => "msl",
            Self::Mps => "mps",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Msl, Self::Mps]
            .into_iter()
            .find(|l| l.name() == name)
    }

    /// Calls `body` with this library for matmul on this thread, whatever its devices are set to.
    pub fn scope<R>(self, body: impl FnOnce() -> R) -> R {
        struct Guard(Option<MatrixLibrary>);
        impl Drop for Guard {
            fn drop(&mut self) {
                SCOPE.set(self.0);
            }
        }
        let _guard = Guard(SCOPE.replace(Some(self)));
        body()
    }

    /// The library of the innermost scope on this thread.
    pub(super) fn scoped() -> Option<Self> {
        SCOPE.get()
    }
}

/// Records a matmul by MPS. `false`: MPS was not selected, or does not support it.
pub(super) fn record(
    recorder: &mut Recorder<'_>,
    factors: [Input<'_>; 2],
    epilogue: &Epilogue<'_>,
    output: &Output,
) -> Result<bool> {
    if recorder.metal.matrix_library() != MatrixLibrary::Mps {
        return Ok(false);
    }
    let element = match output.dtype {
        DType::F32 => MatrixElement::F32,
        DType::F16 => MatrixElement::F16,
        _ => return Ok(false),
    };
    let shape = output.shape;
    let (batch, &[rows, columns]) = shape.split_at(shape.rank() - 2) else {
        return Ok(false);
    };
    let plain = epilogue.activation == EpilogueActivation::None && epilogue.residual.is_none();
    // MPS rounds once.
    let rounds = epilogue.stepwise && element != MatrixElement::F32;
    if !plain || rounds || batch.iter().any(|&n| n != 1) {
        return Ok(false);
    }
    let [Some(left), Some(right)] = factors.map(|factor| matrix(&factor, output)) else {
        return Ok(false);
    };
    let size = element.size();
    let result = Matrix::new(output.slice.clone(), rows, columns, columns * size);
    let mut product = MatrixProduct::new(element, left, right, result);
    product.alpha = epilogue.alpha.to_f64();
    if epilogue.addend.is_some() {
        product.beta = epilogue.beta.to_f64();
    }
    let Ok(products) = prepare(recorder, &product, rows) else {
        return Ok(false);
    };
    if let Some(addend) = epilogue.addend {
        // MPS adds to the contents of the output.
        let layout = addend.layout.broadcast_to("matmul", shape)?;
        copy::record_copy(recorder, &Input { layout, ..addend }, output)?;
    }
    recorder.products = products;
    Ok(true)
}

/// Prepares a product, in bands of rows if one would take too long ([`super::band`]).
fn prepare(
    recorder: &Recorder<'_>,
    product: &MatrixProduct,
    rows: usize,
) -> bessemer_hal::Result<Vec<PreparedProduct>> {
    let Metal { device, stream, .. } = &**recorder.metal;
    let cost = matmul::cost(product.sums(), product.depth());
    let bands = cost.div_ceil(stream.launch_work().max(1)).max(1);
    let step = rows.div_ceil(usize::try_from(bands).unwrap_or(usize::MAX));
    let band = |start: usize| {
        let range = start..rows.min(start + step);
        device.prepare_product(MatrixProduct {
            left: product.left.rows(range.clone(), product.element)?,
            result: product.result.rows(range, product.element)?,
            ..product.clone()
        })
    };
    (0..rows).step_by(step.max(1)).map(band).collect()
}

/// A factor as an MPS matrix.
fn matrix(input: &Input<'_>, output: &Output) -> Option<Matrix> {
    let layout = &input.layout;
    let rank = layout.shape().rank();
    let (rows, columns) = (layout.shape()[rank - 2], layout.shape()[rank - 1]);
    let (down, across) = (layout.strides()[rank - 2], layout.strides()[rank - 1]);
    if input.block.is_none() || rows == 0 || columns == 0 {
        return None;
    }
    // The leading dimension, if the elements of a line are contiguous.
    let pitch = |lines: usize, line: isize, elements: usize, step: isize| {
        if elements > 1 && step != 1 {
            return None;
        }
        match lines {
            1 => Some(elements),
            _ => usize::try_from(line).ok().filter(|line| *line >= elements),
        }
    };
    let size = input.dtype.size();
    let span = input.span(output);
    let start = span.slice.offset() + span.offset * size;
    let end = span.slice.offset() + span.slice.length();
    if !start.is_multiple_of(size) {
        return None;
    }
    let slice = span.slice.buffer().slice(start..end).ok()?;
    if let Some(pitch) = pitch(rows, down, columns, across) {
        return Some(Matrix::new(slice, rows, columns, pitch * size));
    }
    let pitch = pitch(columns, across, rows, down)?;
    Some(Matrix::new(slice, columns, rows, pitch * size).transposed())
}
