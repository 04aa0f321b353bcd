//! `contiguous` on the CPU.

use crate::dispatch::{Input, Output};
use crate::dtype::with_type;

/// Writes the elements of any layout in row-major order.
pub(crate) fn run(inputs: &[Input<'_>], mut output: Output<'_>) {
    let input = inputs[0];
    with_type!(input.dtype, T => {
        let from = input.all::<T>();
        for (to, i) in output.all::<T>().iter_mut().zip(input.layout.offsets()) {
            *to = from[i];
        }
    });
}
