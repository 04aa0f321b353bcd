//! Products of matrices by Metal Performance Shaders.
#![expect(
    unsafe_code,
    reason = "describes matrices in buffers to a library of the system"
)]

use super::bytes::Place;
use super::recorder::place;
use crate::driver::{Matrix, ProductCommand};
use crate::matrix::MatrixElement;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2::{AnyThread, available};
use objc2_metal::{MTLCommandBuffer, MTLDevice};
use objc2_metal_performance_shaders::{
    MPSDataType, MPSMatrix, MPSMatrixDescriptor, MPSMatrixMultiplication, MPSSupportsMTLDevice,
};

/// Whether the library knows the device, and matrices that begin inside a buffer.
pub(super) fn supports(device: &ProtocolObject<dyn MTLDevice>) -> bool {
    // SAFETY: only asks.
    available!(macos = 12.0, ios = 15.0, ..) && unsafe { MPSSupportsMTLDevice(Some(device)) }
}

/// Encodes a product into a command buffer that no encoder is open on, and that keeps what it uses.
pub(super) fn encode(
    device: &ProtocolObject<dyn MTLDevice>,
    buffer: &ProtocolObject<dyn MTLCommandBuffer>,
    product: &ProductCommand,
) {
    let [left, right, result] =
        [&product.left, &product.right, &product.result].map(|m| describe(m, product.element));
    // SAFETY: the front checked that the sizes fit each other.
    let kernel = unsafe {
        MPSMatrixMultiplication::initWithDevice_transposeLeft_transposeRight_resultRows_resultColumns_interiorColumns_alpha_beta(
            MPSMatrixMultiplication::alloc(),
            device,
            product.turn_left,
            product.turn_right,
            product.result.rows,
            product.result.columns,
            product.depth(),
            product.alpha,
            product.beta,
        )
    };
    // SAFETY: the matrices have the sizes that the kernel was made for and belong to its device.
    unsafe {
        kernel.encodeToCommandBuffer_leftMatrix_rightMatrix_resultMatrix(
            buffer, &left, &right, &result,
        );
    }
}

fn describe(matrix: &Matrix, element: MatrixElement) -> Retained<MPSMatrix> {
    let kind = match element {
        MatrixElement::F16 => MPSDataType::Float16,
        MatrixElement::F32 => MPSDataType::Float32,
    };
    let Place { buffer, offset } = place(&matrix.region);
    // SAFETY: the front checked that a row has room for its columns and is a multiple of the element's size.
    let descriptor = unsafe {
        MPSMatrixDescriptor::matrixDescriptorWithRows_columns_rowBytes_dataType(
            matrix.rows,
            matrix.columns,
            matrix.row_bytes,
            kind,
        )
    };
    // SAFETY: the front checked that the buffer has all rows from the offset on.
    unsafe {
        MPSMatrix::initWithBuffer_offset_descriptor(MPSMatrix::alloc(), buffer, offset, &descriptor)
    }
}
