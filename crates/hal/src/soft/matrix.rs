//! Products of matrices: what Metal Performance Shaders compute, plainly.
//!
//! Subnormal numbers of single precision are zero, before and after every operation, as they are in kernels.
#![expect(
    unsafe_code,
    reason = "sees the memory of a checked product as numbers"
)]

use crate::driver::{Matrix, ProductCommand};
use crate::matrix::MatrixElement;
use bytemuck::Pod;
use half::f16;
use std::slice;
use std::time::Instant;

/// Sums that are made side by side.
const COLUMNS: usize = 64;

/// A number that is multiplied as an `f32`.
trait Number: Pod {
    fn wide(self) -> f32;
    fn narrow(value: f32) -> Self;
}

impl Number for f32 {
    fn wide(self) -> f32 {
        flushed(self)
    }

    fn narrow(value: f32) -> Self {
        value
    }
}

impl Number for f16 {
    fn wide(self) -> f32 {
        self.to_f32()
    }

    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Zero of the same sign in place of a subnormal number.
fn flushed(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(match bits & 0x7f80_0000 {
        0 => bits & 0x8000_0000,
        _ => bits,
    })
}

/// Multiplies; false if the deadline comes first. Takes no locks and no memory: a forked process may call it.
///
/// # Safety
/// The pointers are where the regions of the product are, all of which can be read and the result's written, and
/// nobody else writes them meanwhile.
pub(super) unsafe fn multiply(
    product: &ProductCommand,
    factors: [*const u8; 2],
    result: *mut u8,
    deadline: Option<Instant>,
) -> bool {
    match product.element {
        // SAFETY: as the caller promises.
        MatrixElement::F16 => unsafe { typed::<f16>(product, factors, result, deadline) },
        // SAFETY: as the caller promises.
        MatrixElement::F32 => unsafe { typed::<f32>(product, factors, result, deadline) },
    }
}

/// # Safety
/// As [`multiply`]; the elements are `T`s.
unsafe fn typed<T: Number>(
    product: &ProductCommand,
    [left, right]: [*const u8; 2],
    result: *mut u8,
    deadline: Option<Instant>,
) -> bool {
    let count = |matrix: &Matrix| matrix.region.length / size_of::<T>();
    // SAFETY: the regions have so many elements; the front checked that offsets are multiples of their size, which
    // is all it takes on memory in pages.
    let (left, right, result) = unsafe {
        (
            slice::from_raw_parts(left.cast::<T>(), count(&product.left)),
            slice::from_raw_parts(right.cast::<T>(), count(&product.right)),
            slice::from_raw_parts_mut(result.cast::<T>(), count(&product.result)),
        )
    };
    let strides = |matrix: &Matrix, turned: bool| {
        let row = matrix.row_bytes / size_of::<T>();
        if turned { (1, row) } else { (row, 1) }
    };
    let (left_row, left_step) = strides(&product.left, product.turn_left);
    let (right_step, right_column) = strides(&product.right, product.turn_right);
    let (result_row, _) = strides(&product.result, false);
    let (alpha, beta) = (flushed(product.alpha as f32), flushed(product.beta as f32));
    for row in 0..product.result.rows {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return false;
        }
        for first in (0..product.result.columns).step_by(COLUMNS) {
            let columns = COLUMNS.min(product.result.columns - first);
            let mut sums = [0.0_f32; COLUMNS];
            for k in 0..product.depth() {
                let factor = left[row * left_row + k * left_step].wide();
                for (column, sum) in sums[..columns].iter_mut().enumerate() {
                    let at = k * right_step + (first + column) * right_column;
                    *sum = flushed(*sum + flushed(factor * right[at].wide()));
                }
            }
            let line = &mut result[row * result_row + first..][..columns];
            for (to, sum) in line.iter_mut().zip(sums) {
                let kept = if product.beta == 0.0 {
                    0.0
                } else {
                    flushed(beta * to.wide())
                };
                *to = T::narrow(flushed(flushed(alpha * sum) + kept));
            }
        }
    }
    true
}
