//! The micro-kernels: a tile of `c` in registers, one step of `k` at a time.
//!
//! A tile is `ROWS` rows by `COLS` columns. Each step of `k` loads one row of the right panel as vectors
//! and multiplies it by one broadcast element of every row of the left panel. Every element of `c` is summed in
//! the order of `k`, whichever tile and kernel variant computes it, so results do not depend on the tiling.
#![expect(
    unsafe_code,
    reason = "micro-kernels read panels and write tiles through pointers"
)]

use super::float::GemmFloat;
use crate::cpu::simd::Level;

/// Arguments of a micro-kernel: `c = alpha * a·b + beta * c` for one tile.
pub(crate) struct TileArgs<F> {
    /// Steps to sum over.
    pub(super) depth: usize,
    /// The left panel; element (row, step) is at `row * a_row + step * a_step`.
    pub(super) a: *const F,
    pub(super) a_row: isize,
    pub(super) a_step: isize,
    /// The right panel; element (step, column) is at `step * b_step + column`.
    pub(super) b: *const F,
    pub(super) b_step: isize,
    /// The tile; element (row, column) is at `row * c_row + column * c_col`.
    pub(super) c: *mut F,
    pub(super) c_row: isize,
    pub(super) c_col: isize,
    /// Valid rows and columns: at least 1, at most the kernel's.
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) alpha: F,
    /// If zero, `c` is not read.
    pub(super) beta: F,
    /// True if the left panel is packed: `a_row` is 1 and `a_step` is `ROWS`.
    pub(super) a_packed: bool,
    /// True if the right panel is packed: `b_step` is `COLS`.
    pub(super) b_packed: bool,
    /// Memory to prefetch, and the number of its cache lines.
    pub(super) prefetch: *const F,
    pub(super) prefetch_lines: usize,
}

/// A micro-kernel and its packing routines.
pub(crate) trait MicroKernel: Copy + Send + Sync + 'static {
    /// The type it computes in.
    type Float: GemmFloat;
    /// The level whose instructions it uses.
    const LEVEL: Level;
    /// Rows of a tile.
    const ROWS: usize;
    /// Columns of a tile.
    const COLS: usize;

    /// Computes one tile.
    ///
    /// # Safety
    /// The processor must have the kernel's instructions. The left panel must have `rows` rows, or
    /// `ROWS` if it is packed, and `depth` steps; the right panel `COLS` columns and `depth` steps;
    /// the tile's `rows` by `cols` elements must be writable and not aliased.
    unsafe fn tile(tile: &TileArgs<Self::Float>);

    /// Packs one whole panel whose lines (rows on the left, columns on the right) are contiguous, with stride
    /// `line`: element `step` of line `i` becomes `out[step * width + i]`.
    ///
    /// # Safety
    /// The processor must have the kernel's instructions; `depth` elements of each of the side's
    /// `width` lines must be readable and `depth * width` elements of `out` writable.
    unsafe fn interleave(side: Side, lines: Lines<Self::Float>, out: *mut Self::Float);

    /// Packs one whole panel whose steps are contiguous, with stride `line`.
    ///
    /// # Safety
    /// As for [`interleave`](Self::interleave), with `width` elements of each of `depth` steps.
    unsafe fn copy(side: Side, steps: Lines<Self::Float>, out: *mut Self::Float);

    /// The dot product of two slices of the same length.
    ///
    /// # Safety
    /// The processor must have the kernel's instructions.
    unsafe fn dot(x: &[Self::Float], y: &[Self::Float]) -> Self::Float;
}

/// [`MicroKernel::dot`] for slices of equal length.
pub(super) fn dot<K: MicroKernel>(x: &[K::Float], y: &[K::Float]) -> K::Float {
    assert_eq!(x.len(), y.len(), "the lengths of a dot product differ");
    // SAFETY: `GemmFloat::with_kernel` hands out the kernels of levels that the processor has.
    unsafe { K::dot(x, y) }
}

/// Pairwise sum: adds the upper half to the lower half until one element is left.
#[inline(always)]
pub(super) fn total<F: GemmFloat, const N: usize>(mut sums: [F; N]) -> F {
    let mut half = N / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0]
}

/// One of the two factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

impl Side {
    /// Lines of a panel of this side.
    pub(super) const fn width<K: MicroKernel>(self) -> usize {
        match self {
            Self::Left => K::ROWS,
            Self::Right => K::COLS,
        }
    }
}

/// The source of a panel: contiguous runs that start `line` elements apart.
#[derive(Clone, Copy)]
pub(crate) struct Lines<F> {
    pub(super) start: *const F,
    pub(super) line: isize,
    /// Steps of the panel.
    pub(super) depth: usize,
}

