// <metal_simdgroup_matrix>: 8x8 matrices distributed over the lanes of a SIMD-group.
//
// Each lane owns two neighbouring elements of one row, in Apple's layout, which public code relies on
// through thread_elements(). Loads and stores therefore need no data exchange; only products do.
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
// Check mode verifies that all lanes of the SIMD-group participate. Like the functions themselves, this orders no memory.
#if SM_CHECK
constexpr uint whole_simdgroup = 1u << 16;
SM_FN void check_participation() { sm_sync_sg(whole_simdgroup); }
#else
SM_FN void check_participation() {}
#endif

// Offsets of this lane's two elements in memory: that of the first, and the distance to the second.
struct element_offsets {
  ulong first, stride;
};
SM_FN element_offsets offsets_of(ulong elements_per_row, ulong2 origin, bool transposed) {
  fragment f = fragment_of(sm_lane());
  if (transposed) return {(origin.y + f.column) * elements_per_row + origin.x + f.row, elements_per_row};
  return {(origin.y + f.row) * elements_per_row + origin.x + f.column, 1};
}
}  // namespace sm

namespace metal {
template <class T, class S, class = enable_if_t<__is_same(::sm::bare<S>, T)>>
SM_FN void simdgroup_load(simdgroup_matrix<T, 8, 8>& d, S* source, ulong elements_per_row = 8,
                          ulong2 matrix_origin = ulong2(0, 0), bool transpose_matrix = false) {
  ::sm::check_participation();
  ::sm::element_offsets p = ::sm::offsets_of(elements_per_row, matrix_origin, transpose_matrix);
  auto from = (const __remove_volatile(S)*)source;
  d.thread_elements() = vec<T, 2>(from[p.first], from[p.first + p.stride]);
}
template <class T, class S, class = enable_if_t<__is_same(::sm::bare<S>, T)>>
SM_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8>& a, S* destination,
                           ulong elements_per_row = 8, ulong2 matrix_origin = ulong2(0, 0),
                           bool transpose_matrix = false) {
  ::sm::check_participation();
  ::sm::element_offsets p = ::sm::offsets_of(elements_per_row, matrix_origin, transpose_matrix);
  destination[p.first] = a.thread_elements().x;
  destination[p.first + p.stride] = a.thread_elements().y;
}
}  // namespace metal

namespace sm {
// Bits of two elements as one scalar operand.
template <class T> using pair_bits = typename word<2 * sizeof(T)>::type;
template <class T> SM_FN pair_bits<T> to_bits(const vec<T, 2>& v) { return __builtin_bit_cast(pair_bits<T>, v); }

// A row as a vector; products run outside of kernel regions, so they may use vector types.
typedef float eight __attribute__((ext_vector_type(8)));
typedef uint eight_bits __attribute__((ext_vector_type(8)));
template <class T> struct row_vectors {
  // bfloats are moved as their bits: most processors have no instructions for them.
  using E = typename metal::conditional_t<__is_same(T, bfloat), ushort, T>;
  typedef E of_four __attribute__((ext_vector_type(4), aligned(alignof(E))));
  typedef E of_eight __attribute__((ext_vector_type(8)));

  static SM_FN eight widen(of_eight v) {
    if constexpr (__is_same(T, bfloat))
      return __builtin_bit_cast(eight, __builtin_convertvector(v, eight_bits) << 16);
    else return __builtin_convertvector(v, eight);
  }
  static SM_FN of_eight round(eight row) {
    if constexpr (__is_same(T, bfloat)) {
      eight_bits f = __builtin_bit_cast(eight_bits, row);
      eight_bits nearest_even = (f + 0x7fff + (f >> 16 & 1)) >> 16;
      return __builtin_convertvector(row == row ? nearest_even : (f >> 16 | 0x40), of_eight);
    } else {
      return __builtin_convertvector(row, of_eight);
    }
  }
};

// Row r of a matrix is two contiguous blocks of four elements: two neighbouring lanes own the left half,
// and the lanes 8 higher the right half.
SM_FN uint first_element_of_row(uint r) { return 2 * (r / 4 * 16 + r % 4 * 2); }
constexpr uint to_right_half = 2 * 8;

template <class T> SM_FN eight load_row(const T* elements, uint r) {
  const T* left = elements + first_element_of_row(r);
  typename row_vectors<T>::of_four l = *(const typename row_vectors<T>::of_four*)left;
  typename row_vectors<T>::of_four h = *(const typename row_vectors<T>::of_four*)(left + to_right_half);
  return row_vectors<T>::widen(__builtin_shufflevector(l, h, 0, 1, 2, 3, 4, 5, 6, 7));
}
template <class T> SM_FN void store_row(T* elements, uint r, eight row) {
  T* left = elements + first_element_of_row(r);
  typename row_vectors<T>::of_eight v = row_vectors<T>::round(row);
  *(typename row_vectors<T>::of_four*)left = __builtin_shufflevector(v, v, 0, 1, 2, 3);
  *(typename row_vectors<T>::of_four*)(left + to_right_half) = __builtin_shufflevector(v, v, 4, 5, 6, 7);
}

// D = A B + C, all as columns of lanes. Sums are accumulated in float and rounded to D's type once.
template <class D, class A, class B, class C>
SM_FN void multiply_accumulate(D* d, const A* a, const B* b, const C* c) {
  eight rows[8];
  for (uint k = 0; k < 8; k++) rows[k] = load_row(b, k);
#pragma clang loop unroll(full)
  for (uint i = 0; i < 8; i++) {
    eight factors = load_row(a, i), sum = load_row(c, i);
#pragma clang loop unroll(full)
    for (uint k = 0; k < 8; k++) {
      eight factor = factors[k];
      sum = __builtin_elementwise_fma(factor, rows[k], sum);
    }
    store_row(d, i, sum);
  }
}

// The elements of the active lanes; those of the others are zero.
template <class T> struct active_elements {
  T of[64];
  SM_FN active_elements(const void* column, uint mask) {
    for (uint i = 0; i < 64; i++) of[i] = active(mask, i / 2) ? ((const T*)column)[i] : T(0);
  }
};

// args: A, B, C as pairs.
template <class D, class A, class B, class C>
SM_UNCHECKED void multiply_accumulate_op(const void* const* args, void* ret, uint mask) {
  if (mask == all_lanes) {
    multiply_accumulate((D*)ret, (const A*)args[0], (const B*)args[1], (const C*)args[2]);
    return;
  }
  active_elements<A> a(args[0], mask);
  active_elements<B> b(args[1], mask);
  active_elements<C> c(args[2], mask);
  D d[64];
  multiply_accumulate(d, a.of, b.of, c.of);
  for (uint i = 0; i < 64; i++)
    if (active(mask, i / 2)) ((D*)ret)[i] = d[i];
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
