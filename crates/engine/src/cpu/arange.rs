//! `arange` on the CPU.

use super::{cast, pool};
use crate::dispatch::{Input, Output};
use crate::ops::arange::Arange;
use crate::{DType, Result, Scalar};

/// Elements that are computed and converted per call.
const BLOCK_LEN: usize = cast::CONVERT_BLOCK_LEN;

/// Writes `start + i * step`, computed in integers if both are integers, otherwise in `f64`, then converted.
pub(crate) fn run(op: &Arange, _inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let size = op.dtype.size();
    let chunk = pool::grain(size).next_multiple_of(BLOCK_LEN);
    let bytes = output.bytes;
    pool::for_each_chunk(bytes, chunk * size, |i, out| {
        for (j, out) in out.chunks_mut(BLOCK_LEN * size).enumerate() {
            let first = i * chunk + j * BLOCK_LEN;
            match (op.start, op.step) {
                (Scalar::Int(start), Scalar::Int(step)) => {
                    integers(op.dtype, IntRange { start, step }, first, out);
                }
                _ => {
                    let (start, step) = (op.start.to_f64(), op.step.to_f64());
                    let mut block = [0_f64; BLOCK_LEN];
                    for (k, x) in block.iter_mut().enumerate() {
                        *x = start + (first + k) as f64 * step;
                    }
                    cast::convert(DType::F64, op.dtype, bytemuck::cast_slice(&block), out);
                }
            }
        }
    });
    if let Some(last) = op.last {
        let at = bytes.len() - size;
        bytes[at..].copy_from_slice(&last.to_bytes(op.dtype)[..size]);
    }
    Ok(())
}

/// An integer progression.
struct IntRange {
    start: i128,
    step: i128,
}

/// Writes a block of integers, computed in 64 bits if they suffice.
fn integers(dtype: DType, range: IntRange, first: usize, out: &mut [u8]) {
    let at = |i: usize| range.start + i as i128 * range.step;
    let fits = |x: i128| i64::try_from(x).is_ok();
    let size = dtype.size();
    if fits(range.step) && fits(at(first)) && fits(at(first + BLOCK_LEN)) {
        let (begin, step) = (at(first) as i64, range.step as i64);
        let mut block = [0_i64; BLOCK_LEN];
        for (k, x) in block.iter_mut().enumerate() {
            *x = begin.wrapping_add((k as i64).wrapping_mul(step));
        }
        cast::convert(DType::I64, dtype, bytemuck::cast_slice(&block), out);
        return;
    }
    for (k, out) in out.chunks_exact_mut(size).enumerate() {
        out.copy_from_slice(&Scalar::Int(at(first + k)).to_bytes(dtype)[..size]);
    }
}