/// [`MicroKernel::copy`] for a panel of `W` lines.
///
/// # Safety
/// As for [`MicroKernel::copy`].
#[inline(always)]
pub(super) unsafe fn copy<F: Copy, const W: usize>(steps: Lines<F>, out: *mut F) {
    for step in 0..steps.depth {
        // SAFETY: `W` elements of each step exist on both sides.
        unsafe {
            let from = steps.start.offset(step as isize * steps.line);
            out.add(step * W).copy_from_nonoverlapping(from, W);
        }
    }
}

/// [`MicroKernel::interleave`] for a range of steps, element by element.
///
/// # Safety
/// As for [`MicroKernel::interleave`], for the given steps.
#[inline(always)]
pub(super) unsafe fn interleave<F: Copy, const W: usize>(
    lines: Lines<F>,
    steps: std::ops::Range<usize>,
    out: *mut F,
) {
    for step in steps {
        for i in 0..W {
            // SAFETY: `i` is below the number of lines, `step` below their length.
            unsafe {
                *out.add(step * W + i) = *lines.start.offset(i as isize * lines.line).add(step)
            };
        }
    }
}

/// Writes a tile from the buffer `values`, with rows of `stride` elements, to `c` element by element: for edge tiles
/// and for a `c` whose columns are not contiguous. `fma(a, b, c)` is the kernel's `a * b + c`.
///
/// # Safety
/// As for [`MicroKernel::tile`].
#[inline(always)]
pub(super) unsafe fn spill<F: GemmFloat>(
    tile: &TileArgs<F>,
    values: &[F],
    stride: usize,
    fma: impl Fn(F, F, F) -> F,
) {
    for (row, values) in values.chunks_exact(stride).take(tile.rows).enumerate() {
        for (col, &value) in values[..tile.cols].iter().enumerate() {
            let mut x = tile.alpha * value;
            // SAFETY: row and column are inside the tile.
            unsafe {
                let c = tile
                    .c
                    .offset(row as isize * tile.c_row + col as isize * tile.c_col);
                if tile.beta != F::ZERO {
                    x = fma(tile.beta, *c, x);
                }
                *c = x;
            }
        }
    }
}

