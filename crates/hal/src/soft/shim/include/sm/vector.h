// vec<T, N>: MSL's vectors, with MSL's sizes and alignments.
//
// They are classes and not clang's ext_vector_type, because native vectors know neither
// `float4(a, b, c, d)` nor `half4(float4)` nor `T4(x)` for a dependent T.
#pragma once

// The type that the language itself needs for brace lists.
namespace std {
template <class E> class initializer_list {
  const E* first_;
  size_t size_;

 public:
  constexpr initializer_list() : first_(nullptr), size_(0) {}
  constexpr size_t size() const { return size_; }
  constexpr const E* begin() const { return first_; }
  constexpr const E* end() const { return first_ + size_; }
};
}  // namespace std

namespace sm {
template <class V, class T, int... i> struct swizzle_ref;

// Component k of a scalar or vector.
template <int k, class V> SM_CX decltype(auto) component(const V& v) {
  if constexpr (shape<V>::count == 1) return (v);
  else if constexpr (k == 0) return (v.x);
  else if constexpr (k == 1) return (v.y);
  else if constexpr (k == 2) return (v.z);
  else return (v.w);
}

// Component k of the concatenation of all arguments.
template <class T, int k, class A, class... R> SM_CX T pick(const A& a, const R&... r) {
  if constexpr (k < shape<A>::count) return convert<T>(component<k>(a));
  else return pick<T, k - shape<A>::count>(r...);
}

template <int N, class... A>
using if_complete = enable_if_t<((shape<A>::count > 0) && ...) && (shape<A>::count + ...) == N>;

template <class E> SM_CX E listed(std::initializer_list<E> list, size_t i) {
  return i < list.size() ? list.begin()[i] : E(0);
}
}  // namespace sm

// What all vectors share. `LIST` initialises the components from expressions with component number
// k; `SM_COPY` is explained at vec<T, 3>.
#define SM_VECTOR_BODY(N, SCALAR, CONVERT, CONCAT, LIST)                                          \
  vec() = default;                                                                                \
  template <class S, class = ::sm::if_scalar<S>> SM_CX vec(S s) : SCALAR {}                       \
  template <class U> SM_CX explicit vec(const vec<U, N>& v) : CONVERT {}                          \
  template <class U> SM_CX vec(const packed_vec<U, N>& v) : CONVERT {}                            \
  template <class A, class B, class... R, class = ::sm::if_complete<N, A, B, R...>>               \
  SM_CX vec(const A& a, const B& b, const R&... r) : CONCAT {}                                    \
  SM_CX vec(std::initializer_list<T> list) : LIST {}                                              \
  template <int... i> SM_CX auto swz(::sm::I<i...>) const {                                       \
    return vec<T, (int)sizeof...(i)>(::sm::component<i>(*this)...);                               \
  }                                                                                               \
  template <int... i> SM_CX auto swzref(::sm::I<i...>) {                                          \
    return ::sm::swizzle_ref<vec, T, i...>{*this};                                                \
  }                                                                                               \
  SM_CX T& operator[](size_t i) { return ::sm::indexed<T>(*this, i); }                            \
  SM_CX const T& operator[](size_t i) const { return ::sm::indexed<const T>(*this, i); }

namespace sm {
// Subscripts: `data` views the components as an array, which constant evaluation does not allow.
template <class R, class V> SM_CX R& indexed(V& v, size_t i) {
  if (!__builtin_is_constant_evaluated()) return v.data[i];
  if constexpr (shape<bare<V>>::count == 4)
    if (i == 3) return v.w;
  if constexpr (shape<bare<V>>::count >= 3)
    if (i == 2) return v.z;
  return i == 0 ? v.x : v.y;
}
}  // namespace sm

namespace metal {
template <class T> struct alignas(sizeof(T) * 2) vec<T, 2> {
  union {
    struct { T x, y; };
    struct { T r, g; };
    T data[2];
  };
  SM_CX vec(T x_, T y_) : x(x_), y(y_) {}
#define SM_LIST(E) x(E(0)), y(E(1))
#define SM_SCALAR(k) ::sm::convert<T>(s)
#define SM_CONVERT(k) ::sm::convert<T>(::sm::component<k>(v))
#define SM_CONCAT(k) ::sm::pick<T, k>(a, b, r...)
#define SM_LISTED(k) ::sm::listed(list, k)
  SM_VECTOR_BODY(2, SM_LIST(SM_SCALAR), SM_LIST(SM_CONVERT), SM_LIST(SM_CONCAT), SM_LIST(SM_LISTED))
#undef SM_LIST
};

template <class T> struct alignas(sizeof(T) * 4) vec<T, 3> {
  union {
    struct { T x, y, z; };
    struct { T r, g, b; };
    T data[3];
  };
  SM_CX vec(T x_, T y_, T z_) : x(x_), y(y_), z(z_) {}
#define SM_LIST(E) x(E(0)), y(E(1)), z(E(2))
  SM_VECTOR_BODY(3, SM_LIST(SM_SCALAR), SM_LIST(SM_CONVERT), SM_LIST(SM_CONCAT), SM_LIST(SM_LISTED))
#undef SM_LIST
#if SM_CHECK
  // A bitwise copy would read the fourth, unused place, which nobody ever writes: the memory checker
  // would rightly call that an uninitialised read.
  SM_CX vec(const vec& v) : x(v.x), y(v.y), z(v.z) {}
  SM_CX vec& operator=(const vec& v) {
    x = v.x;
    y = v.y;
    z = v.z;
    return *this;
  }
#endif
};

template <class T> struct alignas(sizeof(T) * 4) vec<T, 4> {
  union {
    struct { T x, y, z, w; };
    struct { T r, g, b, a; };
    T data[4];
  };
  SM_CX vec(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {}
#define SM_LIST(E) x(E(0)), y(E(1)), z(E(2)), w(E(3))
  SM_VECTOR_BODY(4, SM_LIST(SM_SCALAR), SM_LIST(SM_CONVERT), SM_LIST(SM_CONCAT), SM_LIST(SM_LISTED))
#undef SM_LIST
};
#undef SM_SCALAR
#undef SM_CONVERT
#undef SM_CONCAT
#undef SM_LISTED
#undef SM_VECTOR_BODY
}  // namespace metal

namespace sm {
// The left side of `v.zyx = ...`, `v.xy += ...`.
template <class V, class T, int... i> struct swizzle_ref {
  V& target;
  using value = vec<T, (int)sizeof...(i)>;

  SM_CX operator value() const { return value(place<i>()...); }
  SM_CX value operator=(value v) const {
    store(v, __make_integer_seq<numbers, int, sizeof...(i)>{});
    return v;
  }
  SM_CX value operator=(const swizzle_ref& other) const { return *this = value(other); }
#define SM_ASSIGN(op) \
  SM_CX value operator op##=(value v) const { return *this = value(*this) op v; }
  SM_ASSIGN(+) SM_ASSIGN(-) SM_ASSIGN(*) SM_ASSIGN(/) SM_ASSIGN(%)
  SM_ASSIGN(&) SM_ASSIGN(|) SM_ASSIGN(^) SM_ASSIGN(<<) SM_ASSIGN(>>)
#undef SM_ASSIGN

 private:
  template <class, int...> struct numbers {};
  template <int k> SM_CX T& place() const {
    if constexpr (k == 0) return target.x;
    else if constexpr (k == 1) return target.y;
    else if constexpr (k == 2) return target.z;
    else return target.w;
  }
  template <int... k> SM_CX void store(const value& v, numbers<int, k...>) const {
    ((place<i>() = component<k>(v)), ...);
  }
};
}  // namespace sm
