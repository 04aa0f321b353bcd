//! Instructions that run once per launch, as ops on tensors of the device.

use super::DeviceMemory;
use super::error::FaultKind;
use super::instruction::Instruction;
use super::memory::Memory;
use super::operand::{BinaryOperation, MapOperation, ReduceOperation};
use super::tensor_op;
use crate::{ConvOptions, DType, Tensor};

/// Runs an instruction with its handles, inputs first; the result is the handle of a new pool.
pub(crate) fn run(
    instruction: &Instruction,
    handles: &[u64],
    memory: &mut DeviceMemory,
) -> Result<Option<u64>, FaultKind> {
    match (instruction, handles) {
        (Instruction::PoolAlloc { size, .. }, _) => {
            return Memory::allocate_pool(memory, *size).map(Some);
        }
        (Instruction::PoolFree { .. }, [pool]) => {
            return Memory::free_pool(memory, *pool).map(|()| None);
        }
        _ => {}
    }
    let (Some(Ok(buffers)), [inputs @ .., output]) = (tensor_op::buffers(instruction), handles)
    else {
        return Ok(None);
    };
    let counts = buffers.inputs.iter().map(|(_, count)| *count);
    let mut tensors = Vec::with_capacity(inputs.len());
    for (&handle, count) in inputs.iter().zip(counts) {
        check_len(memory, handle, count)?;
        tensors.push(memory.tensor(handle, count)?);
    }
    let count = buffers.output.1;
    check_len(memory, *output, count)?;
    if count > 0 {
        let result = compute(instruction, &tensors).reshape([count]);
        // The memory of an input that is also the output is free to be written.
        let failed = |e: crate::Error| FaultKind::Device(Box::new(e));
        result.eval().map_err(failed)?;
        drop(tensors);
        memory.assign(*output, &result)?;
    }
    Ok(None)
}

/// Checks that a buffer has a number of elements.
fn check_len(memory: &DeviceMemory, handle: u64, count: usize) -> Result<(), FaultKind> {
    match (count * DType::F32.size()).checked_sub(1) {
        Some(last) => Memory::read(memory, handle, last as u64, &mut [0]),
        None => Memory::read(memory, handle, 0, &mut []),
    }
}

/// The result of an instruction, from vectors in the order of [`tensor_op::buffers`].
fn compute(instruction: &Instruction, inputs: &[Tensor]) -> Tensor {
    use Instruction as I;
    let dims = |all: &[u32]| -> Vec<usize> { all.iter().map(|&n| n as usize).collect() };
    match (instruction, inputs) {
        (
            I::LayerNorm {
                num_positions,
                hidden_dim,
                eps,
                ..
            },
            [x, gamma, beta],
        ) => x.reshape(dims(&[*num_positions, *hidden_dim])).layer_norm(
            Some(gamma),
            Some(beta),
            f64::from(*eps),
        ),
        (
            I::GroupNorm {
                batch_size,
                num_channels,
                height,
                width,
                num_groups,
                eps,
                ..
            },
            [x, gamma, beta],
        ) => x
            .reshape(dims(&[*batch_size, *num_channels, *height, *width]))
            .group_norm(
                *num_groups as usize,
                Some(gamma),
                Some(beta),
                f64::from(*eps),
            ),
        (
            I::BatchNorm {
                batch_size,
                num_channels,
                height,
                width,
                eps,
                ..
            },
            [x, scale, bias, mean, variance],
        ) => x
            .reshape(dims(&[*batch_size, *num_channels, *height, *width]))
            .batch_norm(mean, variance, Some(scale), Some(bias), f64::from(*eps)),
        (I::Conv2d { .. }, [x, weights, bias @ ..]) => {
            convolve(instruction, x, weights, bias.first())
        }
        (
            I::NearestUpsample2d {
                batch_size,
                num_channels,
                in_height,
                in_width,
                scale_factor,
                ..
            },
            [x],
        ) => x
            .reshape(dims(&[*batch_size, *num_channels, *in_height, *in_width]))
            .repeat(*scale_factor as usize, 2)
            .repeat(*scale_factor as usize, 3),
        (I::Gemm { m, k, n, .. }, [a, b]) => a
            .reshape(dims(&[*m, *k]))
            .matmul(&b.reshape(dims(&[*k, *n]))),
        (I::ParallelMap { operation, .. }, [x]) => map(*operation, x),
        (I::ParallelMapBinary { operation, .. }, [a, b]) => map_binary(*operation, a, b),
        (I::ParallelReduce { operation, .. }, [x]) => reduce(*operation, x),
        // Not a tensor instruction, which the caller has checked.
        _ => Tensor::zeros([0], DType::F32),
    }
}