/// Defines a [`MicroKernel`] for an instruction set. The heights are the numbers of rows that tiles at the lower
/// edge are computed with, in ascending order; the last is the kernel's own.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! kernel {
    (
        $(#[$doc:meta])*
        $name:ident: $level:ident $float:ty, $vector:ty, lanes $lanes:literal, vectors $vectors:literal,
        features $features:literal, heights [$($height:literal)*] $rows:literal,
        zero $zero:ident, load $load:ident, store $store:ident, splat $splat:ident,
        fma |$x:ident, $y:ident, $z:ident| $fma:expr, mul $mul:ident,
        prefetch |$p:ident| ($prefetch:expr, $prefetch_next:expr), interleave $interleave:ident
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(in crate::cpu::gemm) struct $name;

        impl $name {
            /// Computes a tile of `R` rows.
            ///
            /// # Safety
            /// As for `MicroKernel::tile`, for a tile of at most `R` rows.
            #[target_feature(enable = $features)]
            unsafe fn rows<const R: usize, const A: bool, const B: bool>(tile: &TileArgs<$float>) {
                const COLS: usize = $lanes * $vectors;
                const STEPS: usize = 4;
                #[inline(always)]
                fn fma($x: $vector, $y: $vector, $z: $vector) -> $vector {
                    // SAFETY: inlined into a function that has the instructions.
                    unsafe { $fma }
                }
                // SAFETY: panels and tile are as large as the caller promises; rows past the end
                // read the last valid one.
                unsafe {
                    let (c_row, b_step) = (tile.c_row, if B { COLS as isize } else { tile.b_step });
                    for row in 0..R.min(tile.rows) {
                        let $p = tile.c.wrapping_offset(row as isize * c_row).cast_const();
                        $prefetch
                    }
                    for line in 0..tile.prefetch_lines {
                        let $p = tile.prefetch.wrapping_byte_add(64 * line);
                        $prefetch_next
                    }
                    let mut acc = [[$zero(); $vectors]; R];
                    let mut b = tile.b;
                    let mut left = [tile.a; R];
                    if !A {
                        for (row, left) in left.iter_mut().enumerate() {
                            *left = tile.a.offset(row.min(tile.rows - 1) as isize * tile.a_row);
                        }
                    }
                    let a_step = if A { $rows } else { tile.a_step };
                    let mut at = 0_isize;
                    macro_rules! step {
                        ($s:expr) => {{
                            let right = b.offset($s as isize * b_step);
                            let mut row_of_b = [$zero(); $vectors];
                            for (v, x) in row_of_b.iter_mut().enumerate() {
                                *x = $load(right.add(v * $lanes));
                            }
                            for r in 0..R {
                                let at = at + $s as isize * a_step;
                                let x = if A {
                                    $splat(*tile.a.offset(at).add(r))
                                } else {
                                    $splat(*left[r].offset(at))
                                };
                                for v in 0..$vectors {
                                    acc[r][v] = fma(x, row_of_b[v], acc[r][v]);
                                }
                            }
                        }};
                    }
                    for _ in 0..tile.depth / STEPS {
                        step!(0);
                        step!(1);
                        step!(2);
                        step!(3);
                        at += STEPS as isize * a_step;
                        b = b.offset(STEPS as isize * b_step);
                    }
                    for _ in 0..tile.depth % STEPS {
                        step!(0);
                        at += a_step;
                        b = b.offset(b_step);
                    }
                    let alpha = $splat(tile.alpha);
                    if tile.c_col == 1 && tile.cols == COLS && tile.rows == R {
                        let beta = $splat(tile.beta);
                        let read = tile.beta != 0.0;
                        for r in 0..R {
                            let c = tile.c.offset(r as isize * c_row);
                            for v in 0..$vectors {
                                let c = c.add(v * $lanes);
                                let mut x = $mul(alpha, acc[r][v]);
                                if read {
                                    x = fma(beta, $load(c), x);
                                }
                                $store(c, x);
                            }
                        }
                    } else {
                        let mut values = [0.0; COLS * $rows];
                        for r in 0..R {
                            for v in 0..$vectors {
                                $store(values.as_mut_ptr().add(r * COLS + v * $lanes), acc[r][v]);
                            }
                        }
                        spill(tile, &values, COLS, |x, y, z| <$float>::mul_add(x, y, z));
                    }
                }
            }
        }

        impl $name {
            /// # Safety
            /// As for `MicroKernel::dot`.
            #[target_feature(enable = $features)]
            unsafe fn sum(x: &[$float], y: &[$float]) -> $float {
                const VECTORS: usize = 4;
                #[inline(always)]
                fn fma($x: $vector, $y: $vector, $z: $vector) -> $vector {
                    // SAFETY: inlined into a function that has the instructions.
                    unsafe { $fma }
                }
                let (x, x_rest) = x.as_chunks::<{ VECTORS * $lanes }>();
                let (y, y_rest) = y.as_chunks::<{ VECTORS * $lanes }>();
                let mut sums = [0.0; VECTORS * $lanes];
                // SAFETY: the vectors are inside the chunk.
                unsafe {
                    let mut acc = [$zero(); VECTORS];
                    for (x, y) in x.iter().zip(y) {
                        for v in 0..VECTORS {
                            let x = $load(x.as_ptr().add(v * $lanes));
                            acc[v] = fma(x, $load(y.as_ptr().add(v * $lanes)), acc[v]);
                        }
                    }
                    for v in 0..VECTORS {
                        $store(sums.as_mut_ptr().add(v * $lanes), acc[v]);
                    }
                }
                for ((sum, &x), &y) in sums.iter_mut().zip(x_rest).zip(y_rest) {
                    *sum = x.mul_add(y, *sum);
                }
                total(sums)
            }
        }

        impl MicroKernel for $name {
            type Float = $float;
            const LEVEL: Level = Level::$level;
            const ROWS: usize = $rows;
            const COLS: usize = $lanes * $vectors;

            #[inline(always)]
            unsafe fn tile(tile: &TileArgs<$float>) {
                macro_rules! rows {
                    ($r:literal) => {
                        // SAFETY: the caller's contract; `$r` is at least `tile.rows`.
                        unsafe {
                            match (tile.a_packed, tile.b_packed) {
                                (true, true) => Self::rows::<$r, true, true>(tile),
                                (true, false) => Self::rows::<$r, true, false>(tile),
                                (false, true) => Self::rows::<$r, false, true>(tile),
                                (false, false) => Self::rows::<$r, false, false>(tile),
                            }
                        }
                    };
                }
                match tile.rows {
                    $(..=$height => rows!($height),)*
                    _ => rows!($rows),
                }
            }

            #[inline(always)]
            unsafe fn interleave(side: Side, lines: Lines<$float>, out: *mut $float) {
                // SAFETY: the caller's contract.
                unsafe {
                    match side {
                        Side::Left => $interleave::<$rows>(lines, out),
                        Side::Right => $interleave::<{ $lanes * $vectors }>(lines, out),
                    }
                }
            }

            #[inline(always)]
            unsafe fn copy(side: Side, steps: Lines<$float>, out: *mut $float) {
                // SAFETY: the caller's contract.
                unsafe {
                    match side {
                        Side::Left => copy::<$float, $rows>(steps, out),
                        Side::Right => copy::<$float, { $lanes * $vectors }>(steps, out),
                    }
                }
            }

            #[inline(always)]
            unsafe fn dot(x: &[$float], y: &[$float]) -> $float {
                // SAFETY: the caller's contract.
                unsafe { Self::sum(x, y) }
            }
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use kernel;
