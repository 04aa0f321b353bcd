//! Launches of an op that are built to be counted. They are bound to no memory.

use std::sync::Arc;

use super::block::Block;
use super::input::{Input, Output};
use super::record::{PlannedScratch, Recorder};
use super::{MatrixLibrary, Metal};
use crate::custom::CustomOp;
use crate::dispatch::Packed;
use crate::ops::Op;
use crate::tensor::{Node, Work};
use crate::{DType, Error, Layout, Result, Shape, Tensor};

/// Number of launches that compute a node; 0 if the CPU computes it, or it is empty. The kernels are compiled.
pub(crate) fn launch_count(
    metal: &Arc<Metal>,
    work: &Work,
    node: &Node,
    aliases_input: Option<usize>,
) -> Result<usize> {
    let op = &work.op;
    match op {
        Op::Alias(_) | Op::Argument(_) | Op::CustomOutput(_) => return Ok(0),
        Op::Custom(CustomOp::Metal(launch)) => {
            // Besides the kernel, what it updates is copied unless it is donated.
            let updated = launch.results.iter().filter_map(|result| result.updates);
            return Ok(1 + updated.filter(|&i| aliases_input != Some(i)).count());
        }
        Op::Custom(CustomOp::Program(_)) => return Ok(1),
        Op::Matmul(_) | Op::PackedMatmul(_) if metal.matrix_library() == MatrixLibrary::Mps => {
            return Ok(1);
        }
        _ if node.shape.count() == 0 => return Ok(0),
        _ => {}
    }
    let without_memory = |bytes: usize| {
        let buffer = metal.device.stand_in(bytes);
        Block::within(metal, &(&buffer).into(), None)
    };
    let of_tensor =
        |tensor: &Tensor| without_memory(tensor.node.shape.count() * tensor.dtype().size());
    let blocks: Vec<_> = work.inputs.iter().map(of_tensor).collect();
    let inputs = work.inputs.iter().zip(&blocks).enumerate();
    let inputs = inputs.map(|(i, (tensor, block))| {
        let constant = tensor.node.constant;
        let is_immediate = op.is_pointwise() && constant.is_some();
        let block = (!is_immediate && aliases_input != Some(i)).then_some(block);
        Input::new(block, tensor.dtype(), *tensor.layout(), constant)
    });
    let mut inputs: Vec<_> = inputs.collect();
    let captured = match op {
        Op::PackedMatmul(packed) => match packed.right.packed() {
            Packed::Metal(right) => Some((of_tensor(right), right.dtype(), *right.layout())),
            Packed::Cpu(_) => None,
        },
        Op::QuantMatmul(quantised) => {
            let bytes = quantised.matrix.bytes().len();
            let layout = Layout::contiguous(Shape::new(op.name(), &[bytes])?);
            Some((without_memory(bytes), DType::U8, layout))
        }
        _ => None,
    };
    if let Some((block, dtype, layout)) = &captured {
        inputs.push(Input::new(Some(block), *dtype, *layout, None));
    }
    let block = without_memory(node.shape.count() * node.dtype.size());
    let output = Output::new(&block, node.dtype, node.shape, aliases_input);
    let mut scratch = PlannedScratch::without_memory(metal);
    let mut recorder = Recorder::planned(metal, op.name(), &mut scratch);
    match super::record(op, &mut recorder, &inputs, &output) {
        Ok(()) if recorder.no_kernel => Ok(0),
        Ok(()) => {
            let launches = recorder.into_launches()?;
            Ok(launches.iter().map(|launch| launch.bands().len()).sum())
        }
        Err(Error::Unsupported { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}