fn convolve(
    instruction: &Instruction,
    x: &Tensor,
    weights: &Tensor,
    bias: Option<&Tensor>,
) -> Tensor {
    let Instruction::Conv2d {
        batch_size,
        in_channels,
        in_height,
        in_width,
        out_channels,
        kernel_h,
        kernel_w,
        stride_h,
        stride_w,
        pad_top,
        pad_left,
        pad_bottom,
        pad_right,
        dilation_h,
        dilation_w,
        group,
        ..
    } = instruction
    else {
        return x.clone();
    };
    let size = |n: &u32| *n as usize;
    let edges = [
        (0, 0),
        (0, 0),
        (size(pad_top), size(pad_bottom)),
        (size(pad_left), size(pad_right)),
    ];
    let x = x
        .reshape([batch_size, in_channels, in_height, in_width].map(size))
        .pad(&edges, 0.0);
    let per_group = size(in_channels) / size(group).max(1);
    let weights = weights.reshape([
        size(out_channels),
        per_group,
        size(kernel_h),
        size(kernel_w),
    ]);
    let options = ConvOptions {
        stride: [stride_h, stride_w].map(size),
        padding: [0, 0],
        dilation: [dilation_h, dilation_w].map(size),
        groups: size(group),
    };
    x.conv2d(&weights, bias, &options)
}

fn map(operation: MapOperation, x: &Tensor) -> Tensor {
    match operation {
        MapOperation::Abs => x.abs(),
        MapOperation::Neg => x.neg(),
        MapOperation::Sqrt => x.sqrt(),
        MapOperation::Exp => x.exp(),
        MapOperation::Log => x.log(),
        MapOperation::Sin => x.sin(),
        MapOperation::Cos => x.cos(),
        MapOperation::Tan => x.tan(),
        MapOperation::Ceil => x.ceil(),
        MapOperation::Floor => x.floor(),
        // `Tensor::round` rounds ties to even, this one away from zero.
        MapOperation::Round => {
            let whole = x.trunc();
            let is_up = (x - &whole).abs().ge(0.5);
            is_up.select(&whole + x.sign(), &whole)
        }
        MapOperation::Reciprocal => x.reciprocal(),
        MapOperation::Erf => x.erf(),
        MapOperation::Sigmoid => x.sigmoid(),
        MapOperation::Tanh => x.tanh(),
        MapOperation::Relu => x.relu(),
    }
}

fn map_binary(operation: BinaryOperation, a: &Tensor, b: &Tensor) -> Tensor {
    // `Tensor::minimum` returns NaN if one is NaN, these ignore it.
    let number_of = |a: &Tensor, b: &Tensor| a.is_nan().select(b, a);
    match operation {
        BinaryOperation::Add => a + b,
        BinaryOperation::Sub => a - b,
        BinaryOperation::Mul => a * b,
        BinaryOperation::Div => a / b,
        BinaryOperation::Pow => a.pow(b),
        BinaryOperation::Min => number_of(a, b).minimum(number_of(b, a)),
        BinaryOperation::Max => number_of(a, b).maximum(number_of(b, a)),
        BinaryOperation::Atan2 => a.atan2(b),
    }
}

fn reduce(operation: ReduceOperation, x: &Tensor) -> Tensor {
    let without_nan = |identity: f32| x.is_nan().select(identity, x);
    match operation {
        ReduceOperation::Sum => x.sum(&[], false),
        ReduceOperation::Product => x.prod(&[], false),
        ReduceOperation::Min if x.count() == 0 => Tensor::full([1], f32::INFINITY, DType::F32),
        ReduceOperation::Max if x.count() == 0 => Tensor::full([1], f32::NEG_INFINITY, DType::F32),
        ReduceOperation::Min => without_nan(f32::INFINITY).min(&[], false),
        ReduceOperation::Max => without_nan(f32::NEG_INFINITY).max(&[], false),
    }
}
