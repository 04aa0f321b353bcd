// Non-template overloads of library functions, for names that a program declares templates of.
//
// In MSL the library's vector functions are not templates, so an exact match is preferred to a user template. Here they are
// templates. For each name that the user declares a template of, the rewriter adds the non-template overloads with
// `SM_PLAIN_name`.
#pragma once

#define SM_PLAIN_SIZES(M, name, T) M(name, T, 2) M(name, T, 3) M(name, T, 4)
#define SM_PLAIN_REAL(M, name) SM_PLAIN_SIZES(M, name, float) SM_PLAIN_SIZES(M, name, half)
#define SM_PLAIN_INTEGER(M, name)                                                                    \
  SM_PLAIN_SIZES(M, name, char) SM_PLAIN_SIZES(M, name, uchar) SM_PLAIN_SIZES(M, name, short)        \
  SM_PLAIN_SIZES(M, name, ushort) SM_PLAIN_SIZES(M, name, int) SM_PLAIN_SIZES(M, name, uint)         \
  SM_PLAIN_SIZES(M, name, long) SM_PLAIN_SIZES(M, name, ulong)
#define SM_PLAIN_NUMBER(M, name) SM_PLAIN_REAL(M, name) SM_PLAIN_INTEGER(M, name)

#define SM_PLAIN1(name, T, N) SM_FN auto name(vec<T, N> a) { return name<T, N>(a); }
#define SM_PLAIN2(name, T, N) SM_FN auto name(vec<T, N> a, vec<T, N> b) { return name<T, N>(a, b); }
#define SM_PLAIN3(name, T, N) \
  SM_FN auto name(vec<T, N> a, vec<T, N> b, vec<T, N> c) { return name<T, N>(a, b, c); }
#define SM_PLAIN_REFRACT(name, T, N) SM_FN auto name(vec<T, N> a, vec<T, N> b, T c) { return name<T, N>(a, b, c); }
#define SM_PLAIN_LDEXP(name, T, N) SM_FN auto name(vec<T, N> a, vec<int, N> b) { return name<T, N>(a, b); }
#define SM_PLAIN_SELECT(name, T, N) \
  SM_FN auto name(vec<T, N> a, vec<T, N> b, vec<bool, N> c) { return name<T, N>(a, b, c); }
#define SM_PLAIN_BITS(name, T, N) SM_FN auto name(vec<T, N> a, uint b, uint c) { return name<T, N>(a, b, c); }

#define SM_PLAIN_CROSS(T) SM_FN auto cross(vec<T, 3> a, vec<T, 3> b) { return cross<T>(a, b); }

