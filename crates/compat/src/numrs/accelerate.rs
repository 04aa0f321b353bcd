//! Matmul and dot by Apple's Accelerate (BLAS).
#![expect(unsafe_code, reason = "calls the system's BLAS")]

use std::ffi::c_int;

use bessemer::{DType, Device, Result, Tensor};

const ROW_MAJOR: c_int = 101;
const NO_TRANSPOSE: c_int = 111;

#[link(name = "Accelerate", kind = "framework")]
unsafe extern "C" {
    fn cblas_sgemm(
        order: c_int,
        transpose_a: c_int,
        transpose_b: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: f32,
        a: *const f32,
        lda: c_int,
        b: *const f32,
        ldb: c_int,
        beta: f32,
        c: *mut f32,
        ldc: c_int,
    );

    fn cblas_sdot(n: c_int, a: *const f32, stride_a: c_int, b: *const f32, stride_b: c_int) -> f32;
}

fn blas_int(n: usize) -> Option<c_int> {
    c_int::try_from(n).ok()
}

/// Matmul of two `f32` matrices; `None` for other ranks, types and sizes, and for results that exceed the memory.
pub(super) fn matmul(a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    let ([m, k], [rows, n]) = (&a.shape()[..], &b.shape()[..]) else {
        return Ok(None);
    };
    let (m, n, k, rows) = (*m, *n, *k, *rows);
    let sizes = (blas_int(m), blas_int(n), blas_int(k));
    let ((Some(cm), Some(cn), Some(ck)), true) = (sizes, k == rows && ![m, n, k].contains(&0))
    else {
        return Ok(None);
    };
    if (a.dtype(), b.dtype()) != (DType::F32, DType::F32) {
        return Ok(None);
    }
    let (a, b) = (a.to_slice::<f32>()?, b.to_slice::<f32>()?);
    let mut c = Vec::new();
    if c.try_reserve_exact(m * n).is_err() {
        return Ok(None);
    }
    c.resize(m * n, 0.0_f32);
    // SAFETY: the slices have `m * k`, `k * n` and `m * n` elements, with leading dimensions `k`, `n` and `n`.
    unsafe {
        cblas_sgemm(
            ROW_MAJOR,
            NO_TRANSPOSE,
            NO_TRANSPOSE,
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

/// Dot product of two `f32` vectors; `None` for other ranks and types.
pub(super) fn dot(a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
    let same = a.rank() == 1 && a.shape() == b.shape();
    let Some(n) = blas_int(a.count()).filter(|_| same) else {
        return Ok(None);
    };
    if (a.dtype(), b.dtype()) != (DType::F32, DType::F32) {
        return Ok(None);
    }
    let (a, b) = (a.to_slice::<f32>()?, b.to_slice::<f32>()?);
    // SAFETY: both slices have `n` elements.
    let sum = unsafe { cblas_sdot(n, a.as_ptr(), 1, b.as_ptr(), 1) };
    Ok(Some(Tensor::scalar(sum).to(&Device::cpu())))
}
