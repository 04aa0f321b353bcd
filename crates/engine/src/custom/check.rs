//! Running a call on the software device in check mode.

use bessemer_hal::Report;

use super::KernelCall;
use crate::device::Placement;
use crate::storage::Storage;
use crate::{Device, Error, Result, Tensor};

impl KernelCall {
    /// Runs the same call, with copies of its tensors, on the software device in check mode, and returns what it reports:
    /// data races, accesses outside of tensors and threadgroup memory, divergent barriers and more. No report means that
    /// none was found for these values. A report's `file` is the name of the kernel, and its `line` that of the body, or
    /// of the whole source.
    ///
    /// The call needs no promise: the device checks every access before it is made.
    ///
    /// # Errors
    /// As [`KernelCall::run`], and [`Error::Device`] where there is no software device.
    pub fn check(&self) -> Result<Vec<Report>> {
        let device = Device::checking()?;
        let mut call = self.clone();
        for tensor in &mut call.tensors {
            *tensor = copy_to(&device, tensor)?;
        }
        // The device checks every access before it is made.
        call.is_trusted = true;
        let results = device.scope(|| call.run_all())?;
        let outcome = results.iter().try_for_each(|result| {
            let storage = result.eval()?.node.value.get().cloned();
            storage.map_or(Ok(()), |storage| storage.ready("check"))
        });
        match outcome {
            Ok(()) => Ok(Vec::new()),
            Err(Error::Device { op, source }) => match *source {
                bessemer_hal::Error::Checked { reports } => Ok(reports),
                source => Err(Error::device(op, source)),
            },
            Err(error) => Err(error),
        }
    }
}

/// A copy of a tensor with the same layout on another device.
fn copy_to(device: &Device, tensor: &Tensor) -> Result<Tensor> {
    let whole = Tensor::of_node(&tensor.check()?.node);
    let bytes = whole.to_bytes("check")?;
    let storage = Storage::copy_to(device, "check", &bytes)?;
    let placement = Placement {
        device: device.clone(),
        pinned: true,
    };
    let copy = Tensor::from_storage_at(placement, tensor.dtype(), *whole.shape(), storage);
    Ok(copy.with_layout(*tensor.layout()))
}
