use std::fmt::Debug;

use half::{bf16, f16};

use super::float::{FloatElement, GemmFloat, WithKernel};
use super::{Gemm, GemmPanels, Matrix, Mix, column, gemm, gemm_batch, gemm_packed, vector_packed};
use crate::cpu::pool;
use crate::cpu::simd::Level;
use crate::cpu::simd::testing::{cases, levels};

/// Calls `body` with every available level.
fn at_every_level(body: impl Fn(Level)) {
    levels().for_each(body);
}

/// A generator of reproducible numbers from -1 to 1.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f64 / (1 << 23) as f64 - 1.0
    }
}

/// A type under test, with its conversions from and to `f64`.
trait TestElement: FloatElement + Gemm<Acc = <Self as FloatElement>::Float> + Debug {
    /// Error bound of a product of one step, relative to the sum of the magnitudes of its terms.
    const ERROR: f64;
    fn of(x: f64) -> Self;
    fn float(x: f64) -> Self::Float;
    fn value(self) -> f64;
}

macro_rules! number {
    ($($type:ty, $float:ty, $error:expr, $of:expr;)*) => {$(
        impl TestElement for $type {
            const ERROR: f64 = $error;
            fn of(x: f64) -> Self {
                $of(x)
            }
            fn float(x: f64) -> $float {
                x as $float
            }
            fn value(self) -> f64 {
                f64::from(self)
            }
        }
    )*};
}
number! {
    f32, f32, 2e-7, |x| x as f32;
    f64, f64, 4e-16, |x| x;
    f16, f32, 6e-4, f16::from_f64;
    bf16, f32, 5e-3, bf16::from_f64;
}

/// Memory layouts of a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Rows,
    Columns,
    /// Rows with a gap after each, and one before the first.
    Gaps,
    /// Both strides negative.
    Backwards,
    /// Column-major with every third element.
    Sparse,
    /// One row, broadcast.
    OneRow,
    /// One column, broadcast.
    OneColumn,
}

const LAYOUTS: [Layout; 7] = [
    Layout::Rows,
    Layout::Columns,
    Layout::Gaps,
    Layout::Backwards,
    Layout::Sparse,
    Layout::OneRow,
    Layout::OneColumn,
];

fn lay<T: Copy>(layout: Layout, data: &[T], rows: usize, cols: usize) -> Matrix<'_, T> {
    let (r, c) = (rows as isize, cols as isize);
    let last = (rows * cols).saturating_sub(1);
    let (offset, row, col) = match layout {
        Layout::Rows => (0, c, 1),
        Layout::Columns => (0, 1, r),
        Layout::Gaps => (5, c + 3, 1),
        Layout::Backwards => (last, -c, -1),
        Layout::Sparse => (1, 3, 3 * r),
        Layout::OneRow => (2, 0, 1),
        Layout::OneColumn => (2, 1, 0),
    };
    Matrix {
        data,
        offset,
        rows,
        cols,
        row,
        col,
    }
}

fn element<T: Copy>(m: &Matrix<'_, T>, i: usize, j: usize) -> T {
    m.data[(m.offset as isize + i as isize * m.row + j as isize * m.col) as usize]
}

fn data<T: TestElement>(seed: u64, rows: usize, cols: usize) -> Vec<T> {
    let mut numbers = Xorshift(seed | 1);
    (0..3 * rows * cols + 3 * rows + 16)
        .map(|_| T::of(numbers.next()))
        .collect()
}

struct Case {
    shape: (usize, usize, usize),
    layouts: (Layout, Layout),
    alpha: f64,
    beta: f64,
    /// Elements between the rows of `c`, besides its columns.
    gap: usize,
}

impl Case {
    fn plain(m: usize, k: usize, n: usize) -> Self {
        Self {
            shape: (m, k, n),
            layouts: (Layout::Rows, Layout::Rows),
            alpha: 1.0,
            beta: 0.0,
            gap: 0,
        }
    }
}

