//! Elementary functions that kernels call.
//!
//! Written in Rust instead of taken from the C library: glibc selects other implementations on processors with
//! `fma`, and changes them between versions. These round every operation, so that all machines give the same bits.
//! Kernel code calls them in its own floating-point mode; the shim flushes arguments and results, so no
//! single-precision subnormal enters or leaves, and inside none affects the rounded result.

/// In the order of the table.
pub(super) const UNARY: [extern "C" fn(f32) -> f32; 12] = [
    acos, acosh, asin, asinh, atan, atanh, cos, cosh, log10, sin, sinh, tan,
];
/// In the order of the table.
pub(super) const BINARY: [extern "C" fn(f32, f32) -> f32; 3] = [atan2, fmod, pow];

extern "C" fn acos(x: f32) -> f32 {
    libm::acosf(x)
}

extern "C" fn acosh(x: f32) -> f32 {
    libm::acoshf(x)
}

extern "C" fn asin(x: f32) -> f32 {
    libm::asinf(x)
}

extern "C" fn asinh(x: f32) -> f32 {
    libm::asinhf(x)
}

extern "C" fn atan(x: f32) -> f32 {
    libm::atanf(x)
}

extern "C" fn atanh(x: f32) -> f32 {
    libm::atanhf(x)
}

extern "C" fn cos(x: f32) -> f32 {
    libm::cosf(x)
}

extern "C" fn cosh(x: f32) -> f32 {
    libm::coshf(x)
}

extern "C" fn log10(x: f32) -> f32 {
    libm::log10f(x)
}

extern "C" fn sin(x: f32) -> f32 {
    libm::sinf(x)
}

extern "C" fn sinh(x: f32) -> f32 {
    libm::sinhf(x)
}

extern "C" fn tan(x: f32) -> f32 {
    libm::tanf(x)
}

extern "C" fn atan2(x: f32, y: f32) -> f32 {
    libm::atan2f(x, y)
}

extern "C" fn fmod(x: f32, y: f32) -> f32 {
    libm::fmodf(x, y)
}

extern "C" fn pow(x: f32, y: f32) -> f32 {
    libm::powf(x, y)
}

pub(super) extern "C" fn sin_double(x: f64) -> f64 {
    libm::sin(x)
}
