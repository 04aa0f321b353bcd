//! Entry point of floating-point GEMM: checks arguments and dispatches to GEMV or the blocked loops.
#![expect(
    unsafe_code,
    reason = "a GEMM problem points into slices that its callers borrow"
)]

use super::drive::compute;
use super::float::{FloatElement, GemmFloat, WithKernel, finish};
use super::kernel::MicroKernel;
use super::{Level, Matrix, Mix, check_shapes, vector};

/// A strided matrix by pointer, bounds already checked: element (i, j) is at `start + i * row + j * col`.
#[derive(Clone, Copy)]
pub(super) struct MatrixPtr<P> {
    pub(super) start: P,
    pub(super) row: isize,
    pub(super) col: isize,
}

impl<T> MatrixPtr<*const T> {
    pub(super) fn of(m: Matrix<'_, T>) -> Self {
        Self {
            start: m.data[m.offset..].as_ptr(),
            row: m.row,
            col: m.col,
        }
    }
}

/// `c = alpha * a·b + beta * c` with bounds checked and exclusive access to `c`. A prepacked right factor may have
/// a narrower type.
#[derive(Clone, Copy)]
pub(super) struct GemmProblem<T: FloatElement, B: FloatElement<Float = T::Float> = T> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) mix: Mix<T::Float>,
    pub(super) a: MatrixPtr<*const T>,
    pub(super) b: RightOperand<B>,
    pub(super) c: MatrixPtr<*mut T>,
}

/// The right factor.
#[derive(Clone, Copy)]
pub(super) enum RightOperand<T: FloatElement> {
    /// Unpacked.
    Strided(MatrixPtr<*const T>),
    /// In panels of its element type, made by [`GemmPanels`](super::GemmPanels).
    Packed(*const T),
    /// In panels of the accumulator type.
    Panels(*const T::Float),
}

// SAFETY: the factors are only read, and tasks write disjoint tiles of `c`; the callers of `run` borrow the
// slices until the product is computed.
unsafe impl<T: FloatElement, B: FloatElement<Float = T::Float>> Sync for GemmProblem<T, B> {}

/// [`gemm`](super::gemm) for floats.
pub(super) fn multiply<T: FloatElement>(
    mix: Mix<T::Float>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: &mut [T],
    ldc: usize,
) {
    a.check();
    b.check();
    check_shapes(&a, b.rows, b.cols, c, ldc);
    let (m, n, k) = (a.rows, b.cols, a.cols);
    if m == 0 || n == 0 || k == 0 {
        return scale(mix, m, n, c, ldc);
    }
    if !vector::multiply(mix, a, b, c, ldc) {
        run(mix, a, RightOperand::Strided(MatrixPtr::of(b)), n, c, ldc);
    }
}

/// `c = beta * c`: a product whose inner dimension is zero.
pub(super) fn scale<T: FloatElement>(
    mix: Mix<T::Float>,
    m: usize,
    n: usize,
    c: &mut [T],
    ldc: usize,
) {
    if n == 0 {
        return;
    }
    let mut sums = vec![T::Float::ZERO; n];
    for c in c.chunks_mut(ldc).take(m) {
        sums.fill(T::Float::ZERO);
        finish(mix, &mut sums, &mut c[..n]);
    }
}

/// Computes a product of checked, non-empty matrices; `b` has `n` columns.
pub(super) fn run<T: FloatElement, B: FloatElement<Float = T::Float>>(
    mix: Mix<T::Float>,
    a: Matrix<'_, T>,
    b: RightOperand<B>,
    n: usize,
    c: &mut [T],
    ldc: usize,
) {
    let product = GemmProblem {
        m: a.rows,
        n,
        k: a.cols,
        mix,
        a: MatrixPtr::of(a),
        b,
        c: MatrixPtr {
            start: c.as_mut_ptr(),
            row: ldc as isize,
            col: 1,
        },
    };
    let level = match (mix.level, b) {
        (Level::Avx512, RightOperand::Strided(_)) if suits_avx2(&product) => Level::Avx2,
        (level, _) => level,
    };
    T::Float::with_kernel(level, RunMicroKernel(product));
}

/// Returns true if the smaller tiles of AVX2 are faster on a processor with AVX-512.
fn suits_avx2<T: FloatElement, B: FloatElement<Float = T::Float>>(p: &GemmProblem<T, B>) -> bool {
    // AVX-512 would compute over a tenth more padding columns.
    let columns = |bytes: usize| p.n.next_multiple_of(2 * bytes / size_of::<T::Float>());
    let is_ragged = columns(64) * 10 > columns(32) * 11;
    // Six rows with a page-multiple stride are read directly; fourteen need packing, which few columns do not repay.
    let is_narrow = p.n <= 64 && (p.a.row.unsigned_abs() * size_of::<T>()).is_multiple_of(4096);
    is_ragged || is_narrow
}

struct RunMicroKernel<T: FloatElement, B: FloatElement<Float = T::Float>>(GemmProblem<T, B>);

impl<T: FloatElement, B: FloatElement<Float = T::Float>> WithKernel<T::Float>
    for RunMicroKernel<T, B>
{
    type Output = ();
    fn call<K: MicroKernel<Float = T::Float>>(self) {
        compute::<T, B, K>(&self.0);
    }
}
