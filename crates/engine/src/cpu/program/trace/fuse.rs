//! Fused ops from the stores of a trace.

use super::{BufferBytes, MemoryView, Trace, TraceAccess, TraceNode, fused};
use crate::dispatch::{Input, Output};
use crate::ops::fused::{Action, Step};
use crate::program::value::Value;
use crate::{DType, Layout, Scalar, Shape};

/// An input of a fused op.
#[derive(Clone, Copy, Debug)]
enum PassInput {
    Constant(Value),
    /// Elements of a buffer, by its index in the view.
    Elements {
        buffer: usize,
        layout: Layout,
        dtype: DType,
    },
    /// The elements that the result overwrites.
    Overwritten(DType),
}

/// One store of a trace: a fused op whose result is in a buffer.
#[derive(Clone, Debug)]
pub(super) struct StorePass {
    steps: Vec<Step>,
    inputs: Vec<PassInput>,
    /// The inputs are the arguments of a single step, in order.
    is_single: bool,
    dtype: DType,
    shape: Shape,
    /// Index of the buffer in the view, and the first byte.
    buffer: usize,
    start: usize,
}

/// Linear elements of a buffer, all of them inside.
struct LinearElements {
    buffer: usize,
    first: usize,
    stride: isize,
}

/// The elements of an access, if no lane faults.
fn elements(
    trace: &Trace<'_>,
    view: &MemoryView<'_>,
    access: TraceAccess,
) -> Option<LinearElements> {
    let size = access.dtype.size() as i128;
    let (step, _) = trace.range.of_global(access.offset)?;
    let (low, high) = trace.range.bounds(access.offset)?;
    let buffer = view.buffers.iter().position(|(h, _)| *h == access.handle)?;
    let bytes = view.buffers[buffer].1.bytes();
    let is_inside = low >= 0 && high + size <= bytes.len() as i128;
    let is_aligned = low % size == 0 && step % size == 0;
    if !is_inside || !is_aligned || !bytes.as_ptr().addr().is_multiple_of(size as usize) {
        return None;
    }
    let first = if step < 0 { high } else { low };
    Some(LinearElements {
        buffer,
        first: (first / size) as usize,
        stride: (step / size) as isize,
    })
}

/// The fused ops of a trace, in the order of its stores; `None` if some lane faults, or a store is no result of a fused op.
pub(super) fn passes(trace: &Trace<'_>, view: &MemoryView<'_>) -> Option<Vec<StorePass>> {
    // A load whose result is not used may fault, too.
    for node in &trace.nodes {
        if let TraceNode::Load(access) = node {
            elements(trace, view, *access)?;
        }
    }
    let mut passes: Vec<StorePass> = Vec::new();
    for &(access, node) in &trace.stores {
        let pass = StorePass::new(trace, view, access, node)?;
        // A load sees what was there before the program.
        let is_overwritten = |input: &PassInput| match input {
            PassInput::Elements { buffer, .. } => passes.iter().any(|p| p.buffer == *buffer),
            PassInput::Overwritten(_) => passes.iter().any(|p| p.buffer == pass.buffer),
            PassInput::Constant(_) => false,
        };
        if pass.inputs.iter().any(is_overwritten) {
            return None;
        }
        passes.push(pass);
    }
    Some(passes)
}

