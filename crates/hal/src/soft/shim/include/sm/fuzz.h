// Fuzz mode: results that Metal does not fix are varied within the error that Metal allows.
//
// Elementary functions: the error, in units in the last place, that the MSL specification allows
// ("Relative error in ULP", single precision). Where it states an absolute error instead (sin, cos
// and log of fast math near their zeros), we use a ULP figure that stays below it.
#pragma once

namespace sm {
enum class accuracy { precise, fast };
#if SM_SAFE_MATH
constexpr accuracy default_accuracy = accuracy::precise;
#else
constexpr accuracy default_accuracy = accuracy::fast;
#endif

struct allowed_error {
  uint precise;
  uint fast;
  uint fast_per_unit;  // further ULPs for each unit of |x|, in fast math
};

namespace ulp {
constexpr allowed_error acos{4, 5, 0}, acosh{4, 4, 0}, asin{4, 5, 0}, asinh{4, 4, 0};
constexpr allowed_error atan{5, 5, 0}, atan2{6, 6, 0}, atanh{5, 5, 0};
constexpr allowed_error cos{4, 16, 0}, sin{4, 16, 0}, tan{6, 16, 0};
constexpr allowed_error cosh{4, 5, 0}, sinh{4, 5, 0}, tanh{5, 5, 0};
constexpr allowed_error cospi{4, 4, 0}, sinpi{4, 4, 0}, tanpi{6, 6, 0};
constexpr allowed_error exp{4, 3, 2}, exp2{4, 3, 2}, exp10{4, 4, 3};
constexpr allowed_error log{4, 3, 0}, log2{4, 3, 0}, log10{4, 4, 0};
constexpr allowed_error pow{16, 16, 0};
constexpr allowed_error sqrt{0, 2, 0}, rsqrt{2, 2, 0}, divide{0, 2, 0};
}  // namespace ulp

#if SM_FUZZ
SM_UNCHECKED inline uint random() { return sm_rt_table->random(); }

// Zeros, powers of two and numbers that are not normal are not varied: real implementations return them
// exactly. Others stay between their neighbouring powers of two.
SM_UNCHECKED inline float vary(float r, uint max_ulp) {
  uint bits = __builtin_bit_cast(uint, r), exponent = bits & 0x7f800000;
  if ((bits & 0x007fffff) == 0 || exponent == 0 || exponent == 0x7f800000) return r;
  uint varied = bits + random() % (2 * max_ulp + 1) - max_ulp;
  return (varied & 0xff800000) == (bits & 0xff800000) ? __builtin_bit_cast(float, varied) : r;
}
// The result r of a function of x with a random error that its row in the table allows.
template <accuracy A> SM_FN float noisy(const allowed_error& row, float x, float r) {
  uint max_ulp = A == accuracy::precise ? row.precise : row.fast;
  if (A == accuracy::fast && row.fast_per_unit)
    max_ulp += (uint)(__builtin_fminf(__builtin_fabsf(x), 256.0f) * (float)row.fast_per_unit);
  // Two ULPs are reserved for the error of r itself.
  return max_ulp > 2 ? vary(r, max_ulp - 2) : r;
}
#else
template <accuracy A> SM_FN float noisy(const allowed_error&, float, float r) { return r; }
#endif
}  // namespace sm
