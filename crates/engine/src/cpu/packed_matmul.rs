//! `matmul_packed` on the CPU.

use bytemuck::Pod;
use half::{bf16, f16};

use super::gemm::{self, Gemm, Matrix};
use super::matmul::{matrix, scalar};
use crate::dispatch::{self, Dense, Input, Output};
use crate::ops::packed_matmul::PackedMatmul;
use crate::{DType, Element, Result, Scalar};

/// A right operand packed into panels.
pub(crate) enum Packed {
    F16(gemm::GemmPanels<f16>),
    BF16(gemm::GemmPanels<bf16>),
    F32(gemm::GemmPanels<f32>),
    F64(gemm::GemmPanels<f64>),
}

/// Packs a matrix of floats into panels.
pub(crate) fn pack(input: &Input<'_>) -> Packed {
    fn view<'a, T: Pod>(input: &Input<'a>) -> Matrix<'a, T> {
        let layout = &input.layout;
        if layout.count() == 0 {
            return Matrix::contiguous(&[], layout.shape()[0], layout.shape()[1]);
        }
        matrix(input, layout, layout.offset())
    }
    match input.dtype {
        DType::F16 => Packed::F16(gemm::GemmPanels::new(view(input))),
        DType::BF16 => Packed::BF16(gemm::GemmPanels::new(view(input))),
        DType::F64 => Packed::F64(gemm::GemmPanels::new(view(input))),
        _ => Packed::F32(gemm::GemmPanels::new(view(input))),
    }
}

/// Runs the op.
pub(crate) fn run(op: &PackedMatmul, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let left = Dense::new("matmul_packed", inputs[0])?;
    let repacked;
    let right = match op.right.packed() {
        dispatch::Packed::Cpu(right) => right,
        // The operand was packed for Metal, but this call runs on the CPU.
        dispatch::Packed::Metal(right) => {
            repacked = pack(&dispatch::input("matmul_packed", right)?);
            &repacked
        }
    };
    match right {
        Packed::F16(right) => multiply(&left, right, output.all()),
        Packed::BF16(right) => multiply(&left, right, output.all()),
        Packed::F32(right) => multiply(&left, right, output.all()),
        Packed::F64(right) => multiply(&left, right, output.all()),
    }
    Ok(())
}

fn multiply<T>(left: &Dense<'_>, right: &gemm::GemmPanels<T>, c: &mut [T])
where
    T: gemm::FloatElement<Float: Element + Pod> + Gemm + Pod,
{
    let (one, zero) = (scalar(Scalar::Int(1)), scalar(Scalar::Int(0)));
    let rows = c.len() / right.cols();
    let a = Matrix::contiguous(left.all::<T>(), rows, right.rows());
    gemm::gemm_packed(one, a, right, zero, c, right.cols());
}
