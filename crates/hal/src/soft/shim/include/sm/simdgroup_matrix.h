// <metal_simdgroup_matrix>: 8x8 matrices spread over the lanes of a SIMD-group.
//
// Each lane owns two neighbouring elements of one row, in Apple's layout, which public code relies on
// through thread_elements(). Loads and stores therefore need no exchange; only products do.
#pragma once

namespace sm {
struct fragment {
  uint row, column;
};
SM_CX fragment fragment_of(uint lane) {
  uint quad = lane % simd_width / 4;
  return {(quad & 4) + lane / 2 % 4, (quad & 2) * 2 + lane % 2 * 2};
}
}  // namespace sm

namespace metal {
template <class T, int Cols, int Rows> struct simdgroup_matrix {
  static_assert(Cols == 8 && Rows == 8, "simdgroup_matrix: only 8x8 exists");
  static_assert(__is_same(T, float) || __is_same(T, half) || __is_same(T, bfloat),
                "simdgroup_matrix: the element type is float, half or bfloat");
  typedef vec<T, 2> storage_type;

  simdgroup_matrix() = default;
  // A diagonal matrix.
  SM_FN explicit simdgroup_matrix(T diagonal) {
    ::sm::fragment f = ::sm::fragment_of(sm_lane());
    elements.x = f.row == f.column ? diagonal : T(0);
    elements.y = f.row == f.column + 1 ? diagonal : T(0);
  }
  SM_FN storage_type& thread_elements() { return elements; }
  SM_FN const storage_type& thread_elements() const { return elements; }

 private:
  storage_type elements;
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Cols, int Rows = Cols>
SM_FN simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Cols, Rows> m;
  m.thread_elements() = vec<T, 2>(value, value);
  return m;
}
template <class T, int Cols, int Rows = Cols>
SM_FN simdgroup_matrix<T, Cols, Rows> make_diagonal_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, Cols, Rows>(value);
}
}  // namespace metal

namespace sm {
// Where this lane's two elements lie in memory: the first, and the distance to the second.
struct place {
  ulong first, step;
};
SM_FN place place_of(ulong elements_per_row, ulong2 origin, bool transposed) {
  fragment f = fragment_of(sm_lane());
  if (transposed) return {(origin.y + f.column) * elements_per_row + origin.x + f.row, elements_per_row};
  return {(origin.y + f.row) * elements_per_row + origin.x + f.column, 1};
}
}  // namespace sm

namespace metal {
template <class T>
SM_FN void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const T* source, ulong elements_per_row = 8,
                          ulong2 matrix_origin = ulong2(0, 0), bool transpose_matrix = false) {
  ::sm::place p = ::sm::place_of(elements_per_row, matrix_origin, transpose_matrix);
  d.thread_elements() = vec<T, 2>(source[p.first], source[p.first + p.step]);
}
template <class T>
SM_FN void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, const volatile T* source, ulong elements_per_row = 8,
                          ulong2 matrix_origin = ulong2(0, 0), bool transpose_matrix = false) {
  simdgroup_load(d, (const T*)source, elements_per_row, matrix_origin, transpose_matrix);
}
template <class T>
SM_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8>& a, ::sm::same<T>* destination,
                           ulong elements_per_row = 8, ulong2 matrix_origin = ulong2(0, 0),
                           bool transpose_matrix = false) {
  ::sm::place p = ::sm::place_of(elements_per_row, matrix_origin, transpose_matrix);
  destination[p.first] = a.thread_elements().x;
  destination[p.first + p.step] = a.thread_elements().y;
}
}  // namespace metal

namespace sm {
// Two elements as one scalar operand.
template <class T> using pair_bits = typename word<2 * sizeof(T)>::type;
template <class T> SM_FN pair_bits<T> to_bits(const vec<T, 2>& v) { return __builtin_bit_cast(pair_bits<T>, v); }

template <class T> SM_FN void gather(float (&m)[8][8], const void* column, uint mask) {
  const vec<T, 2>* lanes = (const vec<T, 2>*)column;
  for (uint lane = 0; lane < simd_width; lane++) {
    fragment f = fragment_of(lane);
    bool present = mask == all_lanes || active(mask, lane);
    m[f.row][f.column] = present ? (float)lanes[lane].x : 0.0f;
    m[f.row][f.column + 1] = present ? (float)lanes[lane].y : 0.0f;
  }
}

// D = A B + C. Sums are kept in float and rounded to D's type once. args: A, B, C as pairs.
template <class D, class A, class B, class C>
SM_UNCHECKED void multiply_accumulate_op(const void* const* args, void* ret, uint mask) {
  alignas(64) float a[8][8], b[8][8], sum[8][8];
  gather<A>(a, args[0], mask);
  gather<B>(b, args[1], mask);
  gather<C>(sum, args[2], mask);
  for (uint i = 0; i < 8; i++)
    for (uint k = 0; k < 8; k++)
      for (uint j = 0; j < 8; j++) {
#if defined(__FMA__) || defined(__aarch64__)
        sum[i][j] = __builtin_fmaf(a[i][k], b[k][j], sum[i][j]);
#else
        sum[i][j] += a[i][k] * b[k][j];
#endif
      }
  vec<D, 2>* lanes = (vec<D, 2>*)ret;
  for (uint lane = 0; lane < simd_width; lane++) {
    if (mask != all_lanes && !active(mask, lane)) continue;
    fragment f = fragment_of(lane);
    lanes[lane].x = (D)sum[f.row][f.column];
    lanes[lane].y = (D)sum[f.row][f.column + 1];
  }
}
}  // namespace sm

namespace metal {
template <class D, class A, class B, class C>
SM_FN void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                         const simdgroup_matrix<B, 8, 8>& b,
                                         const simdgroup_matrix<C, 8, 8>& c) {
  ::sm::pair_bits<D> product = ::sm::sync_simd<::sm::pair_bits<D>>(
      &::sm::multiply_accumulate_op<D, A, B, C>, ::sm::to_bits(a.thread_elements()),
      ::sm::to_bits(b.thread_elements()), ::sm::to_bits(c.thread_elements()));
  d.thread_elements() = __builtin_bit_cast(vec<D, 2>, product);
}
template <class D, class A, class B>
SM_FN void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                              const simdgroup_matrix<B, 8, 8>& b) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0)));
}
template <class T>
SM_FN simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8>& a,
                                          const simdgroup_matrix<T, 8, 8>& b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b);
  return d;
}
}  // namespace metal
