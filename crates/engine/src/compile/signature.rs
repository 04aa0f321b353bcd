//! Signatures: the properties of arguments that a trace depends on.

use crate::device::Placement;
use crate::dispatch::replay;
use crate::ops::argument::{Argument, Tracing};
use crate::storage::Storage;
use crate::{DType, Device, Layout, MatrixLibrary, Result, Shape, Tensor};

/// Arguments begin at a multiple of this many bytes of their storage, as bound ranges do: views that differ only in
/// where they begin have the same signature then.
const ARGUMENT_ALIGNMENT_BYTES: usize = 32;

/// Everything that a trace depends on besides the function.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) arguments: Vec<ArgumentSignature>,
    /// The default device, which computes what no argument is pinned to.
    default_device: Option<Device>,
    /// The implementation of matmuls on it and on the devices of the arguments.
    matrix_libraries: Vec<Option<MatrixLibrary>>,
}

/// The signature of an argument.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ArgumentSignature {
    pub(super) dtype: DType,
    /// The shape of its whole storage.
    value_shape: Shape,
    pub(super) layout: Layout,
    placement: Placement,
    /// Whether its memory may be overwritten.
    pub(super) donated: bool,
}

/// The value of an argument in a call.
pub(crate) struct BoundArgument {
    /// Its memory; `None` once it is taken.
    pub(crate) storage: Option<Storage>,
    /// First byte of the argument.
    pub(crate) start: usize,
}

impl Signature {
    pub(super) fn new(arguments: Vec<ArgumentSignature>) -> Self {
        let default_device = Device::current().ok();
        let mut matrix_libraries = vec![default_device.as_ref().and_then(Device::matrix_library)];
        for argument in &arguments {
            let device = &argument.placement.device;
            if argument.placement.pinned && Some(device) != default_device.as_ref() {
                let library = device.matrix_library();
                if !matrix_libraries.contains(&library) {
                    matrix_libraries.push(library);
                }
            }
        }
        Self {
            arguments,
            default_device,
            matrix_libraries,
        }
    }

    /// Arguments for a trace.
    pub(super) fn arguments(&self, tracing: &Tracing) -> Vec<Tensor> {
        let arguments = self.arguments.iter().enumerate();
        let of = |(index, argument): (usize, &ArgumentSignature)| {
            let tracing = tracing.clone();
            let op = Argument { index, tracing };
            let (placement, shape) = (argument.placement.clone(), argument.value_shape);
            Tensor::argument(placement, argument.dtype, shape, op).with_layout(argument.layout)
        };
        arguments.map(of).collect()
    }
}

impl ArgumentSignature {
    /// The signature and the value of a tensor that is evaluated, or a scalar constant.
    pub(super) fn bind(tensor: &Tensor) -> Result<(Self, BoundArgument)> {
        let (dtype, node) = (tensor.dtype(), &tensor.node);
        let storage = match (node.value.get(), node.constant) {
            (Some(storage), _) => storage.clone(),
            (None, Some(constant)) => {
                let bytes = constant.to_bytes(dtype);
                Storage::copy_to(tensor.device(), "compile", &bytes[..dtype.size()])?
            }
            (None, None) => {
                tensor.eval()?;
                return Self::bind(tensor);
            }
        };
        let layout = tensor.layout();
        let mut signature = Self {
            dtype,
            value_shape: node.shape,
            layout: *layout,
            placement: node.placement.clone(),
            donated: false,
        };
        let mut start = 0;
        if !layout.is_whole_of(&node.shape) {
            let span = match layout.count() {
                0 => 0..0,
                _ => layout.span(),
            };
            start = span.start * dtype.size() / ARGUMENT_ALIGNMENT_BYTES * ARGUMENT_ALIGNMENT_BYTES;
            let skipped = start / dtype.size();
            let offset = layout.offset().saturating_sub(skipped);
            signature.layout = layout.with_offset(if span.is_empty() { 0 } else { offset });
            signature.value_shape = Shape::new("compile", &[span.end - skipped])?;
        }
        let storage = Some(storage);
        Ok((signature, BoundArgument { storage, start }))
    }

    /// Returns `true` if nothing else uses the memory of a tensor, so that it may be overwritten.
    pub(super) fn is_donatable(tensor: &mut Tensor) -> bool {
        let whole = tensor.layout().is_whole_of(&tensor.node.shape);
        let device = tensor.device().clone();
        let node = std::sync::Arc::get_mut(&mut tensor.node);
        let storage = node.and_then(|node| node.value.get_mut());
        whole && storage.is_some_and(|storage| replay::is_donatable(&device, storage))
    }
}