/// Compares with a triple loop in `f64`; also the packed product, which must be bit-identical if both factors have
/// more than a few lines.
fn check<T: TestElement>(case: &Case, level: Level) {
    let (m, k, n) = case.shape;
    let (a, b) = (data::<T>(11, m, k), data::<T>(12, k, n));
    let a = lay(case.layouts.0, &a, m, k);
    let b = lay(case.layouts.1, &b, k, n);
    let ldc = n + case.gap;
    let old = if case.beta == 0.0 {
        vec![T::of(f64::NAN); m * ldc]
    } else {
        data::<T>(13, m, ldc)[..m * ldc].to_vec()
    };
    let (alpha, beta) = (T::float(case.alpha), T::float(case.beta));
    let mix = Mix { level, alpha, beta };
    let mut c = old.clone();
    T::multiply(mix, a, b, &mut c, ldc);
    let mut again = old.clone();
    gemm_packed(
        alpha,
        a,
        &GemmPanels::new_at(level, b).unwrap(),
        beta,
        &mut again,
        ldc,
    );
    for i in 0..m {
        for j in 0..ldc {
            let at = i * ldc + j;
            let (old, new) = (old[at].value(), c[at].value());
            let name = || {
                format!(
                    "{:?} at {level:?}: {:?} {:?}, ({i}, {j})",
                    T::default(),
                    case.shape,
                    case.layouts
                )
            };
            if j >= n {
                assert_eq!(new.to_bits(), old.to_bits(), "{}: past the row", name());
                continue;
            }
            let (mut sum, mut size) = (0.0, 0.0);
            for p in 0..k {
                let term = element(&a, i, p).value() * element(&b, p, j).value();
                sum += term;
                size += term.abs();
            }
            let rest = if case.beta == 0.0 {
                0.0
            } else {
                case.beta * old
            };
            let expected = case.alpha * sum + rest;
            let float = f64::max(2e-7 * f64::from(size_of::<T>() < 8), 4e-16);
            let allowed =
                (size * case.alpha.abs() + rest.abs()) * float * (k as f64).sqrt().max(4.0)
                    + expected.abs() * T::ERROR
                    + 1e-7 * f64::from(size_of::<T>() == 2);
            assert!(
                (new - expected).abs() <= allowed,
                "{}: {new} instead of {expected}",
                name()
            );
            let packed = again[at].value();
            if m > 8 && n > 8 {
                assert_eq!(packed.to_bits(), new.to_bits(), "{}: packed", name());
            } else {
                assert!((packed - expected).abs() <= allowed, "{}: packed", name());
            }
        }
    }
}

fn check_all(case: &Case, level: Level) {
    check::<f32>(case, level);
    check::<f64>(case, level);
    check::<f16>(case, level);
    check::<bf16>(case, level);
}

#[test]
fn awkward_sizes_agree_with_a_triple_loop() {
    let sizes = cases(
        &[0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129][..],
        &[0, 1, 3, 16, 17, 33, 65],
    );
    at_every_level(|level| {
        for (i, &m) in sizes.iter().enumerate() {
            for (j, &n) in sizes.iter().enumerate() {
                let k = sizes[(3 * i + 5 * j + 1) % sizes.len()];
                let layouts = (LAYOUTS[(i + j) % 2], LAYOUTS[(i + 2 * j) % 2]);
                let case = Case {
                    layouts,
                    ..Case::plain(m, k, n)
                };
                check_all(&case, level);
            }
        }
    });
}

#[test]
fn any_strides_agree_with_a_triple_loop() {
    at_every_level(|level| {
        for first in LAYOUTS {
            for second in LAYOUTS {
                for shape in [
                    (1, 40, 33),
                    (35, 41, 1),
                    (13, 9, 5),
                    (37, 70, 50),
                    (110, 30, 130),
                    // Too wide for AVX2 tiles to be faster, with a last panel of one column.
                    (29, 40, 161),
                ] {
                    let case = Case {
                        shape,
                        layouts: (first, second),
                        alpha: 1.0,
                        beta: 0.0,
                        gap: 3,
                    };
                    check_all(&case, level);
                }
            }
        }
    });
}

#[test]
fn alpha_and_beta_scale_the_product_and_the_old_values() {
    at_every_level(|level| {
        for (alpha, beta) in [(1.0, 1.0), (2.0, -0.5), (0.0, 2.0), (-1.5, 0.0), (0.0, 0.0)] {
            for shape in [
                (1, 300, 20),
                (20, 300, 1),
                (5, 0, 7),
                (9, 600, 18),
                (20, 8, 5),
                (100, 300, 70),
            ] {
                let case = Case {
                    shape,
                    layouts: (Layout::Rows, Layout::Columns),
                    alpha,
                    beta,
                    gap: 2,
                };
                check_all(&case, level);
            }
        }
    });
}

