// Macros that define a function of vectors from a function of scalars with the same name.
//
// Scalars may stand in for vectors wherever one argument is a vector, as implicit conversion allows
// in MSL; packed vectors convert to vectors.
#pragma once

#define SM_LIFT1(name)                                                       \
  template <class T, int N> SM_FN vec<T, N> name(vec<T, N> a) {              \
    using R = vec<T, N>;                                                     \
    SM_EACH(R, N, SM_CALL1, name)                                            \
  }                                                                          \
  template <class T, int N> SM_FN auto name(packed_vec<T, N> a) { return name(vec<T, N>(a)); }

#define SM_LIFT2(name)                                                                  \
  template <class T, int N> SM_FN vec<T, N> name(vec<T, N> a, ::sm::same<vec<T, N>> b) { \
    using R = vec<T, N>;                                                                \
    SM_EACH(R, N, SM_CALL2, name)                                                       \
  }                                                                                     \
  template <class S, class T, int N, class = ::sm::if_scalar<S>>                        \
  SM_FN vec<T, N> name(S a, vec<T, N> b) {                                              \
    return name(vec<T, N>(a), b);                                                       \
  }                                                                                     \
  template <class T, int N>                                                             \
  SM_FN vec<T, N> name(packed_vec<T, N> a, ::sm::same<vec<T, N>> b) {                   \
    return name(vec<T, N>(a), b);                                                       \
  }

#define SM_LIFT3(name)                                                                \
  template <class T, int N>                                                           \
  SM_FN vec<T, N> name(vec<T, N> a, ::sm::same<vec<T, N>> b, ::sm::same<vec<T, N>> c) { \
    using R = vec<T, N>;                                                              \
    SM_EACH(R, N, SM_CALL3, name)                                                     \
  }                                                                                   \
  template <class S, class U, class T, int N, class = ::sm::if_scalar<S>, class = ::sm::if_scalar<U>> \
  SM_FN vec<T, N> name(S a, U b, vec<T, N> c) {                                       \
    return name(vec<T, N>(a), vec<T, N>(b), c);                                       \
  }                                                                                   \
  template <class T, int N>                                                           \
  SM_FN vec<T, N> name(packed_vec<T, N> a, ::sm::same<vec<T, N>> b, ::sm::same<vec<T, N>> c) { \
    return name(vec<T, N>(a), b, c);                                                  \
  }

// Tests: vectors of bool.
#define SM_LIFT_TEST1(name)                                           \
  template <class T, int N> SM_CX vec<bool, N> name(vec<T, N> a) {    \
    using R = vec<bool, N>;                                           \
    SM_EACH(R, N, SM_CALL1, name)                                     \
  }
#define SM_LIFT_TEST2(name)                                                                \
  template <class T, int N> SM_CX vec<bool, N> name(vec<T, N> a, ::sm::same<vec<T, N>> b) { \
    using R = vec<bool, N>;                                                                \
    SM_EACH(R, N, SM_CALL2, name)                                                          \
  }
