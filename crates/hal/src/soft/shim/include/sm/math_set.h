// The math functions that have a fast and a precise form. Included once for each namespace that has
// them, with SM_ACCURACY set; hence without an include guard.

// Half is computed in float and rounded once.
#define SM_REAL1(name, e)                              \
  SM_FN float name(float x) { return e; }              \
  SM_FN half name(half h) {                            \
    float x = (float)h;                                \
    return (half)(e);                                  \
  }                                                    \
  SM_LIFT1(name, if_floating)
#define SM_REAL2(name, e)                              \
  SM_FN float name(float x, float y) { return e; }     \
  SM_FN half name(half h, half i) {                    \
    float x = (float)h, y = (float)i;                  \
    return (half)(e);                                  \
  }                                                    \
  SM_LIFT2(name, if_floating)
#define SM_REAL3(name, e)                                     \
  SM_FN float name(float x, float y, float z) { return e; }   \
  SM_FN half name(half h, half i, half j) {                   \
    float x = (float)h, y = (float)i, z = (float)j;           \
    return (half)(e);                                         \
  }                                                           \
  SM_LIFT3(name, if_floating)
#define SM_ELEMENTARY(name) SM_REAL1(name, ::sm::elementary::name<SM_ACCURACY>(x))
#define SM_ELEMENTARY2(name) SM_REAL2(name, ::sm::elementary::name<SM_ACCURACY>(x, y))

SM_ELEMENTARY(acos)
SM_ELEMENTARY(acosh)
SM_ELEMENTARY(asin)
SM_ELEMENTARY(asinh)
SM_ELEMENTARY(atan)
SM_ELEMENTARY(atanh)
SM_ELEMENTARY(cos)
SM_ELEMENTARY(cosh)
SM_ELEMENTARY(cospi)
SM_ELEMENTARY(exp)
SM_ELEMENTARY(exp2)
SM_ELEMENTARY(exp10)
SM_ELEMENTARY(log)
SM_ELEMENTARY(log2)
SM_ELEMENTARY(log10)
SM_ELEMENTARY(rsqrt)
SM_ELEMENTARY(sin)
SM_ELEMENTARY(sinh)
SM_ELEMENTARY(sinpi)
SM_ELEMENTARY(sqrt)
SM_ELEMENTARY(tan)
SM_ELEMENTARY(tanh)
SM_ELEMENTARY(tanpi)
SM_ELEMENTARY2(atan2)
SM_ELEMENTARY2(divide)
SM_ELEMENTARY2(pow)
SM_ELEMENTARY2(powr)

SM_REAL1(ceil, ::sm::elementary::ceil(x))
SM_REAL1(fabs, __builtin_fabsf(x))
SM_REAL1(floor, ::sm::elementary::floor(x))
SM_REAL1(rint, __builtin_rintf(x))
SM_REAL1(round, __builtin_roundf(x))
SM_REAL1(trunc, __builtin_truncf(x))
SM_REAL2(copysign, __builtin_copysignf(x, y))
SM_REAL2(fdim, (x <= y ? 0.0f : x - y))
SM_REAL2(fmax, __builtin_fmaxf(x, y))
SM_REAL2(fmin, __builtin_fminf(x, y))
SM_REAL2(fmod, ::sm::elementary::fmod(x, y))
SM_REAL3(fmax3, __builtin_fmaxf(x, __builtin_fmaxf(y, z)))
SM_REAL3(fmin3, __builtin_fminf(x, __builtin_fminf(y, z)))
SM_REAL3(fmedian3, __builtin_fmaxf(__builtin_fminf(x, y), __builtin_fminf(__builtin_fmaxf(x, y), z)))

SM_REAL3(fma, __builtin_fmaf(x, y, z))

SM_FN float fract(float x) { return ::sm::elementary::fract(x); }
SM_FN half fract(half x) { return ::sm::elementary::fract(x); }
SM_LIFT1(fract, if_floating)
SM_FN float nextafter(float x, float y) { return ::sm::elementary::nextafter(x, y); }
SM_FN half nextafter(half x, half y) { return ::sm::elementary::nextafter(x, y); }
SM_LIFT2(nextafter, if_floating)

SM_FN int ilogb(float x) { return ::sm::elementary::ilogb(x); }
SM_FN int ilogb(half x) { return ::sm::elementary::ilogb((float)x); }
template <class T, int N> SM_FN vec<int, N> ilogb(vec<T, N> a) {
  using R = vec<int, N>;
  SM_EACH(R, N, SM_CALL1, ilogb)
}
SM_FN float ldexp(float x, int k) { return ::sm::elementary::ldexp(x, k); }
SM_FN half ldexp(half x, int k) { return (half)::sm::elementary::ldexp((float)x, k); }
template <class T, int N> SM_FN vec<T, N> ldexp(vec<T, N> a, ::sm::same<vec<int, N>> b) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_CALL2, ldexp)
}

// Functions with a second result.
SM_FN float frexp(float x, int& exponent) { return ::sm::elementary::frexp(x, exponent); }
SM_FN half frexp(half x, int& exponent) { return (half)::sm::elementary::frexp((float)x, exponent); }
template <class T, int N> SM_FN vec<T, N> frexp(vec<T, N> a, vec<int, N>& b) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_CALL2, frexp)
}
SM_FN float modf(float x, float& whole) {
  whole = __builtin_truncf(x);
  return __builtin_copysignf(__builtin_isinf(x) ? 0.0f : x - whole, x);
}
SM_FN half modf(half x, half& whole) {
  float w;
  half r = (half)modf((float)x, w);
  whole = (half)w;
  return r;
}
template <class T, int N> SM_FN vec<T, N> modf(vec<T, N> a, vec<T, N>& b) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_CALL2, modf)
}
SM_FN float sincos(float x, float& cosine) {
  cosine = cos(x);
  return sin(x);
}
SM_FN half sincos(half x, half& cosine) {
  cosine = cos(x);
  return sin(x);
}
template <class T, int N> SM_FN vec<T, N> sincos(vec<T, N> a, vec<T, N>& b) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_CALL2, sincos)
}

#undef SM_REAL1
#undef SM_REAL2
#undef SM_REAL3
#undef SM_ELEMENTARY
#undef SM_ELEMENTARY2
