//! `matmul_packed` on the CPU.

use bytemuck::Pod;
use half::{bf16, f16};

use super::gemm::{self, Gemm, Matrix};
use super::matmul::{matrix, scalar};
use crate::dispatch::{self, Dense, Input, Output};
use crate::ops::packed_matmul::PackedMatmul;
use crate::{DType, Element, Result, Scalar, try_vec};

/// A right operand packed into panels.
pub(crate) enum PackedPanels {
    F16(gemm::GemmPanels<f16>),
    BF16(gemm::GemmPanels<bf16>),
    F32(gemm::GemmPanels<f32>),
    F64(gemm::GemmPanels<f64>),
}

/// Packs a matrix of floats into panels. A broadcast matrix may be larger than the memory.
pub(crate) fn pack(input: &Input<'_>) -> Result<PackedPanels> {
    fn view<'a, T: Pod>(input: &Input<'a>) -> Matrix<'a, T> {
        let layout = &input.layout;
        if layout.count() == 0 {
            return Matrix::contiguous(&[], layout.shape()[0], layout.shape()[1]);
        }
        matrix(input, layout, layout.offset())
    }
    let count = input.layout.count();
    let bytes = count.saturating_mul(input.dtype.size());
    try_vec::check::<u8>("prepack", bytes)?;
    let panels = match input.dtype {
        DType::F16 => gemm::GemmPanels::new(view(input)).map(PackedPanels::F16),
        DType::BF16 => gemm::GemmPanels::new(view(input)).map(PackedPanels::BF16),
        DType::F64 => gemm::GemmPanels::new(view(input)).map(PackedPanels::F64),
        _ => gemm::GemmPanels::new(view(input)).map(PackedPanels::F32),
    };
    panels.ok_or_else(|| try_vec::refused("prepack", bytes))
}

/// Runs the op.
pub(crate) fn run(op: &PackedMatmul, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let left = Dense::new("matmul_packed", inputs[0])?;
    let repacked;
    let right = match op.right.packed() {
        dispatch::Packed::Cpu(right) => right,
        // The operand was packed for Metal, but this call runs on the CPU.
        dispatch::Packed::Metal(right) => {
            repacked = pack(&dispatch::input("matmul_packed", right)?)?;
            &repacked
        }
    };
    match right {
        PackedPanels::F16(right) => multiply(&left, right, output.all()),
        PackedPanels::BF16(right) => multiply(&left, right, output.all()),
        PackedPanels::F32(right) => multiply(&left, right, output.all()),
        PackedPanels::F64(right) => multiply(&left, right, output.all()),
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
