// packed_vec<T, N>: vectors in memory, aligned like one component. They convert to vec<T, N> for
// arithmetic, so their operators only forward.
#pragma once

namespace sm {
template <class T, int N> struct packed_storage;
template <class T> struct packed_storage<T, 1> {
  union {
    struct { T x; };
    struct { T r; };
    T data[1];
  };
};
template <class T> struct packed_storage<T, 2> {
  union {
    struct { T x, y; };
    struct { T r, g; };
    T data[2];
  };
};
template <class T> struct packed_storage<T, 3> {
  union {
    struct { T x, y, z; };
    struct { T r, g, b; };
    T data[3];
  };
};
template <class T> struct packed_storage<T, 4> {
  union {
    struct { T x, y, z, w; };
    struct { T r, g, b, a; };
    T data[4];
  };
};
}  // namespace sm

namespace sm {
namespace vectors {
template <class T, size_t N> struct packed_vector<T[N]> : ::sm::packed_storage<T, N> {
  using wide = vec<T, N>;
  packed_vector() = default;
  template <class U> SM_CX packed_vector(const vec<U, N>& v) { put(wide(v)); }
  template <class S, class = ::sm::if_scalar<S>> SM_CX packed_vector(S s) { put(wide(s)); }
  template <class A, class B, class... R, class = ::sm::if_complete<N, A, B, R...>>
  SM_CX packed_vector(const A& a, const B& b, const R&... r) {
    put(wide(a, b, r...));
  }
  SM_CX packed_vector(std::initializer_list<T> list) { put(wide(list)); }
  template <class V, class = ::sm::if_volatile<V, packed_vector>> SM_CX packed_vector(const V& v) {
    ::sm::store_volatile(*this, v);
  }
  template <int = 0> SM_CX packed_vector operator=(packed_vector v) volatile {
    ::sm::store_volatile(*this, v);
    return v;
  }

  SM_CX T& operator[](size_t i) { return this->data[i]; }
  SM_CX const T& operator[](size_t i) const { return this->data[i]; }
  SM_CX volatile T& operator[](size_t i) volatile { return this->data[i]; }
  SM_CX const volatile T& operator[](size_t i) const volatile { return this->data[i]; }
  template <int... i> SM_CX auto swz(::sm::I<i...>) const {
    return vec<T, sizeof...(i)>(::sm::component<i>(*this)...);
  }
  template <int... i> SM_CX auto swz(::sm::I<i...> order) const volatile { return packed_vector(*this).swz(order); }
  template <int... i> SM_CX auto swzref(::sm::I<i...>) {
    return ::sm::swizzle_ref<packed_vector, T, i...>{*this};
  }

#define SM_FORWARD(op)                                                                            \
  friend SM_CX auto operator op(const packed_vector& a, const packed_vector& b) { return wide(a) op wide(b); } \
  friend SM_CX auto operator op(const packed_vector& a, wide b) { return wide(a) op b; }             \
  friend SM_CX auto operator op(wide a, const packed_vector& b) { return a op wide(b); }             \
  template <class S, class = ::sm::if_scalar<S>>                                                  \
  friend SM_CX auto operator op(const packed_vector& a, S b) { return wide(a) op b; }                \
  template <class S, class = ::sm::if_scalar<S>>                                                  \
  friend SM_CX auto operator op(S a, const packed_vector& b) { return a op wide(b); }
#define SM_FORWARD_ASSIGN(op) \
  SM_FORWARD(op)              \
  friend SM_CX packed_vector& operator op##=(packed_vector& a, wide b) { return a = wide(a) op b; }
  SM_FORWARD_ASSIGN(+) SM_FORWARD_ASSIGN(-) SM_FORWARD_ASSIGN(*) SM_FORWARD_ASSIGN(/)
  SM_FORWARD_ASSIGN(%) SM_FORWARD_ASSIGN(&) SM_FORWARD_ASSIGN(|) SM_FORWARD_ASSIGN(^)
  SM_FORWARD_ASSIGN(<<) SM_FORWARD_ASSIGN(>>)
  SM_FORWARD(==) SM_FORWARD(!=) SM_FORWARD(<) SM_FORWARD(>) SM_FORWARD(<=) SM_FORWARD(>=)
#undef SM_FORWARD
#undef SM_FORWARD_ASSIGN
  friend SM_CX wide operator-(const packed_vector& a) { return -wide(a); }

 private:
  SM_CX void put(wide v) {
    this->x = v.x;
    if constexpr (N > 1) this->y = v.y;
    if constexpr (N > 2) this->z = v.z;
    if constexpr (N > 3) this->w = v.w;
  }
};
}  // namespace vectors
}  // namespace sm
