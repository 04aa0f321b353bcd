//! Where an op meets a device: the only place.

use std::sync::Arc;

use bytemuck::AnyBitPattern;

use crate::metal::{self, Metal};
use crate::ops::Op;
use crate::ops::rope::RopeTable;
use crate::storage::Storage;
use crate::tensor::{Node, Work};
use crate::{DType, Device, Layout, Result, Scalar, Shape, Tensor, cpu};

/// An input of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// All bytes of the storage; empty for an input whose memory is the output's ([`Output::holds`]) and
    /// for a number.
    pub(crate) bytes: &'a [u8],
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// The number it is, for ops that take numbers as they are.
    pub(crate) constant: Option<Scalar>,
}

/// What a kernel writes: row-major, without gaps.
pub(crate) struct Output<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The input whose memory this is: the bytes are that input's elements, to be read before they are
    /// written over.
    pub(crate) holds: Option<usize>,
}

impl<'a> Input<'a> {
    /// The value of a tensor, or the number it is.
    fn of(tensor: &'a Tensor) -> Self {
        Self {
            bytes: tensor.node.value.get().map_or(&[][..], Storage::bytes),
            dtype: tensor.dtype(),
            layout: *tensor.layout(),
            constant: tensor.node.constant,
        }
    }

    /// All elements of the storage; element `i` of the layout is number `layout.offset() + …` of them.
    pub(crate) fn all<T: AnyBitPattern>(&self) -> &'a [T] {
        bytemuck::cast_slice(self.bytes)
    }

    /// The elements in row-major order, where they lie so.
    pub(crate) fn dense<T: AnyBitPattern>(&self) -> Option<&'a [T]> {
        if !self.layout.is_contiguous() {
            return None;
        }
        let count = self.layout.count();
        match count {
            0 => Some(&[]),
            _ => Some(&self.all()[self.layout.offset()..][..count]),
        }
    }
}

impl Output<'_> {
    /// The elements, in row-major order.
    pub(crate) fn all<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.bytes)
    }
}

/// The elements of an input in row-major order, copied if need be.
pub(crate) struct Dense<'a> {
    input: Input<'a>,
    copy: Option<Storage>,
}

impl<'a> Dense<'a> {
    /// Copies what does not lie in row-major order.
    pub(crate) fn new(op: &'static str, input: Input<'a>) -> Result<Self> {
        if input.layout.is_contiguous() {
            return Ok(Self { input, copy: None });
        }
        let count = input.layout.count();
        let mut copy = Storage::new(op, count * input.dtype.size())?;
        let shape = *input.layout.shape();
        cpu::copy::copy(
            &input,
            Output {
                bytes: copy.bytes_mut().expect("just made"),
                dtype: input.dtype,
                shape,
                holds: None,
            },
        );
        Ok(Self {
            input,
            copy: Some(copy),
        })
    }

    /// The bytes of the elements.
    pub(crate) fn bytes(&self) -> &[u8] {
        let size = self.input.dtype.size();
        match &self.copy {
            Some(copy) => copy.bytes(),
            None => match self.input.layout.count() * size {
                0 => &[],
                len => &self.input.bytes[self.input.layout.offset() * size..][..len],
            },
        }
    }

    /// The elements.
    pub(crate) fn all<T: AnyBitPattern>(&self) -> &[T] {
        match &self.copy {
            Some(copy) => bytemuck::cast_slice(copy.bytes()),
            None => self.input.dense().expect("copied where it is not"),
        }
    }
}

/// A matrix that is the right factor of products, as its device wants it.
pub(crate) enum Packed {
    /// Laid out for the kernels of the CPU.
    Cpu(cpu::packed_matmul::Packed),
    /// As it is: a computed tensor on a Metal device, whose kernels read any layout.
    Metal(Tensor),
}

/// Lays a computed matrix out as the right factor of products on a device.
pub(crate) fn pack(tensor: &Tensor, device: &Device) -> Result<Packed> {
    if !device.is_cpu() {
        return Ok(Packed::Metal(tensor.clone()));
    }
    Ok(Packed::Cpu(cpu::packed_matmul::pack(&input(
        "prepack",
        tensor.eval()?,
    )?)))
}

/// The frequencies and positions of RoPE as the kernel of a device reads them.
pub(crate) fn rope_inputs<'a>(
    device: &Device,
    table: &'a RopeTable,
    positions: Option<Tensor>,
) -> (&'a Tensor, Option<Tensor>) {
    if device.is_cpu() {
        cpu::rope::inputs(table, positions)
    } else {
        metal::rope::inputs(table, positions)
    }
}

/// The value of a computed tensor as an input of the CPU.
pub(crate) fn input<'a>(op: &'static str, tensor: &'a Tensor) -> Result<Input<'a>> {
    if let Some(storage) = tensor.node.value.get() {
        storage.ready(op)?;
    }
    Ok(Input::of(tensor))
}

/// Computes a node from its work, whose inputs all have values. On an error the work is as it was.
pub(crate) fn run(node: &Node, work: &mut Option<Work>) -> Result<()> {
    let Some(w) = work else {
        return Ok(());
    };
    let storage = compute(node, w)?;
    // Nobody else computes it: the lock of `work` is held.
    let _ = node.value.set(storage);
    *work = None;
    Ok(())
}