#[test]
fn large_products_agree_with_a_triple_loop() {
    at_every_level(|level| {
        let all = [
            ((130, 1030, 520), (Layout::Rows, Layout::Rows)),
            ((301, 300, 299), (Layout::Columns, Layout::Columns)),
            ((700, 33, 6), (Layout::Rows, Layout::Rows)),
            ((3, 700, 600), (Layout::Rows, Layout::Columns)),
            ((4, 701, 1301), (Layout::Rows, Layout::Rows)),
            ((1301, 99, 7), (Layout::Columns, Layout::Columns)),
            ((1, 700, 1300), (Layout::Rows, Layout::Rows)),
        ];
        for (shape, layouts) in all.into_iter().skip(cases(0, 2)) {
            let case = Case {
                layouts,
                ..Case::plain(shape.0, shape.1, shape.2)
            };
            check::<f32>(&case, level);
            check::<bf16>(&case, level);
        }
    });
}

/// Multiplies one row with ranges of panels, and expects the bits of the packed product.
fn check_column<B: TestElement<Float = f32>>(level: Level, k: usize, n: usize) {
    let (x, b) = (data::<f32>(21, 1, k), data::<B>(22, k, n));
    let x = &x[..k];
    let b = GemmPanels::new_at(level, Matrix::contiguous(&b[..], k, n)).unwrap();
    let mut expected = vec![f32::NAN; n];
    let left = Matrix::contiguous(x, 1, k);
    gemm_packed(1.0, left, &b, 0.0, &mut expected, n);
    let panels = n.div_ceil(b.width());
    for first in [0, 1, 3] {
        for last in first + 1..=panels {
            let columns = first * b.width()..n.min(last * b.width());
            let mut to = vec![f32::NAN; columns.len()];
            vector_packed(x, &b, first..last, &mut to);
            for (a, e) in to.iter().zip(&expected[columns]) {
                let name = std::any::type_name::<B>();
                assert_eq!(a.to_bits(), e.to_bits(), "{name} {level:?} {k} {n} {first}");
            }
        }
    }
}

#[test]
fn one_row_times_packed_weights_has_the_bits_of_the_packed_product() {
    at_every_level(|level| {
        // Groups of four panels and single panels, whole and partial, of one depth block and of several.
        for (k, n) in [
            (1, 1),
            (5, 40),
            (70, 127),
            (400, 128),
            (801, 165),
            (1300, 290),
        ] {
            check_column::<f16>(level, k, n);
            check_column::<bf16>(level, k, n);
            check_column::<f32>(level, k, n);
        }
    });
}

#[test]
fn half_precision_weights_have_intrinsics_on_x86() {
    struct Paths;
    impl WithKernel<f32> for Paths {
        type Output = [column::GemvPath; 2];
        fn call<K: super::kernel::MicroKernel<Float = f32>>(self) -> Self::Output {
            [
                column::GemvPath::of::<f16, K>(),
                column::GemvPath::of::<bf16, K>(),
            ]
        }
    }
    // Nothing is computed, so levels that the processor lacks are covered too.
    for level in Level::ALL {
        let expected = match level {
            Level::Avx2 if cfg!(target_arch = "x86_64") => column::GemvPath::Avx2,
            Level::Avx512 if cfg!(target_arch = "x86_64") => column::GemvPath::Avx512,
            _ => column::GemvPath::Generic,
        };
        assert_eq!(f32::with_kernel(level, Paths), [expected; 2], "{level:?}");
    }
}

#[test]
fn zero_times_infinity_is_not_a_number() {
    at_every_level(|level| {
        for (m, k, n) in [
            (1, 5, 9),
            (9, 5, 1),
            (4, 5, 9),
            (40, 70, 33),
            (120, 260, 130),
        ] {
            let mut a = vec![0.0_f32; m * k];
            let mut b = vec![1.0_f32; k * n];
            b[2 * n + n / 2] = f32::INFINITY;
            a[k - 1] = f32::NAN;
            let mut c = vec![0.0; m * n];
            let (a, b) = (Matrix::contiguous(&a, m, k), Matrix::contiguous(&b, k, n));
            let mix = Mix {
                level,
                alpha: 1.0,
                beta: 0.0,
            };
            f32::multiply(mix, a, b, &mut c, n);
            for (at, &x) in c.iter().enumerate() {
                let expected = at / n == 0 || at % n == n / 2;
                assert_eq!(x.is_nan(), expected, "{m} {k} {n} at {at}, {level:?}");
                assert!(expected || x == 0.0, "{m} {k} {n} at {at}, {level:?}");
            }
        }
    });
}

