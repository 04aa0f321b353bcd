//! The micro-kernel without intrinsics: arrays that the compiler keeps in the target's vector registers, rounded
//! after the multiplication and after the addition.
#![expect(unsafe_code, reason = "pointers into panels")]

use std::marker::PhantomData;

use super::float::GemmFloat;
use super::kernel::{Lines, MicroKernel, Side, TileArgs, copy, interleave, spill, total};
use crate::cpu::simd::Level;

/// 4 by 8 in any float.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScalarKernel<F>(PhantomData<F>);

const ROWS: usize = 4;
const COLS: usize = 8;

impl<F: GemmFloat> MicroKernel for ScalarKernel<F> {
    type Float = F;
    const LEVEL: Level = Level::Scalar;
    const ROWS: usize = ROWS;
    const COLS: usize = COLS;

    unsafe fn tile(tile: &TileArgs<F>) {
        let mut acc = [[F::ZERO; COLS]; ROWS];
        for step in 0..tile.depth as isize {
            // SAFETY: the panels are as large as the caller promises; rows past the end read the last
            // valid one.
            unsafe {
                let b = tile.b.offset(step * tile.b_step).cast::<[F; COLS]>().read();
                for (row, acc) in acc.iter_mut().enumerate() {
                    let row = row.min(tile.rows - 1) as isize;
                    let a = *tile.a.offset(row * tile.a_row + step * tile.a_step);
                    for (acc, b) in acc.iter_mut().zip(b) {
                        *acc = a * b + *acc;
                    }
                }
            }
        }
        // SAFETY: the caller's contract.
        unsafe { spill(tile, acc.as_flattened(), COLS, |x, y, z| x * y + z) };
    }

    unsafe fn interleave(side: Side, lines: Lines<F>, out: *mut F) {
        // SAFETY: the caller's contract.
        unsafe {
            match side {
                Side::Left => interleave::<F, ROWS>(lines, 0..lines.depth, out),
                Side::Right => interleave::<F, COLS>(lines, 0..lines.depth, out),
            }
        }
    }

    unsafe fn copy(side: Side, steps: Lines<F>, out: *mut F) {
        // SAFETY: the caller's contract.
        unsafe {
            match side {
                Side::Left => copy::<F, ROWS>(steps, out),
                Side::Right => copy::<F, COLS>(steps, out),
            }
        }
    }

    unsafe fn dot(x: &[F], y: &[F]) -> F {
        let mut sums = [F::ZERO; COLS];
        for (x, y) in x.chunks(COLS).zip(y.chunks(COLS)) {
            for ((sum, &x), &y) in sums.iter_mut().zip(x).zip(y) {
                *sum = x * y + *sum;
            }
        }
        total(sums)
    }
}