fn compute(node: &Node, work: &mut Work) -> Result<Storage> {
    if let Op::Alias(_) = work.op {
        let input = work.inputs[0].node.value.get();
        return Ok(input.expect("inputs have values").clone());
    }
    match node.place.device.metal_backend() {
        Some(metal) => compute_on_metal(metal, node, work),
        None => compute_on_cpu(node, work),
    }
}

fn compute_on_cpu(node: &Node, work: &mut Work) -> Result<Storage> {
    let name = work.op.name();
    for input in &work.inputs {
        if let Some(storage) = input.node.value.get() {
            storage.ready(name)?;
        }
    }
    let taken = take(&work.op, node, &mut work.inputs, |storage| {
        storage.bytes_mut().is_some()
    });
    let (holds, mut storage) = match taken {
        Some((i, storage)) => (Some(i), storage),
        None => (
            None,
            Storage::new(name, node.shape.count() * node.dtype.size())?,
        ),
    };
    let output = Output {
        bytes: storage.bytes_mut().expect("new or taken"),
        dtype: node.dtype,
        shape: node.shape,
        holds,
    };
    // Most ops have few inputs; a list in the heap would be a good part of what a small op costs.
    let result = match &work.inputs[..] {
        _ if node.shape.count() == 0 => Ok(()),
        [] => cpu::run(&work.op, &[], output),
        [a] => cpu::run(&work.op, &[Input::of(a)], output),
        [a, b] => cpu::run(&work.op, &[Input::of(a), Input::of(b)], output),
        [a, b, c] => cpu::run(
            &work.op,
            &[Input::of(a), Input::of(b), Input::of(c)],
            output,
        ),
        all => cpu::run(
            &work.op,
            &all.iter().map(Input::of).collect::<Vec<_>>(),
            output,
        ),
    };
    restore(work, holds, storage, result)
}

/// Records a node's kernels in the stream of a Metal device.
fn compute_on_metal(metal: &Arc<Metal>, node: &Node, work: &mut Work) -> Result<Storage> {
    let name = work.op.name();
    let mut holds = None;
    let storage = match &work.target {
        Some(target) => target.clone(),
        None => {
            let taken = take(&work.op, node, &mut work.inputs, |storage| {
                storage.is_only_block_of(metal)
            });
            match taken {
                Some((i, storage)) => {
                    holds = Some(i);
                    storage
                }
                None => Storage::on(metal, name, node.shape.count() * node.dtype.size())?,
            }
        }
    };
    if node.shape.count() == 0 {
        return Ok(storage);
    }
    let block = storage.block_on(metal, name)?;
    let recorded = metal::run(metal, &work.op, &work.inputs, block, node, holds);
    match recorded {
        Ok(false) => {
            if let Some(i) = holds {
                let _ = work.inputs[i].node.value.set(storage);
            }
            compute_on_cpu(node, work)
        }
        outcome => restore(work, holds, storage, outcome.map(|_| ())),
    }
}

/// The value, or the error with the memory that was taken for it back where it came from.
fn restore(
    work: &Work,
    holds: Option<usize>,
    storage: Storage,
    outcome: Result<()>,
) -> Result<Storage> {
    match outcome {
        Ok(()) => Ok(storage),
        Err(error) => {
            if let Some(i) = holds {
                let _ = work.inputs[i].node.value.set(storage);
            }
            Err(error)
        }
    }
}

/// Whether the result of an op may be written over an input, once nobody needs that.
pub(crate) fn may_take(op: &Op, node: &Node, i: usize, input: &Tensor) -> bool {
    (op.is_pointwise() || (op.updates_first() && i == 0))
        && input.layout().is_whole()
        && input.node.shape.count() == node.shape.count()
        && *input.shape() == node.shape
        && input.dtype().size() == node.dtype.size()
}

/// The memory of an input that nobody else has and that the result may be written over.
fn take(
    op: &Op,
    node: &Node,
    inputs: &mut [Tensor],
    serves: impl Fn(&mut Storage) -> bool,
) -> Option<(usize, Storage)> {
    // A block of a few cache lines is made as quickly as it is taken.
    if node.shape.count() < 1024 {
        return None;
    }
    for (i, input) in inputs.iter_mut().enumerate() {
        // Most inputs have other owners, which is quicker to see than to make sure of.
        if Arc::strong_count(&input.node) == 1
            && may_take(op, node, i, input)
            && let Some(unique) = Arc::get_mut(&mut input.node)
            && let Some(storage) = unique.value.get_mut()
            && serves(storage)
        {
            return unique.value.take().map(|storage| (i, storage));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use bessemer_hal::{Family, noop};

    #[test]
    fn a_matrix_is_packed_for_the_device_that_multiplies() {
        let matrix = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
        let cpu = pack(&matrix, &Device::cpu()).expect("small");
        assert!(matches!(cpu, Packed::Cpu(_)));
        let metal = Device::on(noop::device(Family::Apple7));
        let metal = pack(&matrix, &metal).expect("small");
        assert!(matches!(metal, Packed::Metal(_)));
    }
}
