// Scalar types and the conversions between them.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;

// Both round at every operation, as a GPU does; see flags.txt for the two options that ensure it.
typedef _Float16 half;
typedef __bf16 bfloat;

// If clang did not keep address spaces as types, threadgroup memory would silently become private.
static_assert(!__is_same(sm_device int*, int*) && !__is_same(sm_constant int*, int*) && !__is_same(sm_threadgroup int*, int*) &&
                  !__is_same(sm_device int*, sm_constant int*) && !__is_same(sm_device int*, sm_threadgroup int*) &&
                  !__is_same(sm_constant int*, sm_threadgroup int*),
              "this clang does not distinguish the address spaces of Metal");
static_assert(__is_convertible(sm_device int*, int*) && !__is_convertible(int*, sm_device int*) &&
                  !__is_convertible(sm_device int*, sm_threadgroup int*),
              "the default address space of this clang does not include those of Metal");

namespace sm {
template <class T> struct identity { using type = T; };
// A parameter type that does not participate in template argument deduction.
template <class T> using same = typename identity<T>::type;

template <class T> struct spaceless { using type = T; static constexpr bool has_space = false; };
template <class T> struct spaceless<sm_device T> { using type = T; static constexpr bool has_space = true; };
template <class T> struct spaceless<sm_constant T> { using type = T; static constexpr bool has_space = true; };
template <class T> struct spaceless<sm_threadgroup T> { using type = T; static constexpr bool has_space = true; };
// Whether `thread T*` is a pointer to thread memory: it is not if `T` has an address space.
template <class T> constexpr bool in_thread = !spaceless<__remove_cv(T)>::has_space && !spaceless<T>::has_space;
// Without reference, const, volatile and address space.
template <class T> using bare = __remove_cv(typename spaceless<__remove_reference_t(T)>::type);

// An operand of `?:`: objects of class type in an address space become values, other operands are unchanged.
template <class T, bool is_value> struct operand { using type = T; };
template <class T> struct operand<T, true> { using type = bare<T>; };
template <class T>
using operand_t = typename operand<T, spaceless<__remove_reference_t(T)>::has_space && __is_class(bare<T>)>::type;
#define SM_OPERAND(...) ((::sm::operand_t<decltype((__VA_ARGS__))>)(__VA_ARGS__))

// clang has no direct conversion between _Float16 and __bf16.
template <class A, class B>
constexpr bool needs_float_between = (__is_same(A, half) && __is_same(B, bfloat)) ||
                                     (__is_same(A, bfloat) && __is_same(B, half));

template <class T, class S> SM_CX T convert(const S& s) {
  if constexpr (needs_float_between<T, S>) return (T)(float)s;
  else return (T)s;
}

// The rewriter replaces `static_cast` with this.
template <class T, class S> SM_CX decltype(auto) scast(S&& s) {
  using A = bare<T>;
  if constexpr (needs_float_between<A, bare<S>>) return (A)(float)s;
  else if constexpr (__is_reference(T) || __is_void(T)) return static_cast<T>(s);
  else return A(static_cast<A>(static_cast<S&&>(s)));
}

// Flushes a subnormal number to a zero of the same sign. The processor does so in arithmetic; functions that operate on bits
// must call this.
SM_CX float flushed(float x) {
  unsigned int bits = __builtin_bit_cast(unsigned int, x);
  return __builtin_bit_cast(float, bits & 0x7f800000 ? bits : bits & 0x80000000);
}

// The rewriter wraps literals in this that are so small that clang's front end must not fold them. Deliberately not a
// constant expression.
SM_FN float literal(float x) { return x; }

// Component numbers of a swizzle: `.xzy` is rewritten to `.swz(::sm::I<0, 2, 1>{})`.
template <int... i> struct I {};
}  // namespace sm
