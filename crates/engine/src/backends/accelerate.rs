//! Apple's Accelerate: products by the vendor's own library.
#![expect(unsafe_code, reason = "calls a library of the system")]

use std::ffi::c_int;

use crate::{DType, Device, Result, Tensor};

const ROW_MAJOR: c_int = 101;
const AS_IT_IS: c_int = 111;

#[link(name = "Accelerate", kind = "framework")]
unsafe extern "C" {
    fn cblas_sgemm(
        order: c_int,
        turn_a: c_int,
        turn_b: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: f32,
        a: *const f32,
        row_a: c_int,
        b: *const f32,
        row_b: c_int,
        beta: f32,
        c: *mut f32,
        row_c: c_int,
    );

    fn cblas_sdot(n: c_int, a: *const f32, step_a: c_int, b: *const f32, step_b: c_int) -> f32;
}

fn size(n: usize) -> Option<c_int> {
    c_int::try_from(n).ok()
}

/// The product of two matrices of `f32`; `None` for what else there is.
pub(super) fn matmul(a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    let ([m, k], [rows, n]) = (&a.shape()[..], &b.shape()[..]) else {
        return Ok(None);
    };
    let (m, n, k, rows) = (*m, *n, *k, *rows);
    let sizes = (size(m), size(n), size(k));
    let ((Some(cm), Some(cn), Some(ck)), true) = (sizes, k == rows && m * n * k > 0) else {
        return Ok(None);
    };
    if (a.dtype(), b.dtype()) != (DType::F32, DType::F32) {
        return Ok(None);
    }
    let (a, b) = (a.to_slice::<f32>()?, b.to_slice::<f32>()?);
    let mut c = vec![0.0_f32; m * n];
    // SAFETY: the slices have `m * k`, `k * n` and `m * n` numbers, in rows of `k`, `n` and `n`.
    unsafe {
        cblas_sgemm(
            ROW_MAJOR,
            AS_IT_IS,
            AS_IT_IS,
            cm,
            cn,
            ck,
            1.0,
            a.as_ptr(),
            ck,
            b.as_ptr(),
            cn,
            0.0,
            c.as_mut_ptr(),
            cn,
        );
    }
    Ok(Some(Tensor::from_vec(c, [m, n]).to(&Device::cpu())))
}

/// The product of two vectors of `f32`; `None` for what else there is.
pub(super) fn dot(a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    let same = a.rank() == 1 && a.shape() == b.shape();
    let Some(n) = size(a.count()).filter(|_| same) else {
        return Ok(None);
    };
    if (a.dtype(), b.dtype()) != (DType::F32, DType::F32) {
        return Ok(None);
    }
    let (a, b) = (a.to_slice::<f32>()?, b.to_slice::<f32>()?);
    // SAFETY: both slices have `n` numbers.
    let sum = unsafe { cblas_sdot(n, a.as_ptr(), 1, b.as_ptr(), 1) };
    Ok(Some(Tensor::scalar(sum).to(&Device::cpu())))
}
