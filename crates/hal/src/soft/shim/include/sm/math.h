// <metal_math>: floating-point functions, in metal::, metal::fast:: and metal::precise::. They exist
// for float and half; a bfloat argument converts to float, as in MSL.
#pragma once

namespace metal {
// min, max and functions of them, for floating point: if one argument is a NaN, the result is the other.
#define SM_ORDER_FUNCTIONS(T)                                                                 \
  SM_CX T min(T a, T b) { return (T)__builtin_fminf((float)a, (float)b); }                    \
  SM_CX T max(T a, T b) { return (T)__builtin_fmaxf((float)a, (float)b); }                    \
  SM_CX T clamp(T x, T low, T high) { return min(max(x, low), high); }                        \
  SM_CX T min3(T a, T b, T c) { return min(a, min(b, c)); }                                   \
  SM_CX T max3(T a, T b, T c) { return max(a, max(b, c)); }                                   \
  SM_CX T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }                \
  SM_CX T abs(T x) { return (T)__builtin_fabsf((float)x); }
SM_ORDER_FUNCTIONS(float)
SM_ORDER_FUNCTIONS(half)
#undef SM_ORDER_FUNCTIONS

// bfloat converts to float. Templates, because user code defines non-template overloads of its own.
#define SM_IF_BFLOAT template <class T, class = enable_if_t<__is_same(T, bfloat)>>
SM_IF_BFLOAT SM_CX float min(T a, T b) { return min((float)a, (float)b); }
SM_IF_BFLOAT SM_CX float max(T a, T b) { return max((float)a, (float)b); }
SM_IF_BFLOAT SM_CX float clamp(T x, T a, T b) { return clamp((float)x, (float)a, (float)b); }
SM_IF_BFLOAT SM_CX float min3(T a, T b, T c) { return min3((float)a, (float)b, (float)c); }
SM_IF_BFLOAT SM_CX float max3(T a, T b, T c) { return max3((float)a, (float)b, (float)c); }
SM_IF_BFLOAT SM_CX float median3(T a, T b, T c) { return median3((float)a, (float)b, (float)c); }
SM_IF_BFLOAT SM_CX float abs(T x) { return abs((float)x); }
#undef SM_IF_BFLOAT

// Integers and floating-point numbers share these.
SM_LIFT1(abs, if_number)
SM_LIFT2(min, if_number)
SM_LIFT2(max, if_number)
SM_LIFT3(clamp, if_number)
SM_LIFT3(min3, if_number)
SM_LIFT3(max3, if_number)
SM_LIFT3(median3, if_number)

#define SM_ACCURACY ::sm::default_accuracy
#include "math_set.h"
#undef SM_ACCURACY

namespace fast {
using metal::abs;
using metal::clamp;
using metal::max;
using metal::max3;
using metal::median3;
using metal::min;
using metal::min3;
#define SM_ACCURACY ::sm::accuracy::fast
#include "math_set.h"
#undef SM_ACCURACY
}  // namespace fast

namespace precise {
using metal::abs;
using metal::clamp;
using metal::max;
using metal::max3;
using metal::median3;
using metal::min;
using metal::min3;
#define SM_ACCURACY ::sm::accuracy::precise
#include "math_set.h"
#undef SM_ACCURACY
}  // namespace precise
}  // namespace metal
