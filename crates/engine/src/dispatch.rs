//! Dispatch: chooses between the CPU and Metal for an op, and in [`replay`] for a traced function.

pub(crate) mod program;
pub(crate) mod replay;

use std::sync::Arc;

use bytemuck::AnyBitPattern;

use crate::custom::{CustomLaunch, CustomOp};
use crate::metal::{self, Metal};
use crate::ops::Op;
use crate::ops::rope::RopeTable;
use crate::storage::Storage;
use crate::tensor::{Node, Work};
use crate::{DType, Device, Error, Layout, Result, Scalar, Shape, Tensor, cpu};

/// Inputs of fewer elements are not donated.
const MIN_DONATED_LEN: usize = 1024;

/// An input of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    /// All bytes of the storage; empty for an input that the output aliases ([`Output::aliases_input`]) and for a
    /// scalar constant.
    pub(crate) bytes: &'a [u8],
    pub(crate) dtype: DType,
    pub(crate) layout: Layout,
    /// Its value, if it is a scalar constant that the op takes as such.
    pub(crate) constant: Option<Scalar>,
}

/// The output of a kernel, contiguous.
pub(crate) struct Output<'a> {
    pub(crate) bytes: &'a mut [u8],
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// Index of the input that was donated as the output: the bytes are that input's elements, which the kernel reads
    /// before it overwrites them.
    pub(crate) aliases_input: Option<usize>,
}

impl<'a> Input<'a> {
    /// The value of a tensor, or its scalar constant.
    fn of(tensor: &'a Tensor) -> Self {
        Self {
            bytes: tensor.node.value.get().map_or(&[][..], Storage::bytes),
            dtype: tensor.dtype(),
            layout: *tensor.layout(),
            constant: tensor.node.constant,
        }
    }

    /// All elements of the storage, which the offset and strides of the layout index.
    pub(crate) fn all<T: AnyBitPattern>(&self) -> &'a [T] {
        bytemuck::cast_slice(self.bytes)
    }

    /// The elements, if they are contiguous.
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

/// A contiguous input, copied if necessary.
pub(crate) struct Dense<'a> {
    input: Input<'a>,
    copy: Option<Storage>,
}

impl<'a> Dense<'a> {
    /// Copies an input that is not contiguous.
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
                aliases_input: None,
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
            None => self.input.dense().expect("copied unless contiguous"),
        }
    }
}

/// The right factor of matmuls, as its device stores it.
pub(crate) enum Packed {
    /// Packed into panels for the kernels of the CPU.
    Cpu(cpu::packed_matmul::PackedPanels),
    /// An evaluated tensor on a Metal device, whose kernels read any layout.
    Metal(Tensor),
}

/// Packs an evaluated matrix as the right factor of matmuls on a device.
pub(crate) fn pack(tensor: &Tensor, device: &Device) -> Result<Packed> {
    if !device.is_cpu() {
        return Ok(Packed::Metal(tensor.clone()));
    }
    let matrix = input("prepack", tensor.eval()?)?;
    Ok(Packed::Cpu(cpu::packed_matmul::pack(&matrix)?))
}

/// The frequencies and positions of RoPE in the form that the kernel of a device reads.
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

/// The value of an evaluated tensor as an input of the CPU, after waiting for it.
pub(crate) fn input<'a>(op: &'static str, tensor: &'a Tensor) -> Result<Input<'a>> {
    if let Some(storage) = tensor.node.value.get() {
        storage.ready(op)?;
    }
    Ok(Input::of(tensor))
}

/// Computes a node from its work, whose inputs all have values. On an error the work stays unchanged.
pub(crate) fn run(node: &Node, work: &mut Option<Work>) -> Result<()> {
    let Some(w) = work else {
        return Ok(());
    };
    span!(
        TRACE,
        "run",
        op = w.op.name(),
        dtype = format_args!("{}", node.dtype),
        shape = format_args!("{}", node.shape),
        device = node.placement.device.name()
    );
    let storage = compute(node, w)?;
    // No other thread computes it: the lock of `work` is held.
    let _ = node.value.set(storage);
    *work = None;
    Ok(())
}

