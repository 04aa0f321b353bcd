//! Compares all available kernels with a portable implementation and with the dequantised blocks.

use super::*;
use crate::cpu::pool::DisjointSlice;
use crate::cpu::quant_matmul::panel::Panels;
use crate::cpu::quant_matmul::{row, shared_output};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::cpu::simd::Features;
use crate::quant::{QuantMatrix, Weights, group};

/// A portable implementation of [`Lanes`], row by row.
#[derive(Clone, Copy)]
struct ReferenceLanes<const UNSIGNED: bool>;

/// A value for every row, from a function of the panel index and the row in the panel.
fn rows<T>(mut value: impl FnMut(usize, usize) -> T) -> [T; TILE_ROWS] {
    std::array::from_fn(|i| value(i / PANEL_ROWS, i % PANEL_ROWS))
}

/// Byte `i` at a position of a panel.
unsafe fn byte(at: PanelCursor, panel: usize, i: usize) -> u8 {
    let at = if panel == 0 { at.first() } else { at.second() };
    // SAFETY: by contract.
    unsafe { *at.add(i) }
}

impl<const UNSIGNED: bool> Lanes for ReferenceLanes<UNSIGNED> {
    const PANELS: usize = 2;
    const UNSIGNED: bool = UNSIGNED;
    type Bytes = [[u8; 4]; TILE_ROWS];
    type Ints = [i32; TILE_ROWS];
    type Floats = [f32; TILE_ROWS];

    unsafe fn enter<const N: usize>(job: &PanelJob<'_>, first: usize) -> [[f32; TILE_ROWS]; N] {
        // SAFETY: the caller's contract.
        unsafe { multiply_rows::<Self, N>(job, first) }
    }

    unsafe fn bytes(at: PanelCursor) -> Self::Bytes {
        // SAFETY: by contract.
        rows(|panel, r| std::array::from_fn(|i| unsafe { byte(at, panel, 4 * r + i) }))
    }

    unsafe fn field(bytes: Self::Bytes, right: i32, mask: u8) -> Self::Bytes {
        let moved = |b: u8| {
            if right < 0 { b << -right } else { b >> right }
        };
        bytes.map(|four| four.map(|b| moved(b) & mask))
    }

    unsafe fn or(a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        std::array::from_fn(|r| std::array::from_fn(|i| a[r][i] | b[r][i]))
    }

    unsafe fn flip(bytes: Self::Bytes) -> Self::Bytes {
        bytes.map(|four| four.map(|b| b ^ 128))
    }

    unsafe fn dots<const N: usize>(w: &[Self::Bytes], x: [*const i8; N]) -> [Self::Ints; N] {
        x.map(|x| {
            std::array::from_fn(|r| {
                let mut sum = 0;
                for (quad, w) in w.iter().enumerate() {
                    for (i, &w) in w[r].iter().enumerate() {
                        let w = if UNSIGNED {
                            i32::from(w)
                        } else {
                            i32::from(w as i8)
                        };
                        // SAFETY: by contract.
                        sum += w * i32::from(unsafe { *x.add(4 * quad + i) });
                    }
                }
                sum
            })
        })
    }

    unsafe fn ints(at: PanelCursor) -> Self::Ints {
        // SAFETY: by contract.
        rows(|panel, r| i32::from(unsafe { byte(at, panel, r) }))
    }

    unsafe fn pairs(at: PanelCursor) -> [Self::Ints; 2] {
        // SAFETY: by contract.
        let pair = |i| rows(|panel, r| i32::from(unsafe { byte(at, panel, 2 * r + i) } as i8));
        [pair(0), pair(1)]
    }

    unsafe fn mul_add(a: Self::Ints, b: Self::Ints, c: Self::Ints) -> Self::Ints {
        std::array::from_fn(|r| a[r] * b[r] + c[r])
    }

    unsafe fn splat(x: i32) -> Self::Ints {
        [x; TILE_ROWS]
    }

    unsafe fn load_f16(at: PanelCursor) -> Self::Floats {
        // SAFETY: by contract.
        let half = |panel, r| [0, 1].map(|i| unsafe { byte(at, panel, 2 * r + i) });
        rows(|panel, r| half::f16::from_le_bytes(half(panel, r)).to_f32())
    }

    unsafe fn float(x: Self::Ints) -> Self::Floats {
        x.map(|x| x as f32)
    }

    unsafe fn splat_float(x: f32) -> Self::Floats {
        [x; TILE_ROWS]
    }

    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        std::array::from_fn(|r| a[r] * b[r])
    }

    unsafe fn fma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        std::array::from_fn(|r| a[r].mul_add(b[r], c[r]))
    }

    unsafe fn fnma(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        std::array::from_fn(|r| (-a[r]).mul_add(b[r], c[r]))
    }

    unsafe fn store(x: Self::Floats, to: &mut [f32; TILE_ROWS]) {
        *to = x;
    }
}

