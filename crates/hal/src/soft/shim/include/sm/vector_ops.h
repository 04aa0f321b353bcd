// Operators on vectors: component by component, with scalars broadcast to all components.
#pragma once

namespace sm {
// MSL takes a shift amount modulo the width of the shifted type.
template <class T, class U> SM_CX U shift_amount(U n) {
  constexpr uint width = sizeof(T) * 8;
#if SM_CHECK
  if (!__builtin_is_constant_evaluated()) __sm_mark(n < U(0) || (ulong)n >= width, 3, (ulong)n, width, 0);
#endif
  return U(n & U(width - 1));
}
}  // namespace sm

namespace sm {
namespace vectors {
#define SM_BINARY(k, op) T(a.k op b.k)
#define SM_SHIFT(k, op) T(a.k op ::sm::shift_amount<T>(b.k))
#define SM_COMPARE(k, op) (a.k op b.k)

#define SM_ASSIGNMENT(op)                                                       \
  template <class T, int N>                                                     \
  SM_CX vec<T, N>& operator op##=(vec<T, N>& a, ::sm::same<vec<T, N>> b) {      \
    return a = a op b;                                                          \
  }                                                                             \
  template <class T, int N>                                                     \
  SM_CX vec<T, N> operator op##=(volatile vec<T, N>& a, ::sm::same<vec<T, N>> b) { \
    return a = vec<T, N>(a) op b;                                               \
  }
#define SM_OPERATOR(op, M)                                                      \
  template <class T, int N> SM_CX vec<T, N> operator op(vec<T, N> a, vec<T, N> b) { \
    using R = vec<T, N>;                                                        \
    SM_EACH(R, N, M, op)                                                        \
  }                                                                             \
  template <class T, int N, class S, class = ::sm::if_operand<S, T>>            \
  SM_CX vec<T, N> operator op(vec<T, N> a, S b) {                               \
    return a op vec<T, N>(b);                                                   \
  }                                                                             \
  template <class T, int N, class S, class = ::sm::if_operand<S, T>>            \
  SM_CX vec<T, N> operator op(S a, vec<T, N> b) {                               \
    return vec<T, N>(a) op b;                                                   \
  }                                                                             \
  SM_ASSIGNMENT(op)
SM_OPERATOR(+, SM_BINARY)
SM_OPERATOR(-, SM_BINARY)
SM_OPERATOR(*, SM_BINARY)
SM_OPERATOR(/, SM_BINARY)
SM_OPERATOR(%, SM_BINARY)
SM_OPERATOR(&, SM_BINARY)
SM_OPERATOR(|, SM_BINARY)
SM_OPERATOR(^, SM_BINARY)
#undef SM_OPERATOR

// The amount may be of another integer type; the result has the type of the shifted operand.
#define SM_SHIFTING(op)                                                         \
  template <class T, class U, int N, class = ::sm::if_integer<T>, class = ::sm::if_integer<U>> \
  SM_CX vec<T, N> operator op(vec<T, N> a, vec<U, N> b) {                       \
    using R = vec<T, N>;                                                        \
    SM_EACH(R, N, SM_SHIFT, op)                                                 \
  }                                                                             \
  template <class T, int N, class S, class = ::sm::if_operand<S, T>, class = ::sm::if_integer<T>> \
  SM_CX vec<T, N> operator op(vec<T, N> a, S b) {                               \
    return a op vec<decltype(+b), N>(+b);                                       \
  }                                                                             \
  template <class T, int N, class S, class = ::sm::if_operand<S, T>, class = ::sm::if_integer<T>> \
  SM_CX vec<T, N> operator op(S a, vec<T, N> b) {                               \
    return vec<T, N>(a) op b;                                                   \
  }                                                                             \
  template <class T, int N, class U>                                            \
  SM_CX auto operator op##=(vec<T, N>& a, U b) -> decltype(a = a op b) {        \
    return a = a op b;                                                          \
  }                                                                             \
  template <class T, int N, class U>                                            \
  SM_CX auto operator op##=(volatile vec<T, N>& a, U b) -> decltype(a = vec<T, N>(a) op b) { \
    return a = vec<T, N>(a) op b;                                               \
  }
SM_SHIFTING(<<)
SM_SHIFTING(>>)
#undef SM_SHIFTING
#undef SM_ASSIGNMENT

#define SM_COMPARISON(op)                                                          \
  template <class T, int N> SM_CX vec<bool, N> operator op(vec<T, N> a, vec<T, N> b) { \
    using R = vec<bool, N>;                                                        \
    SM_EACH(R, N, SM_COMPARE, op)                                                  \
  }                                                                                \
  template <class T, int N, class S, class = ::sm::if_scalar<S>>                   \
  SM_CX vec<bool, N> operator op(vec<T, N> a, S b) {                               \
    return a op vec<T, N>(b);                                                      \
  }                                                                                \
  template <class T, int N, class S, class = ::sm::if_scalar<S>>                   \
  SM_CX vec<bool, N> operator op(S a, vec<T, N> b) {                               \
    return vec<T, N>(a) op b;                                                      \
  }
SM_COMPARISON(==)
SM_COMPARISON(!=)
SM_COMPARISON(<)
SM_COMPARISON(>)
SM_COMPARISON(<=)
SM_COMPARISON(>=)
SM_COMPARISON(&&)
SM_COMPARISON(||)
#undef SM_COMPARISON

#define SM_UNARY(k, op) T(op a.k)
#define SM_NOT(k, op) (op a.k)
template <class T, int N> SM_CX vec<T, N> operator+(vec<T, N> a) { return a; }
template <class T, int N> SM_CX vec<T, N> operator-(vec<T, N> a) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_UNARY, -)
}
template <class T, int N> SM_CX vec<T, N> operator~(vec<T, N> a) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_UNARY, ~)
}
template <class T, int N> SM_CX vec<bool, N> operator!(vec<T, N> a) {
  using R = vec<bool, N>;
  SM_EACH(R, N, SM_NOT, !)
}

#define SM_STEP(op, by)                                                     \
  template <class T, int N> SM_CX vec<T, N>& operator op(vec<T, N>& a) {    \
    return a = a by vec<T, N>(1);                                           \
  }                                                                         \
  template <class T, int N> SM_CX vec<T, N> operator op(vec<T, N>& a, int) { \
    vec<T, N> before = a;                                                   \
    a = a by vec<T, N>(1);                                                  \
    return before;                                                          \
  }
SM_STEP(++, +)
SM_STEP(--, -)
#undef SM_STEP
#undef SM_UNARY
#undef SM_NOT
#undef SM_BINARY
#undef SM_SHIFT
#undef SM_COMPARE
}  // namespace vectors
}  // namespace sm
