// matrix<T, C, R>: C columns of R components, stored column by column.
#pragma once

namespace sm {
namespace vectors {
template <class A> struct columns_of;
}  // namespace vectors
}  // namespace sm

namespace metal {
template <class T, size_t C, size_t R> using matrix = ::sm::vectors::columns_of<T[C][R]>;
}  // namespace metal

namespace sm {
using metal::matrix;
template <class T, int C, int R> struct shape<matrix<T, C, R>> { static constexpr int count = -1; };

template <int... i> struct indices {};
template <class T, T... i> using collect = indices<(int)i...>;
template <int N> using first = __make_integer_seq<collect, int, N>;

template <class T, int R, int column, class S, int... r>
SM_CX vec<T, R> diagonal_column(S s, indices<r...>) {
  return vec<T, R>((r == column ? convert<T>(s) : T(0))...);
}
template <class T, int R, int column, int... r, class... A>
SM_CX vec<T, R> listed_column(indices<r...>, const A&... a) {
  return vec<T, R>(pick<T, column * R + r>(a...)...);
}
}  // namespace sm

namespace sm {
namespace vectors {
template <class T, size_t C, size_t R> struct columns_of<T[C][R]> {
  using column = vec<T, R>;
  column columns[C];

  columns_of() = default;
  // A scalar is the value of the diagonal.
  template <class S, class = ::sm::if_scalar<S>>
  SM_CX explicit columns_of(S s) : columns_of(s, ::sm::first<C>{}) {}
  template <class U>
  SM_CX explicit columns_of(const matrix<U, C, R>& m) : columns_of(m, ::sm::first<C>{}) {}
  // All components, or all columns.
  template <class A, class B, class... X, class = ::sm::if_complete<C * R, A, B, X...>>
  SM_CX columns_of(const A& a, const B& b, const X&... x)
      : columns_of(::sm::first<C>{}, a, b, x...) {}

  SM_CX column& operator[](size_t i) { return columns[i]; }
  SM_CX const column& operator[](size_t i) const { return columns[i]; }

 private:
  template <class S, int... c>
  SM_CX columns_of(S s, ::sm::indices<c...>)
      : columns{::sm::diagonal_column<T, R, c>(s, ::sm::first<R>{})...} {}
  template <class U, int... c>
  SM_CX columns_of(const matrix<U, C, R>& m, ::sm::indices<c...>) : columns{column(m.columns[c])...} {}
  template <class... A, int... c>
  SM_CX columns_of(::sm::indices<c...>, const A&... a)
      : columns{::sm::listed_column<T, R, c>(::sm::first<R>{}, a...)...} {}
};
}  // namespace vectors
}  // namespace sm

namespace sm {
// A matrix from one expression per column; `f` is called with each column number.
template <class M, class F, int... c> SM_CX M by_column(F f, indices<c...>) {
  M m;
  ((m.columns[c] = f(c)), ...);
  return m;
}
template <class T, int C, int R, int... c>
SM_CX vec<T, R> combine(const matrix<T, C, R>& m, const vec<T, C>& v, indices<c...>) {
  vec<T, R> sum = m.columns[0] * v.x;
  ((c > 0 ? (void)(sum += m.columns[c] * component<c>(v)) : (void)0), ...);
  return sum;
}
template <class T, int N, int... r> SM_CX T dot(const vec<T, N>& a, const vec<T, N>& b, indices<r...>) {
  T sum = T(a.x * b.x);
  ((r > 0 ? (void)(sum = T(sum + T(component<r>(a) * component<r>(b)))) : (void)0), ...);
  return sum;
}
template <class T, int C, int R, int... c>
SM_CX vec<T, C> row_product(const vec<T, R>& v, const matrix<T, C, R>& m, indices<c...>) {
  return vec<T, C>(dot(v, m.columns[c], first<R>{})...);
}
template <int r, class T, int C, int R, int... c>
SM_CX vec<T, C> row(const matrix<T, C, R>& m, indices<c...>) {
  return vec<T, C>(component<r>(m.columns[c])...);
}
template <class T, int C, int R, int... r>
SM_CX matrix<T, R, C> transposed(const matrix<T, C, R>& m, indices<r...>) {
  matrix<T, R, C> t;
  ((t.columns[r] = row<r>(m, first<C>{})), ...);
  return t;
}
}  // namespace sm

