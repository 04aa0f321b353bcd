// <metal_geometric>.
#pragma once

namespace metal {
// Vectors, or packed vectors that convert to them.
#define SM_OF_VECTOR(R, name)                                                                \
  template <class T, int N> SM_FN R name(packed_vec<T, N> a) { return name(vec<T, N>(a)); }  \
  template <class T, int N, class = ::sm::if_real<T>> SM_FN R name(vec<T, N> a)
#define SM_OF_TWO(R, name)                                                                   \
  template <class T, int N, class = ::sm::if_floating<T>>                                    \
  SM_FN R name(packed_vec<T, N> a, ::sm::same<vec<T, N>> b) {                                \
    return name(vec<T, N>(a), b);                                                            \
  }                                                                                          \
  template <class T, int N, class = ::sm::if_floating<T>>                                    \
  SM_FN R name(vec<T, N> a, ::sm::same<vec<T, N>> b)

SM_OF_TWO(T, dot) { return ::sm::dot(a, b, ::sm::first<N>{}); }

template <class T> SM_FN vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return vec<T, 3>(T(a.y * b.z - a.z * b.y), T(a.z * b.x - a.x * b.z), T(a.x * b.y - a.y * b.x));
}
template <class T> SM_FN vec<T, 3> cross(packed_vec<T, 3> a, packed_vec<T, 3> b) {
  return cross(vec<T, 3>(a), vec<T, 3>(b));
}

SM_OF_VECTOR(T, length_squared) { return dot(a, a); }
SM_OF_VECTOR(T, length) { return (T)__builtin_sqrtf((float)dot(a, a)); }
SM_OF_TWO(T, distance_squared) { return length_squared(a - b); }
SM_OF_TWO(T, distance) { return length(a - b); }
template <class T, int N> SM_FN vec<T, N> normalize(packed_vec<T, N> a);
template <class T, int N, class = ::sm::if_real<T>> SM_FN vec<T, N> normalize(vec<T, N> a) {
  return a * (T)(1.0f / __builtin_sqrtf((float)dot(a, a)));
}
template <class T, int N> SM_FN vec<T, N> normalize(packed_vec<T, N> a) {
  return normalize(vec<T, N>(a));
}

// n, flipped if necessary so that it points against the incident vector i.
template <class T, int N>
SM_FN vec<T, N> faceforward(vec<T, N> n, ::sm::same<vec<T, N>> i, ::sm::same<vec<T, N>> reference) {
  return dot(reference, i) < T(0) ? n : -n;
}
template <class T, int N> SM_FN vec<T, N> reflect(vec<T, N> i, ::sm::same<vec<T, N>> n) {
  return i - n * T(T(2) * dot(n, i));
}
template <class T, int N>
SM_FN vec<T, N> refract(vec<T, N> i, ::sm::same<vec<T, N>> n, ::sm::same<T> eta) {
  T cosine = dot(n, i);
  T k = T(T(1) - T(eta * eta) * T(T(1) - T(cosine * cosine)));
  if (k < T(0)) return vec<T, N>(T(0));
  return i * eta - n * T(T(eta * cosine) + (T)__builtin_sqrtf((float)k));
}
#undef SM_OF_VECTOR
#undef SM_OF_TWO

namespace fast {
using metal::distance;
using metal::length;
using metal::normalize;
}  // namespace fast
namespace precise {
using metal::distance;
using metal::length;
using metal::normalize;
}  // namespace precise
}  // namespace metal