#[test]
fn one_thread_and_two_give_the_same_bits() {
    let before = pool::threads();
    for (m, k, n) in [
        (1, 3000, 2000),
        (2000, 3000, 1),
        (7, 1000, 900),
        (200, 300, 250),
        (513, 511, 509),
        (2000, 70, 5),
    ] {
        let (a, b) = (data::<f32>(1, m, k), data::<f32>(2, k, n));
        for (first, second) in [
            (Layout::Rows, Layout::Rows),
            (Layout::Columns, Layout::Columns),
        ] {
            let (a, b) = (lay(first, &a, m, k), lay(second, &b, k, n));
            let bits = [1, 2].map(|threads| {
                pool::set_threads(threads);
                let mut c = vec![0.0_f32; m * n];
                gemm(1.0, a, b, 0.0, &mut c, n);
                c.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            });
            assert!(bits[0] == bits[1], "{m} {k} {n} {first:?} {second:?}");
        }
    }
    pool::set_threads(before);
}

#[test]
fn a_batch_equals_its_separate_products() {
    for (count, m, k, n) in [
        (5, 3, 4, 7),
        (300, 6, 20, 16),
        (3, 200, 150, 200),
        (1, 4, 0, 4),
    ] {
        let (a, b) = (data::<f32>(5, count * m, k), data::<f32>(6, k, n));
        let factors = |i: usize| {
            let a = Matrix {
                offset: i * m * k,
                ..Matrix::contiguous(&a, m, k)
            };
            (a, Matrix::contiguous(&b, k, n))
        };
        let mut all = vec![f32::NAN; count * m * n];
        gemm_batch(1.0, factors, 0.0, &mut all, (m, n));
        for (i, product) in all.chunks(m * n).enumerate() {
            let mut c = vec![0.0; m * n];
            let (a, b) = factors(i);
            gemm(1.0, a, b, 0.0, &mut c, n);
            assert_eq!(product, c, "product {i} of {count}");
        }
    }
}

#[test]
fn integers_wrap() {
    at_every_level(|level| {
        for (m, k, n) in [(3, 5, 9), (20, 0, 4), (17, 70, 33), (1, 9, 1)] {
            let a: Vec<i8> = (0..m * k).map(|i| (i * 37 % 256) as u8 as i8).collect();
            let b: Vec<i8> = (0..k * n).map(|i| (i * 91 % 256) as u8 as i8).collect();
            for b in [
                Matrix::contiguous(&b, k, n),
                Matrix::contiguous(&b, n, k).t(),
            ] {
                let a = Matrix::contiguous(&a, m, k);
                let mut c = vec![3_i8; m * n];
                let mix = Mix {
                    level,
                    alpha: 2,
                    beta: 5,
                };
                i8::multiply(mix, a, b, &mut c, n);
                for (at, &x) in c.iter().enumerate() {
                    let sum: i64 = (0..k)
                        .map(|p| {
                            i64::from(element(&a, at / n, p)) * i64::from(element(&b, p, at % n))
                        })
                        .sum();
                    assert_eq!(x, (2 * sum + 15) as i8);
                }
            }
        }
    });
}

#[test]
fn elements_outside_the_slice_are_refused() {
    let data = [1.0_f32; 12];
    for (offset, row, col) in [
        (1, 4, 1),
        (0, 5, 1),
        (0, -4, 1),
        (3, 4, -2),
        (0, isize::MAX, 1),
    ] {
        let a = Matrix {
            data: &data,
            offset,
            rows: 3,
            cols: 4,
            row,
            col,
        };
        let result = std::panic::catch_unwind(|| {
            let b = Matrix::contiguous(&data, 4, 3);
            gemm(1.0, a, b, 0.0, &mut [0.0; 9], 3);
        });
        assert!(result.is_err(), "{offset} {row} {col}");
    }
}

#[test]
fn half_precision_is_converted_exactly() {
    for bits in 0..=u16::MAX {
        let (x, y) = (f16::from_bits(bits), bf16::from_bits(bits));
        assert!(x.is_nan() && x.widen().is_nan() || x.widen() == x.to_f32());
        assert!(y.is_nan() && y.widen().is_nan() || y.widen() == y.to_f32());
        assert!(y.is_nan() || bf16::narrow(y.widen()) == y);
    }
    for value in [
        1.003_906_2_f32,
        1.011_718_8,
        f32::MAX,
        f32::MIN_POSITIVE / 8.0,
        f32::INFINITY,
    ] {
        assert_eq!(bf16::narrow(value), bf16::from_f32(value));
    }
    assert!(bf16::narrow(f32::from_bits(0x7f80_0001)).is_nan());
    assert_eq!(f32::ONE.widen(), 1.0);
}