namespace sm {
namespace vectors {
#define SM_COLUMNS(M, e) \
  ::sm::by_column<M>([&](int c) __attribute__((always_inline)) { return e; }, ::sm::first<C>{})
template <class T, int C, int R>
SM_CX matrix<T, C, R> operator+(matrix<T, C, R> a, matrix<T, C, R> b) {
  using M = matrix<T, C, R>;
  return SM_COLUMNS(M, a.columns[c] + b.columns[c]);
}
template <class T, int C, int R>
SM_CX matrix<T, C, R> operator-(matrix<T, C, R> a, matrix<T, C, R> b) {
  using M = matrix<T, C, R>;
  return SM_COLUMNS(M, a.columns[c] - b.columns[c]);
}
template <class T, int C, int R> SM_CX matrix<T, C, R> operator-(matrix<T, C, R> a) {
  using M = matrix<T, C, R>;
  return SM_COLUMNS(M, -a.columns[c]);
}
template <class T, int C, int R, class S, class = ::sm::if_scalar<S>>
SM_CX matrix<T, C, R> operator*(matrix<T, C, R> a, S s) {
  using M = matrix<T, C, R>;
  return SM_COLUMNS(M, a.columns[c] * ::sm::convert<T>(s));
}
template <class T, int C, int R, class S, class = ::sm::if_scalar<S>>
SM_CX matrix<T, C, R> operator*(S s, matrix<T, C, R> a) {
  return a * s;
}
template <class T, int C, int R> SM_CX vec<T, R> operator*(matrix<T, C, R> m, vec<T, C> v) {
  return ::sm::combine(m, v, ::sm::first<C>{});
}
template <class T, int C, int R> SM_CX vec<T, C> operator*(vec<T, R> v, matrix<T, C, R> m) {
  return ::sm::row_product(v, m, ::sm::first<C>{});
}
template <class T, int K, int R, int C>
SM_CX matrix<T, C, R> operator*(matrix<T, K, R> a, matrix<T, C, K> b) {
  using M = matrix<T, C, R>;
  return SM_COLUMNS(M, a * b.columns[c]);
}
#undef SM_COLUMNS

template <class T, int C, int R>
SM_CX matrix<T, C, R>& operator+=(matrix<T, C, R>& a, matrix<T, C, R> b) { return a = a + b; }
template <class T, int C, int R>
SM_CX matrix<T, C, R>& operator-=(matrix<T, C, R>& a, matrix<T, C, R> b) { return a = a - b; }
template <class T, int C, int R, class S>
SM_CX matrix<T, C, R>& operator*=(matrix<T, C, R>& a, S s) { return a = a * s; }

template <class T, int C, int R> SM_CX bool operator==(matrix<T, C, R> a, matrix<T, C, R> b) {
  bool equal = true;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++) equal &= a.columns[c][r] == b.columns[c][r];
  return equal;
}
template <class T, int C, int R> SM_CX bool operator!=(matrix<T, C, R> a, matrix<T, C, R> b) {
  return !(a == b);
}

}  // namespace vectors
}  // namespace sm

namespace metal {
template <class T, int C, int R> SM_CX matrix<T, R, C> transpose(matrix<T, C, R> m) {
  return ::sm::transposed(m, ::sm::first<R>{});
}

template <class T> SM_CX T determinant(matrix<T, 2, 2> m) {
  return T(m[0].x * m[1].y - m[0].y * m[1].x);
}
template <class T> SM_CX T determinant(matrix<T, 3, 3> m) {
  vec<T, 3> a = m[0], b = m[1], c = m[2];
  return T(a.x * (b.y * c.z - b.z * c.y) - a.y * (b.x * c.z - b.z * c.x) +
           a.z * (b.x * c.y - b.y * c.x));
}
template <class T> SM_CX T determinant(matrix<T, 4, 4> m) {
  vec<T, 4> a = m[0], b = m[1], c = m[2], d = m[3];
  // 2x2 minors of the last two columns, by their rows.
  T xy = c.x * d.y - c.y * d.x, xz = c.x * d.z - c.z * d.x, xw = c.x * d.w - c.w * d.x;
  T yz = c.y * d.z - c.z * d.y, yw = c.y * d.w - c.w * d.y, zw = c.z * d.w - c.w * d.z;
  return T(a.x * (b.y * zw - b.z * yw + b.w * yz) - a.y * (b.x * zw - b.z * xw + b.w * xz) +
           a.z * (b.x * yw - b.y * xw + b.w * xy) - a.w * (b.x * yz - b.y * xz + b.z * xy));
}
}  // namespace metal