type PanelKernel = fn(BlockFormat, &[u8], usize, &Activations, &dyn Fn(usize, usize, &[f32]));

/// All available kernels, the portable one first.
fn kernels() -> Vec<(&'static str, PanelKernel)> {
    // SAFETY: portable code runs anywhere.
    let mut all: Vec<(_, PanelKernel)> = vec![
        ("portable", |format, panels, size, x, out| unsafe {
            multiply::<ReferenceLanes<false>>(format, panels, size, x, out);
        }),
        (
            "portable, unsigned",
            |format, panels, size, x, out| unsafe {
                multiply::<ReferenceLanes<true>>(format, panels, size, x, out);
            },
        ),
    ];
    #[cfg(target_arch = "x86_64")]
    if Features::Avx2.is_available() {
        all.push(("avx2", |format, panels, size, x, out| {
            crate::cpu::quant_matmul::avx2::panels(format, panels, size, x, out);
        }));
    }
    #[cfg(target_arch = "x86_64")]
    if Features::Avx512Vnni.is_available() {
        // SAFETY: it was detected.
        all.push((
            "avx512 vnni, 256 bits",
            |format, panels, size, x, out| unsafe {
                multiply::<crate::cpu::quant_matmul::avx512::Vnni256>(format, panels, size, x, out);
            },
        ));
        // SAFETY: it was detected.
        all.push(("avx512 vnni", |format, panels, size, x, out| unsafe {
            multiply::<crate::cpu::quant_matmul::avx512::Vnni>(format, panels, size, x, out);
        }));
    }
    #[cfg(target_arch = "aarch64")]
    {
        use crate::cpu::quant_matmul::neon::Neon;
        if Features::NeonDotprod.is_available() {
            // SAFETY: it was detected.
            all.push(("dotprod", |format, panels, size, x, out| unsafe {
                multiply::<Neon<false>>(format, panels, size, x, out);
            }));
        }
        if Features::NeonI8mm.is_available() {
            // SAFETY: it was detected.
            all.push(("i8mm", |format, panels, size, x, out| unsafe {
                multiply::<Neon<true>>(format, panels, size, x, out);
            }));
        }
    }
    all
}

/// Pseudo-random bytes.
fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as u8
    };
    (0..count).map(next).collect()
}

/// Blocks of random bits, or filled with one byte, with half-precision scales of similar magnitude.
fn blocks(format: BlockFormat, [rows, cols]: [usize; 2], fill: Option<u8>) -> Vec<u8> {
    let halves: &[usize] = match format {
        BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => &[0],
        BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => &[0, 2],
        BlockFormat::Q2K => &[80, 82],
        BlockFormat::Q3K => &[108],
        BlockFormat::Q6K => &[208],
    };
    let len = rows * cols / format.block_len() * format.block_bytes();
    let mut bytes = noise(len, 3);
    if let Some(fill) = fill {
        bytes.fill(fill);
    }
    for (i, block) in bytes.chunks_mut(format.block_bytes()).enumerate() {
        for &at in halves {
            let d = half::f16::from_f32((i % 23) as f32 / 32.0 - 0.3 + at as f32 / 512.0);
            block[at..at + 2].copy_from_slice(&d.to_le_bytes());
        }
    }
    bytes
}

fn activations(vectors: usize, cols: usize, is_max: bool) -> Activations {
    let x: Vec<f32> = noise(vectors * cols, 5)
        .iter()
        .map(|&b| match (is_max, b & 1) {
            (true, 0) => 127.0,
            (true, _) => -127.0,
            _ => f32::from(b) / 128.0 - 1.0,
        })
        .collect();
    let mut all = Activations::default();
    all.set(&x, cols, 1, false);
    all
}

/// All results, vector by vector.
fn products(kernel: PanelKernel, panels: &Panels, x: &Activations, rows: usize) -> Vec<f32> {
    let all = std::cell::RefCell::new(vec![f32::NAN; x.rows() * rows]);
    let out = |v: usize, panel: usize, sums: &[f32]| {
        let first = panel * PANEL_ROWS;
        let count = sums.len().min(rows - first);
        all.borrow_mut()[v * rows + first..][..count].copy_from_slice(&sums[..count]);
    };
    panels.with(|format, bytes, size| kernel(format, bytes, size, x, &out));
    all.into_inner()
}

