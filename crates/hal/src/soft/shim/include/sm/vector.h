// vec<T, N>: MSL's vectors, with MSL's sizes and alignments.
//
// They are classes and not clang's ext_vector_type, because native vectors support neither
// `float4(a, b, c, d)` nor `half4(float4)` nor `T4(x)` for a dependent T.
#pragma once

// The type that the language requires for brace lists.
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
namespace metal {
using std::initializer_list;
}

namespace sm {
template <class V, class T, int... i> struct swizzle_ref;

// Component k of a scalar or vector.
template <int k, class V> SM_CX decltype(auto) component(const V& v) {
  if constexpr (metal::vec_elements<bare<V>>::value == 0) return (v);
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

// A volatile vector of the class V.
template <class A, class V>
using if_volatile = enable_if_t<__is_volatile(typename spaceless<A>::type) && __is_same(bare<A>, V)>;

template <int N, class... A>
using if_complete = enable_if_t<((shape<A>::count > 0) && ...) && (shape<A>::count + ...) == N>;

template <class E> SM_CX E listed(std::initializer_list<E> list, size_t i) {
  return i < list.size() ? list.begin()[i] : E(0);
}
}  // namespace sm

// Members of all vectors. `LIST` initialises the components from expressions with component number k. Copies of volatile
// vectors are templates, so that the class stays trivial.
#define SM_VECTOR_BODY(N, SCALAR, CONVERT, CONCAT, LIST)                                          \
  vector() = default;                                                                             \
  template <class S, class = ::sm::if_scalar<S>> SM_CX vector(S s) : SCALAR {}                    \
  template <class U> SM_CX explicit vector(const vec<U, N>& v) : CONVERT {}                       \
  template <class U> SM_CX vector(const packed_vec<U, N>& v) : CONVERT {}                         \
  template <class V, class = ::sm::if_volatile<V, vector>> SM_CX vector(const V& v) : CONVERT {}  \
  template <class A, class B, class... R, class = ::sm::if_complete<N, A, B, R...>>               \
  SM_CX vector(const A& a, const B& b, const R&... r) : CONCAT {}                                 \
  SM_CX vector(std::initializer_list<T> list) : LIST {}                                           \
  template <int = 0> SM_CX vector operator=(vector v) volatile {                                  \
    ::sm::store_volatile(*this, v);                                                               \
    return v;                                                                                     \
  }                                                                                               \
  template <int... i> SM_CX auto swz(::sm::I<i...>) const {                                       \
    return vec<T, sizeof...(i)>(::sm::component<i>(*this)...);                               \
  }                                                                                               \
  template <int... i> SM_CX auto swz(::sm::I<i...> order) const volatile {                        \
    return vector(*this).swz(order);                                                              \
  }                                                                                               \
  template <int... i> SM_CX auto swzref(::sm::I<i...>) {                                          \
    return ::sm::swizzle_ref<vector, T, i...>{*this};                                             \
  }                                                                                               \
  template <int... i> SM_CX auto swzref(::sm::I<i...>) volatile {                                 \
    return ::sm::swizzle_ref<volatile vector, volatile T, i...>{*this};                           \
  }                                                                                               \
  SM_CX T& operator[](size_t i) { return ::sm::indexed<T>(*this, i); }                            \
  SM_CX const T& operator[](size_t i) const { return ::sm::indexed<const T>(*this, i); }          \
  SM_CX volatile T& operator[](size_t i) volatile { return data[i]; }                             \
  SM_CX const volatile T& operator[](size_t i) const volatile { return data[i]; }

namespace sm {
template <class V, class W> SM_CX void store_volatile(V& to, const W& from) {
  to.x = from.x;
  if constexpr (shape<W>::count >= 2) to.y = from.y;
  if constexpr (shape<W>::count >= 3) to.z = from.z;
  if constexpr (shape<W>::count >= 4) to.w = from.w;
}

// Subscripts: `data` views the components as an array, which constant evaluation does not allow.
template <class R, class V> SM_CX R& indexed(V& v, size_t i) {
  if (!__builtin_is_constant_evaluated()) return v.data[i];
  if constexpr (shape<bare<V>>::count == 1) return v.x;
  if constexpr (shape<bare<V>>::count == 4)
    if (i == 3) return v.w;
  if constexpr (shape<bare<V>>::count >= 3)
    if (i == 2) return v.z;
  if constexpr (shape<bare<V>>::count >= 2) return i == 0 ? v.x : v.y;
}
}  // namespace sm

namespace sm {
namespace vectors {
template <class T> struct vector<T[1]> {
  union {
    struct { T x; };
    struct { T r; };
    T data[1];
  };
#define SM_LIST(E) x(E(0))
#define SM_SCALAR(k) ::sm::convert<T>(s)
#define SM_CONVERT(k) ::sm::convert<T>(::sm::component<k>(v))
#define SM_CONCAT(k) ::sm::pick<T, k>(a, b, r...)
#define SM_LISTED(k) ::sm::listed(list, k)
  SM_VECTOR_BODY(1, SM_LIST(SM_SCALAR), SM_LIST(SM_CONVERT), SM_LIST(SM_CONCAT), SM_LIST(SM_LISTED))
#undef SM_LIST
};

template <class T> struct alignas(sizeof(T) * 2) vector<T[2]> {
  union {
    struct { T x, y; };
    struct { T r, g; };
    T data[2];
  };
  SM_CX vector(T x_, T y_) : x(x_), y(y_) {}
#define SM_LIST(E) x(E(0)), y(E(1))
  SM_VECTOR_BODY(2, SM_LIST(SM_SCALAR), SM_LIST(SM_CONVERT), SM_LIST(SM_CONCAT), SM_LIST(SM_LISTED))
#undef SM_LIST
};

template <class T> struct alignas(sizeof(T) * 4) vector<T[3]> {
  union {
    struct { T x, y, z; };
    struct { T r, g, b; };
    T data[3];
  };
  SM_CX vector(T x_, T y_, T z_) : x(x_), y(y_), z(z_) {}
#define SM_LIST(E) x(E(0)), y(E(1)), z(E(2))
  SM_VECTOR_BODY(3, SM_LIST(SM_SCALAR), SM_LIST(SM_CONVERT), SM_LIST(SM_CONCAT), SM_LIST(SM_LISTED))
#undef SM_LIST
#if SM_CHECK
  // A bitwise copy would read the fourth, unused component, which is never written: the memory checker
  // would report an uninitialised read.
  SM_CX vector(const vector& v) : x(v.x), y(v.y), z(v.z) {}
  SM_CX vector& operator=(const vector& v) {
    x = v.x;
    y = v.y;
    z = v.z;
    return *this;
  }
#endif
};

template <class T> struct alignas(sizeof(T) * 4) vector<T[4]> {
  union {
    struct { T x, y, z, w; };
    struct { T r, g, b, a; };
    T data[4];
  };
  SM_CX vector(T x_, T y_, T z_, T w_) : x(x_), y(y_), z(z_), w(w_) {}
#define SM_LIST(E) x(E(0)), y(E(1)), z(E(2)), w(E(3))
  SM_VECTOR_BODY(4, SM_LIST(SM_SCALAR), SM_LIST(SM_CONVERT), SM_LIST(SM_CONCAT), SM_LIST(SM_LISTED))
#undef SM_LIST
};
#undef SM_SCALAR
#undef SM_CONVERT
#undef SM_CONCAT
#undef SM_LISTED
#undef SM_VECTOR_BODY
}  // namespace vectors
}  // namespace sm

namespace sm {
// The left side of `v.zyx = ...`, `v.xy += ...`.
template <class V, class T, int... i> struct swizzle_ref {
  V& target;
  using value = vec<__remove_volatile(T), sizeof...(i)>;

  SM_CX operator value() const { return value(component_at<i>()...); }
  SM_CX value operator=(value v) const {
    store(v, __make_integer_seq<numbers, int, sizeof...(i)>{});
    return v;
  }
  SM_CX value operator=(const swizzle_ref& other) const { return *this = value(other); }
#define SM_ASSIGN(op) \
  SM_CX value operator op##=(value v) const { return *this = value(*this) op v; }
  SM_ASSIGN(+) SM_ASSIGN(-) SM_ASSIGN(*) SM_ASSIGN(/) SM_ASSIGN(%)
  SM_ASSIGN(&) SM_ASSIGN(|) SM_ASSIGN(^)
#undef SM_ASSIGN
  template <class U> SM_CX value operator<<=(U v) const { return *this = value(*this) << v; }
  template <class U> SM_CX value operator>>=(U v) const { return *this = value(*this) >> v; }

 private:
  template <class, int...> struct numbers {};
  template <int k> SM_CX T& component_at() const {
    if constexpr (k == 0) return target.x;
    else if constexpr (k == 1) return target.y;
    else if constexpr (k == 2) return target.z;
    else return target.w;
  }
  template <int... k> SM_CX void store(const value& v, numbers<int, k...>) const {
    ((component_at<i>() = component<k>(v)), ...);
  }
};
}  // namespace sm