fn compute(node: &Node, work: &mut Work) -> Result<Storage> {
    if let Op::Alias(_) = work.op {
        let input = work.inputs[0].node.value.get();
        return Ok(input.expect("inputs have values").clone());
    }
    if let Op::CustomOutput(output) = &work.op {
        return output.take().ok_or_else(|| Error::Invalid {
            op: output.launch.name,
            reason: "a result of the launch was taken twice".to_owned(),
        });
    }
    match &work.op {
        Op::Custom(CustomOp::Program(launch)) => {
            return launch.compute(&work.inputs, (node.dtype, node.shape));
        }
        Op::Custom(CustomOp::Metal(launch)) => {
            let launch = Arc::clone(launch);
            return compute_custom(node, work, &launch);
        }
        _ => {}
    }
    if let Op::Argument(argument) = &work.op {
        return Err(argument.read());
    }
    match node.placement.device.metal_backend() {
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
    let donated = donate(&work.op, node, &mut work.inputs, |storage| {
        storage.bytes_mut().is_some()
    });
    let (aliases_input, mut storage) = match donated {
        Some((i, storage)) => (Some(i), storage),
        None => (
            None,
            Storage::new(name, node.shape.count() * node.dtype.size())?,
        ),
    };
    let output = Output {
        bytes: storage.bytes_mut().expect("new or donated"),
        dtype: node.dtype,
        shape: node.shape,
        aliases_input,
    };
    // Most ops have at most three inputs; allocating a `Vec` would be a good part of the cost of a small op.
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
    restore(work, aliases_input, storage, result)
}

/// Records a node's kernels in the stream of a Metal device.
fn compute_on_metal(metal: &Arc<Metal>, node: &Node, work: &mut Work) -> Result<Storage> {
    let name = work.op.name();
    let mut aliases_input = None;
    let storage = match &work.target {
        Some(target) => target.clone(),
        None => {
            let donated = donate(&work.op, node, &mut work.inputs, |storage| {
                storage.is_only_block_of(metal)
            });
            match donated {
                Some((i, storage)) => {
                    aliases_input = Some(i);
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
    let recorded = metal::run(metal, &work.op, &work.inputs, block, node, aliases_input);
    match recorded {
        Ok(false) => {
            if let Some(i) = aliases_input {
                let _ = work.inputs[i].node.value.set(storage);
            }
            compute_on_cpu(node, work)
        }
        outcome => restore(work, aliases_input, storage, outcome.map(|_| ())),
    }
}

/// Records a custom kernel, and returns its result; several results are kept for their own nodes.
fn compute_custom(node: &Node, work: &mut Work, launch: &CustomLaunch) -> Result<Storage> {
    let name = launch.name;
    let Some(metal) = node.placement.device.metal_backend() else {
        return Err(Error::Unsupported {
            op: name,
            what: "a custom kernel runs on a Metal device".to_owned(),
            device: node.placement.device.name().to_owned(),
        });
    };
    // The memory of each result, and whether it is that of the input that the kernel updates.
    let mut results: Vec<(Storage, bool)> = Vec::with_capacity(launch.results.len());
    let recorded = (|| {
        for result in &launch.results {
            let dying = result
                .updates
                .and_then(|i| take_dying(metal, work.inputs.get_mut(i)?));
            results.push(match (dying, &work.target) {
                (Some(storage), _) => (storage, true),
                (None, Some(target)) if launch.results.len() == 1 => (target.clone(), false),
                (None, _) => (Storage::on(metal, name, result.bytes())?, false),
            });
        }
        metal::custom::run(metal, launch, &work.inputs, &results)
    })();
    if let Err(error) = recorded {
        for (result, (storage, is_input)) in launch.results.iter().zip(results) {
            if let Some(input) = result.updates.and_then(|i| work.inputs.get(i))
                && is_input
            {
                let _ = input.node.value.set(storage);
            }
        }
        return Err(error);
    }
    let mut storages: Vec<Storage> = results.into_iter().map(|(storage, _)| storage).collect();
    if launch.results.len() == 1
        && let Some(storage) = storages.pop()
    {
        return Ok(storage);
    }
    launch.keep(storages);
    Storage::new(name, 0)
}

/// Takes the memory of an input without another owner, if it is memory of this device and nothing but the input.
fn take_dying(metal: &Arc<Metal>, input: &mut Tensor) -> Option<Storage> {
    let is_whole = input.layout().is_whole() && input.shape().count() == input.node.shape.count();
    let unique = Arc::get_mut(&mut input.node).filter(|_| is_whole)?;
    let is_usable = unique.value.get_mut()?.is_only_block_of(metal);
    if is_usable { unique.value.take() } else { None }
}

/// Returns the value, or on an error gives donated memory back to its input.
fn restore(
    work: &Work,
    aliases_input: Option<usize>,
    storage: Storage,
    outcome: Result<()>,
) -> Result<Storage> {
    match outcome {
        Ok(()) => Ok(storage),
        Err(error) => {
            if let Some(i) = aliases_input {
                let _ = work.inputs[i].node.value.set(storage);
            }
            Err(error)
        }
    }
}

/// Number of kernel launches that compute a node, of which an input may be donated; on the CPU, 1. On a Metal device, 0 means
/// that the CPU computes the node.
pub(crate) fn launches(node: &Node, work: &Work, donated: Option<usize>) -> Result<usize> {
    let donated = donated.filter(|_| pays_to_donate(&work.op, node));
    match node.placement.device.metal_backend() {
        Some(metal) => metal::launch_count(metal, work, node, donated),
        None => Ok(usize::from(!matches!(work.op, Op::Alias(_)))),
    }
}

/// Returns `true` if a donated input makes a difference: allocating a few cache lines is as fast. What a custom kernel
/// updates is copied if it is not donated.
pub(crate) fn pays_to_donate(op: &Op, node: &Node) -> bool {
    node.shape.count() >= MIN_DONATED_LEN || matches!(op, Op::Custom(_))
}

/// Returns `true` if an input can be donated to the result of an op once it has no other reader.
pub(crate) fn may_donate(op: &Op, node: &Node, i: usize, input: &Tensor) -> bool {
    if let Op::Custom(op) = op {
        return op.may_update(i)
            && input.layout().is_whole()
            && input.shape().count() == input.node.shape.count();
    }
    (op.is_pointwise() || (i == 0 && (op.updates_first() || may_overwrite_rows(op, node))))
        && input.layout().is_whole()
        && input.node.shape.count() == node.shape.count()
        && *input.shape() == node.shape
        && input.dtype().size() == node.dtype.size()
}

/// Returns `true` if an op can write its rows over those of its first input.
fn may_overwrite_rows(op: &Op, node: &Node) -> bool {
    // The CPU copies a row before it writes it; the copy should stay in the second-level cache.
    let is_short = |axis: usize| {
        !node.placement.device.is_cpu() || node.shape[axis] <= cpu::row::MAX_IN_PLACE_LEN
    };
    op.row_axis(&node.shape).is_some_and(is_short)
}

/// Takes the memory of an input that has no other owner and that the result may overwrite.
fn donate(
    op: &Op,
    node: &Node,
    inputs: &mut [Tensor],
    is_usable: impl Fn(&mut Storage) -> bool,
) -> Option<(usize, Storage)> {
    if !pays_to_donate(op, node) {
        return None;
    }
    for (i, input) in inputs.iter_mut().enumerate() {
        // Most inputs have other owners: reading the count is cheaper than `get_mut`, which is only then conclusive.
        if Arc::strong_count(&input.node) == 1
            && may_donate(op, node, i, input)
            && let Some(unique) = Arc::get_mut(&mut input.node)
            && let Some(storage) = unique.value.get_mut()
            && is_usable(storage)
        {
            event!(TRACE, "result in the memory of an input", input = i);
            return unique.value.take().map(|storage| (i, storage));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bessemer_hal::{Family, noop};

    use super::*;

    #[test]
    fn packs_a_matrix_for_the_device_of_the_matmul() {
        let matrix = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
        let cpu = pack(&matrix, &Device::cpu()).expect("small");
        assert!(matches!(cpu, Packed::Cpu(_)));
        let metal = Device::on(noop::device(Family::Apple7));
        let metal = pack(&matrix, &metal).expect("small");
        assert!(matches!(metal, Packed::Metal(_)));
    }
}
