//! Products of matrices by Metal Performance Shaders.
#![expect(
    unsafe_code,
    reason = "describes matrices in buffers to a library of the system"
)]

use super::bytes::Place;
use super::flight::lock;
use super::recorder::place;
use crate::driver::{Matrix, ProductCommand, refused_product};
use crate::error::Result;
use crate::matrix::MatrixElement;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2::{AnyThread, ClassType, msg_send};
use objc2_foundation::ns_string;
use objc2_metal::{MTLCommandBuffer, MTLDevice};
use objc2_metal_performance_shaders::{
    MPSDataType, MPSMatrix, MPSMatrixDescriptor, MPSMatrixMultiplication, MPSSupportsMTLDevice,
};
use std::sync::Mutex;

/// Whether the library knows the device.
pub(super) fn supports(device: &ProtocolObject<dyn MTLDevice>) -> bool {
    // SAFETY: only asks.
    unsafe { MPSSupportsMTLDevice(Some(device)) }
}

/// What the library needs for a product. Its methods are declared never to give nil, and do if they must.
///
/// The library allows one thread at a time to encode a kernel; commands therefore share it behind a mutex.
#[derive(Debug)]
pub(super) struct Prepared {
    kernel: Retained<MPSMatrixMultiplication>,
    left: Retained<MPSMatrix>,
    right: Retained<MPSMatrix>,
    result: Retained<MPSMatrix>,
}

// SAFETY: the objects belong to no thread: whoever holds them may use them, one thread at a time.
unsafe impl Send for Prepared {}

/// Asks the library for the objects of a product.
///
/// # Errors
/// `Unsupported`, if it gives nil for one of them.
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

/// Encodes a product into a command buffer that no encoder is open on, and that keeps what it uses.
///
/// # Errors
/// `Unsupported`, if the product has not been [prepared](prepare); nothing is encoded then.
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
    // SAFETY: the initialiser has these arguments, and the front checked that the sizes fit each other.
    let kernel: Option<Retained<MPSMatrixMultiplication>> = unsafe {
        msg_send![
            MPSMatrixMultiplication::alloc(),
            initWithDevice: device,
            transposeLeft: product.turn_left,
            transposeRight: product.turn_right,
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
    let Place { buffer, offset } = place(&matrix.region);
    // SAFETY: the method has these arguments, and the front checked that a row has room for its columns and is a
    // multiple of the element's size.
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
    // SAFETY: the initialiser has these arguments, and the front checked that the buffer has all rows from the offset
    // on.
    unsafe {
        msg_send![
            MPSMatrix::alloc(),
            initWithBuffer: buffer,
            offset: offset,
            descriptor: &*descriptor,
        ]
    }
}