impl StorePass {
    fn new(
        trace: &Trace<'_>,
        view: &MemoryView<'_>,
        access: TraceAccess,
        result: usize,
    ) -> Option<Self> {
        let target = elements(trace, view, access)?;
        if matches!(view.buffers[target.buffer].1, BufferBytes::Shared(_)) {
            return None;
        }
        if target.stride != 1 && trace.range.len() > 1 {
            return None;
        }
        let mut pass = Self {
            steps: Vec::new(),
            inputs: Vec::new(),
            is_single: true,
            dtype: access.dtype,
            shape: shape(trace.range.len())?,
            buffer: target.buffer,
            start: target.first * access.dtype.size(),
        };
        let mut is_needed = vec![false; trace.nodes.len()];
        is_needed[result] = true;
        for (i, node) in trace.nodes.iter().enumerate().rev() {
            if let (true, TraceNode::Step { args, .. }) = (is_needed[i], node) {
                args.iter().for_each(|&arg| is_needed[arg] = true);
            }
        }
        // What is only moved is moved as bits, which no conversion changes.
        let is_moved = !matches!(trace.nodes[result], TraceNode::Step { .. });
        let dtype_of = |dtype: DType| if is_moved { bits_type(dtype) } else { dtype };
        let mut numbers = vec![0; trace.nodes.len()];
        for (i, node) in trace
            .nodes
            .iter()
            .enumerate()
            .filter(|(i, _)| is_needed[*i])
        {
            let input = match node {
                TraceNode::Step { .. } => continue,
                TraceNode::Constant(value) => {
                    PassInput::Constant(Value::from_bits(dtype_of(value.dtype()), value.bits()))
                }
                TraceNode::Load(load) => {
                    let from = elements(trace, view, *load)?;
                    let is_same =
                        load.offset == access.offset && load.dtype.size() == access.dtype.size();
                    if from.buffer != target.buffer {
                        let len = view.buffers[from.buffer].1.bytes().len() / load.dtype.size();
                        let all = Layout::contiguous(shape(len)?);
                        PassInput::Elements {
                            buffer: from.buffer,
                            layout: all.sliced(0, from.first, trace.range.len(), from.stride),
                            dtype: dtype_of(load.dtype),
                        }
                    } else if is_same {
                        PassInput::Overwritten(dtype_of(load.dtype))
                    } else {
                        return None;
                    }
                }
            };
            numbers[i] = pass.inputs.len() as u16;
            pass.inputs.push(input);
        }
        let is_alias = |input: &&PassInput| matches!(input, PassInput::Overwritten(_));
        if pass.inputs.iter().filter(is_alias).count() > 1 {
            return None;
        }
        for (i, node) in trace
            .nodes
            .iter()
            .enumerate()
            .filter(|(i, _)| is_needed[*i])
        {
            let TraceNode::Step {
                action,
                args,
                dtype,
            } = node
            else {
                continue;
            };
            let mut step = Step {
                action: *action,
                args: [0; 3],
                dtype: *dtype,
            };
            for (to, &from) in step.args.iter_mut().zip(args) {
                *to = numbers[from];
            }
            numbers[i] = (pass.inputs.len() + pass.steps.len()) as u16;
            let arguments = step.args.iter().copied().take(args.len());
            pass.is_single = pass.steps.is_empty() && arguments.eq(0..pass.inputs.len() as u16);
            pass.steps.push(step);
        }
        if is_moved {
            pass.dtype = bits_type(pass.dtype);
            pass.steps.push(Step {
                action: Action::Cast,
                args: [0; 3],
                dtype: pass.dtype,
            });
        }
        Some(pass)
    }

    /// Runs the fused op.
    pub(super) fn run(&self, view: &mut MemoryView<'_>) {
        let target = &mut view.buffers[self.buffer].1;
        // `new` has checked that it is exclusive.
        let BufferBytes::Exclusive(target) = std::mem::replace(target, BufferBytes::Shared(&[]))
        else {
            return;
        };
        let mut inputs = Vec::with_capacity(self.inputs.len());
        let mut aliases_input = None;
        for (i, input) in self.inputs.iter().enumerate() {
            let layout = Layout::contiguous(self.shape);
            inputs.push(match *input {
                PassInput::Constant(value) => Input {
                    bytes: &[],
                    dtype: value.dtype(),
                    layout,
                    constant: Some(scalar(value)),
                },
                PassInput::Elements {
                    buffer,
                    layout,
                    dtype,
                } => {
                    let bytes = view.buffers[buffer].1.bytes();
                    Input {
                        bytes: &bytes[..bytes.len() / dtype.size() * dtype.size()],
                        dtype,
                        layout,
                        constant: None,
                    }
                }
                PassInput::Overwritten(dtype) => {
                    aliases_input = Some(i);
                    Input {
                        bytes: &[],
                        dtype,
                        layout,
                        constant: None,
                    }
                }
            });
        }
        let bytes = self.shape.count() * self.dtype.size();
        let output = Output {
            bytes: &mut target[self.start..self.start + bytes],
            dtype: self.dtype,
            shape: self.shape,
            aliases_input,
        };
        match self.steps[..] {
            [step] if self.is_single => fused::run_one(step.action, &inputs, output),
            _ => fused::run_program(&self.steps, &inputs, output),
        }
        view.buffers[self.buffer].1 = BufferBytes::Exclusive(target);
    }
}

/// The shape of a vector.
fn shape(len: usize) -> Option<Shape> {
    Shape::new("program", &[len]).ok()
}

/// The unsigned integer type of the same size.
const fn bits_type(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// A constant of a tensor, with the same bits except for NaN.
fn scalar(value: Value) -> Scalar {
    match value.to_i128() {
        Some(integer) => Scalar::Int(integer),
        None => Scalar::Float(value.to_f64()),
    }
}
