//! Products of matrices and vectors, by definition.

use super::exact::dot as products;
use crate::Array;
use crate::array::broadcast;
use crate::number::{Value, wrap};

/// Σ over k of `a[k] · b[k]`, unrounded for floats, wrapped for integers, the or of ands for booleans.
fn inner(dtype: bessemer::DType, len: usize, pair: impl Fn(usize) -> (Value, Value)) -> Value {
    if dtype.is_float() {
        let floats = (0..len).map(|k| {
            let (a, b) = pair(k);
            (a.cast(dtype).float(), b.cast(dtype).float())
        });
        return Value::Float(products(floats));
    }
    if dtype == bessemer::DType::Bool {
        return (0..len)
            .any(|k| {
                let (a, b) = pair(k);
                a.is_nonzero() && b.is_nonzero()
            })
            .into();
    }
    Value::Int((0..len).fold(0, |sum, k| {
        let (a, b) = pair(k);
        wrap(dtype, sum + wrap(dtype, a.int().wrapping_mul(b.int())))
    }))
}

/// NumPy's `matmul`: vectors count as a row on the left and a column on the right, all axes before the
/// last two are batches and broadcast.
pub fn matmul(a: &Array, b: &Array) -> Array {
    let dtype = a.dtype.promote(b.dtype);
    let (row, column) = (a.rank() == 1, b.rank() == 1);
    let a = if row {
        a.reshape(&[1, a.count()])
    } else {
        a.clone()
    };
    let b = if column {
        b.reshape(&[b.count(), 1])
    } else {
        b.clone()
    };
    let (m, k) = (a.shape[a.rank() - 2], a.shape[a.rank() - 1]);
    let (k2, n) = (b.shape[b.rank() - 2], b.shape[b.rank() - 1]);
    assert_eq!(k, k2, "{:?} by {:?}", a.shape, b.shape);
    let mut shape = broadcast(&a.shape[..a.rank() - 2], &b.shape[..b.rank() - 2]);
    shape.extend([m, n]);
    let out = Array::from_fn(dtype, &shape, |index| {
        let (batch, last) = index.split_at(index.len() - 2);
        let at = |x: &Array, i, j| {
            let skip = batch.len() - (x.rank() - 2);
            let own = batch[skip..].iter().zip(&x.shape);
            let mut index: Vec<_> = own.map(|(&b, &n)| if n == 1 { 0 } else { b }).collect();
            index.extend([i, j]);
            x.at(&index)
        };
        inner(dtype, k, |p| (at(&a, last[0], p), at(&b, p, last[1])))
    });
    let mut shape = out.shape.clone();
    if column {
        shape.remove(shape.len() - 1);
    }
    if row {
        shape.remove(shape.len() - if column { 1 } else { 2 });
    }
    out.reshape(&shape)
}

/// The inner product of two vectors.
pub fn dot(a: &Array, b: &Array) -> Array {
    assert_eq!(a.shape, b.shape);
    matmul(a, b)
}

/// The outer product of two vectors.
pub fn outer(a: &Array, b: &Array) -> Array {
    matmul(&a.reshape(&[a.count(), 1]), &b.reshape(&[1, b.count()]))
}

/// `alpha · a b + beta · c`; if `beta` is 0, `c` is ignored even where it is NaN.
pub fn gemm(a: &Array, b: &Array, c: &Array, alpha: f64, beta: f64) -> Array {
    let product = matmul(a, b);
    let dtype = product.dtype.promote(c.dtype);
    let c = c.broadcast_to(&product.shape);
    Array::from_float_fn(dtype, &product.shape, |i| {
        let scaled = alpha * product.float(i);
        if beta == 0.0 {
            scaled
        } else {
            beta.mul_add(c.float(i), scaled)
        }
    })
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    fn counting(shape: &[usize]) -> Array {
        let mut n = 0;
        Array::from_float_fn(DType::F32, shape, |_| {
            n += 1;
            f64::from(n)
        })
    }

    #[test]
    fn matrices_multiply() {
        let c = matmul(&counting(&[2, 3]), &counting(&[3, 2]));
        assert_eq!(c.to_floats(), [22.0, 28.0, 49.0, 64.0]);
    }

    #[test]
    fn vectors_lose_their_axis_and_batches_broadcast() {
        let v = counting(&[3]);
        assert_eq!(matmul(&v, &v).shape, [0; 0]);
        assert_eq!(matmul(&v, &v).to_floats(), [14.0]);
        assert_eq!(matmul(&counting(&[2, 3]), &v).to_floats(), [14.0, 32.0]);
        assert_eq!(matmul(&v, &counting(&[3, 2])).to_floats(), [22.0, 28.0]);
        assert_eq!(matmul(&v, &counting(&[4, 3, 2])).shape, [4, 2]);
        let c = matmul(&counting(&[5, 1, 2, 3]), &counting(&[4, 3, 2]));
        assert_eq!(c.shape, [5, 4, 2, 2]);
        // np.matmul(a, b)[4, 3, 1], with both counting from 1.
        assert_eq!(c.to_floats()[4 * 16 + 3 * 4 + 2..][..2], [1831.0, 1918.0]);
    }

    #[test]
    fn integers_wrap() {
        let a = Array::ints(DType::U8, &[1, 2], &[200, 100]);
        assert_eq!(
            matmul(&a, &a.reshape(&[2, 1])).to_ints(),
            [(40_000 + 10_000) % 256]
        );
    }

    #[test]
    fn gemm_scales_both_terms() {
        let (a, nan) = (
            counting(&[2, 2]),
            Array::floats(DType::F32, &[], &[f64::NAN]),
        );
        assert_eq!(
            gemm(&a, &a, &a, 2.0, -1.0).to_floats(),
            [13.0, 18.0, 27.0, 40.0]
        );
        assert_eq!(
            gemm(&a, &a, &nan, 1.0, 0.0).to_floats(),
            [7.0, 10.0, 15.0, 22.0]
        );
    }
}
