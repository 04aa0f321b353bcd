//! Tensors of a file as the engine's matrices and vectors.

use bessemer::quant::{BlockFormat, QuantMatrix, Weights};

use crate::file::{Format, TensorView};
use crate::{Error, Result};

/// A matrix that refers to the mapped file.
pub(crate) fn matrix(view: &TensorView) -> Result<QuantMatrix> {
    let &[rows, cols] = view.shape() else {
        return Err(Error::unsupported(
            format_args!("`{}` of shape {:?} as a matrix", view.name(), view.shape()),
            "weights must have two axes",
        ));
    };
    let Some(weights) = weights(view.format()) else {
        return Err(Error::unsupported(
            format_args!("`{}` stored as {}", view.name(), view.format()),
            format_args!(
                "f32, f16, bf16, {} are",
                BlockFormat::ALL.map(BlockFormat::name).join(", ")
            ),
        ));
    };
    let (file, range) = view.mapped_range();
    Ok(QuantMatrix::new(weights, [rows, cols], file, range)?)
}

/// The engine's equivalent of a matrix format.
pub(crate) fn weights(format: Format) -> Option<Weights> {
    Some(match format {
        Format::F32 => Weights::F32,
        Format::F16 => Weights::F16,
        Format::BF16 => Weights::BF16,
        other => Weights::Block(other.ggml_id().and_then(BlockFormat::from_ggml_type)?),
    })
}

/// The values of a norm or bias.
pub(crate) fn vector(view: &TensorView) -> Result<Vec<f32>> {
    let numbers = view.to_f32()?;
    view.release(0..view.bytes().len());
    Ok(numbers)
}
