//! Products of floats, as they come in: checked, told apart from those with vectors, and handed on.
#![expect(
    unsafe_code,
    reason = "a product points into slices that its callers hold"
)]

use super::drive::compute;
use super::float::{Float, Wide, WithKernel, finish};
use super::kernel::Kernel;
use super::{Level, Matrix, Mix, check_shapes, vector};

/// A matrix whose elements, (i, j) at `start + i * row + j * col`, are known to exist.
#[derive(Clone, Copy)]
pub(super) struct View<P> {
    pub(super) start: P,
    pub(super) row: isize,
    pub(super) col: isize,
}

impl<T> View<*const T> {
    pub(super) fn of(m: Matrix<'_, T>) -> Self {
        Self {
            start: m.data[m.offset..].as_ptr(),
            row: m.row,
            col: m.col,
        }
    }
}

/// `c = alpha * a·b + beta * c`, everything known to be inside its slices and `c` to be nobody else's. A right factor
/// that was packed before may be of a narrower type.
#[derive(Clone, Copy)]
pub(super) struct Product<T: Wide, B: Wide<Float = T::Float> = T> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) mix: Mix<T::Float>,
    pub(super) a: View<*const T>,
    pub(super) b: Right<B>,
    pub(super) c: View<*mut T>,
}

/// The right factor.
#[derive(Clone, Copy)]
pub(super) enum Right<T: Wide> {
    /// As it is.
    View(View<*const T>),
    /// In panels of its own type, by [`pack_all`].
    Packed(*const T),
    /// In panels of floats.
    Panels(*const T::Float),
}

// SAFETY: the factors are only read, and tasks write disjoint tiles of `c`; `Product::new`'s callers hold
// the slices for as long as the product is computed.
unsafe impl<T: Wide, B: Wide<Float = T::Float>> Sync for Product<T, B> {}

/// [`gemm`](super::gemm) for floats.
pub(super) fn multiply<T: Wide>(
    mix: Mix<T::Float>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    c: &mut [T],
    ldc: usize,
) {
    a.check();
    b.check();
    check_shapes(&a, (b.rows, b.cols), c, ldc);
    let (m, n, k) = (a.rows, b.cols, a.cols);
    if m == 0 || n == 0 || k == 0 {
        return scale(mix, (m, n), c, ldc);
    }
    if !vector::multiply(mix, a, b, c, ldc) {
        run(mix, a, (Right::View(View::of(b)), n), c, ldc);
    }
}

/// `c = beta * c`, what is left of a product without steps.
pub(super) fn scale<T: Wide>(mix: Mix<T::Float>, (m, n): (usize, usize), c: &mut [T], ldc: usize) {
    if n == 0 {
        return;
    }
    let mut sums = vec![T::Float::ZERO; n];
    for c in c.chunks_mut(ldc).take(m) {
        sums.fill(T::Float::ZERO);
        finish(mix, &mut sums, &mut c[..n]);
    }
}

/// Computes a product whose matrices were checked and have elements; the right one has `n` columns.
pub(super) fn run<T: Wide, B: Wide<Float = T::Float>>(
    mix: Mix<T::Float>,
    a: Matrix<'_, T>,
    (b, n): (Right<B>, usize),
    c: &mut [T],
    ldc: usize,
) {
    let product = Product {
        m: a.rows,
        n,
        k: a.cols,
        mix,
        a: View::of(a),
        b,
        c: View {
            start: c.as_mut_ptr(),
            row: ldc as isize,
            col: 1,
        },
    };
    let level = match (mix.level, b) {
        (Level::Avx512, Right::View(_)) if suits_avx2(&product) => Level::Avx2,
        (level, _) => level,
    };
    T::Float::with_kernel(level, Compute(product));
}

/// Whether the smaller tiles of AVX2 are faster on a processor with AVX-512.
fn suits_avx2<T: Wide, B: Wide<Float = T::Float>>(p: &Product<T, B>) -> bool {
    // A tenth more columns would be computed for nothing.
    let columns = |bytes: usize| p.n.next_multiple_of(2 * bytes / size_of::<T::Float>());
    let is_ragged = columns(64) * 10 > columns(32) * 11;
    // Six rows that are whole pages apart are read directly; fourteen have to be packed, for few columns.
    let is_narrow = p.n <= 64 && (p.a.row.unsigned_abs() * size_of::<T>()).is_multiple_of(4096);
    is_ragged || is_narrow
}

struct Compute<T: Wide, B: Wide<Float = T::Float>>(Product<T, B>);

impl<T: Wide, B: Wide<Float = T::Float>> WithKernel<T::Float> for Compute<T, B> {
    type Output = ();
    fn call<K: Kernel<Float = T::Float>>(self) {
        compute::<T, B, K>(&self.0);
    }
}