/// The dot product of a row, and the sum of the magnitudes of its terms, from the blocks in the layout of the file.
fn reference(format: BlockFormat, row: &[u8], x: ActivationRow<'_>) -> (f64, f64) {
    let groups = format.block_len() / GROUP_LEN;
    let (mut sum, mut size) = (0.0, 0.0);
    for (b, block) in row.chunks_exact(format.block_bytes()).enumerate() {
        for i in 0..groups {
            let (w, g) = (group(format, block, i), b * groups + i);
            for j in 0..GROUP_LEN {
                let x = f64::from(x.scales[g].d) * f64::from(x.q[g * GROUP_LEN + j]);
                let scaled = f64::from(w.scale[j / 16]) * f64::from(w.q[j]);
                let offset = f64::from(w.offset[j / 16]);
                sum += x * (scaled - offset);
                size += x.abs() * (scaled.abs() + offset.abs());
            }
        }
    }
    (sum, size)
}

#[test]
fn all_kernels_are_bit_identical() {
    let [(_, portable), others @ ..] = &kernels()[..] else {
        unreachable!("the portable kernel is always available");
    };
    for format in BlockFormat::ALL {
        // Whole panels, a partial one, an odd number of panels; all remainders of vectors in fours.
        for (rows, vectors) in [(16, 1), (21, 2), (5, 3), (40, 4), (33, 7), (21, 13)] {
            for fill in [None, Some(0xFF), Some(0x80), Some(0)] {
                let bytes = blocks(format, [rows, 512], fill);
                let panels = Panels::repack(format, &bytes, rows, 512, &drop).unwrap();
                let x = activations(vectors, 512, fill.is_some());
                let expected = products(*portable, &panels, &x, rows);
                for (name, kernel) in others {
                    let actual = products(*kernel, &panels, &x, rows);
                    for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
                        let (v, r) = (i / rows, i % rows);
                        assert!(
                            a.to_bits() == e.to_bits(),
                            "{name}, {format}, {rows} rows, {vectors} vectors, filled with {fill:?}: row {r} of \
                             vector {v} is {a}, not {e}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn kernels_agree_with_the_dequantised_blocks() {
    for format in BlockFormat::ALL {
        let (rows, vectors) = (21, 5);
        for fill in [None, Some(0xFF)] {
            let bytes = blocks(format, [rows, 512], fill);
            let panels = Panels::repack(format, &bytes, rows, 512, &drop).unwrap();
            let x = activations(vectors, 512, fill.is_some());
            for (name, kernel) in kernels() {
                let actual = products(kernel, &panels, &x, rows);
                let row = bytes.len() / rows;
                for v in 0..vectors {
                    for r in 0..rows {
                        let (sum, size) = reference(format, &bytes[r * row..][..row], x.row(v));
                        let a = f64::from(actual[v * rows + r]);
                        // 16 groups or two blocks, with a few roundings each.
                        let bound = size * 64.0 * f64::from(f32::EPSILON);
                        assert!((a - sum).abs() <= bound, "{name} {format}: {a} {sum}");
                    }
                }
            }
        }
    }
}

#[test]
fn dispatched_panels_agree_with_rows() {
    // Covers one panel at a time on AVX-512, and two.
    for (format, vectors) in BlockFormat::ALL.into_iter().flat_map(|f| [(f, 3), (f, 9)]) {
        let rows = 45;
        let bytes = blocks(format, [rows, 512], None);
        let matrix = QuantMatrix::from_bytes(Weights::Block(format), [rows, 512], bytes.clone());
        let Some(panels) = Panels::new(format, &bytes, rows, 512, &drop) else {
            // This processor has no kernels for panels.
            return;
        };
        let x = activations(vectors, 512, false);
        let product = |body: &dyn Fn(std::ops::Range<usize>, &shared_output::SharedOutput<'_>)| {
            let mut to = vec![f32::NAN; vectors * rows];
            let all = DisjointSlice::new(&mut to);
            let output = shared_output::SharedOutput {
                all: &all,
                vectors,
                rows,
            };
            // In two tasks, the first with an odd number of panels.
            body(0..24, &output);
            body(24..rows, &output);
            to
        };
        let actual = product(&|range, to| panels.multiply(&x, range, to));
        let expected = product(&|range, to| row::multiply(matrix.as_ref().unwrap(), &x, range, to));
        for (i, (a, e)) in actual.iter().zip(&expected).enumerate() {
            let (v, r) = (i / rows, i % rows);
            let row = bytes.len() / rows;
            let (_, size) = reference(format, &bytes[r * row..][..row], x.row(v));
            let bound = size * 64.0 * f64::from(f32::EPSILON);
            assert!(
                (f64::from(*a) - f64::from(*e)).abs() <= bound,
                "{format}: {a} {e}"
            );
        }
    }
}
