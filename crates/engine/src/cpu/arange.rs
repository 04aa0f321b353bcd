//! `arange` on the CPU.

use crate::Scalar;
use crate::dispatch::Output;
use crate::ops::arange::Arange;

/// Writes `start + i * step`: exactly in integers where both are, otherwise in `f64`, then converted.
pub(crate) fn run(op: &Arange, output: Output<'_>) {
    let size = op.dtype.size();
    let whole = matches!((op.start, op.step), (Scalar::Int(_), Scalar::Int(_)));
    for (i, to) in output.bytes.chunks_exact_mut(size).enumerate() {
        let value = if let (Some(last), true) = (op.last, i + 1 == op.len) {
            last
        } else if whole {
            Scalar::Int(op.start.to_i128() + i as i128 * op.step.to_i128())
        } else {
            Scalar::Float(op.start.to_f64() + i as f64 * op.step.to_f64())
        };
        to.copy_from_slice(&value.to_bytes(op.dtype)[..size]);
    }
}
