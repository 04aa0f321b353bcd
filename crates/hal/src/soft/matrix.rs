//! Reference matrix multiplication, in place of Metal Performance Shaders.
//!
//! Single-precision subnormals are flushed to zero before and after every operation, as in kernels.
#![expect(
    unsafe_code,
    reason = "views the memory of a validated product as slices of elements"
)]

use std::slice;
use std::time::Instant;

use bytemuck::Pod;
use half::f16;

use crate::driver::{Matrix, ProductCommand};
use crate::matrix::MatrixElement;

/// Number of result columns accumulated at a time.
const COLUMN_BLOCK_LEN: usize = 64;

/// An element type that is multiplied as `f32`.
trait Element: Pod {
    fn widen(self) -> f32;
    fn narrow(value: f32) -> Self;
}

impl Element for f32 {
    fn widen(self) -> f32 {
        flush(self)
    }

    fn narrow(value: f32) -> Self {
        value
    }
}

impl Element for f16 {
    fn widen(self) -> f32 {
        self.to_f32()
    }

    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Flushes subnormals to a zero of the same sign.
fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(match bits & 0x7f80_0000 {
        0 => bits & 0x8000_0000,
        _ => bits,
    })
}

/// Multiplies; returns false if the deadline passes first. Takes no locks and does not allocate: a forked process may call
/// it.
///
/// # Safety
/// The pointers are the addresses of the product's regions, all of them readable and the
/// result's writable, and nothing else writes to them meanwhile.
pub(super) unsafe fn multiply(
    product: &ProductCommand,
    factors: [*const u8; 2],
    result: *mut u8,
    deadline: Option<Instant>,
) -> bool {
    match product.element {
        // SAFETY: as the caller promises.
        MatrixElement::F16 => unsafe { multiply_typed::<f16>(product, factors, result, deadline) },
        // SAFETY: as the caller promises.
        MatrixElement::F32 => unsafe { multiply_typed::<f32>(product, factors, result, deadline) },
    }
}

/// # Safety
/// As [`multiply`]; the elements are `T`s.
unsafe fn multiply_typed<T: Element>(
    product: &ProductCommand,
    [left, right]: [*const u8; 2],
    result: *mut u8,
    deadline: Option<Instant>,
) -> bool {
    let count = |matrix: &Matrix| matrix.region.length / size_of::<T>();
    // SAFETY: the regions have this many elements; the front checked that offsets are multiples of the element
    // size, which is sufficient since the memory is page-aligned.
    let (left, right, result) = unsafe {
        (
            slice::from_raw_parts(left.cast::<T>(), count(&product.left)),
            slice::from_raw_parts(right.cast::<T>(), count(&product.right)),
            slice::from_raw_parts_mut(result.cast::<T>(), count(&product.result)),
        )
    };
    let strides = |matrix: &Matrix, transposed: bool| {
        let row = matrix.row_bytes / size_of::<T>();
        if transposed { (1, row) } else { (row, 1) }
    };
    let (left_row_stride, left_depth_stride) = strides(&product.left, product.transpose_left);
    let (right_depth_stride, right_column_stride) =
        strides(&product.right, product.transpose_right);
    let (result_row_stride, _) = strides(&product.result, false);
    let (alpha, beta) = (flush(product.alpha as f32), flush(product.beta as f32));
    for row in 0..product.result.rows {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return false;
        }
        for first in (0..product.result.columns).step_by(COLUMN_BLOCK_LEN) {
            let columns = COLUMN_BLOCK_LEN.min(product.result.columns - first);
            let mut sums = [0.0_f32; COLUMN_BLOCK_LEN];
            for k in 0..product.depth() {
                let factor = left[row * left_row_stride + k * left_depth_stride].widen();
                for (column, sum) in sums[..columns].iter_mut().enumerate() {
                    let at = k * right_depth_stride + (first + column) * right_column_stride;
                    *sum = flush(*sum + flush(factor * right[at].widen()));
                }
            }
            let output = &mut result[row * result_row_stride + first..][..columns];
            for (to, sum) in output.iter_mut().zip(sums) {
                let previous = if product.beta == 0.0 {
                    0.0
                } else {
                    flush(beta * to.widen())
                };
                *to = T::narrow(flush(flush(alpha * sum) + previous));
            }
        }
    }
    true
}
