// Macros that define a function of vectors from a function of scalars with the same name.
//
// Scalars are accepted in place of vectors if any argument is a vector, as implicit conversion allows in MSL; packed
// vectors convert to vectors. The empty pack makes the general form less specialised than any user template: in MSL, where
// these are not templates, a user template that takes a scalar and a vector unconverted would be the better match. `of` is
// the constraint on the component type.
#pragma once

#define SM_LIFT1(name, of)                                                    \
  template <class T, int N, class = ::sm::of<T>> SM_FN vec<T, N> name(vec<T, N> a) { \
    using R = vec<T, N>;                                                     \
    SM_EACH(R, N, SM_CALL1, name)                                            \
  }                                                                          \
  template <class T, int N, class = ::sm::of<T>> SM_FN auto name(packed_vec<T, N> a) { return name(vec<T, N>(a)); }

#define SM_LIFT2(name, of)                                                              \
  template <class T, int N, class = ::sm::of<T>>                                        \
  SM_FN vec<T, N> name(vec<T, N> a, ::sm::same<vec<T, N>> b) {                          \
    using R = vec<T, N>;                                                                \
    SM_EACH(R, N, SM_CALL2, name)                                                       \
  }                                                                                     \
  template <class A, class B, class R = ::sm::lifted<A, B>, class... X, class = ::sm::if_none<X...>, \
            class = ::sm::of<typename ::sm::element_of<R>::type>>                       \
  SM_FN R name(A a, B b, X...) {                                                        \
    return name(R(a), R(b));                                                            \
  }

#define SM_LIFT3(name, of)                                                            \
  template <class T, int N, class = ::sm::of<T>>                                      \
  SM_FN vec<T, N> name(vec<T, N> a, ::sm::same<vec<T, N>> b, ::sm::same<vec<T, N>> c) { \
    using R = vec<T, N>;                                                              \
    SM_EACH(R, N, SM_CALL3, name)                                                     \
  }                                                                                   \
  template <class A, class B, class C, class R = ::sm::lifted<A, B, C>, class... X,   \
            class = ::sm::if_none<X...>, class = ::sm::of<typename ::sm::element_of<R>::type>> \
  SM_FN R name(A a, B b, C c, X...) {                                                 \
    return name(R(a), R(b), R(c));                                                    \
  }

// Predicates, which return vectors of bool.
#define SM_LIFT_TEST1(name)                                           \
  template <class T, int N, class = ::sm::if_floating<T>> SM_CX vec<bool, N> name(vec<T, N> a) { \
    using R = vec<bool, N>;                                           \
    SM_EACH(R, N, SM_CALL1, name)                                     \
  }
#define SM_LIFT_TEST2(name)                                                                \
  template <class T, int N, class = ::sm::if_floating<T>>                                  \
  SM_CX vec<bool, N> name(vec<T, N> a, ::sm::same<vec<T, N>> b) {                          \
    using R = vec<bool, N>;                                                                \
    SM_EACH(R, N, SM_CALL2, name)                                                          \
  }