#define SM_PLAIN_abs SM_PLAIN_NUMBER(SM_PLAIN1, abs)
#define SM_PLAIN_absdiff SM_PLAIN_INTEGER(SM_PLAIN2, absdiff)
#define SM_PLAIN_acos SM_PLAIN_REAL(SM_PLAIN1, acos)
#define SM_PLAIN_acosh SM_PLAIN_REAL(SM_PLAIN1, acosh)
#define SM_PLAIN_addsat SM_PLAIN_INTEGER(SM_PLAIN2, addsat)
#define SM_PLAIN_asin SM_PLAIN_REAL(SM_PLAIN1, asin)
#define SM_PLAIN_asinh SM_PLAIN_REAL(SM_PLAIN1, asinh)
#define SM_PLAIN_atan SM_PLAIN_REAL(SM_PLAIN1, atan)
#define SM_PLAIN_atan2 SM_PLAIN_REAL(SM_PLAIN2, atan2)
#define SM_PLAIN_atanh SM_PLAIN_REAL(SM_PLAIN1, atanh)
#define SM_PLAIN_ceil SM_PLAIN_REAL(SM_PLAIN1, ceil)
#define SM_PLAIN_clamp SM_PLAIN_NUMBER(SM_PLAIN3, clamp)
#define SM_PLAIN_clz SM_PLAIN_INTEGER(SM_PLAIN1, clz)
#define SM_PLAIN_copysign SM_PLAIN_REAL(SM_PLAIN2, copysign)
#define SM_PLAIN_cos SM_PLAIN_REAL(SM_PLAIN1, cos)
#define SM_PLAIN_cosh SM_PLAIN_REAL(SM_PLAIN1, cosh)
#define SM_PLAIN_cospi SM_PLAIN_REAL(SM_PLAIN1, cospi)
#define SM_PLAIN_cross SM_PLAIN_CROSS(float) SM_PLAIN_CROSS(half)
#define SM_PLAIN_ctz SM_PLAIN_INTEGER(SM_PLAIN1, ctz)
#define SM_PLAIN_distance SM_PLAIN_REAL(SM_PLAIN2, distance)
#define SM_PLAIN_distance_squared SM_PLAIN_REAL(SM_PLAIN2, distance_squared)
#define SM_PLAIN_divide SM_PLAIN_REAL(SM_PLAIN2, divide)
#define SM_PLAIN_dot SM_PLAIN_REAL(SM_PLAIN2, dot)
#define SM_PLAIN_exp SM_PLAIN_REAL(SM_PLAIN1, exp)
#define SM_PLAIN_exp10 SM_PLAIN_REAL(SM_PLAIN1, exp10)
#define SM_PLAIN_exp2 SM_PLAIN_REAL(SM_PLAIN1, exp2)
#define SM_PLAIN_extract_bits SM_PLAIN_INTEGER(SM_PLAIN_BITS, extract_bits)
#define SM_PLAIN_fabs SM_PLAIN_REAL(SM_PLAIN1, fabs)
#define SM_PLAIN_faceforward SM_PLAIN_REAL(SM_PLAIN3, faceforward)
#define SM_PLAIN_fdim SM_PLAIN_REAL(SM_PLAIN2, fdim)
#define SM_PLAIN_floor SM_PLAIN_REAL(SM_PLAIN1, floor)
#define SM_PLAIN_fma SM_PLAIN_REAL(SM_PLAIN3, fma)
#define SM_PLAIN_fmax SM_PLAIN_REAL(SM_PLAIN2, fmax)
#define SM_PLAIN_fmax3 SM_PLAIN_REAL(SM_PLAIN3, fmax3)
#define SM_PLAIN_fmedian3 SM_PLAIN_REAL(SM_PLAIN3, fmedian3)
#define SM_PLAIN_fmin SM_PLAIN_REAL(SM_PLAIN2, fmin)
#define SM_PLAIN_fmin3 SM_PLAIN_REAL(SM_PLAIN3, fmin3)
#define SM_PLAIN_fmod SM_PLAIN_REAL(SM_PLAIN2, fmod)
#define SM_PLAIN_fract SM_PLAIN_REAL(SM_PLAIN1, fract)
#define SM_PLAIN_hadd SM_PLAIN_INTEGER(SM_PLAIN2, hadd)
#define SM_PLAIN_ilogb SM_PLAIN_REAL(SM_PLAIN1, ilogb)
#define SM_PLAIN_isfinite SM_PLAIN_REAL(SM_PLAIN1, isfinite)
#define SM_PLAIN_isinf SM_PLAIN_REAL(SM_PLAIN1, isinf)
#define SM_PLAIN_isnan SM_PLAIN_REAL(SM_PLAIN1, isnan)
#define SM_PLAIN_isnormal SM_PLAIN_REAL(SM_PLAIN1, isnormal)
#define SM_PLAIN_isordered SM_PLAIN_REAL(SM_PLAIN2, isordered)
#define SM_PLAIN_isunordered SM_PLAIN_REAL(SM_PLAIN2, isunordered)
#define SM_PLAIN_ldexp SM_PLAIN_REAL(SM_PLAIN_LDEXP, ldexp)
#define SM_PLAIN_length SM_PLAIN_REAL(SM_PLAIN1, length)
#define SM_PLAIN_length_squared SM_PLAIN_REAL(SM_PLAIN1, length_squared)
#define SM_PLAIN_log SM_PLAIN_REAL(SM_PLAIN1, log)
#define SM_PLAIN_log10 SM_PLAIN_REAL(SM_PLAIN1, log10)
#define SM_PLAIN_log2 SM_PLAIN_REAL(SM_PLAIN1, log2)
#define SM_PLAIN_mad24 SM_PLAIN_SIZES(SM_PLAIN3, mad24, int) SM_PLAIN_SIZES(SM_PLAIN3, mad24, uint)
#define SM_PLAIN_madhi SM_PLAIN_INTEGER(SM_PLAIN3, madhi)
#define SM_PLAIN_madsat SM_PLAIN_INTEGER(SM_PLAIN3, madsat)
#define SM_PLAIN_max SM_PLAIN_NUMBER(SM_PLAIN2, max)
#define SM_PLAIN_max3 SM_PLAIN_NUMBER(SM_PLAIN3, max3)
#define SM_PLAIN_median3 SM_PLAIN_NUMBER(SM_PLAIN3, median3)
#define SM_PLAIN_min SM_PLAIN_NUMBER(SM_PLAIN2, min)
#define SM_PLAIN_min3 SM_PLAIN_NUMBER(SM_PLAIN3, min3)
#define SM_PLAIN_mix SM_PLAIN_REAL(SM_PLAIN3, mix)
#define SM_PLAIN_mul24 SM_PLAIN_SIZES(SM_PLAIN2, mul24, int) SM_PLAIN_SIZES(SM_PLAIN2, mul24, uint)
#define SM_PLAIN_mulhi SM_PLAIN_INTEGER(SM_PLAIN2, mulhi)
#define SM_PLAIN_nextafter SM_PLAIN_REAL(SM_PLAIN2, nextafter)
#define SM_PLAIN_normalize SM_PLAIN_REAL(SM_PLAIN1, normalize)
#define SM_PLAIN_popcount SM_PLAIN_INTEGER(SM_PLAIN1, popcount)
#define SM_PLAIN_pow SM_PLAIN_REAL(SM_PLAIN2, pow)
#define SM_PLAIN_powr SM_PLAIN_REAL(SM_PLAIN2, powr)
#define SM_PLAIN_reflect SM_PLAIN_REAL(SM_PLAIN2, reflect)
#define SM_PLAIN_refract SM_PLAIN_REAL(SM_PLAIN_REFRACT, refract)
#define SM_PLAIN_reverse_bits SM_PLAIN_INTEGER(SM_PLAIN1, reverse_bits)
#define SM_PLAIN_rhadd SM_PLAIN_INTEGER(SM_PLAIN2, rhadd)
#define SM_PLAIN_rint SM_PLAIN_REAL(SM_PLAIN1, rint)
#define SM_PLAIN_rotate SM_PLAIN_INTEGER(SM_PLAIN2, rotate)
#define SM_PLAIN_round SM_PLAIN_REAL(SM_PLAIN1, round)
#define SM_PLAIN_rsqrt SM_PLAIN_REAL(SM_PLAIN1, rsqrt)
#define SM_PLAIN_saturate SM_PLAIN_REAL(SM_PLAIN1, saturate)
#define SM_PLAIN_select SM_PLAIN_NUMBER(SM_PLAIN_SELECT, select)
#define SM_PLAIN_sign SM_PLAIN_REAL(SM_PLAIN1, sign)
#define SM_PLAIN_signbit SM_PLAIN_REAL(SM_PLAIN1, signbit)
#define SM_PLAIN_sin SM_PLAIN_REAL(SM_PLAIN1, sin)
#define SM_PLAIN_sinh SM_PLAIN_REAL(SM_PLAIN1, sinh)
#define SM_PLAIN_sinpi SM_PLAIN_REAL(SM_PLAIN1, sinpi)
#define SM_PLAIN_smoothstep SM_PLAIN_REAL(SM_PLAIN3, smoothstep)
#define SM_PLAIN_sqrt SM_PLAIN_REAL(SM_PLAIN1, sqrt)
#define SM_PLAIN_step SM_PLAIN_REAL(SM_PLAIN2, step)
#define SM_PLAIN_subsat SM_PLAIN_INTEGER(SM_PLAIN2, subsat)
#define SM_PLAIN_tan SM_PLAIN_REAL(SM_PLAIN1, tan)
#define SM_PLAIN_tanh SM_PLAIN_REAL(SM_PLAIN1, tanh)
#define SM_PLAIN_tanpi SM_PLAIN_REAL(SM_PLAIN1, tanpi)
#define SM_PLAIN_trunc SM_PLAIN_REAL(SM_PLAIN1, trunc)
