// <metal_array>: a fixed-size array as a value, and array_ref, a view of one.
#pragma once

namespace metal {
template <class T, size_t N> struct array {
  T elements[N];
  SM_CX T& operator[](size_t i) { return elements[i]; }
  SM_CX const T& operator[](size_t i) const { return elements[i]; }
  SM_CX T& at(size_t i) { return elements[i]; }
  SM_CX const T& at(size_t i) const { return elements[i]; }
  SM_CX T& front() { return elements[0]; }
  SM_CX const T& front() const { return elements[0]; }
  SM_CX T& back() { return elements[N - 1]; }
  SM_CX const T& back() const { return elements[N - 1]; }
  SM_CX T* data() { return elements; }
  SM_CX const T* data() const { return elements; }
  SM_CX T* begin() { return elements; }
  SM_CX const T* begin() const { return elements; }
  SM_CX T* end() { return elements + N; }
  SM_CX const T* end() const { return elements + N; }
  SM_CX size_t size() const { return N; }
  SM_CX bool empty() const { return N == 0; }
  SM_CX void fill(const T& value) {
    for (size_t i = 0; i < N; i++) elements[i] = value;
  }
};

template <class T> struct array_ref {
  T* elements;
  size_t count;
  SM_CX array_ref(T* first, size_t n) : elements(first), count(n) {}
  template <size_t N> SM_CX array_ref(array<__remove_const(T), N>& a) : elements(a.elements), count(N) {}
  template <size_t N>
  SM_CX array_ref(const array<__remove_const(T), N>& a) : elements(a.elements), count(N) {}
  SM_CX T& operator[](size_t i) const { return elements[i]; }
  SM_CX size_t size() const { return count; }
};
}  // namespace metal
