//! Matrix multiplication by Metal Performance Shaders.
#![expect(
    unsafe_code,
    reason = "describes matrices in buffers to Metal Performance Shaders"
)]

use std::sync::Mutex;

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2::{AnyThread, ClassType, msg_send};
use objc2_foundation::ns_string;
use objc2_metal::{MTLCommandBuffer, MTLDevice};
use objc2_metal_performance_shaders::{
    MPSDataType, MPSMatrix, MPSMatrixDescriptor, MPSMatrixMultiplication, MPSSupportsMTLDevice,
};

use super::in_flight::lock;
use super::recorder::buffer_offset;
use super::unaligned_copy::BufferOffset;
use crate::driver::{Matrix, ProductCommand, refused_product};
use crate::error::Result;
use crate::matrix::MatrixElement;

/// Returns whether the library supports the device.
pub(super) fn supports(device: &ProtocolObject<dyn MTLDevice>) -> bool {
    // SAFETY: only queries the device.
    unsafe { MPSSupportsMTLDevice(Some(device)) }
}

/// The library's objects for a product. Its methods are declared as non-null, but may return nil.
///
/// The library allows one thread at a time to encode a kernel; commands therefore share it behind a mutex.
#[derive(Debug)]
pub(super) struct Prepared {
    kernel: Retained<MPSMatrixMultiplication>,
    left: Retained<MPSMatrix>,
    right: Retained<MPSMatrix>,
    result: Retained<MPSMatrix>,
}

// SAFETY: the objects are not bound to a thread: any thread may use them, one at a time.
unsafe impl Send for Prepared {}

/// Creates the library's objects for a product.
///
/// # Errors
/// `Unsupported` if it returns nil for one of them.
pub(super) fn prepare(
    device: &ProtocolObject<dyn MTLDevice>,
    product: &ProductCommand,
) -> Result<Prepared> {
    let all = || {
        let matrix = |m| describe(m, product.element);
        Some(Prepared {
            kernel: kernel(device, product)?,
            left: matrix(&product.left)?,
            right: matrix(&product.right)?,
            result: matrix(&product.result)?,
        })
    };
    all().ok_or_else(|| refused_product(&device.name().to_string()))
}

/// Encodes a product into a command buffer that has no open encoder and that retains its references.
///
/// # Errors
/// `Unsupported` if the product has not been [prepared](prepare); nothing is encoded then.
pub(super) fn encode(
    device: &ProtocolObject<dyn MTLDevice>,
    buffer: &ProtocolObject<dyn MTLCommandBuffer>,
    product: &ProductCommand,
) -> Result<()> {
    let objects = product.objects.as_ref();
    let prepared = objects.and_then(|o| o.downcast_ref::<Mutex<Prepared>>());
    let prepared = prepared.ok_or_else(|| refused_product(&device.name().to_string()))?;
    let prepared = lock(prepared);
    // SAFETY: the matrices have the sizes that the kernel was made for and belong to its device.
    unsafe {
        prepared
            .kernel
            .encodeToCommandBuffer_leftMatrix_rightMatrix_resultMatrix(
                buffer,
                &prepared.left,
                &prepared.right,
                &prepared.result,
            );
    }
    Ok(())
}

fn kernel(
    device: &ProtocolObject<dyn MTLDevice>,
    product: &ProductCommand,
) -> Option<Retained<MPSMatrixMultiplication>> {
    // SAFETY: the initialiser has these arguments, and the front checked that the sizes match.
    let kernel: Option<Retained<MPSMatrixMultiplication>> = unsafe {
        msg_send![
            MPSMatrixMultiplication::alloc(),
            initWithDevice: device,
            transposeLeft: product.transpose_left,
            transposeRight: product.transpose_right,
            resultRows: product.result.rows,
            resultColumns: product.result.columns,
            interiorColumns: product.depth(),
            alpha: product.alpha,
            beta: product.beta,
        ]
    };
    let kernel = kernel?;
    // SAFETY: the library copies the label.
    unsafe { kernel.setLabel(Some(ns_string!("matrix product"))) };
    Some(kernel)
}

fn describe(matrix: &Matrix, element: MatrixElement) -> Option<Retained<MPSMatrix>> {
    let kind = match element {
        MatrixElement::F16 => MPSDataType::Float16,
        MatrixElement::F32 => MPSDataType::Float32,
    };
    let BufferOffset { buffer, offset } = buffer_offset(&matrix.region);
    // SAFETY: the method has these arguments, and the front checked that a row is long enough for its columns and a
    // multiple of the element size.
    let descriptor: Option<Retained<MPSMatrixDescriptor>> = unsafe {
        msg_send![
            MPSMatrixDescriptor::class(),
            matrixDescriptorWithRows: matrix.rows,
            columns: matrix.columns,
            rowBytes: matrix.row_bytes,
            dataType: kind,
        ]
    };
    let descriptor = descriptor?;
    // SAFETY: the initialiser has these arguments, and the front checked that the buffer has all rows after the offset.
    unsafe {
        msg_send![
            MPSMatrix::alloc(),
            initWithBuffer: buffer,
            offset: offset,
            descriptor: &*descriptor,
        ]
    }
}
